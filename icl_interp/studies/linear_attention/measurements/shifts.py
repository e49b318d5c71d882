"""Errors on linear regression by prompt length and under shifts, beside what theory knows of each group of prompts.

Prompts come in groups that share w and Lambda (`setting.grouped_prompts`), for which the risk of any layer of linear
attention is known exactly. So measured and exact risks are compared group by group, and what w happened to be drawn is
no noise.
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.errors import InputError
from icl_interp.models.units import read_layer
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

N_CONTEXTS = 128  # prompts for each context of the lab's where the risk of a single layer is compared with a formula
N_SHIFTED = 32  # prompts of each function for deeper models, slopes and ratios
QUERY_FACTOR = 3.0
INPUT_FACTORS = (1.0, 2.0, 3.0)
LONG = 4  # M / N of the long prompts
MODEL, ZERO, BEST, OWN, PRINTED = "model", "zero", "optimum", "own weights", "as printed"
INSIDE, FARTHER, ISOTROPIC = "in distribution", "query x 3", "query isotropic, x 3"


def lengths(lab: Lab) -> tuple[int, ...]:
    """M: a quarter of N, N, and 4 N where the model can read it."""
    n = task_of(lab).n_points - 1
    return tuple(sorted({m for m in (max(1, n // 4), n, LONG * n) if m <= room(lab)}))


def risks(
    product: Float[Tensor, "dim dim"], m: int, groups: setting.GroupedPrompts, tau2: float, spoilt: bool = False
) -> Float[np.ndarray, " function"]:
    """Exact risk of a layer for each group of prompts; `spoilt` as the slides print it, without the 1/M."""
    found = []
    for w, lam in zip(groups.weights, groups.covariances, strict=True):
        terms = theory.product_risk(product, m, lam, w, tau2)
        found.append(float(terms.best + (m if spoilt else 1) * terms.variance + terms.bias))
    return np.array(found)


@measurement("lsa/risk")
def risk(lab: Lab) -> DataArray:
    """Mean squared error at the query of each group of prompts of M examples: measured, and exact for some layers.

    "optimum" is the layer that theory says training ends at; "own weights" the layer read off the model, where it is
    one; "as printed" the optimum by the slides' formula, which has lost a 1/M; "zero" predicts 0.
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
            ZERO: (torch.einsum("fi,fij,fj->f", groups.weights, groups.covariances, groups.weights) + tau2).numpy(),
            BEST: risks(where.product, m, groups, tau2),
            PRINTED: risks(where.product, m, groups, tau2, spoilt=True),
        }
        if own is not None:
            found[OWN] = risks(own, m, groups, tau2)
        values[:, :, column] = [found[name] for name in who]
    axes = {"who": tuple(who), "unit": tuple(range(lab.n_units)), "M": shown}
    note = f"{lab.n_units} draws of w{' and Λ' if task.random_covariance else ''}, {n_contexts} prompts of each"
    return make_curve(values, axes, note=note)


def _with_query(prompts: Prompts, lab: Lab, xs: Float[Tensor, "batch dim"]) -> tuple[Prompts, Float[Tensor, " batch"]]:
    """The same examples with other queries, and the labels of these without noise."""
    shifted = prompts.xs.clone()
    shifted[:, -1] = xs
    truth = task_of(lab).value(prompts.parameters, shifted)[:, -1]
    return Prompts(shifted, prompts.ys, prompts.parameters, prompts.function), truth


@measurement("lsa/query shift")
def query_shift(lab: Lab) -> DataArray:
    """Squared error, squared truth and their product with the prediction at the query, as the query alone shifts.

    Three arms with the same examples: the query as it is, three times as far, and from N(0, s^2 I) with s three times
    the root mean variance of the inputs. Labels of the query are without noise.
    """
    task, n = task_of(lab), task_of(lab).n_points - 1
    groups = grouped_prompts(lab, n, N_SHIFTED, "shift")
    own = groups.prompts.xs[:, -1]
    isotropic = torch.randn(own.shape, generator=generator(lab.seed, "lsa/query"), dtype=torch.float64)
    spread = groups.covariances.diagonal(dim1=1, dim2=2).mean().sqrt()
    queries = {INSIDE: own, FARTHER: QUERY_FACTOR * own, ISOTROPIC: QUERY_FACTOR * spread * isotropic}
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
    return make_array(rows, axes, note=f"M = {task.n_points - 1}; {N_SHIFTED} prompts of each function")


@measurement("lsa/covariate shift")
def covariate_shift(lab: Lab) -> DataArray:
    """The same moments with all inputs, the query's too, scaled by c; labels follow."""
    task, n = task_of(lab), task_of(lab).n_points - 1
    groups = grouped_prompts(lab, n, N_SHIFTED, "shift").prompts
    noise = groups.ys - task.targets(groups.parameters, groups.xs)
    rows = []
    for c in INPUT_FACTORS:
        clean = task.targets(groups.parameters, c * groups.xs)
        predictions = at_query(lab, Prompts(c * groups.xs, clean + noise, groups.parameters, groups.function))
        truth = as_numbers(clean)[:, -1]
        parts = ((predictions - truth).square(), truth.square(), predictions * truth)
        rows.append([by_function(part, lab.n_units) for part in parts])
    axes = {"c": INPUT_FACTORS, "moment": ("error", "truth^2", "prediction x truth"), "unit": tuple(range(lab.n_units))}
    return make_array(rows, axes, note=f"M = {task.n_points - 1}; {N_SHIFTED} prompts of each function")
