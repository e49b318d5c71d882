"""The claim of `linear_attention` that value and query-key weights keep the same size."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses import tie
from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import Condition, Criterion, Estimate, Found, at_least, at_most
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.natural import SHARE, natural
from icl_interp.analyses.tie import TIED
from icl_interp.results import coordinates
from icl_interp.studies.linear_attention.claims.weights import (
    FAR,
    MIN_POINTS,
    NEAR,
    SCOPE,
    TIED_TERMS,
    stored_numbers,
)
from icl_interp.studies.linear_attention.measurements.setting import needs_one_head, never_asked
from icl_interp.studies.linear_attention.measurements.tied import tied
from icl_interp.studies.linear_attention.measurements.weights import numbers, path

CRITERION = Criterion(
    (
        Condition(
            "imbalance",
            "largest difference between the squared sizes, over the larger one",
            at_most(NEAR),
            at_least(FAR),
            unit="share",
        ),
        Condition("snapshots", "number of snapshots of training", at_least(MIN_POINTS)),
    ),
    TIED,
    terms="The sizes are those of the value weights v (last row of W_PV) and of the query-key "
    "weights F (first d columns of W_KQ). The difference is the largest over all snapshots of "
    f"training. {TIED_TERMS}",
)


def _along(curve: DataArray) -> np.ndarray:
    """The difference of the squared sizes over the larger one, at each snapshot."""
    v2 = curve.sel(quantity="|v|^2").values
    f2 = curve.sel(quantity="|F|^2").values
    larger = np.maximum(v2, f2)
    apart = np.abs(v2 - f2)
    return np.asarray(apart / np.maximum(larger, 1e-300))


def _at_the_end(results: Results) -> float:
    return abs(stored_numbers(results)["imbalance"])


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """The largest imbalance on the way and at its end, and how much of the way is known."""
    along = _along(results[path])
    everywhere = [_at_the_end(results), *along.tolist()]
    return {"imbalance": max(everywhere), "snapshots": len(along), **tie.tied(results[tied])}


def of_control(results: Results, facts: Facts) -> dict[str, Found]:
    """The imbalance of a model without training, which has no way."""
    return {"imbalance": _at_the_end(results.control)}


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """How the imbalance changes on the way."""
    curve = results[path]
    along = _along(curve)
    n_snapshots = len(along)
    if not n_snapshots:
        return Remarks(
            SCOPE,
            "No snapshots of training were kept, so it is not known how the weights got there.",
        )
    if n_snapshots >= MIN_POINTS:
        first = natural(float(along[0]), SHARE)
        last = natural(float(along[-1]), SHARE)
        caveat = f"Over {n_snapshots} snapshots the difference goes from {first} to {last}."
    else:
        caveat = f"Only {n_snapshots} snapshots of training were kept, and {MIN_POINTS} are needed."
    # A row for each snapshot, and what a flow on the factors of the matrices conserves.
    rows: list[dict[str, Any]] = []
    for i, step in enumerate(coordinates(curve, "step")):
        here = curve.isel(step=i)
        row: dict[str, Any] = {"step": step}
        for name in ("|v|^2", "|F|^2"):
            row[name] = float(here.sel(quantity=name))
        row["difference over the larger"] = float(along[i])
        rows.append(row)
    drift = float(curve.sel(quantity="drift of factors").values[-1])
    rows.append(
        {
            "number": "change of A_Q'A_Q - A_K'A_K, which flow on the factors conserves",
            "value": drift,
        }
    )
    return Remarks(SCOPE, caveat, details=tuple(rows))


def _needs_gradient_flow(facts: Facts) -> str | None:
    reason = needs_one_head(facts)
    if facts.optimizer and not reason:
        return (
            "The claim is about training by gradient flow; this model was trained with "
            f"{facts.optimizer}"
        )
    return reason


BALANCED_CLAIM = Claim(
    id="linear_attention.balanced",
    question="weights and training",
    statement="Value and query-key weights keep the same size during training.",
    denied="Value and query-key weights do not keep the same size during training.",
    quote=Quote(
        "lemma A.3 says the parameters in the LSA model will keep 'balanced' in the whole "
        "trajectory.",
        "Zhang, Frei & Bartlett (2023), in Wu's slides (2025), Lemma A.3 (after slide 47), "
        "equation (A.12): u² = tr(U U^T)",
        "In the lemma u is the last entry of the value matrix and U the first d rows and columns "
        "of the query-key matrix; it is about gradient flow on these matrices from a start with "
        "u² = |U|². Neither Adam nor a flow on factors of these matrices has to keep it. We check "
        "the snapshots of a training by gradient flow, and do not judge models that Adam trained.",
    ),
    kind="learning",
    reads="weights of the layer during training",
    criterion=CRITERION,
    measurements=(path, numbers, tied),
    about_weights=True,
    control=(numbers,),
    aspects=("balance", "single layer", "single head", "kind of task"),
    evidence=evidence,
    untrained=of_control,
    remarks=remarks,
    excluded=_needs_gradient_flow,
    learned=never_asked,
)
