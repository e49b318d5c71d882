"""Experiments of `linear_attention`: exact lines against sampling, descent, and words."""

import numpy as np
import pytest
import torch
from helpers import must_fail, one_in
from lsa_experiments import FIXED, setup, tiny
from xarray import DataArray

from icl_interp.errors import InputError
from icl_interp.experiments import base, presets
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import AGREES, DIFFERS, FAILS, HOLDS, MISPRINT, OPEN
from icl_interp.figures import reproductions
from icl_interp.models.single_layers import LinearSelfAttention
from icl_interp.models.tokens import Interleaved
from icl_interp.provenance import generator
from icl_interp.results import make_array, make_table, table_of_rows
from icl_interp.studies import STUDIES
from icl_interp.studies.linear_attention.experiments import (
    convergence,
    covariance,
    length,
    models,
    risk,
    trap,
)
from icl_interp.tasks.regression import Exponential, LinearRegression
from icl_interp.theory import linear_attention as theory
from icl_interp.training import recipes

STUDY = [name for name in base.names() if base.get(name).study == "linear_attention"]
NEEDED = sorted({(m.recipe, s) for name in STUDY for m in base.get(name).models for s in m.scales})
NOTHING = Setup({}, presets.PRESETS["smoke"])
RANDOM = LinearRegression(n_dims=2, n_points=8, covariance=Exponential())


# ---- the study -----------------------------------------------------------------------------------


def test_the_study_is_registered_and_drawn():
    names = ["convergence", "covariance", "length_spike", "risk_formula"]
    names += ["shift_curves", "shifts", "trap"]
    assert [f"linear_attention.{name}" for name in names] == STUDY
    assert set(STUDY) <= set(reproductions.DRAWINGS)
    assert len(STUDIES["linear_attention"].experiments) == len(STUDY)


@pytest.mark.parametrize(("recipe", "scale"), one_in(4, NEEDED))
def test_every_model_exists_at_its_scales(recipe, scale):
    small, run = recipes.resolve(recipe), models.at_preset(recipes.resolve(recipe), scale)
    for name in (
        "normalization_type",
        "score_fn",
        "score_norm",
        "attention_dir",
        "positional_embedding_type",
    ):
        assert getattr(run.model, name) == getattr(small.model, name)
    assert type(run.task.covariance) is type(small.task.covariance)
    assert run.training.curriculum.first_points <= run.task.n_points
    assert presets.config(recipe, scale, (), models.at_preset) == run
    n = run.task.n_points - 1
    if run.model.score_fn == "softmax":
        assert run.model.n_ctx >= Interleaved().n_tokens(2 * n + 1)  # M up to 2 N
    else:
        assert run.model.n_ctx > 8 * n


def test_paper_scale_is_the_slides():
    """N = 40, 70, 100, and n / d the same at every scale."""
    recipe = {n: recipes.resolve(models.softmax("random", n).recipe) for n in models.LENGTHS}
    for scale, d, lengths in (
        ("smoke", 2, [4, 7, 10]),
        ("small", 4, [8, 14, 20]),
        ("paper", 20, [40, 70, 100]),
    ):
        tasks = [models.at_preset(run, scale).task for run in recipe.values()]
        assert [task.n_points - 1 for task in tasks] == lengths
        assert {task.n_dims for task in tasks} == {d}
    found = [models.at_preset(run, "paper") for run in recipe.values()]
    assert {
        (run.task.n_dims, run.model.d_in, run.model.n_layers, run.model.d_model) for run in found
    } == {(20, 20, 12, 256)}
    with pytest.raises(InputError, match="LinearRegression"):
        models.at_preset(recipes.resolve("affine"), "smoke")


def test_without_any_model_nothing_about_models_is_said():
    for name in STUDY:
        if name.rpartition(".")[2] not in ("covariance", "length_spike", "shifts"):
            continue
        results = base.get(name).run(NOTHING)
        assert base.get(name).says(results) == ("No model is here, so nothing is measured.",)
        assert base.get(name).compare(results) is None
        assert reproductions.draw(name, results) == {}


# ---- error by length -----------------------------------------------------------------------------


def test_least_squares_is_exact_from_d_examples_on():
    found = models.errors_by_length(setup(), models.LEAST_SQUARES, RANDOM, 6)
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
    assert (
        abs(covariance.label_moment(task) - float(ys.mean())) < 4 * float(ys.std()) / len(ys) ** 0.5
    )


def test_limits_are_those_of_the_theorems():
    """Fixed Lambda: Theorem 4.2; random: its trained product is 1 / 3 for long prompts."""
    exact = covariance.lsa_errors(FIXED, FIXED, 9)
    eye = torch.eye(2)
    np.testing.assert_allclose(
        exact, [float(theory.risk(eye, 7, m, eye)) for m in range(1, 10)], rtol=1e-12
    )
    long = theory.random_landscape(RANDOM.spectrum_moments(), 10**7).product
    assert float(long[0, 0]) == pytest.approx(1 / 3, abs=1e-5)


# ---- covariance ----------------------------------------------------------------------------------


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
    for entry, word in (
        ((0.2, 0.1, 0.3), AGREES),
        ((0.9, 0.8, 1.0), DIFFERS),
        ((0.5, 0.4, 0.6), OPEN),
    ):
        assert covariance.states({"at N": table_of_rows([at_n(*entry)])})[0].word == word


