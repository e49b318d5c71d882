"""Learned probes: can a quantity be read linearly off an activation, and does the model use it?

A ridge regression from an activation to a target, judged on functions that it has not seen. Three
controls say what such a number is worth: shuffled targets, random features of the same tokens, and
the same activation of the randomly initialised model. What can be read need not be used, so
`LearnedProbes.causal` edits the activation and looks at the prediction.

Source: Alain & Bengio (2016), "Understanding intermediate layers using linear classifier probes";
Hewitt & Liang (2019), "Designing and interpreting probes with control tasks" (selectivity).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.baselines.scikit import ProbeTools, probe_tools
from icl_interp.errors import InputError, several, shown, whole
from icl_interp.interventions.base import At, Intervention, intervene
from icl_interp.interventions.directions import NOT_VECTORS, ProjectOut, Steer
from icl_interp.models.hooked import HookedModel
from icl_interp.models.tokens import Encoding
from icl_interp.models.transformer import HookedTransformer, chunks
from icl_interp.probes.base import held
from icl_interp.probes.record import Activations
from icl_interp.probes.residual import depths
from icl_interp.probes.runner import probe
from icl_interp.probes.targets import Target, n_seen, target_of, values_of, varying
from icl_interp.probes.units import by_function, p_above, ratio_over_functions
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.resampling import bootstrap, r_squared
from icl_interp.results import table_of_rows

N_PROMPTS = 512  # functions drawn where no prompts are given
N_CAUSAL = 128  # further ones, for edits
N_RANDOM = 39  # random directions: enough for a p-value of 0.025
FOLDS = 5
PENALTIES = tuple(10.0**k for k in range(-3, 6))  # of standardised features
CONTROLS = ("shuffled", "random features", "untrained")
NOTE = (
    "R2 on functions that a probe has not seen. selectivity: R2 less that of the best control, or "
    "less 0 where controls are below. p: of a selectivity that is not above 0, one-sided, "
    "Benjamini-Yekutieli over the rows."
)


class Site(NamedTuple):
    """Where a probe reads: a hook, one of its heads if it has any, and a token."""

    hook: str
    head: int | None
    position: int


class Fitted(NamedTuple):
    """A probe fitted to all prompts: target = activation @ weights.T + constant.

    Attributes:
        weights: `(coordinate, width)`, in units of the target per unit of the activation.
        patterns: `(coordinate, width)`: how the activation differs between prompts whose targets
            differ by 1: Cov(h) w / (w' Cov(h) w). Moving along it stays closer to what the model
            knows than moving along w.
        mean: of the activation, `(width,)`.
        root: M with M' M = Cov(h), to draw directions as prompts differ, `(prompt, width)`.
        spread: standard deviation of the target, `(coordinate,)`.
    """

    weights: Float[Tensor, "coordinate width"]
    patterns: Float[Tensor, "coordinate width"]
    mean: Float[Tensor, " width"]
    root: Float[Tensor, "prompt width"]
    spread: Float[Tensor, " coordinate"]


class Scores(NamedTuple):
    """Squares of out-of-fold predictions of each prompt: (prompt, coordinate)."""

    missed: np.ndarray
    total: np.ndarray


@dataclass(frozen=True, eq=False)
class LearnedProbes:
    """What `fit` found.

    Attributes:
        table: a row for each place and coordinate of the target: hook, head (-1 where there is
            none), position, coordinate, r2 with low and high (95 % over functions), the R2 of the
            controls, selectivity with selectivity_low and selectivity_high, and p.
        fitted: the probes, by place.
        target: what they read.
        checkpoint: where.
        seed: of what was drawn.
    """

    table: pd.DataFrame
    fitted: Mapping[Site, Fitted]
    target: Target
    checkpoint: Any
    seed: int = 0

    @property
    def best(self) -> int:
        """The row with the largest selectivity."""
        return int(self.table["selectivity"].to_numpy().argmax())

    def causal(
        self,
        row: int | None = None,
        *,
        prompts: Prompts | None = None,
        effect: Callable[[Prompts], Any] | None = None,
        n_random: int = N_RANDOM,
    ) -> pd.DataFrame:
        """Edit what a probe reads, and see whether the prediction follows.

        "steer" moves the activation along the probe's pattern, by one standard deviation of the
        target up and down. Its value is the slope of the prediction's change on the change of
        f(x_query) that the same change of the target would make: 1 where the prediction follows in
        full, 0 where it does not. "project out" puts what the probe reads at its mean; its value is
        the squared error with the edit over that without. The null is what random directions do,
        drawn as activations differ between prompts; those of "steer" are as long as the pattern.

        Where the target is most of what differs, random directions hold it, too, so a p-value above
        0.05 says little there. On models with a planted answer "project out" finds hardly any place
        where it is used: no better than chance on most families, and "steer" so on some
        (`icl-interp selfcheck --tools`).

        Args:
            row: of the table; by default the one with the largest selectivity.
            prompts: by default fresh functions of the task.
            effect: the change of f(x_query) per unit of the target, for targets other than
                coefficients: a function of prompts, `(batch,)`.
            n_random: directions of the null.

        Returns:
            Rows "steer" and "project out" with value, low, high (95 % over functions), random (the
            median of the null) and p (the share of values at least as large, the own one counted).

        Raises:
            InputError: a target whose effect is not known; values that are vectors.
        """
        row = self.best if row is None else whole(row, "row", 0, len(self.table) - 1)
        place = self.table.iloc[row]
        head = int(place["head"])
        site = Site(place["hook"], None if head < 0 else head, int(place["position"]))
        coordinate = int(place["coordinate"])
        if prompts is None:
            prompts = _fresh(self.checkpoint, self.seed)
        if prompts.n_targets != 1:
            raise InputError("the causal check needs values that are numbers, but got vectors")
        n_random = whole(n_random, "n_random", 1)
        expected = self._expected(prompts, coordinate, effect)
        edits = _Edits(self.checkpoint, site, self.fitted[site], prompts, coordinate)
        draw = generator(self.seed, "probes/learned/random")
        return table_of_rows([edits.steer(expected, n_random, draw), edits.project(n_random, draw)])

    def _expected(self, prompts: Prompts, coordinate: int, effect: Any) -> np.ndarray:
        if effect is not None:
            found = torch.as_tensor(effect(prompts))
        elif self.target.effect is not None:
            task = self.checkpoint.task
            found = self.target.effect(prompts.double(), task)[:, coordinate]
        else:
            raise InputError(
                f"how f(x_query) changes with the target {self.target.name!r} is not known: pass "
                "effect=, a function of prompts, in units of y per unit of the target"
            )
        return found.detach().double().cpu().numpy()


def fit(
    checkpoint: Any,
    target: Any,
    at: Sequence[str] | str | None = None,
    *,
    positions: Sequence[int] = (-1,),
    prompts: Prompts | None = None,
    seed: int = 0,
    untrained: HookedModel | None = None,
) -> LearnedProbes:
    """Fit a linear probe to activations, with its controls.

    Assumes prompts of functions that are independent: folds never share a function.

    Args:
        checkpoint: a model with its encoding and its task.
        target: a name of `targets.TARGETS` ("coefficients", "degree", "noise level", "X'y", "least
            squares", "residuals", "neighbour's label"), or a function of prompts that gives a
            number or a vector for each.
        at: hooks; by default the stream before the first block and after each. At `hook_z` and
            other hooks of heads each head is a place of its own.
        positions: tokens; negative ones count from the last.
        prompts: by default 512 functions of the checkpoint's task.
        seed: of prompts, shuffles, random features and the randomly initialised model.
        untrained: that model, for the control. A `HookedTransformer` is initialised anew; an
            adapted module is not, so a second one is adapted whose weights are random.

    Raises:
        InputError: scikit-learn is missing; a hook that does not exist or holds no vectors; fewer
            functions than folds; a target that is not finite, or the same in all prompts.

    Slope and intercept are not in the query's own token: blocks write them.

    >>> import icl_interp
    >>> found = fit(icl_interp.load("affine"), "coefficients")
    >>> best = found.table.loc[found.best]
    >>> bool(best["r2"] > 0.9), best["hook"] != "blocks.0.hook_resid_pre"
    (True, True)
    """
    model, encoding = held(checkpoint, "probes.fit")
    tools = probe_tools("probes.fit")
    task = getattr(checkpoint, "task", None)
    wanted = target_of(target)
    if prompts is None:
        prompts = _drawn(task, seed)
    names = _hooks(model, at)
    fresh = _untrained(model, untrained, names, seed)
    # Negative places count from the last token.
    n_tokens = encoding.n_tokens(prompts.n_points)
    places = [_place(position, n_tokens) for position in several(positions, "positions")]
    groups = _groups(prompts)
    mine = _activations(model, encoding, prompts, names, places)
    theirs = _activations(fresh, encoding, prompts, names, places)
    _check_alike(mine, theirs)
    tokens = encoding.encode(prompts).double().cpu().numpy()
    rows = []
    fitted = {}
    for site, activation in mine.items():
        seen = n_seen(encoding, prompts.n_points, site.position, model.cfg.attention_dir)
        values = values_of(wanted, prompts, task, seen)
        kept = varying(values).nonzero()[:, 0].tolist()
        aims = values.numpy()[:, kept]
        draw = generator(seed, f"probes/learned/{site}")
        features = _random_features(tokens[:, : site.position + 1], activation.shape[1], draw)
        shuffled = _shuffled(aims, groups, draw)
        judge = _Judge(tools, groups)
        own = judge(activation, aims)
        controls = [judge(activation, shuffled), judge(features, aims), judge(theirs[site], aims)]
        for i, coordinate in enumerate(kept):
            row = {"hook": site.hook, "head": -1 if site.head is None else site.head}
            row |= {"position": site.position, "coordinate": coordinate}
            rows.append(row | _scored(own, controls, i, prompts))
        fitted[site] = _fitted(tools, activation, values.numpy())
    table = table_of_rows(rows, NOTE)
    errors = table.pop("_se").to_numpy()
    table["p"] = p_above(table["selectivity"].to_numpy(), errors)
    return LearnedProbes(table, fitted, wanted, checkpoint, seed)


class _Judge:
    """Out-of-fold squares of a ridge regression."""

    def __init__(self, tools: ProbeTools, groups: np.ndarray) -> None:
        self._tools = tools
        self._groups = groups

    def __call__(self, features: np.ndarray, aims: np.ndarray) -> Scores:
        missed = np.zeros_like(aims)
        total = np.zeros_like(aims)
        folds = self._tools.folds(n_splits=FOLDS)
        for train, test in folds.split(features, groups=self._groups):
            ridge = self._tools.ridge(PENALTIES)
            ridge.fit(features[train], aims[train])
            found = ridge.predict(features[test]).reshape(len(test), -1)
            missed[test] = (aims[test] - found) ** 2
            # The mean is that of the training functions, too: R2 can be below 0.
            centre = aims[train].mean(0)
            total[test] = (aims[test] - centre) ** 2
        return Scores(missed, total)


def _scored(own: Scores, controls: list[Scores], i: int, prompts: Prompts) -> dict[str, float]:
    """The numbers of one coordinate."""
    missed, total = own.missed[:, i], own.total[:, i]
    r2 = ratio_over_functions(missed, total, prompts, of=r_squared)
    row = {"r2": r2.value, "low": r2.low, "high": r2.high}
    parts = [missed, total]
    for name, control in zip(CONTROLS, controls, strict=True):
        parts += [control.missed[:, i], control.total[:, i]]
        row[name] = float(r_squared(parts[-2].mean(), parts[-1].mean()))
    units = [by_function(part, prompts) for part in parts]
    selectivity = bootstrap(_selectivity, *units)
    row["selectivity"] = selectivity.value
    row["selectivity_low"] = selectivity.low
    row["selectivity_high"] = selectivity.high
    row["_se"] = selectivity.se
    return row


def _selectivity(*means: np.ndarray) -> np.ndarray:
    """R2 less the largest of 0 and those of the controls."""
    shares = [r_squared(a, b) for a, b in zip(means[::2], means[1::2], strict=True)]
    others = np.maximum.reduce(shares[1:])
    return shares[0] - np.maximum(others, 0.0)


def _fitted(tools: ProbeTools, features: np.ndarray, aims: np.ndarray) -> Fitted:
    """The probe of all prompts."""
    ridge = tools.ridge(PENALTIES)
    ridge.fit(features, aims)
    scaler = ridge[0]
    regression = ridge[-1]
    weights = regression.coef_.reshape(aims.shape[1], -1) / scaler.scale_
    mean = features.mean(0)
    root = (features - mean) / np.sqrt(len(features))
    along = root @ weights.T
    variance = (along**2).sum(0)
    variance = np.where(variance > 0, variance, 1.0)
    patterns = (root.T @ along / variance).T
    found = (weights, patterns, mean, root, aims.std(0))
    return Fitted(*[torch.from_numpy(np.ascontiguousarray(part)) for part in found])


class _Edits:
    """Predictions of a model under edits of one place."""

    def __init__(
        self, checkpoint: Any, site: Site, fitted: Fitted, prompts: Prompts, coordinate: int
    ) -> None:
        self._model, encoding = held(checkpoint, "probes.fit")
        self._tokens = encoding.encode(prompts).to(self._model.numbers)
        self._site = site
        self._fitted = fitted
        self._prompts = prompts
        self._coordinate = coordinate
        self._truth = prompts.ys[:, -1, 0].double().cpu().numpy()

    def steer(self, expected: np.ndarray, n_random: int, draw: torch.Generator) -> dict[str, Any]:
        """The slope of what the prediction does on what it should do."""
        pattern = self._fitted.patterns[self._coordinate]
        by = float(self._fitted.spread[self._coordinate])
        should = by * expected
        if not should.any():
            raise InputError("no change of the target would change f(x_query) in these prompts")
        square = should**2
        found = ratio_over_functions(self._moved(pattern, by) * should, square, self._prompts)
        null = []
        for _ in range(n_random):
            direction = self._drawn(draw)
            direction = direction * (pattern.norm() / direction.norm())
            moved = self._moved(direction, by)
            null.append((moved * should).mean() / square.mean())
        return _beside("steer", found, np.abs(null), abs(found.value))

    def project(self, n_random: int, draw: torch.Generator) -> dict[str, Any]:
        """The factor on the squared error."""
        before = self._errors()
        weights = self._fitted.weights[self._coordinate]
        found = ratio_over_functions(self._without(weights), before, self._prompts)
        null = []
        for _ in range(n_random):
            errors = self._without(self._drawn(draw))
            null.append(errors.mean() / before.mean())
        return _beside("project out", found, np.array(null), found.value)

    def _drawn(self, draw: torch.Generator) -> Tensor:
        """A direction as activations differ between prompts."""
        root = self._fitted.root
        mixture = torch.randn(len(root), generator=draw, dtype=root.dtype)
        return mixture @ root

    def _moved(self, direction: Tensor, by: float) -> np.ndarray:
        """Half the difference of predictions after a step up and one down."""
        site = self._site
        up = self._predicted(Steer(direction, by, site.hook, site.head))
        down = self._predicted(Steer(direction, -by, site.hook, site.head))
        return (up - down) / 2

    def _without(self, direction: Tensor) -> np.ndarray:
        site = self._site
        return self._errors(ProjectOut(direction, site.hook, site.head, about=self._fitted.mean))

    def _errors(self, *edits: Intervention) -> np.ndarray:
        return (self._predicted(*edits) - self._truth) ** 2

    @torch.no_grad()
    def _predicted(self, *edits: Intervention) -> np.ndarray:
        n_tokens = self._tokens.shape[1]
        there = [At((self._site.position,), edit) for edit in edits]
        parts = []
        with intervene(self._model, *there):
            for rows in chunks(self._model, len(self._tokens), n_tokens):
                out = self._model(self._tokens[rows], [n_tokens - 1])
                parts.append(out[:, 0, 0])
        return torch.cat(parts).double().cpu().numpy()


def _beside(name: str, found: Any, null: np.ndarray, own: float) -> dict[str, Any]:
    """A row: the number, its interval, and its place among those of random directions."""
    as_large = int((null >= own).sum())
    row = {"edit": name, "value": found.value, "low": found.low, "high": found.high}
    row["random"] = float(np.median(null))
    row["p"] = (1 + as_large) / (1 + len(null))
    return row


def _activations(
    model: HookedModel,
    encoding: Encoding,
    prompts: Prompts,
    names: Sequence[str],
    places: Sequence[int],
) -> dict[Site, np.ndarray]:
    """What hooks hold at some tokens, (prompt, width) for each place."""
    reader = Activations(names, keep=lambda t: t[:, list(places)])
    probe(model, prompts, [reader], encoding=encoding)
    found = {}
    for name, kept in reader.recorded.items():
        for i, place in enumerate(places):
            for head, vectors in _by_head(kept[:, i]):
                found[Site(name, head, place)] = vectors.double().numpy()
    return found


def _by_head(kept: Tensor) -> Iterable[tuple[int | None, Tensor]]:
    if kept.ndim == 2:
        return [(None, kept)]
    return enumerate(kept.unbind(1))


def _hooks(model: HookedModel, at: Any) -> list[str]:
    """Names of hooks whose activations are vectors."""
    if at is None:
        at = depths(model)
    names = [at] if isinstance(at, str) else list(several(at, "names of hooks"))
    model.check_hooks(names)
    for name in names:
        if name.endswith(NOT_VECTORS):
            raise InputError(f"{name} holds numbers, not vectors: probe a part of the stream or z")
    return names


def _untrained(
    model: HookedModel, given: HookedModel | None, names: Sequence[str], seed: int
) -> HookedModel:
    """The randomly initialised model of the control."""
    if given is not None:
        if not isinstance(given, HookedModel) or given is model:
            raise InputError(
                "untrained must be another model with hook points, whose weights are random, but "
                f"got {'the model itself' if given is model else shown(given)}"
            )
        given.check_hooks(names)
        return given
    if isinstance(model, HookedTransformer):
        return HookedTransformer(model.cfg, seed=seed + 1).to(model.unembed.W_U).eval()
    raise InputError(
        "learned probes are compared with those of the randomly initialised model, which nobody "
        "knows how to make of an adapted module: pass untrained=icl_interp.adapt(...) of a module "
        "with random weights"
    )


def _check_alike(mine: Mapping[Site, np.ndarray], theirs: Mapping[Site, np.ndarray]) -> None:
    """Refuse a control of other sizes."""
    for site, activation in mine.items():
        if site not in theirs or theirs[site].shape != activation.shape:
            raise InputError(
                f"untrained= has other sizes than the model at {site.hook}: adapt a module of the "
                "same architecture"
            )


def _place(position: Any, n_tokens: int) -> int:
    place = whole(position, "a position", -n_tokens, n_tokens - 1)
    return place % n_tokens


def _groups(prompts: Prompts) -> np.ndarray:
    groups = prompts.function.cpu().numpy()
    n_functions = len(np.unique(groups))
    if n_functions < 2 * FOLDS:
        raise InputError(
            f"a probe is judged on {FOLDS} folds of functions and needs at least {2 * FOLDS}, but "
            f"these prompts are of {n_functions}"
        )
    return groups


def _drawn(task: Any, seed: int) -> Prompts:
    if task is None:
        raise InputError("no task came with the model: pass prompts of at least 10 functions")
    return task.sample(N_PROMPTS, generator(seed, "probes/learned/prompts"))


def _fresh(checkpoint: Any, seed: int) -> Prompts:
    """Functions that the probe was not fitted to."""
    task = getattr(checkpoint, "task", None)
    if task is None:
        raise InputError("no task came with the model: pass prompts that the probe has not seen")
    return task.sample(N_CAUSAL, generator(seed, "probes/learned/causal"))


def _random_features(tokens: np.ndarray, width: int, draw: torch.Generator) -> np.ndarray:
    """max(0, tokens G + b) of the tokens up to this one, as wide as the activation."""
    flat = tokens.reshape(len(tokens), -1)
    spread = flat.std(0)
    scaled = (flat - flat.mean(0)) / np.where(spread > 0, spread, 1.0)
    weights = torch.randn(flat.shape[1], width, generator=draw, dtype=torch.float64)
    shift = torch.randn(width, generator=draw, dtype=torch.float64)
    sums = scaled @ weights.numpy() / np.sqrt(flat.shape[1])
    return np.maximum(sums + shift.numpy(), 0.0)


def _shuffled(aims: np.ndarray, groups: np.ndarray, draw: torch.Generator) -> np.ndarray:
    """Each function's targets with those of another one; contexts of one stay together."""
    _, first, unit = np.unique(groups, return_index=True, return_inverse=True)
    order = torch.randperm(len(first), generator=draw).numpy()
    return aims[first[order][unit]]
