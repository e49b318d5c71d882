"""Figures: plotly, and nothing but drawing. Each is a pure function of stored results and findings."""

import icl_interp.studies  # noqa: F401  (their figures are then among these)
from icl_interp.figures.catalogue import FIGURES, ReportFigure, draw
from icl_interp.figures.files import export, plotly_js, to_div

__all__ = ["FIGURES", "ReportFigure", "draw", "export", "plotly_js", "to_div"]
