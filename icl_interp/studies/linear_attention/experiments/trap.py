"""Beyond the slides: outside Assumption 3.3 training can end at a stationary point of rank one.

The theorems start with w21 = 0. From random weights of all entries the exact population loss
(nothing is sampled) is minimised by L-BFGS; each end is the global minimum, the rank-one point, or
neither. A model trained by Adam from large weights is there as an example.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from pandas import DataFrame
from xarray import DataArray

from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Results
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, note
from icl_interp.models.single_layers import read_layer
from icl_interp.provenance import generator
from icl_interp.results import Result, make_array, make_table, table_of_rows
from icl_interp.studies.linear_attention.experiments import models, settings
from icl_interp.theory import linear_attention as theory

DIAGONAL = (1.0, 2.0)  # Lambda, as of the recipe lsa_trap
LENGTHS = {"smoke": (4,), "small": (2, 4, 8, 20), "paper": (2, 4, 8, 20)}  # N
# Of initial weights.
SPREADS = {"smoke": (0.1, 1.0), "small": (0.03, 0.1, 0.3, 1.0), "paper": (0.03, 0.1, 0.3, 1.0)}
STARTS = {"smoke": 6, "small": 24, "paper": 200}
MODEL = models.linear("lsa_trap", 1)  # the seed of the recipe
TRAPPED = MODEL.name
ENDS = ("minimum", "rank one", "other")
FLAT = 1e-9  # an eigenvalue of the Hessian that counts as 0
SIZES = {
    "smoke": "a layer of linear self-attention, d = 2, N = 4, 200 steps: shows that it runs, and "
    "nothing else",
    "small": "a layer of linear self-attention, d = 2, N = 4, 3,000 steps of Adam",
    "paper": "a layer of linear self-attention, d = 2, N = 4, 20,000 steps of Adam",
}
CLOSE = 0.02  # |P - point| / |P*| up to which an end is that point


def run(setup: Setup) -> dict[str, Result]:
    """Shares of ends by N and spread, the excess of the rank-one point, and the trained model."""
    scale = setup.preset.name
    lengths = LENGTHS[scale]
    spreads = SPREADS[scale]
    starts = STARTS[scale]
    # Each cell is kept on its own: a start takes a while.
    shares = np.zeros((len(lengths), len(spreads), len(ENDS)))
    for i, n in enumerate(lengths):
        for j, spread in enumerate(spreads):
            found = setup.keep(
                "linear_attention: ends of L-BFGS",
                [],
                lambda n=n, spread=spread: _ends(setup, n, spread, starts),
                n=n,
                spread=spread,
                starts=starts,
                diagonal=DIAGONAL,
            )
            shares[i, j] = np.asarray(found.values)
    note = (
        f"share of {starts} starts; all entries of W_PV and W_KQ from N(0, spread²), L-BFGS on the "
        "exact loss"
    )
    axes = {"N": lengths, "spread": spreads, "end": ENDS}
    results: dict[str, Result] = {}
    results["ends"] = make_array(shares, axes, note=note)
    results["points"] = _points(lengths)
    if setup.has(TRAPPED):
        results["trained"] = _trained(setup)
    return results


def end_of(w_pv: torch.Tensor, w_kq: torch.Tensor, where: theory.Landscape) -> str:
    """Which point of the landscape these weights are at, by their product."""
    product = theory.invariant_product(w_pv, w_kq)
    trap, _ = where.rank_one
    near = CLOSE * where.product.norm()
    if (product - where.product).norm() < near:
        return "minimum"
    if (product - trap).norm() < near:
        return "rank one"
    return "other"


def _ends(setup: Setup, n: int, spread: float, starts: int) -> DataArray:
    lam = torch.diag(torch.tensor(DIAGONAL, dtype=torch.float64))
    d = len(lam)
    where = theory.landscape(lam, n)
    found = []
    for start in range(starts):
        stream = generator(setup.seed, "linear_attention/trap", start)
        first = spread * torch.randn(2, d + 1, d + 1, generator=stream, dtype=torch.float64)
        w_pv, w_kq = descend(first, lam, n)
        found.append(end_of(w_pv, w_kq, where))
    shares = [found.count(end) / starts for end in ENDS]
    return make_array(np.array(shares), {"end": ENDS})


def descend(first: torch.Tensor, lam: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(W_PV, W_KQ) where L-BFGS on the exact population loss ends."""
    from scipy.optimize import minimize  # only here: it loads slowly

    def value(flat: np.ndarray) -> tuple[float, np.ndarray]:
        both = torch.from_numpy(flat).view_as(first).clone().requires_grad_(True)
        loss = theory.population_loss(both[0], both[1], lam, n)
        (slope,) = torch.autograd.grad(loss, both)
        return loss.item(), slope.numpy().ravel()

    solved = minimize(
        value,
        first.numpy().ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 2000, "ftol": 1e-13, "gtol": 1e-8},
    )
    w_pv, w_kq = torch.from_numpy(solved.x).view_as(first)
    return w_pv, w_kq


def rank_one_weights(where: theory.Landscape) -> torch.Tensor:
    """(W_PV, W_KQ) of the rank-one point, stacked: P = w21^PV w21^KQ^T.

    Both vectors have the same length, and all else is 0.
    """
    product, _ = where.rank_one
    values, vectors = torch.linalg.eigh(product)
    side = values[-1].sqrt() * vectors[:, -1]
    width = len(product) + 1
    both = torch.zeros(2, width, width, dtype=torch.float64)
    both[:, -1, :-1] = side
    return both


