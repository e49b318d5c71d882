"""In-distribution predictions under interventions: taken up where these begin, and equal to whole forward passes."""

import numpy as np
import pytest
import torch
from helpers import must_fail
from labs import bench
from small_models import TASK, freeze

from icl_interp.analyses import lab as lab_module
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.relevance import relevance
from icl_interp.interventions.attention import AblateHeads, SwapPattern, Temperature
from icl_interp.interventions.base import At, Intervention, first_block, intervene
from icl_interp.interventions.norms import InsertNorm
from icl_interp.interventions.outputs import MeanOutputs, sublayers
from icl_interp.models.tokens import Interleaved

pytestmark = pytest.mark.usefixtures("several_chunks")


class Scale(Intervention):
    """An activation times two."""

    def __init__(self, name: str) -> None:
        self.name = name

    def hooks(self, model):
        return [(self.name, lambda t, hook: 2 * t)]


def edits(lab: Lab) -> dict[str, tuple[Intervention, ...]]:
    """Interventions that begin everywhere in the model."""
    tokens = lab.tokens(lab.small_sample).float()
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
        out = lab.single(lab.tokens(lab.small_sample).float())[:, list(read)]
    return out[:, max(2, points.start) - points.start :].double()


def check_predictions(lab: Lab, order=None):
    """In any order: what one run leaves behind is nothing to the next."""
    asked = edits(lab)
    for name in order or asked:
        out, truth = lab.predictions(*asked[name])
        assert out.shape == truth.shape
        torch.testing.assert_close(out, whole(lab, asked[name]), rtol=1e-5, atol=1e-5, msg=name)
    assert not any(hook.has_hooks() for hook in lab.single.hook_dict.values())


@pytest.mark.parametrize("name", ["causal interleaved", "causal stacked", "bidirectional stacked", "post-norm"])
def test_predictions_under_interventions(name):
    lab = bench(name)
    check_predictions(lab)
    moved = {edit: not torch.allclose(whole(lab, i), whole(lab, ()), rtol=1e-3) for edit, i in edits(lab).items()}
    assert moved == {edit: edit != "none" for edit in moved}


@pytest.mark.parametrize("first", ["both blocks", "patterns of block 0", "the stream before block 0", "the read-in"])
def test_the_first_run_leaves_nothing_behind(first):
    """What is remembered of the model is that of the model itself, whatever it is first asked under."""
    check_predictions(bench(), (first, "the MLP of block 1", "the final norm", "none"))


def test_other_places_to_begin_are_noticed(monkeypatch):
    check_predictions(bench())
    for block in (lambda *_: 1, lambda model, i: min(first_block(model, i) + 1, 1)):
        monkeypatch.setattr(lab_module, "first_block", block)
        must_fail(check_predictions, bench())


def test_no_attention():
    lab = bench("mlp only")
    mean = MeanOutputs.measure(lab.single, lab.tokens(lab.small_sample).float(), sublayers(lab.single, "mlp"))
    for i in ((), (mean.only("blocks.1.hook_mlp_out"),), (mean.only("blocks.0.hook_mlp_out"),)):
        torch.testing.assert_close(lab.predictions(*i)[0], whole(lab, i), rtol=1e-5, atol=1e-5)


def test_of_a_large_model_one_context_a_function(monkeypatch):
    lab = bench()
    assert lab.head_sample is lab.small_sample
    assert len(lab.predictions()[0]) == 6
    monkeypatch.setattr(lab_module, "LARGE", 1)
    lab = bench()
    assert lab.head_sample is lab.one_each
    out, truth = lab.predictions(SwapPattern("uniform"))
    assert len(out) == len(truth) == 3
    torch.testing.assert_close(out, whole(lab, (SwapPattern("uniform"),))[::2], rtol=1e-5, atol=1e-5)


def test_of_a_large_model_half_of_many_functions(monkeypatch):
    """Whether a head matters is asked on 32 functions of 64; what is not repeated by head keeps all."""
    model = bench().model
    monkeypatch.setattr(lab_module, "LARGE", 1)
    lab = Lab(model, TASK, Interleaved(), n_functions=64, n_contexts=2)
    assert len(lab.few) == 64
    assert lab.head_sample.function.tolist() == list(range(32))
    assert torch.equal(lab.head_sample.xs, lab.one_each.xs[:32])
    found = relevance(lab)
    assert found.sizes["function"] == 32

    def check(shown):
        out, truth = lab.predictions()
        assert len(out) == 32
        intact = (out - truth).square().mean((1, 2)).numpy()
        np.testing.assert_allclose(shown, intact, rtol=1e-6)

    check(found.sel(head="0.0", intervention="uniform", statistic="intact").values)
    must_fail(check, found.sel(head="0.0", intervention="uniform", statistic="intact").values[::-1])


def test_few_contexts_are_the_whole_sample_where_there_are_no_more():
    model = bench().model
    two, three = (Lab(model, TASK, Interleaved(), n_functions=4, n_contexts=n) for n in (2, 3))
    assert two.small_sample is two.prompts
    assert len(three.small_sample) == 8
