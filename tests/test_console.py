"""Text from strangers controls no terminal, log or error in which it is shown."""

import ast
import io
import json
import logging
import subprocess
import sys
from dataclasses import replace

import pytest
from helpers import must_fail
from layout_rules import ROOT
from rich.console import Console
from rich.text import Text
from small_reports import report

from icl_interp.cli import program
from icl_interp.console import WIDTH, console
from icl_interp.errors import Formatter, InputError, logger, printable, shown
from icl_interp.report import Report, terminal
from icl_interp.report.comparison import Comparison

# A change of colour, a bell, a carriage return, one control character of eight bits, a mark and an
# override of direction, an isolate, a soft hyphen, separators of lines, half a surrogate pair, a
# character for private use.
CONTROLS = (
    "\x1b[31m \x07 \r \x9b31m \u200f \u202e \u2066 \xad \u2028 \x85 \ud800 \udcff \ue000 \U000e0041"
)
ALONE = [one for one in CONTROLS if not one.isprintable()]
PLAIN = "σ² × 10⁻⁷ – ✔ é ä שלום العربية\u00a0日本"  # letters of any writing are shown as they are


def steers_nothing(text):
    assert [hex(ord(one)) for one in text if one in ALONE] == []


def test_what_steers_a_terminal_is_shown_as_an_escape():
    steers_nothing(printable(CONTROLS))
    must_fail(steers_nothing, CONTROLS)
    for one in ALONE:
        must_fail(steers_nothing, one)
        assert printable(one) == one.encode("unicode_escape").decode()
    printable(CONTROLS).encode()  # no surrogate is left
    assert printable(f"{PLAIN}\n\t") == f"{PLAIN}\n\t"
    assert printable(printable(CONTROLS)) == printable(CONTROLS)


class Named:
    """Its repr holds what it likes."""

    def __repr__(self):
        return CONTROLS


def test_errors_are_a_printable_line():
    message = str(InputError(f"a{CONTROLS}\nb"))
    steers_nothing(message)
    assert message.startswith("a\\x1b[31m")
    assert "\n" not in message
    steers_nothing(shown(Named()))
    must_fail(steers_nothing, repr(Named()))
    must_fail(steers_nothing, str(ValueError(CONTROLS)))


