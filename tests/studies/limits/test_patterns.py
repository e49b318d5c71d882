"""Attention patterns across degrees: distances by brute force, input-only models, verdicts."""

import functools
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from helpers import must_fail
from made_up_facts import facts
from measured_claims import answered
from tiny_runs import checkpoint
from xarray import DataArray

from icl_interp.analyses import registry
from icl_interp.analyses.lab import Lab
from icl_interp.models.tokens import Stacked
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.limits.claims import patterns as limits_patterns
from icl_interp.studies.limits.constructions.mechanisms import smoother, smoother_that_tells_degrees
from icl_interp.studies.limits.measurements import patterns as measured_patterns
from icl_interp.studies.limits.measurements.classes import polynomials
from icl_interp.studies.limits.measurements.patterns import (
    LARGEST,
    by_nearness,
    last_patterns,
    others,
    some,
    variation,
)
from icl_interp.tasks import Continuous, Polynomial, Uniform

ALIKE_ID = "limits.patterns_alike"
STATISTICS = ("between", "within", "ratio", "low", "high", "by position", "shuffled", "excess")
STATISTICS = (*STATISTICS, "response low", "response high")
N = 40


def run(degrees=(1, 3), **changes):
    model = {"n_layers": 2, "init_std": 0.8, **changes.pop("model", {})}
    found = checkpoint(task={"degrees": list(degrees), "n_points": 6}, model=model, **changes)
    found.model = HookedTransformer(found.model.cfg, seed=5).eval()
    return found


def lab_of(found, n_units=6, n_contexts=1) -> Lab:
    return Lab(found.model, found.task, found.encoding, n_units=n_units, n_contexts=n_contexts)


@functools.cache
def bench() -> Lab:
    return lab_of(run())


def inputs_only(n_units=6) -> Lab:
    """Stacked tokens, and a smoother of their labels: its patterns depend on inputs alone."""
    task = Polynomial(
        degrees=(1, 3), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=6
    )
    model = smoother(generator(0, "test/inputs"), task).model
    return Lab(model, task, Stacked(), n_units=n_units, n_contexts=1)


# ---- patterns ------------------------------------------------------------------------------------


def check_nearness(order):
    """Pairs by distance of x from the query's, with both tokens; the query's own token last."""
    lab = bench()
    prompts = polynomials(lab, 1)
    keys = order(lab, prompts)
    for row in range(4):
        xs = prompts.xs[row, :, 0]
        near = sorted(range(5), key=lambda j: abs(float(xs[j] - xs[5])))
        expected = [token for j in near for token in (2 * j, 2 * j + 1)] + [10]
        assert keys[row].tolist() == expected


def test_keys_are_lined_up_by_nearness():
    check_nearness(by_nearness)
    must_fail(check_nearness, lambda lab, prompts: torch.arange(11).expand(len(prompts), -1))
    must_fail(
        check_nearness, lambda lab, prompts: by_nearness(lab, replace(prompts, xs=prompts.xs.abs()))
    )
    stacked = inputs_only()
    keys = by_nearness(stacked, polynomials(stacked, 1))
    assert keys.shape[1] == 6
    assert (keys.sort(1).values == torch.arange(6)).all()
    assert (keys[:, -1] == 5).all()


def test_total_variation_is_the_weight_that_moves():
    a, b = torch.tensor([[0.5, 0.5, 0.0]]), torch.tensor([[0.2, 0.5, 0.3]])
    assert float(variation(a, b)) == pytest.approx(0.3)
    assert float(variation(a, a)) == 0
    assert float(variation(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]))) == 1


def test_the_last_query_s_pattern_whatever_the_chunks():
    lab = bench()
    prompts = polynomials(lab, 3)
    _, cache = lab.single.run_with_cache(lab.tokens(prompts).float())
    expected = torch.stack(
        [cache[f"blocks.{i}.attn.hook_pattern"][:, :, -1].double() for i in range(2)], 1
    )
    assert torch.allclose(last_patterns(lab, prompts), expected, atol=1e-6)


def check_others(others):
    """The same inputs, the next function of the same degree."""
    lab = bench()
    mine, next_one = polynomials(lab, 3), others(lab, 3)
    assert torch.equal(mine.xs, next_one.xs)
    assert torch.equal(next_one.parameters[:2], mine.parameters[2:4])  # the partners of a pair
    assert torch.allclose(lab.task.targets(next_one.parameters, next_one.xs), next_one.ys)
    assert not (mine.parameters == next_one.parameters).all(-1).any()


