"""The claim of `limits` that the last layer forms the prediction.

It is tested by what is there before the last layer, and by what is left without that layer. What
can be decoded before the last layer need not be what the prediction is made of. So two questions
are asked, and a verdict needs the same answer to both. How much of the prediction does a read-out
of the stream before the last layer see? How much of it is left with the last layer's outputs at
their mean? Both are shares of the part of the prediction that the context makes: what differs from
the mean over all functions at that query.

The logit lens reads the stream as if the remaining blocks wrote nothing. A prediction in another
basis escapes it, so the first question is judged by the best affine read-out instead, fitted to
each depth and tested on functions that it has not seen. A post-norm model has no final norm: there
both lenses read the stream as it is.

Sources: nostalgebraist (2020), "interpreting GPT: the logit lens"; Belrose et al. (2023),
"Eliciting latent predictions from transformers with the tuned lens", which fits an affine map at
each depth.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import Condition, Criterion, Estimate, Found, at_least, at_most
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Results, measurement
from icl_interp.interventions.outputs import sublayers
from icl_interp.probes.record import Activations
from icl_interp.probes.residual import LogitLens, depths, normed
from icl_interp.probes.sweep import Sweep, Swept
from icl_interp.prompts import Prompts, as_numbers
from icl_interp.resampling import Interval, bootstrap, r_squared
from icl_interp.results import make_array, make_curve
from icl_interp.studies.limits.claims.far_words import NO_PROMPT
from icl_interp.studies.limits.measurements.ablation import (
    ALL,
    BLIND,
    QUERY,
    ablated,
    means,
    without_attention,
)

# Shares of the prediction before the last layer, and without it. At a share of a half the standard
# error is 0.03 with 128 units, at half the sample 0.05: the zone between is four of these wide.
MAINLY, ALREADY = 0.4, 0.6
# Share of the prediction's variance: what varies less without the last layer is rounding.
ROUNDING = 1e-10
CONSTANT = 1e-140  # a variance below is none; its square times `ROUNDING` is still a number
PARTS = ("1", "intact", "edited", "law mean")
EDITS = ("last block", "last attention", "last MLP")
LENSES = ("logit", "affine")
N_FOLDS = 8
PENALTIES = (1e-10, 1e-6, 1e-4, 1e-2, 1.0)  # of the ridge, in units of the features' mean square
# Of the curves: contexts, and queries from end to end of the inputs' interval.
N_SHOWN, N_QUERIES = 3, 33
SCOPE = "these weights, this task, the last query in distribution"
AS_IT_IS = "; without a final norm, so both read-outs take the stream as it is"


def held_out_readings(
    features: Float[Tensor, "row feature"], target: Float[Tensor, " row"], fold: Int[Tensor, " row"]
) -> Float[Tensor, " row"]:
    """Held-out predictions of the best affine read-out, by ridge regression.

    Its penalty is the best of a few.

    Args:
        features: what is read.
        target: what is predicted from them.
        fold: which part each row is in; a row is predicted from the other parts.
    """
    held = torch.zeros(len(PENALTIES), len(target), dtype=target.dtype)
    rows = torch.cat(
        [
            torch.ones_like(features[:, :1]),
            features - features.mean(0),
            (target - target.mean())[:, None],
        ],
        1,
    )
    whole = rows.T @ rows
    for k in fold.unique():
        test = rows[fold == k]
        # What the other parts say: sums over all rows less those over this part, and centred.
        gram = whole - test.T @ test
        mean = gram[0] / gram[0, 0]
        gram = (gram - gram[0, 0] * mean[:, None] * mean)[1:, 1:]
        if (
            not gram.isfinite().all()
        ):  # a model that divides by a scale of 0, say; LAPACK would raise an error
            return torch.full_like(target, torch.nan)
        values, vectors = torch.linalg.eigh(gram[:-1, :-1])
        size = values.mean().clamp_min(torch.finfo(values.dtype).tiny)
        along, shown = vectors.T @ gram[:-1, -1], (test[:, 1:-1] - mean[1:-1]) @ vectors
        for p, penalty in enumerate(PENALTIES):
            held[p, fold == k] = (
                target.mean() + mean[-1] + shown @ (along / (values.clamp_min(0) + penalty * size))
            )
    return held[(held - target).square().sum(1).argmin()]


def prompts_of(lab: Lab) -> Prompts:
    """Fresh prompts, each of a function of its own; partners of a pair stand together.

    Functions have pairs where the task is paired.
    """
    return lab.functions("layers/prompts")


def _of_context(lab: Lab, prompts: Prompts, out: Tensor) -> Float[Tensor, " batch"]:
    """Predictions for the last query less the mean of the law of functions there."""
    return as_numbers(out).double() - as_numbers(lab.task.expected(prompts.xs[:, -1:]))[:, 0]


def _note(lab: Lab, prompts: Prompts) -> str:
    paired = "in antithetic pairs" if lab.task.paired else "which have no antithetic pairs"
    return f"{len(prompts)} functions, {paired}, one context each; groups of {lab.unit_size}"


def _through_lenses(lab: Lab) -> Sweep:
    """What the logit lens reads after each block, and the streams there."""
    probes = [LogitLens(per_prompt=True), Activations(depths(lab.model))]
    return lab.ask(prompts=prompts_of(lab), probes=probes)


@measurement("layers/lens", version=2, asks=_through_lenses)
def lens(lab: Lab, swept: Swept) -> DataArray:
    """How much of the final prediction for the query each lens sees after 0, 1, ..., all blocks.

    Squared difference from the final prediction (residual), beside that from its mean (total); both
    predictions less the mean of the law of functions. Prompts as from `prompts_of`: groups of them
    are what intervals resample. Where the task has antithetic pairs a group holds whole pairs;
    where it has none, each prompt is of a function of its own, too.
    """
    prompts, per = swept.prompts, lab.unit_size
    model, names = lab.model, depths(lab.model)
    final = _of_context(lab, prompts, swept.f[:, 0])
    read = swept.probe(LogitLens).results()["prediction"]
    logit = torch.from_numpy(read.sel(position="query", target=0).values)[..., None]
    seen = swept.probe(Activations).recorded
    with torch.no_grad():
        streams = [normed(model, seen[name].to(model.unembed.W_U))[:, 0].cpu() for name in names]
    group = torch.arange(len(prompts)) // per
    affine = torch.stack([held_out_readings(x, final, group % N_FOLDS) for x in streams])
    total = (final - final.mean()).square()
    lensed = [_of_context(lab, prompts, out) for out in logit]
    values = [
        [[lab.by_unit((row - final).square()), lab.by_unit(total)] for row in rows]
        for rows in (lensed, affine)
    ]
    axes = {
        "lens": LENSES,
        "depth": tuple(range(len(names))),
        "statistic": ("residual", "total"),
        "group": tuple(range(lab.n_units)),
    }
    return make_array(
        values, axes, note=f"{_note(lab, prompts)}; affine: {N_FOLDS}-fold cross-validation"
    )


def _parts_of_last(lab: Lab) -> list[list[str]]:
    """Names of the outputs of the last block, of its attention and of its MLP; empty for none."""
    last = lab.model.cfg.n_layers - 1
    return [sublayers(lab.model, kind, last) for kind in (None, "attn", "mlp")]


def _intact_and_without(lab: Lab) -> list[Sweep]:
    """The prediction as it is, and with each part of the last block at its mean."""
    prompts = prompts_of(lab)
    mean = means(lab)
    # At the query's token only: nothing reads what the last block makes of the others.
    edits = [
        [mean.only(*names).at_query()] if names else [] for names in ((), *_parts_of_last(lab))
    ]
    return [lab.ask(prompts=prompts, query=edit) for edit in edits]


@measurement("layers/without last", asks=_intact_and_without)
def without_last(lab: Lab, swept: Sequence[Swept]) -> DataArray:
    """The prediction for the query beside that of the model whose last layer is its mean.

    Means over groups of prompts (those of `layers/lens`) of products of 1, the prediction d less
    the law's mean m, the prediction g with an edit, and m. Edits: the last block's outputs at their
    mean, those of its attention or of its MLP alone. NaN for an MLP that does not exist.
    """
    prompts = swept[0].prompts
    intact, *edited = (one.f[:, 0] for one in swept)
    intact = _of_context(lab, prompts, intact)
    law = as_numbers(lab.task.expected(prompts.xs[:, -1:]))[:, 0]
    values = []
    for names, out in zip(_parts_of_last(lab), edited, strict=True):
        known = as_numbers(out) if names else torch.full_like(intact, torch.nan)
        rows = torch.stack([torch.ones_like(intact), intact, known, law], 1)
        values.append(np.moveaxis(lab.by_unit(rows[:, :, None] * rows[:, None]), 0, -1))
    axes = {"edit": EDITS, "of": PARTS, "and": PARTS, "group": tuple(range(lab.n_units))}
    return make_array(values, axes, note=_note(lab, prompts))


def _lens_on_line(lab: Lab) -> Sweep:
    """The logit lens as the query moves through the inputs' interval."""
    low, high = lab.task.inputs.interval
    xs = np.linspace(low, high, N_QUERIES)
    rows = torch.arange(min(N_SHOWN, lab.n_units)) * lab.unit_size
    return lab.ask(xs, probes=[LogitLens(per_prompt=True)], prompts=lab.prompts[rows])


