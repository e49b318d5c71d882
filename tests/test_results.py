"""Results go to JSON and back without loss, and refuse what does not fit their axes."""

import json

import numpy as np
import pytest
from helpers import must_fail
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pandas import DataFrame
from xarray import DataArray

from icl_interp.errors import InputError
from icl_interp.results import (
    coordinates,
    from_dict,
    make_array,
    make_arrays,
    make_curve,
    make_table,
    rows_in,
    table_of_rows,
    text,
    to_dict,
)

WHOLE = st.integers(1 - 2**63, 2**63 - 1)  # larger ones are refused in files
FLOATS = st.floats(allow_nan=True, allow_infinity=True)
NAMES = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=5)
# JSON has no NaN: it becomes the string "nan", so these three are no names.
CELLS = NAMES.filter(lambda name: name not in ("nan", "inf", "-inf"))


@st.composite
def arrays_with_axes(draw):
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    names = draw(st.lists(NAMES, min_size=len(shape), max_size=len(shape), unique=True))
    kinds = [WHOLE, FLOATS, CELLS]
    axes = {}
    for name, length in zip(names, shape, strict=True):
        axes[name] = tuple(
            draw(st.lists(draw(st.sampled_from(kinds)), min_size=length, max_size=length))
        )
    return draw(hnp.arrays(np.float64, shape, elements=FLOATS)), axes


def through_json(result):
    return from_dict(json.loads(json.dumps(to_dict(result), allow_nan=False)))


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
    assert back.attrs == result.attrs
    assert back.dims == result.dims
    for name in result.dims:
        all_same(coordinates(back, name), coordinates(result, name))
    assert back.values.shape == result.values.shape
    all_same(back.values.ravel().tolist(), result.values.ravel().tolist())


@settings(max_examples=40)
@given(
    array=arrays_with_axes(),
    make=st.sampled_from([make_array, make_curve]),
    units=st.text(max_size=3),
    note=st.text(),
)
def test_arrays_go_to_json_and_back_without_loss(array, make, units, note):
    result = make(*array, units, note)
    for name, items in array[1].items():
        all_same(coordinates(result, name), list(items))
    check_lossless(result, through_json)


def check_each(make, values, axes, units, note):
    made = make(values, axes, units, note)
    assert list(made) == list(values)
    alone = {
        name: make_array(numbers, axes, units.get(name, ""), note)
        for name, numbers in values.items()
    }
    for name, array in made.items():
        check_lossless(array, lambda _, other=alone[name]: other)


@pytest.mark.slow
@given(array=arrays_with_axes(), note=st.text(max_size=3))
def test_arrays_made_together_are_those_made_alone(array, note):
    values, axes = array
    of = {"a": values, "b": np.asarray(values, order="F") > 0, "c": -values}
    check_each(make_arrays, of, axes, {"b": "nats", "c": "y"}, note)
    made = make_arrays(of, axes)
    made["b"].attrs["note"] = "of its own"
    assert made["a"].attrs["note"] == made["c"].attrs["note"] == ""
    must_fail(
        check_each,
        lambda v, a, _, n: make_arrays(v, a, {"b": "y", "c": "y"}, n),
        of,
        axes,
        {"b": "nats"},
        note,
    )


def check_table_lossless(table, trip):
    back = trip(table)
    assert (list(back), back.attrs) == (list(table), table.attrs)
    for name in table:
        all_same(back[name].tolist(), table[name].tolist())


@settings(max_examples=40)
@given(
    rows=st.lists(st.tuples(CELLS, FLOATS, WHOLE, st.booleans(), st.none()), max_size=5),
    note=st.text(max_size=9),
)
def test_tables_go_to_json_and_back_without_loss(rows, note):
    columns = {
        name: [row[i] for row in rows]
        for i, name in enumerate(["model", "error", "steps", "frozen", "extra"])
    }
    table = make_table(columns, {"error": "1"}, note)
    for name, column in columns.items():
        all_same(table[name].tolist(), column)
    check_table_lossless(table, through_json)


