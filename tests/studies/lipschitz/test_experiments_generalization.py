"""The experiment on other classes of functions, on units of known windows.

What is measured and what is said of it are checked.
"""

import numpy as np
import pytest
import torch
from helpers import must_fail
from lipschitz_experiments import known, setup

from icl_interp.experiments import obtain
from icl_interp.experiments.presets import PRESETS
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import (
    AGREES,
    DIFFERS,
    FAILS,
    HOLDS,
    LEFT_OUT,
    OPEN,
    UNSETTLED,
)
from icl_interp.figures import reproductions
from icl_interp.results import table_of_rows
from icl_interp.studies.lipschitz.experiments import generalization, models
from icl_interp.studies.lipschitz.experiments.generalization import (
    AFFINE,
    COSINE,
    FAST,
    GENTLE,
    KINDS,
    RELU,
    STEEP,
    STRAIGHT,
)
from icl_interp.theory import lipschitz as theory

EXPERIMENT = generalization.GENERALIZATION_EXPERIMENT


def task_of(kind):
    return obtain.config_of(KINDS[kind].model(0), "smoke").task


def best_window(kind):
    task = task_of(kind)
    found = theory.optimal_window(
        task.lipschitz,
        task.noise_std,
        task.n_points - 1,
        task.dim,
        task.link,
        task.frequency,
        contexts=400,
    )
    return float(found.window)


def here(kinds, factor=1.0, blocks=40):
    """A setup of units with the best window of each class, times a factor."""
    units = {
        KINDS[kind].model(0).name: known(factor * best_window(kind) * torch.eye(5), task_of(kind))
        for kind in kinds
    }
    return setup(blocks, 25, **units)


def test_units_are_trained_on_what_their_names_say():
    for name, (link, size, omega) in {
        AFFINE: ("affine", 1.0, None),
        RELU: ("relu", 1.0, None),
        COSINE: ("phased_cosine", 1.0, None),
        GENTLE: ("phased_cosine", 0.1, None),
        STEEP: ("phased_cosine", 10.0, None),
        FAST: ("phased_cosine", 1.0, 10.0),
        STRAIGHT: ("affine", 10.0, None),
    }.items():
        run = obtain.config_of(KINDS[name].model(1), "small")
        assert (run.task.link, run.task.lipschitz, run.task.frequency) == (link, size, omega)
        assert (run.task.dim, run.model.d_in, run.task.n_points, run.model.n_ctx) == (
            5,
            6,
            201,
            201,
        )
        assert (run.model.unit, run.training.seed, run.training.steps) == ("M", 1, 600)
        assert obtain.config_of(KINDS[name].model(0), "smoke").task.n_points == models.SMOKE_N + 1
    assert len({model.folder for model in EXPERIMENT.models}) == len(EXPERIMENT.models)
    assert {model.seed for model in EXPERIMENT.models_at("smoke")} == {0}


@pytest.mark.slow
def test_ratios_of_the_best_windows_are_those_of_theory():
    """Ratios that are measured on prompts against a Monte Carlo over contexts.

    The Monte Carlo averages functions and noise in closed form.
    """
    results = generalization.run(here((AFFINE, COSINE, GENTLE), blocks=60))
    rows = results["transfer"].to_dict("records")
    own = [row for row in rows if row["trained on"] == row["tested on"]]
    others = [row for row in rows if row not in own]
    assert (len(own), len(others)) == (3, 6)

    def check(factor):
        for row in others:
            expected = 1 + factor * (row["computed"] - 1)
            wider = row["high"] - row["low"]  # twice a 95 % interval
            assert row["low"] - wider < expected < row["high"] + wider

    check(1.0)
    must_fail(check, 3.0)
    assert all(row[generalization.OWN] == pytest.approx(1.0) for row in own)
    assert all(row["error"] == pytest.approx(row["least"], rel=0.2) for row in own)
    for row in results["windows"].to_dict("records"):
        assert row["w"] == pytest.approx(row["best w"], rel=1e-6)


