"""The claim of `linear_attention` that the layer's maps are multiples of the identity."""

from icl_interp.analyses import tie
from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.tie import TIED
from icl_interp.studies.linear_attention.claims.weights import TIED_TEXT
from icl_interp.studies.linear_attention.measurements.setting import (
    needs_layer,
    needs_theory,
    not_learned,
    task_in,
    trained_landscape,
)
from icl_interp.studies.linear_attention.measurements.tied import tied
from icl_interp.studies.linear_attention.measurements.weights import maps, share_of_identity

IDENTITY, OTHER = 0.9, 0.5

IDENTITIES = Criterion(
    (Condition("share", "", (IDENTITY, INF), (-INF, OTHER)),),
    TIED,
    terms=(
        "share of a map A that is a multiple of the identity, tr(A)^2 / (d |A|^2), in the coordinates "
        f"of tokens, the least over W_K^T W_Q and W_P W_V, summed over heads: >= {IDENTITY:g} / <= "
        f"{OTHER:g}{TIED_TEXT}"
    ),
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
    result, fresh = results[maps], results.control[maps]
    shares = dict(zip(result.indexes["map"], result.values.tolist(), strict=True))
    name = "least share of a map that is a multiple of the identity"
    quantities = {"share": Estimate.exactly(name, min(shares.values())), **tie.tied(results[tied])}
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
        control={"share": Estimate.exactly(name, float(fresh.values.min()))},
        details=tuple({"map": one, "share": share} for one, share in shares.items()),
        caveat=f"At the minimum of the loss W_K^T W_Q has {expected:.3g}, which is 1 for equal "
        "variances only.",
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
    measurements=(maps, tied),
    about_weights=True,
    control=(maps,),
    aspects=("weight maps", "single layer", "single head", "kind of task"),
    evidence=identity,
    excluded=_needs_maps,
    learned=not_learned,
)
