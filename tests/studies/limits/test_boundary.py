"""Boundary values: places read off curves, measurements by brute force, onsets known in closed form, the claims."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from known import facts
from small_models import TASK, make
from xarray import DataArray

from icl_interp import tasks
from icl_interp.analyses import registry
from icl_interp.analyses.lab import GRID, MAGNITUDES, Lab
from icl_interp.experiments.calibration import TASK as LONG
from icl_interp.models.tokens import Interleaved
from icl_interp.provenance import generator
from icl_interp.results import make_curve, make_table, row_of
from icl_interp.studies.limits.claims.boundary import arm_rows, decades_to_level, relative_error
from icl_interp.studies.limits.constructions import random_pre_norm, scalar_layer
from icl_interp.studies.limits.measurements import boundary, far
from icl_interp.studies.limits.measurements.boundary import ARMS, SCALES
from icl_interp.theory import limits as theory

IMMEDIATE, HIGH_NORM = "limits.boundary_immediate", "limits.no_icl_at_high_norm"
STATISTICS = ("gap", "squared error", "zero predictor", "context-free")


def bench(name="pre", task=TASK, **change) -> Lab:
    return Lab(make(name, **change), task, Interleaved(), n_functions=4, n_contexts=3)


def of_scalar(model) -> Lab:
    return Lab(model, LONG, Interleaved(), n_functions=6, n_contexts=4)


# ---- places on a curve ----------------------------------------------------------------------------------------------


def check_settles(settles):
    """A power law is a straight line on these axes, so the place is exact between grid points too."""
    for x0, power in ((0.7, 1.0), (3.0, 1.0), (40.0, 2.0)):
        size = (x0 / MAGNITUDES) ** power
        for bound in (0.05, 0.2):
            expected = x0 * bound ** (-1 / power)
            assert settles(MAGNITUDES, size, bound) == pytest.approx(expected, rel=1e-12)
    # A dip on the way does not count, what lies beyond 1e5 is never, and what is level from the start is.
    dip = np.where((MAGNITUDES > 5) & (MAGNITUDES < 30), 1e-6, 2 * (100 / MAGNITUDES))
    assert settles(MAGNITUDES, dip, 0.05) == pytest.approx(4000)
    assert settles(MAGNITUDES, 0 * MAGNITUDES + 1, 0.05) == settles(MAGNITUDES, 1e5 / MAGNITUDES, 0.05) == 1e5
    assert settles(MAGNITUDES, 0 * MAGNITUDES, 0.05) == pytest.approx(0.1)


def first_inside(xs, size, bound):
    return xs[np.argmax(size <= bound)]


def no_interpolation(xs, size, bound):
    outside = np.flatnonzero(size > bound)
    return xs[min(outside[-1] + 1, len(xs) - 1)] if len(outside) else xs[0]


def test_settles_finds_where_a_power_law_stays_below():
    check_settles(boundary.settles)
    must_fail(check_settles, first_inside)
    must_fail(check_settles, no_interpolation)
    both = np.stack([1 / MAGNITUDES, 10 / MAGNITUDES])
    assert boundary.settles(MAGNITUDES, both, 0.1) == pytest.approx([10, 100])


def test_leaves_finds_where_a_power_law_first_exceeds():
    for x0, power in ((0.5, 2.0), (7.0, 1.0)):
        size = (MAGNITUDES / x0) ** power
        assert boundary.leaves(MAGNITUDES, size, 0.1) == pytest.approx(x0 * 0.1 ** (1 / power), rel=1e-12)
        # Coming back later does not count.
        assert boundary.leaves(MAGNITUDES, np.where(MAGNITUDES > 1e3, 0, size), 0.1) < 10
    assert boundary.leaves(MAGNITUDES, 0 * MAGNITUDES, 0.1) == 1e6
    assert boundary.leaves(MAGNITUDES, 1 + 0 * MAGNITUDES, 0.1) == 0.1


def made_up(gap, error=None, zero=None, line=None, n=20) -> DataArray:
    """A stored curve whose functions differ by a factor only; arguments are sizes over GRID."""
    one = np.ones(len(GRID))
    factor = np.exp(0.05 * np.random.default_rng(0).standard_normal((n, 1)))
    values = [factor * np.square(one if v is None else v * one) for v in (gap, error, zero, line)]
    return make_curve(values, {"statistic": STATISTICS, "function": tuple(range(n)), "x": tuple(GRID)})


def test_the_approach_rate_is_the_power():
    for power in (0.5, 1.0, 2.0):
        curve = made_up(np.where(GRID > 0, 1.0, 7.0) * np.abs(GRID) ** -power)
        for sign in (1, -1):
            found = boundary.rate(curve, sign)
            assert (found.value, found.low, found.high) == pytest.approx([-power] * 3)


def test_the_zone_ends_where_a_tenth_of_the_truth_is_missed():
    curve = made_up(1, error=np.abs(GRID) ** 1.5 * np.where(GRID > 0, 0.01, 0.1), zero=np.abs(GRID))
    assert boundary.zone(curve, 1).value == pytest.approx(1000, rel=1e-9)
    assert boundary.zone(curve, -1).value == pytest.approx(10, rel=1e-9)


def check_peaks(peaks):
    f = torch.tensor([[0.1, -3.0, 1.0, 1.0], [0.5, 0.6, -1.03125, 1.0], [2.0, 1.0, 0.0, 0.0]]).double()
    found = peaks(f, np.array([1.0, 10.0, 100.0, 1000.0]), 0.05)
    assert found["peak"].tolist() == [3.0, 1.03125, 2.0]
    assert found["peak at"].exp().tolist() == pytest.approx([10.0, 100.0, 1.0])
    assert found["overshoot"].tolist() == [1.0, 0.0, 1.0]


def test_peaks():
    check_peaks(boundary.peaks)
    must_fail(check_peaks, lambda f, xs, margin: boundary.peaks(f, xs, 0.0))
    must_fail(check_peaks, lambda f, xs, margin: boundary.peaks(f.clamp(min=0), xs, margin))


# ---- measurements by brute force ------------------------------------------------------------------------------------


def output(lab: Lab, prompts, x: float) -> torch.Tensor:
    """f with the last query put at x, by the whole forward pass."""
    xs = prompts.xs.clone()
    xs[:, -1, 0] = x
    with torch.no_grad():
        return lab.model(lab.encoding.encode(replace(prompts, xs=xs)))[:, -1, 0]


def check_approach(measure):
    lab = bench()
    curve = measure(lab)
    at = {x: output(lab, lab.prompts, x).view(4, 3) for x in (-1e6, -10.0, 1.0, 1e6)}
    for x in (-10.0, 1.0):
        f, truth = at[x], lab.truth([x])[:, 0].view(4, 3)
        k = list(curve["x"].values).index(x)
        expected = np.empty((4, 4))
        for i in range(4):
            others = f[[j for j in range(4) if j != i]].mean()
            squares = (f[i] - at[np.sign(x) * 1e6][i], f[i] - truth[i], truth[i], others - truth[i])
            expected[:, i] = [float(v.square().mean()) for v in squares]
        assert np.allclose(curve.values[:, :, k], expected, rtol=1e-9, atol=1e-12)


def test_approach_is_what_forward_passes_give():
    check_approach(boundary.approach)

    def own_context_included(lab):
        curve = boundary.approach(lab)
        line = lab.intact.mean(0)
        values = curve.values.copy()
        values[3] = lab.by_function((line - lab.truth(GRID)).square())
        return curve.copy(data=values)

    must_fail(check_approach, own_context_included)
    lab = bench()
    few, whole = boundary.approach_decades(lab), boundary.approach(Lab(lab.model, TASK, lab.encoding, n_functions=4))
    assert set(few["x"].values) <= set(whole["x"].values)
    assert few.values.shape == (4, 4, 16)


def check_elasticities(shift):
    """E_N from the stream itself: the norm's input, centred, times the read-out, without the norm's own arithmetic."""
    lab = bench()
    logs = boundary.logs(lab)
    found = boundary.elasticities(logs, 1, 10.0, 100.0)
    weights = lab.model.unembed.W_U[:, 0] * lab.model.ln_final.w
    numerator = []
    for x in (10.0, 100.0):
        xs = lab.few.xs.clone()
        xs[:, -1, 0] = x
        _, cache = lab.model.run_with_cache(lab.encoding.encode(replace(lab.few, xs=xs)))
        stream = cache["blocks.1.hook_resid_post"][:, -1]
        numerator.append(((stream - stream.mean(-1, keepdim=True)) @ weights).abs().log().mean())
    expected = float(numerator[1] - numerator[0]) / np.log(10)
    assert found["E_N"].value + shift == pytest.approx(expected, abs=1e-6)
    assert found["E_f"].value == pytest.approx(found["E_N"].value - found["E_sigma"].value, abs=1e-9)


def test_elasticities_are_those_of_numerator_and_scale():
    check_elasticities(0.0)
    must_fail(check_elasticities, 1e-3)
    far_out = boundary.elasticities(boundary.logs(bench()), -1, 1e4, 1e6)
    assert [far_out[e].value for e in ("E_f", "E_N", "E_sigma")] == pytest.approx([0, 1, 1], abs=0.01)
    bare = boundary.elasticities(boundary.logs(bench("no norm")), 1, 1e4, 1e6)
    assert [bare[e].value for e in ("E_f", "E_N", "E_sigma")] == pytest.approx([1, 1, 0], abs=0.01)


def check_arms(measure):
    lab = bench()
    curve = measure(lab)
    one = lab.prompts[torch.arange(0, 12, 3)]
    slope, constant = one.parameters[:, 1], one.parameters[:, 0]
    for arm, scale in (("query", 100.0), ("inputs", 1e4), ("functions", 1e4), ("inputs", 1.0), ("functions", 1.0)):
        inputs, functions = (scale if arm == name else 1.0 for name in ("inputs", "functions"))
        xs = one.xs * inputs
        ys = (constant[:, None] + slope[:, None] * xs[..., 0]) * functions
        for inner in lab.inner:
            x = inner * (1.0 if arm == "functions" else scale)
            f = output(lab, replace(one, xs=xs, ys=ys), x)
            got = curve.sel(arm=arm, scale=scale, query=inner).values
            assert np.allclose(got[0], f, rtol=1e-8, atol=1e-12), (arm, scale)
            assert np.allclose(got[1], (constant + slope * x) * functions, rtol=1e-12), (arm, scale)


def test_arms_scale_what_they_say():
    check_arms(boundary.arms)

    def labels_left_alone(lab):
        curve = boundary.arms(lab)
        values = curve.values.copy()
        values[1] = values[0]
        return curve.copy(data=values)

    must_fail(check_arms, labels_left_alone)
    must_fail(check_arms, lambda lab: (c := boundary.arms(lab)).copy(data=c.values[:, :, :, ::-1]))


def test_noise_stays_as_it_was_when_inputs_are_scaled():
    lab = bench()
    noisy = replace(lab.few, ys=lab.few.ys + 0.25)
    scaled = boundary._scaled(lab, noisy, "inputs", 10.0)
    assert torch.allclose(scaled.ys - TASK.value(scaled.parameters, scaled.xs), torch.tensor(0.25).double())


# ---- onsets known in closed form ------------------------------------------------------------------------------------


def exact_gap(lab: Lab, xs: np.ndarray) -> np.ndarray:
    """The distance of f from its limit where attention is even (alpha = 0): one LayerNorm of x v + b, by hand."""
    model = lab.model
    w_e, zeta = model.embed.W_E[0], model.blocks[0].attn.W_O[0, 0]
    tokens = lab.encoding.encode(lab.prompts)[:, :-1, 0]
    n = tokens.shape[1] + 1
    v, b = w_e + zeta / n, tokens.sum(1)[:, None] * zeta / n
    v, b = v - v.mean(), b - b.mean(1, keepdim=True)
    w = model.unembed.W_U[:, 0]
    x = torch.from_numpy(xs)[None, :, None]
    h = x * v + b[:, None]
    f = (h @ w) / (h.square().mean(-1) + 1e-5).sqrt()
    limit = torch.from_numpy(np.sign(xs)) * (v @ w) / v.square().mean().sqrt()
    return (f - limit).square().mean(0).numpy()


def test_the_onset_of_a_scalar_layer_is_where_its_formula_says():
    fine = np.logspace(-1, 5, 6001)
    for seed in range(3):
        lab = of_scalar(scalar_layer(generator(seed, "test/boundary"), 0.0, norm="LN", position="post"))
        level = 0.05 * lab.measure(far.certificate).to_dict("records")[0]["r"]
        found = boundary.onset(lab.measure(boundary.approach), 1, level).value
        expected = fine[np.flatnonzero(np.sqrt(exact_gap(lab, fine)) > level)[-1] + 1]
        assert found == pytest.approx(expected, rel=0.06)
        must_fail(lambda x, e: check_close(x, e), 1.2 * found, expected)
        assert boundary.rate(lab.measure(boundary.approach), 1).value == pytest.approx(-1, abs=0.03)


def check_close(found, expected):
    assert found == pytest.approx(expected, rel=0.06)


def test_the_onset_of_an_aligned_stream_is_the_theory_s():
    """f = r x / sqrt(x^2 + x0^2): within 0.05 of the plateau from 3.04 x0 on."""
    x0 = 12.0
    gap = 1 - np.abs(GRID) / np.hypot(GRID, x0)
    expected = float(theory.saturation_onset(x0))
    assert boundary.onset(made_up(gap), 1, 0.05).value == pytest.approx(expected, rel=0.03)
    assert boundary.rate(made_up(gap), 1).value == pytest.approx(-2, abs=1e-3)


def test_the_table_of_a_pre_norm_model():
    lab = of_scalar(random_pre_norm(generator(0, "test/table")))
    table = lab.measure(boundary.boundary)
    for sign in "+-":
        rows = {row["quantity"]: row for row in table.to_dict("records") if row["direction"] == sign}
        assert rows["trained range"]["value"] == 1.0
        assert rows["level"]["value"] == pytest.approx(rows["level, closed form"]["value"], abs=1e-3)
        assert rows["approach rate"]["value"] == pytest.approx(-1, abs=0.05)
        assert rows["level, spread"]["value"] < 0.01 * rows["one decade out, spread"]["value"]
        for row in rows.values():
            assert row["low"] <= row["value"] <= row["high"]
        f = lab.intact[:, [list(GRID).index(float(f"{sign}10"))]]
        assert rows["one decade out"]["value"] == pytest.approx(float(f.mean()))
        assert rows["one decade out, spread"]["value"] == pytest.approx(float(f.std(correction=0)))
    bare = of_scalar(scalar_layer(generator(0, "test/table"), 4.0)).measure(boundary.boundary)
    for quantity in ("onset", "level", "peak", "approach rate"):
        assert np.isnan(row_of(bare, direction="+", quantity=quantity)["value"])
    assert row_of(bare, direction="+", quantity="E_f")["value"] == pytest.approx(1, abs=1e-3)


# ---- claims ---------------------------------------------------------------------------------------------------------


def known(**more):
    return facts(task=TASK, **more)


def stored_for_onset(x0: float, onset=1.0, r=2.0) -> dict:
    quantities = [
        "trained range",
        "one decade out",
        "one decade out, spread",
        "level",
        "level, spread",
        "zone",
        "peak",
        "peak at",
        "onset",
        "approach rate",
        "E_f",
        "E_N",
        "E_sigma",
    ]
    table = make_table(
        {
            "direction": ["+"] * len(quantities) + ["-"] * len(quantities),
            "quantity": quantities * 2,
            "value": [1.0] * 2 * len(quantities),
        }
    )
    curve = made_up(r * x0 / np.abs(GRID))
    certificate = make_table({"c": [0.0], "r": [r], "onset": [onset], "plateau +": [1.0], "plateau -": [1.0]})
    results = {"far/approach": curve, "far/boundary": table, "far/certificate": certificate}
    return {**results, "twin/far/approach, decades": curve, "twin/far/certificate": certificate}


@pytest.mark.parametrize(
    ("x0", "verdict"),
    [(0.1, "supported"), (0.4, "supported"), (2.0, "inconclusive"), (6.0, "contradicted"), (1e5, "contradicted")],
)
def test_immediate_is_within_a_decade(x0, verdict):
    """The gap is x0 / |x| in units of r: level from 20 x0 on."""
    finding = registry.REGISTRY[IMMEDIATE].judge_results(stored_for_onset(x0), known())
    assert finding.verdict == verdict
    assert finding.estimate is not None
    assert finding.estimate.value == pytest.approx(min(np.log10(20 * x0), 5), abs=0.01)
    assert finding.estimate.low <= finding.estimate.value <= finding.estimate.high


def test_immediate_counts_from_the_edge_and_in_the_slower_direction():
    gap = np.where(GRID > 0, 1.0, 5.0) / np.abs(GRID)
    found = decades_to_level(made_up(gap), {"+": 10.0, "-": 10.0}, 0.05)
    assert 10 * 10**found.value == pytest.approx(100, rel=0.03)
    assert 10 * 10 ** decades_to_level(made_up(gap), {"+": 1.0, "-": 10.0}, 0.05).value == pytest.approx(200, rel=0.03)


def test_immediate_is_open_where_the_weights_say_so():
    claim = registry.REGISTRY[IMMEDIATE]
    constant = claim.judge_results(stored_for_onset(1.0, r=1e-12), known())
    beyond = claim.judge_results(stored_for_onset(1e5, onset=1e7), known())
    assert (constant.verdict, beyond.verdict) == ("inconclusive", "inconclusive")
    assert constant.reason.startswith("f is 0 everywhere. The output is constant")
    assert constant.estimate is None
    assert beyond.reason.endswith(
        "But the predicted onset of saturation, |x| = 1e+07 units of x, lies beyond the range."
    )
    assert beyond.estimate.value == pytest.approx(5)
    # Where the weights tell no onset (post-norm), it is not asked for.
    assert claim.judge_results(stored_for_onset(1.0, onset=1e5 + 1), known()).verdict == "inconclusive"
    assert claim.judge_results(stored_for_onset(0.1, onset=1e5), known()).verdict == "supported"
    assert claim.judge_results(stored_for_onset(1e5, onset=float("nan")), known()).verdict == "contradicted"
    bare = registry.REGISTRY[IMMEDIATE].judge_results({}, known(config={"normalization_type": None}))
    assert bare.verdict == "not_applicable"


def stored_for_error(share: float) -> dict:
    """f = (1 - share) truth + share line, with truth = w x and line = x / 2: errors in closed form."""
    w = np.linspace(-1, 1, 40)[:, None]
    truth, line = w * GRID, 0.5 * GRID
    error = np.square(share * (truth - line))
    f = (1 - share) * truth + share * line
    others = (f.sum(0) - f) / 39
    values = [0 * error, error, np.square(truth), np.square(others - truth)]
    curve = make_curve(values, {"statistic": STATISTICS, "function": tuple(range(40)), "x": tuple(GRID)})
    axes = {
        "arm": ARMS,
        "curve": ("model", "truth"),
        "function": tuple(range(40)),
        "query": (-0.5, 0.5),
        "scale": SCALES,
    }
    flat = make_curve(np.ones((3, 2, 40, 2, len(SCALES))), axes)
    return {"far/approach": curve, "far/arms": flat, "twin/far/approach, decades": curve}


def check_learning_far_out(relative):
    for share in (0.0, 0.3, 0.6, 1.0):
        stored = stored_for_error(share)["far/approach"]
        w = np.linspace(-1, 1, 40)
        f = (1 - share) * w + share * 0.5
        error = np.square(f - w).mean()
        expected = error / min(np.square(w).mean(), np.square((f.sum() - f) / 39 - w).mean())
        found = relative(stored)
        assert found.value == pytest.approx(expected, rel=1e-9)
        assert found.low <= found.value <= found.high


def test_relative_error_is_against_the_better_reference():
    check_learning_far_out(relative_error)

    def against_zero(curve):
        values = curve.values.copy()
        values[3] = 1e30
        return relative_error(curve.copy(data=values))

    def against_its_own_line(curve):
        values = curve.values.copy()
        values[2] = 1e30
        return relative_error(curve.copy(data=values))

    must_fail(check_learning_far_out, against_its_own_line)
    shifted = stored_for_error(1.0)["far/approach"]
    assert relative_error(shifted).value > 0.9 * against_zero(shifted).value


@pytest.mark.parametrize(
    ("share", "verdict"), [(0.0, "contradicted"), (0.3, "contradicted"), (0.75, "inconclusive"), (1.0, "supported")]
)
def test_a_model_that_extrapolates_contradicts(share, verdict):
    finding = registry.REGISTRY[HIGH_NORM].judge_results(stored_for_error(share), known())
    assert finding.verdict == verdict
    assert [row["arm"] for row in finding.details] == list(ARMS)


def test_arm_rows_tell_bounded_from_growing():
    lab = bench("no norm")
    rows = {row["arm"]: row for row in arm_rows(boundary.arms(lab))}
    assert not any(row["bounded"] for row in rows.values())
    assert rows["query"]["growth exponent"] == pytest.approx(1, abs=0.01)
    rows = {row["arm"]: row for row in arm_rows(boundary.arms(bench()))}
    assert all(row["bounded"] for row in rows.values())
    # Only where the query goes far alone do contexts stop to differ.
    assert rows["query"]["spread at 1e+06"] < 1e-3 * rows["query"]["spread at 1e+00"]
    assert rows["functions"]["spread at 1e+06"] > 1e-2 * rows["functions"]["spread at 1e+00"]
    curve = boundary.arms(bench())
    f, truth = (curve.sel(arm="functions", curve=c, scale=1e4).values for c in ("model", "truth"))
    assert rows["functions"]["spread at 1e+04"] == pytest.approx(np.sqrt(((f - f.mean(0)) ** 2).mean()))
    assert rows["functions"]["error at 1e+04"] == pytest.approx(((f - truth) ** 2).mean() / (truth**2).mean())


def test_findings_of_a_small_model_are_complete(measured):
    uniform = tasks.Uniform(-1, 1)
    task = tasks.Polynomial(degrees=(1,), inputs=uniform, coefficients=uniform, n_points=8)
    for name in ("pre", "post", "no norm"):
        found = measured(make(name, n_ctx=40), IMMEDIATE, HIGH_NORM, task=task)
        high = found.judge(HIGH_NORM)
        assert high.verdict == "supported"
        assert high.twin.value > 0.9
        immediate = found.judge(IMMEDIATE)
        assert (immediate.verdict == "not_applicable") == (name == "no norm")
        if name != "no norm":
            assert np.isfinite([immediate.estimate.low, immediate.twin.value]).all()
