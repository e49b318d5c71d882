"""Steps of the implicit weights by the number of examples: their directions and their sizes."""

from collections.abc import Sequence

import numpy as np
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import BLUE, GREY
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel, Zone
from icl_interp.figures.style import VERDICTS
from icl_interp.figures.text import plain, tested_by
from icl_interp.studies.implicit_update.claims import steps as learning
from icl_interp.studies.implicit_update.measurements.updates import FOREIGN, SIZE, steps

N = Axis("examples before the step", log=True, whole=True)
COSINE = Axis("cosine / largest", holds=(0.0, 1.0))
LENGTH = Axis("size / first", log=True)
ZONES = (
    Zone(y=(learning.ALIGNED, np.inf), colour=VERDICTS["supported"].pale),
    Zone(y=(-np.inf, learning.ASIDE), colour=VERDICTS["contradicted"].pale),
)
SIZES = (("labels of the function", SIZE, BLUE), ("labels of other functions", FOREIGN, GREY))


def panels(result: DataArray) -> list[Panel]:
    """Cosines with descent steps on the left, root mean square sizes on the right."""
    n = result["examples"].values.astype(float)
    # Zones are those of the mean over steps.
    own = _cosines(result, n, "own example", BLUE)
    another = _cosines(result, n, "another example", GREY)
    left = Panel("Direction", N, COSINE, [*ZONES, own, another])
    # Sizes are of the first with the prompt's own labels.
    own_sizes = _size(result, SIZE)
    first = own_sizes[0] or 1.0
    sizes: list[Mark] = []
    for name, number, colour in SIZES:
        size = _size(result, number) / first
        sizes.append(Line(n, size, name=name, colour=colour, symbol="circle"))
    average = n[0] / n
    sizes.append(Line(n, average, name="1 / n", colour=GREY, dash="dot", hover=""))
    right = Panel("Size", N, LENGTH, sizes)
    return [left, right]


def _cosines(result: DataArray, n: np.ndarray, name: str, colour: str) -> Line:
    """A cosine at each number of examples, with its interval."""
    own = name == "own example"
    ends = np.zeros((3, len(n)))
    for place in range(len(n)):
        one = result.isel(examples=[place])
        found = learning.cosine(one, own)
        ends[:, place] = found.value, found.low, found.high
    value, low, high = ends
    return Line(n, value, low, high, name, colour, symbol="circle")


def _size(result: DataArray, number: str) -> np.ndarray:
    """Root mean square over prompts."""
    squares = result.sel(number=number) ** 2
    return np.sqrt(squares.mean("unit").values)


def implicit_steps(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """Cosines and sizes of steps over the number of examples."""
    result = results.get(steps)
    if result is None:
        return None
    note = plain(result.attrs["note"])
    below = tested_by("implicit_steps", findings) + f"<br>{note}."
    both = panels(result)
    return Drawing("Steps of the implicit weights", below, both, height=320)


FIGURE = ReportFigure(
    implicit_steps,
    "Examples act at the query as an update of the last MLP's first matrix; a step is its change "
    "by one more example. On the left the cosine of steps with the descent step of the loss of "
    "the example that they take in, and with that of another example of the prompt, over the "
    "largest cosine that there can be; intervals are over functions. In the shaded zones it is "
    "decided whether steps descend, by the mean. On the right the root mean square size of steps, "
    "with the prompt's labels and with labels of other functions, where nothing can be learned.",
)
