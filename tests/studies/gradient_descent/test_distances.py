"""Distances to steps of descent: against a loop, on weights that are known, and without a block."""

import numpy as np
import pytest
import scipy.linalg
import torch
from helpers import must_fail

from icl_interp.analyses.lab import Lab
from icl_interp.baselines.base import INPUTS
from icl_interp.baselines.moments import Descent, GDPlusPlus
from icl_interp.baselines.tuned import Constant
from icl_interp.models.constructed import descent, gd_plus_plus
from icl_interp.models.tokens import Stacked
from icl_interp.provenance import generator
from icl_interp.studies.gradient_descent.measurements import distances as measured
from icl_interp.studies.gradient_descent.measurements.distances import (
    DESCENT,
    FAMILIES,
    OWN,
    PLUS_PLUS,
    PRECONDITIONED,
    SQUARED,
    Halves,
)
from icl_interp.tasks import LinearRegression

TASK = LinearRegression(n_dims=3, n_points=9)
N = 40


def halves():
    drawn = TASK.sample(2 * N, generator(1, "test"), dtype=torch.float64)
    return Halves(drawn[:N], drawn[N:])


def by_loop(prompts, sizes, matrix, shrink):
    """The query's prediction after some steps, prompt by prompt, with w itself."""
    found = []
    for xs, ys in zip(prompts.xs.numpy(), prompts.ys[..., 0].numpy(), strict=True):
        inputs = xs[:-1]
        labels = ys[:-1]
        query = xs[-1]
        said = 0.0
        for size in sizes:
            gradient = inputs.T @ labels / len(inputs)
            step = size * matrix @ gradient
            said += query @ step
            labels = labels - inputs @ step
            second = inputs.T @ inputs / len(inputs)
            inputs = inputs - shrink * inputs @ second
            query = query - shrink * second @ query
        found.append(said)
    return np.array(found)


SKEWED = np.array([[1.0, 0.3, 0.0], [0.1, 0.8, 0.2], [0.0, -0.2, 1.2]])
ONE = np.eye(3)


@pytest.mark.parametrize(
    ("name", "sizes", "matrix", "shrink"),
    [
        (DESCENT, (0.4, 0.4), ONE, 0.0),
        (PRECONDITIONED, (0.4, 0.3), SKEWED, 0.0),
        (PLUS_PLUS, (0.4, 0.3), ONE, 0.15),
    ],
)
def test_each_family_finds_its_steps_and_distances_are_those_of_a_loop(name, sizes, matrix, shrink):
    both = halves()
    said = [by_loop(prompts, sizes, matrix, shrink) for prompts in both]
    tuned_to = torch.tensor(said[0])[:, None]
    # The predictions that are judged are the same but for a difference that is known.
    apart = np.random.default_rng(0).normal(size=N)
    own = torch.tensor(said[1] + apart)[:, None]
    tuned = measured.family(name, 2, 3)(both.tuning, tuned_to)
    numbers = measured.compared(tuned, both.judging, own)

    def check(expected):
        np.testing.assert_allclose(numbers[0], expected, rtol=1e-3, atol=1e-4)

    check(apart**2)
    must_fail(check, (apart + 0.1) ** 2)
    must_fail(check, (by_loop(both.judging, sizes[:1], matrix, shrink) - own[:, 0].numpy()) ** 2)
    np.testing.assert_allclose(numbers[1], own[:, 0] - own.mean(), rtol=1e-12)
    np.testing.assert_allclose(numbers[2], both.judging.ys[:, -1, 0] ** 2, rtol=1e-12)


def test_what_goes_up_is_taken_off_and_nothing_else():
    """g'P g of many gradients: never below 0 for what is left, and as before where P goes down."""
    draw = torch.Generator().manual_seed(0)
    gradients = torch.randn(200, 3, generator=draw, dtype=torch.float64)
    steep = torch.tensor(SKEWED)
    flipped = steep @ torch.diag(torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64))

    def check(before, after):
        (left,) = measured.downhill(Descent(INPUTS, (before,))).steps
        assert ((gradients @ left) * gradients).sum(1).min() > -1e-12
        torch.testing.assert_close(left, after(before), rtol=0, atol=1e-12)

    def cut(matrix):
        """The nearest such matrix: the positive part of the symmetric part, by its square root."""
        symmetric = ((matrix + matrix.T) / 2).numpy()
        size = scipy.linalg.sqrtm(symmetric @ symmetric).real
        return matrix + torch.tensor((size - symmetric) / 2)

    check(steep, lambda matrix: matrix)
    check(flipped, cut)
    must_fail(check, flipped, lambda matrix: matrix)
    must_fail(check, flipped, torch.zeros_like)
    both = measured.downhill(GDPlusPlus(INPUTS, (0.3, -0.2), (-0.1, 0.4)))
    assert (both.sizes, both.shrinks) == ((0.3, 0.0), (-0.1, 0.4))


