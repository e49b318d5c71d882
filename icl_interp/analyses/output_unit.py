"""The unit of outputs: how much a model's own output varies in distribution."""

from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Results, measurement
from icl_interp.probes.sweep import Swept
from icl_interp.results import make_array


@measurement("scale/own", asks=lambda lab: lab.ask())
def own(lab: Lab, swept: Swept) -> DataArray:
    """Mean and standard deviation of the output f in distribution, each prompt at its own query.

    The standard deviation is u, the unit of every size of f. It belongs to the function that a
    model computes, not to its weights: edits that leave the function leave it. For vectors, u is
    the root of the summed variances of coordinates, and the mean is over coordinates, too.
    """
    f = swept.f[:, 0]
    u = f.var(0, unbiased=False).sum().sqrt()
    return make_array([float(f.mean()), float(u)], {"statistic": ("mean", "u")}, note="own queries")


def u(results: Results) -> float:
    """The unit of outputs, u."""
    return float(results[own].sel(statistic="u"))
