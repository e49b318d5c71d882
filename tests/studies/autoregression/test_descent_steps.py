"""Steps of gradient descent: closed form, best sizes, models of known truth.

The closed form is compared with the steps themselves.
"""

import dataclasses
import math

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.experiments import calibration
from icl_interp.provenance import generator
from icl_interp.studies.autoregression.claims import depth as claims
from icl_interp.studies.autoregression.claims.depth import DEPTH_CLAIM
from icl_interp.studies.autoregression.constructions import maps as made
from icl_interp.studies.autoregression.measurements import descent_steps, maps
from icl_interp.tasks import AutoregressiveProcess
from icl_interp.tasks.autoregressive import complex_states
from icl_interp.testing import null_models
from icl_interp.theory import autoregression as theory

CASES = {one.name: one for one in made.CONSTRUCTIONS if DEPTH_CLAIM.id in one.expected}
TASK = AutoregressiveProcess(n_dims=3, n_points=12)


def judged(case):
    lab, facts = calibration.lab_for(case)
    return DEPTH_CLAIM.judge_results(calibration.measure(lab, facts, [DEPTH_CLAIM]), facts)


@pytest.mark.parametrize("kind", ["real", "complex", "short"])
def test_steps_in_closed_form_are_steps(kind):
    """Also where some directions have no curvature, because few transitions are seen."""
    task = AutoregressiveProcess(
        n_dims=4, matrices="unitary" if kind == "complex" else "orthogonal", n_points=12
    )
    xs = task.sample(8, generator(0, "steps"), dtype=torch.float64).xs
    states = complex_states(xs) if kind == "complex" else xs
    states = states[:, :3] if kind == "short" else states
    sizes = torch.tensor([0.01, 0.05], dtype=torch.float64)
    for n_steps in (1, 7):
        found = descent_steps.Path(states).descended(sizes, n_steps)
        for i, size in enumerate(sizes.tolist()):
            W = theory.gradient_descent(states, size, n_steps)
            expected = (W @ states[:, -1, :, None])[..., 0]
            torch.testing.assert_close(found[..., i], expected)
            must_fail(torch.testing.assert_close, found[..., 1 - i], expected)


def test_many_steps_are_least_squares():
    xs = TASK.sample(8, generator(0, "many"), dtype=torch.float64).xs
    path = descent_steps.Path(xs)
    size = 1 / path.curvatures.amax()
    found = path.descended(size[None], 10**6)[..., 0]
    torch.testing.assert_close(found, maps.solved(xs, xs[:, -1]), rtol=1e-4, atol=1e-4)


def test_the_size_of_one_step_is_the_best():
    """One step is linear in its size.

    The best is a ratio of means, and the grid has it to its own spacing.
    """
    sizes = descent_steps.best_sizes(TASK, 1, 0)
    prompts = TASK.sample(
        descent_steps.N_FITTED, generator(0, "autoregression/step sizes"), dtype=torch.float64
    )
    top = bottom = 0.0
    for t in descent_steps.late(12):
        step = maps.forms(TASK, prompts.xs[:, : t + 1], 1)[maps.STEP].free
        top, bottom = (
            top + float((step * prompts.ys[:, t]).sum()),
            bottom + float(step.square().sum()),
        )
    spacing = float(descent_steps.SIZES[1] / descent_steps.SIZES[0])
    assert abs(math.log(sizes[1] / (top / bottom))) < math.log(spacing)


@pytest.mark.parametrize(
    ("n_points", "expected"), [(12, range(9, 12)), (2, range(1, 2)), (5, range(4, 5))]
)
def test_late_points(n_points, expected):
    assert descent_steps.late(n_points) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_constructions(name):
    finding = judged(CASES[name].draw(1))
    assert finding.verdict == CASES[name].expected[DEPTH_CLAIM.id], finding.reason


@pytest.mark.slow
def test_descent_is_worth_its_steps():
    """Five steps in the model's place, at the very sizes: as good as five steps, and no better."""
    shell = CASES["half of what least squares says, by five layers"].draw(0)
    assert isinstance(shell.task, AutoregressiveProcess)
    size = descent_steps.best_sizes(shell.task, 1, 0)[5]

    def five_steps(prompts):
        out = torch.zeros_like(prompts.ys)
        for t in range(1, prompts.n_points):
            W = theory.gradient_descent(prompts.xs[:, : t + 1], size, 5)
            out[:, t] = (W @ prompts.xs[:, t, :, None].double())[..., 0].to(out)
        return out

    lab, facts = calibration.lab_for(dataclasses.replace(shell, predictor=five_steps))
    result = lab.measure(descent_steps.descent)
    np.testing.assert_allclose(
        result.sel(who=maps.MODEL).values, result.sel(who="5").values, rtol=1e-6
    )
    assert claims.matched(result) in (
        "4 steps",
        "5 steps",
    )  # of two that are equal, rounding says which is less
    found = DEPTH_CLAIM.judge_results(calibration.measure(lab, facts, [DEPTH_CLAIM]), facts)
    assert found.verdict == "supported"


@pytest.mark.slow
def test_models_that_know_nothing_support_nothing():
    case = CASES["two layers that take a gradient step"].draw(0)
    others = (null_models.blind(case.model, null_models.FAINT), null_models.constant(case.model))
    for other in (*others, null_models.untrained(case.model.cfg, 1)):
        finding = judged(calibration.Case(other, case.task))
        assert finding.verdict == "inconclusive"
        assert finding.evidence["ratio"].low > claims.AS_GOOD


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"n_layers": 1}, "one layer"),
        ({"n_layers": 40}, "at most 16"),
        ({"attention_dir": "bidirectional"}, "causal"),
    ],
)
def test_whom_it_is_not_about(change, word):
    _, facts = calibration.lab_for(CASES["two layers that take a gradient step"].draw(0))
    assert DEPTH_CLAIM.exclusion(facts) is None
    other = dataclasses.replace(facts, config=dataclasses.replace(facts.config, **change))
    assert word in (DEPTH_CLAIM.exclusion(other) or "")
