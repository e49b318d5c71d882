"""The subject of the question which algorithm: its streams."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gated_attention import Gated
from helpers import must_fail
from own_hooks import of

import icl_interp
from icl_interp.algorithms import subject as asked
from icl_interp.algorithms.subject import Subject
from icl_interp.provenance import generator
from icl_interp.testing.reparameterisations.stream import UNREAD


def check_what_nothing_reads(streams):
    """Heads that write where nothing reads it leave the streams, in another basis."""
    trained = icl_interp.load("affine_no_ln")
    edited = UNREAD[0].apply(trained.model, generator(0, "test"))
    prompts = trained.task.sample(40, generator(1, "test"))
    products = []
    for model in (trained.model, edited):
        found = streams(Subject(trained, "", replace(trained, model=model)), prompts)
        products.append(torch.stack([each @ each.T for each in found]))
    torch.testing.assert_close(products[1], products[0], rtol=1e-3, atol=1e-3)


def test_streams_hold_what_is_read(monkeypatch):
    check_what_nothing_reads(Subject.streams)
    monkeypatch.setattr(asked, "projected", lambda model, streams: streams)
    must_fail(check_what_nothing_reads, Subject.streams)


@pytest.fixture(scope="module")
def reports():
    """On a bundled model, and on the same model adapted by its own hook points."""
    checkpoint = icl_interp.load("softmax_fixed_14")
    both = (checkpoint, of(checkpoint))
    return [icl_interp.algorithm(one, n_functions=256) for one in both]


@pytest.mark.slow
def test_an_adapted_module_is_asked_as_the_model_is(reports):
    own, adapted = reports

    def check(found):
        table = found.table.set_index("rival").loc[own.table["rival"]]
        for column in ("D", "hat"):
            np.testing.assert_allclose(table[column], own.table[column], rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(found.by_layer, own.by_layer, rtol=1e-2, atol=1e-4)

    check(adapted)
    assert not [note for note in adapted.notes if "left out" in note]
    must_fail(check, replace(adapted, by_layer=adapted.by_layer[::-1]))


@pytest.mark.slow
def test_layers_that_nobody_named_are_left_out():
    task = icl_interp.tasks.LinearRegression(n_dims=1, n_points=5)
    module = icl_interp.adapt(Gated(), encoding="interleaved", task=task)
    found = icl_interp.algorithm(module, n_functions=64)
    assert found.by_layer is None
    assert any("nobody named the stream" in note for note in found.notes)
    assert np.isfinite(found.table["hat"]).all()
