"""The lab: sweeps that reuse the context equal whole prompts through the model, and nothing is mixed up."""

import pytest
import torch
from helpers import must_fail
from labs import LABS, XS, bench, same
from small_models import TASK

from icl_interp.analyses import lab as lab_module
from icl_interp.analyses.lab import Lab
from icl_interp.interventions.attention import SwapPattern, Temperature
from icl_interp.interventions.base import At, intervene
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
        "hardmax everywhere": {"context": [SwapPattern("hardmax")], "query": [SwapPattern("hardmax")]},
        "different": {"context": [Temperature(0.5)], "query": [SwapPattern("uniform"), lab.frozen.at_query()]},
    }


def prompts_with(lab: Lab, x: float, prompts=None) -> torch.Tensor:
    """Whole prompts whose last query is x."""
    prompts = prompts or lab.prompts
    xs = prompts.xs.clone()
    xs[:, -1] = x
    return lab.encoding.encode(type(prompts)(xs, prompts.ys, prompts.parameters, prompts.function))


def whole(lab: Lab, xs=XS, context=(), query=(), prompts=None) -> torch.Tensor:
    """The slow way: every point a whole prompt, interventions restricted to the positions they are meant for."""
    n = lab.encoding.n_tokens((prompts or lab.prompts).n_points)
    edits = [At(tuple(range(n - 1)), i) for i in context] + [At((n - 1,), i) for i in query]
    with torch.no_grad(), intervene(lab.model, *edits):
        return torch.stack([lab.model(prompts_with(lab, x, prompts))[:, -1, 0] for x in XS], 1)


def check_sweep(lab: Lab):
    for name, arm in arms(lab).items():
        assert same(lab.sweep(XS, **arm), whole(lab, **arm)), name


@pytest.mark.parametrize("name", LABS)
def test_a_sweep_equals_whole_prompts(name):
    check_sweep(bench(name))


class IgnoresContextEdits(Lab):
    def sweep(self, xs, *, context=(), **rest):
        return super().sweep(xs, **rest)


class IgnoresQueryEdits(Lab):
    def sweep(self, xs, *, query=(), **rest):
        return super().sweep(xs, **rest)


class Single(Lab):
    """Float32 where float64 is promised."""

    def sweep(self, xs, **rest):
        return super().sweep(xs, **rest).float().double()


class WithoutPositions(Lab):
    """Every query at the first position."""

    def _after_context(self, *args):
        vectors = self.model.pos_embed.W_pos.data
        kept, vectors[-4] = vectors[-4].clone(), vectors[0]
        out = super()._after_context(*args)
        vectors[-4] = kept
        return out


@pytest.mark.parametrize("mutant", [IgnoresContextEdits, IgnoresQueryEdits, Single, WithoutPositions])
def test_the_comparison_can_fail(mutant):
    assert bench().model.cfg.n_ctx == 16  # of which the last query stands at 12
    must_fail(check_sweep, bench(lab_class=mutant))


def test_every_arm_moves_the_output():
    lab = bench()
    moved = {arm: not same(lab.sweep(XS, **edits), lab.sweep(XS)) for arm, edits in arms(lab).items()}
    assert moved == {arm: arm != "none" for arm in moved}


# ---- watchers -------------------------------------------------------------------------------------------------------


def check_watchers(lab: Lab, watch_from: int = 0):
    """Watchers see the last row of every activation, prompts in order, alternatives along the token axis."""
    seen: dict[str, list[torch.Tensor]] = {}
    rows: dict[str, list[slice]] = {}

    def look(name, t, part):
        seen.setdefault(name, []).append(t)
        rows.setdefault(name, []).append(part)

    names = [f"blocks.{i}.attn.hook_{what}" for i in range(2) for what in ("attn_scores", "pattern", "q", "z")]
    names += ["blocks.1.hook_resid_post", "blocks.0.ln1.hook_scale", "ln_final.hook_scale"]
    out = lab.sweep(XS, watch=look, names=names[watch_from:])
    assert same(out, whole(lab)), "listening changes the output"
    for k, x in enumerate(XS):
        with torch.no_grad():
            _, cache = lab.model.run_with_cache(prompts_with(lab, x))
        for name in names:
            assert name in seen, name
            keyed = name.endswith(("scores", "pattern"))
            expected = cache[name][:, :, -1] if keyed else cache[name][:, -1]
            found = torch.cat(seen[name])
            assert same(found[:, :, k] if keyed else found[:, k], expected), (name, x)
            assert [n for r in rows[name] for n in range(r.start, r.stop)] == list(range(len(lab.prompts)))


