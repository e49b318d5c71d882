"""Sweeps run together: each equals whole prompts, and nothing is read or computed twice."""

import copy
from dataclasses import replace

import pytest
import torch
from helpers import must_fail
from small_labs import in_fours
from small_models import encoding_of, make, tokens_for
from small_sweeps import LABELLED, MODELS, SPECIAL, XS, A, B, at, check_sweeps, close, sweeps

from icl_interp.errors import InputError
from icl_interp.interventions.attention import SwapPattern, Temperature
from icl_interp.interventions.base import Intervention
from icl_interp.models.hooks import listened
from icl_interp.models.transformer import HookedTransformer, chunks
from icl_interp.probes import sweep as sweep_module
from icl_interp.probes.attention import AttentionEntropy
from icl_interp.probes.base import Probe
from icl_interp.probes.norms import LayerNormScale
from icl_interp.probes.record import Activations
from icl_interp.probes.sweep import run


def each_alone(model, encoding, asked):
    return [run(model, encoding, [s])[0] for s in asked]


def in_reverse(model, encoding, asked):
    return run(model, encoding, asked[::-1])[::-1]


@pytest.fixture
def several_parts(monkeypatch):
    """Nine prompts in parts of four."""
    monkeypatch.setattr(sweep_module, "chunks", in_fours)


RUNS = [*((name, run) for name in MODELS), ("pre", each_alone)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "run_all"), RUNS)
def test_sweeps_equal_whole_prompts(name, run_all):
    check_sweeps(name, run_all)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pre", "bidirectional"])
def test_in_another_order_and_in_parts(name, several_parts):
    check_sweeps(name, in_reverse)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECIAL)
def test_stacked_prompts(name):
    check_sweeps(name, run)


def from_the_whole(model, encoding, asked):
    """A shorter context as the start of the whole one, which holds for causal models only."""
    remember, context = model.remember, encoding.encode(A)[:, :-1]
    model.remember = lambda tokens: [m.first(tokens.shape[1]) for m in remember(context)]
    return run(model, encoding, asked)


def test_a_context_that_sees_both_ways_is_read_at_each_length():
    check_sweeps(LABELLED, run, ("shorter",))
    check_sweeps("pre", from_the_whole, ("shorter",))
    must_fail(check_sweeps, LABELLED, from_the_whole, ("shorter",))


# ---- mutants -------------------------------------------------------------------------------------


def changed(**change):
    """Everybody's sweep with something else in it."""

    def run_all(model, encoding, asked):
        return run(
            model, encoding, [replace(s, **{k: f(s) for k, f in change.items()}) for s in asked]
        )

    return run_all


def at_another_position(model, encoding, asked):
    vectors = model.pos_embed.W_pos.data
    kept, vectors[12] = vectors[12].clone(), vectors[11]
    found = run(model, encoding, asked)
    vectors[12] = kept
    return found


def in_single(model, encoding, asked):
    return [f.double() for f in run(copy.deepcopy(model).float(), encoding, asked)]