def test_the_other_function_meets_the_same_inputs():
    check_others(others)
    must_fail(check_others, lambda lab, degree: polynomials(lab, degree))
    must_fail(
        check_others,
        lambda lab, degree: replace(p := others(lab, degree), xs=p.xs.flip(0), ys=p.ys),
    )


def test_some_prompts_are_of_both_partners():
    lab = lab_of(run(), n_contexts=2)  # two contexts of each function
    assert some(lab, polynomials(lab, 1)).function.tolist() == list(range(12))
    assert some(lab, polynomials(lab, 1), 1).function.tolist() == list(range(0, 12, 2))
    assert some(lab, polynomials(lab, 1), 4).function.tolist() == [i // 2 for i in range(24)]


# ---- distances by brute force --------------------------------------------------------------------


def aligned(lab, degree, order=None) -> np.ndarray:
    """(prompt, layer, head, key) lined up, from full forward passes."""
    prompts = polynomials(lab, degree)
    _, cache = lab.single.run_with_cache(lab.tokens(prompts).float())
    patterns = [cache[f"blocks.{i}.attn.hook_pattern"][:, :, -1].double().numpy() for i in range(2)]
    rows = np.stack(patterns, 1)
    keys = (order or by_nearness)(lab, prompts).numpy()
    return np.stack([rows[k][..., keys[k]] for k in range(len(rows))])


def check_distances(measure):
    lab = bench()
    result = measure(lab)
    assert tuple(result.indexes["statistic"]) == STATISTICS
    assert tuple(result.indexes["pair"]) == ("1 ~ 2", "1 ~ 3", "2 ~ 3", LARGEST)
    rows = {d: aligned(lab, d) for d in (1, 2, 3)}
    for a, b in combinations((1, 2, 3), 2):
        for layer in range(2):
            at = {"pair": f"{a} ~ {b}", "layer": layer}
            means = [rows[d][:, layer].mean(0) for d in (a, b)]
            between = 0.5 * np.abs(means[0] - means[1]).sum(-1).mean()
            within = np.mean(
                [
                    0.5
                    * np.abs(rows[d][k, layer] - rows[d][(k + 2 * s) % 12, layer]).sum(-1).mean()
                    for d in (a, b)
                    for k in range(12)
                    for s in (1, 2, 3, 4)
                ]
            )
            assert result.sel(statistic="between", **at).values == pytest.approx(between, rel=1e-4)
            assert result.sel(statistic="within", **at).values == pytest.approx(within, rel=1e-4)
            ratio = between / max(within, measured_patterns.RESPONDS)
            assert result.sel(statistic="ratio", **at).values == pytest.approx(ratio, rel=1e-4)
    table = result.sel(statistic="ratio").values[:-1, :-1]
    assert float(result.sel(pair=LARGEST, layer=LARGEST, statistic="ratio").values) == table.max()
    low, value, high = (
        result.sel(pair=LARGEST, layer=LARGEST, statistic=s).values
        for s in ("low", "ratio", "high")
    )
    assert low <= value <= high


def test_distances_by_brute_force(monkeypatch):
    check_distances(measured_patterns.distances)
    with monkeypatch.context() as m:
        m.setattr(
            measured_patterns, "by_nearness", lambda lab, p: torch.arange(11).expand(len(p), -1)
        )
        must_fail(check_distances, measured_patterns.distances)
    with monkeypatch.context() as m:
        m.setattr(
            measured_patterns, "variation", lambda a, b: (a - b).square().sum(-1).sqrt().mean(-1)
        )
        must_fail(check_distances, measured_patterns.distances)


def with_a_null_head(found):
    """The same function: each layer has one more head, which writes nothing.

    It attends to large labels.
    """
    cfg = replace(
        found.model.cfg, n_heads=found.model.cfg.n_heads + 1, d_head=found.model.cfg.head_width
    )
    wider, g = HookedTransformer(cfg).eval(), generator(0, "test/null")
    weights = {name: tensor.clone() for name, tensor in found.model.state_dict().items()}
    for name, tensor in weights.items():
        if ".attn.W_" in name or ".attn.b_Q" in name or ".attn.b_K" in name or ".attn.b_V" in name:
            size = 0.0 if name.endswith("W_O") else 2.0
            weights[name] = torch.cat(
                [tensor, size * torch.randn(1, *tensor.shape[1:], generator=g)]
            )
    wider.load_state_dict(weights, strict=False)
    return replace(found, model=wider)


def check_null():
    """A head that writes nothing is no head: all numbers stay."""
    plain, wider = (
        measured_patterns.distances(lab_of(one)) for one in (run(), with_a_null_head(run()))
    )
    assert np.allclose(plain.values, wider.values, rtol=1e-3, atol=1e-5, equal_nan=True)


def test_heads_that_write_nothing_do_not_count(monkeypatch):
    check_null()
    monkeypatch.setattr(
        measured_patterns.relevance,
        "that_move",
        lambda result: [True] * len(result.indexes["head"]),
    )
    must_fail(check_null)


def test_patterns_that_read_inputs_alone_are_the_same_for_every_degree(measured):
    """Not only alike: every degree meets the same inputs, and so patterns are equal."""
    lab = inputs_only(n_units=16)
    result = lab.measure(measured_patterns.distances)
    for statistic in ("between", "ratio", "high", "by position", "excess"):
        assert np.nanmax(np.abs(result.sel(statistic=statistic).values)) < 1e-5, statistic
    assert result.sel(statistic="within", layer=1).values.min() > 0.05
    patched = lab.measure(measured_patterns.swapped)
    for target in ("degree 1", "degree 3"):
        own = patched.sel(target=target, source="own").values
        for source in ("degree 1", "degree 3"):
            assert np.allclose(
                patched.sel(target=target, source=source).values, own, rtol=1e-4, atol=1e-7
            )
        assert not np.allclose(patched.sel(target=target, source="uniform").values, own, rtol=1e-2)


def check_told_apart(case):
    """In the second layer mean patterns of two degrees are further apart than prompts of one.

    Shuffled they are not.
    """
    result = measured_patterns.distances(
        Lab(case.model, case.task, Stacked(), n_units=16, n_contexts=4)
    )
    at = {s: float(result.sel(pair="1 ~ 2", layer=1, statistic=s).values) for s in STATISTICS}
    assert at["low"] > limits_patterns.UNLIKE
    assert at["between"] > at["within"]
    assert at["excess"] > 1
    assert at["shuffled"] < 0.5 * at["ratio"]


def test_patterns_that_differ_by_degree_are_told():
    case = smoother_that_tells_degrees(generator(0, "test/degrees"))
    check_told_apart(case)
    with torch.no_grad():
        case.model.blocks[1].attn.b_Q[1] = 0  # the head that tells degrees attends to all alike
    must_fail(check_told_apart, case)


def check_swapped(measure):
    """The pattern of another function put in by hand, at every position of every layer."""
    lab = bench()
    result = measure(lab)
    assert tuple(result.indexes["source"]) == ("own", "degree 1", "degree 3", "uniform", "zero")
    for t in (1, 3):
        prompts = some(lab, polynomials(lab, t), 1)
        tokens, truth = lab.tokens(prompts).float(), prompts.ys[:, -1, 0]
        for s in (1, 3):
            giver = lab.tokens(some(lab, others(lab, s), 1)).float()
            _, cache = lab.single.run_with_cache(giver)
            names = [f"blocks.{i}.attn.hook_pattern" for i in range(2)]
            hooks = [(name, lambda p, hook: cache[hook.name]) for name in names]  # noqa: B023
            out = lab.single.run_with_hooks(tokens, fwd_hooks=hooks)[:, -1, 0].double()
            expected = (out - truth).square().detach()
            got = result.sel(target=f"degree {t}", source=f"degree {s}").values
            assert np.allclose(got, expected, rtol=1e-3, atol=1e-7)
        out = lab.single(tokens)[:, -1, 0].double().detach()
        own = result.sel(target=f"degree {t}", source="own").values
        assert np.allclose(own, (out - truth).square(), rtol=1e-4)
        assert np.allclose(result.sel(target=f"degree {t}", source="zero").values, truth.square())


def test_swapped_patterns_by_brute_force():
    check_swapped(measured_patterns.swapped)

    def mixed_up(lab):
        result = measured_patterns.swapped(lab)
        return make_array(result.values[:, [0, 2, 1, 3, 4]], result.indexes)

    must_fail(check_swapped, mixed_up)


def test_the_model_is_as_it_was():
    lab = lab_of(run())
    before = lab.single(lab.tokens(lab.few).float()).clone()
    lab.measure(measured_patterns.distances)
    lab.measure(measured_patterns.swapped)
    assert torch.equal(lab.single(lab.tokens(lab.few).float()), before)
    assert not any(point._forward_hooks for point in lab.single.hook_dict.values())


# ---- verdicts ------------------------------------------------------------------------------------


def distances_of(ratio, spread=0.02, within=0.5) -> DataArray:
    """Made-up results of one pair of degrees in two layers, the second with a smaller ratio."""
    cells = []
    for r in (ratio, ratio / 2, ratio):
        cells.append(
            [
                r * within,
                within,
                r,
                r - spread,
                r + spread,
                r,
                0.01,
                0.02,
                0.9 * within,
                1.1 * within,
            ]
        )
    axes = {"pair": ("1 ~ 3", LARGEST), "layer": (0, 1, LARGEST), "statistic": STATISTICS}
    return make_array([cells, cells], axes)


def swaps(other=0.01) -> DataArray:
    own = np.full(N, 0.005)
    rows = [
        [own, own, np.full(N, other), np.full(N, 0.4), np.ones(N)],
        [own, np.full(N, other), own, np.full(N, 0.4), np.ones(N)],
    ]
    axes = {
        "target": ("degree 1", "degree 3"),
        "source": ("own", "degree 1", "degree 3", "uniform", "zero"),
        "unit": tuple(range(N)),
    }
    return make_array(rows, axes)


def results(ratio, control_within=0.01, **settings):
    return {
        "patterns/degrees": distances_of(ratio, **settings),
        "patterns/swapped": swaps(),
        "twin/patterns/degrees": distances_of(0.01, spread=0.001, within=control_within),
    }


def known(degrees=(1, 3), **config):
    return facts(task=run(degrees).task, config=config, n_units=N)


def judge(found, facts=None):
    return registry.REGISTRY[ALIKE_ID].judge_results(found, facts or known())


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        (0.05, "supported"),
        (0.17, "supported"),
        (0.19, "inconclusive"),
        (0.3, "inconclusive"),
        (0.6, "contradicted"),
    ],
)
def test_the_largest_distance_is_judged(ratio, verdict):
    finding = judge(results(ratio))
    assert finding.verdict == verdict
    assert answered(finding)
    assert "degrees 1 and 3 in layer 0;" in finding.reason
    assert finding.estimate.value == ratio
    assert [row["ratio"] for row in finding.details] == [ratio, ratio / 2]
    assert finding.causal["effect"] == pytest.approx(0.01)
    assert finding.causal["sham: the other function has the same degree"] == pytest.approx(0.005)
    assert finding.causal["uniform patterns"] == pytest.approx(0.4)


def test_patterns_that_never_change_say_nothing():
    finding = judge(results(0.05, within=0.02))
    assert finding.verdict == "inconclusive"
    assert finding.decided_by.quantity == "response"
    assert finding.test.value == pytest.approx(0.02)
    assert finding.control.value == pytest.approx(0.01)
    assert judge(results(0.05)).decided_by.quantity == "ratio"
    # Where they are not alike, that they hardly depend on the prompt takes nothing away.
    assert judge(results(0.6, within=0.02)).verdict == "contradicted"
    assert (
        judge(results(0.05, control_within=0.5)).verdict == "inconclusive"
    )  # an untrained twin's are alike as well


def test_who_cannot_be_asked():
    assert "about attention; this model has none" in judge({}, known(mlp_only=True)).reason
    assert "compares two degrees" in judge({}, known((1,))).reason
    assert judge({}, known(score_fn="linear")).verdict == "not_applicable"
    assert (
        judge(
            {}, replace(known(), task=Continuous(function="abs", inputs=Uniform(-1, 1), n_points=9))
        ).verdict
        == "not_applicable"
    )


def test_one_degree_above_1_is_compared_with_those_below_it():
    assert measured_patterns.degrees(lab_of(run((3,)))) == [1, 2, 3]
