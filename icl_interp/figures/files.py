"""Figures as files and as parts of a page: PNG, SVG, PDF, and HTML that needs no network."""

import asyncio
import base64
import hashlib
import json
import os
import queue
import re
import shutil
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import plotly.io
import plotly.offline
from markupsafe import Markup
from plotly.graph_objects import Figure

from icl_interp.errors import InputError
from icl_interp.figures import narrow
from icl_interp.figures.in_turn import in_turn

SCALE = 2  # of PNG files: twice the pixels of the screen, enough for print
# No button sends a figure to a server.
_CONFIG = {"displaylogo": False, "responsive": True, "showSendToCloud": False}
# A click on a square asks the page for a head, "layer.head": attention.js hears it. A row is a
# layer with a column a head, or it is a head.
OPENS = """
document.getElementById("{plot_id}").on("plotly_click", event => {
  const {x, y} = event.points[0];
  const name = String(y).includes(".") ? String(y) : `${y}.${x}`;
  document.dispatchEvent(new CustomEvent("head", {detail: name}));
});
"""
# Seconds in which a browser has to start; each file gets one more, ten times what it takes.
PATIENCE = 100
_WHAT = "PNG, SVG and PDF figures"
_HELP = (
    "install it (Debian, Ubuntu: apt install chromium; elsewhere: https://www.google.com/chrome) "
    "or point BROWSER_PATH at its executable"
)


def export(figures: Mapping[str, Figure], folder: str | Path, formats: Sequence[str]) -> str | None:
    """Write each figure as `folder/<name>.<format>`.

    Args:
        figures: by name.
        folder: where the files go; it is made where it does not exist.
        formats: of "png", "svg", "pdf".

    Returns:
        None when all were written; one line that says what is missing and how to get it, where
        static figures cannot be made on this machine (they need kaleido and a Chrome or Chromium).

    Raises:
        InputError: the folder cannot be written to.
        RuntimeError: the browser could not draw a figure.
    """
    try:
        import kaleido
        from choreographer import errors
    except ImportError:
        return f"{_WHAT} need kaleido, which is not installed: pip install 'icl-interp[figures]'"
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot write {folder}: {error.strerror}; choose a folder you can write to"
        ) from error
    jobs: list[Any] = []  # kaleido has no type for these outside a type checker
    for name, figure in figures.items():
        layout: Any = figure.layout  # plotly makes its attributes at run time
        for kind in formats:
            look = {"format": kind, "width": layout.width, "height": layout.height}
            look["scale"] = SCALE if kind == "png" else 1
            path = folder / f"{name}.{kind}"
            jobs.append({"fig": figure, "path": path, "opts": look})
    # One call starts one browser for all. MathJax would come from the network, and no figure needs
    # it.
    options: dict[str, Any] = {"mathjax": False}
    chosen = browser()
    if chosen:
        options["path"] = chosen
    patience = PATIENCE + len(jobs)
    named = os.environ.get("BROWSER_PATH")
    try:
        failed = _within(patience, lambda: kaleido.write_fig_from_object(jobs, kopts=options))
    except errors.ChromeNotFoundError:
        problem = f"BROWSER_PATH={named} is no program" if named else "none was found"
        return f"{_WHAT} need Chrome or Chromium, and {problem}: {_HELP}"
    except (errors.BrowserFailedError, asyncio.CancelledError, TimeoutError):
        which = f"the one that BROWSER_PATH={named} names" if named else "the one that was found"
        return (
            f"{_WHAT} need Chrome or Chromium, and {which} did not start, or ended or hung: try "
            f"again, or {_HELP}"
        )
    if failed:
        raise RuntimeError(
            f"the browser could not draw {len(failed)} of {len(jobs)} figures: {failed[0]}"
        )
    return None


