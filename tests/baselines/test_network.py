"""The two-layer network against its gradients and Adam written out in numpy, one prefix of one prompt at a time."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.baselines import TwoLayerNetwork
from icl_interp.errors import InputError
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.tasks import ReLUNetwork

TASK = ReLUNetwork(n_dims=3, hidden=4, n_points=7)


def draw(n=3, n_targets=1):
    """Prompts of random networks.

    Where values are vectors, their other coordinates are other functions of x.
    """
    prompts = TASK.sample(n, generator(0, "network"), dtype=torch.float64)
    return replace(prompts, ys=torch.cat([prompts.ys, prompts.xs[..., : n_targets - 1].sin()], -1))


def output(weights, xs):
    first, bias, last, offset = weights
    return np.maximum(xs @ first + bias, 0) @ last + offset


def gradients(weights, xs, ys):
    """Of the mean squared error, by the chain rule."""
    first, bias, last, offset = weights
    before = xs @ first + bias
    error = 2 * (output(weights, xs) - ys) / ys.size
    back = error @ last.T * (before > 0)
    return [
        xs.T @ back,
        back.sum(0, keepdims=True),
        np.maximum(before, 0).T @ error,
        error.sum(0, keepdims=True),
    ]


def trained(weights, xs, ys, steps, rate):
    """Adam as in Kingma & Ba (2015), algorithm 1."""
    weights = [part.copy() for part in weights]
    means, squares = [[np.zeros_like(part) for part in weights] for _ in range(2)]
    for t in range(1, steps + 1):
        for i, g in enumerate(gradients(weights, xs, ys)):
            means[i] = 0.9 * means[i] + 0.1 * g
            squares[i] = 0.999 * squares[i] + 0.001 * g**2
            step = means[i] / (1 - 0.9**t) / (np.sqrt(squares[i] / (1 - 0.999**t)) + 1e-8)
            weights[i] = weights[i] - rate * step
    return weights


def check_loop(predictor, steps, rate, seed, n_targets=1):
    prompts = draw(n_targets=n_targets)
    start = [
        part.numpy() for part in TwoLayerNetwork(predictor.hidden, seed=seed).initial(3, n_targets)
    ]
    found, xs, ys = predictor.predict(prompts), prompts.xs.numpy(), prompts.ys.numpy()
    assert (found[:, 0] == 0).all()
    for row in range(len(prompts)):
        for k in range(1, 7):
            weights = trained(start, xs[row, :k], ys[row, :k], steps, rate)
            expected = output(weights, xs[row, k : k + 1])[0]
            assert found[row, k].tolist() == pytest.approx(expected.tolist(), rel=1e-7, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "rate", "seed", "n_targets"),
    [(0, 5e-3, 0, 1), (1, 5e-3, 0, 1), (30, 0.02, 3, 1), (20, 0.02, 3, 3)],
)
def test_every_prefix_trains_a_network_of_its_own(steps, rate, seed, n_targets):
    predictor = TwoLayerNetwork(5, steps, rate, seed)
    check_loop(predictor, steps, rate, seed, n_targets)
    must_fail(check_loop, predictor, steps + 1, rate, seed, n_targets)
    must_fail(check_loop, predictor, steps, rate, seed + 1, n_targets)
    if steps:
        must_fail(check_loop, predictor, steps, 1.1 * rate, seed, n_targets)


def test_gradients_are_not_switched_off_by_the_caller():
    with torch.no_grad():
        check_loop(TwoLayerNetwork(5, 3), 3, 5e-3, 0)


def check_initial(parts, dim, hidden):
    """Uniform between +-1 / sqrt(inputs of the layer): the largest is close to that end, the mean square a third."""
    for part, n in zip(parts, (dim, dim, hidden, hidden), strict=True):
        assert part.abs().max() <= 1 / math.sqrt(n)
    assert parts[0].square().mean().item() * dim == pytest.approx(1 / 3, rel=0.05)
    assert parts[2].square().mean().item() * hidden == pytest.approx(1 / 3, rel=0.1)


def test_the_first_weights_have_their_size():
    check_initial(TwoLayerNetwork(2000).initial(5), 5, 2000)
    must_fail(check_initial, TwoLayerNetwork(2000).initial(6), 5, 2000)


def check_memorises(predictor):
    """The query is a point that has been seen: a network that is trained for long knows its label."""
    prompts = draw().first(4)
    xs, ys = prompts.xs.clone(), prompts.ys.clone()
    xs[:, -1], ys[:, -1] = xs[:, 1], ys[:, 1]
    repeated = Prompts(xs, ys, prompts.parameters, prompts.function)
    assert (predictor.predict(repeated) - ys)[:, -1].abs().max() < 0.01


@pytest.mark.slow
def test_long_training_fits_the_points_seen():
    check_memorises(TwoLayerNetwork(40, 300, 0.02))
    must_fail(check_memorises, TwoLayerNetwork(40, 10, 0.02))


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: TwoLayerNetwork(0), "hidden must be a whole number from 1 up, but got 0"),
        (lambda: TwoLayerNetwork(steps=-1), "steps must be a whole number from 0 up, but got -1"),
        (lambda: TwoLayerNetwork(seed=-1), "seed must be a whole number from 0 up, but got -1"),
        (
            lambda: TwoLayerNetwork(learning_rate=0.0),
            "learning_rate must be a positive number, but got 0.0",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(make, match):
    with pytest.raises(InputError, match=match):
        make()
