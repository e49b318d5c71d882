"""The claim of `limits` that the prediction is formed in the last layer: lenses on the stream after every block.

The logit lens reads the stream as if the remaining blocks wrote nothing. A prediction in another basis escapes it, so
the claim is judged by the best affine read-out instead, fitted to each depth and tested on functions that it has not
seen. A post-norm model has no final norm: there both lenses read the stream as it is.

Sources: nostalgebraist (2020), "interpreting GPT: the logit lens"; Belrose et al. (2023), "Eliciting latent predictions
from transformers with the tuned lens", which fits an affine map at each depth.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Planned, Results, measurement
from icl_interp.probes.record import Activations
from icl_interp.probes.residual import LogitLens, depths, normed
from icl_interp.prompts import as_numbers
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import make_array, make_curve
from icl_interp.studies.limits.measurements.ablation import ALL, NOTHING, QUERY, ablated, without_attention

MAINLY = 0.5  # share of the prediction's variance that may be there before the last block
LENSES = ("logit", "affine")
N_FOLDS = 8
PENALTIES = (1e-10, 1e-6, 1e-4, 1e-2, 1.0)  # of the ridge, in units of the features' mean square
N_SHOWN, N_QUERIES = 3, 33  # of the curves: contexts, and queries from end to end of the inputs' interval
SCOPE = "these weights, this task, the last query in distribution"


def cross_validated(
    features: Float[Tensor, "row feature"], target: Float[Tensor, " row"], fold: Int[Tensor, " row"]
) -> Float[Tensor, " row"]:
    """Held-out predictions of the best affine read-out: ridge regression, its penalty the best of a few.

    Args:
        features: what is read.
        target: what is predicted from them.
        fold: which part each row is in; a row is predicted from the other parts.
    """
    held = torch.zeros(len(PENALTIES), len(target), dtype=target.dtype)
    rows = torch.cat(
        [torch.ones_like(features[:, :1]), features - features.mean(0), (target - target.mean())[:, None]], 1
    )
    whole = rows.T @ rows
    for k in fold.unique():
        test = rows[fold == k]
        # What the other parts say: sums over all rows less those over this part, and centred.
        gram = whole - test.T @ test
        mean = gram[0] / gram[0, 0]
        gram = (gram - gram[0, 0] * mean[:, None] * mean)[1:, 1:]
        if not gram.isfinite().all():  # a model that divides by a scale of 0, say; LAPACK would raise an error
            return torch.full_like(target, torch.nan)
        values, vectors = torch.linalg.eigh(gram[:-1, :-1])
        size = values.mean().clamp_min(torch.finfo(values.dtype).tiny)
        along, shown = vectors.T @ gram[:-1, -1], (test[:, 1:-1] - mean[1:-1]) @ vectors
        for p, penalty in enumerate(PENALTIES):
            held[p, fold == k] = target.mean() + mean[-1] + shown @ (along / (values.clamp_min(0) + penalty * size))
    return held[(held - target).square().sum(1).argmin()]


@measurement("layers/lens")
def lens(lab: Lab) -> DataArray:
    """How much of the final prediction for the last query each lens sees after 0, 1, ..., all blocks.

    Squared difference from the final prediction (residual), beside that from its mean (total). Fresh prompts, each of
    a function of its own; groups of them are what intervals resample.
    """
    n, per = lab.n_units * lab.unit_size, lab.unit_size
    prompts = lab.units("layers/prompts", n_units=n // 2)  # several units of one context each make a group
    model, names = lab.single, depths(lab.single)
    read_out, seen = LogitLens(per_prompt=True), Activations(names)
    out = as_numbers(lab.last_predictions(prompts, [read_out, seen]))
    logit = torch.from_numpy(read_out.results()["prediction"].sel(position="query", target=0).values)
    with torch.no_grad():
        streams = [normed(model, seen.recorded[name].to(model.unembed.W_U))[:, 0].double().cpu() for name in names]
    final = out.double()
    group = torch.arange(n) // per
    affine = torch.stack([cross_validated(x, final, group % N_FOLDS) for x in streams])
    total = (final - final.mean()).square()
    values = [[[lab.by_unit((row - final).square()), lab.by_unit(total)] for row in rows] for rows in (logit, affine)]
    axes = {
        "lens": LENSES,
        "depth": tuple(range(len(names))),
        "statistic": ("residual", "total"),
        "group": tuple(range(lab.n_units)),
    }
    return make_array(values, axes, note=f"{n} functions, one context each; affine: {N_FOLDS}-fold cross-validation")


@measurement("layers/curves")
def curves(lab: Lab) -> Planned[DataArray]:
    """What the logit lens reads after each block as the query moves through the inputs' interval, for a few contexts.

    One context of each of a few functions; what = "f" is the function itself.
    """
    low, high = lab.task.inputs.interval
    xs = np.linspace(low, high, N_QUERIES)
    rows = torch.arange(min(N_SHOWN, lab.n_units)) * lab.unit_size
    prompts = lab.prompts[rows]
    read_out = LogitLens(per_prompt=True)
    yield from lab.ask(xs, probes=[read_out], prompts=prompts)
    seen = read_out.results()["prediction"].sel(target=0).values  # (depth, x, context)
    lines = np.stack([*np.swapaxes(seen, 1, 2), as_numbers(lab.truth(xs, prompts)).numpy()])
    what = (*(f"depth {i}" for i in range(len(seen))), "f")
    return make_curve(np.moveaxis(lines, 0, 1), {"context": tuple(range(len(rows))), "what": what, "x": tuple(xs)})


# ---- the evidence ----------------------------------------------------------------------------------------------------


def r_squared(result: DataArray, name: str, depth: int) -> Interval:
    """Share of the final prediction's variance that a lens sees at a depth; below 0 where a constant does better."""
    residual, total = (result.sel(lens=name, depth=depth, statistic=s).values for s in ("residual", "total"))
    return bootstrap(lambda a, b: 1 - a / np.maximum(b, np.finfo(float).tiny), residual, total)


