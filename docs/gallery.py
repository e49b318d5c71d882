"""The gallery: the code on its page is run, and each figure stands below its code."""

import re
from typing import Any

from divs import div

BLOCK = re.compile(r"^```python\n(.*?)^```$\n?", re.MULTILINE | re.DOTALL)


def with_figures(text: str) -> str:
    """The page with a figure after each block of Python.

    Args:
        text: Markdown. Its blocks are run from top to bottom; each but the first, which only
            prepares, leaves a new plotly figure under the name `figure`.
    """
    names: dict[str, Any] = {"__name__": "gallery"}

    def run(match: re.Match[str]) -> str:
        exec(compile(match[1], "<gallery.md>", "exec"), names)
        figure = names.pop("figure", None)
        return f"{match[0]}{_shown(figure)}" if figure is not None else match[0]

    return BLOCK.sub(run, text)


def _shown(figure: Any) -> str:
    return f"\n```{{raw}} html\n{div(figure)}\n```\n"
