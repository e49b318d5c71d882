"""Figures: plotly, and nothing but drawing.

Each is a pure function of stored results and findings.
"""

from icl_interp.figures.attention import AttentionView, attention
from icl_interp.figures.catalogue import FIGURES, ReportFigure, draw
from icl_interp.figures.circuits import circuit_graph, edge_matrix
from icl_interp.figures.files import export, plotly_js, to_div
from icl_interp.figures.influence import influence
from icl_interp.figures.letters import Style
from icl_interp.figures.measured import plot
from icl_interp.figures.overlay import overlay, overlay_panels
from icl_interp.figures.paper import for_paper
from icl_interp.figures.places import composition, followed, readable, recovered, spectrum
from icl_interp.figures.render import render
from icl_interp.figures.roles import head_roles

__all__ = [
    "FIGURES",
    "AttentionView",
    "ReportFigure",
    "Style",
    "attention",
    "circuit_graph",
    "composition",
    "draw",
    "edge_matrix",
    "export",
    "followed",
    "for_paper",
    "head_roles",
    "influence",
    "overlay",
    "overlay_panels",
    "plot",
    "plotly_js",
    "readable",
    "recovered",
    "render",
    "spectrum",
    "to_div",
]
