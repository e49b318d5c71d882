"""The one error that a user should read, and text that is safe to show.

The error says what was expected, what came and what to do.

Names of tensors, keys of a config and names of folders come from strangers, and a terminal obeys
the control characters in what it prints. All text goes through `printable` on its way to a
terminal, to a log and into an error.
"""

import difflib
import logging
import math
import numbers
import re
import reprlib
import unicodedata
from collections.abc import Iterable
from typing import Any

LONGEST = 6000  # characters of a message: one that lists all claims or recipes has some 2,000
LISTED = 80  # names that a message lists at most
FEW = 5  # ... where a command lists them all
COMMANDS = {
    "claim": "icl-interp claims",
    "experiment": "icl-interp reproduce --list",
    "model": "icl-interp zoo",
}


def printable(text: object) -> str:
    r"""Text in which characters that control a terminal or its direction are escaped, as in \x1b.

    Escaped are control characters, marks of direction and others without a shape, and halves of
    surrogate pairs, which no encoding can write. Line breaks and tabs stay.

    >>> print(printable("a\x1b[31mb\u202ec\udcff"))
    a\x1b[31mb\u202ec\udcff
    """
    return _DOUBTFUL.sub(_shown_as, str(text))


_DOUBTFUL = re.compile(r"[^ -~\n\t]")


def _shown_as(found: re.Match[str]) -> str:
    character = found[0]
    # Spaces of other widths (Zs) count as not printable in Python, but they only take room.
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    return character.encode("unicode_escape").decode("ascii")


class InputError(ValueError):
    """The input is wrong, and the message says so in one line of printable characters.

    The command line prints it without a traceback and exits with status 2; in Python it is an
    ordinary `ValueError`.
    """

    def __init__(self, message: str) -> None:
        # Whatever part of the input a message repeats, it stays a line that can be read.
        if len(message) > LONGEST:
            message = f"{message[: LONGEST - 4]} ..."
        line = " ".join(message.split()) if not message.isprintable() else message
        super().__init__(printable(line)[:LONGEST])


def logger(name: str) -> logging.Logger:
    """The logger of this name, all of whose lines are printable.

    Every module takes its logger from here.
    """
    found = logging.getLogger(name)
    if _make_printable not in found.filters:  # a module that is loaded again
        found.addFilter(_make_printable)
    return found


def _make_printable(record: logging.LogRecord) -> bool:
    """Make the text of a record, and that of its error, printable; every record passes."""
    record.msg = printable(record.getMessage())
    record.args = None
    if record.exc_info and not record.exc_text:
        # Formatters write this text, where there is one, and make their own otherwise.
        record.exc_text = printable(_FORMATTER.formatException(record.exc_info))
    return True


_FORMATTER = logging.Formatter()


