"""Numbers in natural units, as sentences and tables show them: values, intervals and regions.

What is stored is never rounded. A logarithm is shown as the factor, and a share in percent.
"""

import math

from icl_interp.resampling import Interval

Region = tuple[float, float]  # low and high, these included
BASES = {"log10": 10.0, "ln": math.e}  # units that are logarithms: what is shown is the factor
SHARE = "share"  # the unit of numbers from 0 to 1 that are shown in percent


def plain(value: float) -> str:
    """A number to three digits.

    >>> plain(0.25), plain(-0.0), plain(123456.0), plain(2.5e-7)
    ('0.25', '0', '1.23e5', '2.5e-7')
    """
    mantissa, e, exponent = f"{value + 0.0:.3g}".partition("e")  # + 0.0: no minus before a zero
    return f"{mantissa}e{int(exponent)}" if e else mantissa


def natural(value: float, unit: str) -> str:
    """A number in its unit: of a logarithm the factor, of a share the percentage.

    >>> natural(-1.0, "log10"), natural(0.25, "share"), natural(0.25, "u")
    ('x0.1', '25 %', '0.25')
    """
    if unit in BASES:
        return f"x{plain(BASES[unit] ** value)}"
    if unit == SHARE:
        return f"{plain(100 * value)} %"
    return plain(value)


def measured(found: Interval, unit: str) -> str:
    """A number with its interval and unit.

    >>> measured(Interval(1.0, 0.0, 2.0), "log10")
    'x10 [x1, x100]'
    >>> measured(Interval(math.nan, math.nan, math.nan), "share")
    'no number'
    """
    if math.isnan(found.value):
        return "no number"
    if math.isnan(found.low) or math.isnan(found.high):
        interval = " (no interval)"
    elif found.low == found.high:
        interval = ""
    else:
        interval = f" [{natural(found.low, unit)}, {natural(found.high, unit)}]"
    return f"{natural(found.value, unit)}{interval} {_after(unit)}".rstrip()


def span(low: float, high: float, unit: str = "") -> str:
    """From one number to another, with the unit.

    >>> span(0.0, 1.0, "log10"), span(0.25, 0.5, "share"), span(0.0, 2.0, "u")
    ('x1 to x10', '25 % to 50 %', '0 to 2 u')
    """
    return f"{natural(low, unit)} to {natural(high, unit)} {_after(unit)}".rstrip()


def _after(unit: str) -> str:
    """The unit that stands behind a number; factors and percentages have theirs already."""
    return "" if unit in BASES or unit == SHARE else unit


def region(asked: Region, unit: str = "") -> str:
    """A region in words.

    No size is below 0 and no share above 1, so these ends are no thresholds.

    >>> region((0.0, 3.0)), region((0.9, 1.0), "share"), region((-1.0, 1.0)), region((0, 0))
    ('at most 3', 'at least 90 %', '-1 to 1', '0')
    """
    low, high = asked
    if low == high:
        return natural(low, unit)
    if math.isinf(low) or (low == 0 and math.isfinite(high)):
        return f"at most {natural(high, unit)}"
    if math.isinf(high) or (low > 0 and high == 1):
        return f"at least {natural(low, unit)}"
    return f"{natural(low, unit)} to {natural(high, unit)}"


def opposite(asked: Region, against: Region, unit: str = "") -> str:
    """The region that contradicts, in words beside the one that supports.

    Where both share a threshold, it is "above" or "below".

    >>> opposite((0.0, 3.0), (3.0, math.inf)), opposite((0.0, 3.0), (4.0, math.inf))
    ('above 3', 'at least 4')
    """
    if against[0] == asked[1]:
        return f"above {natural(against[0], unit)}"
    if against[1] == asked[0]:
        return f"below {natural(against[1], unit)}"
    return region(against, unit)


def in_a_sentence(sentence: str) -> str:
    """A sentence that goes on after a few words, without its full stop.

    >>> in_a_sentence("Far from the data it is level.")
    'far from the data it is level'
    >>> in_a_sentence("LayerNorm is the cause.")
    'LayerNorm is the cause'
    """
    first = sentence.split(" ", 1)[0]
    is_name = first != first.capitalize()
    return (sentence if is_name else sentence[0].lower() + sentence[1:]).rstrip(".")
