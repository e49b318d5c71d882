"""Distances to a debiased step: against loops, on changed weights, and with a constant."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.analyses.lab import Lab
from icl_interp.checkpoints.store import predict
from icl_interp.models.tokens import Stacked
from icl_interp.provenance import generator
from icl_interp.studies.debiased.constructions.all import OPPOSITE, TASK, Head, attending
from icl_interp.studies.debiased.measurements import predictions as measured


def prompts(n=30):
    return TASK.sample(n, generator(5, "test"), dtype=torch.float64)


def lab(case):
    return Lab(case.model, case.task, Stacked(), n_units=4, n_contexts=1)


def shares(case):
    """D of each comparison."""
    result = lab(case).measure(measured.predictions)
    squared = result.sel(number=measured.SQUARED).mean("unit")
    variance = (result.sel(number=measured.OWN) ** 2).mean("unit")
    found = squared / variance
    return dict(zip(found.indexes["comparison"].tolist(), found.values.tolist(), strict=True))


def test_both_steps_are_those_of_a_loop():
    shown = prompts()
    plain = []
    debiased = []
    for xs, ys in zip(shown.xs.numpy(), shown.ys.numpy(), strict=True):
        examples = xs[:-1]
        labels = ys[:-1, 0]
        plain.append(labels @ (examples @ xs[-1]) / len(labels))
        debiased.append((labels - labels.mean()) @ (examples @ xs[-1]) / len(labels))

    def check(one, other):
        np.testing.assert_allclose(measured.plain(shown), one, rtol=1e-10)
        np.testing.assert_allclose(measured.debiased(shown), other, rtol=1e-10)

    check(plain, debiased)
    must_fail(check, debiased, debiased)
    must_fail(check, plain, plain)


def test_a_constant_moves_all_labels_but_that_of_the_query():
    shown = prompts(4000)
    moved = measured.with_offset(shown, generator(0, "test"))
    change = (moved.ys - shown.ys)[..., 0]
    assert float(change[:, -1].abs().max()) == 0
    assert float((change[:, :-1] - change[:, :1]).abs().max()) < 1e-12
    size = change[:, 0].square().mean() / shown.ys.square().mean()
    # 4,000 draws: a standard error of 2 % of the mean square.
    assert float(size) == pytest.approx(measured.OFFSET**2, rel=4 * (2 / 4000) ** 0.5)


def test_opposite_heads_are_near_in_all_three_ways_and_a_plain_step_is_not():
    found = shares(attending(OPPOSITE, generator(0, "test")))
    for name in (measured.IN_DISTRIBUTION, measured.WITH_OFFSET, measured.TURNED):
        assert found[name] < 1e-3
    assert found[measured.READ] < 1e-12
    assert found[measured.PLAIN] < 0.05  # prompts in distribution do not tell them apart
    assert found[measured.PLAIN_OFFSET] > 0.2


def test_one_head_is_far():
    found = shares(attending((Head(1, 1),), generator(0, "test")))
    for name in (measured.IN_DISTRIBUTION, measured.WITH_OFFSET, measured.TURNED):
        assert found[name] > 0.5
    # Its prediction follows the constant, 2 times as large as labels, times its weight of labels.
    assert found[measured.WITH_OFFSET] > 20 * found[measured.IN_DISTRIBUTION]


def test_errors_are_against_the_function_and_not_its_noisy_labels():
    case = attending(OPPOSITE, generator(0, "test"))
    noisy = replace(case, task=replace(TASK, noise_std=1.0))
    bench = lab(noisy)
    result = bench.measure(measured.predictions).sel(comparison=measured.TRUTH)
    both = noisy.task.sample(2 * measured.HALF, generator(0, "debiased/step"), dtype=torch.float64)
    judging = both[measured.HALF :]
    own = predict(bench.model, Stacked(), judging)[:, -1, 0]
    function = (judging.parameters * judging.xs[:, -1]).sum(-1)

    def check(truth):
        found = result.sel(number=measured.SQUARED)
        np.testing.assert_allclose(found, (own - truth).square(), rtol=1e-8, atol=1e-12)

    check(function)
    must_fail(check, judging.ys[:, -1, 0])


def test_scores_that_are_turned_are_those_of_negated_queries():
    """Predictions of a model whose W_Q has the other sign, in distribution, beside the step."""
    case = attending((Head(1, 1), Head(-2, -0.6)), generator(0, "test"))
    bench = lab(case)
    result = bench.measure(measured.predictions).sel(comparison=measured.TURNED)
    turned = copy.deepcopy(bench.model)
    with torch.no_grad():
        turned.blocks[0].attn.W_Q.neg_()
    both = TASK.sample(2 * measured.HALF, generator(0, "debiased/step"), dtype=torch.float64)
    judging = both[measured.HALF :]
    tuning = both[: measured.HALF]
    own = predict(bench.model, Stacked(), tuning)[:, -1, 0]
    size = measured.tuned(measured.debiased(tuning), own)

    def check(model):
        apart = predict(model, Stacked(), judging)[:, -1, 0] + size * measured.debiased(judging)
        found = result.sel(number=measured.SQUARED)
        np.testing.assert_allclose(found, apart.square(), rtol=1e-8, atol=1e-12)

    check(turned)
    must_fail(check, bench.model)
