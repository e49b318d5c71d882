"""What is read off softmax heads: on weights that are known, and heads that are one."""

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.analyses.lab import Lab
from icl_interp.models.tokens import Stacked
from icl_interp.provenance import generator
from icl_interp.studies.debiased.constructions.all import MANY, OPPOSITE, TASK, Head, attending
from icl_interp.studies.debiased.measurements import heads as measured


def lab(case):
    return Lab(case.model, case.task, Stacked(), n_units=4, n_contexts=1)


def means(case):
    return lab(case).measure(measured.heads).mean("unit")


def test_w_and_weights_of_labels_are_those_of_the_weights():
    case = attending((Head(1, 1), Head(-2, -0.5)), generator(0, "test"))
    attention = case.model.blocks[0].attn
    found = means(case)
    w = found.sel(number=measured.BOTH) / found.sel(number=measured.INPUT)
    labels = found.sel(number=measured.WEIGHT)

    def check(factor):
        np.testing.assert_allclose(w, factor * attention.W_Q[:, 0, 0].detach(), rtol=1e-9)
        np.testing.assert_allclose(labels, factor * attention.W_V[:, 4, 4].detach(), rtol=1e-9)

    check(1.0)
    must_fail(check, 1.01)
    # Nothing else is in scores or values.
    explained = w**2 * found.sel(number=measured.INPUT)
    np.testing.assert_allclose(found.sel(number=measured.SCORE), explained, rtol=1e-9)
    assert float(found.sel(number=measured.LEFT).max()) < 1e-20


def test_what_all_examples_of_a_prompt_share_is_no_score():
    """A bias of keys adds a number to all scores of a query, which softmax does not see."""
    case = attending(OPPOSITE, generator(0, "test"))
    before = means(case)
    with torch.no_grad():
        case.model.blocks[0].attn.b_K[:, 0] = 5.0
    np.testing.assert_allclose(means(case), before, rtol=1e-8, atol=1e-12)


def test_what_is_no_product_and_no_label_is_left():
    stretched = means(attending(OPPOSITE, generator(0, "test"), stretch=(2.0, 1.0, 1.0, 1.0)))
    explained = stretched.sel(number=measured.BOTH) ** 2 / stretched.sel(number=measured.INPUT)
    assert float((explained / stretched.sel(number=measured.SCORE)).max()) < 0.95
    # Of y + x_1 a part 1 / 5 is the input, for labels of variance 4.
    reading = means(attending(OPPOSITE, generator(0, "test"), inputs=1.0))
    left = reading.sel(number=measured.LEFT) / reading.sel(number=measured.VALUE)
    np.testing.assert_allclose(left, 0.2, atol=0.02)


def test_heads_that_attend_alike_are_one():
    case = attending(MANY, generator(0, "test"))
    found = means(case)
    assert found.indexes["head"].tolist() == ["0+2", "1", "3"]
    labels = found.sel(number=measured.WEIGHT).values
    assert labels[0] == pytest.approx(-labels[1], rel=1e-9)
    assert labels[2] == pytest.approx(0.0, abs=1e-12)


def test_what_heads_read_is_the_prediction():
    case = attending(MANY, generator(1, "test"))
    prompts = TASK.sample(20, generator(2, "test"), dtype=torch.float64)
    bench = lab(case)
    read = measured.heads_of(bench, prompts).read
    said = bench.at_query(prompts)[:, 0]

    def check(expected):
        torch.testing.assert_close(read, expected, rtol=1e-10, atol=1e-10)

    check(said)
    must_fail(check, said + 1e-6)


def by_loop(prompts, sizes, weights):
    """Labels averaged by softmax of w <x_i, x_q>, times a weight, summed over heads."""
    found = []
    for xs, ys in zip(prompts.xs.numpy(), prompts.ys[..., 0].numpy(), strict=True):
        said = 0.0
        for w, weight in zip(sizes, weights, strict=True):
            attention = np.exp(w * xs[:-1] @ xs[-1])
            said += weight * attention @ ys[:-1] / attention.sum()
        found.append(said)
    return np.array(found)


def test_heads_as_claimed_have_one_size_of_w_and_read_labels_alone():
    case = attending((Head(1, 1), Head(-3, -1)), generator(0, "test"), inputs=0.5)
    attention = case.model.blocks[0].attn
    prompts = TASK.sample(200, generator(2, "test"), dtype=torch.float64)
    w = attention.W_Q[:, 0, 0].detach().numpy()
    weights = attention.W_V[:, 4, 4].detach().numpy()
    claimed = measured.as_claimed(measured.heads_of(lab(case), prompts), prompts)

    def check(sizes):
        np.testing.assert_allclose(claimed, by_loop(prompts, sizes, weights), rtol=1e-8)

    check((2 * w[0], -2 * w[0]))
    must_fail(check, w)


def test_heads_that_are_as_claimed_predict_what_they_predict():
    for heads, near in ((OPPOSITE, True), (MANY, True), ((Head(1, 1), Head(0.2, -1)), False)):
        case = attending(heads, generator(0, "test"))
        prompts = TASK.sample(100, generator(2, "test"), dtype=torch.float64)
        found = measured.heads_of(lab(case), prompts)
        apart = (measured.as_claimed(found, prompts) - found.read).square().mean()
        assert (float(apart / found.read.var()) < 1e-12) is near


def test_heads_that_are_not_taken_together_count_one_by_one(monkeypatch):
    """The mutant: heads that are not taken together."""
    apart = lambda rows, written, scaled: ([(h,) for h in range(len(rows))], written)  # noqa: E731
    monkeypatch.setattr(measured, "summed", apart)
    found = means(attending(MANY, generator(0, "test")))
    assert found.sizes["head"] == 4
