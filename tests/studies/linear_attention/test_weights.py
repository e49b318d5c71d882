"""Claims that read weights: layers at the optimum, beside it, and in the trap.

Flows are judged with their balance and PL bound.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import mostly_slow, must_fail
from lsa_models import BEST, RANDOM, TASK, WHERE, N, bench, judge, layer, value

from icl_interp.analyses import registry
from icl_interp.analyses.natural import in_a_sentence
from icl_interp.baselines.regression import LeastSquares
from icl_interp.experiments import calibration
from icl_interp.experiments.calibration import Case
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.single_layers import LinearSelfAttention, read_layer
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.results import make_curve, numbers_in
from icl_interp.studies.linear_attention.constructions.layers import beside_cancelling, biased, flow
from icl_interp.studies.linear_attention.hand_built import by_inputs
from icl_interp.studies.linear_attention.measurements import tied as lsa_tied
from icl_interp.studies.linear_attention.measurements import weights as lsa_weights
from icl_interp.studies.linear_attention.measurements.weights import Unit, pl_rate, unit_of
from icl_interp.tasks.distributions import Uniform
from icl_interp.tasks.functions import Polynomial
from icl_interp.tasks.regression import LinearRegression
from icl_interp.theory import linear_attention as theory

LAMBDA = TASK.covariance_matrix
SIZE = float(BEST.norm())
TRAP = by_inputs(WHERE.rank_one[0]).to_transformer(N + 1)


def numbers(model, task=TASK):
    lab, _ = bench(model, task)
    table = lab.measure(lsa_weights.numbers)
    return numbers_in(table)


# ---- where training ends -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("product", "expected"),
    [
        (BEST, "supported"),
        (1.04 * BEST, "supported"),
        (1.1 * BEST, "inconclusive"),
        (1.3 * BEST, "contradicted"),
        (0 * BEST, "inconclusive"),  # predictions that never vary are made by nothing
        (theory.landscape(LAMBDA, 2).product, "contradicted"),
        (-BEST, "contradicted"),
    ],
    ids=["W*", "4 % off", "10 % off", "30 % off", "zero", "another N", "negative"],
)
def test_layers_beside_the_optimum(product, expected):
    finding = judge("converged", layer(product))
    assert finding.verdict == expected
    assert value(finding) == pytest.approx(float((product - BEST).norm()) / SIZE, abs=1e-12)
    assert finding.control is not None
    assert finding.control.value > 0.5
    assert "trap" not in finding.reason


# ---- positions -----------------------------------------------------------------------------------

WITHOUT_POSITIONS = ("converged", "identity_maps", "risk", "algorithm")


def on_same_positions(size: float) -> HookedTransformer:
    """The layer at the optimum with one vector at all positions, taken off again by the bias."""
    model = layer(BEST)
    cfg = replace(model.cfg, positional_embedding_type="standard")
    other = HookedTransformer(cfg).double().eval()
    other.load_state_dict({**other.state_dict(), **model.state_dict()})
    with torch.no_grad():
        other.pos_embed.W_pos.fill_(size)
        other.embed.b_E -= size
    return other


@pytest.mark.slow
@pytest.mark.parametrize("claim", mostly_slow(WITHOUT_POSITIONS))
@pytest.mark.parametrize("size", [0.0, 0.5])
def test_positions_that_are_all_the_same_leave_every_verdict(monkeypatch, claim, size):
    plain, same = judge(claim, layer(BEST)), judge(claim, on_same_positions(size))
    assert same.verdict == plain.verdict != "not_applicable"
    assert value(same) == pytest.approx(value(plain), abs=1e-5)
    if claim == "algorithm":  # it is asked of models with positions too
        return
    monkeypatch.setattr(HookedTransformer, "shape", property(lambda model: model.cfg))
    assert judge(claim, on_same_positions(size)).verdict != plain.verdict


def test_positions_that_differ_are_positions():
    model = on_same_positions(0.0)
    with torch.no_grad():
        model.pos_embed.W_pos[1, 0] = 0.1
    finding = judge("converged", model)
    assert finding.verdict == "not_applicable"
    assert "learned positions" in finding.reason


def test_no_design_tells_orders_apart_by_vectors_that_are_all_the_same():
    assert judge("order_free", on_same_positions(0.5)).reason.startswith("By algebra")


# ---- the scale -----------------------------------------------------------------------------------


def check_scale(model):
    found = numbers(model)
    assert found["distance"] < 1e-12
    assert found["aligned distance"] < 1e-12


@pytest.mark.parametrize("scale", [1e-3, 0.5, -7.0, 200.0])
def test_the_scale_is_no_distance(scale, monkeypatch):
    check_scale(layer(BEST, scale))
    monkeypatch.setattr(Unit, "balanced", property(lambda unit: unit))
    must_fail(check_scale, layer(BEST, scale))


def test_the_rank_one_trap_is_named():
    finding = judge("converged", TRAP)
    assert finding.verdict == "contradicted"
    assert "rank-one trap" in f"{finding.reason} {finding.scope}"
    found = numbers(TRAP)
    product, excess = WHERE.rank_one
    assert found["distance from rank one"] < 1e-12
    assert found["share of v in w21"] == pytest.approx(1)
    # The paper's formulas do not cover w21, so the loss of all weights is an independent route to
    # the excess.
    assert found["excess of all weights"] == pytest.approx(
        float(excess / (WHERE.minimum + WHERE.label_moment / 2))
    )
    assert found["excess of all weights"] == pytest.approx(found["excess"])


@pytest.mark.parametrize("factor", [0.3, 1.0, 1.7])
def test_excess_is_that_of_the_risk(factor):
    """Against Theorem 4.2's own formula for any product, which knows nothing of landscapes."""
    task, identity = replace(TASK, noise_std=0.5), torch.eye(2, dtype=torch.float64)
    where = theory.landscape(LAMBDA, N, 0.25)
    own, least = (
        float(theory.product_risk(p, N, LAMBDA, identity, 0.25).total)
        for p in (factor * where.product, where.product)
    )
    assert numbers(layer(factor * where.product), task)["excess"] == pytest.approx(
        own / least - 1, abs=1e-12
    )


