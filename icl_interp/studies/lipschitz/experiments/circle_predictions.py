"""What a wide and a narrow window predict: one function and one context, with the query all round.

It is the picture behind bias and noise. Inputs lie on the circle, so that a query is an angle.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.baselines.base import predictions
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.results import Result, make_curve, make_table
from icl_interp.studies.lipschitz.experiments import models
from icl_interp.tasks.ridge import RidgeFunction
from icl_interp.tasks.vectors import Sphere
from icl_interp.theory import lipschitz as theory

SLOPES = (-1.0, 0.6, 0.2)  # l1, l2, b of the function that is shown; its direction is the angle 0
NOISE = 0.3
WIDE = 0.25  # windows beside the best one
NARROW = 1000.0
N_ANGLES = 181
LINES = ("f", "small |M|", "best |M|", "large |M|")


def shown(n: int, contexts: int | None = None) -> dict[str, Result]:
    """Predictions of three units by the angle of the query, and the examples of the context.

    Args:
        n: examples of the context.
        contexts: of the Monte Carlo that the best window comes from, see `theory.loss_table`.

    Returns:
        "predictions": a line for f and for each M = w I, by angle. "windows": w of each line.
        "examples": angle and label of each example.
    """
    # The context: its function, and examples with noise.
    task = RidgeFunction(link="relu", inputs=Sphere(2), noise_std=NOISE, n_points=n + 1)
    function = torch.tensor([[1.0, 0.0, *SLOPES]], dtype=torch.float64)
    draw = generator(0, "lipschitz/circle")
    xs, ys = task.sample_points(function, n + 1, draw, torch.float64)
    place = xs[0, :n]
    labels = ys[0, :n]
    first = place[:, 0]
    second = place[:, 1]
    table: dict[str, list[float]] = {}
    angle = torch.atan2(second, first)
    label = labels.flatten()
    table["angle"] = angle.tolist()
    table["label"] = label.tolist()

    # The same context for every query.
    angles = torch.linspace(-math.pi, math.pi, N_ANGLES, dtype=torch.float64)
    cosines = angles.cos()
    sines = angles.sin()
    queries = torch.stack([cosines, sines], -1)
    values = task.targets(function, queries[None])
    f = values[0]
    prompts = _around(place, labels, queries, f)

    # One line for f, and one for each window.
    best = theory.optimal_window(1.0, NOISE, n, 2, contexts=contexts)
    windows = (WIDE, float(best.window), NARROW)
    lines = [f.flatten()]
    for w in windows:
        line = _predicted(w, prompts)
        lines.append(line)
    where = f"one function of F_L⁺ with L = 1 on the circle, σ = {NOISE:g}, one context, n = {n}"
    axes = {"line": LINES, "angle": angles.tolist()}
    results: dict[str, Result] = {}
    stacked = torch.stack(lines)
    shown_lines = stacked.numpy()
    results["predictions"] = make_curve(shown_lines, axes, note=where)
    results["windows"] = make_table({"line": LINES[1:], "w": windows}, note="M = w I")
    results["examples"] = make_table(table, note=where)
    return results


def _around(
    place: Float[Tensor, "example dim"],
    labels: Float[Tensor, "example target"],
    queries: Float[Tensor, "angle dim"],
    values: Float[Tensor, "angle target"],
) -> Prompts:
    """One prompt for each query, all with the same examples."""
    count = len(queries)
    xs = place.expand(count, -1, -1)
    ys = labels.expand(count, -1, -1)
    last_x = queries[:, None]
    last_y = values[:, None]
    xs = torch.cat([xs, last_x], 1)
    ys = torch.cat([ys, last_y], 1)
    parameters = torch.zeros(count, 0, dtype=xs.dtype)
    function = torch.zeros(count, dtype=torch.long)
    return Prompts(xs, ys, parameters, function)


def _predicted(w: float, prompts: Prompts) -> Float[Tensor, " angle"]:
    matrix = w * torch.eye(2)
    unit = models.KernelUnit(matrix)
    found = predictions(unit, prompts)
    return found[:, -1, 0]