def _within(seconds: float, write: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """What a coroutine returns, run on a thread of its own.

    kaleido's own call of this kind waits without end for a browser that is gone. The thread is a
    daemon, so that one that is stuck does not keep the program from ending.

    Raises:
        TimeoutError: it takes longer.
        BaseException: whatever the coroutine raises.
    """
    answers: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue()

    def run() -> None:
        try:
            answer = asyncio.run(write())
            answers.put((answer, None))
        except BaseException as error:
            answers.put((None, error))

    threading.Thread(target=run, daemon=True).start()
    try:
        answer, error = answers.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer within {seconds} s") from None
    if error is not None:
        raise error
    return answer


def browser() -> str | None:
    """A browser that kaleido doesn't look for by itself: Debian's small headless one."""
    if "BROWSER_PATH" in os.environ:
        return None
    return shutil.which("chromium-headless-shell")


def plotly_js() -> str:
    """The source of plotly.js, to be put into a page once."""
    return plotly.offline.get_plotlyjs()


def to_div(figure: Figure, div_id: str, opens_heads: bool = False) -> Markup:
    """A figure as HTML for a page that holds `plotly_js`, as wide as the page allows.

    Equal figures give equal text.

    On a narrow screen its panels stand below each other, where it has the class "folds"
    (`figures.narrow`).

    Args:
        figure: what is shown.
        div_id: the id of its element.
        opens_heads: whether a click on the square of a head, in a figure with a row a layer or a
            head, chooses it in the page's view of attention.
    """
    div_id = re.sub(r"[^\w-]", "-", div_id)
    data = figure.to_dict()
    # In the plain data: a figure that is made anew checks every number again.
    data["layout"].pop("width", None)
    data["layout"]["autosize"] = True
    config = {**_CONFIG, "toImageButtonOptions": {"format": "svg", "filename": div_id}}
    scripts = []
    folds = narrow.script(figure)
    if folds:
        scripts.append(folds)
    if opens_heads:
        scripts.append(OPENS)
    # plotly writes <, > and / inside the script as \u003c and so on: no text of a figure ends it.
    text = plotly.io.to_html(
        data,
        config=config,
        post_script=scripts,
        validate=False,
        full_html=False,
        include_plotlyjs=False,
        div_id=div_id,
    )
    text = in_turn(text, div_id)
    if folds:
        text = text.replace("<div", '<div class="folds"', 1)
    return Markup(text)


def scripts(figures: Sequence[Markup]) -> tuple[Markup, Markup]:
    """What a page needs for the figures in it, as `to_div` gives them.

    Returns:
        A policy that lets the browser run these figures' scripts and plotly.js, nothing else, and
        load nothing; and plotly.js itself, where there is a figure.
    """
    if not figures:
        return policy([]), Markup("")
    source = plotly_js()
    inside = [source]
    for div in figures:
        inside += re.findall(r"<script[^>]*>(.*?)</script>", div, re.DOTALL)
    return policy(inside), Markup(f"<script>{source}</script>")


def policy(scripts: Sequence[str]) -> Markup:
    """What lets a browser run these scripts, nothing else, and load nothing."""
    hashes: dict[str, None] = {}  # each once, in order
    for text in scripts:
        digest = hashlib.sha256(text.encode()).digest()
        hashes[f"'sha256-{base64.b64encode(digest).decode()}'"] = None
    allowed = " ".join(hashes) or "'none'"
    return Markup(
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data: '
        "blob:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; script-src {}\">"
    ).format(Markup(allowed))


def drawn_by(file: str, style: str, data: Any, div_id: str) -> tuple[Markup, str]:
    """A script of this package that draws data, and styles, for a page that loads nothing.

    Args:
        file: beside this module, JavaScript that reads `data` and draws in the element `place`.
        style: beside this module, the styles of what it draws.
        data: plain data. No text in it ends the script.
        div_id: the id of that element: letters, digits and dashes.

    Returns:
        The styles with the script in its tag, and the text between the tags.
    """
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True)
    for sign, code in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(sign, code)
    folder = Path(__file__).parent
    source = (folder / file).read_text("utf-8")
    styles = (folder / style).read_text("utf-8")
    place = f'document.getElementById("{div_id}")'
    script = f"(function (data, place) {{\n{source}}})({text}, {place});"
    where = f'<style>{styles}</style><div id="{div_id}"></div>'
    return Markup(f"{where}<script>{script}</script>"), script


def drawn_in_turn(file: str, style: str, data: Any, div_id: str) -> Markup:
    """What `drawn_by` gives, as a part of a page that is drawn when it is its turn."""
    drawn, _ = drawn_by(file, style, data, div_id)
    return Markup(in_turn(str(drawn), div_id))
