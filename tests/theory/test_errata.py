"""The list of what the works print and does not hold: it is whole, and each example shows it."""

import inspect
import math
from dataclasses import replace

import pytest
from helpers import must_fail

from icl_interp import theory
from icl_interp.theory.errata import Compared, Erratum

PRINTED = ("_as_printed", "_as_coded")
RIGHT = {"window_exponents_as_printed"}  # printed, and true


def kept_as_printed():
    """Functions of the theory that are formulas as a work has them, and not right."""
    found = set()
    for module in vars(theory).values():
        for name, one in vars(module).items() if inspect.ismodule(module) else ():
            printed = name.startswith("paper_") or name.endswith(PRINTED)
            if printed and inspect.isfunction(one) and name not in RIGHT:
                found.add(name)
    return found


def is_whole(errata):
    listed = {one.__name__ for erratum in errata for one in erratum.shown_by}
    assert kept_as_printed() <= listed
    assert not listed & RIGHT
    places = [(one.work, one.place) for one in errata]
    assert len(places) == len(set(places))


def test_every_formula_kept_as_printed_is_listed():
    assert len(kept_as_printed()) >= 8
    is_whole(theory.ERRATA)
    must_fail(is_whole, [one for one in theory.ERRATA if "Theorem 4.2" not in one.place])
    must_fail(is_whole, [*theory.ERRATA, theory.ERRATA[0]])
    right = replace(theory.ERRATA[0], shown_by=(theory.lipschitz.window_exponents_as_printed,))
    must_fail(is_whole, [*theory.ERRATA, right])


@pytest.mark.parametrize("erratum", theory.ERRATA, ids=lambda one: one.place)
def test_functions_stand_where_the_list_says(erratum):
    for name, one in zip(erratum.names, erratum.shown_by, strict=True):
        package = theory
        for part in name.split(".")[1:]:
            package = getattr(package, part)
        assert package is one
    assert bool(erratum.number) == (erratum.example is not None)


# The numbers of an independent computation.
KNOWN = {
    "Appendix G.1, proof of Proposition 6": (10, 100, 0.1),
    "Appendix G.2, caption of Table 4": (1, 0.212243, 1e-5),
    "remark on Lemma 5.1": (5, 3, 0),
    "Theorem 4.2": (3.8465237, 1.1009246, 1e-6),
    "Results Part I, extreme examples": (math.inf, 27.4, 0.6),
    "the authors' code, unitary.py, for Proposition 4": (12.22, 9.52, 1e-9),
}


def apart(compared, expected=None):
    printed, right = compared
    assert abs(printed - right) > 0.1 * abs(right)
    if expected:
        assert printed == pytest.approx(expected[0], abs=expected[2])
        assert right == pytest.approx(expected[1], abs=expected[2])


@pytest.mark.parametrize(
    "erratum", [one for one in theory.ERRATA if one.example], ids=lambda one: one.place
)
def test_an_example_tells_the_printed_from_the_right(erratum):
    found, expected = erratum.example(), KNOWN.get(erratum.place)
    apart(found, expected)
    must_fail(apart, Compared(found.right, found.right), expected)
    if expected:
        must_fail(apart, Compared(found.printed, 2 * found.right), expected)


def test_an_erratum_without_an_example_names_its_functions():
    one = Erratum("a", "b", "c", "d", (theory.lipschitz.optimal_window,))
    assert one.names == ("theory.lipschitz.optimal_window",)
