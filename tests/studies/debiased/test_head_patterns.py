"""The claim on weights: each condition by itself, heads that nearly cancel, and who is asked."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import must_fail

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.measurement import Results
from icl_interp.models.transformer import HookedTransformer
from icl_interp.results import make_array
from icl_interp.studies.debiased.claims import head_patterns as claim
from icl_interp.studies.debiased.measurements import heads as measured
from icl_interp.studies.debiased.measurements import predictions as said
from icl_interp.tasks import Exponential, LinearRegression
from icl_interp.training import recipes

N = 64
W = (0.2, -0.2)
LABELS = (3.0, -3.0)


def stored(w=W, labels=LABELS, other=0.0, values=0.0, read=0.0, size=1.0, apart=0.001):
    """Heads with this w and weight, and shares of scores, values and predictions beside."""
    draw = np.random.default_rng(0)
    inputs = 1 + 0.1 * draw.normal(size=N)
    rows = []
    for strength, label in zip(w, labels, strict=True):
        product = strength**2 * inputs
        value = label**2 * inputs
        rows.append(
            [
                product / (1 - other),
                inputs,
                strength * inputs,
                value / (1 - values),
                value / (1 - values) - value,
                np.full(N, label),
            ]
        )
    axes = {"head": tuple(map(str, range(len(w)))), "number": measured.NUMBERS}
    by_head = make_array(np.array(rows), {**axes, "unit": tuple(range(N))})
    own = size * draw.normal(size=N)
    square = (own**2).mean()
    numbers = [[np.full(N, missed * square), own, np.ones(N)] for missed in (0.0, read, apart)]
    axes = {"comparison": (said.IN_DISTRIBUTION, said.READ, said.AS_CLAIMED)}
    axes |= {"number": (said.SQUARED, said.OWN, said.LABEL), "unit": tuple(range(N))}
    reading = make_array(np.array(numbers), axes)
    return Results({measured.heads.name: by_head, said.predictions.name: reading})


def facts(task=None, encoding="stacked", **changes):
    config = recipes.resolve("softmax_heads_4")
    model = HookedTransformer(replace(config.model, **changes), seed=0)
    measured_error = {"error": 0.0, "r2": 1.0}
    return Facts.of(model, task or config.task, encoding, measured_error, n_units=N)


def verdict(**shown):
    found = claim.evidence(stored(**shown), facts())
    decision = claim.PATTERNS_CLAIM.criterion.decide(claim.PATTERNS_CLAIM.criterion.named(found))
    return decision.verdict


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ({}, "supported"),
        ({"other": 0.1}, "inconclusive"),
        ({"other": 0.5}, "contradicted"),
        ({"values": 0.1}, "inconclusive"),
        ({"values": 0.5}, "contradicted"),
        ({"w": (0.2, -0.3)}, "inconclusive"),
        ({"w": (0.2, -0.8)}, "contradicted"),
        ({"labels": (3.0, -2.0)}, "inconclusive"),
        ({"labels": (3.0, -1.0)}, "contradicted"),
        ({"labels": (3.0, 3.0)}, "contradicted"),
        ({"apart": 0.1}, "inconclusive"),
        ({"apart": 0.5}, "contradicted"),
        ({"read": 0.05}, "inconclusive"),
        ({"size": 1e-4}, "inconclusive"),
    ],
)
def test_each_condition_decides(shown, expected):
    def check(**more):
        assert verdict(**{**shown, **more}) == expected

    check()
    if expected == "contradicted":
        must_fail(check, read=0.05)  # what heads read must be the prediction
    else:
        must_fail(check, labels=(3.0, 3.0), read=0.0, size=1.0, apart=0.001)


def test_heads_that_nearly_cancel_hide_no_third_one():
    """A pair of one sign of w, whose weights take each other off, beside one head."""
    hidden = {"w": (0.2, 0.2001, 0.2), "labels": (100.0, -100.0, 3.0)}
    assert verdict(**hidden) == "contradicted"
    w = np.array(hidden["w"])
    labels = np.array(hidden["labels"])
    assert claim.imbalance(w, labels) == 1.0
    assert abs(labels.sum()) / abs(labels).sum() < claim.BALANCED  # what would have been taken


def test_heads_count_by_what_they_read_of_labels():
    """A head of another w that reads nothing has no say, and one that reads a tenth has little."""
    inputs = np.ones(3)
    w = np.array([0.2, -0.2, 5.0])
    assert claim.spread(inputs, w, np.array([1.0, -1.0, 0.0])) == pytest.approx(0.0, abs=1e-12)
    assert claim.spread(inputs, w, np.array([1.0, -1.0, 0.2])) > claim.UNEVEN
    # 1/12 of scores of which a half is something else.
    squares = np.array([0.04, 0.04, 2 * 0.04])
    found = claim.others(squares, inputs, np.array([0.2, -0.2, 0.2]), np.array([5.0, -5.0, 2.0]))
    assert found == pytest.approx(2 * 0.04 / (10 * 0.04 + 2 * 0.08))


def test_heads_that_read_nothing_have_no_balance():
    assert claim.imbalance(np.array([0.2, -0.2]), np.zeros(2)) == 1.0
    assert verdict(labels=(0.0, 0.0)) != "supported"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"n_layers": 2}, "one layer of softmax attention"),
        ({"score_fn": "linear", "score_norm": "visible"}, "one layer of softmax attention"),
        ({"normalization_type": "LN"}, "one layer of softmax attention"),
        ({"attn_only": False}, "one layer of softmax attention"),
        ({"encoding": "interleaved"}, "one layer of softmax attention"),
        ({"task": recipes.resolve("affine").task}, "not of"),
        (
            {"task": LinearRegression(n_dims=5, n_points=9, covariance=Exponential())},
            "in all directions",
        ),
    ],
)
def test_one_layer_of_softmax_on_inputs_alike_in_all_directions_is_asked(changes, reason):
    assert claim.excluded(facts()) is None
    assert reason in claim.excluded(facts(**changes))


def test_remarks_tell_w_and_weight_of_each_head():
    found = claim.remarks(stored(), facts(), {})
    assert "Of 2 different heads 1 have w above 0." in found.caveat
    rows = found.details
    assert [row["w"] for row in rows] == pytest.approx(list(W))
    assert [row["weight of labels"] for row in rows] == list(LABELS)
