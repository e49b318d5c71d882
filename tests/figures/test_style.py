"""Axes: values keep their order, can be read back, and are labelled where they stand."""

import numpy as np
import pytest
from helpers import must_fail
from hypothesis import given
from hypothesis import strategies as st

from icl_interp.figures.style import TEMPLATE, Symlog, log_axis


@pytest.mark.slow
@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=20), st.sampled_from([1e-3, 0.1, 1.0]))
def test_symlog_keeps_order_and_can_be_undone(values, threshold):
    axis, values = Symlog(threshold), np.sort(values)
    places = axis(values)
    assert (np.diff(places) >= 0).all()
    np.testing.assert_allclose(axis.back(places), values, rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(axis(-values), -places)


def test_symlog_labels_stand_at_their_values():
    ticks = Symlog(0.1).axis(1e6)
    assert ticks["ticktext"][-2:] == ["10<sup>5</sup>", "10<sup>6</sup>"]
    np.testing.assert_allclose(Symlog(0.1).back(np.array(ticks["tickvals"]))[-2:], [1e5, 1e6])
    assert (ticks["ticktext"][8], ticks["tickvals"][8]) == ("0", 0)
    must_fail(
        lambda: np.testing.assert_allclose(Symlog(0.2).back(np.array(ticks["tickvals"]))[-1], 1e6)
    )


@pytest.mark.parametrize(("low", "high"), [(1e-16, 1.0), (0.02, 6.0), (3.0, 4.0), (1e-3, 1e6)])
def test_log_axes_are_labelled_at_their_values(low, high):
    axis = log_axis("x", low, high)
    assert axis["range"] == [np.log10(low), np.log10(high)]
    assert len(axis["tickvals"]) == len(axis["ticktext"]) <= 9
    for value, label in zip(axis["tickvals"], axis["ticktext"], strict=True):
        plain = (
            label.replace("10<sup>", "1e")
            .replace("</sup>", "")
            .replace("−", "-")
            .replace("×10", "e")
        )
        assert float(plain) == pytest.approx(value)


def test_the_legend_of_ones_own_figure_stands_above_its_panels():
    """At plotly's own place it stands over the horizontal axis."""
    legend = TEMPLATE.layout.legend
    assert (legend.orientation, legend.yanchor) == ("h", "bottom")
    assert legend.y > 1
