"""Bias and noise: measured parts against theory, exponents, and what is said of them.

Exponents are as they are and as printed.
"""

import numpy as np
import pytest
import torch
from helpers import must_fail
from lipschitz_experiments import setup, task, window

from icl_interp.experiments import obtain
from icl_interp.experiments.presets import PRESETS
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import (
    AGREES,
    DIFFERS,
    FAILS,
    HOLDS,
    MISPRINT,
    OPEN,
    UNSETTLED,
)
from icl_interp.figures.render import rendered
from icl_interp.figures.style import safe
from icl_interp.results import table_of_rows
from icl_interp.studies.lipschitz.experiments import bias_noise, circle_predictions, models
from icl_interp.studies.lipschitz.figures import bias_noise as figures
from icl_interp.theory import lipschitz as theory


@pytest.fixture(scope="module")
def results():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(bias_noise.OCTAVES, "smoke", (-4, 5, 2))
        patch.setitem(bias_noise.EXPONENTS, "smoke", ((3, 100, 1.0, 4.0),))
        return bias_noise.run(setup(40, 25))


@pytest.mark.slow
def test_measured_parts_are_theorys(results):
    """1,000 prompts against the table, at every window and d; the cross term is 0."""

    def check(rows):
        assert all(abs(row["z"]) < 4 for row in rows)

    rows = results["checks"].to_dict("records")
    assert len(rows) == 2 * 5 * 3
    check(rows)
    doubled = [
        {**row, "z": (2 * row["measured"] - row["theory"]) / row["se"]}
        for row in rows
        if row["part"] == "noise"
    ]
    must_fail(check, doubled)


def test_the_cross_term_is_what_the_error_has_beside_its_parts(results):
    """Error - bias - noise, 2 (clean miss) (noise), is what the checks are about."""
    measured = results["measured"].sel(statistic="value")
    cross = (
        measured.sel(part="total").values
        - measured.sel(part="bias").values
        - measured.sel(part="noise").values
    )
    rows = [row for row in results["checks"].to_dict("records") if row["part"] == "cross"]
    np.testing.assert_allclose(cross.ravel(), [row["measured"] for row in rows], atol=1e-12)


def test_exponents_of_theory():
    """Z(2w) / Z(w)^2 = w coth w for d = 3."""
    row = bias_noise._exponent(setup(10, 20), 3, 60, 1.0, 4.0)

    def check(power):
        w = torch.tensor([1.0, 4.0], dtype=torch.float64)
        law = (w**power / torch.tanh(w)).log()
        assert row["long prompts"] == pytest.approx(float((law[1] - law[0]) / np.log(4)))

    check(1)
    must_fail(check, 1.5)
    assert row["low"] < row["exponent"] < row["high"]


def exponent(value, spread=0.02, d=3):
    long, printed = 0.98, float(theory.noise_exponent_as_printed(d))
    ends = {"exponent": value, "low": value - spread, "high": value + spread, "long prompts": long}
    return {
        "d": d,
        "n": 1000,
        "from w": 5.0,
        "to w": 50.0,
        **ends,
        "(d-1)/2": 1.0,
        "d/2, as printed": printed,
    }


@pytest.mark.parametrize(
    ("value", "spread", "words"),
    [
        (1.0, 0.02, [HOLDS, MISPRINT]),
        (1.5, 0.02, [FAILS, HOLDS]),
        (1.2, 0.2, [UNSETTLED, UNSETTLED]),
    ],
)
def test_which_exponent_the_noise_has(value, spread, words):
    said = bias_noise.states({"exponents": table_of_rows([exponent(value, spread)])})
    assert [s.word for s in said] == words


def test_the_printed_lower_bound_is_false_for_wide_windows_and_true_for_others(results):
    said = {s.sentence: s.word for s in bias_noise.states(results)}
    words = [word for text, word in said.items() if "without a condition on w" in text]
    assert words == [MISPRINT] * 2
    assert [word for text, word in said.items() if "not below the order" in text] == [HOLDS] * 2
    assert [word for text, word in said.items() if "stays below" in text] == [HOLDS] * 2
    flat = results["measured"].copy(
        data=np.broadcast_to(results["measured"]["w"].values ** -2.0, (2, 3, 2, 5))
    )
    other = bias_noise.states({**results, "measured": flat})  # a bias of exactly 1 / w^2
    assert [s.word for s in other if "without a condition on w" in s.sentence] == [HOLDS] * 2


