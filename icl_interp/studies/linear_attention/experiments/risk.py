"""Theorem 4.2: the error of a layer of linear self-attention on prompts of M examples.

It is given as printed and as it is.

The slides' formula has lost the factor 1/M of its second term. Three things are measured on the
same prompts: the formula's own layer (P = Gamma^-1), a layer trained by Adam, and the exact risk of
the product read off that one.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from pandas import DataFrame
from xarray import DataArray

from icl_interp.analyses.criterion import Condition, Criterion
from icl_interp.analyses.natural import SHARE
from icl_interp.baselines.base import Predictor, predictions
from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Results
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_most, none_of, note, statement
from icl_interp.models.single_layers import LinearSelfAttention, read_layer
from icl_interp.prompts import as_numbers
from icl_interp.provenance import encode, generator
from icl_interp.results import Result, make_array, make_curve, table_of_rows
from icl_interp.studies.linear_attention.experiments import models, settings
from icl_interp.tasks.regression import LinearRegression
from icl_interp.theory import linear_attention as theory

# Of the recipe lsa_fixed.
COVARIANCE = (0.5, 0.75, 1.0, 1.5, 2.0)
N = 20
TRAINED = "lsa_fixed"
LENGTHS = (1, 2, 5, 10, 20, 40, 80, 160)  # M
NOISES = (0.0, 0.25)  # tau^2 of the test labels
UNIT = "layer with P = Γ⁻¹"
FORMULAS = ("Theorem 4.2 with its 1/M", "as the slides print it")
FAR = 4.0  # standard errors
ON_FORMULA = none_of(f"cases more than {FAR:g} standard errors off the formula")
OFF_PRINTED = "share of cases off the printed formula"
PRINTED = Criterion((Condition(OFF_PRINTED, OFF_PRINTED, (0, 0), (1, 1), SHARE),))
AS_THEOREM = at_most("|risk of the trained layer / Theorem 4.2 - 1| in every case", 0.1)


def run(setup: Setup) -> dict[str, Result]:
    """Formulas over M, and both layers measured."""
    lam = torch.diag(torch.tensor(COVARIANCE))
    n = N
    read = None
    if setup.has(TRAINED):
        checkpoint = setup.models[TRAINED]
        lam = models.task_of(checkpoint).covariance_matrix
        n = models.trained_length(checkpoint)
        read = read_layer(checkpoint.model).product
    d = len(lam)
    identity = torch.eye(d)
    product = theory.landscape(lam, n).product
    unit = LinearSelfAttention.from_product(product)
    covariance = tuple(map(tuple, lam.tolist()))

    # The formulas at every noise and length, and the layers on prompts of this kind.
    rows = []
    lines = np.zeros((len(NOISES), len(FORMULAS), len(LENGTHS)))
    for i, tau2 in enumerate(NOISES):
        for j, m in enumerate(LENGTHS):
            exact = float(theory.risk(lam, n, m, identity, tau2))
            printed = float(theory.paper_risk(lam, n, m, identity, tau2))
            lines[i, :, j] = exact, printed
            task = LinearRegression(
                n_dims=d, n_points=m + 1, covariance=covariance, noise_std=tau2**0.5
            )
            row = {"layer": UNIT, "noise": tau2, "M": m}
            row |= _measured(setup, UNIT, unit, task, product)
            row |= {"exact": exact, "slides": printed}
            rows.append(row)
            if read is not None:
                own = float(theory.product_risk(read, m, lam, identity, tau2).total)
                row = {"layer": TRAINED, "noise": tau2, "M": m}
                row |= _measured(setup, TRAINED, setup.models[TRAINED], task, read)
                row |= {"exact": own, "slides": printed}
                rows.append(row)
    note = f"d = {d}, N = {n}, w ~ N(0, I); mean squared error"
    axes = {"noise": NOISES, "formula": FORMULAS, "M": LENGTHS}
    return {"formulas": make_curve(lines, axes, note=note), "measured": _table(rows, note)}


def _table(rows: list[dict[str, Any]], note: str) -> DataFrame:
    for row in rows:
        error = row["error"]
        se = row["se"]
        row["z, exact"] = (error - row["exact"]) / se
        row["z, slides"] = (error - row["slides"]) / se
    words = "exact: of the layer's own product; z: (measured - formula) / standard error"
    return table_of_rows(rows, note=f"{note}; {words}")


def _measured(
    setup: Setup, name: str, predictor: Predictor, task: LinearRegression, product: torch.Tensor
) -> dict[str, float]:
    """Mean squared error at the query and its standard error over independent prompts."""

    def compute() -> DataArray:
        squares = []
        for block in range(setup.preset.n_functions):
            stream = generator(setup.seed, "linear_attention/risk", block)
            prompts = task.sample(setup.preset.n_contexts, stream, dtype=torch.float64)
            residuals = predictions(predictor, prompts) - prompts.ys
            squares.append(as_numbers(residuals.square())[:, -1])
        found = torch.cat(squares)
        error = float(found.mean())
        se = float(found.std() / len(found) ** 0.5)
        return make_array(np.array([error, se]), {"statistic": ("error", "se")})

    of_models = [name] if name == TRAINED else []
    kept = setup.keep(
        "linear_attention: risk",
        of_models,
        compute,
        task=encode(task),
        layer=name,
        product=product.tolist(),
    )
    assert isinstance(kept, DataArray)
    error, se = kept.values.tolist()
    return {"error": error, "se": se}


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """Which formula the measurements follow, and whether a trained layer has the theorem's risk."""
    by_layer: dict[str, list[Mapping[str, Any]]] = {}
    for row in errors.rows_of(results, "measured"):
        by_layer.setdefault(row["layer"], []).append(row)
    lines = []
    for layer, rows in by_layer.items():
        lines += _states_formulas(layer, rows)

    # The trained layer's own risk against that of the theorem, case by case.
    theorem = {}
    for row in by_layer.get(UNIT, []):
        theorem[row["noise"], row["M"]] = row["exact"]
    apart = []
    for row in by_layer.get(TRAINED, []):
        case = (row["noise"], row["M"])
        if case in theorem:
            apart.append(abs(row["exact"] / theorem[case] - 1))
    if apart:
        text = (
            f"{TRAINED}, trained by Adam (one run): the exact risk of what it has learned is off "
            f"Theorem 4.2's by at most {max(apart):.1%} over {len(apart)} cases of M and noise."
        )
        lines.append(statement(text, AS_THEOREM, *apart))
    return tuple(lines) or (note("Nothing is measured."),)


