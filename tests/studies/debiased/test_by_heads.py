"""Trained layers of softmax heads: recipes, the figure, and statements on known weights."""

from dataclasses import replace

import pytest
from helpers import must_fail

from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.errors import InputError
from icl_interp.experiments import presets
from icl_interp.experiments.setup import Setup
from icl_interp.figures import reproductions
from icl_interp.models.tokens import Stacked
from icl_interp.provenance import generator
from icl_interp.studies.debiased.constructions.all import OPPOSITE, TASK, Head, attending
from icl_interp.studies.debiased.experiments import by_heads
from icl_interp.training import recipes

PLACES = {1: (Head(1, 1),), 2: OPPOSITE, 4: (*OPPOSITE, Head(1, 0.2), Head(-1, -0.2))}


@pytest.fixture(scope="module")
def results():
    """Of weights that are known, in the places of the recipes' models."""
    models = {}
    for count, heads in PLACES.items():
        model = attending(heads, generator(0, "test")).model
        config = RunConfig(model.cfg, TASK, "stacked")
        models[by_heads.RECIPES[count]] = Checkpoint(model, TASK, Stacked(), config)
    with Setup(models, presets.PRESETS["smoke"]) as setup:
        return by_heads.run(setup)


@pytest.mark.slow
def test_opposite_heads_are_near_the_step_and_one_head_is_not(results):
    found = results["errors"].sel(statistic="value", quantity=by_heads.DISTANCE)

    def check(count):
        assert float(found.sel(heads=count)) < 1e-3

    check(2)
    check(4)
    must_fail(check, 1)
    table = results["by head"]
    assert table["heads"].tolist() == [1, 2, 2, 4, 4]  # heads that attend alike are one


def test_statements_are_of_several_heads(results):
    lines = by_heads.states(results)
    assert len(lines) == 4
    assert {line.word for line in lines} == {"As in the paper: "}
    far = {"errors": results["errors"] + 2.0}
    assert {line.word for line in by_heads.states(far)} == {"Not as in the paper: "}
    assert by_heads.run(Setup({}, presets.PRESETS["smoke"])) == {}
    assert by_heads.states({}) == ()


def test_recipes_differ_in_the_number_of_heads_alone():
    one = recipes.resolve(by_heads.RECIPES[1])
    for count in (2, 4):
        other = recipes.resolve(by_heads.RECIPES[count])
        assert other.model == replace(one.model, n_heads=count)
        assert (other.task, other.training) == (one.task, one.training)
        assert by_heads.at_scale(other, "smoke").training.steps == 200
    assert by_heads.at_scale(one, "paper").training.steps == 100_000
    assert by_heads.at_scale(one, "small") == one
    with pytest.raises(InputError, match="no training section"):
        by_heads.at_scale(replace(one, training=None), "smoke")


def test_a_colour_a_layer(results):
    (figure,) = reproductions.draw("debiased.by_heads", results, None).values()
    assert {trace.name for trace in figure.data} >= {"1 head", "2 heads", "4 heads"}
