"""Figures of the mechanism show the stored numbers, whatever the model's size."""

import numpy as np
import pytest
from helpers import must_fail
from made_up_facts import facts

from icl_interp.analyses.measurement import Results
from icl_interp.figures import mechanism
from icl_interp.figures.render import rendered
from icl_interp.results import make_array

SHARES = {
    "read-in": 0.0,
    "head 0.0": 0.1,
    "head 0.1": -0.2,
    "head 1.0": 0.7,
    "head 1.1": 0.0,
    "MLP 0": 0.1,
    "MLP 1": 0.3,
}


def stored(n_heads=2, n_layers=2, rows=None):
    """Results of a model of which everything is known."""
    heads = [f"{i}.{h}" for i in range(n_layers) for h in range(n_heads)]
    # Mean ablation of head number k makes the error (k + 1) times as large, and moves the
    # prediction by k u.
    effect = [[[[0.0]] * 3, [[2.0 * k], [float(k**2)], [2.0]]] for k in range(len(heads))]
    names = ["x1", "y1", "query"]
    weights = np.arange(n_layers * n_heads * len(rows or names) * 3, dtype=float)
    lens = [[[4.0], [1.0], [0.02]], [[4.0], [1.0], [0.0]], [[2.0]] * 3]
    axes = {"layer": range(n_layers), "head": range(n_heads), "query": rows or names, "key": names}
    return Results(
        {
            "mechanism/attribution": make_array(
                [[v] for v in SHARES.values()], {"part": SHARES, "target": (0,)}
            ),
            "heads/relevance": make_array(
                effect,
                {
                    "head": heads,
                    "intervention": ("uniform", "mean ablation"),
                    "statistic": ("rise", "movement", "intact"),
                    "unit": (0,),
                },
            ),
            "mechanism/lens": make_array(
                lens, {"statistic": ("error", "distance", "zero"), "depth": range(3), "unit": (0,)}
            ),
            "mechanism/patterns": make_array(weights.reshape(*map(len, axes.values())), axes),
        }
    )


def patched(values):
    """The same with shares that heads carry."""
    ends = np.stack([values, values - 0.1, values + 0.1, 0 * values])
    axes = {"statistic": ("share", "low", "high", "q"), "head": ["0.0", "0.1", "1.0", "1.1"]}
    return Results({**stored(), "mechanism/patching": make_array(ends, axes)})


def test_what_heads_carry_stands_beside_what_is_needed():
    """Where it is known; the last panel is that of the lens."""

    def shows(results, values):
        drawing = mechanism.where(results, [], facts(r2=0.9))
        assert drawing.panels[2].title == "Which heads carry it (share of the change)"
        np.testing.assert_array_equal(drawing.panels[2].marks[0].shown, values)

    values = np.array([0.2, -0.1, 0.6, 0.3])
    shows(patched(values), values.reshape(2, 2))
    must_fail(shows, patched(values), (values - 0.1).reshape(2, 2))
    for unknown in (stored(), patched(np.full(4, np.nan))):
        titles = [panel.title for panel in mechanism.where(unknown, [], facts(r2=0.9)).panels]
        assert len(titles) == 3
        assert "carry" not in " ".join(titles)


def texts(trace):
    return [list(row) for row in trace.text]


def test_shares_ablations_and_the_lens_stand_side_by_side():
    figure = rendered(
        mechanism.where(stored(), [], facts(in_distribution={"error": 0.01, "r2": 0.999}))
    )
    shares, ablation = figure.data[:2]
    assert texts(shares) == [["0", "", ""], ["0.10", "-0.20", "0.10"], ["0.70", "0", "0.30"]]
    assert list(shares.y) == ["read-in", "0", "1"]
    assert list(shares.x) == ["0", "1", "MLP"]
    assert shares.zmin == -0.7, "shares have both signs"
    assert texts(ablation) == [["1.0", "2.0"], ["3.0", "4.0"]]
    np.testing.assert_allclose(ablation.z, np.log10([[1, 2], [3, 4]]))
    error, distance, zero = figure.data[2:]
    np.testing.assert_allclose(error.y, [2, 0.5, 0.01])
    np.testing.assert_allclose(distance.y, [2, 0.5])  # the last prediction is its own
    assert list(zero.y) == [1, 1]


def test_of_a_model_that_has_not_learned_the_change_of_the_prediction_is_shown():
    figure = rendered(
        mechanism.where(stored(), [], facts(in_distribution={"error": 0.9, "r2": 0.1}))
    )
    assert texts(figure.data[1]) == [["0", "1.0"], ["2.0", "3.0"]]
    assert any("change, u" in a.text for a in figure.layout.annotations)


def test_without_the_lens_there_is_no_figure_and_without_attention_no_map_of_heads():
    found = stored()
    del found["mechanism/lens"]
    assert mechanism.where(found, [], facts()) is None
    bare = stored()
    for name in ("heads/relevance", "mechanism/attribution"):
        del bare[name]
    assert len(rendered(mechanism.where(bare, [], facts())).data) == 3


def test_every_head_has_its_pattern():
    figure = rendered(mechanism.patterns(stored(), [], facts()))

    def drawn(numbers):
        np.testing.assert_array_equal(np.stack([trace.z for trace in figure.data]).ravel(), numbers)

    drawn(np.arange(36.0))
    must_fail(drawn, np.arange(36.0)[::-1])
    assert [a.text for a in figure.layout.annotations] == [
        f"<b>head {i}.{h}</b>" for i in (0, 1) for h in (0, 1)
    ]


def test_what_rows_of_weights_add_up_to_is_said_as_it_is():
    """Under linear attention a row adds up to anything."""
    found = stored()
    said = rendered(mechanism.patterns(found, [], facts())).layout.title.text
    assert "rows sum to" in said
    weights = found["mechanism/patterns"]
    found["mechanism/patterns"] = weights / weights.sum("key")
    said = rendered(mechanism.patterns(found, [], facts())).layout.title.text
    assert "rows sum to 1" in said


@pytest.mark.parametrize("sizes", [{"n_heads": 9}, {"rows": ["query"]}])
def test_of_many_heads_the_row_of_the_query_is_shown(sizes):
    found = stored(**sizes)
    (trace,) = rendered(mechanism.patterns(found, [], facts())).data
    assert list(trace.x) == ["x1", "y1", "query"]
    last = found["mechanism/patterns"].sel(query="query").values
    np.testing.assert_array_equal(trace.z, last.reshape(-1, 3))
