"""Errors on linear regression by prompt length and under shifts, beside what theory knows of each group of prompts.

Prompts come in groups that share w and Lambda (`setting.grouped_prompts`), for which the risk of
any layer of linear attention is known exactly. So measured and exact risks are compared group by
group, and what w happened to be drawn is no noise.
"""

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
# What a model does at known places it need not do between: these are drawn, by the seed of the
# sample.
DRAWN_FACTORS = (
    1.3,
    4.0,
)  # between which scales of queries and of inputs are drawn, evenly in the logarithm
N_DRAWN = 2
LONG = 4  # M / N of the long prompts
MODEL, ZERO, BEST, OWN, PRINTED = "model", "zero", "optimum", "own weights", "as printed"
INSIDE, FARTHER, ISOTROPIC, DRAWN = (
    "in distribution",
    "query x 3",
    "query isotropic, x 3",
    "query from a drawn normal distribution",
)


def lengths(lab: Lab) -> tuple[int, ...]:
    """M: a quarter of N, N, and 4 N where the model can read it; and one drawn between the shortest and the longest."""
    n = task_of(lab).n_points - 1
    known = {m for m in (max(1, n // 4), n, LONG * n) if m <= room(lab)}
    between = [m for m in range(min(known), max(known)) if m not in known]
    if between:
        chosen = torch.randint(len(between), (), generator=generator(lab.seed, "lsa/length"))
        known.add(between[int(chosen)])
    return tuple(sorted(known))


def drawn_factors(lab: Lab) -> tuple[float, ...]:
    """A few scales, drawn by the seed of the sample, in ascending order."""
    low, high = np.log(DRAWN_FACTORS)
    share = torch.rand(N_DRAWN, generator=generator(lab.seed, "lsa/factors"), dtype=torch.float64)
    return tuple(sorted(np.exp(low + (high - low) * share.numpy()).tolist()))


def drawn_queries(
    like: Float[Tensor, "batch dim"], spread: Float[Tensor, ""], lab: Lab
) -> Float[Tensor, "batch dim"]:
    """Queries N(0, A), with a random A whose mean variance is a drawn multiple of the usual one."""
    draw, d = generator(lab.seed, "lsa/drawn queries"), like.shape[1]
    root = torch.randn(d, d, generator=draw, dtype=torch.float64)
    root *= drawn_factors(lab)[-1] * spread * (d / root.square().sum()).sqrt()
    return torch.randn(like.shape, generator=draw, dtype=torch.float64) @ root.T


def risks(
    product: Float[Tensor, "dim dim"],
    m: int,
    groups: setting.GroupedPrompts,
    tau2: float,
    spoilt: bool = False,
) -> Float[np.ndarray, " function"]:
    """Exact risk of a layer for each group of prompts; `spoilt` as the slides print it, without the 1/M."""
    found = []
    for w, lam in zip(groups.weights, groups.covariances, strict=True):
        terms = theory.product_risk(product, m, lam, w, tau2)
        found.append(float(terms.best + (m if spoilt else 1) * terms.variance + terms.bias))
    return np.array(found)


@measurement("lsa/risk", version=2)
def risk(lab: Lab) -> DataArray:
    """Mean squared error at the query of each group of prompts of M examples: measured, and exact for some layers.

    "optimum" is the layer that theory says training ends at; "own weights" the layer read off the
    model, where it is one; "as printed" the optimum by the slides' formula, which has lost a 1/M;
    "zero" predicts 0.
    """
    task, where, tau2 = task_of(lab), trained_landscape(task_of(lab)), task_of(lab).noise_std ** 2
    who, shown = [MODEL, ZERO, BEST, PRINTED], lengths(lab)
    try:
        own = read_layer(lab.model).product if setting.is_stacked(lab) else None
    except InputError:
        own = None
    who += [OWN] if own is not None else []
    n_contexts = N_SHIFTED if own is None else N_CONTEXTS * lab.unit_size
    values = np.empty((len(who), lab.n_units, len(shown)))
    for column, m in enumerate(shown):
        groups = grouped_prompts(lab, m, n_contexts, "risk")
        truth = as_numbers(groups.prompts.ys)[:, -1]
        found = {
            MODEL: by_function((at_query(lab, groups.prompts) - truth).square(), lab.n_units),
            ZERO: (
                torch.einsum("fi,fij,fj->f", groups.weights, groups.covariances, groups.weights)
                + tau2
            ).numpy(),
            BEST: risks(where.product, m, groups, tau2),
            PRINTED: risks(where.product, m, groups, tau2, spoilt=True),
        }
        if own is not None:
            found[OWN] = risks(own, m, groups, tau2)
        values[:, :, column] = [found[name] for name in who]
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
    """Squared error, squared truth and their product with the prediction at the query, as the query alone shifts.

    Four arms with the same examples: the query as it is, three times as far, from N(0, s^2 I) with
    s three times the root mean variance of the inputs, and from a normal distribution whose
    covariance is drawn by the seed of the sample (`drawn_queries`). Labels of the query are without
    noise.
    """
    task, n = task_of(lab), task_of(lab).n_points - 1
    groups = grouped_prompts(lab, n, N_SHIFTED, "shift")
    own = groups.prompts.xs[:, -1]
    isotropic = torch.randn(
        own.shape, generator=generator(lab.seed, "lsa/query"), dtype=torch.float64
    )
    spread = groups.covariances.diagonal(dim1=1, dim2=2).mean().sqrt()
    queries = {
        INSIDE: own,
        FARTHER: QUERY_FACTOR * own,
        ISOTROPIC: QUERY_FACTOR * spread * isotropic,
        DRAWN: drawn_queries(own, spread, lab),
    }
    rows = []
    for xs in queries.values():
        prompts, truth = _with_query(groups.prompts, lab, xs)
        predictions = at_query(lab, prompts)
        parts = ((predictions - truth).square(), truth.square(), predictions * truth)
        rows.append([by_function(part, lab.n_units) for part in parts])
    axes = {
        "arm": tuple(queries),
        "moment": ("error", "truth^2", "prediction x truth"),
        "unit": tuple(range(lab.n_units)),
    }
    return make_array(
        rows, axes, note=f"M = {task.n_points - 1}; {N_SHIFTED} prompts of each function"
    )


@measurement("lsa/covariate shift", version=2)
def covariate_shift(lab: Lab) -> DataArray:
    """The same moments with all inputs, the query's too, scaled by c; labels follow.

    c is 1, 2 and 3, and a few numbers that are drawn by the seed of the sample.
    """
    task, n = task_of(lab), task_of(lab).n_points - 1
    groups = grouped_prompts(lab, n, N_SHIFTED, "shift").prompts
    noise = groups.ys - task.targets(groups.parameters, groups.xs)
    rows = []
    factors = (*INPUT_FACTORS, *drawn_factors(lab))
    for c in factors:
        clean = task.targets(groups.parameters, c * groups.xs)
        predictions = at_query(
            lab, Prompts(c * groups.xs, clean + noise, groups.parameters, groups.function)
        )
        truth = as_numbers(clean)[:, -1]
        parts = ((predictions - truth).square(), truth.square(), predictions * truth)
        rows.append([by_function(part, lab.n_units) for part in parts])
    axes = {
        "c": factors,
        "moment": ("error", "truth^2", "prediction x truth"),
        "unit": tuple(range(lab.n_units)),
    }
    return make_array(
        rows, axes, note=f"M = {task.n_points - 1}; {N_SHIFTED} prompts of each function"
    )
