"""Errors on linear regression by prompt length and under shifts, beside theory.

Theory gives what it knows of each group of prompts.

Prompts come in groups that share w and Lambda (`setting.grouped_prompts`), for which the risk of
any layer of linear attention is known exactly. So measured and exact risks are compared group by
group, and what w happened to be drawn is no noise.
"""

import contextlib

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.errors import InputError
from icl_interp.models.single_layers import read_layer
from icl_interp.prompts import Prompts, as_numbers
from icl_interp.provenance import generator
from icl_interp.results import make_array, make_curve
from icl_interp.studies.linear_attention.measurements import setting
from icl_interp.studies.linear_attention.measurements.setting import (
    at_query,
    by_function,
    grouped_prompts,
    room,
    task_of,
    trained_landscape,
)
from icl_interp.theory import linear_attention as theory

# Prompts for each context of the lab's where the risk of a single layer is compared with a formula.
N_CONTEXTS = 128
N_SHIFTED = 32  # prompts of each function for deeper models, slopes and ratios
QUERY_FACTOR = 3.0
INPUT_FACTORS = (1.0, 2.0, 3.0)
# What a model does at known places it need not do between: scales of queries and of inputs are
# drawn by the seed of the sample between these, evenly in the logarithm.
DRAWN_FACTORS = (1.3, 4.0)
N_DRAWN = 2
LONG = 4  # M / N of the long prompts
MOMENTS = ("error", "truth^2", "prediction x truth")
MODEL = "model"
ZERO = "zero"
BEST = "optimum"
OWN = "own weights"
PRINTED = "as printed"
INSIDE = "in distribution"
FARTHER = "query x 3"
ISOTROPIC = "query isotropic, x 3"
DRAWN = "query from a drawn normal distribution"


