"""The claims with content: numbers from sizes and cosines that are known, and known layers."""

import numpy as np
import pytest
from helpers import must_fail

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Results
from icl_interp.experiments.calibration import TASK
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.implicit_update.claims import steps as learning
from icl_interp.studies.implicit_update.constructions import weights
from icl_interp.studies.implicit_update.measurements import updates as measured

EXAMPLES = (2, 3, 5, 8, 13, 20)
N_UNITS = 400
CFG = HookedTransformerConfig(n_layers=1, d_model=8, n_heads=2)
FACTS = Facts.of(HookedTransformer(CFG, seed=0), TASK, "interleaved", {"error": 0.0, "r2": 1.0})


def stored(own=0.5, other=0.1, power=-1.0, factor=1.0, late=1.0, without=1.0):
    """Cosines about some means, of a largest one of .8, and sizes that are powers of n.

    Args:
        own: mean cosine, of the largest.
        other: the same with another example.
        power: of sizes in n.
        factor: of sizes with labels of other functions.
        late: of sizes of the last two steps.
        without: change of predictions where the bias alone is put in.
    """
    draw = np.random.default_rng(1)
    sizes = np.array(EXAMPLES, float) ** power * np.where(np.arange(6) < 4, 1.0, late)
    most = np.full((6, N_UNITS), 0.8)
    noise = 0.05 * draw.normal(size=(6, N_UNITS))
    size = sizes[:, None] * (1 + 0.1 * draw.normal(size=(6, N_UNITS)))
    foreign = (
        factor
        * sizes[:, None]
        * np.ones((6, N_UNITS))
        / np.where(np.arange(6) < 4, 1, late)[:, None]
    )
    rows = [0.8 * (own + noise), most, 0.8 * (other + noise), most, size, foreign]
    axes = {"examples": EXAMPLES, "number": measured.NUMBERS, "unit": tuple(range(N_UNITS))}
    labels = np.where(np.arange(N_UNITS) % 2, 2.0, -2.0)
    changes = np.stack([0 * labels, without * np.ones(N_UNITS), labels], 1)
    of_identity = {
        "removed": measured.REMOVED,
        "unit": tuple(range(N_UNITS)),
        "number": (measured.APART, measured.WITHOUT, measured.LABEL),
    }
    return Results(
        {
            measured.steps.name: make_array(np.stack(rows, 1), axes),
            measured.identity.name: make_array(np.stack([changes, changes]), of_identity),
        }
    )


def decided(claim, **numbers):
    found = claim.criterion.named(claim.evidence(stored(**numbers), FACTS))
    return claim.criterion.decide(found).verdict, found


def test_cosines_count_by_the_largest_and_against_another_example():
    found = decided(learning.DESCENT_CLAIM)[1]

    def check(alignment, excess):
        assert found[learning.ALIGNMENT].value == pytest.approx(alignment, abs=0.01)
        assert found[learning.EXCESS].value == pytest.approx(excess, abs=0.01)

    check(0.5, 0.4)
    must_fail(check, 0.4, 0.4)  # the plain cosine
    must_fail(check, 0.5, 0.5)


@pytest.mark.parametrize(
    ("numbers", "verdict"),
    [
        ({"own": 0.5, "other": 0.1}, "supported"),
        ({"own": 0.5, "other": 0.5}, "inconclusive"),
        ({"own": 0.2, "other": 0.0}, "inconclusive"),
        ({"own": 0.05, "other": 0.0}, "contradicted"),
        ({"own": 0.5, "other": 0.1, "without": 0.1}, "inconclusive"),
    ],
)
def test_what_decides_whether_steps_descend(numbers, verdict):
    assert decided(learning.DESCENT_CLAIM, **numbers)[0] == verdict


def test_slopes_and_ratios_are_those_that_sizes_were_made_with():
    found = decided(learning.VANISH_CLAIM, power=-1.5, factor=3.0, late=0.5)[1]

    def check(ratio):
        assert found[learning.RATIO].value == pytest.approx(ratio, rel=0.01)

    check(0.5 / 3)
    must_fail(check, 1 / 3)
    straight = decided(learning.VANISH_CLAIM, power=-1.5)[1]
    assert straight[learning.SLOPE].value == pytest.approx(-1.5, abs=0.01)


@pytest.mark.parametrize(
    ("numbers", "verdict"),
    [
        ({"power": -1.0, "factor": 4.0}, "supported"),
        ({"power": -1.0, "factor": 1.0}, "contradicted"),  # an average of anything
        ({"power": -1.0, "factor": 1.6}, "inconclusive"),
        ({"power": 0.0, "factor": 4.0}, "contradicted"),
        ({"power": -1.0, "factor": 4.0, "without": 0.1}, "inconclusive"),
    ],
)
def test_what_decides_whether_steps_vanish(numbers, verdict):
    assert decided(learning.VANISH_CLAIM, **numbers)[0] == verdict


def test_the_effect_is_the_change_without_the_matrix_of_the_labels_variance():
    assert learning.effect(stored(without=0.5)) == pytest.approx(0.25 / 4)


def test_remarks_tell_the_control_and_the_largest_cosine():
    results = stored(own=0.5, other=0.2, power=-1.2)
    of_descent = learning.of_descent(results, FACTS, {})
    assert "another example of the prompt it is 0.20" in of_descent.caveat
    assert "can be 0.80 at most" in of_descent.caveat
    assert [row["examples"] for row in of_descent.details] == list(EXAMPLES)
    assert "slope is -1.20" in learning.of_vanishing(results, FACTS, {}).caveat


def lab_of(case):
    return Lab(case.model, case.task, case.reads(), n_units=64, n_contexts=1)


def test_the_mean_label_is_online_descent_up_to_the_units_that_stay():
    """(1 + 6 a)^-.5 of the cosine without such units, for three coordinates with two units each."""
    cosines = []
    for unmoved in (0.001, 2.0):
        case = weights.mean_label(unmoved)
        lab = lab_of(case)
        cosines.append(learning.cosine(lab.measure(measured.steps)).value)

    def check(n_units):
        assert cosines[1] / cosines[0] == pytest.approx((1 + n_units * 2.0) ** -0.5, rel=0.01)

    check(6)
    must_fail(check, 4)


def test_layers_of_descent_predict_what_descent_predicts():
    """Against steps of descent by hand, with the query as an example whose label is 0."""
    case = weights.descent(3, 1.5, 0.05, 0.2)
    prompts = case.task.sample(5, generator(0, "test")).double()
    lab = lab_of(case)
    found = lab.at_query(prompts)[:, 0].numpy()

    def check(size):
        for i in range(len(prompts)):
            xs = prompts.xs[i].numpy()
            ys = prompts.ys[i, :, 0].numpy().copy()
            ys[-1] = 0
            w = np.zeros(2)
            for _ in range(3):
                w = w + size * xs.T @ (ys - xs @ w) / len(xs)
            assert found[i] == pytest.approx(float(xs[-1] @ w), abs=1e-8)

    check(1.5)
    must_fail(check, 1.4)