def trained(lipschitz, bias, noise, over):
    row = {"model": "unit", "L": lipschitz, "w": lipschitz, "best w": lipschitz, "keys": 1 / noise}
    for key, value in (
        ("bias", bias),
        ("noise", noise),
        ("error", bias + noise),
        ("error / best", over),
    ):
        row |= {key: value, f"{key}, low": 0.99 * value, f"{key}, high": 1.01 * value}
    return {**row, "bias by theory": bias, "noise by theory": noise}


@pytest.mark.parametrize(
    ("bias", "noise", "over", "words"),
    [
        (0.1, 0.05, 1.0, [AGREES, AGREES, AGREES]),
        (0.5, 0.015, 1.5, [DIFFERS, DIFFERS, DIFFERS]),
        (0.36, 0.022, 1.1, [OPEN, OPEN, OPEN]),
    ],
)
def test_what_is_said_of_trained_units(bias, noise, over, words):
    """At L = 1 bias / L^2 is 0.1 and noise 0.02; at L = 2 a quarter of `bias`, and `noise`."""
    rows = [trained(1.0, 0.1, 0.02, 1.0), trained(2.0, bias, noise, over)]
    rows[0] |= {f"error / best{end}": over for end in ("", ", low", ", high")}
    assert [s.word for s in bias_noise.states({"trained": table_of_rows(rows)})] == words


def test_a_known_unit_has_the_error_of_its_window():
    of = task(10.0)
    best = theory.table_optimum(theory.loss_table(20, 3, contexts=400), 10.0, 1.0)
    name = models.RELU_UNITS[10.0].name
    row = bias_noise._trained(setup(10, 20, **{name: window(float(best.window), of)}), 10.0, name)
    assert row["error / best"] == pytest.approx(1.0)
    assert row["w"] == pytest.approx(float(best.window))
    assert row["bias by theory"] + row["noise by theory"] == pytest.approx(
        float(best.risk), rel=1e-6
    )
    other = bias_noise._trained(setup(10, 20, **{name: window(1.0, of)}), 10.0, name)
    assert other["error / best"] > 1.2


def test_the_figures_show_what_is_stored(results):
    figure = safe(rendered(figures.bias_noise(results, None)["bias_noise"]))

    def check(stored):
        for part, name in figures.NAMES.items():
            marks = [t for t in figure.data if t.name == name]
            assert len(marks) == 2
            for d, trace in zip((2, 3), marks, strict=True):
                np.testing.assert_allclose(
                    trace.y, stored["measured"].sel(d=d, part=part, statistic="value").values
                )

    check(results)
    changed = results["measured"].copy(data=1.1 * results["measured"].values)
    must_fail(check, {**results, "measured": changed})
    rows = table_of_rows([trained(1.0, 0.1, 0.02, 1.0), trained(2.0, 0.1, 0.05, 1.0)])
    drawn = rendered(figures.bias_noise({**results, "trained": rows}, None)["trained"])
    assert [t.y[0] for t in drawn.data if t.name == "error of the unit"] == [0.1 + 0.02, 0.1 + 0.05]
    assert figures.bias_noise({}, None) == {}


def predictions_show(stored, drawn):
    """Each line has its values, and the examples theirs."""
    by_name = {trace.name.partition(":")[0]: trace for trace in drawn.data}
    lines = stored["predictions"]
    for name in lines.indexes["line"]:
        np.testing.assert_array_equal(by_name[name].y, lines.sel(line=name).values)
    np.testing.assert_array_equal(by_name["examples"].y, stored["examples"]["label"])


def test_predictions_of_windows_are_drawn_as_stored():
    stored = circle_predictions.shown(30, contexts=64)
    drawn = rendered(figures.bias_noise(stored, None)["predictions"])
    predictions_show(stored, drawn)
    other = circle_predictions.shown(31, contexts=64)
    must_fail(predictions_show, other, drawn)


@pytest.mark.slow
def test_smoke(tmp_path):
    wanted = bias_noise.BIAS_NOISE_EXPERIMENT.models_at("smoke")
    found = obtain.obtain(wanted, "smoke", tmp_path, obtain.Shelf(), progress=False)
    results = bias_noise.run(Setup(found, PRESETS["smoke"], cache=tmp_path / "measured"))
    assert len(results["trained"]) == 3
    assert set(figures.bias_noise(results, None)) == {"bias_noise", "trained", "predictions"}
    assert bias_noise.compare(results) is results["exponents"]
