"""Distances of read-outs from iterates: against loops of Newton and descent, and known weights."""

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.analyses.lab import Lab
from icl_interp.baselines.base import INPUTS
from icl_interp.baselines.moments import Descent, Moments, NewtonInverse
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.constructed import descent, newton
from icl_interp.models.tokens import Interleaved, Stacked
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.studies.newton.measurements import iterates as measured
from icl_interp.studies.newton.measurements.iterates import DESCENT, EXPONENTS, NAMES, NEWTON, TRUTH
from icl_interp.tasks import LinearRegression
from icl_interp.testing.reparameterisations.stream import UNREAD

TASK = LinearRegression(n_dims=3, n_points=13)
PROMPTS = TASK.sample(20, generator(0, "test"), dtype=torch.float64)
RATE = 0.05


def filtered(power, exponent, prompts=PROMPTS, rate=RATE):
    seen = Moments.of_query(INPUTS, prompts).diagonalised()
    return measured.iterate(seen, torch.tensor(rate, dtype=torch.float64), power, exponent)


@pytest.mark.parametrize("k", [0, 1, 3])
def test_whole_exponents_are_iterates_of_newton_and_steps_of_descent(k):
    """The baselines iterate M itself, and w itself."""

    def check(power, baseline):
        expected = baseline.predict(PROMPTS)[:, -1, 0]
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
        said = seen.predicted(inverse @ seen.moment)[:, 0, 0]
        torch.testing.assert_close(said, filtered(1, k), rtol=0, atol=1e-10)
        inverse = 2 * inverse - inverse @ seen.gram @ inverse


def test_few_examples_leave_directions_without_points_alone():
    few = PROMPTS.first(3)
    # Of two examples S can be large: a smaller rate diverges for none.
    expected = NewtonInverse(INPUTS, 2, RATE / 10).predict(few)[:, -1, 0]
    torch.testing.assert_close(filtered(2, 2, few, RATE / 10), expected, rtol=0, atol=1e-9)


def test_the_best_exponent_is_that_of_a_parabola():
    apart = np.stack([3 * (EXPONENTS - k) ** 2 + 0.1 for k in (0.2, 5.0, 7.35)])

    def check(expected):
        np.testing.assert_allclose(measured.best(apart), expected, atol=1e-9)

    check([0.2, 5.0, 7.35])
    must_fail(check, [0.0, 5.0, 7.5])  # the nearest of those that are asked
    # Beyond an end it is the end, and flat distances have none that is better.
    found = measured.best(np.stack([EXPONENTS, -EXPONENTS, 0 * EXPONENTS]))
    np.testing.assert_allclose(found, [EXPONENTS[0], EXPONENTS[-1], EXPONENTS[1]])


def test_layers_of_newton_are_at_its_iterates():
    """After layer k + 2 at iterate k; what the first layer says is as far from f(x) as nothing."""
    lab = Lab(newton(13, 4, 0.1, 3), TASK, Stacked(), n_units=128, n_contexts=1)
    result = lab.measure(measured.iterates)
    apart = (
        result.sel(comparison=NAMES[NEWTON]).mean("unit").transpose("depth", "comparison").values
    )
    k = measured.best(apart)

    def check(steps):
        np.testing.assert_allclose(np.diff(k[3:]), steps, atol=0.3)

    check(1.0)
    must_fail(check, 0.5)
    must_fail(check, 2.0)
    assert apart[2:].min(-1).max() < 0.02
    error = result.sel(comparison=TRUTH).mean("unit").values
    np.testing.assert_allclose(error[:2], 1.0, atol=0.1)
    assert np.all(np.diff(error[1:]) < 0)


def test_layers_of_descent_are_at_its_steps():
    """One step with any rate is the same up to scale, so the first layer is at no certain one."""
    lab = Lab(descent(17, (0.4,) * 5, 3), LinearRegression(n_dims=3, n_points=17), Stacked())
    mean = lab.measure(measured.iterates).sel(comparison=NAMES[DESCENT]).mean("unit")
    k = measured.best(mean.transpose("depth", "comparison").values)[2:]

    def check(steps):
        np.testing.assert_allclose(k - k[-1], np.log2(steps) - np.log2(steps[-1]), atol=0.2)

    check([2, 3, 4, 5])
    must_fail(check, [2, 4, 8, 16])
    must_fail(check, [2, 3, 4, 7])
    must_fail(check, [1, 2, 3, 4])


