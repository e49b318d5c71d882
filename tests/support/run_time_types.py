"""Annotations checked at run time: what jaxtyping's import hook does, in less time.

jaxtyping binds the arguments of each call to the signature, and checks them a second time with what
is returned. That was two fifths of the time of all tests. Here Python binds them, they are checked
once, and the value that is returned is checked by itself, with the sizes of axes that the arguments
have set. The hook and the check of shapes are jaxtyping's, all other checks beartype's.

A function that is called very often is checked in its first calls, and then in one of fifty: what
is wrong with an annotation shows early, and two million checks were a third of the time of all
tests. CHECKED_CALLS=1000000000 checks all calls. With JAXTYPING_DISABLE=1 nothing is checked, which
is how users run the package.
"""

import dataclasses
import functools
import inspect
import itertools
import os
from collections.abc import Callable
from typing import Any, Self, get_type_hints

import jaxtyping
from beartype import BeartypeConf, FrozenDict, beartype

# An int passes for a float, as type checkers have it, and so does anything for `Self`: the hook
# hands over methods one by one, where beartype can't know the class.
_CHECKED = beartype(
    conf=BeartypeConf(
        is_pep484_tower=True,
        hint_overrides=FrozenDict({Self: Any}),
        violation_type=jaxtyping.TypeCheckError,
    )
)
ORIGINAL = jaxtyping.jaxtyped
_AXES = ORIGINAL("context")  # what an axis is long, from here to the end of a call
_config = jaxtyping.config
# Calls of each function that are all checked.
FIRST = int(os.environ.get("CHECKED_CALLS", "20"))
THEN = 50  # one of so many is checked after these


def install(package: str) -> None:
    """Check what the modules of a package annotate. Before the first of them is imported."""
    if _config.jaxtyping_disable:
        return
    jaxtyping.install_import_hook(package, "run_time_types.unused")
    jaxtyping.jaxtyped = jaxtyped  # the hook writes this name above each function and class


def unused(function: Any) -> Any:
    """The import hook asks for a type checker's name, by which it tells compiled bytecode apart."""
    raise AssertionError("jaxtyping's own decorator was called")


def jaxtyped(decorated: Any = None, *, typechecker: Any = None) -> Any:
    """The decorator that the hook writes above every function and class.

    A function within a function would be compiled anew whenever the outer one runs, which takes
    longer than most tests: it is left as it is.
    """
    if decorated is None:
        return jaxtyped
    if inspect.isclass(decorated):
        made = decorated.__dict__.get(
            "__init__"
        )  # what is written by hand, or inherited, is decorated already
        if (
            dataclasses.is_dataclass(decorated)
            and inspect.isfunction(made)
            and not hasattr(made, "__wrapped__")
        ):
            decorated.__init__ = jaxtyped(made)
        return decorated
    if isinstance(decorated, classmethod | staticmethod):
        return type(decorated)(jaxtyped(decorated.__func__))
    if isinstance(decorated, property):
        return property(
            *(f and jaxtyped(f) for f in (decorated.fget, decorated.fset, decorated.fdel))
        )
    if not inspect.isfunction(decorated) or "<locals>" in decorated.__qualname__:
        return decorated
    return _checked(decorated)


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function between two checks, compiled at its first call, since many are never called."""
    checks: list[Callable[..., Any]] = []
    calls = itertools.count()

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        call = next(calls)
        if _config.jaxtyping_disable or (call >= FIRST and call % THEN):
            return function(*args, **kwargs)
        if not checks:
            checks.extend(_compiled(function))
        with _AXES:
            checks[0](*args, **kwargs)
            return checks[1](function(*args, **kwargs))

    return checked


def _compiled(function: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Two functions: one checks arguments, the other checks and returns the returned value.

    The first is a function of the same signature, written anew, because beartype reads signatures
    off code.
    """
    scope: dict[str, Any] = {"A": {}, "D": {}}
    pieces, before, named = [], None, False
    for name, p in inspect.signature(function).parameters.items():
        if before is p.POSITIONAL_ONLY and p.kind is not before:
            pieces.append("/")
        if p.kind is p.KEYWORD_ONLY and not named:
            pieces.append("*")
        named = named or p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        before = p.kind
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        annotation = "" if p.annotation is p.empty else f": A['{name}']"
        pieces.append(
            f"{stars}{name}{annotation}" + ("" if p.default is p.empty else f" = D['{name}']")
        )
        scope["A"][name], scope["D"][name] = _hint(p.annotation, function), p.default
    if before is inspect.Parameter.POSITIONAL_ONLY:
        pieces.append("/")
    scope["A"]["return"] = _hint(function.__annotations__.get("return", Any), function)
    lines = (
        f"def parameters({', '.join(pieces)}): pass\ndef returned(value) -> A['return']: return "
        "value"
    )
    exec(lines, scope)
    for name in ("parameters", "returned"):  # what messages name
        scope[name].__module__ = function.__module__
        scope[name].__qualname__ = function.__qualname__
    return _CHECKED(scope["parameters"]), _CHECKED(scope["returned"])


def _hint(annotation: Any, function: Callable[..., Any]) -> Any:
    """An annotation with its strings resolved; Any for names that only type checkers see."""

    def one(value: annotation) -> None: ...

    try:
        return get_type_hints(one, function.__globals__, include_extras=True)["value"]
    except Exception:  # as jaxtyping has it: whatever goes wrong, the name is not known here
        return Any
