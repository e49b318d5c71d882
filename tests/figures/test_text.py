"""Numbers and intervals as text."""

import pytest

from icl_interp.analyses.criterion import Estimate
from icl_interp.figures.text import interval, number
from icl_interp.resampling import Interval


@pytest.mark.parametrize("value", [1.0, -0.001, 123456.0, 3e-7, 0.0])
def test_numbers_are_rounded_to_what_they_are(value):
    text = number(value, 6).replace("−", "-").translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
    mantissa, _, exponent = text.partition("×10")
    assert float(f"{mantissa}e{exponent or 0}") == pytest.approx(value, rel=1e-5)


def test_intervals_show_where_they_end():
    crossing = Interval(0.0513, -0.0049, 0.102)
    assert interval(Estimate.of("gap", crossing)) == "0.051 [−0.005, 0.102]"
