"""Sweeps: the last query of prompts is put at many places, and every context is read once.

A causal context does not depend on the query behind it. So its keys and values are computed once,
and each place of the query costs one token, whoever asks: `run` merges all sweeps over the same
contexts. A bidirectional context reacts to the query, and every place is a prompt of its own.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError
from icl_interp.interventions.base import At, Intervention, first_block, intervene
from icl_interp.models.attention import KeysValues
from icl_interp.models.hooked import HookedModel
from icl_interp.models.hooks import only_reads, token_axis
from icl_interp.models.tokens import Encoding
from icl_interp.models.transformer import MOST_AT_ONCE, chunks
from icl_interp.probes.base import Hook, Probe, is_reading, started
from icl_interp.products import fast
from icl_interp.prompts import Prompts
from icl_interp.reductions import Rows

# Prompts at once: a pass over a few queries of each should have some work to do, so of small models
# more.
FEWEST = 32
WORK = 2**24  # multiplications of a pass over one query of each
Tick = Callable[[int], object]  # told of every prompt that is done
P = TypeVar("P", bound=Probe)
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Sweep:
    """A request for predictions with the last query at each of some places, and for probes there.

    A measurement declares the sweeps that it asks for, and is given a `Swept` for each.

    Attributes:
        prompts: the contexts.
        queries: places of the last query, `(point, dim)` for all prompts alike, or
            `(batch, point, dim)`.
        labels: a name for each place: the position kinds of the probes.
        n_points: cuts the prompts to so many points, the query included. A shorter context is the
            beginning of the whole one, in every encoding, so a causal model reads it no second
            time.
        context: interventions while the context is read.
        query: interventions while the queries are read (`Intervention.at_query` of each).
        probes: what reads the activations at the queries, as they are under the interventions.
    """

    prompts: Prompts
    queries: Float[Tensor, "*batch point dim"]
    labels: Sequence[str | float]
    n_points: int | None = None
    context: tuple[Intervention, ...] = ()
    query: tuple[Intervention, ...] = ()
    probes: tuple[Probe, ...] = ()

    @property
    def n_tokens(self) -> int:
        """Queries to be read, over all prompts."""
        return len(self.prompts) * self.queries.shape[-2]


@dataclass(frozen=True, eq=False)
class Swept:
    """A sweep that has run: its predictions, and its probes, which have read.

    Attributes:
        f: the predictions, `(batch, point, target)`, on the CPU.
        sweep: what was asked.
    """

    f: Float[Tensor, "batch point target"]
    sweep: Sweep

    @property
    def prompts(self) -> Prompts:
        """The contexts, a row of `f` each."""
        return self.sweep.prompts

    @property
    def xs(self) -> list[float]:
        """The first coordinate of each query, where all prompts have the same queries."""
        if self.sweep.queries.ndim == 3:
            raise InputError("each prompt has queries of its own: read them off `sweep.queries`")
        return self.sweep.queries[:, 0].tolist()

    def probe(self, kind: type[P]) -> P:
        """The probe of this kind that read along: `swept.probe(LayerNormScale).results()`.

        Raises:
            InputError: none of this kind, or more than one, was asked for.
        """
        found = [one for one in self.sweep.probes if isinstance(one, kind)]
        if len(found) != 1:
            raise InputError(
                f"expected one {kind.__name__} among the probes of a sweep, but {len(found)} were "
                "asked for: give each sweep one probe of a kind"
            )
        return found[0]


def places(xs: Sequence[float] | Any, dim: int) -> Float[Tensor, "point dim"]:
    """Queries along the first coordinate, the others 0; in float64.

    >>> places([1.0, 2.0], 2).tolist()
    [[1.0, 0.0], [2.0, 0.0]]
    """
    along = torch.as_tensor(xs, dtype=torch.float64)
    queries = torch.zeros(len(xs), dim, dtype=torch.float64)
    queries[:, 0] = along
    return queries


def run(
    model: HookedModel,
    encoding: Encoding,
    sweeps: Sequence[Sweep],
    tick: Tick | None = None,
    *,
    reader: HookedModel | None = None,
) -> list[Float[Tensor, "batch point target"]]:
    """The predictions that each sweep asks for, on the CPU.

    Its probes have then read what they wanted.

    Sweeps over the same prompts (the same object) under the same interventions share their passes.
    What each gets is what it would get alone, up to rounding.

    Args:
        model: what reads the queries.
        encoding: of the prompts.
        sweeps: what is asked.
        tick: told of every prompt that is done.
        reader: what reads causal contexts: the same model in another precision; `model` itself by
            default, and where numbers get too large for that precision.

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> from icl_interp.models.transformer import HookedTransformer
    >>> from icl_interp.models.tokens import Interleaved
    >>> from icl_interp.probes.attention import AttentionEntropy
    >>> config = HookedTransformerConfig(n_layers=2, d_model=8, n_heads=2, n_ctx=12)
    >>> model = HookedTransformer(config)
    >>> xs, ys = torch.randn(4, 5, 1), torch.randn(4, 5)
    >>> prompts = Prompts(xs, ys, torch.zeros(4, 0), torch.arange(4))
    >>> sweep = Sweep(prompts, places([0.5, 1e3], 1), (0.5, 1e3), probes=(AttentionEntropy(),))
    >>> [f] = run(model, Interleaved(), [sweep])
    >>> keys = sweep.probes[0].results()["visible_keys"]
    >>> f.shape, keys.sel(layer=0, position=1e3, statistic="mean").values
    (torch.Size([4, 2, 1]), array([9., 9.]))
    """
    answers = [Rows() for _ in sweeps]
    hooks = []
    for sweep in sweeps:
        positions = {label: [i] for i, label in enumerate(sweep.labels)}
        hooks.append(started(model, sweep.probes, positions))

    def read_together(i: int) -> Any:
        return sweeps[i].n_points, _ids(sweeps[i].query)

    reader = reader or model
    with torch.no_grad(), fast(), model.fixed_weights(), reader.fixed_weights():
        for over_context in _by_context(sweeps):
            passes = []
            for group in _grouped(over_context, read_together):
                one = _Pass(_chosen(sweeps, group), _chosen(hooks, group), _chosen(answers, group))
                passes.append(one)
            _run_together(model, reader, encoding, sweeps[over_context[0]], passes, tick)
    return [rows.all for rows in answers]


def _chosen(things: Sequence[T], places: Iterable[int]) -> list[T]:
    return [things[i] for i in places]


def n_read(sweeps: Sequence[Sweep]) -> int:
    """Contexts that `run` reads for these sweeps: what its ticks add up to."""
    n = 0
    for group in _by_context(sweeps):
        first = sweeps[group[0]]
        n += len(first.prompts)
    return n


def _by_context(sweeps: Sequence[Sweep]) -> list[list[int]]:
    """Which sweeps are over the same prompts under the same interventions on them."""

    def context(i: int) -> Any:
        return id(sweeps[i].prompts), _ids(sweeps[i].context)

    return _grouped(range(len(sweeps)), context)


def _run_together(
    model: HookedModel,
    reader: HookedModel,
    encoding: Encoding,
    shared: Sweep,
    passes: Sequence["_Pass"],
    tick: Tick | None,
) -> None:
    """Run passes over the same prompts with the same interventions on the context.

    The context is read once, chunk by chunk.
    """
    prompts = shared.prompts
    context = shared.context
    most = encoding.n_tokens(prompts.n_points)
    for one in passes:
        most = max(most, one.n_columns)
    reading = _Reading(model, reader, encoding, context)
    fewest = max(FEWEST, min(MOST_AT_ONCE, WORK // model.cfg.n_params))
    for rows in chunks(model, len(prompts), most, fewest=fewest):
        known: dict[int, list[KeysValues]] = {}
        intact: dict[Any, _Streams] = {}
        for one in passes:
            n_points = one.n_points or prompts.n_points
            memory = reading.memory(prompts[rows], n_points, known)
            one.run(model, encoding, prompts, memory, rows, context, intact)
            del memory  # that of the next chunk is to stand where it stood
        if tick:
            tick(rows.stop - rows.start)


class _Streams:
    """Queries' streams before each block, without interventions, computed when first needed."""

    def __init__(self, streams: Iterator[Tensor]) -> None:
        self._rest = streams
        self._known: list[Tensor] = []

    def before(self, block: int) -> Tensor:
        while len(self._known) <= block:
            self._known.append(next(self._rest))
        return self._known[block]


