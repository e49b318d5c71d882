"""A user's noise: functions are paired only if the partner's prompts follow the task's law."""

from dataclasses import dataclass, fields
from typing import ClassVar

import pytest
import torch
from helpers import must_fail
from small_models import make

from icl_interp.analyses import Bench
from icl_interp.errors import InputError
from icl_interp.provenance import generator
from icl_interp.tasks import (
    LinearRegression,
    Normal,
    Polynomial,
    Rescaled,
    RidgeFunction,
    Sphere,
    Task,
    Uniform,
)
from icl_interp.tasks import pairs as trial

LIKE = {"weights": Normal(1.0), "inputs": Uniform(-1, 1), "n_points": 8}


@dataclass(frozen=True, kw_only=True)
class Line(Task):
    """y = w x about a centre, and labels as `labels` makes them of values."""

    centre: ClassVar[float] = 0.0

    weights: Normal

    @property
    def n_determining(self):
        return 1

    def sample_parameters(self, n, generator, dtype):
        return self.centre + self.weights.sample((n, 1), generator, dtype)

    def mean_parameters(self, parameters):
        return torch.full_like(parameters, self.centre)

    def value(self, parameters, xs):
        return parameters * xs[..., 0]

    def sample_points(self, parameters, n_points, generator, dtype):
        xs = self.inputs.sample((len(parameters), n_points, 1), generator, dtype)
        return xs, self.labels(self.targets(parameters, xs), xs, generator)

    def labels(self, values, xs, generator):
        return values


def line(labels, says=None, centre=0.0, **methods):
    """A task with such labels, whose class says that its noise is symmetric, or not, or nothing."""
    said = {} if says is None else {"symmetric_noise": says}
    body = {
        "labels": labels,
        "centre": centre,
        "sample_points": Line.sample_points,
        **said,
        **methods,
    }
    return type("Mine", (Line,), body | {"mean_parameters": Line.mean_parameters})(**LIKE)


def uniform(t, generator):
    return torch.rand(t.shape, generator=generator, dtype=t.dtype)


def normal(t, generator):
    return torch.randn(t.shape, generator=generator, dtype=t.dtype)


def outliers(self, values, xs, generator):
    """Every fifth label is pushed up."""
    return values + 5.0 * (uniform(values, generator) < 0.2)


def rare_outliers(self, values, xs, generator):
    """One label in 300, drawn in a way that few functions show."""
    return values + 5.0 * (uniform(values, generator) < 1 / 300)


def clipped(self, values, xs, generator):
    """A sensor that shows nothing below 0."""
    return values.clamp(min=0)


def relative(self, values, xs, generator):
    """Noise as large as the value, which differs for a partner about another centre than 0."""
    return values * (1 + 0.3 * normal(values, generator))


def skewed(self, values, xs, generator):
    """Mean 0, and not symmetric."""
    return values - uniform(values, generator).log() - 1


def skewed_where_positive(self, values, xs, generator):
    """Symmetric over all inputs, and not at one of them."""
    return values + xs.sign() * (-uniform(values, generator).log() - 1)


def shared(self, values, xs, generator):
    """One skewed number for all labels of a prompt."""
    return values - uniform(values[:, :1], generator).log() - 1


def rounded(self, values, xs, generator):
    """To whole numbers, upwards."""
    return values.ceil()


def of_the_size(self, values, xs, generator):
    """Larger where the function is large."""
    return values + values.abs() * normal(values, generator)


ASYMMETRIC = (outliers, rare_outliers, skewed, skewed_where_positive, shared)
DEPENDENT = (clipped, relative, rounded, of_the_size)


def gaussian(self, values, xs, generator):
    return values + 0.5 * normal(values, generator)


def heavy(self, values, xs, generator):
    """Cauchy's law, which has no moments."""
    return values + 0.01 * torch.tan(torch.pi * (uniform(values, generator) - 0.5))


def in_a_row(self, values, xs, generator):
    """Each point's noise is nearly that of the one before."""
    return values + normal(values, generator).cumsum(1)


def one_sign(self, values, xs, generator):
    """One number for all labels of a prompt."""
    return values + normal(values[:, :1], generator)


def at_the_ends(self, values, xs, generator):
    """Larger where inputs are."""
    return values + xs.abs() * normal(values, generator)


SYMMETRIC = (gaussian, heavy, in_a_row, one_sign, at_the_ends)


def noise(task, prompts):
    return prompts.ys - task.targets(prompts.parameters, prompts.xs)


def check_noise_is_that_of_sample(task, n=3000):
    """Each point of a partner's noise has the same quantiles, within 5 standard errors."""
    draws = [
        task.sample_pairs(n, generator(0, "test/noise"), dtype=torch.float64)[1::2],
        task.sample(n, generator(1, "test/noise"), dtype=torch.float64),
    ]
    mine, other = (noise(task, prompts)[..., 0] for prompts in draws)
    for share in (0.05, 0.25, 0.5, 0.75, 0.95):
        bound = other.quantile(share, 0)
        below = [(t < bound).double().mean(0) for t in (mine, other)]
        assert (below[0] - below[1]).abs().max() <= 5 * (2 * share * (1 - share) / n) ** 0.5


def name_of(function):
    return function.__name__