@pytest.mark.slow
def test_covariance_and_length_measure_and_draw_what_is_there():
    """An untrained model of N = 7 under both names of a length."""
    both = {name: tiny(seed=i) for i, name in enumerate(("softmax_fixed_14", "softmax_random_14"))}
    here = Setup(both, presets.PRESETS["smoke"])
    results = covariance.run(here)
    curve = results["errors"]
    assert isinstance(curve, DataArray)
    assert tuple(curve.indexes["N"]) == (7,)
    assert len(covariance.compare(results)) == 8
    assert reproductions.draw("linear_attention.covariance", results)["covariance"].data
    spiked = length.run(here)
    assert len(length.compare(spiked)) == 2 * 6 * 4
    assert set(reproductions.draw("linear_attention.length_spike", spiked)) == {
        "positions",
        "tests",
    }
    assert length.states(spiked)


# ---- convergence ---------------------------------------------------------------------------------


def test_gradients_of_sgd_are_autograds():
    task = LinearRegression(n_dims=3, n_points=6)
    prompts = task.sample(16, generator(0, "test"), dtype=torch.float64)
    w_pv, w_kq = torch.randn(2, 4, 4, generator=generator(1, "test"), dtype=torch.float64)
    unit = LinearSelfAttention(w_pv, w_kq)
    columns = torch.cat([prompts.xs, prompts.ys], -1)
    columns[:, -1, -1] = 0
    (0.5 * (unit(columns)[:, -1, -1:] - prompts.ys[:, -1]).square().mean()).backward()
    down_pv, down_kq = convergence._gradients(w_pv, w_kq, prompts.xs, prompts.ys[..., 0])

    def check(scale=1.0):
        torch.testing.assert_close(scale * down_pv, unit.W_PV.grad[-1])
        torch.testing.assert_close(scale * down_kq, unit.W_KQ.grad[:, :3])

    check()
    must_fail(check, 1.01)


@pytest.mark.slow
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
    starts = (
        HOLDS,
        HOLDS,
        "From 3 σ_max",
        HOLDS,
        AGREES,
    )  # theorems, and what sampling makes of them
    for statement, start in zip(convergence.states(results), starts, strict=True):
        assert statement.sentence.startswith(start), statement
    assert reproductions.draw("linear_attention.convergence", results)["convergence"].data
    worse = dict(results["rates"], **{"distance to W*": [1.0] * 3})
    assert convergence.states({**results, "rates": make_table(worse)})[0].word == FAILS


# ---- risk ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_risk_follows_the_formula_with_its_one_over_m(monkeypatch):
    monkeypatch.setattr(risk, "LENGTHS", (1, 10, 40))
    results = risk.run(setup())
    assert set(results["measured"]["layer"]) == {risk.UNIT}

    def check(column):
        assert all(abs(row[column]) < 4 for row in results["measured"].to_dict("records"))

    check("z, exact")
    must_fail(check, "z, slides")
    assert [statement.word for statement in risk.states(results)] == [HOLDS, MISPRINT]
    assert reproductions.draw("linear_attention.risk_formula", results)["risk"].data


def test_a_trained_layer_is_compared_with_the_theorems_risk():
    """What the layer has learned decides, by its exact risk.

    That its own formula holds for it is algebra.
    """

    def rows(factor):
        common = {"noise": 0.0, "M": 10, "error": 0.5, "se": 0.01, "slides": 5.0}
        exact = ((risk.UNIT, 0.5), (risk.TRAINED, 0.5 * factor))
        found = [
            {"layer": layer, **common, "error": value, "exact": value} for layer, value in exact
        ]
        return {"measured": risk._table(found, "")}

    def check(factor, word):
        *_, last = risk.states(rows(factor))
        assert last.word == word
        assert [s.word for s in risk.states(rows(factor))[:4]] == [HOLDS, MISPRINT] * 2

    check(1.02, AGREES)
    check(1.5, DIFFERS)
    check(0.5, DIFFERS)
    must_fail(check, 1.5, AGREES)


# ---- the trap ------------------------------------------------------------------------------------


def test_descent_ends_where_it_is_said_to():
    lam = torch.diag(torch.tensor(trap.DIAGONAL, dtype=torch.float64))
    where = theory.landscape(lam, 4)
    first = 0.1 * torch.randn(2, 3, 3, generator=generator(0, "test"), dtype=torch.float64)
    for point, name in ((where.product, "minimum"), (0.5 * where.product, "other")):
        unit = LinearSelfAttention.from_product(point)
        assert trap.end_of(unit.W_PV.detach(), unit.W_KQ.detach(), where) == name
    at = trap.rank_one_weights(where)
    assert trap.end_of(at[0], at[1], where) == "rank one"
    assert (
        trap.end_of(*trap.descend(at + 1e-3 * first, lam, 4), where) == "rank one"
    )  # a local minimum
    start = torch.zeros(2, 3, 3, dtype=torch.float64)
    start[0, -1, -1], start[1, :2, :2] = 0.3, 0.3 * torch.eye(2)  # as in Assumption 3.3
    assert trap.end_of(*trap.descend(start, lam, 4), where) == "minimum"


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


def test_trap_says_how_often():
    ends = make_array(
        [[[0.5, 0.5, 0.0], [0.75, 0.25, 0.0]]], {"N": (4,), "spread": (1.0, 0.1), "end": trap.ENDS}
    )
    trained = {"model": trap.TRAPPED, "N": 4, "to the minimum": 0.85, "to rank one": 0.01}
    said = [s.sentence for s in trap.states({"ends": ends, "trained": table_of_rows([trained])})]
    assert "25 to 50 % at N = 4" in said[0]
    assert "ends at the rank-one point" in said[-1]
    trained |= {"to rank one": 0.8, "to the minimum": 0.01}
    *_, other = trap.states({"ends": ends, "trained": table_of_rows([trained])})
    assert "ends at the global minimum" in other.sentence
    assert other.word == ""  # the source says nothing about these starts
    assert reproductions.draw("linear_attention.trap", {"ends": ends})["trap"].data
