"""Path patching, exact: what goes from one part to another, directly or through what is between."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.circuits.runs import Run
from icl_interp.circuits.shares import share_table
from icl_interp.contrasts import Contrast, Way
from icl_interp.errors import InputError, several, shown, unknown
from icl_interp.interventions.base import Hook, Intervention, intervene
from icl_interp.interventions.edges import PutEdges, edges_of, part_in, readers, writers, written
from icl_interp.models.hooked import HookedModel
from icl_interp.models.parts import Part
from icl_interp.models.transformer import chunks, model_in, tokens_in
from icl_interp.products import fast


@dataclass(frozen=True)
class PutParts(Intervention):
    """Replace whole activations of writers or readers, for all that comes after.

    Attributes:
        parts: what is replaced.
        values: of each part: `(batch, token, d_model)`.
    """

    parts: Sequence[Part]
    values: Sequence[Float[Tensor, "batch token d_model"]]

    def hooks(self, model: HookedModel) -> list[Hook]:
        """One a part."""
        found: list[Hook] = []
        for part, value in zip(self.parts, self.values, strict=True):
            found.append((part.hook, _putting(part, value)))
        return found


def _putting(part: Part, value: Tensor) -> Any:
    def put(t: Tensor, hook: object) -> Tensor:
        if part.head is None:
            return value.to(t)
        edited = t.clone()
        edited[:, :, part.head] = value.to(t)
        return edited

    return put


@fast()
@torch.no_grad()
def path_predictions(
    model: HookedModel,
    clean: Float[Tensor, "batch token d_in"],
    corrupted: Float[Tensor, "batch token d_in"],
    pairs: Sequence[tuple[str, str]],
    through: str = "direct",
) -> Float[Tensor, "pair batch d_out"]:
    """Predictions at the last token of corrupted prompts, one path at a time taken as clean.

    Prompts are run in parts, so memory does not grow with their number.

    Args:
        model: runs on both.
        clean: tokens that what a writer writes is taken from.
        corrupted: tokens the model runs on.
        pairs: (writer, reader), as `interventions.edges_of` lists them.
        through: "direct": the reader reads the clean writer, and corrupted parts between. "all":
            parts between read the clean writer too, and the reader reads what they make of it. In
            both, what comes after the reader follows it, and no other reader sees a difference.

    Raises:
        InputError: no such part, a reader that comes before its writer, or a model whose stream is
            no sum.
    """
    if through not in ("direct", "all"):
        raise unknown("way through", through, ("direct", "all"))
    parts = []
    for rows in chunks(model, len(clean), clean.shape[1]):
        parts.append(_of_some(model, clean[rows], corrupted[rows], pairs, through))
    return torch.cat(parts, dim=1)


def _of_some(
    model: HookedModel,
    clean: Tensor,
    corrupted: Tensor,
    pairs: Sequence[tuple[str, str]],
    through: str,
) -> Float[Tensor, "pair batch d_out"]:
    """The same for prompts that are run at once."""
    names = list(dict.fromkeys(writer for writer, _ in pairs))
    values = written(model, clean, names)
    sources = writers(model)
    targets = readers(model)
    start = Run.of(model, corrupted)
    found = []
    for writer, reader in pairs:
        edit: Intervention = PutEdges([(writer, reader)], values)
        edit.hooks(model)  # refuses parts that do not exist or do not follow each other
        first = sources[writer]
        if through == "all":
            # What the reader reads once everything before it has followed the writer.
            target = targets[reader]
            with intervene(model, PutParts([first], [values[writer]])):
                _, cache = model.run_with_cache(corrupted, names_filter=[target.hook])
            edit = PutParts([target], [target.of(cache[target.hook])])
            first = target
        found.append(start.again(first.block, edit).out)
    return torch.stack(found)


def patch_paths(
    checkpoint: Any,
    contrast: Contrast,
    pairs: Sequence[tuple[str, str]] | None = None,
    *,
    through: str = "direct",
    seed: int = 0,
) -> pd.DataFrame:
    """The share of the way to the clean prediction that goes from one part to another.

    Exact: every path is a run of the model. Parts are named "read-in", "head 0.2" and "MLP 1" as
    writers, "head 1.0 q", "head 1.0 k", "head 1.0 v", "MLP 1" and "read-out" as readers.

    Assumes, as patching does, that what a reader reads from two runs together is something it
    could read. Each path is asked alone, so those of heads that cancel each other are named, too
    (`icl-interp selfcheck --tools`).

    Source: Goldowsky-Dill, MacLeod, Sato & Arora (2023), *Localizing model behavior with path
    patching*.

    Args:
        checkpoint: whose model runs, and whose encoding reads prompts.
        contrast: clean and corrupted prompts.
        pairs: (writer, reader); all edges of the model by default.
        through: "direct", or "all": also through parts between them.
        seed: of resampling and permutations.

    Returns:
        A row a path: "writer", "reader", "share", "low", "high", "p" and "q".

    Raises:
        InputError: no such part, a reader that comes before its writer, a model whose stream is no
            sum, predictions that are vectors or not finite, or a contrast that moves nothing.

    Head 0.2 of this model carries inputs to the keys of head 1.0:

    >>> import icl_interp
    >>> checkpoint = icl_interp.load("affine")
    >>> pairs = icl_interp.contrasts.one_input(checkpoint.task, n_functions=32)
    >>> paths = [("head 0.2", "head 1.0 k"), ("head 0.0", "head 1.0 k")]
    >>> found = patch_paths(checkpoint, pairs, paths).set_index("writer")["share"]
    >>> bool(found["head 0.2"] > abs(found["head 0.0"]))
    True
    """
    model = model_in(checkpoint)
    chosen = edges_of(model) if pairs is None else _pairs(pairs, model)
    way = Way.of(checkpoint, contrast)
    clean = tokens_in(contrast.clean, checkpoint)
    corrupted = tokens_in(contrast.corrupted, checkpoint)
    out = path_predictions(model, clean, corrupted, chosen, through)[..., 0].double().cpu()
    names = {"writer": [writer for writer, _ in chosen], "reader": [reader for _, reader in chosen]}
    return share_table(names, out, way, seed=seed)


def _pairs(given: Any, model: HookedModel) -> list[tuple[str, str]]:
    """Pairs of names that the model has."""
    found = []
    for pair in several(given, "pairs"):
        if isinstance(pair, str) or len(pair) != 2:
            raise InputError(
                "a path is a pair (writer, reader), such as ('head 0.2', 'head 1.0 k'), but got "
                f"{shown(pair)}"
            )
        writer, reader = pair
        part_in(writer, writers(model), "writer")
        target = part_in(reader, readers(model), "reader")
        model.check_hooks([target.hook])
        found.append((writer, reader))
    if not found:
        raise InputError("pairs must name at least one path (writer, reader), but there are none")
    return found
