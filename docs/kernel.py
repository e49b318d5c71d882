"""Run at the start of each notebook of the documentation, so that a figure is a div.

The div holds the figure's data, and static/figures.js draws it.
"""

import plotly.io
from divs import div
from plotly.io.base_renderers import MimetypeRenderer


class Site(MimetypeRenderer):
    """Figures as HTML without plotly.js, which the site has once."""

    def to_mimebundle(self, fig_dict: dict) -> dict[str, str]:
        """A div with the figure's data."""
        return {"text/html": div(fig_dict)}


plotly.io.renderers["site"] = Site()
plotly.io.renderers.default = "site"
