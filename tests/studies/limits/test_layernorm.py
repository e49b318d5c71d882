"""What LayerNorm does far out: exponents and onsets of exact data, and verdicts at the edge."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from made_up_facts import facts
from measured_claims import judged_on
from small_models import long
from stored_curves import certificate, drawn, ends
from xarray import DataArray

from icl_interp.analyses import output_unit, registry
from icl_interp.analyses.bench import MAGNITUDES
from icl_interp.analyses.criterion import Decision, Estimate
from icl_interp.analyses.natural import in_a_sentence
from icl_interp.analyses.places import DRAWN
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.results import make_array, make_curve, make_table
from icl_interp.studies.limits.claims.layernorm import (
    SATURATION,
    _measured_onset,
    fading,
    last_change,
    scale_grows,
)
from icl_interp.studies.limits.claims.layernorm_cause import FALLS, exponent, growth_exponents
from icl_interp.studies.limits.constructions.layers import (
    blind_read_out,
    random_pre_norm,
    scalar_layer,
)
from icl_interp.studies.limits.measurements import between, boundary, far

SATURATES, CAUSE = (f"limits.layernorm_{n}" for n in ("saturation", "causes_saturation"))
GRID = far.GROWTH


# ---- exponents, elasticities, onsets -------------------------------------------------------------


def squares_of(f) -> np.ndarray:
    """Squared increments of a function of x on the grid of growth."""
    values = torch.from_numpy(np.asarray(f(GRID), dtype=float))
    return far.increments(values[None], GRID)[0].square().numpy()


def test_exponents_of_power_laws_are_exact():
    """In each direction its own; a constant that is added, however large, leaves them."""

    def check(exponents):
        for up, down in ((1.0, 1.0), (3.0, 1.0), (-1.0, 2.0), (0.5, -0.5)):
            for constant in (0.0, -5.0):
                square = squares_of(lambda x: 2 * np.abs(x) ** np.where(x > 0, up, down) + constant)  # noqa: B023
                assert exponents(square, GRID) == pytest.approx([up, down], abs=1e-5)

    check(growth_exponents)
    must_fail(check, lambda square, xs: growth_exponents(square**2, xs))
    must_fail(check, lambda square, xs: growth_exponents(square, xs)[::-1])
    must_fail(check, lambda square, xs: growth_exponents(squares_of(np.abs) + square, xs))


def test_what_overflows_at_every_place_has_no_exponent():
    """Eight layers of linear attention with frozen norms: |x|^6561. Nothing is left to fit."""
    overflowing = np.full((6, len(GRID)), np.inf)
    curve = make_curve(overflowing, {"unit": tuple(range(6)), "x": tuple(GRID)})

    def check(curve):
        assert np.isnan(exponent([curve], 1.0, True).value)

    check(curve)
    finite = np.tile(squares_of(lambda x: 3 * x), (6, 1))
    must_fail(check, make_curve(finite, {"unit": tuple(range(6)), "x": tuple(GRID)}))


def test_what_overflows_has_no_exponent():
    xs = np.array([-10.0, -100.0, 10.0, 100.0])
    found = growth_exponents(
        np.array([[np.nan, np.nan, 1.0, 100.0], [np.nan, np.nan, 1.0, 1.0]]), xs
    )
    assert np.isnan(found[:, 1]).all()
    assert np.allclose(found[:, 0], [1, 0])


def test_increments_that_are_rounding_count_as_minus_infinity():
    """Below 1e-9 u at the end f stands still, however its increments go; so does a constant."""
    square = squares_of(lambda x: 1e-12 * x)
    assert growth_exponents(square, GRID, u=1e-3) == pytest.approx([1, 1], abs=1e-9)
    assert list(growth_exponents(square, GRID, u=1e3)) == [FALLS, FALLS]
    assert list(growth_exponents(squares_of(np.zeros_like), GRID, u=1.0)) == [FALLS, FALLS]
    assert list(growth_exponents(squares_of(lambda x: np.abs(x) ** -7.0), GRID, u=0.0)) == [
        FALLS,
        FALLS,
    ]


def test_elasticities_of_scales_are_exact():
    """Each unit's places are its own; the largest norm counts, in its slower direction."""
    draw = np.random.default_rng(0)
    log_x = np.log(10) * (4 + 2 * draw.random((40, 4)))
    for power in (1.0, 0.0, 0.5):
        assert between._slopes(log_x, power * log_x + 2) == pytest.approx(
            np.full(40, power), abs=1e-12
        )

    def of(*powers):
        each = np.repeat(np.reshape(powers, (-1, 1, 2)), 40, 1)
        axes = {
            "norm": tuple("abcd"[: len(powers)]),
            "unit": tuple(range(40)),
            "direction": ("+", "-"),
        }
        return scale_grows(make_array(each, axes))

    assert of((1.0, 1.0), (0.5, 0.5)).value == 1
    assert of((1.0, 0.0), (0.5, 0.5)).value == 0.5
    assert of().value == 0


