"""The claim of `autoregression` on the first state: any fixed s_0 will do.

Heads are rescaled for it.
"""

from xarray import DataArray

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.tie import TIED
from icl_interp.resampling import bootstrap
from icl_interp.studies.autoregression.measurements.lengths import worst
from icl_interp.studies.autoregression.measurements.start_states import (
    LEAST,
    MOST,
    N_STARTS,
    PLAIN,
    RESCALED,
    USUAL,
    starts,
)
from icl_interp.studies.autoregression.measurements.ties import layer_tie, tied_everywhere
from icl_interp.studies.autoregression.measurements.unit import (
    PAPER,
    SOURCE,
    needs_commuting,
    process_in,
)

SAME, OTHER = 0.01, 0.05  # rise of the normalised error
LEARNED = 0.1  # normalised error up to which a model counts as one that predicts the next state

START = Criterion(
    (Condition("rise", "", (-INF, SAME), (OTHER, INF)),),
    (
        Precondition(
            "error",
            (-INF, LEARNED),
            "The model hardly predicts the next state: its error is {value:.2g} of that state's "
            f"squared length (at most {LEARNED:g} allowed).",
        ),
        *TIED,
    ),
    terms=(
        "rise of the mean squared error over the squared length of the next state, where it is "
        "largest, from the task's own "
        f"first state s_0 to others, heads rescaled for each: <= {SAME:g} / >= {OTHER:g}"
    ),
)


def rise(result: DataArray, arm: str) -> Estimate:
    """The normalised error in an arm less that from the task's own start.

    The state is the one after which it is largest.
    """
    other, own = (result.sel(arm=one).values for one in (arm, USUAL))
    return worst("largest rise of the error from other starts", lambda a, b: a - b, other, own)[0]


def needs_fixed_start(facts: Facts) -> str | None:
    """Why s_0 is not the same in all sequences, or heads cannot be rescaled for it."""
    if reason := needs_commuting(facts):
        return reason
    if process_in(facts).start is not None:
        return (
            "The claim is about tasks with the same s_0 in all sequences; this task draws a new "
            "one for each"
        )
    return None


def evidence(results: Results, facts: Facts) -> Evidence:
    """Does the model predict as well from other starts, with rescaled heads?"""
    result = results[starts]
    found, plain = rise(result, RESCALED), rise(result, PLAIN)
    means = {str(arm): float(result.sel(arm=arm).values.mean()) for arm in result.indexes["arm"]}
    own = bootstrap(lambda e: e.mean(-1), result.sel(arm=USUAL).values)
    quantities = {
        "rise": found,
        "error": Estimate.of("error over the squared length of the next state", own),
        **tied_everywhere(results[layer_tie]),
    }
    says = answer(
        START,
        quantities,
        "Rescaled heads predict as well from the other fixed starts that were asked.",
        "Rescaled heads do not predict as well from other fixed starts.",
        "rescaled heads predict as well from other fixed starts",
    )
    says += (
        f" From {N_STARTS} other starts s_0, with keys divided by its squared coordinates, the "
        "error rises by up "
        f"to {found.value:.3g} of the next state's squared length "
        f"({bound(START, quantities, 'rise', f'at most {SAME:g}', f'at least {OTHER:g}')})."
    )
    return Evidence(
        quantities,
        says,
        scope="these weights, this task's matrices; each other s_0 is the same in all sequences, "
        f"|s_0i| from {LEAST:g} to {MOST:g} times as large, any phases",
        causal={
            "intervention": "paths from another s_0, and keys divided by |s_0i|^2 coordinate by "
            "coordinate",
            "largest rise of the error / squared length of the next state": found.value,
            "low": found.low,
            "high": found.high,
            "the same with heads as they are": plain.value,
        },
        control={"rise": rise(results.control[starts], RESCALED)},
        details=tuple(
            {"start": arm, "error / squared length of the next state": e}
            for arm, e in means.items()
        ),
        caveat=f"With heads as they are it rises by at most {plain.value:.3g}.",
    )


START_CLAIM = Claim(
    id="autoregression.start_free",
    question="weights and training",
    short="Rescaled heads predict as well from any fixed start.",
    quote=Quote(
        "In fact, looking at the above proof, considering arbitrary real values for the vector , "
        "one can absorb the terms in in each and the terms in in each , since these are learnable "
        "parameters. Therefore, our results can be adapted to any arbitrary initial value .",
        f"{PAPER}, appendix A.4, remark after the proof of Lemma 2 (formulas are lost in the text "
        "at hand)",
        "The remark is about what can be learned, for real s_0. We do what it says to given "
        "weights, for complex s_0: dividing keys by |s_0i|^2 is enough, because phases cancel in "
        "<s_{T-1}, a_h * s_t>. It says nothing of a random s_0, nor that a trained model works at "
        "another s_0 without the change; what happens then is shown beside it. It is wider where a "
        "layer is not that of equation (6): behind a norm it need not hold, nor for matrices that "
        "are not diagonal, which may use that the second token is lambda where s_0 = 1.",
    ),
    kind="architecture",
    statement="Nothing depends on s_0 as long as it is fixed: heads that are rescaled for another "
    "s_0 predict as well",
    source=f"{SOURCE}, appendix A.4",
    criterion=START,
    measurements=(starts, layer_tie),
    control=(starts,),
    about_weights=True,
    aspects=("single layer", "depth"),
    evidence=evidence,
    excluded=needs_fixed_start,
    figures=("autoregression_starts",),
)
