"""Tables 1 to 3 of Naim & Asher (2025): squared error as the functions leave the training range."""

import numpy as np
from pandas import DataFrame

from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Model, Results
from icl_interp.experiments.bench import Bench
from icl_interp.experiments.errors import AGREES, DIFFERS, OPEN, SIGMAS, decided
from icl_interp.experiments.scales import polynomials
from icl_interp.resampling import Interval
from icl_interp.results import Result
from icl_interp.studies.limits.claims.classes import ALIKE
from icl_interp.studies.limits.experiments import printed

PAPER = "Naim & Asher (2025)"
COMPARABLE = errors.at_most("error / error", ALIKE)  # the factor of the claim `unseen_classes`
WITH, WITHOUT = "with LN", "without LN"
SEEDS = {
    WITH: (Model("affine"), Model("affine", 1, ("smoke", "small")), Model("affine", 2, ("small",))),
    WITHOUT: (
        Model("affine_no_ln"),
        Model("affine_no_ln", 1, ("smoke", "small")),
        Model("affine_no_ln", 2, ("small",)),
    ),
}
BY_DEGREE = {degree: "affine" if degree == 1 else f"degree_{degree}" for degree in range(1, 7)}  # the paper's M1 .. M6
MIXED, MIXED_ATTENTION = "degrees_135", "degrees_135_attn_only"
INTERVALS = {"U(-1,1)": "affine", "U(-5,5)": "affine_u5", "U(-10,10)": "affine_u10", "U(-100,100)": "affine_u100"}


# ---- Table 1: with and without LayerNorm ---------------------------------------------------------------------------


def run_table1(bench: Bench) -> dict[str, Result]:
    """Errors of every seed and their means over seeds, and the ratio without / with, seed by seed and pooled."""
    seeds = {group: bench.among([model.name for model in models]) for group, models in SEEDS.items()}
    each = bench.errors([name for names in seeds.values() for name in names], polynomials(bench.scale, 1), SIGMAS)
    whole = errors.pooled(each, seeds)
    results: dict[str, Result] = {"errors": errors.table(whole)}
    if all(seeds.values()):
        pairs = [(WITHOUT, WITH), *((b, a) for a in seeds[WITH] for b in seeds[WITHOUT])]
        results["ratios"] = errors.ratios(whole, pairs)
    return results


def compare_table1(results: Results) -> DataFrame | None:
    """The paper's two rows, and what its conclusion rests on: the ratio of the two."""
    rows = []
    published = {
        WITH: printed.errors("limits.table1", model="with_layernorm"),
        WITHOUT: printed.errors("limits.table1", model="without_layernorm"),
    }
    for name, paper in published.items():
        rows += errors.side_by_side(paper, errors.rows_of(results, "errors", predictor=name), quantity=name)
    for row in errors.rows_of(results, "ratios", a=WITHOUT, b=WITH):
        paper = published[WITHOUT][row["sigma"]] / published[WITH][row["sigma"]]
        value, low, high = (10 ** row[key] for key in ("log10 ratio", "low", "high"))
        rows.append(
            {
                "quantity": "without / with",
                "sigma": row["sigma"],
                "paper": paper,
                "ours": value,
                "low": low,
                "high": high,
                "ours / paper": value / paper,
            }
        )
    return errors.as_table(rows, f"{printed.SOURCES['limits.table1']}; ours: means over seeds")


def says_table1(results: Results) -> tuple[str, ...]:
    """Where a model without a norm is better, and where it is not."""
    ratios = errors.rows_of(results, "ratios", a=WITHOUT, b=WITH)
    if not ratios:
        return ("One of the two kinds of model is missing, so nothing is compared.",)
    better = [row["sigma"] for row in ratios if row["high"] < 0]
    worse = [row["sigma"] for row in ratios if row["low"] > 0]
    undecided = [row["sigma"] for row in ratios if row["low"] <= 0 <= row["high"]]
    lines = []
    if better:
        lines.append(f"{AGREES}without LayerNorm the error is lower at sigma {errors.sigmas_text(better)}.")
    if worse:
        lines.append(
            f"{DIFFERS}without LayerNorm the error is higher at sigma {errors.sigmas_text(worse)}; the paper has it "
            "lower at every sigma."
        )
    if undecided:
        lines.append(f"{OPEN}at sigma {errors.sigmas_text(undecided)} the interval of the ratio holds 1.")
    numbers = [errors.in_numbers(compare_table1(results), name, quantity=name) for name in (WITH, WITHOUT)]
    return (*lines, *_seed_line(results), *(line for lines_of in numbers for line in lines_of))


