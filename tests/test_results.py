"""Results go to JSON and back without loss, and refuse what does not fit their axes."""

import json

import numpy as np
import pytest
from helpers import must_fail
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from icl_interp.errors import InputError
from icl_interp.results import Curve, Matrix, Table, from_dict

FLOATS = st.floats(allow_nan=True, allow_infinity=True)
NAMES = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=5)
# JSON has no NaN: it becomes the string "nan", so these three are no names.
CELLS = NAMES.filter(lambda name: name not in ("nan", "inf", "-inf"))


@st.composite
def arrays_with_axes(draw):
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    names = draw(st.lists(NAMES, min_size=len(shape), max_size=len(shape), unique=True))
    kinds = [st.integers(), FLOATS, CELLS]
    axes = {}
    for name, length in zip(names, shape, strict=True):
        axes[name] = tuple(draw(st.lists(draw(st.sampled_from(kinds)), min_size=length, max_size=length)))
    return draw(hnp.arrays(np.float64, shape, elements=FLOATS)), axes


def through_json(result):
    return from_dict(json.loads(json.dumps(result.to_dict(), allow_nan=False)))


def same(a, b):
    """Equal in type and to the last bit, with NaN equal to NaN."""
    if isinstance(a, float) and isinstance(b, float):
        return np.float64(a).tobytes() == np.float64(b).tobytes() or (np.isnan(a) and np.isnan(b))
    return type(a) is type(b) and a == b


def all_same(a, b):
    assert len(a) == len(b)
    assert all(map(same, a, b))


def check_lossless(result, trip):
    back = trip(result)
    assert type(back) is type(result)
    assert (back.unit, back.note) == (result.unit, result.note)
    assert list(back.axes) == list(result.axes)
    for name in result.axes:
        all_same(back.axes[name], result.axes[name])
    assert back.values.shape == result.values.shape
    all_same(back.values.ravel().tolist(), result.values.ravel().tolist())


@settings(max_examples=40)
@given(array=arrays_with_axes(), kind=st.sampled_from([Matrix, Curve]), unit=st.text(max_size=3), note=st.text())
def test_arrays_go_to_json_and_back_without_loss(array, kind, unit, note):
    check_lossless(kind(*array, unit, note), through_json)


def check_table_lossless(table, trip):
    back = trip(table)
    assert (list(back.columns), dict(back.units), back.note) == (list(table.columns), dict(table.units), table.note)
    for name in table.columns:
        all_same(back[name], table[name])


@settings(max_examples=40)
@given(
    rows=st.lists(st.tuples(CELLS, FLOATS, st.integers(), st.booleans(), st.none()), max_size=5),
    note=st.text(max_size=9),
)
def test_tables_go_to_json_and_back_without_loss(rows, note):
    columns = {name: [row[i] for row in rows] for i, name in enumerate(["model", "error", "steps", "frozen", "extra"])}
    check_table_lossless(Table(columns, {"error": "1"}, note), through_json)


def rounding(result):
    return from_dict(json.loads(json.dumps(result.to_dict()), parse_float=lambda text: round(float(text), 12)))


def as_matrix(result):
    return Matrix(result.values, result.axes, result.unit, result.note)


def without_nan(result):
    return type(result)(np.nan_to_num(result.values), result.axes, result.unit, result.note)


@pytest.mark.parametrize("mutant", [rounding, as_matrix, without_nan])
def test_a_loss_is_noticed(mutant):
    result = Curve([[1 / 3, np.nan], [np.inf, 2.0]], {"layer": (0, 1), "x": (0.1, 0.2)}, "1", "measured")
    check_lossless(result, through_json)
    must_fail(check_lossless, result, mutant)


def test_a_loss_in_a_table_is_noticed():
    table = Table({"error": [1 / 3]})
    check_table_lossless(table, through_json)
    must_fail(check_table_lossless, table, rounding)


def test_numpy_numbers_become_plain():
    table = Table({"a": list(np.arange(2)), "b": [np.float32(0.5), np.bool_(True)]})
    assert [type(v) for v in (*table["a"], *table["b"])] == [int, int, float, bool]
    assert [type(c) for c in Matrix([0.0], {"x": list(np.array([3]))}).axes["x"]] == [int]


M = Matrix(np.arange(6).reshape(2, 3), {"layer": (0, 1), "head": ("a", "b", "c")})


def test_values_are_found_by_their_coordinates():
    assert M.at(layer=1).tolist() == [3, 4, 5]
    assert M.at(head="b").tolist() == [1, 4]
    assert M.at(head="c", layer=0) == 2
    assert M.at().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert M.axis("layer").tolist() == [0, 1]
    curve = Curve([[1.0, 2.0]], {"arm": ("intact",), "|x|": (1, 10)})
    assert (curve.x.tolist(), curve.x.dtype, curve.x_name) == ([1, 10], np.float64, "|x|")


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: Matrix([1, 2], {"x": (1, 2, 3)}), r"shape \(2,\), but the axes \['x'\] ask for \(3,\)"),
        (lambda: Matrix([[1, 2]], {"x": (1, 2)}), r"shape \(1, 2\)"),
        (lambda: Curve(1.0, {"x": (1,)}), r"shape \(\)"),
        (lambda: M.at(layr=0), "unknown axis 'layr': did you mean 'layer'"),
        (lambda: M.at(layer=2), r"unknown coordinate of axis layer 2: .*\(known: 0, 1\)"),
        (lambda: M.at(head="d"), "unknown coordinate of axis head 'd'"),
        (lambda: Table({"a": [1], "b": [1, 2]}), "equally long, but got {'a': 1, 'b': 2}"),
        (lambda: Table({"error": [1]})["eror"], "unknown column 'eror': did you mean 'error'"),
        (lambda: Table({"a": [1]}).row(a=2), "no row with {'a': 2}"),
        (lambda: from_dict({**M.to_dict(), "values": [[1, 2]]}), "the axes"),
    ],
)
def test_what_does_not_fit_is_refused(call, match):
    with pytest.raises(InputError, match=match) as refused:
        call()
    assert "\n" not in str(refused.value)


def test_tables_by_row_and_as_text():
    table = Table({"model": ["affine", "b"], "error": [0.123456, 2e-9]})
    assert table.rows() == [{"model": "affine", "error": 0.123456}, {"model": "b", "error": 2e-9}]
    assert table.row(model="b") == {"model": "b", "error": 2e-9}
    assert len(table) == 2
    assert len(Table({})) == 0
    assert str(table).splitlines() == ["model   error", "affine  0.1235", "b       2e-09"]
    assert table["error"] == [0.123456, 2e-9], "showing a table rounds its text, not its numbers"
