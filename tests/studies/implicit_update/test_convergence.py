"""Sizes of steps by the number of examples: layers that are known, and what is kept."""

import pytest
from helpers import must_fail

from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.experiments import kept, presets
from icl_interp.experiments.setup import Setup
from icl_interp.figures import reproductions
from icl_interp.models.tokens import Stacked
from icl_interp.provenance import generator
from icl_interp.studies.implicit_update.constructions import weights
from icl_interp.studies.implicit_update.experiments import convergence
from icl_interp.studies.implicit_update.measurements.updates import FOREIGN, SIZE

ID = "implicit_update.convergence"


@pytest.fixture(scope="module")
def results():
    """Of a single step of descent, and of several that nearly find w."""
    models = {}
    for name, build in zip(
        convergence.RECIPES,
        (weights.one_step, lambda g: weights.converged(0.02, 0.02, g)),
        strict=True,
    ):
        case = build(generator(0, "test"))
        config = RunConfig(case.model.cfg, case.task, "stacked")
        models[name] = Checkpoint(case.model, case.task, Stacked(), config)
    with Setup(models, presets.PRESETS["smoke"]) as setup:
        return convergence.run(setup)


def test_slopes_of_known_layers_and_their_controls(results):
    slopes = results["slopes"].set_index(["model", "weights", "labels"])["value"]
    sums, finds = convergence.RECIPES

    def check(name, labels, low, high):
        assert low < slopes[name, name, labels] < high

    check(sums, SIZE, -0.1, 0.1)
    check(finds, SIZE, -2.0, -1.2)
    check(finds, FOREIGN, -0.9, -0.5)
    must_fail(check, finds, FOREIGN, -2.0, -1.2)
    assert {(name, convergence.UNTRAINED) for name in convergence.RECIPES} <= {
        key[:2] for key in slopes.index
    }


def test_a_statement_for_each_model_and_notes_on_its_controls(results):
    words = [line.word for line in convergence.states(results)]
    assert words == ["Not as in the paper: ", "", "", "", "As in the paper: ", "", "", ""]
    assert convergence.run(Setup({}, presets.PRESETS["smoke"])) == {}
    assert convergence.states({}) == ()


def test_what_is_kept_is_drawn_with_a_panel_a_model():
    found = kept.results(ID)
    assert set(found["slopes"]["model"]) == set(convergence.RECIPES)
    (figure,) = reproductions.draw(ID, found, None).values()
    names = {trace.name for trace in figure.data}
    assert names >= {f"as trained, {SIZE}", f"{convergence.UNTRAINED}, {FOREIGN}", "1 / n"}
