"""Figures of places: rows, intervals and colours are those of the table."""

import numpy as np
import pandas as pd
import pytest
from helpers import must_fail

from icl_interp.errors import InputError
from icl_interp.figures.colours import GREY, INK
from icl_interp.figures.places import CONTROLS, composition, followed, readable, recovered, spectrum

SHARES = pd.DataFrame(
    {
        "layer": [0, 0, 1, 1],
        "head": [0, 1, 0, 1],
        "share": [0.1, -0.6, 0.4, 0.0],
        "low": [-0.1, -0.7, 0.3, -0.01],
        "high": [0.2, -0.5, 0.6, 0.01],
        "p": 0.01,
        "q": [0.2, 0.001, 0.03, 1.0],
    }
)
READ = pd.DataFrame(
    {
        "hook": ["blocks.0.hook_resid_pre", "blocks.0.attn.hook_z"],
        "head": [-1, 2],
        "position": [38, 38],
        "coordinate": [0, 0],
        "r2": [0.2, 0.9],
        "low": [0.1, 0.8],
        "high": [0.3, 0.95],
        **{control: [0.01 * i, 0.02 * i] for i, control in enumerate(CONTROLS)},
    }
)


def is_drawn(dots, table):
    """The dots are the rows of a table in its order, with intervals from low to high."""
    np.testing.assert_allclose(dots.x, table["share"])
    np.testing.assert_allclose(dots.x + dots.error_x.array, table["high"])
    np.testing.assert_allclose(dots.x - dots.error_x.arrayminus, table["low"])
    assert list(dots.marker.color) == [INK if q < 0.05 else GREY for q in table["q"]]


def test_shares_are_rows_by_size_with_their_intervals():
    figure = recovered(SHARES, most=3)
    is_drawn(figure.data[0], SHARES.loc[[1, 2, 0]])
    must_fail(is_drawn, figure.data[0], SHARES.loc[[0, 1, 2]])
    names = [name for name in figure.layout.yaxis.ticktext if name.strip()]
    assert sorted(names) == ["layer 0, head 0", "layer 0, head 1", "layer 1, head 0"]
    assert "3 largest of 4" in figure.layout.title.text


def test_paths_are_named_by_both_ends():
    paths = SHARES.drop(columns=["layer", "head"])
    paths.insert(0, "reader", "read-out")
    paths.insert(0, "writer", ["head 0.0", "head 0.1", "head 1.0", "MLP 1"])
    assert "head 0.1 to read-out" in recovered(paths).layout.yaxis.ticktext


MAPS = pd.DataFrame(
    {
        "layer": [0, 0, 1],
        "head": [0, 1, 0],
        "size": [1.0, 2.0, 3.0],
        "rank": [1.5, 2.5, 3.5],
        "copying": [-1.0, 0.0, 0.5],
        "label": [np.nan, 0.1, -0.2],
    }
)
CAUSAL = pd.DataFrame(
    {
        "edit": ["steer", "project out"],
        "value": [0.9, 3.0],
        "low": [0.8, 2.0],
        "high": [1.1, 5.0],
        "random": [0.1, 1.2],
        "p": [0.05, 0.25],
    }
)


def maps_are_drawn(figure, table):
    names = ["size", "rank", "copying", "label"]
    for dots, name in zip(figure.data, names, strict=True):
        np.testing.assert_array_equal(dots.x, table[name])
        heads = zip(table["layer"], table["head"], strict=True)
        assert list(dots.text) == [f"layer {layer}, head {head}" for layer, head in heads]


def test_maps_of_heads_have_a_panel_for_each_number():
    figure = spectrum(MAPS)
    maps_are_drawn(figure, MAPS)
    must_fail(maps_are_drawn, figure, MAPS.loc[[1, 0, 2]])


def edits_are_drawn(figure, table):
    for i, row in table.reset_index().iterrows():
        own, null = figure.data[2 * i], figure.data[2 * i + 1]
        assert (own.x[0], null.x[0]) == (row["value"], row["random"])
        ends = (own.x[0] - own.error_x.arrayminus[0], own.x[0] + own.error_x.array[0])
        assert ends == pytest.approx((row["low"], row["high"]))


def test_edits_stand_beside_random_directions():
    figure = followed(CAUSAL)
    edits_are_drawn(figure, CAUSAL)
    must_fail(edits_are_drawn, figure, CAUSAL.assign(random=[1.2, 0.1]))
    edits_are_drawn(followed(CAUSAL.iloc[1:]), CAUSAL.iloc[1:])


def test_probes_stand_beside_their_controls():
    figure = readable(READ)
    own, *controls = figure.data
    np.testing.assert_allclose(own.x, READ["r2"])
    assert [one.name for one in controls] == list(CONTROLS)
    for one in controls:
        np.testing.assert_allclose(one.x, READ[one.name])
    names = list(figure.layout.yaxis.ticktext)
    assert sorted(names) == ["blocks.0.attn.hook_z, head 2", "blocks.0.hook_resid_pre"]


def test_composition_is_in_units_of_chance():
    rows = []
    for kind in "QKV":
        for writer in range(2):
            for reader in range(3):
                row = {"kind": kind, "writer_layer": 0, "writer_head": writer}
                row |= {"reader_layer": 1, "reader_head": reader}
                rows.append(row | {"score": writer + reader / 4, "random": 0.5})
    squares = composition(pd.DataFrame(rows)).data
    assert len(squares) == 3
    np.testing.assert_allclose(squares[0].z, [[0, 0.5, 1], [2, 2.5, 3]])
    assert list(squares[0].y) == ["0.0", "0.1"]


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (recovered, "circuits.patch_activations"),
        (readable, "probes.fit"),
        (composition, "probes.composition"),
        (spectrum, "probes.ov_spectrum"),
        (followed, "LearnedProbes.causal"),
    ],
)
def test_other_tables_are_refused(draw, words):
    with pytest.raises(InputError, match=words):
        draw(pd.DataFrame({"layer": [0]}))
