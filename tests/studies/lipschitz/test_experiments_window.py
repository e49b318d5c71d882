"""The window figure: what is read off units of known M, and what is said of it."""

from functools import cache

import numpy as np
import pytest
from helpers import must_fail
from lipschitz_experiments import known, setup, task, window

from icl_interp.experiments import obtain
from icl_interp.experiments.presets import PRESETS
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import AGREES, DIFFERS, OPEN
from icl_interp.figures.render import rendered
from icl_interp.figures.style import safe
from icl_interp.results import table_of_rows
from icl_interp.studies.lipschitz.experiments import models
from icl_interp.studies.lipschitz.experiments import window as experiment
from icl_interp.studies.lipschitz.figures import window as figures
from icl_interp.theory import lipschitz as theory


@cache
def best(size):
    """The best width parameter for functions with this L at n = 20."""
    return float(theory.optimal_window(size, 1.0, 20, 3, contexts=400).window)


def units(factor=1.0):
    """The best windows at n = 20 times a factor, as if they had been trained."""
    return {
        models.RELU_UNITS[size].name: window(factor * best(size), task(size))
        for size in models.RELU_UNITS
    }


@pytest.fixture(scope="module")
def results():
    return experiment.run(setup(20, 8, **units()))


def test_windows_are_those_of_the_units(results):
    rows = results["windows"].to_dict("records")

    def check(factor):
        for row in rows:
            assert row["w"] == pytest.approx(factor * best(row["L"]), rel=1e-6)
            assert row["explained"] == pytest.approx(1.0, abs=1e-9)

    check(1.0)
    must_fail(check, 2.0)  # e^(-w |x - x_q|^2), as the proof sketches have it


def test_a_window_of_another_shape_is_seen():
    """M with eigenvalues 9, 1 and 1: distance alone does not decide attention."""
    name = models.RELU_UNITS[1.0].name
    of = task(1.0)
    found = experiment.run(setup(4, 8, **{name: known(np.diag([9.0, 1.0, 1.0]), of)}))
    row = found["windows"].to_dict("records")[0]
    assert row["explained"] < 0.8
    assert experiment.states(found)[0].word == DIFFERS


def test_what_is_said_of_the_best_windows(results):
    said = experiment.states(results)
    assert [s.word for s in said[:3]] == [AGREES] * 3
    assert "best" in said[1].sentence
    twice = experiment.run(setup(4, 8, **units(2.0)))
    assert experiment.states(twice)[1].word == DIFFERS


def row(lipschitz, unit, ratio, spread=0.01, n=100):
    ends = {"low": ratio - spread, "high": ratio + spread}
    return {
        "L": lipschitz,
        "unit": unit,
        "n": n,
        "ratio": ratio,
        **ends,
        "best w": 2.0,
        "times least": 1.0,
    }


@pytest.mark.parametrize(("ratio", "word"), [(1.5, AGREES), (0.8, DIFFERS), (1.01, OPEN)])
def test_who_errs_least_is_decided_by_paired_ratios(results, ratio, word):
    paired = table_of_rows([row(1.0, 1.0, 1.0, 0.0), row(1.0, 10.0, ratio)])
    windows = table_of_rows([r for r in results["windows"].to_dict("records") if r["L"] == 1.0])
    *_, last = experiment.states({"windows": windows, "paired": paired})
    assert last.word == word


def test_every_unit_is_the_same_times_itself(results):
    """The ratio of the unit trained at this L to itself is 1.

    Errors are means over the same blocks.
    """
    own = [r for r in results["paired"].to_dict("records") if r["unit"] == r["L"]]
    assert all(r["ratio"] == pytest.approx(1.0) for r in own)
    assert all(r["times least"] >= 1 - 1e-9 for r in results["paired"].to_dict("records"))


def test_functions_are_the_same_ones_times_l(results):
    functions = results["functions"]

    def check(factor):
        np.testing.assert_allclose(
            functions.sel(L=10.0).values, factor * functions.sel(L=1.0).values, atol=1e-9
        )

    check(10.0)
    must_fail(check, 9.0)
    middle = functions.values[..., experiment.ANGLES // 2]
    np.testing.assert_allclose(middle, 0, atol=1e-9)


def test_the_figure_shows_what_is_stored(results):
    figure = safe(rendered(figures.window(results, None)["window"]))

    def check(stored):
        for size in stored["attention"].indexes["L"]:
            traces = [t for t in figure.data if t.legendgroup == "attention"]
            shown = [np.asarray(t.y, dtype=float) for t in traces]
            mean = stored["attention"].sel(L=size, statistic="mean").values
            assert any(np.allclose(y, mean, equal_nan=True) for y in shown)
        unit = stored["errors"].indexes["unit"][0]
        mean = stored["errors"].sel(L=0.3, unit=unit, statistic="mean").values
        assert any(t.name == unit and np.allclose(t.y, mean) for t in figure.data)

    check(results)
    changed = {
        key: found.copy(data=1.1 * found.values)
        for key, found in results.items()
        if key in ("attention", "errors")
    }
    must_fail(check, {**results, **changed})
    assert figures.window({}, None) == {}


def test_without_models_nothing_is_said():
    nothing = Setup({}, PRESETS["smoke"])
    assert experiment.run(nothing) == {}
    assert experiment.WINDOW_EXPERIMENT.says({}) == ("No model is here, so nothing is measured.",)
    assert experiment.compare({}) is None


@pytest.mark.slow
def test_smoke(tmp_path):
    wanted = experiment.WINDOW_EXPERIMENT.models_at("smoke")
    found = obtain.obtain(wanted, "smoke", tmp_path, obtain.Shelf(), progress=False)
    results = experiment.run(Setup(found, PRESETS["smoke"], cache=tmp_path / "measured"))
    assert len(results["windows"]) == 3
    assert rendered(figures.window(results, None)["window"]).data
