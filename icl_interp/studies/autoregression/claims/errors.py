"""What claims share that ask how errors rise: errors in each arm, and whether the model predicts.

An arm is the model as it is, or with some part of it changed.
"""

from xarray import DataArray

from icl_interp.analyses.criterion import Estimate, Precondition, at_most
from icl_interp.analyses.facts import Facts
from icl_interp.resampling import Interval, bootstrap
from icl_interp.studies.autoregression.measurements.lengths import worst

LEARNED = 0.1  # normalised error up to which a model counts as one that predicts the next state
HARMLESS = 0.05  # rise of the normalised error with other weights of positions
HARMFUL = 0.2
ERROR = "error / squared length of the next state"  # in details
UNIT = "of the next state's squared length"
TERMS = (
    "Errors are mean squared errors over the squared length of the next state. Largest and "
    "smallest are over the states of a prompt."
)

PREDICTS = Precondition(
    "error",
    at_most(LEARNED),
    "The model hardly predicts the next state: its error is {value:.2g} of that state's squared "
    f"length (at most {LEARNED:g} allowed).",
)


def rise(result: DataArray, arm: str, own: str, smallest: bool = False) -> Estimate:
    """The normalised error in an arm less that of the model.

    The state is the one after which it is largest, or with `smallest` smallest.

    Args:
        result: normalised errors: (unit, point, arm).
        arm: the arm.
        own: the arm that is the model as it is.
        smallest: whether the smallest rise is asked for.
    """
    changed = result.sel(arm=arm).values
    usual = result.sel(arm=own).values
    return worst(lambda a, b: a - b, changed, usual, smallest=smallest)


def error(result: DataArray, own: str) -> Interval:
    """The normalised error of the model as it is.

    R^2 is no gate: for small angles one fixed rotation predicts well.
    """
    return bootstrap(lambda e: e.mean(-1), result.sel(arm=own).values)


def error_rows(result: DataArray, what: str) -> tuple[dict[str, str | float], ...]:
    """A row for each arm: its mean normalised error.

    Args:
        result: normalised errors: (unit, point, arm).
        what: what arms differ in, as the name of a column.
    """
    rows = []
    for arm in result.indexes["arm"]:
        mean = float(result.sel(arm=arm).values.mean())
        rows.append({what: str(arm), ERROR: mean})
    return tuple(rows)


def never_asked(facts: Facts) -> None:
    """The criterion asks whether the model predicts the next state."""