class _Reading:
    """What reads contexts under some interventions.

    In another precision than the queries': what is remembered of each chunk is then copied to where
    that of the chunk before stood. (New tensors each time leave holes in the process's memory that
    nothing else fits in.)
    """

    def __init__(
        self,
        model: HookedModel,
        reader: HookedModel,
        encoding: Encoding,
        context: Sequence[Intervention],
    ) -> None:
        self._model = model
        self._reader = reader
        self._encoding = encoding
        self._context = context
        self._room: dict[int, list[KeysValues]] = {}

    def memory(
        self, prompts: Prompts, n_points: int, known: dict[int, list[KeysValues]]
    ) -> list[KeysValues] | None:
        """What a model remembers of the context in prompts of `n_points`.

        None where that depends on the query.

        `known` keeps what was remembered of these prompts, by their points.
        """
        cfg = self._reader.cfg
        n_tokens = self._encoding.n_tokens
        whole = prompts.n_points if cfg.attention_dir == "causal" else n_points
        if not cfg.query_is_unseen or n_tokens(whole) < 2:
            return None
        if whole not in known:
            known[whole] = self._remembered(prompts.first(whole))
        # No token of a causal context sees those after it, so a shorter context is the start of
        # this one.
        n_seen = n_tokens(n_points) - 1
        return [of_layer.first(n_seen) for of_layer in known[whole]]

    def _remembered(self, prompts: Prompts) -> list[KeysValues]:
        found = self._read(self._reader, prompts)
        if self._reader is self._model:
            return found
        if not all(of_layer.is_finite for of_layer in found):
            # They are too large for the reader's precision.
            return self._read(self._model, prompts)
        room = self._room.get(prompts.n_points)
        if room is None:
            room = [of_layer.like(self._model.numbers) for of_layer in found]
            self._room[prompts.n_points] = room
        copied = []
        for of_layer, place in zip(found, room, strict=True):
            copied.append(of_layer.copied_to(place))
        return copied

    def _read(self, model: HookedModel, prompts: Prompts) -> list[KeysValues]:
        tokens = self._encoding.encode(prompts).to(model.numbers)
        with intervene(model, *self._context):
            return model.remember(tokens[:, :-1])


