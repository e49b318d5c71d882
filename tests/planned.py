"""Measurements that ask in every way there is, for tests of the plan."""

import numpy as np
import torch
from labs import XS
from pandas import DataFrame
from pandas.testing import assert_frame_equal

from icl_interp.analyses.measurement import measurement
from icl_interp.interventions.attention import SwapPattern, Temperature
from icl_interp.probes.norms import LayerNormScale
from icl_interp.probes.sweep import together
from icl_interp.prompts import as_numbers
from icl_interp.results import make_array


def by_row(values: torch.Tensor):
    """A result with a row for each prompt, from a sweep's `(batch, point, target)`, one target."""
    axes = {"prompt": tuple(range(len(values))), "x": tuple(range(values.shape[1]))}
    return make_array(as_numbers(values).numpy(), axes)


@measurement("test/plain")
def plain(lab):
    return by_row((yield from lab.ask(XS)))


@measurement("test/grid")
def grid(lab):
    return by_row((yield from lab.on_grid()))


@measurement("test/two steps")
def two_steps(lab):
    """The second question depends on the answer to the first."""
    first = yield from lab.ask([0.3])
    probe = LayerNormScale(per_prompt=True)
    second = yield from lab.ask([float(first.mean())], probes=[probe], query=[Temperature(2.0)])
    scale = torch.from_numpy(probe.results()["scale"].values[-1].T[..., None])
    return by_row(torch.cat([first, second, scale], 1))


@measurement("test/two at once")
def two_at_once(lab):
    own, few = yield from together(
        lab.ask(context=[SwapPattern("uniform")]), lab.ask(XS, prompts=lab.few)
    )
    return by_row(torch.cat([own[: len(few)], few], 1))


@measurement("test/no question")
def no_question(lab):
    return by_row(lab.sweep(XS[:1]))


@measurement("test/builds on another")
def built(lab):
    below = yield from lab.need(two_steps)
    more = yield from lab.ask(XS)
    return by_row(torch.from_numpy(below.values[..., None]) + more)


MINE = (plain, grid, two_steps, two_at_once, no_question, built)


def check_same(found, expected, name):
    """Results that are equal up to rounding."""
    if isinstance(expected, DataFrame):
        assert_frame_equal(found, expected, rtol=1e-7, atol=1e-9, obj=name)
    else:
        assert found.coords.to_dataset().identical(expected.coords.to_dataset()), name
        np.testing.assert_allclose(
            found.values, expected.values, rtol=1e-7, atol=1e-9, err_msg=name
        )
