"""Encodings: how prompts become tokens, and which positions predict what."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from icl_interp.errors import InputError, counted, unknown
from icl_interp.prompts import Prompts


@runtime_checkable
class Shape(Protocol):
    """What an encoding asks of a task."""

    @property
    def dim(self) -> int:
        """Coordinates of an input."""
        ...

    @property
    def n_targets(self) -> int:
        """Coordinates of a value."""
        ...

    autoregressive: ClassVar[bool]  # whether the value at each point is the input of the next one

    @property
    def default_encoding(self) -> str:
        """The name of the encoding that is meant where none is named."""
        ...


@dataclass(frozen=True)
class Encoding(ABC):
    """How the points of a prompt become the tokens of a sequence.

    The query's own label is never shown.

    Attributes:
        shows_values: of the class: whether tokens hold the values y; else they show paths only,
            whose values come again as inputs.
    """

    shows_values: ClassVar[bool] = True

    @abstractmethod
    def encode(self, prompts: Prompts) -> Float[Tensor, "batch token d_in"]:
        """The tokens of whole prompts, ending with the query."""

    @abstractmethod
    def encode_queries(
        self, xs: Float[Tensor, "batch point dim"], n_targets: int = 1
    ) -> Float[Tensor, "batch point d_in"]:
        """The token that shows each x as the query, for values of `n_targets` coordinates."""

    def queries_after(
        self, prompts: Prompts, xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point d_in"]:
        """The token that each x would be in place of the prompts' query; xs has a row a prompt."""
        return self.encode_queries(xs, prompts.n_targets)

    @abstractmethod
    def d_in(self, dim: int, n_targets: int = 1) -> int:
        """Numbers in a token for inputs of `dim` coordinates and values of `n_targets`."""

    def check(self, task: Shape) -> None:
        """Refuse a task whose prompts this encoding cannot show.

        Raises:
            InputError: no token would show the values, and they are not the next inputs.
        """
        if not (self.shows_values or task.autoregressive):
            raise InputError(
                f"the encoding {name_of(self)} shows no values, and those of a "
                f"{type(task).__name__} are not the next inputs: choose interleaved or stacked"
            )

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
        """The positions whose outputs are predictions, and the points that they predict.

        Returns (tokens, points).
        """


class OneEach(Encoding):
    """A token for each input and each value: tokens are as wide as the wider of the two."""

    def encode_queries(
        self, xs: Float[Tensor, "batch point dim"], n_targets: int = 1
    ) -> Float[Tensor, "batch point d_in"]:
        """An input is its own token, with zeros behind it where values are wider."""
        return pad(xs, (0, max(0, n_targets - xs.shape[-1])))

    def d_in(self, dim: int, n_targets: int = 1) -> int:
        """As wide as an input, or a value where that is wider."""
        return max(dim, n_targets)

    def n_tokens(self, n_points: int) -> int:
        """Two a pair, one for the query."""
        return 2 * n_points - 1

    def n_points(self, n_ctx: int) -> int:
        """Two tokens a pair, one for the query."""
        return (n_ctx + 1) // 2


@dataclass(frozen=True)
class Interleaved(OneEach):
    """x_1, y_1, x_2, y_2, ..., x_query: one token an input or value.

    Tokens are as wide as the wider of the two. Each fills the first channels, so that a number y
    stands in channel 0. The output at x_k predicts y_k, for every k when attention is causal
    (bidirectional attention shows y_k to x_k, so there only the query counts). Source: Garg,
    Tsipras, Liang & Valiant (2022), section 2.

    >>> Interleaved().kinds(3)
    ('x', 'y', 'x', 'y', 'x')
    """

    def encode(self, prompts: Prompts) -> Float[Tensor, "batch token d_in"]:
        """Tokens at even places are inputs, at odd places labels."""
        n, n_points, dim = prompts.xs.shape
        tokens = prompts.xs.new_zeros(n, 2 * n_points, self.d_in(dim, prompts.n_targets))
        tokens[:, 0::2, :dim] = prompts.xs
        tokens[:, 1::2, : prompts.n_targets] = prompts.ys
        return tokens[:, :-1]

    def kinds(self, n_points: int) -> tuple[str, ...]:
        """x and y in turn."""
        return ("x", "y") * (n_points - 1) + ("x",)

    def read_at(self, n_points: int, attention_dir: str) -> tuple[range, range]:
        """Every x token, or only the query."""
        first = 0 if attention_dir == "causal" else n_points - 1
        return range(2 * first, 2 * n_points - 1, 2), range(first, n_points)


