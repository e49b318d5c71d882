"""The lab: sweeps that reuse the context equal whole prompts through the model, and nothing is mixed up or too long."""

import numpy as np
import pytest
import torch
from helpers import must_fail
from pandas import DataFrame
from small_models import OTHERS, TASK, make

from icl_interp.analyses import lab as lab_module
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Measurement
from icl_interp.analyses.registry import select
from icl_interp.errors import InputError
from icl_interp.interventions import At, SwapPattern, Temperature, intervene
from icl_interp.models.tokens import Interleaved, Stacked
from icl_interp.provenance import generator
from icl_interp.results import make_table
from icl_interp.studies.heads.claims import orthogonality as heads

XS = (-1e4, 0.8, 30.0)
LABS = {
    "causal interleaved": ("pre", Interleaved(), {}),
    "causal stacked": ("pre", Stacked(), {"d_in": 2}),
    "bidirectional stacked": ("bidirectional", Stacked(), {}),
    "post-norm": ("post", Interleaved(), {}),
    "attention only": ("attention only", Interleaved(), {}),
    "mlp only": ("mlp only", Interleaved(), {}),
    "linear scores": ("linear", Interleaved(), {}),
}
SIZES = {"n_functions": 3, "n_contexts": 3}


def bench(name: str = "causal interleaved", lab_class: type[Lab] = Lab, **sizes) -> Lab:
    model, encoding, change = LABS[name]
    return lab_class(make(model, **change), TASK, encoding, **{**SIZES, **sizes})


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch):
    """Nine prompts in chunks of four: what goes wrong between chunks shows."""
    monkeypatch.setattr(lab_module, "CHUNK", 4)


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


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-10, atol=1e-10)


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
            arguments = {**cases[case], **({"prompts": lab.few} if case == "few" else {})}
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
            if self._key == ("few", 0):
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
        lab.sweep(XS, prompts=lab.few)
    assert sum(calls) == len(lab.few)


# ---- the sample -----------------------------------------------------------------------------------------------------


def check_sample(lab: Lab):
    """Contexts of a function stand together, share its parameters and nothing else."""
    prompts = lab.prompts
    shared = prompts.parameters.view(lab.n_functions, lab.n_contexts, -1)
    assert (shared == shared[:, :1]).all()
    assert len(shared[:, 0].unique(dim=0)) == lab.n_functions
    assert len(prompts.xs[:, :, 0].unique(dim=0)) == len(prompts)
    assert prompts.function.tolist() == [f for f in range(lab.n_functions) for _ in range(lab.n_contexts)]
    assert prompts.xs.dtype == torch.float64


def test_contexts_of_a_function_share_its_parameters():
    lab = bench(n_functions=4, n_contexts=5)
    check_sample(lab)
    lab.prompts = lab.prompts[torch.randperm(20, generator=generator(0, "test/shuffle"))]
    must_fail(check_sample, lab)


def test_the_twin_and_the_counterpart_meet_the_same_functions():
    lab = Lab(make("pre"), TASK, Interleaved(), **SIZES, counterpart=make("no norm"))
    assert torch.equal(lab.twin.prompts.parameters[::4], lab.prompts.parameters[::3])
    assert lab.twin.n_contexts == 4
    assert torch.equal(lab.counterpart.prompts.xs, lab.prompts.xs)
    assert bench().counterpart is None
    assert not same(lab.twin.sweep(XS)[::4], lab.sweep(XS)[::3])
    assert lab.twin.model.cfg == lab.model.cfg


def test_few_keeps_two_contexts_of_each_function():
    lab = bench(n_functions=4, n_contexts=5)
    assert lab.few.function.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert torch.equal(lab.few.xs, lab.prompts.xs[[0, 1, 5, 6, 10, 11, 15, 16]])


def test_by_function_averages_contexts():
    lab = bench()
    values = torch.arange(18.0).double().view(9, 2)
    expected = [[np.mean([values[3 * f + c, k].item() for c in range(3)]) for k in range(2)] for f in range(3)]
    assert np.array_equal(lab.by_function(values), expected)
    assert lab.by_function(torch.arange(6.0).double()).tolist() == [0.5, 2.5, 4.5]  # two contexts each


def test_own_queries_and_truth():
    for name in ("causal interleaved", "bidirectional stacked"):
        lab = bench(name)
        with torch.no_grad():
            expected = lab.model(lab.encoding.encode(lab.prompts))[:, -1, 0]
        assert same(lab.at_own_query(), expected)
    a, b = lab.prompts.parameters.T
    assert same(lab.truth(XS), a[:, None] + b[:, None] * torch.tensor(XS, dtype=torch.float64))


