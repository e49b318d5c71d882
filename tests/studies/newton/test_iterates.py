"""Distances of read-outs from iterates: against loops of Newton and descent, and known weights."""

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.analyses.lab import Lab
from icl_interp.baselines.base import INPUTS
from icl_interp.baselines.moments import Descent, Moments, NewtonInverse
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.constructed import newton
from icl_interp.models.tokens import Interleaved, Stacked
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.studies.newton.measurements import iterates as measured
from icl_interp.studies.newton.measurements.iterates import EXPONENTS, NEWTON, TRUTH, row_of
from icl_interp.tasks import LinearRegression

TASK = LinearRegression(n_dims=3, n_points=13)
PROMPTS = TASK.sample(20, generator(0, "test"), dtype=torch.float64)
RATE = 0.05


def filtered(power, exponent, prompts=PROMPTS, rate=RATE):
    seen = Moments.of_query(INPUTS, prompts).diagonalised()
    rates = torch.full((len(prompts), 1, 1, 1), rate, dtype=torch.float64)
    return measured.iterate(seen, rates, power, exponent)[:, 0]


@pytest.mark.parametrize("k", [0, 1, 3])
def test_whole_exponents_are_iterates_of_newton_and_steps_of_descent(k):
    """The baselines iterate M itself, and w itself."""

    def check(power, baseline):
        expected = baseline.predict(PROMPTS)[:, -1]
        torch.testing.assert_close(filtered(power, k), expected, rtol=0, atol=1e-10)

    check(2, NewtonInverse(INPUTS, k, RATE))
    check(1, Descent(INPUTS, (RATE,) * 2**k))
    must_fail(check, 2, NewtonInverse(INPUTS, k + 1, RATE))
    must_fail(check, 1, Descent(INPUTS, (RATE,) * (2**k + 1)))


def test_newton_from_a_multiple_of_one_is_descent_of_doubling_length():
    """M <- 2 M - M S M from M = a: iterate k is descent after 2^k steps, so only growth tells."""
    seen = Moments.of_query(INPUTS, PROMPTS)
    inverse = RATE * torch.eye(3, dtype=torch.float64).expand_as(seen.gram)
    for k in range(4):
        said = seen.predicted(inverse @ seen.moment)[:, 0]
        torch.testing.assert_close(said, filtered(1, k), rtol=0, atol=1e-10)
        inverse = 2 * inverse - inverse @ seen.gram @ inverse


def test_few_examples_leave_directions_without_points_alone():
    few = PROMPTS.first(3)
    # Of two examples S can be large: a smaller rate diverges for none.
    expected = NewtonInverse(INPUTS, 2, RATE / 10).predict(few)[:, -1]
    torch.testing.assert_close(filtered(2, 2, few, RATE / 10), expected, rtol=0, atol=1e-9)


def test_the_least_distance_is_that_of_a_parabola():
    apart = np.stack([3 * (EXPONENTS - k) ** 2 + 0.1 for k in (0.2, 5.0, 7.35)])
    exponent, least = measured.vertex(apart)
    np.testing.assert_allclose(exponent, [0.2, 5.0, 7.35], atol=1e-9)
    np.testing.assert_allclose(least, 0.1, atol=1e-9)
    # Beyond an end it is the end, and flat distances are at the first.
    exponent, least = measured.vertex(np.stack([EXPONENTS, -EXPONENTS, 0 * EXPONENTS]))
    np.testing.assert_allclose(exponent, [EXPONENTS[0], EXPONENTS[-1], EXPONENTS[0]])
    assert least[2] == pytest.approx(0.0, abs=1e-12)


def test_layers_of_newton_are_at_its_iterates():
    """After layer k + 2 at iterate k; what the first layer says is as far from f(x) as nothing."""
    lab = Lab(newton(13, 4, 0.1, 3), TASK, Stacked(), n_units=128, n_contexts=1)
    result = lab.measure(measured.iterates)
    rows = [row_of(NEWTON, k) for k in EXPONENTS]
    apart = result.sel(comparison=rows).mean("unit").transpose("depth", "comparison").values
    k = measured.best(apart)

    def check(steps):
        np.testing.assert_allclose(np.diff(k[3:]), steps, atol=0.3)

    check(1.0)
    must_fail(check, 0.5)
    must_fail(check, 2.0)
    assert measured.least(apart)[2:].max() < 0.02
    error = result.sel(comparison=TRUTH).mean("unit").values
    np.testing.assert_allclose(error[:2], 1.0, atol=0.1)
    assert np.all(np.diff(error[1:]) < 0)


def test_errors_of_the_last_layer_are_those_of_its_best_multiple():
    """Of a prediction p the read-out is b p + c: its error is by least squares on other prompts."""
    lab = Lab(newton(13, 2, 0.1, 3), TASK, Stacked(), n_units=128, n_contexts=1)
    result = lab.measure(measured.iterates)
    drawn = TASK.sample(1024 + 512, generator(lab.seed, "newton"), dtype=torch.float64)
    said = NewtonInverse(INPUTS, 2, 0.1).predict(drawn)[:, -1, 0].numpy()
    truth = (drawn.parameters * drawn.xs[:, -1]).sum(-1).numpy()
    slope, offset = np.polyfit(said[:1024], truth[:1024], 1)
    missed = (slope * said[1024:] + offset - truth[1024:]) ** 2

    def check(expected):
        found = float(result.sel(comparison=TRUTH, depth=4).mean())
        # The stream holds x and M x too, which say nothing of f(x) but chance.
        assert found == pytest.approx(expected / np.mean(truth[1024:] ** 2), rel=0.05)

    check(missed.mean())
    must_fail(check, np.mean((said[1024:] - truth[1024:]) ** 2))


def test_lengths_are_those_that_were_trained():
    causal = HookedTransformer(HookedTransformerConfig(n_layers=1, d_model=8, n_ctx=30, d_in=3))
    shown = [
        measured.lengths(Lab(model, TASK, encoding, n_units=4, n_contexts=1))
        for model, encoding in ((causal, Interleaved()), (newton(13, 1, 0.1, 3), Stacked()))
    ]
    assert shown == [[3, 4, 6, 12], [12]]