def _states_formulas(layer: str, rows: list[Mapping[str, Any]]) -> list[Statement]:
    """Both formulas of a layer's own product against sampling: algebra, for any weights."""
    sizes = [abs(row["z, exact"]) for row in rows]
    held = sum(size < FAR for size in sizes)
    exact = (
        f"{layer}: the measured error lies within {FAR:g} standard errors of Theorem 4.2 with its "
        f"factor 1/M, for the layer's own product, in {held} of {len(rows)} cases (largest "
        f"|z| {max(sizes):.1f})."
    )
    on_formula = statement(exact, ON_FORMULA, len(rows) - held, kind="formula")

    # At M = 1 both formulas are the same.
    longer = [row for row in rows if row["M"] > 1]
    off = sum(abs(row["z, slides"]) > FAR for row in longer)
    last = max(longer, key=lambda row: (row["M"], row["noise"]))
    printed = (
        f"{layer}: as the slides print it, without 1/M, the formula is off in {off} of "
        f"{len(longer)} cases with M > 1: at M = {last['M']}, noise {last['noise']:g}, measured "
        f"{last['error']:.3g} ± {last['se']:.2g}, with 1/M {last['exact']:.3g}, printed "
        f"{last['slides']:.3g}."
    )
    off_printed = statement(printed, PRINTED, off / len(longer), kind="printed")
    return [on_formula, off_printed]


def compare(results: Results) -> DataFrame | None:
    """Measured, exact and printed, row by row."""
    found = results.get("measured")
    return found if isinstance(found, DataFrame) else None


RISK_FORMULA_EXPERIMENT = Experiment(
    "linear_attention.risk_formula",
    "Theorem 4.2 measured: the risk on M examples, and the slides' lost 1/M",
    f"{models.SLIDES}: Theorem 4.2",
    (models.linear(TRAINED),),
    run,
    states,
    compare,
    sample=models.SAMPLE,
    sizes=models.LSA_SIZES,
    settings=settings.SETTINGS["risk_formula"],
)
