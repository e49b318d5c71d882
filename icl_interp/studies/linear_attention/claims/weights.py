"""The claims of `linear_attention` that are read off weights: where training ended, and how it got there."""

import math
from typing import Any

import numpy as np

from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.results import coordinates
from icl_interp.studies.linear_attention.measurements.setting import (
    SOURCE,
    needs_layer,
    needs_path,
    needs_regression,
    never_asked,
    not_learned,
    task_in,
    trained_landscape,
)
from icl_interp.studies.linear_attention.measurements.weights import maps, numbers, path, product, share_of_identity

NEAR, FAR = 0.05, 0.2  # relative distances that count as reached, and as not
AT_REST = 1e-9  # excess over the least loss below which differences of losses are rounding
MIN_POINTS = 5  # snapshots for a statement about a path
IDENTITY, OTHER = 0.9, 0.5
SCOPE = "these weights, this task; exact, nothing is sampled"


def _numbers(results: Results) -> dict[str, float]:
    table = results[numbers]
    return dict(zip(table["name"], table["value"], strict=True))


# ---- Theorems 4.1 and 4.5: where training ends -----------------------------------------------------------------------

CONVERGED = Criterion(
    f"|P - P*|_F / |P*|_F of the invariant product: <= {NEAR:g} / > {FAR:g}",
    (Condition("distance", (-INF, NEAR), (FAR, INF)),),
)


def converged(results: Results, facts: Facts) -> Evidence:
    """Is P that of the optimum?"""
    found, twin = _numbers(results), _numbers(results.twin)
    theorem = "4.5" if task_in(facts).random_covariance else "4.1"
    says = (
        f"|P - P*| is {found['distance']:.3g} of |P*| (Theorem {theorem}) and the loss {found['excess']:.2g} above the "
        "least, relative to it"
    )
    if "aligned distance" in found:
        says += (
            f"; after scaling to |v| = |F|, (W_PV, W_KQ) is {found['aligned distance']:.3g} of |W*| from W*, with "
            f"{100 * found['share of v in w21']:.3g} % of v in w21, where W* has none"
        )
    if found["distance"] > FAR and found["distance from rank one"] <= FAR:
        says += (
            f". It is at the rank-one trap (distance {found['distance from rank one']:.2g}): another stationary "
            "point, with w22 = 0 and the work done by w21, out of reach from the theorem's start but not from random "
            "weights"
        )
    if found["outside"] > NEAR:
        says += f". Biases and weights past attention, which an LSA layer has not, reach {found['outside']:.2g}"
    name = "|P - P*| / |P*|"
    details = tuple({"number": key, "model": found[key], "untrained twin": twin.get(key)} for key in found)
    return Evidence(
        {"distance": Estimate.exactly(name, found["distance"])},
        says + ".",
        scope=SCOPE,
        twin={"distance": Estimate.exactly(name, twin["distance"])},
        details=details,
    )


def _needs_gradient_flow(facts: Facts) -> str | None:
    reason = _needs_one_head(facts)
    if facts.optimizer and not reason:
        return f"the lemma is about gradient flow, and this model was trained with {facts.optimizer}"
    return reason


# ---- balancedness ----------------------------------------------------------------------------------------------------

BALANCED = Criterion(
    "largest | |v|^2 - |F|^2 | / max(|v|^2, |F|^2) over the snapshots, v the last row of W_PV and F the first d "
    f"columns of W_KQ (u^2 - |U|^2 where w21 = 0): <= {NEAR:g} / > {FAR:g}. Without snapshots the end alone is known, "
    "which can contradict and not support",
    # Few snapshots say little of the way, so they cannot support; weights far from balance contradict all the same.
    (Condition("imbalance", (-INF, NEAR), (FAR, INF)), Condition("snapshots", (MIN_POINTS, INF), None)),
)


def _needs_one_head(facts: Facts) -> str | None:
    reason = needs_layer(facts)
    if reason or facts.config.n_heads == 1:
        return reason
    return "the law is about one head: u and U of several are not defined."


def balanced(results: Results, facts: Facts) -> Evidence:
    """Is u^2 = |U|^2 all along?"""
    curve, found = results[path], _numbers(results)
    v2, f2 = curve.sel(quantity="|v|^2").values, curve.sel(quantity="|F|^2").values
    along = np.abs(v2 - f2) / np.maximum(np.maximum(v2, f2), 1e-300)
    end = abs(found["imbalance"])
    worst = max(end, *along.tolist()) if len(along) else end
    says = f"|v|^2 and |F|^2 differ by up to {100 * worst:.3g} % of the larger one"
    if len(along):
        first, last = (100 * float(along[i]) for i in (0, -1))
        says += f" over {len(along)} snapshots: {first:.3g} % at the first, {last:.3g} % at the last"
        drift = float(curve.sel(quantity="drift of factors").values[-1])
        says += f"; A_Q'A_Q - A_K'A_K, which gradient flow on the factors conserves, moved by {100 * drift:.2g} %"
    else:
        says += " at the end (no snapshots were kept, so the way there is not known)"
    says += (
        ". The law is one of gradient flow on W_PV and W_KQ from a balanced start: neither Adam nor flow on factors of "
        "them has to keep it"
    )
    rows: list[dict[str, Any]] = [
        {"step": step, "|v|^2": float(a), "|F|^2": float(b)}
        for step, a, b in zip(coordinates(curve, "step"), v2, f2, strict=True)
    ]
    name, twin = "largest imbalance", abs(_numbers(results.twin)["imbalance"])
    quantities = {
        "imbalance": Estimate.exactly(name, worst),
        "snapshots": Estimate.exactly("snapshots on the way", len(along)),
    }
    return Evidence(
        quantities, says + ".", scope=SCOPE, twin={"imbalance": Estimate.exactly(name, twin)}, details=tuple(rows)
    )