def approach_of(f, xs) -> DataArray:
    """`far/approach` of one function with one context: squared distance of f from its own end."""
    end = np.where(xs > 0, f[np.argmax(xs)], f[np.argmin(xs)])
    return make_curve(
        ((f - end) ** 2)[None, None], {"statistic": ("gap",), "unit": (0,), "x": tuple(xs)}
    )


def test_the_measured_onset_is_where_f_stays_level():
    """f = 1 - x0 / |x| is within 0.1 u of its end from about x0 / (0.1 u) on.

    The slower direction counts.
    """
    xs = np.concatenate([MAGNITUDES, -MAGNITUDES])

    def check(measure):
        for x0, u in ((1.0, 1.0), (30.0, 2.0)):
            f = np.sign(xs) * (1 - np.where(xs > 0, x0, x0 / 10) / np.abs(xs))
            assert measure(approach_of(f, xs), u) == pytest.approx(
                x0 / (boundary.LEVEL * u), rel=0.01
            )
            # The unit of x has no say: f of a query a thousand times as large has its onset a
            # thousand times further.
            assert measure(approach_of(f, 1000 * xs), u) == pytest.approx(
                1e3 * x0 / (boundary.LEVEL * u), rel=0.01
            )

    check(_measured_onset)
    must_fail(check, lambda curve, u: boundary.onset(curve, -1, boundary.LEVEL * u).value)
    assert _measured_onset(approach_of(xs, xs), 1.0) == np.inf


def ends_of(last: float, before: float = 0.0) -> DataArray:
    """`far/ends` that change downwards only: so much in the last decade and in the one before."""
    values = np.zeros((2, 3, 5, 4))
    values[1] += np.array([0.0, before, before + last])[:, None, None]
    axes = {"direction": ("+", "-"), "x": tuple(far.LINE), "unit": range(5), "context": range(4)}
    return make_array(values, {name: tuple(items) for name, items in axes.items()})


def test_changes_are_read_over_the_last_decade_in_the_worse_direction():
    found = last_change(ends_of(0.3, 0.6), 2.0)
    assert (found.value, found.low, found.high) == pytest.approx((0.15, 0.15, 0.15))
    still = drawn(5)
    assert fading(ends_of(0.3, 0.6), still).value == pytest.approx(0.5)
    assert fading(ends_of(0.3, 0.0), still).value > 1e8


# ---- verdicts ------------------------------------------------------------------------------------


def weights(model: HookedTransformer, **scales: float) -> HookedTransformer:
    """The model with some weights scaled: names with _ for a dot."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter *= scales.get(name.replace(".", "_"), 1.0)
    return model


def with_config(model: HookedTransformer, **change) -> HookedTransformer:
    """The same weights under a changed config."""
    other = HookedTransformer(replace(model.cfg, **change)).double().eval()
    other.load_state_dict(model.state_dict())
    return other


def doubled(model: HookedTransformer, extra: float = 30.0) -> HookedTransformer:
    """A model of twice the width that computes the same function: its stream is the old one twice.

    What reads halves, and the read-out has a part of size `extra` that cancels between the two
    halves.
    """
    other = HookedTransformer(replace(model.cfg, d_model=2 * model.cfg.d_model)).double().eval()
    reads = {"W_Q": 1, "W_K": 1, "W_V": 1, "W_in": 0}
    new = {}
    for name, weight in model.state_dict().items():
        last = name.split(".")[-1]
        if last in reads:
            new[name] = torch.cat([weight, weight], reads[last]) / 2
        elif last == "W_U":
            new[name] = torch.cat([weight / 2 + extra, weight / 2 - extra], 0)
        elif last in ("b_Q", "b_K", "b_V", "b_in", "b_U"):
            new[name] = weight
        else:
            new[name] = torch.cat([weight, weight], -1)
    other.load_state_dict(new)
    return other


def check_same(one, other):
    """Verdict, estimate and tested quantity of a finding on another model are the same."""
    assert other.verdict == one.verdict
    for a, b in ((one.estimate, other.estimate), (one.test, other.test)):
        numbers = np.array([[e.value, e.low, e.high] for e in (a, b)])
        np.testing.assert_allclose(numbers[1], numbers[0], rtol=1e-4, atol=1e-7)


@pytest.mark.slow
def test_verdicts_and_estimates_do_not_depend_on_the_width(judged):
    """Doubling the width multiplies the certificate's half-width, but f is what it was."""
    model = long("pre")
    plain, wide = (judged(m, SATURATES, CAUSE) for m in (model, doubled(model)))
    r = [
        next(row["r"] for row in found[SATURATES].details if "r" in row) for found in (plain, wide)
    ]
    assert r[1] > 5 * r[0]
    for claim in (SATURATES, CAUSE):
        assert plain[claim].verdict == "supported"
        check_same(plain[claim], wide[claim])
    must_fail(
        check_same,
        plain[SATURATES],
        judged(weights(long("pre"), unembed_W_U=1.1), SATURATES)[SATURATES],
    )


