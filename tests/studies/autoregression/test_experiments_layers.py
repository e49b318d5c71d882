"""Layers against steps of gradient descent: descent in context, measures, statements."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.checkpoints.store import Checkpoint
from icl_interp.experiments import obtain
from icl_interp.experiments.presets import PRESETS
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import AGREES, DIFFERS, LEFT_OUT, OPEN
from icl_interp.figures import reproductions
from icl_interp.figures.style import safe
from icl_interp.models import tokens
from icl_interp.models.transformer import HookedTransformer
from icl_interp.results import table_of_rows
from icl_interp.studies.autoregression.experiments import figure5, models
from icl_interp.studies.autoregression.figures import figure5 as drawn5
from icl_interp.studies.autoregression.measurements.descent_steps import best_sizes
from icl_interp.tasks.autoregressive import AutoregressiveProcess
from icl_interp.theory import autoregression as theory
from icl_interp.training import trainer

TASK = AutoregressiveProcess(n_dims=2, n_points=8)
KINDS = {5: figure5.LINEAR, 10: figure5.FULL}


def test_descent_in_context_is_that_of_theory():
    """The closed form along directions against steps that are taken one by one."""
    setup = Setup({}, PRESETS["smoke"])
    sizes = best_sizes(TASK, 1, setup.seed)

    def errors(extra):
        found = np.zeros((len(figure5.STEPS), PRESETS["smoke"].n_functions))
        for block, prompts in enumerate(models.blocks(setup, TASK)):
            for i, n_steps in enumerate(figure5.STEPS):
                misses = []
                for t in (6, 7):  # the last quarter of eight points
                    W = theory.gradient_descent(
                        prompts.xs[:, : t + 1], sizes[n_steps], n_steps + extra
                    )
                    said = (W @ prompts.xs[:, t, :, None])[..., 0]
                    misses.append((said - prompts.ys[:, t]).square().mean())
                found[i, block] = torch.stack(misses).mean()
        return found  # |s| = |s_0| in all coordinates: predicting 0 has an error of 1

    measured = figure5.descent_errors(setup, TASK)
    assert measured.dims == ("step", "block")
    expected = errors(0)

    def check(expected):
        np.testing.assert_allclose(measured.values, expected, rtol=1e-6, atol=1e-12)

    check(expected)
    must_fail(check, errors(1))


def test_models_are_what_their_names_say():
    for kind, norm in ((figure5.LINEAR, "output"), (figure5.FULL, "post")):
        runs = {layers: obtain.config_of(model, "small") for layers, model in kind.models.items()}
        for layers, run in runs.items():
            assert (run.model.n_layers, run.model.norm_position, run.encoding) == (
                layers,
                norm,
                "augmented",
            )
            assert (run.model.d_model, run.model.n_heads, run.model.read_in) == (9, 1, "token")
            paper = obtain.config_of(kind.models[layers], "paper")
            assert (paper.task.n_dims, paper.model.d_model, paper.model.d_head) == (5, 15, 15)
            assert (paper.model.d_in, paper.model.d_out, paper.task.n_points) == (15, 5, 50)
        assert len({model.folder for model in kind.models.values()}) == len(figure5.LAYERS["paper"])
    assert {layers for layers, model in figure5.FULL.models.items() if "smoke" in model.scales} == {
        1,
        2,
    }


def made(ratios, error=0.05):
    """Results with these quotients of layers over steps."""
    rows = [
        {"what": "layers", "number": n, "error": error, "low": error, "high": error} for n in ratios
    ]
    rows += [
        {"what": "gradient descent", "number": n, "error": 0.1 / n, "low": 0.0, "high": 1.0}
        for n in (1, 2, 4)
    ]
    quotients = [
        {"layers": n, "ratio": ratio, "low": 0.99 * ratio, "high": 1.01 * ratio}
        for n, ratio in ratios.items()
    ]
    return {"errors": table_of_rows(rows), "quotients": table_of_rows(quotients)}


@pytest.mark.parametrize(
    ("ratios", "words"),
    [
        ({1: 0.5, 2: 1.2, 4: 50.0}, [AGREES, AGREES]),
        ({1: 4.0, 2: 5.0, 4: 1.0}, [DIFFERS, DIFFERS]),
        ({1: 0.5, 2: 4.0, 4: 5.0}, [OPEN, OPEN]),
        ({1: 0.5}, [AGREES]),
    ],
)
def test_what_is_said_of_linear_layers(ratios, words):
    assert [s.word for s in figure5.say(figure5.LINEAR, made(ratios))] == [*words, ""]


@pytest.mark.parametrize(
    ("ratios", "error", "word"),
    [
        ({1: 0.5, 2: 0.4}, 0.05, AGREES),
        ({1: 2.0, 2: 2.0}, 0.05, DIFFERS),
        ({1: 0.5, 2: 2.0}, 0.05, OPEN),
        ({1: 2.0, 2: 2.0}, 0.95, LEFT_OUT),
    ],
)
def test_what_is_said_of_full_layers(ratios, error, word):
    said = figure5.say(figure5.FULL, made(ratios, error))
    assert [s.word for s in said] == [word, ""]
    worth = "as good as 2 steps at least" if error < 0.1 else "worse than 1 step"
    assert worth in said[-1].text


@pytest.mark.parametrize("number", KINDS)
def test_it_runs_and_is_drawn(number):
    kind, experiment = KINDS[number], getattr(figure5, f"FIGURE{number}_EXPERIMENT")
    here = {}
    for model in experiment.models_at("smoke"):
        run = obtain.config_of(model, "smoke")
        here[model.name] = Checkpoint(
            HookedTransformer(run.model), run.task, tokens.named(run.encoding), run, 0
        )
    results = experiment.run(Setup(here, PRESETS["smoke"]))
    rows = results["errors"].to_dict("records")
    assert [row["number"] for row in rows if row["what"] == "layers"] == [1, 2]
    steps = [row["error"] for row in rows if row["what"] == "gradient descent"]
    assert steps == sorted(steps, reverse=True)
    (first,) = [row for row in results["quotients"].to_dict("records") if row["layers"] == 1]
    assert first["ratio"] == pytest.approx(
        next(r["error"] for r in rows if r["what"] == "layers") / steps[0]
    )
    assert experiment.compare(results) is results["errors"]
    assert len(experiment.says(results)) == 2
    figure = safe(reproductions.draw(experiment.id, results)[f"figure{number}"])
    np.testing.assert_allclose(figure.data[0].y, steps)
    assert kind.words


def test_layers_of_relation_4_train_and_go_on_where_they_were(tmp_path, monkeypatch):
    """Cut off after 2 of 3 steps and asked for again: the same weights to the bit."""
    run = obtain.config_of(figure5.LINEAR.model(2), "smoke")
    short = replace(run.training, steps=3, warmup_steps=0, checkpoint_every=1)
    run = replace(run, training=short)
    whole = trainer.train(run, tmp_path / "whole", progress=False)

    class CutOff(Exception):
        pass

    def advance(self):
        if self.step == 2:
            raise CutOff
        return real(self)

    real = trainer.Run._advance
    monkeypatch.setattr(trainer.Run, "_advance", advance)
    with pytest.raises(CutOff):
        trainer.train(run, tmp_path / "cut", progress=False)
    monkeypatch.undo()
    again = trainer.train(run, tmp_path / "cut", progress=False)
    fresh = HookedTransformer(run.model, seed=run.training.seed).state_dict()

    def check(weights):
        assert all(torch.equal(weights[name], w) for name, w in whole.model.state_dict().items())

    check(again.model.state_dict())
    must_fail(check, fresh)
    assert torch.equal(again.model.embed.W_E, torch.eye(9))


def with_trend(ratio, ratios):
    row = {"layers": max(ratios), "ratio": ratio, "low": 0.99 * ratio, "high": 1.01 * ratio}
    layer = {"width": 9, "token": 9, "heads": 1, "norm": "LN", "norm stands": "output"}
    tables = {"trend": table_of_rows([row]), "layer": table_of_rows([layer])}
    return made(ratios) | tables


@pytest.mark.parametrize(
    ("ratio", "ratios", "word", "crossed"),
    [
        (4.0, {2: 0.3, 4: 1.2}, AGREES, "From 4 layers on"),
        (0.9, {2: 0.3, 4: 0.27}, DIFFERS, "Up to 4 layers"),
        (1.5, {2: 0.3, 4: 0.45}, OPEN, "Up to 4 layers"),
    ],
)
def test_descent_gains_on_layers_or_does_not(ratio, ratios, word, crossed):
    said = figure5.say(figure5.LINEAR, with_trend(ratio, ratios))
    assert [s.word for s in said[-3:]] == [word, "", ""]
    assert crossed in said[-2].text
    assert figure5.OF_TOKENS in said[0].text
    assert figure5.WIDE in figure5.say(figure5.LINEAR, made(ratios))[0].text


def test_the_trend_is_a_quotient_of_quotients():
    blocks = np.random.default_rng(0).uniform(1, 2, 8)
    pairs = {2: (blocks, 2 * blocks), 4: (3 * blocks, blocks)}
    (row,) = figure5._trend(pairs)["trend"].to_dict("records")
    assert (row["layers"], row["ratio"]) == (4, pytest.approx(6.0))
    assert figure5._trend({2: pairs[2]}) == {}


def test_without_models_nothing_is_said():
    for number in KINDS:
        experiment = getattr(figure5, f"FIGURE{number}_EXPERIMENT")
        assert experiment.run(Setup({}, PRESETS["smoke"])) == {}
        assert experiment.says({}) == ("No model is here, so nothing is measured.",)
        assert experiment.compare({}) is None
        assert drawn5.figure5({}, None) == {}
