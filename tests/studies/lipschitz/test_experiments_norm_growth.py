"""|M| along training: what is read off snapshots, and what is said of its growth."""

import numpy as np
import pytest
from helpers import must_fail
from scipy import stats

from icl_interp.experiments import obtain
from icl_interp.experiments.presets import PRESETS
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import AGREES, DIFFERS, OPEN
from icl_interp.figures.render import rendered
from icl_interp.figures.style import safe
from icl_interp.results import make_curve, table_of_rows
from icl_interp.studies.lipschitz.experiments import models, norm_growth
from icl_interp.studies.lipschitz.figures import norm_growth as figures


def row(lipschitz, mean, kind="ReLU", inputs="isotropic", seed=0):
    numbers = {
        "|M| early": 1.0,
        "mean |M|": mean,
        "|M| at the end": mean,
        "w at the end": mean,
        "best w": mean,
    }
    key = {"class": kind, "inputs": inputs, "L": lipschitz, "seed": seed}
    return {**key, **numbers, "best |M|": mean, "early step": 60, "last step": 3000}


def seeds_of(lipschitz, mean, spread=0.01, n=4, **key):
    """A row a seed, whose logarithms lie evenly about that of the mean."""
    off = spread * np.linspace(-1, 1, n)
    # One L's seeds run up and the next one's down, else their ratios would not vary.
    off = off * (-1 if lipschitz == 1.0 else 1)
    return [row(lipschitz, mean * np.exp(o), seed=i, **key) for i, o in enumerate(off)]


@pytest.mark.parametrize(
    ("means", "word"),
    [((1.0, 2.0, 4.0), AGREES), ((1.0, 4.0, 3.0), DIFFERS), ((1.0, 4.0, 4.2), OPEN)],
)
def test_every_larger_l_must_grow_faster(means, word):
    rows = [
        r for size, mean in zip((0.1, 1.0, 10.0), means, strict=True) for r in seeds_of(size, mean)
    ]
    for order in (rows, rows[::-1]):
        decided, beside = norm_growth.states({"ends": table_of_rows(order)})
        assert decided.word == word
        assert beside.word == ""


def test_one_seed_decides_nothing():
    rows = [row(size, mean) for size, mean in ((0.1, 1.0), (1.0, 2.0), (10.0, 4.0))]
    decided, _ = norm_growth.states({"ends": table_of_rows(rows)})
    assert decided.word == OPEN
    assert "one run each" in decided.text


def test_seeds_that_spread_widely_decide_nothing():
    rows = [*seeds_of(1.0, 1.0, spread=1.0), *seeds_of(10.0, 2.0, spread=1.0)]
    assert norm_growth.states({"ends": table_of_rows(rows)})[0].word == OPEN


def test_settings_are_judged_apart():
    cosine = {"kind": "cosine"}
    rows = [*seeds_of(1.0, 1.0), *seeds_of(10.0, 2.0)]
    rows += [*seeds_of(1.0, 1.0, **cosine), *seeds_of(10.0, 0.5, **cosine)]
    said = norm_growth.states({"ends": table_of_rows(rows)})
    assert [s.word for s in said if s.criterion] == [AGREES, DIFFERS]


def test_the_interval_is_that_of_a_t_test():
    """One ratio: both ends are those of scipy's interval of the mean logarithm."""
    ratios = np.random.default_rng(5).lognormal(0.3, 0.2, 5)
    found, pair = norm_growth.least_of({(1.0, 3.0): tuple(ratios)})
    test = stats.ttest_1samp(np.log(ratios), 0.0).confidence_interval(0.95)
    assert pair == (1.0, 3.0)

    def check(ends):
        np.testing.assert_allclose([found.low, found.high], np.exp(ends), rtol=1e-10)

    check(test)
    must_fail(
        check, np.log(ratios).mean() + np.array([-1.96, 1.96]) * np.log(ratios).std() / 5**0.5
    )


def test_the_least_ratio_is_held_as_often_as_said():
    """Three ratios alike, where the least seen is too small: the interval allows for that."""
    draw = np.random.default_rng(6)
    pairs = ((0.1, 0.3), (0.3, 1.0), (1.0, 3.0))
    held = 0
    for _ in range(400):
        found, _ = norm_growth.least_of(
            {pair: tuple(np.exp(draw.normal(0, 1, 4))) for pair in pairs}
        )
        held += found.low <= 1 <= found.high
    assert held >= 0.95 * 400 - 4 * (0.95 * 0.05 * 400) ** 0.5


