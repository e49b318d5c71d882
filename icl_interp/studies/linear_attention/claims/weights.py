"""The claims of `linear_attention` that are read off weights: where training ended, and how it got there."""

import math
from typing import Any

import numpy as np

from icl_interp.analyses import tie
from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.tie import TIED
from icl_interp.resampling import bootstrap
from icl_interp.results import coordinates, numbers_in
from icl_interp.studies.linear_attention.measurements.setting import (
    SAME_EVIDENCE,
    SOURCE,
    needs_layer,
    needs_path,
    needs_theory,
    never_asked,
    not_learned,
    task_in,
    trained_landscape,
)
from icl_interp.studies.linear_attention.measurements.tied import LEARNED, learned, loss, tied
from icl_interp.studies.linear_attention.measurements.weights import (
    maps,
    numbers,
    path,
    product,
    share_of_identity,
)

NEAR, FAR = 0.05, 0.2  # relative distances that count as reached, and as not
CLOSE, WORSE = (
    1.05,
    1.25,
)  # ratios of the model's error to that of the minimum that count as reached, and as not
# Squared gradient over its bound from which the inequality fails: losses have rounding, and so has
# this.
PL_FAILS = 0.5
AT_REST = 1e-9  # excess over the least loss below which differences of losses are rounding
MIN_POINTS = 5  # snapshots for a statement about a path
IDENTITY, OTHER = 0.9, 0.5
SCOPE = "these weights, this task; exact, nothing is sampled"
TIED_TEXT = ". Judged where the product of the weights makes the predictions"


def _numbers(results: Results) -> dict[str, float]:
    return numbers_in(results[numbers])


# ---- Theorems 4.1 and 4.5: where training ends ---------------------------------------------------

CONVERGED = Criterion(
    "distance of the layer's product of value and query-key weights from that of the minimum of "
    f"the loss, over the size of the latter (|P - P*| / |P*|, Frobenius norm): <= {NEAR:g} / > "
    f"{FAR:g}; and the model's mean squared error over that of the minimum, on the same prompts: "
    f"<= {CLOSE:g} / > {WORSE:g}{TIED_TEXT}",
    (
        Condition("distance", (-INF, NEAR), (FAR, INF)),
        Condition("loss", (-INF, math.log(CLOSE)), (math.log(WORSE), INF)),
    ),
    TIED,
)


def converged(results: Results, facts: Facts) -> Evidence:
    """Is P that of the optimum?"""
    found, twin = _numbers(results), _numbers(results.twin)
    theorem = "4.5" if task_in(facts).random_covariance else "4.1"
    name = "distance of the weights' product from that of the minimum, |P - P*| / |P*|"
    excess = bootstrap(lambda own, least: np.log(own / least), *results[loss].values)
    error = "mean squared error / that of the minimum on the same prompts"
    quantities = {
        "distance": Estimate.exactly(name, found["distance"]),
        "loss": Estimate.of(error, excess, "ln"),
        **tie.tied(results[tied]),
    }
    says = answer(
        CONVERGED,
        quantities,
        f"Training has ended at the global minimum of the loss (Theorem {theorem}).",
        f"Training has not ended at the global minimum of the loss (Theorem {theorem}).",
        f"training has ended at the global minimum of the loss (Theorem {theorem})",
    )
    threshold = bound(
        CONVERGED, quantities, "distance", f"at most {100 * NEAR:g} %", f"more than {100 * FAR:g} %"
    )
    says += (
        f" The product of the value and query-key weights is {100 * found['distance']:.3g} % away "
        f"from that of the minimum ({threshold}), and its mean squared error is "
        f"{math.exp(excess.value):.4g} times the least."
    )
    if found["distance"] > FAR and found["distance from rank one"] <= FAR:
        caveat = (
            "It is at another stationary point of the loss, the rank-one trap "
            f"({100 * found['distance from rank one']:.2g} % away), which random weights can reach "
            "and the theorem's start cannot."
        )
    elif found["outside"] > NEAR:
        caveat = (
            "Biases and weights past attention, which the theorem's layer does not have, reach "
            f"{found['outside']:.2g}."
        )
    else:
        caveat = (
            f"By the weights the loss is {100 * found['excess']:.2g} % above its minimum. "
            f"{SAME_EVIDENCE}"
        )
    details = tuple(
        {"number": key, "model": found[key], "randomly initialised control": twin.get(key)}
        for key in found
    )
    return Evidence(
        quantities,
        says,
        scope=SCOPE,
        twin={"distance": Estimate.exactly(name, twin["distance"])},
        details=details,
        caveat=caveat,
    )


