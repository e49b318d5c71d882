"""The claim of steps: D and its thresholds, who is asked, and verdicts on known weights."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import must_fail

import icl_interp
from icl_interp.analyses.facts import Facts, needs_linear_functions
from icl_interp.analyses.measurement import Results
from icl_interp.experiments import calibration
from icl_interp.experiments.calibration import Case
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.gradient_descent.claims import steps
from icl_interp.studies.gradient_descent.claims.steps import STEPS_CLAIM
from icl_interp.studies.gradient_descent.constructions import weights
from icl_interp.studies.gradient_descent.measurements import distances as measured
from icl_interp.tasks import LinearRegression, Normal

TASK = LinearRegression(n_dims=3, n_points=9)
NAMES = ("descent, 2 steps", "GD++, 2 steps", "without block 0: GD++, 1 step", "without block 1: x")
RIVALS = ("downhill only: GD++, 2 steps", "rival: least squares", "rival: GD++, 1 step")


def facts(task):
    """About a model of such a task, by whatever weights."""
    cfg = HookedTransformerConfig(n_layers=1, d_model=8, n_heads=2)
    return Facts.of(HookedTransformer(cfg, seed=0), task, "stacked", {"error": 0.0, "r2": 1.0})


def stored(shares, scale=1.0, others=(0.02, 0.5, 0.3)):
    """Differences that are these shares of the variance, of 400 predictions.

    Args:
        shares: of `NAMES`.
        scale: of predictions.
        others: shares of `RIVALS`.
    """
    own = np.random.default_rng(1).normal(size=400)
    own = scale * (own - own.mean()) / own.std()
    rows = []
    for share in (*shares, *others):
        rows.append([np.full(400, share * own.var()), own, np.full(400, 2.0)])
    axes = {
        "comparison": NAMES[: len(shares)] + RIVALS,
        "number": (measured.SQUARED, measured.OWN, measured.LABEL),
        "unit": tuple(range(400)),
    }
    return make_array(rows, axes)


def numbers(shares, *settings):
    results = Results({measured.distances.name: stored(shares, *settings)})
    return STEPS_CLAIM.evidence(results, facts(TASK))


def test_the_nearest_family_counts_and_the_farthest_block():
    found = numbers((0.3, 0.02, 0.04, 0.2))

    def check(distance, without):
        assert found[steps.DISTANCE].value == pytest.approx(distance)
        assert found[steps.WITHOUT_BLOCK].value == pytest.approx(without)

    check(0.02, 0.2)
    must_fail(check, 0.3, 0.2)
    must_fail(check, 0.02, 0.04)
    assert steps.WITHOUT_BLOCK not in numbers((0.3, 0.02))
    assert numbers((0.3, 1e-12))[steps.DISTANCE].value == pytest.approx(steps.ROUNDING)


def test_predictions_that_do_not_vary_decide_nothing():
    for scale, verdict in ((1.0, "supported"), (1e-4, "inconclusive")):
        rule = STEPS_CLAIM.criterion
        assert rule.decide(rule.named(numbers((0.02, 0.02), scale))).verdict == verdict
    faint = numbers((0.02, 0.02), 1e-4)
    assert faint[steps.DISTANCE].value == 1.0


def test_a_family_near_the_whole_decides_nothing_where_a_block_is_all():
    rule = STEPS_CLAIM.criterion
    for without, verdict in ((0.02, "supported"), (0.5, "inconclusive")):
        assert rule.decide(rule.named(numbers((0.3, 0.02, without)))).verdict == verdict
    assert rule.decide(rule.named(numbers((0.3, 0.2, 0.02)))).verdict == "contradicted"


@pytest.mark.parametrize(
    ("others", "verdict"),
    [
        ((0.02, 0.5, 0.3), "supported"),
        ((0.02, 0.5, 0.03), "inconclusive"),  # a step less does nearly as well
        ((0.02, 0.03, 0.5), "inconclusive"),  # so does least squares
        ((0.2, 0.9, 0.9), "inconclusive"),  # its steps go up
    ],
)
def test_a_rival_that_does_as_well_and_steps_that_go_up_decide_nothing(others, verdict):
    rule = STEPS_CLAIM.criterion
    found = numbers((0.3, 0.02, 0.02), 1.0, others)
    assert rule.decide(rule.named(found)).verdict == verdict
    assert found[steps.BESIDE_RIVALS].value == pytest.approx(others[0] / min(others[1:]))
    assert found[steps.WITHOUT_UPHILL].value == pytest.approx(others[0])


def judged(case):
    (finding,) = calibration.judge(case, (STEPS_CLAIM.id,))
    return finding


def test_descent_to_a_shifted_function_is_as_far_as_its_formula_says():
    """D = c^2 / (d + c^2)."""
    case = weights.shifted(weights.shift_of(0.3), generator(0, "test"), layers=1)
    found = judged(case).evidence[steps.DISTANCE]

    def check(expected):
        assert found.low < expected < found.high

    check(0.3)
    must_fail(check, 0.2)
    must_fail(check, 0.45)


@pytest.mark.slow
def test_a_constant_is_no_descent():
    cfg = HookedTransformerConfig(n_layers=2, d_model=8, n_heads=2, n_ctx=21, d_in=weights.DIM + 1)
    model = HookedTransformer(cfg, seed=0)
    model.unembed.W_U.data.zero_()
    finding = judged(Case(model, weights.TASK))
    assert finding.verdict == "inconclusive"
    assert "variance of its predictions" in finding.reason


def test_who_is_not_asked():
    """`needs_linear_functions` has tests of its own."""
    assert STEPS_CLAIM.excluded is needs_linear_functions
    assert "like the examples" in (
        STEPS_CLAIM.exclusion(facts(replace(TASK, query=Normal(3)))) or ""
    )
    assert STEPS_CLAIM.exclusion(facts(TASK)) is None
    outside = Facts.of_outputs(TASK, {"error": 0.0, "r2": 1.0})
    assert "needs weights" in (STEPS_CLAIM.exclusion(outside) or "")


@pytest.mark.slow
def test_a_trained_layer_is_a_preconditioned_step():
    report = icl_interp.analyze("lsa_fixed", claims=[STEPS_CLAIM.id], progress=False)
    finding = report[STEPS_CLAIM.id]
    assert finding.verdict == "supported"
    sizes = {row["comparison"]: row["D"] for row in finding.details}
    assert sizes["preconditioned descent, 1 step"] < 1e-3 < sizes["descent, 1 step"]
    assert list(report.figures) == ["claims", "descent_distances"]


@pytest.mark.slow
def test_three_softmax_layers_are_not_three_steps():
    """`softmax_fixed_20` predicts as GD++ does, and not as two steps of it without a block."""
    finding = icl_interp.analyze("softmax_fixed_20", claims=[STEPS_CLAIM.id], progress=False)[
        STEPS_CLAIM.id
    ]
    assert finding.verdict == "inconclusive"
    assert finding.evidence[steps.DISTANCE].high < steps.NEAR
    assert finding.evidence[steps.WITHOUT_BLOCK].low > steps.FAR
