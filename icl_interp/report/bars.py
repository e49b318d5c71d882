"""A small SVG bar for one claim: its number and interval between the zones of its criterion."""

import math
from collections.abc import Callable, Iterator

from markupsafe import Markup

from icl_interp.analyses.criterion import Condition, Estimate
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.natural import natural
from icl_interp.figures.claims import control_intervention, drawable, extent
from icl_interp.figures.style import VERDICTS
from icl_interp.figures.text import joined, markup, name_of
from icl_interp.report.findings import found

WIDTH, HEIGHT, TOP, BOTTOM = (
    250,
    40,
    4,
    26,
)  # of the drawing in pixels; where the zones begin and end
NARROW = 26  # pixels between two numbers below the bar, at least


def bar(f: Finding) -> Markup:
    """The bar of a finding; nothing where it has no number.

    A filled mark is the measured value with its 95 % interval, a hollow diamond that of a randomly
    initialised control, a hollow square that of the control intervention. Numbers below are the
    ends of the zones.
    """
    if not drawable(f):
        return Markup("")
    assert f.test is not None
    square = control_intervention(f)
    values = [f.test.value, f.test.low, f.test.high, *([] if square is None else [square])]
    values += (
        [v for v in (f.control.value, f.control.low, f.control.high) if math.isfinite(v)]
        if f.control
        else []
    )
    scale, ends = extent(f.decided_by, values, f.test.unit)
    across = _across(scale, ends)
    parts = [*_zones(f.decided_by, across, ends)]
    if f.control is not None and math.isfinite(f.control.value):
        parts.append(_diamond(across(f.control.value)))
    if square is not None:
        parts.append(_square(across(square)))
    parts += [
        _mark(f.test, across, VERDICTS[f.verdict].ink),
        *_ends(f.decided_by, across, f.test.unit),
    ]
    return markup(
        '<svg viewBox="0 0 {} {}" role="img" aria-label="{}: {}; {}">{}</svg>',
        WIDTH,
        HEIGHT,
        name_of(f.test),
        found(f.test),
        f.criterion.text,
        joined(parts),
    )


def _across(scale: str, ends: tuple[float, float]) -> Callable[[float], float]:
    """The pixel of a value; what lies beyond an end is drawn there."""
    place = math.log10 if scale == "log" else float
    low, high = place(ends[0]), place(ends[1])

    def across(value: float) -> float:
        inside = min(max(value, ends[0]), ends[1])
        return round(2 + (WIDTH - 4) * (place(inside) - low) / (high - low), 1)

    return across


def _zones(
    condition: Condition, across: Callable[[float], float], ends: tuple[float, float]
) -> Iterator[Markup]:
    yield markup(
        '<rect x="2" y="{}" width="{}" height="{}" fill="#f5f5f5"/>', TOP, WIDTH - 4, BOTTOM - TOP
    )
    for verdict, region in (
        ("supported", condition.supports),
        ("contradicted", condition.contradicts),
    ):
        if region and region[0] < ends[1] and region[1] > ends[0]:
            left, right = across(region[0]), across(region[1])
            yield markup(
                '<rect x="{}" y="{}" width="{:.1f}" height="{}" fill="{}"/>',
                left,
                TOP,
                max(right - left, 1.5),
                BOTTOM - TOP,
                VERDICTS[verdict].pale,
            )


def _mark(e: Estimate, across: Callable[[float], float], ink: str) -> Markup:
    middle = TOP + (BOTTOM - TOP) * 0.38
    return markup(
        '<path d="M{} {y:.1f}H{}" stroke="{ink}" stroke-width="2.2"/><circle cx="{x}" cy="{y:.1f}" '
        'r="4.2" fill="{ink}"/>',
        across(e.low),
        across(e.high),
        x=across(e.value),
        y=middle,
        ink=ink,
    )


def _diamond(x: float) -> Markup:
    y = BOTTOM - 6
    return markup(
        '<path d="M{} {}l4 4l-4 4l-4 -4z" fill="#fff" fill-opacity=".6" stroke="#222" '
        'stroke-width="1.1"/>',
        x,
        y - 4,
    )


def _square(x: float) -> Markup:
    return markup(
        '<rect x="{:.1f}" y="{}" width="7" height="7" fill="#fff" fill-opacity=".6" stroke="#222" '
        'stroke-width="1.1"/>',
        x - 3.5,
        BOTTOM - 9.5,
    )


def _ends(condition: Condition, across: Callable[[float], float], unit: str) -> Iterator[Markup]:
    """The numbers at the ends of zones, except one without room beside the last number."""
    bounds = {*condition.supports, *(condition.contradicts or ())}
    last = -math.inf
    for bound in sorted(b for b in bounds if math.isfinite(b)):
        x = across(bound)
        if x - last >= NARROW:
            yield markup(
                '<text x="{}" y="{}" font-size="10" text-anchor="{}" fill="#666">{}</text>',
                x,
                HEIGHT - 3,
                "start" if x < NARROW / 2 else "end" if x > WIDTH - NARROW / 2 else "middle",
                natural(bound, unit),
            )
            last = x