class Formatter(logging.Formatter):
    """A formatter for the command line, which makes the records of every package printable."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        return printable(super().format(record))


class _Short(reprlib.Repr):
    """`repr` that reads little more of a value than it shows."""

    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to write out whole numbers of more than 4,300 digits.
        digits = round(x.bit_length() * 0.30103)
        if digits < 40:
            return repr(x)
        return f"<a whole number of about {digits:,} digits>"

    def repr_bytes(self, x: bytes, level: int) -> str:
        if len(x) <= self.maxother:
            return repr(x)
        return f"<{len(x):,} bytes>"


def shown(value: object, limit: int = 60) -> str:
    """A value as an error message shows it: its `repr` in one line of at most `limit` characters.

    It is cheap for a value of any size and depth, and it never fails.

    >>> print(shown("x" * 10**6, 20), shown([[0] * 10**5] * 10**5, 30), shown(10**100000))
    'xxxxxxx...xxxxxxxx' [[0, 0, 0, 0, 0, 0, ...], [... <a whole number of about 100,000 digits>
    """
    short = _Short()
    short.maxlevel = 4
    short.maxstring = limit
    short.maxother = limit
    words = short.repr(value).split()
    # Most reprs escape what cannot be shown; that of a class of one's own need not.
    text = printable(" ".join(words))
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def several(given: Any, what: str) -> tuple[Any, ...]:
    """The items of a list. A name alone is refused: it would be read letter by letter.

    >>> several(["a", "b"], "names")
    ('a', 'b')
    >>> several("hook_embed", "names")
    Traceback (most recent call last):
    icl_interp.errors.InputError: names must be a list, but got 'hook_embed': put it in [ ]
    """
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise InputError(f"{what} must be a list, but got {shown(given)}: put it in [ ]")
    return tuple(given)


def unknown(what: str, name: object, valid: Iterable[str]) -> InputError:
    """The error for a name that is not among the `valid` ones.

    It suggests the nearest valid name and lists all of them, or the nearest few where a command
    lists them all.

    >>> claims = ["limits.softmax_hardmax", "heads.orthogonality"]
    >>> print(unknown("claim", "limits.softmx_hardmax", claims))
    unknown claim 'limits.softmx_hardmax': did you mean 'limits.softmax_hardmax'? \
(known: heads.orthogonality, limits.softmax_hardmax)
    """
    names = sorted(n if len(n) <= LISTED else shown(n) for n in valid)
    text = name[:LISTED] if isinstance(name, str) else shown(name)
    close = difflib.get_close_matches(text, names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    if what in COMMANDS and len(names) > FEW:
        known = nearest(text, names, what)
    else:
        listed = ", ".join(names[:LISTED])
        more = f", and {len(names) - LISTED} more" if len(names) > LISTED else ""
        known = f"known: {listed}{more}"
    return InputError(f"unknown {what} {shown(name)}: {hint}({known})")


def nearest(text: str, names: list[str], what: str) -> str:
    """The few names that are nearest to a text, and the command that lists all.

    Args:
        text: what came instead of a name.
        names: all.
        what: of what they are names; one of `COMMANDS`.

    >>> nearest("x", ["a", "b", "c", "d", "e", "x1"], "claim")
    'near: b, c, d, e, x1; all 6: icl-interp claims'
    """
    near = difflib.get_close_matches(text, names, n=FEW, cutoff=0.0)
    listed = ", ".join(sorted(near))
    return f"near: {listed}; all {len(names)}: {COMMANDS[what]}"


def whole(value: object, name: str, low: int, high: int = 2**63 - 1) -> int:
    """The value as an `int`, where it is a whole number from `low` to `high`, these included.

    Raises:
        InputError: it is anything else, such as 64.5, True or "many".

    >>> whole(64.5, "n_prompts", 32, 1024)
    Traceback (most recent call last):
    icl_interp.errors.InputError: n_prompts must be a whole number from 32 to 1,024, but got 64.5
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, numbers.Integral)
        or not low <= int(value) <= high
    ):
        end = f"to {high:,}" if high < 2**63 - 1 else "up"
        raise InputError(
            f"{name} must be a whole number from {low:,} {end}, but got {shown(value)}"
        )
    return int(value)


def is_real(value: object) -> bool:
    """Whether it is a finite number that a float can hold; True and False are none.

    >>> is_real(1), is_real(math.inf), is_real("1"), is_real(10**400)
    (True, False, False, False)
    """
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond the range of a float
        return False


def real(value: Any, name: str, low: float = -math.inf, *, above: bool = False) -> Any:
    """The value itself, where it is a finite number from `low` up, or above it.

    Raises:
        InputError: it is anything else, such as nan, True, "many" or a whole number beyond the
            range of a float.

    >>> real(0.0, "noise_std", 0)
    0.0
    >>> real("6", "radius", 0, above=True)
    Traceback (most recent call last):
    icl_interp.errors.InputError: radius must be a number above 0, but got '6'
    """
    if not is_real(value) or value < low or (above and value == low):
        kind = "a finite number"
        if low != -math.inf:
            kind = f"a number above {low:g}" if above else f"a number from {low:g} up"
        raise InputError(f"{name} must be {kind}, but got {shown(value)}")
    return value


def in_one_line(error: Exception) -> str:
    """An error in one line, with its type: a KeyError's own text is a bare name."""
    text = " ".join(str(error).split())
    if len(text) > 300:
        text = text[:300] + "..."
    return f"{type(error).__name__}: {text}"


def unreadable(file: object, reader: str, error: Exception) -> str:
    """What is said of a stored report in which something does not find what it reads.

    >>> unreadable("report.json", "the page", KeyError("layers"))[:62]
    "report.json does not hold what the page needs (KeyError: 'laye"
    >>> unreadable("report.json", "it", InputError("no layers"))[:50]
    'report.json does not hold what it needs (no layers'
    """
    reason = in_one_line(error).removeprefix("InputError: ")
    return (
        f"{file} does not hold what {shown(reader)[1:-1]} needs ({reason}): was it edited, or "
        "written by another version?"
    )


def counted(n: int, what: str) -> str:
    """So many things, in words.

    >>> counted(1, "coordinate"), counted(3, "coordinate")
    ('1 coordinate', '3 coordinates')
    """
    return f"{n} {what}{'s' * (n != 1)}"
