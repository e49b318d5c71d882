"""The claims on units: their numbers, whom they are about, trained units.

Models that know nothing are judged, too.
"""

import dataclasses

import pytest
import torch
from helpers import must_fail
from made_up_facts import changed

from icl_interp.analyses.claim import Claim
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.experiments import calibration
from icl_interp.experiments.calibration import Case
from icl_interp.models.diagonal_unit import DiagonalAttention
from icl_interp.provenance import generator
from icl_interp.studies.autoregression.claims.identity import IDENTITY_CLAIM
from icl_interp.studies.autoregression.claims.past_token import PAST_CLAIM
from icl_interp.studies.autoregression.claims.same_on_diagonals import DIAGONALS_CLAIM
from icl_interp.studies.autoregression.claims.spare import SPARE_CLAIM
from icl_interp.studies.autoregression.claims.start import START_CLAIM
from icl_interp.studies.autoregression.constructions import units
from icl_interp.tasks import AutoregressiveProcess, Normal
from icl_interp.theory import autoregression as theory

CLAIMS = (IDENTITY_CLAIM, SPARE_CLAIM, PAST_CLAIM, DIAGONALS_CLAIM, START_CLAIM)


def judged(case: Case, *claims: Claim) -> dict[str, Finding]:
    lab, facts = calibration.lab_for(case)
    results = calibration.measure(lab, facts, claims)
    return {claim.id: claim.judge_results(results, facts) for claim in claims}


def facts_of(case: Case) -> Facts:
    return calibration.lab_for(case, n_units=2, n_contexts=1)[1]


@pytest.mark.slow
def test_numbers_of_a_minimiser():
    found = judged(units.unitary(generator(0, "test")), *CLAIMS)
    verdicts = {name.split(".")[1]: one.verdict for name, one in found.items()}
    assert verdicts == {
        "head_identity": "supported",
        "spare_heads": "not_applicable",
        "past_token": "supported",
        "same_on_diagonals": "supported",
        "start_free": "supported",
    }
    past = found[PAST_CLAIM.id]
    assert past.evidence["share"].value == pytest.approx(1.0)
    assert past.evidence["rise without these"].value == pytest.approx(
        1.0, abs=0.1
    )  # the sample's mean is left
    assert "ratio" not in past.evidence
    assert found[IDENTITY_CLAIM.id].evidence["largest"].value < 1e-12


@pytest.mark.slow
def test_the_ratio_of_the_last_two_tokens_is_asked_where_there_is_one():
    case = units.half_as_many(generator(0, "test"))

    def ratio_is_right(case):
        found = judged(case, PAST_CLAIM)[PAST_CLAIM.id]
        assert found.evidence["ratio"].value < 1e-9
        assert found.verdict == "supported"

    ratio_is_right(case)
    with torch.no_grad():
        case.model.blocks[0].attn.W_P.copy_(units.on_last(1.0, -0.2))
    must_fail(ratio_is_right, case)
    two = judged(units.two_tokens(generator(0, "test")), PAST_CLAIM)[PAST_CLAIM.id]
    assert "ratio" not in two.evidence
    assert two.verdict == "supported"


@pytest.mark.slow
def test_heads_of_one_coordinate_are_copies():
    """Gradient descent uses all three heads, but there is one head.

    The diagonals are multiples of one number.
    """
    numbers = generator(0, "test/descent")
    A, B = (0.3 * torch.randn(3, 1, generator=numbers, dtype=torch.float64) for _ in "AB")
    P = 0.1 * torch.randn(6, 6, generator=numbers, dtype=torch.float64)
    weights = [one.requires_grad_() for one in (A, B, P)]
    for _ in range(400):
        loss = theory.row_losses(theory.head_product(A, B), P[1:], paired=False).sum()
        with torch.no_grad():
            for one, slope in zip(weights, torch.autograd.grad(loss, weights), strict=True):
                one -= 0.1 * slope
    unit = DiagonalAttention(A.detach() + 0j, B.detach() + 0j, P.detach())
    task = AutoregressiveProcess(n_dims=1, matrices="unitary", n_points=6)
    found = judged(Case(unit.to_transformer(), task), SPARE_CLAIM, PAST_CLAIM)
    assert found[PAST_CLAIM.id].verdict == "supported"
    assert found[SPARE_CLAIM.id].verdict == "inconclusive"
    assert "copies" in found[SPARE_CLAIM.id].reason


@pytest.mark.slow
def test_heads_that_share_their_work_are_not_spare():
    found = judged(units.shared(generator(0, "test")), SPARE_CLAIM)[SPARE_CLAIM.id]
    assert found.verdict == "contradicted"
    assert "no subset of them will do" in found.reason


@pytest.mark.slow
def test_dense_layers_decide_nothing_about_diagonals():
    case = units.unitary(generator(0, "test"))
    attention = case.model.blocks[0].attn
    with torch.no_grad():
        attention.W_Q.add_(
            torch.randn(attention.W_Q.shape, generator=generator(0, "test"), dtype=torch.float64)
        )
    found = judged(case, IDENTITY_CLAIM, PAST_CLAIM)
    assert [one.verdict for one in found.values()] == ["inconclusive"] * 2
    assert "diagonal matrices, which explain only" in found[IDENTITY_CLAIM.id].reason
    assert found[PAST_CLAIM.id].reason.startswith("The model hardly predicts the next state")


@pytest.mark.slow
@pytest.mark.parametrize("left", [0.0, 1e-6])
def test_models_that_say_nothing_decide_nothing(left):
    case = units.half_as_many(generator(0, "test"))
    with torch.no_grad():
        case.model.unembed.W_U.mul_(left)
    for name, found in judged(case, PAST_CLAIM, DIAGONALS_CLAIM, START_CLAIM).items():
        assert found.verdict == "inconclusive", name


def test_whom_they_are_not_about():
    known = facts_of(units.unitary(generator(0, "test")))
    task = known.task
    assert isinstance(task, AutoregressiveProcess)

    def refused(claim, **changes):
        return claim.exclusion(changed(known, **changes)) or ""

    assert [bool(claim.exclusion(known)) for claim in CLAIMS] == [False, True, False, False, False]
    other = dataclasses.replace(task, n_dims=task.n_dims + 1)
    assert f"as many complex heads as complex coordinates, {other.n_dims}" in refused(
        IDENTITY_CLAIM, task=other
    )
    single = dataclasses.replace(task, n_dims=1)
    assert "the states have one" in refused(IDENTITY_CLAIM, task=single)
    assert "draws a new one for each" in refused(
        START_CLAIM, task=dataclasses.replace(task, start=Normal(1.0))
    )
    assert "about more heads than suffice" in refused(SPARE_CLAIM)
    no_weights = dataclasses.replace(known.config, position_weights=None)
    assert "learned weights of positions" in refused(DIAGONALS_CLAIM, config=no_weights)
    assert "no free weights of positions" in refused(PAST_CLAIM, config=no_weights)
    assert "prompts of 4 states or more" in refused(DIAGONALS_CLAIM, n_points=3)
    haar = AutoregressiveProcess(n_dims=4, n_points=10)
    assert "commute" in refused(SPARE_CLAIM, task=haar)
    assert refused(DIAGONALS_CLAIM, task=haar) == ""


@pytest.mark.slow  # `check_study` draws each once as well
@pytest.mark.parametrize("name", [one.name for one in units.CONSTRUCTIONS])
def test_cells(name):
    for row in calibration.calibrate(2, 30, only=[name]).to_dict("records"):
        assert row["as expected"] == row["draws"], row
