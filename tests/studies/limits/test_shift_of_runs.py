"""What is measured of one run: errors and onsets by brute force."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from affine_runs import run
from helpers import must_fail

from icl_interp import evaluation, tasks
from icl_interp.analyses.lab import Lab
from icl_interp.baselines.law import LawMean
from icl_interp.prompts import as_numbers
from icl_interp.studies.limits.measurements import shift
from icl_interp.studies.limits.measurements.shift import INSIDE, RATE, SIGMAS, Sample
from icl_interp.tasks.regression import LinearRegression

SAMPLE = Sample(n_functions=16, n_contexts=2, seed=3, more=3)


def errors(one, task, n=16):
    found = evaluation.function_errors({"m": one}, task, n_functions=n, n_contexts=2, seed=3)
    return found["m"].mean()


def uniform(inputs, functions):
    law = tasks.Uniform(-functions, functions)
    return tasks.Polynomial(
        degrees=(1,), inputs=tasks.Uniform(-inputs, inputs), coefficients=law, n_points=5
    )


def test_half_widths():
    law = tasks.Uniform
    for inputs, coefficients, a in (
        (law(-2, 2), law(-2, 2), 2),
        (law(-2, 2), law(-1, 1), None),
        (law(0, 2), law(0, 2), None),
        (tasks.Normal(1), tasks.Normal(1), None),
        (law(-1, 1), tasks.Normal(1), None),
    ):
        task = tasks.Polynomial(degrees=(1,), n_points=5, inputs=inputs, coefficients=coefficients)
        assert shift.half_width(task) == a
    assert shift.half_width(LinearRegression(n_dims=1, n_points=5)) is None


def check_functions(functions):
    one = run()
    found = functions(one, SAMPLE)
    assert list(found) == [f"functions {s:g}" for s in SIGMAS]
    for s in SIGMAS:
        n = 48 if s == 1 else 16  # in distribution more functions
        assert found[f"functions {s:g}"] == pytest.approx(errors(one, uniform(1, s), n), rel=1e-6)


def test_functions_are_scaled():
    check_functions(shift.functions)
    must_fail(check_functions, lambda one, sample: shift.functions(one, replace(sample, seed=4)))
    must_fail(check_functions, lambda one, sample: shift.functions(one, replace(sample, more=1)))
    everything = shift.measured(run(), ("functions",), SAMPLE)
    law = errors(LawMean(run().task), run().task, 48)
    assert everything[RATE] == pytest.approx(everything["functions 1"] / law)
    assert (
        shift.measured(run(), ("own functions",), SAMPLE)["functions 1"]
        == everything["functions 1"]
    )


def check_inside(inside):
    one = run()
    found = inside(one, SAMPLE)
    lab = Lab(one.model, one.task, one.encoding, n_units=4, n_contexts=1, seed=3)
    for k in (0, 5, 7):
        squares = []
        for side in (1, -1):
            xs = lab.prompts.xs.clone()
            xs[:, -1, 0] = side * INSIDE[k]
            with torch.no_grad():
                f = lab.model(lab.encoding.encode(replace(lab.prompts, xs=xs)))[:, -1, 0]
            truth = lab.prompts.parameters[:, 0] + lab.prompts.parameters[:, 1] * side * INSIDE[k]
            squares.append((f - truth).square().mean())
        assert found[f"inside {INSIDE[k]:g}"] == pytest.approx(float(sum(squares) / 2), rel=1e-6)


def test_inside_is_what_forward_passes_give():
    check_inside(shift.inside)
    must_fail(check_inside, lambda one, sample: shift.inside(one, replace(sample, seed=4)))


def check_intervals(intervals):
    one = run(4.0)
    found = intervals(one, SAMPLE, [1.0, 4.0])
    assert list(found) == ["both 1", "both 4", "alone 4"]
    for key, inputs, functions in (("both 1", 1, 1), ("both 4", 4, 4), ("alone 4", 1, 4)):
        assert found[key] == pytest.approx(errors(one, uniform(inputs, functions)), rel=1e-6)


def test_intervals_scale_inputs_and_functions():
    check_intervals(shift.intervals)
    must_fail(check_intervals, lambda one, sample, sizes: shift.intervals(one, sample, [2.0, 4.0]))
    must_fail(check_intervals, lambda *given: dict.fromkeys(shift.intervals(*given), 1.0))


# ---- onsets --------------------------------------------------------------------------------------


def check_settled(settled):
    xs = np.logspace(-1, 6, 57)
    gap = np.where(xs < 1e6, 30 / xs, 0.0)
    assert settled(xs, gap, 0.1, 1e5) == pytest.approx(300)
    assert settled(xs, np.zeros(57), 0.1, 1e5) == xs[0]
    late = gap.copy()
    late[40] = 1.0  # once more outside, at 1e4
    assert 1e4 < settled(xs, late, 0.1, 1e5) < 1.4e4
    assert np.isnan(settled(xs, gap, 1e-5, 1e5))
    assert np.isnan(settled(xs, np.where(xs < 1e6, xs, 0.0), 0.1, 1e5))
    assert np.isnan(settled(xs, np.full(57, np.nan), 0.1, 1e5))


def test_the_onset_is_where_a_gap_gets_small_for_good():
    check_settled(shift.settled)
    must_fail(check_settled, lambda xs, gap, bound, last: shift.settled(xs, gap, bound, 1e7))

    def first(xs, gap, bound, last):
        return float(xs[np.argmax(gap <= bound)])

    must_fail(check_settled, first)


def check_onsets(onsets):
    """f's distance from its end is 0.1 u there: read off a fine sweep about it."""
    one = run()
    found = onsets(one, SAMPLE)
    lab = Lab(one.model, one.task, one.encoding, n_units=4, n_contexts=1, seed=3)
    u = float(as_numbers(lab.sweep())[:, 0].std(unbiased=False))
    for name, sign in shift.SIDES.items():
        at = sign * found[name] * np.array([0.9, 1.1])
        f = as_numbers(lab.sweep([*at, sign * 1e6]))
        gaps = (f[:, :2] - f[:, 2:]).square().mean(0).sqrt() / u
        assert gaps[1] < 0.1 < gaps[0]


def test_onsets_are_in_units_of_what_f_varies():
    check_onsets(shift.onsets)
    must_fail(
        check_onsets, lambda one, sample: {k: 2 * v for k, v in shift.onsets(one, sample).items()}
    )
    must_fail(
        check_onsets, lambda one, sample: {k: v / 2 for k, v in shift.onsets(one, sample).items()}
    )
