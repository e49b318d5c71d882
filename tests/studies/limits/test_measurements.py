"""The numbers that claims are judged on, against explicit computations and synthetic data whose answer is exact."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from hypothesis import given
from hypothesis import strategies as st
from known import facts
from small_models import BASE, TASK, make
from xarray import DataArray

from icl_interp import tasks
from icl_interp.analyses import registry
from icl_interp.analyses.criterion import Estimate
from icl_interp.analyses.lab import MAGNITUDES, Lab
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.relevance import relevance, relevant
from icl_interp.interventions import SwapPattern
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.tokens import Interleaved
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.resampling import simultaneous, slope
from icl_interp.results import make_array, make_curve, make_table
from icl_interp.studies.heads.claims import orthogonality as heads
from icl_interp.studies.heads.claims.orthogonality import N_ROTATIONS, _haar_blocks, _overlap, _Thin
from icl_interp.studies.limits.claims import context as limits_context
from icl_interp.studies.limits.claims import layernorm as limits_layernorm
from icl_interp.studies.limits.claims import uniform as limits_uniform
from icl_interp.studies.limits.claims.context import (
    _amplitude,
    _cross_validated,
    _decay,
    _departure,
    _departures,
    _products,
    r_squared,
    spread,
)
from icl_interp.studies.limits.claims.layernorm import _measured_onset, exponents, growth_exponent, scale_growth
from icl_interp.studies.limits.claims.softmax import deltas
from icl_interp.studies.limits.claims.uniform import _resampled, _scores, _split, _uniform_share, _within, deficits
from icl_interp.studies.limits.measurements import boundary, far
from icl_interp.theory.limits import entropy_deficit_bound

INF = float("inf")
RNG = np.random.default_rng(0)


def bench(**change) -> Lab:
    return Lab(make("pre", **change), TASK, Interleaved(), n_functions=4, n_contexts=3)


# ---- patterns -------------------------------------------------------------------------------------------------------


def check_deltas(delta):
    """One minus the mass on the arg-max set, ties merged; a set of more than half of the keys is evenness."""
    for pattern, expected in (
        ([1.0, 0, 0, 0, 0], 0.0),
        ([0.6, 0.1, 0.1, 0.1, 0.1], 0.4),
        ([0, 0, 0, 0, 1.0], 0.0),
        ([0.5, 0.5, 0, 0, 0], 0.0),
        ([0.4, 0.4, 0.2, 0, 0], 0.2),
        ([0.3, 0.3, 0.3, 0.1, 0], 1.0),
        ([0.2] * 5, 1.0),
        ([0.25] * 4, 1.0),
        ([0.5, 0.5], 1.0),
        ([0.4, 0.4 * (1 - 1e-9), 0.2, 0, 0], 0.2),
        ([0.4, 0.399, 0.201, 0, 0], 0.6),
    ):
        assert float(delta(torch.tensor(pattern).double())) == pytest.approx(expected, abs=1e-8), pattern


def unmerged(pattern):
    return 1 - pattern.amax(-1)


def test_deltas_merge_ties():
    check_deltas(deltas)
    must_fail(check_deltas, unmerged)


def test_a_token_shown_twice_counts_once():
    """A hardmax onto the largest token stays one where that token stands several times in the context."""
    tokens = torch.tensor([3.0, -1.0, 3.0, 0.5, 3.0, 1.0, 0.0]).double()
    pattern = (1e4 * tokens).softmax(-1)
    assert float(deltas(pattern)) == 0
    assert float(unmerged(pattern)) == pytest.approx(2 / 3)


EIGHTHS = st.integers(-40, 40).map(lambda k: k / 8)  # so that ties stay ties when a number is added


@given(st.lists(EIGHTHS, min_size=3, max_size=9), EIGHTHS)
def test_delta_ignores_order_and_shift(scores, shift):
    pattern = torch.tensor(scores).double().softmax(-1)
    assert float(deltas(pattern.flip(-1))) == pytest.approx(float(deltas(pattern)), abs=1e-9)
    moved = (torch.tensor(scores).double() + shift).softmax(-1)
    assert float(deltas(moved)) == pytest.approx(float(deltas(pattern)), abs=1e-9)


def check_deficits(deficit):
    """log n - H, by numpy, zeros included; 0 for uniform and log n for one-hot; at most min(R, R^2 / 8)."""
    scores = torch.randn(50, 17, generator=generator(0, "test/deficit"), dtype=torch.float64)
    pattern = scores.softmax(-1)
    p = pattern.numpy()
    assert np.allclose(deficit(pattern), math.log(17) + (p * np.log(p)).sum(-1), rtol=0, atol=1e-13)
    one_hot = torch.eye(6).double()
    assert torch.allclose(deficit(one_hot), torch.full((6,), math.log(6)).double())
    assert deficit(torch.full((3, 9), 1 / 9, dtype=torch.float64)).abs().max() < 1e-14
    extent = scores.amax(-1) - scores.amin(-1)
    assert (deficit(pattern) <= entropy_deficit_bound(extent)).all()


def test_deficits():
    check_deficits(deficits)
    must_fail(check_deficits, lambda p: 1 + torch.xlogy(p, p).sum(-1) / math.log(p.shape[-1]))
    must_fail(check_deficits, lambda p: math.log(p.shape[-1] - 1) + torch.xlogy(p, p).sum(-1))


def test_deficits_within_a_kind_of_token():
    """Even among y tokens, though x tokens get nothing: uniform within y, far from it in total."""
    kinds = np.array(["x", "y"] * 6)
    pattern = torch.from_numpy((kinds == "y") / 6.0)
    assert float(_within(pattern, kinds == "y")) == pytest.approx(0)
    assert float(deficits(pattern)) == pytest.approx(math.log(2))
    assert _within(pattern, kinds == "z").isnan().all()


def check_split(split):
    """All n keys are given out, each kind within one key of its share."""
    for kinds in (["x", "y"] * 6, ["x", "y", "x"], ["xy"] * 5, ["x"] * 7 + ["y"] * 2 + ["z"]):
        for n in (7, 10, 100):
            sizes = split(np.array(kinds), n)
            assert sum(sizes.values()) == n
            assert set(sizes) == set(kinds)
            for kind, size in sizes.items():
                assert abs(size - n * kinds.count(kind) / len(kinds)) < len(sizes)


def test_split_keeps_proportions():
    check_split(_split)
    must_fail(check_split, lambda kinds, n: {k: v + 1 for k, v in _split(kinds, n).items()})
    must_fail(check_split, lambda kinds, n: dict.fromkeys(_split(kinds, n), 0) | {"x": n})
    swapped = lambda kinds, n: dict(zip(_split(kinds, n), reversed(_split(kinds, n).values()), strict=True))  # noqa: E731
    must_fail(check_split, swapped)
    assert _split(np.array(["x", "y"] * 6), 100) == {"x": 50, "y": 50}


# ---- deficits of heads ----------------------------------------------------------------------------------------------


def test_the_limit_of_the_deficit_is_what_resampling_tends_to():
    """At n keys the mean deficit is off by O(1/n); the stored limit is exact for that law."""
    lab = bench()
    result, pool = limits_uniform.deficit(lab), _scores(lab, lab.inner)
    limit = result.sel(n="limit").values

    def check(stored):
        gaps = [np.abs(_resampled(lab, pool, n)[0] - stored).max() for n in (500, 50_000)]
        assert gaps[1] < 0.02
        assert gaps[1] < 0.3 * gaps[0]

    check(limit)
    must_fail(check, 1.3 * limit)
    must_fail(check, result.sel(n="trained").values)


def test_deficits_of_heads_are_those_of_their_patterns():
    lab = bench()
    patterns = []
    for x in lab.inner:
        xs = lab.prompts.xs.clone()
        xs[:, -1] = x
        _, cache = lab.model.run_with_cache(lab.encoding.encode(replace(lab.prompts, xs=xs)))
        patterns.append(torch.cat([cache[f"blocks.{i}.attn.hook_pattern"][:, :, -1] for i in range(2)], 1))
    p = torch.stack(patterns)  # (query, batch, head, key)
    expected = (math.log(13) + torch.xlogy(p, p).sum(-1)).mean(0).view(4, 3, 6).mean(1).T
    result = limits_uniform.deficit(lab)
    assert np.allclose(result.sel(n="trained").values, expected, rtol=0, atol=1e-12)
    bound = entropy_deficit_bound(p.log().amax(-1) - p.log().amin(-1)).mean(0).view(4, 3, 6).mean(1).T
    assert (torch.from_numpy(result.sel(n="trained").values) <= bound).all()
    assert np.allclose(
        result.sel(n="range").values, (p.log().amax(-1) - p.log().amin(-1)).mean(0).view(4, 3, 6).mean(1).T
    )

    # The curve's last direct point is the trained length, of two contexts a function.
    curve = limits_uniform.dispersion(lab)
    k = list(curve["n"].values).index(13.0)
    few = (math.log(13) + torch.xlogy(p, p).sum(-1)).mean(0).view(4, 3, 6)[:, :2].mean((0, 1))
    assert np.allclose(curve.sel(statistic="deficit").values[:, k], few, rtol=0, atol=1e-12)
    assert np.allclose(
        curve.sel(statistic="max weight").values[:, k], p.amax(-1).mean(0).view(4, 3, 6)[:, :2].mean((0, 1))
    )
    assert list(curve["n"].values) == sorted(curve["n"].values)
    assert curve["n"].values[-1] == 40 * 13


# ---- exponents, elasticities, onsets --------------------------------------------------------------------------------

GRID = far.GROWTH


def test_exponents_of_power_laws_are_exact():
    """Of the root mean square, whatever its size; the mean of both directions."""

    def check(exponent):
        for p, q in ((0.0, 0.0), (1.0, 1.0), (3.0, 3.0), (-1.0, -1.0), (0.5, 1.5)):
            square = np.where(GRID > 0, 4.0 * np.abs(GRID) ** (2 * p), 9.0 * np.abs(GRID) ** (2 * q))
            assert exponent(square, GRID) == pytest.approx((p + q) / 2, abs=1e-12)

    check(exponents)
    must_fail(check, lambda square, xs: exponents(square**2, xs))
    must_fail(check, lambda square, xs: slope(np.log(xs[xs > 0]), 0.5 * np.log(square[xs > 0])))
    many = np.abs(GRID) ** (2 * np.arange(4.0)[:, None])
    assert np.allclose(exponents(many, GRID), np.arange(4.0), atol=1e-12)


def test_the_exponent_of_nothing_is_zero():
    assert exponents(np.zeros(len(GRID)), GRID) == pytest.approx(0, abs=1e-10)


def test_what_falls_does_not_grow():
    squares = np.abs(GRID) ** (2 * np.array([-1.0, -0.44, 0.0, 0.5, 1.0])[:, None])
    assert growth_exponent(squares, GRID) == pytest.approx([0, 0, 0, 0.5, 1], abs=1e-12)
    assert exponents(squares, GRID)[1] == pytest.approx(-0.44, abs=1e-12)


def test_elasticities_of_scales_are_exact():
    xs = np.sort(far.DECADES)
    values = [np.log(np.abs(xs)) + 2, 0 * xs, 0.5 * np.log(np.abs(xs))]
    found = scale_growth(make_curve(values, {"norm": ("a", "b", "c"), "x": tuple(xs)}))
    assert found == pytest.approx({"a": 1.0, "b": 0.0, "c": 0.5}, abs=1e-12)


def approach_of(f, xs) -> DataArray:
    """`far/approach` of one function with one context: the squared distance of f from its own end."""
    end = np.where(xs > 0, f[np.argmax(xs)], f[np.argmin(xs)])
    return make_curve(((f - end) ** 2)[None, None], {"statistic": ("gap",), "function": (0,), "x": tuple(xs)})


def test_the_measured_onset_is_where_f_stays_level():
    """f = 1 - x0 / |x| is within 0.05 r of its end from about x0 / (0.05 r) on; the slower direction counts."""
    xs = np.concatenate([MAGNITUDES, -MAGNITUDES])

    def check(measure):
        for x0, r in ((1.0, 1.0), (30.0, 2.0)):
            f = np.sign(xs) * (1 - np.where(xs > 0, x0, x0 / 10) / np.abs(xs))
            assert measure(approach_of(f, xs), r) == pytest.approx(x0 / (0.05 * r), rel=0.01)
            # The unit of x has no say: f of a query a thousand times as large has its onset a thousand times further.
            assert measure(approach_of(f, 1000 * xs), r) == pytest.approx(1000 * x0 / (0.05 * r), rel=0.01)

    check(_measured_onset)
    must_fail(check, lambda curve, r: boundary.onset(curve, -1, boundary.LEVEL * r).value)
    assert _measured_onset(approach_of(xs, xs), 1.0) == INF


# ---- lines ----------------------------------------------------------------------------------------------------------


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


# ---- spread ---------------------------------------------------------------------------------------------------------


def curve_of(f: np.ndarray, xs) -> DataArray:
    """As the lab stores f, from (function, context, x)."""
    values = np.stack([f.mean(1), (f**2).mean(1), f.var(1)])
    axes = {"statistic": ("mean", "mean square", "variance"), "function": tuple(range(len(f))), "x": tuple(xs)}
    return make_curve(values, axes)


def contexts(size: float, offset: float, power: float, xs=None) -> np.ndarray:
    """f = offset |x| + size |x|^power (a number of the function and the context): (function, context, x)."""
    xs = np.array(GRID if xs is None else xs)
    noise = np.random.default_rng(1).normal(size=(24, 5, 1)) + np.random.default_rng(2).normal(size=(24, 1, 1))
    return offset * np.abs(xs) + size * noise * np.abs(xs) ** power


def check_spread(sd):
    """The standard deviation over all prompts, also where it is 1e-9 of f: differences of squares would lose it."""
    for size, offset, power in ((1.0, 0.0, 0.0), (1.0, 0.0, -1.0), (1e-3, 1e3, 0.0), (1e-2, 1e5, -0.5)):
        f = contexts(size, offset, power)
        expected = (f - offset * np.abs(GRID)).reshape(-1, len(GRID)).std(0)
        assert np.allclose(sd(curve_of(f, GRID)), expected, rtol=1e-3)


def test_the_spread_over_contexts():
    def by_squares(curve):
        mean, square = curve.values[:2].mean(1)
        return np.sqrt(np.maximum(square - mean**2, 0))

    check_spread(spread)
    must_fail(check_spread, by_squares)


def test_stored_variances_are_those_of_the_sweep():
    lab = bench()
    f = lab.sweep(lab.inner).numpy().reshape(4, 3, 2)
    stored = far.in_distribution(lab)
    assert np.allclose(stored.values, curve_of(f, lab.inner).values, rtol=1e-12)
    assert np.allclose(spread(stored), f.reshape(12, 2).std(0), rtol=1e-12)
    assert np.allclose(far.intact(lab).values[:, :, 5], far.intact(lab).sel(x=lab.grid[5]).values)


def test_amplitude_is_far_spread_over_near_spread():
    near = curve_of(contexts(2.0, 0.0, 0.0, (-0.5, 0.5)), (-0.5, 0.5))
    for size, offset in ((0.5, 0.0), (0.5, 2.0), (0.02, 1e3)):
        found = _amplitude(curve_of(contexts(size, offset, 0.0), GRID), near)
        assert found.value == pytest.approx(size / 2, rel=1e-4)
        assert found.low == pytest.approx(size / 2, rel=1e-3)  # the same contexts: draws cancel
    assert _amplitude(curve_of(contexts(0.0, 1 / 3, 0.0), GRID), near).high < 1e-10


def test_decay_is_the_slope_of_the_spread():
    """The slower of the two directions; -inf where nothing but rounding is left."""

    def check(decay):
        for power in (-1.0, -2.0, 0.0, 0.5):
            assert decay(curve_of(contexts(1.0, 0.0, power), GRID)) == pytest.approx(power, abs=1e-6)
        assert decay(curve_of(contexts(1.0, 1e-3, -1.0), GRID)) == pytest.approx(-1.0, abs=1e-4)
        assert decay(curve_of(contexts(0.0, 1 / 3, 0.0), GRID)) == -INF
        mixed = np.where(GRID > 0, contexts(1.0, 0.0, -1.0), contexts(1.0, 0.0, -0.2))
        assert decay(curve_of(mixed, GRID)) == pytest.approx(-0.2, abs=1e-6)

    check(_decay)
    must_fail(check, lambda curve: 2 * _decay(curve))
    must_fail(check, lambda curve: max(_decay(curve), -1.5))


# ---- information ----------------------------------------------------------------------------------------------------

N_FUNCTIONS, N_CONTEXTS = 48, 5  # eight functions for each of the six features
PARAMETERS = torch.randn(N_FUNCTIONS, 2, generator=generator(0, "test/info"), dtype=torch.float64)
FUNCTION = torch.arange(N_FUNCTIONS).repeat_interleave(N_CONTEXTS)
NOISE = torch.randn(len(FUNCTION), generator=generator(1, "test/info"), dtype=torch.float64)


def r2(target: torch.Tensor, parameters: torch.Tensor | None = None) -> float:
    features = _products((PARAMETERS if parameters is None else parameters)[FUNCTION], N_FUNCTIONS)
    residual, total = _cross_validated(features, target, FUNCTION, N_FUNCTIONS)
    means = [v.view(N_FUNCTIONS, -1).mean(1).numpy() for v in (residual, total)]
    values = np.stack([means, means])[:, None]
    axes = {
        "direction": ("+", "-"),
        "inputs": ("coefficients",),
        "statistic": ("residual", "total"),
        "function": tuple(range(N_FUNCTIONS)),
    }
    return r_squared(make_array(values, axes), "coefficients").value


def test_cross_validated_r2():
    a, b = PARAMETERS[FUNCTION].T
    assert r2(0.3 * a - 2 * b + 7) == pytest.approx(1, abs=1e-10)
    assert r2(a * b + 0.1 * a**2) == pytest.approx(1, abs=1e-10)
    assert r2(1e-4 * a + 5) == pytest.approx(1, abs=1e-6)  # attenuated, not erased
    assert r2(a + NOISE) == pytest.approx(0.5, abs=0.15)
    assert r2(NOISE) < 0.05
    permuted = PARAMETERS[torch.randperm(N_FUNCTIONS, generator=generator(2, "test/info"))]
    assert r2(a - b, permuted) < 0.1


def test_a_constant_holds_no_information():
    """Nor does what rounding leaves of one."""
    for target in (0 * NOISE, 0 * NOISE + 0.1, 0.1 + 1e-16 * NOISE, 1e4 / 3 + 1e-12 * NOISE):
        assert r2(target) == 0


def test_noise_of_the_function_is_no_information_about_its_coefficients():
    """Held-out functions: a number drawn once per function cannot be predicted, however many contexts repeat it."""

    def check(hold_out):
        own = torch.randn(N_FUNCTIONS, generator=generator(3, "test/info"), dtype=torch.float64)[FUNCTION]
        many = torch.randn(N_FUNCTIONS, 24, generator=generator(4, "test/info"), dtype=torch.float64)
        residual, total = _cross_validated(many[FUNCTION], own, hold_out, N_FUNCTIONS)
        assert 1 - float(residual.mean() / total.mean()) < 0.1

    check(FUNCTION)
    must_fail(check, torch.arange(len(FUNCTION)))  # contexts of one function in training and in test


def test_products_are_all_up_to_the_second_degree_that_functions_allow():
    a, b = PARAMETERS.T
    assert torch.equal(_products(PARAMETERS, N_FUNCTIONS - 1), torch.stack([torch.ones_like(a), a, b], 1))
    found = _products(PARAMETERS, N_FUNCTIONS)
    expected = [torch.ones_like(a), a, b, a * a, a * b, b * b]
    assert all(any(torch.equal(column, e) for column in found.T) for e in expected)
    assert found.shape[1] == 6


def test_information_measures_far_f():
    lab = bench()
    result = limits_context.information(lab)
    assert (result.sel(statistic="total").values > 0).all()
    assert np.isfinite(result.values).all()
    fixed = tasks.Continuous(function="exp", inputs=tasks.Uniform(-1, 1), n_points=7)
    constant = limits_context.information(Lab(make("pre"), fixed, Interleaved(), n_functions=9, n_contexts=3))
    assert r_squared(constant, "coefficients").value < 0.1


# ---- overlaps of heads ----------------------------------------------------------------------------------------------


def explicit(thin: _Thin) -> torch.Tensor:
    return thin.first @ thin.second


def random_thin(rows: int, rank: int, columns: int, seed: int) -> _Thin:
    g = generator(seed, "test/thin")
    first = torch.randn(rows, rank, generator=g, dtype=torch.float64)
    return _Thin(first, torch.randn(rank, columns, generator=g, dtype=torch.float64))


def test_thin_maps_know_their_spectrum():
    thin = random_thin(9, 3, 7, 0)
    u, s, _ = torch.linalg.svd(explicit(thin))
    assert torch.allclose(thin.sizes, s[:3])
    assert torch.allclose((thin.left.T @ u[:, :3]).abs(), torch.eye(3).double(), atol=1e-10)


def check_overlaps(overlap):
    """|<A, B>| / (|A| |B|) as whole matrices give it, for maps and for outputs."""
    for rows, columns in ((8, 8), (30, 8)):
        a, b = (random_thin(rows, 3, columns, seed) for seed in (1, 2))
        expected = (explicit(a) * explicit(b)).sum().abs() / (explicit(a).norm() * explicit(b).norm())
        assert overlap(a, b) == pytest.approx(float(expected), abs=1e-12)
        assert overlap(a, a) == pytest.approx(1, abs=1e-12)


def test_overlaps_equal_those_of_whole_matrices():
    blocks = torch.zeros(1, 3, 3, dtype=torch.float64)
    check_overlaps(lambda a, b: _overlap(a, b, blocks, blocks)[0])
    must_fail(check_overlaps, lambda a, b: float((a.sizes @ b.sizes) / (a.sizes.norm() * b.sizes.norm())))


def test_stored_overlaps_are_those_of_the_models_maps(monkeypatch):
    monkeypatch.setattr(heads, "N_ROTATIONS", 50)
    lab = bench()
    result, model = heads.overlap(lab), lab.model
    _, cache = model.run_with_cache(lab.tokens(lab.few))
    pairs = [name for name in result.indexes["pair"] if "~" in name]
    assert len(pairs) == 6
    for name in pairs:
        (layer, a), (_, b) = (map(int, head.split(".")) for head in name.split(" ~ "))
        attn, z = model.blocks[layer].attn, cache[f"blocks.{layer}.attn.hook_z"]
        written = torch.einsum("bthe,hed->hbtd", z, attn.W_O)
        maps = {
            "OV": attn.W_V @ attn.W_O,
            "QK": attn.W_Q @ attn.W_K.transpose(1, 2),
            "outputs": written - written.mean(1, keepdim=True),
        }
        for kind, m in maps.items():
            expected = (m[a] * m[b]).sum().abs() / (m[a].norm() * m[b].norm())
            assert result.sel(map=kind, pair=name).values == pytest.approx(float(expected), abs=1e-12)
    for kind in heads.MAPS:
        every = [result.sel(map=kind, pair=name).values for name in pairs]
        assert result.sel(map=kind, pair="mean").values == pytest.approx(np.mean(every))


def haar(n: int, d: int, seed: int) -> torch.Tensor:
    """Whole Haar rotations, a column after the other: a random direction orthogonal to those before."""
    g, columns = generator(seed, "test/haar"), []
    for _ in range(d):
        v = torch.randn(n, d, generator=g, dtype=torch.float64)
        for _ in range(2):  # twice is enough
            for u in columns:
                v = v - (v * u).sum(1, keepdim=True) * u
        columns.append(v / v.norm(dim=1, keepdim=True))
    return torch.stack(columns, 2)


def check_blocks(blocks, d, rank):
    """Squared entries of a Haar matrix average 1 / d, with variance 2 (d - 1) / (d^2 (d + 2)), signs are even, and
    entries of one column are as dependent as unit length makes them."""
    error = math.sqrt(2 * (d - 1) / (d**2 * (d + 2)) / N_ROTATIONS)
    for side in blocks:
        assert side.shape == (N_ROTATIONS, rank, rank)
        square = side.square().mean(0)
        assert (square - 1 / d).abs().max() < 4.5 * error
        assert side.mean(0).abs().max() < 4.5 / math.sqrt(d * N_ROTATIONS)
        first = (side[:, 0, 0] * side[:, 1, 1] * side[:, 0, 1] * side[:, 1, 0]).mean()
        assert first == pytest.approx(-1 / (d * (d - 1) * (d + 2)), abs=4.5 / d**2 / math.sqrt(N_ROTATIONS))


def test_haar_blocks_are_blocks_of_haar_matrices():
    check_blocks(_haar_blocks(N_ROTATIONS, 8, 3, seed=0), 8, 3)

    def unsigned(d, rank):
        noise = torch.randn(N_ROTATIONS, d, rank, generator=generator(0, "test/unsigned"), dtype=torch.float64)
        return [torch.linalg.qr(noise).Q[:, :rank]]

    must_fail(check_blocks, unsigned(8, 3), 8, 3)
    blocks = _haar_blocks(N_ROTATIONS, 8, 3, seed=0)
    must_fail(check_blocks, [b / b.square().sum(1, keepdim=True).sqrt() for b in blocks], 8, 3)
    whole = haar(100, 5, seed=0)
    assert torch.allclose(whole.transpose(1, 2) @ whole, torch.eye(5).double().expand(100, 5, 5), atol=1e-12)


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Kolmogorov and Smirnov's: the largest gap between two distribution functions."""
    both = np.sort(np.concatenate([a, b]))
    cdf = [np.searchsorted(np.sort(v), both, side="right") / len(v) for v in (a, b)]
    return float(np.abs(cdf[0] - cdf[1]).max())


