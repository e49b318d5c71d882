"""Experiments on units whose loss is known exactly.

Weights after descent, and positions for small angles.
"""

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.experiments.presets import PRESETS
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import AGREES, DIFFERS, FAILS, HOLDS, OPEN
from icl_interp.figures.render import rendered
from icl_interp.figures.style import safe
from icl_interp.models.diagonal_unit import DiagonalAttention
from icl_interp.provenance import generator
from icl_interp.results import make_array, table_of_rows
from icl_interp.studies.autoregression.experiments import figure3, figure6
from icl_interp.studies.autoregression.experiments.models import Unit, Weights
from icl_interp.studies.autoregression.figures import figure3 as drawn3
from icl_interp.studies.autoregression.figures import figure6 as drawn6
from icl_interp.tasks.autoregressive import AutoregressiveProcess, complex_states
from icl_interp.theory import autoregression as theory

UNITARY, ROTATIONS = Unit(3, 3, 5, False, 0.02), Unit(4, 2, 5, True, 0.02)

# ---- figure 3 ------------------------------------------------------------------------------------


def known(unit, factor=1.0):
    """The paper's weights with as few heads as can be.

    `factor` scales the last row of P away from the others.
    """
    made = (theory.orthogonal_heads if unit.paired else theory.unitary_heads)(unit.d, unit.n_tokens)
    P = torch.zeros(unit.n_tokens - 1, unit.n_tokens, dtype=torch.float64)
    for t in range(len(P)):
        P[t, : t + 2] = made.positions[-(t + 2) :]
    P[-1, -1] *= factor
    return Weights(made.queries[None], made.values[None], P[None])


@pytest.mark.parametrize("unit", [UNITARY, ROTATIONS])
def test_the_papers_weights_are_found_as_minima(unit):
    def check(factor):
        (row,) = figure3._rows(unit, known(unit, factor))
        assert row["found"]
        assert (
            max(row["loss"], row["|p_T C - C*|"], row["other |p_t / p_T|"], row["largest slope"])
            < 1e-12
        )
        assert row["least ratio"] == row["largest ratio"] == (-0.5 if unit.paired else 0.0)

    check(1.0)
    must_fail(check, 1.5)


def row(law=figure3.UNITARY, heads=3, found=True, off=1e-9, cosine=1e-9, ratio=-0.5, seed=0):
    far = {
        "|p_T C - C*|": off,
        "other |p_t / p_T|": off,
        "least ratio": ratio,
        "largest ratio": ratio,
    }
    loss = 1e-14 if found else 0.3
    key = {
        "law": law,
        "d": 4,
        "H": heads,
        "T": 6,
        "seed": seed,
        "loss": loss,
        "largest slope": 1e-12,
        "found": found,
    }
    return {**key, **far, "largest |cos(a_h, b_h')|": cosine}


def said(rows, loss=0.0):
    needed = [
        {"law": law, "d": 4, "heads": 2, "loss": loss} for law in (figure3.UNITARY, figure3.PAIRED)
    ]
    return [
        s.word
        for s in figure3.states({"runs": table_of_rows(rows), "needed": table_of_rows(needed)})
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, [AGREES, AGREES]),
        ({"off": 0.3}, [DIFFERS, AGREES]),
        ({"cosine": 0.05}, [AGREES, OPEN]),
        ({"off": np.nan, "cosine": np.nan}, [OPEN, OPEN]),
    ],
)
def test_what_is_said_of_unitary_runs(changes, words):
    assert said([row(**changes), row(seed=1, **changes)]) == [*words, HOLDS, HOLDS]


def test_all_unitary_runs_must_agree():
    assert said([row(), row(seed=1, off=0.3)]) == [OPEN, AGREES, HOLDS, HOLDS]


def test_half_the_heads_suffice_and_are_seldom_found():
    def runs(n_found, n, **changes):
        return [row(figure3.PAIRED, 2, found=i < n_found, seed=i, **changes) for i in range(n)]

    assert said(runs(2, 16)) == [DIFFERS, AGREES, HOLDS, HOLDS]
    assert said(runs(32, 32)) == [AGREES, AGREES, HOLDS, HOLDS]
    assert said(runs(2, 4)) == [OPEN, AGREES, HOLDS, HOLDS]  # four runs tell little
    assert said(runs(0, 16)) == [DIFFERS, HOLDS, HOLDS]
    assert said(runs(16, 16, ratio=0.4))[1] == DIFFERS
    assert said(runs(2, 16), loss=1e-3)[-2:] == [FAILS, FAILS]
    assert said([row(figure3.PAIRED, 3)]) == ["", HOLDS, HOLDS]  # more heads: a note


