"""Circuits: the planted one is found, numbers are those of plain ablation, refusals by name."""

import numpy as np
import pytest
import torch
from helpers import must_fail
from own_hooks import of
from small_models import PROMPTS, TASK, make

import icl_interp
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.circuits import attribute_edges, circuit, patch_activations, patch_paths
from icl_interp.circuits import search as search_module
from icl_interp.circuits.nodes import Ablated
from icl_interp.circuits.search import edges_between
from icl_interp.errors import InputError
from icl_interp.figures import circuit_graph, edge_matrix, render
from icl_interp.interventions.patching import patch
from icl_interp.testing.planted import planted

pytestmark = pytest.mark.slow  # each test analyses or runs models anew: half a minute in all
AFFINE = icl_interp.load("affine")
PAIRS = icl_interp.contrasts.labels(AFFINE.task, n_functions=24)


def finds_the_known_circuit(found):
    """Head 0.2 pairs each value with its input, heads 1.0 and 1.2 read (notebook `mechanism`)."""
    assert {"head 0.2", "head 1.0", "head 1.2"} <= set(found.parts)
    assert len(found.parts) <= 6
    assert {("head 1.0", "read-out"), ("head 1.2", "read-out")} <= set(found.edges)
    # What head 0.2 carries reaches the keys of both, by the MLP between.
    readers = {reader for writer, reader in found.edges if writer in ("head 0.2", "MLP 0")}
    assert {"head 1.0 k", "head 1.2 k"} <= readers
    value = found.summary.set_index("quantity")["value"]
    rise = value["error of the circuit"] - value["error of the model"]
    assert rise < 1.5 * found.tolerance  # on fresh prompts
    assert value["faithfulness"] > 0.9
    assert found.p < 0.1
    assert (found.minimality["low"] > 0).all()


def test_the_known_circuit_of_affine_comes_out():
    found = circuit(AFFINE, 0.05, n_functions=64, n_random=20)
    finds_the_known_circuit(found)
    assert "head 0.2" in found
    assert "head 2.3" not in found
    drawing = circuit_graph(found)
    assert render(drawing).layout.width
    names = [mark.words for mark in drawing.panels[0].marks if hasattr(mark, "words")]
    assert {"read-in", "read-out", *found.parts} <= set(names)
    # With a tolerance that a part less would do, the same search finds another circuit.
    must_fail(finds_the_known_circuit, circuit(AFFINE, 0.6, n_functions=32, n_random=5))


@torch.no_grad()
def test_errors_are_those_of_plain_runs_with_means_put_in():
    model = make("pre")
    one = Ablated.measure(Checkpoint(**{**vars(AFFINE), "model": model, "task": TASK}), PROMPTS)
    _, cache = model.run_with_cache(one.tokens)

    def mean_of(t, hook):
        return cache[hook.name].mean(0).expand_as(t)

    def head(t, hook):
        edited = t.clone()
        edited[:, :, 1] = cache[hook.name][:, :, 1].mean(0)
        return edited

    hooks = [("blocks.0.attn.hook_z", head), ("blocks.1.hook_mlp_out", mean_of)]
    out = model.run_with_hooks(one.tokens, fwd_hooks=hooks)[:, -1, 0]
    truth = PROMPTS.ys[:, -1, 0].double()
    want = (out - truth).square() / truth.square().mean()
    found = one.without(["head 0.1", "MLP 1"])
    torch.testing.assert_close(found, want, rtol=1e-9, atol=1e-11)
    must_fail(torch.testing.assert_close, one.without(["head 0.2", "MLP 1"]), want)


