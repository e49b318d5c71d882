"""The claim that weights of positions pick the past token that the propositions name."""

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.tie import EXPLAINED, TIED
from icl_interp.studies.autoregression.claims.weights_of_positions import (
    ERROR,
    HARMFUL,
    HARMLESS,
    PREDICTS,
    error,
    error_rows,
    matrix,
    mean_errors,
    never_asked,
    rise,
)
from icl_interp.studies.autoregression.measurements import position_weights as parts
from icl_interp.studies.autoregression.measurements.position_weights import (
    NO_OTHERS,
    NO_RIGHT,
    positions_cut,
)
from icl_interp.studies.autoregression.measurements.ties import REAL, diagonals_tie, tied_everywhere
from icl_interp.studies.autoregression.measurements.unit import (
    PAPER,
    SOURCE,
    heads,
    is_paired,
    n_complex,
    needs_unit,
    positions,
    process_in,
)

ON, OFF = 0.9, 0.5  # share of |p|^2 on the named tokens
BROKEN = 0.5  # rise of the normalised error without the named tokens
NEAR, FAR = 0.05, 0.25  # |p_{T-1} / p_T + 1/2|
WHO = (
    "others",
    "these",
)  # tokens that go to their means: all but the named ones, and the named ones

PAST = Criterion(
    (
        Condition("share", "", (ON, 1.0), (0.0, OFF)),
        Condition("rise without others", "", (-INF, HARMLESS), (HARMFUL, INF)),
        Condition("rise without these", "", (BROKEN, INF), (-INF, HARMFUL)),
        Condition("ratio", "", (0.0, NEAR), (FAR, INF), optional=True),
    ),
    (
        PREDICTS,
        Precondition(
            "reading",
            (EXPLAINED, INF),
            "The propositions are about heads with diagonal matrices, which explain only "
            f"{{value:.2g}} of this model's predictions after some state ({EXPLAINED:g} needed).",
        ),
        *TIED,
    ),
    terms=(
        "share of the squared weights p of a row on the last token (with conjugate pairs, on the last "
        f"two), the least over rows: >= {ON:g} / <= {OFF:g}; rise of the mean squared error over the "
        "squared length of the next state, where it is largest, when what the other tokens add goes to "
        f"its mean: <= {HARMLESS:g} / >= {HARMFUL:g}; where it is smallest, when what these tokens add "
        f"does: >= {BROKEN:g} / <= {HARMFUL:g}; and with conjugate pairs and fewer heads than "
        f"coordinates |p_(T-1) / p_T + 1/2|: <= {NEAR:g} / >= {FAR:g}"
    ),
)


def has_one_ratio(facts: Facts) -> bool:
    """Whether there are so few heads that p_{T-1} / p_T must be -1/2 where the loss is 0."""
    task = process_in(facts)
    return is_paired(task) and facts.config.n_heads < 2 * n_complex(task)


def past(results: Results, facts: Facts) -> dict[str, Estimate]:
    """What the criterion asks for, of a model or its randomly initialised control."""
    p, first = matrix(results), parts.first_row(facts.config)
    share = parts.least_share_on(p, parts.named_tokens(process_in(facts), len(p)), first)
    cut = results[positions_cut]
    found = {
        "share": Estimate.exactly(
            "least share of a row's squared weights on the named tokens", min(share, 1.0)
        ),
        "rise without others": rise(
            cut, NO_OTHERS, "largest rise of the error without the other tokens"
        ),
        "rise without these": rise(
            cut, NO_RIGHT, "smallest rise of the error without the named tokens", smallest=True
        ),
    }
    if has_one_ratio(facts):
        found["ratio"] = Estimate.exactly(
            "|p_(T-1) / p_T + 1/2|", min(abs(parts.mean_ratio(p, first) + 0.5), 1e9)
        )
    return found


