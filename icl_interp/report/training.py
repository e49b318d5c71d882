"""A run folder as a page, and its loss as a plot of letters for a terminal."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from icl_interp.checkpoints.store import Checkpoint
from icl_interp.errors import InputError
from icl_interp.figures import files, training
from icl_interp.provenance import as_json, encode, write_atomically
from icl_interp.report.html import rendered
from icl_interp.report.page import document
from icl_interp.training import state

PAGE = "training.html"
MARK = "•"
WIDTH = 60  # of the plot, in letters
HEIGHT = 8


def lines_of(run: Checkpoint) -> list[dict[str, Any]]:
    """The lines of metrics of a run folder, up to the step of its checkpoint.

    Raises:
        InputError: the checkpoint comes from no run folder, or its metrics cannot be read.
    """
    if run.folder is None or run.config.training is None:
        raise InputError(f"{run.name} is not a run folder, so it has no metrics of its training")
    return state.read_metrics(run.folder, run.config.training, run.step)


def write_page(run: Checkpoint) -> Path:
    """Write the page of a run into its folder: loss, learning rate, curriculum and config.

    Returns:
        The page, which opens offline.

    Raises:
        InputError: as `lines_of`, or the folder cannot be written to.
    """
    lines = lines_of(run)
    assert run.folder is not None
    assert run.config.training is not None
    figure = files.to_div(training.curves(pd.DataFrame(lines)), "figure-training")
    config = encode(run.config)
    body = rendered(
        "training.html",
        name=run.name,
        step=run.step,
        steps=run.config.training.steps,
        model={"config": config["model"], "task": config["task"], "encoding": run.config.encoding},
        error=run.provenance.get("in_distribution"),
        figure=figure,
        config=as_json(config),
    )
    page = run.folder / PAGE
    write_atomically(page, document(run.name, body, [figure], state.METRICS))
    return page


def plot(lines: Sequence[dict[str, Any]]) -> str:
    """The loss over steps in letters, on a logarithmic axis; empty where there is too little.

    A column is the geometric mean of the losses that fall into it.

    >>> print(plot([{"step": step, "loss": 10.0**-step} for step in range(1, 4)]))
      0.1 |•
          |
          |
          |
          |                             •
          |
          |
    0.001 |                                                           •
     loss  step 1 to 3
    """
    steps = []
    logs = []
    for line in lines:
        if line["loss"] > 0:
            steps.append(line["step"])
            logs.append(math.log10(line["loss"]))
    if len(steps) < 2:
        return ""
    # The mean of each column, and its row: the largest stands on top.
    across = np.subtract(steps, steps[0]) * (WIDTH - 1) // (steps[-1] - steps[0])
    counts = np.bincount(across)
    columns = np.flatnonzero(counts)
    means = np.bincount(across, logs)[columns] / counts[columns]
    high = float(means.max())
    low = float(means.min())
    rows = np.rint((high - means) / max(high - low, 1e-9) * (HEIGHT - 1)).astype(int)
    grid = np.full((HEIGHT, WIDTH), " ")
    grid[rows, columns] = MARK
    # Numbers at both ends of the axis.
    labels = [""] * HEIGHT
    labels[0] = f"{10**high:.3g}"
    labels[-1] = f"{10**low:.3g}"
    text = []
    for label, row in zip(labels, grid, strict=True):
        text.append(f"{label:>9} |{''.join(row)}".rstrip())
    text.append(f"     loss  step {steps[0]:,} to {steps[-1]:,}")
    return "\n".join(text)
