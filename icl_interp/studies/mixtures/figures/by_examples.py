"""Errors by the number of examples: a row a model, a panel a kind of functions."""

from collections.abc import Mapping

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp.figures.colours import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, SKY
from icl_interp.figures.drawing import Axis, Band, Drawing, Line, Mark, Panel, Rule
from icl_interp.figures.text import plain
from icl_interp.results import Result
from icl_interp.studies.mixtures.experiments.by_examples import HIGH, LOW
from icl_interp.studies.mixtures.measurements.distances import BAYES, BEST, MODEL, OUTSIDE
from icl_interp.studies.mixtures.measurements.laws import ONE

X = Axis("examples", whole=True)
Y = Axis("error / mean square", log=True)
LOOKS = {MODEL: (BLUE, "solid"), BAYES: (INK, "solid"), ONE: (GREY, "dash"), BEST: (PURPLE, "dot")}
FAMILIES = (ORANGE, GREEN, SKY)


def by_examples(results: Mapping[str, Result], comparison: DataFrame | None) -> dict[str, Drawing]:
    """Lines of all predictors; the model's has its interval."""
    curves = results.get("curves")
    if not isinstance(curves, DataArray):
        return {}
    panels = []
    kinds = list(curves.indexes["functions"])
    for model in curves.indexes["model"]:
        for functions in kinds:
            here = curves.sel(model=model, functions=functions)
            marks = _marks(here, functions == OUTSIDE)
            panels.append(Panel(f"{model}: {functions}", X, Y, marks))
    below = (
        f"{plain(curves.attrs['note'])}. Band: 95 % over blocks of prompts. The predictor of a "
        "family takes all functions for its own. At the dotted line a predictor is as bad as the "
        "mean of f(x) over the mixture."
    )
    title = "On a mixture, on its families and outside, by the number of examples"
    size = {"height": 230, "columns": len(kinds), "same_y": True}
    return {"by_examples": Drawing(title, below, panels, **size)}


def _marks(found: DataArray, outside: bool) -> list[Mark]:
    """Of one panel. The best predictor for the functions has a line of its own outside only."""
    n_examples = np.asarray(found.indexes["examples"])
    low, high = found.sel(line=[LOW, HIGH]).values
    marks: list[Mark] = [Rule(y=1.0, colour=INK), Band(n_examples, low, high, BLUE)]
    families = iter(FAMILIES)
    for who in found.indexes["line"][2:]:
        colour, dash = LOOKS.get(who) or (next(families), "dash")
        if who != BEST or outside:
            error = found.sel(line=who).values
            hover = f"{who}<br>{{x}} examples: {{y:.3g}}"
            line = Line(n_examples, error, name=who, colour=colour, dash=dash, hover=hover)
            marks.append(line)
    return marks
