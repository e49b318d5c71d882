"""Figure 2 of Naim & Asher (2025): models trained on one degree or several, by degree."""

from pandas import DataFrame

from icl_interp.analyses.claim import LEARNED_R2
from icl_interp.analyses.criterion import Precondition
from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Model, Results
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_most, note, statement
from icl_interp.resampling import Interval
from icl_interp.results import Result
from icl_interp.studies.limits.claims.error_rates import ALIKE
from icl_interp.studies.limits.experiments import printed, settings
from icl_interp.studies.limits.experiments.printed import PAPER
from icl_interp.studies.limits.experiments.runs import HIGHER, LOWER, times
from icl_interp.studies.limits.experiments.table2 import (
    BY_DEGREE,
    LABELS,
    MIXED,
    MIXED_ATTENTION,
    MODELS,
    by_degree,
    matrices,
    table2_models,
    table2_rates,
)

CURRICULUM = "degrees_123_curriculum"
CURRICULUM_ATTENTION = "degrees_123_curriculum_attn_only"
GAPS = {MIXED: CURRICULUM, MIXED_ATTENTION: CURRICULUM_ATTENTION}  # first row: second row

OWN_R2 = "R2 of the model trained on the degree"

COMPARABLE = at_most(  # the factor of the claims `degrees_alike` and `unseen_classes`
    "error / error",
    ALIKE,
    None,
    Precondition(
        OWN_R2,
        (LEARNED_R2, 1.0),
        "The model trained on it has R² {value:.2f} only: it has not learned.",
    ),
)

BETTER = at_most("error / error", LOWER, HIGHER)


def run_figure2(setup: Setup) -> dict[str, Result]:
    """Table 2's models and the curricula over degrees 1 to 3, on degrees 1 to 5."""
    models = {degree: (*table2_models(degree), *GAPS.values()) for degree in range(1, 6)}
    return by_degree(setup, matrices(setup, models))


def compare_rates(results: Results) -> DataFrame | None:
    """Error rates beside the paper's Table 2, whose numbers the curves show.

    Errors are in units of the zero predictor's.
    """
    rows = []
    for degree in range(1, 6):
        for name, paper in table2_rates(degree).items():
            ours = []
            for row in errors.rows_of(results, "errors", degree=degree, predictor=name):
                rate = dict(row)
                rate["error"] = row["error_rate"]
                rate["low"] = row["rate_low"]
                rate["high"] = row["rate_high"]
                ours.append(rate)
            label = LABELS.get(name, f"M{degree}")
            rows += errors.side_by_side(paper, ours, degree=degree, model=label)
    what = f"{printed.SOURCES['limits.table2']}, divided by its zero predictor's; ours: r_eps"
    return errors.as_table(rows, what)


def states_figure2(results: Results) -> tuple[Statement, ...]:
    """Unseen degrees: gaps (1, 3, 5) against the curriculum (1, 2, 3) and single-degree models.

    The latter are models of that very degree.
    """
    lines = []
    for degree in (2, 4):
        name = BY_DEGREE[degree]
        own = _ratio(results, degree, MIXED, name)
        if not own:
            continue
        text = (
            f"on degree {degree}, which it never saw, M135's error at sigma 1 is "
            f"{factor_text(own)} times that of the model trained on it (one run of each)."
        )
        (row,) = errors.rows_of(results, "errors", degree=degree, predictor=name, sigma=1)
        lines.append(statement(text, COMPARABLE, own, given={OWN_R2: row["r2"]}))
    for with_gaps, curriculum in GAPS.items():
        lines += _gaps_against(results, with_gaps, curriculum)
    lines += map(note, errors.in_numbers(compare_rates(results)))
    return tuple(lines) or (note("The models that would be compared are missing."),)


def _gaps_against(results: Results, with_gaps: str, curriculum: str) -> list[Statement]:
    """Training with gaps against a curriculum, on degree 4; none where a model is missing."""
    gaps = _ratio(results, 4, with_gaps, curriculum)
    if gaps is None:
        return []
    found = []
    for name in (with_gaps, curriculum):
        rows = errors.rows_of(results, "errors", degree=4, predictor=name, sigma=1)
        found.append([row["error"] for row in rows])
    layers = " with attention layers only" if with_gaps == MIXED_ATTENTION else ""
    text = (
        f"on degree 4, unseen by both, training with gaps (1, 3, 5){layers} has "
        f"{factor_text(gaps)} times the error of the curriculum (1, 2, 3), by functions; which "
        "training is better is a question about runs, and there is one of each. Degree 4 lies "
        "inside the family of degree 5 and outside that of degree 3: this is no evidence for "
        "gaps as such."
    )
    return [statement(text, BETTER, times(*found))]


def factor_text(ratio: Interval) -> str:
    """A factor and its interval, as words."""
    return f"{ratio.value:.2g} [{ratio.low:.2g}, {ratio.high:.2g}]"


def _ratio(results: Results, degree: int, a: str, b: str) -> Interval | None:
    """error a / error b at sigma 1 with its interval, in whichever order the pair is stored."""
    for x, y, sign in ((a, b, 1), (b, a, -1)):
        for row in errors.rows_of(results, "ratios", degree=degree, a=x, b=y, sigma=1):
            value = sign * row["log10 ratio"]
            ends = (sign * row["low"], sign * row["high"])
            return Interval(10**value, 10 ** min(ends), 10 ** max(ends))
    return None


FIGURE2_EXPERIMENT = Experiment(
    "limits.figure2",
    "Generalisation across degrees: one degree, gaps (1, 3, 5) and curriculum (1, 2, 3), each with "
    "and without MLP",
    f"{PAPER}, section 4.3, Figure 2",
    tuple(map(Model, (*MODELS, *GAPS.values()))),
    run_figure2,
    states_figure2,
    compare_rates,
    settings=settings.SETTINGS["figure2"],
)