def lowest_curvature(where: theory.Landscape, lam: torch.Tensor, n: int) -> float:
    """The least eigenvalue of the Hessian of the loss at the rank-one point.

    The loss is of all weights. At a minimum the eigenvalue is 0 or more.

    Weights that predictions do not read, and the scale symmetry, give zeros.
    """
    weights = rank_one_weights(where)
    hessian = torch.autograd.functional.hessian(
        lambda both: theory.population_loss(both[0], both[1], lam, n), weights
    )
    assert isinstance(hessian, torch.Tensor)
    size = weights.numel()
    eigenvalues = torch.linalg.eigvalsh(hessian.reshape(size, size))
    return float(eigenvalues[0])


def _points(lengths: tuple[int, ...]) -> DataFrame:
    """Mean squared error at the minimum and at the rank-one point, exactly.

    The table also holds the curvature at the rank-one point.
    """
    lam = torch.diag(torch.tensor(DIAGONAL, dtype=torch.float64))
    rows = []
    for n in lengths:
        where = theory.landscape(lam, n)
        least = float(2 * where.minimum + where.label_moment)
        _, excess = where.rank_one
        row = {
            "N": n,
            "minimum": least,
            "rank one": least + 2 * float(excess),
            "lowest curvature": lowest_curvature(where, lam, n),
        }
        rows.append(row)
    return table_of_rows(rows, note="mean squared error, exact")


def _trained(setup: Setup) -> DataFrame:
    checkpoint = setup.models[TRAPPED]
    layer = read_layer(checkpoint.model)
    n = models.trained_length(checkpoint)
    task = models.task_of(checkpoint)
    where = theory.landscape(task.covariance_matrix, n)
    size = where.product.norm()
    trap, _ = where.rank_one
    to_minimum = (layer.product - where.product).norm()
    to_trap = (layer.product - trap).norm()
    columns = {
        "model": [TRAPPED],
        "N": [n],
        "to the minimum": [float(to_minimum / size)],
        "to rank one": [float(to_trap / size)],
        "w22 of W_PV": [float(layer.values[0, -2])],
    }
    return make_table(columns, note="|P - point| / |P*|")


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """Notes, as the source is silent: how many starts end at rank one, and the trained model.

    The rank-one point is described as well.
    """
    ends = results.get("ends")
    if not isinstance(ends, DataArray):
        return (note("Nothing is measured."),)
    lines = [_says_ends(ends)]
    points = errors.rows_of(results, "points")
    if points:
        lines.append(_says_point(points[0]))
        lines.append(_says_curvature(points))
    trained = errors.rows_of(results, "trained")
    lines += map(_says_trained, trained)
    return tuple(map(note, lines))


def _says_ends(ends: DataArray) -> str:
    shares = ends.sel(end="rank one").values
    if not shares.max() > 0:
        return "No random start ended at the rank-one point."
    spreads = ends.indexes["spread"]
    parts = []
    for n, of_length in zip(ends.indexes["N"], shares, strict=True):
        low = 100 * of_length.min()
        high = 100 * of_length.max()
        parts.append(f"{low:.0f} to {high:.0f} % at N = {n}")
    return (
        f"From random weights of all entries, spread {min(spreads):g} to {max(spreads):g}, "
        f"{', '.join(parts)} of the starts end at the rank-one point. The assumption w21 = 0 of "
        "the theorems matters; small weights alone do not replace it."
    )


def _says_curvature(points: Sequence[Mapping[str, Any]]) -> str:
    minima = []
    saddles = []
    for row in points:
        lowest = row["lowest curvature"]
        if lowest > -FLAT:
            minima.append(str(row["N"]))
        else:
            saddles.append(f"{row['N']} ({lowest:.2g})")
    return (
        f"By its Hessian the point is a local minimum at N = {', '.join(minima) or 'none'} and "
        f"a saddle at N = {', '.join(saddles) or 'none'} (least eigenvalue)."
    )


def _says_point(row: Mapping[str, Any]) -> str:
    return (
        f"There the mean squared error is {row['rank one']:.3f} instead of {row['minimum']:.3f} (N "
        f"= {row['N']})."
    )


def _says_trained(row: Mapping[str, Any]) -> str:
    to_trap = row["to rank one"]
    to_minimum = row["to the minimum"]
    if to_trap < 0.1 < to_minimum:
        where = "the rank-one point, not at a global minimum"
    elif to_minimum < 0.1:
        where = "the global minimum"
    else:
        where = "neither point"
    return (
        f"{row['model']}: Adam from large weights ends at {where} (distances "
        f"{to_trap:.2g} from rank one and {to_minimum:.2g} from the minimum, "
        "over |P*|; the theorem starts elsewhere: this is not against it)."
    )


TRAP_EXPERIMENT = Experiment(
    "linear_attention.trap",
    "Beyond Assumption 3.3: random starts that end at a stationary point of rank one",
    f"beyond {models.SLIDES}: its Assumption 3.3 excludes these starts",
    (MODEL,),
    run,
    states,
    sample="the loss is exact; L-BFGS from random weights",
    sizes=SIZES,
    settings=settings.SETTINGS["trap"],
)
