"""The claim of `limits` that softmax acts as a hardmax far out; what it shares with the claim on uniform averages."""

from typing import Any

import numpy as np
import torch
from xarray import DataArray

from icl_interp.analyses import relevance
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Planned, Results, measurement
from icl_interp.interventions.attention import SwapPattern, Temperature
from icl_interp.probes.attention import TARGETS, AttentionEntropy, AttentionTargets
from icl_interp.probes.sweep import together
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import make_array, make_curve
from icl_interp.studies.limits.claims.layernorm import SCOPE
from icl_interp.studies.limits.measurements import far
from icl_interp.studies.limits.measurements.far import power

CONCENTRATED = 0.05  # delta up to which a pattern counts as its hardmax (total variation distance)
FAR_CONDITIONS = (-1e5, -1e4, 1e4, 1e5)  # queries, in units of `Lab.x_unit`


@measurement("heads/concentration")
def concentration(lab: Lab) -> Planned[DataArray]:
    """Share of contexts in which a head's pattern at the last query is concentrated, in distribution and far out."""
    queries = [lab.x_unit * x for x in FAR_CONDITIONS]
    near, out = AttentionEntropy(per_prompt=True), AttentionEntropy(per_prompt=True)
    yield from together(lab.ask(probes=[near]), lab.ask(queries, probes=[out]))
    # (layer, head, condition, prompt)
    deltas = np.concatenate([probe.results()["delta"].values for probe in (near, out)], 2)
    shares = lab.by_function(torch.from_numpy(deltas <= CONCENTRATED).double().movedim(-1, 0))
    axes = {
        "head": relevance.labels(lab),
        "condition": ("in distribution", *queries),
        "function": tuple(range(lab.n_functions)),
    }
    values = np.moveaxis(shares, 0, -1).reshape([len(coordinates) for coordinates in axes.values()])
    return make_array(values, axes, note=f"delta <= {CONCENTRATED}")


@measurement("heads/delta")
def delta(lab: Lab) -> Planned[DataArray]:
    """Mean delta of every head as the query grows, and what it attends to most."""
    xs = lab.x_unit * np.sort(far.DECADES)
    weights, targets = AttentionEntropy(), AttentionTargets(lab.encoding.kinds(lab.task.n_points))
    yield from lab.ask(xs, probes=[weights, targets])
    mean = weights.results()["delta"].sel(statistic="mean").values
    shares = np.moveaxis(targets.results()["share"].values, -1, 0)
    values = np.concatenate([mean[None], shares]).reshape(1 + len(TARGETS), -1, len(xs))
    return make_curve(values, {"statistic": ("delta", *TARGETS), "head": relevance.labels(lab), "x": tuple(xs)})


@measurement("heads/far swap")
def far_swap(lab: Lab) -> Planned[DataArray]:
    """Squared change of f when every head's pattern at the query is swapped; "intact" holds f's own square."""
    xs = [*lab.inner, -1e4 * lab.x_unit, 1e4 * lab.x_unit]
    arms = {"one-hot": SwapPattern("hardmax"), "uniform": SwapPattern("uniform"), "flattened": Temperature(1e6)}
    f, *swapped = yield from together(lab.ask(xs), *(lab.ask(xs, query=[edit]) for edit in arms.values()))
    values = [lab.by_function(part.square().mean(-1)) for part in (f, *(other - f for other in swapped))]
    axes = {"arm": ("intact", *arms), "function": tuple(range(lab.n_functions)), "x": tuple(xs)}
    return make_curve(values, axes, note="swapped at the query only; the context is read as it is")


def _statuses(shares: np.ndarray) -> np.ndarray:
    """Whether each head turns into a hardmax: concentrated far out in all conditions, and not before.

    Args:
        shares: of concentrated contexts, `(draw, head, condition)`, in distribution first.
    """
    return (shares[..., 1:] >= 0.95).all(-1) & (shares[..., 0] < 0.5)


def _share(result: DataArray, counted: list[str]) -> Interval:
    rows = [result.indexes["head"].get_loc(name) for name in counted]
    per_function = np.moveaxis(result.values[rows], -1, 0)
    return bootstrap(lambda shares: _statuses(shares).mean(-1), per_function)


