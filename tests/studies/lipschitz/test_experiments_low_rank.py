"""The experiment on few relevant directions, on units of known M.

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
from icl_interp.experiments.statements import AGREES, DIFFERS, FAILS, HOLDS, LEFT_OUT, OPEN
from icl_interp.results import table_of_rows
from icl_interp.studies.lipschitz.experiments import low_rank
from icl_interp.tasks.ridge import random_directions
from icl_interp.theory import lipschitz as theory

EXPERIMENT = low_rank.LOW_RANK_EXPERIMENT
B = torch.tensor(random_directions(10, 2), dtype=torch.float64)


def unit(inside, outside, link="affine"):
    """A setup with the unit c B B^T + c' (I - B B^T) on a link at sigma = 0.1; and its name."""
    model = low_rank._model(link, 0.1, 0)
    task = obtain.config_of(model, "smoke").task
    return setup(
        60, 25, **{model.name: known(theory.low_rank_matrix(B, inside, outside), task)}
    ), model.name


def test_units_are_trained_on_the_slides_links():
    for link, name, size, constant in (
        ("affine", "linear", 1.0, 2.0),
        ("quadratic", "quadratic", 2.0, 0.0),
        ("cosine", "cosine", 4.0, 0.0),
    ):
        run = obtain.config_of(low_rank._model(link, 0.01, 0), "small")
        assert (run.task.link, run.task.lipschitz, run.task.intercept, run.task.noise_std) == (
            name,
            size,
            constant,
            0.01,
        )
        assert torch.allclose(run.task.basis, B)
        assert (run.model.d_in, run.model.n_ctx, run.task.n_points) == (11, 51, 51)
    run = obtain.config_of(low_rank._theorem_model(200), "small")
    assert (run.task.dim, run.task.n_points, run.task.noise_std, run.model.d_in) == (4, 201, 0.0, 5)
    assert len({model.folder for model in EXPERIMENT.models}) == len(EXPERIMENT.models)


def test_a_projection_is_recovered_and_ignores_what_is_irrelevant():
    here, name = unit(8.0, 0.0)
    found = low_rank._unit(here, name)

    def check(found):
        assert found["angle"] < 1e-6
        assert found["outside"] < 1e-9
        assert found["c"] == pytest.approx(8.0)
        assert found["irrelevant out"] == pytest.approx(1.0, abs=1e-6)
        assert found["relevant out"] > 1.25  # equal weights: the mean of the labels
        assert found["relevant out"] == pytest.approx(1 / found["of mean"])

    check(found)
    must_fail(check, low_rank._unit(*unit(8.0, 8.0)))


def test_a_window_in_all_directions_is_told_from_one_in_few():
    """For w I the leading singular vectors are any.

    Four fifths of its entries' squares lie outside col(B).
    """
    found = low_rank._unit(*unit(6.0, 6.0))
    assert found["outside"] == pytest.approx(0.8)
    assert found["c outside"] == pytest.approx(6.0)
    assert found["irrelevant out"] < 0.95  # it is better off without them


def test_matrices_are_shown_in_a_basis_that_starts_with_the_relevant_directions():
    here, _ = unit(8.0, 1.0)
    shown = low_rank._matrices(here).sel(link="affine", σ=0.1).values

    def check(values):
        np.testing.assert_allclose(values, np.diag([8.0] * 2 + [1.0] * 8), atol=1e-5)

    check(shown)
    must_fail(check, shown[::-1, ::-1])
    assert np.isnan(low_rank._matrices(here).sel(link="cosine", σ=0.1).values).all()


@pytest.mark.slow
def test_the_cap_is_what_makes_theorem_4_true():
    short, long = (low_rank._minimum(n, 400, 0) for n in (5, 100))
    for row in (short, long):
        assert row["outside capped"] < 0.1 * row["c capped"]
        assert row["c capped"] == pytest.approx(low_rank.CAP)
    assert short["held / free"] == pytest.approx(1.0, abs=0.01)
    assert long["low"] > 1.1
    assert long["outside free"] > 0.4 * long["c free"]
    (endless,) = low_rank._endless().to_dict("records")
    assert endless["loss held"] == pytest.approx(
        0.00622, abs=1e-5
    )  # the golden of theory's own test
    assert endless["c held"] == pytest.approx(6.62, abs=0.06)
    assert long["loss held"] > endless["loss held"]


