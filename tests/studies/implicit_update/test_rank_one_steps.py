"""The claims: numbers from differences and cosines that are known, and layers of known truth."""

import numpy as np
import pytest
from helpers import must_fail

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Results
from icl_interp.experiments import calibration
from icl_interp.experiments.calibration import TASK, Case
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.implicit_update.claims import rank_one_steps as claims
from icl_interp.studies.implicit_update.constructions.weights import layer
from icl_interp.studies.implicit_update.measurements import updates as measured
from icl_interp.tasks import LinearRegression, Normal

EXAMPLES = (2, 4, 9, 18)
N_UNITS = 400
UNITS = tuple(range(N_UNITS))
CFG = HookedTransformerConfig(n_layers=1, d_model=8, n_heads=2)
FACTS = Facts.of(HookedTransformer(CFG, seed=0), TASK, "interleaved", {"error": 0.0, "r2": 1.0})


def stored(own=0.5, other=0.1, without=1.0, apart=0.0, spread=2.0, said=1.0):
    """Cosines about some means, of a largest one of .8, and changes of predictions.

    Args:
        own: mean cosine, of the largest.
        other: the same with other examples.
        without: change of predictions where the bias alone is put in.
        apart: largest difference under the whole update.
        spread: of labels.
        said: size of predictions.
    """
    noise = 0.05 * np.random.default_rng(1).normal(size=(len(EXAMPLES), N_UNITS))
    most = np.full_like(noise, 0.8)
    cosines = np.stack([0.8 * (own + noise), most, 0.8 * (other + noise), most], 1)
    of_steps = {"examples": EXAMPLES, "number": measured.OWN + measured.OTHER, "unit": UNITS}
    signs = np.where(np.arange(N_UNITS) % 2, 1.0, -1.0)
    apart = apart * np.linspace(-1, 0.5, N_UNITS)
    changes = np.stack([apart, without * np.ones(N_UNITS), spread * signs, said * signs])
    numbers = (measured.APART, measured.WITHOUT, measured.LABEL, measured.SAID)
    arrays = {
        measured.steps.name: make_array(cosines, of_steps),
        measured.identity.name: make_array(changes, {"number": numbers, "unit": UNITS}),
    }
    return Results(arrays)


def decided(claim, **numbers):
    found = claim.criterion.named(claim.evidence(stored(**numbers), FACTS))
    return claim.criterion.decide(found).verdict, found


def test_the_largest_difference_of_the_labels_spread_decides_on_rank_one():
    def check(largest, verdict):
        assert decided(claims.RANK_ONE_CLAIM, apart=largest)[0] == verdict

    check(1e-9, "supported")
    check(1e-4, "inconclusive")
    check(1.0, "contradicted")
    must_fail(check, 1.0, "supported")
    numbers = decided(claims.RANK_ONE_CLAIM, apart=0.5)[1]
    assert numbers[claims.DIFFERENCE].value == pytest.approx(0.25)
    assert decided(claims.RANK_ONE_CLAIM, spread=0.0)[0] == "inconclusive"
    # Of predictions that are larger than labels: there this is rounding.
    numbers = decided(claims.RANK_ONE_CLAIM, apart=1e-3, spread=1e-3, said=1e6)[1]
    assert numbers[claims.DIFFERENCE].value == pytest.approx(1e-9)


def test_rounding_beside_tiny_labels_contradicts_no_identity():
    """Labels of 1e-15 beside predictions of about 1, whose last digits are larger."""
    cfg = HookedTransformerConfig(n_layers=2, d_model=16, n_heads=2, n_ctx=40, d_in=3)
    task = LinearRegression(n_dims=2, n_points=20, weights=Normal(1e-15))
    model = HookedTransformer(cfg, seed=0).double().eval()
    (finding,) = calibration.judge(Case(model, task), (claims.RANK_ONE_CLAIM.id,))

    def check(verdict):
        assert finding.verdict == verdict

    check("supported")
    must_fail(check, "contradicted")


