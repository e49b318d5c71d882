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
from icl_interp.results import Result, make_curve, table_of_rows
from icl_interp.studies.autoregression.experiments import models, settings
from icl_interp.studies.autoregression.experiments.models import LEARNED

RECIPE = "autoregression_rotations"
LINEAR, LINEAR_MLP, SOFTMAX, SOFTMAX_MLP = "linear", "linear + MLP", "softmax", "softmax + MLP"
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
    scales = tuple(scale for scale, seeds in SEEDS.items() if seed in seeds)
    return models.varied(RECIPE, kind, seed, scales, model=CHANGES[kind])


MODELS = {(kind, seed): _model(kind, seed) for kind in CHANGES for seed in SEEDS["paper"]}


def run(setup: Setup) -> dict[str, Result]:
    """Errors by model with intervals, by point, and the quotients of softmax over linear."""
    found: dict[tuple[str, int], DataArray] = {}
    for key, model in MODELS.items():
        if setup.has(model.name):
            found[key] = models.point_errors(
                setup, model.name, models.task_of(setup.models[model.name])
            )
    if not found:
        return {}
    rows = []
    for (kind, seed), each in found.items():
        i = bootstrap(lambda x: x, models.scored(each), positive=True)
        rows.append({"model": kind, "seed": seed, "error": i.value, "low": i.low, "high": i.high})
    quotients = []
    for a, b in ((SOFTMAX, LINEAR), (SOFTMAX_MLP, LINEAR_MLP)):
        for seed in sorted({key[1] for key in found}):
            if (a, seed) in found and (b, seed) in found:
                i = _quotient(found[a, seed], found[b, seed])
                quotients.append(
                    {"a": a, "b": b, "seed": seed, "ratio": i.value, "low": i.low, "high": i.high}
                )
    first = next(iter(found.values()))
    axes = {"model": [MODELS[key].name for key in found], "point": first["point"].values}
    note_ = (
        f"squared error over that of predicting 0, from the second point on; {first.attrs['note']}"
    )
    return {
        "errors": table_of_rows(rows, note_),
        "points": make_curve(
            [each.values.mean(0) for each in found.values()], axes, note="by point of the prompt"
        ),
        "quotients": table_of_rows(quotients, "paired by block: the same matrices for both models"),
    }


def _quotient(a: DataArray, b: DataArray) -> Interval:
    return bootstrap(lambda x, y: x / y, models.scored(a), models.scored(b), positive=True)


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """Whether softmax keeps a layer from what linear scores reach, without and with an MLP."""
    rows, lines = errors.rows_of(results, "errors"), []
    if not rows:
        return (note("No model is here, so nothing is measured."),)
    for a, b in ((SOFTMAX, LINEAR), (SOFTMAX_MLP, LINEAR_MLP)):
        own = errors.rows_of(results, "quotients", a=a, b=b)
        if own:
            lines.append(_states_pair(a, b, own, rows))
    return tuple(lines)


def _states_pair(
    a: str, b: str, own: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]
) -> Statement:
    ends = {kind: [row["error"] for row in rows if row["model"] == kind] for kind in (a, b)}
    listed = {
        kind: ", ".join(f"{error:.2g}" for error in errors_) for kind, errors_ in ends.items()
    }
    quotients = ", ".join(
        f"{row['ratio']:.3g} [{row['low']:.3g}, {row['high']:.3g}]" for row in own
    )
    text = (
        f"softmax is incompatible with learning the map of matrices that commute: {a} ends at "
        f"{listed[a]} of the error of predicting 0, {b} at {listed[b]}, quotients {quotients} "
        f"({len(own)} seed{'s' * (len(own) > 1)}). A quotient says how far apart they end, not "
        "that softmax could not do it in principle."
    )
    return statement(
        text,
        FAILS,
        *(errors.interval_of(row, "ratio") for row in own),
        given={LEARNED.quantity: max(ends[b])},
    )


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
