"""The claim that weights of positions pick the past token that the propositions name."""

from collections.abc import Mapping

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
from icl_interp.studies.autoregression.claims.errors import (
    ERROR,
    HARMFUL,
    HARMLESS,
    PREDICTS,
    TERMS,
    UNIT,
    error,
    error_rows,
    never_asked,
    rise,
)
from icl_interp.studies.autoregression.measurements import position_weights as parts
from icl_interp.studies.autoregression.measurements.position_weights import (
    INTACT,
    NO_OTHERS,
    NO_RIGHT,
    positions_cut,
)
from icl_interp.studies.autoregression.measurements.ties import REAL, diagonals_tie, tied_everywhere
from icl_interp.studies.autoregression.measurements.unit import (
    PAPER,
    heads,
    is_paired,
    n_complex,
    needs_unit,
    positions,
    process_in,
    stored_positions,
)

ON = 0.9  # share of |p|^2 on the named tokens
OFF = 0.5
BROKEN = 0.5  # rise of the normalised error without the named tokens
NEAR = 0.05  # |p_{T-1} / p_T + 1/2|
FAR = 0.25
EXPECTED = -0.5  # p_{T-1} / p_T of Proposition 6
LARGE = 1e9  # what is shown where p_T is 0

SHARE = Condition(
    "share",
    "smallest share of a row's squared weights on the named tokens",
    at_least(ON, most=1.0),
    at_most(OFF, least=0.0),
    unit="share",
    denied="In some row the weights of positions pick other tokens than the propositions name.",
)
WITHOUT_OTHERS = Condition(
    "rise without others",
    "largest rise of the error without all other tokens",
    at_most(HARMLESS),
    at_least(HARMFUL),
    unit=UNIT,
    denied="Predictions need other tokens than those that the propositions name.",
)
WITHOUT_NAMED = Condition(
    "rise without these",
    "smallest rise of the error without the named tokens",
    at_least(BROKEN),
    at_most(HARMFUL),
    unit=UNIT,
    denied="Predictions hardly need the tokens that the propositions name.",
)
RATIO = Condition(
    "ratio",
    "distance of p_(T-1) / p_T from -1/2",
    at_most(NEAR, least=0.0),
    at_least(FAR),
    optional=True,
    denied="The weight p_(T-1) of the last token but one is not -1/2 times that of the last one, "
    "p_T.",
)
READS = Precondition(
    "reading",
    at_least(EXPLAINED),
    "The propositions are about heads with diagonal matrices, which explain only "
    f"{{value:.2g}} of this model's predictions after some state ({EXPLAINED:g} needed).",
)

CRITERION = Criterion(
    (SHARE, WITHOUT_OTHERS, WITHOUT_NAMED, RATIO),
    (PREDICTS, READS, *TIED),
    terms="The named token is the last one, or the last two with conjugate pairs of eigenvalues. "
    "Without tokens means that what they add is replaced by its mean. The ratio p_(T-1) / p_T is "
    f"tested for conjugate pairs and fewer heads than coordinates. {TERMS}",
)


def has_one_ratio(facts: Facts) -> bool:
    """Whether there are so few heads that p_{T-1} / p_T must be -1/2 where the loss is 0."""
    task = process_in(facts)
    return is_paired(task) and facts.config.n_heads < 2 * n_complex(task)


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """What lies on the named tokens, and what predictions are without these or the others."""
    # What stands in the weights.
    p = stored_positions(results[positions])
    first = parts.first_row(facts.config)
    named = parts.named_tokens(process_in(facts), len(p))
    share = parts.least_share_on(p, named, first)
    found: dict[str, Found] = {"share": min(share, 1.0)}
    if has_one_ratio(facts):
        off = abs(parts.mean_ratio(p, first) - EXPECTED)
        found["ratio"] = min(off, LARGE)
    # What predictions are without some of them.
    cut = results[positions_cut]
    found["rise without others"] = rise(cut, NO_OTHERS, INTACT)
    found["rise without these"] = rise(cut, NO_RIGHT, INTACT, smallest=True)
    found["error"] = error(cut, INTACT)
    return found | tied_everywhere(results[diagonals_tie].sel(heads=REAL))


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """Which tokens are named, and what cutting the others does."""
    paired = is_paired(process_in(facts))
    which = "the last two tokens" if paired else "the last token"
    details = error_rows(results[positions_cut], "weights")
    if paired:
        p = stored_positions(results[positions])
        ratio = parts.mean_ratio(p, parts.first_row(facts.config))
        details = (*details, {"number": "p_(T-1) / p_T", "value": ratio})
    cut = found["rise without others"]
    return Remarks(
        scope="these weights, this task, every scored point",
        caveat=f"For this task the propositions name {which}.",
        causal={
            "intervention": f"what tokens other than {which} add replaced by its mean",
            f"largest rise of the {ERROR}": cut.value,
            "low": cut.low,
            "high": cut.high,
            f"smallest rise for {which}": found["rise without these"].value,
        },
        details=details,
    )


PAST_CLAIM = Claim(
    id="autoregression.past_token",
    question="attention",
    statement="The weights of positions pick the last token, or the last two for conjugate pairs "
    "of eigenvalues.",
    denied="The weights of positions do not pick the tokens that the propositions name.",
    quote=Quote(
        "Therefore, the positional encoding selects the last token in the input sequence, hence "
        "learning the structure of the training data.",
        f"{PAPER}, section 5.1, 'Orthogonality', of minimisers for unitary W",
        "For conjugate pairs Proposition 6 names the last two tokens, in the ratio p_{T-1} = -p_T "
        "/ 2 if there are fewer heads than coordinates; then we ask for both. The proposition is "
        "about minimisers. We test trained weights, in every row of P, and also what happens "
        "without some of them. With angles on a part of the circle (mu > 1) the minimiser is the "
        "same, but section 5.3 says that training stops elsewhere: there the paper expects "
        "weights that are spread over many tokens, which our claim denies.",
    ),
    kind="learning",
    reads="weights of the heads",
    criterion=CRITERION,
    measurements=(heads, positions, diagonals_tie, positions_cut),
    control=(positions, positions_cut),
    of_control=("share", "rise without others", "rise without these", "ratio"),
    about_weights=True,
    aspects=("single layer", "depth"),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_unit,
    learned=never_asked,
    figures=("autoregression_positions",),
)
