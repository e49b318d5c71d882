"""What LayerNorm does far out: exponents and onsets of exact data, and verdicts on models at the edge of the claims."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from known import facts
from measuring import judged_on
from small_models import long
from xarray import DataArray

from icl_interp.analyses.lab import MAGNITUDES
from icl_interp.experiments.calibration import TASK
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.resampling import slope
from icl_interp.results import make_curve, make_table
from icl_interp.studies.limits.claims import layernorm as limits_layernorm
from icl_interp.studies.limits.claims.layernorm import _measured_onset, exponents, growth_exponent, scale_growth
from icl_interp.studies.limits.constructions.layers import blind_read_out, random_pre_norm, scalar_layer
from icl_interp.studies.limits.measurements import boundary, far

SATURATES, CAUSE, FAILURE = (f"limits.layernorm_{n}" for n in ("saturation", "causes_saturation", "causes_failure"))
ERASED = "limits.context_erased"


# ---- exponents, elasticities, onsets --------------------------------------------------------------------------------


GRID = far.GROWTH


def test_exponents_of_power_laws_are_exact():
    """Of the root mean square, whatever its size; the mean of both directions."""

    def check(exponent):
        for p, q in ((0.0, 0.0), (1.0, 1.0), (3.0, 3.0), (-1.0, -1.0), (0.5, 1.5)):
            square = np.where(GRID > 0, 4.0 * np.abs(GRID) ** (2 * p), 9.0 * np.abs(GRID) ** (2 * q))
            assert exponent(square, GRID) == pytest.approx((p + q) / 2, abs=1e-12)

    check(exponents)
    must_fail(check, lambda square, xs: exponents(square**2, xs))
    must_fail(check, lambda square, xs: slope(np.log(xs[xs > 0]), 0.5 * np.log(square[xs > 0])))
    many = np.abs(GRID) ** (2 * np.arange(4.0)[:, None])
    assert np.allclose(exponents(many, GRID), np.arange(4.0), atol=1e-12)


def test_the_exponent_of_nothing_is_zero():
    assert exponents(np.zeros(len(GRID)), GRID) == pytest.approx(0, abs=1e-10)


def test_what_falls_does_not_grow():
    squares = np.abs(GRID) ** (2 * np.array([-1.0, -0.44, 0.0, 0.5, 1.0])[:, None])
    assert growth_exponent(squares, GRID) == pytest.approx([0, 0, 0, 0.5, 1], abs=1e-12)
    assert exponents(squares, GRID)[1] == pytest.approx(-0.44, abs=1e-12)


def test_elasticities_of_scales_are_exact():
    xs = np.sort(far.DECADES)
    values = [np.log(np.abs(xs)) + 2, 0 * xs, 0.5 * np.log(np.abs(xs))]
    found = scale_growth(make_curve(values, {"norm": ("a", "b", "c"), "x": tuple(xs)}))
    assert found == pytest.approx({"a": 1.0, "b": 0.0, "c": 0.5}, abs=1e-12)


def approach_of(f, xs) -> DataArray:
    """`far/approach` of one function with one context: the squared distance of f from its own end."""
    end = np.where(xs > 0, f[np.argmax(xs)], f[np.argmin(xs)])
    return make_curve(((f - end) ** 2)[None, None], {"statistic": ("gap",), "function": (0,), "x": tuple(xs)})


def test_the_measured_onset_is_where_f_stays_level():
    """f = 1 - x0 / |x| is within 0.05 r of its end from about x0 / (0.05 r) on; the slower direction counts."""
    xs = np.concatenate([MAGNITUDES, -MAGNITUDES])

    def check(measure):
        for x0, r in ((1.0, 1.0), (30.0, 2.0)):
            f = np.sign(xs) * (1 - np.where(xs > 0, x0, x0 / 10) / np.abs(xs))
            assert measure(approach_of(f, xs), r) == pytest.approx(x0 / (0.05 * r), rel=0.01)
            # The unit of x has no say: f of a query a thousand times as large has its onset a thousand times further.
            assert measure(approach_of(f, 1000 * xs), r) == pytest.approx(1000 * x0 / (0.05 * r), rel=0.01)

    check(_measured_onset)
    must_fail(check, lambda curve, r: boundary.onset(curve, -1, boundary.LEVEL * r).value)
    assert _measured_onset(approach_of(xs, xs), 1.0) == np.inf


def test_criteria_read_changes_in_units_of_the_certificate():
    ends = np.zeros((2, 3, 5, 4))
    ends[1, 2] = 0.3  # only downwards, only in the last decade
    found = limits_layernorm._change_in_r(ends, 2.0)
    assert (found.value, found.low, found.high) == pytest.approx((0.15, 0.15, 0.15))


# ---- saturates, and causes saturation -------------------------------------------------------------------------------


def weights(model: HookedTransformer, **scales: float) -> HookedTransformer:
    """The model with some weights scaled: names with _ for a dot."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter *= scales.get(name.replace(".", "_"), 1.0)
    return model