@measurement("layers/curves", asks=_lens_on_line)
def curves(lab: Lab, swept: Swept) -> DataArray:
    """What the logit lens reads after each block over the inputs' interval, for a few contexts.

    Shown is one context of each of a few functions; what = "f" is the function itself.
    """
    xs, prompts = swept.xs, swept.prompts
    read = swept.probe(LogitLens).results()["prediction"]
    seen = read.sel(target=0).values  # (depth, x, context)
    lines = np.stack([*np.swapaxes(seen, 1, 2), as_numbers(lab.truth(xs, prompts)).numpy()])
    what = (*(f"depth {i}" for i in range(len(seen))), "f")
    return make_curve(
        np.moveaxis(lines, 0, 1),
        {"context": tuple(range(len(prompts))), "what": what, "x": tuple(xs)},
    )


# ---- the evidence --------------------------------------------------------------------------------


def seen_by(result: DataArray, name: str, depth: int) -> Interval:
    """R2: share of the final prediction's variance that a lens sees at a depth.

    It is below 0 where a constant does better. A prediction that no context changes is seen whole:
    no later layer makes it.
    """
    residual, total = (
        result.sel(lens=name, depth=depth, statistic=s).values for s in ("residual", "total")
    )
    return bootstrap(partial(r_squared, empty=1.0), residual, total)