def logged(log, formatter=None):
    """What a handler of someone else's writes of a warning with an error."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    log.addHandler(handler)
    log.propagate = False  # an error that is logged fails a test
    try:
        raise KeyError(CONTROLS) from ValueError(CONTROLS)
    except KeyError:
        log.warning("%s: %s", Named(), CONTROLS, exc_info=True)
    log.removeHandler(handler)
    return stream.getvalue()


def test_logs_are_printable_whoever_writes_them():
    text = logged(logger("icl_interp.tests.ours"))
    steers_nothing(text)
    assert "\\x1b[31m" in text
    assert "Traceback" in text
    must_fail(steers_nothing, logged(logging.getLogger("icl_interp.tests.theirs")))
    steers_nothing(logged(logging.getLogger("other.package"), Formatter("%(message)s")))


def takes_loggers_and_prints_from_one_place(path, source):
    """No module makes a logger of its own, and nothing prints but what makes text printable."""
    for node in ast.walk(ast.parse(source)):
        name = node.func if isinstance(node, ast.Call) else None
        if isinstance(name, ast.Attribute) and name.attr == "getLogger":
            assert path == "errors.py"
        if isinstance(name, ast.Name) and name.id == "print":
            (argument,) = node.args
            assert isinstance(argument, ast.Call)
            assert argument.func.id == "printable"
        if isinstance(name, (ast.Name, ast.Attribute)) and "Console" in (
            getattr(name, "id", ""),
            getattr(name, "attr", ""),
        ):
            raise AssertionError(f"{path}:{node.lineno} makes a console of its own")


@pytest.mark.slow
def test_no_module_has_a_way_around():
    for path in sorted(ROOT.rglob("*.py")):
        takes_loggers_and_prints_from_one_place(
            path.relative_to(ROOT).as_posix(), path.read_text("utf-8")
        )
    for wrong in ("log = logging.getLogger(__name__)", "print(text)", "Console().print(text)"):
        must_fail(takes_loggers_and_prints_from_one_place, "cli.py", wrong)


def spoiled(value, keep=("kind", "verdict", "schema", "scale", "unit")):
    """Every text of a report that may be any text, with control characters in it."""
    if isinstance(value, dict):
        return {k: v if k in keep else spoiled(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(spoiled(item) for item in value)
    return f"{value}{CONTROLS}" if isinstance(value, str) else value


@pytest.fixture(scope="module")
def stranger():
    """A report whose texts hold control characters; what it was measured is as it was."""
    r = report()
    texts = ("statement", "source", "reason", "scope", "short", "question")
    findings = [
        replace(f, **{name: getattr(f, name) + CONTROLS for name in texts}) for f in r.findings
    ]
    return Report(spoiled(r.checkpoint), r.model, findings, r.results, spoiled(r.provenance))


def printed(monkeypatch, what, console):
    stream = io.StringIO()
    made = console()
    made.file = stream
    made.print(what)
    return stream.getvalue()


@pytest.mark.slow
def test_screens_are_printable(monkeypatch, stranger):
    other = replace(stranger, checkpoint={**stranger.checkpoint, "name": f"b{CONTROLS}"})
    for what in (
        terminal.screen(stranger),
        terminal.screen(stranger, verbose=True),
        Comparison((stranger, other)).screen(),
        Text(CONTROLS),
        CONTROLS,
    ):
        text = printed(monkeypatch, what, console)
        assert "\\x1b" in text
        steers_nothing(text)
        must_fail(
            steers_nothing,
            printed(monkeypatch, what, lambda: Console(highlight=False, width=WIDTH)),
        )
    steers_nothing(repr(stranger))


def as_text(finding):
    """The finding as a file holds it, without halves of surrogate pairs."""
    return json.dumps(finding.to_dict(), ensure_ascii=False).encode("utf-8", "replace")


@pytest.mark.slow
def test_pages_and_cards_are_saved_and_printable(tmp_path, stranger):
    stranger.save(tmp_path, ("html", "md", "json"))
    for text in (
        (tmp_path / "model_card.md").read_text("utf-8"),
        stranger.to_markdown(),
        stranger._repr_html_(),
    ):
        steers_nothing(text)
        assert "x1b" in text
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "\\ud800" in page
    for one in "\x1b\x07\u202e\u200f\x9b":
        assert one not in page
    back = Report.load(tmp_path)
    # What is stored is the text itself; half a surrogate pair is no text, and is read as "?".
    assert [as_text(one) for one in back.findings] == [as_text(one) for one in stranger.findings]


def test_a_surrogate_alone_would_break_a_file(tmp_path):
    with pytest.raises(UnicodeEncodeError):
        (tmp_path / "a").write_text(CONTROLS, "utf-8")


def at_the_command_line(*arguments):
    run = subprocess.run(
        [sys.executable, "-m", "icl_interp", *arguments], capture_output=True, timeout=120
    )
    return run.returncode, (run.stdout + run.stderr).decode("utf-8", "surrogateescape")


@pytest.mark.slow
@pytest.mark.parametrize("name", [b"\x1b]0;x\x07", "\u202ex".encode(), b"\xff", "\x9b31m".encode()])
def test_names_of_folders_and_options_at_the_command_line(tmp_path, name):
    folder = bytes(tmp_path) + b"/" + name
    for arguments in (
        ("analyze", folder),
        ("train", "affine", b"a" + name),
        ("evaluate", "affine", "--task", folder),
        (name,),
    ):
        status, text = at_the_command_line(*arguments)
        assert status == 2
        assert len(text.splitlines()) == 1
        steers_nothing(text)


def test_an_error_that_nobody_expected_is_printable(capsys):
    try:
        raise KeyError(CONTROLS)
    except KeyError as error:
        program._show_fault(type(error), error, error.__traceback__)
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    steers_nothing(err)