def test_a_norm_of_width_one_is_a_constant(judged):
    """It divides 0 by something: f is one number, which no claim about far out can be read from."""
    cfg = HookedTransformerConfig(n_layers=1, d_model=1, n_heads=1, d_head=1, n_ctx=40, attn_only=True, init_std=1.0)
    findings = judged(HookedTransformer(cfg, seed=1), SATURATES, CAUSE, FAILURE, ERASED)
    assert {f.verdict for f in findings.values()} == {"inconclusive"}
    assert "The output is constant" in findings[SATURATES].reason
    assert "The output is constant" in findings[CAUSE].reason


def test_an_onset_beyond_the_range_is_open(judged):
    """x is read in a million times smaller: nothing far out has been seen yet."""
    findings = judged(weights(random_pre_norm(generator(0, "test/onset")), embed_W_E=1e-7), SATURATES, CAUSE, ERASED)
    assert {f.verdict for f in findings.values()} == {"inconclusive"}
    assert all("predicted onset" in f.reason for f in findings.values())
    assert findings[ERASED].estimate.value > 0.2  # which would contradict, if this were far


def test_post_norm_has_no_closed_form(judged):
    model = scalar_layer(generator(0, "test/post"), 4.0, norm="LN", position="post")
    finding = judged(model, SATURATES)[SATURATES]
    assert finding.verdict == "supported"
    assert "no closed form" in finding.reason


def test_a_plateau_elsewhere_than_the_closed_form_is_not_supported(measured):
    bench = measured(long("pre"), SATURATES)
    table = bench.results["far/certificate"]
    row = table.to_dict("records")[0]
    for shift, expected in ((0.0, "supported"), (0.02, "inconclusive")):
        moved = {**table, "plateau +": [row["plateau +"] + shift * row["r"]]}
        results = {**bench.results, "far/certificate": make_table(moved)}
        assert judged_on(SATURATES, results, bench.facts).verdict == expected


def test_the_scale_of_every_norm_is_reported(measured):
    """Pre-norm: all grow like |x|; post-norm: the first does, the last stands still."""
    pre = measured(long("pre"), SATURATES).judge(SATURATES)
    grows = {row["norm"]: row["E_sigma"] for row in pre.details if "norm" in row}
    assert set(grows) == {"blocks.0.ln1", "blocks.0.ln2", "blocks.1.ln1", "blocks.1.ln2", "ln_final"}
    assert all(value == pytest.approx(1, abs=0.01) for value in grows.values())
    post = measured(long("post"), SATURATES).judge(SATURATES)
    grows = {row["norm"]: row["E_sigma"] for row in post.details if "norm" in row}
    assert grows["blocks.0.ln1"] == pytest.approx(1, abs=0.01)
    assert grows["blocks.1.ln2"] == pytest.approx(0, abs=0.01)


def test_which_norm_suffices(measured):
    """Pre-norm: the final one. Post-norm: none alone, all together."""
    pre = measured(long("pre"), CAUSE).judge(CAUSE)
    assert pre.verdict == "supported"
    check_one_number(pre)
    assert "alone, ln_final suffices" in pre.reason
    assert abs(pre.causal["sham"]) < 0.1
    post = measured(long("post"), CAUSE).judge(CAUSE)
    assert post.verdict == "supported"
    assert "no norm suffices" in post.reason
    each = post.causal["each norm alone"]
    assert max(each.values()) < 0.2


def check_one_number(finding):
    """The estimate, the causal effect and the sentence say the same of one quantity."""
    causal = finding.causal
    assert causal["effect"] == finding.estimate.value
    assert causal["frozen"] - causal["intact"] == pytest.approx(finding.estimate.value, abs=1e-9)
    assert f"is {causal['intact']:.2f} intact and {causal['frozen']:.2f} with every norm" in finding.reason


def test_a_decay_to_zero_is_a_plateau_too(measured):
    """f ~ 1/x far out, since the read-out is blind to the far direction and has no constant: exponent -1 intact."""
    model = blind_read_out(generator(0, "test/decay"))
    with torch.no_grad():
        model.unembed.b_U.zero_()
    bench = measured(model, CAUSE)
    finding = bench.judge(CAUSE)
    assert finding.causal["intact"] == 0
    assert re.search(r"f falls towards 0 intact like \|x\|\^-(1\.0|0\.9)", finding.reason)
    assert finding.estimate.value == pytest.approx(finding.causal["frozen"], abs=1e-9)  # not 1 more
    assert "no norm suffices" in finding.reason
    check_one_number(finding)
    must_fail(check_one_number, replace(finding, causal={**finding.causal, "effect": finding.estimate.value + 1}))

    # Were frozen f to rest at another constant, that would be no growth either.
    arms = bench.results["far/norm arms"]
    values = arms.values.copy()
    values[list(arms.indexes["arm"]).index("frozen")] = 1.0
    results = {**bench.results, "far/norm arms": arms.copy(data=values)}
    assert judged_on(CAUSE, results, bench.facts).verdict == "contradicted"


