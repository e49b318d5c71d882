"""What a probe keeps of the values it reads: statistics of each position kind."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from icl_interp.errors import InputError
from icl_interp.probes.base import Positions, at_places
from icl_interp.reductions import Extremes, Moments, PerPrompt


class ByKind:
    """Mean and standard deviation over prompts and the positions of each kind.

    With `per_prompt`, a value for each prompt instead.

    Moments are kept position by position, and those of a kind are put together at the end: one
    update serves all kinds.

    Args:
        positions: token positions of each kind; every batch has these.
        per_prompt: keep for each prompt its mean over the positions of a kind instead.
        extremes: also keep the smallest and the largest value.

    >>> kept = ByKind({"x": [0, 2], "query": [3]})
    >>> two_prompts = torch.tensor([[1.0, 9.0, 3.0, 5.0], [3.0, 9.0, 5.0, 5.0]])
    >>> kept.update(two_prompts)
    >>> kept.result.round(decimals=6).tolist()  # rows: kinds; columns: mean and standard deviation
    [[3.0, 1.414214], [5.0, 0.0]]
    """

    def __init__(
        self, positions: Positions, per_prompt: bool = False, extremes: bool = False
    ) -> None:
        self._kinds = list(map(list, positions.values()))
        self._places = sorted(set().union(*self._kinds))
        self._per_prompt = per_prompt
        self._by_prompt = [PerPrompt() for _ in self._kinds]
        self._moments = Moments()
        self._extremes = Extremes() if extremes and not per_prompt else None

    def update(
        self,
        values: Float[Tensor, "batch token *shape"],
        where: Bool[Tensor, "batch token *#shape"] | None = None,
    ) -> None:
        """Add some prompts; with `where`, only the values at which it is true."""
        if self._per_prompt:
            for kept, places in zip(self._by_prompt, self._kinds, strict=True):
                counted = None if where is None else at_places(where, places)
                kept.update(at_places(values, places), counted)
            return
        rows = at_places(values, self._places)
        counted = None if where is None else at_places(where, self._places)
        self._moments.update(rows, counted)
        if self._extremes is None:
            return
        if where is not None:
            raise InputError(
                "extremes of values at some places only are not kept: leave out `where` or "
                "`extremes`"
            )
        self._extremes.update(rows)

    @property
    def result(self) -> Float[Tensor, "position *shape statistic"]:
        """The statistics of every kind, in the order of `axis`; NaN for a value never seen."""
        if self._per_prompt:
            return torch.stack([kept.result for kept in self._by_prompt])
        found = []
        for places in self._kinds:
            entries = list(map(self._places.index, places))
            moments = self._moments.over(entries).result
            if self._extremes is None:
                found.append(moments)
                continue
            low = self._extremes.minimum[entries].amin(0)
            high = self._extremes.maximum[entries].amax(0)
            found.append(torch.cat([moments, low[..., None], high[..., None]], -1))
        return torch.stack(found)

    def axis(self) -> dict[str, Sequence[str] | Sequence[int]]:
        """The last axis of the result."""
        if self._per_prompt:
            n_prompts = self._by_prompt[0].result.shape[-1]
            return {"prompt": tuple(range(n_prompts))}
        if self._extremes is None:
            return {"statistic": ("mean", "std")}
        return {"statistic": ("mean", "std", "min", "max")}