@dataclass(frozen=True)
class Separated(Interleaved):
    """(0, x_1), (y_1, 0), (0, x_2), ..., (0, x_query): inputs and values in channels of their own.

    Order and predictions are those of `Interleaved`; values come in the first channels. Source:
    Raventos, Paul, Chen & Ganguli (2023), *Pretraining task diversity*.

    >>> prompts = Prompts(
    ...     torch.tensor([[[1.0], [2.0]]]), torch.tensor([[3.0, 4.0]]),
    ...     torch.zeros(1, 0), torch.zeros(1).long(),
    ... )
    >>> Separated().encode(prompts).tolist()
    [[[0.0, 1.0], [3.0, 0.0], [0.0, 2.0]]]
    """

    def encode(self, prompts: Prompts) -> Float[Tensor, "batch token d_in"]:
        """Tokens at even places are inputs, at odd places labels, each in its own channels."""
        n, n_points, dim = prompts.xs.shape
        tokens = prompts.xs.new_zeros(n, 2 * n_points, self.d_in(dim, prompts.n_targets))
        tokens[:, 0::2, prompts.n_targets :] = prompts.xs
        tokens[:, 1::2, : prompts.n_targets] = prompts.ys
        return tokens[:, :-1]

    def encode_queries(
        self, xs: Float[Tensor, "batch point dim"], n_targets: int = 1
    ) -> Float[Tensor, "batch point d_in"]:
        """An input, with zeros where a value would stand."""
        return pad(xs, (n_targets, 0))

    def d_in(self, dim: int, n_targets: int = 1) -> int:
        """A value and an input."""
        return n_targets + dim


@dataclass(frozen=True)
class ValuesFirst(OneEach):
    """y_1, x_1, y_2, x_2, ..., x_query: each value stands before its input.

    An input then sees its own value, so only the query is scored. Tokens are as wide as the wider
    of the two, and each fills the first channels, as with `Interleaved`.

    >>> ValuesFirst().kinds(3)
    ('y', 'x', 'y', 'x', 'x')
    """

    def encode(self, prompts: Prompts) -> Float[Tensor, "batch token d_in"]:
        """Tokens at even places are labels, at odd places inputs; the query is last."""
        xs = prompts.xs
        n, n_points, dim = xs.shape
        tokens = xs.new_zeros(n, 2 * n_points - 1, self.d_in(dim, prompts.n_targets))
        tokens[:, :-1:2, : prompts.n_targets] = prompts.ys[:, :-1]
        tokens[:, 1::2, :dim] = xs[:, :-1]
        tokens[:, -1, :dim] = xs[:, -1]
        return tokens

    def kinds(self, n_points: int) -> tuple[str, ...]:
        """y and x in turn, and the query."""
        return ("y", "x") * (n_points - 1) + ("x",)

    def read_at(self, n_points: int, attention_dir: str) -> tuple[range, range]:
        """The query."""
        last = 2 * (n_points - 1)
        return range(last, last + 1), range(n_points - 1, n_points)


@dataclass(frozen=True)
class Stacked(Encoding):
    """A token for each column (x_k; y_k), and (x_query; 0) last.

    Its last part has as many zeros as y has coordinates. Only the query is scored.

    Source: Zhang, Frei & Bartlett (2023), equation (3.4).
    """

    def encode(self, prompts: Prompts) -> Float[Tensor, "batch token d_in"]:
        """Columns with their label, the last one with a zero."""
        tokens = torch.cat([prompts.xs, prompts.ys], -1)
        tokens[:, -1, prompts.xs.shape[2] :] = 0
        return tokens

    def encode_queries(
        self, xs: Float[Tensor, "batch point dim"], n_targets: int = 1
    ) -> Float[Tensor, "batch point d_in"]:
        """Columns with a zero label."""
        return pad(xs, (0, n_targets))

    def d_in(self, dim: int, n_targets: int = 1) -> int:
        """An input and its label."""
        return dim + n_targets

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
        last = range(n_points - 1, n_points)
        return last, last


