"""The claim on predictions: each distance decides, and what a remark tells."""

import numpy as np
import pytest
from helpers import must_fail

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.measurement import Results
from icl_interp.models.transformer import HookedTransformer
from icl_interp.results import make_array
from icl_interp.studies.debiased.claims import step as claim
from icl_interp.studies.debiased.measurements import predictions as measured
from icl_interp.training import recipes

N = 64


def stored(size=1.0, **distances):
    """Predictions of some size, and D of comparisons; 0.001 where none is given."""
    draw = np.random.default_rng(0)
    own = size * draw.normal(size=N)
    by_name = {claim.OF[name]: value for name, value in distances.items()}
    rows = []
    for comparison in measured.COMPARISONS:
        squared = by_name.get(comparison, 0.001) * (1 + 0.1 * draw.normal(size=N))
        rows.append([squared * (own**2).mean(), own, np.ones(N)])
    axes = {
        "comparison": measured.COMPARISONS,
        "number": (measured.SQUARED, measured.OWN, measured.LABEL),
        "unit": tuple(range(N)),
    }
    return Results({measured.predictions.name: make_array(np.array(rows), axes)})


def facts():
    config = recipes.resolve("softmax_heads_4")
    model = HookedTransformer(config.model, seed=0)
    return Facts.of(model, config.task, "stacked", {"error": 0.0, "r2": 1.0}, n_units=N)


def verdict(**shown):
    found = claim.evidence(stored(**shown), facts())
    criterion = claim.STEP_CLAIM.criterion
    return criterion.decide(criterion.named(found)).verdict


@pytest.mark.parametrize("name", list(claim.OF))
def test_each_distance_decides(name):
    def check(value, expected):
        assert verdict(**{name: value}) == expected

    check(0.01, "supported")
    check(0.07, "inconclusive")
    check(0.3, "contradicted")
    must_fail(check, 0.3, "supported")


def test_predictions_that_do_not_vary_are_no_step():
    assert verdict(size=1e-6) == "inconclusive"
    assert verdict(size=1e-2) == "supported"
    still = stored(size=0.0)[measured.predictions]
    assert claim.distance(still, measured.IN_DISTRIBUTION).value == 1.0


def test_a_remark_tells_how_far_a_plain_step_is():
    results = stored()
    found = claim.remarks(results, facts(), {})
    plain = claim.distance(results[measured.predictions], measured.PLAIN).value
    assert f"A plain step is at {plain:.2g}" in found.caveat
    assert [row["comparison"] for row in found.details] == list(measured.COMPARISONS)
