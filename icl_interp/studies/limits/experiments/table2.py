"""Table 2 of Naim & Asher (2025): errors by degree of the function and training of the model."""

from collections.abc import Mapping, Sequence

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp.experiments import errors, statements
from icl_interp.experiments.base import Experiment, Model, Results
from icl_interp.experiments.errors import SIGMAS
from icl_interp.experiments.presets import polynomials
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, note, statement
from icl_interp.results import Result
from icl_interp.studies.limits.experiments import printed, settings
from icl_interp.studies.limits.experiments.printed import PAPER

# The paper's M1 .. M6.
BY_DEGREE = {1: "affine", 2: "degree_2", 3: "degree_3", 4: "degree_4", 5: "degree_5", 6: "degree_6"}

MIXED = "degrees_135"
MIXED_ATTENTION = "degrees_135_attn_only"

LABELS = {MIXED: "M135", MIXED_ATTENTION: "M135AL"}  # the paper's

ORDER = statements.share("share of pairs in the paper's order")

RANKS = statements.at_least("rank correlation of error rates at every sigma", 0.8, 0.5)


# Of the table: the paper's M1 .. M5, and the two that were trained on degrees 1, 3 and 5.
MODELS = (*(BY_DEGREE[degree] for degree in range(1, 6)), MIXED, MIXED_ATTENTION)


def matrices(setup: Setup, models: Mapping[int, Sequence[str]]) -> dict[int, DataArray]:
    """Errors of some models on polynomials of each degree."""
    found = {}
    for degree, names in models.items():
        task = polynomials(setup.preset, degree)
        found[degree] = setup.errors(names, task, SIGMAS)
    return found


def by_degree(setup: Setup, found: Mapping[int, DataArray]) -> dict[str, Result]:
    """The errors as a table, and the ratio of every pair of models on a degree."""
    tables = []
    ratios = []
    for degree, matrix in found.items():
        tables.append(errors.table(matrix, degree=degree))
        predictors = list(map(str, matrix.indexes["predictor"]))
        pairs = errors.all_pairs(setup.among(predictors))
        if pairs:
            ratios.append(errors.ratios(matrix, pairs, degree=degree))
    results: dict[str, Result] = {"errors": errors.joined(tables)}
    if ratios:
        results["ratios"] = errors.joined(ratios)
    return results


def table2_models(degree: int) -> tuple[str, ...]:
    """M_n, M135 and M135AL."""
    return BY_DEGREE[degree], MIXED, MIXED_ATTENTION


def table2_rates(degree: int) -> dict[str, dict[float, float]]:
    """The paper's error rates by model: its errors over those of its zero predictor."""
    zero = printed.errors("limits.table2", degree=str(degree), model="zero")
    rates = {}
    for name in table2_models(degree):
        label = LABELS.get(name, f"M{degree}")
        paper = printed.errors("limits.table2", degree=str(degree), model=label)
        rates[name] = {sigma: value / zero[sigma] for sigma, value in paper.items()}
    return rates


def run_table2(setup: Setup) -> dict[str, Result]:
    """Degrees 1 to 5."""
    models = {degree: table2_models(degree) for degree in range(1, 6)}
    found = matrices(setup, models)
    results = by_degree(setup, found)
    results["ranks"] = ranks(found)
    return results


def ranks(found: Mapping[int, DataArray]) -> DataFrame:
    """Rank correlation of the error rates of all models on all degrees with the paper's.

    It is computed sigma by sigma.
    """
    published = {}
    ours = {}
    zeros = {}
    for degree, matrix in found.items():
        here = matrix.predictor.values
        zero = _errors_by_sigma(matrix, "zero")
        for name, rates in table2_rates(degree).items():
            if name in here:
                cell = f"{name} on degree {degree}"
                published[cell] = rates
                ours[cell] = _errors_by_sigma(matrix, name)
                zeros[cell] = zero
    return errors.rank_correlations(published, ours, zeros)


