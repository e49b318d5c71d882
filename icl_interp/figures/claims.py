"""The forest plot: for each claim a row with its estimate over the zones of its criterion."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.graph_objects import Figure

from icl_interp.analyses.criterion import Condition, Estimate
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.style import GREY, INK, PALE, VERDICTS, Marks, finish, log_axis
from icl_interp.figures.text import authors, interval, name_of, number, plain, wrapped

PAD, PANEL, ROW, LINE, SMALL = (
    14,
    28,
    80,
    15,
    15,
)  # pixels: above a panel, the panel, its row, a line of text (small)
LEFT, RIGHT, BOTTOM = 376, 226, 8
WHOLE = {"share": (0.0, 1.0), "quantile": (0.0, 1.0)}  # units whose whole range is worth showing


def forest(results: Results, findings: Sequence[Finding], facts: Facts) -> Figure | None:
    """Every claim: statement, estimate over its verdict zones, its controls, verdict in words.

    Those that do not apply close the figure, a line each.
    """
    if not findings:
        return None
    shown = [f for f in findings if f.verdict != "not_applicable"]
    skipped = [_skipped(f) for f in findings if f.verdict == "not_applicable"]
    heights = [_height(finding) for finding in shown]
    plot = sum(heights) + (_block(skipped) if skipped else 0)
    figure, marks = go.Figure(), Marks()
    top = n_axes = 0
    for finding, height in zip(shown, heights, strict=True):
        panel = (1 - (top + PAD + PANEL) / plot, 1 - (top + PAD) / plot)
        if drawable(finding):
            n_axes += 1
            _row(figure, marks, finding, panel, "" if n_axes == 1 else str(n_axes))
        else:
            _empty_row(marks, finding, panel)
        _words(marks, finding, 1 - top / plot, 1 - (top + PAD + PANEL / 2) / plot)
        if top:
            _rule(marks, 1 - top / plot)
        top += height
    if skipped:
        _rule(marks, 1 - top / plot)
        _closing(marks, skipped, 1 - top / plot)
    marks.put(figure)
    below = (
        "A row a claim: the estimate with its 95 % interval on the claim's own axis. A verdict "
        "needs the whole interval in one zone, and zones were fixed before looking.<br>"
        + _legend([f for f in findings if drawable(f)])
    )
    finish(figure, "Which claims hold on these weights", below, plot, l=LEFT, r=RIGHT, b=BOTTOM)
    # Rows are laid out in pixels, so print can make the whole figure smaller, and nothing else.
    return figure.update_layout(hovermode="closest", showlegend=False, meta={"layout": "fixed"})


def _rule(marks: Marks, y: float) -> None:
    """A line between rows that extends over the margins.

    The margins keep their width in pixels when a page changes the width of the figure.
    """
    line = {"color": "#E4E4E4", "width": 1}
    common = {"type": "line", "y0": y, "y1": y, "xref": "paper", "yref": "paper", "line": line}
    marks.shape(x0=0, x1=1, **common)
    marks.shape(xsizemode="pixel", xanchor=0, x0=12 - LEFT, x1=0, **common)
    marks.shape(xsizemode="pixel", xanchor=1, x0=0, x1=RIGHT - 12, **common)


def _height(finding: Finding) -> int:
    words = LINE * (_statement(finding).count("<br>") + 2) + 16
    return max(words, ROW) if drawable(finding) else words


def _statement(finding: Finding) -> str:
    return wrapped(finding.statement, 53, 3)


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


def _row(
    figure: Figure, marks: Marks, finding: Finding, panel: tuple[float, float], name: str
) -> None:
    test = finding.test
    control = finding.control
    sham = control_intervention(finding)
    assert test is not None
    values = [test.value, test.low, test.high, *([] if sham is None else [sham])]
    values += (
        [v for v in (control.value, control.low, control.high) if np.isfinite(v)] if control else []
    )
    scale, (low, high) = extent(finding.decided_by, values, test.unit)
    title = plain(
        name_of(test)
        + (f" ({test.unit})" if test.unit else "")
        + (", log axis" if scale == "log" else "")
    )
    kind = log_axis(title, low, high, 7) if scale == "log" else {"range": [low, high], "nticks": 7}
    figure.update_layout(
        {
            f"xaxis{name}": {
                **kind,
                "domain": [0, 1],
                "anchor": f"y{name}",
                "ticklen": 3,
                "tickfont": {"size": 11, "color": GREY},
                "title": {"text": title, "standoff": 1, "font": {"size": 11, "color": INK}},
                "linecolor": PALE,
                "tickcolor": PALE,
                "fixedrange": True,
            },
            f"yaxis{name}": {
                "domain": panel,
                "anchor": f"x{name}",
                "range": [0, 1],
                "visible": False,
                "fixedrange": True,
            },
        }
    )
    axes = {"xaxis": f"x{name}", "yaxis": f"y{name}"}
    _zones(marks, finding.decided_by, low, high, name, scale)
    look = VERDICTS[finding.verdict]
    if control is not None and np.isfinite(control.value):
        hover = f"randomly initialised control: {plain(interval(control))}<extra></extra>"
        figure.add_trace(_mark(control, "diamond-open", INK, 0.24, 9, hover, **axes))
    if sham is not None:
        figure.add_trace(
            _mark(
                Estimate("control intervention", sham, sham, sham),
                "square-open",
                INK,
                0.24,
                9,
                f"control intervention: {number(sham)} {plain(test.unit)}<extra></extra>",
                **axes,
            )
        )
    hover = f"<b>{plain(finding.id)}</b><br>{plain(name_of(test))}: {plain(interval(test))}<br>"
    hover += f"{wrapped(finding.criterion.text, 70)}<extra></extra>"
    figure.add_trace(_mark(test, "circle", look.ink, 0.66, 11, hover, **axes))


def _mark(
    e: Estimate, symbol: str, colour: str, y: float, size: int, hover: str, **axes: str
) -> go.Scatter:
    known = np.isfinite([e.low, e.high]).all()
    error = {
        "array": [e.high - e.value],
        "arrayminus": [e.value - e.low],
        "color": colour,
        "thickness": 2 if y > 0.5 else 1,
        "width": 4,
        "visible": bool(known and e.high > e.low),
    }
    return go.Scatter(
        x=[e.value],
        y=[y],
        mode="markers",
        error_x=error,
        showlegend=False,
        hovertemplate=hover,
        cliponaxis=False,
        marker={
            "symbol": symbol,
            "color": colour,
            "size": size,
            "line": {"color": colour, "width": 1.5},
        },
        **axes,
    )


def _zones(
    marks: Marks, condition: Condition, low: float, high: float, name: str, scale: str
) -> None:
    """Shade both regions; what has no bound goes to the end of the axis."""
    regions = {"supported": condition.supports, "contradicted": condition.contradicts}
    # A shape on a log axis takes values, an annotation takes exponents.
    place = np.log10 if scale == "log" else np.array
    for verdict, region in regions.items():
        a, b = (max(region[0], low), min(region[1], high)) if region else (high, low)
        if a >= b:
            continue
        look, ends = VERDICTS[verdict], place([a, b])
        marks.shape(
            type="rect",
            xref=f"x{name}",
            yref=f"y{name} domain",
            x0=a,
            x1=b,
            y0=0,
            y1=1,
            layer="below",
            line={"width": 0},
            fillcolor=look.pale,
        )
        marks.note(
            text=look.sign,
            xref=f"x{name}",
            yref=f"y{name} domain",
            x=float(np.mean(ends)),
            y=1,
            xanchor="center",
            yanchor="bottom",
            font={"size": 10, "color": look.ink},
        )


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


def _empty_row(marks: Marks, finding: Finding, panel: tuple[float, float]) -> None:
    marks.note(
        xref="paper",
        yref="paper",
        x=0,
        y=sum(panel) / 2,
        xanchor="left",
        yanchor="middle",
        text=f"<i>{wrapped('no estimate: ' + finding.reason, 54, 3)}</i>",
        align="left",
        font={"size": 12, "color": "#767676"},
    )


def _skipped(finding: Finding) -> str:
    """What is not applicable, and why."""
    return f"{plain(finding.id)}: <i>{wrapped(finding.reason, 130, 3)}</i>"


def _block(skipped: Sequence[str]) -> int:
    """Height of the closing lines, in pixels."""
    return SMALL * sum(text.count("<br>") + 1 for text in skipped) + 36


def _closing(marks: Marks, skipped: Sequence[str], top: float) -> None:
    """Claims that do not apply, a line each below all others."""
    look = VERDICTS["not_applicable"]
    marks.note(
        text=f"<b>{look.sign} {look.word}</b><br>" + "<br>".join(skipped),
        xref="paper",
        yref="paper",
        align="left",
        x=0,
        xanchor="left",
        xshift=12 - LEFT,
        y=top,
        yanchor="top",
        yshift=-8,
        font={"size": 11, "color": look.ink},
    )


def _words(marks: Marks, finding: Finding, top: float, middle: float) -> None:
    """What is claimed on the left; the verdict and its numbers on the right."""
    look = VERDICTS[finding.verdict]
    left = f"{_statement(finding)}<br>"
    name = f"{plain(finding.id)} · {plain(authors(finding.source))}"
    left += f'<span style="font-size:10.5px;color:#767676">{name}</span>'
    right = f"<b>{look.sign} {look.word}</b>"
    if drawable(finding):
        assert finding.test is not None
        right += (
            "<br><span "
            f'style="font-size:11px;color:{INK}">{interval(finding.test, unit=False)}</span>'
        )
    common = {"xref": "paper", "yref": "paper", "align": "left", "xanchor": "left"}
    marks.note(
        text=left,
        x=0,
        xshift=12 - LEFT,
        y=top,
        yanchor="top",
        yshift=-8,
        font={"size": 12, "color": INK},
        **common,
    )
    marks.note(
        text=right,
        x=1,
        xshift=14,
        y=middle,
        yanchor="middle",
        font={"size": 13, "color": look.ink},
        **common,
    )


def _legend(shown: Sequence[Finding]) -> str:
    """What the marks mean, in a line; only of what is drawn."""
    entries = ["● estimate, 95 % interval"] if shown else []
    entries += (
        ["◇ randomly initialised control"] if any(f.control is not None for f in shown) else []
    )
    entries += (
        ["□ control intervention"]
        if any(control_intervention(f) is not None for f in shown)
        else []
    )
    for verdict, text in (
        ("supported", "zone that supports the claim"),
        ("contradicted", "zone that contradicts it"),
    ):
        look = VERDICTS[verdict]
        entries += [f'<span style="color:{look.pale}">■</span> {look.sign} {text}'] if shown else []
    return f'<span style="color:{INK}">' + "     ".join(entries) + "</span>"
