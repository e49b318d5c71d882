"""Dials of `linear_attention`, each for the power curve of a claim.

A dial takes hand-built models across the threshold of the claim.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.baselines.regression import LeastSquares
from icl_interp.experiments.calibration import Case
from icl_interp.experiments.power import Dial
from icl_interp.models.single_layers import LinearSelfAttention
from icl_interp.prompts import Prompts
from icl_interp.studies.linear_attention.constructions import layers as known
from icl_interp.studies.linear_attention.measurements.setting import trained_landscape
from icl_interp.tasks.regression import LinearRegression
from icl_interp.theory import linear_attention as theory

LONG = 129  # points of a prompt from which a layer of linear attention learns the task: R2 > 0.9


def _variances(ratio: float, g: torch.Generator) -> Case:
    """The optimum for four coordinates, one of a variance this many times smaller."""
    task = LinearRegression(n_dims=4, covariance=(1 / ratio, 1.0, 1.0, 1.0), n_points=41)
    product = trained_landscape(task).product
    return Case(known.layer(product, n_ctx=task.n_points), task)


def _other_length(factor: float, g: torch.Generator) -> Case:
    """The optimum for prompts of this many times as many examples."""
    task = known.noisy(g)
    n = round(factor * known.N)
    best = theory.landscape(task.covariance_matrix, n, task.noise_std**2)
    return Case(known.layer(best.product), task)


def _unbalanced(ratio: float, g: torch.Generator) -> Case:
    task = known.two_variances(g)
    matrix, scalar = theory.initial_point(0.3, known.start(g, 2))
    return known.path_of(task, known.flow(task, matrix, ratio * scalar))


def _mixed(share: float, g: torch.Generator) -> Case:
    """A share of what the best layer says, and least squares for the rest."""
    task = replace(known.two_variances(g), n_points=LONG)
    product = trained_landscape(task).product
    unit = LinearSelfAttention.from_product(product)
    exact = LeastSquares(task)

    def predict(prompts: Prompts) -> Float[Tensor, "batch point target"]:
        return share * unit.predict(prompts) + (1 - share) * exact.predict(prompts)

    return known.predicting(task, predict)


def _bounded(bound: float, g: torch.Generator) -> Case:
    """The best layer, whose predictions end at this many standard deviations of the label."""
    task = replace(known.isotropic(g), n_points=LONG)
    product = trained_landscape(task).product
    unit = LinearSelfAttention.from_product(product)
    most = bound * float(task.covariance_matrix.trace()) ** 0.5
    return known.predicting(task, lambda prompts: unit.predict(prompts).clamp(-most, most))


def _between_steps(share: float, g: torch.Generator) -> Case:
    """P from a plain step of gradient descent (0) to the best (1)."""
    task = known.two_variances(g)
    where = trained_landscape(task)
    rate = where.slope.sum() / where.curvature.diagonal().sum()
    plain = rate * torch.eye(2, dtype=torch.float64)
    product = plain + share * (where.product - plain)
    return Case(known.layer(product), task)


def _one_place(share: float, g: torch.Generator) -> Case:
    """Labels are averaged, with more weight on one place: by this share of all."""
    task = known.two_variances(g)
    weights = torch.ones(known.N)
    place = int(torch.randint(known.N, (), generator=g))
    weights[place] += share * known.N
    return Case(known.by_place(weights, 2), task)


DIALS: tuple[Dial, ...] = (
    Dial(
        "P over that of the global minimum",
        known.CONVERGED,
        "a layer of linear attention with this multiple of the best P",
        lambda v, g: known.times(v, 1.0, g),
        (2.0, 1.3, 1.2, 1.15, 1.1, 1.05, 1.03, 1.0),
    ),
    Dial(
        "|u| over |U| at the start",
        known.BALANCED,
        "gradient flow keeps the difference of the squares",
        _unbalanced,
        (4.0, 2.0, 1.5, 1.3, 1.2, 1.1, 1.05, 1.0),
    ),
    Dial(
        "variance of three coordinates over that of the fourth",
        known.IDENTITY,
        "the best P is nearly the inverse covariance",
        _variances,
        (100.0, 20.0, 10.0, 6.0, 4.0, 3.0, 2.0, 1.0),
    ),
    Dial(
        "examples that the layer is best for, over those trained on",
        known.RISK,
        "the fewer examples, the more the best layer shrinks its predictions",
        _other_length,
        (2.5, 2.0, 1.75, 1.5, 1.25, 1.0),
    ),
    Dial(
        "bound on predictions, in standard deviations of the label",
        known.QUERY,
        "the best layer for inputs of one variance, with predictions that end there",
        _bounded,
        (2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0, 20.0),
    ),
    Dial(
        "share of a step in the prediction",
        known.COVARIATE,
        "the rest of the prediction is that of least squares, which does not depend on the size of "
        "inputs",
        _mixed,
        (0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0),
    ),
    Dial(
        "share of the best step in P",
        known.ALGORITHM,
        "P from a multiple of the identity (0) to the best one (1)",
        _between_steps,
        (0.0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0),
    ),
    Dial(
        "weight of one place more than of the others",
        known.ORDER,
        "labels are averaged, and those of one place weigh more",
        _one_place,
        (1.0, 0.1, 0.05, 0.03, 0.02, 0.01, 0.004, 0.002, 0.0),
    ),
)
