"""Attribution patching: what every edge carries, estimated by gradients, checked by exact runs."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.circuits.paths import path_predictions
from icl_interp.circuits.shares import share_table
from icl_interp.contrasts import Contrast, Way
from icl_interp.errors import unknown, whole
from icl_interp.interventions.edges import edges_of, readers, written
from icl_interp.models.hooked import HookedModel
from icl_interp.models.transformer import chunks, model_in, tokens_in
from icl_interp.products import fast
from icl_interp.results import make_array

METHODS = ("first order", "integrated")
STEPS = 5
N_CHECKED = 24


@dataclass(frozen=True)
class Edges:
    """What every edge carries, estimated, and how far off the estimate is.

    Attributes:
        table: a row an edge: "writer", "reader", "share", "low", "high", "p", "q".
        check: of a sample of edges: "writer", "reader", "estimated" and "exact" shares.
        method: "first order" or "integrated".
    """

    table: pd.DataFrame
    check: pd.DataFrame
    method: str

    @property
    def error(self) -> float:
        """Root mean square of estimated less exact shares, over the sample."""
        gap = self.check["estimated"] - self.check["exact"]
        return float(np.sqrt((gap**2).mean()))

    @property
    def matrix(self) -> DataArray:
        """Shares over (writer, reader); NaN where no edge is."""
        wide = self.table.pivot(index="writer", columns="reader", values="share")
        wide = wide.loc[self.table["writer"].unique(), self.table["reader"].unique()]
        note = f"recovered share by edge, {self.method}; error {self.error:.2g} on a sample"
        axes = {"writer": list(wide.index), "reader": list(wide.columns)}
        return make_array(wide.to_numpy(), axes, "", note)


def attribute_edges(
    checkpoint: Any,
    contrast: Contrast,
    *,
    method: str = "integrated",
    n_checked: int = N_CHECKED,
    seed: int = 0,
) -> Edges:
    """Estimates of what every edge carries, without a run for each.

    First order takes two passes: what writers write on clean prompts, and on corrupted ones with
    the gradient of the prediction at what readers read. The product of the difference and the
    gradient is what path patching would move, were the model linear there. "integrated" averages
    the gradient over five prompts on the line between both. The estimate is compared with exact
    path patching on half of the sample for the largest edges and half for edges drawn at random.

    Assumes that the prediction is nearly linear between both prompts; `error` says how nearly.
    Edges of heads that cancel each other are named, too (`icl-interp selfcheck --tools`).

    Source: Nanda (2023), *Attribution patching*; Syed, Rager & Conmy (2023), *Attribution patching
    outperforms automated circuit discovery*; Hanna, Pezzelle & Belinkov (2024), *Have faith in
    faithfulness* (integrated gradients, here along tokens).

    Args:
        checkpoint: whose model runs, and whose encoding reads prompts.
        contrast: clean and corrupted prompts.
        method: "first order" or "integrated".
        n_checked: edges that are patched exactly.
        seed: of the sample of edges, of resampling and permutations.

    Raises:
        InputError: a model whose stream is no sum, predictions that are vectors or not finite, or a
            contrast that moves nothing.

    >>> import icl_interp
    >>> checkpoint = icl_interp.load("affine")
    >>> pairs = icl_interp.contrasts.labels(checkpoint.task, n_functions=16)
    >>> found = attribute_edges(checkpoint, pairs, n_checked=4)
    >>> found.matrix.dims, len(found.check)
    (('writer', 'reader'), 4)

    All paths begin at the read-in, and integrated gradients are complete. So what the read-in
    carries to the parts that read it adds up to the whole way, up to the number of steps:

    >>> from_start = found.table.loc[found.table["writer"] == "read-in", "share"].sum()
    >>> bool(abs(from_start - 1) < 0.01)
    True
    """
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    whole(n_checked, "n_checked", 2)
    model = model_in(checkpoint)
    chosen = edges_of(model)
    way = Way.of(checkpoint, contrast)
    clean = tokens_in(contrast.clean, checkpoint)
    corrupted = tokens_in(contrast.corrupted, checkpoint)
    moved = estimated_moves(model, clean, corrupted, method)
    names = {"writer": [writer for writer, _ in chosen], "reader": [reader for _, reader in chosen]}
    table = share_table(names, way.start + moved, way, seed=seed)
    # Half of the sample are the largest edges, half any others.
    n_checked = min(n_checked, len(chosen))
    by_size = np.argsort(-table["share"].abs().to_numpy(), kind="stable")
    largest = by_size[: n_checked // 2]
    rest = by_size[n_checked // 2 :]
    drawn = np.random.default_rng(seed).choice(rest, n_checked - len(largest), replace=False)
    rows = np.concatenate([largest, drawn])
    check = table.loc[rows, ["writer", "reader", "share"]].reset_index(drop=True)
    check = check.rename(columns={"share": "estimated"})
    some = list(zip(check["writer"], check["reader"], strict=True))
    exact = path_predictions(model, clean, corrupted, some)[..., 0].double().cpu()
    check["exact"] = list(map(way.share, exact))
    return Edges(table, check, method)


@fast()
def estimated_moves(
    model: HookedModel,
    clean: Float[Tensor, "batch token d_in"],
    corrupted: Float[Tensor, "batch token d_in"],
    method: str = "first order",
) -> Float[Tensor, "edge batch"]:
    """How far each edge moves each prediction, by gradients, in the order of `edges_of`.

    Prompts are run in parts, so memory does not grow with their number.
    """
    parts = []
    for rows in chunks(model, len(clean), clean.shape[1]):
        parts.append(_moves_of_some(model, clean[rows], corrupted[rows], method))
    return torch.cat(parts, dim=1)


def _moves_of_some(
    model: HookedModel, clean: Tensor, corrupted: Tensor, method: str
) -> Float[Tensor, "edge batch"]:
    """The same for prompts that are run at once."""
    steps = torch.zeros(1)
    if method == "integrated":
        steps = (torch.arange(STEPS) + 0.5) / STEPS
    # Two passes: what writers write on both prompts, and gradients at what readers read.
    before = written(model, corrupted)
    after = written(model, clean)
    slopes: dict[str, Tensor] = {}
    for step in steps:
        at = gradients(model, torch.lerp(corrupted, clean, float(step)))
        for hook, gradient in at.items():
            slopes[hook] = slopes.get(hook, torch.zeros_like(gradient)) + gradient / len(steps)
    # One product a hook, of what all writers moved by with the gradients of all heads there.
    names = list(after)
    moved = [after[name] - before[name] for name in names]
    changes = torch.stack(moved, 1).flatten(2)
    moves = {}
    for hook, slope in slopes.items():
        by_head = slope if slope.ndim == 4 else slope[:, :, None]
        moves[hook] = changes @ by_head.transpose(2, 3).flatten(1, 2)
    targets = readers(model)
    found = []
    for writer, reader in edges_of(model):
        target = targets[reader]
        found.append(moves[target.hook][:, names.index(writer), target.head or 0])
    return torch.stack(found).double().cpu()


def gradients(model: HookedModel, tokens: Float[Tensor, "batch token d_in"]) -> dict[str, Tensor]:
    """Of the prediction of each prompt with respect to what readers read, by hook."""
    names = []
    for part in readers(model).values():
        if part.hook not in names:
            names.append(part.hook)
    _, cache = model.run_with_cache(
        tokens, names_filter=names, incl_bwd=True, number=lambda out: out[:, -1, 0].sum()
    )
    return {name: cache[f"{name}_grad"] for name in names}
