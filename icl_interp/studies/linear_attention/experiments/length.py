"""Beyond the trained length: the slides' spike in the error for M > N.

Are untrained positions its cause?

A position vector is trained only by prompts that reach it: for M > N a model reads vectors as they
were drawn. The causal test edits only those, so nothing changes for M <= N: they are replaced by
trained ones, drawn anew, or trained now with all other weights as they are. A model trained without
positions is the other way round.
"""

import copy
import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from pandas import DataFrame
from torch import Tensor
from xarray import DataArray

from icl_interp.checkpoints.store import Checkpoint
from icl_interp.errors import unknown
from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Results
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_least, at_most, note, statement
from icl_interp.models.tokens import Interleaved
from icl_interp.provenance import generator
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import Result, make_curve, table_of_rows
from icl_interp.studies.linear_attention.experiments import models, settings
from icl_interp.studies.linear_attention.experiments.covariance import label_moment
from icl_interp.studies.linear_attention.experiments.models import LEAST_SQUARES

N = 14  # of the recipes
FIXED = f"softmax_fixed_{N}"
RANDOM = f"softmax_random_{N}"
WITHOUT = "softmax_fixed_no_positions"
PRESETS = (1.0, 4.0, 9.0)
AS_THEY_ARE = "as they are"
REPLACED = ("mean trained", "last trained", "used again")
EDITS = (AS_THEY_ARE, "drawn anew", *REPLACED)
ALONE = "trained alone"
SHOWN = {FIXED: (*EDITS, ALONE), RANDOM: (*EDITS, ALONE), WITHOUT: ("trained without",)}
# Of Adam on untrained vectors alone.
STEPS = {"smoke": 10, "small": 400, "paper": 4000}
RATE = 0.01
# Mean error beyond N over the error at N from which there is a spike: more examples should lower
# it.
SPIKE = 1.1
MOST = 0.9  # share of the rise that an edit takes away from which it counts as its cause
SPIKES = at_least("error beyond N / error at N", SPIKE)
NO_SPIKE = at_most("error beyond N / error at N", SPIKE, None, models.LEARNED)
NOTHING = 0.1  # share of the rise that an edit takes away up to which it is not its cause
CAUSES = at_least("share of the rise that goes", MOST, NOTHING)
MARGIN = 1.1  # factor from which one error counts as smaller than another
SMALLER = at_most("error / error", round(1 / MARGIN, 2), MARGIN)


def replaced(
    vectors: Float[Tensor, "position width"], n_trained: int, how: str, seed: int = 0
) -> Float[Tensor, "position width"]:
    """Position vectors with the untrained ones replaced; trained ones stay as they are.

    The untrained ones are those from `n_trained` on.

    Tokens are x and y in turn, and so are their vectors: each is replaced by vectors of its own
    kind.

    Args:
        vectors: one for each position.
        n_trained: positions that were trained, from the front.
        how: "as they are"; "drawn anew" (normal, with their own mean square); "mean trained" and
            "last trained" of the kind; "used again": trained vectors from the front, in order.
        seed: of what is drawn anew.

    >>> vectors = torch.tensor([[0.], [1.], [2.], [3.], [9.], [9.]])
    >>> replaced(vectors, 4, "mean trained").flatten().tolist()
    [0.0, 1.0, 2.0, 3.0, 1.0, 2.0]
    """
    if how not in EDITS:
        raise unknown("way to replace positions", how, EDITS)
    out = vectors.clone()
    n_kept = n_trained - n_trained % 2  # whole pairs
    for p in range(n_trained, len(vectors)):
        kind = vectors[p % 2 : n_trained : 2]
        if how == "drawn anew":
            scale = vectors[n_trained:].square().mean().sqrt()
            stream = generator(seed, "linear_attention/positions", p)
            out[p] = scale * torch.randn(vectors.shape[1], generator=stream)
        elif how == "mean trained":
            out[p] = kind.mean(0)
        elif how == "last trained":
            out[p] = kind[-1]
        elif how == "used again":
            out[p] = vectors[p % n_kept]
    return out


def with_positions(checkpoint: Checkpoint, how: str, seed: int = 0) -> Checkpoint:
    """The checkpoint with its untrained position vectors replaced."""
    model = copy.deepcopy(checkpoint.model)
    n_trained = Interleaved().n_tokens(checkpoint.task.n_points)
    vectors = model.pos_embed.W_pos
    with torch.no_grad():
        vectors.copy_(replaced(vectors, n_trained, how, seed))
    return replace(checkpoint, model=model.eval())


