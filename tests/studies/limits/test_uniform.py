"""Heads that attend evenly: entropy deficits against explicit computations, made-up results."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from measured_claims import judged_on
from small_models import TASK, make, small_lab

from icl_interp.analyses import registry, relevance
from icl_interp.analyses.criterion import Estimate
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.natural import in_a_sentence
from icl_interp.experiments.calibration import TASK as LONG
from icl_interp.models.tokens import Interleaved, Stacked
from icl_interp.probes.attention import AttentionEntropy, entropy_deficit, resampled_scores
from icl_interp.probes.record import Activations
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.limits.claims import uniform as limits_uniform
from icl_interp.studies.limits.constructions.layers import scalar_layer
from icl_interp.studies.limits.measurements import dispersion as measured_dispersion
from icl_interp.studies.limits.measurements.dispersion import BEYOND, _deficit
from icl_interp.theory.limits import entropy_deficit_bound

UNIFORM = "limits.softmax_uniform"


# ---- patterns ------------------------------------------------------------------------------------


def test_deficits_within_a_kind_of_token():
    """Even among y tokens, though x tokens get nothing: uniform within y, far from it in total."""
    kinds = np.array(["x", "y"] * 6)
    pattern = torch.from_numpy((kinds == "y") / 6.0)
    seen = torch.zeros_like(pattern)  # scores of keys that are not hidden
    assert float(_deficit(seen, pattern, np.flatnonzero(kinds == "y").tolist())) == pytest.approx(0)
    assert float(_deficit(seen, pattern)) == pytest.approx(math.log(2))
    assert _deficit(seen, pattern, []).isnan().all()


def test_a_key_that_the_query_does_not_see_is_not_counted():
    """With labelled keys the query does not see itself; the probe counts what is seen by itself."""
    lab = Lab(make("bidirectional", keys="labelled"), TASK, Stacked(), n_units=4, n_contexts=3)
    result, entropy = measured_dispersion.deficit(lab), AttentionEntropy(per_prompt=True)
    lab.sweep(lab.inner, probes=[entropy])
    found = entropy.results()["deficit"].values.reshape(6, 2, 4, 6).mean((1, 3))
    np.testing.assert_allclose(result.sel(n="trained").values, found, rtol=1e-9, atol=1e-12)
    must_fail(
        np.testing.assert_allclose,
        result.sel(n="trained").values,
        found + math.log(7 / 6),
        rtol=1e-9,
    )
    assert np.isfinite(result.values).all()


# ---- heads ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_limit_of_the_deficit_is_what_resampling_tends_to():
    """At n keys the mean deficit is off by O(1/n); the stored limit is exact for that law."""
    lab = small_lab()
    seen = Activations([f"blocks.{i}.attn.hook_attn_scores" for i in range(2)])
    lab.sweep(lab.inner, probes=[seen])
    scores = torch.cat(list(seen.recorded.values()), 1).view(8, 3, 6, 2, 13)
    pool = scores.permute(0, 2, 3, 1, 4)  # (function, head, query, context, key)
    result = measured_dispersion.deficit(lab)
    limit = result.sel(n="limit").values

    def resampled(n):
        drawn, _ = resampled_scores(
            pool, lab.encoding.kinds(7), n, generator(lab.seed, "heads/resampled", n)
        )
        by_function = entropy_deficit(drawn.softmax(-1)).mean(-1)
        return (
            by_function.view(4, 2, 6).mean(1).T.numpy()
        )  # the two functions of a pair, each with its own keys

    np.testing.assert_allclose(
        resampled(130), result.sel(n="10 x trained").values, rtol=1e-9, atol=1e-12
    )
    must_fail(
        np.testing.assert_allclose, resampled(131), result.sel(n="10 x trained").values, rtol=1e-9
    )

    def check(stored):
        gaps = [np.abs(resampled(n) - stored).max() for n in (500, 50_000)]
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
        patterns.append(
            torch.cat([cache[f"blocks.{i}.attn.hook_pattern"][:, :, -1] for i in range(2)], 1)
        )
    p = torch.stack(patterns)  # (query, batch, head, key)
    expected = (math.log(13) + torch.xlogy(p, p).sum(-1)).mean(0).view(4, 6, 6).mean(1).T
    result = measured_dispersion.deficit(lab)
    assert np.allclose(result.sel(n="trained").values, expected, rtol=0, atol=1e-12)
    bound = (
        entropy_deficit_bound(p.log().amax(-1) - p.log().amin(-1)).mean(0).view(4, 6, 6).mean(1).T
    )
    assert (torch.from_numpy(result.sel(n="trained").values) <= bound).all()
    assert np.allclose(
        result.sel(n="range").values,
        (p.log().amax(-1) - p.log().amin(-1)).mean(0).view(4, 6, 6).mean(1).T,
    )

    # The curve's last direct point is the trained length, of two contexts a function.
    curve = measured_dispersion.dispersion(lab)
    k = list(curve["n"].values).index(13.0)
    few = (math.log(13) + torch.xlogy(p, p).sum(-1)).mean(0).view(4, 6, 6)[:, :2].mean((0, 1))
    assert np.allclose(curve.sel(statistic="deficit").values[:, k], few, rtol=0, atol=1e-12)
    assert np.allclose(
        curve.sel(statistic="max weight").values[:, k],
        p.amax(-1).mean(0).view(4, 6, 6)[:, :2].mean((0, 1)),
    )
    assert list(curve["n"].values) == sorted(curve["n"].values)
    assert curve["n"].values[-1] == 40 * 13


def check_dispersion(curve, lab):
    """Every statistic at every direct length, by whole prompts of two contexts a function."""
    direct = [n for n in curve["n"].values if n <= 13]
    assert len(direct) >= 4
    for n in direct:
        rows = [
            unit * 6 + context for unit in range(4) for context in (0, 1)
        ]  # of the first function of each pair
        short = lab.prompts[torch.tensor(rows)].first((int(n) + 1) // 2)
        patterns, outputs = [], []
        for x in lab.inner:
            xs = short.xs.clone()
            xs[:, -1] = x
            _, cache = lab.model.run_with_cache(lab.encoding.encode(replace(short, xs=xs)))
            patterns.append(
                torch.cat([cache[f"blocks.{i}.attn.hook_pattern"][:, :, -1] for i in range(2)], 1)
            )
            outputs.append(
                torch.cat([cache[f"blocks.{i}.attn.hook_z"][:, -1] for i in range(2)], 1)
            )
        p, z = torch.stack(patterns), torch.stack(outputs)  # (query, batch, head, key or d_head)
        x_keys, y_keys = p[..., ::2], p[..., 1::2]
        rows = [deficit_of(p), p.amax(-1), deficit_of(x_keys / x_keys.sum(-1, keepdim=True))]
        rows += [deficit_of(y_keys / y_keys.sum(-1, keepdim=True))]
        expected = [row.mean((0, 1)) for row in rows]
        by_function = z.view(2, 4, 2, *z.shape[2:])
        within = by_function.var(2).mean((0, 1, 3))
        expected.append(within / z.var(1).mean((0, 2)))
        np.testing.assert_allclose(
            curve.sel(n=n).values, torch.stack(expected), rtol=1e-9, atol=1e-12, err_msg=str(n)
        )


def deficit_of(p):
    return math.log(p.shape[-1]) + torch.xlogy(p, p).sum(-1)


@pytest.mark.slow
def test_dispersion_at_direct_lengths_is_that_of_whole_prompts():
    lab = small_lab()
    curve = measured_dispersion.dispersion(lab)
    with torch.no_grad():
        check_dispersion(curve, lab)
        must_fail(check_dispersion, curve.copy(data=curve.values[[0, 1, 3, 2, 4]]), lab)
        must_fail(check_dispersion, curve.copy(data=curve.values[:, ::-1]), lab)
        must_fail(check_dispersion, curve.copy(data=np.roll(curve.values, 1, -1)), lab)


@pytest.mark.slow
def test_spread_given_the_function_needs_two_contexts_of_it():
    """One context of each function of a pair tells of two functions, not of spread within one."""
    lab = Lab(make("pre"), TASK, Interleaved(), n_units=4, n_contexts=1)
    assert np.isnan(
        measured_dispersion.dispersion(lab).sel(statistic="variance from samples").values
    ).all()
    lab = Lab(make("pre"), TASK, Interleaved(), n_units=4, n_contexts=2)
    shares = (
        measured_dispersion.dispersion(lab)
        .sel(statistic="variance from samples")
        .values[:, : -len(BEYOND)]
    )
    assert ((shares > 0) & (shares < 2)).all()


# ---- the claim -----------------------------------------------------------------------------------


def made_up(*deficits):
    """Heads whose deficit is one number at ten trained lengths and another in the limit.

    They have a little spread.
    """
    axes = {
        "n": ("10 x trained", "limit"),
        "head": tuple("abcdef"[: len(deficits)]),
        "unit": tuple(range(64)),
    }
    spread = 1 + 0.02 * np.random.default_rng(0).normal(size=64)
    return make_array(np.array(deficits).T[:, :, None] * spread, axes)


def check_share(share):
    """Of six heads: uniform now, in the limit only, never; .105 is the most that is uniform."""
    for now, later, verdict in (
        (6, 0, "supported"),
        (0, 0, "contradicted"),
        (1, 2, "contradicted"),
        (1, 3, "inconclusive"),
        (0, 6, "inconclusive"),
        (5, 1, "inconclusive"),
    ):
        rows = (
            [(0.095, 0.095)] * now + [(0.115, 0.095)] * later + [(0.115, 0.115)] * (6 - now - later)
        )
        found = share(made_up(*rows))
        assert (found.value, found.low, found.high) == pytest.approx(
            (now / 6, now / 6, (now + later) / 6)
        )
        assert registry.REGISTRY[UNIFORM].criterion.conditions[0].outcome(found) == verdict


def share_of(result):
    return relevance.share_of_heads("share", lambda level: limits_uniform._standings(result, level))


@pytest.mark.slow
def test_heads_whose_deficit_still_falls_count_both_ways(monkeypatch):
    check_share(share_of)
    must_fail(check_share, lambda result: share_of(result.copy(data=result.values[[0, 0]])))
    for wrong in (0.09, 0.12):
        with monkeypatch.context() as patch:
            patch.setattr(limits_uniform, "UNIFORM", wrong)
            must_fail(check_share, share_of)


def test_a_head_near_the_threshold_counts_both_ways():
    found = share_of(made_up((0.1052, 0.1052), (0.05, 0.05)))
    assert (found.value, found.low, found.high) == (0.5, 0.5, 1.0)


def test_uniform_needs_long_prompts_and_heads_that_matter():
    criterion = registry.REGISTRY[UNIFORM].criterion
    for length, n, failed in (
        (9, 3, "Prompts of 9 tokens are too short to tell what attention does over many."),
        (10, 1, None),
        (39, 0, "No head is sure to matter for the in-distribution prediction."),
    ):
        numbers = {"trained length": length, "relevant heads": n, "share": 1.0}
        decision = criterion.decide(
            {key: Estimate.exactly(key, value) for key, value in numbers.items()}
        )
        assert decision.failed == failed
        assert decision.verdict == ("inconclusive" if failed else "supported")


@pytest.mark.slow
def test_short_prompts_say_nothing_about_many_tokens(judged):
    finding = judged(make("pre"), UNIFORM, task=LONG.with_points(4))[UNIFORM]
    assert finding.verdict == "inconclusive"
    assert "7 tokens are too short" in finding.reason


@pytest.mark.slow
def test_a_falling_deficit_is_not_held_against_a_head(measured):
    """Above the threshold at ten trained lengths but below it in the limit: open.

    It is not contradicted.
    """
    bench = measured(scalar_layer(generator(0, "test/falling"), 3.0), UNIFORM)
    result = bench.results["heads/deficit"]
    claim = registry.REGISTRY[UNIFORM]
    for at_ten, limit, expected, first in (
        (0.3, 0.3, "contradicted", claim.denied),
        (0.3, 0.05, "inconclusive", f"It is open whether {in_a_sentence(claim.statement)}."),
        (0.05, 0.05, "supported", claim.statement),
    ):
        values = result.values.copy()
        values[1], values[2] = at_ten, limit
        results = {**bench.results, "heads/deficit": result.copy(data=values)}
        finding = judged_on(UNIFORM, results, bench.facts)
        assert finding.verdict == expected
        assert finding.reason.startswith(first)
        assert finding.details[-1]["uniform in the limit"] == (limit < 0.1)