@pytest.mark.parametrize("name", ["causal interleaved", "causal stacked", "bidirectional stacked"])
def test_watchers_see_the_last_row_of_whole_prompts(name):
    check_watchers(bench(name))


def test_watchers_can_fail():
    class Shuffled(Lab):
        def _run(self, prompts, queries, *rest):
            return super()._run(prompts, queries.flip(1), *rest).flip(1)

    must_fail(check_watchers, bench(lab_class=Shuffled))
    must_fail(check_watchers, bench(), watch_from=1)


def test_watchers_see_what_interventions_leave():
    lab, seen = bench(), []
    lab.sweep(
        XS,
        query=[SwapPattern("uniform")],
        watch=lambda name, t, rows: seen.append(t),
        names=["blocks.0.attn.hook_pattern"],
    )
    assert torch.equal(torch.cat(seen), torch.full_like(torch.cat(seen), 1 / 13))


# ---- memory ---------------------------------------------------------------------------------------------------------


def check_memory(lab_class: type[Lab]):
    """Kept contexts are the lab's own prompts', read without interventions: in every order."""
    other = TASK.sample(3, generator(5, "test/other prompts"), n_contexts=3, dtype=torch.float64)
    cases = {"plain": {}, "uniform": {"context": [SwapPattern("uniform")]}}
    cases["other prompts"] = {"prompts": other}
    cases["few"] = {"prompts": "few"}
    for first in cases:
        lab = bench(lab_class=lab_class)
        for case in (first, *cases, first):
            arguments = {**cases[case], **({"prompts": lab.small_sample} if case == "few" else {})}
            assert same(lab.sweep(XS, **arguments), whole(lab, **arguments)), (first, case)


def test_memory_is_not_mixed_up():
    check_memory(Lab)

    class IgnoresInterventions(Lab):
        def _remember(self, prompts, context):
            starts = torch.arange(len(self.prompts))[:: lab_module.CHUNK].tolist()
            rows = {s: self.prompts.xs[s : s + lab_module.CHUNK] for s in starts}
            start = next((s for s, xs in rows.items() if torch.equal(xs, prompts.xs)), None)
            self._key = None if start is None else ("prompts", start)
            return super()._remember(prompts, context)

    class IgnoresPrompts(Lab):
        def _run(self, prompts, queries, context, *rest):
            self._context = context
            return super()._run(prompts, queries, context, *rest)

        def _remember(self, prompts, context):
            if self._key is None and not context:
                self._key = ("prompts", 0) if len(prompts) == lab_module.CHUNK else None
            return super()._remember(prompts, context)

    class OneKeyForAllChunks(Lab):
        def _remember(self, prompts, context):
            if self._key is not None and len(prompts) == lab_module.CHUNK:
                self._key = ("prompts", 0)
            return super()._remember(prompts, context)

    class OneKeyForBothSamples(Lab):
        def _remember(self, prompts, context):
            if self._key == ("small_sample", 0):
                self._key = ("prompts", 0)
            return super()._remember(prompts, context)

    for mutant in (IgnoresInterventions, IgnoresPrompts, OneKeyForAllChunks, OneKeyForBothSamples):
        must_fail(check_memory, mutant)


def test_memory_is_used_and_bounded(monkeypatch):
    def reads(lab: Lab) -> int:
        calls, remember = [], lab.model.remember
        monkeypatch.setattr(lab.model, "remember", lambda tokens: calls.append(1) or remember(tokens))
        for _ in range(3):
            lab.sweep(XS)
        lab.at_own_query()
        return len(calls)

    assert reads(bench()) == 3  # chunks of 4, 4 and 1 prompts, once each
    monkeypatch.setattr(lab_module, "REMEMBERED", 1000)
    assert reads(bench()) == 12


def test_few_is_remembered_too(monkeypatch):
    lab, calls = bench(), []
    remember = lab.model.remember
    monkeypatch.setattr(lab.model, "remember", lambda tokens: calls.append(len(tokens)) or remember(tokens))
    for _ in range(3):
        lab.sweep(XS, prompts=lab.small_sample)
    assert sum(calls) == len(lab.small_sample)