@dataclass(frozen=True)
class States(Encoding):
    """s_1, s_2, ..., s_query: one token a state, for paths.

    In a path the value at each point is the input of the next.

    The output at s_k predicts s_{k+1}, for every k when attention is causal (bidirectional
    attention shows s_{k+1} to s_k, so there only the query counts). Source: Sander, Giryes, Suzuki,
    Blondel & Peyre (2024), section 2.

    >>> States().kinds(3)
    ('x', 'x', 'x')
    """

    shows_values: ClassVar[bool] = False

    def encode(self, prompts: Prompts) -> Float[Tensor, "batch token d_in"]:
        """The inputs; values are not shown, because each comes again as the next input."""
        _check_path(prompts, self)
        return prompts.xs

    def encode_queries(
        self, xs: Float[Tensor, "batch point dim"], n_targets: int = 1
    ) -> Float[Tensor, "batch point d_in"]:
        """A state is its own token."""
        return xs

    def d_in(self, dim: int, n_targets: int = 1) -> int:
        """As wide as a state."""
        return dim

    def n_tokens(self, n_points: int) -> int:
        """One a point."""
        return n_points

    def n_points(self, n_ctx: int) -> int:
        """One a token."""
        return n_ctx

    def kinds(self, n_points: int) -> tuple[str, ...]:
        """Inputs only."""
        return ("x",) * n_points

    def read_at(self, n_points: int, attention_dir: str) -> tuple[range, range]:
        """Every token, or only the query."""
        first = 0 if attention_dir == "causal" else n_points - 1
        read = range(first, n_points)
        return read, read


@dataclass(frozen=True)
class Augmented(States):
    """(0, s_1, 0), (0, s_2, s_1), (0, s_3, s_2), ...: each token has a state and the previous one.

    The first block, as wide as a state, is 0: it is where a layer that adds to its tokens writes
    its prediction. The first state has none before it, and 0 stands there. Source: Sander, Giryes,
    Suzuki, Blondel & Peyre (2024), section 4, after von Oswald et al. (2023).

    >>> xs, ys = torch.tensor([[[1.0], [2.0]]]), torch.zeros(1, 2)
    >>> prompts = Prompts(xs, ys, torch.zeros(1, 0), torch.zeros(1).long())
    >>> Augmented().encode(prompts)
    tensor([[[0., 1., 0.],
             [0., 2., 1.]]])
    """

    def encode(self, prompts: Prompts) -> Float[Tensor, "batch token d_in"]:
        """Zeros, the state, the state before."""
        _check_path(prompts, self)
        before = pad(prompts.xs[:, :-1], (0, 0, 1, 0))
        return self._augmented(prompts.xs, before, prompts.n_targets)

    def encode_queries(
        self, xs: Float[Tensor, "batch point dim"], n_targets: int = 1
    ) -> Float[Tensor, "batch point d_in"]:
        """None: a state alone is no token here.

        Raises:
            InputError: always.
        """
        raise InputError(
            "a query of augmented tokens holds the state before it too: use queries_after(prompts, "
            "xs) in place of encode_queries(xs)"
        )

    def queries_after(
        self, prompts: Prompts, xs: Float[Tensor, "batch point dim"]
    ) -> Float[Tensor, "batch point d_in"]:
        """Each state in place of the last one, with the last but one before it."""
        return self._augmented(xs, prompts.xs[:, -2:-1].expand_as(xs), prompts.n_targets)

    def d_in(self, dim: int, n_targets: int = 1) -> int:
        """Two states and a prediction."""
        return n_targets + 2 * dim

    @staticmethod
    def _augmented(
        xs: Float[Tensor, "batch point dim"],
        before: Float[Tensor, "batch point dim"],
        n_targets: int,
    ) -> Float[Tensor, "batch point d_in"]:
        return torch.cat([xs.new_zeros(*xs.shape[:2], n_targets), xs, before], -1)


