"""A task in other units: laws, prompts, pairs, features and configs follow the task inside.

A lab takes it.
"""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from small_models import TASK, make
from vector_tasks import Rotations

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.lab import Lab
from icl_interp.baselines.regression import LeastSquares
from icl_interp.checkpoints.config import RunConfig, check_round_trip
from icl_interp.errors import InputError
from icl_interp.evaluation import in_distribution
from icl_interp.models.tokens import Interleaved
from icl_interp.provenance import encode, generator
from icl_interp.tasks import Continuous, LinearRegression, Normal, Polynomial, Task, Uniform
from icl_interp.tasks.rescaled import Rescaled
from icl_interp.testing.reparameterisations.targets import RESCALED, SHIFTED, Posed, Units

NOISY = LinearRegression(n_dims=3, noise_std=0.5, n_points=9)
SKEWED = Polynomial(degrees=(0, 2), inputs=Uniform(-1, 2), coefficients=Uniform(0, 1), n_points=8)
TASKS = (TASK, SKEWED, NOISY)


@dataclass(frozen=True, kw_only=True)
class Single(Task):
    """f(x) = x, always; it says nothing about scaling."""

    @property
    def n_determining(self):
        return 1

    def sample_parameters(self, n_functions, generator, dtype):
        return torch.zeros(n_functions, 0, dtype=dtype)

    def value(self, parameters, xs):
        return xs


def same_draws(sample, task, other):
    mine, theirs = (sample(one, generator(3, "test")) for one in (task, other))
    torch.testing.assert_close(theirs.ys, -2 * mine.ys + 5)
    assert torch.equal(theirs.xs, mine.xs)
    assert torch.equal(theirs.parameters, mine.parameters)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_prompts_are_those_of_the_task_in_other_units(task):
    other = Rescaled.of(task, -2.0, 5.0)
    singly = lambda one, draw: one.sample(5, draw, n_contexts=2, dtype=torch.float64)  # noqa: E731
    in_pairs = lambda one, draw: one.sample_pairs(5, draw, n_contexts=2, dtype=torch.float64)  # noqa: E731
    same_draws(singly, task, other)
    same_draws(in_pairs, task, other)
    must_fail(same_draws, singly, task, Rescaled.of(task, -2.0, 4.0))
    must_fail(same_draws, in_pairs, task, Rescaled.of(task, 2.0, 5.0))
    assert (other.dim, other.n_targets, other.default_encoding) == (
        task.dim,
        task.n_targets,
        task.default_encoding,
    )


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_the_mean_of_the_law_follows(task):
    xs = torch.linspace(-3, 3, 7, dtype=torch.float64)[None, :, None].expand(1, 7, task.dim)
    torch.testing.assert_close(
        Rescaled.of(task, -2.0, 5.0).expected(xs), -2 * task.expected(xs) + 5
    )
    assert not Rescaled.of(task, -2.0, 5.0).centred
    assert Rescaled.of(task, -2.0).centred == task.centred
    assert Rescaled.of(task, -2.0, 5.0).paired == task.paired is True


def test_a_single_function_stays_one_and_has_no_pairs():
    one = Rescaled.of(Continuous(function="sin", inputs=Uniform(-1, 1), n_points=6), 2.0, 1.0)
    assert one.single_function
    assert not one.paired


def test_least_squares_is_as_good_in_other_units():
    for task in TASKS:
        task = replace(task, noise_std=0.0) if task is NOISY else task
        other = Rescaled.of(task, -2.0, 5.0)
        prompts = other.sample(8, generator(0, "test"), dtype=torch.float64)
        error = (
            (LeastSquares(other).predict(prompts) - prompts.ys)[:, other.n_determining :]
            .abs()
            .max()
        )
        assert error < 1e-6, task


def test_a_constant_is_added_once():
    def features(task):
        found = task.features(torch.ones(1, 2, task.dim))
        return found.shape[-1], task.n_determining

    assert features(NOISY) == features(Rescaled.of(NOISY, 3.0)) == (3, 3)
    assert features(Rescaled.of(NOISY, 3.0, 5.0)) == (4, 4)
    assert features(TASK) == features(Rescaled.of(TASK, 3.0, 5.0)) == (2, 2)


