"""Probes: that they stream, what they take and refuse, and that they only read.

Their numbers: tests/probes.
"""

import inspect
import json
import weakref
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from helpers import must_fail
from small_models import MODELS, PROMPTS, TASK, make, tokens_for

import icl_interp
from icl_interp.errors import InputError
from icl_interp.interventions.attention import Temperature
from icl_interp.interventions.base import intervene
from icl_interp.models.hooks import listened
from icl_interp.models.tokens import Interleaved, Stacked
from icl_interp.probes import base
from icl_interp.probes.attention import AttentionEntropy
from icl_interp.probes.base import Probe, observe
from icl_interp.probes.heads import HeadOrthogonality
from icl_interp.probes.maps import map_orthogonality
from icl_interp.probes.norms import LayerNormScale
from icl_interp.probes.residual import LogitLens, ResidualStream
from icl_interp.probes.runner import probe
from icl_interp.provenance import generator
from icl_interp.results import to_dict

# Streaming ----------------------------------------------------------------------------------------


def check_same(one, other):
    assert one.keys() == other.keys()
    for key in one:
        assert one[key].coords.to_dataset().identical(other[key].coords.to_dataset())
        np.testing.assert_allclose(
            one[key].values, other[key].values, rtol=1e-6, atol=1e-7, err_msg=key
        )


