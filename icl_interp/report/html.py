"""HTML from the templates beside this file, by Jinja2.

All HTML of pages stands in templates. What they are given is escaped and made printable, unless it
is `Markup`: so no text of a report can become a tag, a script or a character that steers a
terminal.
"""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from icl_interp import descriptions
from icl_interp.checkpoints import assumptions
from icl_interp.errors import printable
from icl_interp.figures.style import VERDICTS
from icl_interp.figures.text import interval, name_of
from icl_interp.report import banner, findings, words


def _legible(value: Any) -> Any:
    """What an expression of a template gives, ready to be escaped."""
    return value if isinstance(value, Markup) else printable(value)


_TEMPLATES = Environment(
    loader=PackageLoader("icl_interp.report"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_legible,
    trim_blocks=True,
    lstrip_blocks=True,
)


# What every template may call or read.
_TEMPLATES.globals |= {
    "VERDICTS": VERDICTS,
    "OPEN": findings.OPEN,
    "interval": interval,
    "name_of": name_of,
    "anchor": findings.anchor,
    "found": findings.found,
    "found_of": findings.found_of,
    "is_listed": findings.is_listed,
    "same_columns": findings.same_columns,
    "scalar": descriptions.scalar,
    "shown_key": findings.shown_key,
    "unit_of": findings.unit_of,
    "answer": words.answer,
    "needed": words.needed,
    "region": words.region,
    "sentence": words.sentence,
    "checks": banner.checks,
    "describe": banner.describe,
    "is_whole": banner.is_whole,
    "tiles": banner.tiles,
    "assumed": assumptions.lines,
    "warnings": banner.warnings,
}


def rendered(template: str, **values: Any) -> Markup:
    """The HTML of a template.

    >>> rendered("table.html", note="a < b", names=["x"], rows=[]).splitlines()[0]
    Markup('<p class="quiet small">a &lt; b</p>')
    """
    return Markup(_TEMPLATES.get_template(template).render(values).strip())
