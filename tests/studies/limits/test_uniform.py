"""Heads that attend evenly: entropy deficits against explicit computations, and the claim on made-up results."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from measuring import judged_on
from small_models import make, small_lab

from icl_interp.analyses import registry
from icl_interp.analyses.criterion import Estimate
from icl_interp.experiments.calibration import TASK as LONG
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.limits.claims import uniform as limits_uniform
from icl_interp.studies.limits.claims.uniform import _resampled, _scores, _split, _uniform_share, _within, deficits
from icl_interp.studies.limits.constructions.layers import scalar_layer
from icl_interp.theory.limits import entropy_deficit_bound

UNIFORM = "limits.softmax_uniform"


# ---- patterns -------------------------------------------------------------------------------------------------------


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


# ---- heads ----------------------------------------------------------------------------------------------------------


def test_the_limit_of_the_deficit_is_what_resampling_tends_to():
    """At n keys the mean deficit is off by O(1/n); the stored limit is exact for that law."""
    lab = small_lab()
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
    lab = small_lab()
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


# ---- the claim ------------------------------------------------------------------------------------------------------


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


def test_short_prompts_say_nothing_about_many_tokens(judged):
    finding = judged(make("pre"), UNIFORM, task=LONG.with_points(4))[UNIFORM]
    assert finding.verdict == "inconclusive"
    assert "7 tokens are too short" in finding.reason


def test_a_falling_deficit_is_not_held_against_a_head(measured):
    """Above the threshold at ten trained lengths but below it in the limit: open, not contradicted."""
    bench = measured(scalar_layer(generator(0, "test/falling"), 3.0), UNIFORM)
    result = bench.results["heads/deficit"]
    for at_ten, limit, expected in ((0.3, 0.3, "contradicted"), (0.3, 0.05, "inconclusive"), (0.05, 0.05, "supported")):
        values = result.values.copy()
        values[1], values[2] = at_ten, limit
        results = {**bench.results, "heads/deficit": result.copy(data=values)}
        assert judged_on(UNIFORM, results, bench.facts).verdict == expected
