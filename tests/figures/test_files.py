"""Static files: their size, and one line where something that they need is missing."""

import asyncio
import json
import struct
import sys

import pytest
from browsers import browser
from helpers import must_fail
from plotly.graph_objects import Figure
from plotly.io import to_html
from small_reports import drawn

from icl_interp.errors import InputError
from icl_interp.figures import files


@pytest.mark.slow
def test_static_files_have_the_size_that_the_figure_asks_for(small, tmp_path, monkeypatch):
    monkeypatch.setenv("BROWSER_PATH", browser())
    shown = {name: drawn(small, name) for name in ("claims", "context")}
    assert files.export(shown, tmp_path / "deep" / "figures", ["png", "svg", "pdf"]) is None
    written = {path.name: path.read_bytes() for path in (tmp_path / "deep" / "figures").iterdir()}
    assert sorted(written) == sorted(
        f"{name}.{kind}" for name in shown for kind in ("png", "svg", "pdf")
    )
    for name, figure in shown.items():
        assert written[f"{name}.pdf"].startswith(b"%PDF")
        assert b"Which claims hold" in written["claims.svg"]
        png = written[f"{name}.png"]
        assert png.startswith(b"\x89PNG")
        assert struct.unpack(">II", png[16:24]) == (
            2 * figure.layout.width,
            2 * figure.layout.height,
        )


def says_what_is_missing(answer: str | None, *words: str):
    assert answer is not None
    assert "\n" not in answer
    for word in words:
        assert word in answer


@pytest.mark.parametrize("path", ["/nowhere/chrome", ""])
def test_without_a_browser_one_line_says_how_to_get_one(small, tmp_path, monkeypatch, path):
    monkeypatch.setenv("BROWSER_PATH", path)
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = files.export({"heads": drawn(small, "heads")}, tmp_path / "figures", ["png"])
    says_what_is_missing(answer, "Chrome or Chromium", "apt install chromium", "BROWSER_PATH", path)
    must_fail(says_what_is_missing, None)
    assert list((tmp_path / "figures").iterdir()) == []


def test_without_kaleido_one_line_says_how_to_get_it(small, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "kaleido", None)
    says_what_is_missing(
        files.export({}, tmp_path, ["png"]), "kaleido", "pip install 'icl-interp[figures]'"
    )


def test_a_folder_that_cannot_be_written_is_the_users_to_know(small, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write .*file"):
        files.export({}, tmp_path / "file" / "figures", ["png"])


def test_errors_of_the_browser_are_not_swallowed(small, tmp_path, monkeypatch):
    import kaleido

    async def failing(jobs, kopts):
        return (ValueError("no such trace"),)

    monkeypatch.setattr(kaleido, "write_fig_from_object", failing)
    with pytest.raises(RuntimeError, match=r"1 of 1 figures: no such trace"):
        files.export({"context": drawn(small, "context")}, tmp_path, ["png"])


@pytest.mark.slow
def test_a_browser_that_ends_or_hangs_costs_the_static_figures_only(small, tmp_path, monkeypatch):
    """kaleido cancels what waits for a browser that is gone, or waits for it without end."""
    import kaleido

    async def ends(jobs, kopts):
        raise asyncio.CancelledError

    async def hangs(jobs, kopts):
        await asyncio.sleep(3600)

    monkeypatch.setattr(files, "PATIENCE", 0)
    for behaves in (ends, hangs):
        monkeypatch.setattr(kaleido, "write_fig_from_object", behaves)
        answer = files.export({"context": drawn(small, "context")}, tmp_path, ["png"])
        says_what_is_missing(answer, "did not start, or ended or hung", "BROWSER_PATH")


# ---- figures in pages ----------------------------------------------------------------------------


def shown_in(div: str) -> list:
    """Data and layout that a page hands to plotly.js."""
    rest, found = div[div.index("newPlot(") :].split(",", 1)[1], []
    for _ in range(2):
        value, end = json.JSONDecoder().raw_decode(rest.lstrip())
        found.append(value)
        rest = rest.lstrip()[end:].lstrip().removeprefix(",")
    return found


def check_div(figure, expected):
    """What a page shows is the figure as it is, but as wide as there is room."""
    assert shown_in(files.to_div(figure, "a")) == shown_in(
        to_html(expected, full_html=False, include_plotlyjs=False)
    )


def test_pages_show_the_figure(small):
    figure = drawn(small, "context")
    before = figure.to_json()
    check_div(figure, Figure(figure).update_layout(width=None, autosize=True))
    must_fail(check_div, figure, figure)
    must_fail(
        check_div, figure, Figure(figure).update_layout(width=None, autosize=True, height=100)
    )
    assert figure.to_json() == before
