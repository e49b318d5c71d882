"""Heads that attend to one token: what is measured along x, and the claim on hand-set models."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from adversaries import with_heads_across
from helpers import must_fail
from measured_claims import judged_on
from small_models import long, small_lab

from icl_interp.analyses import registry, relevance
from icl_interp.analyses.natural import in_a_sentence
from icl_interp.experiments import calibration
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.attention import TARGETS, hardmax_distance
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.limits.claims import softmax as limits_softmax
from icl_interp.studies.limits.constructions.layers import (
    nearly_hardmax,
    random_pre_norm,
    scalar_layer,
)
from icl_interp.studies.limits.measurements import concentration as measured_concentration
from icl_interp.studies.limits.measurements.concentration import (
    CONCENTRATED,
    DRAWN,
    FAR_CONDITIONS,
    LATER,
)

HARDMAX, UNIFORM = "limits.softmax_hardmax", "limits.softmax_uniform"


# ---- what is measured ----------------------------------------------------------------------------


def last_rows(lab, x=None):
    """Weights of every head at the last query of whole prompts: (batch, head, key).

    The query is put at x or left at its own place.
    """
    xs = lab.prompts.xs.clone()
    if x is not None:
        xs[:, -1] = x
    with torch.no_grad():
        _, cache = lab.model.run_with_cache(lab.encoding.encode(replace(lab.prompts, xs=xs)))
    return torch.cat([cache[f"blocks.{i}.attn.hook_pattern"][:, :, -1] for i in range(2)], 1)


def scores_at(lab, x):
    """Scores of every head at the last query of whole prompts, put at x: (batch, head, key)."""
    xs = lab.prompts.xs.clone()
    xs[:, -1] = x
    with torch.no_grad():
        _, cache = lab.model.run_with_cache(lab.encoding.encode(replace(lab.prompts, xs=xs)))
    return torch.cat([cache[f"blocks.{i}.attn.hook_attn_scores"][:, :, -1] for i in range(2)], 1)


def check_concentration(result, lab):
    """The share of a unit's contexts in which a head is at its hardmax.

    It is taken at their own queries, far out, and later.
    """
    places = [None, *(lab.x_unit * x for x in FAR_CONDITIONS)]
    assert list(result.indexes["condition"]) == [
        "in distribution",
        *places[1:],
        *DRAWN,
        *LATER,
        "prompts",
    ]
    for condition, x in zip(result.indexes["condition"], places, strict=False):
        near = (hardmax_distance(last_rows(lab, x)) <= CONCENTRATED).double()
        expected = near.view(4, 6, 6).mean(1).T
        np.testing.assert_allclose(result.sel(condition=condition).values, expected, atol=1e-12)
    for condition, sizes in zip(DRAWN, measured_concentration._drawn_sizes(lab).T, strict=True):
        # Units of six prompts, each with a place of its own.
        rows = [last_rows(lab, x)[6 * unit : 6 * unit + 6] for unit, x in enumerate(sizes)]
        expected = (
            (hardmax_distance(torch.cat(rows)) <= CONCENTRATED).double().view(4, 6, 6).mean(1).T
        )
        np.testing.assert_allclose(result.sel(condition=condition).values, expected, atol=1e-12)
    for condition, sign in zip(LATER, (-1, 1), strict=True):
        gaps = [
            scores_at(lab, sign * lab.x_unit * 10**k).topk(2).values.diff()[..., 0].abs()
            for k in (3, 4, 5)
        ]
        earlier, last = gaps[1] - gaps[0], gaps[2] - gaps[1]
        now = hardmax_distance(last_rows(lab, sign * 1e5 * lab.x_unit)) <= CONCENTRATED
        expected = (
            (now | ((last > 1e-9) & (last >= 10**0.2 * earlier.abs())))
            .double()
            .view(4, 6, 6)
            .mean(1)
            .T
        )
        np.testing.assert_allclose(result.sel(condition=condition).values, expected, atol=1e-12)
    assert (result.sel(condition="prompts").values == 6).all()


def check_curve(result, lab):
    """delta and the targets, means over all contexts, at each place of the query."""
    kinds = np.array(lab.encoding.kinds(7))
    for x in (-1e6, 1.0, 10.0):
        rows = last_rows(lab, x)
        best = rows.argmax(-1).numpy()
        hits = [
            best == 12,
            best == 0,
            (kinds[best] == "x") & (best != 12),
            kinds[best] == "y",
            kinds[best] == "xy",
        ]
        expected = np.stack([hardmax_distance(rows).mean(0).numpy(), *(h.mean(0) for h in hits)])
        np.testing.assert_allclose(result.sel(x=x).values, expected, rtol=1e-9, atol=1e-12)


def test_concentration_is_counted_over_contexts():
    lab = small_lab(init_std=1.5)
    result = measured_concentration.concentration(lab)
    assert 0 < result.values[:, :-1].mean() < 1
    check_concentration(result, lab)
    must_fail(check_concentration, result.copy(data=result.values[:, :, ::-1]), lab)
    must_fail(check_concentration, result.copy(data=result.values[::-1]), lab)
    must_fail(check_concentration, result.copy(data=np.roll(result.values, 1, 1)), lab)
    swapped = result.values.copy()
    swapped[:, 7:9] = swapped[:, [2, 3]]
    must_fail(check_concentration, result.copy(data=swapped), lab)


def check_gaps(grows):
    """Gaps at -1e3, 1e3, -1e5, -1e4, 1e4, 1e5: lines, squares and powers grow.

    What nears a limit does not.
    """
    for law, expected in (
        (lambda x: 1e-6 * abs(x), True),
        (lambda x: 1e-9 * x**2, True),
        (lambda x: abs(x) ** 0.3, True),
        (lambda x: abs(x) ** 0.1, False),
        (lambda x: 2 - 1 / abs(x), False),
        (lambda x: 2 + 50 / abs(x), False),
        (lambda x: 2.0, False),
        (lambda x: 1e-15 * abs(x), False),  # rounding
    ):
        gaps = torch.tensor([law(x) for x in (-1e3, 1e3, -1e5, -1e4, 1e4, 1e5)]).double()
        assert grows(gaps[None, None]).tolist() == [[[expected], [expected]]]


def test_a_gap_that_levels_off_does_not_grow(monkeypatch):
    check_gaps(measured_concentration._grows)
    must_fail(check_gaps, lambda gaps: measured_concentration._grows(gaps[..., [0, 1, 3, 2, 5, 4]]))
    for name, wrong in (("GROWS", 1.0), ("GROWS", 4.0), ("ROUNDING", 0.0)):
        with monkeypatch.context() as patch:
            patch.setattr(measured_concentration, name, wrong)
            must_fail(check_gaps, measured_concentration._grows)


def test_delta_along_x_is_that_of_whole_prompts():
    lab = small_lab()
    result = measured_concentration.delta(lab)
    assert list(result.indexes["statistic"]) == ["delta", *TARGETS]
    check_curve(result, lab)
    must_fail(check_curve, result.copy(data=result.values[..., ::-1]), lab)
    must_fail(check_curve, result.copy(data=result.values[:, ::-1]), lab)


# ---- the claim -----------------------------------------------------------------------------------


def standing(near, far, later, drawn=None):
    """How a head counts with contexts concentrated in these shares.

    The shares are of 128 units of 8 prompts.
    """
    drawn = far if drawn is None else drawn
    shares = np.array([near, *[far] * 4, drawn, drawn, later, max(far, later)])
    rng = np.random.default_rng(0)
    hits = (
        rng.permuted(np.arange(1024)[:, None] < np.round(1024 * shares), axis=0)
        .reshape(128, 8, 9)
        .mean(1)
    )
    values = np.concatenate([hits.T, np.full((1, 128), 8)])[None]
    axes = {"head": ("0.0",), "condition": tuple(map(str, range(10))), "unit": tuple(range(128))}
    found = limits_softmax._standings(make_array(values, axes), relevance.USUAL)["0.0"]
    return "/".join(sorted(found.possible))


def check_standings(of):
    """From .9 turned, up to .8 not; in between, or where gaps still grow, both.

    From .5 nearby a head is left out.
    """
    assert of(0.0, 1.0, 1.0) == of(0.0, 0.99, 0.99) == of(0.0, 0.94, 0.94) == "yes"
    assert of(0.0, 0.9, 0.9) == of(0.0, 0.85, 0.85) == of(0.0, 0.88, 0.88) == "no/yes"
    assert of(0.0, 0.0, 0.0) == of(0.0, 0.74, 0.74) == "no"
    assert of(0.0, 0.0, 1.0) == of(0.0, 0.7, 0.9) == "no/yes"
    assert of(1.0, 1.0, 1.0) == of(0.57, 1.0, 1.0) == of(0.6, 0.0, 0.0) == "out"
    assert of(0.5, 1.0, 1.0) == "out/yes"
    assert of(0.43, 1.0, 1.0) == "yes"


def test_thresholds_of_a_head(monkeypatch):
    check_standings(standing)
    for name, wrong in (
        ("TURNED", 0.85),
        ("TURNED", 0.95),
        ("NOT_TURNED", 0.9),
        ("NOT_TURNED", 0.7),
        ("NEARBY", 0.4),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(limits_softmax, name, wrong)
            must_fail(check_standings, standing)
    must_fail(check_standings, lambda near, far, later: standing(near, far, far))
    must_fail(check_standings, lambda near, far, later: standing(0.0, far, later))


def test_a_head_turns_where_it_does_at_drawn_places_too():
    """At the known places alone, or at the drawn ones alone, it may have been made to."""

    def check(of):
        assert of(0.0, 1.0, 1.0, drawn=0.5) == "no/yes"
        assert of(0.0, 0.5, 0.5, drawn=1.0) == "no/yes"

    check(standing)
    must_fail(check, lambda near, far, later, drawn: standing(near, far, later))


def verdicts(build):
    return [
        calibration.judge(build(generator(seed, "test/threshold")), (HARDMAX,), seed=seed)[0]
        for seed in (0, 1)
    ]


def check_tenth(build):
    """A tenth of the weight stays on other tokens, however far the query: that is no hardmax."""
    assert [finding.verdict for finding in verdicts(build)] == ["contradicted"] * 2


@pytest.mark.slow
def test_a_delta_of_a_tenth_is_no_hardmax(monkeypatch):
    check_tenth(nearly_hardmax)
    monkeypatch.setattr(measured_concentration, "CONCENTRATED", 0.2)
    must_fail(check_tenth, nearly_hardmax)


@pytest.mark.slow
def test_a_gap_that_grows_too_slowly_to_be_seen_decides_nothing():
    """Scores of 1e-5 x x_j reach the gap of a hardmax beyond 1e5 only: no verdict."""
    (late,) = calibration.judge(scalar_layer(generator(0, "test/late"), -1e-5), (HARDMAX,))
    assert late.verdict == "inconclusive"
    assert (late.estimate.low, late.estimate.high) == (0, 1)
    assert "1 are unclear and count both ways." in late.reason
    (now,) = calibration.judge(scalar_layer(generator(0, "test/late"), -5.0), (HARDMAX,))
    assert now.verdict == "supported"
    claim = registry.REGISTRY[HARDMAX]
    assert late.reason.startswith(f"It is open whether {in_a_sentence(claim.statement)}.")
    assert now.reason.startswith(claim.statement)


class FarAtDecades(HookedTransformer):
    """It reads a far query as one near the data, but for those close to 1e1, 1e2, ...."""

    def _embed(self, tokens, position=None):
        sizes = tokens.abs().clamp(min=1e-9).log10()
        as_they_come = (tokens.abs() < 2) | ((sizes - sizes.round()).abs() < 0.03)
        return super()._embed(torch.where(as_they_come, tokens, tokens.clamp(-1, 1)), position)


@pytest.mark.parametrize("k", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_heads_of_two_layers_that_cancel_do_not_count(monkeypatch, k):
    """They average, near the data and far, and together they do nothing."""
    plain = scalar_layer(generator(0, "test/late"), -5.0, n_layers=2)
    more = with_heads_across(plain, k)
    xs = torch.randn(4, 20, 1, generator=generator(1, "test/across"), dtype=torch.float64)
    torch.testing.assert_close(more(xs), plain(xs))

    def judged(model):
        case = calibration.Case(model, n_units=32, n_contexts=2)
        return calibration.judge(case, (HARDMAX,))[0]

    before, after = judged(plain), judged(more)
    assert before.verdict == after.verdict == "supported"
    assert after.estimate.value == before.estimate.value
    monkeypatch.setattr(relevance, "joined", lambda firsts, changes: list(firsts))
    assert judged(more).verdict == ("contradicted" if k == 3 else "inconclusive")


def known_sizes(lab):
    """The mutant: the places that are drawn are known ones."""
    return np.tile([-1e4 * lab.x_unit, 1e4 * lab.x_unit], (lab.n_units, 1))


def test_scores_that_swing_with_the_query_are_no_hardmax(monkeypatch):
    """All weight is on one token at 1e4 and 1e5, and nearly nowhere between them."""
    plain = scalar_layer(generator(0, "test/swings"), -5.0)
    swings = FarAtDecades(plain.cfg).double().eval()
    swings.load_state_dict(plain.state_dict())

    def judged(model):
        case = calibration.Case(model, n_units=32, n_contexts=2)
        return calibration.judge(case, (HARDMAX,))[0]

    assert judged(plain).verdict == "supported"
    found = judged(swings)
    assert found.verdict == "inconclusive"
    assert found.details[0]["far"] == 1.0
    assert found.details[0]["far, drawn places"] < 0.2
    assert "0 of 1 do" in found.reason
    monkeypatch.setattr(measured_concentration, "_drawn_sizes", known_sizes)
    assert judged(swings).verdict == "supported"


@pytest.mark.slow
def test_heads_are_counted_among_the_relevant(measured):
    """Silencing all heads but one leaves that one to decide."""
    model = long("no norm")
    with torch.no_grad():
        for i, block in enumerate(model.blocks):
            for h in range(3):
                if (i, h) != (1, 2):
                    block.attn.W_O[h] = 0
    bench = measured(model, HARDMAX, UNIFORM)
    finding = bench.judge(HARDMAX)
    assert [row["head"] for row in finding.details if row["relevant"] == "yes"] == ["1.2"]
    assert "those that matter put their attention on one token already" in finding.reason
    assert " of 1 are uniform" in bench.judge(UNIFORM).reason
    assert bench.judge(UNIFORM).estimate.value in (0.0, 1.0)
    assert len(finding.details) == 6
    assert {row["target"] for row in finding.details} <= set(TARGETS)


@pytest.mark.slow
def test_no_relevant_head_decides_nothing(measured):
    model = long("pre")
    with torch.no_grad():
        for block in model.blocks:
            block.attn.W_O.zero_()
    bench = measured(model, HARDMAX, UNIFORM)
    for claim in (HARDMAX, UNIFORM):
        finding = bench.judge(claim)
        assert finding.verdict == "inconclusive"
        assert "No head is sure to matter" in finding.reason


def test_a_sink_is_named_and_does_not_count(measured):
    """All weight on the first token at every x, in distribution already: distance did not do it."""
    cfg = HookedTransformerConfig(
        n_layers=1,
        d_model=4,
        n_heads=1,
        d_head=1,
        n_ctx=40,
        attn_only=True,
        normalization_type=None,
    )
    model = HookedTransformer(cfg).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embed.W_E[0, 0] = 1
        model.pos_embed.W_pos[0, 1] = 1
        attn = model.blocks[0].attn
        attn.b_Q[0, 0], attn.W_K[0, 1, 0], attn.W_V[0, 0, 0], attn.W_O[0, 0, 2] = 30, 1, 1, 1
        model.unembed.W_U[[0, 2], 0] = 1
    finding = measured(model, HARDMAX).judge(HARDMAX)
    assert finding.verdict == "inconclusive"
    assert (
        "those that matter put their attention on one token already in distribution"
        in finding.reason
    )
    assert finding.details[0]["hardmax"] == "out"
    assert finding.details[0]["target"] == "the first token"


@pytest.mark.slow
def test_heads_that_nobody_reads_far_out_are_called_idle(measured):
    """Pre-norm far out: the stream drowns what heads write, so they cause nothing there."""
    finding = measured(random_pre_norm(generator(0, "test/idle")), HARDMAX).judge(HARDMAX)
    assert finding.causal["heads idle far out"]
    assert "no head has an effect there" in finding.reason
    bench = measured(scalar_layer(generator(0, "test/read"), 4.0), HARDMAX)
    bare = bench.judge(HARDMAX)
    assert not bare.causal["heads idle far out"]
    assert bare.causal["effect"] < 0.02
    assert bare.causal["power: the same swap in distribution"] > 0.02

    def changed_by(u, expected):
        """The swap's effect is in u, far out and nearby; .02 u is the most."""
        swap, own = bench.results["heads/far swap"], bench.results["scale/own"]
        values = np.full_like(swap.values, 0.04**2)
        results = {**bench.results, "heads/far swap": swap.copy(data=values)}
        results["scale/own"] = own.copy(data=[0.0, u])
        causal = judged_on(HARDMAX, results, bench.facts).causal
        assert causal["effect"] == pytest.approx(0.04 / u)
        assert causal["meets the criterion"] == expected

    changed_by(2.1, True)
    changed_by(1.9, False)
