"""The bench: one model, its task, a fixed sample of prompts, and all ways to run the model on them.

Everything runs on a float64 copy (at x = 1e6 float32 loses the intercept). The *query arm* is the
default: the context stays in distribution and only the last query goes far, read at the last
position so that no label follows the far x. Contexts are as long as in training, never longer.

What intervals resample are *units*: antithetic pairs of functions, each shown in several contexts.
The two functions of a pair lie symmetrically about the mean of the law of functions and are shown
at the same inputs, so whatever is linear in the function cancels within a unit. Where that law has
no such symmetry, or there is one function only, a unit is a single function with twice as many
contexts. Units are left out, folded, permuted and swapped whole.
"""

import copy
import itertools
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.analyses.facts import is_large, x_unit
from icl_interp.analyses.places import sizes
from icl_interp.analyses.sizes import Sizes
from icl_interp.checkpoints import store
from icl_interp.errors import InputError
from icl_interp.interventions.attention import AblateHeads
from icl_interp.interventions.base import (
    Intervention,
    first_block,
    intervene,
    is_hooked,
    mean_activations,
)
from icl_interp.interventions.norms import FreezeNorms
from icl_interp.interventions.outputs import MeanOutputs, sublayers
from icl_interp.models.hooks import check_unhooked
from icl_interp.models.tokens import Encoding
from icl_interp.models.transformer import HookedTransformer, chunks
from icl_interp.models.weights import lay_out
from icl_interp.probes.base import Probe
from icl_interp.probes.residual import depths
from icl_interp.probes.runner import probe as run_probes
from icl_interp.probes.sweep import Sweep, Swept, Tick, places, run
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.results import Result
from icl_interp.tasks.base import Task
from icl_interp.tasks.vectors import inner, rays

# Far queries are multiples of `Bench.x_unit`, so that far means the same whatever interval the
# model was trained on.
MAGNITUDES = np.round(10.0 ** np.arange(-1, 6.01, 0.25), 12)  # 0.1 .. 1e6, four a decade
GRID = np.concatenate([-MAGNITUDES[::-1], MAGNITUDES])
# Prompts on which float32 is compared with float64, and the share of predictions (by root mean
# squares) that rounding may move them by.
N_ROUNDED = 64
ROUNDED = 1e-3
ENOUGH = 32  # units for an interval that only says whether a head matters
Xs = Sequence[float] | np.ndarray  # queries, one coordinate each


