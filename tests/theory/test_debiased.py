"""A debiased step against a loop; opposite heads tend to it, and with many points to f(x)."""

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.theory import debiased

DRAW = torch.Generator().manual_seed(3)


def prompt(n=12, dim=3):
    xs = torch.randn(n, dim, generator=DRAW, dtype=torch.float64)
    ys = torch.randn(n, generator=DRAW, dtype=torch.float64)
    query = torch.randn(dim, generator=DRAW, dtype=torch.float64)
    return xs, ys, query


def by_loop(xs, ys, query):
    """The gradient of half the mean squared error at w = 0, of inputs about their mean."""
    mean = xs.numpy().mean(0)
    w = np.zeros(xs.shape[1])
    for x, y in zip(xs.numpy(), ys.numpy(), strict=True):
        w += y * (x - mean) / len(xs)
    return w @ query.numpy()


def test_a_step_is_that_of_a_loop():
    xs, ys, query = prompt()

    def check(labels):
        assert float(debiased.debiased_step(xs, labels, query)) == pytest.approx(
            by_loop(xs, ys, query), rel=1e-12
        )

    check(ys)
    check(ys + 5)  # a constant changes nothing
    must_fail(check, ys * 1.01)


def test_opposite_heads_differ_from_it_by_the_square_of_w():
    xs, ys, query = prompt()
    strengths = np.array([0.02, 0.01, 0.005])
    step = float(debiased.debiased_step(xs, ys, query))
    apart = []
    for w in strengths:
        apart.append(abs(float(debiased.opposite_heads(xs, ys, query, w)) - step))
    slope = np.polyfit(np.log(strengths), np.log(apart), 1)[0]
    assert slope == pytest.approx(2.0, abs=0.02)


def test_with_many_normal_inputs_opposite_heads_predict_the_function():
    """E x exp(w <x, q>) / E exp(w <x, q>) is w q for x ~ N(0, I), also where w is not small."""
    n = 2_000
    w = 0.3
    draw = torch.Generator().manual_seed(0)
    beta = torch.randn(4, generator=draw, dtype=torch.float64)
    query = torch.tensor([0.5, -0.5, 0.5, 0.5], dtype=torch.float64)
    found = []
    for _ in range(400):
        xs = torch.randn(n, 4, generator=draw, dtype=torch.float64)
        found.append(float(debiased.opposite_heads(xs, xs @ beta, query, w)))
    error = np.std(found, ddof=1) / len(found) ** 0.5

    def check(expected):
        # A prompt of n points is off by a part of order 1 / n, far below the error.
        assert abs(np.mean(found) - expected) < 4 * error

    check(float(beta @ query))
    must_fail(check, float(beta @ query) + 10 * error)
