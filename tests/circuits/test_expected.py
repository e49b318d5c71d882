"""What gradients expect of parts and edges is what small differences show."""

import pytest
import torch
from helpers import must_fail
from small_models import PROMPTS, TASK, make

import icl_interp
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.circuits import expected
from icl_interp.circuits.nodes import Ablated
from icl_interp.circuits.search import edges_between
from icl_interp.interventions.base import intervene
from icl_interp.interventions.edges import PutEdges, written
from icl_interp.interventions.put import PutActivations

AFFINE = icl_interp.load("affine")
STEP = 1e-5  # of the way to the mean


def expected_by_differences(search, edit_by):
    """The rise of the squared error to first order in each edit, by central differences.

    Args:
        search: the model and its prompts, all in one run.
        edit_by: makes the interventions that go a share of the way to the means, by name.
    """

    def said(edit):
        with torch.no_grad(), intervene(search.model, edit):
            return search.model(search.tokens)[:, -1, 0]

    with torch.no_grad():
        gap = search.model(search.tokens)[:, -1, 0] - search.truth
    rises = {}
    for name in edit_by(0.0):
        moved = (said(edit_by(STEP)[name]) - said(edit_by(-STEP)[name])) / (2 * STEP)
        rises[name] = float(((gap + moved).square() - gap.square()).mean())
    return rises


def check_rises(found, wanted):
    assert found == pytest.approx(wanted, rel=1e-5, abs=1e-9)


@pytest.fixture
def double_in_parts(monkeypatch):
    """A model in float64 whose prompts are run five at a time."""

    def chunks(model, n, n_tokens):
        return [slice(start, start + 5) for start in range(0, n, 5)]

    monkeypatch.setattr(expected, "chunks", chunks)
    model = make("pre").double()
    of_model = Checkpoint(**{**vars(AFFINE), "model": model, "task": TASK})
    return Ablated.measure(of_model, PROMPTS)


def test_gradients_expect_of_parts_what_differences_show(double_in_parts):
    search = double_in_parts
    _, cache = search.model.run_with_cache(search.tokens)

    def edit_by(share):
        edits = {}
        for part in search.parts:
            kind, place = part.split()
            layer, _, head = place.partition(".")
            hook = f"blocks.{layer}.attn.hook_z" if head else f"blocks.{layer}.hook_mlp_out"
            # The other heads of the layer keep what they have: they do not read this one.
            value = cache[hook].clone()
            own = value[:, :, int(head)] if head else value
            own += share * (own.mean(0) - own)
            edits[part] = PutActivations({hook: value})
        return edits

    found = expected.expected_moves(search).rises()
    wanted = expected_by_differences(search, edit_by)
    check_rises(found, wanted)
    must_fail(check_rises, {name: -rise for name, rise in found.items()}, wanted)


def test_gradients_expect_of_edges_what_differences_show(double_in_parts):
    search = double_in_parts
    edges = edges_between(search.model, search.parts)
    own = written(search.model, search.tokens)

    def edit_by(share):
        moved = {name: v + share * (v.mean(0, keepdim=True) - v) for name, v in own.items()}
        return {edge: PutEdges((edge,), moved) for edge in edges}

    found = expected.expected_moves_of_edges(search, edges).rises()
    wanted = expected_by_differences(search, edit_by)
    check_rises(found, wanted)
    must_fail(check_rises, {name: -rise for name, rise in found.items()}, wanted)
