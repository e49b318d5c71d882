"""Where far queries are drawn: what a model does at the known places of a grid it need not do between them.

So no verdict rests on a known grid alone (`Bench.grid`). From the edge of the data to 1e10 times as
far a place is drawn in each stratum, for every pair of units anew.
"""

import numpy as np
import torch
from jaxtyping import Float

# Ends of strata, in units of x: half decades up to where the known grid ends, decades beyond. 1,
# 3.2, .. 1e6, .. 1e10.
STRATA = 10.0 ** np.concatenate([np.arange(0, 6, 0.5), np.arange(6, 10.01)])
MIDDLES = np.sqrt(
    STRATA[:-1] * STRATA[1:]
)  # what a drawn place is called by: the middle of its stratum
DRAWN = np.concatenate([-MIDDLES[::-1], MIDDLES])


def sizes(n_units: int, generator: torch.Generator) -> Float[np.ndarray, "unit place"]:
    """A signed size in each stratum and direction, ordered as `DRAWN`, in units of x.

    Log-uniform within a stratum, and independent of one another: two that lay exactly a decade
    apart would miss what has that period. Two units share each place, so that contexts of two
    functions can be compared there.

    >>> found = sizes(4, torch.Generator().manual_seed(0))
    >>> found.shape, bool((found[0] == found[1]).all()), bool((found[1] == found[2]).any())
    ((4, 32), True, False)
    """
    n = -(-n_units // 2)
    share = torch.rand(n, len(DRAWN), generator=generator, dtype=torch.float64).numpy()
    low, high = (
        np.concatenate([ends[::-1], ends]) for ends in (np.log(STRATA[:-1]), np.log(STRATA[1:]))
    )
    drawn = np.sign(DRAWN) * np.exp(low + share * (high - low))
    return np.repeat(drawn, 2, 0)[:n_units]
