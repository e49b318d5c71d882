"""Companions: models that differ from one in a single respect, found by comparing configs. Light: no weights are read.

Many claims are about what a change of design or of training does. Such a claim needs a second model, the same in
everything else; its *role* says in what it differs.
"""

from collections.abc import Mapping
from typing import Any

from icl_interp.checkpoints import bundled
from icl_interp.errors import InputError

Run = Mapping[str, Any]  # the data of a config.json

WIDTHS = {"model.d_model", "model.d_head", "model.d_mlp"}
NORMS = {"model.normalization_type", "model.norm_position"}
ROLES = (
    "no norm", "with norm", "post-norm", "attention only", "with MLP", "MLP only", "wider", "narrower", "another seed",
    "degrees ...", "interval ...",
)  # fmt: skip


def relation(mine: Run, other: Run) -> str | None:
    """The role of another run beside mine, or None where they differ in more than one respect (or in nothing).

    "degrees 1,3" and "interval 5" name the other's own degrees, and the a of its U(-a, a).

    >>> run = {"model": {"attn_only": False}, "task": {"degrees": [1]}, "encoding": "interleaved"}
    >>> relation(run, {**run, "model": {"attn_only": True}}), relation(run, {**run, "task": {"degrees": [1, 3]}})
    ('attention only', 'degrees 1,3')
    """
    a, b = _flat(mine), _flat(other)
    changed = {key for key in a.keys() | b.keys() if a.get(key) != b.get(key)} - {"model.init_std"}
    if not changed:
        seeds = [(run.get("training") or {}).get("seed") for run in (mine, other)]
        return "another seed" if seeds[0] != seeds[1] else None
    if changed <= NORMS:
        return _norm_role(a, b)
    if changed == {"model.attn_only"}:
        return "attention only" if b["model.attn_only"] else "with MLP"
    if changed == {"model.mlp_only"}:
        return "MLP only" if b["model.mlp_only"] else None
    if changed <= WIDTHS and "model.d_model" in changed:
        return "wider" if b["model.d_model"] > a["model.d_model"] else "narrower"
    if changed == {"task.degrees"}:
        return f"degrees {','.join(map(str, b['task.degrees']))}"
    intervals = {_half_width(b.get(f"task.{law}")) for law in ("inputs", "coefficients")}
    if changed == {"task.inputs", "task.coefficients"} and len(intervals) == 1 and None not in intervals:
        return f"interval {intervals.pop():g}"
    return None


def role(mine: Run, other: Run) -> str:
    """The role of another run beside mine.

    Raises:
        InputError: it differs in nothing or in several respects; they are named.
    """
    found = relation(mine, other)
    if found:
        return found
    a, b = _flat(mine), _flat(other)
    changed = [key for key in sorted(a.keys() | b.keys()) if a.get(key) != b.get(key)]
    shown = ", ".join(f"{key} ({_short(b.get(key))} beside {_short(a.get(key))})" for key in changed[:6])
    more = f" and {len(changed) - 6} more" if len(changed) > 6 else ""
    raise InputError(
        f"a companion differs from the model in one respect, but this one differs in {shown or 'nothing'}{more}; roles "
        f"are: {', '.join(ROLES)}"
    )


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:40] + "..."


def _norm_role(a: Mapping[str, Any], b: Mapping[str, Any]) -> str | None:
    before, after = a.get("model.normalization_type"), b.get("model.normalization_type")
    if after is None:
        return "no norm" if before is not None else None
    if after != "LN":
        return None
    if b.get("model.norm_position") == "post":
        return "post-norm"
    return "with norm" if before is None or a.get("model.norm_position") == "post" else None


def _half_width(law: Any) -> float | None:
    """a of U(-a, a); None for any other law."""
    if not isinstance(law, Mapping) or law.get("kind") != "Uniform" or law["low"] != -law["high"]:
        return None
    return law["high"]


def _flat(run: Run) -> dict[str, Any]:
    """Model and task settings and the encoding, by dotted name; laws stay whole."""
    flat = {f"{part}.{key}": value for part in ("model", "task") for key, value in run[part].items() if key != "kind"}
    return flat | {"encoding": run.get("encoding"), "task.kind": run["task"].get("kind")}


def of(run: Run) -> dict[str, str]:
    """Bundled companions of a run: name by role; of several in one role the first in alphabetical order."""
    found: dict[str, str] = {}
    for name in bundled.names():
        role = relation(run, bundled.config(name))
        if role is not None:
            found.setdefault(role, name)
    return found
