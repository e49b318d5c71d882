"""Figure 9: layers with and without softmax and MLP on rotations, which commute.

All models have the queries of the state before and learned weights of positions, so that linear
scores can reach an error of 0 (Proposition 6); they differ in what makes a pattern of the scores,
and in an MLP after attention.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pandas import DataFrame
from xarray import DataArray

from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Results
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_least, note, statement
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import Result, table_of_rows
from icl_interp.studies.autoregression.experiments import models, settings
from icl_interp.studies.autoregression.experiments.models import LEARNED

RECIPE = "autoregression_rotations"
LINEAR = "linear"
LINEAR_MLP = "linear + MLP"
SOFTMAX = "softmax"
SOFTMAX_MLP = "softmax + MLP"
PAIRS = ((SOFTMAX, LINEAR), (SOFTMAX_MLP, LINEAR_MLP))
CHANGES: Mapping[str, dict[str, Any]] = {
    LINEAR: {},
    LINEAR_MLP: {"attn_only": False, "d_mlp": 32},
    SOFTMAX: {"score_fn": "softmax"},
    SOFTMAX_MLP: {"score_fn": "softmax", "attn_only": False, "d_mlp": 32},
}
SEEDS = {"smoke": (0,), "small": (0, 1), "paper": (0, 1, 2)}

FAILS = at_least("error with softmax / error with linear scores", 10.0, 2.0, LEARNED)
SIZES = {
    "smoke": "1 layer of attention, width 32, 6 heads, 40 steps: shows that it runs, and nothing "
    "else",
    "small": "1 layer of attention, width 32, 6 heads, d = 6, 10 states, 4,000 steps of Adam",
    "paper": "1 layer of attention, width 32, 6 heads, d = 6, 50 states, 16,000 steps of Adam",
}


def _model(kind: str, seed: int) -> models.VariedModel:
    scales = [scale for scale, seeds in SEEDS.items() if seed in seeds]
    fields = CHANGES[kind]
    return models.varied(RECIPE, kind, seed, scales, model=fields)


def _models() -> dict[tuple[str, int], models.VariedModel]:
    """Models by kind and seed."""
    found = {}
    for kind in CHANGES:
        for seed in SEEDS["paper"]:
            found[kind, seed] = _model(kind, seed)
    return found


MODELS = _models()


def run(setup: Setup) -> dict[str, Result]:
    """Errors by model with intervals, by point, and the quotients of softmax over linear."""
    found = models.errors_of(setup, MODELS)
    if not found:
        return {}
    rows = []
    for (kind, seed), each in found.items():
        of_blocks = models.scored(each)
        error = bootstrap(lambda x: x, of_blocks, positive=True)
        rows.append({"model": kind, "seed": seed, **models.ends(error, "error")})
    # Both models of a quotient have the same seed.
    quotients = []
    for a, b in PAIRS:
        for seed in SEEDS["paper"]:
            if (a, seed) in found and (b, seed) in found:
                ratio = _quotient(found[a, seed], found[b, seed])
                quotients.append({"a": a, "b": b, "seed": seed, **models.ends(ratio)})
    first = next(iter(found.values()))
    note_ = (
        f"squared error over that of predicting 0, from the second point on; {first.attrs['note']}"
    )
    paired = "paired by block: the same matrices for both models"
    return {
        "errors": table_of_rows(rows, note_),
        "points": models.curves_of(found, MODELS, "by point of the prompt"),
        "quotients": table_of_rows(quotients, paired),
    }


def _quotient(a: DataArray, b: DataArray) -> Interval:
    above = models.scored(a)
    below = models.scored(b)
    return bootstrap(lambda x, y: x / y, above, below, positive=True)


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """Whether softmax keeps a layer from what linear scores reach, without and with an MLP."""
    rows = errors.rows_of(results, "errors")
    if not rows:
        return (note("No model is here, so nothing is measured."),)
    lines = []
    for a, b in PAIRS:
        own = errors.rows_of(results, "quotients", a=a, b=b)
        if own:
            lines.append(_states_pair(a, b, own, rows))
    return tuple(lines)


def _states_pair(
    a: str, b: str, own: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]
) -> Statement:
    softmax = _errors_of(a, rows)
    linear = _errors_of(b, rows)
    quotients = ", ".join(map(models.ratio_text, own))
    text = (
        f"softmax is incompatible with learning the map of matrices that commute: {a} ends at "
        f"{_listed(softmax)} of the error of predicting 0, {b} at {_listed(linear)}, quotients "
        f"{quotients} ({len(own)} seed{'s' * (len(own) > 1)}). A quotient says how far apart they "
        "end, not that softmax could not do it in principle."
    )
    ratios = map(models.ratio_of, own)
    given = {LEARNED.quantity: max(linear)}
    return statement(text, FAILS, *ratios, given=given)


def _errors_of(kind: str, rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """The errors of all seeds of a kind."""
    return [row["error"] for row in rows if row["model"] == kind]


def _listed(found: Sequence[float]) -> str:
    return ", ".join(f"{error:.2g}" for error in found)


def compare(results: Results) -> DataFrame | None:
    """Errors by model; the paper's figure prints no numbers."""
    found = results.get("errors")
    return found if isinstance(found, DataFrame) else None


FIGURE9_EXPERIMENT = Experiment(
    "autoregression.figure9",
    "With and without softmax and MLP on matrices that commute",
    f"{models.WORK}: Figure 9, section 5.1 and appendix B",
    tuple(MODELS.values()),
    run,
    states,
    compare,
    sample=models.SAMPLE,
    sizes=SIZES,
    settings=settings.FIGURE9,
)