def test_two_parts_that_cancel_leave_together(monkeypatch):
    """Of a model that is set by hand, with two heads in each layer whose terms cancel."""
    one = planted("places", 2)
    assert one.decoy == "cancelling pair"

    def exact(found):
        assert set(found.parts) == one.truth.parts
        assert set(found.edges) == one.truth.edges

    some = {"tolerance": 0.02, "n_functions": 64, "n_random": 1}
    exact(circuit(one.checkpoint, **some))
    # One by one they stay.
    monkeypatch.setattr(search_module.Expected, "cancelling", lambda self, kept: [])
    must_fail(exact, circuit(one.checkpoint, **some))


def test_edges_that_the_search_did_not_come_to_are_counted():
    found = circuit(AFFINE, n_functions=16, n_random=1, n_runs=3)
    assert 0 < found.n_untried <= len(found.edges)
    more = circuit(AFFINE, n_functions=16, n_random=1)
    assert more.n_untried == 0
    assert set(more.edges) < set(found.edges)
    assert more.parts == found.parts


def test_edges_of_a_circuit_are_those_between_its_parts():
    model = make("pre")
    found = edges_between(model, ("head 0.1", "MLP 1"))
    assert ("read-in", "head 0.1 k") in found
    assert ("head 0.1", "MLP 1") in found
    assert ("MLP 1", "read-out") in found
    assert len(found) == 3 + 2 + 3


def test_activations_are_patched_as_by_patch():
    """`share` is what `interventions.patch` gives with the share as its metric."""
    way = icl_interp.contrasts.Way.of(AFFINE, PAIRS)
    tokens = [AFFINE.encoding.encode(one) for one in (PAIRS.clean, PAIRS.corrupted)]
    for activation, by in (("z", ("head",)), ("pattern", ("head",)), ("resid_mid", ("token",))):
        want = patch(
            AFFINE.model, *tokens, lambda out: way.share(out[:, -1, 0].double()), activation, by=by
        )
        found = patch_activations(AFFINE, PAIRS, activation, by)
        np.testing.assert_allclose(found["share"], want.values.ravel(), rtol=1e-5, atol=1e-6)
        assert list(found)[: 1 + len(by)] == ["layer", *by]
    assert found["q"].min() < 0.05


def test_edges_are_estimated_near_what_they_are():
    for method, limit in (("first order", 0.1), ("integrated", 0.05)):
        found = attribute_edges(AFFINE, PAIRS, method=method, n_checked=8)
        assert found.error < limit
        check = found.check.set_index(["writer", "reader"])
        exact = patch_paths(AFFINE, PAIRS, list(check.index)).set_index(["writer", "reader"])
        np.testing.assert_allclose(check["exact"], exact["share"], rtol=1e-9)
    assert found.matrix.sel(writer="head 1.2", reader="read-out") > 0.3
    assert np.isnan(found.matrix.sel(writer="head 1.2", reader="MLP 0"))
    assert render(edge_matrix(found)).layout.width


def random_checkpoint(name, **change):
    return Checkpoint(**{**vars(AFFINE), "model": make(name, **change), "task": TASK})


