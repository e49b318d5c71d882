"""The claim of `linear_attention` that value and query-key weights keep the same size."""

from typing import Any

import numpy as np

from icl_interp.analyses import tie
from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.tie import TIED
from icl_interp.results import coordinates
from icl_interp.studies.linear_attention.claims.weights import (
    FAR,
    MIN_POINTS,
    NEAR,
    SCOPE,
    TIED_TEXT,
    stored_numbers,
)
from icl_interp.studies.linear_attention.measurements.setting import (
    SOURCE,
    needs_layer,
    never_asked,
)
from icl_interp.studies.linear_attention.measurements.tied import tied
from icl_interp.studies.linear_attention.measurements.weights import numbers, path


def _needs_gradient_flow(facts: Facts) -> str | None:
    reason = _needs_one_head(facts)
    if facts.optimizer and not reason:
        return (
            "The claim is about training by gradient flow; this model was trained with "
            f"{facts.optimizer}"
        )
    return reason


BALANCED = Criterion(
    (
        Condition("imbalance", "", (-INF, NEAR), (FAR, INF)),
        Condition("snapshots", "", (MIN_POINTS, INF), None),
    ),
    TIED,
    terms=(
        "difference between the squared sizes of the value weights v (last row of W_PV) and the "
        "query-key weights F (first d columns of W_KQ), over the larger of the two, the largest over "
        f"the snapshots: <= {NEAR:g} / > {FAR:g}. With fewer than {MIN_POINTS} snapshots the way is "
        f"not known, so that they can contradict and not support{TIED_TEXT}"
    ),
)


def _needs_one_head(facts: Facts) -> str | None:
    reason = needs_layer(facts)
    if reason or facts.config.n_heads == 1:
        return reason
    return f"The claim is about one head; this model has {facts.config.n_heads}"


def balanced(results: Results, facts: Facts) -> Evidence:
    """Is u^2 = |U|^2 all along?"""
    curve, found = results[path], stored_numbers(results)
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
    control = {
        "imbalance": Estimate.exactly(name, abs(stored_numbers(results.control)["imbalance"]))
    }
    return Evidence(
        quantities, says, scope=SCOPE, control=control, details=tuple(rows), caveat=caveat
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
    control=(numbers,),
    aspects=("balance", "single layer", "single head", "kind of task"),
    evidence=balanced,
    excluded=_needs_gradient_flow,
    learned=never_asked,
)
