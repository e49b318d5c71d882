"""Straight lines far out: departures of exact data from a line, and claims on made-up results."""

import numpy as np
import pytest
from helpers import must_fail
from made_up_facts import facts
from measured_claims import judged_on
from xarray import DataArray

from icl_interp.analyses import registry
from icl_interp.analyses.natural import in_a_sentence
from icl_interp.analyses.places import DRAWN, MIDDLES
from icl_interp.results import make_array, make_curve
from icl_interp.studies.limits.claims.asymptote import departure, departures, growth, unsteady
from icl_interp.studies.limits.measurements import far
from icl_interp.studies.limits.measurements.context import BEYOND

LINEAR = "limits.linear_asymptote"
N = 40  # units of three prompts


def ends_of(f, xs=far.LINE) -> np.ndarray:
    """f over (direction, x, unit, context): f takes x and the context's number."""
    x = np.stack([xs, -xs])[:, :, None, None]
    numbers = np.arange(3.0 * N).reshape(1, 1, N, 3)
    return np.broadcast_to(f(x, numbers), (2, len(xs), N, 3))


def check_departures(of):
    slopes, intercepts, curvature = of(
        ends_of(lambda x, c: np.where(x > 0, 0.3 * x + c, -0.5 * x - 2 * c))
    )
    numbers = np.arange(3.0 * N).reshape(N, 3)
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
        assert np.abs(of(ends_of(f))[2]).min() > 0.1


def test_departures_from_a_line():
    """0 for lines; above the criterion's 10 % for a cubic, a square, a root and x log x."""

    def chord(ends):
        """The mistake: the distance to the chord is at most 9 % of it, for powers above 1.

        The distance is that of the middle point.
        """
        slopes, intercepts, _ = departures(ends)
        x = np.stack([far.LINE, -far.LINE])
        off = ends[:, 1] - intercepts - slopes * x[:, 1, None, None]
        return slopes, intercepts, off / (ends[:, 2] - ends[:, 0])

    check_departures(departures)
    must_fail(check_departures, chord)


def test_a_departure_is_the_worst_of_curvature_and_spread_of_slopes():
    line = departure(ends_of(lambda x, c: 0.3 * x + c))
    assert line.high < 1e-8
    spread_out = departure(ends_of(lambda x, c: x * (1 + 0.1 * np.sin(c))))
    slopes = 1 + 0.1 * np.sin(np.arange(3.0 * N))
    assert spread_out.value == pytest.approx(slopes.std() / slopes.mean(), rel=1e-6)
    assert departure(ends_of(lambda x, c: x**3)).low > 0.9
    one_sided = departure(ends_of(lambda x, c: np.where(x > 0, x, -(x**2))))
    assert one_sided.low > 0.8
    # Slopes that cancel have a spread that is large, not infinite; sizes and powers of x do not
    # matter.
    assert 1e3 < departure(ends_of(lambda x, c: x * np.cos(np.pi * c))).value <= 1e6
    assert departure(1e250 * ends_of(lambda x, c: x**3)).value == pytest.approx(0.99, abs=1e-3)


def test_growth_is_how_far_f_moves_in_the_direction_where_it_moves_less():
    assert growth(1.0, ends_of(lambda x, c: np.where(x > 0, 3.0, 2.0) * x)).value == pytest.approx(
        2 * (1e6 - 1e4)
    )
    both = growth(2.0, ends_of(lambda x, c: x), ends_of(lambda x, c: 0.1 * x))
    assert both.value == pytest.approx(0.05 * (1e6 - 1e4))
    assert growth(1.0, ends_of(lambda x, c: np.maximum(x, 0.0) + c)).value == 0


def test_a_line_is_steady_where_its_slope_beyond_the_grid_is_the_same():
    def change(f):
        return unsteady(ends_of(f), ends_of(f, BEYOND)).value

    assert change(lambda x, c: 0.3 * x + c) < 1e-9
    assert change(lambda x, c: np.where(np.abs(x) > 1e7, 0.4, 0.3) * x) == pytest.approx(
        0.25, rel=0.01
    )
    assert change(lambda x, c: np.where(x > 1e7, 0.4, 0.3) * x) == pytest.approx(0.25, rel=0.01)
    assert change(lambda x, c: np.where(np.abs(x) > 1e7, 0.3, 0.4) * x) == pytest.approx(
        0.25, rel=0.01
    )


def stored_in(f, xs) -> DataArray:
    axes = {
        "direction": ("+", "-"),
        "x": tuple(xs),
        "unit": tuple(range(N)),
        "context": tuple(range(3)),
    }
    return make_array(ends_of(f, xs), axes)


