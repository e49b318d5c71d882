"""Table 4 of Naim & Asher (2025): softmax of three vectors, and of the same vectors moved.

No model is needed.
"""

import numpy as np
import torch
from pandas import DataFrame

from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Results
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_least, none_of, statement
from icl_interp.results import Result, table_of_rows
from icl_interp.studies.limits.experiments import printed, settings
from icl_interp.studies.limits.experiments.printed import PAPER

COLUMNS = ("a", "b", "c")
DECIMALS = 6  # that the paper prints
NUMBERS = none_of("numbers that are not the paper's")
# The caption: with large values softmax performs like hardmax. Large values with the gaps of small
# ones test that.
HARD = at_least("largest weight of the first vector moved to the size of the third", 0.95, 0.5)


def vectors() -> dict[str, torch.Tensor]:
    """The paper's three vectors, and three more in which size and gap part.

    "a + 999" has the size of c and the gaps of a, "b - 99" the gaps of b and a size near 0, and
    "a x 1000" the gaps of c.
    """
    printed_rows = printed.rows("limits.table4")
    given = {}
    for column in COLUMNS:
        values = [float(row[f"value_{column}"]) for row in printed_rows]
        given[column] = torch.tensor(values, dtype=torch.float64)
    a, b, _ = given.values()
    given["a + 999"] = a + 999
    given["b - 99"] = b - 99
    given["a x 1000"] = 1000 * a
    return given


def run(setup: Setup) -> dict[str, Result]:
    """Softmax in float64 of each vector, with its size and its largest gap."""
    rows = []
    for name, vector in vectors().items():
        weights = torch.softmax(vector, -1)
        ascending = vector.sort().values
        gap = float(ascending[-1] - ascending[-2])
        for value, weight in zip(vector.tolist(), weights.tolist(), strict=True):
            row = {"vector": name, "value": value, "softmax": weight, "gap to the next": gap}
            rows.append(row)
    return {"softmax": table_of_rows(rows, note="float64")}


def compare(results: Results) -> DataFrame:
    """All fifteen numbers."""
    rows = []
    for column in COLUMNS:
        ours = errors.rows_of(results, "softmax", vector=column)
        for paper, row in zip(printed.rows("limits.table4"), ours, strict=True):
            number = float(paper[f"softmax_{column}"])
            softmax = row["softmax"]
            compared = {
                "vector": column,
                "value": row["value"],
                "paper": number,
                "ours": softmax,
                "ours / paper": softmax / number if number else float("nan"),
                "same to 6 decimals": round(softmax, DECIMALS) == number,
            }
            rows.append(compared)
    return table_of_rows(rows, note=printed.SOURCES["limits.table4"])


def states(results: Results) -> tuple[Statement, ...]:
    """Whether the numbers hold, which is arithmetic, and whether the caption does.

    The caption asks: is it the size that counts, or the gaps?
    """
    table = compare(results)
    same = sum(table["same to 6 decimals"])
    numbers = statement(
        f"{same} of {len(table)} numbers are the paper's to {DECIMALS} decimals.",
        NUMBERS,
        len(table) - same,
        kind="formula",
    )
    weights = {}
    for name in vectors():
        rows = errors.rows_of(results, "softmax", vector=name)
        weights[name] = np.array([row["softmax"] for row in rows])
    sharp = weights["c"].max()
    flat = weights["a"].max()
    moved = weights["a + 999"].max()
    # A number that is added to all values should change no weight.
    change_of_a = np.abs(weights["a + 999"] - weights["a"])
    change_of_b = np.abs(weights["b - 99"] - weights["b"])
    shift = max(change_of_a.max(), change_of_b.max())
    text = (
        "the caption says that softmax performs like hardmax for large values. Moved to the size "
        f"of the third vector (a + 999), the first has a largest weight of {moved:.3f}, {flat:.3f} "
        f"before and {sharp:.3f} for the third; adding a number to all values changes no weight by "
        f"more than {shift:.1g}. From the first vector to the third the gaps grow a thousandfold "
        "too."
    )
    caption = statement(text, HARD, moved)
    return (numbers, caption)


TABLE4_EXPERIMENT = Experiment(
    "limits.table4",
    "Softmax of small and of large values: it is the gaps, not the size",
    f"{PAPER}, appendix G.2, Table 4",
    (),
    run,
    states,
    compare,
    sample="three vectors of five numbers, and the same moved; no model",
    settings=settings.SETTINGS["table4"],
)