CRITICAL = 1.95 * math.sqrt(2 / N_ROTATIONS)  # of that distance at a level of 0.1 %


def check_null(blocks):
    """The null of one pair, and against whole rotations P A Q of explicit matrices."""
    for rows in (8, 20):
        a, b = (random_thin(rows, 3, 8, seed) for seed in (3, 4))
        _, null = _overlap(a, b, *blocks)
        left = haar(N_ROTATIONS, 8, 1) if rows == 8 else torch.eye(20).double()
        rotated = left @ explicit(b) @ haar(N_ROTATIONS, 8, 2)
        full = (explicit(a) * rotated).sum((1, 2)).abs() / (explicit(a).norm() * explicit(b).norm())
        assert distance(null, full.numpy()) < CRITICAL


def test_the_null_of_a_pair_equals_whole_rotations():
    blocks = _haar_blocks(N_ROTATIONS, 8, 3, seed=0)
    check_null(blocks)
    must_fail(check_null, [1.2 * side for side in blocks])


def layer(n_heads: int, d_model: int, d_head: int) -> Lab:
    cfg = HookedTransformerConfig(
        **{
            **BASE,
            "n_layers": 1,
            "n_heads": n_heads,
            "d_model": d_model,
            "d_head": d_head,
            "normalization_type": None,
            "attn_only": True,
        }
    )
    return Lab(HookedTransformer(cfg, seed=2), TASK, Interleaved(), n_functions=4, n_contexts=2)


