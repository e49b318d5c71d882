"""The nearest iterate by layer: weights that are known, and what is kept."""

import numpy as np
import pytest
from helpers import must_fail

from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.experiments import kept, presets
from icl_interp.experiments.setup import Setup
from icl_interp.figures import reproductions
from icl_interp.models.constructed import descent, newton
from icl_interp.models.tokens import Stacked
from icl_interp.studies.newton.experiments import layers
from icl_interp.tasks import LinearRegression

ID = "newton.layers"
TASK = LinearRegression(n_dims=3, n_points=17)


@pytest.fixture(scope="module")
def results():
    """Of Newton's iteration and of descent, in the places of two models."""
    models = {}
    known = (newton(17, 5, 0.08, 3), descent(17, (0.4,) * 5, 3))
    for name, model in zip(layers.MODELS, known, strict=False):
        config = RunConfig(model.cfg, TASK, "stacked")
        models[name] = Checkpoint(model, TASK, Stacked(), config)
    with Setup(models, presets.PRESETS["smoke"]) as setup:
        return layers.run(setup)


def test_known_layers_are_found_at_their_iterates(results):
    table = results["layers"]

    def check(name, family, expected):
        mine = table[(table["model"] == name) & (table["rival"] == family) & table["counts"]]
        found = mine["k"].to_numpy()
        np.testing.assert_allclose(found - found[-1], expected, atol=0.5)

    check(layers.MODELS[0], "Newton", np.arange(-5.0, 1.0))
    check(layers.MODELS[1], "descent", np.log2(np.arange(1, 6) / 5))
    must_fail(check, layers.MODELS[1], "descent", np.arange(-4.0, 1.0))


def test_statements_are_those_of_both_claims(results):
    lines = layers.states(results)
    assert [line.word for line in lines[:2]] == ["As in the paper: ", "Not as in the paper: "]
    assert [line.word for line in lines[2:]] == ["Not as in the paper: "] * 2
    assert layers.run(Setup({}, presets.PRESETS["smoke"])) == {}
    assert layers.states({}) == ()


def test_what_is_kept_is_drawn_with_a_panel_a_model():
    found = kept.results(ID)
    assert set(found["layers"]["model"]) == set(layers.MODELS)
    (figure,) = reproductions.draw(ID, found, None).values()
    names = {trace.name for trace in figure.data}
    assert names >= {"Newton's iterate", "descent, log2 of steps"}
