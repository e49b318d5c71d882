"""A small SVG bar for one claim: its number and interval between the zones of its criterion."""

import math
from collections.abc import Callable, Iterator, Sequence

from markupsafe import Markup

from icl_interp.analyses.criterion import Condition
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.natural import natural
from icl_interp.figures.claims import control_intervention, drawable, extent
from icl_interp.figures.style import VERDICTS, Look
from icl_interp.report.html import rendered

# Of the drawing in pixels; and where the zones begin and end.
WIDTH = 250
HEIGHT = 40
TOP = 4
BOTTOM = 26
NARROW = 26  # pixels between two numbers below the bar, at least


def bar(f: Finding, beside: Sequence[Finding] = ()) -> Markup:
    """The bar of a finding; nothing where it has no number.

    A filled mark is the measured value with its 95 % interval, a hollow diamond that of a randomly
    initialised control, a hollow square that of the control intervention. Numbers below are the
    ends of the zones.

    Args:
        f: the finding.
        beside: findings on the same claim. The axis holds their numbers too, where the same
            condition decides, so that their bars can be compared.
    """
    if not drawable(f):
        return Markup("")
    assert f.test is not None
    square = control_intervention(f)
    values = _held(f)
    for other in beside:
        if drawable(other) and other.decided_by == f.decided_by:
            values += _held(other)
    scale, ends = extent(f.decided_by, values, f.test.unit)
    across = _across(scale, ends)
    control = None
    if f.control and math.isfinite(f.control.value):
        control = across(f.control.value)
    return rendered(
        "bar.html",
        WIDTH=WIDTH,
        HEIGHT=HEIGHT,
        TOP=TOP,
        BOTTOM=BOTTOM,
        f=f,
        zones=list(_zones(f.decided_by, across, ends)),
        control=control,
        square=None if square is None else across(square),
        low=across(f.test.low),
        value=across(f.test.value),
        high=across(f.test.high),
        ink=VERDICTS[f.verdict].ink,
        numbers=list(_numbers(f.decided_by, across, f.test.unit)),
    )


def _held(f: Finding) -> list[float]:
    """What the axis of a finding holds: its number and the controls."""
    square = control_intervention(f)
    held = [] if square is None else [square]
    for e in (f.test, f.control):
        if e:
            held += [e.value, e.low, e.high]
    return [value for value in held if math.isfinite(value)]


def _across(scale: str, ends: tuple[float, float]) -> Callable[[float], float]:
    """The pixel of a value; what lies beyond an end is drawn there."""
    place = math.log10 if scale == "log" else float
    low = place(ends[0])
    high = place(ends[1])

    def across(value: float) -> float:
        inside = min(max(value, ends[0]), ends[1])
        pixels = (WIDTH - 4) * (place(inside) - low) / (high - low)
        return round(2 + pixels, 1)

    return across


def _zones(
    condition: Condition, across: Callable[[float], float], ends: tuple[float, float]
) -> Iterator[tuple[float, float, Look]]:
    """Of the regions of a condition the left end, the width and the look."""
    first, last = ends
    regions = {"supported": condition.supports, "contradicted": condition.contradicts}
    for verdict, region in regions.items():
        if not region:
            continue
        low, high = region
        if low < last and high > first:
            left = across(low)
            width = across(high) - left
            yield left, max(width, 1.5), VERDICTS[verdict]


def _numbers(
    condition: Condition, across: Callable[[float], float], unit: str
) -> Iterator[tuple[float, str, str]]:
    """The numbers at the ends of zones, except one without room beside the last number.

    Of each its place, the side of it that stands there, and the number in words.
    """
    bounds = set(condition.supports)
    bounds.update(condition.contradicts or ())
    last = -math.inf
    for bound in sorted(filter(math.isfinite, bounds)):
        x = across(bound)
        if x - last < NARROW:
            continue
        side = "middle"
        if x < NARROW / 2:
            side = "start"
        elif x > WIDTH - NARROW / 2:
            side = "end"
        yield x, side, natural(bound, unit)
        last = x
