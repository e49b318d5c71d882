"""Beyond the slides: outside Assumption 3.3 training can end at a stationary point of rank one.

The theorems start with w21 = 0. From random weights of all entries the exact population loss
(nothing is sampled) is minimised by L-BFGS; each end is the global minimum, the rank-one point, or
neither. A model trained by Adam from large weights is there as an example.
"""

from collections.abc import Mapping
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
SPREADS = {
    "smoke": (0.1, 1.0),
    "small": (0.03, 0.1, 0.3, 1.0),
    "paper": (0.03, 0.1, 0.3, 1.0),
}  # of initial weights
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
    lengths, spreads, starts = LENGTHS[scale], SPREADS[scale], STARTS[scale]
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
    results: dict[str, Result] = {
        "ends": make_array(shares, axes, note=note),
        "points": _points(lengths),
    }
    if setup.has(TRAPPED):
        results["trained"] = _trained(setup)
    return results


def end_of(w_pv: torch.Tensor, w_kq: torch.Tensor, where: theory.Landscape) -> str:
    """Which point of the landscape these weights are at, by their product."""
    product, size = theory.invariant_product(w_pv, w_kq), where.product.norm()
    points = {"minimum": where.product, "rank one": where.rank_one[0]}
    return next(
        (name for name, point in points.items() if (product - point).norm() < CLOSE * size), "other"
    )


def _ends(setup: Setup, n: int, spread: float, starts: int) -> DataArray:
    lam = torch.diag(torch.tensor(DIAGONAL, dtype=torch.float64))
    d, where = len(lam), theory.landscape(lam, n)
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
    both = torch.zeros(2, len(product) + 1, len(product) + 1, dtype=torch.float64)
    both[0, -1, :-1] = both[1, -1, :-1] = side
    return both


def lowest_curvature(where: theory.Landscape, lam: torch.Tensor, n: int) -> float:
    """The least eigenvalue of the Hessian of the loss at the rank-one point.

    The loss is of all weights. At a minimum the eigenvalue is 0 or more.

    Weights that predictions do not read, and the scale symmetry, give zeros.
    """
    hessian = torch.autograd.functional.hessian(
        lambda both: theory.population_loss(both[0], both[1], lam, n), rank_one_weights(where)
    )
    assert isinstance(hessian, torch.Tensor)
    size = hessian.shape[0] * hessian.shape[1] * hessian.shape[2]
    return float(torch.linalg.eigvalsh(hessian.reshape(size, size))[0])


def _points(lengths: tuple[int, ...]) -> DataFrame:
    """Mean squared error at the minimum and at the rank-one point, exactly.

    The table also holds the curvature at the rank-one point.
    """
    lam = torch.diag(torch.tensor(DIAGONAL, dtype=torch.float64))
    rows = []
    for n in lengths:
        where = theory.landscape(lam, n)
        least = float(2 * where.minimum + where.label_moment)
        rows.append(
            {
                "N": n,
                "minimum": least,
                "rank one": least + 2 * float(where.rank_one[1]),
                "lowest curvature": lowest_curvature(where, lam, n),
            }
        )
    return table_of_rows(rows, note="mean squared error, exact")


def _trained(setup: Setup) -> DataFrame:
    checkpoint = setup.models[TRAPPED]
    layer, n = read_layer(checkpoint.model), models.trained_length(checkpoint)
    where = theory.landscape(models.task_of(checkpoint).covariance_matrix, n)
    size = where.product.norm()
    row = {
        "model": TRAPPED,
        "N": n,
        "to the minimum": float((layer.product - where.product).norm() / size),
        "to rank one": float((layer.product - where.rank_one[0]).norm() / size),
        "w22 of W_PV": float(layer.values[0, -2]),
    }
    return make_table({key: [value] for key, value in row.items()}, note="|P - point| / |P*|")


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """Notes, because the source is silent: where random starts end, and the trained model.

    The first is on how often random starts end at the rank-one point.
    """
    ends = results.get("ends")
    if not isinstance(ends, DataArray):
        return (note("Nothing is measured."),)
    shares = ends.sel(end="rank one").values
    spreads, lengths = ends.indexes["spread"], ends.indexes["N"]
    parts = [
        f"{100 * s.min():.0f} to {100 * s.max():.0f} % at N = {n}"
        for n, s in zip(lengths, shares, strict=True)
    ]
    lines = [
        f"From random weights of all entries, spread {min(spreads):g} to {max(spreads):g}, "
        f"{', '.join(parts)} of the starts end at the rank-one point. The assumption w21 = 0 of "
        "the theorems matters; small weights alone do not replace it."
        if shares.max() > 0
        else "No random start ended at the rank-one point."
    ]
    points = errors.rows_of(results, "points")
    lines += [_says_point(row) for row in points[:1]]
    if points:
        minima = [str(row["N"]) for row in points if row["lowest curvature"] > -FLAT]
        saddles = [
            f"{row['N']} ({row['lowest curvature']:.2g})"
            for row in points
            if row["lowest curvature"] <= -FLAT
        ]
        lines.append(
            f"By its Hessian the point is a local minimum at N = {', '.join(minima) or 'none'} and "
            f"a saddle at N = {', '.join(saddles) or 'none'} (least eigenvalue)."
        )
    lines += [_says_trained(row) for row in errors.rows_of(results, "trained")]
    return tuple(map(note, lines))


def _says_point(row: Mapping[str, Any]) -> str:
    return (
        f"There the mean squared error is {row['rank one']:.3f} instead of {row['minimum']:.3f} (N "
        f"= {row['N']})."
    )


def _says_trained(row: Mapping[str, Any]) -> str:
    where = (
        "the rank-one point, not at a global minimum"
        if row["to rank one"] < 0.1 < row["to the minimum"]
        else "the global minimum"
        if row["to the minimum"] < 0.1
        else "neither point"
    )
    return (
        f"{row['model']}: Adam from large weights ends at {where} (distances "
        f"{row['to rank one']:.2g} from rank one and {row['to the minimum']:.2g} from the minimum, "
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