@dataclass(frozen=True)
class Driven(States):
    """(u_1, s_1), (u_2, s_2), ...: one token a step, for paths that inputs drive.

    The x of each point holds the input u, then the state s; the value is the next state, which
    comes again as the last coordinates of the next x. So s_{k+1} = g(s_k, u_k), and the output at
    (u_k, s_k) predicts s_{k+1}, for every k when attention is causal.

    >>> xs, ys = torch.tensor([[[5.0, 1.0], [6.0, 2.0]]]), torch.tensor([[2.0, 3.0]])
    >>> prompts = Prompts(xs, ys, torch.zeros(1, 0), torch.zeros(1).long())
    >>> Driven().encode(prompts)
    tensor([[[5., 1.],
             [6., 2.]]])
    """

    def check(self, task: Shape) -> None:
        """Refuse a task whose x has no room for an input and a state.

        Raises:
            InputError: x is no wider than a value.
        """
        if task.dim <= task.n_targets:
            raise InputError(
                "driven tokens hold an input and a state, so x must be wider than a value, but a "
                f"{type(task).__name__} has x of {counted(task.dim, 'coordinate')} and values of "
                f"{task.n_targets}: choose interleaved, stacked or, for a path, states"
            )

    def encode(self, prompts: Prompts) -> Float[Tensor, "batch token d_in"]:
        """The x of each point; each value comes again in the next one.

        Raises:
            InputError: values do not come again.
        """
        n = prompts.n_targets
        states = prompts.xs[:, 1:-1, -n:]
        wide = prompts.xs.shape[-1] > n
        if not wide or not _come_again(prompts, states):
            raise InputError(
                "driven tokens show no values, so the value at each point must be the last "
                f"{counted(n, 'coordinate')} of the next x, behind the input that drives it, but "
                "these prompts are no such paths: choose Interleaved() or Stacked()"
            )
        return prompts.xs


ENCODINGS: dict[str, type[Encoding]] = {
    "interleaved": Interleaved,
    "separated": Separated,
    "values_first": ValuesFirst,
    "stacked": Stacked,
    "states": States,
    "augmented": Augmented,
    "driven": Driven,
}


BUNDLED = frozenset(ENCODINGS)


def register(cls: type[Encoding]) -> type[Encoding]:
    """Register an encoding of your own by its class's name.

    Then it works in `load`, `train`, `analyze`, `evaluate` and `probe`, as an object and by its
    name, and runs with it are saved and loaded. Whoever loads such a run registers the class first.
    It may stand above a class as a decorator; registering it again from the same place (a notebook
    cell that runs a second time) replaces it.

    Args:
        cls: a class below `Encoding` that is made without arguments.

    Returns:
        The class itself.

    Raises:
        InputError: no such class, methods that are missing, or a name that is taken.

    >>> @register
    ... class Doubled(Stacked):
    ...     def n_points(self, n_ctx):
    ...         return n_ctx
    >>> name_of(Doubled()), named("Doubled") == Doubled()
    ('Doubled', True)
    >>> del ENCODINGS["Doubled"]  # so that this example leaves nothing behind
    """
    if not (isinstance(cls, type) and issubclass(cls, Encoding)):
        raise InputError(
            f"register takes a class below icl_interp.encodings.Encoding, but got {cls!r}"
        )
    # It can be made from its name alone, and the name is free.
    name = cls.__name__
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    if missing:
        raise InputError(f"{name} lacks what every encoding needs: {', '.join(missing)}")
    try:
        cls()
    except TypeError as error:
        raise InputError(
            f"{name} must be made without arguments, because a config holds its name alone: {error}"
        ) from error
    known = ENCODINGS.get(name, cls)
    same_place = known.__module__ == cls.__module__ and known.__qualname__ == cls.__qualname__
    if name in BUNDLED or not same_place:
        raise InputError(f"another encoding is called {name!r} already: choose another name")
    ENCODINGS[name] = cls
    return cls


def named(encoding: str | Encoding) -> Encoding:
    """The encoding of that name; one that is an object already is that object.

    Raises:
        InputError: no encoding, or one that is not registered.
    """
    if isinstance(encoding, Encoding):
        name_of(encoding)
        return encoding
    if encoding not in ENCODINGS:
        raise unknown("encoding", encoding, ENCODINGS)
    return ENCODINGS[encoding]()


