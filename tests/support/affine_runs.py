"""Untrained models of affine functions on U(-a, a), and facts about them beside companions."""

from made_up_facts import facts
from tiny_runs import checkpoint

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.lab import Lab
from icl_interp.checkpoints.companions import Role
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.models.transformer import HookedTransformer

N = 40  # functions of made-up results
INTERVALS = tuple(Role("interval", half_width=a) for a in (5.0, 10.0))


def run(a=1.0, **model) -> Checkpoint:
    """An untrained model whose task is affine functions on U(-a, a)."""
    law = {"kind": "Uniform", "low": -a, "high": a}
    found = checkpoint(
        task={"degrees": [1], "inputs": law, "coefficients": law}, model={"init_std": 0.5, **model}
    )
    found.model = HookedTransformer(
        found.model.cfg, seed=10 + int(a)
    ).eval()  # no two with the same weights
    return found


def lab_of(mine: Checkpoint, companions) -> Lab:
    """A small lab of a run beside others."""
    return Lab(
        mine.model,
        mine.task,
        mine.encoding,
        n_units=8,
        n_contexts=1,
        companions=companions,
        config=mine.config,
    )


def known(*roles, norm="LN", a=1.0, **more) -> Facts:
    """Facts about a model that learned these functions, with a norm unless told otherwise."""
    return facts(
        *roles,
        task=more.pop("task", run(a).task),
        config={"normalization_type": norm},
        n_units=N,
        **more,
    )
