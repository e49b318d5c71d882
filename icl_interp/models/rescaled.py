"""An encoding for values in other units: tokens show them in the units that the model was trained in."""

import math
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError, shown
from icl_interp.models.tokens import Encoding
from icl_interp.prompts import Prompts


@dataclass(frozen=True)
class RescaledValues(Encoding):
    """Shows (y - shift) / scale where another encoding would show y: undoes what `tasks.Rescaled` does to values.

    Attributes:
        inner: the encoding that the model was trained with.
        scale: what values were multiplied by, not 0.
        shift: what was added to each coordinate of a value then.

    >>> import torch
    >>> from icl_interp.models.tokens import Interleaved
    >>> prompts = Prompts(torch.zeros(1, 2, 1), torch.tensor([[7.0, 0.0]]), torch.zeros(1, 0), torch.zeros(1).long())
    >>> RescaledValues(Interleaved(), scale=3.0, shift=1.0).encode(prompts)[0, :, 0]
    tensor([0., 2., 0.])
    """

    inner: Encoding
    scale: float = 1.0
    shift: float = 0.0

    def __post_init__(self) -> None:
        if not self.inner.shows_values:
            raise InputError(
                f"a {type(self.inner).__name__} encoding shows no values that could be in other "
                "units: choose interleaved or stacked"
            )
        for name in ("scale", "shift"):
            if not math.isfinite(getattr(self, name)):
                raise InputError(
                    f"{name} must be a finite number, but got {shown(getattr(self, name))}"
                )
        if self.scale == 0:
            raise InputError("scale must not be 0: every value would be the same number")

    def encode(self, prompts: Prompts) -> Float[Tensor, "batch token d_in"]:
        """The tokens of the prompts in the model's own units."""
        return self.inner.encode(replace(prompts, ys=(prompts.ys - self.shift) / self.scale))

    def encode_queries(
        self, xs: Float[Tensor, "batch point dim"], n_targets: int = 1
    ) -> Float[Tensor, "batch point d_in"]:
        """As the other encoding: a query shows no value."""
        return self.inner.encode_queries(xs, n_targets)

    def d_in(self, dim: int, n_targets: int = 1) -> int:
        """As the other encoding."""
        return self.inner.d_in(dim, n_targets)

    def n_tokens(self, n_points: int) -> int:
        """As the other encoding."""
        return self.inner.n_tokens(n_points)

    def n_points(self, n_ctx: int) -> int:
        """As the other encoding."""
        return self.inner.n_points(n_ctx)

    def kinds(self, n_points: int) -> tuple[str, ...]:
        """As the other encoding."""
        return self.inner.kinds(n_points)

    def read_at(self, n_points: int, attention_dir: str) -> tuple[range, range]:
        """As the other encoding."""
        return self.inner.read_at(n_points, attention_dir)
