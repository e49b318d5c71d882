"""Experiments on trained layers of attention: heads against error, softmax against linear.

Heads that start alike are part of them.
"""

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
from icl_interp.figures.render import rendered
from icl_interp.figures.style import safe
from icl_interp.models import tokens
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.maps import frobenius_cosines
from icl_interp.provenance import generator
from icl_interp.results import make_array, make_curve, table_of_rows
from icl_interp.studies.autoregression.experiments import figure7, figure8, figure9, models
from icl_interp.studies.autoregression.figures import figure7 as drawn7
from icl_interp.studies.autoregression.figures import figure8 as drawn8
from icl_interp.studies.autoregression.figures import figure9 as drawn9


def untrained(experiment, *wanted):
    """A setup of models as they start, with their own tasks at scale smoke."""
    made = {}
    for model in wanted:
        run = obtain.config_of(model, "smoke")
        made[model.name] = Checkpoint(
            HookedTransformer(run.model), run.task, tokens.named(run.encoding), run, 0
        )
    return Setup(made, PRESETS["smoke"])


@pytest.mark.parametrize("experiment", [figure7.FIGURE7_EXPERIMENT, figure9.FIGURE9_EXPERIMENT])
def test_models_have_folders_of_their_own(experiment):
    assert len({model.folder for model in experiment.models}) == len(experiment.models)
    assert {model.seed for model in experiment.models_at("smoke")} == {0}
    layers = 2 if experiment is figure7.FIGURE7_EXPERIMENT else 1
    assert len(experiment.models_at("smoke")) == 4 * layers


def test_models_are_what_their_names_say():
    run = obtain.config_of(figure7.MODELS[2, 16, 1], "small")
    assert (run.model.n_heads, run.task.tiles, run.training.seed, run.model.d_model) == (
        16,
        2,
        1,
        32,
    )
    assert obtain.config_of(figure7.MODELS[1, 4, 0], "small").model.d_in == 5
    for tiles, width in ((1, 5), (2, 10)):
        cfg = obtain.config_of(figure7.NORMED_MODELS[tiles, 4, 0], "paper").model
        assert (cfg.norm_position, cfg.normalization_type, cfg.read_in) == ("output", "LN", "token")
        assert (cfg.d_model, cfg.d_in, cfg.d_head, cfg.n_heads) == (width, width, width, 4)
    kinds = {
        kind: obtain.config_of(figure9.MODELS[kind, 0], "small").model for kind in figure9.CHANGES
    }
    assert {kind: (cfg.score_fn, cfg.attn_only) for kind, cfg in kinds.items()} == {
        "linear": ("linear", True),
        "linear + MLP": ("linear", False),
        "softmax": ("softmax", True),
        "softmax + MLP": ("softmax", False),
    }


# ---- figure 7 ------------------------------------------------------------------------------------


def test_quotients_are_of_the_same_matrices():
    """A model that errs half as much in every block has a quotient of exactly 2, with no width."""
    blocks = np.random.default_rng(0).uniform(1, 2, (8, 6))
    axes = {"block": range(8), "point": range(1, 7)}
    sizes = {(1, 1, 0): 1.0, (1, 4, 0): 0.5, (2, 1, 0): 1.0, (2, 4, 0): 0.25}
    found = {key: make_array(size * blocks, axes) for key, size in sizes.items()}

    def check(expected):
        got = {
            row["what"]: (row["ratio"], row["low"], row["high"])
            for row in figure7._quotients(found)
        }
        for what, value in expected.items():
            assert got[what] == pytest.approx((value,) * 3)

    check({"heads, plain": 2.0, "heads, states twice": 4.0, "tiling": 2.0})
    must_fail(check, {"heads, plain": 1.9})


def rows7(plain=1.05, twice=1.4, tiling=1.5, learned=0.5):
    quotients = [
        {
            "what": what,
            "seed": 0,
            "heads": 16,
            "ratio": ratio,
            "low": 0.99 * ratio,
            "high": 1.01 * ratio,
        }
        for what, ratio in (
            ("heads, plain", plain),
            ("heads, states twice", twice),
            ("tiling", tiling),
        )
    ]
    rows = [
        {
            "states": name,
            "heads": heads,
            "seed": 0,
            "error": learned,
            "low": 0.9 * learned,
            "high": 1.1 * learned,
        }
        | {"late error": learned}
        for name in figure7.TILES.values()
        for heads in (1, 16)
    ]
    return {"errors": table_of_rows(rows), "quotients": table_of_rows(quotients)}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, [AGREES, AGREES, AGREES]),
        ({"plain": 2.0, "twice": 1.0, "tiling": 0.9}, [DIFFERS, DIFFERS, DIFFERS]),
        ({"plain": 1.3, "twice": 1.1, "tiling": 1.07}, [OPEN, OPEN, OPEN]),
        ({"learned": 0.99}, [LEFT_OUT, LEFT_OUT, LEFT_OUT]),
    ],
)
def test_what_is_said_of_heads(changes, words):
    assert [s.word for s in figure7.states(rows7(**changes))] == [*words, "", ""]