def _errors_by_sigma(matrix: DataArray, predictor: str) -> dict[float, np.ndarray]:
    """The errors of one predictor on every function, by sigma."""
    found = {}
    for sigma in SIGMAS:
        found[sigma] = matrix.sel(predictor=predictor, sigma=sigma).values
    return found


def compare_table2(results: Results) -> DataFrame | None:
    """All sixteen rows of the paper, the zero predictor's among them."""
    rows = []
    for degree in range(1, 6):
        labels = (f"M{degree}", "M135", "M135AL", "zero")
        names = (*table2_models(degree), "zero")
        for label, name in zip(labels, names, strict=True):
            paper = printed.errors("limits.table2", degree=str(degree), model=label)
            ours = errors.rows_of(results, "errors", degree=degree, predictor=name)
            rows += errors.side_by_side(paper, ours, degree=degree, model=label)
    what = (
        "the paper's zero predictor has the sampling error of 100 functions: the exact value at "
        "sigma is sigma^2 / 3 times sum of 1 / (2 i + 1)"
    )
    return errors.as_table(rows, f"{printed.SOURCES['limits.table2']}; {what}")


def states_table2(results: Results) -> tuple[Statement, ...]:
    """In which order models stand on a degree, and whether error rates rank as the paper's do.

    The latter is asked of all error rates of a sigma.
    """
    same = 0
    other = 0
    undecided = 0
    for degree in range(1, 6):
        paper = table2_rates(degree)
        for row in errors.rows_of(results, "ratios", degree=degree):
            sigma = row["sigma"]
            a = paper[row["a"]][sigma]
            b = paper[row["b"]][sigma]
            # The same two decimals have no order.
            if a == b:
                continue
            if row["low"] <= 0 <= row["high"]:
                undecided += 1
            elif (row["log10 ratio"] < 0) == (a < b):
                same += 1
            else:
                other += 1
    total = same + other + undecided
    if not total:
        return (note("No two models of this table are at hand, so their order is not compared."),)
    text = (
        f"{same} of {total} pairs of models (by degree and sigma) stand in the paper's order, "
        f"{other} in the opposite one, and in {undecided}, which count both ways, the "
        "interval of the ratio holds 1. Cells share their models, one run of each kind: they are "
        "not that many independent comparisons."
    )
    quantity = ORDER.conditions[0].quantity
    share = statements.share_of(quantity, same, undecided, total)
    line = statement(text, ORDER, share)
    numbers = map(note, _table2_numbers(results))
    return (line, *_states_ranks(results), *numbers)


def _states_ranks(results: Results) -> tuple[Statement, ...]:
    """Whether the error rates of all cells rank as the paper's do, at every sigma."""
    rows = errors.rows_of(results, "ranks")
    if not rows:
        return ()
    each = ", ".join(f"{row['rank correlation']:.2f} at {row['sigma']:g}" for row in rows)
    text = (
        f"error rates of {rows[0]['cells']} cells (model and degree) against the paper's, by "
        f"sigma: rank correlation {each}. Predicting 0 everywhere has 0."
    )
    intervals = [errors.interval_of(row, "rank correlation") for row in rows]
    return (statement(text, RANKS, *intervals),)


def _table2_numbers(results: Results) -> tuple[str, ...]:
    """The models' numbers; the zero predictor's are the sample's."""
    whole = compare_table2(results)
    rows = []
    if whole is not None:
        rows = [row for row in whole.to_dict("records") if row["model"] != "zero"]
    return errors.in_numbers(errors.as_table(rows, ""))


TABLE2_EXPERIMENT = Experiment(
    "limits.table2",
    "Squared error by degree: trained on that degree, on degrees 1, 3, 5, and with attention only",
    f"{PAPER}, appendix C, Table 2",
    tuple(map(Model, MODELS)),
    run_table2,
    states_table2,
    compare_table2,
    settings=settings.SETTINGS["table2"],
)
