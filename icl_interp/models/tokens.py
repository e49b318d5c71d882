"""Encodings: how prompts become tokens, and which positions predict what."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError, unknown
from icl_interp.prompts import Prompts


@dataclass(frozen=True)
class Encoding(ABC):
    """How the points of a prompt become the tokens of a sequence. The query's own label is never shown."""

    @abstractmethod
    def encode(self, prompts: Prompts) -> Float[Tensor, "batch token d_in"]:
        """The tokens of whole prompts, ending with the query."""

    @abstractmethod
    def encode_queries(self, xs: Float[Tensor, "batch point dim"]) -> Float[Tensor, "batch point d_in"]:
        """The token each x would be as the query."""

    @abstractmethod
    def d_in(self, dim: int) -> int:
        """Numbers in a token for inputs of `dim` coordinates."""

    @abstractmethod
    def n_tokens(self, n_points: int) -> int:
        """Tokens of a prompt of `n_points` points."""

    @abstractmethod
    def n_points(self, n_ctx: int) -> int:
        """Points of the longest prompt that `n_ctx` tokens hold."""

    @abstractmethod
    def kinds(self, n_points: int) -> tuple[str, ...]:
        """What each token shows: "x", "y", or "xy" for both."""

    @abstractmethod
    def read_at(self, n_points: int, attention_dir: str) -> tuple[range, range]:
        """(tokens, points): the token positions whose outputs are predictions, and the points they predict."""


@dataclass(frozen=True)
class Interleaved(Encoding):
    """x_1, y_1, x_2, y_2, ..., x_query: one token a number (a vector for dim > 1, with y in channel 0).

    The output at x_k predicts y_k, for every k when attention is causal (bidirectional attention shows y_k to x_k, so
    there only the query counts). Source: Garg, Tsipras, Liang & Valiant (2022), section 2.

    >>> Interleaved().kinds(3)
    ('x', 'y', 'x', 'y', 'x')
    """

    def encode(self, prompts: Prompts) -> Float[Tensor, "batch token d_in"]:
        """Tokens at even places are inputs, at odd places labels."""
        xs = prompts.xs
        tokens = xs.new_zeros(xs.shape[0], 2 * xs.shape[1], xs.shape[2])
        tokens[:, 0::2] = xs
        tokens[:, 1::2, 0] = prompts.ys
        return tokens[:, :-1]

    def encode_queries(self, xs: Float[Tensor, "batch point dim"]) -> Float[Tensor, "batch point d_in"]:
        """An input is its own token."""
        return xs

    def d_in(self, dim: int) -> int:
        """As wide as an input."""
        return dim

    def n_tokens(self, n_points: int) -> int:
        """Two a pair, one for the query."""
        return 2 * n_points - 1

    def n_points(self, n_ctx: int) -> int:
        """`n_ctx` counts two tokens a point, the query's label too."""
        return (n_ctx + 1) // 2

    def kinds(self, n_points: int) -> tuple[str, ...]:
        """x and y in turn."""
        return ("x", "y") * (n_points - 1) + ("x",)

    def read_at(self, n_points: int, attention_dir: str) -> tuple[range, range]:
        """Every x token, or only the query."""
        first = 0 if attention_dir == "causal" else n_points - 1
        return range(2 * first, 2 * n_points - 1, 2), range(first, n_points)


@dataclass(frozen=True)
class Stacked(Encoding):
    """One column (x_k; y_k) a token, (x_query; 0) last; scored at the query only.

    Source: Zhang, Frei & Bartlett (2023), equation (3.4).
    """

    def encode(self, prompts: Prompts) -> Float[Tensor, "batch token d_in"]:
        """Columns with their label, the last one with a zero."""
        tokens = torch.cat([prompts.xs, prompts.ys[..., None]], -1)
        tokens[:, -1, -1] = 0
        return tokens

    def encode_queries(self, xs: Float[Tensor, "batch point dim"]) -> Float[Tensor, "batch point d_in"]:
        """Columns with a zero label."""
        return torch.cat([xs, torch.zeros_like(xs[..., :1])], -1)

    def d_in(self, dim: int) -> int:
        """An input and its label."""
        return dim + 1

    def n_tokens(self, n_points: int) -> int:
        """One a point."""
        return n_points

    def n_points(self, n_ctx: int) -> int:
        """One a token."""
        return n_ctx

    def kinds(self, n_points: int) -> tuple[str, ...]:
        """Both in each."""
        return ("xy",) * n_points

    def read_at(self, n_points: int, attention_dir: str) -> tuple[range, range]:
        """The query."""
        return range(n_points - 1, n_points), range(n_points - 1, n_points)


ENCODINGS: dict[str, type[Encoding]] = {"interleaved": Interleaved, "stacked": Stacked}


def named(name: str) -> Encoding:
    """The encoding called "interleaved" or "stacked"."""
    if name not in ENCODINGS:
        raise unknown("encoding", name, ENCODINGS)
    return ENCODINGS[name]()


def name_of(encoding: Encoding) -> str:
    """The name `named` knows it by."""
    return next(name for name, cls in ENCODINGS.items() if cls is type(encoding))


def infer(d_in: int, dim: int) -> Encoding:
    """The encoding a bare model must use: as wide as an input is interleaved, one wider is stacked."""
    for cls in ENCODINGS.values():
        if cls().d_in(dim) == d_in:
            return cls()
    raise InputError(
        f"a model with d_in={d_in} fits neither interleaved (d_in={dim}) nor stacked (d_in={dim + 1}) prompts of a "
        f"task with inputs of {dim} coordinates: name the encoding, or pass another task"
    )
