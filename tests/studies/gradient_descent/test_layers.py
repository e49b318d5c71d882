"""Layers beside steps of descent: on weights that are known, and what is kept."""

from dataclasses import replace

import pytest
from helpers import must_fail

from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.errors import InputError
from icl_interp.experiments import kept, presets
from icl_interp.experiments.setup import Setup
from icl_interp.figures import reproductions
from icl_interp.models.constructed import descent, gd_plus_plus
from icl_interp.models.tokens import Stacked
from icl_interp.studies.gradient_descent.experiments import layers
from icl_interp.tasks import LinearRegression
from icl_interp.training import recipes

TASK = LinearRegression(n_dims=3, n_points=9)


@pytest.fixture(scope="module")
def results():
    """Of one step of descent, and of two of GD++, in the places of the recipes' models."""
    models = {}
    for name, model in (
        (layers.RECIPES[1], descent(9, (0.4,), 3)),
        (layers.RECIPES[2], gd_plus_plus(9, (0.5, 0.4), (0.2, 0.2), 3)),
    ):
        config = RunConfig(model.cfg, TASK, "stacked")
        models[name] = Checkpoint(model, TASK, Stacked(), config)
    preset = presets.PRESETS["smoke"]
    with Setup(models, preset) as setup:
        return layers.run(setup)


def test_known_steps_are_found_by_number_of_layers(results):
    found = results["distances"].sel(statistic="value")
    assert found.indexes["layers"].tolist() == [1, 2]

    def check(family, one, other):
        assert float(found.sel(layers=one, family=family)) < 1e-5
        assert float(found.sel(layers=other, family=family)) > 1e-5

    check("descent", 1, 2)
    must_fail(check, "descent", 2, 1)
    assert float(found.sel(layers=2, family="GD++")) < 1e-5


def test_a_statement_for_each_number_of_layers(results):
    one, other = layers.states(results)
    assert "1 layer:" in one.sentence
    assert "GD++" in other.sentence
    assert {one.word, other.word} == {"As in the paper: "}
    far = {"distances": results["distances"] + 0.2}
    far["distances"].attrs = results["distances"].attrs
    assert {line.word for line in layers.states(far)} == {"Not as in the paper: "}
    assert layers.run(Setup({}, presets.PRESETS["smoke"])) == {}
    assert layers.states({}) == ()


def test_recipes_differ_in_the_number_of_layers_alone():
    one = recipes.resolve(layers.RECIPES[1])
    for number in (2, 3):
        other = recipes.resolve(layers.RECIPES[number])
        assert other.model == replace(one.model, n_layers=number)
        assert other.task == one.task
        assert layers.at_scale(other, "smoke").training.steps == 200
    full = layers.at_scale(one, "paper")
    assert (full.task.dim, full.task.n_points, full.training.steps) == (10, 11, 10_000)
    with pytest.raises(InputError, match="no training section"):
        layers.at_scale(replace(one, training=None), "smoke")


def test_what_is_kept_is_drawn_with_a_line_a_family():
    found = kept.results("gradient_descent.layers")
    assert found["distances"].indexes["layers"].tolist() == [1, 2, 3, 4]
    (figure,) = reproductions.draw("gradient_descent.layers", found, None).values()
    names = {trace.name for trace in figure.data}
    assert names >= {"descent", "preconditioned descent", "GD++"}
