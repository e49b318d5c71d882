"""Weights of a layer of linear self-attention against its optimum, at the end and along the way.

Nothing is sampled.

A prediction knows the last row v = (w21, w22) of W_PV and the first d columns F = (W11; w21^T) of
W_KQ, and (c F, v / c) predicts the same for every c. So distances are taken twice: of the invariant
product P, and of (v, F) after the c that makes |v| = |F| and w22 > 0. Biases and weights past
attention are no part of an LSA layer: the largest is reported as "outside".
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from pandas import DataFrame
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.models.single_layers import LayerForm, read_layer
from icl_interp.models.transformer import HookedTransformer
from icl_interp.results import make_array, make_curve, table_of_numbers
from icl_interp.studies.linear_attention.measurements.setting import task_of, trained_landscape
from icl_interp.tasks.regression import LinearRegression
from icl_interp.theory import linear_attention as theory

TINY = 1e-300
QUANTITIES = (
    "|P - P*| / |P*|",
    "excess",
    "squared gradient",
    "PL bound",
    "|v|^2",
    "|F|^2",
    "drift of factors",
    "outside",
)


class Unit(NamedTuple):
    """What predictions know of an LSA layer of one head."""

    v: Float[Tensor, " wide"]
    f: Float[Tensor, "wide dim"]

    @property
    def product(self) -> Float[Tensor, "dim dim"]:
        """P, what predictions that are odd in the labels read."""
        return self.v[-1] * self.f[:-1] + torch.outer(self.v[:-1], self.f[-1])

    @property
    def balanced(self) -> "Unit":
        """The same predictions with |v| = |F| and w22 > 0."""
        c = (
            (self.v.norm() / self.f.norm().clamp_min(TINY)).sqrt() * (1 if self.v[-1] >= 0 else -1)
        ).clamp(-1e9, 1e9)
        return Unit(self.v / c, self.f * c) if c != 0 else self

    def loss(self, task: LinearRegression) -> Float[Tensor, ""]:
        """The exact population loss E(yhat - y)^2 / 2 of the layer, of w22 and W11 alone where Lambda is random."""
        if task.random_covariance:
            where = trained_landscape(task)
            return where.loss(self.f[:-1], self.v[-1]) + where.label_moment / 2
        wide = len(self.v)
        w_pv = torch.cat([self.v.new_zeros(wide - 1, wide), self.v[None]])
        w_kq = torch.cat([self.f, self.f.new_zeros(wide, 1)], 1)
        return theory.population_loss(
            w_pv, w_kq, task.covariance_matrix, task.n_points - 1, task.noise_std**2
        )


def unit_of(layer: LayerForm) -> Unit | None:
    """The unit of a layer of one head; None for several."""
    wide = layer.values.shape[1] - 1
    return (
        None
        if len(layer.values) > 1
        else Unit(layer.values[0, :wide], layer.forms[0, :wide, : wide - 1])
    )


def optimum(task: LinearRegression) -> Unit:
    """W* of Theorem 4.1, or 4.5 where Lambda is random: balanced."""
    w_pv, w_kq = theory.optimum(trained_landscape(task))
    return Unit(w_pv[-1], w_kq[:, :-1])


@measurement("lsa/product")
def product(lab: Lab) -> DataArray:
    """P read off the weights beside that of the optimum, and of the stationary point of rank one."""
    where = trained_landscape(task_of(lab))
    found = {"P": read_layer(lab.model).product, "P*": where.product, "rank one": where.rank_one[0]}
    d = range(1, task_of(lab).dim + 1)
    return make_array(
        torch.stack(list(found.values())).numpy(), {"matrix": tuple(found), "row": d, "column": d}
    )


@measurement("lsa/numbers")
def numbers(lab: Lab) -> DataFrame:
    """How far the weights are from the optimum, in several ways; NaN where a layer of several heads has no such number.

    "excess" is the exact loss above its minimum, relative to the minimum. "aligned distance" is
    that of (v, F) from W* after scaling. "share of the identity" is tr(A)^2 / (d |A|^2), 1 for a
    multiple of the identity.
    """
    task, layer = task_of(lab), read_layer(lab.model)
    where, unit, best = trained_landscape(task), unit_of(layer), optimum(task)
    least = where.minimum + where.label_moment / 2
    size = where.product.norm()
    values = {
        "distance": (layer.product - where.product).norm() / size,
        "distance from rank one": (layer.product - where.rank_one[0]).norm() / size,
        "excess": where.excess(layer.product, 1.0) / least,
        "outside": layer.outside,
    }
    if unit:
        aligned, norm = unit.balanced, (best.v.square().sum() + best.f.square().sum()).sqrt()
        gap = (aligned.v - best.v).square().sum() + (aligned.f - best.f).square().sum()
        v2, f2 = unit.v.square().sum(), unit.f.square().sum()
        values |= {
            "aligned distance": gap.sqrt() / norm,
            "excess of all weights": unit.loss(task) / least - 1,
            "share of v in w21": unit.v[:-1].square().sum() / v2.clamp_min(TINY),
            "imbalance": (v2 - f2) / torch.maximum(v2, f2).clamp_min(TINY),
        }
    return table_of_numbers(values, note="exact, from the weights")


def share_of_identity(matrix: Float[Tensor, "d d"]) -> float:
    """tr(A)^2 / (d |A|^2): 1 for a multiple of the identity, about 1 / d^2 for independent entries.

    >>> share_of_identity(3 * torch.eye(4)), share_of_identity(torch.diag(torch.tensor([1.0, 0.0])))
    (1.0, 0.5)
    """
    return float(matrix.trace().square() / (len(matrix) * matrix.square().sum()).clamp_min(TINY))


# ---- along the way -------------------------------------------------------------------------------


def pl_rate(
    where: theory.Landscape, covariance: Float[Tensor, "dim dim"] | None, gained: Tensor
) -> Tensor:
    """mu of Lemma 5.4 at a balanced point whose loss lies by `gained` below that of predicting 0.

    The lemma bounds u from below by what has been gained: -l <= u tr(Lambda^2 U^T) <= u^2 sqrt(d)
    |Lambda|_op^2 where u = |U|_F, and mu = 2 u^2 / (tr(Gamma^-1 Lambda^-1) tr(Lambda^-1)). It takes
    the gain at the start; here it is that of the point itself, so the bound is the sharper one. For
    a random Lambda the same argument gives 2 u^2 min C with u^2 >= gained / |b|.

    Args:
        where: the loss over the training prompts.
        covariance: Lambda; None where it is random.
        gained: label_moment / 2 - L; nothing follows where it is not positive.
    """
    gained = gained.clamp_min(0)
    if covariance is None:
        return 2 * where.curvature.min() * gained / where.slope.norm()
    inverse = torch.linalg.inv(covariance)
    floor = gained / (len(covariance) ** 0.5 * torch.linalg.matrix_norm(covariance, 2) ** 2)
    return 2 * floor / ((where.product @ inverse).trace() * inverse.trace())


def _squared_gradient(unit: Unit, task: LinearRegression) -> tuple[Tensor, Tensor]:
    """(loss, squared norm of its gradient in v and F)."""
    free = Unit(*(part.detach().clone().requires_grad_(True) for part in unit))
    with torch.enable_grad():
        loss = free.loss(task)
        grads = torch.autograd.grad(loss, tuple(free))
    return loss.detach(), sum(
        (g.square().sum() for g in grads), torch.zeros((), dtype=torch.float64)
    )


def _factor_balance(model: HookedTransformer) -> Float[Tensor, "d_head d_head"]:
    """A_Q^T A_Q - A_K^T A_K of the first head, A = (W; b): gradient flow on the factors conserves it, for any loss."""
    attn = model.blocks[0].attn
    q, k = (
        torch.cat([getattr(attn, f"W_{x}")[0], getattr(attn, f"b_{x}")[:1]]).detach().double()
        for x in ("Q", "K")
    )
    return q.T @ q - k.T @ k


@measurement("lsa/path")
def path(lab: Lab) -> DataArray:
    """The layer at each snapshot, and at the end: distance from the optimum, exact loss and gradient, balance.

    "PL bound" is mu times the excess, which Lemma 5.4 puts below the squared gradient. "drift of
    factors" is how far A_Q^T A_Q - A_K^T A_K has moved from the first snapshot, relative to
    |A_Q|^2 + |A_K|^2 now.
    """
    task, where = task_of(lab), trained_landscape(task_of(lab))
    covariance = None if task.random_covariance else task.covariance_matrix
    least, models = where.minimum + where.label_moment / 2, dict(lab.snapshots)
    values = np.full((len(QUANTITIES), len(models)), np.nan)
    start = None
    for column, model in enumerate(models.values()):
        layer = read_layer(model)
        unit = unit_of(layer)
        balance = _factor_balance(model)
        start = balance if start is None else start
        attn = model.blocks[0].attn
        size = float(
            sum(
                getattr(attn, name)[0].detach().double().square().sum()
                for name in ("W_Q", "W_K", "b_Q", "b_K")
            )
        )
        row = {
            "|P - P*| / |P*|": float((layer.product - where.product).norm() / where.product.norm()),
            "drift of factors": float((balance - start).norm()) / max(size, TINY),
            "outside": layer.outside,
        }
        if unit:
            loss, grad2 = _squared_gradient(unit, task)
            # Sums of squares where they are known: the difference of losses is rounding once it is
            # small.
            excess = loss - least
            row |= {
                "excess": float(excess),
                "squared gradient": float(grad2),
                "PL bound": float(
                    pl_rate(where, covariance, where.label_moment / 2 - loss) * excess
                ),
                "|v|^2": float(unit.v.square().sum()),
                "|F|^2": float(unit.f.square().sum()),
            }
        for name, value in row.items():
            values[QUANTITIES.index(name), column] = value
    axes = {"quantity": QUANTITIES, "step": tuple(models)}
    return make_curve(
        values, axes, note="exact, from the weights of each snapshot; losses are E(yhat - y)^2 / 2"
    )


@measurement("lsa/maps", version=2)
def maps(lab: Lab) -> DataArray:
    """Share of the identity in W_K^T W_Q and W_P W_V of a layer of linear attention, in the coordinates of tokens.

    A prediction knows sum_h v_h (x) F_h, summed over heads: with its last row at the label y, the
    query-key map is what multiplies two inputs, and of the value-output map the share of y in the
    row that predictions know. Of one head these are the maps W11 of W_KQ and w22 of (w21, w22). The
    sum stays where heads are split, cancel, or write nothing, and the coordinates of tokens are
    those of the task.
    """
    layer, d = read_layer(lab.model), task_of(lab).dim
    both = torch.einsum("hi,hjk->ijk", layer.values[:, : d + 1], layer.forms[:, :d, :d])
    of_label = both[d]
    shares = [
        share_of_identity(of_label),
        float(of_label.square().sum() / both.square().sum().clamp_min(TINY)),
    ]
    return make_array(
        shares,
        {"map": ("W_K^T W_Q", "W_P W_V")},
        note="tr(A)^2 / (d |A|^2), in coordinates of tokens",
    )