def test_needed_heads_are_those_of_theory():
    for unit in (UNITARY, ROTATIONS):
        found = figure3._needed(unit)
        assert found["heads"] == theory.needed_heads(unit.d, paired=unit.paired)
        assert found["loss"] < 1e-15


@pytest.mark.slow
def test_figure3_at_scale_smoke(tmp_path):
    results = figure3.run(Setup({}, PRESETS["smoke"], cache=tmp_path))
    rows = results["runs"]
    assert len(rows) == 4 * 3
    assert (rows["found"] == (rows["loss"] <= 1e-3)).all()
    words = [s.word for s in figure3.states(results)]
    assert words[:2] == [AGREES, AGREES]
    assert words[-2:] == [HOLDS, HOLDS]
    figures = drawn3.figure3(results, None)
    assert set(figures) == {"figure3", "runs"}

    def check(scale):
        shown = [trace.z for trace in rendered(figures["figure3"]).data]
        expected = scale * results["BᵀA, unitary"].values
        assert any(z.shape == expected.shape and np.allclose(z, expected) for z in shown)

    check(1.0)
    must_fail(check, 1.1)
    np.testing.assert_allclose(results["BᵀA, unitary"].values, np.eye(3), atol=1e-6)
    laid = figure3.compare(results)
    assert laid["find a minimum"].sum() == rows["found"].sum()
    assert (laid["runs"] == 4).all()


def test_without_runs_nothing_is_said():
    assert figure3.FIGURE3_EXPERIMENT.says({}) == ("Nothing is measured.",)
    assert figure3.compare({}) is None
    assert drawn3.figure3({}, None) == {}


def test_ends_of_runs_are_drawn_by_setting():
    rows = [row(), row(figure3.PAIRED, 2, found=False), row(figure3.PAIRED, 2, seed=1)]
    figure = safe(rendered(drawn3.figure3({"runs": table_of_rows(rows)}, None)["runs"]))
    marks = {t.name: list(t.y) for t in figure.data if t.mode == "markers"}
    assert marks == {"unitary": [drawn3.LOWEST], "rotations": [0.3, drawn3.LOWEST]}
    counts = [a.text for a in figure.layout.annotations if " of " in a.text]
    assert counts == ["1 of 1", "1 of 2"]


# ---- figure 6 ------------------------------------------------------------------------------------


def path(mu, n, n_tokens):
    task = AutoregressiveProcess(n_dims=1, matrices="unitary", mu=mu, n_points=n_tokens)
    prompts = task.sample(n, generator(0, "test/positions"), dtype=torch.float64)
    return complex_states(prompts.xs), complex_states(prompts.ys)


def test_the_quadratic_is_the_loss_of_the_layer():
    states, after = path(20.0, 30, 5)
    loss = figure6.Quadratic(states[..., 0], after[:, -1, 0])
    P = torch.randn(4, 5, generator=generator(0, "test/P"), dtype=torch.float64).tril(1)
    square = torch.cat([torch.zeros(1, 5, dtype=torch.float64), P])
    one = torch.ones(1, 1, dtype=torch.complex128)
    with torch.no_grad():
        expected = (
            (DiagonalAttention(one, one, square)(states) - after).abs().square().mean((0, 2))[1:]
        )

    def check(P):
        torch.testing.assert_close(loss.loss(P), expected)

    check(P)
    must_fail(check, 1.01 * P)


def test_its_second_derivatives_are_those_of_theory():
    states, after = path(20.0, 4000, 6)
    found = figure6.Quadratic(states[..., 0], after[:, -1, 0]).gram[-1]

    def check(mu):
        gap = (found - theory.position_hessian(6, mu)).abs()
        assert (
            gap < 4 / 4000**0.5 * 2**-0.5
        ).all()  # a cosine has a variance of 1 / 2 at most around its mean

    check(20.0)
    must_fail(check, 15.0)


def test_descent_stops_where_theory_says():
    """The last row of the exact loss, alone."""
    mu, n_tokens = 50.0, 8
    loss = figure6.sampled(mu, 10, n_tokens, 0)
    loss.gram, loss.pull = (each[-1:] for each in (loss.gram, loss.pull))
    loss.gram[0] = theory.position_hessian(n_tokens, mu)
    loss.pull[0] = loss.gram[0, -1]  # the minimiser is e_T
    P, taken = loss.descend(1e-3, 10_000)
    expected = theory.early_stop(n_tokens, mu, 1e-3)

    def check(P):
        assert taken == expected.n_steps
        torch.testing.assert_close(P[0], expected.positions)

    check(P)
    must_fail(check, P + 0.01)


