"""What a probe is, how it is attached so that it can only read, and which tokens it sees."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float, Shaped
from torch import Tensor

from icl_interp.errors import InputError, shown
from icl_interp.models import tokens as encodings
from icl_interp.models.hooked import HookedModel
from icl_interp.models.hooks import only_reads
from icl_interp.models.tokens import Encoding
from icl_interp.models.transformer import HookedTransformer
from icl_interp.models.weights import check_finite
from icl_interp.prompts import Prompts
from icl_interp.results import Result

Hook = tuple[str, Callable[..., Any]]
# Token positions by kind: "x", "y" (or "xy" where one token shows both), and "query" for the last
# one. In a sweep over alternative last tokens a kind is the x of one of them.
Positions = Mapping[str, Sequence[int]] | Mapping[str | float, Sequence[int]]


@runtime_checkable
class ModelWithEncoding(Protocol):
    """A model that knows how it reads prompts: a checkpoint, for one."""

    @property
    def model(self) -> HookedModel:
        """What predicts."""
        ...

    encoding: Encoding


class Probe(ABC):
    """A read-only measurement: functions at hook points that feed running statistics.

    One's own needs a `name`, `hooks` and `results`. What its functions return is ignored, and one
    that edits an activation in place is refused, so a probe never changes an output.

    >>> import torch
    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> from icl_interp.probes.runner import probe
    >>> from icl_interp.reductions import Extremes
    >>> from icl_interp.results import make_array
    >>> class LargestActivation(Probe):
    ...     name = "largest_activation"
    ...
    ...     def hooks(self, model, positions):
    ...         self.seen = Extremes()
    ...         return [(f"blocks.{i}.mlp.hook_post", self.look) for i in range(model.cfg.n_layers)]
    ...
    ...     def look(self, t, hook):
    ...         self.seen.update(t.flatten())
    ...
    ...     def results(self):
    ...         return {"value": make_array(self.seen.maximum.cpu().numpy(), {})}
    >>> model = HookedTransformer(HookedTransformerConfig(n_layers=1, d_model=8, act_fn="relu"))
    >>> list(probe(model, torch.zeros(3, 5, 1), [LargestActivation()]))
    ['largest_activation.value']
    """

    name: ClassVar[str]
    # The weights that it reads, in words: an adapted module does not tell where it has them.
    weights: ClassVar[str | None] = None

    def refusal(self, model: HookedModel) -> str | None:
        """Why this probe has nothing to measure in a model, or None if it has."""
        return None

    @abstractmethod
    def hooks(self, model: HookedModel, positions: Positions) -> list[Hook]:
        """Start anew, with empty statistics.

        Args:
            model: the one that is probed.
            positions: the token positions of each kind; every batch that follows has these.

        Returns:
            Pairs of a hook's name and a function `(activation, hook)` that reads it.
        """

    @abstractmethod
    def results(self) -> dict[str, Result]:
        """What the batches since `hooks` add up to, by name."""


@contextmanager
def observe(model: HookedModel, *probes: Probe, positions: Positions) -> Iterator[HookedModel]:
    """Attach probes to a model that you run yourself; afterwards ask each for its `results()`.

    `probe` does this for whole prompts. By hand it serves other ways to run a model: under
    interventions (attach the probe inside: it then sees what they left), or with alternative last
    tokens, whose axis holds queries only.

    Raises:
        InputError: a probe has nothing to measure in this model, or a hook does not exist.

    >>> import torch
    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> from icl_interp.probes.attention import AttentionEntropy
    >>> model = HookedTransformer(HookedTransformerConfig(n_layers=2, d_model=8, n_heads=2))
    >>> memory, entropy = model.remember(torch.randn(4, 6, 1)), AttentionEntropy()
    >>> with observe(model, entropy, positions={"query": range(3)}):
    ...     out = model.after(memory, torch.randn(4, 3, 1), position=6)
    >>> entropy.results()["visible_keys"].sel(layer=0, position="query", statistic="mean").values
    array([7., 7.])
    """
    with model.hooks(fwd_hooks=started(model, probes, positions)):
        yield model


def started(model: HookedModel, probes: Sequence[Probe], positions: Positions) -> list[Hook]:
    """Fresh hooks of several probes, each made read-only.

    Raises:
        InputError: a probe has nothing to measure in this model, or a hook does not exist.
    """
    for kind, places in positions.items():
        if not len(places) or min(places) < 0:
            raise InputError(
                f"each position kind needs places, counted from 0, but {kind!r} has "
                f"{list(places)}: leave an empty kind out, and give the last token's own number in "
                "place of -1"
            )
    hooks: list[Hook] = []
    for p in probes:
        if not isinstance(p, Probe):
            raise InputError(
                f"a probe must be an instance of Probe, for example ResidualStream(), but got {p!r}"
            )
        if reason := why_not(p, model):
            raise InputError(f"probe {p.name}: {reason}")
        hooks += [
            (name, _read_only(p, name, function)) for name, function in p.hooks(model, positions)
        ]
    model.check_hooks([name for name, _ in hooks])
    return hooks


def why_not(probe: Probe, model: HookedModel) -> str | None:
    """Why a probe has nothing to measure in a model, or None if it has."""
    if probe.weights and not isinstance(model, HookedTransformer):
        return (
            f"it reads {probe.weights}, and where an adapted module has these nobody says: convert "
            "it with icl_interp.load, if one of the formats reads it"
        )
    return probe.refusal(model)


def at_places(
    t: Shaped[Tensor, "batch token *rest"], places: Sequence[int]
) -> Shaped[Tensor, "batch place *rest"]:
    """An activation at some token positions; a view where these are evenly spaced, as is usual."""
    steps = {b - a for a, b in pairwise(places)} or {1}
    if len(steps) == 1 and min(steps) > 0:
        return t[:, places[0] : places[-1] + 1 : steps.pop()]
    return t[:, list(places)]


_READING = ContextVar("whether a probe reads at this moment, in this thread", default=False)


def is_reading() -> bool:
    """Whether a probe is at work.

    What it then runs of the model, as the logit lens does, is hidden from other probes.
    """
    return _READING.get()


def _read_only(owner: Probe, name: str, function: Callable[..., Any]) -> Callable[..., None]:
    @only_reads
    def read(t: Tensor, hook: Any) -> None:
        if is_reading():
            return
        # Torch counts the edits of every tensor, except of those made in inference mode.
        edits = None if t.is_inference() else t._version
        before = _READING.set(True)
        try:
            function(t, hook=hook)
        finally:
            _READING.reset(before)
        if edits is not None and t._version != edits:
            raise InputError(
                f"probe {owner.name} edited {name} in place; a probe may only read (to edit, "
                "intervene)"
            )

    return read


class Batch(NamedTuple):
    """Tokens and the kinds of their positions."""

    tokens: Float[Tensor, "batch token d_in"]
    positions: dict[str, list[int]]


Source = Prompts | Tensor | Iterable[Prompts | Tensor]


def resolve(
    model: HookedModel | ModelWithEncoding, encoding: Encoding | str | None
) -> tuple[HookedModel, Encoding | None]:
    """The model itself, and its encoding if one is given (also by name) or comes with it."""
    if isinstance(encoding, str):
        encoding = encodings.named(encoding)
    # An adapted module may have a part that is called model.
    if isinstance(model, ModelWithEncoding) and not isinstance(model, HookedModel):
        return model.model, encoding or model.encoding
    if not isinstance(model, HookedModel):
        raise InputError(
            f"expected a HookedTransformer or a Checkpoint, but got {model!r}: load a path or name "
            "first"
        )
    return model, encoding or model.encoding


def with_weights(model: HookedModel, what: str) -> HookedTransformer:
    """The same model, where it is a `HookedTransformer`: an adapted module is not.

    Args:
        model: any.
        what: needs its weights or config; the message begins with it.

    Raises:
        InputError: an adapted module, or weights that are NaN or infinite.
    """
    if isinstance(model, HookedTransformer):
        check_finite(model.named_parameters(), what)
        return model
    raise InputError(
        f"{what} needs the weights of a HookedTransformer, but this is an adapted module "
        f"({type(model).__name__}): convert it with icl_interp.load, if one of the formats reads it"
    )


def held(checkpoint: Any, what: str) -> tuple[HookedModel, Encoding]:
    """The model of a checkpoint, or an adapted module, with its encoding.

    Args:
        checkpoint: one or the other.
        what: needs it; the message begins with it.

    Raises:
        InputError: neither, or weights of a `HookedTransformer` that are NaN or infinite.
    """
    model = None
    encoding = None
    if isinstance(checkpoint, (HookedModel, ModelWithEncoding)):
        model, encoding = resolve(checkpoint, None)
    if model is None or encoding is None:
        raise InputError(
            f"{what} needs a checkpoint, of icl_interp.load, or what icl_interp.adapt gives, but "
            f"got {shown(checkpoint)}"
        )
    if isinstance(model, HookedTransformer):
        check_finite(model.named_parameters(), what)
    return model, encoding


def prompts_of(prompts: Source, batch_size: int) -> Iterator[Prompts | Tensor]:
    """Prompts or tokens in pieces of at most `batch_size`, read from a stream one at a time.

    Raises:
        InputError: `batch_size` below 1, or something that is neither prompts nor tokens
            `(batch, token, d_in)`.
    """
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, but got {batch_size}")
    if isinstance(prompts, (Prompts, Tensor)):
        prompts = [prompts]
    elif not isinstance(prompts, Iterable):
        raise _not_prompts(prompts)
    for item in prompts:
        if not isinstance(item, (Prompts, Tensor)):
            raise _not_prompts(item)
        if isinstance(item, Tensor) and (item.ndim != 3 or not item.shape[1]):
            raise InputError(
                f"tokens must have shape (batch, token, d_in), but got {tuple(item.shape)}"
            )
        for start in range(0, len(item), batch_size):
            yield item[start : start + batch_size]


def batches(
    model: HookedModel, prompts: Source, encoding: Encoding | None, batch_size: int
) -> Iterator[Batch]:
    """Tokens for the model, `batch_size` prompts at a time.

    Raises:
        InputError: what `prompts_of` refuses; no prompts at all; prompts of different lengths;
            tokens that are not whole prompts of the encoding.
    """
    first: int | None = None
    for piece in prompts_of(prompts, batch_size):
        if isinstance(piece, Prompts):
            chosen = encoding or encodings.infer_from(piece, model.cfg.d_in)
            tokens = chosen.encode(piece)
            kinds = chosen.kinds(piece.n_points)
        else:
            tokens = piece
            kinds = _kinds(piece, encoding)
        first = first or len(kinds)
        if len(kinds) != first:
            raise InputError(
                f"the prompts of a stream must be equally long, but some have {first} tokens and "
                f"some {len(kinds)}"
            )
        yield Batch(tokens.to(model.numbers), _positions(kinds))
    if first is None:
        raise InputError("there are no prompts to probe: the stream is empty")


def _kinds(tokens: Tensor, encoding: Encoding | None) -> tuple[str, ...]:
    n = tokens.shape[1]
    if encoding is None:
        return ("token",) * n
    n_points = encoding.n_points(n)
    if encoding.n_tokens(n_points) != n:
        raise InputError(
            f"{n} tokens are no whole {encodings.name_of(encoding)} prompt, which ends with its "
            f"query: one of {n_points} points has {encoding.n_tokens(n_points)}"
        )
    return encoding.kinds(n_points)


def _positions(kinds: Sequence[str]) -> dict[str, list[int]]:
    """Positions by kind; the last token is the query, whatever it shows."""
    positions: dict[str, list[int]] = {}
    for i, kind in enumerate(kinds[:-1]):
        positions.setdefault(kind, []).append(i)
    return {**positions, "query": [len(kinds) - 1]}


def _not_prompts(item: object) -> InputError:
    return InputError(
        "expected Prompts, tokens (batch, token, d_in), or an iterable of these, but got "
        f"{type(item).__name__}"
    )