def stored_at_drawn(f) -> dict[str, DataArray]:
    """`far/drawn ends` and `far/places` of f, at places of each pair of units."""
    jitter = np.repeat(np.random.default_rng(1).uniform(0.8, 1.2, (N // 2, len(DRAWN))), 2, 0)
    sizes, half = np.abs(DRAWN) * jitter, len(MIDDLES)
    outwards = np.stack([sizes[:, half:], sizes[:, :half][:, ::-1]])
    places = np.concatenate(
        [outwards[..., [8, 10]], np.full((2, N, 1), 1e6), outwards[..., [13, 14, 15]]], -1
    )
    x = np.moveaxis(places, -1, 1)[..., None] * np.array([1.0, -1.0])[:, None, None, None]
    values = np.broadcast_to(f(x, np.arange(3.0 * N).reshape(1, 1, N, 3)), (2, 6, N, 3))
    axes = {
        "direction": ("+", "-"),
        "place": tuple(range(6)),
        "unit": tuple(range(N)),
        "context": tuple(range(3)),
    }
    signed = make_curve(sizes * np.sign(DRAWN), {"unit": tuple(range(N)), "x": tuple(DRAWN)})
    return {"far/drawn ends": make_array(values, axes), "far/places": signed}


def of_line(f, spread: float = 1.0, u: float = 1.0) -> dict:
    """Results of f; its spread over prompts at the inner queries is as given, in f's own size."""
    noise = spread * np.random.default_rng(0).standard_normal((N, 2))
    near = make_curve(
        np.stack([noise, noise**2, 0 * noise]),
        {
            "statistic": ("mean", "mean square", "variance"),
            "unit": tuple(range(N)),
            "x": (-0.5, 0.5),
        },
    )
    own = {"far/ends": stored_in(f, far.LINE), "far/beyond": stored_in(f, BEYOND)}
    results = (
        own
        | stored_at_drawn(f)
        | {
            "far/in distribution": near,
            "scale/own": make_array([0.0, u], {"statistic": ("mean", "u")}),
        }
    )
    for prefix in ("twin/", "twin 2/", "twin 3/"):
        results |= {prefix + name: result for name, result in own.items()}
    return results


def judge(f, **settings):
    return judged_on(LINEAR, of_line(f, **settings), facts(config={"normalization_type": None}))


@pytest.mark.parametrize(
    ("f", "verdict"),
    [
        (lambda x, c: 0.3 * x + c, "supported"),
        # sd(slope) / |slope| is 0.707 of the factor.
        (lambda x, c: x * (1 + 0.0135 * np.sin(c)), "supported"),
        (lambda x, c: x * (1 + 0.0145 * np.sin(c)), "inconclusive"),
        (lambda x, c: x * (1 + 0.12 * np.sin(c)), "inconclusive"),
        (lambda x, c: x * (1 + 0.2 * np.sin(c)), "contradicted"),
        (lambda x, c: x**3, "contradicted"),
        # No growth in one direction, or none to speak of.
        (lambda x, c: np.maximum(x, 0.0) + 1, "inconclusive"),
        (lambda x, c: 1 + 1e-17 * np.abs(x) * (1 + c), "inconclusive"),
        (lambda x, c: 1 + 1e3 * c / x, "inconclusive"),  # it still moves at 1e4, but levels off
        (lambda x, c: 0 * x, "inconclusive"),
    ],
)
def test_a_line_is_told_from_what_bends_and_from_what_stands_still(f, verdict):
    finding = judge(f)
    assert finding.verdict == verdict
    still = finding.evidence["growth"].value < 0.1
    assert finding.reason.startswith("The prediction does not grow") == still
    claim = registry.REGISTRY[LINEAR]
    answers = {
        "supported": claim.statement,
        "contradicted": claim.denied,
        "inconclusive": f" whether {in_a_sentence(claim.statement)}.",
    }
    assert answers[verdict] in finding.reason
    assert finding.evidence["departure"] == finding.estimate == finding.test


@pytest.mark.parametrize(
    ("f", "decided_by"),
    [
        # One line on the grid, another one beyond; a line first, then a curve; a curve first, then
        # a line.
        (lambda x, c: np.where(np.abs(x) > 1e7, 0.4, 0.3) * x, "change of slope"),
        (lambda x, c: np.where(np.abs(x) > 1e7, 1e-7 * x**2, x), "departure beyond"),
        (lambda x, c: np.where(np.abs(x) > 1e7, x, np.abs(x) ** 1.5), None),
        (lambda x, c: np.where(np.abs(x) > 1e7, x, x * (1 + 0.5 * np.sin(c))), None),
    ],
)
def test_a_regime_that_begins_beyond_the_grid_decides_nothing(f, decided_by):
    finding = judge(f)
    assert finding.verdict == "inconclusive"
    assert ("the line lies beyond the range measured" in finding.reason) == (decided_by is None)
    if decided_by:
        assert finding.decided_by.quantity == decided_by
        sizes = {"departure beyond": 0.9, "change of slope": 0.25}
        assert finding.test.value == pytest.approx(sizes[decided_by], rel=0.01)
        assert finding.decided_by.said(finding.test, "inconclusive") in finding.reason


def test_sizes_are_in_units_of_f_itself():
    for u in (1e-6, 1.0, 1e6):
        assert judge(lambda x, c, u=u: u * (0.3 * x + c), u=u, spread=u).verdict == "supported"
        assert judge(lambda x, c, u=u: u * (1 + 1e-8 * x), u=u, spread=u).verdict == "inconclusive"
        assert judge(lambda x, c, u=u: u * x**3, u=u, spread=u).verdict == "contradicted"
    constant = judge(lambda x, c: 0 * x, u=0.0, spread=0.0)
    assert constant.verdict == "inconclusive"


def test_who_does_not_look_at_the_context_shows_nothing_about_it():
    for spread, verdict in ((0.07, "supported"), (0.04, "inconclusive"), (0.0, "inconclusive")):
        finding = judge(lambda x, c: 0.3 * x, spread=spread)
        assert finding.verdict == verdict
        assert ("In distribution the context moves the prediction by" in finding.reason) == (
            verdict == "inconclusive"
        )