def softmax_hardmax(results: Results, facts: Facts) -> Evidence:
    """Do the heads that matter put all their weight on one token when the query is far?"""
    result, counted = results[concentration], relevance.relevant(results, facts)
    near, out = (facts.x_unit * x for x in FAR_CONDITIONS[2:])
    scope = f"{SCOPE}|x| = {power(near)} and {power(out)}, heads that matter in distribution"
    quantities = {"relevant heads": Estimate.exactly("relevant heads", len(counted))}
    if not counted:
        return Evidence(quantities, "", scope=scope)
    share = _share(result, counted)
    quantities["share"] = Estimate.of("relevant heads that turn into a hardmax", share, "share")
    details = tuple(_head_row(name, result, results[delta], name in counted) for name in result.indexes["head"])
    already = sum(row["in distribution"] >= 0.5 for row in details if row["relevant"])
    n = len(counted)
    says = f"{round(share.value * n)} of {n} relevant heads turn into a hardmax far out"
    says += f"; {already} are concentrated already in distribution" if already else ""
    changes = _far_changes(results[far_swap])
    idle = changes["uniform"] <= 0.02
    if idle:
        says += "; far out no head is read at all (uniform patterns change f as little), so they cause nothing there"
    causal = {
        "intervention": "swap every head's pattern at the query for one-hot at its arg max",
        "effect": changes["one-hot"],
        "criterion": "changes far f by at most 2 %",
        "power: the same swap in distribution": changes["one-hot in distribution"],
        "uniform instead": changes["uniform"],
        "flattened by a temperature of 1e6": changes["flattened"],
        "heads idle far out": bool(idle),
    }
    fresh = results.twin[concentration]
    twin = Estimate.of("heads that turn into a hardmax", _share(fresh, list(fresh.indexes["head"])), "share")
    return Evidence(quantities, says + ".", None, scope, causal, {"share": twin}, details)


def _far_changes(swap: DataArray) -> dict[str, float]:
    """Root mean square change of f for each swap, relative to f far out or near: a plateau alone can be close to 0."""
    is_far = np.arange(len(swap["x"].values)) >= len(swap["x"].values) - 2  # behind the queries in distribution
    size = swap.sel(arm="intact").values.mean(0)
    out = {}
    for arm in ("one-hot", "uniform", "flattened"):
        change = swap.sel(arm=arm).values.mean(0)
        out[arm] = float(np.sqrt(change[is_far].mean() / max(size[is_far].mean(), size[~is_far].mean())))
        out[f"{arm} in distribution"] = float(np.sqrt(change[~is_far].mean() / size[~is_far].mean()))
    return out


def _head_row(name: str, result: DataArray, curve: DataArray, counted: bool) -> dict[str, Any]:
    shares = result.sel(head=name).values.mean(-1)
    targets = {t: curve.sel(statistic=t, head=name).values[[0, -1]].mean() for t in TARGETS}
    return {
        "head": name,
        "relevant": counted,
        "in distribution": float(shares[0]),
        "far": float(shares[1:].min()),
        "hardmax": bool(_statuses(shares[None])[0]),
        "target": max(targets, key=targets.__getitem__),
    }


def needs_softmax(facts: Facts) -> str | None:
    """Why a claim about softmax cannot apply."""
    config = facts.config
    if config.mlp_only:
        return "the model has no attention"
    if config.score_fn != "softmax":
        return f"the model's score function is {config.score_fn}, not softmax"
    return None


RELEVANT = Precondition("relevant heads", (1.0, INF), "No head matters for the in-distribution prediction.")

SOFTMAX_HARDMAX_CLAIM = Claim(
    id="limits.softmax_hardmax",
    question="attention",
    short="Far from the data softmax attention puts all weight on one token.",
    quote=Quote(
        "First, when one input value is significantly larger than the rest, softmax, like hardmax, "
        "assigns a probability close to 1 to the largest value and nearly zero to all others.",
        "Naim & Asher (2025), section 6, after Proposition 4 (also appendix G.2 and Table 4)",
        "The paper shows softmax of five given numbers (Table 4). We look at the trained heads that "
        "matter for the prediction, with the query at 1e4 and 1e5 units, and count those that concentrate"
        " there but not near the data.",
    ),
    kind="architecture",
    statement="Far from the data softmax attention acts as a hardmax: all weight on one token",
    source="Naim & Asher (2025), section 6 and appendix G.2 (Table 4)",
    criterion=Criterion(
        "share of relevant heads with delta <= 0.05 in >= 95 % of contexts at 1e4 and 1e5, both signs, and in "
        "< 50 % in distribution: >= 0.9 / <= 0.5",
        (Condition("share", (0.9, INF), (-INF, 0.5)),),
        (RELEVANT,),
    ),
    measurements=(relevance.relevance, concentration, delta, far_swap),
    twin=(concentration,),
    evidence=softmax_hardmax,
    excluded=needs_softmax,
    figures=("heads",),
)