def check_mean_null(stored: list[np.ndarray], lab: Lab):
    """The null of the mean over pairs, against heads that each get whole rotations of their own."""
    maps = heads._maps(lab)
    for kind, found in zip(heads.MAPS, stored, strict=True):
        n_heads, d = lab.model.cfg.n_heads, lab.model.cfg.d_model
        explicit_maps = [explicit(m) for m in maps[kind][0]]
        turned = []
        for h, m in enumerate(explicit_maps):
            right = haar(N_ROTATIONS, d, 10 + h)
            if m.shape[0] == m.shape[1]:
                turned.append(haar(N_ROTATIONS, d, 50 + h) @ m @ right)
            else:  # outputs: rows are samples; their Gram matrix is all that a rotation of the stream leaves
                turned.append(torch.linalg.qr(torch.cat(explicit_maps, 1)).Q.T @ m @ right)
        pairs = list(itertools.combinations(range(n_heads), 2))
        size = [m[0].norm() for m in turned]
        full = sum((turned[a] * turned[b]).sum((1, 2)).abs() / (size[a] * size[b]) for a, b in pairs)
        assert distance(found, full.numpy() / len(pairs)) < CRITICAL, kind


def test_the_null_of_the_mean_lets_every_pair_vary_on_its_own(monkeypatch):
    """Rotations shared between pairs would make the mean vary as much as one pair, and hide what is orthogonal."""
    lab, seen = layer(4, 6, 2), []
    real = heads._overlap

    def record(share: bool):
        def overlap(a, b, left, right):
            value, null = real(a, b, left, shared[1] if share else right)
            seen.append(null)
            return value, null

        return overlap

    shared = _haar_blocks(heads.N_ROTATIONS, 6, 2, lab.seed)
    for share in (False, True):
        seen.clear()
        monkeypatch.setattr(heads, "_overlap", record(share))
        heads.overlap(lab)
        stored = [np.mean(seen[6 * m : 6 * m + 6], axis=0) for m in range(3)]
        if share:
            must_fail(check_mean_null, stored, lab)
        else:
            check_mean_null(stored, lab)