def test_random_covariances_have_their_own_optimum():
    best = theory.random_landscape(RANDOM.spectrum_moments(), N).product
    found = judge("converged", layer(best), RANDOM)
    assert (found.verdict, value(found) < 1e-12) == ("supported", True)
    assert "Theorem 4.5" in found.scope
    assert (
        judge("converged", layer(theory.landscape(torch.eye(2), N).product), RANDOM).verdict
        == "contradicted"
    )


def test_biases_are_reported():
    model = layer(BEST)
    with torch.no_grad():
        model.unembed.b_U += 0.06
    assert "reach 0.06" in judge("converged", model).reason


# ---- the way there -------------------------------------------------------------------------------


START = theory.initial_point(0.4, torch.eye(2, dtype=torch.float64) / 2**0.25)
FLOW = flow(TASK, *START)
END = max(FLOW)


def scaled(models, scale):
    """The same predictions, with |v| / |F| the scale squared."""
    return {step: layer(read_layer(model).product, scale) for step, model in models.items()}


@pytest.mark.parametrize("factor", [1.3, 2.0])
def test_an_imbalance_is_that_of_the_start(factor):
    """The flow conserves u^2 - |U|^2, and both grow."""
    models = flow(TASK, START[0], factor * START[1])
    found = judge("balanced", models[END], snapshots=models)
    assert found.verdict == "contradicted"
    assert value(found) == pytest.approx(1 - factor**-2, abs=1e-6)


def test_an_end_alone_cannot_support_balance():
    found = judge("balanced", layer(BEST))
    assert (found.verdict, found.decided_by.quantity) == ("inconclusive", "snapshots")
    assert value(found) == pytest.approx(0, abs=1e-9)
    assert "not known" in found.reason
    found = judge("balanced", layer(BEST, 5.0))
    assert (found.verdict, found.decided_by.quantity) == ("contradicted", "imbalance")


