"""Facts about models, as tests make them up or change them."""

from dataclasses import replace
from typing import Any

from icl_interp import tasks
from icl_interp.analyses.facts import Facts
from icl_interp.checkpoints.companions import Role
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.tasks.base import Task

AFFINE = tasks.Polynomial(
    degrees=(1,), inputs=tasks.Uniform(-1, 1), coefficients=tasks.Uniform(-1, 1), n_points=20
)
CONFIG = HookedTransformerConfig(n_layers=3, d_model=8, n_heads=2)


def facts(
    *companions: Role | str, task: Task = AFFINE, config: dict[str, Any] | None = None, **more: Any
) -> Facts:
    """Facts about a trained model, with companions of some roles and a changed config."""
    roles = [Role(role) if isinstance(role, str) else role for role in companions]
    plain = Facts(
        config=replace(CONFIG, **(config or {})),
        task=task,
        encoding="interleaved",
        in_distribution={"error": 0.01, "r2": 0.99},
        n_points=task.n_points,
        x_unit=1.0,
        n_units=64,
        companions={role: f"model {role}" for role in roles},
    )
    return changed(plain, **more)


def changed(known: Facts, **more: Any) -> Facts:
    """The facts with some replaced; `r2` and `error` are those in distribution."""
    measured = {key: more.pop(key) for key in ("r2", "error") if key in more}
    # A new number has no interval, and no share that it was part of.
    parts = ("r2_", "learned", "best_r2", "noise_free") if "r2" in measured else ()
    kept = {
        key: value
        for key, value in known.in_distribution.items()
        if not key.startswith(parts or ("?",))
    }
    return replace(known, **{"in_distribution": {**kept, **measured}, **more})


def said(finding: Any) -> str:
    """All words of a finding: its reason, and further words that stand with the scope."""
    return f"{finding.reason} {finding.scope}"
