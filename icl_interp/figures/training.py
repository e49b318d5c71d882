"""A run's training: its loss, its learning rate and the length of its prompts, by step."""

from pandas import DataFrame

from icl_interp.figures.colours import BLUE, GREY, ORANGE
from icl_interp.figures.drawing import Axis, Drawing, Line, Panel
from icl_interp.figures.render import render
from icl_interp.figures.style import Figure

LEAST = 1e-12  # smaller losses are drawn here
BELOW = (
    "The loss is the squared error over all prefixes of the prompts of one step, before the step. "
    "With a curriculum, shorter prompts come first."
)


def curves(lines: DataFrame) -> Figure:
    """Three panels over steps.

    Args:
        lines: of metrics, a row a line, with columns "step", "loss", "learning_rate", "n_points"
            and, beside a finite set of prompts, "test_loss".
    """
    steps = lines["step"].to_numpy(dtype=float)
    losses = [Line(steps, lines["loss"].to_numpy(dtype=float), name="loss", colour=BLUE)]
    if "test_loss" in lines:
        test = lines["test_loss"].to_numpy(dtype=float)
        losses.append(Line(steps, test, name="loss on the test set", colour=ORANGE))
    rate = Line(steps, lines["learning_rate"].to_numpy(dtype=float), colour=GREY, listed=False)
    points = Line(steps, lines["n_points"].to_numpy(dtype=float), colour=GREY, listed=False)
    x = Axis("step")
    panels = [
        Panel("Loss", x, Axis("squared error", log=True, least=LEAST), losses),
        Panel("Learning rate", x, Axis("learning rate"), [rate]),
        Panel("Curriculum", x, Axis("points of a prompt", whole=True), [points]),
    ]
    return render(Drawing("Training", BELOW, panels, height=320, columns=3))