def test_few_snapshots_cannot_support_balance_either():
    for n, expected in ((4, "inconclusive"), (5, "supported")):
        few = {step: FLOW[step] for step in list(FLOW)[-n:]}
        assert judge("balanced", FLOW[END], snapshots=few).verdict == expected
    few = {step: FLOW[step] for step in list(FLOW)[-4:]}
    far, near = scaled(few, 1.3), scaled(few, 1.03)
    found = judge("balanced", far[END], snapshots=far)
    assert (found.verdict, value(found)) == ("contradicted", pytest.approx(1 - 1.3**-4, abs=1e-6))
    found = judge("balanced", near[END], snapshots=near)
    assert (found.verdict, found.decided_by.quantity) == ("inconclusive", "imbalance")


def test_claims_on_the_way_there_are_about_one_head():
    cfg = replace(layer(BEST).cfg, n_heads=2)
    model = HookedTransformer(cfg)
    for claim in ("balanced", "pl_inequality"):
        found = judge(claim, model, snapshots=dict.fromkeys(range(1, 9), model))
        assert found.verdict == "not_applicable"
        assert "about one head" in found.reason
    several = LinearSelfAttention.from_product(1.3 * BEST).to_transformer(N + 1, n_heads=2)
    assert judge("converged", several).verdict == "contradicted"  # P is defined for several


def test_what_it_takes_to_judge_a_path():
    assert judge("pl_inequality", layer(BEST)).verdict == "not_applicable"
    assert "training.snapshots" in judge("pl_inequality", layer(BEST)).reason
    few = {step: FLOW[step] for step in (3, 9)}
    found = judge("pl_inequality", layer(BEST), snapshots=few)
    assert (found.verdict, found.estimate) == ("inconclusive", None)
    claim = registry.REGISTRY[PL_ID]
    enough = claim.criterion.preconditions[-1].otherwise.format(value=2)
    asked = in_a_sentence(claim.statement)
    assert found.reason == f"{enough} So it cannot be told whether {asked}."


PL_ID = "linear_attention.pl_inequality"


def check_pl(least, verdict, n=8):
    """A made-up path whose squared gradient is `least` times the lemma's bound at one snapshot.

    At the other snapshots it is 4 times the bound.
    """
    steps = range(1, n + 1)
    excess = [2.0**-step for step in steps]
    bound = [0.5 * e for e in excess]
    square = [(least if step == 3 else 4.0) * b for step, b in zip(steps, bound, strict=True)]
    rows = {"excess": excess, "PL bound": bound, "squared gradient": square}
    curve = make_curve(list(rows.values()), {"quantity": tuple(rows), "step": tuple(steps)})
    lab, known = bench(FLOW[END], snapshots=FLOW)
    tied = lab.measure(lsa_tied.tied)
    claim = registry.REGISTRY[PL_ID]
    found = claim.judge_results({"lsa/path": curve, "lsa/tied": tied}, known)
    assert found.verdict == verdict
    if found.estimate is not None:
        assert value(found) == pytest.approx(math.log10(least))
        assert claim.criterion.conditions[0].said(found.estimate, verdict) in found.reason
        assert "at step 3" in found.reason


@pytest.mark.parametrize(
    ("least", "verdict"),
    [
        (3.0, "supported"),
        (1.01, "supported"),
        (0.99, "inconclusive"),
        (0.51, "inconclusive"),
        (0.49, "contradicted"),
        (0.01, "contradicted"),
    ],
)
def test_one_snapshot_below_the_bound_contradicts_the_lemma(least, verdict, monkeypatch):
    check_pl(least, verdict)
    check_pl(least, "inconclusive", n=4)
    claim = registry.REGISTRY[PL_ID]
    (condition,) = claim.criterion.conditions
    none, swapped = (
        replace(condition, contradicts=None),
        replace(condition, supports=condition.contradicts, contradicts=condition.supports),
    )
    far = replace(condition, supports=(-3.0, math.inf), contradicts=(-math.inf, -3.0))
    no_zone = replace(condition, contradicts=(-math.inf, 0.0))
    mutants = {
        "supported": (swapped,),
        "contradicted": (swapped, none, far),
        "inconclusive": (no_zone,),
    }
    for other in mutants[verdict]:
        changed = replace(claim, criterion=replace(claim.criterion, conditions=(other,)))
        monkeypatch.setitem(registry.REGISTRY, PL_ID, changed)
        must_fail(check_pl, least, verdict)