# ---- relevance and interactions -------------------------------------------------------------------------------------


def test_relevance_is_the_rise_of_the_error():
    lab = bench()
    result = relevance(lab)
    assert tuple(result.indexes["head"]) == ("0.0", "0.1", "0.2", "1.0", "1.1", "1.2")
    out, truth = lab.predictions()
    edited, _ = lab.predictions(SwapPattern("uniform", ((1, 2),)))
    rise = ((edited - truth) ** 2 - (out - truth) ** 2).mean(1).view(4, 2).mean(1)
    assert np.allclose(result.sel(head="1.2", intervention="uniform", statistic="rise").values, rise, rtol=1e-6)
    moved = ((edited - out) ** 2).mean(1).view(4, 2).mean(1) / out.var()
    assert np.allclose(result.sel(head="1.2", intervention="uniform", statistic="movement").values, moved, rtol=1e-6)


def test_a_head_that_is_not_read_is_not_relevant():
    """Neither where errors decide nor, in a model that learned nothing, where movements do."""
    lab = bench()
    with torch.no_grad():
        for model in (lab.model, lab.single):
            model.blocks[1].attn.W_O[2] = 0
    results = Results({"heads/relevance": relevance(lab)})
    assert "1.2" not in relevant(results, facts(r2=0.0))
    assert "1.1" in relevant(results, facts(r2=0.0))
    assert "1.2" not in relevant(results, facts(r2=0.99))


