"""One prompt, its examples coloured by their weight in the prediction, and the kernel of all."""

import numpy as np
from plotly.graph_objects import Figure

from icl_interp.errors import whole
from icl_interp.figures.colours import BLUE, INK, ORANGE, PALE
from icl_interp.figures.drawing import Axis, Band, Drawing, Line, Mark, Panel, Points, Rule
from icl_interp.figures.render import render
from icl_interp.probes.influence import ExampleInfluence
from icl_interp.probes.units import FEWEST

HOVER = "{text}<br>x = {x:.3g}, y = {y:.3g}"
SMALL = 6.0  # pixels of an example that does not count
LARGE = 18.0  # pixels of the example that weighs most


def influence(found: ExampleInfluence, prompt: int = 0) -> Figure:
    """The examples of one prompt coloured by weight, and the mean weight by distance.

    Args:
        found: what `ExampleInfluence.measure` gave.
        prompt: which of its prompts.

    Raises:
        InputError: there is no such prompt.

    >>> from icl_interp import baselines, tasks
    >>> from icl_interp.provenance import generator
    >>> task = tasks.LinearRegression(n_dims=1, n_points=6)
    >>> prompts = task.sample(8, generator(0, "doc"))
    >>> figure = influence(ExampleInfluence.measure(baselines.Averaging(), prompts))
    >>> len(figure.data) > 2
    True
    """
    return render(drawn(found, prompt))


def drawn(found: ExampleInfluence, prompt: int = 0) -> Drawing:
    """The same as data."""
    n_prompts = len(found.prompts)
    prompt = whole(prompt, "prompt", 0, n_prompts - 1)
    panels = [_examples(found, prompt)]
    if len(np.unique(found.prompts.function.cpu().numpy())) >= FEWEST:
        panels.append(_kernel(found))
    of = f"prompt {prompt} of {n_prompts}"
    below = f"Weights are derivatives in the labels. Left: {of}; the line is its query."
    return Drawing("Which examples make the prediction", below, panels)


def _examples(found: ExampleInfluence, prompt: int) -> Panel:
    xs = found.prompts.xs[prompt].cpu().numpy()
    ys = found.prompts.ys[prompt, :-1, 0].cpu().numpy()
    weights = found.weights.values[prompt]
    one_number = xs.shape[1] == 1
    across = xs[:, 0]
    if not one_number:
        away = xs - xs[-1]
        across = np.linalg.norm(away, axis=1)
    # The largest weight has the full colour and the largest mark.
    largest = float(abs(weights).max()) or 1.0
    share = weights / largest
    colours = [_colour(one) for one in share]
    sizes = SMALL + (LARGE - SMALL) * abs(share)
    words = [f"example {i}: weight {w:.3g}" for i, w in enumerate(weights)]
    look = {"colour": colours, "size": sizes.tolist()}
    examples = Points(across[:-1], ys, **look, texts=words, hover=HOVER)
    predicted = found.predictions.values[[prompt]]
    query = Points(across[-1:], predicted, name="prediction", colour=INK, symbol="x")
    marks: list[Mark] = [Rule(x=float(across[-1])), examples, query]
    title = "x" if one_number else "distance to the query"
    return Panel("Examples: orange counts for, blue against", Axis(title), Axis("y"), marks)


def _kernel(found: ExampleInfluence) -> Panel:
    table = found.kernel()
    away = table["distance"].to_numpy()
    low = table["low"].to_numpy()
    high = table["high"].to_numpy()
    band = Band(away, low, high)
    line = Line(away, table["weight"].to_numpy(), name="mean weight")
    marks: list[Mark] = [Rule(y=0.0), band, line]
    across = Axis("distance to the query")
    return Panel("Mean weight, all prompts", across, Axis("weight"), marks)


def _colour(share: float) -> str:
    """From blue for -1 by way of pale for 0 to orange for 1."""
    end = ORANGE if share > 0 else BLUE
    mixed = []
    for start in (1, 3, 5):  # red, green, blue
        pale = int(PALE[start : start + 2], 16)
        full = int(end[start : start + 2], 16)
        part = abs(share) * (full - pale)
        mixed.append(round(pale + part))
    return "#" + bytes(mixed).hex()
