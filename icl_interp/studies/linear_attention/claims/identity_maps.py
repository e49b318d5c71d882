"""The claim of `linear_attention` that the layer's maps are multiples of the identity."""

from collections.abc import Mapping

from icl_interp.analyses import tie
from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import Condition, Criterion, Estimate, Found, at_least, at_most
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.tie import TIED
from icl_interp.studies.linear_attention.claims.weights import TIED_TERMS
from icl_interp.studies.linear_attention.measurements.setting import (
    needs_layer,
    needs_theory,
    not_learned,
    task_in,
    trained_landscape,
)
from icl_interp.studies.linear_attention.measurements.tied import tied
from icl_interp.studies.linear_attention.measurements.weights import maps, share_of_identity

IDENTITY = 0.9
OTHER = 0.5

CRITERION = Criterion(
    (
        Condition(
            "share",
            "smallest share of a map that is a multiple of the identity",
            at_least(IDENTITY),
            at_most(OTHER),
            unit="share",
        ),
    ),
    TIED,
    terms="The share of a map A is tr(A)^2 / (d |A|^2). The maps are W_K^T W_Q and W_P W_V in the "
    f"coordinates of tokens, summed over heads. {TIED_TERMS}",
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


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """The least share that a multiple of the identity has in a map of the layer."""
    return {"share": float(results[maps].values.min()), **tie.tied(results[tied])}


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """Which map has the least share, and what the share is at the minimum of the loss."""
    shares = results[maps]
    names = list(shares.indexes["map"])
    least = names[int(shares.values.argmin())]
    expected = share_of_identity(trained_landscape(task_in(facts)).product)
    return Remarks(
        scope="these weights, in the coordinates of tokens; at the minimum of the loss W_K^T W_Q "
        "is a multiple of the identity for equal variances only",
        caveat=f"The map is {least}; at the minimum of the loss W_K^T W_Q has "
        f"{100 * expected:.3g} %.",
        details=tuple({"map": one, "share": float(shares.sel(map=one))} for one in names),
    )


IDENTITY_MAPS_CLAIM = Claim(
    id="linear_attention.identity_maps",
    question="weights and training",
    statement="The query-key and the value-output map are nearly multiples of the identity.",
    denied="The query-key map or the value-output map is not nearly a multiple of the identity.",
    quote=Quote(
        "It is noteworthy that recent empirical work shows that state-of-the-art trained vision "
        "transformers with standard softmax-based attention modules are such that (W^K)^T W^Q and "
        "W^P W^V"
        " are nearly multiples of the identity matrix [TK23] ...",
        "Wu's slides (2025) on Zhang, Frei & Bartlett (2023), slide 14, Remark (after Trockman & "
        "Kolter, 2023)",
        "The remark is about vision transformers. We test it on a layer of linear attention that "
        "is trained on linear regression. There the maps act on tokens themselves; in deeper "
        "models other weights may rotate the stream.",
    ),
    kind="learning",
    reads="weights of the layer",
    criterion=CRITERION,
    measurements=(maps, tied),
    about_weights=True,
    control=(maps,),
    of_control=("share",),
    aspects=("weight maps", "single layer", "single head", "kind of task"),
    evidence=evidence,
    remarks=remarks,
    excluded=_needs_maps,
    learned=not_learned,
)
