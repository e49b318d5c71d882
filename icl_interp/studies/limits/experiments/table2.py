"""Table 2 of Naim & Asher (2025): errors by degree of the function and training of the model."""

from collections.abc import Mapping, Sequence

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

BY_DEGREE = {
    degree: "affine" if degree == 1 else f"degree_{degree}" for degree in range(1, 7)
}  # the paper's M1 .. M6

MIXED, MIXED_ATTENTION = "degrees_135", "degrees_135_attn_only"

LABELS = {MIXED: "M135", MIXED_ATTENTION: "M135AL"}  # the paper's

ORDER = statements.share("share of pairs in the paper's order")

RANKS = statements.at_least("rank correlation of error rates at every sigma", 0.8, 0.5)


def matrices(setup: Setup, models: Mapping[int, Sequence[str]]) -> dict[int, DataArray]:
    """Errors of some models on polynomials of each degree."""
    return {
        degree: setup.errors(names, polynomials(setup.preset, degree), SIGMAS)
        for degree, names in models.items()
    }


def by_degree(setup: Setup, found: Mapping[int, DataArray]) -> dict[str, Result]:
    """The errors as a table, and the ratio of every pair of models on a degree."""
    ratios = []
    for degree, matrix in found.items():
        pairs = errors.all_pairs(setup.among([str(name) for name in matrix.indexes["predictor"]]))
        if pairs:
            ratios.append(errors.ratios(matrix, pairs, degree=degree))
    results: dict[str, Result] = {
        "errors": errors.joined(errors.table(m, degree=d) for d, m in found.items())
    }
    return results | ({"ratios": errors.joined(ratios)} if ratios else {})


def table2_models(degree: int) -> tuple[str, ...]:
    """M_n, M135 and M135AL."""
    return BY_DEGREE[degree], MIXED, MIXED_ATTENTION


def table2_rates(degree: int) -> dict[str, dict[float, float]]:
    """The paper's error rates by model: its errors over those of its zero predictor."""
    labels = {name: LABELS.get(name, f"M{degree}") for name in table2_models(degree)}
    zero = printed.errors("limits.table2", degree=str(degree), model="zero")
    paper = {
        name: printed.errors("limits.table2", degree=str(degree), model=label)
        for name, label in labels.items()
    }
    return {
        name: {sigma: value / zero[sigma] for sigma, value in row.items()}
        for name, row in paper.items()
    }


def run_table2(setup: Setup) -> dict[str, Result]:
    """Degrees 1 to 5."""
    found = matrices(setup, {degree: table2_models(degree) for degree in range(1, 6)})
    return by_degree(setup, found) | {"ranks": ranks(found)}


def ranks(found: Mapping[int, DataArray]) -> DataFrame:
    """Rank correlation of the error rates of all models on all degrees with the paper's.

    It is computed sigma by sigma.
    """
    published, ours, zeros = {}, {}, {}
    for degree, matrix in found.items():
        at = {
            name: {s: matrix.sel(predictor=name, sigma=s).values for s in SIGMAS}
            for name in matrix.predictor.values
        }
        for name, rates in table2_rates(degree).items():
            if name in at:
                cell = f"{name} on degree {degree}"
                published[cell], ours[cell], zeros[cell] = rates, at[name], at["zero"]
    return errors.rank_correlations(published, ours, zeros)


def compare_table2(results: Results) -> DataFrame | None:
    """All sixteen rows of the paper, the zero predictor's among them."""
    rows = []
    for degree in range(1, 6):
        ours = dict(zip((f"M{degree}", "M135", "M135AL"), table2_models(degree), strict=True)) | {
            "zero": "zero"
        }
        for label, name in ours.items():
            paper = printed.errors("limits.table2", degree=str(degree), model=label)
            rows += errors.side_by_side(
                paper,
                errors.rows_of(results, "errors", degree=degree, predictor=name),
                degree=degree,
                model=label,
            )
    note = (
        "the paper's zero predictor has the sampling error of 100 functions: the exact value at "
        "sigma is"
    )
    return errors.as_table(
        rows, f"{printed.SOURCES['limits.table2']}; {note} sigma^2 / 3 times sum of 1 / (2 i + 1)"
    )


def states_table2(results: Results) -> tuple[Statement, ...]:
    """In which order models stand on a degree, and whether error rates rank as the paper's do.

    The latter is asked of all error rates of a sigma.
    """
    same, other, undecided = [], [], 0
    for degree in range(1, 6):
        paper = table2_rates(degree)
        for row in errors.rows_of(results, "ratios", degree=degree):
            a, b = paper[row["a"]][row["sigma"]], paper[row["b"]][row["sigma"]]
            if a == b:
                continue  # the same two decimals
            if row["low"] <= 0 <= row["high"]:
                undecided += 1
            else:
                (same if (row["log10 ratio"] < 0) == (a < b) else other).append(
                    (degree, row["sigma"])
                )
    total = len(same) + len(other) + undecided
    if not total:
        return (note("No two models of this table are at hand, so their order is not compared."),)
    line = statement(
        f"{len(same)} of {total} pairs of models (by degree and sigma) stand in the paper's order, "
        f"{len(other)} in the opposite one, and in {undecided}, which count both ways, the "
        "interval of the ratio holds 1. Cells share their models, one run of each kind: they are "
        "not that many independent comparisons.",
        ORDER,
        statements.share_of(ORDER.conditions[0].quantity, len(same), undecided, total),
    )
    return (line, *_states_ranks(results), *map(note, _table2_numbers(results)))


def _states_ranks(results: Results) -> tuple[Statement, ...]:
    rows = errors.rows_of(results, "ranks")
    if not rows:
        return ()
    each = ", ".join(f"{row['rank correlation']:.2f} at {row['sigma']:g}" for row in rows)
    text = (
        f"error rates of {rows[0]['cells']} cells (model and degree) against the paper's, by "
        f"sigma: rank correlation {each}. Predicting 0 everywhere has 0."
    )
    return (statement(text, RANKS, *(errors.interval_of(row, "rank correlation") for row in rows)),)


def _table2_numbers(results: Results) -> tuple[str, ...]:
    """The models' numbers; the zero predictor's are the sample's."""
    whole = compare_table2(results)
    rows = (
        [row for row in whole.to_dict("records") if row["model"] != "zero"]
        if whole is not None
        else []
    )
    return errors.in_numbers(errors.as_table(rows, ""))


TABLE2_EXPERIMENT = Experiment(
    "limits.table2",
    "Squared error by degree: trained on that degree, on degrees 1, 3, 5, and with attention only",
    f"{PAPER}, appendix C, Table 2",
    tuple(
        Model(name)
        for name in (*(BY_DEGREE[degree] for degree in range(1, 6)), MIXED, MIXED_ATTENTION)
    ),
    run_table2,
    states_table2,
    compare_table2,
    settings=settings.SETTINGS["table2"],
)
