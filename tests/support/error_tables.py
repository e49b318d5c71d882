"""Shared by tests of statements: made-up tables of errors, and the words before a statement."""

from icl_interp.experiments import errors
from icl_interp.experiments.statements import WORDS
from icl_interp.results import make_table

SIGMAS = errors.SIGMAS
ZERO = {s: s**2 * 0.4 for s in SIGMAS}  # errors of predicting 0


def sentences(states):
    return [statement.sentence for statement in states]


def words(states, *starts):
    """Every statement that something decides starts as expected, in order."""
    judged = [line for line in sentences(states) if line.startswith(WORDS)]
    assert len(judged) == len(starts), judged
    for line, start in zip(judged, starts, strict=True):
        assert line.startswith(start), f"{line!r} does not start with {start!r}"


def error_rows(values, r2=0.99, width=0.1, **key):
    """{(predictor, sigma): error} as an error table with rates over `ZERO`."""
    rows = [
        {
            **key,
            "predictor": p,
            "sigma": s,
            "error": v,
            "low": (1 - width) * v,
            "high": (1 + width) * v,
            "error_rate": v / ZERO[s],
            "rate_low": (1 - width) * v / ZERO[s],
            "rate_high": (1 + width) * v / ZERO[s],
            "r2": 1 - v / ZERO[s] if r2 is None else r2,
        }
        for (p, s), v in values.items()
    ]
    return make_table({name: [row[name] for row in rows] for name in rows[0]})


BETTER, WORSE, EVEN = (-0.3, -0.4, -0.2), (0.3, 0.2, 0.4), (0.05, -0.1, 0.2)


def ratio_rows(values, **key):
    """(sigma: (log10 ratio, low, high)) as a table of ratios."""
    rows = [
        {**key, "sigma": s, "log10 ratio": v, "low": a, "high": b}
        for s, (v, a, b) in values.items()
    ]
    return make_table({name: [row[name] for row in rows] for name in rows[0]})