def _seen_before(result: DataArray, n_layers: int) -> Estimate:
    interval = r_squared(result, "affine", n_layers - 1)
    return Estimate.of("R2 of the best affine read-out before the last block", interval)


def last_layer(results: Results, facts: Facts) -> Evidence:
    """How much of the prediction is there before the last block?"""
    result = results[lens]
    n_layers = facts.config.n_layers
    before = _seen_before(result, n_layers)
    lensed = {name: [r_squared(result, name, d) for d in range(n_layers + 1)] for name in LENSES}
    says = (
        f"before the last block the best affine read-out already sees {before.value:.2f} of the variance of the "
        f"prediction (depth by depth {_listed(lensed['affine'])}); the logit lens has R2 "
        f"{lensed['logit'][n_layers - 1].value:.2f} there (depth by depth {_listed(lensed['logit'])})"
    )
    causal, text = _blocks(results, n_layers)
    if facts.config.norm_position == "post":
        text += ". There is no final norm, so both lenses read the stream as it is"
    rows = tuple(
        {"depth": d, "lens": name, "R2": i.value, "low": i.low, "high": i.high}
        for name in LENSES
        for d, i in enumerate(lensed[name])
    )
    return Evidence(
        {"seen before": before},
        f"{says}. {text}.",
        scope=SCOPE,
        causal=causal,
        twin={"seen before": _seen_before(results.twin[lens], n_layers)},
        details=rows,
    )


def _blocks(results: Results, n_layers: int) -> tuple[dict[str, object], str]:
    """Error in units of the zero predictor's with each block at its mean."""
    parts, whole = results[ablated], results[without_attention]
    rates = {
        points: [
            float(
                parts.sel(arm=f"block {i}", points=points).values.mean()
                / whole.sel(arm=NOTHING, points=points).values.mean()
            )
            for i in range(n_layers)
        ]
        for points in (ALL, QUERY)
    }
    causal = {
        "intervention": "one block (attention and MLP) made its mean, at every position",
        "effect": rates[ALL][-1],
        "the same for another block (the largest effect)": max(rates[ALL][:-1]),
        "by block": rates[ALL],
        "by block, at the query's token only": rates[QUERY],
        "intact": float(
            whole.sel(arm="intact", points=ALL).values.mean() / whole.sel(arm=NOTHING, points=ALL).values.mean()
        ),
    }
    text = (
        f"With one block at its mean the error rate is {_plain(rates[ALL])} (first to last; at the query's token only "
        f"{_plain(rates[QUERY])})"
    )
    return causal, text


def _listed(intervals: Sequence[Interval]) -> str:
    return _plain([i.value for i in intervals])


def _plain(values: Sequence[float]) -> str:
    return ", ".join(f"{v:.2g}" for v in values)


def _one_layer(facts: Facts) -> str | None:
    if facts.config.mlp_only:
        return "the model has no attention, so its prediction is not formed from a context"
    if facts.config.n_layers == 1:
        return "the model has one layer, which is the last"
    return None


LAST_LAYER_CLAIM = Claim(
    id="limits.last_layer",
    question="algorithm",
    short="The prediction is mainly formed in the last layer.",
    quote=Quote(
        "Evolution of predictions over layers show that the final prediction is mainly generated in the last layer.",
        "Naim & Asher (2025), appendix F, with Figure 8 (also section 4.1)",
        "The paper shows a plot for f(x) = x and does not say how predictions were read from inner "
        "layers. We fit the best affine read-out before the last layer, and ask that it explain at most "
        "half of the variance of the final prediction.",
    ),
    kind="learning",
    statement="The prediction is mainly formed in the last layer",
    source="Naim & Asher (2025), section 4.1, appendix F and Figure 8",
    criterion=Criterion(
        "share of the variance of the final prediction that the best affine read-out (cross-validated over "
        f"functions) sees in the stream before the last block: <= {MAINLY} / > {MAINLY}",
        (Condition("seen before", (-INF, MAINLY), (MAINLY, INF)),),
    ),
    measurements=(lens, curves, without_attention, ablated),
    twin=(lens,),
    aspects=("affine lens", "depth"),
    evidence=last_layer,
    of_numbers=True,
    excluded=_one_layer,
    figures=("layers",),
)