def _seed_line(results: Results) -> tuple[str, ...]:
    """Intervals resample functions; how much another seed changes is seen from the pairs of single seeds."""
    single = [row for row in errors.rows_of(results, "ratios") if row["a"] != WITHOUT]
    if len({(row["a"], row["b"]) for row in single}) < 2:
        return ("One seed of each kind: what another seed would change is not known.",)
    first = [10 ** row["log10 ratio"] for row in single if row["sigma"] == SIGMAS[0]]
    last = [10 ** row["log10 ratio"] for row in single if row["sigma"] == SIGMAS[-1]]
    pairs = len(first)
    return (
        f"Intervals are over functions. Over {pairs} pairs of seeds the ratio without / with runs from "
        f"{min(first):.2g} to {max(first):.2g} at sigma {SIGMAS[0]}, and from {min(last):.2g} to {max(last):.2g} at "
        f"sigma {SIGMAS[-1]}: it is below 1 in {sum(r < 1 for r in first)} and in {sum(r < 1 for r in last)} of "
        f"{pairs}.",
    )


# ---- Table 2: by degree --------------------------------------------------------------------------------------------


def by_degree(bench: Bench, models: dict[int, tuple[str, ...]]) -> dict[str, Result]:
    """Errors of some models on each degree, and the ratio of every pair of models there."""
    tables, ratios = [], []
    for degree, names in models.items():
        matrix = bench.errors(names, polynomials(bench.scale, degree), SIGMAS)
        tables.append(errors.table(matrix, degree=degree))
        pairs = errors.all_pairs(bench.among(names))
        if pairs:
            ratios.append(errors.ratios(matrix, pairs, degree=degree))
    results: dict[str, Result] = {"errors": errors.joined(tables)}
    return results | ({"ratios": errors.joined(ratios)} if ratios else {})


def table2_models(degree: int) -> tuple[str, ...]:
    """M_n, M135 and M135AL."""
    return BY_DEGREE[degree], MIXED, MIXED_ATTENTION


def run_table2(bench: Bench) -> dict[str, Result]:
    """Degrees 1 to 5."""
    return by_degree(bench, {degree: table2_models(degree) for degree in range(1, 6)})


def compare_table2(results: Results) -> DataFrame | None:
    """All sixteen rows of the paper, the zero predictor's among them."""
    rows = []
    for degree in range(1, 6):
        ours = dict(zip((f"M{degree}", "M135", "M135AL"), table2_models(degree), strict=True)) | {"zero": "zero"}
        for label, name in ours.items():
            paper = printed.errors("limits.table2", degree=str(degree), model=label)
            rows += errors.side_by_side(
                paper, errors.rows_of(results, "errors", degree=degree, predictor=name), degree=degree, model=label
            )
    note = "the paper's zero predictor has the sampling error of 100 functions: the exact value at sigma is"
    return errors.as_table(rows, f"{printed.SOURCES['limits.table2']}; {note} sigma^2 / 3 times sum of 1 / (2 i + 1)")


def says_table2(results: Results) -> tuple[str, ...]:
    """In which order the models stand, against the paper's order."""
    same, other, undecided = [], [], 0
    for degree in range(1, 6):
        labels = dict(zip(table2_models(degree), (f"M{degree}", "M135", "M135AL"), strict=True))
        paper = {
            name: printed.errors("limits.table2", degree=str(degree), model=label) for name, label in labels.items()
        }
        for row in errors.rows_of(results, "ratios", degree=degree):
            a, b = paper[row["a"]][row["sigma"]], paper[row["b"]][row["sigma"]]
            if a == b:
                continue  # the same two decimals
            if row["low"] <= 0 <= row["high"]:
                undecided += 1
            else:
                (same if (row["log10 ratio"] < 0) == (a < b) else other).append((degree, row["sigma"]))
    total = len(same) + len(other) + undecided
    if not total:
        return ("No two models of this table are at hand, so their order is not compared.",)
    lines = []
    if same:
        agreed = f"{len(same)} of {total} pairs of models (by degree and sigma) stand in the paper's order"
        lines.append(f"{AGREES}{agreed}.")
    if other:
        degrees = ", ".join(map(str, sorted({degree for degree, _ in other})))
        lines.append(f"{DIFFERS}{len(other)} of {total} pairs stand in the opposite order (degrees {degrees}).")
    if undecided:
        lines.append(f"{OPEN}in {undecided} of {total} pairs the interval of the ratio holds 1.")
    return (*lines, *_unseen(results), *_table2_numbers(results))


def _table2_numbers(results: Results) -> tuple[str, ...]:
    """The models' numbers; the zero predictor's are the sample's."""
    whole = compare_table2(results)
    rows = [row for row in whole.to_dict("records") if row["model"] != "zero"] if whole is not None else []
    return errors.in_numbers(errors.as_table(rows, ""))