@pytest.mark.parametrize("labels", ASYMMETRIC + DEPENDENT + SYMMETRIC, ids=name_of)
def test_noise_of_which_nothing_is_said_has_no_pairs(labels):
    task = line(labels)
    assert not task.paired
    with pytest.raises(
        InputError, match=r"Mine come in no antithetic pairs, because .*noise"
    ) as raised:
        task.sample_pairs(3, generator(0, "test"))
    assert "\n" not in str(raised.value)
    assert not line(labels, says=False).paired


@pytest.mark.parametrize("labels", ASYMMETRIC + DEPENDENT, ids=name_of)
def test_what_a_class_says_wrongly_is_noticed(labels):
    task = line(labels, says=True, centre=1.0)
    assert not task.paired
    with pytest.raises(InputError, match=r"law of their noise|noise depends on the function"):
        task.sample_pairs(3, generator(0, "test"))


@pytest.mark.parametrize("labels", [outliers, skewed, shared, clipped, rounded], ids=name_of)
def test_otherwise_prompts_would_be_judged_that_are_never_drawn(labels, monkeypatch):
    """The mutant: pairs as they were, whatever the noise."""
    monkeypatch.setattr(trial, "tried", lambda task: None)
    must_fail(check_noise_is_that_of_sample, line(labels, says=True, centre=1.0))


@pytest.mark.parametrize("labels", SYMMETRIC, ids=name_of)
def test_symmetric_noise_that_a_class_declares_has_pairs(labels):
    task = line(labels, says=True, centre=1.0)
    assert task.paired
    check_noise_is_that_of_sample(task)


def test_noise_too_rare_to_be_tried_is_refused_when_it_is_drawn():
    def labels(self, values, xs, generator):
        return values + 5.0 * (uniform(values, generator) < 3e-5)

    task = line(labels)
    assert task.paired, "none of the functions that were tried had any"
    with pytest.raises(InputError, match="does not say symmetric_noise = True"):
        task.sample_pairs(20_000, generator(0, "test"))
    exact = line(lambda self, values, xs, generator: values)
    assert len(exact.sample_pairs(20_000, generator(0, "test"))) == 40_000


def test_inputs_that_depend_on_the_function_have_no_pairs():
    def sample_points(self, parameters, n_points, generator, dtype):
        xs = (
            self.inputs.sample((len(parameters), n_points, 1), generator, dtype)
            * parameters[:, None]
        )
        return xs, self.targets(parameters, xs)

    task = line(gaussian, says=True, sample_points=sample_points)
    assert not task.paired
    with pytest.raises(InputError, match="their inputs depend on the function"):
        task.sample_pairs(3, generator(0, "test"))


def test_a_sample_of_ones_own_has_no_pairs():
    """Its prompts may be any: partners would not follow it."""

    class Positive(Polynomial):
        def sample(self, *args, **settings):
            prompts = super().sample(*args, **settings)
            return type(prompts)(prompts.xs, prompts.ys.abs(), prompts.parameters, prompts.function)

    like = {"degrees": (1,), "inputs": Uniform(-1, 1), "coefficients": Normal(1.0), "n_points": 5}
    assert Polynomial(**like).paired
    assert not Positive(**like).paired


def test_a_subclass_that_adds_noise_must_say_so_anew():
    class Pushed(LinearRegression):
        def sample_points(self, *args):
            xs, ys = super().sample_points(*args)
            return xs, ys + (ys > 1)

        def mean_parameters(self, parameters):
            return 0 * parameters

    assert LinearRegression(n_dims=2, noise_std=1.0, n_points=5).paired
    assert not Pushed(n_dims=2, noise_std=1.0, n_points=5).paired
    assert not Rescaled.of(Pushed(n_dims=2, n_points=5), scale=2.0).paired
    assert Rescaled.of(LinearRegression(n_dims=2, noise_std=1.0, n_points=5), shift=2.0).paired


@pytest.mark.parametrize(
    "task",
    [
        LinearRegression(n_dims=3, noise_std=0.7, n_points=6),
        RidgeFunction(inputs=Sphere(3), link="relu", noise_std=0.5, n_points=6),
        Rescaled.of(LinearRegression(n_dims=3, noise_std=0.7, n_points=6), scale=-2.0, shift=1.0),
    ],
    ids=lambda task: type(task).__name__,
)
def test_bundled_noise_is_as_it_is_said(task):
    assert task.paired
    check_noise_is_that_of_sample(task)


def test_a_report_has_prompts_that_the_task_draws(monkeypatch):
    def smallest(task):
        return float(
            noise(task, Bench(make("pre"), task, _interleaved(), n_units=32).prompts).min()
        )

    task = line(outliers)
    assert smallest(task) == pytest.approx(0, abs=1e-12)
    monkeypatch.setattr(trial, "tried", lambda task: None)
    assert smallest(line(outliers, says=True)) == pytest.approx(-5)


def _interleaved():
    from icl_interp.models.tokens import Interleaved

    return Interleaved()


def test_a_trial_is_made_once_for_each_task(monkeypatch):
    made = []
    monkeypatch.setattr(trial, "tried", lambda task: made.append(task))
    task = line(gaussian, says=True)
    assert task.paired
    assert task.paired
    assert made == [task]
    assert set(vars(task)) == {field.name for field in fields(task)}
