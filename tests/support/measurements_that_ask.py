"""Measurements that ask in every way there is, for tests of the plan."""

import numpy as np
import torch
from pandas import DataFrame
from pandas.testing import assert_frame_equal
from small_labs import XS

from icl_interp.analyses.measurement import measurement
from icl_interp.interventions.attention import SwapPattern, Temperature
from icl_interp.probes.norms import LayerNormScale
from icl_interp.prompts import as_numbers
from icl_interp.results import make_array


def by_row(values: torch.Tensor):
    """A result with a row for each prompt, from a sweep's `(batch, point, target)`, one target."""
    axes = {"prompt": tuple(range(len(values))), "x": tuple(range(values.shape[1]))}
    return make_array(as_numbers(values).numpy(), axes)


@measurement("test/plain", asks=lambda lab: lab.ask(XS))
def plain(lab, swept):
    return by_row(swept.f)


@measurement("test/grid", asks=lambda lab: lab.on_grid)
def grid(lab, swept):
    return by_row(swept.f)


@measurement("test/first step", asks=lambda lab: lab.ask([0.3]))
def first_step(lab, swept):
    return by_row(swept.f)


def _where_the_first_led(lab, first):
    """The question depends on what it needs."""
    probe = LayerNormScale(per_prompt=True)
    return lab.ask([float(first.values.mean())], probes=[probe], query=[Temperature(2.0)])


@measurement("test/two steps", needs=(first_step,), asks=_where_the_first_led)
def two_steps(lab, second, first):
    of_first = torch.from_numpy(first.values[..., None])
    scales = second.probe(LayerNormScale).results()["scale"]
    scale = torch.from_numpy(scales.values[-1].T[..., None])
    return by_row(torch.cat([of_first, second.f, scale], 1))


@measurement(
    "test/two at once",
    asks=lambda lab: [lab.ask(context=[SwapPattern("uniform")]), lab.ask(XS, prompts=lab.few)],
)
def two_at_once(lab, both):
    own, few = (one.f for one in both)
    return by_row(torch.cat([own[: len(few)], few], 1))


@measurement(
    "test/by key", asks=lambda lab: {x: lab.ask([x], prompts=lab.few) for x in reversed(XS)}
)
def by_key(lab, swept):
    """Answers stand under the key of their question, whatever their order."""
    assert [swept[x].xs for x in XS] == [[x] for x in XS]
    return by_row(torch.cat([swept[x].f for x in XS], 1))


@measurement("test/no question")
def no_question(lab):
    return by_row(lab.sweep(XS[:1]))


@measurement("test/nothing to ask", asks=lambda lab: None)
def nothing_to_ask(lab, swept):
    assert swept is None
    return by_row(lab.prompts.xs[:, :1])


@measurement("test/builds on another", needs=(two_steps,), asks=lambda lab, below: lab.ask(XS))
def built(lab, more, below):
    return by_row(torch.from_numpy(below.values[..., None]) + more.f)


MINE = (plain, grid, first_step, two_at_once, by_key, no_question, nothing_to_ask, two_steps, built)


def check_same(found, expected, name):
    """Results that are equal up to rounding."""
    if isinstance(expected, DataFrame):
        assert_frame_equal(found, expected, rtol=1e-7, atol=1e-9, obj=name)
    else:
        assert found.coords.to_dataset().identical(expected.coords.to_dataset()), name
        np.testing.assert_allclose(
            found.values, expected.values, rtol=1e-7, atol=1e-9, err_msg=name
        )