# ---- causes failure -------------------------------------------------------------------------------------------------


def arms(**error: float) -> DataArray:
    """Far errors as stored, twenty functions of slightly different size, constant over x."""
    names = ("intact", "frozen", "sham", "zero predictor")
    size = 1 + 0.1 * np.random.default_rng(0).normal(size=(20, 1)) ** 2
    values = [np.broadcast_to(error.get(name.split()[0], 1.0) * size, (3, 20, 4)) for name in names]
    axes = {
        "arm": names,
        "statistic": ("mean", "mean square", "squared error"),
        "function": tuple(range(20)),
        "x": (-1e4, -1e3, 1e3, 1e4),
    }
    return make_curve(values, axes)


def other(error: float | None) -> DataArray:
    """The model trained without normalisation, if there is one."""
    size = arms(intact=error or 1.0).sel(arm="intact").values
    n = 0 if error is None else 20
    axes = {**arms().indexes, "function": tuple(range(n))}
    return make_curve(size[:, :n], {name: axes[name] for name in ("statistic", "function", "x")})


def check_signs(judge):
    """Smaller errors without the norm support, larger ones contradict, and two ways that disagree decide nothing."""
    for frozen, without, expected in (
        (0.5, None, "supported"),
        (2.0, None, "contradicted"),
        (1.0, None, "inconclusive"),
        (0.5, 0.7, "supported"),
        (2.0, 1.5, "contradicted"),
        (0.5, 2.0, "inconclusive"),
        (2.0, 0.5, "inconclusive"),
        (1.0, 2.0, "inconclusive"),
        (1 - 1e-13, None, "inconclusive"),
        (1 + 1e-13, None, "inconclusive"),
    ):
        results = {
            "far/norm arms": arms(frozen=frozen),
            "twin/far/norm arms": arms(),
            "far/counterpart": other(without),
        }
        assert judge(results).verdict == expected, (frozen, without)


def test_the_signs_of_the_failure():
    known = facts(n_functions=20)
    check_signs(lambda results: judged_on(FAILURE, results, known))
    must_fail(check_signs, lambda results: judged_on(FAILURE, {**results, "far/counterpart": other(None)}, known))
    swapped = {"intact": "frozen", "frozen": "intact"}

    def exchanged(results):
        curve = results["far/norm arms"]
        names = tuple(swapped.get(name, name) for name in curve.indexes["arm"])
        renamed = curve.assign_coords(arm=list(names))
        return judged_on(FAILURE, {**results, "far/norm arms": renamed}, known)

    must_fail(check_signs, exchanged)


def test_errors_that_differ_by_rounding_do_not_differ(measured):
    """At 1e3 a polynomial of degree 5 outgrows any plateau and any line: every model fails alike."""
    bench = measured(long("pre"), FAILURE, task=replace(TASK, degrees=(5,)), counterpart=long("no norm"))
    finding = bench.judge(FAILURE)
    assert finding.verdict == "inconclusive"
    assert 0 < abs(finding.estimate.value) < 1e-9


def test_errors_of_one_function_are_compared_with_that_function():
    """Sizes differ a hundredfold between functions, ratios hardly at all: the interval is about the ratio."""
    size = 10 ** np.random.default_rng(0).uniform(-1, 1, 20)
    ratio = limits_layernorm._log_ratio(1.1 * size, size)
    assert ratio.low == pytest.approx(np.log10(1.1))
    unpaired = limits_layernorm._log_ratio(1.1 * size[::-1], size)
    assert unpaired.low < 0 < unpaired.high


def test_the_reason_names_what_was_compared(measured):
    bench = measured(long("pre"), FAILURE)
    alone = bench.judge(FAILURE)
    assert "no model trained without normalisation was at hand" in alone.reason
    assert set(alone.causal["far error / zero predictor"]) == {"intact", "frozen"}
    both = measured(long("pre"), FAILURE, counterpart=long("no norm")).judge(FAILURE)
    assert set(both.causal["far error / zero predictor"]) == {"intact", "frozen", "trained without"}


def test_the_far_error_is_that_of_the_models(measured):
    bench = measured(long("pre"), FAILURE)
    f, truth = bench.lab.sweep([1e3, -1e3]), bench.lab.truth([1e3, -1e3])
    relative = float((f - truth).square().mean() / truth.square().mean())
    assert bench.judge(FAILURE).causal["far error / zero predictor"]["intact"] == pytest.approx(relative, rel=1e-9)
