"""Heads as kernel smoothers, put in the head's place at the last query.

A smoother is read off each head.

A Nadaraya-Watson smoother predicts sum_i k(x_q, x_i) y_i / sum_i k(x_q, x_i): an average of the
prompt's labels whose weights depend on the inputs alone. Of every head it is made in two steps, on
one half of the units, and it is tried on the other half:

1. log k is a polynomial of x_q and x_i, fitted to the head's scores at the labelled tokens. Scores
   that depend on labels, on places in the prompt or on other tokens are not of this form.
2. The head's output is an affine function of one number a target, the smoother's average of the
   labels.

Both steps leave a head that is a smoother exactly as it is. The second variant averages the head's
own values at the labelled tokens with the same weights, and so asks step 1 alone. Source of the
smoother: Nadaraya (1964), Watson (1964).

Where no polynomial does what the head does, its weights may still be those of a kernel: a periodic
one, or one with kinks. There log k is what the head's log weights have in common over prompts that
share x_q and x_i and nothing else (`redrawn_examples`), and both variants are tried again.

Heads of a layer that are copies or parts of one another, or that cancel, are edited together
(`alike_heads`).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses import relevance
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.interventions.base import intervene
from icl_interp.interventions.put import PutHeadOutputs
from icl_interp.models.attention import KeysValues
from icl_interp.models.transformer import HookedTransformer, chunks
from icl_interp.probes.base import observe
from icl_interp.probes.record import Activations
from icl_interp.prompts import Prompts
from icl_interp.results import make_array
from icl_interp.studies.lipschitz.measurements.alike_heads import read_later, together
from icl_interp.studies.lipschitz.measurements.prediction import predicted
from icl_interp.studies.lipschitz.measurements.redrawn_examples import common

NOTHING = "nothing"
LABELS = "smoother of the labels"
VALUES = "same weights, own values"
ANY_LABELS = "any kernel, labels"
ANY_VALUES = "any kernel, own values"
SPREAD = "spread of log weights"
UNTOLD = "spread of log weights when all else is redrawn"
ROWS = (NOTHING, LABELS, VALUES, ANY_LABELS, ANY_VALUES, SPREAD, UNTOLD)
CLOSE = 0.05  # share of what a head does that its smoother may miss for no other kernel to be tried
DEGREE = 6  # of the polynomial log k for inputs of one coordinate
WIDEST = 8  # coordinates up to which log k of vectors has every product of two coordinates
# Root mean square change of the prediction below which a head is not looked at further.
IDLE = relevance.STILL / 2
# Share of the largest prediction: by so much the short way may differ from whole prompts.
ONE_MODEL = 1e-3
SAME = 1e-11  # relative: features of smaller weight are sums of others


def needs_softmax_and_labels(facts: Facts) -> str | None:
    """Why there is no softmax head that reads labels."""
    cfg = facts.config
    if cfg.mlp_only:
        return "The claim is about heads of attention; this model has none (mlp_only)"
    if cfg.score_fn != "softmax":
        return f"The claim is about softmax attention; this model's scores are {cfg.score_fn}"
    if facts.encoding not in ("interleaved", "stacked"):
        return (
            "The claim is about prompts that show labels beside inputs; this model's prompts are "
            f"{facts.encoding}"
        )
    return None


# ---- the kernel ----------------------------------------------------------------------------------


def features(
    xs: Float[Tensor, "batch example dim"], query: Float[Tensor, "batch dim"]
) -> Float[Tensor, "batch example feature"]:
    """The terms of log k(x_q, x_i). Terms of x_q alone cancel in the weights and are left out.

    Inputs of one coordinate: x_i^a x_q^b with a >= 1 and a + b <= 6. Vectors: x_i, products of a
    coordinate of x_i with one of x_q, and of two of x_i; beyond 8 coordinates x_i, x_i . x_q and
    |x_i|^2 only.
    """
    dim = xs.shape[-1]
    if dim == 1:
        terms = []
        for a in range(1, DEGREE + 1):
            for b in range(DEGREE + 1 - a):
                terms.append(xs[..., 0] ** a * query**b)
        return torch.stack(terms, -1)
    crossed = torch.einsum("bni,bj->bnij", xs, query)
    if dim > WIDEST:
        inner = crossed.diagonal(dim1=2, dim2=3).sum(-1)
        squares = xs.square().sum(-1, keepdim=True)
        return torch.cat([xs, inner[..., None], squares], -1)
    first, second = torch.triu_indices(dim, dim)
    products = xs[..., first] * xs[..., second]
    return torch.cat([xs, crossed.flatten(2), products], -1)


def fitted_scores(
    scores: Float[Tensor, "batch head example"],
    terms: Float[Tensor, "batch example feature"],
    fit: Tensor,
) -> Float[Tensor, "batch head example"]:
    """log k of each head on all prompts, fitted to the scores of the prompts `fit` (rows).

    Least squares of scores about their mean in a prompt. Half of the weight of a prompt lies on its
    examples alike, and half on them as the head's own weights have it: an error matters where the
    head attends.
    """
    mine = scores[fit]
    known = terms[fit]
    weights = (mine.softmax(-1) + 1 / mine.shape[-1]) / 2
    gaps = mine - (weights * mine).sum(-1, keepdim=True)
    found = []
    # Head by head: there may be many.
    for w, gap in zip(weights.unbind(1), gaps.unbind(1), strict=True):
        means = torch.einsum("bn,bnf->bf", w, known)
        about = (known - means[:, None]).flatten(0, 1)
        weighted = w.flatten()[:, None] * about
        inverse = torch.linalg.pinv(weighted.T @ about, rtol=SAME, hermitian=True)
        theta = inverse @ (weighted.T @ gap.flatten())
        found.append(terms @ theta)
    return torch.stack(found, 1)


# ---- what stands in for a head -------------------------------------------------------------------


Groups = Sequence[Sequence[int]]  # heads of one layer, those that are edited together


class AtQuery(NamedTuple):
    """What all heads do at the last query, and how to edit one of them there.

    The model can be run again with the edit.

    Heads of all layers stand after one another. `again(layer, groups, outputs)` puts outputs,
    (batch, head, d_head) of all heads of the layer, in the places of those of each group, in a run
    of its own.
    """

    scores: Float[Tensor, "batch head example"]  # of labelled tokens
    mass: Float[Tensor, "batch head"]  # weight on labelled tokens
    values: Float[Tensor, "batch head example d_head"]
    output: Float[Tensor, "batch head d_head"]
    prediction: Float[Tensor, "batch target"]
    again: Callable[[int, "Groups", Tensor], Float[Tensor, "batch group target"]]


def at_query(lab: Lab, prompts: Prompts, whole: bool = False) -> AtQuery:
    """The heads at the last query of some prompts.

    A causal context is read once, unless whole prompts are asked for.

    The prompts are in distribution, so the model that reads contexts reads all of them: a large one
    in its own float32. What is returned is float64.
    """
    model = lab.reader
    last = lab.encoding.n_tokens(prompts.n_points) - 1
    kinds = lab.encoding.kinds(prompts.n_points)[:last]
    labelled = [place for place, kind in enumerate(kinds) if kind in ("y", "xy")]

    # Heads are seen at the query, their values at the labelled tokens.
    def hooks(part: str) -> list[str]:
        return [f"blocks.{i}.attn.hook_{part}" for i in range(model.cfg.n_layers)]

    at_the_query = Activations([*hooks("attn_scores"), *hooks("pattern"), *hooks("z")])
    at_labels = Activations(hooks("v"))
    tokens = lab.tokens(prompts).to(model.unembed.W_U)
    short = model.cfg.query_is_unseen and not whole
    kind_of_runs = _AfterContext if short else _WholePrompts
    runs = kind_of_runs(model, tokens, at_labels, labelled)
    with observe(model, at_the_query, positions={"query": [runs.place]}):
        prediction = runs.intact()

    # The heads of all layers, one after another.
    def all_heads(part: str) -> Float[Tensor, "batch head query key"]:
        layers = [at_the_query.recorded[name].double() for name in hooks(part)]
        return torch.cat(layers, 1)

    scores = all_heads("attn_scores")[:, :, 0, labelled]
    pattern = all_heads("pattern")[:, :, 0, labelled]
    values = []
    outputs = []
    for v, z in zip(hooks("v"), hooks("z"), strict=True):
        values.append(at_labels.recorded[v].transpose(1, 2))
        outputs.append(at_the_query.recorded[z].double()[:, 0])
    return AtQuery(
        scores=scores,
        mass=pattern.sum(-1),
        values=torch.cat(values, 1).double(),
        output=torch.cat(outputs, 1),
        prediction=prediction,
        again=runs.edited,
    )


class _AfterContext:
    """Runs of the query's token alone after its context, which is read once.

    Runs of one layer stand side by side.
    """

    place = 0  # of the query among the tokens of a run

    def __init__(
        self, model: HookedTransformer, tokens: Tensor, known: Activations, labelled: Sequence[int]
    ) -> None:
        self.model = model
        self.query = tokens[:, -1:]
        self.position = tokens.shape[1] - 1
        memories = []
        with torch.no_grad(), observe(model, known, positions={"label": labelled}):
            for rows in chunks(model, len(tokens), tokens.shape[1]):
                memory = model.remember(tokens[rows, :-1])
                memories.append(memory)
        # Each layer's keys and values of all chunks.
        self.memory = []
        for layer in zip(*memories, strict=True):
            parts = map(_joined, zip(*layer, strict=True))
            self.memory.append(KeysValues(*parts))
        with torch.no_grad():
            self.streams = list(model.streams_after(self.memory, self.query, self.position))

    def intact(self) -> Float[Tensor, "batch target"]:
        with torch.no_grad():
            out = self.model.after(self.memory, self.query, self.position)
        return out[:, 0].double().cpu()

    def edited(
        self, layer: int, groups: Groups, outputs: Tensor
    ) -> Float[Tensor, "batch group target"]:
        # A place for each group, and which of them a head is put into.
        heads: list[int] = []
        places: list[int] = []
        for place, group in enumerate(groups):
            heads += group
            places += [place] * len(group)
        edit = PutHeadOutputs(layer, heads, outputs[:, heads], places)
        stream = self.streams[layer].expand(-1, len(groups), -1)
        with torch.no_grad(), intervene(self.model, edit):
            out = self.model.resume_after(self.memory, stream, layer)
        return out.double().cpu()


class _WholePrompts:
    """Runs of whole prompts, whose context may read the query too."""

    def __init__(
        self, model: HookedTransformer, tokens: Tensor, known: Activations, labelled: Sequence[int]
    ) -> None:
        self.model = model
        self.tokens = tokens
        self.place = tokens.shape[1] - 1
        with observe(model, known, positions={"label": labelled}):
            self.intact()

    def intact(self) -> Float[Tensor, "batch target"]:
        with torch.no_grad():
            out = self.model(self.tokens, range(self.place, self.place + 1))
        return out[:, 0].double().cpu()

    def edited(
        self, layer: int, groups: Groups, outputs: Tensor
    ) -> Float[Tensor, "batch group target"]:
        found = []
        for group in map(list, groups):
            edit = PutHeadOutputs(layer, group, outputs[:, group], [self.place] * len(group))
            with intervene(self.model, edit):
                found.append(self.intact())
        return torch.stack(found, 1)


def _joined(parts: Sequence[Tensor | None]) -> Any:
    """Chunks of a batch as one; what a model does not keep is None in each."""
    tensors = [part for part in parts if part is not None]
    return torch.cat(tensors) if tensors else None


def weights_by_polynomial(
    seen: AtQuery, prompts: Prompts, fold: Tensor
) -> Float[Tensor, "batch head example"]:
    """Each head's weights by a polynomial log k.

    The polynomial is fitted on one half of the prompts and used on the other.
    """
    xs = prompts.xs.double()
    size = xs.square().mean().sqrt()
    xs = xs / size.clamp(min=torch.finfo(xs.dtype).tiny)
    terms = features(xs[:, :-1], xs[:, -1])
    found = torch.zeros_like(seen.scores)
    for fit, use in _halves(fold):
        log_k = fitted_scores(seen.scores, terms, fit)
        found[use] = log_k.softmax(-1)[use]
    return found


def _halves(fold: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Rows of one half of the prompts, and whether a prompt is of the other; then turned around."""
    return [(torch.nonzero(fold == side)[:, 0], fold != side) for side in (0, 1)]


