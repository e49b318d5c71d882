"""Which interventions moved an output: each run under interventions is compared with the same run without them."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from icl_interp.interventions import base
from icl_interp.interventions.base import At, Intervention
from icl_interp.models.transformer import HookedTransformer

RUNS = ("forward", "remember", "after")  # the ways in which a model is run


@contextmanager
def observed() -> Iterator[dict[str, bool]]:
    """Whether each kind of intervention that is used inside moved what a run returned at least once, by its name."""
    moved: dict[str, bool] = {}

    @contextmanager
    def observe(model: HookedTransformer, attached: Sequence[Intervention]) -> Iterator[None]:
        names = {type(_inner(one)).__name__ for one in attached}
        moved.update({name: moved.get(name, False) for name in names})
        if all(moved[name] for name in names):
            yield
            return
        intact = copy.deepcopy(model)
        for name, _ in (hook for one in attached for hook in one.hooks(model)):
            intact.add_hook(name, _listen)  # so that both take the same route, and equal outputs are equal bit by bit

        def compared(run: str) -> Callable[..., Any]:
            edited, plain = getattr(model, run), getattr(intact, run)

            def both(*args: Any, **settings: Any) -> Any:
                out = edited(*args, **settings)
                if _differ(out, plain(*args, **settings)):
                    moved.update(dict.fromkeys(names, True))
                return out

            return both

        for run in RUNS:
            setattr(model, run, compared(run))
        try:
            yield
        finally:
            for run in RUNS:
                delattr(model, run)

    base.OBSERVERS.append(observe)
    try:
        yield moved
    finally:
        base.OBSERVERS.remove(observe)


def _listen(activation: Tensor, hook: object) -> None:
    """Change nothing."""


def _inner(intervention: Intervention) -> Intervention:
    return _inner(intervention.inner) if isinstance(intervention, At) else intervention


def _differ(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return not torch.equal(a, b)
    return any(_differ(one, other) for one, other in zip(a, b, strict=True))
