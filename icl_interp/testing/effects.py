"""Whether measurements run a model, and which interventions changed the results of its runs.

Each run under interventions is compared with the same run without them.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from icl_interp.experiments.calibration import Predicting
from icl_interp.interventions import base
from icl_interp.interventions.base import At, Intervention
from icl_interp.models.blocks import Unembed
from icl_interp.models.hooked import HookedModel

# The ways in which a model is run.
RUNS = ("forward", "resume", "remember", "after", "resume_after")


class Runs:
    """How often predictions were made."""

    n = 0


@contextmanager
def counted() -> Iterator[Runs]:
    """Counts how often any model makes predictions, or a known predictor in the place of one.

    Every way to run a model ends in its read-out. Who reads weights alone never calls it.
    """
    found = Runs()

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def counted_too(*args: Any, **settings: Any) -> Any:
            found.n += 1
            return function(*args, **settings)

        return counted_too

    before = []
    for owner, name in ((Unembed, "forward"), (Predicting, "predict")):
        function = getattr(owner, name)
        before.append((owner, name, function))
        setattr(owner, name, counting(function))
    try:
        yield found
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


@contextmanager
def observed() -> Iterator[dict[str, bool]]:
    """Whether each kind of intervention used inside changed the result of a run, by its name.

    Once is enough.

    One that is attached with others must move what the others alone return.
    """
    moved: dict[str, bool] = {}

    @contextmanager
    def observe(model: HookedModel, attached: Sequence[Intervention]) -> Iterator[None]:
        # What a run gives without one of the interventions, for those that have moved nothing yet.
        names = [type(_inner(one)).__name__ for one in attached]
        for name in names:
            moved.setdefault(name, False)
        without = {
            name: _without(i, model, attached) for i, name in enumerate(names) if not moved[name]
        }

        def compared(run: str) -> Callable[..., Any]:
            edited = getattr(model, run)

            def both(*args: Any, **settings: Any) -> Any:
                out = edited(*args, **settings)
                # Another thread, for which nothing is attached.
                if observe not in base.OBSERVERS.get():
                    return out
                for name, other in without.items():
                    moved[name] |= _differ(out, getattr(other, run)(*args, **settings))
                return out

            return both

        for run in RUNS if without else ():
            setattr(model, run, compared(run))
        try:
            yield
        finally:
            for run in RUNS if without else ():
                delattr(model, run)

    before = base.OBSERVERS.set((*base.OBSERVERS.get(), observe))
    try:
        yield moved
    finally:
        base.OBSERVERS.reset(before)


def _without(index: int, model: HookedModel, attached: Sequence[Intervention]) -> HookedModel:
    """A copy of the model with all interventions but one.

    Where that one would be, somebody listens: both models then take the same route, and what is
    equal is so bit by bit.
    """
    other = copy.deepcopy(model)
    for i, one in enumerate(attached):
        for name, edit in one.hooks(model):
            other.add_hook(name, _listen if i == index else edit)
    return other


def _listen(activation: Tensor, hook: object) -> None:
    """Change nothing."""


def _inner(intervention: Intervention) -> Intervention:
    return _inner(intervention.inner) if isinstance(intervention, At) else intervention


def _differ(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return not torch.equal(a, b)
    if a is None or b is None:  # a part that keys and values of this model do not have
        return a is not b
    return any(_differ(one, other) for one, other in zip(a, b, strict=True))
