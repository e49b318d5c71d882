"""Models trained on intervals of different sizes: errors in the claimed order, and powers of the half-width."""

import numpy as np
import pytest
from affine_runs import INTERVALS, N, known
from helpers import must_fail
from measuring import judged_on
from xarray import DataArray

from icl_interp.results import make_array, make_curve
from icl_interp.studies.limits.claims.intervals import cells, exponents, ordered, overlap
from icl_interp.studies.limits.measurements.shift import COARSE

DENSITY_ID, LARGER_ID = "limits.training_density", "limits.larger_intervals"
RNG = np.random.default_rng(0)
# The paper's Table 3 at sigma = 1, 5, 10 for models trained on U(-a, a), a = 1, 5, 10.
TABLE_3 = [[0.0, 4.0, 27.85], [0.01, 0.03, 1.61], [0.13, 0.26, 0.49]]


def intervals_of(errors, untrained=None, noise=0.05) -> DataArray:
    """Stored errors over (model, sigma), noisy by function."""
    table = np.vstack([errors, [0.5, 11.0, 47.0]])
    spread = np.exp(noise * RNG.standard_normal((*table.shape, N)))
    trained = table[..., None] * spread
    other = np.ones_like(trained) * spread if untrained is None else np.array(untrained)
    axes = {
        "arm": ("both", "functions", "untrained"),
        "predictor": ("1.0", "5.0", "10.0", "zero"),
        "sigma": (1.0, 5.0, 10.0),
        "function": tuple(range(N)),
    }
    return make_array([trained, trained, other], axes)


SIZES = [1.0, 5.0, 10.0]


def check_cells(cells):
    found = {f"{SIZES[i]:g} {SIZES[j]:g} {SIZES[k]:g}" for i, j, k in cells(SIZES)}
    assert found == {"1 5 1", "1 10 1", "5 10 1", "5 1 5", "5 10 5", "10 1 5", "10 1 10", "10 5 10", "5 1 10"}


def test_cells_compare_models_that_saw_more_of_an_interval_with_those_that_saw_less():
    check_cells(cells)
    must_fail(check_cells, lambda sizes: [(j, i, k) for i, j, k in cells(sizes)])
    assert cells([1.0, 4.0, 16.0]).count((0, 2, 1)) == 0  # an even overlap decides nothing
    draws = np.sort(np.random.default_rng(1).uniform(-4, 4, 200_000))
    inside = np.mean(np.abs(draws) < 1)
    assert abs(inside - overlap(4, 1)) < 4 * np.sqrt(0.25 * 0.75 / len(draws))  # U(-1, 1) lies inside U(-4, 4)


def test_the_paper_s_table_is_in_the_claimed_order():
    found = ordered(intervals_of(TABLE_3), "both")
    assert (found.value, found.low, found.high) == (1, 1, 1)
    assert ordered(intervals_of(np.array(TABLE_3)[::-1]), "both").value < 0.3


def density(errors, **settings):
    return judged_on(DENSITY_ID, {"shift/intervals": intervals_of(errors, **settings)}, known(*INTERVALS))


def test_training_density():
    assert density(TABLE_3).verdict == "supported"
    assert density(np.array(TABLE_3)[::-1]).verdict == "contradicted"
    swapped = np.array(TABLE_3)
    swapped[0, 0] = 0.02  # no longer the best on its own interval
    finding = density(swapped)
    assert finding.verdict == "inconclusive"
    assert finding.estimate is not None
    assert finding.estimate.value == pytest.approx(8 / 9)
    as_good = intervals_of(TABLE_3).values[0]
    assert density(TABLE_3, untrained=as_good).verdict == "inconclusive"  # an untrained family passes too


def onsets_of(power, xs=COARSE) -> DataArray:
    """Gaps 0.05 * 20 a^power / |x|: level from 20 a^power on, in both directions."""
    gaps = [np.square(20 * a**power * 0.05 / np.abs(xs)) * np.ones((N, 1)) for a in SIZES]
    return make_curve(gaps, {"interval": SIZES, "function": tuple(range(N)), "x": tuple(xs)})


def errors_of(power) -> DataArray:
    rows = [[1e-3 * a**power * (1 + k) for k in range(3)] for a in SIZES]
    return intervals_of(rows)


def check_exponents(exponents):
    for p, q in ((0.5, 2.0), (1.0, 0.3), (0.0, 1.0)):
        onset, cost, both = exponents(onsets_of(p), errors_of(q))
        assert onset.value == pytest.approx(p, abs=1e-9)
        assert cost.value == pytest.approx(q, abs=0.05)
        assert both.value == pytest.approx(min(p, q), abs=0.05)


def test_exponents_are_the_powers_of_a():
    check_exponents(exponents)
    must_fail(check_exponents, lambda curve, errors: exponents(curve.copy(data=curve.values[::-1]), errors))


@pytest.mark.parametrize(
    ("p", "q", "verdict"),
    [(0.5, 2.0, "supported"), (0.5, -1.0, "contradicted"), (-0.5, 2.0, "contradicted"), (0.05, 2.0, "inconclusive")],
)
def test_larger_intervals(p, q, verdict):
    results = {"shift/onsets": onsets_of(p), "shift/intervals": errors_of(q), "shift/onsets, untrained": onsets_of(0.0)}
    finding = judged_on(LARGER_ID, results, known(*INTERVALS))
    assert finding.verdict == verdict
    assert [row["onset"] for row in finding.details] == pytest.approx([20 * a**p for a in SIZES])
    assert finding.twin is not None
    assert finding.twin.value == pytest.approx(0, abs=0.05)
