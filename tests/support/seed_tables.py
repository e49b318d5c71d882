"""Made-up tables of runs, as from `studies.limits.measurements.seeds`: arms of several seeds."""

import numpy as np
from pandas import DataFrame

from icl_interp.results import make_table
from icl_interp.studies.limits.measurements.seeds import OWN, TRAINED, UNTRAINED
from icl_interp.studies.limits.measurements.shift import INSIDE, RATE, SIGMAS

SPREAD = (0.96, 0.98, 1.0, 1.02, 1.04, 0.97, 1.03, 0.99)  # of seeds about their arm's number
LEVEL = 1e-3


def table(rows: list[dict]) -> DataFrame:
    """Rows of several arms as one table; what a row lacks is NaN."""
    columns = dict.fromkeys(key for row in rows for key in row)
    return make_table({name: [row.get(name, np.nan) for row in rows] for name in columns})


def arm(
    name: str = OWN,
    n: int = 5,
    *,
    rate=LEVEL,
    spread=SPREAD,
    fresh: float = 1.0,
    a: float = 1.0,
    training="t",
    **numbers,
) -> list[dict]:
    """Rows of an arm: each number times what the seed differs by.

    Untrained runs have `fresh` for all of them.
    """
    told = {
        "arm": name,
        "weights": "0" * 12,
        "kind": name,
        "training": training,
        "recipe": "affine",
        "a": a,
    }
    rates = np.broadcast_to(rate, (n,))
    rows = [
        {
            **told,
            "weights are": TRAINED,
            "run": f"{name} {i}",
            "seed": i,
            "numbers": "comes with the package",
            RATE: float(rates[i]) * spread[i],
            **{key: value * spread[i] for key, value in numbers.items()},
        }
        for i in range(n)
    ]
    blank = {key: fresh for key in (RATE, *numbers)}
    return rows + [
        {
            **told,
            "weights are": UNTRAINED,
            "run": "fresh",
            "seed": i,
            "numbers": "",
            **{k: v * s for k, v in blank.items()},
        }
        for i, s in enumerate(SPREAD[:5])
    ]


def scaled(ratio: float = 1.0, far: float | None = None) -> dict[str, float]:
    """Errors as functions are scaled: `ratio` times LEVEL in distribution.

    Beyond, they are `far` times LEVEL times the square of the scale.
    """
    beyond = ratio if far is None else far
    return {f"functions {s:g}": (ratio if s == 1 else beyond * s**2) * LEVEL for s in SIGMAS}


def across(error) -> dict[str, float]:
    """Errors across the domain, a function of |x| / half-width."""
    return {f"inside {x:g}": float(error(x)) * LEVEL for x in INSIDE}
