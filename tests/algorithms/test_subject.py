"""The subject of the question which algorithm: its streams."""

from dataclasses import replace

import torch
from helpers import must_fail

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
