"""Models beside companions: measurements by brute force, verdicts on made-up results, and what cannot be asked."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from affine_runs import INTERVALS, N, known, run
from helpers import must_fail
from measuring import judged_on
from xarray import DataArray

import icl_interp
from icl_interp import evaluation, pipeline, tasks
from icl_interp.analyses.lab import Lab
from icl_interp.checkpoints.companions import Role
from icl_interp.prompts import as_numbers
from icl_interp.results import make_array, make_curve
from icl_interp.studies.limits.claims.shift import BETTER, MARGIN, gain
from icl_interp.studies.limits.measurements import shift
from icl_interp.studies.limits.measurements.shift import COARSE, INSIDE, SIGMAS
from icl_interp.tasks.regression import LinearRegression

BETTER_ID, NEAR_ID, SIZE_ID = (f"limits.{n}" for n in ("no_norm_better", "error_near_boundary", "size_does_not_help"))
DENSITY_ID, LARGER_ID = "limits.training_density", "limits.larger_intervals"
RNG = np.random.default_rng(0)


@functools.cache
def bench() -> Lab:
    """A model with companions without a norm, wider, and trained on U(-4, 4)."""
    mine = run()
    others = {
        Role("no norm"): run(normalization_type=None),
        Role("wider"): run(d_model=16),
        Role("interval", half_width=4.0): run(4.0),
    }
    return Lab(mine.model, mine.task, mine.encoding, n_functions=4, n_contexts=3, companions=others)


# ---- who is compared ------------------------------------------------------------------------------------------------


def test_half_widths():
    uniform = tasks.Uniform
    task = functools.partial(tasks.Polynomial, degrees=(1,), n_points=5)
    assert shift.half_width(task(inputs=uniform(-2, 2), coefficients=uniform(-2, 2))) == 2
    for inputs, coefficients in (
        (uniform(-2, 2), uniform(-1, 1)),
        (uniform(0, 2), uniform(0, 2)),
        (tasks.Normal(1), tasks.Normal(1)),
        (uniform(-1, 1), tasks.Normal(1)),
    ):
        assert shift.half_width(task(inputs=inputs, coefficients=coefficients)) is None
    assert shift.half_width(LinearRegression(n_dims=1, n_points=5)) is None


def test_companions_come_with_a_second_seed_and_intervals_in_order():
    mine = icl_interp.load("affine")
    beside, left_out = pipeline.companions_of_model((), mine)
    lab = Lab(mine.model, mine.task, mine.encoding, n_functions=2, n_contexts=2, companions=beside)
    found = {str(role): c.name for role, c in shift.family(lab).items()}
    assert left_out == []
    assert (found["no norm"], found["no norm, another seed"]) == ("affine_no_ln", "affine_no_ln_seed1")
    assert list(shift.by_interval(lab)) == [1.0, 5.0, 10.0, 100.0]
    assert shift.by_interval(lab)[1.0] is None


# ---- measurements by brute force ------------------------------------------------------------------------------------


def test_functions_are_shared_by_all():
    lab = bench()
    errors = shift.functions(lab)
    assert tuple(errors.indexes["predictor"]) == ("model", "no norm", "wider", "least squares", "zero")
    assert tuple(errors.indexes["sigma"]) == SIGMAS
    alone = evaluation.function_errors(
        {"wider": lab.companions[Role("wider")]},
        lab.task.scaled(5.0),
        n_functions=4,
        n_contexts=shift.N_CONTEXTS,
        seed=0,
    )["wider"]
    assert np.allclose(errors.sel(predictor="wider", sigma=5.0).values, alone, rtol=1e-6)
    zero = errors.sel(predictor="zero").values
    assert np.allclose(zero / zero[0], np.square(SIGMAS)[:, None])
    assert errors.sel(predictor="least squares").values.max() < 1e-18


def check_inside(measure):
    lab = bench()
    curve = measure(lab)
    assert tuple(curve.indexes["predictor"]) == ("model", "no norm", "wider")
    models = {"model": lab.model, "no norm": lab.companions[Role("no norm")].model}
    for name, model in models.items():
        for k in (0, 5, 7):
            squares = []
            for side in (1, -1):
                xs = lab.small_sample.xs.clone()
                xs[:, -1, 0] = side * INSIDE[k]
                with torch.no_grad():
                    f = model.double()(lab.encoding.encode(replace(lab.small_sample, xs=xs)))[:, -1, 0]
                truth = lab.small_sample.parameters[:, 0] + lab.small_sample.parameters[:, 1] * side * INSIDE[k]
                squares.append((f - truth).square().view(4, 2).mean(1))
            expected = torch.stack(squares).mean(0)
            assert np.allclose(curve.sel(arm="trained", predictor=name).values[:, k], expected, rtol=1e-6)
    fresh = curve.sel(arm="untrained", predictor="model").values
    assert not np.allclose(fresh, curve.sel(arm="trained", predictor="model").values)


def test_inside_is_what_forward_passes_give():
    check_inside(shift.inside)

    def one_side_only(lab):
        curve = shift.inside(lab)
        return curve.copy(data=np.roll(curve.values, 1, axis=-1))

    must_fail(check_inside, one_side_only)


def check_intervals(measure):
    lab = bench()
    result = measure(lab)
    assert tuple(result.indexes["predictor"]) == ("1.0", "4.0", "zero")
    for a, model in ((1.0, lab), (4.0, lab.companions[Role("interval", half_width=4.0)])):
        for sigma in (1.0, 4.0):
            law, unit = tasks.Uniform(-sigma, sigma), tasks.Uniform(-1, 1)
            for arm, inputs in (("both", law), ("functions", unit)):
                task = tasks.Polynomial(degrees=(1,), inputs=inputs, coefficients=law, n_points=5)
                settings = {"n_functions": 4, "n_contexts": 2, "seed": 0}
                expected = evaluation.function_errors({"m": model}, task, **settings)["m"]
                got = result.sel(arm=arm, predictor=str(a), sigma=sigma).values
                assert np.allclose(got, expected, rtol=1e-5), (a, sigma, arm)


def test_intervals_test_each_model_on_each_interval():
    check_intervals(shift.intervals)
    must_fail(check_intervals, lambda lab: (r := shift.intervals(lab)).copy(data=r.values[[1, 0, 2]]))
    must_fail(check_intervals, lambda lab: (r := shift.intervals(lab)).copy(data=r.values[:, [1, 0, 2]]))
    # From the larger model's side the intervals are the same ones.
    mine, other = run(4.0), run(1.0)
    seen = Lab(
        mine.model,
        mine.task,
        mine.encoding,
        n_functions=4,
        n_contexts=3,
        companions={Role("interval", half_width=1.0): other},
    )
    assert tuple(shift.intervals(seen).indexes["sigma"]) == (1.0, 4.0)


def test_onsets_are_measured_on_each_model_s_own_contexts():
    lab = bench()
    curve = shift.onsets(lab)
    assert tuple(curve.indexes["interval"]) == (1.0, 4.0)
    other = lab.companions[Role("interval", half_width=4.0)]
    own = Lab(other.model, other.task, other.encoding, n_functions=4, n_contexts=2)
    f = as_numbers(own.sweep([10.0, 1e6]))
    w = other.model.unembed.W_U[:, 0].detach().double()
    r = float((w - w.mean()).norm() * np.sqrt(8))  # gains are 1 in an untrained model
    expected = own.by_function(((f[:, 0] - f[:, 1]) / r).square())
    assert np.allclose(curve.sel(interval=4.0).values[:, list(COARSE).index(10.0)], expected, rtol=1e-6)
    assert shift.onsets_untrained(lab).values.shape == (2, 4, 16)


# ---- claims ---------------------------------------------------------------------------------------------------------


def functions_of(ratios: dict[str, float], noise=0.05, level=1e-3) -> DataArray:
    """Errors of "model" at a level, and of others at a ratio to it, each noisy by function; zero at 1."""
    names = ("model", *ratios, "least squares", "zero")
    base = level * np.exp(0.5 * RNG.standard_normal(N))
    rows = {"model": base, **{k: r * base * np.exp(noise * RNG.standard_normal(N)) for k, r in ratios.items()}}
    rows |= {"least squares": 0 * base, "zero": 1 + 0 * base}
    values = [np.outer(np.square(SIGMAS), rows[name]) for name in names]
    return make_array(values, {"predictor": names, "sigma": SIGMAS, "function": tuple(range(N))})


def no_norm(ratios, twin=1.0, facts=None, **settings):
    untrained = functions_of(dict.fromkeys(ratios, twin), noise=0.0)
    results = {"shift/functions": functions_of(ratios, **settings), "shift/functions, untrained": untrained}
    return judged_on(BETTER_ID, results, facts or known("no norm"))


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [(0.28, "supported"), (0.85, "supported"), (0.95, "inconclusive"), (1.1, "contradicted"), (3.0, "contradicted")],
)
def test_no_norm_better_is_judged_with_a_margin(ratio, verdict):
    finding = no_norm({"no norm": ratio})
    assert finding.verdict == verdict
    assert finding.estimate is not None
    assert finding.estimate.value == pytest.approx(np.log10(ratio), abs=0.02)
    # The other way round, from the model without a norm, it is the same ratio.
    other = no_norm({"with norm": 1 / ratio}, facts=known("with norm", norm=None))
    assert other.verdict == verdict


def test_seeds_must_agree():
    seeds = "no norm, another seed"
    assert no_norm({"no norm": 0.5, seeds: 0.7}).verdict == "supported"
    assert no_norm({"no norm": 0.3, seeds: 1.3}).verdict == "inconclusive"
    finding = no_norm({"no norm": 2.0, seeds: 1.3})
    assert finding.verdict == "contradicted"
    assert "2 pairs of seeds" in finding.reason
    assert "2 seed(s) without and 1 with" in finding.scope
    mine = no_norm({"with norm": 2.0, "another seed": 5.0}, facts=known("with norm", norm=None))
    assert mine.verdict == "inconclusive"  # one seed without a norm is half, the other 2.5 times the error


def test_the_verdict_is_on_all_pairs_and_the_estimate_is_their_mean():
    finding = no_norm({"no norm": 0.3, "no norm, another seed": 0.6})
    assert finding.estimate is not None
    assert finding.test is not None
    assert finding.estimate.value == pytest.approx(np.log10(0.3 * 0.6) / 2, abs=0.02)
    assert (finding.test.low, finding.test.high) == pytest.approx(np.log10([0.3, 0.6]), abs=0.02)
    assert finding.test.name == "error without / with norm, every pair of seeds"
    alone = no_norm({"no norm": 0.3})
    assert alone.test == alone.estimate


NOT_LEARNED = "But not all of these models have learned the task"


def test_models_that_did_not_learn_decide_nothing():
    finding = no_norm({"no norm": 400.0})
    assert finding.verdict == "inconclusive"
    assert NOT_LEARNED in finding.reason
    assert "the error of no norm is 0." in finding.reason
    assert "the error of model" not in finding.reason
    assert finding.evidence["largest error"].value == pytest.approx(0.45, rel=0.3)
    assert no_norm({"no norm": np.nan}).verdict == "inconclusive"
    assert NOT_LEARNED in no_norm({"no norm": 1.0, "no norm, another seed": np.nan}).reason
    assert NOT_LEARNED not in no_norm({"no norm": 40.0}).reason
    assert no_norm({"no norm": 0.5}, facts=known("no norm", r2=0.3)).verdict == "inconclusive"
    assert no_norm({"no norm": 0.5}, twin=0.5).verdict == "inconclusive"  # an untrained pair passes as well


def test_a_twin_passes_where_all_of_its_pairs_do():
    seeds = ("no norm", "no norm, another seed")

    def verdict(*twins: float) -> str:
        untrained = functions_of(dict(zip(seeds, twins, strict=True)), noise=0.0)
        results = {"shift/functions": functions_of(dict.fromkeys(seeds, 0.5)), "shift/functions, untrained": untrained}
        return judged_on(BETTER_ID, results, known(*seeds)).verdict

    assert verdict(0.5, 0.6) == "inconclusive"
    assert verdict(0.5, 1.1) == verdict(1.1, 0.5) == "supported"


def test_edge_and_size_are_asked_of_models_that_learned_only():
    curve = inside_of(lambda x: 1 + x, lambda x: 2 * np.exp(2 * x))
    results = {"shift/inside": curve, "shift/functions": functions_of({"no norm": 400.0})}
    finding = judged_on(NEAR_ID, results, known("no norm"))
    assert finding.verdict == "inconclusive"
    assert NOT_LEARNED in finding.reason
    bad = functions_of({"wider": 1.0}, level=0.5)
    finding = judged_on(SIZE_ID, {"shift/functions": bad}, known("wider"))
    assert finding.verdict == "inconclusive"
    assert NOT_LEARNED in finding.reason
    assert "the error of wider is 0." in finding.reason
    assert "the error of model is 0." in finding.reason


def inside_of(without, normed, arm=None) -> DataArray:
    """Errors over |x| of a model with a norm and a companion without, as functions of the share."""
    factor = np.exp(0.3 * RNG.standard_normal((N, 1)))
    one = np.ones((N, len(INSIDE)))
    trained = [factor * normed(INSIDE) * one, factor * without(INSIDE) * one]
    axes = {
        "arm": ("trained", "untrained"),
        "predictor": ("model", "no norm"),
        "function": tuple(range(N)),
        "share": tuple(INSIDE),
    }
    return make_curve([trained, arm or [one, one]], axes)


def check_gain(gain):
    """Edge: the mean over shares from 0.9 on; inner: up to 0.5."""
    curve = inside_of(lambda x: 1 + 0 * x, lambda x: 1 + 9 * (x > 0.85))
    edge, more, both = gain(curve, "no norm", "model")
    assert (edge.value, more.value, both.value) == pytest.approx((-1, -1, -1), abs=1e-9)
    level = inside_of(lambda x: 0.1 + 0 * x, lambda x: 1 + 0 * x)
    assert [i.value for i in gain(level, "no norm", "model")] == pytest.approx([-1, 0, 0], abs=1e-9)


def test_gain_is_read_at_the_edge_and_inside():
    check_gain(gain)
    must_fail(check_gain, lambda curve, a, b: gain(curve, b, a))
    must_fail(check_gain, lambda curve, a, b: gain(curve.copy(data=np.roll(curve.values, 3, -1)), a, b))


@pytest.mark.parametrize(
    ("without", "normed", "verdict"),
    [
        (lambda x: 1 + x, lambda x: 2 * np.exp(2 * x), "supported"),
        (lambda x: 1 + x, lambda x: 0.5 + 0.5 * x, "contradicted"),  # worse everywhere
        (lambda x: 0.1 * np.exp(2 * x), lambda x: 1 + 0 * x, "contradicted"),  # better, but most so inside
    ],
)
def test_near_the_boundary_is_judged_on_both_counts(without, normed, verdict):
    results = {"shift/inside": inside_of(without, normed), "shift/functions": functions_of({"no norm": 1.0})}
    finding = judged_on(NEAR_ID, results, known("no norm"))
    assert finding.verdict == verdict
    assert len(finding.details) == 2 * len(INSIDE)
    passes = inside_of(without, normed).values[0]
    gated = {**results, "shift/inside": inside_of(without, normed, arm=list(passes))}
    assert judged_on(NEAR_ID, gated, known("no norm")).verdict == (
        "inconclusive" if verdict == "supported" else verdict
    )


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(1.0, "supported"), (0.85, "supported"), (0.7, "contradicted"), (1.5, "inconclusive")]
)
def test_size_is_an_equivalence_test(ratio, verdict):
    wider = judged_on(SIZE_ID, {"shift/functions": functions_of({"wider": ratio})}, known("wider"))
    narrower = judged_on(SIZE_ID, {"shift/functions": functions_of({"narrower": 1 / ratio})}, known("narrower"))
    assert wider.verdict == narrower.verdict == verdict
    assert wider.estimate is not None
    assert wider.estimate.value == pytest.approx(np.log10(ratio), abs=0.02)
    assert ("the wider one is worse" in wider.reason) == (ratio > 1.4)


def test_a_wide_interval_proves_no_equivalence():
    noisy = {"shift/functions": functions_of({"wider": 1.0}, noise=2.0)}
    assert judged_on(SIZE_ID, noisy, known("wider")).verdict == "inconclusive"
    assert pytest.approx(np.log10(1.25)) == MARGIN
    assert pytest.approx(np.log10(0.9)) == BETTER


# ---- what cannot be asked -------------------------------------------------------------------------------------------


def test_without_companions_nothing_is_asked():
    for claim in (BETTER_ID, NEAR_ID, SIZE_ID, DENSITY_ID, LARGER_ID):
        for alone in (known(), known(norm=None)):
            finding = judged_on(claim, {}, alone)
            assert finding.verdict == "not_applicable"
    assert "trained without normalisation" in judged_on(BETTER_ID, {}, known()).reason
    assert "trained with normalisation" in judged_on(BETTER_ID, {}, known(norm=None)).reason
    assert "no normalisation" in judged_on(LARGER_ID, {}, known(INTERVALS[0], norm=None)).reason
    normal = tasks.Polynomial(degrees=(1,), inputs=tasks.Normal(1), coefficients=tasks.Normal(1), n_points=5)
    assert "U(-a, a)" in judged_on(DENSITY_ID, {}, known(INTERVALS[0], task=normal)).reason
    sine = tasks.Continuous(function="sin", inputs=tasks.Uniform(-1, 1), n_points=5)
    assert "Continuous" in judged_on(BETTER_ID, {}, known("no norm", task=sine)).reason


def test_all_are_answered_where_companions_are_at_hand():
    others = [run(normalization_type=None), run(d_model=16, d_head=8), run(4.0)]
    report = icl_interp.analyze(
        run(),
        claims=[BETTER_ID, NEAR_ID, SIZE_ID, DENSITY_ID, LARGER_ID],
        companions=others,
        n_prompts=256,
        progress=False,
    )
    for finding in report.findings:
        assert finding.verdict == "inconclusive" or finding.id in (DENSITY_ID, LARGER_ID)
        assert finding.verdict != "supported"  # nobody has learned anything
        assert finding.estimate is not None
        assert np.isfinite([finding.estimate.low, finding.estimate.high]).all()
        assert (finding.twin is None) == (finding.id == SIZE_ID)
    again = report.judge()
    assert [f.reason for f in again.findings] == [f.reason for f in report.findings]
