"""What the first screen of a report says of a model: its nearest algorithm, and far queries."""

import numpy as np

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.measurement import Results
from icl_interp.figures.text import number
from icl_interp.studies.limits.claims.no_classical import ONE, Comparison
from icl_interp.studies.limits.measurements import algorithms
from icl_interp.studies.limits.measurements import boundary as measured

FLAT = 0.1  # an exponent of growth below which a prediction counts as level


def nearest_algorithm(results: Results, facts: Facts) -> str:
    """The classical algorithm that the model is nearest to, in its worst condition."""
    if algorithms.own not in results or algorithms.rivals not in results:
        return ""
    compared = Comparison.of(results[algorithms.own], results[algorithms.rivals])
    similarity = compared.quantities()[ONE]
    rival = compared.chosen.one
    return (
        f"The nearest of the algorithms tried is “{rival}”, with a similarity of "
        f"{similarity.value:.3f} [{similarity.low:.3f}, {similarity.high:.3f}] in the worst test "
        "condition (1: the same predictions)."
    )


def far_queries(results: Results, facts: Facts) -> str:
    """What predictions do when the query goes far beyond the trained range."""
    if measured.boundary not in results:
        return ""
    table = results[measured.boundary]
    # As the query goes up; the figures show the other side too.
    rows = table[table["direction"] == "+"]
    upward = dict(zip(rows["quantity"], rows["value"], strict=True))
    edge = upward["trained range"]
    level = upward["level"]
    onset = upward["onset"]
    # Nothing tells how a predictor without weights was made.
    inputs = "asked" if facts.outside else "trained"
    at = "" if facts.n_targets == 1 else "vectors of length "
    if np.isfinite(level) and np.isfinite(onset):
        return (
            f"Beyond the {inputs} inputs (|x| up to {number(edge)}) its predictions flatten: they "
            f"are level at {at}{number(level)} from x = {number(onset)} on, whatever the target "
            "does."
        )
    power = upward["E_f"]
    if np.isfinite(power) and power > FLAT:
        return f"Far beyond the {inputs} inputs its predictions grow like |x|^{power:.2f}."
    return ""
