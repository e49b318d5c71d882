"""Experiments of `linear_attention`: their exact lines against sampling, their edits, and what they say."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from xarray import DataArray

from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.errors import InputError
from icl_interp.experiments import base, scales
from icl_interp.experiments.bench import Bench
from icl_interp.experiments.errors import AGREES, DIFFERS, MISPRINT, OPEN
from icl_interp.figures import reproductions
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.tokens import Interleaved
from icl_interp.models.transformer import HookedTransformer
from icl_interp.models.units import LinearSelfAttention
from icl_interp.provenance import generator
from icl_interp.results import make_array, make_table
from icl_interp.studies import STUDIES
from icl_interp.studies.linear_attention.experiments import convergence, covariance, length, models, risk, shifts, trap
from icl_interp.tasks.regression import Exponential, LinearRegression
from icl_interp.theory import linear_attention as theory
from icl_interp.training import recipes

STUDY = [name for name in base.names() if base.get(name).study == "linear_attention"]
NEEDED = sorted({(m.recipe, s) for name in STUDY for m in base.get(name).models for s in m.scales})
NOTHING = Bench({}, scales.SCALES["smoke"])
FIXED = LinearRegression(n_dims=2, n_points=8)
RANDOM = LinearRegression(n_dims=2, n_points=8, covariance=Exponential())


def tiny(positions="standard", seed=0):
    """An untrained softmax model for prompts of 7 examples, with positions for 14."""
    cfg = HookedTransformerConfig(
        n_layers=1, d_model=8, d_in=2, n_ctx=30, positional_embedding_type=positions, init_std=0.5
    )
    return Checkpoint(HookedTransformer(cfg, seed=seed).eval(), FIXED, Interleaved(), RunConfig(cfg, FIXED), 0)


def bench(**checkpoints):
    return Bench(checkpoints, replace(scales.SCALES["smoke"], n_functions=40, n_contexts=50))


def rows(*entries):
    return make_table({key: [entry[key] for entry in entries] for key in entries[0]})


# The study


def test_the_study_is_registered_and_drawn():
    names = ("convergence", "covariance", "length_spike", "risk_formula", "shifts", "trap")
    assert [f"linear_attention.{name}" for name in names] == STUDY
    assert set(STUDY) <= set(reproductions.DRAWINGS)
    assert len(STUDIES["linear_attention"].experiments) == len(STUDY)


@pytest.mark.parametrize(("recipe", "scale"), NEEDED)
def test_every_model_exists_at_its_scales(recipe, scale):
    small, run = recipes.resolve(recipe), models.at_scale(recipes.resolve(recipe), scale)
    for name in ("normalization_type", "score_fn", "score_norm", "attention_dir", "positional_embedding_type"):
        assert getattr(run.model, name) == getattr(small.model, name)
    assert type(run.task.covariance) is type(small.task.covariance)
    assert run.training.curriculum.first_points <= run.task.n_points
    assert scales.config(recipe, scale, (), models.at_scale) == run
    n = run.task.n_points - 1
    if run.model.score_fn == "softmax":
        assert run.model.n_ctx >= Interleaved().n_tokens(2 * n + 1)  # M up to 2 N
    else:
        assert run.model.n_ctx > 8 * n


def test_paper_scale_is_the_slides():
    """N = 40, 70, 100, and n / d the same at every scale."""
    recipe = {n: recipes.resolve(models.softmax("random", n).recipe) for n in models.LENGTHS}
    for scale, d, lengths in (("smoke", 2, [4, 7, 10]), ("small", 4, [8, 14, 20]), ("paper", 20, [40, 70, 100])):
        tasks = [models.at_scale(run, scale).task for run in recipe.values()]
        assert [task.n_points - 1 for task in tasks] == lengths
        assert {task.n_dims for task in tasks} == {d}
    found = [models.at_scale(run, "paper") for run in recipe.values()]
    assert {(run.task.n_dims, run.model.d_in, run.model.n_layers, run.model.d_model) for run in found} == {
        (20, 20, 12, 256)
    }
    with pytest.raises(InputError, match="LinearRegression"):
        models.at_scale(recipes.resolve("affine"), "smoke")


def test_without_any_model_nothing_about_models_is_said():
    for name in STUDY:
        if name.rpartition(".")[2] not in ("covariance", "length_spike", "shifts"):
            continue
        results = base.get(name).run(NOTHING)
        assert base.get(name).says(results) == ("No model is here, so nothing is measured.",)
        assert base.get(name).compare(results) is None
        assert reproductions.draw(name, results) == {}


# Error by length


def test_least_squares_is_exact_from_d_examples_on():
    found = models.errors_by_length(bench(), models.LEAST_SQUARES, RANDOM, 6)
    assert tuple(found.indexes["M"]) == (1, 2, 3, 4, 5, 6)
    assert found.values[:, 0].mean() > 0.1
    assert np.median(found.values[:, 1:]) < 1e-12


@pytest.mark.parametrize("trained", [FIXED, RANDOM], ids=["fixed", "random"])
@pytest.mark.parametrize("test", ["fixed", "random, c = 4"])
def test_the_lsa_limit_is_the_error_of_that_layer(trained, test):
    """The exact line against the layer itself on 20,000 prompts."""
    task = models.tests(2, (1.0, 4.0))[test]
    where = theory.random_landscape(trained.spectrum_moments(), 7)
    unit = LinearSelfAttention.from_product(where.product)
    m = 5
    prompts = task.sample(20_000, generator(3, "test"), n_points=m + 1, dtype=torch.float64)
    squares = (unit.predict(prompts)[:, -1] - prompts.ys[:, -1]).square()
    mean, se = float(squares.mean()), float(squares.std() / len(squares) ** 0.5)

    def check(line):
        assert abs(line[m - 1] - mean) < 4 * se

    check(covariance.lsa_errors(trained, task, m))
    must_fail(check, 1.5 * covariance.lsa_errors(trained, task, m))
    ys = prompts.ys[:, -1].square()
    assert abs(covariance.label_moment(task) - float(ys.mean())) < 4 * float(ys.std()) / len(ys) ** 0.5


def test_limits_are_those_of_the_theorems():
    """Fixed Lambda: Theorem 4.2; random: its trained product is 1 / 3 for long prompts."""
    exact = covariance.lsa_errors(FIXED, FIXED, 9)
    eye = torch.eye(2)
    np.testing.assert_allclose(exact, [float(theory.risk(eye, 7, m, eye)) for m in range(1, 10)], rtol=1e-12)
    long = theory.random_landscape(RANDOM.spectrum_moments(), 10**7).product
    assert float(long[0, 0]) == pytest.approx(1 / 3, abs=1e-5)


# Positions


def test_untrained_positions_alone_are_replaced():
    vectors = torch.arange(30.0)[:, None] ** 2

    def check(how, expected):
        out = length.replaced(vectors, 15, how)
        assert torch.equal(out[:15], vectors[:15])
        assert out[15:, 0].tolist() == pytest.approx(expected)

    even, odd = vectors[0:15:2, 0], vectors[1:15:2, 0]
    means = [float((odd if p % 2 else even).mean()) for p in range(15, 30)]
    check("mean trained", means)
    check("last trained", [13.0**2 if p % 2 else 14.0**2 for p in range(15, 30)])
    check("used again", [float(p % 14) ** 2 for p in range(15, 30)])
    check("as they are", [float(p) ** 2 for p in range(15, 30)])
    must_fail(check, "mean trained", [float(vectors[:15].mean())] * 15)  # kinds mixed
    drawn = length.replaced(vectors, 15, "drawn anew")[15:]
    assert torch.equal(drawn, length.replaced(vectors, 15, "drawn anew")[15:])
    assert not torch.equal(drawn, vectors[15:])
    with pytest.raises(InputError, match="did you mean 'mean trained'"):
        length.replaced(vectors, 15, "mean traind")


def test_replacing_positions_changes_nothing_up_to_the_trained_length():
    model = tiny()
    here = bench(tiny=model)
    task = models.tests(2, (1.0,))["fixed"]
    intact = models.errors_by_length(here, "tiny", task, 14).values
    for how in ("mean trained", "drawn anew"):
        edited = models.errors_by_length(
            here, "tiny", task, 14, how, lambda how=how: length.with_positions(model, how)
        ).values
        np.testing.assert_array_equal(edited[:, :7], intact[:, :7])
        assert (edited[:, 7:] != intact[:, 7:]).all()


def test_training_positions_alone_lowers_the_error_beyond_and_changes_nothing_before():
    model = tiny()
    after = length.trained_alone(model, 30)
    changed = [k for k, v in after.model.state_dict().items() if not torch.equal(v, model.model.state_dict()[k])]
    assert changed == ["pos_embed.W_pos"]
    here, task = bench(tiny=model), models.tests(2, (1.0,))["fixed"]
    intact = models.errors_by_length(here, "tiny", task, 14).values
    edited = models.errors_by_length(here, "tiny", task, 14, "alone", lambda: after).values

    def check(errors):
        np.testing.assert_array_equal(errors[:, :7], intact[:, :7])
        assert errors[:, 7:].mean() < intact[:, 7:].mean()

    check(edited)
    must_fail(check, intact)


def spikes(ratios):
    """{(model, positions, test): (ratio, low, high)} as the table of spikes."""
    entries = [
        {
            "model": m,
            "positions": p,
            "test": t,
            "N": 7,
            "ratio": r,
            "low": low,
            "high": high,
            "mean beyond": r,
            "error at N": 1.0,
        }
        for (m, p, t), (r, low, high) in ratios.items()
    ]
    return {"spikes": rows(*entries)}


def test_spikes_say_whether_positions_are_the_cause():
    high, flat, mid = (3.0, 2.5, 3.5), (0.8, 0.7, 0.9), (1.9, 1.8, 2.0)

    def check(ratios, *starts):
        said = length.says(spikes(ratios))
        for line, start in zip(said, starts, strict=True):
            assert line.startswith(start), line

    own = {(length.FIXED, how, "fixed"): high for how in length.EDITS}
    shifts = {
        (length.FIXED, length.AS_THEY_ARE, "random, c = 1"): high,
        (length.FIXED, length.AS_THEY_ARE, "random, c = 9"): mid,
    }
    stays = own | shifts
    replaced = {(length.FIXED, how, "fixed"): flat for how in ("mean trained", "last trained", "used again")}
    without = {(length.WITHOUT, "trained without", "fixed"): flat}
    sham = "With other random vectors"
    check(own | shifts | replaced | without, AGREES, AGREES, AGREES, AGREES, sham, AGREES, AGREES, AGREES)
    check(stays | without, AGREES, OPEN, OPEN, OPEN, sham, AGREES, AGREES, AGREES)
    must_fail(check, stays | without, AGREES, AGREES, AGREES, AGREES, sham, AGREES, AGREES, AGREES)
    no_spike = {(length.FIXED, how, "fixed"): flat for how in length.EDITS}
    check(no_spike | {(length.WITHOUT, "trained without", "fixed"): high}, DIFFERS, DIFFERS, DIFFERS)


# Convergence


def test_gradients_of_sgd_are_autograds():
    task = LinearRegression(n_dims=3, n_points=6)
    prompts = task.sample(16, generator(0, "test"), dtype=torch.float64)
    w_pv, w_kq = torch.randn(2, 4, 4, generator=generator(1, "test"), dtype=torch.float64)
    unit = LinearSelfAttention(w_pv, w_kq)
    columns = torch.cat([prompts.xs, prompts.ys[..., None]], -1)
    columns[:, -1, -1] = 0
    (0.5 * (unit(columns)[:, -1, -1] - prompts.ys[:, -1]).square().mean()).backward()
    down_pv, down_kq = convergence._gradients(w_pv, w_kq, prompts.xs, prompts.ys)

    def check(scale=1.0):
        torch.testing.assert_close(scale * down_pv, unit.W_PV.grad[-1])
        torch.testing.assert_close(scale * down_kq, unit.W_KQ.grad[:, :3])

    check()
    must_fail(check, 1.01)


def test_the_flow_converges_below_its_bound_and_says_so(monkeypatch):
    monkeypatch.setitem(convergence.STEPS, "smoke", 300)
    results = convergence.run(NOTHING)
    flow = results["flow"]

    def below(scale=1.0):
        for start in (0.3, 0.9):
            excess, bound = (flow.sel(start=start, line=line).values for line in ("flow", "bound"))
            first = excess[0]
            assert (excess <= first * (bound / first) ** scale * (1 + 1e-9)).all()

    below()
    must_fail(below, 1e3)  # a rate a thousand times mu would be too fast
    assert np.isnan(flow.sel(start=3.0, line="bound").values).all()
    starts = (AGREES, AGREES, "From 3 σ_max", AGREES, AGREES)
    for line, start in zip(convergence.says(results), starts, strict=True):
        assert line.startswith(start), line
    assert reproductions.draw("linear_attention.convergence", results)["convergence"].data
    worse = dict(results["rates"], **{"distance to W*": [1.0] * 3})
    assert convergence.says({**results, "rates": make_table(worse)})[0].startswith(DIFFERS)


# Risk


def test_risk_follows_the_formula_with_its_one_over_m(monkeypatch):
    monkeypatch.setattr(risk, "LENGTHS", (1, 10, 40))
    results = risk.run(bench())
    assert set(results["measured"]["layer"]) == {risk.UNIT}

    def check(column):
        assert all(abs(row[column]) < 4 for row in results["measured"].to_dict("records"))

    check("z, exact")
    must_fail(check, "z, slides")
    first, second = risk.says(results)
    assert first.startswith(AGREES)
    assert second.startswith(MISPRINT)
    assert reproductions.draw("linear_attention.risk_formula", results)["risk"].data


# The trap


def test_descent_ends_where_it_is_said_to():
    lam = torch.diag(torch.tensor(trap.DIAGONAL, dtype=torch.float64))
    where = theory.landscape(lam, 4)
    first = 0.1 * torch.randn(2, 3, 3, generator=generator(0, "test"), dtype=torch.float64)
    for point, name in ((where.product, "minimum"), (0.5 * where.product, "other")):
        unit = LinearSelfAttention.from_product(point)
        assert trap.end_of(unit.W_PV.detach(), unit.W_KQ.detach(), where) == name
    at = trap.rank_one_weights(where)
    assert trap.end_of(at[0], at[1], where) == "rank one"
    assert trap.end_of(*trap.descend(at + 1e-3 * first, lam, 4), where) == "rank one"  # a local minimum
    start = torch.zeros(2, 3, 3, dtype=torch.float64)
    start[0, -1, -1], start[1, :2, :2] = 0.3, 0.3 * torch.eye(2)  # as in Assumption 3.3
    assert trap.end_of(*trap.descend(start, lam, 4), where) == "minimum"


def test_trap_says_how_often():
    ends = make_array([[[0.5, 0.5, 0.0], [0.75, 0.25, 0.0]]], {"N": (4,), "spread": (1.0, 0.1), "end": trap.ENDS})
    trained = {"model": trap.TRAPPED, "N": 4, "to the minimum": 0.85, "to rank one": 0.01}
    said = trap.says({"ends": ends, "trained": rows(trained)})
    assert "25 to 50 % at N = 4" in said[0]
    assert "ends at the rank-one point" in said[-1]
    other = trap.says({"ends": ends, "trained": rows({**trained, "to rank one": 0.8, "to the minimum": 0.01})})
    assert "ends at the global minimum" in other[-1]
    assert reproductions.draw("linear_attention.trap", {"ends": ends})["trap"].data


# Covariance


def at_n(ratio, low, high, kind="random", test="random, c = 1"):
    return {
        "trained on": kind,
        "N": 7,
        "test": test,
        "softmax": 0.1 * ratio,
        "least squares": 0.0,
        "LSA limit": 0.1,
        "softmax / LSA": ratio,
        "low": low,
        "high": high,
    }


def test_covariance_says_whether_the_softmax_model_does_well_where_lsa_fails():
    for entry, word in (((0.2, 0.1, 0.3), AGREES), ((0.9, 0.8, 1.0), DIFFERS), ((0.5, 0.4, 0.6), OPEN)):
        assert covariance.says({"at N": rows(at_n(*entry))})[0].startswith(word)


def test_covariance_and_length_measure_and_draw_what_is_there():
    """An untrained model of N = 7 under both names of a length."""
    both = {name: tiny(seed=i) for i, name in enumerate(("softmax_fixed_14", "softmax_random_14"))}
    here = Bench(both, scales.SCALES["smoke"])
    results = covariance.run(here)
    curve = results["errors"]
    assert isinstance(curve, DataArray)
    assert tuple(curve.indexes["N"]) == (7,)
    assert len(covariance.compare(results)) == 8
    assert reproductions.draw("linear_attention.covariance", results)["covariance"].data
    spiked = length.run(here)
    assert len(length.compare(spiked)) == 2 * 6 * 4
    assert set(reproductions.draw("linear_attention.length_spike", spiked)) == {"positions", "tests"}
    assert length.says(spiked)


def test_the_rank_one_point_is_a_minimum_for_short_prompts_and_a_saddle_for_long_ones():
    lam = torch.diag(torch.tensor(trap.DIAGONAL, dtype=torch.float64))

    def check(n, minimum):
        where = theory.landscape(lam, n)
        both = trap.rank_one_weights(where).requires_grad_(True)
        loss = theory.population_loss(both[0], both[1], lam, n)
        excess = float(loss.detach() - where.minimum - where.label_moment / 2)
        assert excess == pytest.approx(float(where.rank_one[1]), rel=1e-9)
        (slope,) = torch.autograd.grad(loss, both)
        assert float(slope.abs().max()) < 1e-12  # stationary
        assert (trap.lowest_curvature(where, lam, n) > -1e-9) == minimum

    for n in (2, 4, 8):
        check(n, True)
    check(20, False)
    must_fail(check, 20, True)


# Shifts


def test_every_shift_is_what_it_says():
    laws, d = shifts.shifts(3, 5), 3
    drawn = {name: law.sample(4000, generator(0, "test"), dtype=torch.float64) for name, law in laws.items()}
    for name in (shifts.SKEWED, shifts.SKEWED_MORE):
        assert sum(laws[name].covariance) == pytest.approx(d)
    assert laws[shifts.SKEWED].covariance[0] / laws[shifts.SKEWED].covariance[2] == pytest.approx(9)  # 1 / i^2
    assert laws[shifts.SKEWED_MORE].covariance[0] / laws[shifts.SKEWED_MORE].covariance[2] == pytest.approx(400)
    noisy = drawn[shifts.NOISY]
    noise = noisy.ys - laws[shifts.NOISY].value(noisy.parameters, noisy.xs)
    assert float(noise.var() / d) == pytest.approx(1 / 20, rel=0.05)

    def one_orthant(prompts):
        signs = prompts.xs[:, :-1].sign()
        assert torch.equal(signs, signs[:, :1].expand_as(signs))
        assert (prompts.xs[:, -1].sign() != signs[:, 0]).any()  # the query is anywhere

    one_orthant(drawn[shifts.ORTHANT])
    must_fail(one_orthant, drawn[shifts.IN_DISTRIBUTION])
    assert float(drawn[shifts.LARGER].parameters.std()) == pytest.approx(3, rel=0.05)
    assert float(drawn[shifts.QUERY].xs[:, -1].std() / drawn[shifts.QUERY].xs[:, 0].std()) == pytest.approx(3, rel=0.05)


def test_shifts_are_measured_and_drawn_and_the_layer_is_the_theorems():
    here = bench(softmax_fixed_14=tiny())
    results = shifts.run(here)
    found = results["errors"]
    assert tuple(found.indexes["N"]) == (7,)
    assert len(shifts.compare(results)) == len(shifts.shifts(2, 7))
    assert reproductions.draw("linear_attention.shifts", results)["shifts"].data
    assert len(shifts.says(results)) == len(shifts.shifts(2, 7)) - 1
    intact = results["at N"].to_dict("records")[0][shifts.MODEL]
    for row in results["at N"].to_dict("records"):
        gap = row["softmax - least squares"]
        assert gap == pytest.approx(row[shifts.MODEL] - row[shifts.LEAST_SQUARES])
        assert row["low"] < gap < row["high"]
        assert row["softmax / unshifted"] == pytest.approx(row[shifts.MODEL] / intact)
        shown = found.sel(N=7, shift=row["shift"], statistic="mean").values
        assert shown.tolist() == pytest.approx([row[name] for name in found.indexes["predictor"]])
    exact = found.sel(N=7, predictor=shifts.LEAST_SQUARES, statistic="mean").values
    noisy = found.indexes["shift"].get_loc(shifts.NOISY)
    assert np.delete(exact, noisy).max() < 1e-9 < exact[noisy]

    def check(shift, factor=1.0):  # Theorem 4.2, exactly, against what was sampled
        _, low, high = found.sel(N=7, shift=shift, predictor=shifts.LSA).values
        limit = factor * covariance.lsa_errors(FIXED, laws[shift], 7)[-1] / covariance.label_moment(laws[shift])
        assert low - (high - low) < limit < high + (high - low)  # twice as wide as a 95 % interval

    laws = shifts.shifts(2, 7)
    for shift in (shifts.IN_DISTRIBUTION, shifts.SKEWED, shifts.SKEWED_MORE):
        check(shift)
    must_fail(check, shifts.SKEWED_MORE, 1.5)

    def noise_left(
        factor=1.0,
    ):  # least squares keeps tau^2 d / (n - d - 1) of the noise in the examples, none of its own
        _, low, high = found.sel(N=7, shift=shifts.NOISY, predictor=shifts.LEAST_SQUARES).values
        assert low - (high - low) < factor * shifts.NOISE * 2 / (7 - 2 - 1) < high + (high - low)

    noise_left()
    must_fail(noise_left, 3)  # as if the query's own noise were scored too


def test_shifts_say_whether_the_model_stays_close():
    def row_for(shift, gap, low, high):
        return {
            "N": 7,
            "shift": shift,
            "softmax": gap,
            "least squares": 0.0,
            "LSA limit": 0.3,
            "softmax - least squares": gap,
            "low": low,
            "high": high,
            "softmax / unshifted": 2.0,
        }

    close, far, open_ = (0.01, 0.0, 0.02), (0.4, 0.3, 0.5), (0.05, 0.04, 0.06)
    for shift, gap, word in (
        (shifts.NOISY, close, AGREES),
        (shifts.NOISY, far, DIFFERS),
        (shifts.ORTHANT, open_, OPEN),
        (shifts.SKEWED, far, AGREES),
        (shifts.SKEWED, close, DIFFERS),
        (shifts.LARGER, far, f"{shifts.LARGER}: far"),
    ):
        said = shifts.says({"at N": rows(row_for(shifts.IN_DISTRIBUTION, *close), row_for(shift, *gap))})
        assert len(said) == 1
        assert said[0].startswith(word), said
