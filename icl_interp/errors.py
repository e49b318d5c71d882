"""The one error a user is meant to read: what was expected, what came, what to do."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """The input is wrong, and the message says so in one line.

    The command line prints it without a traceback and exits with status 2; in Python it is an ordinary `ValueError`.
    """


def unknown(what: str, name: object, valid: Iterable[str]) -> InputError:
    """The error for a name that is not among the `valid` ones: it lists them and suggests the nearest.

    >>> print(unknown("claim", "limits.softmx_hardmax", ["limits.softmax_hardmax", "heads.orthogonality"]))
    unknown claim 'limits.softmx_hardmax': did you mean 'limits.softmax_hardmax'? (known: heads.orthogonality, \
limits.softmax_hardmax)
    """
    names = sorted(valid)
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return InputError(f"unknown {what} {name!r}: {hint}(known: {', '.join(names)})")
