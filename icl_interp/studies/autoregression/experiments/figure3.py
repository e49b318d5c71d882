"""Figure 3: weights of a unit of diagonal linear attention after training.

Matrices W are unitary or rotations.

Gradient descent on the exact loss, from several random starts. What is shown of a setting is the
run of least loss, and what is said is about all runs: d / 2 heads suffice for rotations, which does
not mean that descent finds it.
"""

from collections.abc import Mapping, Sequence
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

UNITARY, PAIRED = "unitary", "rotations"
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
RUNS = {
    "smoke": (4, 500),
    "small": (16, 10_000),
    "paper": (64, 40_000),
}  # starts, and steps at most

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
    settings, rows, best = SETTINGS[setup.preset.name], [], {}
    for unit in settings:
        weights, taken = models.descend(setup, unit, n_seeds, n_steps)
        found = [{"steps": taken, **row} for row in _rows(unit, weights)]
        rows += found
        losses = [row["loss"] for row in found]
        if np.isfinite(losses).any() and unit in shown(settings):
            best |= _weights(unit, weights, int(np.nanargmin(losses)))
    words = (
        f"plain gradient descent on the exact loss of all lengths, {n_seeds} starts of each "
        "setting; loss: mean over the lengths, 1 for predicting 0"
    )
    needed = [_needed(unit) for unit in settings]
    note_ = "Lemmas 2 and 3: the loss of the paper's constructions with as few heads as these"
    return {"runs": table_of_rows(rows, words), "needed": table_of_rows(needed, note_), **best}


def shown(settings: Sequence[Unit]) -> tuple[Unit, Unit]:
    """The settings of the figure: unitary, and rotations with d / 2 heads and the largest d."""
    halves = [unit for unit in settings if unit.paired and 2 * unit.heads == unit.d]
    return next(unit for unit in settings if not unit.paired), max(halves, key=lambda unit: unit.d)


def _weights(unit: Unit, weights: Weights, run_: int) -> dict[str, Result]:
    """A, B, C and P of one run, scaled so that p_T of the longest prompt is 1.

    (C / c, c p) has the loss of (C, p).
    """
    A, B, P = (each[run_] for each in weights)
    axes = {"head": range(1, unit.heads + 1), "coordinate": range(1, unit.d + 1)}
    square = {"row": range(1, unit.d + 1), "column": range(1, unit.d + 1)}
    last = float(P[-1, -1])
    where = f"{unit.name}, T = {unit.n_tokens}, run {run_} of {len(weights.A)}: least loss"
    return {
        f"A, {unit.law}": make_array(A.numpy(), axes, note=where),
        f"B, {unit.law}": make_array(B.numpy(), axes, note=where),
        f"BᵀA, {unit.law}": make_array(
            (last * B.mT @ A).numpy(), square, note=f"{where}; times p_T"
        ),
        f"P, {unit.law}": make_array(
            (P / last).tril(1).numpy(),
            {"query": range(1, len(P) + 1), "token": range(1, P.shape[1] + 1)},
            note=f"{where}; over p_T. The query is the last token but one",
        ),
    }


def _rows(unit: Unit, weights: Weights) -> list[dict[str, Any]]:
    """What came out of each run."""
    slopes = models.gradients(unit, weights)
    rows = []
    for i, loss in enumerate(models.loss_of(unit, weights).tolist()):
        A, B, P = (each[i] for each in weights)
        row = {
            "law": unit.law,
            "d": unit.d,
            "H": unit.heads,
            "T": unit.n_tokens,
            "seed": i,
            "loss": max(loss, 0.0),
        }
        row["largest slope"] = max(float(slope[i].abs().max()) for slope in slopes)
        far = _distance(unit, A, B, P) if np.isfinite(loss) else (np.nan,) * 4
        names = ("|p_T C - C*|", "other |p_t / p_T|", "least ratio", "largest ratio")
        row |= dict(zip(names, far, strict=True))
        row["largest |cos(a_h, b_h')|"] = (
            float(theory.head_products(A, B).largest) if np.isfinite(loss) else np.nan
        )
        row["found"] = bool(loss <= FOUND)
        rows.append(row)
    return rows


def _distance(
    unit: Unit, A: torch.Tensor, B: torch.Tensor, P: torch.Tensor
) -> tuple[float, float, float, float]:
    """How far weights are from the minimisers of the propositions, over all lengths.

    The numbers: the distance of C, that of p, and the least and largest p_{T-1} / p_T.
    """
    product = theory.head_product(A, B)
    rows = [row[: t + 2] for t, row in enumerate(P)]
    ratios = [float(p[-2] / p[-1]) for p in rows]
    if unit.paired:
        far = [theory.orthogonal_distance(product, p) for p in rows]
    else:
        far = [theory.unitary_distance(product, p) for p in rows]
    products, others = (
        max(float(getattr(each, name)) for each in far) for name in ("product", "positions")
    )
    return products, others, min(ratios), max(ratios)


