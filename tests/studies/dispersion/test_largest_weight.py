"""Largest weights by the number of items: heads that are known, and what is kept."""

from dataclasses import replace

import pytest
from helpers import must_fail

from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.errors import InputError
from icl_interp.experiments import kept, presets
from icl_interp.experiments.setup import Setup
from icl_interp.figures import reproductions
from icl_interp.models.tokens import Stacked
from icl_interp.provenance import generator
from icl_interp.studies.dispersion.constructions import weights
from icl_interp.studies.dispersion.experiments import largest_weight
from icl_interp.training import recipes

ID = "dispersion.largest_weight"


@pytest.fixture(scope="module")
def results():
    """Of a head that disperses and one that keeps its weight, in the places of the models."""
    models = {}
    for name, own in ((largest_weight.ONE_HEAD, 0.5), (largest_weight.LAYERS, 60.0)):
        model = weights.finding(own, "softmax", generator(0, "test")).model
        config = RunConfig(model.cfg, weights.TASK, "stacked")
        models[name] = Checkpoint(model, weights.TASK, Stacked(), config)
    with Setup(models, presets.PRESETS["smoke"]) as setup:
        return largest_weight.run(setup)


@pytest.mark.slow
def test_slopes_of_known_heads_and_with_sharper_scores(results):
    slopes = results["slopes"].set_index(["model", "scores"])["value"]

    def check(name, scores, expected):
        assert slopes[name, scores] == pytest.approx(expected, abs=0.05)

    check(largest_weight.ONE_HEAD, largest_weight.TRAINED, -1.0)
    check(largest_weight.LAYERS, largest_weight.TRAINED, 0.0)
    must_fail(check, largest_weight.LAYERS, largest_weight.TRAINED, -1.0)
    # Scores times log n / log N: the own token's c = .5 gives n^(.5 / log N) / n, log N = 3.04.
    check(largest_weight.ONE_HEAD, largest_weight.SHARPENED, -1 + 0.5 / 3.04)
    must_fail(check, largest_weight.ONE_HEAD, largest_weight.SHARPENED, -1.0)


def test_a_statement_for_each_model_and_a_note_for_sharper_scores(results):
    words = [line.word for line in largest_weight.states(results)]
    assert words == ["As in the paper: ", "", "Not as in the paper: ", ""]
    assert largest_weight.run(Setup({}, presets.PRESETS["smoke"])) == {}
    assert largest_weight.states({}) == ()


def test_scales():
    config = recipes.resolve(largest_weight.ONE_HEAD)
    assert largest_weight.at_scale(config, "smoke").training.steps == 20
    assert largest_weight.at_scale(config, "small") == config
    with pytest.raises(InputError, match="no training section"):
        largest_weight.at_scale(replace(config, training=None), "smoke")


def test_what_is_kept_is_drawn_with_a_panel_a_model():
    found = kept.results(ID)
    assert set(found["slopes"]["model"]) == {largest_weight.ONE_HEAD, largest_weight.LAYERS}
    (figure,) = reproductions.draw(ID, found, None).values()
    names = {trace.name for trace in figure.data}
    assert names >= {largest_weight.TRAINED, largest_weight.SHARPENED, "uniform: 1/n"}
