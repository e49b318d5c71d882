"""Sphinx: `make docs`.

`assemble.py` makes the sources in build/docs/source; pages fetch nothing from a network.
"""

import hashlib
import os
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

import icl_interp
from icl_interp.figures import plotly_js

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "docs"
STATIC = BUILD / "static"

project = "icl_interp"
author = "The icl_interp authors"
version = release = icl_interp.__version__
project_copyright = author

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
viewcode_line_numbers = True
default_role = "literal"  # docstrings put code between single backticks
html_theme = "furo"
html_title = f"icl_interp {version}"
html_static_path = [str(ROOT / "docs" / "static"), str(STATIC)]
html_css_files = ["site.css"]
html_js_files = ["copy.js", "claims.js"]
html_show_sphinx = html_show_sourcelink = html_copy_source = False
html_math_renderer = "mathml"

autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True}
python_maximum_signature_line_length = 90
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = [("Results", "params_style")]  # of probes

myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "cache"
nb_execution_timeout = 600
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_output_stderr = "remove"  # progress bars


def _code() -> str:
    """A hash of the package: outputs that other code made are not shown."""
    found = hashlib.sha256()
    for path in sorted((ROOT / "icl_interp").rglob("*")):
        if path.suffix in (".py", ".json", ".yaml", ".safetensors"):
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


nb_execution_cache_path = str(BUILD / "executed" / _code())


def _kernel() -> None:
    """Make notebook kernels register the renderer of `figures.py` at start.

    A figure is then a div with its data as JSON.
    """
    startup = BUILD / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True, exist_ok=True)
    (startup / "site.py").write_text((ROOT / "docs" / "kernel.py").read_text("utf-8"), "utf-8")
    (startup.parent / "ipython_kernel_config.py").write_text(
        'c.IPKernelApp.log_level = "ERROR"\n', "utf-8"
    )
    os.environ.update(
        IPYTHONDIR=str(startup.parents[1]),
        HF_HUB_OFFLINE="1",
        PYTHONPATH=os.pathsep.join(
            [str(ROOT), str(ROOT / "docs"), *filter(None, [os.environ.get("PYTHONPATH")])]
        ),
        PYTHONWARNINGS="ignore",
    )


def _plain_docstring(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Docstrings are plain text with code in backticks.

    Bars, stars and underscores of formulas are no markup.
    """
    for i, line in enumerate(lines):
        parts = re.split(r"(``.*?``|`[^`]*`|:[A-Za-z]+(?: [\w\\*]+)*:|\*\*[\w\\, ]+\*\*)", line)
        if not line.lstrip().startswith((">>>", "...", ".. ")):
            lines[i] = "".join(
                part if j % 2 else _escaped(part, first=j == 0) for j, part in enumerate(parts)
            )


def _escaped(text: str, first: bool) -> str:
    bullet = (
        re.match(r"\s*\* ", text) if first else re.fullmatch(r"\s*\* ", text)
    )  # of a list, also one in a field
    start = bullet.end() if bullet else 0
    return text[:start] + re.sub(r"(?<!\\)(\||\*|(?<=\w)_(?!\w))", r"\\\1", text[start:])


def _mathml(tex: str, block: bool = False) -> str:
    """MathML, which browsers draw by themselves: MathJax would come from a network."""
    return tex2mathml(tex.replace(r"\dots", r"\ldots"), as_block=block)


def _inline(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(_mathml(node.astext()))
    raise nodes.SkipNode


def _display(self: HTML5Translator, node: nodes.math_block) -> None:
    self.body.append(f'<div class="math">{_mathml(node.astext(), block=True)}</div>')
    raise nodes.SkipNode


def _with_figures(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document
) -> None:
    """plotly.js stands in the site once, and is loaded by pages with a figure only."""
    if doctree is not None and any(
        "plotly-figure" in raw.astext() for raw in doctree.findall(nodes.raw)
    ):
        app.add_js_file("plotly.min.js")
        app.add_js_file("figures.js")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    STATIC.mkdir(parents=True, exist_ok=True)
    (STATIC / "plotly.min.js").write_text(plotly_js(), "utf-8")
    _kernel()
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    app.connect("autodoc-process-docstring", _plain_docstring, priority=900)  # after napoleon
    app.connect("html-page-context", _with_figures)
    return {"parallel_read_safe": False}
