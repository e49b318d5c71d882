"""One reader of YAML: strict with what is written for this package, safe with all else."""

import datetime

import pytest

from icl_interp.errors import InputError
from icl_interp.plain_yaml import LARGEST, foreign_mapping, parse_yaml, read_yaml
from icl_interp.structured import DEPTH

FOREIGN = {
    "[&a 1, *a]": [1, 1],
    "{a: 1, a: 2}": {"a": 2},
    "{1: a}": {1: "a"},
    "a: &a {x: 1}\nb: {<<: *a}": {"a": {"x": 1}, "b": {"x": 1}},
    "2020-01-01": datetime.date(2020, 1, 1),
}


@pytest.mark.parametrize("text", FOREIGN)
def test_what_other_programs_write_is_read_from_them_only(text):
    assert parse_yaml(text, "x", foreign=True) == FOREIGN[text]
    with pytest.raises(InputError, match=r"^x, line \d: expected ") as refused:
        parse_yaml(text, "x")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("foreign", [True, False])
@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("!!python/name:os.system", "not"),
        ("a: b: c", "x is not YAML"),
        ("[" * 5000, f"at most {DEPTH} levels"),
        ("a: \x00", "x is not YAML"),
        ("1" * 5000, "x is not YAML"),
    ],
)
def test_what_is_no_plain_data_is_refused_in_a_line(text, match, foreign):
    with pytest.raises(InputError, match=match) as refused:
        parse_yaml(text, "x", foreign=foreign)
    assert len(str(refused.value)) < 400


def test_files_are_read_whole_or_refused(tmp_path):
    file = tmp_path / "task.yaml"
    file.write_text("{a: 1.0e-3, b: [true, null, x]}")
    assert read_yaml(file) == {"a": 0.001, "b": [True, None, "x"]}
    assert foreign_mapping(file)["a"].of(float) == 0.001
    for content, match in (
        (b"\xff", "cannot read .*task.yaml"),
        (b" " * (LARGEST + 1), "at most 100,000 are read"),
        (b"- 1", r"task\.yaml must be a mapping, but got \[1\]"),
    ):
        file.write_bytes(content)
        with pytest.raises(InputError, match=match):
            foreign_mapping(file)