def test_the_layer_with_a_norm_has_statements_of_its_own():
    plain, normed = rows7(), rows7(tiling=0.9)
    both = plain | {f"normed {name}": table for name, table in normed.items()}
    said = figure7.states(both)
    assert [s.word for s in said[:6]] == [AGREES, AGREES, AGREES, AGREES, AGREES, DIFFERS]
    assert [figure7.WITH_NORM in s.text for s in said[:6]] == [False] * 3 + [True] * 3
    assert "In the layer without a norm a second copy adds no function" in said[6].text


def test_a_second_copy_adds_no_function():
    """A layer on plain states that predicts, in each copy, what a layer on states twice does."""
    plain, twice = (obtain.config_of(figure7.MODELS[tiles, 4, 0], "smoke") for tiles in (1, 2))
    wide = HookedTransformer(twice.model)
    prompts = plain.task.sample(8, generator(0, "test/copies"))
    states = prompts.xs.repeat(1, 1, 2)
    weights, narrow = wide.state_dict(), HookedTransformer(replace(plain.model, d_head=10))
    embed, out = weights["embed.W_E"], weights["unembed.W_U"]

    def check(embed):
        with torch.no_grad():
            expected = wide(states)
            for copy in (slice(0, 5), slice(5, 10)):
                own = {
                    "embed.W_E": embed,
                    "unembed.W_U": out[:, copy],
                    "unembed.b_U": torch.zeros(5),
                }
                narrow.load_state_dict({**weights, **own})
                torch.testing.assert_close(narrow(prompts.xs), expected[..., copy])

    check(embed[:5] + embed[5:])
    must_fail(check, embed[:5])


def test_figure7_runs_and_is_drawn():
    wanted = figure7.FIGURE7_EXPERIMENT.models_at("smoke")
    results = figure7.run(untrained(figure7, *wanted))
    assert len(results["errors"]) == 4
    assert (results["errors"]["error"] > 0.9).all()  # fresh weights know nothing
    assert figure7.compare(results) is results["errors"]
    figure = safe(rendered(drawn7.figure7(results, None)["figure7"]))

    def check(factor):
        shown = [list(np.asarray(t.y)) for t in figure.data if t.name == "plain, 4 heads"]
        expected = factor * results["points"].sel(model=figure7.MODELS[1, 4, 0].name).values
        assert any(np.allclose(y, expected) for y in shown)

    check(1.0)
    must_fail(check, 1.1)


# ---- figure 8 ------------------------------------------------------------------------------------


def test_overlaps_are_those_of_the_tensors():
    run = obtain.config_of(models.varied("autoregression_tiled", "", model={"n_heads": 3}), "smoke")
    model = models.alike(run.model, 0.5, 0)
    attention, embed, out = model.blocks[0].attn, model.embed.W_E, model.unembed.W_U
    maps = [
        (
            embed @ attention.W_V[h] @ attention.W_O[h] @ out,
            embed @ attention.W_Q[h] @ attention.W_K[h].T @ embed.T,
        )
        for h in range(3)
    ]
    tensors = np.stack([np.kron(v.detach().double(), m.detach().double()).ravel() for v, m in maps])
    tensors /= np.linalg.norm(tensors, axis=1, keepdims=True)
    expected = np.abs(tensors @ tensors.T)

    def check(found):
        np.testing.assert_allclose(found, expected, atol=1e-6)

    check(figure8.overlaps(model))
    must_fail(check, frobenius_cosines(attention.W_V, attention.W_O).abs().numpy())
    assert figure8.between(expected) == pytest.approx((expected.sum() - 3) / 6)


def rows8(after=0.005, error=0.5):
    rows = [
        {
            "heads": heads,
            "seed": seed,
            "before": 0.9,
            "after": after * (1 + 0.1 * seed),
            "random heads": 0.01,
        }
        | {"error": error}
        for heads in (4, 8)
        for seed in (0, 1)
    ]
    return {"means": table_of_rows(rows)}


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, AGREES),
        ({"after": 0.02}, DIFFERS),
        ({"after": 0.2}, DIFFERS),  # far below the start, and far above chance
        ({"after": 0.01}, OPEN),
        ({"error": 0.95}, LEFT_OUT),
    ],
)
def test_what_is_said_of_heads_that_start_alike(changes, word):
    assert [s.word for s in figure8.states(rows8(**changes))] == [word, word]


def forms8(kind):
    """Heads of 4 coordinates, states twice: each has a coordinate of its own, or all are alike."""
    found = torch.zeros(2, 4, 4, dtype=torch.float64)
    for head in range(2):
        own = {"apart": [head], "alike": [0, 1]}[kind]
        for one in own:
            for copy in (0, 2):
                found[head, one + copy, one + copy] = 1.0
    return found


