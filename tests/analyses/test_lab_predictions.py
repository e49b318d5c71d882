"""In-distribution predictions under interventions equal whole forward passes.

A run starts from the block where the interventions begin.
"""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from small_labs import bench
from small_models import TASK, freeze

from icl_interp.analyses import bench as bench_module
from icl_interp.analyses import facts as facts_module
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.relevance import relevance
from icl_interp.errors import InputError
from icl_interp.interventions.attention import AblateHeads, SwapPattern, Temperature
from icl_interp.interventions.base import At, Intervention, first_block, intervene
from icl_interp.interventions.norms import FreezeNorms, InsertNorm
from icl_interp.interventions.outputs import MeanOutputs, sublayers
from icl_interp.models.tokens import Interleaved
from icl_interp.probes.record import Activations
from icl_interp.probes.runner import probe as run_probes
from icl_interp.probes.sweep import Sweep
from icl_interp.provenance import generator

pytestmark = pytest.mark.usefixtures("several_chunks")


class Scale(Intervention):
    """An activation times two."""

    def __init__(self, name: str) -> None:
        self.name = name

    def hooks(self, model):
        return [(self.name, lambda t, hook: 2 * t)]


def edits(lab: Lab) -> dict[str, tuple[Intervention, ...]]:
    """Interventions that begin everywhere in the model."""
    tokens = lab.tokens(lab.few).float()
    mean = MeanOutputs.measure(lab.single, tokens, sublayers(lab.single))
    found = {
        "none": (),
        "the MLP of block 1": (mean.only("blocks.1.hook_mlp_out"),),
        "the MLP of block 0": (mean.only("blocks.0.hook_mlp_out"),),
        "patterns of block 1": (SwapPattern("uniform", ((1, 0),)),),
        "patterns of block 0": (SwapPattern("uniform", ((0, 2),)),),
        "both blocks": (AblateHeads.zero((1, 1)), Temperature(3.0, ((0, 0),))),
        "the stream before block 1": (Scale("blocks.1.hook_resid_pre"),),
        "the stream before block 0": (Scale("blocks.0.hook_resid_pre"),),
        "a norm in block 1": (InsertNorm("blocks.1.hook_resid_mid"),),
        "the read-in": (Scale("hook_embed"),),
        "some tokens": (At((3, 5), SwapPattern("uniform", ((0, 1),))),),
    }
    if hasattr(lab.single, "pos_embed"):
        found["positions"] = (Scale("hook_pos_embed"),)
    if "ln_final" in lab.single.norms:
        found["the final norm"] = (freeze(lab.model, "ln_final"),)
    return found


def whole(lab: Lab, interventions) -> torch.Tensor:
    """Whole forward passes, every token computed."""
    read, points = lab.encoding.read_at(7, lab.model.cfg.attention_dir)
    with torch.no_grad(), intervene(lab.single, *interventions):
        out = lab.single(lab.tokens(lab.few).float())[:, list(read)]
    return out[:, max(2, points.start) - points.start :].double()


def check_predictions(lab: Lab, order=None):
    """In any order: what one run leaves behind is nothing to the next."""
    asked = edits(lab)
    for name in order or asked:
        out, truth = lab.predictions(*asked[name])
        assert out.shape == truth.shape
        torch.testing.assert_close(out, whole(lab, asked[name]), rtol=1e-5, atol=1e-5, msg=name)
    assert not any(hook.has_hooks() for hook in lab.single.hook_dict.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["causal interleaved", "causal stacked", "bidirectional stacked", "post-norm"]
)
def test_predictions_under_interventions(name):
    lab = bench(name)
    check_predictions(lab)
    moved = {
        edit: not torch.allclose(whole(lab, i), whole(lab, ()), rtol=1e-3)
        for edit, i in edits(lab).items()
    }
    assert moved == {edit: edit != "none" for edit in moved}


@pytest.mark.parametrize(
    "first", ["both blocks", "patterns of block 0", "the stream before block 0", "the read-in"]
)
def test_the_first_run_leaves_nothing_behind(first):
    """What is remembered of the model is that of the model itself, whatever it is asked under."""
    check_predictions(bench(), (first, "the MLP of block 1", "the final norm", "none"))