def test_the_length_inputs_and_scale_of_the_task_inside_follow():
    task = Rescaled.of(TASK, 2.0, 1.0)
    assert task.with_points(5).task.n_points == 5
    assert replace(task, inputs=Uniform(0, 1)).task.inputs == Uniform(0, 1)
    far = task.scaled(functions=3.0, inputs=10.0)
    assert far == Rescaled.of(TASK.scaled(3.0, 10.0), 2.0, 1.0)
    assert far.inputs == Uniform(-10, 10)
    with pytest.raises(InputError, match="cannot be scaled"):
        Rescaled.of(Single(inputs=Normal(1), n_points=4), 2.0).scaled(3.0)


def test_it_is_saved_and_read_back():
    for task in TASKS:
        check_round_trip(RunConfig(make(d_in=task.dim, n_ctx=40).cfg, Rescaled.of(task, 2.0, -1.5)))


def test_what_cannot_be_rescaled():
    path = Rotations(angles=Uniform(0, 1), inputs=Normal(1), n_points=6)
    with pytest.raises(InputError, match="the next inputs"):
        Rescaled.of(path, 2.0)
    with pytest.raises(InputError, match="scale must not be 0"):
        Rescaled.of(TASK, 0.0)
    with pytest.raises(InputError, match="shift must be a finite number"):
        Rescaled.of(TASK, 1.0, float("inf"))


# ---- in a lab ------------------------------------------------------------------------------------


def lab_of(posed):
    return Lab(posed.model, posed.task, posed.encoding, n_units=4, n_contexts=2)


def same_bench(lab, other, units):
    """Prompts, far predictions, truth and predictions in distribution: all in the other units."""
    pairs = [
        (lab.prompts.ys, other.prompts.ys),
        (lab.sweep(lab.grid), other.sweep(other.grid)),
        (lab.truth(lab.grid), other.truth(other.grid)),
        *zip(lab.predictions(), other.predictions(), strict=True),
    ]
    for i, (mine, theirs) in enumerate(pairs):
        # Predictions in distribution are in float32, where rounding of tokens in the new units is
        # seen.
        tolerance = 1e-3 if i >= 3 else 1e-9
        torch.testing.assert_close(
            theirs, units.scale * mine + units.shift, rtol=tolerance, atol=tolerance
        )
    np.testing.assert_allclose(other.grid, lab.grid)


@pytest.mark.parametrize("edit", [RESCALED, SHIFTED], ids=lambda edit: edit.name)
def test_a_lab_takes_it(edit):
    posed = Posed(make("pre"), TASK, Interleaved())
    units = Units(3.0 if edit.scales else 1.0, -2.0)
    other = edit.in_units(posed, units)
    mine, theirs = lab_of(posed), lab_of(other)
    same_bench(mine, theirs, units)
    must_fail(same_bench, mine, lab_of(other._replace(model=posed.model)), units)
    errors = [in_distribution(lab, lab.task, n_contexts=1) for lab in (mine, theirs)]
    assert errors[1]["r2"] == pytest.approx(errors[0]["r2"], rel=1e-3, abs=1e-3)
    assert errors[1]["error"] == pytest.approx(units.scale**2 * errors[0]["error"], rel=1e-3)


def test_facts_hold_it():
    posed = RESCALED.in_units(Posed(make("pre"), TASK, Interleaved()), Units(3.0, -2.0))
    facts = Facts.of(posed.model, posed.task, "interleaved", {"error": 0.5, "r2": 0.25}, n_units=4)
    again = Facts.from_dict(json.loads(json.dumps(encode(facts.to_dict()))))
    assert again.task == posed.task
    assert again == facts
    assert (facts.task_kind, facts.x_unit, facts.trained_range) == ("Rescaled", 1.0, (-1, 1))