@pytest.mark.slow
def test_a_constant_that_is_added_to_f_changes_no_verdict(judged):
    def shifted(constant: float, gain: float = 1.0):
        model = weights(long("pre"), unembed_W_U=gain)
        with torch.no_grad():
            model.unembed.b_U += constant
        return judged(model, SATURATES, CAUSE)

    plain, high = shifted(0.0), shifted(1e4)
    check_same(plain[CAUSE], high[CAUSE])
    assert high[SATURATES].verdict == plain[SATURATES].verdict == "supported"
    assert high[SATURATES].estimate.value - plain[SATURATES].estimate.value == pytest.approx(1e4)
    assert high[SATURATES].test.value == pytest.approx(plain[SATURATES].test.value, rel=1e-3)
    check_same(plain[CAUSE], shifted(0.0, gain=1e-3)[CAUSE])  # and the unit of outputs has no say


def of_change(last: float, before: float, steps: DataArray) -> Decision:
    """What the criterion makes of changes over the last two decades.

    All else is as a norm would have it.
    """
    exact = {"spread": 1.0, "change": last, "largest": last, "beyond": 0.0, "scale": 1.0}
    found = {name: Estimate.exactly(name, value) for name, value in exact.items()}
    return SATURATION.decide(
        found | {"fading": Estimate.of("fading", fading(ends_of(last, before), steps))}
    )


def test_a_change_that_fades_from_decade_to_decade_contradicts_nothing():
    """The last decade changes f, but less than half as much as the one before.

    So f may level off further out.
    """
    faded = of_change(0.3, 0.7, drawn(5))
    assert faded.verdict == "inconclusive"
    assert "may level off further out" in str(faded.failed)
    assert of_change(0.3, 0.5, drawn(5)).verdict == "contradicted"
    # What changes between drawn places does not fade for the known ones doing so.
    assert of_change(0.3, 0.7, drawn(5, step=9.0)).verdict == "contradicted"


@pytest.mark.slow
def test_a_plateau_at_which_no_scale_grows_is_not_the_norms_doing(measured):
    bench = measured(long("pre"), SATURATES)
    assert bench.judge(SATURATES).verdict == "supported"
    growth_of = bench.results["far/scale growth"]
    results = {**bench.results, "far/scale growth": growth_of.copy(data=0.5 * growth_of.values)}
    finding = judged_on(SATURATES, results, bench.facts)
    assert finding.verdict == "inconclusive"
    assert finding.decided_by.quantity == "scale"
    assert finding.test.value == pytest.approx(0.5, abs=0.01)
    assert "Largest growth exponent of a norm's scale: 0.5" in finding.reason


def test_a_norm_of_width_one_is_a_constant(judged):
    """It divides 0 by something: f is one number, which no claim about far out can be read from."""
    cfg = HookedTransformerConfig(
        n_layers=1, d_model=1, n_heads=1, d_head=1, n_ctx=40, attn_only=True, init_std=1.0
    )
    findings = judged(HookedTransformer(cfg, seed=1), SATURATES, CAUSE)
    assert {f.verdict for f in findings.values()} == {"inconclusive"}
    assert all("The prediction is constant" in f.reason for f in findings.values())


@pytest.mark.slow
def test_an_onset_beyond_the_range_is_open(judged):
    """x is read in ten million times smaller: nothing far out has been seen yet."""
    findings = judged(
        weights(random_pre_norm(generator(0, "test/onset")), embed_W_E=1e-7), SATURATES, CAUSE
    )
    assert {f.verdict for f in findings.values()} == {"inconclusive"}
    assert all(
        f.reason.startswith("The plateau is predicted to begin only at") for f in findings.values()
    )