# ---- Lemma 5.4: the PL inequality ------------------------------------------------------------------------------------

PL = Criterion(
    "least |grad L|^2 / (mu (L - min L)) over the snapshots that do better than predicting 0, log10, mu of Lemma 5.4 "
    "with what has been gained at that snapshot: >= 0 / < 0",
    (Condition("ratio", (0.0, INF), (-INF, 0.0)),),
    (
        Precondition(
            "usable snapshots",
            (MIN_POINTS, INF),
            f"Only {{value:.0f}} snapshots do better than predicting 0 and have not arrived; {MIN_POINTS} are needed.",
        ),
    ),
)


def pl(results: Results, facts: Facts) -> Evidence:
    """Is the gradient as large as the lemma has it, everywhere on the way?"""
    curve = results[path]
    where = trained_landscape(task_in(facts))
    least = float(where.minimum + where.label_moment / 2)
    excess, bound, square = (curve.sel(quantity=name).values for name in ("excess", "PL bound", "squared gradient"))
    usable = np.isfinite(bound) & (bound > 0) & (excess > AT_REST * least)
    n_usable = int(usable.sum())
    name = "snapshots that do better than predicting 0 and have not arrived"
    quantities = {"usable snapshots": Estimate.exactly(name, n_usable)}
    if n_usable < MIN_POINTS:
        return Evidence(quantities, f"The run kept {curve.sizes['step']} snapshots.")
    ratio = square[usable] / bound[usable]
    steps = curve["step"].values[usable]
    at = int(ratio.argmin())
    least_ratio = math.log10(max(float(ratio[at]), 1e-300))
    quantities["ratio"] = Estimate.exactly("least |grad L|^2 / (mu x excess)", least_ratio, "log10")
    says = (
        f"over {n_usable} snapshots |grad L|^2 is at least {ratio[at]:.3g} times the bound (step "
        f"{steps[at]:.0f}) and {float(np.median(ratio)):.3g} times in the median; the excess falls from "
        f"{excess[usable][0]:.2g} to {excess[usable][-1]:.2g}"
    )
    if task_in(facts).random_covariance:
        says += ". For random covariances the bound is the lemma's argument with expectations, in w22 and W11 alone"
    if ratio[at] < 1:
        says += (
            ". The lemma holds on the flow from its own start, where w21 = 0 and u^2 = |U|^2; here the gradient all "
            "but vanishes away from the minimum"
        )
    rows = tuple(
        {"step": float(s), "|grad L|^2": float(g), "mu x excess": float(b)}
        for s, g, b in zip(steps, square[usable], bound[usable], strict=True)
    )
    return Evidence(quantities, says + ".", scope="the snapshots of this run; exact losses and gradients", details=rows)


# ---- multiples of the identity ---------------------------------------------------------------------------------------

IDENTITIES = Criterion(
    "least tr(A)^2 / (r |A|^2) over W_K^T W_Q and W_P W_V of every head, r the rank it can have: "
    f">= {IDENTITY:g} / <= {OTHER:g}",
    (Condition("share", (IDENTITY, INF), (-INF, OTHER)),),
)


def _needs_maps(facts: Facts) -> str | None:
    reason = needs_regression(facts)
    if reason:
        return reason
    if facts.config.mlp_only:
        return "the model has no attention"
    return "with d = 1 every map is a multiple of the identity" if task_in(facts).dim == 1 else None


def identity(results: Results, facts: Facts) -> Evidence:
    """Are the maps of every head nearly multiples of the identity?"""
    result, fresh = results[maps], results.twin[maps]
    rows = [
        {"map": name, "layer": i, "head": h, "share": float(result.sel(map=name, layer=i, head=h).values)}
        for name in result.indexes["map"]
        for i in result.indexes["layer"]
        for h in result.indexes["head"]
    ]
    least = {name: float(result.sel(map=name).values.min()) for name in result.indexes["map"]}
    says = "; ".join(f"{name}: {share:.3g}" for name, share in least.items())
    if len(rows) > len(least):
        says += " (the least over heads)"
    if needs_layer(facts) is None:
        expected = share_of_identity(trained_landscape(task_in(facts)).product)
        says += f". At the optimum W_K^T W_Q has {expected:.3g}, which is 1 for equal variances only, and W_P W_V 1"
    else:
        says += ". In a stream that other weights rotate, no map has to be one"
    name = "least share of the identity"
    return Evidence(
        {"share": Estimate.exactly(name, min(least.values()))},
        says + ".",
        scope="these weights",
        twin={"share": Estimate.exactly(name, float(np.min(fresh.values)))},
        details=tuple(rows),
    )