class _Pass:
    """Sweeps over the same contexts under the same interventions.

    Their queries stand side by side, and equal queries are computed once.
    """

    def __init__(
        self, sweeps: Sequence[Sweep], hooks: Sequence[list[Hook]], answers: Sequence[Rows]
    ) -> None:
        self.n_points = sweeps[0].n_points
        self.answers = answers
        self.query = tuple(one.at_query() for one in sweeps[0].query)
        # The column of each query. Places of each prompt's own several sweeps may share as one
        # tensor: they are then read once.
        shared: dict[tuple[float, ...], int] = {}
        own: dict[int, Tensor] = {}
        for sweep in sweeps:
            if sweep.queries.ndim == 3:
                own[id(sweep.queries)] = sweep.queries
                continue
            for place in sweep.queries.tolist():
                shared.setdefault(tuple(place), len(shared))
        self.shared = torch.tensor(list(shared), dtype=torch.float64)
        self.own = list(own.values())
        # Equal for passes over the same queries.
        self.same = (self.n_points, tuple(shared), tuple(own))
        self.n_columns = len(shared)
        own_columns: dict[int, list[int]] = {}
        for key, queries in own.items():
            first = self.n_columns
            self.n_columns += queries.shape[1]
            own_columns[key] = list(range(first, self.n_columns))
        self.columns: list[list[int]] = []
        self.hooks: list[Hook] = []
        for sweep, listeners in zip(sweeps, hooks, strict=True):
            if sweep.queries.ndim == 3:
                columns = own_columns[id(sweep.queries)]
            else:
                columns = [shared[tuple(place)] for place in sweep.queries.tolist()]
            self.columns.append(columns)
            for name, function in listeners:
                self.hooks.append((name, self._part(name, function, columns)))

    def _part(
        self, name: str, function: Callable[..., Any], columns: list[int]
    ) -> Callable[..., None]:
        """A listener that sees the columns of its own sweep only."""
        everything = columns == list(range(self.n_columns))
        axis = token_axis(name)
        places = torch.tensor(columns)

        @only_reads
        def read(t: Tensor, hook: object) -> None:
            if is_reading():  # what a probe runs of the model has not these columns
                return
            if not everything:
                t = t.index_select(axis, places.to(t.device))
            function(t, hook=hook)

        return read

    def run(
        self,
        model: HookedModel,
        encoding: Encoding,
        prompts: Prompts,
        memory: list[KeysValues] | None,
        rows: slice,
        context: Sequence[Intervention],
        intact: dict[Any, _Streams],
    ) -> None:
        """Predictions for one chunk of prompts, appended to the answers.

        `intact` keeps what passes over the same queries share: the stream before the first block
        that interventions touch.
        """
        n_points = self.n_points or prompts.n_points
        position = encoding.n_tokens(n_points) - 1
        asked = [queries[rows] for queries in self.own]
        if len(self.shared):
            n_rows = rows.stop - rows.start
            asked.insert(0, self.shared.expand(n_rows, -1, -1))
        contexts = prompts[rows].first(n_points)
        queries = encoding.queries_after(contexts, torch.cat(asked, 1)).to(model.numbers)
        if memory is not None:
            # A listener may want what comes before that block.
            block = first_block(model, self.query) if self.query and not self.hooks else 0
            stream = None
            if block > 0:
                if self.same not in intact:
                    intact[self.same] = _Streams(model.streams_after(memory, queries, position))
                stream = intact[self.same].before(block)
            with intervene(model, *self.query), model.hooks(fwd_hooks=self.hooks):
                if stream is None:
                    out = model.after(memory, queries, position)
                else:
                    out = model.resume_after(memory, stream, block)
        else:
            tokens = encoding.encode(contexts).to(model.numbers)
            out = _whole_prompts(model, tokens, queries, context, self.query, self.hooks)
        for columns, answer in zip(self.columns, self.answers, strict=True):
            answer.append(out[:, columns].cpu())