def _needs_gradient_flow(facts: Facts) -> str | None:
    reason = _needs_one_head(facts)
    if facts.optimizer and not reason:
        return (
            "The claim is about training by gradient flow; this model was trained with "
            f"{facts.optimizer}"
        )
    return reason


# ---- balancedness --------------------------------------------------------------------------------

BALANCED = Criterion(
    "difference between the squared sizes of the value weights v (last row of W_PV) and the "
    "query-key weights F (first d columns of W_KQ), over the larger of the two, the largest over "
    f"the snapshots: <= {NEAR:g} / > {FAR:g}. With fewer than {MIN_POINTS} snapshots the way is "
    f"not known, so that they can contradict and not support{TIED_TEXT}",
    # Few snapshots say little of the way, so they cannot support; weights far from balance
    # contradict all the same.
    (
        Condition("imbalance", (-INF, NEAR), (FAR, INF)),
        Condition("snapshots", (MIN_POINTS, INF), None),
    ),
    TIED,
)


def _needs_one_head(facts: Facts) -> str | None:
    reason = needs_layer(facts)
    if reason or facts.config.n_heads == 1:
        return reason
    return f"The claim is about one head; this model has {facts.config.n_heads}"


def balanced(results: Results, facts: Facts) -> Evidence:
    """Is u^2 = |U|^2 all along?"""
    curve, found = results[path], _numbers(results)
    v2, f2 = curve.sel(quantity="|v|^2").values, curve.sel(quantity="|F|^2").values
    along = np.abs(v2 - f2) / np.maximum(np.maximum(v2, f2), 1e-300)
    end = abs(found["imbalance"])
    worst = max(end, *along.tolist()) if len(along) else end
    name = (
        "difference between the squared sizes of value and query-key weights, over the larger, "
        "largest on the way"
    )
    quantities = {
        "imbalance": Estimate.exactly(name, worst),
        "snapshots": Estimate.exactly("snapshots on the way", len(along)),
        **tie.tied(results[tied]),
    }
    says = answer(
        BALANCED,
        quantities,
        "Value and query-key weights keep the same size during training.",
        "Value and query-key weights do not keep the same size during training.",
        "value and query-key weights keep the same size during training",
    )
    threshold = bound(
        BALANCED, quantities, "imbalance", f"at most {100 * NEAR:g} %", f"more than {100 * FAR:g} %"
    )
    says += (
        f" Their squared sizes differ by up to {100 * worst:.3g} % of the larger one ({threshold})."
    )
    rows: list[dict[str, Any]] = [
        {
            "step": step,
            "|v|^2": float(a),
            "|F|^2": float(b),
            "difference over the larger": float(gap),
        }
        for step, a, b, gap in zip(coordinates(curve, "step"), v2, f2, along, strict=True)
    ]
    if len(along):
        first, last = (100 * float(along[i]) for i in (0, -1))
        drift = float(curve.sel(quantity="drift of factors").values[-1])
        caveat = (
            f"Over {len(along)} snapshots the difference goes from {first:.3g} % to {last:.3g} %."
            if len(along) >= MIN_POINTS
            else (
                f"Only {len(along)} snapshots were kept, and {MIN_POINTS} are needed to know the "
                "way there."
            )
        )
        rows.append(
            {
                "number": "change of A_Q'A_Q - A_K'A_K, which flow on the factors conserves",
                "value": drift,
            }
        )
    else:
        caveat = "No snapshots were kept, so the way there is not known."
    twin = {"imbalance": Estimate.exactly(name, abs(_numbers(results.twin)["imbalance"]))}
    return Evidence(quantities, says, scope=SCOPE, twin=twin, details=tuple(rows), caveat=caveat)


# ---- Lemma 5.4: the PL inequality ----------------------------------------------------------------

PL = Criterion(
    "squared gradient of the loss over mu times the loss above its minimum, the least over the "
    "snapshots that do better than predicting 0, mu of Lemma 5.4 with what has been gained at that "
    f"snapshot: >= 1 / <= {PL_FAILS:g}"
    f"{TIED_TEXT}",
    # Between the regions lies a factor of 2. The lemma's bound is no sharp one: what misses it by a
    # hair does not show that the gradient gets lost, and losses have rounding.
    (Condition("ratio", (0.0, INF), (-INF, math.log10(PL_FAILS))),),
    (
        *TIED,
        Precondition(
            "usable snapshots",
            (MIN_POINTS, INF),
            "Only {value:.0f} snapshots do better than predicting 0 and are not yet at the minimum "
            f"({MIN_POINTS} needed).",
        ),
    ),
)


