"""Whether linear attention has learned its task: beside the best layer, on the same prompts."""

import pytest
import torch
from helpers import must_fail
from lsa_models import BEST, TASK, N, bench, judge, layer

from icl_interp.analyses.measurement import Results
from icl_interp.studies.linear_attention.measurements import setting
from icl_interp.studies.linear_attention.measurements import tied as lsa_tied
from icl_interp.theory import linear_attention as theory

LAMBDA = TASK.covariance_matrix


def share_learned(scale: float, mixed: bool = False):
    """What `LEARNED` asks of the best layer times a number.

    With `mixed` it is beside errors of the best layer on other prompts.
    """
    lab, known = bench(layer(scale * BEST), n_units=64)
    errors = lab.measure(lsa_tied.loss).copy(deep=True)
    if mixed:
        errors.loc[{"who": lsa_tied.MINIMUM}] = errors.sel(who=lsa_tied.MINIMUM).values[::-1]
    return lsa_tied.learned(Results({"lsa/loss": errors}), known)["learned"]


def exact_share(scale: float) -> float:
    """R^2 of the best layer times a number over that of the best layer.

    Both are by Theorem 4.2's formula for any product.
    """
    identity = torch.eye(2, dtype=torch.float64)
    own, best, nothing = (
        float(theory.product_risk(k * BEST, N, LAMBDA, identity, 0.0).total)
        for k in (scale, 1.0, 0.0)
    )
    return 1 - (own - best) / (nothing - best)


def check_learned(mixed: bool = False):
    """The best layer has learned all that a layer can, though its R^2 is below 0.9.

    Errors are paired for that.
    """
    share = share_learned(1.0, mixed)
    assert share.value == pytest.approx(1, abs=1e-6)
    assert lsa_tied.LEARNED.holds[0] < share.value


def test_learning_is_measured_by_the_best_that_a_layer_can_do():
    _, known = bench(layer(BEST), n_units=64)
    assert not known.has_learned  # so the common gate would never open
    assert setting.not_learned(known) is None
    check_learned()
    must_fail(check_learned, mixed=True)
    for scale in (0.5, 0.65):
        share = share_learned(scale)
        assert share.value == pytest.approx(exact_share(scale), abs=0.06)
        assert share.value != pytest.approx(exact_share(1.5 * scale), abs=0.06)


def test_a_layer_that_has_not_learned_is_left_open():
    assert exact_share(0.5) < 0.8
    finding = judge("risk", layer(0.5 * BEST))
    assert finding.verdict == "inconclusive"
    assert "has not learned its task" in finding.reason
    assert exact_share(0.9) > 0.95
    assert "has not learned its task" not in judge("risk", layer(0.9 * BEST)).reason
