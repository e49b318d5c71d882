"""Directions that the functions do not depend on, and what M keeps of them.

They are taken out, too, and the change of the error is measured.

Functions read B^T u, u = Sigma^(-1/2) x. A direction of u is relevant if it lies in col(B). The
causal part leaves the weights alone: the head attends as it would if some directions of every input
were 0, which is their mean, and reads the examples' own values (`PutPatterns`).
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from pandas import DataFrame
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.interventions.attention import PutPatterns, SwapPattern
from icl_interp.interventions.base import Intervention, intervene
from icl_interp.prompts import Prompts
from icl_interp.results import make_array, make_table, table_of_numbers
from icl_interp.studies.lipschitz.measurements.unit import (
    functions_of,
    kernel,
    task_of,
    whitened_kernel,
)
from icl_interp.tasks.ridge import RidgeFunction
from icl_interp.theory import lipschitz as theory

INTACT = "intact"
NO_IRRELEVANT = "irrelevant directions taken out"
NO_RELEVANT = "relevant directions taken out"
UNIFORM = "equal weights"
# At most, for the best pair: contexts, and examples in all of them.
CONTEXTS = 6000
KEYS = 300_000


@measurement("lipschitz/directions", needs=(kernel,))
def directions(lab: Lab, result: DataArray) -> DataFrame:
    """How much of whitened M acts in each direction of u, relevant ones first; they sum to 1.

    That of a unit vector b is (|M b|^2 + |M^T b|^2) / (2 |M|_F^2), for B's columns and a basis of
    the rest. Entries of M that join a relevant direction to an irrelevant one count for both by
    half; `outside_energy` counts them as outside.
    """
    task = task_of(lab)
    m = whitened_kernel(result)
    basis = completed(task.basis)
    size = m.square().sum()
    if size > 0:
        forth = (m @ basis).square().sum(0)
        back = (m.T @ basis).square().sum(0)
        shares = (forth + back) / (2 * size)
    else:
        shares = 0 * basis[0]
    numbers = list(range(1, task.dim + 1))
    kinds = ["relevant" if number <= task.rank else "irrelevant" for number in numbers]
    return make_table({"direction": numbers, "kind": kinds, "share": shares.tolist()})


def completed(basis: Float[Tensor, "dim rank"]) -> Float[Tensor, "dim dim"]:
    """An orthogonal matrix whose first columns are these."""
    rank = basis.shape[1]
    left = torch.linalg.svd(basis, full_matrices=True).U
    rest = left[:, rank:]
    return torch.cat([basis, rest], 1)


@measurement("lipschitz/subspace", needs=(kernel,))
def subspace(lab: Lab, result: DataArray) -> DataFrame:
    """Energy of M outside col(B), the largest principal angle, c, c', and those of the best c, c'.

    The best pair is found on fixed contexts without a cap, which Theorem 4 has and training has
    not.
    """
    task = task_of(lab)
    m = whitened_kernel(result)
    basis = task.basis
    n = task.n_points - 1
    count = min(CONTEXTS, max(400, KEYS // n))
    contexts = theory.draw_contexts(n, functions_of(task), count, d=task.dim, basis=basis)
    best = theory.optimal_pair(contexts, basis, task.noise_std)
    held = theory.low_rank_matrix(basis, best.inside, best.outside)
    own = theory.pair_of(m, basis)
    # M = 0 has no directions, and counts as the farthest from col(B).
    outside = 1.0
    distance = 1.0
    if bool(m.any()):
        outside = theory.outside_energy(m, basis)
        distance = theory.recovery_distance(m, basis)
    values = {
        "energy outside": outside,
        "distance": distance,
        "c": own.inside,
        "c'": own.outside,
        "best c": best.inside,
        "best c'": best.outside,
        "energy outside at best": theory.outside_energy(held, basis),
        "loss": theory.matrix_loss(m, contexts, task.noise_std),
        "best loss": best.loss,
    }
    note = "of M whitened; the best pair on fixed contexts, without a cap"
    return table_of_numbers(values, note=note)


@measurement("lipschitz/projected")
def projected(lab: Lab) -> DataArray:
    """Squared errors at the query of every unit: (unit, arm).

    The arms: the intact model, and models with directions hidden from attention.

    With equal weights the head attends to no direction at all.
    """
    task = task_of(lab)
    last = lab.encoding.n_tokens(lab.prompts.n_points) - 1
    # Projections on the directions of u that each arm leaves to attention.
    relevant = task.basis @ task.basis.T
    irrelevant = torch.eye(task.dim, dtype=torch.float64) - relevant
    found: list[Tensor] = []
    for rows in lab.chunks(lab.prompts):
        part = lab.prompts[rows]
        arms: Mapping[str, tuple[Intervention, ...]] = {
            INTACT: (),
            NO_IRRELEVANT: (_attending(lab, part, task, relevant),),
            NO_RELEVANT: (_attending(lab, part, task, irrelevant),),
            UNIFORM: (SwapPattern("uniform"),),
        }
        # The squared error of every prompt of the chunk, arm by arm.
        errors = []
        for interventions in arms.values():
            with torch.no_grad(), intervene(lab.model, *interventions):
                out = lab.model(lab.tokens(part), range(last, last + 1))
            predictions = out[:, 0, 0].cpu().double()
            residuals = predictions - part.ys[:, -1, 0]
            errors.append(residuals.square())
        found.append(torch.stack(errors, -1))
    values: np.ndarray = lab.by_unit(torch.cat(found))
    units = tuple(range(len(values)))
    axes = {"unit": units, "arm": (INTACT, NO_IRRELEVANT, NO_RELEVANT, UNIFORM)}
    return make_array(values, axes, "squared label", "squared error at the query")


def _attending(
    lab: Lab, prompts: Prompts, task: RidgeFunction, kept: Float[Tensor, "dim dim"]
) -> PutPatterns:
    """The patterns of the same prompts whose inputs have these directions of u only."""
    whitening = task.whitening
    projection = whitening @ kept @ torch.linalg.inv(whitening)
    seen = replace(prompts, xs=prompts.xs @ projection.to(prompts.xs))
    return PutPatterns.measure(lab.model, lab.tokens(seen))