def pl(results: Results, facts: Facts) -> Evidence:
    """Is the gradient as large as the lemma has it, everywhere on the way?"""
    curve = results[path]
    where = trained_landscape(task_in(facts))
    least = float(where.minimum + where.label_moment / 2)
    excess, lemma, square = (
        curve.sel(quantity=name).values for name in ("excess", "PL bound", "squared gradient")
    )
    usable = np.isfinite(lemma) & (lemma > 0) & (excess > AT_REST * least)
    n_usable = int(usable.sum())
    name = "snapshots that do better than predicting 0 and are not yet at the minimum"
    quantities = {"usable snapshots": Estimate.exactly(name, n_usable), **tie.tied(results[tied])}
    if n_usable < MIN_POINTS:
        return Evidence(
            quantities,
            "So it cannot be told whether the gradient is as large as the inequality asks. The run "
            f"kept {curve.sizes['step']} snapshots.",
        )
    ratio = square[usable] / lemma[usable]
    steps = curve["step"].values[usable]
    at = int(ratio.argmin())
    least_ratio = math.log10(max(float(ratio[at]), 1e-300))
    name = "squared gradient / bound of the Polyak-Lojasiewicz inequality, the least over snapshots"
    quantities["ratio"] = Estimate.exactly(name, least_ratio, "log10")
    says = answer(
        PL,
        quantities,
        "The loss meets the Polyak-Lojasiewicz inequality at every snapshot of training that was "
        "tested.",
        "The loss does not meet the Polyak-Lojasiewicz inequality throughout training.",
        "the loss meets the Polyak-Lojasiewicz inequality throughout training",
    )
    says += (
        f" The squared gradient is at least {ratio[at]:.3g} times the bound (at step "
        f"{steps[at]:.0f}; "
        f"{bound(PL, quantities, 'ratio', 'at least 1', f'at most {PL_FAILS:g}')})."
    )
    caveat = (
        f"In the median of {n_usable} snapshots it is {float(np.median(ratio)):.3g} times the "
        "bound."
    )
    if ratio[at] < 1:
        caveat = (
            "The lemma is about the flow from its own start; from this one the gradient becomes "
            "small away from the minimum."
        )
    rows = tuple(
        {"step": float(s), "|grad L|^2": float(g), "mu x excess": float(b), "excess": float(e)}
        for s, g, b, e in zip(steps, square[usable], lemma[usable], excess[usable], strict=True)
    )
    scope = "the snapshots of this run; exact losses and gradients"
    if task_in(facts).random_covariance:
        scope += (
            "; for random covariances the bound is that of the lemma with expectations, in w22 and "
            "W11 alone"
        )
    return Evidence(quantities, says, scope=scope, details=rows, caveat=caveat)


# ---- multiples of the identity -------------------------------------------------------------------

IDENTITIES = Criterion(
    "share of a map A that is a multiple of the identity, tr(A)^2 / (d |A|^2), in the coordinates "
    f"of tokens, the least over W_K^T W_Q and W_P W_V, summed over heads: >= {IDENTITY:g} / <= "
    f"{OTHER:g}{TIED_TEXT}",
    (Condition("share", (IDENTITY, INF), (-INF, OTHER)),),
    (*TIED, LEARNED),
)


def _needs_maps(facts: Facts) -> str | None:
    reason = needs_layer(facts)
    if reason:
        basis = "elsewhere maps are those of the stream, whose basis other weights may rotate"
        return f"{reason.rstrip('.')}; {basis}" if needs_theory(facts) is None else reason
    one = (
        "The claim is about inputs of two coordinates or more, since with one every map is a "
        "multiple of the identity"
    )
    return one if task_in(facts).dim == 1 else None


def identity(results: Results, facts: Facts) -> Evidence:
    """Are the maps of the layer nearly multiples of the identity?"""
    result, fresh = results[maps], results.twin[maps]
    shares = dict(zip(result.indexes["map"], result.values.tolist(), strict=True))
    name = "least share of a map that is a multiple of the identity"
    quantities = {
        "share": Estimate.exactly(name, min(shares.values())),
        **tie.tied(results[tied]),
        **learned(results, facts),
    }
    says = answer(
        IDENTITIES,
        quantities,
        "The query-key and the value-output map are nearly multiples of the identity.",
        "Not both the query-key and the value-output map are nearly multiples of the identity.",
        "both maps are nearly multiples of the identity",
    )
    which = min(shares, key=lambda one: shares[one])
    threshold = bound(
        IDENTITIES, quantities, "share", f"at least {IDENTITY:g}", f"at most {OTHER:g}"
    )
    says += (
        f" The least share that a multiple of the identity has in a map is {shares[which]:.3g}, of "
        f"{which} ({threshold})."
    )
    expected = share_of_identity(trained_landscape(task_in(facts)).product)
    return Evidence(
        quantities,
        says,
        scope="these weights, in the coordinates of tokens",
        twin={"share": Estimate.exactly(name, float(fresh.values.min()))},
        details=tuple({"map": one, "share": share} for one, share in shares.items()),
        caveat=f"At the minimum of the loss W_K^T W_Q has {expected:.3g}, which is 1 for equal "
        "variances only.",
    )


