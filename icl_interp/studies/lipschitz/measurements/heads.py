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
from itertools import product
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

NOTHING, LABELS, VALUES = "nothing", "smoother of the labels", "same weights, own values"
ANY_LABELS, ANY_VALUES = "any kernel, labels", "any kernel, own values"
SPREAD, UNTOLD = "spread of log weights", "spread of log weights when all else is redrawn"
ROWS = (NOTHING, LABELS, VALUES, ANY_LABELS, ANY_VALUES, SPREAD, UNTOLD)
CLOSE = 0.05  # share of what a head does that its smoother may miss for no other kernel to be tried
DEGREE = 6  # of the polynomial log k for inputs of one coordinate
WIDEST = 8  # coordinates up to which log k of vectors has every product of two coordinates
IDLE = (
    relevance.STILL / 2
)  # root mean square change of the prediction below which a head is not looked at further
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
    if xs.shape[-1] == 1:
        powers = [
            (a, b) for a, b in product(range(1, DEGREE + 1), range(DEGREE)) if a + b <= DEGREE
        ]
        return torch.stack([xs[..., 0] ** a * query**b for a, b in powers], -1)
    crossed = torch.einsum("bni,bj->bnij", xs, query)
    if xs.shape[-1] > WIDEST:
        inner = crossed.diagonal(dim1=2, dim2=3).sum(-1)
        return torch.cat([xs, inner[..., None], xs.square().sum(-1, keepdim=True)], -1)
    first, second = torch.triu_indices(xs.shape[-1], xs.shape[-1])
    return torch.cat([xs, crossed.flatten(2), xs[..., first] * xs[..., second]], -1)


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
    mine, known = scores[fit], terms[fit]
    weights = (mine.softmax(-1) + 1 / mine.shape[-1]) / 2
    gaps = mine - (weights * mine).sum(-1, keepdim=True)
    found = []
    for w, gap in zip(
        weights.unbind(1), gaps.unbind(1), strict=True
    ):  # head by head: there may be many
        about = (known - torch.einsum("bn,bnf->bf", w, known)[:, None]).flatten(0, 1)
        weighted = w.flatten()[:, None] * about
        theta = torch.linalg.pinv(weighted.T @ about, rtol=SAME, hermitian=True) @ (
            weighted.T @ gap.flatten()
        )
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

    In distribution, so all on the model that reads contexts: a large one's own float32. What is
    returned is float64.
    """
    model, layers = lab.reader, range(lab.model.cfg.n_layers)
    last = lab.encoding.n_tokens(prompts.n_points) - 1
    kinds = lab.encoding.kinds(prompts.n_points)[:last]
    labelled = [place for place, kind in enumerate(kinds) if kind in ("y", "xy")]
    parts = {
        part: [f"blocks.{i}.attn.hook_{part}" for i in layers]
        for part in ("attn_scores", "pattern", "z")
    }
    values = [f"blocks.{i}.attn.hook_v" for i in layers]
    seen, known = (
        Activations([name for names in parts.values() for name in names]),
        Activations(values),
    )
    tokens = lab.tokens(prompts).to(model.unembed.W_U)
    short = model.cfg.query_is_unseen and not whole
    runs = (_AfterContext if short else _WholePrompts)(model, tokens, known, labelled)
    with observe(model, seen, positions={"query": [runs.place]}):
        prediction = runs.intact()
    found = {
        part: [seen.recorded[name].double() for name in names] for part, names in parts.items()
    }
    scores, pattern = (
        torch.cat(found[part], 1)[:, :, 0, labelled] for part in ("attn_scores", "pattern")
    )
    own = torch.cat([known.recorded[name].transpose(1, 2) for name in values], 1).double()
    output = torch.cat([z[:, 0] for z in found["z"]], 1)
    return AtQuery(scores, pattern.sum(-1), own, output, prediction, runs.edited)


class _AfterContext:
    """Runs of the query's token alone after its context, which is read once.

    Runs of one layer stand side by side.
    """

    place = 0  # of the query among the tokens of a run

    def __init__(
        self, model: HookedTransformer, tokens: Tensor, known: Activations, labelled: Sequence[int]
    ) -> None:
        self.model, memories = model, []
        with torch.no_grad(), observe(model, known, positions={"label": labelled}):
            for rows in chunks(model, len(tokens), tokens.shape[1]):
                memories.append(model.remember(tokens[rows, :-1]))
        self.memory = [
            KeysValues(*map(_joined, zip(*layer, strict=True)))
            for layer in zip(*memories, strict=True)
        ]
        self.query, self.position = tokens[:, -1:], tokens.shape[1] - 1
        with torch.no_grad():
            self.streams = list(model.streams_after(self.memory, self.query, self.position))

    def intact(self) -> Float[Tensor, "batch target"]:
        with torch.no_grad():
            return self.model.after(self.memory, self.query, self.position)[:, 0].double().cpu()

    def edited(
        self, layer: int, groups: Groups, outputs: Tensor
    ) -> Float[Tensor, "batch group target"]:
        heads = [head for group in groups for head in group]
        places = [i for i, group in enumerate(groups) for _ in group]
        edit = PutHeadOutputs(layer, heads, outputs[:, heads], places)
        stream = self.streams[layer].expand(-1, len(groups), -1)
        with torch.no_grad(), intervene(self.model, edit):
            return self.model.resume_after(self.memory, stream, layer).double().cpu()


class _WholePrompts:
    """Runs of whole prompts, whose context may read the query too."""

    def __init__(
        self, model: HookedTransformer, tokens: Tensor, known: Activations, labelled: Sequence[int]
    ) -> None:
        self.model, self.tokens, self.place = model, tokens, tokens.shape[1] - 1
        with observe(model, known, positions={"label": labelled}):
            self.intact()

    def intact(self) -> Float[Tensor, "batch target"]:
        with torch.no_grad():
            return self.model(self.tokens, range(self.place, self.place + 1))[:, 0].double().cpu()

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
    xs = xs / xs.square().mean().sqrt().clamp(min=torch.finfo(xs.dtype).tiny)
    terms = features(xs[:, :-1], xs[:, -1])
    found = torch.zeros_like(seen.scores)
    for side in (0, 1):
        fit, use = torch.nonzero(fold == side)[:, 0], fold != side
        found[use] = fitted_scores(seen.scores, terms, fit).softmax(-1)[use]
    return found


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
    average = torch.einsum("bhn,bnt->bht", weights, prompts.ys[:, :-1].double())
    labels, values = torch.zeros_like(seen.output), torch.zeros_like(seen.output)
    for side in (0, 1):
        fit, use = torch.nonzero(fold == side)[:, 0], fold != side
        own = torch.einsum("bhn,bhne->bhe", weights, seen.values) * seen.mass[fit].mean(0)[:, None]
        values[use] = own[use] + (seen.output - own)[fit].mean(0)
        labels[use] = _affine(average, seen.output, fit)[use]
    return labels, values


def means(seen: AtQuery, fold: Tensor) -> Float[Tensor, "batch head d_head"]:
    """Each head's mean output on the other half of the prompts."""
    found = torch.zeros_like(seen.output)
    for side in (0, 1):
        found[fold != side] = seen.output[fold == side].mean(0)
    return found