def rounding(result):
    return from_dict(
        json.loads(json.dumps(to_dict(result)), parse_float=lambda text: round(float(text), 12))
    )


def of_another_kind(result):
    return result.assign_attrs(kind="matrix")


def without_nan(result):
    return result.copy(data=np.nan_to_num(result.values))


@pytest.mark.parametrize("mutant", [rounding, of_another_kind, without_nan])
def test_a_loss_is_noticed(mutant):
    result = make_curve(
        [[1 / 3, np.nan], [np.inf, 2.0]], {"layer": (0, 1), "x": (0.1, 0.2)}, "1", "measured"
    )
    check_lossless(result, through_json)
    must_fail(check_lossless, result, mutant)


def test_a_loss_in_a_table_is_noticed():
    table = make_table({"error": [1 / 3]})
    check_table_lossless(table, through_json)
    must_fail(check_table_lossless, table, rounding)


def test_numpy_numbers_become_plain():
    table = make_table({"a": list(np.arange(2)), "b": [np.float32(0.5), np.bool_(True)]})
    assert [type(v) for v in (*table["a"], *table["b"])] == [int, int, float, bool]
    assert [type(c) for c in coordinates(make_array([0.0], {"x": list(np.array([3]))}), "x")] == [
        int
    ]


def test_numbers_of_both_kinds_become_one_that_can_be_drawn():
    assert make_curve([0.0, 0.0], {"x": (1, 2.5)})["x"].dtype == np.float64
    assert make_table({"sigma": [1, 2.5]})["sigma"].dtype == np.float64
    large = 2**53 + 1  # no float holds it
    assert make_table({"n": [large, 0.5]})["n"].tolist() == [large, 0.5]


M = make_array(np.arange(6).reshape(2, 3), {"layer": (0, 1), "head": ("a", "b", "c")})


def test_results_of_others_go_to_json_too():
    """One made by hand needs neither coordinates nor attributes."""
    bare = to_dict(DataArray(np.zeros((2, 1)), dims=("layer", "head")))
    assert bare["axes"] == {"layer": [0, 1], "head": [0]}
    assert (bare["kind"], bare["unit"], bare["note"]) == ("matrix", "", "")
    assert to_dict(DataFrame({"a": [1]})) == {
        "kind": "table",
        "columns": {"a": [1]},
        "units": {},
        "note": "",
    }


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (
            lambda: make_array([1, 2], {"x": (1, 2, 3)}),
            r"shape \(2,\), but the axes \['x'\] ask for \(3,\)",
        ),
        (lambda: make_array([[1, 2]], {"x": (1, 2)}), r"shape \(1, 2\)"),
        (
            lambda: make_arrays({"a": [1.0], "b": [1.0, 2.0]}, {"x": (1,)}),
            r"shape \(2,\), but the axes \['x'\] ask",
        ),
        (lambda: make_curve(1.0, {"x": (1,)}), r"shape \(\)"),
        (lambda: make_table({"a": [1], "b": [1, 2]}), "equally long, but got {'a': 1, 'b': 2}"),
        (lambda: from_dict({**to_dict(M), "values": [[1, 2]]}), "the axes"),
    ],
)
def test_what_does_not_fit_is_refused(call, match):
    with pytest.raises(InputError, match=match) as refused:
        call()
    assert "\n" not in str(refused.value)


def test_tables_by_row_and_as_text():
    table = make_table({"model": ["affine", "b"], "error": [0.123456, 2e-9]})
    assert rows_in(table) == [{"model": "affine", "error": 0.123456}, {"model": "b", "error": 2e-9}]
    assert table_of_rows(rows_in(table)).equals(table)
    assert len(make_table({})) == 0
    assert text(table).splitlines() == [" model  error", "affine 0.1235", "     b  2e-09"]
    assert table["error"].tolist() == [0.123456, 2e-9], (
        "showing a table rounds its text, not its numbers"
    )
