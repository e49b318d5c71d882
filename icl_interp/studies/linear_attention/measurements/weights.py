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
        sign = 1 if self.v[-1] >= 0 else -1
        ratio = self.v.norm() / self.f.norm().clamp_min(TINY)
        c = (ratio.sqrt() * sign).clamp(-1e9, 1e9)
        if c == 0:
            return self
        return Unit(self.v / c, self.f * c)

    def loss(self, task: LinearRegression) -> Float[Tensor, ""]:
        """The exact population loss E(yhat - y)^2 / 2 of the layer.

        Where Lambda is random, it is that of w22 and W11 alone.
        """
        if task.random_covariance:
            where = trained_landscape(task)
            return where.loss(self.f[:-1], self.v[-1]) + where.label_moment / 2
        wide = len(self.v)
        rows = self.v.new_zeros(wide - 1, wide)
        column = self.f.new_zeros(wide, 1)
        w_pv = torch.cat([rows, self.v[None]])
        w_kq = torch.cat([self.f, column], 1)
        n = task.n_points - 1
        tau2 = task.noise_std**2
        return theory.population_loss(w_pv, w_kq, task.covariance_matrix, n, tau2)


def unit_of(layer: LayerForm) -> Unit | None:
    """The unit of a layer of one head; None for several."""
    if len(layer.values) > 1:
        return None
    wide = layer.values.shape[1] - 1
    v = layer.values[0, :wide]
    f = layer.forms[0, :wide, : wide - 1]
    return Unit(v, f)


def optimum(task: LinearRegression) -> Unit:
    """W* of Theorem 4.1, or 4.5 where Lambda is random: balanced."""
    w_pv, w_kq = theory.optimum(trained_landscape(task))
    return Unit(w_pv[-1], w_kq[:, :-1])


@measurement("lsa/product")
def product(lab: Lab) -> DataArray:
    """P read off the weights, beside that of the optimum and of another stationary point.

    The other point is that of rank one.
    """
    task = task_of(lab)
    where = trained_landscape(task)
    trap, _ = where.rank_one
    layer = read_layer(lab.model)
    matrices = torch.stack([layer.product, where.product, trap])
    d = range(1, task.dim + 1)
    axes = {"matrix": ("P", "P*", "rank one"), "row": d, "column": d}
    return make_array(matrices.numpy(), axes)


@measurement("lsa/numbers")
def numbers(lab: Lab) -> DataFrame:
    """How far the weights are from the optimum, in several ways.

    A number is NaN where a layer of several heads has no such number.

    "excess" is the exact loss above its minimum, relative to the minimum. "aligned distance" is
    that of (v, F) from W* after scaling. "share of the identity" is tr(A)^2 / (d |A|^2), 1 for a
    multiple of the identity.
    """
    task = task_of(lab)
    layer = read_layer(lab.model)
    where = trained_landscape(task)
    least = where.minimum + where.label_moment / 2

    # Of the product, which layers of several heads have too.
    size = where.product.norm()
    trap, _ = where.rank_one
    to_best = (layer.product - where.product).norm()
    to_trap = (layer.product - trap).norm()
    values = {
        "distance": to_best / size,
        "distance from rank one": to_trap / size,
        "excess": where.excess(layer.product, 1.0) / least,
        "outside": layer.outside,
    }

    # Of the weights of one head.
    unit = unit_of(layer)
    if unit:
        best = optimum(task)
        aligned = unit.balanced
        gap = _square_sum(aligned.v - best.v) + _square_sum(aligned.f - best.f)
        norm = (_square_sum(best.v) + _square_sum(best.f)).sqrt()
        v2 = _square_sum(unit.v)
        f2 = _square_sum(unit.f)
        larger = torch.maximum(v2, f2)
        values["aligned distance"] = gap.sqrt() / norm
        values["excess of all weights"] = unit.loss(task) / least - 1
        values["share of v in w21"] = _square_sum(unit.v[:-1]) / v2.clamp_min(TINY)
        values["imbalance"] = (v2 - f2) / larger.clamp_min(TINY)
    return table_of_numbers(values, note="exact, from the weights")


def _square_sum(weights: Tensor) -> Tensor:
    return weights.square().sum()


def share_of_identity(matrix: Float[Tensor, "d d"]) -> float:
    """tr(A)^2 / (d |A|^2): 1 for a multiple of the identity, about 1 / d^2 for independent entries.

    >>> share_of_identity(3 * torch.eye(4)), share_of_identity(torch.diag(torch.tensor([1.0, 0.0])))
    (1.0, 0.5)
    """
    most = len(matrix) * _square_sum(matrix)
    share = matrix.trace().square() / most.clamp_min(TINY)
    return float(share)


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
    largest = torch.linalg.matrix_norm(covariance, 2)
    floor = gained / (len(covariance) ** 0.5 * largest**2)  # of u^2
    traces = (where.product @ inverse).trace() * inverse.trace()
    return 2 * floor / traces


