"""What of the prediction can be read before the last layer, and what is left without that layer.

The logit lens reads the stream as if the remaining blocks wrote nothing. A prediction in another
basis escapes it, so the best affine read-out is fitted to each depth as well, and tested on
functions that it has not seen. A post-norm model has no final norm: there both lenses read the
stream as it is. Without norms the affine read-out is fitted to the directions of the stream that a
later part of the model reads (`probes.readers`).

Sources: nostalgebraist (2020), "interpreting GPT: the logit lens"; Belrose et al. (2023),
"Eliciting latent predictions from transformers with the tuned lens", which fits an affine map at
each depth.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.interventions.outputs import sublayers
from icl_interp.probes.readers import as_read
from icl_interp.probes.record import Activations
from icl_interp.probes.residual import LogitLens, depths, normed
from icl_interp.probes.sweep import Sweep, Swept
from icl_interp.prompts import Prompts, as_numbers
from icl_interp.results import make_array, make_curve
from icl_interp.studies.limits.measurements.ablation import means

PARTS = ("1", "intact", "edited", "law mean")
EDITS = ("last block", "last attention", "last MLP")
LENSES = ("logit", "affine")
N_FOLDS = 8
PENALTIES = (1e-10, 1e-6, 1e-4, 1e-2, 1.0)  # of the ridge, in units of the features' mean square
# Of the curves: contexts, and queries from end to end of the inputs' interval.
N_SHOWN = 3
N_QUERIES = 33


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
    one = torch.ones_like(features[:, :1])
    centred = features - features.mean(0)
    target_mean = target.mean()
    deviation = target - target_mean
    rows = torch.cat([one, centred, deviation[:, None]], 1)
    whole = rows.T @ rows
    for k in fold.unique():
        is_test = fold == k
        test = rows[is_test]
        # What the other parts say: sums over all rows less those over this part, and centred.
        gram = whole - test.T @ test
        n = gram[0, 0]
        mean = gram[0] / n
        gram = (gram - n * mean[:, None] * mean)[1:, 1:]
        # A model that divides by a scale of 0, say; LAPACK would raise an error.
        if not gram.isfinite().all():
            return torch.full_like(target, torch.nan)
        # Ridge regression in the features' principal axes.
        values, vectors = torch.linalg.eigh(gram[:-1, :-1])
        tiny = torch.finfo(values.dtype).tiny
        size = values.mean().clamp_min(tiny)
        along = vectors.T @ gram[:-1, -1]
        shown = (test[:, 1:-1] - mean[1:-1]) @ vectors
        for p, penalty in enumerate(PENALTIES):
            weights = along / (values.clamp_min(0) + penalty * size)
            held[p, is_test] = target_mean + mean[-1] + shown @ weights
    missed = (held - target).square().sum(1)
    return held[missed.argmin()]


def prompts_of(lab: Lab) -> Prompts:
    """Fresh prompts, each of a function of its own; partners of a pair stand together.

    Functions have pairs where the task is paired.
    """
    return lab.functions("layers/prompts")


def _of_context(lab: Lab, prompts: Prompts, out: Tensor) -> Float[Tensor, " batch"]:
    """Predictions for the last query less the mean of the law of functions there."""
    return as_numbers(out).double() - _law_mean(lab, prompts)


def _law_mean(lab: Lab, prompts: Prompts) -> Float[Tensor, " batch"]:
    expected = lab.task.expected(prompts.xs[:, -1:])
    return as_numbers(expected)[:, 0]


def _note(lab: Lab, prompts: Prompts) -> str:
    paired = "in antithetic pairs" if lab.task.paired else "which have no antithetic pairs"
    return f"{len(prompts)} functions, {paired}, one context each; groups of {lab.unit_size}"


def _through_lenses(lab: Lab) -> Sweep:
    """What the logit lens reads after each block, and the streams there."""
    probes = [LogitLens(per_prompt=True), Activations(depths(lab.model))]
    return lab.ask(prompts=prompts_of(lab), probes=probes)


@measurement("layers/lens", version=3, asks=_through_lenses)
def lens(lab: Lab, swept: Swept) -> DataArray:
    """How much of the final prediction for the query each lens sees after 0, 1, ..., all blocks.

    Squared difference from the final prediction (residual), beside that from its mean (total); both
    predictions less the mean of the law of functions. Prompts as from `prompts_of`: groups of them
    are what intervals resample. Where the task has antithetic pairs a group holds whole pairs;
    where it has none, each prompt is of a function of its own, too.
    """
    prompts = swept.prompts
    model = lab.model
    final = _of_context(lab, prompts, swept.f[:, 0])

    # Readings by depth, first of the logit lens.
    found = swept.probe(LogitLens).results()
    at_query = found["prediction"].sel(position="query", target=0)
    outputs = torch.from_numpy(at_query.values)[..., None]
    logit = [_of_context(lab, prompts, out) for out in outputs]

    # What no later weight reads is part of no prediction.
    seen = swept.probe(Activations).recorded
    streams = []
    with torch.no_grad():
        for name in depths(model):
            stream = seen[name].to(model.unembed.W_U)
            streams.append(normed(model, stream)[:, 0].cpu())
    group = torch.arange(len(prompts)) // lab.unit_size
    fold = group % N_FOLDS
    affine = [held_out_readings(x, final, fold) for x in as_read(model, streams)]

    deviation = final - final.mean()
    total = lab.by_unit(deviation.square())
    values = []
    for row in (*logit, *affine):
        missed = row - final
        values.append([lab.by_unit(missed.square()), total])
    n_depths = len(streams)
    axes = {
        "lens": LENSES,
        "depth": tuple(range(n_depths)),
        "statistic": ("residual", "total"),
        "group": tuple(range(lab.n_units)),
    }
    by_lens = np.reshape(values, (len(LENSES), n_depths, 2, lab.n_units))
    note = f"{_note(lab, prompts)}; affine: {N_FOLDS}-fold cross-validation"
    return make_array(by_lens, axes, note=note)


def _parts_of_last(lab: Lab) -> list[list[str]]:
    """Names of the outputs of the last block, of its attention and of its MLP; empty for none."""
    last = lab.model.cfg.n_layers - 1
    return [sublayers(lab.model, kind, last) for kind in (None, "attn", "mlp")]


def _intact_and_without(lab: Lab) -> list[Sweep]:
    """The prediction as it is, and with each part of the last block at its mean."""
    prompts = prompts_of(lab)
    mean = means(lab)
    # At the query's token only: nothing reads what the last block makes of the others.
    asked = [lab.ask(prompts=prompts)]
    for names in _parts_of_last(lab):
        edits = [mean.only(*names).at_query()] if names else []
        asked.append(lab.ask(prompts=prompts, query=edits))
    return asked


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
    law = _law_mean(lab, prompts)
    one = torch.ones_like(intact)
    values = []
    # All products of two of `PARTS`, for each edit.
    for names, out in zip(_parts_of_last(lab), edited, strict=True):
        known = torch.full_like(intact, torch.nan)
        if names:
            known = as_numbers(out)
        rows = torch.stack([one, intact, known, law], 1)
        products = lab.by_unit(rows[:, :, None] * rows[:, None])
        values.append(np.moveaxis(products, 0, -1))
    groups = tuple(range(lab.n_units))
    axes = {"edit": EDITS, "of": PARTS, "and": PARTS, "group": groups}
    return make_array(values, axes, note=_note(lab, prompts))


def _lens_on_line(lab: Lab) -> Sweep:
    """The logit lens as the query moves through the inputs' interval."""
    low, high = lab.task.inputs.interval
    xs = np.linspace(low, high, N_QUERIES)
    n_shown = min(N_SHOWN, lab.n_units)
    rows = torch.arange(n_shown) * lab.unit_size
    probe = LogitLens(per_prompt=True)
    return lab.ask(xs, probes=[probe], prompts=lab.prompts[rows])


@measurement("layers/curves", asks=_lens_on_line)
def curves(lab: Lab, swept: Swept) -> DataArray:
    """What the logit lens reads after each block over the inputs' interval, for a few contexts.

    Each context is of another function; what = "f" is the function itself.
    """
    xs = swept.xs
    prompts = swept.prompts
    found = swept.probe(LogitLens).results()
    seen = found["prediction"].sel(target=0).values  # (depth, x, context)
    by_context = np.swapaxes(seen, 1, 2)
    truth = as_numbers(lab.truth(xs, prompts)).numpy()
    lines = np.stack([*by_context, truth])
    names = [f"depth {i}" for i in range(len(seen))]
    n_contexts = len(prompts)
    contexts = tuple(range(n_contexts))
    axes = {"context": contexts, "what": (*names, "f"), "x": tuple(xs)}
    return make_curve(np.moveaxis(lines, 0, 1), axes)
