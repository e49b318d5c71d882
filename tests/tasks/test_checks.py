"""What a task of one's own may return, and what is refused in one line before anything is trained on it."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from vector_tasks import MAPS, PATHS, LinearMap, Rotations

from icl_interp.errors import InputError
from icl_interp.provenance import generator
from icl_interp.tasks import Normal, Polynomial, Rescaled, Task, Uniform

SETTINGS = {"degrees": (1,), "inputs": Uniform(-1, 1), "coefficients": Normal(1), "n_points": 5}
LINE = Polynomial(**SETTINGS)


def line(**methods) -> Task:
    """A task of affine functions with other methods."""
    return type("Mine", (Polynomial,), methods)(**SETTINGS)


def maps(**methods) -> Task:
    """The same of linear maps of two coordinates to three."""
    return type("Mine", (LinearMap,), methods)(**vars(MAPS))


def drawn(task):
    return task.sample(3, generator(0, "test/checks"), dtype=torch.float64)


def points(change):
    """A `sample_points` that changes what the parent's returns."""
    return lambda self, *args: change(*super(type(self), self).sample_points(*args))


def values(change):
    return lambda self, *args: change(super(type(self), self).value(*args))


# ---- numbers without the last axis ---------------------------------------------------------------


def test_points_of_numbers_need_no_last_axis():
    def check(task):
        found, known = drawn(task), drawn(LINE)
        assert found.ys.shape == (3, 5, 1)
        assert torch.equal(found.ys, known.ys)
        pairs = task.sample_pairs(3, generator(0, "test"))
        assert torch.equal(pairs.ys, LINE.sample_pairs(3, generator(0, "test")).ys)

    def bare(xs, ys):
        return xs, ys[..., 0]

    centre = {"mean_parameters": Polynomial.mean_parameters}
    check(line(sample_points=points(bare), **centre))
    check(line(sample_points=points(lambda xs, ys: (xs, ys)), **centre))
    must_fail(check, line(sample_points=points(lambda xs, ys: (xs, ys + 1)), **centre))
    mine, other = (
        Rescaled.of(line(sample_points=points(bare)), scale=2.0),
        Rescaled.of(LINE, scale=2.0),
    )
    assert torch.equal(drawn(mine).ys, drawn(other).ys)


def test_a_mean_of_numbers_needs_no_last_axis():
    """Without the axis (batch, point) would broadcast against (batch, point, 1), and errors were of nothing."""
    xs = torch.linspace(-1, 1, 8, dtype=torch.float64).view(2, 4, 1)

    def check(mean):
        mine = line(
            closed_mean=lambda self, xs: mean(xs), sample_parameters=Polynomial.sample_parameters
        )
        assert torch.equal(mine.expected(xs), 1 + xs)

    check(lambda xs: 1 + xs)
    check(lambda xs: 1 + xs[..., 0])
    must_fail(check, lambda xs: xs[..., 0])


# ---- what is refused -----------------------------------------------------------------------------


def nan(values):
    return torch.full_like(values, torch.nan)


