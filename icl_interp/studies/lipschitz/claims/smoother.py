"""The claim of `lipschitz` that a softmax head is a kernel smoother of the prompt's labels."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses import relevance
from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.relevance import Effect, Outcome, Standing
from icl_interp.resampling import simultaneous
from icl_interp.studies.lipschitz.claims.window import percent
from icl_interp.studies.lipschitz.measurements.heads import LABELS, NOTHING, VALUES, needs_softmax_and_labels, smoother
from icl_interp.studies.lipschitz.measurements.unit import SOURCE

SHARE, NO_SHARE = 0.9, 0.5  # of the heads that matter
REPLACED, MISSED = 0.1, 0.25  # of what the head does to the prediction: up to here its smoother does it, from here not

SMOOTHER = Criterion(
    f"share of the heads that matter at the query which a smoother of the labels replaces: >= {SHARE:g} / <= "
    f"{NO_SHARE:g}. A head matters where its mean moves the prediction by {relevance.MOVES:g} standard deviations of "
    f"the true values (not where by {relevance.STILL:g} at most). A smoother, an average of the labels whose weights "
    f"depend on the inputs alone, replaces it where it moves the prediction by {REPLACED:g} of that at most, in mean "
    f"square (not where by {MISSED:g})",
    (Condition("share", (SHARE, 1.0), (0.0, NO_SHARE)),),
    (Precondition("heads", (1, INF), "No head is sure to matter at the query, so there is nothing to replace."),),
)


def matters(result: DataArray, level: float) -> dict[str, Effect]:
    """What each head does at the query: root mean square change of the prediction with its mean in its place."""
    moved = result.sel({"stand-in": NOTHING}).values.T
    value, low, high = simultaneous(lambda mean: np.log(np.maximum(mean, relevance.SMALLEST)) / 2, moved, level=level)
    ends = zip(result.indexes["head"], *(np.exp(part).tolist() for part in (value, low, high)), strict=True)
    return {name: Effect(v, a, b, False) for name, v, a, b in ends}


def missed(result: DataArray, arm: str, level: float) -> dict[str, tuple[float, float, float]]:
    """Of what a head does at the query, the part that its stand-in does not do, with intervals of all heads at once.

    Heads that were not tried have NaN.
    """
    names = list(result.indexes["head"])
    tried = [name for name in names if np.isfinite(result.sel({"head": name, "stand-in": arm}).values).all()]
    found = dict.fromkeys(names, (np.nan, np.nan, np.nan))
    if tried:
        left, all_of_it = (result.sel({"head": tried, "stand-in": one}).values.T for one in (arm, NOTHING))
        tiny = np.finfo(float).tiny
        parts = simultaneous(lambda a, b: np.log((a + tiny) / (b + tiny)), left, all_of_it, level=level)
        found |= zip(tried, zip(*(np.exp(part).tolist() for part in parts), strict=True), strict=True)
    return found


def standings(result: DataArray, arm: str, level: float) -> dict[str, Standing]:
    """How each head counts, whether it matters or not; heads that were not tried count as none."""
    found = {}
    for name, (value, low, high) in missed(result, arm, level).items():
        if np.isnan(value):
            found[name] = Standing("out", relevance.OUT)
            continue
        ways: set[Outcome] = {"yes"} if high <= REPLACED else {"no"} if low >= MISSED else {"yes", "no"}
        found[name] = Standing("yes" if value <= REPLACED else "no", frozenset(ways))
    return found


def counting(result: DataArray, arm: str, level: float) -> dict[str, Standing]:
    """The standings of heads where those that do not matter at the query do not count."""
    effects = matters(result, level)
    return {name: one.among(effects[name]) for name, one in standings(result, arm, level).items()}


def evidence(results: Results, facts: Facts) -> Evidence:
    """Does a smoother of the labels do what each head does?"""
    result, fresh = results[smoother], results.twin[smoother]
    share, kernel = (
        relevance.share_of_heads(
            f"heads that matter and are replaced by a {name}", lambda at, a=arm: counting(result, a, at)
        )
        for arm, name in ((LABELS, "smoother of the labels"), (VALUES, "kernel of the inputs"))
    )
    rows = details(result)
    counted = relevance.counted("heads that matter at the query", counting(result, LABELS, relevance.USUAL))
    twin = relevance.share_of_heads(
        "heads replaced by a smoother of the labels", lambda level: standings(fresh, LABELS, level)
    )
    quantities = {"heads": counted, "share": share}
    lead = answer(
        SMOOTHER,
        quantities,
        "Nearly all heads that matter at the query average the labels with a kernel of the inputs.",
        "At least half of the heads that matter at the query do not average the labels with a kernel of the inputs.",
        "heads average the prompt's labels with a kernel of the inputs",
    )
    return Evidence(
        quantities,
        " ".join(filter(None, (lead, says(rows, quantities)))),
        caveat=caveat(rows),
        scope="these weights, the last query of prompts in distribution, heads that matter there, one head at a time",
        causal={
            "intervention": "replace a head's output at the last query by an average of the labels",
            "effect": max((row["labels: missed"] for row in rows if row["counts"]), default=float("nan")),
            "unit": "share of what the head does to the prediction, mean square; the worst head",
            "the head's own values with the smoother's weights: share of heads replaced": kernel.value,
        },
        twin={"share": twin},
        details=rows,
    )


def says(rows: tuple[dict[str, Any], ...], quantities: dict[str, Estimate]) -> str:
    """How many heads can be replaced, in words."""
    heads = [row for row in rows if row["counts"]]
    if not heads:
        return ""
    threshold = bound(SMOOTHER, quantities, "share", f"at least {100 * SHARE:g} %", f"at most {100 * NO_SHARE:g} %")
    n = len(heads)
    return f"Such an average can replace {_replaced(heads, 'labels')} of {n} head{'s' * (n > 1)} ({threshold})."


def _replaced(heads: Sequence[dict[str, Any]], key: str) -> int:
    return sum(row[f"{key}: missed"] <= REPLACED for row in heads)


def caveat(rows: tuple[dict[str, Any], ...]) -> str:
    """What the average misses, or what the heads do that it cannot."""
    heads = [row for row in rows if row["counts"]]
    if not heads:
        return ""
    labels, values, n = _replaced(heads, "labels"), _replaced(heads, "values"), len(heads)
    if labels < n:
        return f"With the same weights on the head's own values it can replace {values}, so " + (
            "only the values differ from labels." if values == n else "weights depend on more than the inputs."
        )
    worst = max(heads, key=lambda row: row["labels: missed"])
    return (
        f"Of what head {worst['head']}{', the worst,' * (n > 1)} does to the prediction it misses "
        f"{percent(worst['labels: missed'])} % (mean square; at most {100 * REPLACED:g} % counts as replaced)."
    )


def details(result: DataArray) -> tuple[dict[str, Any], ...]:
    """A row a head."""
    effects = matters(result, relevance.USUAL)
    arms = {key: missed(result, arm, relevance.USUAL) for key, arm in (("labels", LABELS), ("values", VALUES))}
    return tuple(
        {
            "head": name,
            "matters at the query": effect.role,
            "counts": effect.matters,
            "moves the prediction by": effect.value,
            **{
                f"{key}: {part}": value
                for key, found in arms.items()
                for part, value in zip(("missed", "low", "high"), found[name], strict=True)
            },
        }
        for name, effect in effects.items()
    )


SMOOTHER_CLAIM = Claim(
    id="lipschitz.kernel_smoother",
    question="attention",
    short="Each softmax head averages the labels with a kernel.",
    quote=Quote(
        "L(M) := E_(f, {x_i}, {ε_i}) ( Σ_i (f(x_i) + ε_i) e^(x_i^T M x_(n+1)) / Σ_i e^(x_i^T M x_(n+1)) − "
        "f(x_(n+1)) )²",
        "Collins et al. (2024), slides by A. Mokhtari, equation (ICL), 'Pretraining population loss'",
        "The slides set the model up as such an average. We ask of any softmax head whether it is one: with any "
        "kernel of the inputs whose logarithm is a polynomial of low degree, fitted to the head's scores on other "
        "prompts, and up to an affine map of the average, which is wider than x^T M x_q. It is narrower than the "
        "tautology that a head averages its own values with its own weights: here weights may depend on the inputs "
        "alone, and what is averaged are labels.",
    ),
    kind="architecture",
    statement="A softmax head is a kernel smoother: at the query it averages the labels, weighted by the inputs alone",
    source=f"{SOURCE}, equation (2)",
    criterion=SMOOTHER,
    measurements=(smoother,),
    twin=(smoother,),
    aspects=("shares of heads",),
    evidence=evidence,
    excluded=needs_softmax_and_labels,
    figures=("lipschitz_smoother",),
)