def test_the_rate_is_the_lemma_s_or_sharper():
    """Lemma 5.4 bounds what has been gained at the start from below.

    The rate from the gain itself is no smaller.
    """
    theta = torch.eye(2, dtype=torch.float64) / 2**0.25
    lam = torch.diag(torch.tensor([1.0, 2.0], dtype=torch.float64))
    where = theory.landscape(lam, 4)
    for sigma in (0.1, 0.4, 0.6):
        gained = -where.loss(*theory.initial_point(sigma, theta))
        mine, printed = pl_rate(where, lam, gained), theory.pl_constant(lam, 4, sigma, theta)
        assert 1 <= float(mine / printed) < 5
    assert pl_rate(where, lam, torch.tensor(-1.0)) == 0
    # In one dimension no norm is bounded by another, and the two are one.
    lam, theta = 2 * torch.eye(1).double(), torch.eye(1).double()
    gained = -theory.landscape(lam, 4).loss(*theory.initial_point(0.4, theta))
    mine = pl_rate(theory.landscape(lam, 4), lam, gained)
    assert float(mine / theory.pl_constant(lam, 4, 0.4, theta)) == pytest.approx(1, abs=1e-12)


def check_gradient(square):
    """Against differences of the exact loss, one weight at a time."""
    torch.manual_seed(0)
    unit = Unit(torch.randn(3, dtype=torch.float64), torch.randn(3, 2, dtype=torch.float64))
    total, step = 0.0, 1e-5
    for part, at in [(0, (i,)) for i in range(3)] + [
        (1, (i, j)) for i in range(3) for j in range(2)
    ]:
        ends = []
        for sign in (1, -1):
            moved = [p.clone() for p in unit]
            moved[part][at] += sign * step
            ends.append(float(Unit(*moved).loss(TASK)))
        total += ((ends[0] - ends[1]) / (2 * step)) ** 2
    assert float(square(unit, TASK)[1]) == pytest.approx(total, rel=1e-6)


def test_the_gradient_is_that_of_all_weights():
    check_gradient(lsa_weights._squared_gradient)

    def without_w21(unit, task):
        free = Unit(*(part.clone().requires_grad_() for part in unit))
        grads = torch.autograd.grad(free.loss(task), tuple(free))
        return None, grads[0][-1].square() + grads[1][:-1].square().sum()

    must_fail(check_gradient, without_w21)


def test_the_path_of_a_trained_transformer():
    """Adam's first steps by hand: what is read off each snapshot is what its layer is."""
    cfg = HookedTransformerConfig(
        n_layers=1,
        d_model=6,
        d_head=6,
        n_ctx=9,
        d_in=3,
        attn_only=True,
        normalization_type=None,
        positional_embedding_type="none",
        attention_dir="bidirectional",
        score_fn="linear",
        score_norm="labelled",
        init_std=0.3,
    )
    models = {step: HookedTransformer(cfg, seed=step) for step in (0, 5)}
    lab, _ = bench(models[5], snapshots=models)
    curve = lab.measure(lsa_weights.path)
    assert curve["step"].values.tolist() == [0, 5]
    for step, model in models.items():
        unit = unit_of(read_layer(model))
        assert unit is not None
        assert curve.sel(quantity="|v|^2", step=step).values == pytest.approx(
            float(unit.v.square().sum())
        )
        expected = theory.population_loss(
            torch.cat([torch.zeros(2, 3, dtype=torch.float64), unit.v[None]]),
            torch.cat([unit.f, torch.zeros(3, 1, dtype=torch.float64)], 1),
            LAMBDA,
            N,
        )
        excess = expected - WHERE.minimum - WHERE.label_moment / 2
        assert curve.sel(quantity="excess", step=step).values == pytest.approx(float(excess))
    assert curve.sel(quantity="drift of factors", step=0).values == 0
    assert curve.sel(quantity="drift of factors", step=5).values > 0.1


