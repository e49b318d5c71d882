"""Straight lines far out: departures of exact data from a line, and the claim on made-up results."""

import numpy as np
import pytest
from helpers import must_fail
from known import facts
from measuring import judged_on

from icl_interp.results import make_array
from icl_interp.studies.limits.claims.context import _departure, _departures
from icl_interp.studies.limits.measurements import far

LINEAR = "limits.linear_asymptote"


def ends_of(f) -> np.ndarray:
    """f over (direction, x, function, context): f takes x and the context's number."""
    x = np.stack([far.LINE, -far.LINE])[:, :, None, None]
    return np.broadcast_to(f(x, np.arange(12.0).reshape(1, 1, 4, 3)), (2, 3, 4, 3))


def check_departures(departures):
    slopes, intercepts, curvature = departures(ends_of(lambda x, c: np.where(x > 0, 0.3 * x + c, -0.5 * x - 2 * c)))
    numbers = np.arange(12.0).reshape(4, 3)
    assert np.allclose(slopes, np.array([0.3, -0.5])[:, None, None], rtol=1e-12)
    assert np.allclose(intercepts, [numbers, -2 * numbers], atol=1e-8)
    assert np.abs(curvature).max() < 1e-10
    for f in (
        lambda x, c: x**3,
        lambda x, c: x**2,
        lambda x, c: np.abs(x) ** 1.5,
        lambda x, c: np.sqrt(np.abs(x)),
        lambda x, c: x * np.log(np.abs(x)),
    ):
        assert np.abs(departures(ends_of(f))[2]).min() > 0.1


def test_departures_from_a_line():
    """0 for lines; above the criterion's 10 % for a cubic, a square, a root and x log x."""

    def chord(ends):
        """The mistake: the middle point's distance to the chord never exceeds 9 % of it, for any power above 1."""
        slopes, intercepts, _ = _departures(ends)
        x = np.stack([far.LINE, -far.LINE])
        off = ends[:, 1] - intercepts - slopes * x[:, 1, None, None]
        return slopes, intercepts, off / (ends[:, 2] - ends[:, 0])

    check_departures(_departures)
    must_fail(check_departures, chord)


def test_a_departure_is_the_worst_of_curvature_and_spread_of_slopes():
    line = _departure(ends_of(lambda x, c: 0.3 * x + c))
    assert line.high < 1e-8
    spread_out = _departure(ends_of(lambda x, c: x * (1 + 0.1 * np.sin(c))))
    sd = (1 + 0.1 * np.sin(np.arange(12.0))).std() / (1 + 0.1 * np.sin(np.arange(12.0))).mean()
    assert spread_out.value == pytest.approx(sd, rel=1e-6)
    assert _departure(ends_of(lambda x, c: x**3)).low > 0.9
    one_sided = _departure(ends_of(lambda x, c: np.where(x > 0, x, -(x**2))))
    assert one_sided.low > 0.8


def of_line(f) -> dict:
    axes = {"direction": ("+", "-"), "x": tuple(far.LINE), "function": tuple(range(4)), "context": tuple(range(3))}
    stored = make_array(ends_of(f), axes)
    return {"far/ends": stored, "twin/far/ends": stored}


@pytest.mark.parametrize(
    ("f", "verdict"),
    [
        (lambda x, c: 0.3 * x + c, "supported"),
        (lambda x, c: x * (1 + 0.05 * np.sin(c)), "inconclusive"),
        (lambda x, c: x**3, "contradicted"),
        # No growth in one direction, or none above rounding.
        (lambda x, c: np.maximum(x, 0.0) + 1, "inconclusive"),
        (lambda x, c: 1 + 1e-17 * np.abs(x) * (1 + c), "inconclusive"),
        (lambda x, c: 0 * x, "inconclusive"),
    ],
)
def test_a_line_is_told_from_what_bends_and_from_what_stands_still(f, verdict):
    finding = judged_on(LINEAR, of_line(f), facts(config={"normalization_type": None}))
    assert finding.verdict == verdict
    still = finding.evidence["growth"].value < 1e-9
    assert ("But f does not grow" in finding.reason) == still
    assert finding.evidence["departure"] == finding.estimate == finding.test
