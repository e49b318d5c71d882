"""The forest plot: for each claim a panel with its estimate over the zones of its criterion."""

import textwrap
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from icl_interp.analyses.criterion import Condition, Estimate
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.colours import INK
from icl_interp.figures.drawing import Axis, Column, Drawing, Mark, Panel, Points, Zone, rows
from icl_interp.figures.style import VERDICTS
from icl_interp.figures.text import authors, interval, joined, markup, name_of, number, plain

ROW = 18.0  # pixels of a row; each panel has two
TICKS = 7  # of an axis, at most
LINE = 70  # letters of a line of words that stand beside the pointer
WHOLE = {"share": (0.0, 1.0), "quantile": (0.0, 1.0)}  # units whose whole range is worth showing
ESTIMATE, CONTROL = 0, 1  # rows of a panel
WORDS = Axis(shown=False)  # of a panel that has only words
ZONES = ("supported", "contradicted")
BELOW = (
    "A panel for each claim: the estimate with its 95 % interval, on the claim's own axis. A "
    "verdict needs the whole interval in one zone. Zones were fixed before anything was measured. "
)


def forest(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """Every claim: statement, estimate over its verdict zones, its controls, verdict in words.

    Those that do not apply close the figure, a line each.
    """
    if not findings:
        return None
    # A panel for each claim that applies, and a last one for all others.
    panels = []
    skipped = []
    for finding in findings:
        if finding.verdict == "not_applicable":
            skipped.append(markup("{}: <i>{}</i>", finding.id, finding.reason))
        elif drawable(finding):
            panels.append(_panel(finding))
        else:
            panels.append(_only_words(finding))
    if skipped:
        look = VERDICTS["not_applicable"]
        title = f"{look.sign} {look.word}"
        panels.append(Panel(title, WORDS, WORDS, below=joined(skipped, "<br>")))
    below = BELOW
    if any(drawable(finding) for finding in findings):
        below += _meaning_of_zones()
    return Drawing("Which claims hold on these weights", below, panels, height=0, columns=1)


def drawable(finding: Finding) -> bool:
    """Whether a finding has numbers to draw."""
    e = finding.test
    return (
        finding.verdict != "not_applicable"
        and e is not None
        and bool(np.isfinite([e.value, e.low, e.high]).all())
    )


def control_intervention(finding: Finding) -> float | None:
    """The effect of the control intervention, where it was measured in the unit of the estimate."""
    value = (finding.causal or {}).get("sham effect")
    return float(value) if value is not None and np.isfinite(float(value)) else None


def extent(condition: Condition, values: list[float], unit: str) -> tuple[str, tuple[float, float]]:
    """The axis: it holds all values and both zones.

    Logarithmic only where every value is positive.
    """
    bounds = [b for b in (*condition.supports, *(condition.contradicts or ())) if np.isfinite(b)]
    held = np.array([*values, *bounds, *WHOLE.get(unit, ())])
    if condition.scale == "log" and (held > 0).all():
        logs = np.log10(held)
        pad = max(0.35, 0.08 * float(np.ptp(logs)))
        return "log", (float(10 ** (logs.min() - pad)), float(10 ** (logs.max() + pad)))
    # A zone that ends at the outermost value would not be seen: leave it an eighth of the axis.
    pad = (0.03 if unit in WHOLE else 0.125) * (float(np.ptp(held)) or abs(float(held[0])) or 1.0)
    return "linear", (float(held.min()) - pad, float(held.max()) + pad)


def _panel(finding: Finding) -> Panel:
    """The estimate over its zones, the controls below it, and the verdict beside it."""
    test = finding.test
    assert test is not None
    look = VERDICTS[finding.verdict]

    # The estimate stands in the first row, controls in the second.
    words = textwrap.wrap(finding.criterion.text, LINE)
    hover = [markup("<b>{}</b>", finding.id), f"{name_of(test)}: {interval(test)}", *words]
    points: list[Mark] = [
        _point(test, ESTIMATE, "circle", look.ink, "estimate, 95 % interval", hover)
    ]
    values = [test.value, test.low, test.high]
    control = finding.control
    if control is not None and np.isfinite(control.value):
        name = "randomly initialised control"
        points.append(_point(control, CONTROL, "diamond-open", INK, name, [interval(control)]))
        values += [v for v in (control.value, control.low, control.high) if np.isfinite(v)]
    effect = control_intervention(finding)
    if effect is not None:
        name = "control intervention"
        alone = Estimate(name, effect, effect, effect)
        hover = [f"{number(effect)} {test.unit}"]
        points.append(_point(alone, CONTROL, "square-open", INK, name, hover))
        values.append(effect)

    # The axis holds all of them, and the zones behind.
    scale, (low, high) = extent(finding.decided_by, values, test.unit)
    title = name_of(test)
    if test.unit:
        title += f" ({test.unit})"
    if scale == "log":
        title += ", log axis"
    x = Axis(title, low, high, log=scale == "log", labels=TICKS)
    # In two lines, so that a phone has room for the panel.
    numbers = interval(test, unit=False).replace(" [", "\n[")
    verdict = Column("", [f"{look.sign} {look.word}", numbers], [look.ink, INK])
    y = rows(["", ""], beside=[verdict])
    marks = [*_zones(finding.decided_by), *points]
    return Panel(finding.statement, x, y, marks, row=ROW, below=_source(finding))


def _only_words(finding: Finding) -> Panel:
    """A claim that was judged without a number."""
    look = VERDICTS[finding.verdict]
    verdict = markup("<b>{} {}</b>", look.sign, look.word)
    reason = markup("no estimate: <i>{}</i>", finding.reason)
    below = markup("{}, {}<br>{}", verdict, reason, _source(finding))
    return Panel(finding.statement, WORDS, WORDS, below=below)


def _source(finding: Finding) -> str:
    return f"{finding.id} · {authors(finding.source)}"


def _point(
    estimate: Estimate, row: int, symbol: str, colour: str, name: str, hover: Sequence[str]
) -> Points:
    """A mark with its interval, where that is known and has a width."""
    ends = [estimate.low, estimate.high]
    known = bool(np.isfinite(ends).all()) and estimate.high > estimate.low
    words = "<br>".join(part if isinstance(part, Markup) else plain(part) for part in hover)
    return Points(
        [estimate.value],
        [row],
        [estimate.low] if known else None,
        [estimate.high] if known else None,
        name=name,
        colour=colour,
        symbol=symbol,
        size=10,
        hover="{text}",
        texts=[words],
    )


def _zones(condition: Condition) -> list[Mark]:
    """Both regions, shaded; what has no bound ends with the axis."""
    marks: list[Mark] = []
    for verdict, region in zip(ZONES, (condition.supports, condition.contradicts), strict=True):
        if region:
            marks.append(Zone(x=region, colour=VERDICTS[verdict].pale))
    return marks


def _meaning_of_zones() -> Markup:
    """Which colour of a zone stands for which verdict."""
    entries = []
    for verdict, words in zip(ZONES, ("supports the claim", "contradicts it"), strict=True):
        square = markup('<span style="color:{}">■</span>', VERDICTS[verdict].pale)
        entries.append(markup("{} zone that {}", square, words))
    return joined(entries, ", ")