def left(result: DataArray, edit: str) -> Interval:
    """Share of the prediction's variance that is left under an edit, up to scale and offset.

    The squared partial correlation of the prediction before and after the edit, given the mean of
    the law of functions: an edited model that knows that mean, and no context, has none.
    """

    def share(mean: Float[np.ndarray, "draw 4 4"]) -> Float[np.ndarray, " draw"]:
        about = (
            mean[:, 1:, 1:] - mean[:, 1:, :1] * mean[:, :1, 1:]
        )  # covariances of intact, edited, law
        # A law's mean that never varies is a constant up to rounding: nothing is taken off for it.
        floor = np.maximum(ROUNDING * about[:, :1, :1], CONSTANT)
        about = about - about[:, :, 2:] * about[:, 2:] / np.maximum(about[:, 2:, 2:], floor)
        own = np.maximum(about[:, 0, 0], CONSTANT)
        return about[:, 0, 1] ** 2 / (own * np.maximum(about[:, 1, 1], ROUNDING * own))

    return bootstrap(share, np.moveaxis(result.sel(edit=edit).values, -1, 0))


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """How much of the prediction is there before the last block, and how much without it."""
    return _before(results, facts.config.n_layers)


def _before(results: Results, n_layers: int) -> dict[str, Found]:
    seen = seen_by(results[lens], "affine", n_layers - 1)
    kept = left(results[without_last], EDITS[0])
    return {"before": Estimate.spanning("before", [seen, kept])}


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """Both shares by themselves, what every lens sees after each layer, and what blocks do."""
    n_layers = facts.config.n_layers
    rows = []
    for name in LENSES:
        for depth in range(n_layers + 1):
            share = seen_by(results[lens], name, depth)
            shown = {"R2": share.value, "low": share.low, "high": share.high}
            rows.append({"depth": depth, "lens": name, **shown})
    # What is left without the last layer, or without a part of it.
    shares = {edit: left(results[without_last], edit) for edit in EDITS}
    kept = {
        f"share left, {edit} at its mean": share.value
        for edit, share in shares.items()
        if np.isfinite(share.value)
    }
    causal = {**_blocks(results, n_layers), **kept}
    seen = seen_by(results[lens], "affine", n_layers - 1)
    without = shares[EDITS[0]]
    caveat = (
        f"A read-out before it sees {_percent(seen)}, and without it {_percent(without)} is left."
    )
    if seen.low >= ALREADY and without.high <= MAINLY:
        caveat = "The last layer makes a prediction that could have been read before it."
    return Remarks(
        scope=SCOPE + (AS_IT_IS if facts.config.norm_position == "post" else ""),
        caveat=caveat,
        estimate=Estimate.of(
            "share of the prediction that an affine read-out sees before the last layer (R2)", seen
        ),
        causal=causal,
        details=tuple(rows),
    )


