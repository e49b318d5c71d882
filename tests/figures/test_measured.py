"""Pictures of what probes return: maps, or lines where an axis runs over numbers."""

import numpy as np
import pytest
from helpers import must_fail

from icl_interp import probe, tasks
from icl_interp.errors import InputError
from icl_interp.figures import for_paper, plot
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.results import make_array, make_curve

HEADS = {
    "layer": (0, 1),
    "head": (0, 1, 2),
    "position": ("x", "query"),
    "statistic": ("mean", "std"),
}


def by_head():
    return make_array(np.arange(24.0).reshape(2, 3, 2, 2), HEADS, "nats", "a note")


def check_maps(figure, expected):
    assert [trace.type for trace in figure.data] == ["heatmap"] * len(expected)
    for trace, values in zip(figure.data, expected, strict=True):
        np.testing.assert_array_equal(trace.z, values)
    assert len({(trace.zmin, trace.zmax) for trace in figure.data}) == 1, "one scale of colours"


def test_a_map_of_layers_and_heads_for_each_position():
    result = by_head()
    means = result.values[..., 0]
    figure = plot(result, "Entropy")
    check_maps(figure, [means[..., 0], means[..., 1]])
    must_fail(check_maps, figure, [means[..., 1], means[..., 0]])
    headings = [a.text for a in figure.layout.annotations]
    assert headings == ["<b>position x</b>", "<b>position query</b>"]
    assert "Entropy" in figure.layout.title.text
    assert "a note" in figure.layout.title.text
    assert figure.data[-1].colorbar.title.text == "nats"
    assert for_paper(figure).layout.width == 321


def test_numbers_of_both_signs_have_white_in_the_middle():
    figure = plot(make_array([[1.0, -0.2], [-0.2, 1.0]], {"head": (0, 1), "other": (0, 1)}))
    assert (figure.data[0].zmin, figure.data[0].zmax) == (-1, 1)
    assert plot(by_head()).data[0].zmin == 0


def test_queries_are_an_axis_on_which_what_is_no_number_is_left_out():
    values = np.arange(1.0, 9.0).reshape(2, 4)
    figure = plot(
        make_array(values, {"norm": ("ln1", "ln2"), "position": (1.0, 10.0, 1e3, "all")}, "stream")
    )
    assert [trace.name for trace in figure.data] == ["norm ln1", "norm ln2"]
    for trace, row in zip(figure.data, values, strict=True):
        np.testing.assert_array_equal(trace.x, [1, 10, 1e3])
        np.testing.assert_array_equal(trace.y, row[:3])
    assert (figure.layout.xaxis.type, figure.layout.xaxis.title.text) == ("log", "query")
    assert figure.layout.yaxis.type is None, "7 times is no decade"


def test_a_curve_runs_over_its_last_axis_and_a_third_axis_makes_panels():
    values = np.arange(12.0).reshape(2, 2, 3)
    figure = plot(make_curve(values, {"layer": (0, 1), "head": (0, 1), "m": (1, 2, 3)}))
    assert [(t.name, t.xaxis, t.showlegend) for t in figure.data] == [
        ("head 0", "x", True),
        ("head 1", "x", True),
        ("head 0", "x2", False),
        ("head 1", "x2", False),
    ]
    np.testing.assert_array_equal(figure.data[3].y, values[1, 1])
    (alone,) = plot(make_curve([1.0, 2.0], {"m": (1, 2)})).data
    assert alone.showlegend is False


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 2, 2, 2), r"up to three axes, but this array has \['a', 'b', 'c', 'd'\]"),
        ((13, 2, 2), "up to 12 panels"),
    ],
)
def test_what_a_figure_cannot_show_is_refused_with_what_to_do(shape, message):
    axes = {name: range(n) for name, n in zip("abcd", shape, strict=False)}
    with pytest.raises(InputError, match=message):
        plot(make_array(np.zeros(shape), axes))


@pytest.mark.slow
@pytest.mark.parametrize("queries", [None, [0.5, 5.0, 500.0]])
def test_every_result_of_the_default_probes_can_be_drawn(queries):
    task = tasks.Polynomial(
        degrees=(1,), inputs=tasks.Uniform(-1, 1), coefficients=tasks.Normal(1), n_points=6
    )
    model = HookedTransformer(HookedTransformerConfig(n_layers=2, d_model=8, n_heads=2, n_ctx=12))
    results = probe(model, task.sample(8, generator(0, "plot")), queries=queries)
    for name, result in results.items():
        of_outputs = name.startswith("head_orthogonality.output")  # a matrix for each position
        position = {"position": result["position"].values[0]} if of_outputs else {}
        assert plot(result.sel(position), name).data
    assert len(results) > 10
