"""Errors by the number of examples on a mixture, on each of its families, and outside of it.

Panwar et al. (2024) and Yadlowsky et al. (2023) compare models with Bayes predictors. We read their
abstracts only, so what is drawn here is no figure of theirs, but what their sentences are about.
"""

import functools
import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from pandas import DataFrame
from xarray import DataArray

from icl_interp.analyses.claim import EXPLAINS, LEARNED_R2
from icl_interp.analyses.criterion import Criterion, Estimate, Precondition, at_least
from icl_interp.baselines.base import predictions
from icl_interp.baselines.scores import explained
from icl_interp.checkpoints.config import RunConfig
from icl_interp.experiments import errors, statements
from icl_interp.experiments.base import Experiment, Model, Results
from icl_interp.experiments.errors import plainly
from icl_interp.experiments.presets import of_regression
from icl_interp.experiments.settings import read
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement
from icl_interp.prompts import as_numbers
from icl_interp.provenance import encode, generator
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import Result, make_array, make_curve, table_of_rows
from icl_interp.studies.mixtures.claims import bayes_outside as claims
from icl_interp.studies.mixtures.claims.bayes_outside import BAYES_CLAIM, OUTSIDE_CLAIM, means
from icl_interp.studies.mixtures.measurements.distances import (
    BAYES,
    BEST,
    INSIDE,
    LENGTHS,
    MODEL,
    OUTSIDE,
    SIZE,
    n_examples,
    squares,
)
from icl_interp.studies.mixtures.measurements.laws import ONE, combinations, single_laws
from icl_interp.tasks.mixture import Mixture

SOURCE = "Panwar, Ahuja & Goyal (2024) and Yadlowsky, Doshi & Tripuraneni (2023), abstracts"
RECIPES = ("mixture_centres", "mixture_sizes")
EACH = 16  # prompts of a block
LOW = "model, low"
HIGH = "model, high"
NOTE = "Squared error at the query over the mean square of f(x) on the mixture"
SAMPLE = f"{{n_functions}} blocks of {EACH} independent prompts"
# A model selects among families nearly as well as can be where its error on one family is at most
# twice the bar, and does not where it is at least four times the bar. The bar is the error of the
# family's own predictor and 5 % of the mean square of f(x) on the family. These are the numbers by
# which `robustness` compares a model with least squares; no study imports another.
ALLOWED = 0.05
AS_GOOD = 2.0
WORSE = 4.0
OVER_BAR = "error over the bar of the family's own predictor"
EXPLAINED = "share of what can be explained"
# A claim asks this of a model before its criterion.
LEARNED = Precondition(EXPLAINED, at_least(LEARNED_R2), f"{EXPLAINS}.")
SELECTS = replace(
    statements.at_most(OVER_BAR, AS_GOOD, WORSE, LEARNED),
    terms=f"The bar is that predictor's error plus {ALLOWED:.0%} of the mean square of f(x) on the "
    "family.",
)
SIZES = {
    "smoke": "2 layers, width 32, d = 2, 8 examples, 100 steps: shows that it runs, and nothing "
    "else",
    "small": "3 layers, width 64, 4 heads, d = 5, 16 examples, 12,000 steps",
    "paper": "12 layers, width 256, 8 heads, d = 25, 80 examples, 500,000 steps",
}


def at_scale(config: RunConfig, scale: str) -> RunConfig:
    """The run of a recipe at another scale; "small" is the recipe as it stands."""
    task = config.task
    assert isinstance(task, Mixture)
    first = replace(config, task=task.tasks[0])
    found = of_regression(first, scale)
    if found == first:
        return config
    changes = {"n_dims": found.task.dim, "n_points": found.task.n_points}
    families = [replace(one, **changes) for one in task.tasks]
    return replace(found, task=Mixture.of(*families, shares=task.shares))


def task_of(setup: Setup, name: str) -> Mixture:
    """The mixture that a model was trained on."""
    task = setup.models[name].task
    assert isinstance(task, Mixture)
    return task


def laws(task: Mixture, seed: int) -> dict[str, Mixture]:
    """What prompts are of, by name: the mixture, each of its families alone, and combinations."""
    names = [name for name in single_laws(task) if name != ONE]
    found = {INSIDE: task}
    for name, family in zip(names, task.tasks, strict=True):
        found[name] = Mixture.of(family, family)  # twice the same law is this law
    found[OUTSIDE] = combinations(task, seed)
    return found


def run(setup: Setup) -> dict[str, Result]:
    """Errors by model, kind of functions, line and number of examples; and what decides."""
    names = setup.among(RECIPES)
    curves = []
    rows = []
    for name in names:
        result = by_examples(setup, name)
        curve = over_square(result)
        curves.append(curve.values)
        for about, numbers in decides(result, task_of(setup, name), setup.seed).items():
            for quantity, i in numbers.items():
                row = {"model": name, "about": about, "quantity": quantity}
                rows.append(row | {"value": i.value, "low": i.low, "high": i.high})
    if not names:
        return {}
    axes = {"model": tuple(names), **curve.indexes}
    return {
        "curves": make_curve(np.stack(curves), axes, note=curve.attrs["note"]),
        "numbers": table_of_rows(rows, note="what decides, with 95 % intervals"),
    }


def by_examples(setup: Setup, name: str) -> DataArray:
    """Means of `squares` over blocks of prompts: (functions, of, unit, examples)."""
    kinds = laws(task_of(setup, name), setup.seed)
    values = []
    for functions, law in kinds.items():
        compute = functools.partial(_blocks, setup, name, functions, law)
        settings = {"functions": functions, "task": encode(law)}
        found = setup.keep("mixtures: squares by examples", [name], compute, **settings)
        assert isinstance(found, DataArray)
        values.append(found.values)
    return make_array(np.stack(values), {"functions": tuple(kinds), **found.indexes})


