"""Figure 3: weights of a unit of diagonal linear attention after training.

Matrices W are unitary or rotations.

Training is gradient descent on the exact loss, from several random starts. What is shown of a
setting is the run of least loss, and what is said is about all runs: d / 2 heads suffice for
rotations, which does not mean that descent finds a loss of 0.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
import torch
from pandas import DataFrame

from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Results
from icl_interp.experiments.settings import Setting, not_given
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_most, note, share, statement
from icl_interp.results import Result, make_array, table_of_rows
from icl_interp.studies.autoregression.experiments import models
from icl_interp.studies.autoregression.experiments.models import FOUND, Unit, Weights
from icl_interp.theory import autoregression as theory

UNITARY = "unitary"
PAIRED = "rotations"
# What the figure shows first, then other numbers of heads for rotations. Sizes of the authors'
# code: d = 10, T = 20.
SETTINGS: Mapping[str, tuple[Unit, ...]] = {
    "smoke": (Unit(3, 3, 5, False, 0.02), Unit(4, 2, 5, True, 0.02), Unit(4, 4, 5, True, 0.02)),
    "small": (
        Unit(10, 10, 20, False, 0.01),
        Unit(4, 2, 8, True, 0.01),
        Unit(4, 3, 8, True, 0.01),
        Unit(4, 4, 8, True, 0.01),
        Unit(10, 5, 20, True, 0.002),
        Unit(10, 10, 20, True, 0.002),
    ),
}
SETTINGS = {**SETTINGS, "paper": SETTINGS["small"]}
# Starts, and steps at most.
RUNS = {"smoke": (4, 500), "small": (16, 10_000), "paper": (64, 40_000)}
# What is measured of the weights of a run, see `_distance`.
DISTANCES = (
    "|p_T C - C*|",
    "other |p_t / p_T|",
    "least ratio",
    "largest ratio",
    "largest |cos(a_h, b_h')|",
)

MINIMUM = at_most("largest |p_T BᵀA - I| and |p_t / p_T|", 0.01, 0.1)
ORTHOGONAL = at_most("largest |cos(a_h, b_h')| of different heads", 0.01, 0.1)
ARRIVE = share("share of runs that find a minimum")
TRIGONOMETRY = at_most("largest |p_{T-1} / p_T + 1/2|", 0.02, 0.1)
EXACT = at_most("loss over that of predicting 0", 1e-12)


def run(setup: Setup) -> dict[str, Result]:
    """All runs in a table, and the weights of the best runs.

    The best run is given for the two settings that the figure shows.
    """
    n_seeds, n_steps = RUNS[setup.preset.name]
    settings = SETTINGS[setup.preset.name]
    rows = []
    best = {}
    for unit in settings:
        weights, taken = models.descend(setup, unit, n_seeds, n_steps)
        losses = []
        for row in _rows(unit, weights):
            rows.append({"steps": taken, **row})
            losses.append(row["loss"])
        # A setting of which all runs diverged has no best one.
        if np.isfinite(losses).any() and unit in shown(settings):
            least = int(np.nanargmin(losses))
            best |= _weights(unit, weights, least)
    words = (
        f"plain gradient descent on the exact loss of all lengths, {n_seeds} starts of each "
        "setting; loss: mean over the lengths, 1 for predicting 0"
    )
    needed = [_needed(unit) for unit in settings]
    note_ = "Lemmas 2 and 3: the loss of the paper's constructions with as few heads as these"
    return {"runs": table_of_rows(rows, words), "needed": table_of_rows(needed, note_), **best}


def shown(settings: Sequence[Unit]) -> tuple[Unit, Unit]:
    """The settings of the figure: unitary, and rotations with d / 2 heads and the largest d."""
    unitary = []
    halves = []
    for unit in settings:
        if not unit.paired:
            unitary.append(unit)
        elif 2 * unit.heads == unit.d:
            halves.append(unit)
    largest = max(halves, key=attrgetter("d"))
    return unitary[0], largest


def _weights(unit: Unit, weights: Weights, run_: int) -> dict[str, Result]:
    """A, B, C and P of one run, scaled so that p_T of the longest prompt is 1.

    (C / c, c p) has the loss of (C, p).
    """
    A = weights.A[run_]
    B = weights.B[run_]
    P = weights.P[run_]
    last = float(P[-1, -1])
    product = last * B.mT @ A
    rows = (P / last).tril(1)
    # All axes count from 1.
    n_queries, n_tokens = P.shape
    coordinates = range(1, unit.d + 1)
    axes = {"head": range(1, unit.heads + 1), "coordinate": coordinates}
    square = {"row": coordinates, "column": coordinates}
    places = {"query": range(1, n_queries + 1), "token": range(1, n_tokens + 1)}
    where = f"{unit.name}, T = {unit.n_tokens}, run {run_} of {len(weights.A)}: least loss"
    of_rows = f"{where}; over p_T. The query is the last token but one"
    return {
        f"A, {unit.law}": make_array(A.numpy(), axes, note=where),
        f"B, {unit.law}": make_array(B.numpy(), axes, note=where),
        f"BᵀA, {unit.law}": make_array(product.numpy(), square, note=f"{where}; times p_T"),
        f"P, {unit.law}": make_array(rows.numpy(), places, note=of_rows),
    }


def _rows(unit: Unit, weights: Weights) -> list[dict[str, Any]]:
    """What came out of each run."""
    slopes = models.gradients(unit, weights)
    rows = []
    for i, loss in enumerate(models.loss_of(unit, weights).tolist()):
        row = {
            "law": unit.law,
            "d": unit.d,
            "H": unit.heads,
            "T": unit.n_tokens,
            "seed": i,
            "loss": max(loss, 0.0),
        }
        steepest = [float(slope[i].abs().max()) for slope in slopes]
        row["largest slope"] = max(steepest)
        # Of a run that diverged nothing else is known.
        if np.isfinite(loss):
            row |= _distance(unit, weights.A[i], weights.B[i], weights.P[i])
        else:
            row |= dict.fromkeys(DISTANCES, np.nan)
        row["found"] = bool(loss <= FOUND)
        rows.append(row)
    return rows


def _distance(unit: Unit, A: torch.Tensor, B: torch.Tensor, P: torch.Tensor) -> dict[str, float]:
    """How far weights are from the minimisers of the propositions, over all lengths: `DISTANCES`.

    The ratios are p_{T-1} / p_T.
    """
    product = theory.head_product(A, B)
    distance = theory.orthogonal_distance if unit.paired else theory.unitary_distance
    products = []
    others = []
    ratios = []
    # Row t has weights for t + 2 tokens, and zeros after them.
    for t, row in enumerate(P):
        p = row[: t + 2]
        far = distance(product, p)
        products.append(float(far.product))
        others.append(float(far.positions))
        ratios.append(float(p[-2] / p[-1]))
    cosine = float(theory.head_products(A, B).largest)
    numbers = (max(products), max(others), min(ratios), max(ratios), cosine)
    return dict(zip(DISTANCES, numbers, strict=True))


def _needed(unit: Unit) -> dict[str, Any]:
    """The fewest heads with which the loss can be 0, and the loss of such weights.

    They are the paper's weights with as many heads.
    """
    if unit.paired:
        layer = theory.orthogonal_heads(unit.d, unit.n_tokens)
        loss_of = theory.orthogonal_loss
    else:
        layer = theory.unitary_heads(unit.d, unit.n_tokens)
        loss_of = theory.unitary_loss
    product = theory.head_product(layer.queries, layer.values)
    loss = abs(float(loss_of(product, layer.positions)))
    heads = len(layer.queries)
    return {"law": unit.law, "d": unit.d, "heads": heads, "loss": loss / unit.d}


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """Where descent ends for unitary W, and that d / 2 heads suffice for rotations.

    A note says how often descent finds weights that suffice.
    """
    rows = errors.rows_of(results, "runs")
    if not rows:
        return (note("Nothing is measured."),)
    lines: list[Statement] = []
    for (law, d, heads), own in by_setting(rows, "law", "d", "H").items():
        if law == UNITARY:
            lines += _unitary(own)
        else:
            lines += _rotations(own, half=2 * heads == d, whole=heads >= d)
    return (*lines, *_existence(results))


def by_setting(
    rows: Sequence[Mapping[str, Any]], *names: str
) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    """Rows by what they hold in several columns, in the order of the first of each kind."""
    setting_of = itemgetter(*names)
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        own = found.setdefault(setting_of(row), [])
        own.append(row)
    return found


def _unitary(rows: Sequence[Mapping[str, Any]]) -> list[Statement]:
    """d heads: all starts must end at the minimiser of Proposition 3."""
    product, others = errors.columns_of(rows, "|p_T C - C*|", "other |p_t / p_T|")
    cosines = [row["largest |cos(a_h, b_h')|"] for row in rows]
    far = np.maximum(product, others).tolist()
    where = _where(rows)
    ended = (
        f"{where}: gradient descent on the exact loss ends at the minimum of Proposition 3, p_T "
        f"BᵀA = I and no weight on other tokens, in {_count(rows)}; the largest deviation is "
        f"{_largest(far)}."
    )
    apart = (
        f"{where}: heads are orthogonal, a_h · b_h' = 0 for h ≠ h': the largest |cosine| between "
        f"them is {_largest(cosines)}."
    )
    return [statement(ended, MINIMUM, *far), statement(apart, ORTHOGONAL, *cosines)]


def _rotations(rows: Sequence[Mapping[str, Any]], *, half: bool, whole: bool) -> list[Statement]:
    """With d / 2 heads the paper shows a run that converged.

    With more heads nothing is promised, so what is found is a note.
    """
    where = _where(rows)
    found = [row for row in rows if row["found"]]
    ends = f"the losses of the other starts, over that of predicting 0, are {_others(rows)}"
    finds = f"gradient descent finds a minimum in {_count(rows)}; {ends}"
    if not half and whole:
        return [note(f"{where}, as many heads as coordinates: {finds}.")]
    if not half:
        return [note(f"{where}, more heads than the d / 2 that suffice: {finds}.")]
    text = f"{where}: {finds} (the paper's Figure 3 shows one run, which found it)."
    arrived = models.share_of_runs(len(found), len(rows))
    lines = [statement(text, ARRIVE, arrived)]
    if found:
        least, largest = errors.columns_of(found, "least ratio", "largest ratio")
        # Of each run, how far its ratios are from that of Proposition 6.
        off = np.maximum(abs(least + 0.5), abs(largest + 0.5)).tolist()
        text = (
            f"{where}: where a minimum is found, P holds the formula 2 cos(θ) R - I = R²: "
            f"p_{{T-1}} / p_T is between {least.min():.3f} and "
            f"{largest.max():.3f} for all lengths of the prompt, "
            "where Proposition 6 asks for -1/2."
        )
        lines.append(statement(text, TRIGONOMETRY, *off))
    return lines


def _existence(results: Results) -> list[Statement]:
    lines = []
    for law in (UNITARY, PAIRED):
        rows = errors.rows_of(results, "needed", law=law)
        if rows:
            row = max(rows, key=itemgetter("d"))
            heads = "d" if law == UNITARY else "d / 2"
            lemma = 2 if law == UNITARY else 3
            text = (
                f"{law}, d = {row['d']}: {heads} = {row['heads']} heads suffice for a loss of 0 "
                f"(the weights of Lemma {lemma} have {row['loss']:.1g}); this "
                "says that such weights exist, not that training finds them."
            )
            losses = map(itemgetter("loss"), rows)
            lines.append(statement(text, EXACT, *losses, kind="formula"))
    return lines


def _where(rows: Sequence[Mapping[str, Any]]) -> str:
    row = rows[0]
    return f"{row['law']}, d = {row['d']}, {row['H']} heads, up to T = {row['T']} tokens"


def _count(rows: Sequence[Mapping[str, Any]]) -> str:
    n_found = sum(row["found"] for row in rows)
    return f"{n_found} of {len(rows)} runs"


def _largest(values: Sequence[float]) -> str:
    if np.isfinite(values).all():
        return f"{max(values):.2g}"
    return "not defined, as a run diverged"


def _others(rows: Sequence[Mapping[str, Any]]) -> str:
    """Where the runs that find no minimum end."""
    ends = []
    n_diverged = 0
    for row in rows:
        if not np.isfinite(row["loss"]):
            n_diverged += 1
        elif not row["found"]:
            ends.append(row["loss"])
    words = []
    if ends:
        words.append(f"{min(ends):.2g} to {max(ends):.2g}")
    if n_diverged:
        words.append(f"{n_diverged} diverged")
    return ", ".join(words) or "none"


def compare(results: Results) -> DataFrame | None:
    """Runs that find a minimum, by setting.

    The paper shows one run of each kind and gives no numbers.
    """
    rows = errors.rows_of(results, "runs")
    if not rows:
        return None
    table = []
    for (law, d, heads, n_tokens), own in by_setting(rows, "law", "d", "H", "T").items():
        (losses,) = errors.columns_of(own, "loss")
        row = {"law": law, "d": d, "heads": heads, "tokens": n_tokens, "runs": len(own)}
        row["find a minimum"] = sum(map(itemgetter("found"), own))
        row["least loss"] = np.nan
        row["median"] = np.nan
        if np.isfinite(losses).any():
            row["least loss"] = float(np.nanmin(losses))
            row["median"] = float(np.nanmedian(losses))
        table.append(row)
    return table_of_rows(table, "loss: over that of predicting 0; a minimum is found below 0.001")


def _sizes_of(paired: bool) -> dict[str, str]:
    """Units of one law at each scale."""
    found = {}
    for scale, units in SETTINGS.items():
        words = []
        for unit in units:
            if unit.paired == paired:
                size = f"d = {unit.d}, H = {unit.heads}, T = {unit.n_tokens}"
                words.append(f"{size}, rate {unit.rate:g}")
        found[scale] = "; ".join(words)
    return found


def _most_steps() -> dict[str, str]:
    """The largest number of steps at each scale."""
    return {scale: f"{steps:,} at most" for scale, (_, steps) in RUNS.items()}


UNITARY_CODE = "the authors' code, unitary.py"
ROTATED_CODE = "the authors' code, orthogonal.py"
WORK_AND_OURS = (
    Setting("unitary", "d = 10, H = 10, T = 20, rate 0.01", UNITARY_CODE, _sizes_of(paired=False)),
    Setting("steps, unitary", "100", UNITARY_CODE, _most_steps()),
    Setting("rotations", "d = 10, H = 8, T = 20, rate 0.001", ROTATED_CODE, _sizes_of(paired=True)),
    Setting("steps, rotations", "100,000", ROTATED_CODE, _most_steps()),
    Setting("start", "normal, deviation 0.1", UNITARY_CODE, "normal, deviation 0.1"),
    not_given("starts of each", {scale: str(starts) for scale, (starts, _) in RUNS.items()}),
)
FIGURE3_EXPERIMENT = Experiment(
    "autoregression.figure3",
    "A, B, BᵀA and P of a trained unit, for unitary matrices and for rotations",
    f"{models.WORK}: Figure 3, Propositions 3 and 6, Lemmas 2 and 3",
    (),
    run,
    states,
    compare,
    sample="plain gradient descent on exact losses: 4, 16 or 64 random starts of each setting",
    settings=WORK_AND_OURS,
)
