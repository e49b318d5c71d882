"""A run along its training: its snapshots, when claims are decided, what is refused."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import tiny_runs
import torch
from helpers import must_fail

import icl_interp
from icl_interp import pipeline, trajectories
from icl_interp.checkpoints import store
from icl_interp.errors import InputError
from icl_interp.figures.drawing import Line
from icl_interp.provenance import generator
from icl_interp.training import trainer

KEPT = (0, 5, 12)
CLAIM = "limits.softmax_uniform"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    trainer.train(tiny_runs.data(training={"snapshots": list(KEPT)}), folder)
    return folder


@pytest.fixture(scope="module")
def found(run):
    return icl_interp.trajectory(run, claims=[CLAIM], n_prompts=16)


def error_by_hand(model, loaded) -> float:
    """Of the query alone, by a forward pass of the model."""
    prompts = loaded.task.sample(256, generator(0, "trajectories/error"))
    with torch.no_grad():
        out = model(loaded.encoding.encode(prompts))[:, -1]
    truth = prompts.ys[:, -1]
    return float((out - truth).square().sum() / truth.square().sum())


def check_errors(found, models, loaded):
    by_hand = [error_by_hand(model, loaded) for model in models]
    assert found.error["value"].tolist() == pytest.approx(by_hand, rel=1e-4)


@pytest.mark.slow
def test_errors_are_those_of_the_snapshots(run, found):
    loaded = store.load(run)
    models = loaded.snapshots()
    assert found.steps == KEPT == tuple(found.error["step"])
    check_errors(found, models.values(), loaded)
    must_fail(check_errors, found, [loaded.model] * 3, loaded)
    assert (found.error["low"] < found.error["value"]).all()
    assert (found.error["value"] < found.error["high"]).all()


def check_roles(found, step, model, loaded):
    few = loaded.task.sample(64, generator(0, "trajectories/described"))
    at = store.Checkpoint(model, loaded.task, loaded.encoding, loaded.config)
    alone = icl_interp.probes.roles(at, few)
    here = found.roles[found.roles["step"] == step]
    np.testing.assert_allclose(here["score"], alone["score"], atol=1e-6)


def test_roles_and_influence_are_those_of_each_snapshot(run, found):
    loaded = store.load(run)
    models = loaded.snapshots()
    check_roles(found, 5, models[5], loaded)
    must_fail(check_roles, found, 5, models[12], loaded)
    assert set(found.influence["step"]) == set(KEPT)
    assert not found.left_out


def test_a_stopped_run_knows_no_later_snapshot(run):
    loaded = store.load(run)
    models = loaded.snapshots()
    at = trajectories.stopped(loaded, models, 5)
    assert list(at.snapshots()) == [0, 5]
    assert at.config.training.steps == at.step == 5
    assert at.config.training.snapshots == (0, 5)
    fresh = trajectories.stopped(loaded, models, 0)
    assert fresh.config.training is None
    facts = pipeline.facts_of(fresh, 8)
    assert (facts.n_steps, facts.snapshots) == (0, (0,))


def test_verdicts_of_few_prompts_are_open(found):
    assert found.verdicts["step"].tolist() == list(KEPT)
    assert set(found.verdicts["verdict"]) == {"inconclusive"}
    assert np.isnan(found.decided["first"][0])
    assert np.isnan(found.decided["settled"][0])
    assert CLAIM in str(found)


def check_decided(function, verdicts, first, settled, reversals):
    steps = [10 * i for i in range(len(verdicts))]
    table = pd.DataFrame({"step": steps, "claim": "a", "verdict": verdicts})
    row = function(table).iloc[0]
    np.testing.assert_equal([row["first"], row["settled"]], [first, settled])
    assert row["reversals"] == reversals


@pytest.mark.parametrize(
    ("signs", "first", "settled", "reversals"),
    [
        ("+++", 0, 0, 0),
        ("?+?", 10, np.nan, 0),
        ("-?++", 0, 20, 1),
        ("+-+-", 0, 30, 3),
        ("+?+", 0, 20, 0),
        ("???", np.nan, np.nan, 0),
    ],
)
def test_when_a_claim_is_decided(signs, first, settled, reversals):
    words = {"+": "supported", "-": "contradicted", "?": "inconclusive"}
    verdicts = [words[sign] for sign in signs]
    check_decided(trajectories.decided, verdicts, first, settled, reversals)


def test_the_order_of_steps_counts():
    def backwards(table):
        return trajectories.decided(table.assign(verdict=table["verdict"].tolist()[::-1]))

    found = ["contradicted", "inconclusive", "supported", "supported"]
    check_decided(trajectories.decided, found, 0, 20, 1)
    must_fail(check_decided, backwards, found, 0, 20, 1)


def test_one_figure(found):
    drawing = found.drawing()
    titles = [panel.title for panel in drawing.panels]
    assert titles == ["Error", "Influence of examples", "Roles of heads", "Verdicts"]
    line = drawing.panels[0].marks[-1]
    np.testing.assert_array_equal(line.y, found.error["value"])
    assert len(found.figure().data) > 4


def looks_differ(lines):
    """No two lines of the legend look the same."""
    looks = [(line.colour, line.symbol, line.dash) for line in lines if line.name]
    assert len(looks) == len(set(looks))


def test_lines_of_its_legend_can_be_told_apart(found):
    lines = [
        mark for panel in found.drawing().panels for mark in panel.marks if isinstance(mark, Line)
    ]
    names = [line.name for line in lines if line.name]
    assert len(names) > 4
    looks_differ(lines)
    must_fail(looks_differ, [replace(line, symbol="circle", colour="#000000") for line in lines])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"steps": [7]}, "unknown step of a snapshot '7'"),
        ({"steps": []}, "at least one snapshot"),
        ({"claims": CLAIM}, "claims must be a list"),
        ({"claims": ["limits.nothing"]}, "unknown claim"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_what_is_refused(run, arguments, says):
    with pytest.raises(InputError, match=says) as caught:
        icl_interp.trajectory(run, **{"claims": (), **arguments})
    assert "\n" not in str(caught.value)


def test_a_model_without_snapshots_is_refused():
    with pytest.raises(InputError, match="affine keeps no snapshots") as caught:
        icl_interp.trajectory("affine")
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_bundled_run_learns_the_inverse_covariance_at_the_end():
    claim = "lipschitz.inverse_covariance"
    found = icl_interp.trajectory("lipschitz_relu", claims=[claim], steps=(0, 2000))
    assert found.verdicts["verdict"].tolist() == ["contradicted", "supported"]
    assert found.decided.iloc[0].tolist() == [claim, 0, 2000, "supported", 1]
    near = found.roles[found.roles["role"] == "neighbours"]["score"].tolist()
    assert near[0] < 0 < 0.9 < near[1]