def stand_ins(
    seen: AtQuery, prompts: Prompts, fold: Tensor, weights: Float[Tensor, "batch head example"]
) -> tuple[Float[Tensor, "batch head d_head"], Float[Tensor, "batch head d_head"]]:
    """What is put in the place of each head's output.

    One is an average of the labels, the other an average of the head's own values.

    What they need of the head is made on one half of the prompts for the other.

    Args:
        seen: the heads.
        prompts: theirs.
        fold: which half each prompt belongs to, 0 or 1.
        weights: of the averages.
    """
    of_labels = torch.einsum("bhn,bnt->bht", weights, prompts.ys[:, :-1].double())
    of_values = torch.einsum("bhn,bhne->bhe", weights, seen.values)
    labels = torch.zeros_like(seen.output)
    values = torch.zeros_like(seen.output)
    for fit, use in _halves(fold):
        mass = seen.mass[fit].mean(0)
        own = of_values * mass[:, None]
        rest = (seen.output - own)[fit].mean(0)
        values[use] = own[use] + rest
        labels[use] = _affine(of_labels, seen.output, fit)[use]
    return labels, values


def means(seen: AtQuery, fold: Tensor) -> Float[Tensor, "batch head d_head"]:
    """Each head's mean output on the other half of the prompts."""
    found = torch.zeros_like(seen.output)
    for fit, use in _halves(fold):
        found[use] = seen.output[fit].mean(0)
    return found