@pytest.mark.parametrize("call", [patch_paths, attribute_edges])
@pytest.mark.parametrize("name", ["post", "norm on outputs"])
def test_edges_of_a_stream_that_is_no_sum_are_refused(call, name):
    pairs = icl_interp.contrasts.labels(TASK, n_functions=4)
    with pytest.raises(InputError, match="norm_position"):
        call(random_checkpoint(name), pairs)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: circuit(AFFINE, 0.0), "tolerance must be a number above 0"),
        (lambda: circuit("affine"), "needs a checkpoint with a task, but got a str"),
        (lambda: circuit(AFFINE, n_functions=2), "n_functions must be a whole number from 8"),
        (lambda: circuit(AFFINE, n_runs=0), "n_runs must be a whole number from 1"),
        (lambda: attribute_edges(AFFINE, PAIRS, method="second"), "unknown method 'second'"),
        (lambda: patch_paths(AFFINE, PAIRS, []), "at least one path"),
        (lambda: patch_activations(AFFINE, PAIRS, "zz"), "unknown activation 'zz'"),
        (lambda: patch_activations(AFFINE, PAIRS, "mlp_out"), "has no axis 'head'"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(call, match):
    with pytest.raises(InputError, match=match):
        call()


def test_a_model_that_has_nothing_to_lose_is_refused():
    """What varies with prompts without relation to them is an error that means take away."""
    found = random_checkpoint("attention only", normalization_type=None, n_layers=1)
    with torch.no_grad():
        found.model.unembed.W_U *= 30
    with pytest.raises(InputError, match="nothing that a circuit could keep"):
        circuit(found, n_functions=32)


def test_the_circuit_of_an_adapted_module_is_that_of_the_model():
    some = {"n_functions": 16, "n_random": 2}
    expected = circuit(AFFINE, **some)

    def same(found):
        assert found.parts == expected.parts
        assert found.edges == expected.edges
        np.testing.assert_allclose(found.summary["value"], expected.summary["value"], rtol=1e-6)

    module = of(AFFINE)
    same(circuit(module, **some))
    must_fail(same, circuit(module, **some, seed=1))
    paths = [("head 0.2", "head 1.0 k"), ("MLP 0", "read-out")]
    for call, asked in (
        (patch_paths, {"pairs": paths}),
        (patch_activations, {}),
        (patch_activations, {"activation": "mlp_out", "by": ()}),
    ):
        found, wanted = (call(one, PAIRS, **asked)["share"] for one in (module, AFFINE))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)
        with pytest.raises(AssertionError):
            np.testing.assert_allclose(found, 1.01 * wanted, rtol=1e-5, atol=1e-7)
    found, wanted = (attribute_edges(one, PAIRS, n_checked=4).table for one in (module, AFFINE))
    np.testing.assert_allclose(found["share"], wanted["share"], rtol=1e-5, atol=1e-7)


def test_parts_that_were_not_named_are_no_parts():
    """A module may have no MLPs, or nobody asks for them: what was not named stays as it is."""
    module = of(AFFINE, without=("mlp",))
    prompts = AFFINE.task.sample(8, icl_interp.provenance.generator(0, "test/circuits"))
    found = Ablated.measure(module, prompts)
    heads = tuple(part for part in Ablated.measure(AFFINE, prompts).parts if "head" in part)
    assert found.parts == heads
    expected = Ablated.measure(AFFINE, prompts).without(heads)
    torch.testing.assert_close(found.without(heads), expected)


@pytest.mark.parametrize(
    ("without", "call", "match"),
    [
        (("hook_z",), circuit, r"no blocks\.0\.attn\.hook_z: .*; give points="),
        (("0.hook_mlp_out",), circuit, r"no blocks\.0\.hook_mlp_out: .*; give points="),
        (("hook_result",), circuit, r"no blocks\.0\.attn\.hook_result: .*; give points="),
        (("hook",), circuit, r"no blocks\.0\.attn\.hook_result: .*; give points="),
        (("mlp",), circuit, "edges need a stream that is the sum"),
        (("1.hook_k_input",), attribute_edges, r"no blocks\.1\.hook_k_input: .*; give points="),
        (("1.hook_k_input",), patch_paths, r"no blocks\.1\.hook_k_input: .*; give points="),
        (("hook_z",), patch_activations, r"no blocks\.0\.attn\.hook_z: .*; give points="),
    ],
)
def test_an_adapted_module_says_what_was_not_named(without, call, match):
    module = of(AFFINE, without=without)
    asked = (module,) if call is circuit else (module, PAIRS)
    with pytest.raises(InputError, match=match) as refused:
        call(*asked)
    assert "\n" not in str(refused.value)


def test_an_adapted_module_without_a_task_is_told_so():
    module = of(Checkpoint(**{**vars(AFFINE), "task": AFFINE.task}))
    module.task = None
    with pytest.raises(InputError, match=r"icl_interp\.adapt takes task="):
        circuit(module)
