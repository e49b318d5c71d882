"""The claim of `autoregression` on the number of heads.

Heads beyond the needed number can be pruned.
"""

from xarray import DataArray

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.results import numbers_in
from icl_interp.studies.autoregression.measurements.lengths import worst
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
    SOURCE,
    needs_commuting,
    process_in,
    real_heads_needed,
)

LITTLE, MUCH = 0.01, 0.05  # rise of the normalised error when spare heads are pruned
USED = 0.5  # rise when all heads are

SPARE = Criterion(
    (
        Condition("rise", "", (-INF, LITTLE), (MUCH, INF)),
        Condition("rise without heads", "", (USED, INF), None),
    ),
    (
        Precondition(
            "spare",
            (1, INF),
            "No more heads than suffice differ from one another: copies, and heads that take each "
            "other "
            "off, count as one.",
        ),
    ),
    terms=(
        "rise of the mean squared error over the squared length of the next state, where it is "
        "largest, when all but the "
        f"needed number of different heads are pruned: <= {LITTLE:g} / >= {MUCH:g}; where it is "
        "smallest, when all heads "
        f"are: >= {USED:g}"
    ),
)


def rise(result: DataArray, arm: str, name: str, smallest: bool = False) -> Estimate:
    """The normalised error of an arm less that of the intact model.

    The state is the one after which it is largest, or with `smallest` smallest.
    """
    cut, own = (result.sel(arm=one).values for one in (arm, INTACT))
    return worst(name, lambda a, b: a - b, cut, own, smallest=smallest)[0]


def needs_spare_heads(facts: Facts) -> str | None:
    """Why there are no heads beyond the needed number."""
    if reason := needs_commuting(facts):
        return reason
    n_heads, needed = facts.config.n_heads, real_heads_needed(process_in(facts))
    if n_heads <= needed:
        return (
            f"The claim is about more heads than suffice for the task, {needed // 2} complex ones "
            f"({needed} real ones) here; this model has {n_heads} real heads"
        )
    return None


def quantities(result: DataArray) -> dict[str, Estimate]:
    """What the criterion asks for."""
    return {
        "rise": rise(result, PRUNED, "largest rise of the error without the spare heads"),
        "rise without heads": rise(
            result, NONE, "smallest rise of the error without any head", smallest=True
        ),
    }


def evidence(results: Results, facts: Facts) -> Evidence:
    """Can all but the needed number of heads be taken out?"""
    result, needed = results[pruned], real_heads_needed(process_in(facts))
    n_different = numbers_in(results[different])[N_DIFFERENT]
    spare = Estimate.exactly("different heads beyond the needed number", n_different - needed)
    own = {**quantities(result), "spare": spare}
    means = {str(arm): float(result.sel(arm=arm).values.mean()) for arm in result.indexes["arm"]}
    says = answer(
        SPARE,
        own,
        "Heads beyond the needed number can be pruned.",
        "Heads beyond the needed number cannot be pruned.",
        "heads beyond the needed number can be pruned",
    )
    threshold = bound(SPARE, own, "rise", f"at most {LITTLE:g}", f"at least {MUCH:g}")
    says += (
        f" With the best {needed} of {facts.config.n_heads} real heads the error rises by at most "
        f"{own['rise'].value:.3g} of the next state's squared length ({threshold})."
    )
    caveat = (
        f"Without any head it rises by at least {own['rise without heads'].value:.3g} (asked: at "
        f"least {USED:g})."
    )
    if own["rise"].value > LITTLE:
        caveat = (
            "Nothing is fitted again after pruning; where all heads share the work no subset of "
            "them will do."
        )
    return Evidence(
        own,
        says,
        scope="these weights, this task, all scored points; heads are chosen on one half of the "
        "functions, asked on the other",
        causal={
            "intervention": "what pruned heads write is replaced by its mean at each position",
            "rise of the error / squared length of the next state": own["rise"].value,
            "low": own["rise"].low,
            "high": own["rise"].high,
            "the same without any head": own["rise without heads"].value,
        },
        control=quantities(results.control[pruned]),
        details=tuple(
            {"heads": arm, "error / squared length of the next state": e}
            for arm, e in means.items()
        ),
        caveat=caveat,
    )


SPARE_CLAIM = Claim(
    id="autoregression.spare_heads",
    question="weights and training",
    short="Heads beyond the needed number can be pruned.",
    quote=Quote(
        "When there are more than heads, some heads are useless, and can therefore be pruned.",
        f"{PAPER}, section 5.1, after Proposition 3 (the number, d, is lost in the text at hand)",
        "The sentence is about unitary W and d complex heads. We ask rotations as well, where the "
        "needed number is that of Propositions 3 and 6: d complex heads (two real ones each) for "
        "unitary W, d / 2 for d coordinates in conjugate pairs. It is wider where heads are not "
        "diagonal. As an existence statement (some minimiser has useless heads) it is true; we ask "
        "these trained weights, whose heads may all be in use although fewer would do.",
    ),
    kind="learning",
    statement="Heads beyond the number that reaches a loss of zero are useless: without them the "
    "loss stays",
    source=f"{SOURCE}, Propositions 3 and 6",
    criterion=SPARE,
    measurements=(pruned, different),
    control=(pruned,),
    aspects=("shares of heads", "list of heads", "single layer", "depth"),  # it counts heads
    evidence=evidence,
    excluded=needs_spare_heads,
    figures=("autoregression_pruned",),
)