def _needed(unit: Unit) -> dict[str, Any]:
    """The fewest heads with which the loss can be 0, and the loss of such weights.

    They are the paper's weights with as many heads.
    """
    layer = (theory.orthogonal_heads if unit.paired else theory.unitary_heads)(
        unit.d, unit.n_tokens
    )
    loss = (theory.orthogonal_loss if unit.paired else theory.unitary_loss)(
        theory.head_product(layer.queries, layer.values), layer.positions
    )
    return {
        "law": unit.law,
        "d": unit.d,
        "heads": len(layer.queries),
        "loss": abs(float(loss)) / unit.d,
    }


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """Where descent ends for unitary W, and that d / 2 heads suffice for rotations.

    A note says how often descent finds weights that suffice.
    """
    rows = errors.rows_of(results, "runs")
    if not rows:
        return (note("Nothing is measured."),)
    settings = list(dict.fromkeys((row["law"], row["d"], row["H"]) for row in rows))
    lines: list[Statement] = []
    for law, d, heads in settings:
        own = [row for row in rows if (row["law"], row["d"], row["H"]) == (law, d, heads)]
        lines += (
            _unitary(own)
            if law == UNITARY
            else _rotations(own, half=2 * heads == d, whole=heads >= d)
        )
    return (*lines, *_existence(results))


def _unitary(rows: Sequence[Mapping[str, Any]]) -> list[Statement]:
    """d heads: all starts must end at the minimiser of Proposition 3."""
    far = [max(row["|p_T C - C*|"], row["other |p_t / p_T|"]) for row in rows]
    cosines = [row["largest |cos(a_h, b_h')|"] for row in rows]
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
    where, found = _where(rows), [row for row in rows if row["found"]]
    ends = f"the losses of the other starts, over that of predicting 0, are {_others(rows)}"
    if not half:
        enough = (
            "as many heads as coordinates" if whole else "more heads than the d / 2 that suffice"
        )
        return [
            note(f"{where}, {enough}: gradient descent finds a minimum in {_count(rows)}; {ends}.")
        ]
    text = (
        f"{where}: gradient descent finds a minimum in {_count(rows)}; {ends} (the paper's Figure "
        "3 shows one run, which found it)."
    )
    lines = [statement(text, ARRIVE, models.share_of_runs(len(found), len(rows)))]
    if found:
        off = [
            max(abs(row[name] + 0.5) for name in ("least ratio", "largest ratio")) for row in found
        ]
        text = (
            f"{where}: where a minimum is found, P holds the formula 2 cos(θ) R - I = R²: "
            f"p_{{T-1}} / p_T is between {min(row['least ratio'] for row in found):.3f} and "
            f"{max(row['largest ratio'] for row in found):.3f} for all lengths of the prompt, "
            "where Proposition 6 asks for -1/2."
        )
        lines.append(statement(text, TRIGONOMETRY, *off))
    return lines


def _existence(results: Results) -> list[Statement]:
    lines = []
    for law in (UNITARY, PAIRED):
        rows = errors.rows_of(results, "needed", law=law)
        if rows:
            row = max(rows, key=lambda one: one["d"])
            heads = "d" if law == UNITARY else "d / 2"
            text = (
                f"{law}, d = {row['d']}: {heads} = {row['heads']} heads suffice for a loss of 0 "
                f"(the weights of Lemma {2 if law == UNITARY else 3} have {row['loss']:.1g}); this "
                "says that such weights exist, not that training finds them."
            )
            lines.append(statement(text, EXACT, *(one["loss"] for one in rows), kind="formula"))
    return lines


def _where(rows: Sequence[Mapping[str, Any]]) -> str:
    row = rows[0]
    return f"{row['law']}, d = {row['d']}, {row['H']} heads, up to T = {row['T']} tokens"


def _count(rows: Sequence[Mapping[str, Any]]) -> str:
    return f"{sum(row['found'] for row in rows)} of {len(rows)} runs"


def _largest(values: Sequence[float]) -> str:
    return f"{max(values):.2g}" if np.isfinite(values).all() else "not defined, as a run diverged"


def _others(rows: Sequence[Mapping[str, Any]]) -> str:
    """Where the runs that find no minimum end."""
    ends = sorted(row["loss"] for row in rows if not row["found"] and np.isfinite(row["loss"]))
    gone = sum(not np.isfinite(row["loss"]) for row in rows)
    words = [f"{ends[0]:.2g} to {ends[-1]:.2g}"] if ends else []
    words += [f"{gone} diverged"] if gone else []
    return ", ".join(words) or "none"


def compare(results: Results) -> DataFrame | None:
    """Runs that find a minimum, by setting.

    The paper shows one run of each kind and gives no numbers.
    """
    rows = errors.rows_of(results, "runs")
    if not rows:
        return None
    settings = list(dict.fromkeys((row["law"], row["d"], row["H"], row["T"]) for row in rows))
    table = []
    for law, d, heads, n_tokens in settings:
        own = [
            row
            for row in rows
            if (row["law"], row["d"], row["H"], row["T"]) == (law, d, heads, n_tokens)
        ]
        losses = [row["loss"] for row in own]
        numbers = {"runs": len(own), "find a minimum": sum(row["found"] for row in own)}
        least, middle = (
            float(f(losses)) if np.isfinite(losses).any() else np.nan
            for f in (np.nanmin, np.nanmedian)
        )
        table.append(
            {
                "law": law,
                "d": d,
                "heads": heads,
                "tokens": n_tokens,
                **numbers,
                "least loss": least,
                "median": middle,
            }
        )
    return table_of_rows(table, "loss: over that of predicting 0; a minimum is found below 0.001")


def _sizes_of(paired: bool) -> dict[str, str]:
    """Units of one law at each scale."""
    found = {}
    for scale, units in SETTINGS.items():
        found[scale] = "; ".join(
            f"d = {unit.d}, H = {unit.heads}, T = {unit.n_tokens}, rate {unit.rate:g}"
            for unit in units
            if unit.paired == paired
        )
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