def test_a_cosine_is_explained_by_a_cosine_and_a_peak_is_not():
    t = np.arange(9)
    wave = np.zeros((8, 9))
    peak = np.zeros((8, 9))
    for q in range(8):
        wave[q, : q + 2] = np.cos(0.4 * t[: q + 2] + 0.3)
        peak[q, q + 1] = 1.0
    for P, low, high in ((wave, 0.999, 1.0), (peak, 0.0, 0.8)):
        found = figure6._measured(P, figure6._waves(P))
        assert low <= found["explained by cosines"] <= high + 1e-9
    assert figure6._measured(peak, peak)["off its diagonals"] == pytest.approx(0.0)
    assert figure6._measured(wave, wave)["off its diagonals"] > 0.05
    assert figure6._measured(peak, peak)["least |p - e_T|"] == pytest.approx(0.0)
    assert figure6._measured(peak, peak)["roughness"] == pytest.approx(1.0)


def measures(**changes):
    row = {
        "steps": 10,
        "loss": 9e-4,
        "roughness": 0.05,
        "largest roughness": 0.05,
        "least |p - e_T|": 0.7,
    }
    row |= {"off its diagonals": 0.05, "explained by cosines": 0.97}
    sharp = {
        **row,
        "mu": 1.0,
        "roughness": 1.0,
        "least |p - e_T|": 0.0,
        "explained by cosines": 0.2,
    }
    rows = [{**row, "mu": 50.0}, {**row, "mu": 100.0, **changes}, sharp]
    return {"measures": table_of_rows(rows)}


def test_what_is_said_of_positions():
    def words(**changes):
        return [s.word for s in figure6.states(measures(**changes))]

    assert words() == [AGREES] * 4 + [""]
    assert words(roughness=0.9)[0] == OPEN  # one mu smooth and the other not
    assert words(**{"off its diagonals": 0.2})[1] == OPEN
    assert words(**{"explained by cosines": 0.1})[2] == OPEN
    assert words(**{"least |p - e_T|": 0.01})[3] == OPEN
    assert "not reached at μ = 100" in figure6.states(measures(loss=0.1))[-1].text
    sharp = measures()["measures"].to_dict("records")[2]
    bad = {"measures": table_of_rows([{**sharp, "mu": 50.0}])}
    assert [s.word for s in figure6.states(bad)][:4] == [DIFFERS, AGREES, DIFFERS, DIFFERS]


@pytest.mark.slow
def test_figure6_on_few_tokens(monkeypatch):
    monkeypatch.setattr(figure6, "SIZES", {"smoke": (50, 6, 2000)})
    results = figure6.run(Setup({}, PRESETS["smoke"]))
    assert results["positions"].shape == (5, 5, 6)
    assert (results["measures"]["loss"] < 1e-3).all()
    sharp = results["positions"].sel(mu=1.0).values
    assert np.abs(sharp - np.eye(5, 6, 1)).max() < 0.2
    assert figure6.compare(results) is results["measures"]
    figure = safe(rendered(drawn6.figure6(results, None)["figure6"]))

    def check(factor):
        lines = [np.asarray(t.y) for t in figure.data if t.name == drawn6.NAMES["descent"]]
        for line, mu in zip(lines, (*figure6.MUS, figure6.SHARP), strict=True):
            row = results["positions"].sel(mu=mu, query=5).values
            shown = row if mu == figure6.SHARP else row[:-1]
            np.testing.assert_allclose(factor * line, shown)

    check(1.0)
    must_fail(check, 0.9)
    assert drawn6.figure6({}, None) == {}
    assert figure6.FIGURE6_EXPERIMENT.says({}) == ("Nothing is measured.",)


def test_the_last_token_of_each_query_is_masked():
    """It is the one that the minimiser e_T takes, and nothing else is."""
    axes = {"query": range(1, 5), "token": range(1, 6)}
    peaks = make_array(np.eye(4, 5, 1), axes)

    def check(P):
        assert np.nansum(np.abs(drawn6.masked(P).values)) == 0

    check(peaks)
    must_fail(check, make_array(np.eye(4, 5), axes))
    assert int(np.isnan(drawn6.masked(peaks).values).sum()) == 4


def test_encodings_are_cosines_of_falling_pace():
    found = figure6.encodings(4)
    np.testing.assert_allclose(found[0], np.cos(np.arange(4)))
    np.testing.assert_allclose(found[2], np.cos(np.arange(4) / 100))
