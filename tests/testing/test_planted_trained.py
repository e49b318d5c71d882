"""Trained planted models follow their plans: swaps, ablation, and mutants that must fail."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.baselines.base import INPUTS
from icl_interp.baselines.moments import Descent
from icl_interp.checkpoints.store import predict
from icl_interp.circuits.nodes import Ablated
from icl_interp.errors import InputError
from icl_interp.interventions.edges import PutEdges, edges_of, written
from icl_interp.models.parts import READ_OUT
from icl_interp.models.tokens import Stacked
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.testing.planted import DECOYS, FAMILIES, METHODS, PLANS, planted, score, trained
from icl_interp.testing.planted.draw import N_SEEDS, NONE, decoy_of, seeds_of
from icl_interp.testing.planted.interchange import at_place, edges_at, judged, passed
from icl_interp.testing.planted.score import TOLERANCE
from icl_interp.testing.planted.tools import tried

EVERY = [(family, seed) for family in PLANS for seed in trained.kept(family)]
SOME = {("trained step", 1), ("trained bend", 1)}
CASES = [pytest.param(*case, marks=() if case in SOME else pytest.mark.slow) for case in EVERY]
STEPS = PLANS["trained steps"]


def drawn(plan, n=24, seed=5):
    draw = generator(seed, "test")
    return plan.task.sample(n, draw).double(), plan.task.sample(n, draw).double()


def bundled(family, seed=1):
    seeds = trained.kept(family)
    return trained.drawn(family, seeds.index(seed))[0]


def follows(model, plan, n=256):
    assert passed(judged(model, plan, n, seed=11)).faults(plan) == []


# ---- plans ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "sizes"), [("trained step", (0.8,)), ("trained steps", (0.8,) * 2)]
)
def test_plans_of_steps_are_descent(family, sizes):
    prompts, _ = drawn(PLANS[family])
    wanted = Descent(INPUTS, sizes).predict(prompts)[:, -1, 0]

    def same(answer):
        torch.testing.assert_close(answer, wanted, rtol=1e-10, atol=1e-12)

    same(PLANS[family].answer(prompts))
    must_fail(same, PLANS["trained sum"].answer(prompts))


def test_plans_of_lines_are_what_they_say():
    prompts, _ = drawn(PLANS["trained sum"])
    xs = prompts.xs[..., 0].numpy()
    ys = prompts.ys[:, :-1, 0].numpy()
    tilted = np.exp(3 * xs[:, :-1] * xs[:, -1:])
    smooth = (tilted * ys).sum(1) / tilted.sum(1)
    wanted = {
        "trained sum": ys.mean(1) / 2 + smooth / 2,
        "trained bend": np.tanh(2 * ys.mean(1)),
        "trained copy": smooth,
        "trained early": smooth,
        "trained pair": smooth,
    }
    for family, answer in wanted.items():
        np.testing.assert_allclose(PLANS[family].answer(prompts), answer, atol=1e-12)
    must_fail(np.testing.assert_allclose, wanted["trained sum"], smooth, atol=1e-3)


def by_loops(own, others, place):
    """The answer of two steps, example by example: which prompt each number is of."""

    def labels(prompt):
        return prompt.ys[0, :9, 0].tolist()

    def term(x, keys, values):
        return 0.8 * sum(float(x @ keys.xs[0, j]) * values[j] for j in range(9)) / 9

    def first(queries, keys, values):
        return [term(queries.xs[0, t], keys, labels(values)) for t in range(10)]

    def second(query, keys, values, taken):
        rest = [y - e for y, e in zip(labels(values), taken[:9], strict=True)]
        return term(query.xs[0, 9], keys, rest)

    answers = []
    for i in range(len(own)):
        one = own[i : i + 1]
        other = others[i : i + 1]

        def of(head, place=place, one=one, other=other):
            return [other if f"{head} {letter}" in place else one for letter in "qkv"]

        theirs = first(other, other, other)
        early = theirs if "head 0.1" in place else first(*of("head 0.1"))
        taken = theirs if "head 0.1 > head 1.0 v" in place else early
        late = second(*of("head 1.0"), taken)
        if "head 1.0" in place:
            late = second(other, other, other, theirs)
        answers.append(early[9] + late)
    return np.array(answers)


def test_a_swap_changes_the_variable_of_its_place_and_no_other():
    own, others = drawn(STEPS, 6)
    names = {name for place in STEPS.places for name in place}
    assert names == {
        *(f"head {head} {letter}" for head in ("0.1", "1.0") for letter in "qkv"),
        *("head 0.1", "head 1.0", "head 0.1 > head 1.0 v"),
    }
    for place in STEPS.places:
        wanted = by_loops(own, others, place)
        np.testing.assert_allclose(STEPS.answer(own, others, place), wanted, atol=1e-12)
        plain = STEPS.answer(own).numpy()
        must_fail(np.testing.assert_allclose, plain, wanted, atol=1e-3)


@pytest.mark.parametrize("family", PLANS)
def test_hat_rows_are_derivatives_of_the_answer(family):
    plan = PLANS[family]
    prompts, _ = drawn(plan)
    ys = prompts.ys.clone().requires_grad_()
    answer = replace(plan, bend=None).answer(replace(prompts, ys=ys))
    rows = torch.autograd.grad(answer.sum(), ys)[0][:, :-1, 0]
    torch.testing.assert_close(plan.hat(prompts), rows, rtol=1e-10, atol=1e-12)
    truth = plan.truth()
    assert (truth.hat is None) == (family == "trained bend")
    torch.testing.assert_close(truth.answer(prompts), plan.answer(prompts))


def test_heads_that_cancel_leave_the_answer_together_and_not_alone():
    plan = PLANS["trained pair"]
    own, others = drawn(plan)
    before = plan.answer(own)
    torch.testing.assert_close(plan.answer(own, others, plan.cancel), before)
    for head in plan.cancel:
        alone = plan.answer(own, others, frozenset({head}))
        must_fail(torch.testing.assert_close, alone, before)
    assert plan.needed == {"head 0.0"}
    assert plan.decoys == plan.cancel


# ---- swaps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["trained steps", "trained early"])
def test_a_part_is_swapped_at_its_output_or_at_all_its_edges(family):
    plan = PLANS[family]
    found = judged(HookedTransformer(plan.cfg, seed=3), plan, 8)
    for part in ("head 0.1", "head 1.0", "MLP 0"):
        place = frozenset({part})
        by_edges = found.out(PutEdges(edges_at(found.model, place), found.other.written))
        torch.testing.assert_close(at_place(found, place), by_edges, rtol=1e-9, atol=1e-12)
        must_fail(torch.testing.assert_close, found.own.out, by_edges)


# ---- what is trained -----------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "seed"), CASES)
def test_bundled_models_pass_their_tests_again(family, seed):
    """On other prompts than those that they were accepted on, and as stored on these."""
    plan = PLANS[family]
    model = bundled(family, seed)
    follows(model, plan)
    stored = trained.numbers(family, seed)
    assert stored.faults(plan) == []
    again = passed(judged(model, plan, seed=seed))
    assert again.interchange == pytest.approx(stored.interchange, abs=1e-6)
    assert again.effects == pytest.approx(stored.effects, rel=1e-3, abs=1e-9)
    assert again.decoy == pytest.approx(stored.decoy, rel=1e-3, abs=1e-9)


def permuted(model):
    """The same function, where the heads of each layer have other places."""
    state = model.state_dict()
    for name, weight in state.items():
        if ".attn." in name and not name.endswith("b_O"):
            state[name] = weight.roll(1, 0)
    other = HookedTransformer(model.cfg).double()
    other.load_state_dict(state)
    return other


@pytest.mark.parametrize("family", ["trained step", "trained bend"])
def test_a_model_with_its_heads_elsewhere_predicts_alike_and_fails(family):
    plan = PLANS[family]
    model = bundled(family)
    other = permuted(model)
    found = judged(other, plan, 64)
    torch.testing.assert_close(found.own.out, judged(model, plan, 64).own.out)
    follows(model, plan, 64)
    must_fail(follows, other, plan, 64)


@pytest.mark.slow
@pytest.mark.parametrize("family", PLANS)
def test_an_untrained_model_fails_every_swap(family):
    plan = PLANS[family]
    found = judged(HookedTransformer(plan.cfg, seed=1), plan, 64)
    for place in plan.places:
        wanted = plan.answer(found.prompts, found.others, place)
        gap = at_place(found, place) - wanted
        assert gap.square().mean() > 0.3 * wanted.var()
    must_fail(follows, found.model, plan, 64)


@pytest.mark.slow  # 15 s: two trainings
def test_training_without_swaps_predicts_and_fails_and_with_swaps_passes():
    plan = PLANS["trained copy"]
    follows(trained.train(plan, 5, 300), plan)
    alone = trained.train(plan, 5, 300, interchange=False)
    found = passed(judged(alone, plan, 256))
    assert found.error < 0.01
    assert any(fault.startswith("interchange") for fault in found.faults(plan))
    assert any(fault.startswith("effect") for fault in found.faults(plan))


def test_a_model_that_falls_short_is_not_kept(tmp_path):
    found, faults = trained.keep("trained bend", 0, tmp_path, steps=2)
    assert "error" in faults
    assert "interchange at head 0.1 v" in faults
    assert found.error > 0.01
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow  # 7 s: a training
def test_a_model_that_passes_is_kept_with_its_numbers(tmp_path):
    found, faults = trained.keep("trained step", 3, tmp_path, steps=300)
    assert faults == []
    assert trained.numbers("trained step", 3, tmp_path) == found
    assert trained.place("trained step", 3, tmp_path).is_file()


# ---- as planted models ---------------------------------------------------------------------------


def ablated(one):
    prompts = one.checkpoint.task.sample(64, generator(7, "test"))
    found = Ablated.measure(one.checkpoint, prompts)
    for name, value in written(found.model, found.tokens).items():
        found.means[name] = value.mean(0, keepdim=True)
    return found


def the_truth_holds(found, truth):
    """Planted parts and edges raise the error one by one, and all others together do not."""
    intact = float(found.without(()).mean())
    idle = set(found.parts) - truth.parts
    assert float(found.without(idle).mean()) == pytest.approx(intact, abs=0.25 * TOLERANCE)
    for part in truth.parts:
        assert found.without([part]).mean() > intact + 2 * TOLERANCE, part
    every = set(edges_of(found.model))
    assert truth.edges < every
    left = float(found.without((), every - truth.edges).mean())
    assert left == pytest.approx(intact, abs=0.25 * TOLERANCE)
    for edge in truth.edges:
        assert found.without((), [edge]).mean() > intact + 0.5 * TOLERANCE, edge


@pytest.mark.parametrize(("family", "seed"), CASES)
def test_the_truth_holds_by_ablation(family, seed):
    one = planted(family, trained.kept(family).index(seed))
    truth = one.truth
    found = ablated(one)
    the_truth_holds(found, truth)
    first = sorted(truth.parts)[0]
    idle = sorted(set(found.parts) - truth.parts)[0]
    edge = sorted(truth.edges)[-1]
    must_fail(the_truth_holds, found, replace(truth, parts=truth.parts - {first}))
    must_fail(the_truth_holds, found, replace(truth, parts=truth.parts | {idle}))
    must_fail(the_truth_holds, found, replace(truth, edges=truth.edges - {edge}))
    must_fail(the_truth_holds, found, replace(truth, edges=truth.edges | {(idle, READ_OUT)}))


def test_a_trained_model_stands_beside_random_parts():
    one, again, other = (planted("trained pair", seed) for seed in (0, 2, 1))
    model, task, _, truth = trained.drawn("trained pair", 0)
    prompts = task.sample(8, generator(1, "test")).double()
    alone = predict(model, Stacked(), prompts)[:, -1]
    for each in (one, again):
        assert each.checkpoint.model.cfg.n_heads > model.cfg.n_heads
        torch.testing.assert_close(each.checkpoint.predict(prompts)[:, -1], alone)
    must_fail(torch.testing.assert_close, other.checkpoint.predict(prompts)[:, -1], alone)
    assert one.decoy == "cancelling pair"
    assert one.decoys == {"head 0.1", "head 0.3"}
    assert one.truth.parts == truth.parts == {"head 0.0"}


def test_a_third_have_decoys_and_their_weights_are_small():
    decoys = [plan.decoy for plan in PLANS.values()]
    assert len(decoys) - decoys.count(NONE) >= len(decoys) / 3
    assert set(decoys) == {NONE, *DECOYS}
    n_trained = sum(len(seeds_of(family)) for family in PLANS)
    assert n_trained == len(EVERY)
    assert n_trained <= 15
    by_hand = [decoy_of(seed) for seed in range(N_SEEDS)]
    with_decoy = len(FAMILIES) * (N_SEEDS - by_hand.count(NONE))
    for family, plan in PLANS.items():
        with_decoy += len(seeds_of(family)) * (plan.decoy != NONE)
    assert with_decoy >= (len(FAMILIES) * N_SEEDS + n_trained) / 3
    files = list(trained.KEPT.iterdir())
    assert len(files) == 2 * n_trained
    assert sum(path.stat().st_size for path in files) < 10**6


def test_only_the_decoy_of_the_plan_is_there():
    assert planted("trained copy", 0, "idle copy").truth.copies == {
        "head 0.0",
        "head 0.1",
        "head 0.3",
    }
    with pytest.raises(InputError, match="trained with the decoy 'idle copy'"):
        planted("trained copy", 0, "early shortcut")
    with pytest.raises(InputError, match="trained with the decoy 'none'"):
        planted("trained step", 0, "idle copy")


def test_influence_is_not_asked_where_the_answer_bends():
    one = planted("trained bend", 0)
    assert list(score._influence(one)) == []
    prompts, _ = drawn(PLANS["trained bend"])
    mean = prompts.ys[:, :-1, 0].mean(1)
    torch.testing.assert_close(one.truth.answer(prompts), torch.tanh(2 * mean))


@pytest.mark.slow  # 10 s: every tool on one model
def test_every_method_gives_a_score_of_a_trained_model():
    rows = tried("trained step", 0)
    assert [row["method"] for row in rows] == list(METHODS)
    found = {row["method"]: row for row in rows}
    assert found["circuit"]["exact"] == 1
    assert found["circuit"]["decoy"] == NONE
