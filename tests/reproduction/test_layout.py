"""Tables for readers: nothing is lost or moved, and words for how far apart numbers lie."""

import numpy as np
import pytest
from helpers import must_fail
from pandas import DataFrame

from icl_interp.experiments import base, errors, kept, statements
from icl_interp.reproduction import layout, page
from icl_interp.results import from_dict, make_table


def by_sigma(order):
    """Two models by three sigmas; every number tells where it belongs."""
    rows = [
        {
            "degree": 1,
            "model": m,
            "sigma": s,
            "paper": 100.0 * i + s,
            "ours": 200.0 * i + s,
            "low": 0.5,
            "high": 2.0,
            "ours / paper": 2.0,
        }
        for i, m in enumerate("ab", 1)
        for s in (1, 2, 10)
    ]
    rows = [rows[i] for i in order]
    return make_table({name: [row[name] for row in rows] for name in rows[0]}, note="a note")


def test_tables_by_sigma_are_laid_out_as_papers_do():
    def check(table):
        shown = layout.readable(table)
        assert list(shown.columns) == ["degree", "model", "sigma:", "1", "2", "10"]
        assert shown.attrs["note"] == "a note"
        for i, model in enumerate("ab", 1):
            for column in ("1", "2", "10"):
                cells = {
                    row["sigma:"]: row[column]
                    for row in shown.to_dict("records")
                    if row["model"] == model
                }
                assert cells == {
                    "paper": str(100 * i + int(column)),
                    "ours": str(200 * i + int(column)),
                    "95 %": "0.5–2",
                    "ours / paper": "2",
                }

    check(by_sigma(range(6)))
    check(by_sigma([5, 0, 3, 1, 4, 2]))
    swapped = by_sigma(range(6))
    must_fail(check, make_table({**swapped, "model": list("ababab")}, note="a note"))


def test_what_is_missing_is_a_dash():
    shown = layout.readable(by_sigma([0, 1, 2, 3]), intervals=False)
    assert [row["10"] for row in shown.to_dict("records") if row["model"] == "b"] == ["–"] * 3
    assert layout.cell(float("nan")) == "–"
    assert (layout.cell(True), layout.cell(3), layout.cell(1e-6)) == ("yes", "3", "10⁻⁶")


def test_other_tables_stay_row_by_row():
    table = make_table({"layer": ["a", "b|c"], "r2": [0.12345, float("nan")]})
    assert layout.readable(table)["r2"].tolist() == ["0.123", "–"]
    assert layout.markdown(table).splitlines()[-1] == "| b\\|c | – |"


def test_distance_in_numbers_sigma_by_sigma():
    """Factors of 1 and 4 at sigma 2 and of 2 at sigma 3, where 0.0 is printed at sigma 1.

    Nothing is pooled.
    """

    def said(ours):
        cells = zip((1, 2, 2, 3), (0.0, 1.0, 2.0, 3.0), (9.0, *ours), strict=True)
        rows = [
            {"sigma": s, "paper": p, "ours": o, "ours / paper": o / p if p else float("nan")}
            for s, p, o in cells
        ]
        return errors.in_numbers(errors.as_table(rows, ""))

    def check(ours):
        assert said(ours) == (
            f"{errors.FACTORS}, median (range): 2.5 (1–4) at sigma 2, 2 at sigma 3.",
        )

    check([1.0, 8.0, 6.0])
    must_fail(check, [6.0, 1.0, 8.0])
    assert errors.in_numbers(None) == ()
    one = errors.as_table([{"sigma": 1, "paper": 1.0, "ours": 3.0, "ours / paper": 3.0}], "")
    assert errors.in_numbers(one, "with LN") == (f"{errors.FACTORS} with LN: 3 at sigma 1.",)
    assert errors.in_numbers(one, sigma=2) == ()


@pytest.mark.parametrize("name", [name for name in base.names() if kept.path(name)])
def test_numbers_in_the_package_are_laid_out(name):
    """Every number of a kept comparison is in its table.

    The ratio is that of the two numbers above it.
    """
    stored = kept.record(name)["comparison"]
    if stored is None:
        return
    table = from_dict(stored)
    assert isinstance(table, DataFrame)
    assert layout.markdown(table)
    if "ours / paper" in table.columns:
        paper, ours, ratio = (
            np.array(table[key], dtype=float) for key in ("paper", "ours", "ours / paper")
        )
        np.testing.assert_allclose(
            ratio[paper > 0], (ours / np.where(paper > 0, paper, 1))[paper > 0]
        )
        assert np.isnan(ratio[paper == 0]).all()


def test_what_is_not_counted_stands_apart():
    """On pages and in README files: first what the source found, with notes, then the rest.

    The rest stands under a line of its own.
    """
    lines = [f"{word}a{i}." for i, word in enumerate(statements.WORDS)] + ["A note."]
    main, beside = page.apart(lines)
    assert [line.startswith(statements.COUNTED) for line in main] == [True] * 3 + [False]
    assert len(beside) == len(statements.BESIDE)
    html = str(page.says(lines))

    def check(text):
        first, second = text.split(page.BESIDE)
        assert "a0." in first
        assert "A note." in first
        for i in range(len(statements.COUNTED), len(statements.WORDS)):
            assert f"a{i}." in second
            assert f"a{i}." not in first

    check(html)
    must_fail(check, str(page.says(lines[::-1])).replace(page.BESIDE, "") + page.BESIDE)
    assert page.BESIDE not in str(page.says(main))
    check(page.index_markdown([{**kept.record("limits.appendix_g"), "says": lines}]))
