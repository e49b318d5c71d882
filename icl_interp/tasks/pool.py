"""A finite pool of functions: the same `n_tasks` functions in every prompt of a run.

A model that is trained on few functions may remember them; one that is trained on many has to
learn from its context. Which of both it does is asked on functions of the pool and on new ones.

Source: Collins et al. (2024), the empirical loss over T tasks; Raventos et al. (2023), "task
diversity".
"""

import weakref
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError, whole
from icl_interp.provenance import generator as stream

LARGEST = 10**8  # numbers of a pool, functions times parameters: 0.8 GB


@runtime_checkable
class Pooled(Protocol):
    """What is asked of a task here."""

    @property
    def n_tasks(self) -> int | None:
        """Functions of the pool, if there is one."""
        ...

    @property
    def pool_seed(self) -> int:
        """Of the draw of the pool."""
        ...

    def sample_parameters(
        self, n_functions: int, generator: torch.Generator, dtype: torch.dtype
    ) -> Tensor:
        """Parameters of independent functions of the law."""
        ...


# Pools by the id of a task, while it lives: nothing may stand in a task's own attributes but its
# fields.
_KNOWN: dict[int, tuple[weakref.ref[Any], Tensor]] = {}


def check(task: Pooled) -> None:
    """Refuse a size or a seed of a pool that is none.

    Raises:
        InputError: no whole number in range, or a seed without a pool.
    """
    whole(task.pool_seed, "pool_seed", 0)
    if task.n_tasks is not None:
        whole(task.n_tasks, "n_tasks", 1, LARGEST)
    elif task.pool_seed:
        raise InputError(
            f"pool_seed = {task.pool_seed} draws a pool of functions, but n_tasks, their number, "
            "is not given: give both or neither"
        )


def parameters(task: Pooled) -> Float[Tensor, "function parameter"]:
    """Parameters of the functions of a task's pool in float64, drawn once for each task.

    They are a function of the law of the task, `n_tasks` and `pool_seed` alone.

    Raises:
        InputError: the task has no pool, or one of more than 100 million numbers.
    """
    if task.n_tasks is None:
        raise InputError(
            f"this {type(task).__name__} draws every function anew and has no pool: give it "
            "n_tasks, the number of its functions"
        )
    known = _KNOWN.get(id(task))
    if known and known[0]() is task:
        return known[1]
    found = _drawn(task, task.n_tasks)
    key = id(task)
    _KNOWN[key] = weakref.ref(task, lambda _: _KNOWN.pop(key, None)), found
    return found


def draw(
    task: Pooled, n_functions: int, generator: torch.Generator, dtype: torch.dtype
) -> Float[Tensor, "function parameter"]:
    """Parameters of `n_functions` functions of the pool: each is any of them, equally likely."""
    pool = parameters(task)
    rows = torch.randint(len(pool), (n_functions,), generator=generator)
    return pool[rows].to(dtype)


def _drawn(task: Pooled, n_tasks: int) -> Float[Tensor, "function parameter"]:
    width = task.sample_parameters(1, stream(0, "tasks/pool width"), torch.float64).shape[1]
    if n_tasks * width > LARGEST:
        raise InputError(
            f"a pool of n_tasks = {n_tasks:,} functions of {width:,} numbers each is more than "
            f"{LARGEST:,} numbers: choose at most n_tasks = {LARGEST // width:,}"
        )
    return task.sample_parameters(n_tasks, stream(task.pool_seed, "tasks/pool"), torch.float64)
