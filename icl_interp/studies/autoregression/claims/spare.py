"""The claim of `autoregression` on the number of heads.

Heads beyond the needed number can be pruned.
"""

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
from icl_interp.results import numbers_in
from icl_interp.studies.autoregression.claims.errors import ERROR, TERMS, UNIT, error_rows, rise
from icl_interp.studies.autoregression.measurements.pruned_heads import (
    INTACT,
    N_DIFFERENT,
    NONE,
    PRUNED,
    different,
    pruned,
)
from icl_interp.studies.autoregression.measurements.unit import (
    PAPER,
    needs_commuting,
    process_in,
    real_heads_needed,
)

LITTLE = 0.01  # rise of the normalised error when spare heads are pruned
MUCH = 0.05
USED = 0.5  # rise when all heads are

WITHOUT_SPARE = Condition(
    "rise",
    "largest rise of the error when spare heads are pruned",
    at_most(LITTLE),
    at_least(MUCH),
    unit=UNIT,
)
WITHOUT_ALL = Condition(
    "rise without heads",
    "smallest rise of the error when all heads are pruned",
    at_least(USED),
    unit=UNIT,
)
SPARE = Precondition(
    "spare",
    at_least(1),
    "The model has no more different heads than suffice: copies count as one, and so do heads "
    "that cancel each other.",
)

CRITERION = Criterion(
    (WITHOUT_SPARE, WITHOUT_ALL),
    (SPARE,),
    terms="As many different heads as are needed are kept, the best ones; all others are spare. "
    f"{TERMS}",
)


def needs_spare_heads(facts: Facts) -> str | None:
    """Why there are no heads beyond the needed number."""
    if reason := needs_commuting(facts):
        return reason
    n_heads = facts.config.n_heads
    needed = real_heads_needed(process_in(facts))
    if n_heads <= needed:
        return (
            f"The claim is about more heads than suffice for the task, {needed // 2} complex ones "
            f"({needed} real ones) here; this model has {n_heads} real heads"
        )
    return None


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """How far the error rises without the spare heads, and without any."""
    n_needed = real_heads_needed(process_in(facts))
    n_different = numbers_in(results[different])[N_DIFFERENT]
    result = results[pruned]
    return {
        "rise": rise(result, PRUNED, INTACT),
        "rise without heads": rise(result, NONE, INTACT, smallest=True),
        "spare": n_different - n_needed,
    }


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """Which heads are kept, and what pruning does."""
    kept = found["rise"]
    n_needed = real_heads_needed(process_in(facts))
    caveat = f"The best {n_needed} of {facts.config.n_heads} real heads are kept."
    if kept.value > LITTLE:
        caveat = (
            "Nothing is fitted again after pruning; where all heads share the work no subset of "
            "them will do."
        )
    return Remarks(
        scope="these weights, this task, all scored points; heads are chosen on one half of the "
        "functions and tested on the other",
        caveat=caveat,
        causal={
            "intervention": "what pruned heads write is replaced by its mean at each position",
            f"rise of the {ERROR}": kept.value,
            "low": kept.low,
            "high": kept.high,
            "the same without any head": found["rise without heads"].value,
        },
        details=error_rows(results[pruned], "heads"),
    )


SPARE_CLAIM = Claim(
    id="autoregression.spare_heads",
    question="weights and training",
    statement="Heads beyond the number that the task needs can be pruned.",
    denied="Heads beyond the number that the task needs cannot be pruned.",
    quote=Quote(
        "When there are more than heads, some heads are useless, and can therefore be pruned.",
        f"{PAPER}, section 5.1, after Proposition 3 (the number, d, is lost in the text at hand)",
        "The sentence is about unitary W and d complex heads. We ask rotations as well, where the "
        "needed number is that of Propositions 3 and 6: d complex heads (two real ones each) for "
        "unitary W, d / 2 for d coordinates in conjugate pairs. Our test also takes heads that "
        "are not diagonal. That some minimiser has useless heads is true. We test these trained "
        "weights, whose heads may all be in use although fewer would do.",
    ),
    kind="learning",
    reads="heads, which are pruned",
    criterion=CRITERION,
    measurements=(pruned, different),
    control=(pruned,),
    of_control=("rise", "rise without heads"),
    aspects=("shares of heads", "list of heads", "single layer", "depth"),  # it counts heads
    evidence=evidence,
    remarks=remarks,
    excluded=needs_spare_heads,
    figures=("autoregression_pruned",),
)
