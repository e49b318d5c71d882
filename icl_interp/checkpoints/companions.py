"""Companions: models that differ from one in a single respect, found by comparing configs.

Light: no weights are read.

Many claims are about what a change of design or of training does. Such a claim needs a second
model, the same in everything else; its *role* says in what it differs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from icl_interp.checkpoints import bundled
from icl_interp.errors import InputError, shown
from icl_interp.provenance import read_json, run_id

Run = Mapping[str, Any]  # the data of a config.json

WIDTHS = {"model.d_model", "model.d_head", "model.d_mlp"}
NORMS = {"model.normalization_type", "model.norm_position"}
RECORDS = {
    "seed",
    "log_every",
    "checkpoint_every",
    "snapshots",
}  # of training: they make no other kind of it
KINDS = (
    "no norm",
    "with norm",
    "post-norm",
    "attention only",
    "with MLP",
    "MLP only",
    "wider",
    "narrower",
    "another seed",
    "degrees",
    "interval",
)


@dataclass(frozen=True)
class Role:
    """In what a companion differs from the model beside which it stands.

    As text it is a coordinate of results.

    Attributes:
        kind: one of `KINDS`.
        degrees: those that it was trained on, for "degrees".
        half_width: the a of its U(-a, a), for "interval".
        further: 0 for the first companion in this role; 1, 2, ... for those that differ from it by
            their seed alone.

    >>> str(Role("degrees", degrees=(1, 3))), str(Role("interval", half_width=5.0))
    ('degrees 1,3', 'interval 5')
    >>> str(Role("no norm", further=2))
    'no norm, further seed 2'
    """

    kind: str
    degrees: tuple[int, ...] = ()
    half_width: float | None = None
    further: int = 0

    def __str__(self) -> str:
        value = ",".join(map(str, self.degrees)) if self.degrees else ""
        if self.half_width is not None:
            value = f"{self.half_width:g}"
        text = f"{self.kind} {value}".rstrip()
        if self.further:
            text += f", further seed {self.further}"
        return text

    @property
    def first(self) -> "Role":
        """The role without its number: what all seeds of one kind have in common."""
        return replace(self, further=0)


def relation(mine: Run, other: Run) -> Role | None:
    """The role of another run as a companion of mine.

    None where the runs differ in more than one respect, or in none.

    >>> run = {"model": {"attn_only": False}, "task": {"degrees": [1]}, "encoding": "interleaved"}
    >>> str(relation(run, {**run, "model": {"attn_only": True}}))
    'attention only'
    >>> relation(run, {**run, "task": {"degrees": [1, 3]}})
    Role(kind='degrees', degrees=(1, 3), half_width=None, further=0)
    """
    # The settings that differ, and the one respect in which they do. The scale of the first
    # weights is none.
    a = _flat(mine)
    b = _flat(other)
    changed = _differing(a, b)
    changed.discard("model.init_std")
    kind = None
    if not changed:
        kind = "another seed" if _seed(mine) != _seed(other) else None
    elif changed <= NORMS:
        kind = _norm_role(a, b)
    elif changed == {"model.attn_only"}:
        kind = "attention only" if b["model.attn_only"] else "with MLP"
    elif changed == {"model.mlp_only"}:
        kind = "MLP only" if b["model.mlp_only"] else None
    elif changed <= WIDTHS and "model.d_model" in changed:
        kind = "wider" if b["model.d_model"] > a["model.d_model"] else "narrower"
    elif changed == {"task.degrees"}:
        return Role("degrees", degrees=tuple(b["task.degrees"]))
    elif changed == {"task.inputs", "task.coefficients"}:
        of_inputs = _half_width(b.get("task.inputs"))
        of_coefficients = _half_width(b.get("task.coefficients"))
        if of_inputs is None or of_inputs != of_coefficients:
            return None
        return Role("interval", half_width=of_inputs)
    return Role(kind) if kind else None


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> set[str]:
    """Names of settings that two runs have not in common."""
    return {key for key in a.keys() | b.keys() if a.get(key) != b.get(key)}


def _seed(run: Run) -> Any:
    """Of its training, where there is any."""
    return (run.get("training") or {}).get("seed")


def role(mine: Run, other: Run) -> Role:
    """The role of another run beside mine.

    Raises:
        InputError: it differs in nothing or in several respects; they are named.
    """
    found = relation(mine, other)
    if found:
        return found
    a = _flat(mine)
    b = _flat(other)
    changed = sorted(_differing(a, b))
    differences = []
    for key in changed[:6]:
        differences.append(f"{key} ({shown(b.get(key), 40)} beside {shown(a.get(key), 40)})")
    listed = ", ".join(differences) or "nothing"
    more = f" and {len(changed) - 6} more" if len(changed) > 6 else ""
    raise InputError(
        "a companion differs from the model in one respect, but this one differs in "
        f"{listed}{more}; roles are: {', '.join(KINDS)}"
    )


def _norm_role(a: Mapping[str, Any], b: Mapping[str, Any]) -> str | None:
    before = a.get("model.normalization_type")
    after = b.get("model.normalization_type")
    if after is None:
        return "no norm" if before is not None else None
    if after != "LN":
        return None
    if b.get("model.norm_position") == "post" and a.get("model.norm_position") != "both":
        return "post-norm"
    places = {a.get("model.norm_position"), b.get("model.norm_position")}
    if places & {"output", "both"} and before:
        return None  # two places of a norm, neither of which a role names
    return "with norm" if before is None or a.get("model.norm_position") == "post" else None


def _half_width(law: Any) -> float | None:
    """a of U(-a, a); None for any other law."""
    if not isinstance(law, Mapping) or law.get("kind") != "Uniform" or law["low"] != -law["high"]:
        return None
    return law["high"]


def _flat(run: Run) -> dict[str, Any]:
    """Model and task settings and the encoding, by dotted name; laws stay whole."""
    flat = {}
    for part in ("model", "task"):
        for key, value in run[part].items():
            if key != "kind":
                flat[f"{part}.{key}"] = value
    flat["encoding"] = run.get("encoding")
    flat["task.kind"] = run["task"].get("kind")
    return flat


def of(run: Run) -> dict[Role, str]:
    """Bundled companions of a run: name by role; in each role the first in alphabetical order."""
    found: dict[Role, str] = {}
    for name in bundled.names():
        role = relation(run, bundled.config(name))
        if role is not None:
            found.setdefault(role, name)
    return found


def within(folder: Path, mine: Run) -> list[Path]:
    """The runs in a folder that match a run: those that differ from it in one respect alone.

    Raises:
        InputError: no such folder.
    """
    if not folder.is_dir():
        raise InputError(f"{shown(str(folder))} is not a folder of runs")
    found = []
    for path in sorted(folder.glob("*/config.json")):
        try:
            if relation(mine, read_json(path)) is not None:
                found.append(path.parent)
        except (InputError, KeyError, TypeError, AttributeError):
            continue  # another file of this name, which is no run's
    return found


def kind_of(run: Run) -> str:
    """Twelve hexadecimal digits that identify a kind of training.

    They depend on the whole run except its seed and what it records.

    >>> training = {"steps": 9, "seed": 0, "log_every": 10}
    >>> model = {"d_model": 8, "norm": None}
    >>> run = {"model": model, "task": {"degrees": [1]}, "training": training}
    >>> seed, older = {**run, "training": {"steps": 9, "seed": 1}}, {**run, "model": {"d_model": 8}}
    >>> shorter = {**run, "training": {"steps": 8}}
    >>> kind_of(run) == kind_of(seed) == kind_of(older), kind_of(run) == kind_of(shorter)
    (True, False)
    """
    identity = {part: run.get(part) for part in ("model", "task", "encoding")}
    identity["training"] = training_of(run)
    return run_id(_set(identity))


def training_of(run: Run) -> dict[str, Any]:
    """How a run was trained, without its seed and what it records; empty if that is not known."""
    training = run.get("training") or {}
    return {key: value for key, value in training.items() if key not in RECORDS}


def _set(data: Any) -> Any:
    """The data without what is None: older configs lack settings that later ones have as None."""
    if isinstance(data, Mapping):
        return {key: _set(value) for key, value in data.items() if value is not None}
    if isinstance(data, (list, tuple)):
        return list(map(_set, data))
    return data


# ---- what a run would have to be -----------------------------------------------------------------

FACTOR = 2  # how much wider or narrower a companion is made
INTERVALS = 5  # times the half-width on which a companion is trained (the paper: 1, 5, 10, 100)


def changes(kind: str, run: Run) -> dict[str, Any] | None:
    """What makes a run a companion of a kind: values by dotted key of its config.

    None where a run like this one has no companion of the kind.

    >>> run = {"model": {"attn_only": False, "mlp_only": False}, "task": {}, "encoding": "stacked"}
    >>> changes("attention only", run), changes("with MLP", run)
    ({'model.attn_only': True}, None)
    """
    # What can be changed depends on what the run has.
    model = run["model"]
    normed = model.get("normalization_type") is not None
    alone = bool(model.get("attn_only"))
    whole = not model.get("mlp_only")
    if kind == "another seed":
        return {}
    if kind == "no norm" and normed:
        return {"model.normalization_type": None, **_before(model)}
    if kind == "with norm" and not normed:
        return {"model.normalization_type": "LN"}
    if kind == "attention only" and whole and not alone:
        return {"model.attn_only": True}
    if kind == "with MLP" and whole and alone:
        return {"model.attn_only": False}
    if kind in ("wider", "narrower"):
        return _of_width(model, wider=kind == "wider")
    if kind == "degrees":
        return _of_degree(run["task"])
    if kind == "interval":
        return _of_interval(run["task"])
    return None


def _before(model: Mapping[str, Any]) -> dict[str, Any]:
    """Without a norm only its usual place can be named."""
    place = model.get("norm_position", "pre")
    return {} if place == "pre" else {"model.norm_position": "pre"}


def _of_width(model: Mapping[str, Any], wider: bool) -> dict[str, Any] | None:
    """All widths doubled, or halved where they are even."""
    found = {}
    for key in sorted(WIDTHS):
        width = model.get(key.partition(".")[2])
        if width is None:
            continue
        if not wider and width % FACTOR:
            return None
        found[key] = width * FACTOR if wider else width // FACTOR
    return found


def _of_degree(task: Mapping[str, Any]) -> dict[str, Any] | None:
    """The next degree, where the run was trained on one."""
    degrees = task.get("degrees") or ()
    if len(degrees) != 1 or degrees[0] + 2 >= task.get("n_points", 0):
        return None
    return {"task.degrees": [degrees[0] + 1]}


def _of_interval(task: Mapping[str, Any]) -> dict[str, Any] | None:
    """A wider U(-a, a) of inputs and functions, where both are from one."""
    found = {}
    widths = set()
    for key in ("inputs", "coefficients"):
        law = task.get(key)
        half_width = _half_width(law)
        if law is None or half_width is None:
            return None
        a = half_width * INTERVALS
        found[f"task.{key}"] = {**law, "low": -a, "high": a}
        widths.add(a)
    return found if len(widths) == 1 else None
