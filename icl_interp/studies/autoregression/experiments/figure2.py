"""Figure 2: the formula of trigonometry that d / 2 heads compute, 2 cos(theta) R - I = R^2.

R turns the plane by theta. The layer of Lemma 3 sees s_{T-2} and s_{T-1} = R s_{T-2} (counted from
0). Its last token writes 2 cos(theta) s_{T-1}, the token before writes -s_{T-2}, and the sum is the
next state. Both parts are read off the layer here, by weights of positions of one token alone.
"""

import numpy as np
import torch
from jaxtyping import Complex, Float
from pandas import DataFrame
from torch import Tensor

from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Results
from icl_interp.experiments.settings import LOST, Setting
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_most, note, statement
from icl_interp.results import Result, make_array, table_of_rows
from icl_interp.studies.autoregression.experiments import models
from icl_interp.theory import autoregression as theory

SHOWN = (30.0, 75.0, 120.0)  # degrees of the angles that are drawn
N_ANGLES = 360  # of the check: one a degree
BEFORE = "s before"
LAST = "s last"
FROM_LAST = "written by the last token"
FROM_BEFORE = "written by the token before"
PREDICTED = "prediction"
PARTS = (BEFORE, LAST, FROM_LAST, FROM_BEFORE, PREDICTED)
ROUNDING = 1e-12

FORMULA = at_most("largest |prediction - R² s|", ROUNDING)
FROM_LAST_RULE = at_most("largest |written by the last token - 2 cos(θ) R s|", ROUNDING)
FROM_BEFORE_RULE = at_most("largest |written by the token before + s|", ROUNDING)


def parts(degrees: Float[Tensor, " angle"]) -> Complex[Tensor, "angle part"]:
    """What stands in `PARTS`, for each angle, as points of the complex plane.

    A plane that turns is a pair of conjugate coordinates, of which this is the first.
    """
    turn = torch.polar(torch.ones_like(degrees), torch.deg2rad(degrees))
    start = torch.ones_like(turn)
    # Two states of two coordinates, (angle, token, coordinate).
    coordinates = torch.stack([start, turn], 1)
    path = torch.stack([coordinates, coordinates.conj()], -1)
    layer = theory.orthogonal_heads(2, n_tokens=2)
    _, last = layer.positions
    alone = torch.stack([0 * last, last])
    written = []
    for positions in (alone, layer.positions - alone, layer.positions):
        said = theory.prediction(path, layer.queries, layer.values, positions)
        written.append(said[:, 0])
    return torch.stack([start, turn, *written], 1)


def misses(degrees: Float[Tensor, " angle"]) -> dict[str, float]:
    """How far the layer is from the formula, with matrices of the plane in real numbers."""
    found = torch.view_as_real(parts(degrees))
    theta = torch.deg2rad(degrees)
    cos = theta.cos()
    sin = theta.sin()
    R = torch.stack([cos, -sin, sin, cos], -1).unflatten(-1, (2, 2))
    before = found[:, PARTS.index(BEFORE)]
    turned = (R @ before[..., None])[..., 0]
    expected = {
        PREDICTED: (R @ turned[..., None])[..., 0],
        FROM_LAST: 2 * cos[:, None] * turned,
        FROM_BEFORE: -before,
    }
    off = {}
    for name, vectors in expected.items():
        gaps = found[:, PARTS.index(name)] - vectors
        off[name] = float(gaps.norm(dim=1).max())
    return off


def run(setup: Setup) -> dict[str, Result]:
    """The parts for the angles that are drawn, and the largest misses on a grid of angles."""
    shown = torch.view_as_real(parts(torch.tensor(SHOWN, dtype=torch.float64)))
    grid = torch.arange(N_ANGLES, dtype=torch.float64) * 360 / N_ANGLES
    rows = []
    for name, miss in misses(grid).items():
        rows.append({"what": name, "largest miss": miss})
    axes = {"angle": SHOWN, "part": PARTS, "coordinate": ("x", "y")}
    return {
        "parts": make_array(np.asarray(shown), axes, note="by the layer of Lemma 3; s = (1, 0)"),
        "misses": table_of_rows(rows, f"largest over {N_ANGLES} angles on the whole circle"),
    }


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """That the layer's sum is the rotation by twice the angle, and its parts those of the formula.

    These are statements about algebra: they are no finding on trained models.
    """
    rows = {row["what"]: row["largest miss"] for row in errors.rows_of(results, "misses")}
    if not rows:
        return (note("Nothing is measured."),)
    checks = (
        (PREDICTED, FORMULA, "the layer of Lemma 3 turns the state before the last by 2θ"),
        (FROM_LAST, FROM_LAST_RULE, "the last token writes 2 cos(θ) R s"),
        (FROM_BEFORE, FROM_BEFORE_RULE, "the token before writes -s"),
    )
    lines = []
    for name, rule, text in checks:
        worst = rows[name]
        lines.append(statement(f"{text}; largest miss {worst:.2g}.", rule, worst, kind="formula"))
    return tuple(lines)


def compare(results: Results) -> DataFrame | None:
    """The misses; the paper's figure is a drawing."""
    found = results.get("misses")
    return found if isinstance(found, DataFrame) else None


PLACE = "section 5.2, after Proposition 6"
WORK_AND_OURS = (
    Setting("formula", LOST, "", "2 cos(θ) R - I = R²"),
    Setting("R", "the rotation by θ of the plane", PLACE, "the rotation by θ of the plane"),
    Setting("angles", LOST, "", ", ".join(f"{angle:g}°" for angle in SHOWN)),
)
FIGURE2_EXPERIMENT = Experiment(
    "autoregression.figure2",
    "The trigonometric formula that half as many heads as coordinates compute",
    f"{models.WORK}: Figure 2, section 5.2 and Lemma 3",
    (),
    run,
    states,
    compare,
    sample=f"the layer of Lemma 3 on {N_ANGLES} angles",
    settings=WORK_AND_OURS,
)
