"""The models and tasks that are timed.

They are untrained: weights make no difference to the time.
"""

from dataclasses import dataclass

from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.tokens import Interleaved
from icl_interp.models.transformer import HookedTransformer
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.tasks.distributions import Uniform
from icl_interp.tasks.functions import Polynomial

ENCODING = Interleaved()


@dataclass(frozen=True)
class Size:
    """A model and the length of its prompts, the query included."""

    layers: int
    width: int
    heads: int
    points: int

    @property
    def n_ctx(self) -> int:
        """Two tokens a point."""
        return 2 * self.points

    @property
    def n_tokens(self) -> int:
        """Tokens of a prompt: the query's label is never shown."""
        return ENCODING.n_tokens(self.points)

    def __str__(self) -> str:
        return f"{self.layers} layers, width {self.width}, {self.heads} heads, {self.points} points"


SMALL = Size(layers=3, width=64, heads=4, points=41)  # as the bundled models
PAPER = Size(
    layers=12, width=256, heads=8, points=41
)  # as the largest models of Naim & Asher (2025)
TINY = Size(layers=1, width=16, heads=2, points=6)


def untrained(size: Size) -> HookedTransformer:
    """A model in float32."""
    cfg = HookedTransformerConfig(
        n_layers=size.layers, d_model=size.width, n_heads=size.heads, n_ctx=size.n_ctx
    )
    return HookedTransformer(cfg).eval()


def affine(size: Size) -> Polynomial:
    """f(x) = a x + b on [-1, 1]."""
    return Polynomial(
        degrees=(1,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=size.points
    )


def prompts(size: Size, n: int) -> Prompts:
    """As many prompts, the same ones each time."""
    return affine(size).sample(n, generator(0, "benchmarks"))