# ---- multiples of the identity -------------------------------------------------------------------


def test_identity_maps_of_layers():
    found = judge("identity_maps", layer(BEST))
    share = float(BEST.trace() ** 2 / (2 * BEST.square().sum()))
    assert value(found) == pytest.approx(share)
    assert found.estimate is not None
    assert found.decided_by.said(found.estimate, found.verdict) in found.reason
    assert "The map is W_K^T W_Q" in found.reason


def of_each_head(model):
    """The least share over heads, as if each made predictions by itself."""
    form = read_layer(model)
    shares = []
    for v, f in zip(form.values[:, :3], form.forms[:, :2, :2], strict=True):
        shares += [
            lsa_weights.share_of_identity(f),
            float(v[-1] ** 2 / v.square().sum().clamp_min(1e-300)),
        ]
    return min(shares)


def of_tokens(model):
    """What the claim asks about."""
    return float(bench(model)[0].measure(lsa_weights.maps).values.min())


def check_heads_that_change_nothing(share):
    """Null heads, heads that cancel, and a split head leave the share of the predicting head.

    A split head is one head in two.
    """
    one = layer(BEST)
    expected = float(BEST.trace() ** 2 / (2 * BEST.square().sum()))
    draw = generator(0, "test/heads")
    for edit in (beside_cancelling, beside_null, split):
        edited = edit(one, draw)
        tokens = torch.randn(3, N + 1, 3, generator=draw, dtype=torch.float64)
        torch.testing.assert_close(edited(tokens), one(tokens), rtol=1e-9, atol=1e-9)
        assert share(edited) == pytest.approx(expected, abs=1e-9)


def beside_null(model, draw):
    """Two heads of the three write nothing."""
    other = beside_cancelling(model, draw)
    with torch.no_grad():
        other.blocks[0].attn.W_O[1:] = 0
    return other


def split(model, draw):
    """The head in three: once, and twice with opposite signs and other values."""
    other = beside_cancelling(model, draw)
    attn, alone = other.blocks[0].attn, model.blocks[0].attn
    with torch.no_grad():
        for name in ("W_Q", "W_K", "W_V"):
            getattr(attn, name).copy_(getattr(alone, name).expand(3, -1, -1))
        for head, part in enumerate((0.7, 1.1, -0.8)):
            attn.W_O[head] = part * alone.W_O[0]
        for name in ("b_Q", "b_K", "b_V"):
            getattr(attn, name).zero_()
    return other


def test_identity_maps_are_those_of_tokens():
    check_heads_that_change_nothing(of_tokens)
    must_fail(check_heads_that_change_nothing, of_each_head)


def test_in_other_models_maps_have_no_coordinates():
    finding = judge("identity_maps", softmax())
    assert finding.verdict == "not_applicable"
    assert "whose basis other weights may rotate" in finding.reason


# ---- weights that do not make the predictions ----------------------------------------------------

WEIGHTS = ("converged", "identity_maps", "balanced")
EQUAL = LinearRegression(n_dims=2, covariance=(1.0, 1.0), n_points=N + 1)
BEST_OF_EQUAL = theory.landscape(EQUAL.covariance_matrix, N).product


def with_another_path(model, draw):
    """The query is also read directly, past attention."""
    with torch.no_grad():
        model.unembed.W_U[:2] = 0.5
    return model


def with_another_output(model, draw):
    """The read-out takes the label's coordinate and a constant that depends on the first input."""
    with torch.no_grad():
        model.embed.b_E[0] += 1.0
    return model