def test_heads_with_coordinates_of_their_own_divide_them():
    """Two heads in two coordinates: all of log 2, or nothing."""

    def check(kind):
        found = figure8.division(forms8(kind), tiles=2, seed=0)
        assert found["division"] == pytest.approx(1.0)
        assert 0 < found["highest"] < 1

    check("apart")
    must_fail(check, "alike")
    assert figure8.division(forms8("alike"), 2, 0)["division"] == pytest.approx(0.0)
    parts = figure8._parts(forms8("apart"))
    np.testing.assert_allclose(parts.values, [[0.5, 0, 0.5, 0], [0, 0.5, 0, 0.5]])


@pytest.mark.parametrize(
    ("division", "error", "word"),
    [(0.6, 0.5, AGREES), (0.2, 0.5, OPEN), (0.1, 0.5, DIFFERS), (0.6, 0.95, LEFT_OUT)],
)
def test_what_is_said_of_coordinates(division, error, word):
    rows = [
        {"heads": 4, "seed": seed, "division": division, "highest": 0.15, "error": error}
        for seed in (0, 1)
    ]
    results = {**rows8(), "division": table_of_rows(rows)}
    assert figure8.states(results)[-1].word == word


@pytest.mark.slow
def test_figure8_at_scale_smoke(tmp_path):
    setup = Setup({}, PRESETS["smoke"], cache=tmp_path)
    results = figure8.run(setup)
    (row,) = results["means"].to_dict("records")
    assert 0.9 < row["before"] < 1
    assert row["random heads"] < 0.05
    for when in figure8.WHEN:
        assert figure8.between(results[f"{when}, 4 heads"].values) == pytest.approx(row[when])
    again = Setup({}, PRESETS["smoke"], cache=tmp_path)
    figure8.run(again)
    assert (again.measured, again.reused) == (0, 2)
    figure = safe(rendered(drawn8.figure8(results, None)["figure8"]))
    np.testing.assert_allclose(figure.data[1].z, results["after, 4 heads"].values)
    np.testing.assert_allclose(figure.data[2].z, results["coordinates, 4 heads"].values)
    np.testing.assert_allclose(figure.data[2].z.sum(1), 1.0)


# ---- figure 9 ------------------------------------------------------------------------------------


def rows9(ratio=100.0, linear=1e-3):
    rows = [
        {
            "model": kind,
            "seed": 0,
            "error": linear * (ratio if "softmax" in kind else 1.0),
            "low": linear,
            "high": 1.0,
        }
        for kind in figure9.CHANGES
    ]
    pairs = ((figure9.SOFTMAX, figure9.LINEAR), (figure9.SOFTMAX_MLP, figure9.LINEAR_MLP))
    quotients = [
        {"a": a, "b": b, "seed": 0, "ratio": ratio, "low": 0.9 * ratio, "high": 1.1 * ratio}
        for a, b in pairs
    ]
    return {"errors": table_of_rows(rows), "quotients": table_of_rows(quotients)}


@pytest.mark.parametrize(
    ("changes", "word"),
    [({}, AGREES), ({"ratio": 1.2}, DIFFERS), ({"ratio": 5.0}, OPEN), ({"linear": 0.95}, LEFT_OUT)],
)
def test_what_is_said_of_softmax(changes, word):
    assert [s.word for s in figure9.states(rows9(**changes))] == [word, word]


def test_figure9_runs_and_is_drawn():
    results = figure9.run(untrained(figure9, *figure9.FIGURE9_EXPERIMENT.models_at("smoke")))
    assert list(results["errors"]["model"]) == list(figure9.CHANGES)
    assert len(results["quotients"]) == 2
    figure = safe(rendered(drawn9.figure9(results, None)["figure9"]))
    marks = [t for t in figure.data if t.mode == "markers"]
    assert [t.x[0] for t in marks] == pytest.approx(list(results["errors"]["error"]))


@pytest.mark.parametrize("module", [figure7, figure8, figure9])
def test_without_models_nothing_is_said(module):
    name = module.__name__.rpartition(".")[2]
    experiment = getattr(module, f"{name.upper()}_EXPERIMENT")
    assert len(experiment.says({})) == 1
    assert experiment.compare({}) is None
    assert reproductions.draw(experiment.id, {}) == {}
    if module is not figure8:
        assert experiment.run(Setup({}, PRESETS["smoke"])) == {}


@pytest.mark.slow
@pytest.mark.parametrize("experiment", [figure7.FIGURE7_EXPERIMENT, figure9.FIGURE9_EXPERIMENT])
def test_trained_at_scale_smoke(experiment, tmp_path):
    found = obtain.obtain(
        experiment.models_at("smoke"), "smoke", tmp_path, obtain.Shelf(), progress=False
    )
    results = experiment.run(Setup(found, PRESETS["smoke"], cache=tmp_path / "measured"))
    assert experiment.says(results)
    assert reproductions.DRAWINGS[experiment.id](results, None)
    curve = results["points"]
    assert curve.dims == ("model", "point")
    assert make_curve(curve.values, curve.indexes).shape == (4, 10)
