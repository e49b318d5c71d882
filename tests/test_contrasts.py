"""Contrasts differ in one thing, and shares of the way are what their formula says."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from small_models import TASK, make

from icl_interp import contrasts, tasks
from icl_interp.checkpoints.store import load
from icl_interp.contrasts import KINDS, Contrast, Way
from icl_interp.errors import InputError

OTHER = {"noise": {"std": 0.5}, "one label": {"example": 2}, "one input": {"example": 2}}
LAST = TASK.n_points - 1
# Where x and where y differ, by point.
CHANGES = {
    "one label": ([], [2]),
    "one input": ([2], []),
    "labels": ([], list(range(TASK.n_points))),
    "order": (list(range(LAST)), list(range(LAST))),
    "query": ([LAST], [LAST]),
    "noise": ([], list(range(LAST))),
}


def made(kind, task=TASK, **more):
    return KINDS[kind](task, n_functions=64, **OTHER.get(kind, {}), **more)


def differs_at(pairs, changes):
    """Every other number is the same to the bit; these differ in most prompts."""
    for name, points in zip(("xs", "ys"), changes, strict=True):
        moved = getattr(pairs.clean, name) != getattr(pairs.corrupted, name)
        share = moved.any(-1).double().mean(0)
        assert (share > 0.5).nonzero().flatten().tolist() == points
        assert not share[[i for i in range(len(share)) if i not in points]].any()


@pytest.mark.parametrize("kind", KINDS)
def test_a_contrast_differs_in_one_thing(kind):
    pairs = made(kind)
    differs_at(pairs, CHANGES[kind])
    must_fail(differs_at, pairs, ([0], [0]))
    assert pairs.kind == kind
    assert pairs.units.tolist() == list(range(64))
    again = made(kind)
    assert torch.equal(pairs.corrupted.ys, again.corrupted.ys)
    assert not torch.equal(pairs.clean.xs, made(kind, seed=1).clean.xs)


def test_labels_are_those_of_one_other_function():
    pairs = made("labels")
    values = TASK.targets(pairs.corrupted.parameters, pairs.clean.xs)
    torch.testing.assert_close(pairs.corrupted.ys, values)


def test_the_order_keeps_each_pair_of_x_and_y():
    pairs = made("order")
    values = TASK.targets(pairs.clean.parameters, pairs.corrupted.xs)
    torch.testing.assert_close(pairs.corrupted.ys, values)
    assert torch.equal(pairs.clean.xs.sort(1).values, pairs.corrupted.xs.sort(1).values)


def test_the_share_is_the_slope_of_what_moved_against_the_way():
    random = np.random.default_rng(0)
    start, end, out = torch.from_numpy(random.normal(size=(3, 12)))
    way = Way(start, end, np.repeat(np.arange(6), 2))
    slope = np.linalg.lstsq((end - start).numpy()[:, None], (out - start).numpy(), rcond=None)[0]
    assert way.share(out) == pytest.approx(slope[0], rel=1e-12)
    assert way.share(start) == 0
    assert way.share(end) == pytest.approx(1)
    moved, length = way.by_unit(out)
    assert moved.shape == length.shape == (6,)


def test_nothing_moves_is_refused():
    found = load("affine")
    pairs = contrasts.labels(found.task, n_functions=8)
    still = Contrast("none", pairs.clean, pairs.clean)
    with pytest.raises(InputError, match=r"hardly differs between clean and .*'none'"):
        Way.of(found, still)
    assert Way.of(found, pairs).length.abs().max() > 0.1


def test_what_is_no_contrast_is_refused_by_name():
    pairs = made("labels")
    broken = replace(pairs.clean, ys=pairs.clean.ys * torch.nan)
    with pytest.raises(InputError, match="ys of a contrast must be finite"):
        Contrast("nan", pairs.clean, broken)
    with pytest.raises(InputError, match="must have one shape"):
        Contrast("short", pairs.clean, pairs.clean.first(3))
    with pytest.raises(InputError, match="std must be a number above 0"):
        contrasts.noise(TASK, std=0.0)
    with pytest.raises(InputError, match="example must be a whole number from 0 to 5"):
        contrasts.one_label(TASK, example=LAST)


def test_one_function_has_no_other():
    one = tasks.Polynomial(
        degrees=(1,),
        inputs=tasks.Uniform(-1, 1),
        coefficients=tasks.Normal(1),
        n_points=7,
        n_tasks=1,
    )
    with pytest.raises(InputError, match="'labels' need two functions"):
        contrasts.labels(one, n_functions=4)
    assert len(contrasts.query(one, n_functions=4)) == 4


def test_vectors_are_refused():
    pairs = contrasts.labels(tasks.LinearRegression(n_dims=2, n_points=5), n_functions=4)
    with pytest.raises(InputError, match="vectors of 2 coordinates"):
        contrasts.at_query(make(d_out=2, d_in=2), torch.zeros(4, 5, 2, dtype=torch.float64))
    assert len(pairs) == 4
