"""Figure 7: loss against the number of heads of one layer of linear attention.

Tokens are plain states, or states twice.

Orthogonal matrices do not commute, so nothing here is exact: models are trained and tested on
sampled sequences. Heads are added at one width of the stream, so that they differ in nothing else.
"""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from pandas import DataFrame

from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Results
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_least, at_most, note, statement
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import Result, table_of_rows
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


def _model(tiles: int, heads: int, seed: int, normed: bool) -> models.VariedModel:
    if seed == 0:
        scales = [scale for scale, held in HEADS.items() if heads in held]
    else:
        scales = ["small"]
    label = f"{TILES[tiles]}, {heads} head{'s' * (heads > 1)}"
    layer = {**LAYER, "n_heads": heads}
    if normed:
        label = f"{label}, norm on the output"
        width = DIMS * tiles
        layer |= {**NORMED, "d_model": width, "d_head": width}
    task = {"tiles": tiles}
    return models.varied(RECIPE, label, seed, scales, model=layer, task=task, training=TRAINING)


def _models(normed: bool) -> dict[tuple[int, int, int], models.VariedModel]:
    """Models of one layer by tiles, heads and seed."""
    found = {}
    for tiles in TILES:
        for heads in HEADS["paper"]:
            seeds = (0, 1) if heads in SECOND else (0,)
            for seed in seeds:
                found[tiles, heads, seed] = _model(tiles, heads, seed, normed)
    return found


MODELS = _models(normed=False)
NORMED_MODELS = _models(normed=True)


def run(setup: Setup) -> dict[str, Result]:
    """Errors by model with intervals, by point, and the quotients that are judged.

    Those of the layer with a norm on its output have names that begin with "normed".
    """
    results = _measured(setup, MODELS)
    for name, result in _measured(setup, NORMED_MODELS).items():
        results[f"normed {name}"] = result
    return results


def _measured(
    setup: Setup, its: Mapping[tuple[int, int, int], models.VariedModel]
) -> dict[str, Result]:
    """The results of one layer; none where none of its models is here."""
    found = models.errors_of(setup, its)
    if not found:
        return {}
    rows = [_row(key, each) for key, each in found.items()]
    first = next(iter(found.values()))
    note_ = (
        f"squared error over that of predicting 0, from the second point on; {first.attrs['note']}"
    )
    by_point = "squared error over that of predicting 0, by point of the prompt"
    paired = "paired by block: the same matrices for both models"
    return {
        "errors": table_of_rows(rows, note_),
        "points": models.curves_of(found, its, by_point),
        "quotients": table_of_rows(_quotients(found), paired),
    }


def _row(key: tuple[int, int, int], each: Any) -> dict[str, Any]:
    tiles, heads, seed = key
    error = _mean(models.scored(each))
    late = _mean(models.scored(each, late=True))
    row = {"states": TILES[tiles], "heads": heads, "seed": seed}
    return {**row, **models.ends(error, "error"), "late error": late.value}


def _mean(of_blocks: Any) -> Interval:
    return bootstrap(lambda x: x, of_blocks, positive=True)


def _quotients(found: Mapping[tuple[int, int, int], Any]) -> list[dict[str, Any]]:
    """Of 1 head over the most of them, and of plain states over states twice, seed by seed."""
    by_seed: dict[int, dict[tuple[int, int], Any]] = {}
    for (tiles, heads, seed), each in found.items():
        of_seed = by_seed.setdefault(seed, {})
        of_seed[tiles, heads] = models.scored(each)
    rows = []
    for seed, here in sorted(by_seed.items()):
        _, most = max(here, key=itemgetter(1))
        # What a quotient says, and the models above and below its line.
        pairs = [(f"heads, {name}", (tiles, 1), (tiles, most)) for tiles, name in TILES.items()]
        pairs.append(("tiling", (1, most), (2, most)))
        for what, a, b in pairs:
            if a in here and b in here and a != b:
                ratio = bootstrap(lambda x, y: x / y, here[a], here[b], positive=True)
                row = {"what": what, "seed": seed, "heads": most}
                rows.append({**row, **models.ends(ratio)})
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
    listed = "; ".join(map(models.ratio_text, own))
    most = own[0]["heads"]
    first_seed = own[0]["seed"]
    if what == "tiling":
        kinds = ("plain", "states twice")
        counted = (most,)
    else:
        kinds = (what.removeprefix("heads, "),)
        counted = (1, most)
    # The models of the quotients: their errors, those of the first seed in words.
    found = []
    words = []
    for row in rows:
        if row["states"] in kinds and row["heads"] in counted:
            found.append(row["error"])
            if row["seed"] == first_seed:
                words.append(_words(row, row["error"]))
    ends = ", ".join(words)
    trained = f"{len(own)} seed{'s' * (len(own) > 1)}"
    text = (
        f"{sentence}: the quotient is {listed} ({trained}; errors over that of predicting 0: "
        f"{ends})."
    )
    ratios = map(models.ratio_of, own)
    return statement(text, rule, *ratios, given={LEARNED.quantity: max(found)})


def _words(row: Mapping[str, Any], error: float) -> str:
    return f"{error:.3g} with {row['heads']} head{'s' * (row['heads'] > 1)} ({row['states']})"


def _late(rows: Sequence[Mapping[str, Any]]) -> str:
    words = [_words(row, row["late error"]) for row in rows if row["seed"] == 0]
    listed = "; ".join(words)
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
