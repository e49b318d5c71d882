"""The claim of `autoregression` on single heads: Sander's identity.

a_h and b_h' of different heads are orthogonal.
"""

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
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
    SOURCE,
    Heads,
    complex_heads,
    heads,
    n_complex,
    needs_unit,
    positions,
    process_in,
    stored_heads,
)

SMALL, LARGE = 0.1, 0.3  # of the largest |cosine| between two heads
RARE = 0.025  # share of random heads that are as orthogonal

IDENTITY = Criterion(
    (
        Condition("largest", "", (0.0, SMALL), (LARGE, 1.0)),
        Condition("position", "", (0.0, RARE), None),
    ),
    (
        Precondition(
            "heads",
            (0, 0),
            "The claim is about two different real heads for each complex coordinate; this model "
            "has {value:+.0f} (copies, and heads that take each other off, count as one; heads "
            "that write nothing do not count).",
        ),
        Precondition(
            "reading",
            (EXPLAINED, INF),
            "The claim is about complex heads with diagonal matrices, which explain only "
            f"{{value:.2g}} of this model's predictions after some state ({EXPLAINED:g} needed).",
        ),
        *TIED,
    ),
    terms=(
        "the largest |cosine| between the key diagonal a_h of one head and the value diagonal b_h' of "
        f"another, |a_h . b_h'| / (|a_h| |b_h'|): <= {SMALL:g} / >= {LARGE:g}; and the share of random "
        f"heads whose largest one is no larger: <= {RARE:g}"
    ),
)


def needs_as_many_heads(facts: Facts) -> str | None:
    """Why there are not as many complex heads as coordinates."""
    if reason := needs_unit(facts):
        return reason
    n_heads, dim = facts.config.n_heads, n_complex(process_in(facts))
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


def quantities(found: Heads) -> dict[str, Estimate]:
    """The largest cosine between complex heads, and its place among those of random heads."""
    most = float(distinct_heads.largest(distinct_heads.cosines(found)).clamp(max=1.0))
    by_chance = distinct_heads.random_largest(*found.keys.shape)
    return {
        "largest": Estimate.exactly(
            "largest |cosine| between key and value diagonals of two heads", most
        ),
        "position": Estimate.exactly(
            "share of random heads that are as orthogonal",
            float((by_chance <= most).double().mean()),
        ),
    }


def evidence(results: Results, facts: Facts) -> Evidence:
    """Are a_h and b_h' orthogonal for different heads?"""
    n_real = len(distinct_heads.distinct(stored_heads(results[heads])).keys)
    beyond = n_real - 2 * n_complex(process_in(facts))
    surplus = {
        "heads": Estimate.exactly("different real heads beyond two for each coordinate", beyond)
    }
    if beyond:
        return Evidence(surplus, "")
    found = as_many(results, facts)
    own = quantities(found)
    n_heads, dim = found.keys.shape
    matrix, by_chance = distinct_heads.cosines(found), distinct_heads.random_largest(n_heads, dim)
    asked = {**own, **surplus, **tied_everywhere(results[diagonals_tie].sel(heads=COMPLEX))}
    says = answer(
        IDENTITY,
        asked,
        "The key diagonal of each head is orthogonal to the value diagonals of the other heads.",
        "Key and value diagonals of different heads are not all orthogonal.",
        "key and value diagonals of different heads are orthogonal",
    )
    threshold = bound(IDENTITY, asked, "largest", f"at most {SMALL:g}", f"at least {LARGE:g}")
    says += (
        " The largest |cosine| between the key diagonal of one head and the value diagonal of "
        f"another is {own['largest'].value:.3g} ({threshold})."
    )
    caveat = (
        f"Of sets of random heads {100 * own['position'].value:.2g} % have no larger one (asked: "
        "at most "
    )
    caveat += f"{100 * RARE:g} %)."
    return Evidence(
        asked,
        says,
        scope="these weights; a_h stands on the key's side, b_h on the value's",
        control=quantities(as_many(results.control, facts)),
        details=(
            *(
                {"head h": h, "head h'": g, "|cosine| of a_h and b_h'": float(matrix[h, g])}
                for h in range(n_heads)
                for g in range(n_heads)
            ),
            {
                "complex heads": n_heads,
                "coordinates": dim,
                "median of random heads": float(by_chance.median()),
            },
        ),
        caveat=caveat,
    )


IDENTITY_CLAIM = Claim(
    id="autoregression.head_identity",
    question="weights and training",
    short="Different heads have orthogonal key and value diagonals.",
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
    statement="The key diagonal a_h of a head is orthogonal to the value diagonals b_h' of others, "
    "where there are as many heads as coordinates",
    source=f"{SOURCE}, Propositions 3 and 6",
    criterion=IDENTITY,
    measurements=(heads, positions, diagonals_tie),
    control=(heads,),
    about_weights=True,
    aspects=("shares of heads", "single layer", "depth"),
    evidence=evidence,
    excluded=needs_as_many_heads,
    figures=("autoregression_heads",),
)
