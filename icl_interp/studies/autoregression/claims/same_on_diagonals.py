"""The claim that weights of positions are one along each diagonal."""

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.tie import TIED
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
    AVERAGED,
    positions_averaged,
)
from icl_interp.studies.autoregression.measurements.ties import layer_tie, tied_everywhere
from icl_interp.studies.autoregression.measurements.unit import (
    PAPER,
    SOURCE,
    needs_process,
    positions,
)

ALIKE, UNLIKE = 0.1, 0.5  # share of |P|^2 that the means of diagonals leave

DIAGONALS = Criterion(
    (
        Condition("unlike", "", (0.0, ALIKE), (UNLIKE, 1.0)),
        Condition("rise", "", (-INF, HARMLESS), (HARMFUL, INF)),
    ),
    (PREDICTS, *TIED),
    terms=(
        "share of the squared weights of positions P that the means of its diagonals leave out: <= "
        f"{ALIKE:g} / >= {UNLIKE:g}; and the rise of the mean squared error over the squared length of "
        "the next state, where it is largest, when each weight is replaced by the mean of its "
        f"diagonal: <= {HARMLESS:g} / >= {HARMFUL:g}"
    ),
)


def needs_positions(facts: Facts) -> str | None:
    """Why there are no weights of positions with diagonals to compare."""
    if reason := needs_process(facts):
        return reason
    if facts.config.position_weights is None:
        return (
            "The claim is about learned weights of positions (position_weights); this model has "
            "none"
        )
    if facts.n_points < 4:
        return f"The claim is about prompts of 4 states or more; this model's have {facts.n_points}"
    return None


def diagonals(results: Results, facts: Facts) -> dict[str, Estimate]:
    """What the criterion asks for, of a model or its randomly initialised control."""
    share = parts.not_alike(matrix(results), parts.first_row(facts.config))
    return {
        "unlike": Estimate.exactly(
            "share of the squared weights that the means of diagonals leave out",
            min(max(share, 0.0), 1.0),
        ),
        "rise": rise(
            results[positions_averaged],
            AVERAGED,
            "largest rise of the error with the means of diagonals",
        ),
    }


def diagonals_evidence(results: Results, facts: Facts) -> Evidence:
    """Is P the same along its diagonals?"""
    own, means = diagonals(results, facts), mean_errors(results[positions_averaged])
    fresh = diagonals(results.control, facts)
    asked = {
        **own,
        "error": error(results[positions_averaged]),
        **tied_everywhere(results[layer_tie]),
    }
    says = answer(
        DIAGONALS,
        asked,
        "The weights of positions are the same along each diagonal: they depend on how far back a "
        "token lies.",
        "The weights of positions are not the same along each diagonal.",
        "the weights of positions are the same along each diagonal",
    )
    limits = bound(
        DIAGONALS, asked, "unlike", f"at most {100 * ALIKE:g} %", f"at least {100 * UNLIKE:g} %"
    )
    left = (
        f"The means of diagonals leave out {100 * own['unlike'].value:.3g} % of the squared "
        f"weights ({limits})."
    )
    rises = (
        f"With the means of diagonals the error rises by up to {own['rise'].value:.3g} of the next "
        "state's squared length "
        f"({bound(DIAGONALS, asked, 'rise', f'at most {HARMLESS:g}', f'at least {HARMFUL:g}')})."
    )
    decided = DIAGONALS.decide(asked).condition
    if decided and decided.quantity == "rise":
        left, rises = rises, left
    says += f" {left}"
    return Evidence(
        asked,
        says,
        scope="these weights, this task, every scored point; rows of P that read a state",
        causal={
            "intervention": "each weight of P replaced by the mean of its diagonal",
            f"largest rise of the {ERROR}": own["rise"].value,
            "low": own["rise"].low,
            "high": own["rise"].high,
        },
        control=fresh,
        details=error_rows(means),
        caveat=rises,
    )


DIAGONALS_CLAIM = Claim(
    id="autoregression.same_on_diagonals",
    question="attention",
    short="Trained weights of positions are the same along each diagonal.",
    quote=Quote(
        "We observe that the trained positional encoding exhibits an invariance across diagonals.",
        f"{PAPER}, section 6, 'Change in the context distribution'",
        "The paper sees this in one experiment, by eye, with P alone trained and mu from 50 to "
        "300. We ask every model of one layer with learned weights of positions, by a number, and "
        "also whether it still works with the means of diagonals. With matrices that are not "
        "diagonal a model may read the second token in every row, which tells W where s_0 = 1: "
        "that is no invariance across diagonals.",
    ),
    kind="learning",
    statement="The trained weights of positions depend on how far back a token lies, and on "
    "nothing else",
    source=f"{SOURCE}, section 6",
    criterion=DIAGONALS,
    measurements=(positions, positions_averaged, layer_tie),
    control=(positions, positions_averaged),
    about_weights=True,
    aspects=("single layer", "depth"),
    evidence=diagonals_evidence,
    excluded=needs_positions,
    learned=never_asked,
    figures=("autoregression_positions",),
)
