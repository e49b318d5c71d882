"""The lab: sweeps that reuse the context equal whole prompts, and nothing is mixed up."""

import functools

import pytest
import torch
from helpers import must_fail
from small_labs import LABS, XS, bench, same
from small_models import TASK

from icl_interp.analyses.lab import Lab
from icl_interp.errors import InputError
from icl_interp.interventions.attention import SwapPattern, Temperature
from icl_interp.interventions.base import At, intervene
from icl_interp.models.hooks import token_axis
from icl_interp.probes import sweep as sweep_module
from icl_interp.probes.record import Activations
from icl_interp.provenance import generator

pytestmark = pytest.mark.usefixtures("several_chunks")


def arms(lab: Lab) -> dict[str, dict[str, list]]:
    """Interventions while the context is read, while the query is read, and both."""
    if lab.model.cfg.mlp_only:
        return {"none": {}, "frozen query": {"query": [lab.frozen.at_query()]}}
    head = (1, 2)
    return {
        "none": {},
        "frozen query": {"query": [lab.frozen.at_query()]},
        "frozen context": {"context": [lab.frozen]},
        "uniform query": {"query": [SwapPattern("uniform")]},
        "uniform context": {"context": [SwapPattern("uniform", ((0, 1),))]},
        "two at the query": {"query": [Temperature(3.0), lab.head_means.at_query().only(head)]},
        "hardmax everywhere": {
            "context": [SwapPattern("hardmax")],
            "query": [SwapPattern("hardmax")],
        },
        "different": {
            "context": [Temperature(0.5)],
            "query": [SwapPattern("uniform"), lab.frozen.at_query()],
        },
    }


def prompts_with(lab: Lab, x: float | None, prompts=None) -> torch.Tensor:
    """Whole prompts whose last query is x, or their own."""
    prompts = prompts or lab.prompts
    xs = prompts.xs.clone()
    if x is not None:
        xs[:, -1] = x
    return lab.encoding.encode(type(prompts)(xs, prompts.ys, prompts.parameters, prompts.function))


def whole(lab: Lab, xs=XS, context=(), query=(), prompts=None, n_points=None) -> torch.Tensor:
    """The slow way: every point a whole prompt.

    Interventions act at the positions that they are meant for.
    """
    prompts = (prompts or lab.prompts).first(n_points or 7)
    n = lab.encoding.n_tokens((prompts or lab.prompts).n_points)
    edits = [At(tuple(range(n - 1)), i) for i in context] + [At((n - 1,), i) for i in query]
    with torch.no_grad(), intervene(lab.model, *edits):
        return torch.stack(
            [lab.model(prompts_with(lab, x, prompts))[:, -1] for x in xs or (None,)], 1
        )


def check_sweep(lab: Lab):
    for name, arm in arms(lab).items():
        assert same(lab.sweep(XS, **arm), whole(lab, **arm)), name


@pytest.mark.slow
@pytest.mark.parametrize("name", LABS)
def test_a_sweep_equals_whole_prompts(name):
    check_sweep(bench(name))


class IgnoresContextEdits(Lab):
    def ask(self, xs=None, *, context=(), **rest):
        return super().ask(xs, **rest)


class IgnoresQueryEdits(Lab):
    def ask(self, xs=None, *, query=(), **rest):
        return super().ask(xs, **rest)


class Single(Lab):
    """Float32 where float64 is promised."""

    def run(self, sweeps, tick=None):
        return [f.float().double() for f in super().run(sweeps, tick)]


class WithoutPositions(Lab):
    """Every query at the first position."""

    def run(self, sweeps, tick=None):
        vectors = self.model.pos_embed.W_pos.data
        kept, vectors[-4] = vectors[-4].clone(), vectors[0]
        out = super().run(sweeps, tick)
        vectors[-4] = kept
        return out


@pytest.mark.parametrize(
    "mutant", [IgnoresContextEdits, IgnoresQueryEdits, Single, WithoutPositions]
)
def test_the_comparison_can_fail(mutant):
    assert bench().model.cfg.n_ctx == 16  # of which the last query stands at 12
    must_fail(check_sweep, bench(lab_class=mutant))


@pytest.mark.slow
def test_every_arm_moves_the_output():
    lab = bench()
    moved = {
        arm: not same(lab.sweep(XS, **edits), lab.sweep(XS)) for arm, edits in arms(lab).items()
    }
    assert moved == {arm: arm != "none" for arm in moved}


# ---- probes --------------------------------------------------------------------------------------


NAMES = [
    f"blocks.{i}.attn.hook_{what}"
    for i in range(2)
    for what in ("attn_scores", "pattern", "q", "z")
]
NAMES += ["blocks.1.hook_resid_post", "blocks.0.ln1.hook_scale", "ln_final.hook_scale"]


def check_probes(lab: Lab):
    """Probes see the last row of every activation, prompts in order, alternatives by token."""
    seen = Activations(NAMES)
    assert same(lab.sweep(XS, probes=[seen]), whole(lab)), "reading changes the output"
    for k, x in enumerate(XS):
        with torch.no_grad():
            _, cache = lab.model.run_with_cache(prompts_with(lab, x))
        for name in NAMES:
            axis = token_axis(name)
            assert same(seen.recorded[name].select(axis, k), cache[name].select(axis, -1)), (
                name,
                x,
            )


@pytest.mark.parametrize("name", ["causal interleaved", "causal stacked", "bidirectional stacked"])
def test_probes_see_the_last_row_of_whole_prompts(name):
    check_probes(bench(name))