@pytest.mark.parametrize(
    ("task", "match"),
    [
        (
            maps(value=values(lambda v: None)),
            "Mine.value must return a value for each point.* returned None in place",
        ),
        (
            maps(value=values(lambda v: (v, 0))),
            r"Mine.value must .* \(tuple\) in place of a torch tensor",
        ),
        (
            maps(value=values(lambda v: v.numpy())),
            r"Mine.value must .* \(ndarray\) in place of a torch tensor",
        ),
        (
            maps(value=values(lambda v: v.sum(-1))),
            r"shape \(3, 8, 3\) here .*n_targets=3\), but returned .*\(3, 8\)$",
        ),
        (
            maps(value=values(lambda v: v.long())),
            r"returned numbers of torch.int64: convert them with .to\(xs.dtype\)",
        ),
        (
            maps(value=values(nan)),
            "values of this Mine reach nan: .* or its functions are not defined",
        ),
        (maps(sample_points=points(lambda xs, ys: (nan(xs), ys))), "inputs of this Mine reach nan"),
        (
            maps(sample_points=points(lambda xs, ys: (xs, ys.sum(-1)))),
            r"sample_points must return values ys.*\(3, 8\)",
        ),
        (
            maps(sample_points=points(lambda xs, ys: (xs[..., :1], ys))),
            r"inputs xs.* dim=2\).* returned .*\(3, 8, 1\)",
        ),
        (
            maps(sample_points=points(lambda xs, ys: (xs, ys[:, 1:]))),
            r"values ys.*\(3, 8, 3\).* \(3, 7, 3\)",
        ),
        (
            maps(sample_points=points(lambda xs, ys: xs)),
            r"a tuple \(xs, ys\) of two tensors, but returned one tensor",
        ),
        (
            maps(sample_points=points(lambda xs, ys: None)),
            r"a tuple \(xs, ys\) of two tensors, but returned None",
        ),
        (
            line(sample_points=points(lambda xs, ys: (xs[..., 0], ys))),
            r"inputs xs, shape \(3, 5, 1\).* \(3, 5\)",
        ),
    ],
)
def test_what_methods_return_is_checked(task, match):
    with pytest.raises(InputError, match=match) as caught:
        drawn(task)
    assert "\n" not in str(caught.value)


def test_a_mean_of_another_shape_is_refused():
    wrong = maps(
        closed_mean=lambda self, xs: torch.zeros(xs.shape[:2]),
        sample_parameters=LinearMap.sample_parameters,
    )
    with pytest.raises(
        InputError, match=r"Mine.closed_mean must return the mean .* \(2, 4, 3\) here.* \(2, 4\)"
    ):
        wrong.expected(torch.zeros(2, 4, 2))


@pytest.mark.parametrize(
    ("cls", "methods", "match"),
    [
        (
            LinearMap,
            {"n_targets": 2.0},
            r"Mine.n_targets must be a whole number from 1 up, but got 2.0",
        ),
        (LinearMap, {"n_targets": 0}, "Mine.n_targets must be a whole number from 1 up, but got 0"),
        (LinearMap, {"dim": "2"}, "Mine.dim must be a whole number from 1 up, but got '2'"),
        (
            LinearMap,
            {"n_targets": lambda self: 2},
            "Mine.n_targets must be a number, but is a method: put @property",
        ),
        (
            LinearMap,
            {"autoregressive": True},
            r"Mine is autoregressive: .* dim=2 and n_targets=3; make these equal",
        ),
        (Rotations, {"n_targets": 3}, r"Mine is autoregressive: .* dim=2 and n_targets=3"),
    ],
)
def test_sizes_are_checked_when_a_task_is_made(cls, methods, match):
    kept = vars(MAPS if cls is LinearMap else PATHS)
    with pytest.raises(InputError, match=match):
        type("Mine", (cls,), methods)(**kept)
    type("Mine", (cls,), {"n_targets": np.int64(3 if cls is LinearMap else 2)})(
        **kept
    )  # a whole number of NumPy's


def test_a_field_that_hides_a_property_needs_a_default():
    def declare(**default):
        body = {"__annotations__": {"n_targets": int}, "value": LinearMap.value, **default}
        return dataclass(frozen=True, kw_only=True)(type("Mine", (LinearMap,), body))

    with pytest.raises(
        InputError, match=r"Mine.n_targets is a property .* needs a default, for example `n_tar"
    ):
        declare()
    task = declare(n_targets=3)(**vars(MAPS))
    assert drawn(task).ys.shape == (3, 8, 3)
    assert replace(task, n_targets=3) == task


# ---- prompts in words ----------------------------------------------------------------------------


def test_prompts_say_how_wide_they_are():
    assert (
        repr(drawn(MAPS))
        == "Prompts(3 prompts of 8 points in 2 dimensions, values of 3 coordinates)"
    )
    assert repr(drawn(LINE)) == "Prompts(3 prompts of 5 points in 1 dimension)"
