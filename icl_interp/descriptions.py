"""Models, tasks and numbers in words, from plain data.

The list of bundled models needs these at once, so nothing heavy is imported here.
"""

import math
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

MINUS = "\N{MINUS SIGN}"
OUTSIDE = "seen from outside: no causal check"
NOT_FINITE = ("nan", "inf", "-inf")  # how JSON data of ours writes these numbers
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float, digits: int = 3) -> str:
    """A number with so many significant digits.

    >>> number(0.00092368), number(-1.2345e-7), number(1e6), number(12.0), number(float("nan"))
    ('0.000924', '−1.23×10⁻⁷', '10⁶', '12', 'not defined')
    """
    if math.isnan(value):
        return "not defined"
    sign = MINUS if value < 0 else ""
    size = abs(float(value))
    if math.isinf(size):
        return f"{sign}∞"
    if size == 0 or 1e-4 <= size < 1e5:
        plain = f"{size:.{digits}g}"
        # "%g" turns 12345 into 1.23e+04, which no reader wants.
        return sign + (f"{size:.0f}" if "e" in plain else plain)
    mantissa, _, exponent = f"{size:.{digits - 1}e}".partition("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    raised = "10" + str(int(exponent)).translate(_RAISED)
    return f"{sign}{raised}" if mantissa == "1" else f"{sign}{mantissa}×{raised}"


def scalar(value: Any) -> str:
    """One value as text."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, float) or (
        isinstance(value, str) and value in NOT_FINITE
    ):  # what JSON makes of them
        return number(float(value), 4)
    return str(value).replace("-", MINUS) if isinstance(value, int) else str(value)


def law_words(law: Any) -> str:
    """A law of numbers, or another setting of a task, in short.

    >>> law_words({"kind": "Normal", "std": 2}), law_words([[1, 0], [0, 1], [0, 0]])
    ('N(0, 2²)', '(3 x 2)')
    """
    if isinstance(law, Mapping):
        return _named_law(law)
    if not isinstance(law, (list, tuple)):
        return scalar(law)
    if law and all(isinstance(row, (list, tuple)) for row in law):
        return f"({len(law)} x {len(law[0])})"  # a matrix: its numbers would fill the line
    return ", ".join(map(law_words, law))


def _named_law(law: Mapping[str, Any]) -> str:
    kind = law.get("kind", "")
    if kind == "Uniform":
        low, high = map(law_words, (law["low"], law["high"]))
        return f"U({low}, {high})"
    if kind == "Normal":
        mean = law_words(law.get("mean", 0))
        std = law_words(law["std"])
        return f"N({mean}, {std}²)"
    rest = []
    for key, value in law.items():
        if key != "kind":
            rest.append(f"{key} {law_words(value)}")
    return f"{kind}({', '.join(rest)})"


def task_words(task: Mapping[str, Any]) -> str:
    """A task in a line: its functions, where the inputs lie, and the length of prompts.

    >>> inputs = {"kind": "Uniform", "low": -1, "high": 1}
    >>> coefficients = {"kind": "Normal", "std": 1}
    >>> task_words({"kind": "Polynomial", "degrees": [1, 3], "inputs": inputs,
    ...     "coefficients": coefficients, "n_points": 20})
    'degree 1, 3; coefficients N(0, 1²); x ~ U(−1, 1); 20 points'
    >>> task_words({"kind": "Mine", "n_dims": 5, "query": None})
    'Mine; n dims 5'
    >>> task_words({"kind": "Mine", "directions": [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]})
    'Mine; directions (3 x 2)'
    >>> task_words({"kind": "Mixture", "tasks": [{"kind": "A", "n_points": 9}, {"kind": "B",
    ...     "n_points": 9, "n_dims": 5}]})
    'Mixture of (A) and (B; n dims 5); 9 points'
    """
    parts = [function_words(task)]
    inputs = what_all_have(task, "inputs")
    if inputs is not None:
        parts.append(f"x ~ {law_words(inputs)}")
    n_points = what_all_have(task, "n_points")
    if n_points is not None:
        parts.append(f"{law_words(n_points)} points")
    return "; ".join(filter(None, parts))


def what_all_have(task: Mapping[str, Any], name: str) -> Any:
    """A setting of a task, or of all tasks of a mixture; None where it has none, or they differ.

    >>> mixture = {"tasks": [{"n_dims": 5, "n_points": 9}, {"n_dims": 5, "n_points": 17}]}
    >>> what_all_have(mixture, "n_dims"), what_all_have(mixture, "n_points")
    (5, None)
    """
    if name in task:
        return task[name]
    values = [one.get(name) for one in task.get("tasks", ())]
    if values and all(value == values[0] for value in values):
        return values[0]
    return None


def function_words(task: Mapping[str, Any]) -> str:
    """The functions of a task in short; what is switched off is left out."""
    if task.get("kind") == "Polynomial":
        degrees = law_words(task.get("degrees", ()))
        coefficients = law_words(task.get("coefficients"))
        return f"degree {degrees}; coefficients {coefficients}"
    # Its kind; of a mixture, with the functions of its tasks.
    kind = str(task.get("kind", ""))
    families = [f"({function_words(family)})" for family in task.get("tasks", ())]
    if families:
        kind += f" of {' and '.join(families)}"
    parts = [kind]
    for key, value in task.items():
        if key == "tasks":
            continue
        if value and key not in ("kind", "inputs", "n_points"):
            name = key.replace("_", " ")
            parts.append(f"{name} {law_words(value)}")
    return "; ".join(parts)


def value_words(model: Mapping[str, Any]) -> str:
    """The kind of vectors that values are, from an architecture's config as plain data.

    It is empty where values are numbers.

    >>> value_words({"d_out": 3}), value_words({"d_out": 1})
    ('vectors of 3 coordinates', '')
    """
    n = model.get("d_out", 1)
    return f"vectors of {n} coordinates" if n > 1 else ""


def model_words(model: Mapping[str, Any]) -> str:
    """An architecture in words, from its config as plain data; empty from outside."""
    if not model:
        return OUTSIDE
    kind = model["normalization_type"]
    norm = f"{model['norm_position']}-{kind}" if kind else "no norm"
    size = f"{model['n_layers']} x {model['d_model']}"
    if model["mlp_only"]:
        return f"{size}, {norm}, MLP only"
    heads = "1 head" if model["n_heads"] == 1 else f"{model['n_heads']} heads"
    parts = "attention only" if model["attn_only"] else "attention + MLP"
    return f"{size} x {heads}, {norm}, {model['score_fn']}, {parts}"


def as_table(title: str, rows: Mapping[str, object]) -> str:
    """An object as HTML for a notebook: a title, and a row for each thing to know about it.

    Rows without a value are left out. All text is escaped.

    >>> as_table("a < b", {"x": 1, "y": ""})
    '<table><caption>a &lt; b</caption><tr><th scope="row">x</th><td>1</td></tr></table>'
    """
    row = Markup('<tr><th scope="row">{}</th><td>{}</td></tr>')
    shown = Markup("").join(row.format(name, value) for name, value in rows.items() if value != "")
    return str(Markup("<table><caption>{}</caption>{}</table>").format(title, shown))
