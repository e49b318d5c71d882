"""Figure 5 of Naim & Asher (2025): error rate against sigma, Gaussian inputs and functions."""

from pandas import DataFrame

from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Model, Results
from icl_interp.experiments.setup import Setup
from icl_interp.results import Result
from icl_interp.studies.limits.experiments import settings
from icl_interp.studies.limits.experiments.figure3 import GAUSSIAN, own_degrees, states_rates
from icl_interp.studies.limits.experiments.printed import PAPER


def run_figure5(setup: Setup) -> dict[str, Result]:
    """The same for inputs on N(0, 1) and coefficients on N(0, sigma^2)."""
    return {"errors": own_degrees(setup, GAUSSIAN, "normal")}


def compare_figure5(results: Results) -> DataFrame | None:
    """Our error rates; the paper's curves come without numbers."""
    rows = [
        {
            "model": row["predictor"],
            "sigma": row["sigma"],
            "ours": row["error_rate"],
            "low": row["rate_low"],
            "high": row["rate_high"],
        }
        for row in errors.rows_of(results, "errors")
        if row["predictor"] not in ("least squares", "zero")
    ]
    return errors.as_table(rows, "error rate, a model for each degree on its own degree")


FIGURE5_EXPERIMENT = Experiment(
    "limits.figure5",
    "Error rate against sigma for Gaussian inputs and coefficients",
    f"{PAPER}, appendix B, Figure 5",
    tuple(Model(name) for name in GAUSSIAN.values()),
    run_figure5,
    states_rates,
    compare_figure5,
    settings=settings.SETTINGS["figure5"],
)