def _blocks(setup: Setup, name: str, functions: str, law: Mixture) -> DataArray:
    """Means over blocks of prompts of one law: (of, unit, examples)."""
    model = setup.models[name]
    task = task_of(setup, name)
    blocks = []
    for block in range(setup.preset.n_functions):
        stream = generator(setup.seed, f"mixtures/by examples/{functions}", block)
        prompts = law.sample(EACH, stream, dtype=torch.float64)
        said = as_numbers(predictions(model, prompts))
        found = squares(task, law, prompts, said)
        blocks.append([each.mean(0).numpy() for each in found.values()])
    axes = {"of": tuple(found), "unit": range(len(blocks)), "examples": range(law.n_points)}
    return make_array(np.stack(blocks, 1), axes)


def over_square(result: DataArray) -> DataArray:
    """Errors over the mean square of f(x) on the mixture: (functions, line, examples).

    A line is a predictor's, or an end of the model's interval.
    """
    kinds = result.indexes["functions"]
    shown = (MODEL, BAYES, *claims.laws_in(result), BEST)
    lengths = result.indexes["examples"][1:]
    found = []
    for functions, examples in itertools.product(kinds, lengths):
        here = result.sel(examples=examples)
        size = means(here, INSIDE, SIZE)
        of_each = means(here, functions, list(shown))
        own = of_each[:, 0]
        i = bootstrap(lambda e, s: e / s, own, size, positive=True, far=False)
        found.append([i.low, i.high, *(of_each.mean(0) / size.mean())])
    lines = (LOW, HIGH, *shown)
    values = np.reshape(found, (len(kinds), len(lengths), len(lines))).swapaxes(1, 2)
    return make_array(values, {"functions": kinds, "line": lines, "examples": lengths}, note=NOTE)


# ---- what decides --------------------------------------------------------------------------------


def decides(result: DataArray, task: Mixture, seed: int) -> dict[str, dict[str, Interval]]:
    """What the statements ask for, by the claim or the family that it is about."""
    at = at_lengths(result, task, seed)
    found = {BAYES_CLAIM.id: claims.on_mixture(at)}
    last = result.isel(examples=-1)
    for family in single_laws(task):
        if family != ONE:
            each = [means(last, family, of) for of in (MODEL, family, SIZE)]
            ratio = bootstrap(lambda e, b, s: e / (b + ALLOWED * s), *each, positive=True)
            found[family] = {OVER_BAR: ratio}
    found[OUTSIDE_CLAIM.id] = claims.on_combinations(at)
    # After so many examples as evaluations begin to score at.
    scored = result.isel(examples=slice(task.n_determining, None)).mean("examples")
    numbers = explained("share", *[means(scored, INSIDE, of) for of in (MODEL, SIZE, BAYES)])
    ends = [numbers[name] for name in ("share", "share_low", "share_high")]
    found[EXPLAINED] = {EXPLAINED: Interval(ends[0], ends[1], ends[2])}
    return found


def at_lengths(result: DataArray, task: Mixture, seed: int) -> DataArray:
    """The squares after the numbers of examples that the claims ask for, as `distances` has them.

    A block of prompts stands for a unit.
    """
    n_units = result.sizes["unit"]
    asked = n_examples(task, n_units, seed)
    values = []
    for numbers in asked.values():
        values.append(result.values[..., np.arange(n_units), numbers.numpy()])
    axes = {"length": tuple(asked), **result.isel(examples=0, drop=True).indexes}
    return make_array(np.stack(values), axes)


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """Model by model: is it Bayes on its mixture, as good on each family, and no better outside?"""
    given: dict[tuple[str, str], dict[str, Estimate]] = {}
    for row in errors.rows_of(results, "numbers"):
        one = Estimate(row["quantity"], row["value"], row["low"], row["high"])
        given.setdefault((row["model"], row["about"]), {})[one.name] = one
    lines = []
    for (model, about), evidence in given.items():
        if about != EXPLAINED:
            words, rule = _asked(about, evidence)
            every = evidence | given[model, EXPLAINED]
            lines.append(Statement(f"{model}, {words}", rule, every))
    return tuple(lines)


def _asked(about: str, evidence: Mapping[str, Estimate]) -> tuple[str, Criterion]:
    """The words of a statement, and its rule: a claim's criterion, of models that have learned."""
    here = []
    for length in LENGTHS:
        if length in evidence:
            here.append(f"{plainly(evidence[length].value)} after {length}")
    each = ", ".join(here) or "not asked, since there is too little to gain"
    words = {
        BAYES_CLAIM.id: "on its mixture: the squared distance from the Bayes predictor, over "
        f"the mean square of f(x), is {each}.",
        OUTSIDE_CLAIM.id: f"on combinations: the share of the possible gain is {each}.",
    }
    for claim in claims.CLAIMS:
        if claim.id == about:
            conditions = (LEARNED, *claim.criterion.preconditions)
            return words[about], replace(claim.criterion, preconditions=conditions)
    ratio = plainly(evidence[OVER_BAR].value)
    return f"{about} alone, after all examples: its error is {ratio} of the bar.", SELECTS


def compare(results: Results) -> DataFrame | None:
    """What decides; the abstracts have no numbers."""
    found = results.get("numbers")
    return found if isinstance(found, DataFrame) else None


BY_EXAMPLES_EXPERIMENT = Experiment(
    "mixtures.by_examples",
    "On a mixture, on its families and outside, by the number of examples",
    SOURCE,
    tuple(Model(recipe, scaled=at_scale) for recipe in RECIPES),
    run,
    states,
    compare,
    sample=SAMPLE,
    sizes=SIZES,
    settings=read(Path(__file__).with_name("settings.json"))["by_examples"],
)