def test_predictions_are_the_models_own():
    """In float32, at every point from the one that the function is determined by."""
    for name in ("causal interleaved", "causal stacked", "bidirectional stacked"):
        lab = bench(name)
        out, truth = lab.predictions()
        read, points = lab.encoding.read_at(7, lab.model.cfg.attention_dir)
        with torch.no_grad():
            expected = lab.model(lab.encoding.encode(lab.few))[:, list(read), 0]
        first = max(2, points.start)
        assert torch.allclose(out, expected[:, first - points.start :], atol=1e-4)
        assert torch.equal(truth, lab.few.ys[:, first:])
        assert out.shape == truth.shape
        edited, _ = lab.predictions(SwapPattern("uniform"))
        assert not torch.allclose(out, edited, atol=1e-3)


def test_references_come_from_the_lab_and_not_from_elsewhere():
    lab = bench()
    with torch.no_grad():
        _, cache = lab.model.run_with_cache(lab.encoding.encode(lab.few))
        _, other = lab.model.run_with_cache(Interleaved().encode(OTHERS).double())
    expected = cache["ln_final.hook_scale"].mean(0)
    assert same(lab.frozen.scales["ln_final"], expected)
    assert not same(lab.frozen.scales["ln_final"], other["ln_final.hook_scale"].mean(0))
    assert same(lab.head_means.means[1], cache["blocks.1.attn.hook_z"].mean(0))


def test_the_model_given_stays_as_it_was():
    model = make("pre").float()
    lab = Lab(model, TASK, Interleaved(), **SIZES)
    lab.sweep(XS, query=[lab.frozen.at_query()])
    lab.predictions(SwapPattern("uniform"))
    assert next(model.parameters()).dtype == torch.float32
    assert all(p.requires_grad for p in model.parameters())
    assert not any(hook.has_hooks() for hook in model.hook_dict.values())
    assert not any(hook.has_hooks() for hook in lab.model.hook_dict.values())


def test_a_sample_needs_two_of_each():
    for sizes in ({"n_functions": 1}, {"n_contexts": 1}):
        with pytest.raises(InputError, match="at least 2 functions and 2 contexts"):
            bench(**sizes)


# ---- lengths --------------------------------------------------------------------------------------------------------


def check_length(lab_class: type[Lab], *claims: str):
    """n_ctx = 16 lies: 13 tokens were trained, and what stands in W_pos beyond them must never be read."""
    results = {}
    for poison in (0.0, 1e3):
        model = make("pre")
        with torch.no_grad():
            model.pos_embed.W_pos[13:] = poison
        lab = lab_class(model, TASK, Interleaved(), **SIZES)
        known = Facts.of(model, TASK, "interleaved", {"error": 0.0, "r2": 1.0})
        wanted = {m.name: m for c in select(claims or None) if not c.excluded(known) for m in c.measurements}
        results[poison] = {name: lab.measure(m) for name, m in wanted.items()}
    clean, poisoned = results.values()
    for name, result in clean.items():
        if isinstance(result, DataFrame):
            assert str(result.columns) == str(poisoned[name].columns), name
        else:
            assert np.array_equal(result.values, poisoned[name].values, equal_nan=True), name


def test_no_measurement_goes_past_the_trained_length(monkeypatch):
    monkeypatch.setattr(lab_module, "CHUNK", 128)
    monkeypatch.setattr(heads, "N_ROTATIONS", 10)
    check_length(Lab)

    class OnePointMore(Lab):
        def __init__(self, model, task, *args, **kwargs):
            super().__init__(model, task.with_points(task.n_points + 1), *args, **kwargs)

    for claim in ("limits.softmax_uniform", "limits.context_erased", "limits.layernorm_causes_failure"):
        must_fail(check_length, OnePointMore, claim)


def test_a_measurement_is_taken_once():
    calls = []

    def count(lab):
        calls.append(lab)
        return make_table({"n": [len(calls)]})

    lab, counted = bench(), Measurement("test/count", count)
    assert [lab.measure(counted)["n"].tolist() for _ in range(2)] == [[1], [1]]
    assert list(lab.results) == ["test/count"]
    assert lab.twin.measure(counted)["n"].tolist() == [2]
    assert set(lab.results) == {"test/count", "twin/test/count"}
    assert calls == [lab, lab.twin]


def test_looking_at_results_makes_no_twin():
    lab = bench()
    assert lab.results == {}
    assert "twin" not in vars(lab)