def test_post_norm_has_no_closed_form(judged):
    model = scalar_layer(generator(0, "test/post"), 4.0, norm="LN", position="post")
    finding = judged(model, SATURATES)[SATURATES]
    assert finding.verdict == "supported"
    assert "no closed form" in finding.reason


@pytest.mark.slow
def test_a_plateau_elsewhere_than_the_closed_form_is_not_supported(measured):
    bench = measured(long("pre"), SATURATES)
    table, u = bench.results["far/certificate"], output_unit.u(bench.results)
    row = table.to_dict("records")[0]
    for shift, expected, decides in (
        (0.0, "supported", "change"),
        (0.02, "inconclusive", "distance"),
    ):
        moved = {**table, "plateau +": [row["plateau +"] + shift * u]}
        results = {**bench.results, "far/certificate": make_table(moved)}
        finding = judged_on(SATURATES, results, bench.facts)
        assert (finding.verdict, finding.decided_by.quantity) == (expected, decides)
        assert finding.evidence["distance"].value == pytest.approx(shift, abs=0.005)
        # What does not fit into the reason stands with the scope.
        assert "those that the weights predict" in f"{finding.reason} {finding.scope}"


@pytest.mark.slow
def test_only_what_levels_off_does_so_by_algebra(measured):
    """A model whose end values are those of the weights may still move on the way there."""
    bench = measured(long("pre"), SATURATES)
    ends, u = bench.results["far/ends"], output_unit.u(bench.results)

    def check(moved, verdict, vacuous):
        shifted = ends.copy()
        shifted[:, 1] += moved * u  # at 1e5 units; at 1e6 it is where it was
        finding = judged_on(SATURATES, {**bench.results, "far/ends": shifted}, bench.facts)
        assert (finding.verdict, finding.vacuous) == (verdict, vacuous)
        assert finding.reason.startswith("By algebra") is vacuous
        assert finding.evidence["distance"].value < 0.01

    check(0.0, "supported", True)
    check(0.2, "contradicted", False)
    must_fail(check, 0.2, "contradicted", True)


@pytest.mark.slow
def test_the_scale_of_every_norm_is_reported(measured):
    """Pre-norm: all grow like |x|; post-norm: the first does, the last stands still."""
    pre = measured(long("pre"), SATURATES).judge(SATURATES)
    grows = {row["norm"]: row["E_sigma"] for row in pre.details if "norm" in row}
    assert set(grows) == {
        "blocks.0.ln1",
        "blocks.0.ln2",
        "blocks.1.ln1",
        "blocks.1.ln2",
        "ln_final",
    }
    assert all(value == pytest.approx(1, abs=0.01) for value in grows.values())
    post = measured(long("post"), SATURATES).judge(SATURATES)
    grows = {row["norm"]: row["E_sigma"] for row in post.details if "norm" in row}
    assert grows["blocks.0.ln1"] == pytest.approx(1, abs=0.01)
    assert grows["blocks.1.ln2"] == pytest.approx(0, abs=0.01)
    assert post.evidence["scale"].value == pytest.approx(1, abs=0.01)


def check_one_number(finding):
    """The estimate, the causal numbers and the sentence say the same of one quantity."""
    causal = finding.causal
    assert causal["frozen"] == finding.estimate.value
    assert causal["effect"] == pytest.approx(causal["frozen"] - causal["intact"])
    assert f"with every norm frozen: {causal['frozen']:.3g} [" in finding.reason
    assert (
        f"It is {causal['intact']:.2f} in the unchanged model and {causal['sham']:.2f} under the "
        "control intervention;" in finding.reason
    )


@pytest.mark.slow
def test_which_norm_suffices(measured):
    """Pre-norm: the final one. Post-norm: none alone, all together."""
    pre = measured(long("pre"), CAUSE).judge(CAUSE)
    assert pre.verdict == "supported"
    check_one_number(pre)
    must_fail(
        check_one_number, replace(pre, causal={**pre.causal, "frozen": pre.causal["frozen"] + 1})
    )
    assert "freezing ln_final alone is enough" in pre.reason
    assert pre.causal["sham"] < 0
    inserted = pre.causal["sufficiency"]
    assert inserted["untrained without norm"] > 0.9 > 0.1 > inserted["LayerNorm inserted"]
    post = measured(long("post"), CAUSE).judge(CAUSE)
    assert post.verdict == "supported"
    assert "no single norm is enough" in post.reason
    assert max(post.causal["each norm alone"].values()) < 0.2