# Each with sweeps that show it.
MUTANTS = {
    "context interventions ignored": (changed(context=lambda s: ()), "edited context"),
    "context interventions at own queries ignored": (
        changed(context=lambda s: ()),
        "own query, edited context",
    ),
    "query interventions ignored": (changed(query=lambda s: ()), "the same edit"),
    "prompts shifted": (
        changed(prompts=lambda s: s.prompts[torch.arange(len(s.prompts)).roll(1)]),
        "nothing read",
    ),
    "own queries shifted": (changed(queries=lambda s: s.queries.roll(1, 0)), "own query"),
    "another order of queries": (changed(queries=lambda s: s.queries.flip(-2)), "nothing read"),
    "another order of own queries": (
        changed(queries=lambda s: s.queries.flip(-2)),
        "two own queries",
    ),
    "other prompts": (changed(prompts=lambda s: B), "nothing read"),
    "whole context": (changed(n_points=lambda s: None), "shorter"),
    "at another position": (at_another_position, "nothing read"),
    "in float32": (in_single, "nothing read"),
    "late interventions ignored": (changed(query=lambda s: ()), "edited late"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_another_sweep_is_noticed(mutant):
    run_all, case = MUTANTS[mutant]
    check_sweeps("pre", run, (case,))
    must_fail(check_sweeps, "pre", run_all, (case,))


def first_columns(self, name, function, columns):
    return PART(self, name, function, list(range(len(columns))))


def everything(self, name, function, columns):
    return lambda t, hook: function(t, hook=hook)


PART = sweep_module._Pass._part
PATCHES = {
    "the columns of another": (sweep_module._Pass, "_part", first_columns),
    "all columns": (sweep_module._Pass, "_part", everything),
    "all interventions alike": (sweep_module, "_ids", lambda interventions: ()),
}


@pytest.mark.slow
@pytest.mark.parametrize("patch", PATCHES)
@pytest.mark.parametrize("name", ["pre", "bidirectional"])
def test_a_mix_up_of_sweeps_is_noticed(patch, name, monkeypatch):
    cases = (
        "every probe",
        "own query",
        "edited context",
        "two own queries",
        "own query, edited context",
    )
    check_sweeps(name, run, cases)
    monkeypatch.setattr(*PATCHES[patch])
    must_fail(check_sweeps, name, run, cases)


# ---- what is computed ----------------------------------------------------------------------------


def counted(model: HookedTransformer, asked, run_all=run) -> tuple[int, int]:
    """Contexts that are read, and query tokens that are computed."""
    read, computed = [], []
    remember, after = model.remember, model.after
    model.remember = lambda tokens: read.append(len(tokens)) or remember(tokens)
    model.after = lambda memory, tokens, position: (
        computed.append(tokens.shape[0] * tokens.shape[1]) or after(memory, tokens, position)
    )
    run_all(model, encoding_of(model), asked)
    return sum(read), sum(computed)


def check_contexts(run_all):
    """Nine contexts are read once for each set of interventions, whatever is asked of them."""
    names = (
        "nothing read",
        "every probe",
        "own query",
        "two own queries",
        "edited query",
        "shorter",
    )
    every = sweeps(model := make())
    one = [every[name] for name in (*names, "shorter, own queries")]
    assert counted(model, one, run_all)[0] == 9
    hot = (Temperature(3.0),)
    assert counted(make(), [at(XS), at(XS, context=hot), at((2.0,), context=hot)], run_all)[0] == 18
    assert counted(make(), [at(XS), at(XS, B), at((2.0,), B)], run_all)[0] == 18


def test_every_context_is_read_once_for_all():
    check_contexts(run)
    must_fail(check_contexts, each_alone)


def check_queries(run_all):
    """Equal places count once, own queries each by itself."""
    assert counted(make(), [at(XS), at(XS), at((5.0, 7.0))], run_all)[1] == 9 * 4
    assert counted(make(), [at(XS), at(None), at(None)], run_all)[1] == 9 * 5
    assert counted(make(), [at(XS), at(XS, query=(Temperature(3.0),))], run_all)[1] == 9 * 6


def test_equal_queries_are_computed_once():
    check_queries(run)
    must_fail(check_queries, each_alone)


def test_whoever_waits_is_told_of_every_prompt(several_parts):
    for name in ("pre", "bidirectional"):
        told, model = [], make(name)
        run(model, encoding_of(model), [at(XS), at(None)], told.append)
        assert told == [4, 4, 1]


# ---- sweeps only read ----------------------------------------------------------------------------


class Breaks(Probe):
    name = "breaks"

    def hooks(self, model, positions):
        return [("blocks.1.hook_resid_post", lambda t, hook: 1 / 0)]

    def results(self):
        return {}


class Stumbles(Intervention):
    def hooks(self, model):
        return [("blocks.0.hook_resid_post", lambda t, hook: 1 / 0)]


def check_hooks(model: HookedTransformer, run_all):
    """Probes change no bit, interventions move the output, and nothing stays, whatever happens."""
    encoding, tokens = encoding_of(model), tokens_for(model)

    def every() -> tuple[Probe, ...]:
        return sweeps(model)["every probe"].probes

    with torch.no_grad():
        before = model(tokens)
    (bare,), (again,) = (run_all(model, encoding, [at(XS)]) for _ in range(2))
    assert torch.equal(bare, again)
    (read,) = run_all(model, encoding, [at(XS, probes=every())])
    assert torch.equal(read, bare)
    for edit in ({"query": (SwapPattern("uniform"),)}, {"context": (SwapPattern("uniform"),)}):
        edited, beside = run_all(model, encoding, [at(XS, **edit), at(XS)])
        assert not torch.allclose(edited, bare, rtol=1e-3, atol=1e-3)
        close(beside, bare, edit)
    for failing in (
        at(XS, probes=(*every(), Breaks())),
        at(XS, query=(Stumbles(),)),
        at(XS, context=(Stumbles(),)),
    ):
        with pytest.raises(ZeroDivisionError):
            run_all(model, encoding, [at(XS, probes=every()), failing])
        assert not any(listened(module) for module in model.modules())
    with torch.no_grad():
        assert torch.equal(model(tokens), before)
    (after,) = run_all(model, encoding, [at(XS)])
    assert torch.equal(after, bare)


def stays_behind(model, encoding, asked):
    try:
        return run(model, encoding, asked)
    except ZeroDivisionError:
        model.add_hook("hook_embed", lambda t, hook: None)
        raise


def edits_as_it_reads(model, encoding, asked):
    return [f + bool(s.probes) for s, f in zip(asked, run(model, encoding, asked), strict=True)]


@pytest.mark.parametrize("name", MODELS)
def test_sweeps_only_read(name):
    check_hooks(make(name).float(), run)


def test_what_is_more_than_reading_is_noticed():
    must_fail(check_hooks, make().float(), stays_behind)
    must_fail(check_hooks, make().float(), edits_as_it_reads)
    must_fail(check_hooks, make().float(), changed(query=lambda s: ()))


class Edits(Breaks):
    name = "edits"

    def hooks(self, model, positions):
        return [("blocks.0.hook_resid_post", lambda t, hook: t.mul_(2))]


class ReadsItsHook(Breaks):
    """The hook point that is read says its name, in a sweep too."""

    name = "reads_its_hook"

    def hooks(self, model, positions):
        self.seen = []
        return [("blocks.0.hook_resid_post", lambda t, hook: self.seen.append(hook.name))]


@pytest.mark.parametrize("name", MODELS)
def test_a_probe_of_ones_own_in_a_sweep(name):
    model, p = make(name), ReadsItsHook()
    run(model, encoding_of(model), [at(XS, probes=(p,))])
    assert set(p.seen) == {"blocks.0.hook_resid_post"}


@pytest.mark.parametrize("name", ["pre", "mlp only", "no norm"])
def test_what_a_sweep_refuses(name):
    model = make(name)
    refused = {
        "pre": [
            (Edits(), "edited blocks.0.hook_resid_post in place"),
            (Activations(["nope"]), "unknown hook 'nope'"),
        ],
        "mlp only": [(AttentionEntropy(), "this model has no attention")],
        "no norm": [(LayerNormScale(), "no normalisation")],
    }
    for p, message in refused[name]:
        with pytest.raises(InputError, match=message):
            run(model, encoding_of(model), [at(XS), at(XS, probes=(p,))])
        assert not any(listened(module) for module in model.modules())


@pytest.mark.parametrize("n", [1, 7, 8, 9, 300])
def test_parts_hold_every_prompt_once(n):
    for n_tokens in (1, 13, 10_000):
        parts = chunks(make(), n, n_tokens)
        assert [i for part in parts for i in range(part.start, part.stop)] == list(range(n))
        assert all(part.stop - part.start <= 128 for part in parts)
    assert len(chunks(make(), 300, 10_000)) > len(chunks(make(), 300, 13))
