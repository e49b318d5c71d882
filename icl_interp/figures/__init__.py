"""Figures: plotly, and nothing but drawing. Each is a pure function of stored results and findings."""

from icl_interp.figures.catalogue import CAPTIONS, FIGURES, draw
from icl_interp.figures.files import export, plotly_js, to_div

__all__ = ["CAPTIONS", "FIGURES", "draw", "export", "plotly_js", "to_div"]
