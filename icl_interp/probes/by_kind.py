"""What a probe keeps of the values it reads: statistics of each position kind."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from icl_interp.errors import InputError
from icl_interp.probes.base import Positions, at_places
from icl_interp.reductions import Extremes, Moments, PerPrompt


class ByKind:
    """Mean and standard deviation over prompts and the positions of each kind, or a value for each prompt.

    Moments are kept position by position, and those of a kind are put together at the end: one
    update serves all kinds.

    Args:
        positions: token positions of each kind; every batch has these.
        per_prompt: keep for each prompt its mean over the positions of a kind instead.
        extremes: also keep the smallest and the largest value.

    >>> kept = ByKind({"x": [0, 2], "query": [3]})
    >>> kept.update(torch.tensor([[1.0, 9.0, 3.0, 5.0], [3.0, 9.0, 5.0, 5.0]]))  # two prompts of four tokens
    >>> kept.result.round(decimals=6).tolist()  # rows: kinds; columns: mean and standard deviation
    [[3.0, 1.414214], [5.0, 0.0]]
    """

    def __init__(
        self, positions: Positions, per_prompt: bool = False, extremes: bool = False
    ) -> None:
        self._kinds = [list(places) for places in positions.values()]
        self._places = sorted({place for places in self._kinds for place in places})
        self._by_prompt = [PerPrompt() for _ in self._kinds] if per_prompt else []
        self._moments = Moments()
        self._extremes = Extremes() if extremes and not per_prompt else None

    def update(
        self,
        values: Float[Tensor, "batch token *shape"],
        where: Bool[Tensor, "batch token *#shape"] | None = None,
    ) -> None:
        """Add some prompts; with `where`, only the values at which it is true."""
        for kept, places in zip(self._by_prompt, self._kinds, strict=False):
            kept.update(
                at_places(values, places), None if where is None else at_places(where, places)
            )
        if self._by_prompt:
            return
        rows = at_places(values, self._places)
        self._moments.update(rows, None if where is None else at_places(where, self._places))
        if self._extremes:
            if where is not None:
                raise InputError(
                    "extremes of values at some places only are not kept: leave out `where` or "
                    "`extremes`"
                )
            self._extremes.update(rows)

    @property
    def result(self) -> Float[Tensor, "position *shape statistic"]:
        """The statistics of every kind, in the order of `axis`; a value that was never seen is NaN."""
        if self._by_prompt:
            return torch.stack([kept.result for kept in self._by_prompt])
        index = {place: i for i, place in enumerate(self._places)}
        rows = [[index[place] for place in places] for places in self._kinds]
        found = torch.stack([self._moments.over(entries).result for entries in rows])
        if self._extremes is None:
            return found
        low = torch.stack([self._extremes.minimum[entries].amin(0) for entries in rows])
        high = torch.stack([self._extremes.maximum[entries].amax(0) for entries in rows])
        return torch.cat([found, low[..., None], high[..., None]], -1)

    def axis(self) -> dict[str, Sequence[str] | Sequence[int]]:
        """The last axis of the result."""
        if self._by_prompt:
            return {"prompt": tuple(range(self._by_prompt[0].result.shape[-1]))}
        return {"statistic": ("mean", "std", "min", "max") if self._extremes else ("mean", "std")}
