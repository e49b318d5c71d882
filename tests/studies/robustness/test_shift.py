"""The claims on shifts: where the bar lies, and verdicts on predictors and on a trained model."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import must_fail

import icl_interp
from icl_interp.baselines import LeastSquares, Zero
from icl_interp.results import make_array
from icl_interp.studies.robustness.claims import shift
from icl_interp.studies.robustness.claims.shift import CLAIMS
from icl_interp.studies.robustness.measurements.shifts import INSIDE, needs_shifts
from icl_interp.tasks import LinearRegression
from icl_interp.tasks.distributions import Normal

TASK = LinearRegression(n_dims=3, n_points=13)
IDS = [claim.id for claim in CLAIMS]


def stored(model, best=0.0, zero=1.0):
    """Errors as they are measured, the same in all units, under one shift."""
    errors = {"model": model, "least squares": best, "zero": zero}
    values = np.tile(np.array(list(errors.values()))[None, :, None], (2, 1, 40))
    axes = {"shift": (INSIDE, "skewed"), "who": tuple(errors), "unit": tuple(range(40))}
    return make_array(values, axes)


@pytest.mark.parametrize(
    ("model", "best", "times"),
    [(0.1, 0.0, 2.0), (0.2, 0.0, 4.0), (0.2, 0.05, 2.0), (1.0, 1.0, 1 / 1.05), (0.0, 0.0, 1e-3)],
)
def test_the_bar_is_least_squares_and_a_twentieth(model, best, times):
    found = shift.relative_to_bar(stored(model, best), "skewed")

    def check(expected):
        assert found.value == pytest.approx(expected, rel=1e-9)

    check(times)
    must_fail(check, 1.05 * times)
    row = shift.row_of(stored(model, best, 2.0), "skewed")
    assert row[shift.OVER_ZERO] == pytest.approx(model / 2)
    assert row["least squares"] == pytest.approx(best / 2)


def test_each_claim_asks_its_shifts_and_one_of_another_size():
    asked = {}
    for claim in CLAIMS:
        names = [condition.quantity for condition in claim.criterion.conditions]
        asked[claim.id.partition(".shift_")[2]] = names
        assert claim.reads == "outputs"
        assert claim.excluded.__name__.startswith("needs_")
    assert asked["quadrants"] == ["quadrants"]
    for name, drawn in (("inputs", "x*drawn"), ("functions", "y*drawn")):
        assert len(asked[name]) == 5
        assert asked[name][-1] == drawn
    assert CLAIMS[0].excluded is needs_shifts
    assert CLAIMS[-1].excluded is not needs_shifts


def verdicts(predictor):
    report = icl_interp.analyze(
        predictor, task=TASK, claims=IDS, n_prompts=512, control=Zero(), progress=False
    )
    return {finding.id.partition(".shift_")[2]: finding.verdict for finding in report.findings}


def check_noise_that_is_no_shift(task):
    """Beside large labels noise of the size asked is hardly one, so nothing is decided."""
    report = icl_interp.analyze(
        LeastSquares(task),
        task=task,
        claims=["robustness.shift_noise"],
        n_prompts=512,
        control=Zero(),
        progress=False,
    )
    (finding,) = report.findings
    assert finding.verdict == "inconclusive"
    assert "that is hardly a shift" in finding.reason


@pytest.mark.slow
def test_noise_that_is_too_small_beside_the_labels_decides_nothing():
    check_noise_that_is_no_shift(replace(TASK, weights=Normal(std=20.0)))
    must_fail(check_noise_that_is_no_shift, TASK)


class Bounded:
    """Least squares whose predictions end at a size that training hardly exceeds."""

    def predict(self, prompts):
        return LeastSquares(TASK).predict(prompts).clamp(-3.5, 3.5)


def check_outside(found, lost):
    """All shifts are stood but these."""
    for name, verdict in found.items():
        assert verdict == ("contradicted" if name in lost else "supported"), name


@pytest.mark.slow
def test_predictors_are_judged_by_what_they_say():
    exact = verdicts(LeastSquares(TASK))
    check_outside(exact, ())
    bounded = verdicts(Bounded())
    assert bounded["functions"] == "contradicted"
    assert bounded["noise"] == "supported"
    must_fail(check_outside, bounded, ())


def test_an_untrained_control_does_not_pass():
    """Predicting 0 errs twenty times what is allowed, so a pass tells of the training."""
    found = shift.relative_to_bar(stored(1.0), "skewed")
    assert found.value == pytest.approx(1 / shift.ALLOWED)
    assert found.value > shift.WORSE


@pytest.mark.slow
def test_a_trained_model_stands_some_shifts():
    """`softmax_fixed_20`: directions and signs yes, three times the function hardly."""
    report = icl_interp.analyze("softmax_fixed_20", claims=IDS, progress=False)
    for name in ("quadrants", "half_subspace", "skewed", "noise"):
        assert report[f"robustness.shift_{name}"].verdict == "supported"
    rows = report["robustness.shift_functions"].details
    shares = {row["shift"]: row[shift.OVER_ZERO] for row in rows}
    assert shares["y*3"] > 10 * shares[INSIDE]
