"""The claim of the identity: the largest difference decides, and it says that algebra does."""

import numpy as np
import pytest
from helpers import must_fail

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.measurement import Results
from icl_interp.experiments import calibration
from icl_interp.experiments.calibration import TASK, Case
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.results import make_array
from icl_interp.studies.implicit_update.claims.rank_one import RANK_ONE_CLAIM
from icl_interp.studies.implicit_update.measurements import updates as measured

CFG = HookedTransformerConfig(n_layers=1, d_model=8, n_heads=2)
FACTS = Facts.of(HookedTransformer(CFG, seed=0), TASK, "interleaved", {"error": 0.0, "r2": 1.0})


def stored(largest, spread=2.0):
    """Differences up to the largest one, of labels that spread so far."""
    differences = largest * np.linspace(-1, 0.5, 40)
    labels = spread * np.where(np.arange(40) % 2, 1.0, -1.0)
    rows = np.stack([differences, differences, labels], 1)
    axes = {
        "removed": measured.REMOVED,
        "unit": tuple(range(40)),
        "number": (measured.APART, measured.WITHOUT, measured.LABEL),
    }
    return Results({measured.identity.name: make_array(np.stack([0 * rows + rows, rows]), axes)})


def decided(largest, spread=2.0):
    numbers = RANK_ONE_CLAIM.criterion.named(
        RANK_ONE_CLAIM.evidence(stored(largest, spread), FACTS)
    )
    return RANK_ONE_CLAIM.criterion.decide(numbers).verdict, numbers


def test_the_largest_difference_of_the_labels_spread_decides():
    def check(largest, verdict):
        assert decided(largest)[0] == verdict

    check(1e-9, "supported")
    check(1e-4, "inconclusive")
    check(1.0, "contradicted")
    must_fail(check, 1.0, "supported")
    assert decided(0.5)[1]["difference"].value == pytest.approx(0.25)
    assert decided(0.0, spread=0.0)[0] == "inconclusive"


def test_an_untrained_model_supports_it_by_algebra():
    cfg = HookedTransformerConfig(n_layers=2, d_model=16, n_heads=2, n_ctx=40, init_std=0.3)
    case = Case(HookedTransformer(cfg, seed=4).double().eval())
    lab, facts = calibration.lab_for(case)
    finding = calibration.found(lab, facts, [RANK_ONE_CLAIM])[RANK_ONE_CLAIM.id]

    def check(vacuous, begins):
        assert (finding.verdict, finding.vacuous) == ("supported", vacuous)
        assert finding.reason.startswith(begins)

    check(True, "By algebra, at the query, examples act as")
    must_fail(check, False, "At the query")
