"""Numbers and words for figures and pages. Rounded for the eye; what is stored is never rounded."""

import html
import math
import re
from collections.abc import Iterable, Sequence
from typing import LiteralString

from markupsafe import Markup

from icl_interp.analyses.criterion import Estimate
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.natural import SHARE
from icl_interp.descriptions import MINUS, number


def interval(estimate: Estimate, unit: bool = True) -> str:
    """An estimate with its interval and its unit.

    The interval's width determines the number of decimals, at most 7.

    >>> interval(Estimate("plateau", -0.1523770361, -0.1523818344, -0.1523722084, "f"))
    '−0.1523770 [−0.1523818, −0.1523722] f'
    >>> interval(Estimate("ratio", 0.0513168, -0.0049297, 0.1022714))
    '0.051 [−0.005, 0.102]'
    >>> interval(Estimate("share of heads", 0.25, 0.2, 0.3, "share"))
    '25.0 [20.0, 30.0] %'
    """
    word = estimate.unit
    values = [estimate.value, estimate.low, estimate.high]
    if unit and word == SHARE:
        word = "%"
        values = [100 * value for value in values]
    _, low, high = values
    width = high - low
    size = max(map(abs, values))
    if math.isfinite(width) and width > 0 and 1e-4 <= size < 1e5:
        # A narrow interval shows one digit of its width, a wide one two.
        digits = 2 if width > 0.1 * size else 1
        decimals = digits - math.floor(math.log10(width))
        decimals = min(max(0, decimals), 7)
        texts = []
        for value in values:
            texts.append(f"{value:.{decimals}f}".replace("-", MINUS))
    else:
        texts = [number(value, 2) for value in values]
    text = f"{texts[0]} [{texts[1]}, {texts[2]}]"
    return f"{text} {word}" if unit and word else text


def plain(text: object) -> str:
    """Text that plotly, which reads a little HTML, shows as it stands."""
    return html.escape(str(text), quote=False)


def markup(template: LiteralString, *values: object) -> Markup:
    """Text of a figure with tags, as in `str.format`; values are escaped unless they are `Markup`.

    Templates stand in the code in full: no f-string, no variable. Those of pages are files.

    >>> markup("<b>{}</b>: {}", "a < b", markup("<i>{}</i>", 1))
    Markup('<b>a &lt; b</b>: <i>1</i>')
    """
    return Markup(template).format(*values)


def joined(parts: Iterable[str], between: LiteralString = "") -> Markup:
    """Pieces of a text with tags in a row; what is no `Markup` is escaped."""
    return Markup(between).join(parts)


def escaped(words: str) -> str:
    """Words as plotly shows them as they stand; `Markup` has tags of its own and is kept.

    >>> escaped("a < b"), escaped(Markup("<i>a</i>"))
    ('a &lt; b', '<i>a</i>')
    """
    text = str(words) if isinstance(words, Markup) else plain(words)
    return text.replace("\n", "<br>")


# The start of any tag but those that figures here use.
_FOREIGN = re.compile(
    r'<(?=[A-Za-z/!?])(?!/?(?:b|i|sub|sup|extra)>|br>|span style="[\w.:;#-]*">|/span>)'
)


def without_foreign_tags(text: str) -> str:
    """The text of a figure in which every tag that figures here do not use is shown as it stands.

    >>> without_foreign_tags('<b>1 < 2</b> <a href="https://example.org">x</a>')
    '<b>1 < 2</b> &lt;a href="https://example.org">x&lt;/a>'
    """
    return _FOREIGN.sub("&lt;", text)


def name_of(estimate: Estimate) -> str:
    """What was estimated, with a true minus where it names a difference.

    >>> name_of(Estimate("growth exponent, frozen - intact", 1, 1, 1))
    'growth exponent, frozen − intact'
    """
    return estimate.name.replace(" - ", f" {MINUS} ")


def authors(source: str) -> str:
    """Who and when, without the place in the work.

    >>> authors("Naim & Asher (2025), section 5 and Proposition 6")
    'Naim & Asher (2025)'
    >>> authors("Zhang, Frei & Bartlett (2023), Lemma 5.4")
    'Zhang, Frei & Bartlett (2023)'
    """
    dated = re.match(r".*?\(\d{4}\)", source)
    if dated:
        return dated[0]
    before, _, _ = source.partition(",")
    return before


def tested_by(figure: str, findings: Sequence[Finding]) -> str:
    """The claims that a figure shows and their sources, a line each, for plotly."""
    lines = []
    for f in findings:
        if figure in f.figures and f.verdict != "not_applicable":
            lines.append(f"Tests <b>{plain(f.id)}</b> ({plain(f.source)}): {f.verdict}")
    return "<br>".join(lines) or "No claim rests on it here"