def _affine(
    regressors: Float[Tensor, "batch head target"],
    output: Float[Tensor, "batch head d_head"],
    fit: Tensor,
) -> Float[Tensor, "batch head d_head"]:
    """The affine function of the regressors that is nearest to the output.

    It is nearest on the prompts `fit`, and is given on all prompts.
    """
    centre, mean = regressors[fit].mean(0), output[fit].mean(0)
    known, wanted = (regressors[fit] - centre).transpose(0, 1), (output[fit] - mean).transpose(0, 1)
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
    found, n_heads = [], model.cfg.n_heads
    for layer, block in enumerate(model.blocks):
        reads = read_later(model, layer)
        maps = block.attn.writing[0].detach().double().cpu() @ reads
        z = seen.output[:, layer * n_heads : (layer + 1) * n_heads]
        found.append(together(torch.einsum("bhe,her->bhr", z, maps)))
    return found


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
    prompts, cfg = lab.head_sample, lab.model.cfg
    n_units = lab.units_in(prompts)
    fold = torch.arange(n_units).repeat_interleave(len(prompts) // n_units) % 2
    with lab.reader.fixed_weights():
        seen = at_query(lab, prompts)
        own = predicted(lab, lab.reader, prompts)
        if (seen.prediction - own).abs().max() > ONE_MODEL * own.abs().max():
            seen = at_query(lab, prompts, whole=True)  # what is judged is the model that predicts
        finite = all(bool(torch.isfinite(t).all()) for t in (seen.scores, seen.output, seen.values))
        # To what is no number nothing can be fitted.
        alone = [[(head,) for head in range(cfg.n_heads)]] * cfg.n_layers
        heads = groups_of(lab.reader, seen) if finite else alone
        table = _Table(
            lab, seen, prompts, [(i, one) for i, layer in enumerate(heads) for one in layer]
        )
        if finite:
            table.put(NOTHING, means(seen, fold), table.all)
            there = [i for i in table.all if table.mean(NOTHING, i) > IDLE**2]
            for row, outputs in zip(
                (LABELS, VALUES),
                stand_ins(seen, prompts, fold, weights_by_polynomial(seen, prompts, fold)),
                strict=True,
            ):
                table.put(row, outputs, there)
            unsure = [i for i in there if table.mean(LABELS, i) > CLOSE * table.mean(NOTHING, i)]
            if unsure and not lab.task.autoregressive:
                log_k = common(
                    lambda other: at_query(lab, other).scores, lab.task, prompts, lab.seed
                )
                found = stand_ins(seen, prompts, fold, log_k.softmax(-1))
                for row, outputs in zip((ANY_LABELS, ANY_VALUES), found, strict=True):
                    table.put(row, outputs, unsure)
                for row, spread in zip((SPREAD, UNTOLD), spreads(seen.scores, log_k), strict=True):
                    table.keep(row, spread, unsure)
    axes = {"head": table.names, "stand-in": ROWS, "unit": tuple(range(n_units))}
    note = (
        f"{len(prompts)} prompts, read at the last query, in the precision that contexts are read "
        "in"
    )
    return make_array(table.values, axes, note=note)


class _Table:
    """The result as it grows: rows of heads, those together that count as one."""

    def __init__(
        self,
        lab: Lab,
        seen: AtQuery,
        prompts: Prompts,
        heads: Sequence[tuple[int, tuple[int, ...]]],
    ) -> None:
        self._lab, self._seen, self._prompts, self._heads = lab, seen, prompts, heads
        self.all = range(len(heads))
        self.names = tuple("+".join(f"{layer}.{head}" for head in group) for layer, group in heads)
        self.values = np.full((len(heads), len(ROWS), lab.units_in(prompts)), np.nan)
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
        n_heads = self._lab.model.cfg.n_heads
        for layer in sorted({self._heads[i][0] for i in rows}):
            here = [i for i in rows if self._heads[i][0] == layer]
            own = outputs[:, layer * n_heads : (layer + 1) * n_heads]
            moved = self._seen.again(layer, [self._heads[i][1] for i in here], own)
            square = (moved - self._seen.prediction[:, None]).square().sum(-1)
            share = square / self._size if self._size > 0 else square * 0
            self.values[here, ROWS.index(row)] = self._lab.by_unit(share, self._prompts).T

    def keep(self, row: str, numbers: Float[Tensor, "batch head"], rows: Sequence[int]) -> None:
        """Numbers of each head; of heads together the mean."""
        n_heads = self._lab.model.cfg.n_heads
        for i in rows:
            layer, group = self._heads[i]
            one = numbers[:, [layer * n_heads + head for head in group]].mean(1)
            self.values[i, ROWS.index(row)] = self._lab.by_unit(one, self._prompts)