@pytest.mark.slow
def test_other_places_to_begin_are_noticed(monkeypatch):
    check_predictions(bench())
    for block in (lambda *_: 1, lambda model, i: min(first_block(model, i) + 1, 1)):
        monkeypatch.setattr(bench_module, "first_block", block)
        must_fail(check_predictions, bench())


def test_no_attention():
    lab = bench("mlp only")
    mean = MeanOutputs.measure(
        lab.single, lab.tokens(lab.few).float(), sublayers(lab.single, "mlp")
    )
    for i in ((), (mean.only("blocks.1.hook_mlp_out"),), (mean.only("blocks.0.hook_mlp_out"),)):
        torch.testing.assert_close(lab.predictions(*i)[0], whole(lab, i), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_what_is_repeated_by_head_is_asked_on_half_of_the_units():
    """32 units at least; what is not repeated by head keeps all."""
    model = bench().model
    sizes = {n: Lab(model, TASK, Interleaved(), n_units=n, n_contexts=2) for n in (4, 40, 80)}
    assert {n: lab.units_in(lab.head_sample) for n, lab in sizes.items()} == {4: 4, 40: 32, 80: 40}
    lab = sizes[80]
    assert len(lab.few) == 160
    assert torch.equal(lab.head_sample.xs, lab.few.xs[:80])
    found = relevance(lab)
    assert found.sizes["unit"] == 40

    def check(shown):
        out, truth = lab.predictions()
        assert len(out) == 80
        intact = (out - truth).square().mean((1, 2)).view(40, 2).mean(1).numpy()
        np.testing.assert_allclose(shown, intact, rtol=1e-6)

    check(found.sel(head="0.0", intervention="uniform", statistic="intact").values)
    must_fail(check, found.sel(head="0.0", intervention="uniform", statistic="intact").values[::-1])


def test_heads_of_a_large_model_are_asked_on_one_prompt_of_each_unit(monkeypatch):
    monkeypatch.setattr(facts_module, "LARGE", 10)
    lab = Lab(bench().model, TASK, Interleaved(), n_units=40, n_contexts=2)
    assert torch.equal(lab.head_sample.xs, lab.one_each.xs[:32])
    assert lab.units_in(lab.head_sample) == 32
    found = lab.measure(relevance)
    out, truth = lab.predictions()
    assert len(out) == 32
    intact = (out - truth).square().mean((1, 2)).numpy()
    np.testing.assert_allclose(
        found.sel(head="0.0", intervention="uniform", statistic="intact"), intact, rtol=1e-6
    )
    assert found.sizes["unit"] == 32


@pytest.mark.parametrize("name", ["frozen", "head_means"])
def test_means_of_a_large_model_are_those_of_float64_up_to_rounding(name, monkeypatch):
    def edited(lab):
        edit = lab.frozen if name == "frozen" else lab.head_means.only((1, 0))
        return lab.sweep((0.3, 2.0), query=[edit.at_query()])

    plain = edited(bench())
    monkeypatch.setattr(facts_module, "LARGE", 10)
    lab = bench()
    assert torch.allclose(edited(lab), plain, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(lab.sweep((0.3, 2.0)), plain, rtol=1e-3, atol=1e-3)


# ---- what is measured once -----------------------------------------------------------------------


def check_means(lab: Lab):
    """Every reference is that of its own measurement."""
    tokens, model = lab.tokens(lab.few).double(), lab.model
    found = (lab.frozen.scales, lab.sublayer_means.means, lab.head_means.means)
    expected = (
        FreezeNorms.measure(model, tokens).scales,
        MeanOutputs.measure(model, tokens, sublayers(model)).means,
        AblateHeads.measure(model, tokens, *lab.heads).means,
    )
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name, mean in one.items():
            torch.testing.assert_close(mean, other[name], rtol=1e-10, atol=1e-10)
    assert lab.head_means.heads == tuple(lab.heads)


def test_references_are_measured_in_one_pass(monkeypatch):
    calls = []
    whole = bench_module.mean_activations
    monkeypatch.setattr(bench_module, "mean_activations", lambda *a: calls.append(a) or whole(*a))
    check_means(bench())
    assert len(calls) == 1
    lab = bench()
    lab.few = (
        lab.prompts
    )  # a mutant: of all prompts instead of two a unit, where `few` is asked for later
    assert lab.frozen
    lab.few = bench().few
    must_fail(check_means, lab)


def test_a_sample_is_drawn_once():
    """Whoever asks again gets the same object, which lets contexts be read once.

    Whoever asks for another sample gets another object.
    """
    lab = bench()
    assert lab.units("one") is lab.units("one")
    assert lab.functions("one") is lab.units("one", n_units=lab.n_units * lab.n_contexts)
    for other in (
        lab.units("two"),
        lab.units("one", n_contexts=2),
        lab.units("one", n_units=2),
        bench().units("one"),
    ):
        assert other is not lab.units("one")
    assert torch.equal(bench().units("one").xs, lab.units("one").xs)


def check_single(lab: Lab, prompts):
    """In float32: the query of each prompt at its own place and another, against whole prompts."""
    moved = replace(prompts, xs=torch.cat([prompts.xs[:, :-1], prompts.xs[:, -1:] / 2], 1))
    asked = [Sweep(lab.few, lab.few.xs[:, -1:] / k, ("query",)) for k in (1, 2)]
    for found, shown in zip(lab.run_single(asked), (prompts, moved), strict=True):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found[:, 0], lab.predict(shown)[:, -1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["causal interleaved", "causal stacked", "bidirectional stacked"])
def test_sweeps_of_the_model_in_float32(name):
    lab = bench(name)
    check_single(lab, lab.few)
    must_fail(check_single, lab, lab.few.first(lab.few.n_points - 1))
    with (
        intervene(lab.model, SwapPattern("uniform")),
        pytest.raises(InputError, match="attach interventions to"),
    ):
        lab.run_single([])


def check_read_in_float32(lab: Lab, close: float):
    """What probes read of whole prompts on the model that reads contexts, against float64."""
    found, expected = (Activations(["blocks.1.hook_resid_post"]) for _ in range(2))
    lab.read(lab.few, [found])
    run_probes(lab.model, lab.few, [expected], lab.encoding)
    (a,), (b,) = found.recorded.values(), expected.recorded.values()
    assert (a.double() - b).abs().max() <= close * b.abs().max()


def test_whole_prompts_of_a_large_model_are_read_in_float32(monkeypatch):
    check_read_in_float32(bench(), 1e-14)
    monkeypatch.setattr(facts_module, "LARGE", 1)
    check_read_in_float32(bench(), 1e-5)
    must_fail(check_read_in_float32, bench(), 1e-14)


def test_weights_that_cancel_are_asked_in_float64(monkeypatch):
    """Two large heads that cancel change nothing but the rounding of float32."""
    plain = bench()
    cancelling = two_heads_that_cancel(plain.model, 1e6)
    lab = Lab(cancelling, plain.task, plain.encoding, n_units=8, n_contexts=1)
    expected = lab.predict(lab.prompts, double=True)

    def close(found):
        assert (
            found - expected
        ).nan_to_num().abs().max() < 1e-3 * expected.nan_to_num().abs().max()

    assert plain.single.numbers.dtype == torch.float32
    assert lab.single.numbers.dtype == torch.float64
    close(lab.predict(lab.prompts))
    monkeypatch.setattr(bench_module, "ROUNDED", np.inf)
    single = Lab(cancelling, plain.task, plain.encoding, n_units=8, n_contexts=1)
    must_fail(close, single.predict(lab.prompts))


def two_heads_that_cancel(model, size):
    """The model with heads 0 and 1 of the first block writing opposite large vectors as well."""
    found = copy.deepcopy(model).double()
    block = found.blocks[0].attn
    with torch.no_grad():
        for name in ("W_Q", "b_Q", "W_K", "b_K", "W_V", "b_V"):
            weight = getattr(block, name)
            weight[1] = weight[0]
        extra = size * torch.randn(block.W_O[0].shape, generator=generator(0, "test"))
        block.W_O[0] += extra
        block.W_O[1] -= extra
    return found
