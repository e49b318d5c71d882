"""Activation patching with intervals, a permutation null and a false discovery rate."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from icl_interp.circuits.runs import Run
from icl_interp.circuits.shares import share_table
from icl_interp.contrasts import Contrast, Way
from icl_interp.errors import InputError, unknown
from icl_interp.interventions.base import Intervention
from icl_interp.interventions.patching import AXES, Where, hooks_of, sizes_of
from icl_interp.models.transformer import chunks, model_in, tokens_in
from icl_interp.products import fast


class _PutPlaces(Intervention):
    """One place of an activation, taken from other prompts."""

    def __init__(
        self, name: str, value: Tensor, axes: tuple[Where, ...], places: dict[Where, int]
    ) -> None:
        self.name = name
        self.value = value
        self.axes = axes
        self.places = places

    def hooks(self, model: Any) -> list[Any]:
        return [(self.name, self._edit)]

    def _edit(self, t: Tensor, hook: object) -> Tensor:
        where: list[Any] = [slice(None)] * t.ndim
        for axis, place in self.places.items():
            where[1 + self.axes.index(axis)] = place  # prompts come first
        edited = t.clone()
        edited[tuple(where)] = self.value[tuple(where)]
        return edited


@fast()
def patch_activations(
    checkpoint: Any,
    contrast: Contrast,
    activation: str = "z",
    by: tuple[Where, ...] = ("head",),
    *,
    seed: int = 0,
) -> pd.DataFrame:
    """The share of the way to the clean prediction that each place of an activation carries.

    The model runs on corrupted prompts with one place at a time taken from the clean run.
    `interventions.patch` does the same for a metric of your own, without intervals.

    Assumes that clean and corrupted prompts have their tokens in the same places, and that an
    activation of one run is one that the other could have: put together they may be neither.

    A place carries a share if it moves the prediction alone, so heads that cancel each other are
    named, too (`icl-interp selfcheck --tools`).

    Source: Meng, Bau, Andonian & Belinkov (2022), *Locating and editing factual associations in
    GPT*; Zhang & Nanda (2023), *Towards best practices of activation patching in language models*.

    Args:
        checkpoint: whose model runs, and whose encoding reads prompts.
        contrast: clean and corrupted prompts.
        activation: short name of a hook, such as "resid_pre", "z", "q", "k", "v" or "pattern".
        by: which places are taken one by one, beside layers: "token", "head", or both.
        seed: of resampling and permutations.

    Returns:
        A row a place: "layer" and the names in `by`, then "share", "low", "high", "p" and "q".

    Raises:
        InputError: an activation or axis that cannot be patched or that the model does not have,
            predictions that are vectors or not finite, or a contrast that moves nothing.

    The stream before any block carries all of it:

    >>> import icl_interp
    >>> checkpoint = icl_interp.load("affine")
    >>> pairs = icl_interp.contrasts.labels(checkpoint.task, n_functions=8)
    >>> found = patch_activations(checkpoint, pairs, "resid_pre", by=())
    >>> found["share"].round(4).tolist()
    [1.0, 1.0, 1.0]
    """
    if activation not in AXES:
        raise unknown("activation", activation, AXES)
    for name in by:
        if name not in AXES[activation]:
            raise InputError(
                f"{activation} has no axis {name!r}: patch it by {' and '.join(AXES[activation])}"
            )
    # Some prompts at a time: a run of the clean ones, then one of the corrupted for each place.
    model = model_in(checkpoint)
    clean = tokens_in(contrast.clean, checkpoint)
    corrupted = tokens_in(contrast.corrupted, checkpoint)
    names = hooks_of(activation, model)
    way = Way.of(checkpoint, contrast)
    sizes = sizes_of(model, by, clean.shape[1])
    places = list(product(*map(range, sizes.values())))
    parts = []
    for rows in chunks(model, len(clean), clean.shape[1]):
        with torch.no_grad():
            _, cache = model.run_with_cache(clean[rows], names_filter=names)
        start = Run.of(model, corrupted[rows])
        found = []
        for layer, *place in places:
            where = dict(zip(by, place, strict=True))
            put = _PutPlaces(names[layer], cache[names[layer]], AXES[activation], where)
            found.append(start.again(layer, put).out[:, 0].double().cpu())
        parts.append(torch.stack(found))
    columns: dict[str, Sequence[int]] = {}
    for name, indices in zip(sizes, zip(*places, strict=True), strict=True):
        columns[name] = indices
    return share_table(columns, torch.cat(parts, dim=1), way, seed=seed)