def _whole_prompts(
    model: HookedModel,
    tokens: Tensor,
    queries: Tensor,
    context: Sequence[Intervention],
    query: Sequence[Intervention],
    hooks: Sequence[Hook],
) -> Tensor:
    """Run a whole prompt for every query; hooks see the activations at the queries side by side."""
    n = tokens.shape[1]
    earlier = tuple(range(n - 1))
    edits = [At(earlier, one) for one in context]
    edits += [At((n - 1,), one) for one in query]

    def gather(name: str, parts: list[Tensor]) -> Callable[..., None]:
        @only_reads
        def keep(t: Tensor, hook: object) -> None:
            parts.append(t.narrow(token_axis(name), n - 1, 1))

        return keep

    seen: list[list[Tensor]] = []
    gathering: list[Hook] = []
    for name, _ in hooks:
        parts: list[Tensor] = []
        seen.append(parts)
        gathering.append((name, gather(name, parts)))
    outs = []
    for k in range(queries.shape[1]):
        tokens = torch.cat([tokens[:, :-1], queries[:, k : k + 1]], 1)
        with intervene(model, *edits), model.hooks(fwd_hooks=gathering):
            out = model(tokens)
        outs.append(out[:, -1])
    # Under the interventions, for a probe that runs a part of the model itself; all tokens are
    # queries here.
    with intervene(model, *query):
        for (name, read), parts in zip(hooks, seen, strict=True):
            read(torch.cat(parts, token_axis(name)), hook=model.hook_dict[name])
    return torch.stack(outs, 1)


def _grouped(items: Iterable[int], key: Callable[[int], Any]) -> list[list[int]]:
    groups: dict[Any, list[int]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def _ids(interventions: Sequence[Intervention]) -> tuple[int, ...]:
    # By identity: interventions hold tensors, which have no single truth value when compared.
    return tuple(map(id, interventions))