def relative(result):
    """D of each comparison."""
    squared = result.sel(number=SQUARED).mean("unit")
    variance = result.sel(number=OWN).var("unit")
    found = squared / variance
    return dict(zip(found.indexes["comparison"], found.values.tolist(), strict=True))


def lab(model):
    return Lab(model, TASK, Stacked(), n_units=4, n_contexts=1)


def test_weights_of_steps_are_at_no_distance_and_one_less_without_a_block():
    found = relative(lab(descent(9, (0.4, 0.4, 0.4), 3)).measure(measured.distances))
    assert list(found)[:3] == [measured.row_of(name, 3) for name in FAMILIES]

    def check(expected):
        assert found["descent, 3 steps"] < expected

    check(1e-9)
    must_fail(check, 0.0)
    for block in range(3):
        # Means over 512 functions are not quite 0, where those over all functions are.
        assert found[f"without block {block}: descent, 2 steps"] < 5e-3


def test_a_matrix_of_more_numbers_is_tuned_on_more_functions():
    """Four for each number: else what is tuned would fit chance, and look far elsewhere."""
    task = LinearRegression(n_dims=12, n_points=30)
    wide = Lab(descent(30, (0.3,), 12), task, Stacked(), n_units=4, n_contexts=1)
    result = wide.measure(measured.distances)
    assert result.sizes["unit"] == 4 * 12**2
    assert lab(descent(9, (0.4,), 3)).measure(measured.distances).sizes["unit"] == measured.FEWEST
    assert relative(result)["preconditioned descent, 1 step"] < 1e-9


@pytest.mark.slow
def test_blocks_of_a_large_model_are_taken_out_where_that_may_decide(monkeypatch):
    """As many functions as for any model; of one that is far from every family, the whole only."""
    near = descent(9, (0.4, 0.4), 3)
    # Without GD++ among the families the nearest is at .136 and at .239.
    between = gd_plus_plus(9, (0.4, 0.4), (-0.5, 0.5), 3)
    far = gd_plus_plus(9, (0.4, 0.4), (-0.7, 0.7), 3)
    names = [measured.row_of(name, 2) for name in FAMILIES]
    monkeypatch.setattr(measured, "PlusPlus", lambda inputs, n, name: Constant(inputs, n, name))

    def check(model, n_rows):
        result = lab(model).measure(measured.distances)
        assert list(result.indexes["comparison"][:3]) == names
        assert (result.sizes["comparison"], result.sizes["unit"]) == (n_rows, measured.FEWEST)

    check(far, 8)  # a small model is asked all
    monkeypatch.setattr(measured, "is_large", lambda model: True)
    check(near, 8)
    check(between, 8)
    check(far, 6)
    must_fail(check, far, 8)


def test_a_family_that_does_more_is_named_only_where_it_is_needed():
    """GD++ is nearest to its own weights, and one step of it is one of descent."""
    found = relative(lab(gd_plus_plus(9, (0.5, 0.4), (0.2, 0.2), 3)).measure(measured.distances))
    assert found["GD++, 2 steps"] < 1e-6 < found["descent, 2 steps"]
    assert "without block 1: GD++, 1 step" in found
    single = relative(lab(descent(9, (0.4,), 3)).measure(measured.distances))
    assert single["GD++, 1 step"] == pytest.approx(single["descent, 1 step"], abs=1e-9)
    # Least squares is beside it, and the steps that go down.
    assert len(single) == len(FAMILIES) + 2
    assert single["rival: least squares"] > 0.1
    assert single["downhill only: descent, 1 step"] < 1e-9
    # With two steps one step less as well.
    assert 1e-3 < found["rival: GD++, 1 step"] < 1


def test_a_block_that_is_taken_out_is_gone():
    """A second layer of another size: without it the first step is left, and the reverse."""
    model = descent(9, (0.6, 0.2), 3)
    result = lab(model).measure(measured.distances)
    own = {}
    for block in (0, 1):
        (name,) = [
            n for n in result.indexes["comparison"] if n.startswith(f"without block {block}")
        ]
        own[block] = result.sel(comparison=name, number=OWN).values

    def check(without_first, without_second):
        slope = np.polyfit(without_first, without_second, 1)[0]
        assert slope == pytest.approx(3.0, rel=0.03)

    check(own[0], own[1])
    must_fail(check, own[1], own[0])