def _rises(rise):
    """Rises of an error of 5, as the measurement stores them."""
    return np.stack([rise, np.zeros_like(rise), np.full_like(rise, 5.0)], 2)


def test_a_head_that_matters_a_lot_to_a_few_functions_is_relevant():
    """A symmetric interval around the mean of heavy tails reaches below 0; the one on the logarithm does not."""
    rise = np.random.default_rng(1).normal(size=(12, 2, 40)) * 0.01
    rise[4] = 5.0
    rise[4, :, :4] = 1e4
    axes = {
        "head": tuple(f"0.{h}" for h in range(12)),
        "intervention": ("uniform", "mean ablation"),
        "statistic": ("rise", "movement", "intact"),
        "function": tuple(range(40)),
    }
    assert "0.4" in relevant(Results({"heads/relevance": make_array(_rises(rise), axes)}), facts())
    _, low, _ = simultaneous(lambda mean: mean, rise.reshape(24, 40).T)
    assert low[8] < 0  # what the symmetric interval says


def test_relevance_needs_an_interval_above_zero():
    """Of 12 heads that only add noise of either sign, all together pass in 5 % of data sets, not each in 5 %."""
    rng, hits = np.random.default_rng(0), 0
    axes = {
        "head": tuple(f"0.{h}" for h in range(12)),
        "intervention": ("uniform", "mean ablation"),
        "statistic": ("rise", "movement", "intact"),
        "function": tuple(range(40)),
    }
    for _ in range(60):
        noise = make_array(_rises(rng.normal(size=(12, 2, 40))), axes)
        hits += bool(relevant(Results({"heads/relevance": noise}), facts()))
    assert hits <= 60 * (0.05 + 4 * math.sqrt(0.05 * 0.95 / 60))
    sure = make_array(_rises(rng.normal(size=(12, 2, 40)) + 3 * (np.arange(12) == 4)[:, None, None]), axes)
    assert relevant(Results({"heads/relevance": sure}), facts()) == ["0.4"]