def test_ratios_are_paired_by_seed():
    rows = [
        row(1.0, 1.0, seed=0),
        row(1.0, 2.0, seed=1),
        row(3.0, 3.0, seed=1),
        row(3.0, 9.0, seed=2),
    ]
    assert norm_growth.neighbours(rows) == {(1.0, 3.0): (1.5,)}


def test_the_mean_of_a_norm_does_not_depend_on_where_it_was_kept():
    """Linear pieces: few steps and many have one mean, which a plain mean of those kept has not."""
    few = {0: 0.0, 100: 2.0, 400: 2.0}
    many = {step: min(step / 50, 2.0) for step in (*range(0, 100, 10), *range(100, 401, 50))}
    assert norm_growth.mean_norm(few) == pytest.approx(norm_growth.mean_norm(many))
    must_fail(
        lambda m: np.testing.assert_allclose(np.mean([*few.values()]), m), np.mean([*many.values()])
    )


def test_without_models_nothing_is_said():
    assert norm_growth.run(Setup({}, PRESETS["smoke"])) == {}
    assert norm_growth.NORM_GROWTH_EXPERIMENT.says({}) == (
        "No model is here, so nothing is measured.",
    )
    assert norm_growth.compare({}) is None
    assert figures.norm_growth({}, None) == {}


def test_the_figure_shows_what_is_stored():
    axes = {"class": ("ReLU", "cosine"), "inputs": ("isotropic", "not isotropic"), "L": (0.3, 3.0)}
    axes |= {"seed": (0, 1), "step": (0, 10, 20)}
    values = np.random.default_rng(0).uniform(0.5, 4.0, (2, 2, 2, 2, 3))
    values[1, 1, 1] = np.nan
    rows = [row(0.3, 0.001), row(3.0, 2.0)]
    results = {"norms": make_curve(values, axes), "ends": table_of_rows(rows)}
    figure = safe(rendered(figures.norm_growth(results, None)["norm_growth"]))
    lines = [t for t in figure.data if t.mode == "lines"]
    assert len(lines) == 14
    assert [t.name for t in lines if t.showlegend] == ["L = 0.3", "L = 3"]

    def check(stored):
        shown = [t.y for t in lines]
        for value in stored.reshape(-1, 3):
            assert np.isnan(value).any() or any(np.allclose(value, y) for y in shown)

    check(values)
    must_fail(check, 1.1 * values)
    marks = [t for t in figure.data if t.mode == "markers"]
    # The first is below the least norm that is drawn, the other where it is.
    assert [t.marker.symbol for t in marks] == ["triangle-down", "diamond"]
    assert [t.y[0] for t in marks] == [figures.LOWEST, 2.0]
    assert [t.customdata[0][1] for t in marks] == [0.001, 2.0]


@pytest.mark.slow
def test_smoke(tmp_path):
    """Norms are read off the weights that the run kept."""
    wanted = norm_growth.NORM_GROWTH_EXPERIMENT.models_at("smoke")
    assert {model.name for model in wanted} == {
        norm_growth.MODELS[kind, inputs, size, 0].name
        for kind, inputs in norm_growth.RECIPES
        for size in (0.3, 3.0)
    }
    found = obtain.obtain(wanted, "smoke", tmp_path, obtain.Shelf(), progress=False)
    results = norm_growth.run(Setup(found, PRESETS["smoke"]))
    norms = results["norms"]
    assert tuple(norms.indexes["step"]) == (0, 10, 20)
    last = found[norm_growth.MODELS["ReLU", "not isotropic", 3.0, 0].name]
    expected = np.linalg.norm(models.matrix_of(last.model).numpy(), 2)
    key = {"class": "ReLU", "inputs": "not isotropic", "L": 3.0, "seed": 0}

    def check(step):
        assert float(norms.sel(**key, step=step)) == pytest.approx(expected)

    check(20)
    must_fail(check, 0)
    assert rendered(figures.norm_growth(results, None)["norm_growth"]).data
