"""The one error a user is meant to read: what was expected, what came, what to do."""

import difflib
import numbers
import reprlib
from collections.abc import Iterable
from itertools import islice

LONGEST = 6000  # characters of a message: one that lists all claims or recipes has some 2,000
LISTED = 80  # names that a message lists at most


class InputError(ValueError):
    """The input is wrong, and the message says so in one line.

    The command line prints it without a traceback and exits with status 2; in Python it is an ordinary `ValueError`.
    """

    def __init__(self, message: str) -> None:
        # Whatever part of the input a message repeats, it stays a line that can be read.
        super().__init__(message if len(message) <= LONGEST else f"{message[: LONGEST - 4]} ...")


class _Short(reprlib.Repr):
    """`repr` that reads little more of a value than it shows."""

    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to write out whole numbers of more than 4,300 digits.
        digits = round(x.bit_length() * 0.30103)
        return repr(x) if digits < 40 else f"<a whole number of about {digits:,} digits>"

    def repr_bytes(self, x: bytes, level: int) -> str:
        return repr(x) if len(x) <= self.maxother else f"<{len(x):,} bytes>"


def shown(value: object, limit: int = 60) -> str:
    """A value as an error message shows it: its `repr` in one line of at most `limit` characters.

    It is cheap for a value of any size and depth, and it never fails.

    >>> print(shown("x" * 10**6, 20), shown([[0] * 10**5] * 10**5, 30), shown(10**100000))
    'xxxxxxx...xxxxxxxx' [[0, 0, 0, 0, 0, 0, ...], [... <a whole number of about 100,000 digits>
    """
    short = _Short()
    short.maxlevel, short.maxstring, short.maxother = 4, limit, limit
    text = " ".join(short.repr(value).split())
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def unknown(what: str, name: object, valid: Iterable[str]) -> InputError:
    """The error for a name that is not among the `valid` ones: it lists them and suggests the nearest.

    >>> print(unknown("claim", "limits.softmx_hardmax", ["limits.softmax_hardmax", "heads.orthogonality"]))
    unknown claim 'limits.softmx_hardmax': did you mean 'limits.softmax_hardmax'? (known: heads.orthogonality, \
limits.softmax_hardmax)
    """
    names = sorted(n if len(n) <= LISTED else shown(n) for n in valid)
    text = name[:LISTED] if isinstance(name, str) else shown(name)
    close = difflib.get_close_matches(text, names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    more = f", and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return InputError(f"unknown {what} {shown(name)}: {hint}(known: {', '.join(islice(names, LISTED))}{more})")


def whole(value: object, name: str, low: int, high: int = 2**63 - 1) -> int:
    """The value as an `int`, where it is a whole number from `low` to `high`, these included.

    Raises:
        InputError: it is anything else, such as 64.5, True or "many".

    >>> whole(64.5, "n_prompts", 32, 1024)
    Traceback (most recent call last):
    icl_interp.errors.InputError: n_prompts must be a whole number from 32 to 1,024, but got 64.5
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not low <= int(value) <= high:
        end = f"to {high:,}" if high < 2**63 - 1 else "up"
        raise InputError(f"{name} must be a whole number from {low:,} {end}, but got {shown(value)}")
    return int(value)


def counted(n: int, what: str) -> str:
    """So many things, in words.

    >>> counted(1, "coordinate"), counted(3, "coordinate")
    ('1 coordinate', '3 coordinates')
    """
    return f"{n} {what}{'s' * (n != 1)}"
