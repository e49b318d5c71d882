"""JSON that rounds nothing, and files replaced whole or not at all."""

import json
import math
import os
import stat
import sys
import tempfile

import numpy as np
import pytest
from helpers import must_fail
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_runs import Killed

from icl_interp import provenance
from icl_interp.errors import InputError
from icl_interp.provenance import finite, read_json, write_atomically, write_json
from icl_interp.structured import Stored

# ---- numbers -------------------------------------------------------------------------------------


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def check_unrounded(value, trip):
    back = trip(value)
    assert json.dumps(back, sort_keys=True) == json.dumps(value, sort_keys=True)


@pytest.mark.slow
@settings(max_examples=40)  # each is written to the disk for good
@given(value=JSON)
def test_json_never_rounds(tmp_path_factory, value):
    path = tmp_path_factory.getbasetemp() / "value.json"

    def trip(value):
        write_json(path, value)
        return read_json(path)

    check_unrounded(value, trip)


def test_rounding_is_noticed():
    for value in (1 / 3, 0.1 + 0.2, 2**63 + 1):
        must_fail(check_unrounded, value, lambda value: json.loads(f"{value:.6g}"))


def test_what_json_lacks_becomes_a_string(tmp_path):
    write_json(
        tmp_path / "a.json",
        {"a": [math.nan, math.inf], "b": (-math.inf, 1.5), "c": np.float64("nan")},
    )
    assert read_json(tmp_path / "a.json") == {"a": ["nan", "inf"], "b": ["-inf", 1.5], "c": "nan"}
    assert [float(v) for v in finite([math.inf, -math.inf])] == [math.inf, -math.inf]
    assert math.isnan(float(finite(math.nan)))


def test_numbers_up_to_the_largest_are_read(tmp_path):
    (tmp_path / "a.json").write_text(
        f"[1.7976931348623157e308, {10**308}, -1e308, {2**64}, 1e-400]"
    )
    assert read_json(tmp_path / "a.json") == [sys.float_info.max, 10**308, -1e308, 2**64, 0.0]


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1.5, 1e308, 5e-324])
def test_numbers_that_are_not_finite_survive_the_trip(tmp_path, value):
    write_json(tmp_path / "a.json", {"error": value, "nan": math.nan})
    read = read_json(tmp_path / "a.json")
    assert Stored(read["error"], "error").of(float) == value
    assert math.isnan(Stored(read["nan"], "nan").of(float))


@pytest.mark.parametrize("value", [None, True, "1.5", "NaN", "infinity", [1.0], {}])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(InputError, match="error must be a number, but got"):
        Stored(value, "error").of(float)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (None, "cannot read .*: No such file"),
        (b"", "is not JSON"),
        (b'{"a": 1', "is not JSON .*was it cut off or edited"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"a": "\xe4"}', "byte 7 is not UTF-8.*saved in another encoding"),
        (b'{"a": NaN}', "is not JSON .it has no NaN"),
        (b"[-Infinity]", "is not JSON .it has no -Infinity"),
        (b"1e400", "the number '1e400' is too large"),
        (b"-1e999999999", "the number '-1e999999999' is too large"),
        (b"1" + b"0" * 309, "the number '1000.*000' is too large"),
        (b"9" * 10_000, "the number '9999.*999' is too large"),
    ],
)
def test_what_is_no_json_is_one_clear_line(tmp_path, content, match):
    if content is not None:
        (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(InputError, match=match) as refused:
        read_json(tmp_path / "a.json")
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500


# ---- files ---------------------------------------------------------------------------------------


def careless(path, content):
    """Writes in place."""
    with open(path, "wb") as file:
        file.write(content[: len(content) // 2])
        file.flush()
        os.fsync(file.fileno())
        file.write(content[len(content) // 2 :])


def check_crash(folder, monkeypatch, write, where, error):
    """A crash in a system call leaves the old file whole and nothing beside it."""
    path = folder / "file"
    path.write_bytes(b"old" * 1000)

    def crash(*args):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(provenance.os, where, crash)
        with pytest.raises((Killed, InputError)) as crashed:
            write(path, b"new" * 1000)
    assert path.read_bytes() == b"old" * 1000
    assert [item.name for item in folder.iterdir()] == ["file"]
    assert "\n" not in str(crashed.value)
    write(path, b"new" * 1000)
    assert path.read_bytes() == b"new" * 1000


@pytest.mark.parametrize(
    "error", [Killed(), OSError(28, "No space left on device")], ids=["killed", "disk full"]
)
@pytest.mark.parametrize("where", ["fsync", "replace", "chmod"])
def test_a_crash_leaves_the_old_file_whole(tmp_path, monkeypatch, where, error):
    check_crash(tmp_path, monkeypatch, write_atomically, where, error)


def test_writing_in_place_is_noticed(tmp_path, monkeypatch):
    must_fail(check_crash, tmp_path, monkeypatch, careless, "fsync", Killed())


def test_a_full_disk_is_one_clear_line(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(provenance.os, "fsync", full)
    with pytest.raises(
        InputError,
        match=r"cannot write .*a\.json: No space left on device; is it a folder, or the disk",
    ):
        write_json(tmp_path / "a.json", {})
    assert not list(tmp_path.iterdir())


def test_data_reach_the_disk_before_the_name(tmp_path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(
            provenance.os, name, lambda *a, name=name, real=real: (calls.append(name), real(*a))[1]
        )
    write_atomically(tmp_path / "a", "text")
    assert calls == ["fsync", "replace"]
    assert (tmp_path / "a").read_text() == "text"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o644


def test_folders_are_made_on_the_way(tmp_path):
    write_json(tmp_path / "a" / "b" / "c.json", [1])
    assert read_json(tmp_path / "a" / "b" / "c.json") == [1]


def test_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(
        InputError, match=r"cannot write .*; choose a folder you can write to"
    ) as refused:
        write_atomically(tmp_path / "file" / "below" / "a", b"")
    assert "\n" not in str(refused.value)
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=r"cannot write .*folder: .*is it a folder"):
        write_atomically(tmp_path / "folder", b"")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "x"


def check_leftovers(folder, remove):
    """What a killed process leaves beside a file goes; what only looks like it stays."""
    left = tempfile.mkstemp(dir=folder, prefix=".a.json.")[1]  # as write_atomically names it
    kept = (
        "a.json",
        ".a.json.left",
        ".a.json.abcdefghi",
        ".b.json.abcdefgh",
        "a.json.abcdefgh",
        ".axjson.abcdefgh",
    )
    for name in kept:
        (folder / name).write_text("mine")
    (folder / ".a.json.12345678").mkdir()
    remove(folder, ["a.json", "c.json"])
    assert not os.path.exists(left)
    assert sorted(item.name for item in folder.iterdir()) == sorted([*kept, ".a.json.12345678"])


def test_leftovers_of_a_kill_are_removed_and_nothing_else(tmp_path):
    (tmp_path / "a").mkdir()
    check_leftovers(tmp_path / "a", provenance.remove_leftovers)
    for i, careless in enumerate([".*", ".a.json.????????", ".?.json.*"]):
        (tmp_path / str(i)).mkdir()

        def sweeping(folder, names, pattern=careless):
            for path in folder.glob(pattern):
                path.unlink() if path.is_file() else path.rmdir()

        must_fail(check_leftovers, tmp_path / str(i), sweeping)
