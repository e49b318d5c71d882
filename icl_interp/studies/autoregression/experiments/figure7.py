"""Figure 7: loss against the number of heads of one layer of linear attention.

Tokens are plain states, or states twice.

Orthogonal matrices do not commute, so nothing here is exact: models are trained and tested on
sampled sequences. Heads are added at one width of the stream, so that they differ in nothing else.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pandas import DataFrame

from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Results
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_least, at_most, note, statement
from icl_interp.resampling import bootstrap
from icl_interp.results import Result, make_curve, table_of_rows
from icl_interp.studies.autoregression.experiments import models, settings
from icl_interp.studies.autoregression.experiments.models import LEARNED

RECIPE = "autoregression_tiled"
TILES = {1: "plain", 2: "states twice"}
DIMS = 5  # of the recipe's states, and the paper's
HEADS = {"smoke": (1, 4), "small": (1, 2, 4, 8, 16), "paper": (1, 2, 4, 8, 16, 32, 64)}
SECOND = (1, 16)  # numbers of heads that are trained from a second seed as well, at scale small

# Equation (6): no norm, and the authors' rate.
LAYER: Mapping[str, Any] = {"normalization_type": None, "init_std": 0.2}
# The layer of the authors' code: the stream is the token itself, and LayerNorm stands on what
# attention writes. (There the stream itself is dropped; here it stays.)
NORMED: Mapping[str, Any] = {
    "normalization_type": "LN",
    "norm_position": "output",
    "read_in": "token",
}
TRAINING: Mapping[str, Any] = {"learning_rate": 0.01}

NO_GAIN = at_most("error with 1 head / error with the most heads, plain", 1.2, 1.5, LEARNED)
GAIN = at_least("error with 1 head / error with the most heads, states twice", 1.2, 1.05, LEARNED)
HELPS = at_least(
    "error with plain states / error with states twice, with the most heads", 1.1, 1.05, LEARNED
)
COPY = (
    "In the layer without a norm a second copy adds no function: in plain coordinates each head is "
    "a form of two states and a map of a third, with one copy or two. So the least errors are "
    "equal with both, and a difference is one of training. With LayerNorm on what attention writes "
    "this does not hold: the norm of twice as many coordinates is another function."
)
WITH_NORM = "with LayerNorm on what attention writes, "
SIZES = {
    "smoke": "1 layer of linear attention, width 32, 40 steps: shows that it runs, and nothing "
    "else",
    "small": "1 layer of linear attention, of width 32 without a norm and of tokens with one, 1 to "
    "16 heads, d = 5, 20 states, 3,000 steps of Adam",
    "paper": "1 layer of linear attention, of width 32 without a norm and of tokens with one, 1 to "
    "64 heads, d = 5, 50 states, 12,000 steps of Adam with fresh batches of 1,024 (the paper: 200 "
    "epochs on a fixed set)",
}


def _model(tiles: int, heads: int, seed: int, normed: bool = False) -> models.VariedModel:
    scales = (
        tuple(scale for scale, held in HEADS.items() if heads in held) if seed == 0 else ("small",)
    )
    label = f"{TILES[tiles]}, {heads} head{'s' * (heads > 1)}"
    layer = {**LAYER, "n_heads": heads}
    if normed:
        label = f"{label}, norm on the output"
        width = DIMS * tiles
        layer |= {**NORMED, "d_model": width, "d_head": width}
    changes = {"model": layer, "task": {"tiles": tiles}, "training": TRAINING}
    return models.varied(RECIPE, label, seed, scales, **changes)


def _models(normed: bool) -> dict[tuple[int, int, int], models.VariedModel]:
    """Models of one layer by tiles, heads and seed."""
    return {
        (tiles, heads, seed): _model(tiles, heads, seed, normed)
        for tiles in TILES
        for heads in HEADS["paper"]
        for seed in ((0, 1) if heads in SECOND else (0,))
    }


MODELS = _models(normed=False)
NORMED_MODELS = _models(normed=True)


def run(setup: Setup) -> dict[str, Result]:
    """Errors by model with intervals, by point, and the quotients that are judged.

    Those of the layer with a norm on its output have names that begin with "normed".
    """
    plain = _measured(setup, MODELS)
    normed = _measured(setup, NORMED_MODELS)
    return {**plain, **{f"normed {name}": result for name, result in normed.items()}}


def _measured(
    setup: Setup, its: Mapping[tuple[int, int, int], models.VariedModel]
) -> dict[str, Result]:
    """The results of one layer; none where none of its models is here."""
    found = {}
    for key, model in its.items():
        if setup.has(model.name):
            task = models.task_of(setup.models[model.name])
            found[key] = models.point_errors(setup, model.name, task)
    if not found:
        return {}
    rows = [_row(key, each) for key, each in found.items()]
    first = next(iter(found.values()))
    curves = [each.values.mean(0) for each in found.values()]
    axes = {"model": [its[key].name for key in found], "point": first["point"].values}
    note_ = (
        f"squared error over that of predicting 0, from the second point on; {first.attrs['note']}"
    )
    return {
        "errors": table_of_rows(rows, note_),
        "points": make_curve(
            curves, axes, note="squared error over that of predicting 0, by point of the prompt"
        ),
        "quotients": table_of_rows(
            _quotients(found), "paired by block: the same matrices for both models"
        ),
    }


def _row(key: tuple[int, int, int], each: Any) -> dict[str, Any]:
    error, late = (
        bootstrap(lambda x: x, models.scored(each, late), positive=True) for late in (False, True)
    )
    names = {"states": TILES[key[0]], "heads": key[1], "seed": key[2]}
    return {
        **names,
        "error": error.value,
        "low": error.low,
        "high": error.high,
        "late error": late.value,
    }


def _quotients(found: Mapping[tuple[int, int, int], Any]) -> list[dict[str, Any]]:
    """Of 1 head over the most of them, and of plain states over states twice, seed by seed."""
    rows = []
    for seed in sorted({key[2] for key in found}):
        here = {key[:2]: models.scored(each) for key, each in found.items() if key[2] == seed}
        most = max(heads for _, heads in here)
        pairs = [(f"heads, {TILES[tiles]}", (tiles, 1), (tiles, most)) for tiles in TILES]
        pairs.append(("tiling", (1, most), (2, most)))
        for what, a, b in pairs:
            if a in here and b in here and a != b:
                i = bootstrap(lambda x, y: x / y, here[a], here[b], positive=True)
                rows.append(
                    {
                        "what": what,
                        "seed": seed,
                        "heads": most,
                        "ratio": i.value,
                        "low": i.low,
                        "high": i.high,
                    }
                )
    return rows


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """Whether more heads help, and whether the second copy of the state helps.

    Heads are counted with plain states and with states twice, in each of the two layers.
    """
    rows = errors.rows_of(results, "errors")
    normed = errors.rows_of(results, "normed errors")
    if not rows and not normed:
        return (note("No model is here, so nothing is measured."),)
    lines = [*_of_layer(results, "quotients", "", rows)]
    lines += _of_layer(results, "normed quotients", WITH_NORM, normed)
    lines.append(note(COPY))
    if rows:
        lines.append(note(_late(rows)))
    if normed:
        lines.append(note(f"With LayerNorm on what attention writes: {_late(normed)}"))
    return tuple(lines)


def _of_layer(
    results: Results, name: str, before: str, rows: Sequence[Mapping[str, Any]]
) -> list[Statement]:
    """The statements about one layer.

    Args:
        results: of the experiment.
        name: of the table of quotients.
        before: what the sentences begin with.
        rows: errors of this layer.
    """
    lines = []
    for what, rule, sentence in (
        ("heads, plain", NO_GAIN, "plain states: more heads bring no significant gain"),
        (
            "heads, states twice",
            GAIN,
            "states twice in a token: more heads lower the error significantly",
        ),
        (
            "tiling",
            HELPS,
            "duplicating the states lowers the error of a layer with many heads significantly",
        ),
    ):
        own = errors.rows_of(results, name, what=what)
        if own:
            lines.append(_states_quotient(f"{before}{sentence}", what, rule, own, rows))
    return lines


def _states_quotient(
    sentence: str,
    what: str,
    rule: Any,
    own: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
) -> Statement:
    listed = "; ".join(f"{row['ratio']:.3g} [{row['low']:.3g}, {row['high']:.3g}]" for row in own)
    kinds = ("plain", "states twice") if what == "tiling" else (what.partition(", ")[2],)
    counted = (own[0]["heads"],) if what == "tiling" else (1, own[0]["heads"])
    used = [row for row in rows if row["states"] in kinds and row["heads"] in counted]
    ends = ", ".join(_words(row, row["error"]) for row in used if row["seed"] == own[0]["seed"])
    trained = f"{len(own)} seed{'s' * (len(own) > 1)}"
    text = (
        f"{sentence}: the quotient is {listed} ({trained}; errors over that of predicting 0: "
        f"{ends})."
    )
    given = {LEARNED.quantity: max(row["error"] for row in used)}
    return statement(text, rule, *(errors.interval_of(row, "ratio") for row in own), given=given)


def _words(row: Mapping[str, Any], error: float) -> str:
    return f"{error:.3g} with {row['heads']} head{'s' * (row['heads'] > 1)} ({row['states']})"


def _late(rows: Sequence[Mapping[str, Any]]) -> str:
    listed = "; ".join(_words(row, row["late error"]) for row in rows if row["seed"] == 0)
    return f"In the last quarter of the prompt the errors over that of predicting 0 are {listed}."


def compare(results: Results) -> DataFrame | None:
    """Errors by model; the paper's figure prints no numbers."""
    found = results.get("errors")
    return found if isinstance(found, DataFrame) else None


FIGURE7_EXPERIMENT = Experiment(
    "autoregression.figure7",
    "Loss against the number of heads, with plain states and with states twice in a token",
    f"{models.WORK}: Figure 7 and section 6, non-augmented setting",
    (*MODELS.values(), *NORMED_MODELS.values()),
    run,
    states,
    compare,
    sample=models.SAMPLE,
    sizes=SIZES,
    settings=settings.FIGURE7,
)
