"""How alike heads are: cosines of tensors, chance, models of known truth.

What stands for the start is checked, too.
"""

import dataclasses
import math

import numpy as np
import pytest
import torch
from helpers import mostly_slow, must_fail

from icl_interp.experiments import calibration
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.studies.autoregression.claims.heads_orthogonal import HEADS_ORTHOGONAL_CLAIM
from icl_interp.studies.autoregression.constructions import maps as made
from icl_interp.studies.autoregression.measurements import head_likeness
from icl_interp.testing import null_models
from icl_interp.testing.reparameterisations import EDITS

CASES = {one.name: one for one in made.CONSTRUCTIONS if HEADS_ORTHOGONAL_CLAIM.id in one.expected}
ALIKE, APART = (
    "unit at a minimiser with heads that are alike",
    "unit at a minimiser for unitary matrices",
)
CFG = HookedTransformerConfig(
    n_layers=1,
    d_model=7,
    n_heads=3,
    d_head=2,
    n_ctx=8,
    d_in=4,
    d_out=4,
    attn_only=True,
    normalization_type=None,
)


def judged(case):
    lab, facts = calibration.lab_for(case)
    return HEADS_ORTHOGONAL_CLAIM.judge_results(
        calibration.measure(lab, facts, [HEADS_ORTHOGONAL_CLAIM]), facts
    )


def test_cosines_are_those_of_whole_tensors():
    """Cosines against the Kronecker product of each head's two matrices.

    The product is made from the weights one by one.
    """
    model = HookedTransformer(CFG, seed=3).double()
    attn, tensors = model.blocks[0].attn, []
    for head in range(3):
        query, key, value = (
            model.embed.W_E @ getattr(attn, f"W_{letter}")[head] for letter in "QKV"
        )
        tensors.append(
            torch.kron(query @ key.T, value @ attn.W_O[head] @ model.unembed.W_U).detach().flatten()
        )
    whole = torch.stack(tensors)
    expected = torch.corrcoef(whole)  # not the cosine: it centres
    unit = whole / whole.norm(dim=1, keepdim=True)
    pairs = [(0, 1), (0, 2), (1, 2)]
    found = head_likeness.cosines(*head_likeness.head_maps(model))
    torch.testing.assert_close(found, torch.stack([(unit[a] @ unit[b]).abs() for a, b in pairs]))
    must_fail(
        torch.testing.assert_close, found, torch.stack([expected[a, b].abs() for a, b in pairs])
    )


def test_chance_is_haar():
    """E cos^2 = 1 / (rows columns) for maps turned on both sides.

    It does not depend on their singular values.
    """
    maps = torch.randn(2, 4, 3, generator=generator(0, "haar"), dtype=torch.float64)
    squares = head_likeness.random_cosines(maps, 4000, generator(1, "haar")).square()[:, 0]

    def agrees(expected):
        assert abs(float(squares.mean()) - expected) < 4 * float(squares.std()) / math.sqrt(
            len(squares)
        )

    agrees(1 / 12)
    must_fail(agrees, 1 / 9)


def test_a_head_that_writes_nothing_counts_for_nothing():
    model = HookedTransformer(CFG, seed=3).double()
    before = head_likeness.cosines(*head_likeness.head_maps(model))
    with torch.no_grad():
        model.blocks[0].attn.W_O[2] = 0
    after = head_likeness.cosines(*head_likeness.head_maps(model))
    torch.testing.assert_close(after[:1], before[:1])
    assert bool(after[1:].isnan().all())


@pytest.mark.parametrize("name", mostly_slow(CASES))
def test_constructions(name):
    finding = judged(CASES[name].draw(1))
    assert finding.verdict == CASES[name].expected[HEADS_ORTHOGONAL_CLAIM.id], finding.reason


@pytest.mark.slow
def test_the_first_model_of_the_run_is_shown_and_decides_nothing():
    """Heads are compared with random ones, whatever they were at the start of training."""
    alike, apart = (CASES[name].draw(1) for name in (ALIKE, APART))
    found = judged(dataclasses.replace(apart, snapshots={0: alike.model, 5: apart.model}))
    assert found.verdict == "supported"
    assert "first model that the run kept" in found.reason
    back = judged(dataclasses.replace(alike, snapshots={0: apart.model}))
    assert back.verdict == "contradicted"
    still = judged(dataclasses.replace(alike, snapshots={0: alike.model}))
    assert still.verdict == "contradicted"
    rows = {row["mean |cos| of two heads"]: row["value"] for row in still.details if "value" in row}
    kept = rows["in the first model that the run kept"]
    np.testing.assert_allclose(kept, still.estimate.value, rtol=1e-9)


@pytest.mark.slow
def test_models_that_know_nothing_support_nothing():
    case = CASES[APART].draw(0)
    others = (
        null_models.blind(case.model, null_models.FAINT),
        null_models.blind(case.model),
        null_models.constant(case.model),
    )
    for other in (*others, null_models.untrained(case.model.cfg, 1)):
        assert judged(calibration.Case(other, case.task)).verdict == "inconclusive"


@pytest.mark.parametrize("family", ["width", "basis", "values"])
def test_edits_of_the_same_function_leave_the_number(family):
    case = CASES[ALIKE].draw(0)
    edits = [one for one in EDITS if one.family == family and not one.applies(case.model.cfg)]
    before = head_likeness.cosines(*head_likeness.head_maps(case.model)).nanmean()
    for edit in edits:
        after = head_likeness.cosines(
            *head_likeness.head_maps(edit.apply(case.model, generator(0, "edit")))
        ).nanmean()
        torch.testing.assert_close(after, before, rtol=1e-6, atol=1e-9)
    assert edits


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"n_layers": 2}, "one layer"),
        ({"n_heads": 1}, "two heads"),
        ({"normalization_type": "LN"}, "a norm"),
    ],
)
def test_whom_it_is_not_about(change, word):
    _, facts = calibration.lab_for(CASES[APART].draw(0))
    assert HEADS_ORTHOGONAL_CLAIM.exclusion(facts) is None
    other = dataclasses.replace(facts, config=dataclasses.replace(facts.config, **change))
    assert word in (HEADS_ORTHOGONAL_CLAIM.exclusion(other) or "")
