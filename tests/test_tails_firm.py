"""Far ends of firm verdicts: closed forms, many more draws, and the tool that counts errors."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import must_fail
from scipy import stats

from icl_interp import resampling
from icl_interp.resampling import EXTREMES, bootstrap
from icl_interp.tails import far_quantile

TOOL = Path(__file__).parent.parent / "tools" / "measure_firm.py"


@pytest.fixture(scope="module")
def tool():
    """The tool, which is a script."""
    spec = importlib.util.spec_from_file_location("measure_firm", TOOL)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


LAWS = {
    "normal": stats.norm(),
    "exponential": stats.expon(),
    "heavy": stats.t(5),
    "bounded": stats.beta(2, 2),
}


def check_quantile(quantile, law) -> None:
    """From 2,000 draws, averaged over samples, within a tenth of the true distance.

    The distance is that of the quantile from the middle.
    """
    for chance in (1e-3, 1e-4):
        found = [quantile(law.rvs(2000, random_state=seed), 1 - chance) for seed in range(60)]
        middle = law.median()
        assert np.mean(found) - middle == pytest.approx(law.isf(chance) - middle, rel=0.12)


@pytest.mark.parametrize("name", LAWS)
def test_a_far_quantile_is_that_of_the_law(name):
    check_quantile(far_quantile, LAWS[name])


def test_mutants_of_far_quantiles_fail():
    must_fail(
        check_quantile,
        lambda draws, q: float(np.quantile(draws, 1 - 5 * (1 - q))),
        LAWS["exponential"],
    )
    must_fail(check_quantile, lambda draws, q: float(draws.max()), LAWS["heavy"])
    must_fail(
        check_quantile,
        lambda draws, q: float(np.mean(draws) + 3.09 * np.std(draws)),
        LAWS["exponential"],
    )


def test_both_sides_are_alike():
    draws = np.random.default_rng(0).standard_t(4, 2000)
    assert far_quantile(draws, 1e-4) == pytest.approx(-far_quantile(-draws, 1 - 1e-4))
    assert far_quantile(draws, 0.3) == np.quantile(draws, 0.3, method="nearest")


@pytest.mark.parametrize("most", [1.0, 1 / 3, 0.1, 1e6 / 7, -0.3])
def test_where_the_outermost_draws_are_one_number_it_is_the_far_quantile(most):
    """The law of the excesses has no shape then; rounding must not give it one."""
    draws = np.full(2000, most)
    draws[:1900] = most - 1 / 7
    assert far_quantile(draws, 1 - 1e-5) == pytest.approx(most, abs=1e-9)
    must_fail(check_most, most, draws[1:])


def check_most(most, draws):
    """The far quantile is the largest draw, which is asked of a law that has a shape."""
    assert far_quantile(np.append(draws, most + 1), 1 - 1e-5) == pytest.approx(most, abs=1e-9)


def skewed(seed: int, n: int = 128) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    return draw.lognormal(sigma=1.2, size=n), 1 + draw.random(n)


def check_tool(ends) -> None:
    for seed in range(5):
        own, other = skewed(seed)
        found = bootstrap(lambda a, b: a / b, own, other, positive=True)
        for chance, expected in zip(EXTREMES, found.extremes, strict=True):
            low, high, *normal = ends(own, other, chance)
            np.testing.assert_allclose(np.exp([low, high]), expected, rtol=2e-3)
            assert low <= normal[0] < normal[1] <= high


def test_the_tool_counts_what_a_report_does(tool, monkeypatch):
    check_tool(tool.ends)
    monkeypatch.setattr(tool, "UNSEEN", 1)
    must_fail(check_tool, tool.ends)


@pytest.mark.slow
def test_the_laws_of_the_tool_are_units_of_real_errors(tool, monkeypatch):
    """A row of positive numbers for the model and the other, as many as there are units."""
    monkeypatch.setattr(tool, "SEEDS", 2)

    def check(laws):
        assert len(laws) == 3
        for law in laws:
            assert law.own.shape == law.other.shape == (2 * tool.N_UNITS,)
            assert (law.own > 0).all()
            assert (law.other > 0).all()

    laws = tool.laws()
    check(laws)
    must_fail(check, [*laws[:2], laws[2]._replace(own=laws[2].own[:, None])])


def check_wrong(unseen: int, monkeypatch) -> None:
    """The share of samples of a skewed law whose far end at 1e-3 misses the known mean."""
    monkeypatch.setattr(resampling, "UNSEEN", unseen)
    truth, wrong, n = np.exp(1.2**2 / 2), 0, 1500
    for seed in range(n):
        own, _ = skewed(seed + 100)
        found = bootstrap(lambda a: a, own, positive=True)
        low, high = found.extremes[0]
        wrong += not low <= truth <= high
    # Two sides of 1e-3: 3 of 1,500, and 9 at most with a chance of .001.
    assert wrong <= 9


@pytest.mark.slow
def test_far_ends_hold_the_truth_of_skewed_units(monkeypatch):
    check_wrong(resampling.UNSEEN, monkeypatch)
    must_fail(check_wrong, 0, monkeypatch)


def test_ends_stay_within_what_units_can_give():
    share = np.random.default_rng(0).beta(9, 0.5, size=128)
    for low, high in bootstrap(lambda mean: mean, share).extremes:
        assert share.min() <= low < share.mean() < high <= share.max()
    never = bootstrap(lambda mean: mean, np.ones(64))
    assert set(never.extremes) == {(1.0, 1.0)}


def test_rarer_ends_lie_further_out():
    found = bootstrap(lambda a, b: a / b, *skewed(0), positive=True).extremes
    lows, highs = np.array(found).T
    assert (np.diff(lows) < 0).all()
    assert (np.diff(highs) > 0).all()
