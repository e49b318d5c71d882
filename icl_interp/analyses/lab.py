"""The lab: one model on one bench, with the same prompts for every measurement.

Everything runs on a float64 copy (at x = 1e6 float32 loses the intercept). Prompts are 64 functions x 16 contexts, and
the *query arm* is the default: the context stays in distribution and only the last query goes far, read at the last
position so that no label follows the far x. Contexts are as long as in training, never longer.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.analyses.facts import x_unit
from icl_interp.analyses.measurement import TWIN, Measurement, R, Results, check_distinct
from icl_interp.checkpoints import store
from icl_interp.checkpoints.companions import Role
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.errors import InputError
from icl_interp.interventions.attention import AblateHeads
from icl_interp.interventions.base import At, Intervention, intervene
from icl_interp.interventions.norms import FreezeNorms
from icl_interp.models.tokens import Encoding
from icl_interp.models.transformer import HookedTransformer
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.tasks.base import Task

# Far queries are multiples of `Lab.x_unit`, so that far means the same whatever interval the model was trained on.
MAGNITUDES = np.round(10.0 ** np.arange(-1, 6.01, 0.25), 12)  # 0.1 .. 1e6, four a decade
GRID = np.concatenate([-MAGNITUDES[::-1], MAGNITUDES])
CHUNK = 128  # prompts at once: small enough for the cache, and memory does not grow with the sample
REMEMBERED = 512 * 2**20  # bytes of context keys and values that are kept between sweeps
Watch = Callable[[str, Tensor, slice], None]
Xs = Sequence[float] | np.ndarray  # queries, one coordinate each


class Lab:
    """A model, its task, and a fixed sample of prompts.

    Args:
        model: what is measured; a float64 copy is made.
        task: gives the in-distribution prompts.
        encoding: how the model reads them.
        n_functions: functions of the sample; intervals come from resampling them.
        n_contexts: contexts of each function.
        seed: of the sample, of fresh twins and of every random draw.
        counterpart: a model trained like this one but without normalisation, where there is one.
        companions: checkpoints that differ from this model in one respect, by role (`checkpoints.companions`).
        device: where models run; it must know float64. Results come back to the CPU.
        snapshots: gives the models that the run kept on the way, by step; called when a measurement asks for them.
    """

    def __init__(
        self,
        model: HookedTransformer,
        task: Task,
        encoding: Encoding,
        *,
        n_functions: int = 64,
        n_contexts: int = 16,
        seed: int = 0,
        counterpart: HookedTransformer | None = None,
        companions: Mapping[Role, Checkpoint] | None = None,
        device: str | None = None,
        snapshots: Callable[[], Mapping[int, HookedTransformer]] | None = None,
    ) -> None:
        if n_functions < 2 or n_contexts < 2:
            raise InputError(
                f"an analysis needs at least 2 functions and 2 contexts of each, but got {n_functions} and {n_contexts}"
            )
        self.device = device or "cpu"
        self.model = copy.deepcopy(model).double().to(self.device).eval().requires_grad_(False)
        self.single = copy.deepcopy(model).float().to(self.device).eval().requires_grad_(False)
        self.task, self.encoding, self.seed = task, encoding, seed
        self.n_functions, self.n_contexts = n_functions, n_contexts
        self.prompts: Prompts = task.sample(
            n_functions, generator(seed, "lab/prompts"), n_contexts=n_contexts, dtype=torch.float64
        )
        self.counterpart_model, self.companions = counterpart, dict(companions or {})
        self._snapshots = snapshots
        self._results = Results()
        self._taken: dict[str, Measurement[Any]] = {}
        self._errors: dict[str, Exception] = {}
        self._contexts: dict[tuple[str, int] | None, Any] = {}
        self._key: tuple[str, int] | None = None

    def measure(self, measurement: Measurement[R]) -> R:
        """The result of a measurement, taken once; where it failed, its error again, without a second attempt.

        Raises:
            InputError: another measurement of this name was taken before.
        """
        check_distinct(self._taken, measurement)
        if measurement.name in self._errors:
            raise self._errors[measurement.name]
        if measurement not in self._results:
            try:
                self._results[measurement.name] = measurement(self)
            except Exception as error:
                self._errors[measurement.name] = error
                raise
        return self._results[measurement]

    @property
    def results(self) -> Results:
        """All results so far; those of the untrained twin under "twin/"."""
        twin = self.__dict__.get("twin")  # do not make one just to find that it measured nothing
        return Results({**self._results, **({TWIN + name: r for name, r in twin.results.items()} if twin else {})})

    @cached_property
    def twin(self) -> "Lab":
        """The same bench with an untrained model: same config, fresh weights, fewer contexts."""
        fresh = HookedTransformer(self.model.cfg, seed=self.seed + 1)
        return Lab(
            fresh,
            self.task,
            self.encoding,
            n_functions=self.n_functions,
            n_contexts=4,
            seed=self.seed,
            device=self.device,
        )

    @cached_property
    def counterpart(self) -> "Lab | None":
        """The same bench with the model trained without normalisation."""
        if self.counterpart_model is None:
            return None
        sizes = {
            "n_functions": self.n_functions,
            "n_contexts": self.n_contexts,
            "seed": self.seed,
            "device": self.device,
        }
        return Lab(self.counterpart_model, self.task, self.encoding, **sizes)

    @cached_property
    def snapshots(self) -> dict[int, HookedTransformer]:
        """Models on the way to this one, by step, as its run kept them; empty where it kept none."""
        return dict(self._snapshots()) if self._snapshots else {}

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch point"]:
        """The model's prediction of every point, in its own float32: what `evaluation` asks of any predictor."""
        return store.predict(self.single, self.encoding, prompts)

    @cached_property
    def small_sample(self) -> Prompts:
        """Two contexts of each function: for what must be repeated head by head."""
        return self.prompts[torch.arange(len(self.prompts)) % self.n_contexts < 2]

    @cached_property
    def frozen(self) -> FreezeNorms:
        """Every norm at its mean scale on in-distribution prompts."""
        return FreezeNorms.measure(self.model, self.tokens(self.small_sample))

    @cached_property
    def head_means(self) -> AblateHeads:
        """Every head at its mean output on in-distribution prompts."""
        return AblateHeads.measure(self.model, self.tokens(self.small_sample), *self.heads)

    @property
    def heads(self) -> list[tuple[int, int]]:
        """Every (layer, head)."""
        cfg = self.model.cfg
        return [] if cfg.mlp_only else [(i, h) for i in range(cfg.n_layers) for h in range(cfg.n_heads)]

    @property
    def x_unit(self) -> float:
        """The unit of far queries, `x_unit` of the task."""
        return x_unit(self.task)

    @property
    def grid(self) -> np.ndarray:
        """The queries of the far grid: `GRID` in units of x."""
        return self.x_unit * GRID

    @property
    def inner(self) -> list[float]:
        """Two in-distribution queries, the same for all prompts: a quarter from each end of the inputs' interval."""
        low, high = self.task.inputs.interval
        return [0.75 * low + 0.25 * high, 0.25 * low + 0.75 * high]

    def tokens(self, prompts: Prompts) -> Float[Tensor, "batch token d_in"]:
        """Encoded prompts, on the lab's device."""
        return self.encoding.encode(prompts).to(self.device)

    def by_function(self, values: Float[Tensor, "batch *rest"]) -> np.ndarray:
        """Mean over the contexts of each function, `(function, *rest)`."""
        return values.view(-1, len(values) // self.n_functions, *values.shape[1:]).mean(1).numpy()

    def predictions(self, *interventions: Intervention) -> tuple[Tensor, Tensor]:
        """Predictions and truth at the scored points of `few`, in distribution: each (batch, point).

        In the model's own float32: in distribution nothing needs more, and it is done for every head.
        """
        prompts = self.small_sample
        read, points = self.encoding.read_at(prompts.n_points, self.model.cfg.attention_dir)
        first = max(points.start, self.task.n_determining)
        parts = []
        with torch.no_grad(), intervene(self.single, *interventions):
            for rows in _chunks(len(prompts)):
                out = self.single(self.tokens(prompts[rows]).float(), read)[..., 0]
                parts.append(out[:, first - points.start :].double().cpu())
        return torch.cat(parts), prompts.ys[:, first:]

    @cached_property
    def intact(self) -> Float[Tensor, "batch point"]:
        """f on the whole far grid, for every prompt: most far measurements read from it."""
        return self.sweep(self.grid)

    def truth(self, xs: Xs, prompts: Prompts | None = None) -> Float[Tensor, "batch point"]:
        """What the functions really are at these queries."""
        prompts = prompts or self.prompts
        return self.task.value(prompts.parameters, self._queries(xs, prompts))

    def at_own_query(
        self, watch: Watch | None = None, names: Sequence[str] = (), query: Sequence[Intervention] = ()
    ) -> Float[Tensor, " batch"]:
        """Predictions for the prompts' own last queries: in distribution."""
        return self._run(self.prompts, self.prompts.xs[:, -1:], (), query, watch, names)[:, 0]

    def sweep(
        self,
        xs: Xs,
        *,
        context: Sequence[Intervention] = (),
        query: Sequence[Intervention] = (),
        watch: Watch | None = None,
        names: Sequence[str] = (),
        prompts: Prompts | None = None,
    ) -> Float[Tensor, "batch point"]:
        """Predictions with the last query put at each of `xs`, for every prompt.

        Args:
            xs: queries (the first coordinate; others 0).
            context: interventions while the context is read.
            query: interventions while the query is read.
            watch: called with (hook name, activation at the queries, rows of the batch) for the hooks in `names`.
            names: hooks that `watch` is called for.
            prompts: contexts; those of the lab by default.
        """
        prompts = prompts or self.prompts
        return self._run(prompts, self._queries(xs, prompts), context, query, watch, names)

    def _queries(self, xs: Xs, prompts: Prompts) -> Float[Tensor, "batch point dim"]:
        queries = torch.zeros(len(prompts), len(xs), self.task.dim, dtype=torch.float64)
        queries[..., 0] = torch.as_tensor(np.asarray(xs), dtype=torch.float64)
        return queries

    def _run(
        self,
        prompts: Prompts,
        queries: Tensor,
        context: Sequence[Intervention],
        query: Sequence[Intervention],
        watch: Watch | None,
        names: Sequence[str],
    ) -> Float[Tensor, "batch point"]:
        causal = self.model.cfg.attention_dir == "causal"
        run = self._after_context if causal else self._whole_prompts
        parts = []
        # Only the lab's own contexts, read without interventions, come again and again.
        samples = () if context else ("prompts", "small_sample")
        own = next((name for name in samples if prompts is self.__dict__.get(name)), None)
        with torch.no_grad():
            for rows in _chunks(len(prompts)):
                hooks = [(name, _reader(watch, name, rows)) for name in names] if watch else []
                self._key = (own, rows.start) if own else None
                parts.append(run(prompts[rows], queries[rows], context, query, hooks))
        return torch.cat(parts)

    def _after_context(
        self,
        prompts: Prompts,
        queries: Tensor,
        context: Sequence[Intervention],
        query: Sequence[Intervention],
        hooks: list[Any],
    ) -> Tensor:
        """The context once, then one token a point."""
        position = self.encoding.n_tokens(prompts.n_points) - 1
        memory = self._remember(prompts, context)
        with intervene(self.model, *query), self.model.hooks(fwd_hooks=hooks):
            return self.model.after(memory, self.encoding.encode_queries(queries).to(self.device), position)[
                ..., 0
            ].cpu()

    def _remember(self, prompts: Prompts, context: Sequence[Intervention]) -> Any:
        """Keys and values of contexts; those of the lab's own prompts are kept while they fit."""
        if self._key in self._contexts:
            return self._contexts[self._key]
        with intervene(self.model, *context):
            memory = self.model.remember(self.tokens(prompts)[:, :-1])
        size = sum(t.numel() * t.element_size() for layer in memory for t in layer) * len(self.prompts) / len(prompts)
        if self._key is not None and size <= REMEMBERED:
            self._contexts[self._key] = memory
        return memory

    def _whole_prompts(
        self,
        prompts: Prompts,
        queries: Tensor,
        context: Sequence[Intervention],
        query: Sequence[Intervention],
        hooks: list[Any],
    ) -> Tensor:
        """Whole prompts for every point: attention that looks both ways leaves nothing to reuse."""
        tokens = self.tokens(prompts)
        n = tokens.shape[1]
        edits = [At(tuple(range(n - 1)), i) for i in context] + [At((n - 1,), i) for i in query]
        outs, seen = [], {name: [] for name, _ in hooks}
        gather = [(name, lambda t, hook, s=seen[name]: s.append(_last(t, hook.name))) for name, _ in hooks]
        for k in range(queries.shape[1]):
            tokens = torch.cat([tokens[:, :-1], self.encoding.encode_queries(queries[:, k : k + 1]).to(self.device)], 1)
            with intervene(self.model, *edits), self.model.hooks(fwd_hooks=gather):
                outs.append(self.model(tokens)[:, -1, 0])
        for name, read in hooks:
            read(torch.cat(seen[name], 2 if name.endswith(("pattern", "scores")) else 1), hook=None)
        return torch.stack(outs, 1).cpu()


def _chunks(n: int) -> list[slice]:
    return [slice(start, min(start + CHUNK, n)) for start in range(0, n, CHUNK)]


def _reader(watch: Watch, name: str, rows: slice) -> Callable[..., None]:
    return lambda t, hook: watch(name, t.cpu(), rows)


def _last(t: Tensor, name: str) -> Tensor:
    """The last query's part of an activation."""
    return t[:, :, -1:] if name.endswith(("pattern", "scores")) else t[:, -1:]