def applicable(model):
    every = (
        ResidualStream(),
        LogitLens(),
        LayerNormScale(),
        AttentionEntropy(),
        HeadOrthogonality(),
    )
    return [p for p in every if not p.refusal(model)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pre", "post", "mlp only", "bidirectional"])
def test_a_stream_equals_one_batch(name):
    model = make(name)
    used = applicable(model)
    whole = probe(model, PROMPTS, used)
    check_same(whole, probe(model, PROMPTS, used, batch_size=7))
    check_same(
        whole, probe(model, (PROMPTS[i : i + 5] for i in range(0, 24, 5)), used, batch_size=3)
    )
    must_fail(check_same, whole, probe(model, PROMPTS[:23], used))


def state_size(p):
    """Numbers held by a probe's statistics, whatever it wraps them in."""
    seen, total, stack = set(), 0, [v for k, v in vars(p).items() if k != "_model"]
    while stack:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            total += item.numel()
        elif isinstance(item, dict):
            stack += item.values()
        elif isinstance(item, (list, tuple)):
            stack += item
        elif hasattr(item, "__dict__"):
            stack += vars(item).values()
    return total


class KeepsEverything(Probe):
    """What a streaming probe must not be."""

    name = "keeps_everything"

    def hooks(self, model, positions):
        self.kept = []
        return [("hook_embed", lambda t, hook: self.kept.append(t))]

    def results(self):
        return {}


def check_constant_memory(make_probe):
    model, alive, p = make(), [], make_probe()

    def stream(n):
        for i in range(n):
            prompts = TASK.sample(8, generator(0, "stream", i))
            alive.append(weakref.ref(prompts))
            assert sum(ref() is not None for ref in alive) <= 3
            yield prompts

    probe(model, stream(2), [p])
    few = state_size(p)
    probe(model, stream(9), [p])
    assert few == state_size(p) > 0


@pytest.mark.parametrize(
    "make_probe", [ResidualStream, LogitLens, LayerNormScale, AttentionEntropy, HeadOrthogonality]
)
def test_memory_is_constant_in_the_number_of_prompts(make_probe):
    check_constant_memory(make_probe)


def test_a_probe_that_keeps_everything_is_noticed():
    must_fail(check_constant_memory, KeepsEverything)


def test_a_probe_starts_anew_each_time():
    p, model = ResidualStream(), make()
    first = probe(model, PROMPTS, [p])
    probe(model, TASK.sample(9, generator(5, "other")), [p])
    check_same(first, probe(model, PROMPTS, [p]))


# What goes in and comes out -----------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_default_probes_are_those_that_apply(name):
    model = make(name)
    results = icl_interp.probe(model, PROMPTS)
    expected = {"residual_stream", "logit_lens"}
    expected |= {"layernorm_scale"} if model.norms else set()
    expected |= (
        {"attention_entropy"}
        if not model.cfg.mlp_only and model.cfg.score_fn != "linear"
        else set()
    )
    expected |= (
        {"head_orthogonality"} if not model.cfg.mlp_only and model.cfg.n_heads > 1 else set()
    )
    assert {key.split(".")[0] for key in results} == expected
    for key, result in results.items():
        assert np.shape(json.loads(json.dumps(to_dict(result)))["values"]) == result.values.shape, (
            key
        )


def test_a_checkpoint_brings_its_encoding():
    class Checkpoint:
        model, encoding = make("bidirectional"), Stacked()

    tokens = Stacked().encode(PROMPTS)
    whole = probe(Checkpoint(), PROMPTS, [ResidualStream()])
    check_same(whole, probe(Checkpoint(), tokens, [ResidualStream()]))
    check_same(whole, probe(Checkpoint.model, tokens, [ResidualStream()], encoding=Stacked()))
    bare = probe(Checkpoint.model, tokens, [ResidualStream()])
    assert tuple(bare["residual_stream.norm"].indexes["position"]) == ("token", "query")


def test_a_probe_inside_an_intervention_sees_what_it_left():
    model = make()
    with intervene(model, Temperature(1e6)):
        inside = probe(model, PROMPTS, [AttentionEntropy()])
    deficit = inside["attention_entropy.deficit"].sel(statistic="mean").values
    np.testing.assert_allclose(deficit, 0, atol=1e-6)
    assert (
        probe(model, PROMPTS, [AttentionEntropy()])["attention_entropy.deficit"]
        .sel(statistic="mean")
        .values.min()
        > 1e-3
    )


class Named(ResidualStream):
    name = "mine"


class EditsInPlace(Probe):
    name = "edits"

    def hooks(self, model, positions):
        return [("hook_embed", lambda t, hook: t.mul_(2))]

    def results(self):
        return {}


class Returns(EditsInPlace):
    def hooks(self, model, positions):
        return [("hook_embed", lambda t, hook: t * 2)]


class Misnamed(EditsInPlace):
    def hooks(self, model, positions):
        return [("blocks.0.hook_resid_past", lambda t, hook: None)]


@pytest.mark.parametrize(
    ("name", "prompts", "used", "message"),
    [
        ("pre", [], None, "no prompts to probe"),
        ("pre", PROMPTS[:0], None, "no prompts to probe"),
        (
            "pre",
            [PROMPTS, PROMPTS.first(4)],
            None,
            "equally long, but some have 13 tokens and some 7",
        ),
        (
            "pre",
            torch.zeros(2, 13),
            None,
            r"tokens must have shape \(batch, token, d_in\), but got \(2, 13\)",
        ),
        ("pre", torch.zeros(2, 17, 1), None, "n_ctx=16 tokens is too short"),
        ("bidirectional", torch.zeros(2, 3, 1), None, "d_in=2"),
        (
            "no norm",
            PROMPTS,
            [LayerNormScale()],
            "probe layernorm_scale: this model has no normalisation",
        ),
        ("linear", PROMPTS, [AttentionEntropy()], "probe attention_entropy: linear scores"),
        ("mlp only", PROMPTS, [AttentionEntropy()], "no attention"),
        ("mlp only", PROMPTS, [HeadOrthogonality()], "no attention heads"),
        ("one head", PROMPTS, [HeadOrthogonality()], "one head a layer"),
        (
            "pre",
            PROMPTS,
            [ResidualStream(), ResidualStream()],
            "two probes are called 'residual_stream'",
        ),
        ("pre", PROMPTS, [], "at least one probe"),
        ("pre", PROMPTS, [Misnamed()], "unknown hook 'blocks.0.hook_resid_past': did you mean"),
        ("pre", PROMPTS, [EditsInPlace()], "probe edits edited hook_embed in place"),
    ],
)
def test_probe_refuses(name, prompts, used, message):
    model = make(name)
    with pytest.raises(InputError, match=message):
        probe(model, prompts, used)
    assert not any(listened(module) for module in model.modules())


def test_probe_refuses_what_is_of_the_wrong_kind():
    # Past the run-time type checker of the tests, which would speak first.
    prompts_of, resolve, started = (
        inspect.unwrap(f) for f in (base.prompts_of, base.resolve, base.started)
    )
    with pytest.raises(InputError, match=r"expected Prompts, tokens .* but got str"):
        next(prompts_of(["affine"], 8))
    with pytest.raises(InputError, match=r"expected Prompts, tokens .* but got int"):
        next(prompts_of(7, 8))
    with pytest.raises(
        InputError, match="expected a HookedTransformer or a Checkpoint, but got 'affine'"
    ):
        resolve("affine", None)
    with pytest.raises(InputError, match="must be an instance of Probe"):
        started(make(), [ResidualStream], {})


def test_probe_refuses_half_prompts_and_other_nonsense():
    with pytest.raises(InputError, match="12 tokens are no whole interleaved prompt"):
        probe(make(), torch.zeros(2, 12, 1), encoding=Interleaved())
    with pytest.raises(InputError, match="batch_size must be at least 1"):
        probe(make(), PROMPTS, batch_size=0)
    with pytest.raises(InputError, match=r"share must lie in \(0, 1\]"):
        HeadOrthogonality(share=0)
    with pytest.raises(InputError, match="one head a layer"):
        map_orthogonality(make("one head"))


def test_probes_of_ones_own():
    results = probe(make(), PROMPTS, [ResidualStream(), Named()])
    mine, ours = (
        {k.split(".")[1]: r for k, r in results.items() if k.startswith(p)}
        for p in ("mine.", "residual")
    )
    check_same(mine, ours)


# They only read -----------------------------------------------------------------------------------


def check_only_reads(model, tokens, attached):
    """Attached: bit-identical.

    Afterwards, also after an exception: bit-identical, and nothing left behind.
    """
    with torch.no_grad():
        before = model(tokens)
        with attached(model):
            assert any(listened(module) for module in model.modules())
            assert torch.equal(model(tokens), before)
        assert torch.equal(model(tokens), before)
        with pytest.raises(ZeroDivisionError), attached(model):
            1 / 0  # noqa: B018
        assert torch.equal(model(tokens), before)
        assert not any(listened(module) for module in model.modules())


def with_probes(*used):
    positions = {"token": range(5), "query": [5]}
    return lambda model: observe(model, *used, positions=positions)


@pytest.mark.parametrize("name", MODELS)
def test_probes_only_read(name):
    model = make(name).float()  # the precision models are trained and used in
    check_only_reads(model, tokens_for(model), with_probes(*applicable(model)))


def test_what_a_probe_returns_changes_nothing():
    model = make()
    check_only_reads(model, tokens_for(model), with_probes(Returns()))


@contextmanager
def stays_behind(model):
    model.add_hook("hook_embed", lambda t, hook: None)
    yield


def test_editing_and_staying_are_noticed():
    tokens = tokens_for(make())
    must_fail(check_only_reads, make(), tokens, lambda model: intervene(model, Temperature(2.0)))
    must_fail(check_only_reads, make(), tokens, stays_behind)


def test_nothing_is_left_after_a_failure_in_a_probe_or_a_stream():
    class Breaks(Returns):
        def hooks(self, model, positions):
            return [("hook_embed", lambda t, hook: 1 / 0)]

    def broken_stream():
        yield PROMPTS
        raise ZeroDivisionError

    model = make()
    tokens = tokens_for(model)
    before = model(tokens)
    for prompts, used in ((PROMPTS, Breaks()), (broken_stream(), ResidualStream())):
        with pytest.raises(ZeroDivisionError):
            probe(model, prompts, [used])
        assert not any(listened(module) for module in model.modules())
        assert torch.equal(model(tokens), before)


def test_a_stream_may_run_the_model_itself():
    model, p = make(), ResidualStream()

    def stream():
        for i in range(0, 24, 8):
            model(tokens_for(model, TASK.sample(50, generator(9, "noise", i))))
            yield PROMPTS[i : i + 8]

    check_same(probe(model, PROMPTS, [p]), probe(model, stream(), [p]))