# ---- certificates ---------------------------------------------------------------------------------------------------


def test_the_predicted_onset_is_where_the_read_in_outweighs_the_rest():
    lab = bench()
    onset = far.certificate(lab)["onset"][0]
    rest = []
    for row in range(len(lab.prompts)):
        prompts = lab.prompts[row : row + 1]
        _, cache = lab.model.run_with_cache(lab.encoding.encode(prompts))
        offset = cache["blocks.1.hook_resid_post"][0, -1] - prompts.xs[0, -1] * lab.model.embed.W_E[0]
        rest.append(float((offset - offset.mean()).square().sum()))
    square = np.quantile(rest, 0.95) + 12 * lab.model.cfg.eps
    w = lab.model.embed.W_E[0] - lab.model.embed.W_E[0].mean()
    assert onset == pytest.approx(20 * math.sqrt(square) / float(w.norm()), rel=1e-9)


def test_a_large_eps_delays_the_onset():
    assert far.certificate(bench(eps=1e10))["onset"][0] > 1e4 * far.certificate(bench())["onset"][0]


def test_the_certificate_says_only_what_applies():
    for name, missing in (("post", {"plateau +", "plateau -", "onset"}), ("no norm", {"c", "r"}), ("rms", {"c", "r"})):
        row = far.certificate(Lab(make(name), TASK, Interleaved(), n_functions=2, n_contexts=2)).to_dict("records")[0]
        assert {key for key, value in row.items() if math.isnan(value)} >= missing
    row = far.certificate(bench()).to_dict("records")[0]
    assert row["c"] == pytest.approx((row["plateau +"] + row["plateau -"]) / 2)
    assert abs(row["plateau +"] - row["c"]) < row["r"]