def trained_alone(checkpoint: Checkpoint, steps: int, seed: int = 0) -> Checkpoint:
    """The checkpoint with its untrained position vectors trained on prompts of 2 N examples.

    Nothing else is trained.

    Predictions up to N are what they were: causal attention does not see later positions.
    """
    encoding = Interleaved()
    task = checkpoint.task
    n_trained = encoding.n_tokens(task.n_points)
    n_points = 2 * models.trained_length(checkpoint) + 1
    read = encoding.read_at(n_points, "causal")[0]
    model = copy.deepcopy(checkpoint.model).requires_grad_(False)
    vectors = model.pos_embed.W_pos
    vectors.requires_grad_(True)
    optimiser = torch.optim.Adam([vectors], lr=RATE)
    for step in range(steps):
        stream = generator(seed, "linear_attention/positions alone", step)
        prompts = task.sample(64, stream, n_points=n_points)
        tokens = encoding.encode(prompts)
        residuals = model(tokens.to(vectors), read) - prompts.ys.to(vectors)
        loss = residuals.square().mean()
        (vectors.grad,) = torch.autograd.grad(loss, vectors)
        vectors.grad[:n_trained] = 0  # and Adam leaves them as they are
        optimiser.step()
    model.requires_grad_(False)
    return replace(checkpoint, model=model.eval())


def _edited(setup: Setup, name: str, how: str) -> Checkpoint | None:
    """The model after an edit; None where nothing is edited."""
    if how in (AS_THEY_ARE, *SHOWN[WITHOUT]):
        return None
    if how == ALONE:
        return trained_alone(setup.models[name], STEPS[setup.preset.name], setup.seed)
    return with_positions(setup.models[name], how, setup.seed)


def run(setup: Setup) -> dict[str, Result]:
    """Error by M for each edit and test law, and how much it rises beyond N."""
    curves: dict[tuple[str, str, str], np.ndarray] = {}
    rows = []
    for name in setup.among(list(SHOWN)):
        checkpoint = setup.models[name]
        n = models.trained_length(checkpoint)
        tests = models.tests(checkpoint.task.dim, PRESETS)
        for how in SHOWN[name]:
            # Made only where it is measured.
            edited = functools.cache(lambda name=name, how=how: _edited(setup, name, how))
            edit = "" if how in (AS_THEY_ARE, *SHOWN[WITHOUT]) else how
            for test, task in tests.items():
                found = models.errors_by_length(setup, name, task, 2 * n, edit, edited)
                zero = label_moment(task)
                curves[name, how, test] = models.with_interval(found) / zero
                row = {"model": name, "positions": how, "test": test, "N": n}
                row |= _rise(np.asarray(found.values), n, zero)
                rows.append(row)
    if not rows:
        return {}
    results: dict[str, Result] = {"spikes": _spikes(rows)}
    best = {}
    for test, task in tests.items():
        found = models.errors_by_length(setup, LEAST_SQUARES, task, 2 * n)
        best[test] = models.with_interval(found) / label_moment(task)
    for name in dict.fromkeys(row["model"] for row in rows):
        results[name] = _curve(name, curves, best)
    return results


def _curve(
    name: str, curves: Mapping[tuple[str, str, str], np.ndarray], best: Mapping[str, np.ndarray]
) -> DataArray:
    """The curves of a model, and those of least squares."""
    shown = SHOWN[name]
    blocks = []
    for how in shown:
        blocks.append(np.stack([curves[name, how, test] for test in best]))
    blocks.append(np.stack(list(best.values())))
    values = np.stack(blocks)
    axes = {
        "positions": [*shown, LEAST_SQUARES],
        "test": list(best),
        "statistic": ("mean", "low", "high"),
        "M": tuple(range(1, values.shape[-1] + 1)),
    }
    note = "squared error after M examples / E[y²]; 95 % bootstrap over blocks of prompts"
    return make_curve(values, axes, note=note)


def _rise(found: np.ndarray, n: int, zero: float) -> dict[str, float]:
    """Error at N, and the mean and the largest error beyond, over E[y^2].

    The ratio of the mean error beyond to the error at N has an interval.
    """
    at_n = found[:, n - 1]
    beyond = found[:, n:]
    ratio: Interval = bootstrap(lambda after, at: after / at, beyond.mean(1), at_n)
    first: Interval = bootstrap(lambda after, at: after / at, found[:, n], at_n)
    return {
        "error at N": float(at_n.mean() / zero),
        "mean beyond": float(beyond.mean() / zero),
        "largest beyond": float(beyond.mean(0).max() / zero),
        "ratio": ratio.value,
        "low": ratio.low,
        "high": ratio.high,
        "ratio at N + 1": first.value,
        "first low": first.low,
        "first high": first.high,
    }