def _affine(
    regressors: Float[Tensor, "batch head target"],
    output: Float[Tensor, "batch head d_head"],
    fit: Tensor,
) -> Float[Tensor, "batch head d_head"]:
    """The affine function of the regressors that is nearest to the output.

    It is nearest on the prompts `fit`, and is given on all prompts.
    """
    centre = regressors[fit].mean(0)
    mean = output[fit].mean(0)
    known = (regressors[fit] - centre).transpose(0, 1)
    wanted = (output[fit] - mean).transpose(0, 1)
    slopes = torch.linalg.pinv(known, rtol=SAME) @ wanted
    return torch.einsum("bht,hte->bhe", regressors - centre, slopes) + mean


def spreads(
    scores: Float[Tensor, "batch head example"], common: Float[Tensor, "batch head example"]
) -> tuple[Float[Tensor, "batch head"], Float[Tensor, "batch head"]]:
    """Spread of log weights over a prompt's examples, and what the common part leaves of it.

    Mean squares about the mean, where half of a prompt's weight lies on its examples alike, and
    half on them as the head's own weights have it.
    """
    weights = (scores.softmax(-1) + 1 / scores.shape[-1]) / 2

    def spread(values: Tensor) -> Tensor:
        about = values - (weights * values).sum(-1, keepdim=True)
        return (weights * about.square()).sum(-1)

    return spread(scores), spread(scores - common)