def test_freezing_arms_are_what_they_say():
    """Each arm against whole prompts; the sham leaves the query's own scales alone."""
    lab = bench()
    arms = far.norm_arms(lab)
    at_query = lab.frozen.at_query()
    for arm, prompts, edits in (
        ("intact", lab.prompts, {}),
        ("frozen", lab.prompts, {"query": [at_query]}),
        ("sham", lab.few, {"context": [lab.frozen]}),
        ("ln_final", lab.few, {"query": [at_query.only("ln_final")]}),
    ):
        f = lab.sweep(far.GROWTH, prompts=prompts, **edits)
        assert np.allclose(arms.sel(arm=arm, statistic="mean square").values, lab.by_function(f.square()), rtol=1e-9)
        error = (f - lab.truth(far.GROWTH, prompts)).square()
        assert np.allclose(arms.sel(arm=arm, statistic="squared error").values, lab.by_function(error), rtol=1e-9)
    truth = lab.by_function(lab.truth(far.GROWTH).square())
    assert np.allclose(arms.sel(arm="zero predictor", statistic="squared error").values, truth)
    assert set(arms.indexes["arm"]) == {"intact", "frozen", "sham", "zero predictor", *lab.model.norms}


def test_an_inserted_norm_is_enough_for_a_plateau():
    curve = far.sufficiency(bench())
    grow = {arm: float(exponents(curve.sel(arm=arm).values.mean(0), curve["x"].values)) for arm in curve.indexes["arm"]}
    assert grow["intact"] > 0.9
    assert abs(grow["norm inserted"]) < 0.1


def test_the_swap_puts_another_functions_context_before_the_same_query():
    lab = bench()
    f = lab.sweep([lab.inner[1], 1e4]).view(4, 3, 2)
    expected = (f - f[[3, 0, 1, 2]]).square().mean(1).numpy()
    assert np.allclose(limits_context.swap(lab).values, expected, rtol=1e-12)


def test_criteria_read_changes_in_units_of_the_certificate():
    ends = np.zeros((2, 3, 5, 4))
    ends[1, 2] = 0.3  # only downwards, only in the last decade
    found = limits_layernorm._change_in_r(ends, 2.0)
    assert (found.value, found.low, found.high) == pytest.approx((0.15, 0.15, 0.15))


# ---- claims on made-up results --------------------------------------------------------------------------------------


def of_context(size: float, power: float = -1.0, inside: float = 2.0, onset: float = 1.0) -> dict:
    """Results whose spread at 1e4 is size, and goes like |x|^power; in distribution it is `inside` around 1."""
    far_out = np.sort(far.DECADES)
    near = curve_of(1 + contexts(inside, 0.0, 0.0, (-0.5, 0.5)), (-0.5, 0.5))
    curves = [curve_of(1 + contexts(size * 1e4**-power, 0.0, power, xs), xs) for xs in (GRID, far_out)]
    axes = {
        "direction": ("+", "-"),
        "inputs": ("coefficients", "permuted"),
        "statistic": ("residual", "total"),
        "function": tuple(range(24)),
    }
    return {
        "far/intact": curves[0],
        "far/in distribution": near,
        "twin/far/decades": curves[1],
        "twin/far/in distribution": near,
        "context/information": make_array(np.ones((2, 2, 2, 24)), axes),
        "context/swap": make_curve(np.ones((24, 2)), {"function": tuple(range(24)), "x": (0.5, 1e4)}),
        "far/certificate": make_table(
            {"c": [0.0], "r": [1.0], "plateau +": [1.0], "plateau -": [1.0], "onset": [onset]}
        ),
    }


def judged_on(claim: str, results: dict, **known):
    return registry.REGISTRY[claim].judge_results(results, facts(**known))


ERASED, LINEAR, UNIFORM, ORTHOGONAL = (
    "limits.context_erased",
    "limits.linear_asymptote",
    "limits.softmax_uniform",
    "heads.orthogonality",
)


@pytest.mark.parametrize(
    ("size", "power", "verdict", "decided_by"),
    [
        (0.02, -1.0, "supported", "amplitude"),
        (0.02, -0.5, "inconclusive", "decay"),  # small, but it does not fall fast enough
        (0.02, 0.0, "inconclusive", "decay"),
        (0.2, -1.0, "inconclusive", "amplitude"),
        (1.0, -1.0, "contradicted", "amplitude"),
        (1.0, 0.0, "contradicted", "amplitude"),  # the slope can only fail to support
    ],
)
def test_the_context_is_erased_where_its_spread_is_small_and_falls(size, power, verdict, decided_by):
    finding = judged_on(ERASED, of_context(size, power))
    assert (finding.verdict, finding.decided_by.quantity) == (verdict, decided_by)
    assert finding.estimate.value == pytest.approx(size / 2, rel=1e-4)
    assert finding.evidence["decay"].value == pytest.approx(power, abs=1e-6)
    assert finding.twin.value == pytest.approx(size / 2 if decided_by == "amplitude" else power, rel=1e-4, abs=1e-6)
    assert "what is left does not tell the function: R2 0.00 (permuted: 0.00)" in finding.reason