CONVERGED_CLAIM = Claim(
    id="linear_attention.converged",
    question="weights and training",
    short="Training linear attention ends at the global minimum of the loss.",
    quote=Quote(
        "the gradient flow of linear self-attention network f*_LSA (prove PL inequality holds) converges "
        "(exponentially about t) to a global minimum of the population loss L(θ).",
        "Zhang, Frei & Bartlett (2023), in Wu's slides (2025), slide 20, Theorem 4.1 (Theorem 4.5 on "
        "slide 29 for random covariances)",
        "The theorem is about gradient flow, gradient descent with infinitely small steps, from a special"
        " start. We take whatever training made the weights, and compare the product of the value and the"
        " query-key weights with the minimum's, because one may be scaled up and the other down.",
    ),
    kind="learning",
    statement="Training a layer of linear self-attention ends at the global minimum W*, up to a scale",
    source=f"{SOURCE}, Theorems 4.1 and 4.5",
    criterion=CONVERGED,
    measurements=(product, numbers),
    twin=(numbers,),
    aspects=("single layer", "single head", "kind of task"),
    evidence=converged,
    excluded=needs_layer,
    learned=never_asked,
)

BALANCED_CLAIM = Claim(
    id="linear_attention.balanced",
    question="weights and training",
    short="Value and query-key weights keep the same size during training.",
    quote=Quote(
        "lemma A.3 says the parameters in the LSA model will keep 'balanced' in the whole trajectory.",
        "Zhang, Frei & Bartlett (2023), in Wu's slides (2025), Lemma A.3 (after slide 47), equation "
        "(A.12): u² = tr(U U^T)",
        "In the lemma u is the last entry of the value matrix and U the first d rows and columns of the "
        "query-key matrix; it is about gradient flow. We check the snapshots of a training by "
        "gradient flow; a model that Adam trained is not asked.",
    ),
    kind="learning",
    statement="u² = |U|² all along training: value and query-key weights stay of one size",
    source=f"{SOURCE}, Lemma A.3 (balancedness)",
    criterion=BALANCED,
    measurements=(path, numbers),
    twin=(numbers,),
    aspects=("balance", "single layer", "single head", "kind of task"),
    evidence=balanced,
    excluded=_needs_gradient_flow,
    learned=never_asked,
)

PL_INEQUALITY_CLAIM = Claim(
    id="linear_attention.pl_inequality",
    question="weights and training",
    short="The loss meets the Polyak-Łojasiewicz inequality throughout training.",
    quote=Quote(
        "Finally, we show that although the optimization problem is non-convex, a Polyak-Łojasiewicz (PL)"
        " inequality holds, which implies that gradient flow converges to a global minimum.",
        "Zhang, Frei & Bartlett (2023), in Wu's slides (2025), 'Sketch of proof', last item (the lemma "
        "itself: Lemma 5.4, slide 47)",
        "The inequality says that the squared gradient is at least μ times the excess of the loss over "
        "its minimum; μ > 0 is a constant given in the lemma. The lemma is about gradient flow from a "
        "special start; we check the inequality at the snapshots of a real training.",
    ),
    kind="architecture",
    statement="The loss meets the Polyak-Lojasiewicz inequality all along training: |∇L|² >= mu (L - min L)",
    source=f"{SOURCE}, Lemma 5.4",
    criterion=PL,
    measurements=(path,),
    aspects=("single layer", "single head", "kind of task"),
    evidence=pl,
    excluded=needs_path,
    figures=("linear_attention",),
)

IDENTITY_MAPS_CLAIM = Claim(
    id="linear_attention.identity_maps",
    question="weights and training",
    short="Query-key and value-output maps are nearly multiples of the identity.",
    quote=Quote(
        "It is noteworthy that recent empirical work shows that state-of-the-art trained vision "
        "transformers with standard softmax-based attention modules are such that (W^K)^T W^Q and W^P W^V"
        " are nearly multiples of the identity matrix [TK23] ...",
        "Wu's slides (2025) on Zhang, Frei & Bartlett (2023), slide 14, Remark (after Trockman & Kolter, 2023)",
        "The remark is about vision transformers. We ask it of every head of models that are trained on "
        "linear regression.",
    ),
    kind="learning",
    statement="W_K^T W_Q and W_P W_V are nearly multiples of the identity",
    source="Wu's slides on Zhang et al. (2023), after Trockman & Kolter (2023) on vision transformers",
    criterion=IDENTITIES,
    measurements=(maps,),
    twin=(maps,),
    aspects=("weight maps", "single layer", "single head", "kind of task"),
    evidence=identity,
    excluded=_needs_maps,
    learned=not_learned,
)