def _past_numbers(asked: dict[str, Estimate], which: str, ratio: float) -> dict[str, str]:
    """A sentence for each quantity."""

    def within(quantity: str, supports: str, against: str) -> str:
        return bound(PAST, asked, quantity, supports, against)

    share, others, these = (
        100 * asked["share"].value,
        *(asked[f"rise without {who}"].value for who in WHO),
    )
    found = {
        "share": f"Of the squared weights of a row at least {share:.3g} % lie on {which} "
        f"({within('share', f'at least {100 * ON:g} %', f'at most {100 * OFF:g} %')}).",
        "rise without others": f"Without the other tokens the error rises by up to {others:.3g} of "
        "the next state's squared length "
        f"({within('rise without others', f'at most {HARMLESS:g}', f'at least {HARMFUL:g}')}).",
        "rise without these": f"Without {which} the error rises by at least {these:.3g} of the "
        "next state's squared length "
        f"({within('rise without these', f'at least {BROKEN:g}', f'at most {HARMFUL:g}')}).",
    }
    if "ratio" in asked:
        found["ratio"] = (
            f"The second to last weight is {ratio:.3g} times the last one, and with so few heads "
            f"it must be -1/2 ({within('ratio', f'within {NEAR:g}', f'off by {FAR:g} or more')})."
        )
    return found


def past_evidence(results: Results, facts: Facts) -> Evidence:
    """Do the weights of positions pick the tokens of the propositions?"""
    own, means = past(results, facts), mean_errors(results[positions_cut])
    paired, ratio = (
        is_paired(process_in(facts)),
        parts.mean_ratio(matrix(results), parts.first_row(facts.config)),
    )
    which = "the last two tokens" if paired else "the last token"
    asked = {
        **own,
        "error": error(results[positions_cut]),
        **tied_everywhere(results[diagonals_tie].sel(heads=REAL)),
    }
    decided = PAST.decide(asked).condition
    says = answer(
        PAST,
        asked,
        f"The weights of positions pick {which}.",
        f"The weights of positions do not pick {which} as the propositions say.",
        f"the weights of positions pick {which}",
    )
    sentences = _past_numbers(asked, which, ratio)
    chosen = decided.quantity if decided else "share"
    says += f" {sentences[chosen]}"
    caveat = sentences["share" if chosen == "rise without others" else "rise without others"]
    cut = own["rise without others"]
    return Evidence(
        asked,
        says,
        scope="these weights, this task, every scored point",
        causal={
            "intervention": f"what tokens other than {which} add replaced by its mean",
            f"largest rise of the {ERROR}": cut.value,
            "low": cut.low,
            "high": cut.high,
            f"smallest rise for {which}": own["rise without these"].value,
        },
        control=past(results.control, facts),
        details=(
            *error_rows(means),
            *([{"number": "p_(T-1) / p_T", "value": ratio}] if paired else []),
        ),
        caveat=caveat,
    )


PAST_CLAIM = Claim(
    id="autoregression.past_token",
    question="attention",
    short="Weights of positions pick the right past token.",
    quote=Quote(
        "Therefore, the positional encoding selects the last token in the input sequence, hence "
        "learning the structure of the training data.",
        f"{PAPER}, section 5.1, 'Orthogonality', of minimisers for unitary W",
        "For conjugate pairs Proposition 6 has the last two tokens, in the ratio p_{T-1} = -p_T / "
        "2 where there are fewer heads than coordinates; then we ask for these. The proposition is "
        "about minimisers; we ask trained weights, in every row of P, and also what happens "
        "without some weights. With angles on a part of the circle (mu > 1) the minimiser is the "
        "same, but section 5.3 says that training stops elsewhere: there the paper expects weights "
        "that are spread over many tokens, which our claim denies.",
    ),
    kind="learning",
    statement="The weights of positions pick the last token (the last two where eigenvalues come "
    "in conjugate pairs)",
    source=f"{SOURCE}, Propositions 3 and 6",
    criterion=PAST,
    measurements=(heads, positions, diagonals_tie, positions_cut),
    control=(positions, positions_cut),
    about_weights=True,
    aspects=("single layer", "depth"),
    evidence=past_evidence,
    excluded=needs_unit,
    learned=never_asked,
    figures=("autoregression_positions",),
)