@pytest.mark.slow
def test_a_decay_to_zero_is_a_plateau_too(measured):
    """f ~ 1/x far out, since the read-out is blind to the far direction and has no constant.

    The exponent of the intact model is -1.
    """
    model = blind_read_out(generator(0, "test/decay"))
    with torch.no_grad():
        model.unembed.b_U.zero_()
    finding = measured(model, CAUSE).judge(CAUSE)
    assert finding.causal["intact"] == pytest.approx(-1, abs=0.05)
    assert finding.reason.startswith(registry.REGISTRY[CAUSE].statement)
    assert "no single norm is enough" in finding.reason
    check_one_number(finding)


def growth(up: float, down: float, intact: float = -1.0) -> dict[str, DataArray]:
    """Results as stored, of twenty units whose frozen f grows with these two exponents.

    There is one for each direction.
    """
    size = 1 + 0.1 * np.random.default_rng(0).normal(size=(20, 1))
    names = ("intact", "frozen", "sham", "ln_final", "law mean")
    between = DRAWN[(np.abs(DRAWN) > 1e3) & (np.abs(DRAWN) < 1e6)]
    exponents = {"frozen": np.where(GRID > 0, up, down), "law mean": 1.0}
    squares = [(size * np.abs(GRID) ** exponents.get(name, intact)) ** 2 for name in names]
    squares = np.where(np.isclose(np.abs(GRID), 1e6), np.nan, squares)
    values = np.repeat(np.array(squares)[:, None], len(far.GROWN), 1)
    axes = {"arm": names, "statistic": far.GROWN, "unit": tuple(range(20)), "x": tuple(GRID)}
    built = {"arm": ("intact", "norm inserted"), "unit": tuple(range(20)), "x": tuple(GRID)}
    found = {
        "scale/own": make_array([0.0, 1.0], {"statistic": ("mean", "u")}),
        "far/certificate": certificate(),
        "far/ends": ends(n=20),
        "far/drawn": drawn(20, step=np.abs(DRAWN) ** intact),
        "far/drawn growth": make_curve(
            np.square(size * np.abs(between) ** np.where(between > 0, up, down)),
            {"unit": tuple(range(20)), "x": tuple(between)},
        ),
        "far/norm arms": make_curve(values, axes),
        "far/sufficiency": make_curve(squares[[1, 0]], built),
        "far/cost": make_array(
            np.ones((3, 20)), {"arm": ("intact", "frozen", "law mean"), "unit": tuple(range(20))}
        ),
    }
    return found | {f"twin/{name}": found[name] for name in ("scale/own", "far/norm arms")}


def cause_says(finding) -> str:
    """What the reason of a verdict on the cause begins with."""
    claim = registry.REGISTRY[CAUSE]
    if finding.verdict == "supported":
        return claim.statement
    if finding.verdict == "contradicted":
        return finding.decided_by.denied or claim.denied
    return f"It is open whether {in_a_sentence(claim.statement)}."


def check_growth(judge):
    """Both directions have to grow once frozen, and neither may intact; the worse one decides."""
    for up, down, intact, expected in (
        (1.0, 1.0, -1.0, "supported"),
        (3.0, 1.0, 0.0, "supported"),
        (0.85, 0.85, 0.1, "supported"),
        (1.0, 0.5, -1.0, "inconclusive"),
        (1.0, 0.1, -1.0, "contradicted"),
        (1.0, 1.0, 0.9, "contradicted"),
        (1.0, 1.0, 0.5, "inconclusive"),
        (0.0, 0.0, -1.0, "contradicted"),
    ):
        finding = judge(growth(up, down, intact))
        assert finding.verdict == expected, (up, down, intact)
        assert finding.reason.startswith(cause_says(finding)), (up, down, intact)
        if expected == "contradicted":
            assert ("not the cause" in finding.reason) == (finding.decided_by.quantity == "frozen")


@pytest.mark.slow
def test_the_criterion_of_growth():
    known = facts(n_units=64)
    check_growth(lambda results: judged_on(CAUSE, results, known))

    def upwards_only(results):
        arms = results["far/norm arms"]
        values = np.concatenate(
            [arms.values[..., 4:], arms.values[..., 4:]], -1
        )  # the grid is four x < 0, four x > 0
        steps = results["far/drawn growth"]
        upwards = steps.copy(data=np.concatenate([steps.values[:, :5:-1], steps.values[:, 6:]], -1))
        both = {"far/norm arms": arms.copy(data=values), "far/drawn growth": upwards}
        return judged_on(CAUSE, {**results, **both}, known)

    must_fail(check_growth, upwards_only)
