"""The claim of `autoregression` on single heads: Sander's identity.

a_h and b_h' of different heads are orthogonal.
"""

from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from torch import Tensor

from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import (
    Condition,
    Criterion,
    Estimate,
    Found,
    Precondition,
    at_least,
    at_most,
)
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.tie import EXPLAINED, TIED
from icl_interp.studies.autoregression.measurements import distinct_heads
from icl_interp.studies.autoregression.measurements.ties import (
    COMPLEX,
    diagonals_tie,
    tied_everywhere,
)
from icl_interp.studies.autoregression.measurements.unit import (
    PAPER,
    Heads,
    complex_heads,
    heads,
    n_complex,
    needs_unit,
    positions,
    process_in,
    stored_heads,
)

SMALL = 0.1  # of the largest |cosine| between two heads
LARGE = 0.3
RARE = 0.025  # share of random heads that are as orthogonal

LARGEST = Condition(
    "largest",
    "largest |cosine| between one head's key diagonal and another's value diagonal",
    at_most(SMALL, least=0.0),
    at_least(LARGE, most=1.0),
)
POSITION = Condition(
    "position",
    "share of sets of random heads whose largest |cosine| is no larger",
    at_most(RARE, least=0.0),
    unit="share",
)
AS_MANY = Precondition(
    "heads",
    (0, 0),
    "The claim is about two different real heads for each complex coordinate, and this model's "
    "number is {value:+.0f} off (copies count as one, and so do heads that cancel each other; "
    "heads that write nothing do not count).",
)
READS = Precondition(
    "reading",
    at_least(EXPLAINED),
    "The claim is about complex heads with diagonal matrices, which explain only "
    f"{{value:.2g}} of this model's predictions after some state ({EXPLAINED:g} needed).",
)

CRITERION = Criterion(
    (LARGEST, POSITION),
    (AS_MANY, READS, *TIED),
    terms="The |cosine| is |a_h . b_h'| / (|a_h| |b_h'|), where a_h is the key diagonal of a "
    "complex head and b_h' the value diagonal of another one. A complex head is a pair of real "
    "ones.",
)


def needs_as_many_heads(facts: Facts) -> str | None:
    """Why there are not as many complex heads as coordinates."""
    if reason := needs_unit(facts):
        return reason
    n_heads = facts.config.n_heads
    dim = n_complex(process_in(facts))
    if dim < 2:
        return (
            "The claim is about two complex coordinates or more, and as many heads; the states "
            "have one"
        )
    if n_heads < 2 * dim:
        return (
            f"The claim is about as many complex heads as complex coordinates, {dim} ({2 * dim} "
            f"real heads); this model has {n_heads} real heads"
        )
    return None


def as_many(results: Results, facts: Facts) -> Heads:
    """As many complex heads as coordinates, of a model or its control: the largest that differ."""
    real = distinct_heads.distinct(stored_heads(results[heads]))
    sizes = real.keys.norm(dim=1) * real.values.norm(dim=1)
    n_pairs = min(n_complex(process_in(facts)), len(sizes) // 2)
    kept = sizes.argsort(descending=True)[: 2 * n_pairs].sort().values
    return complex_heads(Heads(real.keys[kept], real.values[kept]))


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """The largest cosine between complex heads, and its place among those of random heads."""
    n_real = len(distinct_heads.distinct(stored_heads(results[heads])).keys)
    numbers: dict[str, Found] = {"heads": n_real - 2 * n_complex(process_in(facts))}
    # Cosines, where there are two complex heads at least.
    found = as_many(results, facts)
    if len(found.keys) >= 2:
        largest = distinct_heads.largest(distinct_heads.cosines(found)).clamp(max=1.0)
        by_chance = distinct_heads.random_largest(*found.keys.shape)
        position = (by_chance <= largest).double().mean()
        numbers |= {"largest": float(largest), "position": float(position)}
    # Complex heads predict something only where the number of real ones is even.
    tie = results[diagonals_tie]
    if COMPLEX in tie.indexes["heads"]:
        numbers |= tied_everywhere(tie.sel(heads=COMPLEX))
    return numbers


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """The cosines of all pairs of heads."""
    if "largest" not in found:
        return Remarks()
    complex_ones = as_many(results, facts)
    n_heads, dim = complex_ones.keys.shape
    by_chance = distinct_heads.random_largest(n_heads, dim)
    median = float(by_chance.median())
    rows = _by_pair(distinct_heads.cosines(complex_ones))
    rows.append({"complex heads": n_heads, "coordinates": dim, "median of random heads": median})
    return Remarks(
        scope="these weights; a_h stands on the key's side, b_h on the value's", details=tuple(rows)
    )


def _by_pair(cosines: Float[Tensor, "head head"]) -> list[dict[str, Any]]:
    """A row for each pair of heads."""
    rows = []
    for h, row in enumerate(cosines.tolist()):
        for g, cosine in enumerate(row):
            rows.append({"head h": h, "head h'": g, "|cosine| of a_h and b_h'": cosine})
    return rows


IDENTITY_CLAIM = Claim(
    id="autoregression.head_identity",
    question="weights and training",
    statement="The key diagonal of each head is orthogonal to the value diagonals of the other "
    "heads.",
    denied="Key and value diagonals of different heads are not all orthogonal.",
    quote=Quote(
        "The equality for corresponds to an orthogonality property between heads.",
        f"{PAPER}, section 5.1, 'Orthogonality', after Proposition 3 (the formula between "
        "'equality' and 'for' is lost in the text at hand; for as many heads as coordinates it is "
        "a_h . b_h' = 0 for h != h')",
        "The proposition is about minimisers of the loss for unitary W, and the product is between "
        "a_h and b_h': a_h . a_h' may be anything. We ask trained weights. This is wider where "
        "eigenvalues come in conjugate pairs: section 5.2 says of these that the result 'indicates "
        "an orthogonal property between heads' too, which holds for the minimisers with p_{T-1} = "
        "0 only. It is narrower because other numbers of heads are not asked: with more heads than "
        "coordinates the identity need not hold at a minimiser, since only with as many p_T B^T A "
        "= I gives p_T A B^T = I, which the identity is part of.",
    ),
    kind="learning",
    reads="weights of the heads",
    criterion=CRITERION,
    measurements=(heads, positions, diagonals_tie),
    control=(heads,),
    of_control=("largest", "position"),
    about_weights=True,
    aspects=("shares of heads", "single layer", "depth"),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_as_many_heads,
    figures=("autoregression_heads",),
)
