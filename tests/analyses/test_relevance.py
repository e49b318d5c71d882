"""Which heads matter: the error's rise by brute force, made-up effect sizes, shares of heads."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from adversaries import with_heads_across
from helpers import must_fail
from made_up_facts import facts
from small_models import make, small_lab

from icl_interp.analyses import output_unit
from icl_interp.analyses import relevance as relevance_module
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.relevance import (
    Standing,
    counted,
    effects,
    proportions,
    relevance,
    relevant,
    roles,
)
from icl_interp.analyses.relevance import share_of_heads as share
from icl_interp.experiments.calibration import TASK
from icl_interp.interventions.attention import SwapPattern
from icl_interp.models.tokens import Interleaved
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.results import make_array

UNITS = 64


@pytest.mark.slow
def test_relevance_is_the_rise_of_the_error():
    lab = small_lab()
    result = lab.measure(relevance)
    assert tuple(result.indexes["head"]) == ("0.0", "0.1", "0.2", "1.0", "1.1", "1.2")
    out, truth = lab.predictions()
    edited, _ = lab.predictions(SwapPattern("uniform", ((1, 2),)))
    rise = ((edited - truth) ** 2 - (out - truth) ** 2).mean((1, 2)).view(4, 2).mean(1)
    assert np.allclose(
        result.sel(head="1.2", intervention="uniform", statistic="rise").values, rise, rtol=1e-6
    )
    u = float(lab.measure(output_unit.own).sel(statistic="u"))
    moved = ((edited - out) ** 2).mean((1, 2)).view(4, 2).mean(1) / u**2
    assert np.allclose(
        result.sel(head="1.2", intervention="uniform", statistic="movement").values,
        moved,
        rtol=1e-6,
    )


@pytest.mark.slow
def test_a_head_that_is_not_read_is_not_relevant():
    """Neither where errors decide nor, in a model that learned nothing, where movements do."""
    lab = small_lab()
    with torch.no_grad():
        for model in (lab.model, lab.single):
            model.blocks[1].attn.W_O[2] = 0
    results = Results({"heads/relevance": lab.measure(relevance)})
    for r2 in (0.0, 0.99):
        assert roles(results, facts(r2=r2))["1.2"] == "no"
    assert "0.1" in relevant(results, facts(r2=0.0))


def stored(factor, movement=0.0, spread=0.1, heavy=()):
    """Two heads whose ablation multiplies an error of 5 by some factor, or moves f by so many u."""
    rng = np.random.default_rng(0)
    noise = np.exp(spread * rng.normal(size=(2, 2, UNITS)))
    intact = np.full_like(noise, 5.0)
    factors = np.ones((2, 1, 1))
    factors[1] = factor
    rise = intact * (factors * noise / noise.mean(-1, keepdims=True) - 1)
    rise[1][:, list(heavy)] *= 1e3
    axes = {
        "head": ("0.0", "0.1"),
        "intervention": ("uniform", "mean ablation"),
        "statistic": ("rise", "movement", "intact"),
        "unit": tuple(range(UNITS)),
    }
    moved = np.zeros_like(noise)
    moved[1] = movement**2 * noise[1]
    return Results({"heads/relevance": make_array(np.stack([rise, moved, intact], 2), axes)})


def check_thresholds(role):
    """2 and 1.25 times the error; in a model that has not learned, 0.03 and 0.015 u."""
    assert [role(stored(f), 0.99) for f in (1.0, 1.15, 1.35, 1.85, 2.2, 10.0)] == ["no"] * 2 + [
        "unclear"
    ] * 2 + ["yes"] * 2
    assert [role(stored(1.0, u), 0.5) for u in (0.0, 0.013, 0.018, 0.027, 0.034, 1.0)] == [
        "no"
    ] * 2 + ["unclear"] * 2 + ["yes"] * 2


def role_of(results, r2):
    return roles(results, facts(r2=r2))["0.1"]


def test_a_head_matters_by_the_size_of_its_effect(monkeypatch):
    check_thresholds(role_of)
    for name, wrong in (
        ("MATTERS", 1.5),
        ("MATTERS", 3.0),
        ("IDLE", 1.1),
        ("IDLE", 1.5),
        ("MOVES", 0.02),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(relevance_module, name, wrong)
            must_fail(check_thresholds, role_of)
    must_fail(check_thresholds, lambda results, r2: role_of(results, 1.5 - r2))


def test_a_sure_but_small_effect_does_not_matter():
    """The error rises by 10 % in every unit: significant by any test, and not relevant."""
    found = effects(stored(1.1, spread=1e-3), facts())["0.1"]
    assert found.low > 1.09
    assert found.role == "no"


def test_a_head_that_matters_to_a_typical_function_is_relevant_whatever_the_mean_is():
    """The error of a typical unit tells that a head matters, whatever the mean error is.

    A few functions make nearly all of the mean.
    """
    results = stored(4.0, heavy=(0, 1))
    assert role_of(results, 0.99) == "yes"
    intact = results["heads/relevance"].values
    # Two functions on which the model is far off, with the head as without it.
    intact[:, :, 2, :2] *= 1e4
    assert role_of(results, 0.99) == "yes"


# ---- heads that attend alike ---------------------------------------------------------------------


def with_heads(written):
    """A small model with copies of head 1.0 beside it, whose outputs count so many times.

    The copies stand in its layer.
    """
    model = make("pre", n_layers=2, n_ctx=40)
    cfg = replace(model.cfg, n_heads=model.cfg.n_heads + len(written), d_head=model.cfg.head_width)
    wider = HookedTransformer(cfg).eval()
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for layer in range(2):
        for name in ("W_Q", "W_K", "W_V", "b_Q", "b_K", "b_V", "W_O"):
            key = f"blocks.{layer}.attn.{name}"
            copied = [weights[key][:1] * (factor if name == "W_O" else 1) for factor in written]
            weights[key] = torch.cat([weights[key], *copied])
    missing = wider.load_state_dict(weights, strict=False)
    assert not missing.unexpected_keys
    return wider


def lab_of(model):
    return Lab(model, TASK, Interleaved(), n_units=8, n_contexts=1)


def check_alike():
    """A pair that cancels and copies of a head change nothing: effects stay, none counts twice."""
    plain = Results({"heads/relevance": lab_of(with_heads(())).measure(relevance)})
    n_heads = make("pre").cfg.n_heads
    known = effects(plain, facts(r2=0.0))
    for written in ((5.0, -5.0), (2.0, -1.5, -0.5)):
        results = Results({"heads/relevance": lab_of(with_heads(written)).measure(relevance)})
        found = effects(results, facts(r2=0.0))
        for name, effect in known.items():
            assert found[name].value == pytest.approx(effect.value, rel=1e-3)
        more = {f"{i}.{n_heads + k}" for i in range(2) for k in range(len(written))}
        assert relevance_module.copies(results) == more
        counting = relevance_module.Mattering.of(results, facts(r2=0.0))
        before = relevance_module.Mattering.of(plain, facts(r2=0.0))
        assert counting.counted.value == before.counted.value


@pytest.mark.slow
def test_heads_that_attend_alike_count_once_and_are_ablated_together(monkeypatch):
    check_alike()
    monkeypatch.setattr(relevance_module, "first_alike", lambda lab: list(range(len(lab.heads))))
    must_fail(check_alike)


def check_joined(join):
    """Only changes that are opposite join two heads: neither a part of one, nor the same change."""
    change = torch.randn(5, 3, 1, generator=generator(0, "test/joined"), dtype=torch.float64)
    other = torch.randn(5, 3, 1, generator=generator(1, "test/joined"), dtype=torch.float64)
    changes = {0: change, 2: other, 3: change, 4: -0.9 * other, 5: -change}
    assert join([0, 0, 2, 3, 4, 5, 5], changes) == [0, 0, 2, 3, 4, 0, 0]
    still = dict.fromkeys((0, 1), torch.zeros_like(change))
    assert join([0, 1], still) == [0, 1]
    # Each takes one other off, not two.
    assert join([0, 1, 2], {0: change, 1: -change, 2: -change}) == [0, 0, 2]


def test_heads_that_take_each_other_off_are_one(monkeypatch):
    check_joined(relevance_module.joined)
    must_fail(check_joined, lambda firsts, changes: list(firsts))
    for wrong in (1e-2 + 1e-9, 4.0):
        monkeypatch.setattr(relevance_module, "OPPOSITE", wrong)
        must_fail(check_joined, relevance_module.joined)


def check_across(n_heads):
    """In two layers: their effects are none, and those of the others are what they were."""
    model = make("no norm", n_layers=2, n_ctx=40)
    plain, more = (lab_of(one.double()) for one in (model, with_heads_across(model, n_heads)))
    before, after = (
        effects(Results({"heads/relevance": lab.measure(relevance)}), facts(r2=0.0))
        for lab in (plain, more)
    )
    for name, effect in after.items():
        if name in before:
            assert effect.value == pytest.approx(before[name].value, rel=1e-6)
        else:
            assert effect.role == "no"


def test_heads_of_two_layers_that_cancel_do_nothing(monkeypatch):
    check_across(2)
    monkeypatch.setattr(relevance_module, "joined", lambda firsts, changes: list(firsts))
    must_fail(check_across, 2)


# ---- shares of heads -----------------------------------------------------------------------------


def heads(*ways):
    """Heads by the ways they may count; the first one is that of the value."""
    return {
        str(i): Standing(one[0], frozenset(one))
        for i, one in enumerate(way.split() for way in ways)
    }


@pytest.mark.parametrize(
    ("ways", "expected", "number"),
    [
        (("yes", "no", "no", "out"), (1 / 3, 1 / 3, 1 / 3), (3, 3, 3)),
        (("yes", "no", "no yes"), (1 / 3, 1 / 3, 2 / 3), (3, 3, 3)),  # unclear whether it does
        (("yes", "no", "yes out"), (2 / 3, 1 / 2, 2 / 3), (3, 2, 3)),  # unclear whether it counts
        (("yes", "no", "out no"), (1 / 2, 1 / 3, 1 / 2), (2, 2, 3)),
        (("yes", "no yes out"), (1 / 2, 1 / 2, 1), (2, 1, 2)),
        (("yes out", "yes out"), (1, 1, 1), (2, 0, 2)),  # if any counts, all do
        (("no out", "yes out"), (1 / 2, 0, 1), (2, 0, 2)),
    ],
)
def test_unclear_heads_count_both_ways(ways, expected, number):
    found, n = share("share", lambda level: heads(*ways)), counted("heads", heads(*ways))
    assert (found.value, found.low, found.high) == pytest.approx(expected)
    assert (n.value, n.low, n.high) == number


def test_where_no_head_counts_there_is_no_share():
    found = share("share", lambda level: heads("out", "out"))
    assert not found.known


def test_a_share_is_firm_where_stricter_intervals_give_the_verdict_too():
    sure = share("share", lambda level: heads("yes", "yes"))
    loose = share(
        "share", lambda level: heads("yes", "yes") if level < 0.99 else heads("yes", "yes no")
    )
    assert sure.firmly_within((0.9, 1.0), 1e-5)
    assert not loose.firmly_within((0.9, 1.0), 1e-3)


def check_coverage(interval, p, unit, n_units=64, n_prompts=8):
    """Intervals of a share hold the truth.

    The prompts of a unit are all alike (unit = True) or independent.
    """
    rng, inside = np.random.default_rng(0), 0
    for _ in range(300):
        draws = rng.random((n_units, 1 if unit else n_prompts)) < p
        low, high = interval(draws.mean(1, keepdims=True), n_prompts)
        inside += bool(low[0] <= p <= high[0])
    assert inside >= 300 * (0.95 - 3 * (0.05 * 0.95 / 300) ** 0.5)


def korn_graubard(shares, n_prompts):
    return proportions(shares, n_prompts, level=0.95)


def test_intervals_of_shares_hold_the_truth():
    for unit in (True, False):
        check_coverage(korn_graubard, 0.8, unit)
    check_coverage(korn_graubard, 0.97, unit=False)

    def all_prompts(shares, n_prompts):
        """As if prompts of a unit were independent."""
        p = shares.mean(0)
        reach = 1.96 * np.sqrt(p * (1 - p) / shares.size / n_prompts)
        return p - reach, p + reach

    must_fail(check_coverage, all_prompts, 0.8, unit=True)


def test_a_share_of_all_prompts_still_has_an_interval():
    low, high = proportions(np.array([[1.0, 0.0]] * 32), 8)
    assert 0.95 < low[0] < 1 == high[0]
    assert low[1] == 0 < high[1] < 0.05
