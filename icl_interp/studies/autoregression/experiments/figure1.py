"""Figure 1: two processes s_{t+1} = W s_t in three dimensions, from one start.

W is a rotation about an axis, so the states of a path lie on a circle of the unit sphere. Which
circle it is, and how far each step turns, differ from path to path: this is what a model has to
find in its prompt.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from pandas import DataFrame
from torch import Tensor

from icl_interp.analyses.criterion import Criterion
from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Results
from icl_interp.experiments.settings import LOST, Setting
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_most, note, statement
from icl_interp.provenance import generator
from icl_interp.results import Result, make_array, table_of_rows
from icl_interp.studies.autoregression.experiments import models
from icl_interp.tasks.autoregressive import AutoregressiveProcess

DIMS = 3
N_STATES = 50
N_MATRICES = 2
MOST_DRAWS = 64  # matrices that are drawn at most until there are two rotations
NAMES = ("W₁", "W₂")
COORDINATES = ("s¹", "s²", "s³")
ROUNDING = 1e-12

KEPT = at_most("largest difference of |s_t| and 1", ROUNDING)
CIRCLE = at_most("largest distance of a state from the plane of the circle", ROUNDING)
TURN = at_most("largest difference of the cosine of a step and (tr W - 1) / 2", ROUNDING)


def rotations(seed: int) -> Float[Tensor, "matrix dim dim"]:
    """The first two rotations among Haar orthogonal matrices: half of these reflect as well."""
    task = AutoregressiveProcess(n_dims=DIMS, n_points=N_STATES)
    numbers = generator(seed, "autoregression/figure 1")
    drawn = task.matrix(task.sample_parameters(MOST_DRAWS, numbers, torch.float64))
    return drawn[torch.linalg.det(drawn) > 0][:N_MATRICES]


def paths(matrices: Float[Tensor, "matrix dim dim"]) -> Float[Tensor, "matrix state dim"]:
    """States s_0, s_1, ... of each matrix from s_0 with equal coordinates and length 1."""
    state = torch.full((len(matrices), DIMS), DIMS**-0.5, dtype=matrices.dtype)
    found = [state]
    for _ in range(N_STATES - 1):
        state = (matrices @ state[..., None])[..., 0]
        found.append(state)
    return torch.stack(found, 1)


def run(setup: Setup) -> dict[str, Result]:
    """Two paths, and how far each is from what a rotation's path must be."""
    matrices = rotations(setup.seed)
    states = paths(matrices)
    rows = []
    for name, W, path in zip(NAMES, matrices, states, strict=True):
        rows.append({"matrix": name, **measured(W, path)})
    axes = {"matrix": NAMES, "t": range(N_STATES), "coordinate": COORDINATES}
    words = f"s_0 = (1, 1, 1) / √3; seed {setup.seed}"
    return {
        "paths": make_array(states.numpy(), axes, note=words),
        "geometry": table_of_rows(rows, words),
    }


def measured(W: Float[Tensor, "dim dim"], path: Float[Tensor, "state dim"]) -> dict[str, float]:
    """The angle and the circle of a path, and what its states miss of both.

    The axis comes from the eigenvectors of W, the angle from its trace; the states come from
    multiplying with W again and again.
    """
    # The axis is the eigenvector of the eigenvalue 1, which W - I maps to 0.
    identity = torch.eye(DIMS, dtype=W.dtype)
    axis = torch.linalg.svd(W - identity).Vh[-1]
    along = path @ axis
    # Within the plane of the circle every step turns by the same angle.
    flat = path - along[:, None] * axis
    products = (flat[1:] * flat[:-1]).sum(1)
    squares = flat.square().sum(1)
    cosines = products / squares[:-1]
    cosine = (torch.trace(W) - 1) / 2
    lengths = path.norm(dim=1)
    angle = torch.rad2deg(torch.arccos(cosine))
    return {
        "angle in degrees": float(angle),
        "radius of the circle": float(flat[0].norm()),
        "off the sphere": _largest(lengths - 1),
        "off the plane": _largest(along - along[0]),
        "off the angle": _largest(cosines - cosine),
    }


def _largest(misses: Float[Tensor, " state"]) -> float:
    return float(misses.abs().max())


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """That lengths are kept, and that each path turns on one circle by one angle."""
    rows = errors.rows_of(results, "geometry")
    if not rows:
        return (note("Nothing is measured."),)
    angles = []
    radii = []
    for row in rows:
        angles.append(f"{row['angle in degrees']:.3g}°")
        radii.append(f"{row['radius of the circle']:.3g}")
    on_circle = f"each path lies on one circle; radii {' and '.join(radii)}"
    by_angle = f"each step turns by the angle of W; {' and '.join(angles)}"
    return (
        _check(rows, "off the sphere", KEPT, "an orthogonal matrix keeps lengths"),
        _check(rows, "off the plane", CIRCLE, on_circle),
        _check(rows, "off the angle", TURN, by_angle),
    )


def _check(rows: Sequence[Mapping[str, Any]], key: str, rule: Criterion, text: str) -> Statement:
    """A formula that holds where the worst of both paths misses it by rounding alone."""
    worst = max(row[key] for row in rows)
    return statement(f"{text}; largest miss {worst:.2g}.", rule, worst, kind="formula")


def compare(results: Results) -> DataFrame | None:
    """Angle and circle of both paths; the paper prints none."""
    found = results.get("geometry")
    return found if isinstance(found, DataFrame) else None


PICTURE = "the authors' code, figures/illustation_3d-crop.png"
WORK_AND_OURS = (
    Setting("d", str(DIMS), PICTURE, str(DIMS)),
    Setting("states", str(N_STATES), PICTURE, str(N_STATES)),
    Setting("matrices", str(N_MATRICES), "section 1", str(N_MATRICES)),
    Setting("W", LOST, "", "the first two rotations of draws by Haar measure"),
    Setting("view", "in perspective", PICTURE, "from one side, and one coordinate over t"),
)
FIGURE1_EXPERIMENT = Experiment(
    "autoregression.figure1",
    "Two autoregressive processes in three dimensions",
    f"{models.WORK}: Figure 1 and section 1",
    (),
    run,
    states,
    compare,
    sample=f"two rotations, {N_STATES} states each",
    settings=WORK_AND_OURS,
)