def idle(task):
    """A layer at the optimum in a model whose predictions are those of least squares."""
    return Case(
        layer(BEST_OF_EQUAL, n_ctx=task.n_points), task, predictor=LeastSquares(task).predict
    )


def edited(edit):
    return Case(edit(layer(BEST_OF_EQUAL), generator(0, "test/edited")), EQUAL)


CASES = {
    "biases": lambda: edited(biased),
    "another path": lambda: edited(with_another_path),
    "inputs shifted": lambda: edited(with_another_output),
    "idle beside least squares": lambda: idle(EQUAL),
}


def check_not_judged(case):
    """Everything that is read off weights is open, and the reason says why."""
    findings = calibration.judge(case, tuple(f"linear_attention.{name}" for name in WEIGHTS))
    for finding in findings:
        assert finding.verdict == "inconclusive", finding.id
        assert "of the predictions (0.99 needed)" in finding.reason


@pytest.mark.parametrize("name", mostly_slow(CASES))
def test_weights_that_do_not_predict_are_not_judged(name, monkeypatch):
    check_not_judged(CASES[name]())
    for claim in WEIGHTS:
        rule = registry.REGISTRY[f"linear_attention.{claim}"]
        criterion = replace(
            rule.criterion, preconditions=(), conditions=rule.criterion.conditions[:1]
        )
        loose = replace(rule, about_weights=False, criterion=criterion)
        monkeypatch.setitem(registry.REGISTRY, rule.id, loose)
    must_fail(check_not_judged, CASES[name]())
    found = calibration.judge(CASES[name](), ("linear_attention.converged",))
    assert [finding.verdict for finding in found] == ["supported"]  # what it said before


def test_a_loss_above_the_least_is_not_the_minimum():
    """The error of a model beside that of the best layer, on the same prompts."""
    lab, _ = bench(layer(1.3 * BEST), n_units=64)
    own, least = lab.measure(lsa_tied.loss).values.mean(1)
    where = theory.landscape(LAMBDA, N)
    identity = torch.eye(2, dtype=torch.float64)
    exact = [
        float(theory.product_risk(p, N, LAMBDA, identity, 0.0).total)
        for p in (1.3 * BEST, where.product)
    ]
    assert own / least == pytest.approx(exact[0] / exact[1], rel=0.15)
    same, _ = bench(layer(BEST), n_units=64)
    own, least = same.measure(lsa_tied.loss).values
    np.testing.assert_allclose(own, least, rtol=1e-3)


# ---- whom the claims are about -------------------------------------------------------------------


def softmax(**changes):
    return HookedTransformer(
        HookedTransformerConfig(**{"n_layers": 1, "d_model": 8, "n_ctx": 20, "d_in": 3, **changes})
    )


POLYNOMIALS = Polynomial(
    degrees=(1,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=9
)


@pytest.mark.parametrize(
    ("model", "task", "says"),
    [
        (
            softmax(d_in=1),
            POLYNOMIALS,
            "about models of a LinearRegression task, not of Polynomial",
        ),
        (softmax(), TASK, "about a single layer of linear self-attention; this model has"),
        (
            layer(BEST),
            replace(TASK, inputs=Uniform(-1, 1)),
            "inputs of a centred normal distribution",
        ),
        (layer(BEST), replace(TASK, weights=(1.0, 2.0)), "w ~ N(0, I)"),
        (layer(BEST), replace(TASK, single_orthant=True), "were shifted"),
    ],
    ids=["polynomials", "softmax", "uniform inputs", "one task", "orthant"],
)
def test_others_are_told_why(model, task, says):
    finding = judge("converged", model, task)
    assert finding.verdict == "not_applicable"
    assert says in finding.reason


def test_every_claim_is_free_on_polynomials():
    lab, known = bench(softmax(d_in=1), POLYNOMIALS)
    claims = [claim for claim in registry.REGISTRY.values() if claim.study == "linear_attention"]
    assert len(claims) == 10
    for claim in claims:
        assert claim.judge_results({}, known).verdict == "not_applicable"
