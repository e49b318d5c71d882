"""Run at the start of each notebook of the documentation: a figure is a div that holds its data (static/figures.js)."""

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
