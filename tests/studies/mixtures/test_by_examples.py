"""Curves by the number of examples: against closed forms, on models that are known; statements."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.baselines.mixture import BayesMixture
from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.experiments import kept, presets
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import AGREES, DIFFERS, LEFT_OUT, OPEN
from icl_interp.figures import reproductions
from icl_interp.models.tokens import Interleaved
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.results import make_array, table_of_rows
from icl_interp.studies.mixtures.experiments import by_examples as measured
from icl_interp.studies.mixtures.measurements.distances import (
    ALL,
    BAYES,
    BEST,
    DIMENSIONS,
    DRAWN,
    HALF,
    INSIDE,
    LENGTHS,
    MODEL,
    OUTSIDE,
    SIZE,
    TWICE,
    n_examples,
)
from icl_interp.studies.mixtures.measurements.laws import ONE, bayes, single_laws
from icl_interp.training import recipes

NAME = "mixture_centres"
RUN = measured.at_scale(recipes.resolve(NAME), "smoke")
TASK = RUN.task
PREDICTORS = (MODEL, BAYES, "family 1", "family 2", ONE, BEST)


class Given(Checkpoint):
    """A predictor in the place of a model."""

    predictor = bayes(TASK)

    def predict(self, prompts):
        """What the predictor says."""
        return self.predictor.predict(prompts)


class Ridge(Given):
    """Ridge regression in the place of a model."""

    predictor = BayesMixture([single_laws(TASK)[ONE]])


def setup_of(kind, n_functions):
    """A setup whose model is a predictor that is known."""
    config = RunConfig(RUN.model, TASK, "interleaved")
    model = kind(HookedTransformer(RUN.model), TASK, Interleaved(), config)
    preset = replace(presets.PRESETS["smoke"], n_functions=n_functions)
    return Setup({NAME: model}, preset)


@pytest.fixture(scope="module")
def of_bayes():
    """Squares of the Bayes predictor in the place of the model, with 16 blocks of prompts."""
    with setup_of(Given, 16) as setup:
        return measured.by_examples(setup, NAME)


@pytest.mark.parametrize(
    ("functions", "best", "other"),
    [
        ("family 1", "family 1", ONE),
        ("family 2", "family 2", "family 1"),
        (INSIDE, BAYES, ONE),
        (OUTSIDE, BEST, BAYES),
    ],
)
def test_the_predictor_of_these_functions_is_the_best_of_all(of_bayes, functions, best, other):
    def check(name):
        here = of_bayes.sel(functions=functions).isel(examples=slice(1, None))
        for who in PREDICTORS:
            more = (here.sel(of=who) - here.sel(of=name)).transpose("unit", "examples").values
            standard_error = more.std(0, ddof=1) / len(more) ** 0.5
            assert (more.mean(0) >= -4 * standard_error - 1e-12).all(), who

    check(best)
    must_fail(check, other)


def test_a_family_errs_as_its_formula_says(of_bayes):
    """E tr (I / std^2 + X' X / noise^2)^-1 after examples X."""
    own = of_bayes.sel(functions="family 1", of="family 1").transpose("unit", "examples").values
    mean = own.mean(0)
    standard_error = own.std(0, ddof=1) / len(own) ** 0.5
    xs = torch.randn(4000, 8, 2, generator=generator(0, "test"), dtype=torch.float64)
    identity = torch.eye(2, dtype=torch.float64)

    def check(std, noise=0.5):
        for n in range(9):
            seen = xs[:, :n]
            precision = identity / std**2 + seen.mT @ seen / noise**2
            trace = torch.linalg.inv(precision).diagonal(dim1=-2, dim2=-1).sum(-1).mean()
            assert abs(mean[n] - float(trace)) < 4 * standard_error[n]

    check(0.25)
    must_fail(check, 0.5)


def test_lines_are_errors_over_the_mean_square_on_the_mixture(of_bayes):
    curves = measured.over_square(of_bayes)
    assert curves.indexes["examples"].tolist() == list(range(1, 9))
    mean = of_bayes.mean("unit").sel(examples=3)
    size = float(mean.sel(functions=INSIDE, of=SIZE))
    for functions in (INSIDE, "family 2", OUTSIDE):
        here = curves.sel(functions=functions, examples=3)
        for who in PREDICTORS:
            expected = float(mean.sel(functions=functions, of=who)) / size
            assert float(here.sel(line=who)) == pytest.approx(expected)
        assert float(here.sel(line=measured.LOW)) < float(here.sel(line=MODEL))
        assert float(here.sel(line=MODEL)) < float(here.sel(line=measured.HIGH))


def test_bayes_as_the_model_has_no_distance_from_bayes(of_bayes):
    def check(result):
        found = measured.decides(result, TASK, 0)["mixtures.bayes_predictor"]
        for length in LENGTHS:
            assert found[length].high < 1e-20
        assert found["nearer"].value < 1e-20
        assert found["apart"].value > 0.02

    check(of_bayes)
    with setup_of(Ridge, 4) as setup:
        must_fail(check, measured.by_examples(setup, NAME))


def test_bayes_as_the_model_explains_all_and_is_below_the_bar(of_bayes):
    found = measured.decides(of_bayes, TASK, 0)
    explained = found[measured.EXPLAINED][measured.EXPLAINED]
    assert explained.value == pytest.approx(1)
    for family in ("family 1", "family 2"):
        last = of_bayes.sel(functions=family).isel(examples=-1).mean("unit")
        bar = float(last.sel(of=family) + 0.05 * last.sel(of=SIZE))
        ratio = found[family][measured.OVER_BAR]
        assert ratio.value == pytest.approx(float(last.sel(of=MODEL)) / bar)
        assert ratio.high < 1


def test_lengths_are_those_of_the_claims():
    """Of squares that are the number of examples."""
    lengths = range(TASK.n_points)
    axes = {"functions": (INSIDE, OUTSIDE), "of": (MODEL, SIZE), "unit": range(6)}
    numbers = np.broadcast_to(np.arange(TASK.n_points), (2, 2, 6, TASK.n_points))
    result = make_array(numbers, {**axes, "examples": lengths})
    found = measured.at_lengths(result, TASK, 3)
    assert found.sel(length=[HALF, DIMENSIONS, TWICE, ALL]).mean(
        ("functions", "of", "unit")
    ).values.tolist() == [1, 2, 4, 8]
    drawn = n_examples(TASK, 6, 3)[DRAWN].tolist()
    assert found.sel(length=DRAWN, functions=OUTSIDE, of=MODEL).values.tolist() == drawn


# What is said


def planted(**changed):
    """Numbers of a model that is Bayes on its mixture, as good on families, no better outside.

    Args:
        changed: near, nearer, apart, family, gain, room, inside, learned; gain None: no length.
    """
    numbers = {"near": 0.01, "nearer": 0.1, "apart": 0.2, "family": 1.0}
    numbers |= {"gain": 0.02, "room": 0.3, "inside": 0.02, "learned": 0.97} | changed
    on_mixture = {"apart": numbers["apart"], "nearer": numbers["nearer"]}
    on_mixture |= dict.fromkeys(LENGTHS, numbers["near"])
    outside = {"room": numbers["room"], "inside": numbers["inside"]}
    if numbers["gain"] is not None:
        outside[HALF] = numbers["gain"]
    told = {
        "mixtures.bayes_predictor": on_mixture,
        "family 1": {measured.OVER_BAR: numbers["family"]},
        "mixtures.no_better_outside": outside,
        measured.EXPLAINED: {measured.EXPLAINED: numbers["learned"]},
    }
    rows = []
    for about, each in told.items():
        for quantity, value in each.items():
            row = {"model": NAME, "about": about, "quantity": quantity}
            rows.append(row | {"value": value, "low": value, "high": value})
    return {"numbers": table_of_rows(rows)}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, (AGREES, AGREES, AGREES)),
        ({"near": 0.07}, (OPEN, AGREES, AGREES)),
        ({"near": 0.2}, (DIFFERS, AGREES, AGREES)),
        ({"nearer": 0.4}, (OPEN, AGREES, AGREES)),
        ({"apart": 0.01}, (LEFT_OUT, AGREES, AGREES)),
        ({"family": 1.9}, (AGREES, AGREES, AGREES)),
        ({"family": 3.0}, (AGREES, OPEN, AGREES)),
        ({"family": 4.1}, (AGREES, DIFFERS, AGREES)),
        ({"gain": -3.0}, (AGREES, AGREES, AGREES)),
        ({"gain": 0.15}, (AGREES, AGREES, OPEN)),
        ({"gain": 0.3}, (AGREES, AGREES, DIFFERS)),
        ({"inside": 0.2}, (AGREES, AGREES, OPEN)),
        ({"room": 0.01, "gain": None}, (AGREES, AGREES, LEFT_OUT)),
        ({"learned": 0.8}, (LEFT_OUT, LEFT_OUT, LEFT_OUT)),
    ],
)
def test_statements_follow_from_planted_numbers(changed, words):
    def check(results):
        assert tuple(line.word for line in measured.states(results)) == words

    check(planted(**changed))
    other = {"near": 0.07, "family": 3.0} if words[0] == AGREES else {}
    must_fail(check, planted(**other))


