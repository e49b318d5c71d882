"""Prompts whose examples are put in another order."""

from dataclasses import replace

import torch
from helpers import must_fail

from icl_interp.prompts import Prompts, as_numbers
from icl_interp.provenance import generator

N, N_POINTS = 4000, 5
# Inputs in two dimensions, all different, and labels that tell which example they belong to.
XS = torch.arange(N * N_POINTS * 2).double().view(N, N_POINTS, 2)
PROMPTS = Prompts(XS, 3 * XS[..., 0] + 1, XS[:, 0], torch.arange(N) // 2)


def check_reordered(reordered):
    """The same examples, each with its label, in an order that is any with the same frequency.

    The query stays.
    """
    found = reordered(PROMPTS)
    assert torch.equal(as_numbers(found.ys), 3 * found.xs[..., 0] + 1)
    assert torch.equal(found.xs[:, -1], PROMPTS.xs[:, -1])
    order = ((found.xs[..., 0] - PROMPTS.xs[:, :1, 0]) / 2)[:, :-1]
    assert torch.equal(order.sort(1).values, torch.arange(4).double().expand(N, -1))
    assert torch.equal(found.parameters, PROMPTS.parameters)
    assert torch.equal(found.function, PROMPTS.function)
    # Each of 24 orders is as frequent as the others: the counts have a standard deviation of 13.
    _, counts = order.unique(dim=0, return_counts=True)
    assert len(counts) == 24
    assert (counts - N / 24).abs().max() < 55


def draw() -> torch.Generator:
    return generator(0, "test/order")


def test_examples_are_reordered_by_themselves():
    check_reordered(lambda prompts: prompts.reordered(draw()))
    assert torch.equal(PROMPTS.reordered(draw()).xs, PROMPTS.reordered(draw()).xs)
    assert not torch.equal(
        PROMPTS.reordered(draw()).xs, PROMPTS.reordered(generator(1, "test/order")).xs
    )


def test_other_ways_to_reorder_are_noticed():
    once = PROMPTS.reordered(draw())
    for mutant in (
        lambda prompts: prompts,
        lambda prompts: replace(prompts, xs=once.xs),  # labels stay behind
        lambda prompts: replace(once, xs=once.xs.flip(1), ys=once.ys.flip(1)),  # the query moves
        lambda prompts: replace(once, xs=once.xs.flip(0), ys=once.ys.flip(0)),  # prompts move
        lambda prompts: replace(  # all in one order
            prompts, xs=prompts.xs[:, [3, 1, 0, 2, 4]], ys=prompts.ys[:, [3, 1, 0, 2, 4]]
        ),
    ):
        must_fail(check_reordered, mutant)
    stream = draw()
    assert not torch.equal(PROMPTS.reordered(stream).xs, PROMPTS.reordered(stream).xs)