def _percent(share: Interval) -> str:
    return f"{100 * share.value:.0f} %"


def _blocks(results: Results, n_layers: int) -> dict[str, Any]:
    """Error over that of the best guess without the prompt, with each block at its mean."""
    everywhere = _error_rates(results, n_layers, ALL)
    whole = results[without_attention].sel(points=ALL)
    return {
        "intervention": "outputs of one layer (attention and MLP) replaced by their mean, at every "
        "position",
        "effect": everywhere[-1],
        "the same for another block (the largest effect)": max(everywhere[:-1]),
        "by block": everywhere,
        "by block, at the query's token only": _error_rates(results, n_layers, QUERY),
        "intact": float(whole.sel(arm="intact").mean() / whole.sel(arm=BLIND).mean()),
    }


def _error_rates(results: Results, n_layers: int, points: str) -> list[float]:
    """The same error for each block, replaced at some of the positions."""
    parts = results[ablated].sel(points=points)
    blind = results[without_attention].sel(points=points, arm=BLIND).mean()
    return [float(parts.sel(arm=f"block {i}").mean() / blind) for i in range(n_layers)]


def _one_layer(facts: Facts) -> str | None:
    if facts.config.mlp_only:
        return (
            "The claim is about what layers make of a context; this model has no attention to read "
            "one."
        )
    if facts.config.n_layers == 1:
        return "The claim compares the last layer with those before; this model has one layer."
    return None


CRITERION = Criterion(
    (
        Condition(
            "before",
            "share of the prediction there before the last layer, or without it",
            at_most(MAINLY),
            at_least(ALREADY),
            unit="share",
        ),
    ),
    terms="Two shares of its variance, of which both must lie there: what the best affine read-out "
    "(cross-validated over functions) sees in the stream before the last layer, and what is left, "
    "up to scale and offset, with the last layer's outputs replaced by their mean. The prediction "
    f"is taken less {NO_PROMPT}.",
)

LAST_LAYER_CLAIM = Claim(
    id="limits.last_layer",
    question="algorithm",
    statement="The prediction is mainly formed in the last layer.",
    denied="The prediction is mainly formed before the last layer.",
    quote=Quote(
        "Evolution of predictions over layers show that the final prediction is mainly generated "
        "in the last layer.",
        "Naim & Asher (2025), appendix F, with Figure 8 (also section 4.1)",
        "The paper shows a plot for f(x) = x and does not say how predictions were read from inner "
        "layers. We fit the best affine read-out before the last layer, and we replace the last "
        "layer's outputs by their mean over prompts, because what can be decoded need not be what "
        "the prediction is made of. Either way at most 0.4 of the variance of the prediction may "
        "be there.",
    ),
    kind="learning",
    criterion=CRITERION,
    measurements=(lens, without_last, curves, without_attention, ablated),
    control=(lens, without_last),
    aspects=("affine lens", "depth"),
    evidence=evidence,
    remarks=remarks,
    of_numbers=True,
    excluded=_one_layer,
    figures=("layers",),
)
