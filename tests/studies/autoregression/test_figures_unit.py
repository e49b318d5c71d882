"""The figures of one layer show the stored numbers."""

import numpy as np
import pytest
from helpers import must_fail
from made_up_facts import facts

from icl_interp.analyses.measurement import Results
from icl_interp.experiments import calibration
from icl_interp.figures import catalogue
from icl_interp.figures.render import rendered
from icl_interp.provenance import generator
from icl_interp.studies.autoregression.claims.identity import IDENTITY_CLAIM
from icl_interp.studies.autoregression.claims.past_token import PAST_CLAIM
from icl_interp.studies.autoregression.claims.same_on_diagonals import DIAGONALS_CLAIM
from icl_interp.studies.autoregression.claims.start import START_CLAIM
from icl_interp.studies.autoregression.constructions import units
from icl_interp.studies.autoregression.figures.panels import LOWEST
from icl_interp.studies.autoregression.figures.unit import FIGURES
from icl_interp.studies.autoregression.measurements import (
    distinct_heads,
    position_weights,
    pruned_heads,
    start_states,
    unit,
)


def measured(case, *claims):
    lab, known = calibration.lab_for(case, n_units=32, n_contexts=1)
    return calibration.measure(lab, known, claims), known


def drawn(name, results, known):
    figure = catalogue.FIGURES[name].draw(results, [], known)
    assert figure is not None
    return rendered(figure).data


@pytest.fixture(scope="module")
def whole():
    case = units.two_tokens(generator(0, "test"))
    return measured(case, IDENTITY_CLAIM, PAST_CLAIM, DIAGONALS_CLAIM, START_CLAIM)


@pytest.mark.slow
def test_products_of_heads(whole):
    results, known = whole
    heads = unit.complex_heads(unit.stored_heads(results[unit.heads]))
    (trace,) = drawn("autoregression_heads", results, known)
    np.testing.assert_allclose(trace.z, distinct_heads.cosines(heads).numpy())
    must_fail(
        np.testing.assert_allclose, np.asarray(trace.z) + 1, distinct_heads.cosines(heads).numpy()
    )


def test_weights_of_positions_and_errors_of_all_arms(whole):
    results, known = whole
    matrix, points = drawn("autoregression_positions", results, known)
    p = results[unit.positions].values
    np.testing.assert_allclose(
        np.asarray(matrix.z)[np.tri(len(p), dtype=bool)], p[np.tri(len(p), dtype=bool)]
    )
    assert np.isnan(np.asarray(matrix.z)[0, 1])
    cut, averaged = (
        results[position_weights.positions_cut],
        results[position_weights.positions_averaged],
    )
    means = [*cut.values.mean((0, 1)), averaged.values.mean((0, 1))[1]]
    np.testing.assert_allclose(points.x, np.maximum(means, LOWEST))
    assert points.hovertemplate.startswith("error / squared length: ")


def test_starts(whole):
    results, known = whole
    (points,) = drawn("autoregression_starts", results, known)
    np.testing.assert_allclose(
        points.x, np.maximum(results[start_states.starts].values.mean((0, 1)), LOWEST)
    )


@pytest.mark.slow
def test_pruned_heads():
    lab, known = calibration.lab_for(units.shared(generator(0, "test")), n_units=32, n_contexts=1)
    results = Results({pruned_heads.pruned.name: lab.measure(pruned_heads.pruned)})
    (points,) = drawn("autoregression_pruned", results, known)
    np.testing.assert_allclose(
        points.x, np.maximum(results[pruned_heads.pruned].values.mean((0, 1)), LOWEST)
    )


def test_nothing_is_drawn_of_what_was_not_measured():
    for name in FIGURES:
        assert catalogue.FIGURES[name].draw(Results({}), [], facts()) is None
