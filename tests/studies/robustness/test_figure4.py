"""Curves by the number of examples: against a model of weights that are known, and statements."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import must_fail

from icl_interp.baselines.base import INPUTS
from icl_interp.baselines.moments import Descent
from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.experiments import kept, presets
from icl_interp.experiments.setup import Setup
from icl_interp.figures import reproductions
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.tokens import Interleaved
from icl_interp.models.transformer import HookedTransformer
from icl_interp.studies.robustness.experiments import figure4
from icl_interp.tasks import LinearRegression

TASK = LinearRegression(n_dims=2, n_points=5)


class Step(Checkpoint):
    """One step of descent at every point of a prompt, in the place of a model."""

    def predict(self, prompts):
        return Descent(INPUTS, (0.5,)).predict(prompts)


@pytest.fixture(scope="module")
def results():
    """Of one step of descent in the place of the recipe's model."""
    cfg = HookedTransformerConfig(n_layers=1, d_model=4, n_heads=1, d_in=2, n_ctx=10)
    config = RunConfig(cfg, TASK, "interleaved")
    model = Step(HookedTransformer(cfg), TASK, Interleaved(), config)
    preset = replace(presets.PRESETS["smoke"], n_functions=40)
    with Setup({figure4.RECIPE: model}, preset) as setup:
        return figure4.run(setup)


def test_a_step_of_descent_errs_as_its_formula_says(results):
    """E (w - s S w)^2 / d for S of M examples of unit variance: 1 - 2 s + s^2 (M + d + 1) / M."""
    curve = results["curves"].sel(shift="in distribution", predictor="model")
    lengths = curve.indexes["examples"].to_numpy()
    mean, low, high = curve.transpose("statistic", "examples").values

    def check(size):
        exact = 1 - 2 * size + size**2 * (lengths + TASK.n_dims + 1) / lengths
        standard_error = (high - low) / (2 * 1.96)
        assert (np.abs(mean - exact) < 4 * standard_error).all()

    check(0.5)
    must_fail(check, 0.8)


def test_least_squares_is_exact_without_noise_and_not_with_it(results):
    best = results["curves"].sel(predictor="least squares", statistic="mean")
    last = best.isel(examples=-1)
    assert float(last.sel(shift="skewed")) < 1e-20
    assert float(last.sel(shift="noisy")) > 0.01


def test_statements_name_every_shift_and_need_a_model_that_has_learned(results):
    statements = figure4.states(results)
    assert len(statements) == len(figure4.LAWS) - 1
    # A step of descent after four examples has not learned: no statement is counted.
    assert {statement.word for statement in statements} == {"Not counted: "}


def check_counted(table, word):
    statements = figure4.states({"at N": table})
    assert statements[0].word == word


def test_twice_the_bar_agrees_and_four_times_differs(results):
    """Of a model that has learned: the same numbers, with another error in distribution."""
    learned = results["at N"].copy()
    learned.loc[learned["shift"] == "in distribution", "model"] = 0.05
    for times, word in ((1.9, "As in the paper: "), (3.0, "Undecided: "), (4.1, "Not as in ")):
        for end in ("over the bar, low", "over the bar, high"):
            learned[end] = times
        found = figure4.states({"at N": learned})
        assert all(statement.word.startswith(word) for statement in found)
    must_fail(check_counted, learned, "As in the paper: ")


def test_what_is_kept_is_of_the_recipe_and_every_shift_has_a_panel():
    found = kept.results("robustness.figure4")
    assert found["curves"].indexes["shift"].tolist() == list(figure4.LAWS)
    assert found["curves"].sizes["examples"] == 20
    statements = figure4.states(found)
    assert {statement.word for statement in statements} <= {"As in the paper: ", "Undecided: "}
    figures = reproductions.draw("robustness.figure4", found, None)
    (figure,) = figures.values()
    titles = {note.text for note in figure.layout.annotations}
    for law in figure4.LAWS:
        assert any(law in title for title in titles)
    assert figure4.run(Setup({}, presets.PRESETS["smoke"])) == {}