class Shuffled(Lab):
    """Queries in another order; the predictions are put back."""

    def sweep(self, xs=None, **rest):
        return super().sweep(xs[::-1], **rest).flip(1)


class PromptsShuffled(Lab):
    """The same with the prompts."""

    def sweep(self, xs=None, **rest):
        return (
            super()
            .sweep(xs, prompts=self.prompts[torch.arange(len(self.prompts)).flip(0)], **rest)
            .flip(0)
        )


@pytest.mark.parametrize("mutant", [Shuffled, PromptsShuffled])
def test_what_probes_see_can_be_wrong(mutant):
    must_fail(check_probes, bench(lab_class=mutant))


@pytest.mark.parametrize("name", ["causal interleaved", "bidirectional stacked"])
def test_probes_see_what_interventions_leave(name):
    lab, seen = bench(name), Activations(["blocks.0.attn.hook_pattern"])
    lab.sweep(XS, query=[SwapPattern("uniform")], probes=[seen])
    (pattern,) = seen.recorded.values()
    assert torch.equal(pattern, torch.full_like(pattern, 1 / pattern.shape[-1]))


# ---- many at once --------------------------------------------------------------------------------


def cases(lab: Lab) -> dict[str, tuple]:
    """Places of the query, and the rest of what can be asked; None for each prompt's own query."""
    other = TASK.sample(3, generator(5, "test/other prompts"), n_contexts=3, dtype=torch.float64)
    uniform = [SwapPattern("uniform")]
    return {
        "plain": (XS, {}),
        "uniform context": (XS, {"context": uniform}),
        "uniform query": (XS, {"query": uniform}),
        "other places": ((0.8, -2.0), {}),
        "own query": (None, {}),
        "other prompts": (XS, {"prompts": other}),
        "two of each": (XS, {"prompts": lab.few}),
        "one of each": (XS, {"prompts": lab.one_each}),
        "own query, two of each": (None, {"prompts": lab.few}),
        "shorter": (XS, {"n_points": 4}),
        "shorter, own query, two of each": (None, {"n_points": 5, "prompts": lab.few}),
    }


@functools.cache
def alone(name: str) -> dict[str, torch.Tensor]:
    """What whole prompts give for each case; the labs of a name have the same model and prompts."""
    lab = bench(name)
    return {case: whole(lab, xs, **settings) for case, (xs, settings) in cases(lab).items()}


def check_together(lab: Lab, name: str = "causal interleaved"):
    """What is asked together gets what whole prompts give, in every order."""
    asked, expected = cases(lab), alone(name)
    for order in (list(asked), list(asked)[::-1], ["two of each", "plain", "two of each"]):
        found = lab.run([lab.ask(asked[case][0], **asked[case][1]) for case in order])
        for case, f in zip(order, found, strict=True):
            assert f.shape == expected[case].shape, case
            assert same(f, expected[case]), (case, order)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["causal interleaved", "causal stacked", "bidirectional stacked"])
def test_what_is_asked_together_is_not_mixed_up(name):
    check_together(bench(name), name)


class IgnoresPrompts(Lab):
    def ask(self, xs=None, *, prompts=None, **rest):
        n = len(prompts or self.prompts)
        return super().ask(xs, prompts=self.prompts[torch.arange(n)], **rest)


class IgnoresLength(Lab):
    def ask(self, xs=None, *, n_points=None, **rest):
        return super().ask(xs, **rest)


@pytest.mark.slow
def test_a_mix_up_is_noticed(monkeypatch):
    for mutant in (IgnoresPrompts, IgnoresLength, IgnoresContextEdits, IgnoresQueryEdits):
        must_fail(check_together, bench(lab_class=mutant))
    monkeypatch.setattr(sweep_module, "_ids", lambda interventions: ())  # all count as the same
    must_fail(check_together, bench())


def reads(lab: Lab, ask) -> list[int]:
    """Contexts that are read at a time while something is asked."""
    seen, remember = [], lab.model.remember
    lab.model.remember = lambda tokens: seen.append(len(tokens)) or remember(tokens)
    ask(lab)
    return seen


def test_contexts_are_read_once_for_all_that_is_asked_together():
    def together(lab):
        lab.run(
            [
                lab.ask(XS),
                lab.ask(),
                lab.ask([0.3], query=[SwapPattern("uniform")]),
                lab.ask(XS, n_points=4),
            ]
        )

    assert reads(bench(), together) == [4, 4, 4]
    few = lambda lab: lab.run([lab.ask(XS, prompts=lab.few), lab.ask(prompts=lab.few)])  # noqa: E731
    assert reads(bench(), few) == [4, 2]
    assert reads(bench(), lambda lab: [lab.sweep(XS), lab.sweep()]) == [4, 4, 4] * 2
    other = lambda lab: lab.run([lab.ask(XS), lab.ask(XS, context=[SwapPattern("uniform")])])  # noqa: E731
    assert reads(bench(), other) == [4, 4, 4] * 2


def test_an_intervention_that_would_do_nothing_is_refused():
    lab = bench()
    plain = lab.predict(lab.prompts)

    def check(model):
        with intervene(model, Temperature(0.5)):
            assert not torch.allclose(lab.predict(lab.prompts), plain, rtol=1e-4)

    check(lab.single)
    with pytest.raises(InputError, match=r"attach interventions to that, not to lab\.model"):
        check(lab.model)
    assert torch.allclose(lab.predict(lab.prompts), plain)
