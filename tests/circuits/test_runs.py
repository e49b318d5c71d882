"""A run that begins at a block predicts what a whole run predicts, or every run is a whole one."""

import pytest
import torch
from helpers import must_fail
from own_hooks import of
from small_models import EVERY, TASK, make, several, tokens_for

import icl_interp
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.circuits import nodes
from icl_interp.circuits.nodes import Ablated
from icl_interp.circuits.runs import Run
from icl_interp.interventions.attention import AblateHeads
from icl_interp.interventions.base import first_block, intervene
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator

NAMES = ("pre", "post", "norm on outputs", "bidirectional")


def whole(model, tokens, *edits):
    """Predictions at the query of one plain forward pass."""
    with torch.no_grad(), intervene(model, *edits):
        return model(tokens)[:, -1]


def same(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("edit", EVERY)
def test_a_run_from_a_block_on_predicts_what_a_whole_one_does(name, edit):
    model = make(name, n_layers=3)
    tokens = tokens_for(model)
    edits = several(EVERY[edit](model))
    start = Run.of(model, tokens)
    assert sorted(start.streams) == [1, 2]
    same(start.out, whole(model, tokens))
    found = start.again(max(first_block(model, edits), 0), *edits)
    same(found.out, whole(model, tokens, *edits))
    # Another run may begin at that one, as long as it holds the same edits still.
    last = AblateHeads.zero((2, 1))
    further = found.again(2, *edits, last)
    same(further.out, whole(model, tokens, *edits, last))
    must_fail(same, start.again(2, last).out + 1e-9, whole(model, tokens, last))


def test_a_run_that_begins_too_late_misses_an_edit():
    model = make("pre", n_layers=3)
    tokens = tokens_for(model)
    edit = AblateHeads.zero((0, 1))
    must_fail(same, Run.of(model, tokens).again(1, edit).out, whole(model, tokens, edit))


class Clamped(HookedTransformer):
    """A class of one's own, whose forward pass does more than its blocks."""

    def forward(self, tokens, positions=None):
        return super().forward(tokens, positions).clamp(-0.1, 0.1)


def test_models_whose_blocks_are_not_all_run_whole():
    """Their own class, a function in the place of `forward`, and noise in each pass."""
    model = make("pre")
    tokens = tokens_for(model)
    edit = AblateHeads.zero((1, 1))
    clamped = Clamped(model.cfg).eval().double()
    clamped.load_state_dict(model.state_dict())
    patched = make("pre")
    patched.forward = clamped.forward
    for one in (clamped, patched):
        start = Run.of(one, tokens)
        assert not start.streams
        same(start.again(1, edit).out, whole(one, tokens, edit))
        must_fail(same, start.again(1, edit).out, whole(model, tokens, edit))
    noisy = make("pre")
    noisy.blocks[1].hook_mlp_out.forward = lambda t: t + torch.randn_like(t)
    assert not Run.of(noisy, tokens).streams
    # An adapted module has no way in.
    affine = icl_interp.load("affine")
    prompts = affine.task.sample(4, generator(0, "test/runs"))
    module = of(affine)
    few = affine.encoding.encode(prompts).to(module.numbers)
    assert not Run.of(module, few).streams


def ablated(**change):
    affine = icl_interp.load("affine")
    model = make("pre", n_layers=3, **change)
    one = Checkpoint(**{**vars(affine), "model": model, "task": TASK})
    return Ablated.measure(one, TASK.sample(24, generator(0, "test/runs")))


def test_what_is_known_of_one_set_changes_nothing_of_another(monkeypatch):
    """Errors of sets of parts, each from another set than before, are those of whole runs."""
    monkeypatch.setattr(nodes, "chunks", lambda *given: [slice(0, 10), slice(10, 24)])
    random = torch.Generator().manual_seed(0)
    search = ablated()
    sets = []
    for _ in range(12):
        drawn = torch.rand(len(search.parts), generator=random) < 0.4
        sets.append([part for part, gone in zip(search.parts, drawn, strict=True) if gone])
    late = [part for part in search.parts if " 2" in part]
    for removed in (*sets, *[[*sets[-1], part] for part in late]):
        same(search.without(removed), ablated().without(removed))
        search.begin_at(removed)
    assert all(run.streams for run in search._start.runs)
    must_fail(same, search.without(sets[0]), ablated().without(sets[1]))
    # Where streams would take too much memory none are kept.
    monkeypatch.setattr(nodes, "KEPT", 100)
    large = ablated()
    large.begin_at(sets[0])
    assert not any(run.streams for run in large._start.runs)
    same(large.without(sets[1]), search.without(sets[1]))


def test_what_begins_at_a_set_runs_fewer_blocks():
    search = ablated()
    ran = []

    def count(module, given, out):
        ran.append(module)

    for block in search.model.blocks:
        block.register_forward_hook(count)
    search.begin_at(["head 0.1"])
    ran.clear()
    search.without(["head 0.1", "head 2.0"])
    assert len(ran) == 1
    ran.clear()
    search.without(["head 0.1", "head 0.2"])
    assert len(ran) == 3