def lengths(lab: Lab) -> tuple[int, ...]:
    """The lengths M: a quarter of N, N, and 4 N where the model can read it; and one drawn.

    The drawn one lies between the shortest and the longest.
    """
    n = task_of(lab).n_points - 1
    wanted = (max(1, n // 4), n, LONG * n)
    known = {m for m in wanted if m <= room(lab)}
    between = [m for m in range(min(known), max(known)) if m not in known]
    if between:
        stream = generator(lab.seed, "lsa/length")
        chosen = torch.randint(len(between), (), generator=stream)
        known.add(between[int(chosen)])
    return tuple(sorted(known))


def drawn_factors(lab: Lab) -> tuple[float, ...]:
    """A few scales, drawn by the seed of the sample, in ascending order."""
    low, high = np.log(DRAWN_FACTORS)
    stream = generator(lab.seed, "lsa/factors")
    share = torch.rand(N_DRAWN, generator=stream, dtype=torch.float64)
    factors = np.exp(low + (high - low) * share.numpy())
    return tuple(sorted(factors.tolist()))


def drawn_queries(
    like: Float[Tensor, "batch dim"], spread: Float[Tensor, ""], lab: Lab
) -> Float[Tensor, "batch dim"]:
    """Queries N(0, A), with a random A whose mean variance is a drawn multiple of the usual one."""
    stream = generator(lab.seed, "lsa/drawn queries")
    d = like.shape[1]
    root = torch.randn(d, d, generator=stream, dtype=torch.float64)
    root *= drawn_factors(lab)[-1] * spread * (d / root.square().sum()).sqrt()
    directions = torch.randn(like.shape, generator=stream, dtype=torch.float64)
    return directions @ root.T


def risks(
    product: Float[Tensor, "dim dim"],
    m: int,
    groups: setting.GroupedPrompts,
    tau2: float,
    spoilt: bool = False,
) -> Float[np.ndarray, " function"]:
    """Exact risk of a layer for each group of prompts.

    With `spoilt` it is as the slides print it, without the 1/M.
    """
    factor = m if spoilt else 1
    found = []
    for w, lam in zip(groups.weights, groups.covariances, strict=True):
        terms = theory.product_risk(product, m, lam, w, tau2)
        total = terms.best + factor * terms.variance + terms.bias
        found.append(float(total))
    return np.array(found)


@measurement("lsa/risk", version=2)
def risk(lab: Lab) -> DataArray:
    """Mean squared error at the query of each group of prompts of M examples.

    It is measured, and exact for some layers.

    "optimum" is the layer that theory says training ends at; "own weights" the layer read off the
    model, where it is one; "as printed" the optimum by the slides' formula, which has lost a 1/M;
    "zero" predicts 0.
    """
    task = task_of(lab)
    best = trained_landscape(task).product
    tau2 = task.noise_std**2
    shown = lengths(lab)

    # Where the model is a layer, its own risk is known, and more prompts are compared with it.
    own = None
    if setting.is_stacked(lab):
        with contextlib.suppress(InputError):
            own = read_layer(lab.model).product
    who = [MODEL, ZERO, BEST, PRINTED]
    n_contexts = N_SHIFTED
    if own is not None:
        who.append(OWN)
        n_contexts = N_CONTEXTS * lab.unit_size

    values = np.empty((len(who), lab.n_units, len(shown)))
    for column, m in enumerate(shown):
        groups = grouped_prompts(lab, m, n_contexts, "risk")
        w = groups.weights
        truth = as_numbers(groups.prompts.ys)[:, -1]
        residuals = at_query(lab, groups.prompts) - truth
        sizes = torch.einsum("fi,fij,fj->f", w, groups.covariances, w) + tau2
        found = [
            by_function(residuals.square(), lab.n_units),
            sizes.numpy(),
            risks(best, m, groups, tau2),
            risks(best, m, groups, tau2, spoilt=True),
        ]
        if own is not None:
            found.append(risks(own, m, groups, tau2))
        values[:, :, column] = found
    axes = {"who": tuple(who), "unit": tuple(range(lab.n_units)), "M": shown}
    note = (
        f"{lab.n_units} draws of w{' and Λ' if task.random_covariance else ''}, {n_contexts} "
        "prompts of each"
    )
    return make_curve(values, axes, note=note)


def _with_query(
    prompts: Prompts, lab: Lab, xs: Float[Tensor, "batch dim"]
) -> tuple[Prompts, Float[Tensor, " batch"]]:
    """The same examples with other queries, and the labels of these without noise."""
    shifted = prompts.xs.clone()
    shifted[:, -1] = xs
    truth = task_of(lab).value(prompts.parameters, shifted)[:, -1]
    return Prompts(shifted, prompts.ys, prompts.parameters, prompts.function), truth


@measurement("lsa/query shift", version=2)
def query_shift(lab: Lab) -> DataArray:
    """Squared error, squared truth and their product with the prediction, at the query.

    The query alone shifts.

    Four arms with the same examples: the query as it is, three times as far, from N(0, s^2 I) with
    s three times the root mean variance of the inputs, and from a normal distribution whose
    covariance is drawn by the seed of the sample (`drawn_queries`). Labels of the query are without
    noise.
    """
    n = task_of(lab).n_points - 1
    groups = grouped_prompts(lab, n, N_SHIFTED, "shift")
    own = groups.prompts.xs[:, -1]
    stream = generator(lab.seed, "lsa/query")
    isotropic = torch.randn(own.shape, generator=stream, dtype=torch.float64)
    variances = groups.covariances.diagonal(dim1=1, dim2=2)
    spread = variances.mean().sqrt()
    queries = {
        INSIDE: own,
        FARTHER: QUERY_FACTOR * own,
        ISOTROPIC: QUERY_FACTOR * spread * isotropic,
        DRAWN: drawn_queries(own, spread, lab),
    }
    rows = []
    for xs in queries.values():
        prompts, truth = _with_query(groups.prompts, lab, xs)
        rows.append(_moments(lab, prompts, truth))
    axes = {"arm": tuple(queries), "moment": MOMENTS, "unit": tuple(range(lab.n_units))}
    return make_array(rows, axes, note=f"M = {n}; {N_SHIFTED} prompts of each function")


def _moments(lab: Lab, prompts: Prompts, truth: Float[Tensor, " batch"]) -> list[np.ndarray]:
    """The `MOMENTS` of predictions at the query, by function."""
    predictions = at_query(lab, prompts)
    parts = ((predictions - truth).square(), truth.square(), predictions * truth)
    return [by_function(part, lab.n_units) for part in parts]


@measurement("lsa/covariate shift", version=2)
def covariate_shift(lab: Lab) -> DataArray:
    """The same moments with all inputs, the query's too, scaled by c; labels follow.

    c is 1, 2 and 3, and a few numbers that are drawn by the seed of the sample.
    """
    task = task_of(lab)
    n = task.n_points - 1
    usual = grouped_prompts(lab, n, N_SHIFTED, "shift").prompts
    noise = usual.ys - task.targets(usual.parameters, usual.xs)
    rows = []
    factors = (*INPUT_FACTORS, *drawn_factors(lab))
    for c in factors:
        xs = c * usual.xs
        clean = task.targets(usual.parameters, xs)
        prompts = Prompts(xs, clean + noise, usual.parameters, usual.function)
        rows.append(_moments(lab, prompts, as_numbers(clean)[:, -1]))
    axes = {"c": factors, "moment": MOMENTS, "unit": tuple(range(lab.n_units))}
    return make_array(rows, axes, note=f"M = {n}; {N_SHIFTED} prompts of each function")