CONVERGED_CLAIM = Claim(
    id="linear_attention.converged",
    question="weights and training",
    short="Training linear attention ends at the global minimum of the loss.",
    quote=Quote(
        "the gradient flow of linear self-attention network f*_LSA (prove PL inequality holds) "
        "converges (exponentially about t) to a global minimum of the population loss L(θ).",
        "Zhang, Frei & Bartlett (2023), in Wu's slides (2025), slide 20, Theorem 4.1 (Theorem 4.5 "
        "on slide 29 for random covariances)",
        "The theorem is about gradient flow, gradient descent with infinitely small steps, from a "
        "special"
        " start. We take whatever training made the weights, and compare the product of the value "
        "and the"
        " query-key weights with the minimum's, because one may be scaled up and the other down.",
    ),
    kind="learning",
    statement="Training a layer of linear self-attention ends at the global minimum W*, up to a "
    "scale",
    source=f"{SOURCE}, Theorems 4.1 and 4.5",
    criterion=CONVERGED,
    measurements=(product, numbers, loss, tied),
    about_weights=True,
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
        "lemma A.3 says the parameters in the LSA model will keep 'balanced' in the whole "
        "trajectory.",
        "Zhang, Frei & Bartlett (2023), in Wu's slides (2025), Lemma A.3 (after slide 47), "
        "equation (A.12): u² = tr(U U^T)",
        "In the lemma u is the last entry of the value matrix and U the first d rows and columns "
        "of the query-key matrix; it is about gradient flow on these matrices from a start with u² "
        "= |U|². Neither Adam nor a flow on factors of them has to keep it. We check the snapshots "
        "of a training by gradient flow; a model that Adam trained is not asked.",
    ),
    kind="learning",
    statement="Value and query-key weights keep the same size during training: u² = |U|²",
    source=f"{SOURCE}, Lemma A.3 (balancedness)",
    criterion=BALANCED,
    measurements=(path, numbers, tied),
    about_weights=True,
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
        "Finally, we show that although the optimization problem is non-convex, a "
        "Polyak-Łojasiewicz (PL)"
        " inequality holds, which implies that gradient flow converges to a global minimum.",
        "Zhang, Frei & Bartlett (2023), in Wu's slides (2025), 'Sketch of proof', last item (the "
        "lemma itself: Lemma 5.4, slide 47)",
        "The inequality says that the squared gradient is at least μ times the excess of the loss "
        "over its minimum; μ > 0 is a constant given in the lemma. The lemma is about gradient "
        "flow from a special start (w21 = 0, u² = |U|²); we check the inequality at the snapshots "
        "of a real training.",
    ),
    kind="architecture",
    statement="The loss meets the Polyak-Lojasiewicz inequality throughout training: |∇L|² >= mu "
    "(L - min L)",
    source=f"{SOURCE}, Lemma 5.4",
    criterion=PL,
    measurements=(path, tied),
    about_weights=True,
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
        "transformers with standard softmax-based attention modules are such that (W^K)^T W^Q and "
        "W^P W^V"
        " are nearly multiples of the identity matrix [TK23] ...",
        "Wu's slides (2025) on Zhang, Frei & Bartlett (2023), slide 14, Remark (after Trockman & "
        "Kolter, 2023)",
        "The remark is about vision transformers. We ask it of a layer of linear attention that is "
        "trained on linear regression, where maps are those of tokens: in deeper models other "
        "weights may rotate the stream.",
    ),
    kind="learning",
    statement="W_K^T W_Q and W_P W_V are nearly multiples of the identity",
    source="Wu's slides on Zhang et al. (2023), after Trockman & Kolter (2023) on vision "
    "transformers",
    criterion=IDENTITIES,
    measurements=(maps, tied, loss),
    about_weights=True,
    twin=(maps,),
    aspects=("weight maps", "single layer", "single head", "kind of task"),
    evidence=identity,
    excluded=_needs_maps,
    learned=not_learned,
)
