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
from icl_interp.results import Result, make_curve, table_of_rows
from icl_interp.studies.lipschitz.experiments import models
from icl_interp.tasks.ridge import RidgeFunction
from icl_interp.tasks.vectors import Sphere
from icl_interp.theory import lipschitz as theory

SLOPES = (-1.0, 0.6, 0.2)  # l1, l2, b of the function that is shown; its direction is the angle 0
NOISE = 0.3
WIDE, NARROW = 0.25, 1000.0  # windows beside the best one
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
    task = RidgeFunction(link="relu", inputs=Sphere(2), noise_std=NOISE, n_points=n + 1)
    function = torch.tensor([[1.0, 0.0, *SLOPES]], dtype=torch.float64)
    xs, ys = task.sample_points(function, n + 1, generator(0, "lipschitz/circle"), torch.float64)

    # The same context for every query.
    angles = torch.linspace(-math.pi, math.pi, N_ANGLES, dtype=torch.float64)
    queries = torch.stack([angles.cos(), angles.sin()], -1)[:, None]
    f = task.targets(function, queries[:, 0][None])[0]
    each = Prompts(
        torch.cat([xs[:, :-1].expand(N_ANGLES, -1, -1), queries], 1),
        torch.cat([ys[:, :-1].expand(N_ANGLES, -1, -1), f[:, None]], 1),
        function.expand(N_ANGLES, -1),
        torch.zeros(N_ANGLES, dtype=torch.long),
    )
    best = float(theory.optimal_window(1.0, NOISE, n, 2, contexts=contexts).window)
    windows = {"small |M|": WIDE, "best |M|": best, "large |M|": NARROW}
    lines = [f[:, 0], *(_predicted(w, each) for w in windows.values())]

    place = xs[0, :-1]
    where = f"one function of F_L⁺ with L = 1 on the circle, σ = {NOISE:g}, one context, n = {n}"
    points = zip(
        torch.atan2(place[:, 1], place[:, 0]).tolist(), ys[0, :-1, 0].tolist(), strict=True
    )
    return {
        "predictions": make_curve(
            torch.stack(lines).numpy(), {"line": LINES, "angle": angles.tolist()}, note=where
        ),
        "windows": table_of_rows(
            [{"line": name, "w": w} for name, w in windows.items()], note="M = w I"
        ),
        "examples": table_of_rows([{"angle": a, "label": y} for a, y in points], note=where),
    }


def _predicted(w: float, prompts: Prompts) -> Float[Tensor, " angle"]:
    unit = models.KernelUnit(w * torch.eye(2))
    return predictions(unit, prompts)[:, -1, 0]
