"""Figure 6: attention by position alone, for angles on [0, 2 pi / mu].

The rows that early stopping leaves are smooth.

There is one coordinate, a = b = 1, and only P moves. The loss over sampled sequences is a quadratic
function of each row of P, so gradient descent on it is exact; it starts at P = 0 and stops when the
mean loss over the rows falls below 1e-3.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from pandas import DataFrame
from torch import Tensor
from xarray import DataArray

from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Results
from icl_interp.experiments.settings import Setting
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_least, at_most, note, statement
from icl_interp.provenance import generator
from icl_interp.results import Result, make_array, make_curve, table_of_rows
from icl_interp.studies.autoregression.experiments import models
from icl_interp.tasks.autoregressive import AutoregressiveProcess, complex_states
from icl_interp.theory import autoregression as theory

MUS = (50.0, 100.0, 200.0, 300.0)
SHARP = 1.0  # mu of uniform angles: the control, whose row is a single peak
ALL_MUS = (*MUS, SHARP)
TOLERANCE = 1e-3
# Sequences, tokens T of the longest prompt, and steps at most.
SIZES = {"smoke": (200, 12, 20_000), "small": (2000, 30, 500_000), "paper": (16_384, 30, 2_000_000)}

SMOOTH = at_most("largest second difference of a row / its largest entry", 0.25, 0.75)
ALONG = at_most("share of |P|² that the means of its diagonals leave unexplained", 0.1, 0.3)
WAVE = at_least("share of |P|² that one cosine wave in each row explains", 0.9, 0.6)
FAR = at_least("least |p - e_T| of a row", 0.5, 0.1)


class Quadratic:
    """The loss of every row of P on sampled sequences: p^T G p - 2 g^T p + 1.

    Rows are padded with zeros.

    Row q has the query s_q and tokens s_0, ..., s_{q+1}; the prediction of s_{q+2} is sum_t p_t
    conj(s_q) s_t s_t.

    Attributes:
        gram: G, (row, token, token).
        pull: g, (row, token).
    """

    gram: Float[Tensor, "row token other"]
    pull: Float[Tensor, "row token"]

    def __init__(self, states: Tensor, after: Tensor) -> None:
        """The loss of states s_0, ..., s_{T-1}, (sequence, token), and the state after the last.

        Both are complex; the state after the last is of shape (sequence,).
        """
        n, n_tokens = states.shape
        path = torch.cat([states, after[:, None]], 1)
        n_rows = n_tokens - 1
        self.gram = torch.zeros(n_rows, n_tokens, n_tokens, dtype=torch.float64)
        self.pull = torch.zeros(n_rows, n_tokens, dtype=torch.float64)
        for q in range(n_rows):
            n_seen = q + 2
            seen = path[:, :n_seen]
            target = path[:, n_seen, None]
            moved = seen[:, q, None].conj() * seen * seen
            products = moved.mH @ moved
            pulls = moved.conj() * target
            self.gram[q, :n_seen, :n_seen] = products.real / n
            self.pull[q, :n_seen] = pulls.real.mean(0)

    def loss(self, P: Float[Tensor, "row token"]) -> Float[Tensor, " row"]:
        """Of each row; |s_{q+2}|^2 = 1."""
        mapped = (P[:, None] @ self.gram)[:, 0]
        square = (mapped * P).sum(1)
        product = (self.pull * P).sum(1)
        return square - 2 * product + 1

    def descend(self, tolerance: float, n_steps: int) -> tuple[Float[Tensor, "row token"], int]:
        """P where gradient descent from 0 first has a mean loss below the tolerance, and its steps.

        The size of a step is half of what the steepest direction of all rows admits, as in
        `theory.early_stop`.
        """
        curvatures = torch.linalg.eigvalsh(self.gram)
        step = 0.5 / float(curvatures.amax())
        P = torch.zeros_like(self.pull)
        for taken in range(n_steps):
            if self.loss(P).mean() < tolerance:
                return P, taken
            mapped = (self.gram @ P[..., None])[..., 0]
            half_slope = mapped - self.pull
            P = P - 2 * step * half_slope
        return P, n_steps


def sampled(mu: float, n: int, n_tokens: int, seed: int) -> Quadratic:
    """The loss on n sequences of one coordinate with angles on [0, 2 pi / mu]."""
    task = AutoregressiveProcess(n_dims=1, matrices="unitary", mu=mu, n_points=n_tokens)
    draw = generator(seed, "autoregression/positions")
    prompts = task.sample(n, draw, dtype=torch.float64)
    numbers = torch.cat([prompts.xs, prompts.ys[:, -1:]], 1)
    path = complex_states(numbers)[..., 0]
    return Quadratic(path[:, :-1], path[:, -1])


def run(setup: Setup) -> dict[str, Result]:
    """P for each mu, what is said of its rows, and the longest row.

    The longest row stands beside theory and its best cosine wave.
    """
    n, n_tokens, n_steps = SIZES[setup.preset.name]
    matrices = []
    rows = []
    curves = []
    for mu in ALL_MUS:
        compute = partial(_descended, mu, n, n_tokens, n_steps, setup.seed)
        kept = setup.keep(
            "autoregression: positions by gradient descent",
            [],
            compute,
            mu=mu,
            sequences=n,
            tokens=n_tokens,
            steps=n_steps,
        )
        assert isinstance(kept, DataArray)
        # The last row holds two numbers, see `_positions`.
        P = kept.values[:-1]
        taken, loss = kept.values[-1, :2]
        wave = _waves(P)
        matrices.append(P)
        stopped = theory.early_stop(n_tokens, mu, TOLERANCE).positions.numpy()
        lines = (P[-1], wave[-1], stopped)
        curves.append(np.stack(lines))
        row = {"mu": mu, "steps": int(taken), "loss": float(loss)}
        row |= _measured(P, wave)
        rows.append(row)
    tokens = range(1, n_tokens + 1)
    shorter = range(1, n_tokens)
    of_positions = {"mu": ALL_MUS, "query": shorter, "token": tokens}
    of_row = {"mu": ALL_MUS, "line": ("descent", "one cosine", "exact loss"), "token": tokens}
    of_encodings = {"frequency": shorter, "token": tokens}
    held = (
        f"{n:,} sequences, {n_tokens} tokens; gradient descent from P = 0 until the mean loss is "
        f"below {TOLERANCE:g}"
    )
    alone = f"{held}; exact loss: early stopping of this row alone"
    waves = encodings(n_tokens)
    return {
        "positions": make_array(np.stack(matrices), of_positions, note=held),
        "longest row": make_curve(np.stack(curves), of_row, note=alone),
        "encodings": make_array(waves, of_encodings, note="cos(t / 10000^(k / T))"),
        "measures": table_of_rows(rows, held),
    }


def _descended(mu: float, n: int, n_tokens: int, n_steps: int, seed: int) -> DataArray:
    """`_positions` of sampled sequences."""
    loss = sampled(mu, n, n_tokens, seed)
    return _positions(loss, n_steps)


def encodings(n_tokens: int) -> Float[np.ndarray, "frequency token"]:
    """Cosine encodings of positions: row k holds cos(t / 10000^(k / T)).

    k = 0, 1, ... and t = 0, 1, ...

    Source: Vaswani et al. (2017), section 3.5, the cosines of an encoding of width 2 T; the first
    T - 1 of them.
    """
    exponents = np.arange(n_tokens - 1) / n_tokens
    paces = 10000.0**-exponents
    angles = paces[:, None] * np.arange(n_tokens)
    return np.cos(angles)


def _positions(loss: Quadratic, n_steps: int) -> DataArray:
    """P, and below it a row with the number of steps and the mean loss."""
    P, taken = loss.descend(TOLERANCE, n_steps)
    last = torch.zeros_like(P[:1])
    last[0, 0] = taken
    last[0, 1] = loss.loss(P).mean()
    values = torch.cat([P, last]).numpy()
    n_rows, n_tokens = values.shape
    return make_array(values, {"row": range(n_rows), "token": range(n_tokens)})


def _measured(
    P: Float[np.ndarray, "row token"], wave: Float[np.ndarray, "row token"]
) -> dict[str, float]:
    """How smooth rows are, how far from a single peak, and how much of P is explained.

    What explains P are its diagonals and cosine waves.
    """
    # Rows of three tokens or more have a second difference.
    rough = []
    far = []
    for q in range(1, len(P)):
        p = torch.from_numpy(P[q, : q + 2])
        roughness = theory.roughness(p) / p.abs().amax()
        rough.append(float(roughness))
        last = torch.eye(len(p), dtype=p.dtype)[-1]
        distance = (p - last).norm()
        far.append(float(distance))
    # P with the mean of each diagonal along it.
    along = np.zeros_like(P)
    for offset in range(-len(P) + 1, 2):
        rows = np.arange(max(0, -offset), len(P))
        columns = rows + offset
        along[rows, columns] = P[rows, columns].mean()
    seen = np.tril(np.ones(P.shape, dtype=bool), 1)
    squares = P**2
    size = float(squares.sum())
    off_diagonals = (P - along)[seen] ** 2
    off_waves = (P - wave)[seen] ** 2
    return {
        "roughness": rough[-1],
        "largest roughness": max(rough),
        "least |p - e_T|": min(far),
        "off its diagonals": float(off_diagonals.sum() / size),
        "explained by cosines": 1 - float(off_waves.sum() / size),
    }


def _waves(P: Float[np.ndarray, "row token"]) -> Float[np.ndarray, "row token"]:
    """The best a cos(w t + c) in each row by least squares.

    w lies on a grid up to pi / 2, a period of four tokens.
    """
    found = np.zeros_like(P)
    paces = np.linspace(0, np.pi / 2, 200)[1:]
    for q, row in enumerate(P):
        p = row[: q + 2]
        t = np.arange(len(p))
        best = np.inf
        for pace in paces:
            # The wave with this w that is nearest to the row.
            basis = np.stack([np.cos(pace * t), np.sin(pace * t)], 1)
            weights, *_ = np.linalg.lstsq(basis, p, rcond=None)
            fit = basis @ weights
            squares = (p - fit) ** 2
            off = float(squares.sum())
            if off < best:
                best = off
                found[q, : len(p)] = fit
    return found


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """Whether early stopping leaves rows smooth and far from the minimiser.

    Rows should also be alike along diagonals, and near a cosine.
    """
    rows = errors.rows_of(results, "measures")
    if not rows:
        return (note("Nothing is measured."),)
    slow = [row for row in rows if row["mu"] != SHARP]
    sharp = errors.rows_of(results, "measures", mu=SHARP)
    control = sharp[0] if sharp else {}
    said = (
        ("roughness", SMOOTH, "the longest row of P is smooth: its largest second difference is"),
        ("off its diagonals", ALONG, "P is the same along its diagonals: their means leave"),
        (
            "explained by cosines",
            WAVE,
            "rows look like cosine encodings: one cosine a row explains",
        ),
        ("least |p - e_T|", FAR, "rows stay far from e_T, the minimiser: the least distance is"),
    )
    lines = []
    for key, rule, sentence in said:
        line = _states(slow, control, key, rule, sentence)
        lines.append(line)
    return (*lines, note(_steps(rows)))


def _states(
    rows: Sequence[Mapping[str, Any]],
    control: Mapping[str, Any],
    key: str,
    rule: Any,
    sentence: str,
) -> Statement:
    found = [f"{row[key]:.3g} at μ = {row['mu']:g}" for row in rows]
    listed = ", ".join(found)
    beside = f" (uniform angles, μ = 1: {control[key]:.3g})" if control else ""
    values = map(itemgetter(key), rows)
    return statement(f"{sentence} {listed}{beside}.", rule, *values)


def _steps(rows: Sequence[Mapping[str, Any]]) -> str:
    taken = []
    late = []
    for row in rows:
        mu = f"μ = {row['mu']:g}"
        taken.append(f"{row['steps']:,} at {mu}")
        if not row["loss"] < TOLERANCE:
            late.append(f"{mu}: {row['loss']:.2g}")
    left = f" It was not reached at {', '.join(late)}." if late else ""
    return (
        f"The numbers of steps that gradient descent takes to a mean loss of {TOLERANCE:g}: "
        f"{', '.join(taken)}.{left}"
    )


def compare(results: Results) -> DataFrame | None:
    """Measures by mu; the paper's figure prints no numbers."""
    found = results.get("measures")
    return found if isinstance(found, DataFrame) else None


CODE = "the authors' code, pe_only.py"
STOP = "0.001"
WORK_AND_OURS = (
    Setting("mu", "50, 100, 200, 300", CODE, ", ".join(f"{mu:g}" for mu in MUS)),
    Setting("T", "30", CODE, {scale: str(size[1]) for scale, size in SIZES.items()}),
    Setting("sequences", "1,000", CODE, {scale: f"{size[0]:,}" for scale, size in SIZES.items()}),
    Setting("stop at a loss of", STOP, CODE, f"{TOLERANCE:g}"),
    Setting("start", "P = 0", f"section 6; {CODE}", "P = 0"),
    Setting("rate", "0.5", CODE, "half of what the steepest direction admits"),
    Setting(
        "entries of p_T in the display", "masked", "section 6, change in the distribution", "masked"
    ),
)
FIGURE6_EXPERIMENT = Experiment(
    "autoregression.figure6",
    "Trained positions for small angles, against cosine encodings",
    f"{models.WORK}: Figure 6, section 5.3 and Proposition 7",
    (),
    run,
    states,
    compare,
    sample="P by gradient descent on 200, 2,000 or 16,384 sequences of one coordinate",
    settings=WORK_AND_OURS,
)