# ---- what is said --------------------------------------------------------------------------------


def row(
    link="affine",
    angle=0.05,
    outside=0.01,
    irrelevant=1.0,
    relevant=3.0,
    of_mean=0.3,
    seed=0,
    **more,
):
    return {
        "link": link,
        "σ": 0.1,
        "seed": seed,
        "n used": 50,
        "angle": angle,
        "outside": outside,
        "c": 8.0,
        "c outside": 0.4,
        "rest": 0.1,
        "error": 0.1,
        "of mean": of_mean,
        **{
            f"irrelevant {key}": irrelevant * f
            for key, f in (("out", 1), ("low", 0.99), ("high", 1.01))
        },
        **{
            f"relevant {key}": relevant * f
            for key, f in (("out", 1), ("low", 0.99), ("high", 1.01))
        },
        **more,
    }


def said(*rows):
    return [statement.word for statement in low_rank.states({"units": table_of_rows(list(rows))})]


def test_each_statement_follows_its_number():
    assert said(row()) == [AGREES] * 4
    assert said(row(angle=0.6)) == [DIFFERS, AGREES, AGREES, AGREES]
    assert said(row(angle=0.2)) == [OPEN, AGREES, AGREES, AGREES]
    assert said(row(irrelevant=1.5)) == [AGREES, DIFFERS, AGREES, AGREES]
    assert said(row(relevant=1.0)) == [AGREES, AGREES, DIFFERS, AGREES]
    assert said(row(outside=0.4)) == [AGREES, AGREES, AGREES, DIFFERS]
    assert said(row(), row(seed=1, angle=0.6)) == [OPEN, AGREES, AGREES, AGREES]


def test_other_links_may_have_larger_angles_and_are_not_asked_for_a_projection():
    assert said(row("quadratic", angle=0.2, outside=0.5)) == [AGREES, AGREES, AGREES, ""]


def test_units_that_hardly_beat_the_mean_label_cannot_break():
    assert said(row(of_mean=0.9, relevant=1.1)) == [AGREES, LEFT_OUT, LEFT_OUT, AGREES]


def test_theorem_4_is_judged_with_its_cap_only():
    minimum = {
        "n": 200,
        "c free": 14.0,
        "outside free": 10.0,
        "loss free": 0.004,
        "c held": 8.0,
        "loss held": 0.008,
        "held / free": 2.0,
        "low": 1.9,
        "high": 2.1,
        "c capped": 3.0,
        "outside capped": 0.03,
    }
    theorem = row(outside=0.5, irrelevant=1.8, n=200)

    def check(capped, first):
        results = {
            "minima": table_of_rows([{**minimum, "outside capped": capped}]),
            "theorem units": table_of_rows([theorem]),
        }
        assert [statement.word for statement in low_rank.states(results)] == [first, "", ""]
        assert "no evidence for the theorem or against it" in low_rank.states(results)[-1].text

    check(0.03, HOLDS)
    check(2.0, FAILS)
    must_fail(check, 2.0, HOLDS)


def test_without_units_the_theorem_is_still_looked_at():
    lines = low_rank.states({})
    assert [line.word for line in lines] == [""]
    assert EXPERIMENT.compare({}) is None


@pytest.mark.slow
def test_it_runs_at_scale_smoke(tmp_path):
    found = obtain.obtain(
        EXPERIMENT.models_at("smoke"), "smoke", tmp_path, obtain.Shelf(), progress=False
    )
    results = EXPERIMENT.run(Setup(found, PRESETS["smoke"]))
    assert len(results["units"]) == 6
    assert len(EXPERIMENT.compare(results)) == 8
    assert EXPERIMENT.says(results)