class Bench:
    """A model, its task, and a fixed sample of prompts.

    Args:
        model: what is measured; a float64 copy is made.
        task: gives the in-distribution prompts.
        encoding: how the model reads them.
        n_units: antithetic pairs of functions, or single functions where the law of functions has
            no symmetry (`Task.paired`); intervals come from resampling them.
        n_contexts: contexts of each function of a pair; a single function has twice as many.
        seed: of the sample and of every random draw.
        device: where models run; it must know float64. Results come back to the CPU.
    """

    outside = False  # whether outputs are all that is seen

    def __init__(
        self,
        model: HookedTransformer,
        task: Task,
        encoding: Encoding,
        *,
        n_units: int = 128,
        n_contexts: int = 4,
        seed: int = 0,
        device: str | None = None,
    ) -> None:
        check_unhooked(model, type(self).__name__)  # a copy would keep them
        self.device = device or "cpu"
        own = copy.deepcopy(model).double().to(self.device)
        self.model = lay_out(own.eval().requires_grad_(False))
        self.encoding = encoding
        self._draw_sample(task, n_units, n_contexts, seed)

    def _draw_sample(self, task: Task, n_units: int, n_contexts: int, seed: int) -> None:
        """Draw the prompts, which do not depend on what predicts."""
        if n_units < 2 or n_contexts < 1:
            raise InputError(
                "an analysis needs at least 2 units and 1 context of each function, but got "
                f"{n_units} and {n_contexts}"
            )
        self.task = task
        self.seed = seed
        self.n_units = n_units
        self.n_contexts = n_contexts
        self._samples: dict[tuple[str, int, int], Prompts] = {}
        self.prompts: Prompts = self.units("lab/prompts", n_contexts=n_contexts)
        # Of sweeps that somebody still holds, so that one which several ask for is run once.
        self._predictions: WeakKeyDictionary[Sweep, Tensor] = WeakKeyDictionary()

    @classmethod
    def of(
        cls,
        checkpoint: Any,
        task: Task | None = None,
        *,
        n_prompts: int | None = None,
        seed: int = 0,
        device: str | None = None,
        **settings: Any,
    ) -> Self:
        """The bench of a report: `analyze` with the same arguments measures on these very prompts.

        `prompts` are those that most claims are measured on; `few` (two of each unit) those of the
        overlap of heads.

        Args:
            checkpoint: what `icl_interp.analyze` takes.
            task: for what brings none.
            n_prompts: of the sample; as many as a report has by default.
            seed: of the sample.
            device: where models run.
            settings: `encoding`, `n_heads` and `settings` of `icl_interp.load`.

        Raises:
            InputError: what `icl_interp.load` refuses, a model to which anything is attached, or a
                sample of no such size.

        >>> import icl_interp
        >>> bench = Bench.of("affine", n_prompts=256)
        >>> far = icl_interp.probe(
        ...     bench.model, bench.prompts, encoding=bench.encoding, queries=[1e3, 1e4]
        ... )
        >>> far["layernorm_scale.scale"].indexes["position"].tolist()
        [1000.0, 10000.0]
        """
        loaded = store.load(checkpoint, task, **settings)
        sizes = Sizes.of(loaded.model, n_prompts)
        kinds: dict[str, Any] = {
            "n_units": sizes.n_units,
            "n_contexts": sizes.n_contexts,
            "seed": seed,
        }
        return cls(loaded.model, loaded.task, loaded.encoding, device=device, **kinds)

    @cached_property
    def single(self) -> HookedTransformer:
        """The model in its own float32, for what is asked in distribution.

        It is in float64 where rounding moves predictions, as of large weights that cancel.
        """
        found = copy.deepcopy(self.model).float()
        if is_hooked(self.model):  # a pass would be read, or edited
            return found
        tokens = self.tokens(self.prompts)[:N_ROUNDED]
        with torch.no_grad():
            exact = self.model(tokens)[:, -1]
            rounded = found(tokens.to(found.numbers))[:, -1].to(exact)
        moved = (rounded - exact).square().mean().sqrt()
        # Where float32 overflows, nothing compares as smaller.
        if moved <= ROUNDED * exact.square().mean().sqrt():
            return found
        return copy.deepcopy(self.model)

    @property
    def reader(self) -> HookedTransformer:
        """The model that reads contexts: for a large model `single`, in a third of the time.

        Contexts are in distribution, where float32 is enough.
        """
        if is_hooked(self.model) or not is_large(self.model):
            return self.model
        return self.single

    def predict(
        self, prompts: Prompts, *, double: bool = False
    ) -> Float[Tensor, "batch point target"]:
        """The prediction of every point by `single`, which interventions have to be attached to.

        Args:
            prompts: in distribution.
            double: by the float64 model instead, where numbers that nearly cancel matter.
        """
        if double:
            return store.predict(self.model, self.encoding, prompts)
        self._check_single()
        return store.predict(self.single, self.encoding, prompts)

    def at_query(self, prompts: Prompts) -> Float[Tensor, "batch target"]:
        """The prediction for the query of each prompt, on the float64 model."""
        tokens = self.tokens(prompts)
        with torch.no_grad():
            out = self.model(tokens)
        return out[:, -1].cpu()

    def run_single(self, sweeps: Sequence[Sweep]) -> list[Float[Tensor, "batch point target"]]:
        """What sweeps ask for, by `single`: for queries in distribution, where float32 will do."""
        self._check_single()
        return run(self.single, self.encoding, sweeps)

    def _check_single(self) -> None:
        if is_hooked(self.model):
            raise InputError("this runs lab.single: attach interventions to that, not to lab.model")

    def units(self, stream: str, *, n_contexts: int = 1, n_units: int | None = None) -> Prompts:
        """A sample of units: the same number of prompts for each, those of one unit together.

        Whoever asks for a sample again gets the same object, so that its contexts are read once for
        all.

        Args:
            stream: name of the random stream.
            n_contexts: of each function of a pair.
            n_units: how many; as many as the bench has by default.
        """
        n = n_units or self.n_units
        key = (stream, n_contexts, n)
        if key not in self._samples:
            task = self.task
            draw = generator(self.seed, stream)
            if task.paired:
                drawn = task.sample_pairs(n, draw, n_contexts=n_contexts, dtype=torch.float64)
            else:
                drawn = task.sample(n, draw, n_contexts=2 * n_contexts, dtype=torch.float64)
            self._samples[key] = drawn
        return self._samples[key]

    def functions(self, stream: str) -> Prompts:
        """As many prompts as the bench has, each of a function of its own.

        The two partners of a pair stand together.
        """
        n = self.n_units * self.unit_size
        if self.task.paired:
            return self.units(stream, n_units=n // 2)
        key = (stream, 0, n)
        if key not in self._samples:
            draw = generator(self.seed, stream)
            self._samples[key] = self.task.sample(n, draw, dtype=torch.float64)
        return self._samples[key]

    @property
    def unit_size(self) -> int:
        """Prompts of a unit."""
        return 2 * self.n_contexts

    def units_in(self, prompts: Prompts) -> int:
        """Units that some of the lab's prompts belong to."""
        functions = prompts.function
        units = functions // (2 if self.task.paired else 1)
        return len(units.unique())

    @cached_property
    def few(self) -> Prompts:
        """Two prompts of each unit: one context of each function.

        For means, and for what is repeated for each norm.
        """
        if self.task.paired:
            return self._subset([0, self.n_contexts])
        return self._subset([0, 1])

    @cached_property
    def head_sample(self) -> Prompts:
        """Half of the units, at least 32, for what is repeated for each head.

        Two prompts of each unit; of a large model one.
        """
        n_units = max(min(ENOUGH, self.n_units), self.n_units // 2)
        if is_large(self.model):
            return self.one_each[:n_units]
        return self.few[: 2 * n_units]

    @cached_property
    def one_each(self) -> Prompts:
        """The first prompt of each unit: one function of each pair."""
        return self._subset([0])

    @cached_property
    def frozen(self) -> FreezeNorms:
        """Every norm at its mean scale on in-distribution prompts."""
        scales = {name: self._means[f"{name}.hook_scale"] for name in self.model.norms}
        return FreezeNorms(scales)

    @cached_property
    def head_means(self) -> AblateHeads:
        """Every head at its mean output on in-distribution prompts."""
        means = {}
        for layer in range(self.model.cfg.n_layers):
            means[layer] = self._means[f"blocks.{layer}.attn.hook_z"]
        return AblateHeads(tuple(self.heads), means)

    @cached_property
    def sublayer_means(self) -> MeanOutputs:
        """Every sublayer at its mean output on in-distribution prompts."""
        means = {name: self._means[name] for name in sublayers(self.model)}
        return MeanOutputs(means)

    @cached_property
    def _means(self) -> dict[str, Float[Tensor, "token ..."]]:
        """Means over `few` at each position, in one pass: the references of all edits above."""
        names = [f"{name}.hook_scale" for name in self.model.norms]
        names += sublayers(self.model)
        if self.heads:
            for layer in range(self.model.cfg.n_layers):
                names.append(f"blocks.{layer}.attn.hook_z")
        reader = self.reader
        tokens = self.tokens(self.few).to(reader.unembed.W_U)
        return mean_activations(reader, tokens, names)

    @property
    def norms(self) -> tuple[str, ...]:
        """Names of the norms that are seen, in their order."""
        return tuple(self.model.norms)

    @property
    def heads(self) -> list[tuple[int, int]]:
        """Every (layer, head)."""
        cfg = self.model.cfg
        if cfg.mlp_only:
            return []
        return list(itertools.product(range(cfg.n_layers), range(cfg.n_heads)))

    @property
    def x_unit(self) -> float:
        """The unit of far queries, `x_unit` of the task."""
        return x_unit(self.task)

    @property
    def grid(self) -> np.ndarray:
        """The queries of the far grid: `GRID` in units of x."""
        return self.x_unit * GRID

    @cached_property
    def drawn_sizes(self) -> Float[np.ndarray, "unit place"]:
        """Signed sizes of drawn far queries, in units of x: `places.sizes`."""
        draw = generator(self.seed, "lab/places")
        return self.x_unit * sizes(self.n_units, draw)

    @cached_property
    def rays(self) -> Float[Tensor, "unit dim"]:
        """The direction of each unit's drawn queries, that of an in-distribution query.

        Two units share each direction.
        """
        queries = self.prompts.xs[:: self.unit_size, -1]
        # Of each two units the first: both have its direction.
        first = torch.arange(self.n_units) // 2 * 2
        return rays(queries[first])

    def drawn(
        self, prompts: Prompts, sizes: Float[np.ndarray, "unit place"]
    ) -> Float[Tensor, "batch place dim"]:
        """Queries along the rays of the prompts' units, each with equally many prompts.

        A query of negative size goes against its ray.
        """
        queries = torch.from_numpy(sizes)[..., None] * self.rays[:, None]
        n_each = len(prompts) // self.n_units
        return queries.repeat_interleave(n_each, 0)

    @cached_property
    def drawn_queries(self) -> Float[Tensor, "batch place dim"]:
        """The queries of all prompts at `drawn_sizes` and at both ends of the grid.

        They are one tensor, so that it is read once.
        """
        both = self.x_unit * MAGNITUDES[-1] * np.array([-1.0, 1.0])
        ends = np.tile(both, (self.n_units, 1))
        every = np.concatenate([self.drawn_sizes, ends], 1)
        return self.drawn(self.prompts, every)

    @property
    def inner(self) -> list[float]:
        """Two in-distribution queries, the same for all prompts (`tasks.vectors.inner`)."""
        return list(inner(self.task.inputs))

    def tokens(self, prompts: Prompts) -> Float[Tensor, "batch token d_in"]:
        """Encoded prompts, on the lab's device."""
        tokens = self.encoding.encode(prompts)
        return tokens.to(self.device)

    def by_unit(
        self, values: Float[Tensor, "batch *rest"], prompts: Prompts | None = None
    ) -> np.ndarray:
        """Mean over the prompts of each unit, `(unit, *rest)`.

        Args:
            values: a row a prompt, those of a unit together.
            prompts: whose rows they are, where some of the lab's units are missing.
        """
        n = self.n_units if prompts is None else self.units_in(prompts)
        each = values.view(n, -1, *values.shape[1:])
        return each.mean(1).numpy()

    def predictions(self, *interventions: Intervention) -> tuple[Tensor, Tensor]:
        """Predictions and truth at the scored points of `head_sample`: each (batch, point, target).

        The prompts are in distribution, where the model's own float32 is enough. This is done for
        every head, so what lies before the first block that the interventions touch is computed
        once for all of them.
        """
        prompts = self.head_sample
        model = self.single
        read, points = self.encoding.read_at(prompts.n_points, model.cfg.attention_dir)
        first = max(points.start, self.task.n_determining)
        block = first_block(model, interventions)
        parts = []
        before = self._streams  # taken here: not under the interventions
        with torch.no_grad(), model.fixed_weights(), intervene(model, *interventions):
            for rows, streams in zip(self.chunks(prompts), before, strict=True):
                if block < 0:
                    out = model(self.tokens(prompts[rows]).to(model.numbers), read)
                else:
                    out = model.resume(streams[block], block, read)
                scored = out[:, first - points.start :]
                parts.append(scored.double().cpu())
        return torch.cat(parts), prompts.ys[:, first:]

    @cached_property
    def _streams(self) -> list[list[Tensor]]:
        """`before_blocks` of `head_sample`, in chunks."""
        prompts = self.head_sample
        streams = []
        for rows in self.chunks(prompts):
            tokens = self.tokens(prompts[rows])
            streams.append(self.before_blocks(tokens))
        return streams

    def before_blocks(
        self, tokens: Float[Tensor, "batch token d_in"]
    ) -> list[Float[Tensor, "batch token d_model"]]:
        """The stream before each block of the float32 model.

        A run under interventions may start from there.
        """
        names = depths(self.single)[:-1]
        with torch.no_grad():
            asked = tokens.to(self.single.numbers)
            _, cache = self.single.run_with_cache(asked, names_filter=names)
        return [cache[name] for name in names]

    @cached_property
    def on_grid(self) -> Sweep:
        """All prompts with the query on the far grid: one sweep, run once, whoever asks for it."""
        return self.ask(self.grid)

    def truth(self, xs: Xs, prompts: Prompts | None = None) -> Float[Tensor, "batch point target"]:
        """What the functions really are at these queries."""
        prompts = prompts or self.prompts
        queries = places(xs, self.task.dim)
        each = queries.expand(len(prompts), -1, -1)
        return self.task.targets(prompts.parameters, each)

    def ask_at(
        self,
        queries: Float[Tensor, "batch point dim"],
        prompts: Prompts | None = None,
        **asked: Sequence[Any],
    ) -> Sweep:
        """`ask` with places of each prompt's own; probes know these by their number."""
        edits: dict[str, Any] = {key: tuple(values) for key, values in asked.items()}
        numbers = tuple(range(queries.shape[1]))
        return Sweep(prompts or self.prompts, queries, numbers, **edits)

    def ask(
        self,
        xs: Xs | None = None,
        *,
        context: Sequence[Intervention] = (),
        query: Sequence[Intervention] = (),
        probes: Sequence[Probe] = (),
        prompts: Prompts | None = None,
        n_points: int | None = None,
    ) -> Sweep:
        """Predictions with the last query at each of `xs`, for every prompt: a sweep yet to run.

        A measurement that declares it (`asks=lambda lab: lab.ask(xs)`) has it run together with
        what others ask for; `lab.sweep(xs)` runs it at once.

        Args:
            xs: queries (the first coordinate; others 0); each prompt's own query by default.
            context: interventions while the context is read.
            query: interventions while the query is read.
            probes: what reads at the queries, which are their position kinds ("query" for a
                prompt's own).
            prompts: contexts; those of the lab by default.
            n_points: cuts the contexts to prompts of so many points; each prompt's own query is
                then its last of these.
        """
        prompts = prompts or self.prompts
        labels: Sequence[str | float]
        if xs is None:
            last = (n_points or prompts.n_points) - 1
            queries = prompts.xs[:, last : last + 1]
            labels = ("query",)
        else:
            queries = places(xs, self.task.dim)
            labels = list(map(float, xs))
        return Sweep(
            prompts, queries, labels, n_points, tuple(context), tuple(query), tuple(probes)
        )

    def run(
        self, sweeps: Sequence[Sweep], tick: Tick | None = None
    ) -> list[Float[Tensor, "batch point target"]]:
        """The predictions of several sweeps, on the float64 model.

        Every context is read once for all of them.
        """
        return run(self.model, self.encoding, sweeps, tick, reader=self.reader)

    def unanswered(self, sweeps: Sequence[Sweep]) -> list[Sweep]:
        """Those sweeps that have not run yet, each once."""
        return [one for one in dict.fromkeys(sweeps) if one not in self._predictions]

    def answers(self, sweeps: Sequence[Sweep], tick: Tick | None = None) -> list[Swept]:
        """What each sweep gave. Those that have not run yet are run, together: `run`."""
        new = self.unanswered(sweeps)
        if new:
            self._predictions.update(zip(new, self.run(new, tick), strict=True))
        return [Swept(self._predictions[one], one) for one in sweeps]

    def sweep(
        self,
        xs: Xs | None = None,
        *,
        context: Sequence[Intervention] = (),
        query: Sequence[Intervention] = (),
        probes: Sequence[Probe] = (),
        prompts: Prompts | None = None,
    ) -> Float[Tensor, "batch point target"]:
        """`ask`, run at once."""
        asked = self.ask(xs, context=context, query=query, probes=probes, prompts=prompts)
        return self.run([asked])[0]

    def last_predictions(
        self, prompts: Prompts, probes: Sequence[Probe] = ()
    ) -> Float[Tensor, "batch target"]:
        """Predictions for each prompt's query, in the model's float32, and what probes read."""
        asked = self.ask(prompts=prompts, probes=probes)
        [found] = run(self.single, self.encoding, [asked])
        return found[:, 0]

    def read(self, prompts: Prompts, probes: Sequence[Probe]) -> dict[str, Result]:
        """Have probes read whole prompts, on the model that reads contexts (`icl_interp.probe`)."""
        return run_probes(self.reader, prompts, probes, self.encoding)

    def chunks(self, prompts: Prompts) -> list[slice]:
        """Whole prompts, so many at once."""
        n_tokens = self.encoding.n_tokens(prompts.n_points)
        return chunks(self.model, len(prompts), n_tokens)

    def _subset(self, rows: Sequence[int]) -> Prompts:
        """These rows of each unit; the lab's own prompts where the rows are all of them.

        So every context is read once.
        """
        if len(rows) >= self.unit_size:
            return self.prompts
        starts = torch.arange(self.n_units)[:, None] * self.unit_size
        every = starts + torch.tensor(rows)
        return self.prompts[every.flatten()]