def _squared_gradient(unit: Unit, task: LinearRegression) -> tuple[Tensor, Tensor]:
    """(loss, squared norm of its gradient in v and F)."""
    free = Unit(*(part.detach().clone().requires_grad_(True) for part in unit))
    with torch.enable_grad():
        loss = free.loss(task)
        of_v, of_f = torch.autograd.grad(loss, tuple(free))
    return loss.detach(), _square_sum(of_v) + _square_sum(of_f)


def _factor_balance(model: HookedTransformer) -> Float[Tensor, "d_head d_head"]:
    """A_Q^T A_Q - A_K^T A_K of the first head, A = (W; b).

    Gradient flow on the factors conserves it, for any loss.
    """
    attention = model.blocks[0].attn
    q = torch.cat([attention.W_Q[0], attention.b_Q[:1]]).detach().double()
    k = torch.cat([attention.W_K[0], attention.b_K[:1]]).detach().double()
    return q.T @ q - k.T @ k


def _factor_size(model: HookedTransformer) -> float:
    """|A_Q|^2 + |A_K|^2 of the first head."""
    attention = model.blocks[0].attn
    size = torch.zeros((), dtype=torch.float64)
    for factor in (attention.W_Q, attention.W_K, attention.b_Q, attention.b_K):
        size = size + _square_sum(factor[0].detach().double())
    return float(size)


@measurement("lsa/path")
def path(lab: Lab) -> DataArray:
    """The layer at each snapshot, and at the end.

    The numbers: distance from the optimum, exact loss and gradient, balance.

    "PL bound" is mu times the excess, which Lemma 5.4 puts below the squared gradient. "drift of
    factors" is how far A_Q^T A_Q - A_K^T A_K has moved from the first snapshot, relative to
    |A_Q|^2 + |A_K|^2 now.
    """
    task = task_of(lab)
    where = trained_landscape(task)
    covariance = None if task.random_covariance else task.covariance_matrix
    of_zero = where.label_moment / 2  # the loss of predicting 0
    least = where.minimum + of_zero
    models = dict(lab.snapshots)
    values = np.full((len(QUANTITIES), len(models)), np.nan)
    start = None
    for column, model in enumerate(models.values()):
        layer = read_layer(model)
        distance = (layer.product - where.product).norm() / where.product.norm()
        balance = _factor_balance(model)
        if start is None:
            start = balance
        moved = float((balance - start).norm())
        row = {
            "|P - P*| / |P*|": float(distance),
            "drift of factors": moved / max(_factor_size(model), TINY),
            "outside": layer.outside,
        }

        # What is known of a single head; the rest stays NaN.
        unit = unit_of(layer)
        if unit:
            loss, squared_gradient = _squared_gradient(unit, task)
            excess = loss - least
            bound = pl_rate(where, covariance, of_zero - loss) * excess
            row["excess"] = float(excess)
            row["squared gradient"] = float(squared_gradient)
            row["PL bound"] = float(bound)
            row["|v|^2"] = float(_square_sum(unit.v))
            row["|F|^2"] = float(_square_sum(unit.f))
        for name, value in row.items():
            values[QUANTITIES.index(name), column] = value
    axes = {"quantity": QUANTITIES, "step": tuple(models)}
    note = "exact, from the weights of each snapshot; losses are E(yhat - y)^2 / 2"
    return make_curve(values, axes, note=note)


@measurement("lsa/maps", version=2)
def maps(lab: Lab) -> DataArray:
    """Share of the identity in W_K^T W_Q and W_P W_V of a layer of linear attention.

    The maps are in the coordinates of tokens.

    A prediction knows sum_h v_h (x) F_h, summed over heads: with its last row at the label y, the
    query-key map is what multiplies two inputs, and of the value-output map the share of y in the
    row that predictions know. Of one head these are the maps W11 of W_KQ and w22 of (w21, w22). The
    sum stays where heads are split, cancel, or write nothing, and the coordinates of tokens are
    those of the task.
    """
    layer = read_layer(lab.model)
    d = task_of(lab).dim
    values = layer.values[:, : d + 1]
    forms = layer.forms[:, :d, :d]
    both = torch.einsum("hi,hjk->ijk", values, forms)
    of_label = both[d]
    in_label = _square_sum(of_label) / _square_sum(both).clamp_min(TINY)
    shares = [share_of_identity(of_label), float(in_label)]
    axes = {"map": ("W_K^T W_Q", "W_P W_V")}
    return make_array(shares, axes, note="tr(A)^2 / (d |A|^2), in coordinates of tokens")
