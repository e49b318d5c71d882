"""What the first screen of a report says of a model of linear regression: its nearest algorithm."""

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.measurement import Results
from icl_interp.resampling import bootstrap
from icl_interp.studies.linear_attention.measurements import algorithms as measured
from icl_interp.studies.linear_attention.measurements.algorithms import SIZE, TRUTH


def nearest_algorithm(results: Results, facts: Facts) -> str:
    """The algorithm whose predictions lie nearest, after all layers and at the trained length."""
    if measured.algorithms not in results:
        return ""
    result = results[measured.algorithms]
    lengths = result.indexes["M"]
    trained = facts.n_points - 1
    m = trained if trained in lengths else lengths[-1]
    distance = result.sel(M=m, depth=result.indexes["depth"][-1], statistic="distance")
    size = distance.sel(algorithm=SIZE).values
    # The truth is no algorithm, and the size is the unit of the distances.
    means = distance.mean("unit").drop_sel(algorithm=[SIZE, TRUTH])
    nearest = str(means.idxmin("algorithm").item())
    apart = bootstrap(lambda d, s: d / s, distance.sel(algorithm=nearest).values, size)
    return (
        f"With {m} examples its predictions are nearest to {nearest}: the mean squared difference "
        f"is {apart.value:.2g} [{apart.low:.2g}, {apart.high:.2g}] of the target's mean square."
    )