def test_statements_have_numbers_and_rules():
    first, second, third = [line.sentence for line in measured.states(planted())]
    assert f"{NAME}, on its mixture" in first
    assert f"0.01 after {DRAWN}" in first
    assert "The bar is that predictor's error plus 5% of the mean square" in second
    assert f"0.02 after {HALF}." in third
    left_out = measured.states(planted(room=0.01, gain=None))[2].sentence
    assert "not asked, since there is too little to gain" in left_out
    assert "at most 0.01 of the mean square could be gained" in left_out


def test_without_models_nothing_is_said():
    assert measured.run(Setup({}, presets.PRESETS["smoke"])) == {}
    assert measured.states({}) == ()
    assert measured.compare({}) is None
    assert reproductions.draw("mixtures.by_examples", {}, None) == {}


def test_scales_of_the_recipes():
    for name in measured.RECIPES:
        recipe = recipes.resolve(name)
        assert measured.at_scale(recipe, "small") == recipe
        paper = measured.at_scale(recipe, "paper")
        assert (paper.task.dim, paper.task.n_points, paper.model.n_layers) == (25, 81, 12)
        assert paper.model.d_in == paper.task.dim
        assert paper.task.shares == recipe.task.shares
        for large, one in zip(paper.task.tasks, recipe.task.tasks, strict=True):
            assert (large.weights, large.noise_std) == (one.weights, one.noise_std)
    assert (TASK.dim, TASK.n_points) == (2, 9)


def test_a_run_has_what_statements_and_the_figure_need():
    with setup_of(Given, 6) as setup:
        found = measured.run(setup)
    assert found["curves"].indexes["functions"].tolist() == [
        INSIDE,
        "family 1",
        "family 2",
        OUTSIDE,
    ]
    assert found["curves"].indexes["line"].tolist()[2:] == list(PREDICTORS)
    assert len(measured.states(found)) == 4
    assert len(measured.compare(found)) == len(found["numbers"])
    (figure,) = reproductions.draw("mixtures.by_examples", found, None).values()
    assert {trace.name for trace in figure.data} >= set(PREDICTORS)
    titles = " ".join(note.text for note in figure.layout.annotations).replace("<br>", " ")
    for functions in found["curves"].indexes["functions"]:
        assert f"{NAME}: {functions}" in titles


def test_what_is_kept_is_of_both_models():
    found = kept.results("mixtures.by_examples")
    assert found["curves"].indexes["model"].tolist() == list(measured.RECIPES)
    assert found["curves"].sizes["examples"] == 16
    assert len(measured.states(found)) == 8
