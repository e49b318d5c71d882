"""What the claims of `linear_attention` that are read off weights share."""

from icl_interp.analyses.measurement import Results
from icl_interp.results import numbers_in
from icl_interp.studies.linear_attention.measurements.weights import numbers

NEAR = 0.05  # relative distance that counts as reached
FAR = 0.2  # relative distance that counts as not reached
MIN_POINTS = 5  # snapshots for a statement about a path
SCOPE = "these weights, this task; exact, since nothing is sampled"
TIED_TERMS = "The claim is judged only where the product of the weights makes the predictions."


def stored_numbers(results: Results) -> dict[str, float]:
    """The numbers that were read off the weights, by name."""
    return numbers_in(results[numbers])