def test_an_untrained_model_supports_rank_one_by_algebra():
    cfg = HookedTransformerConfig(n_layers=2, d_model=16, n_heads=2, n_ctx=40, init_std=0.3)
    lab, facts = calibration.lab_for(Case(HookedTransformer(cfg, seed=4).double().eval()))
    finding = calibration.found(lab, facts, [claims.RANK_ONE_CLAIM])[claims.RANK_ONE_CLAIM.id]

    def check(vacuous, begins):
        assert (finding.verdict, finding.vacuous) == ("supported", vacuous)
        assert finding.reason.startswith(begins)

    check(True, "By algebra, at the query, examples act as")
    must_fail(check, False, "At the query")


def test_cosines_count_by_the_largest_and_against_other_examples():
    found = decided(claims.DESCENT_CLAIM)[1]

    def check(alignment, excess):
        assert found[claims.ALIGNMENT].value == pytest.approx(alignment, abs=0.01)
        assert found[claims.EXCESS].value == pytest.approx(excess, abs=0.01)

    check(0.5, 0.4)
    must_fail(check, 0.4, 0.4)  # the plain cosine
    must_fail(check, 0.5, 0.5)


@pytest.mark.parametrize(
    ("numbers", "verdict"),
    [
        ({"own": 0.5, "other": 0.1}, "supported"),
        ({"own": 0.5, "other": 0.5}, "inconclusive"),  # it goes along any example's descent
        ({"own": 0.2, "other": 0.0}, "inconclusive"),
        ({"own": 0.05, "other": 0.0}, "contradicted"),
        ({"own": 0.5, "other": 0.1, "without": 0.1}, "inconclusive"),
    ],
)
def test_what_decides_whether_steps_descend(numbers, verdict):
    assert decided(claims.DESCENT_CLAIM, **numbers)[0] == verdict


def test_the_effect_is_the_change_without_the_matrix_of_the_labels_variance():
    assert claims.effect(stored(without=0.5)) == pytest.approx(0.25 / 4)


def test_remarks_tell_the_control_and_the_largest_cosine():
    remarks = claims.beside(stored(own=0.5, other=0.2), FACTS, {})
    assert "With later examples it is 0.20" in remarks.caveat
    assert "can be at most 0.80" in remarks.caveat


def lab_of(case):
    return Lab(case.model, case.task, case.reads(), n_units=64, n_contexts=1)


def test_the_cosine_of_a_known_layer_falls_with_the_units_that_stay():
    """(1 + 10 a)^-.5 of the cosine without such units: five coordinates with two units each."""
    cosines = []
    for unmoved in (0.001, 2.0):
        lab = lab_of(layer(generator(0, "test"), unmoved))
        cosines.append(claims.cosine(lab.measure(measured.steps), measured.OWN).value)

    def check(n_units):
        factor = ((1 + n_units * 2.0) / (1 + n_units * 0.001)) ** -0.5
        assert cosines[1] / cosines[0] == pytest.approx(factor, rel=0.01)

    check(10)
    must_fail(check, 8)


def test_the_layer_predicts_what_a_step_of_descent_predicts():
    """Against a sum by hand, with the size that the same stream draws."""
    size = calibration.between(generator(0, "test"), 1.8, 2.0)
    case = layer(generator(0, "test"))
    prompts = case.task.sample(5, generator(1, "test")).double()
    found = lab_of(case).at_query(prompts)[:, 0].numpy()
    xs, ys = prompts.xs.numpy(), prompts.ys[:, :-1, 0].numpy()

    def check(size):
        w = size * np.einsum("bn,bnd->bd", ys, xs[:, :-1]) / xs.shape[1]
        np.testing.assert_allclose(found, (w * xs[:, -1]).sum(-1), atol=1e-8)

    check(size)
    must_fail(check, 1.01 * size)
