"""What the weights of positions P do.

They are split into the tokens that the propositions name, the others, and the diagonals of P.

Predictions with another P are those of the plain layer with the model's weights, which
`ties.layer_tie` compares with the model. What attention writes keeps its mean over prompts at each
position, whatever P is: what is cut goes to its mean, not to 0.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.interventions.base import intervene, mean_activations
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.studies.autoregression.measurements.unit import (
    Shift,
    by_arm,
    errors,
    is_paired,
    outputs,
    plain,
    positions,
    process_of,
    stored_positions,
    with_positions,
)
from icl_interp.tasks.autoregressive import AutoregressiveProcess

INTACT = "P as it is"
NO_OTHERS = "other tokens at their means"
NO_RIGHT = "the named tokens at their means"
AVERAGED = "P replaced by the means of its diagonals"
Matrix = Float[Tensor, "query key"]
WRITTEN = "blocks.0.hook_attn_out"


def first_row(cfg: HookedTransformerConfig) -> int:
    """The first query that reads anything.

    Where queries are made of the token before, the first token has none.
    """
    return 1 if cfg.queries == "previous" else 0


def named_tokens(task: AutoregressiveProcess, n_tokens: int) -> Bool[Tensor, "query key"]:
    """The tokens of Propositions 3 and 6: the last one.

    With conjugate pairs it is the one before it too.
    """
    last = torch.eye(n_tokens, dtype=torch.bool)
    if not is_paired(task):
        return last
    ones = torch.ones(n_tokens - 1, dtype=torch.bool)
    return last | torch.diag(ones, -1)


def averaged(p: Matrix, first: int) -> Matrix:
    """P with the mean of each diagonal along it; rows before `first` are left out and stay.

    >>> averaged(torch.tensor([[9.0, 0.0, 0.0], [1.0, 2.0, 0.0], [5.0, 3.0, 4.0]]), first=1)
    tensor([[9., 0., 0.],
            [2., 3., 0.],
            [5., 2., 3.]])
    """
    found = p.clone()
    for lag in range(len(p)):
        rows = torch.arange(max(first, lag), len(p))
        columns = rows - lag
        if len(rows):
            found[rows, columns] = p[rows, columns].mean()
    return found


def not_alike(p: Matrix, first: int) -> float:
    """The share of |P|^2 that the means of its diagonals leave; 0 where P is 0."""
    size = p[first:].square().sum()
    left = (p - averaged(p, first))[first:].square().sum()
    return float(left / size) if size > 0 else 0.0


def least_share_on(p: Matrix, tokens: Bool[Tensor, "query key"], first: int) -> float:
    """The least share of a row's |p|^2 that lies on these tokens, over rows.

    Rows of zeros count as 0.
    """
    squares = p[first:].square()
    totals = squares.sum(1)
    held = (squares * tokens[first:]).sum(1)
    shares = held / totals.clamp(min=1e-300)
    nothing = torch.zeros_like(held)
    return float(torch.where(totals > 0, shares, nothing).min())


def mean_ratio(p: Matrix, first: int) -> float:
    """rho = p_{T-1} / p_T, over rows the least-squares one: sum p_T p_{T-1} / sum p_T^2.

    It is infinite where p_T is 0.
    """
    rows = torch.arange(max(first, 1), len(p))
    columns = rows - 1
    last = p[rows, rows]
    before = p[rows, columns]
    size = float(last.square().sum())
    product = float((last * before).sum())
    return product / size if size > 0 else float("inf")


def with_other_weights(lab: Lab, p: Matrix) -> Float[Tensor, "batch point target"]:
    """Predictions of the plain layer with this P.

    What attention writes keeps the mean that it has with its own P.

    The mean is one over prompts, at each position.
    """
    own = plain(lab.model)
    other = with_positions(lab.model, p)
    tokens = lab.tokens(lab.few)
    before = mean_activations(own, tokens, [WRITTEN])[WRITTEN]
    after = mean_activations(other, tokens, [WRITTEN])[WRITTEN]
    with intervene(other, Shift(WRITTEN, before - after)):
        return outputs(other, lab, lab.few)


def _arms(lab: Lab, changed: dict[str, Matrix]) -> DataArray:
    """Normalised errors of every unit, with each of these P: (unit, point, arm).

    The first arm is the model itself.
    """
    prompts = lab.few
    predicted = [outputs(lab.model, lab, prompts)]
    for p in changed.values():
        predicted.append(with_other_weights(lab, p))
    found = [errors(one, lab, prompts) for one in predicted]
    return by_arm(lab, (INTACT, *changed), found)


@measurement("autoregression/positions cut", version=2, needs=(positions,))
def positions_cut(lab: Lab, weights: DataArray) -> DataArray:
    """Normalised errors: intact, with the named tokens alone, without them: (unit, point, arm)."""
    p = stored_positions(weights)
    task = process_of(lab)
    tokens = named_tokens(task, len(p))
    return _arms(lab, {NO_OTHERS: p * tokens, NO_RIGHT: p * ~tokens})


@measurement("autoregression/positions averaged", version=2, needs=(positions,))
def positions_averaged(lab: Lab, weights: DataArray) -> DataArray:
    """Normalised errors: intact, and with the mean of each diagonal of P: (unit, point, arm)."""
    p = stored_positions(weights)
    first = first_row(lab.model.cfg)
    return _arms(lab, {AVERAGED: averaged(p, first)})