def _unseen(results: Results) -> tuple[str, ...]:
    """Section 4.3: on degrees 2 and 4, which M135 never saw, is it as good as a model of that degree?"""
    lines = []
    for degree in (2, 4):
        for row in errors.rows_of(results, "ratios", degree=degree, a=BY_DEGREE[degree], b=MIXED, sigma=1):
            value, low, high = (10 ** -row[key] for key in ("log10 ratio", "high", "low"))
            word = decided(COMPARABLE, Interval(value, low, high))
            lines.append(
                f"{word}on degree {degree}, which it never saw, M135's error at sigma 1 is {value:.2g} [{low:.2g}, "
                f"{high:.2g}] times that of the model trained on it (comparable: at most {ALIKE:g})."
            )
    return tuple(lines)


# ---- Table 3: by training interval ---------------------------------------------------------------------------------


def run_table3(bench: Bench) -> dict[str, Result]:
    """Models trained on wider and wider intervals, all tested with inputs on U(-1, 1)."""
    names = bench.among(list(INTERVALS.values()))
    matrix = bench.errors(names, polynomials(bench.scale, 1), SIGMAS)
    return {"errors": errors.table(matrix), "ratios": errors.ratios(matrix, errors.all_pairs(names))}


def compare_table3(results: Results) -> DataFrame | None:
    """The paper's four rows."""
    rows = []
    for interval, name in INTERVALS.items():
        ours = errors.rows_of(results, "errors", predictor=name)
        rows += errors.side_by_side(
            printed.errors("limits.table3", trained_on=interval), ours, **{"trained on": interval}
        )
    return errors.as_table(rows, f"{printed.SOURCES['limits.table3']}; inputs on U(-1, 1) for all")


def says_table3(results: Results) -> tuple[str, ...]:
    """Which training interval is best at which sigma, and what the widest costs."""
    here = {
        interval: {row["sigma"]: row["error"] for row in errors.rows_of(results, "errors", predictor=name)}
        for interval, name in INTERVALS.items()
    }
    here = {interval: values for interval, values in here.items() if values}
    if len(here) < 2:
        return ("Fewer than two of the four models are at hand, so nothing is compared.",)
    paper = {interval: printed.errors("limits.table3", trained_on=interval) for interval in here}
    lines, same, differ = [], [], []
    for sigma in SIGMAS:
        ours = sorted(here, key=lambda interval: here[interval][sigma])
        theirs = sorted(here, key=lambda interval: paper[interval][sigma])
        (same if ours == theirs else differ).append(sigma)
    models = f"the {len(here)} models at hand"
    if same:
        lines.append(f"{AGREES}{models} stand in the paper's order at sigma {errors.sigmas_text(same)}.")
    if differ:
        lines.append(f"{DIFFERS}they stand in another order at sigma {errors.sigmas_text(differ)}.")
    narrow, *_, wide = here
    crossing = [sigma for sigma in SIGMAS if here[wide][sigma] < here[narrow][sigma]]
    where = f"from sigma {min(crossing)} on" if crossing else "at no sigma up to 10"
    lines.append(
        f"Trained on {wide}, a model has {errors.plainly(here[wide][1] / here[narrow][1])} times the error of one "
        f"trained on {narrow} at sigma 1, and is better {where}."
    )
    growth = {interval: np.log10(values[SIGMAS[-1]] / values[SIGMAS[0]]) for interval, values in here.items()}
    lines.append(
        "Decades that the error rises from sigma 1 to 10: " + ", ".join(f"{k} {v:.1f}" for k, v in growth.items()) + "."
    )
    return (*lines, *errors.in_numbers(compare_table3(results)))


TABLE1_EXPERIMENT = Experiment(
    "limits.table1",
    "Squared error with and without LayerNorm, as functions leave the training range",
    f"{PAPER}, section 5, Table 1",
    tuple(model for models in SEEDS.values() for model in models),
    run_table1,
    says_table1,
    compare_table1,
)
TABLE2_EXPERIMENT = Experiment(
    "limits.table2",
    "Squared error by degree: trained on that degree, on degrees 1, 3, 5, and with attention only",
    f"{PAPER}, appendix C, Table 2",
    tuple(Model(name) for name in (*(BY_DEGREE[degree] for degree in range(1, 6)), MIXED, MIXED_ATTENTION)),
    run_table2,
    says_table2,
    compare_table2,
)
TABLE3_EXPERIMENT = Experiment(
    "limits.table3",
    "Squared error by training interval: wider ones reach further and cost accuracy",
    f"{PAPER}, appendix C, Table 3",
    tuple(Model(name) for name in INTERVALS.values()),
    run_table3,
    says_table3,
    compare_table3,
)
