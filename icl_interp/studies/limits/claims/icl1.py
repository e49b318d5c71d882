"""The claim of `limits` that a model can ICL1: the error depends on no choice of examples."""

from collections.abc import Mapping

import numpy as np
from xarray import DataArray

from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import Condition, Criterion, Estimate, Found, at_least, at_most
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.natural import measured
from icl_interp.resampling import bootstrap
from icl_interp.studies.limits.claims.error_rates import LOW
from icl_interp.studies.limits.measurements.classes import needs_polynomials
from icl_interp.studies.limits.measurements.in_context import CONTEXTS, PARTS, contexts

# Share of the variance of the error that contexts make. In between lie 0.25, more than two standard
# errors (about 0.1 at half the sample, 64 units of 16 prompts).
ALIKE = 0.25
APART = 0.5
FAILS = 0.3  # squared error over that of the law's mean; `LOW` is small
# The paper's errors are alike and below some epsilon: a variance of the error below this share of
# the variance of the truth counts as none. A tenth, in standard deviations.
NEGLIGIBLE = 0.01


def share(*parts: np.ndarray) -> np.ndarray:
    """The share of the variance of the absolute error that is between contexts.

    Args:
        parts: means over units of `contexts`, in the order of its parts.
    """
    error, square, within, law = parts
    total = np.maximum(square - error**2, NEGLIGIBLE * law)
    return within / np.maximum(total, np.finfo(float).tiny)


def _parts(result: DataArray) -> list[np.ndarray]:
    return [result.sel(part=part).values for part in PARTS]


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """How large the error is, and how much of its variance contexts make."""
    error, square, within, law = _parts(results[contexts])
    return {
        "share": bootstrap(share, error, square, within, law),
        "error": bootstrap(lambda s, m: s / m, square, law, positive=True),
    }


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """How far the error varies at all, beside the truth."""
    parts = _parts(results[contexts])
    spread = bootstrap(lambda e, s, w, m: np.sqrt(np.maximum(s - e**2, 0) / m), *parts)
    return Remarks(
        scope="these weights, this task, functions, inputs and queries in distribution; "
        f"{CONTEXTS} contexts of each function, all with one query",
        caveat=f"The standard deviation of the error is {measured(spread, '')} times the spread of "
        "the truth.",
    )


CRITERION = Criterion(
    (
        Condition(
            "share",
            "share of the variance of the error that comes from which examples were drawn",
            at_most(ALIKE, least=0.0),
            at_least(APART),
            unit="share",
        ),
        Condition(
            "error",
            "squared error over that of the law's mean",
            at_most(LOW, least=0.0),
            at_least(FAILS),
            unit="times",
            scale="log",
            denied="The error in distribution is not small.",
        ),
    ),
    terms="The error is |f - g| at the query. Its variance over contexts of one function and "
    "query is divided by its variance over all prompts. Where the latter is below a hundredth of "
    "the variance of the truth, that hundredth stands in its place.",
)

ICL1_CLAIM = Claim(
    id="limits.icl1",
    question="functions",
    statement="The error is small whichever examples of a function are drawn (ICL1).",
    denied="The error for a function and a query depends on which examples were drawn.",
    quote=Quote(
        "a transformer is able to approximate the value of g(x), regardless of which specific "
        "input samples x_i are included in the in-context examples.",
        "Naim & Asher (2025), section 3.1, first paragraph; equation (1)",
        "Equation (1) asks for errors that are about the same for any two contexts, and below "
        "some epsilon. The paper gives no number for either. We ask that at most a quarter of the "
        "variance of the error come from which context was drawn (half contradicts), and that the "
        "squared error be at most a tenth of that of the best guess without examples. An error "
        "that varies by less than a tenth of the spread of the truth counts as one that does not "
        "vary. The task must be polynomials.",
    ),
    kind="learning",
    reads="outputs",
    criterion=CRITERION,
    measurements=(contexts,),
    control=(contexts,),
    aspects=("kind of task",),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_polynomials,
    figures=("in_context",),
)