def test_a_rate_is_chosen_that_is_nearest():
    """Of answers that are iterates with one of the rates: each prompt's own, and one of all."""
    prompts = TASK.sample(400, generator(1, "test"), dtype=torch.float64)
    seen = Moments.of_query(INPUTS, prompts).diagonalised()
    truth = TASK.targets(prompts.parameters, prompts.xs)[:, -1, 0]
    sample = measured.Sample(truth, seen, 300)
    largest = seen.spectrum.amax(-2, keepdim=True)
    place = list(EXPONENTS).index(2.0)

    def check(made_with, taken_for):
        said = sample.read(measured.iterate(seen, made_with, 2, 2.0)[:, None])
        found = sample.nearest(said[None], 2)[place]
        same = sample.read(measured.iterate(seen, taken_for, 2, 2.0)[:, None])
        torch.testing.assert_close(found, same, rtol=0, atol=1e-9)

    own = largest**-2
    for rate in (own, own.min(), 0.5 * own.min()):
        check(rate, rate)
        must_fail(check, rate, 0.7 * rate)


def test_errors_of_the_last_layer_are_those_of_its_best_multiple():
    """Of a prediction p the read-out is b p + c: its error is by least squares on other prompts."""
    lab = Lab(newton(13, 2, 0.1, 3), TASK, Stacked(), n_units=128, n_contexts=1)
    result = lab.measure(measured.iterates)
    drawn = TASK.sample(2048 + 512, generator(lab.seed, "newton"), dtype=torch.float64)
    said = NewtonInverse(INPUTS, 2, 0.1).predict(drawn)[:, -1, 0].numpy()
    truth = (drawn.parameters * drawn.xs[:, -1]).sum(-1).numpy()
    slope, offset = np.polyfit(said[:2048], truth[:2048], 1)
    missed = (slope * said[2048:] + offset - truth[2048:]) ** 2

    def check(expected):
        found = float(result.sel(comparison=TRUTH, depth=4).mean())
        # The stream holds x and M x too, which say nothing of f(x) but chance.
        assert found == pytest.approx(expected / np.mean(truth[2048:] ** 2), rel=0.05)

    check(missed.mean())
    must_fail(check, np.mean((said[2048:] - truth[2048:]) ** 2))


def check_what_nothing_reads(measurement):
    """Heads that write where nothing reads it move no read-out."""
    model = newton(13, 2, 0.1, 3)
    edited = UNREAD[0].apply(model, generator(0, "test"))
    found = []
    for each in (model, edited):
        lab = Lab(each, TASK, Stacked(), n_units=16, n_contexts=1)
        found.append(lab.measure(measurement))
    np.testing.assert_allclose(found[1].values, found[0].values, rtol=1e-4, atol=1e-6)


def test_what_nothing_reads_moves_no_read_out(monkeypatch):
    check_what_nothing_reads(measured.iterates)
    monkeypatch.setattr(measured, "projected", lambda model, streams: streams)
    must_fail(check_what_nothing_reads, measured.iterates)


def test_prompts_have_twice_as_many_examples_as_coordinates_where_such_were_trained_on():
    causal = HookedTransformer(HookedTransformerConfig(n_layers=1, d_model=8, n_ctx=30, d_in=3))

    def check(model, encoding, expected, task=TASK):
        lab = Lab(model, task, encoding, n_units=4, n_contexts=1)
        assert measured.examples(lab) == expected

    check(causal, Interleaved(), 6)
    must_fail(check, causal, Interleaved(), 12)
    check(causal, Interleaved(), 4, LinearRegression(n_dims=3, n_points=5))
    check(newton(13, 1, 0.1, 3), Stacked(), 12)
