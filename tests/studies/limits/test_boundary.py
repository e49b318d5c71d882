"""Boundary values: places read off curves, brute-force measurements, onsets in closed form."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from small_models import TASK, make, small_lab
from stored_curves import approach
from tables import row_of

from icl_interp import tasks
from icl_interp.analyses.bench import GRID, MAGNITUDES
from icl_interp.analyses.lab import Lab
from icl_interp.experiments.calibration import TASK as LONG
from icl_interp.models.tokens import Interleaved
from icl_interp.provenance import generator
from icl_interp.studies.limits.constructions.layers import random_pre_norm, scalar_layer
from icl_interp.studies.limits.measurements import boundary, certificates
from icl_interp.theory import limits as theory


def of_scalar(model) -> Lab:
    return Lab(model, LONG, Interleaved(), n_units=6, n_contexts=4)


# ---- places on a curve ---------------------------------------------------------------------------


def check_settles(settles):
    """A power law is a straight line on these axes, so the place is exact between grid points."""
    for x0, power in ((0.7, 1.0), (3.0, 1.0), (40.0, 2.0)):
        size = (x0 / MAGNITUDES) ** power
        for bound in (0.05, 0.2):
            expected = x0 * bound ** (-1 / power)
            assert settles(MAGNITUDES, size, bound) == pytest.approx(expected, rel=1e-12)
    # A dip on the way does not count, what lies beyond 1e5 is never, and what is level from the
    # start is.
    dip = np.where((MAGNITUDES > 5) & (MAGNITUDES < 30), 1e-6, 2 * (100 / MAGNITUDES))
    assert settles(MAGNITUDES, dip, 0.05) == pytest.approx(4000)
    assert (
        settles(MAGNITUDES, 0 * MAGNITUDES + 1, 0.05)
        == settles(MAGNITUDES, 1e5 / MAGNITUDES, 0.05)
        == 1e5
    )
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
        assert boundary.leaves(MAGNITUDES, size, 0.1) == pytest.approx(
            x0 * 0.1 ** (1 / power), rel=1e-12
        )
        # Coming back later does not count.
        assert boundary.leaves(MAGNITUDES, np.where(MAGNITUDES > 1e3, 0, size), 0.1) < 10
    assert boundary.leaves(MAGNITUDES, 0 * MAGNITUDES, 0.1) == 1e6
    assert boundary.leaves(MAGNITUDES, 1 + 0 * MAGNITUDES, 0.1) == 0.1


def test_the_approach_rate_is_the_power():
    for power in (0.5, 1.0, 2.0):
        curve = approach(np.where(GRID > 0, 1.0, 7.0) * np.abs(GRID) ** -power)
        for sign in (1, -1):
            found = boundary.rate(curve, sign)
            assert (found.value, found.low, found.high) == pytest.approx([-power] * 3)


def test_the_zone_ends_where_a_tenth_of_the_error_of_the_laws_mean_is_made():
    curve = approach(
        1, error=np.abs(GRID) ** 1.5 * np.where(GRID > 0, 0.01, 0.1), mean=np.abs(GRID)
    )
    assert boundary.zone(curve, 1).value == pytest.approx(1000, rel=1e-9)
    assert boundary.zone(curve, -1).value == pytest.approx(10, rel=1e-9)


def check_peaks(peaks):
    f = torch.tensor(
        [[0.1, -3.0, 1.0, 1.0], [0.5, 0.6, -1.03125, 1.0], [2.0, 1.0, 0.0, 0.0]]
    ).double()[..., None]
    found = peaks(f, np.array([1.0, 10.0, 100.0, 1000.0]), 0.05)
    assert found["peak"].tolist() == [3.0, 1.03125, 2.0]
    assert found["peak at"].exp().tolist() == pytest.approx([10.0, 100.0, 1.0])
    assert found["overshoot"].tolist() == [1.0, 0.0, 1.0]


def test_peaks():
    check_peaks(boundary.peaks)
    must_fail(check_peaks, lambda f, xs, margin: boundary.peaks(f, xs, 0.0))
    must_fail(check_peaks, lambda f, xs, margin: boundary.peaks(f.clamp(min=0), xs, margin))


# ---- measurements by brute force -----------------------------------------------------------------


def output(lab: Lab, prompts, x: float) -> torch.Tensor:
    """f with the last query put at x, by the whole forward pass."""
    xs = prompts.xs.clone()
    xs[:, -1, 0] = x
    with torch.no_grad():
        return lab.model(lab.encoding.encode(replace(prompts, xs=xs)))[:, -1, 0]


ABOUT_ONE = replace(TASK, coefficients=tasks.Normal(1, 1))  # E f(x) = 1 + x


def check_approach(measure):
    lab = Lab(make(), ABOUT_ONE, Interleaved(), n_units=4, n_contexts=3)
    curve = measure(lab)
    at = {x: output(lab, lab.prompts, x).view(4, 6) for x in (-1e6, -10.0, 1.0, 1e6)}
    for x in (-10.0, 1.0):
        f, truth = at[x], lab.truth([x]).view(4, 6)
        expected = np.empty((3, 4))
        for i in range(4):
            squares = (f[i] - at[np.sign(x) * 1e6][i], f[i] - truth[i], 1 + x - truth[i])
            expected[:, i] = [float(v.square().mean()) for v in squares]
        assert np.allclose(curve.sel(x=x).values, expected, rtol=1e-9, atol=1e-12)


def test_approach_is_what_forward_passes_give():
    check_approach(boundary.approach)

    def zero_for_the_mean(lab):
        curve = boundary.approach(lab)
        values = curve.values.copy()
        values[2] = lab.by_unit(lab.truth(lab.grid)[..., 0].square())
        return curve.copy(data=values)

    must_fail(check_approach, zero_for_the_mean)
    lab = small_lab()
    few, whole = (
        boundary.approach_decades(lab),
        boundary.approach(Lab(lab.model, TASK, lab.encoding, n_units=4)),
    )
    assert set(few["x"].values) <= set(whole["x"].values)
    assert few.values.shape == (3, 4, 16)


def check_elasticities(shift):
    """E_N from the stream itself: the norm's input, centred, times the read-out.

    The norm's own arithmetic is not used.
    """
    lab = small_lab()
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
    assert found["E_f"].value == pytest.approx(
        found["E_N"].value - found["E_sigma"].value, abs=1e-9
    )


def test_elasticities_are_those_of_numerator_and_scale():
    check_elasticities(0.0)
    must_fail(check_elasticities, 1e-3)
    far_out = boundary.elasticities(boundary.logs(small_lab()), -1, 1e4, 1e6)
    assert [far_out[e].value for e in ("E_f", "E_N", "E_sigma")] == pytest.approx(
        [0, 1, 1], abs=0.01
    )
    bare = boundary.elasticities(boundary.logs(small_lab("no norm")), 1, 1e4, 1e6)
    assert [bare[e].value for e in ("E_f", "E_N", "E_sigma")] == pytest.approx([1, 1, 0], abs=0.01)


def check_arms(measure):
    lab = Lab(make(), ABOUT_ONE, Interleaved(), n_units=4, n_contexts=3)
    curve = measure(lab)
    one = lab.prompts[torch.arange(0, 24, 6)]
    slope, constant = one.parameters[:, 1], one.parameters[:, 0]
    for arm, scale in (
        ("query", 100.0),
        ("inputs", 1e4),
        ("functions", 1e4),
        ("inputs", 1.0),
        ("functions", 1.0),
    ):
        inputs, functions = (scale if arm == name else 1.0 for name in ("inputs", "functions"))
        xs = one.xs * inputs
        mean = 1 + xs[..., 0]
        ys = mean + (constant[:, None] + slope[:, None] * xs[..., 0] - mean) * functions
        for inner in lab.inner:
            x = inner * (1.0 if arm == "functions" else scale)
            f = output(lab, replace(one, xs=xs, ys=ys[..., None]), x)
            got = curve.sel(arm=arm, scale=scale, query=inner).values
            assert np.allclose(got[0], f, rtol=1e-8, atol=1e-12), (arm, scale)
            assert np.allclose(
                got[1], 1 + x + (constant + slope * x - 1 - x) * functions, rtol=1e-9
            ), (arm, scale)
            assert np.allclose(got[2], 1 + x, rtol=1e-9), (arm, scale)


def test_arms_scale_what_they_say():
    check_arms(boundary.arms)

    def as_measured(curves: slice):
        def left_alone(lab):
            curve = boundary.arms(lab)
            values = curve.values.copy()
            values[2, curves] = values[2, curves, :, :, :1]
            return curve.copy(data=values)

        return left_alone

    must_fail(check_arms, as_measured(slice(1, 2)))

    def about_zero(lab):
        expected = type(lab.task).expected
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(lab.task), "expected", lambda task, xs: 0 * expected(task, xs))
            return boundary.arms(lab)

    must_fail(check_arms, about_zero)
    must_fail(check_arms, lambda lab: (c := boundary.arms(lab)).copy(data=c.values[:, :, :, ::-1]))


def test_noise_stays_as_it_was_when_inputs_are_scaled():
    lab = small_lab()
    noisy = replace(lab.few, ys=lab.few.ys + 0.25)
    scaled = boundary._scaled(lab, noisy, "inputs", 10.0)
    assert torch.allclose(
        scaled.ys - TASK.targets(scaled.parameters, scaled.xs), torch.tensor(0.25).double()
    )


# ---- onsets known in closed form -----------------------------------------------------------------


def exact_gap(lab: Lab, xs: np.ndarray) -> np.ndarray:
    """The distance of f from its limit where attention is even (alpha = 0), by hand.

    It is one LayerNorm of x v + b.
    """
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
        lab = of_scalar(
            scalar_layer(generator(seed, "test/boundary"), 0.0, norm="LN", position="post")
        )
        level = 0.05 * lab.measure(certificates.certificate).to_dict("records")[0]["r"]
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
    assert boundary.onset(approach(gap), 1, 0.05).value == pytest.approx(expected, rel=0.03)
    assert boundary.rate(approach(gap), 1).value == pytest.approx(-2, abs=1e-3)


def test_the_table_of_a_pre_norm_model():
    lab = of_scalar(random_pre_norm(generator(0, "test/table")))
    table = lab.measure(boundary.boundary)
    level = boundary.LEVEL * float(lab.sweep()[:, 0].std(correction=0))
    for sign in "+-":
        rows = {
            row["quantity"]: row for row in table.to_dict("records") if row["direction"] == sign
        }
        assert rows["trained range"]["value"] == 1.0
        onset = boundary.onset(lab.measure(boundary.approach), 1 if sign == "+" else -1, level)
        assert rows["onset"]["value"] == pytest.approx(onset.value, rel=1e-9)
        assert rows["level"]["value"] == pytest.approx(
            rows["level, closed form"]["value"], abs=1e-3
        )
        assert rows["approach rate"]["value"] == pytest.approx(-1, abs=0.05)
        assert rows["level, spread"]["value"] < 0.01 * rows["one decade out, spread"]["value"]
        for row in rows.values():
            assert row["low"] <= row["value"] <= row["high"]
        f = lab.sweep(lab.grid)[:, [list(GRID).index(float(f"{sign}10"))]]
        assert rows["one decade out"]["value"] == pytest.approx(float(f.mean()))
        assert rows["one decade out, spread"]["value"] == pytest.approx(float(f.std(correction=0)))
    bare = of_scalar(scalar_layer(generator(0, "test/table"), 4.0)).measure(boundary.boundary)
    for quantity in ("onset", "level", "peak", "approach rate"):
        assert np.isnan(row_of(bare, direction="+", quantity=quantity)["value"])
    assert row_of(bare, direction="+", quantity="E_f")["value"] == pytest.approx(1, abs=1e-3)