@pytest.mark.slow
def test_curves_end_where_the_table_begins():
    results = generalization.run(here((AFFINE, COSINE)))
    curves = results["curves"]
    assert tuple(curves.indexes["n"]) == (5, 20)
    for row in results["transfer"].to_dict("records"):
        at = curves.sel(
            {
                "tested on": row["tested on"],
                "trained on": row["trained on"],
                "statistic": "mean",
                "n": 20,
            }
        )
        assert float(at) == pytest.approx(row["error"])
    price = results["price"]
    assert float(price.sel({"trained on": COSINE}).sel(L=1.0, method="nearest")) == pytest.approx(
        1.0
    )
    assert (price.values > 1 - 1e-6).all()


# ---- what is said --------------------------------------------------------------------------------


def row(trained, tested, ratio, seed=0, own=1.0, computed=None):
    best = 0.01
    error = own * best * ratio
    return {
        "tested on": tested,
        "trained on": trained,
        "seed": seed,
        "error": error,
        generalization.OWN: ratio,
        "low": 0.99 * ratio,
        "high": 1.01 * ratio,
        "computed": ratio if computed is None else computed,
        "computed se": 0.0,
        "least": best,
    }


def made(
    shared=1.03,
    gentle=3.0,
    steep=20.0,
    fast=14.0,
    straight=1.02,
    own=1.0,
    computed=None,
    steep_w=0.7,
):
    ratios = {GENTLE: gentle, STEEP: steep, FAST: fast, STRAIGHT: straight}
    rows = [
        row(
            trained,
            tested,
            1.0 if trained == tested else ratios.get(trained, shared),
            own=own,
            computed=computed,
        )
        for tested in KINDS
        for trained in KINDS
    ]
    windows = [
        {
            "trained on": kind,
            "seed": 0,
            "w": steep_w if kind == STEEP else 12.0,
            "|M - w I| / |w|": 0.01,
            "best w": 12.0,
            "low": 11.0,
            "high": 13.0,
        }
        for kind in KINDS
    ]
    return {"transfer": table_of_rows(rows), "windows": table_of_rows(windows)}


def words(**changes):
    return [statement.word for statement in generalization.states(made(**changes))]


def test_each_statement_follows_its_ratio():
    assert words() == [AGREES, AGREES, AGREES, DIFFERS, DIFFERS, DIFFERS, HOLDS]
    for place, changes in enumerate(
        (
            {"shared": 2.0},
            {"gentle": 1.0},
            {"steep": 1.0},
            {"straight": 9.0},
            {"fast": 1.0},
            {"steep_w": 30.0},
        )
    ):
        assert words(**changes)[place] == (DIFFERS if place < 3 else AGREES)
        assert [w for i, w in enumerate(words(**changes)) if i != place] == [
            w for i, w in enumerate(words()) if i != place
        ]
    assert words(shared=1.3)[0] == OPEN
    assert words(computed=2.0)[-1] == FAILS


def test_units_that_are_far_from_their_best_window_are_not_counted():
    said = words(own=1.3)
    assert said[:5] == [LEFT_OUT] * 5
    assert said[-1] == UNSETTLED


def test_seeds_count_together():
    one = made()
    rows = [*one["transfer"].to_dict("records"), row(GENTLE, COSINE, 1.0, seed=1)]
    assert generalization.states({**one, "transfer": table_of_rows(rows)})[1].word == OPEN


def test_the_comparison_takes_all_seeds_together():
    rows = [row(GENTLE, COSINE, ratio, seed=seed) for seed, ratio in enumerate((2.0, 4.0))]
    (laid,) = generalization.compare({"transfer": table_of_rows(rows)}).to_dict("records")
    assert laid[generalization.OWN] == pytest.approx(3.0)
    assert (laid["low"], laid["high"]) == pytest.approx((1.98, 4.04))


def test_without_units_nothing_is_said():
    results = generalization.run(Setup({}, PRESETS["smoke"]))
    assert EXPERIMENT.says(results) == ("No model is here, so nothing is measured.",)
    assert EXPERIMENT.compare(results) is None
    assert np.isnan(generalization._worst_own([], (AFFINE,))[generalization.LEAST])
    assert reproductions.draw(EXPERIMENT.id, results) == {}


@pytest.mark.slow
def test_it_runs_at_scale_smoke(tmp_path):
    found = obtain.obtain(
        EXPERIMENT.models_at("smoke"), "smoke", tmp_path, obtain.Shelf(), progress=False
    )
    results = EXPERIMENT.run(Setup(found, PRESETS["smoke"]))
    assert len(results["transfer"]) == len(KINDS) ** 2
    assert EXPERIMENT.says(results)
