"""Iterates by layer of a trained model: recipe, figure, and statements on known weights."""

import pytest
from helpers import must_fail

from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.experiments import presets
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import AGREES, DIFFERS, LEFT_OUT
from icl_interp.figures import reproductions
from icl_interp.models.tokens import Stacked
from icl_interp.provenance import generator
from icl_interp.studies.newton.constructions.all import TASK, ahead, one_a_layer, steps
from icl_interp.studies.newton.experiments import layers
from icl_interp.training import recipes


def results(case):
    """Of weights that are known, in the place of the recipe's model."""
    config = RunConfig(case.model.cfg, TASK, "stacked")
    models = {layers.RECIPE: Checkpoint(case.model, TASK, Stacked(), config)}
    with Setup(models, presets.PRESETS["smoke"]) as setup:
        return layers.run(setup)


@pytest.fixture(scope="module")
def found():
    """Layers that move on by three iterations, by one, and by a step of descent."""
    random = generator(0, "test")
    return {
        "three": results(ahead(1.0, random)),
        "one": results(one_a_layer(random)),
        "descent": results(steps(random)),
    }


def test_statements_are_those_of_the_claims(found):
    def check(name, *words):
        assert tuple(line.word for line in layers.states(found[name])) == words

    check("three", AGREES, AGREES)
    check("one", AGREES, DIFFERS)
    check("descent", DIFFERS, DIFFERS)
    must_fail(check, "descent", AGREES, AGREES)
    # Too few layers have no trend.
    few = {"numbers": found["three"]["numbers"].copy()}
    few["numbers"].loc[{"quantity": "layers"}] = 2.0
    assert [line.word for line in layers.states(few)] == [LEFT_OUT, LEFT_OUT]
    assert layers.states({}) == ()
    assert layers.run(Setup({}, presets.PRESETS["smoke"])) == {}


def test_the_figure_shows_k_and_distance_by_layer(found):
    (figure,) = reproductions.draw("newton.layers", found["one"], None).values()
    assert {trace.name for trace in figure.data} >= {"Newton's iterate", "descent, log2 of steps"}
    assert reproductions.draw("newton.layers", {}, None) == {}


def test_scales_of_the_recipe():
    recipe = recipes.resolve(layers.RECIPE)
    assert layers.at_scale(recipe, "small") == recipe
    paper = layers.at_scale(recipe, "paper")
    assert (paper.task.n_dims, paper.task.n_points, paper.model.n_layers) == (20, 41, 12)
    assert paper.model.n_ctx == 2 * paper.task.n_points
    shallow = recipes.resolve("softmax_fixed_20")
    assert (recipe.task, recipe.training) == (shallow.task, shallow.training)
