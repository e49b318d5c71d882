"""The claim of dispersion: slopes, heads that count, who is asked, and verdicts."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import must_fail

import icl_interp
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.relevance import USUAL
from icl_interp.experiments import calibration
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.dispersion.claims import disperses
from icl_interp.studies.dispersion.claims.disperses import DISPERSES_CLAIM
from icl_interp.studies.dispersion.constructions import weights
from icl_interp.tasks import LinearRegression
from icl_interp.theory.scores import dispersion_exponent

NS = (20, 50, 160)


def stored(exponents, noise=1e-3):
    """Largest weights that fall as n to these powers, a head each."""
    draw = np.random.default_rng(0)
    logs = np.log(NS)[:, None, None] * np.array(exponents)[:, None]
    values = logs + noise * draw.normal(size=(len(NS), len(exponents), 50))
    axes = {
        "n": NS,
        "head": tuple(f"0.{i}" for i in range(len(exponents))),
        "unit": tuple(range(50)),
    }
    return make_array(values, axes)


def test_slopes_are_the_powers():
    found = disperses.slopes(stored((-1.0, -0.3), noise=0.0))

    def check(first, other):
        np.testing.assert_allclose(found, np.tile([first, other], (50, 1)), atol=1e-12)

    check(-1.0, -0.3)
    must_fail(check, -0.3, -1.0)


def test_an_interval_across_a_threshold_counts_both_ways():
    for value, low, high in ((-0.45, -0.55, -0.35), (-0.95, -1.0, -0.85), (-1.05, -1.15, -1.0)):
        assert disperses.standing(value, low, high).possible == {"yes", "no"}
    assert disperses.standing(-0.45, -0.49, -0.35).possible == {"no"}
    assert disperses.standing(-0.95, -1.0, -0.91).possible == {"yes"}


def test_how_a_head_counts_on_either_side_of_each_threshold():
    cases = {
        -1.15: {"yes", "no"},
        -1.05: {"yes"},
        -0.95: {"yes"},
        -0.85: {"yes", "no"},
        -0.55: {"yes", "no"},
        -0.45: {"no"},
        0.0: {"no"},
    }
    found = disperses.standings(stored(tuple(cases)), USUAL)
    for head, possible in zip(found.values(), cases.values(), strict=True):
        assert head.possible == possible
    assert [head.value for head in found.values()] == ["no", "yes", "yes", "no", "no", "no", "no"]


def facts(**settings):
    cfg = HookedTransformerConfig(n_layers=1, d_model=8, n_heads=2, n_ctx=20, **settings)
    return Facts.of(
        HookedTransformer(cfg, seed=0),
        LinearRegression(n_dims=3, n_points=9),
        "stacked",
        {"error": 0.0, "r2": 1.0},
    )


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"positional_embedding_type": "none"}, None),
        ({"positional_embedding_type": "rotary", "score_fn": "entmax"}, None),
        ({"positional_embedding_type": "standard"}, "longer than in training"),
        ({"positional_embedding_type": "relative"}, "longer than in training"),
        ({"positional_embedding_type": "none", "score_fn": "relu"}, "add up to 1"),
        ({"mlp_only": True}, "attention"),
    ],
)
def test_who_is_asked(settings, why):
    reason = DISPERSES_CLAIM.exclusion(facts(**settings))
    assert (why in reason) if why else reason is None


@pytest.mark.slow
@pytest.mark.parametrize("own", [0.1, 0.3])
def test_scaled_softmax_has_the_exponent_of_theory(own):
    """n^(c - 1), up to what other tokens weigh, which is little for small c."""
    case = weights.finding(own, "scaled_softmax", generator(0, "test"))
    (finding,) = calibration.judge(case, (DISPERSES_CLAIM.id,))
    expected = -float(dispersion_exponent("scaled_softmax", top=own))

    def check(slope):
        assert finding.details[0]["slope"] == pytest.approx(slope, abs=0.03)

    check(expected)
    must_fail(check, expected + 0.15)
    must_fail(check, -1.0)


@pytest.mark.slow
def test_a_head_that_writes_nothing_decides_nothing():
    case = weights.beside_sharp(generator(0, "test"))
    (finding,) = calibration.judge(case, (DISPERSES_CLAIM.id,))
    first, idle = finding.details
    assert (first["relevant"], idle["relevant"]) == ("yes", "no")
    assert idle["slope"] > disperses.KEPT
    assert finding.verdict == "supported"
    # Where the sharp head alone writes, it decides.
    attention = case.model.blocks[0].attn
    for weight in (attention.W_V, attention.W_O):
        weight.data[1] = weight.data[0].clone()
        weight.data[0] = 0
    (finding,) = calibration.judge(replace(case), (DISPERSES_CLAIM.id,))
    assert finding.verdict == "contradicted"


def test_a_trained_head_over_bounded_inputs_disperses():
    report = icl_interp.analyze("lipschitz_relu", claims=[DISPERSES_CLAIM.id], progress=False)
    finding = report[DISPERSES_CLAIM.id]
    assert finding.verdict == "supported"
    assert finding.details[0]["slope"] == pytest.approx(-0.985, abs=0.01)
    assert list(report.figures) == ["claims", "largest_weights"]


@pytest.mark.slow
def test_three_layers_with_norms_are_open():
    name = "softmax_fixed_no_positions"
    report = icl_interp.analyze(name, claims=[DISPERSES_CLAIM.id], progress=False)
    finding = report[DISPERSES_CLAIM.id]
    assert finding.verdict == "inconclusive"
    slopes = [row["slope"] for row in finding.details]
    assert min(slopes) < disperses.DISPERSED < max(slopes) < disperses.KEPT