def test_a_spread_below_rounding_has_no_slope_and_is_erased():
    finding = judged_on(ERASED, of_context(0.0))
    assert finding.verdict == "supported"
    assert "decay" not in finding.evidence
    assert finding.details[0]["value"] == -INF
    assert "below the resolution of float64" in finding.reason


def test_nothing_is_erased_that_was_never_there():
    finding = judged_on(ERASED, of_context(0.0, inside=0.0))
    assert (finding.verdict, finding.estimate) == ("inconclusive", None)
    assert finding.reason == "The output f does not depend on the context in distribution either."
    assert judged_on(ERASED, of_context(0.0, inside=1e-6)).verdict == "supported"


def test_nothing_is_erased_before_the_predicted_onset():
    """It is NaN where the weights tell none."""
    for onset, verdict in ((1e4 + 1, "inconclusive"), (1e4, "contradicted"), (math.nan, "contradicted")):
        finding = judged_on(ERASED, of_context(1.0, 0.0, onset=onset))
        assert finding.verdict == verdict
        assert ("But the predicted onset" in finding.reason) == (verdict == "inconclusive")
        assert ("onset" in finding.evidence) == (not math.isnan(onset))


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
    finding = judged_on(LINEAR, of_line(f), config={"normalization_type": None})
    assert finding.verdict == verdict
    still = finding.evidence["growth"].value < 1e-9
    assert ("But f does not grow" in finding.reason) == still
    assert finding.evidence["departure"] == finding.estimate == finding.test


def check_share(share):
    """Of six heads: uniform now, in the limit only, never."""
    axes = {"n": ("10 x trained", "limit"), "head": tuple("abcdef"), "function": tuple(range(20))}
    for now, later, verdict in (
        (6, 0, "supported"),
        (0, 0, "contradicted"),
        (1, 2, "contradicted"),
        (1, 3, "inconclusive"),
        (0, 6, "inconclusive"),
        (5, 1, "inconclusive"),
    ):
        deficit = np.full((2, 6, 20), 0.3)
        deficit[:, :now] = deficit[1, now : now + later] = 0.05
        found = share("share", make_array(deficit, axes), list("abcdef"))
        assert (found.value, found.low, found.high) == pytest.approx((now / 6, now / 6, (now + later) / 6))
        assert registry.REGISTRY[UNIFORM].criterion.conditions[0].outcome(found) == verdict


def test_heads_whose_deficit_still_falls_count_both_ways():
    check_share(_uniform_share)

    def at_ten_only(name, result, counted):
        return _uniform_share(name, result.copy(data=result.values[[0, 0]]), counted)

    must_fail(check_share, at_ten_only)


def test_uniform_needs_long_prompts_and_heads_that_matter():
    criterion = registry.REGISTRY[UNIFORM].criterion
    for length, n, failed in (
        (9, 3, "Prompts of 9 tokens are too short to tell."),
        (10, 1, None),
        (39, 0, "No head matters for the in-distribution prediction."),
    ):
        numbers = {"trained length": length, "relevant heads": n, "share": 1.0}
        decision = criterion.decide({key: Estimate.exactly(key, value) for key, value in numbers.items()})
        assert decision.failed == failed
        assert decision.verdict == ("inconclusive" if failed else "supported")


def of_heads(position: float, twin: float) -> dict:
    """Two heads that matter and one pair of them, whose overlap lies somewhere among rotations."""
    rise = np.broadcast_to([[[5.0], [1.0], [1.0]]] * 2, (2, 2, 3, 20)) * np.linspace(1, 1.1, 20)
    axes = {
        "head": ("0.0", "0.1"),
        "intervention": ("uniform", "mean ablation"),
        "statistic": ("rise", "movement", "intact"),
        "function": tuple(range(20)),
    }
    pairs = {"map": heads.MAPS, "pair": ("0.0 ~ 0.1", "mean", "null median", "position")}
    overlaps = [make_array([[0.1, 0.1, 0.2, p]] * 3, pairs) for p in (position, twin)]
    ablated = make_array([[3.0, 1.0, 1.0]], {"pair": ("0.0 ~ 0.1",), "ablated": ("both", "first", "second")})
    return {
        "heads/relevance": make_array(rise, axes),
        "heads/overlap": overlaps[0],
        "twin/heads/overlap": overlaps[1],
        "heads/pair ablation": ablated,
    }


@pytest.mark.parametrize(
    ("position", "twin", "verdict"),
    [
        (0.001, 0.5, "supported"),
        (0.001, 0.001, "inconclusive"),  # so is an untrained twin
        (0.3, 0.5, "inconclusive"),
        (0.999, 0.5, "contradicted"),
        (math.nan, 0.5, "inconclusive"),
    ],
)
def test_orthogonal_is_less_than_chance_and_made_by_training(position, twin, verdict):
    finding = judged_on(ORTHOGONAL, of_heads(position, twin))
    assert finding.verdict == verdict
    assert finding.causal["effect"] == pytest.approx(0.5)
    assert finding.twin.value == twin
    assert ("an untrained twin passes as well" in finding.reason) == (position == twin)