def groups_of(model: HookedTransformer, seen: AtQuery) -> list[list[tuple[int, ...]]]:
    """The heads of each layer, those together that count as one."""
    found = []
    for layer, block in enumerate(model.blocks):
        writes = block.attn.writing[0].detach().double().cpu()
        maps = writes @ read_later(model, layer)
        z = seen.output[:, _heads_of(model, layer)]
        written = torch.einsum("bhe,her->bhr", z, maps)
        found.append(together(written))
    return found


def _heads_of(model: HookedTransformer, layer: int) -> slice:
    """Where the heads of a layer stand among those of all layers."""
    n_heads = model.cfg.n_heads
    return slice(layer * n_heads, (layer + 1) * n_heads)


@measurement("lipschitz/smoother", version=2)
def smoother(lab: Lab) -> DataArray:
    """Squared change of the prediction with a stand-in for heads at the query.

    It is over the variance of the true values.

    Stand-ins: "nothing" is the mean of the head's output; the smoother of the labels; and the
    smoother's weights on the head's own values. The last two are tried again with weights of any
    kernel where the smoother misses something. There the spread of log weights is given as well,
    and the part of it that redraws change. A mean over the two prompts of a unit: (head, stand-in,
    unit). Heads without which nothing is missed are tried no further: NaN. So are rows of any
    kernel where a task's points cannot change places.
    """
    prompts = lab.head_sample
    n_units = lab.units_in(prompts)
    fold = torch.arange(n_units).repeat_interleave(len(prompts) // n_units) % 2
    with lab.reader.fixed_weights():
        seen = at_query(lab, prompts)
        own = predicted(lab, lab.reader, prompts)
        gap = (seen.prediction - own).abs().max()
        if gap > ONE_MODEL * own.abs().max():
            seen = at_query(lab, prompts, whole=True)  # what is judged is the model that predicts

        # To what is no number nothing can be fitted.
        parts = (seen.scores, seen.output, seen.values)
        finite = all(bool(torch.isfinite(part).all()) for part in parts)
        if not finite:
            alone = [(head,) for head in range(lab.model.cfg.n_heads)]
            table = _Table(lab, seen, prompts, [alone] * lab.model.cfg.n_layers)
        else:
            table = _Table(lab, seen, prompts, groups_of(lab.reader, seen))
            _fill(table, lab, seen, prompts, fold)
    axes = {"head": table.names, "stand-in": ROWS, "unit": tuple(range(n_units))}
    note = (
        f"{len(prompts)} prompts, read at the last query, in the precision that contexts are read "
        "in"
    )
    return make_array(table.values, axes, note=note)


def _fill(table: "_Table", lab: Lab, seen: AtQuery, prompts: Prompts, fold: Tensor) -> None:
    """The rows of the table, each for the heads that the rows before leave in question."""
    table.put(NOTHING, means(seen, fold), table.all)
    there = [i for i in table.all if table.mean(NOTHING, i) > IDLE**2]
    weights = weights_by_polynomial(seen, prompts, fold)
    labels, values = stand_ins(seen, prompts, fold, weights)
    table.put(LABELS, labels, there)
    table.put(VALUES, values, there)

    unsure = [i for i in there if table.mean(LABELS, i) > CLOSE * table.mean(NOTHING, i)]
    if not unsure or lab.task.autoregressive:
        return
    # Where the polynomial misses something, weights of any kernel.
    log_k = common(lambda other: at_query(lab, other).scores, lab.task, prompts, lab.seed)
    labels, values = stand_ins(seen, prompts, fold, log_k.softmax(-1))
    table.put(ANY_LABELS, labels, unsure)
    table.put(ANY_VALUES, values, unsure)
    spread, untold = spreads(seen.scores, log_k)
    table.keep(SPREAD, spread, unsure)
    table.keep(UNTOLD, untold, unsure)


class _Table:
    """The result as it grows: rows of heads, those together that count as one."""

    def __init__(
        self, lab: Lab, seen: AtQuery, prompts: Prompts, groups: Sequence[Sequence[tuple[int, ...]]]
    ) -> None:
        self._lab = lab
        self._seen = seen
        self._prompts = prompts
        # A row's layer and heads, and its name.
        self._heads: list[tuple[int, tuple[int, ...]]] = []
        names = []
        for layer, of_layer in enumerate(groups):
            for group in of_layer:
                self._heads.append((layer, group))
                names.append("+".join(f"{layer}.{head}" for head in group))
        self.names = tuple(names)
        self.all = range(len(names))
        self.values = np.full((len(names), len(ROWS), lab.units_in(prompts)), np.nan)
        truth = lab.task.targets(prompts.parameters, prompts.xs[:, -1:])[:, 0]
        self._size = float(truth.var(0, unbiased=False).sum())

    def mean(self, row: str, i: int) -> float:
        """Over units."""
        return float(self.values[i, ROWS.index(row)].mean())

    def put(
        self, row: str, outputs: Float[Tensor, "batch head d_head"], rows: Sequence[int]
    ) -> None:
        """The squared change of the prediction with these outputs.

        They stand in the places of some heads' own.
        """
        column = ROWS.index(row)
        by_layer: dict[int, list[int]] = {}
        for i in rows:
            layer, _ = self._heads[i]
            by_layer.setdefault(layer, []).append(i)
        for layer, here in by_layer.items():
            groups = [self._heads[i][1] for i in here]
            own = outputs[:, _heads_of(self._lab.model, layer)]
            moved = self._seen.again(layer, groups, own)
            square = (moved - self._seen.prediction[:, None]).square().sum(-1)
            share = square / self._size if self._size > 0 else square * 0
            self.values[here, column] = self._lab.by_unit(share, self._prompts).T

    def keep(self, row: str, numbers: Float[Tensor, "batch head"], rows: Sequence[int]) -> None:
        """Numbers of each head; of heads together the mean."""
        column = ROWS.index(row)
        for i in rows:
            layer, group = self._heads[i]
            of_layer = numbers[:, _heads_of(self._lab.model, layer)]
            mean = of_layer[:, list(group)].mean(1)
            self.values[i, column] = self._lab.by_unit(mean, self._prompts)
