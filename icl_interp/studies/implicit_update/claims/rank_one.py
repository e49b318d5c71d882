"""The claim of `implicit_update` that is an identity: a context acts as an update of rank one."""

from collections.abc import Mapping

import numpy as np
from xarray import DataArray

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
from icl_interp.studies.implicit_update.measurements.updates import APART, LABEL, excluded, identity

SAME = 1e-6  # of the labels' standard deviation
DIFFERENT = 1e-3
DIFFERENCE = "difference"
SPREAD = "spread"


def labels(result: DataArray) -> float:
    """Standard deviation of the labels at the query."""
    return float(result.sel(number=LABEL).isel(removed=0).std("unit"))


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """The largest difference between both predictions: of every prompt, without error."""
    result = results[identity]
    largest = float(np.abs(result.sel(number=APART).values).max())
    spread = labels(result)
    return {SPREAD: spread, DIFFERENCE: largest / spread if spread else 0.0}


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """That the verdict follows from the form of the update."""
    return Remarks(
        scope="the query of each prompt, whose update is its own, with all examples or half of "
        "them put into the weights",
        by_algebra="(W + (W d) a' / |a|^2) a = W (a + d) for all W, a and d",
    )


RANK_ONE_CLAIM = Claim(
    id="implicit_update.rank_one",
    kind="architecture",
    statement="At the query, examples act as an update of rank one of the last MLP's first matrix "
    "and a bias.",
    denied="At the query, examples act otherwise than as an update of rank one of a matrix and a "
    "bias.",
    question="algorithm",
    quote=Quote(
        "In this work, we show that the stacking of a self-attention layer with an MLP, allows the "
        "transformer block to implicitly modify the weights of the MLP layer according to the "
        "context.",
        "Dherin, Munn, Mazzawi, Wunder & Gonzalvo (2025), abstract",
        "The sentence is word for word; that the update has rank one, its formula and the bias for "
        "skip connections are Theorem 2.2 and its form in the appendix, by accounts of others. It "
        "is an identity: it holds for every network, also an untrained one.",
    ),
    reads="what the last MLP reads",
    criterion=Criterion(
        (
            Condition(
                DIFFERENCE,
                "largest difference of predictions, of the labels' standard deviation",
                at_most(SAME),
                at_least(DIFFERENT),
                unit="share",
                scale="log",
            ),
        ),
        (
            Precondition(
                SPREAD, at_least(float(np.finfo(float).tiny)), "All labels at the query are alike."
            ),
        ),
        terms="The update is computed from what the MLP reads at the query with all examples and "
        "with fewer. The model then reads the shorter prompt under the update.",
    ),
    measurements=(identity,),
    control=(identity,),
    aspects=("kind of task",),
    evidence=evidence,
    remarks=remarks,
    excluded=excluded,
    of_numbers=True,
    figures=("implicit_steps",),
)
