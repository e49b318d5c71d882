"""The claim that weights of positions are one along each diagonal."""

from collections.abc import Mapping

from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import Condition, Criterion, Estimate, Found, at_least, at_most
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.tie import TIED
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
    AVERAGED,
    INTACT,
    positions_averaged,
)
from icl_interp.studies.autoregression.measurements.ties import layer_tie, tied_everywhere
from icl_interp.studies.autoregression.measurements.unit import (
    PAPER,
    needs_process,
    positions,
    stored_positions,
)

ALIKE = 0.1  # share of |P|^2 that the means of diagonals leave
UNLIKE = 0.5

LEFT_OUT = Condition(
    "unlike",
    "share of the squared weights that the means of diagonals leave out",
    at_most(ALIKE, least=0.0),
    at_least(UNLIKE, most=1.0),
    unit="share",
)
RISE = Condition(
    "rise",
    "largest rise of the error with the means of diagonals",
    at_most(HARMLESS),
    at_least(HARMFUL),
    unit=UNIT,
    denied="With weights that are the same along each diagonal the model predicts worse.",
)

CRITERION = Criterion(
    (LEFT_OUT, RISE),
    (PREDICTS, *TIED),
    terms=f"For the second number each weight is replaced by the mean of its diagonal. {TERMS}",
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


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """How far P is from the means of its diagonals, and how far the error rises with them."""
    result = results[positions_averaged]
    p = stored_positions(results[positions])
    left_out = parts.not_alike(p, parts.first_row(facts.config))
    left_out = min(max(left_out, 0.0), 1.0)
    found: dict[str, Found] = {"unlike": left_out}
    found["rise"] = rise(result, AVERAGED, INTACT)
    found["error"] = error(result, INTACT)
    return found | tied_everywhere(results[layer_tie])


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """What the means of diagonals do."""
    averaged = found["rise"]
    return Remarks(
        scope="these weights, this task, every scored point; rows of P that read a state",
        causal={
            "intervention": "each weight of P replaced by the mean of its diagonal",
            f"largest rise of the {ERROR}": averaged.value,
            "low": averaged.low,
            "high": averaged.high,
        },
        details=error_rows(results[positions_averaged], "weights"),
    )


DIAGONALS_CLAIM = Claim(
    id="autoregression.same_on_diagonals",
    question="attention",
    statement="The weights of positions are the same along diagonals: only how far back a token "
    "lies counts.",
    denied="The weights of positions are not the same along each diagonal.",
    quote=Quote(
        "We observe that the trained positional encoding exhibits an invariance across diagonals.",
        f"{PAPER}, section 6, 'Change in the context distribution'",
        "The paper sees this in one experiment, by eye, with P alone trained and mu from 50 to "
        "300. We test every model of one layer with learned weights of positions, by a number, "
        "and also whether it still works with the means of diagonals. With matrices that are not "
        "diagonal a model may read the second token in every row, which tells W where s_0 = 1: "
        "that is no invariance across diagonals.",
    ),
    kind="learning",
    reads="weights of the layer",
    criterion=CRITERION,
    measurements=(positions, positions_averaged, layer_tie),
    control=(positions, positions_averaged),
    of_control=("unlike", "rise"),
    about_weights=True,
    aspects=("single layer", "depth"),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_positions,
    learned=never_asked,
    figures=("autoregression_positions",),
)