def name_of(encoding: Encoding) -> str:
    """The name `named` knows it by.

    Raises:
        InputError: it is not registered, or has other settings than one made from its name.
    """
    for name, cls in ENCODINGS.items():
        if cls is type(encoding):
            if encoding == cls():
                return name
            raise InputError(
                f"{encoding!r} has settings that its name {name!r} does not tell: register a class "
                "for them"
            )
    own = type(encoding).__name__
    raise InputError(
        f"the encoding {own} is not registered: call icl_interp.encodings.register({own}) first "
        f"(known are {', '.join(ENCODINGS)})"
    )


def infer(d_in: int, dim: int, n_targets: int = 1) -> Encoding:
    """The encoding that a model must use, told by its width: interleaved, or the wider stacked.

    Args:
        d_in: the model's.
        dim: coordinates of an input.
        n_targets: coordinates of a value.

    Raises:
        InputError: neither is so wide.
    """
    interleaved = Interleaved()
    stacked = Stacked()
    for encoding in (interleaved, stacked):
        if encoding.d_in(dim, n_targets) == d_in:
            return encoding
    values = "" if n_targets == 1 else f" and values of {n_targets}"
    raise InputError(
        f"a model with d_in={d_in} fits neither interleaved "
        f"(d_in={interleaved.d_in(dim, n_targets)}) nor stacked "
        f"(d_in={stacked.d_in(dim, n_targets)}) prompts of a task with inputs of "
        f"{counted(dim, 'coordinate')}{values}: name the encoding, or pass another task"
    )


def infer_from(prompts: Prompts, d_in: int) -> Encoding:
    """The encoding of a bare model for prompts without a task, where `infer` has only one answer.

    Args:
        prompts: what the model is shown.
        d_in: the model's.

    Raises:
        InputError: neither width fits, or the prompts are paths, which a model of this width could
            read in two ways.

    >>> xs, ys = torch.arange(4.0).view(1, 4, 1), torch.arange(1.0, 5.0).view(1, 4)
    >>> path = Prompts(xs, ys, torch.zeros(1, 0), torch.zeros(1).long())
    >>> infer_from(path, d_in=2)
    Stacked()
    >>> infer_from(path, d_in=1)
    Traceback (most recent call last):
    icl_interp.errors.InputError: the value at each point of these prompts is the next input, \
so a model with d_in=1 may read them as states or interleaved: \
pass encoding=States() or encoding=Interleaved()
    """
    found = infer(d_in, prompts.xs.shape[2], prompts.n_targets)
    if not isinstance(found, Interleaved) or prompts.n_points < 2:
        return found
    next_inputs = prompts.xs[:, 1:, -prompts.n_targets :]
    if torch.equal(prompts.ys[:, :-1], next_inputs):
        whole = prompts.xs.shape[2] == prompts.n_targets
        where = "" if whole else "in "
        path = States() if whole else Driven()
        raise InputError(
            f"the value at each point of these prompts is {where}the next input, so a model with "
            f"d_in={d_in} may read them as {name_of(path)} or interleaved: pass encoding={path} or "
            "encoding=Interleaved()"
        )
    return found


def _check_path(prompts: Prompts, encoding: Encoding) -> None:
    """Refuse prompts whose values would not be shown.

    The query may stand anywhere, and values may be unknown (NaN).
    """
    next_inputs = prompts.xs[:, 1:-1]
    if next_inputs.shape != prompts.ys[:, :-2].shape or not _come_again(prompts, next_inputs):
        raise InputError(
            f"{name_of(encoding)} tokens show no values, so the value at each point must be the "
            "next input, but these prompts are no paths: choose Interleaved() or Stacked()"
        )


def _come_again(prompts: Prompts, states: Float[Tensor, "batch point target"]) -> bool:
    """Whether values, where they are known, are these states; the query's do not count."""
    values = prompts.ys[:, :-2]
    return bool(((states == values) | values.isnan()).all())


def infer_for(task: Shape, d_in: int) -> Encoding:
    """The encoding of a bare model for a task.

    It is the task's default where that has the width of the model, else the result of `infer`.
    """
    default = named(task.default_encoding)
    if default.d_in(task.dim, task.n_targets) == d_in:
        return default
    return infer(d_in, task.dim, task.n_targets)