def _spikes(rows: list[dict[str, Any]]) -> DataFrame:
    note = (
        "errors over E[y²]; ratio: mean error over M = N + 1 .. 2 N / error at N, 95 % bootstrap "
        "over blocks"
    )
    return table_of_rows(rows, note=note)


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """The spike, its dependence on variance, its cause."""
    rows = errors.rows_of(results, "spikes")
    lines = []
    for name in (FIXED, RANDOM):
        mine = [row for row in rows if row["model"] == name]
        if mine:
            law = "fixed" if name == FIXED else "random, c = 1"
            on_own_law = {row["positions"]: row for row in mine if row["test"] == law}
            intact = [row for row in mine if row["positions"] == AS_THEY_ARE]
            lines += _states_spike(name, on_own_law)
            lines += _states_variance(name, intact)

    # A model without positions beside one with them, both on the law that they were trained on.
    without = []
    with_them = []
    for row in rows:
        if row["test"] == "fixed" and row["model"] == WITHOUT:
            without.append(row)
        elif row["test"] == "fixed" and row["model"] == FIXED and row["positions"] == AS_THEY_ARE:
            with_them.append(row)
    lines += _states_without(without, with_them)
    return tuple(lines) or (note("No model is here, so nothing is measured."),)


def _states_without(
    without: Sequence[Mapping[str, Any]], with_them: Sequence[Mapping[str, Any]]
) -> list[Statement]:
    """A model trained without positions: no spike, better beyond N, and what it costs up to N."""
    lines = []
    for row in without:
        text = (
            f"trained without positions the error beyond N is {_ratio(row)} times the error at N."
        )
        at_n = row["error at N"]
        beyond = row["mean beyond"]
        given = {models.ERROR: at_n}
        lines.append(statement(text, NO_SPIKE, errors.interval_of(row, "ratio"), given=given))
        for other in with_them:
            other_at_n = other["error at N"]
            other_beyond = other["mean beyond"]
            text = (
                f"Beyond N the model without positions has {beyond / other_beyond:.2g} times the "
                f"error of the one with them ({beyond:.2g} against {other_beyond:.2g} of "
                f"E[y²]); at N {at_n / other_at_n:.2g} times "
                f"({at_n:.2g} against {other_at_n:.2g}), after as many "
                "steps. There is one run of each, so this decides nothing."
            )
            lines.append(note(text))
    return lines


def _ratio(row: Mapping[str, Any]) -> str:
    return f"{row['ratio']:.3g} [{row['low']:.3g}, {row['high']:.3g}]"


def _states_spike(name: str, own: Mapping[str, Mapping[str, Any]]) -> list[Statement]:
    row = own[AS_THEY_ARE]
    text = (
        f"{name} ({models.HERE}), on its own law: beyond N = {row['N']} the error is {_ratio(row)} "
        "times the error at N."
    )
    lines = [statement(text, SPIKES, errors.interval_of(row, "ratio"))]
    if row["low"] <= SPIKE:
        return lines
    for how in (*REPLACED, ALONE):
        if how not in own:
            continue
        edit = own[how]
        share = (row["ratio"] - edit["ratio"]) / (row["ratio"] - 1)
        # The least and the largest share that the two intervals allow.
        least = (row["low"] - edit["high"]) / (row["low"] - 1)
        most = (row["high"] - edit["low"]) / (row["high"] - 1)
        what = "trained alone" if how == ALONE else f"replaced ({how})"
        text = (
            f"{name}: with the untrained vectors {what}, {100 * share:.0f} % of the rise "
            f"disappears: {_ratio(edit)}."
        )
        lines.append(statement(text, CAUSES, Interval(share, least, most)))
    # The control intervention.
    new = own["drawn anew"]
    text = (
        f"With other random vectors in their place (the control intervention) it is {_ratio(new)}."
    )
    lines.append(note(text))
    return lines


def _states_variance(name: str, rows: Sequence[Mapping[str, Any]]) -> list[Statement]:
    """The slides: the spike decreases with higher variance: the ratio at c = 9 against c = 1."""
    at = {row["test"]: row for row in rows}
    low = at.get("random, c = 1")
    high = at.get("random, c = 9")
    if not low or not high:
        return []
    value = high["ratio"] / low["ratio"]
    least = high["low"] / low["high"]
    most = high["high"] / low["low"]
    quotient = Interval(value, least, most)
    low_rise = low["mean beyond"] - low["error at N"]
    high_rise = high["mean beyond"] - high["error at N"]
    text = (
        f"{name}: the rise beyond N, relative to the error at N, is {_ratio(low)} at c = 1 and "
        f"{_ratio(high)} at c = 9; in units of E[y²] the error rises by {low_rise:.2g} and "
        f"{high_rise:.2g} (the slides: smaller at higher variance)."
    )
    return [statement(text, SMALLER, quotient)]


def compare(results: Results) -> DataFrame | None:
    """All spikes; the slides print no numbers."""
    found = results.get("spikes")
    return found if isinstance(found, DataFrame) else None


LENGTH_SPIKE_EXPERIMENT = Experiment(
    "linear_attention.length_spike",
    "Beyond the trained length: the spike, and the positions that cause it",
    f"{models.SLIDES}: the spike for M > N and its explanation",
    (
        models.softmax("fixed", N),
        models.softmax("random", N),
        models.softmax("fixed", "no_positions"),
    ),
    run,
    states,
    compare,
    sample=models.SAMPLE,
    sizes=models.SOFTMAX_SIZES,
    settings=settings.SETTINGS["length_spike"],
)
