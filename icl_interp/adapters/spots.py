"""Hook points of an adapted module, and how a run of the module is led through them."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn

from icl_interp.adapters import norms
from icl_interp.adapters.place import Place
from icl_interp.errors import InputError
from icl_interp.models.hooks import HookPoint, changing_hooks


class Spot:
    """A hook point and the place that plays its part.

    Attributes:
        name: of the hook point, such as "blocks.0.hook_resid_post".
        place: where the activation is.
        point: the hook point.
        used: whether an edit there reaches the output; a trial says so.
    """

    def __init__(self, name: str, place: Place) -> None:
        self.name = name
        self.place = place
        self.point = HookPoint()
        self.point.name = name
        self.used = place.can_be_put

    def through(self, module: nn.Module, given: Any, before: Any) -> Any:
        """What goes in or comes out after the hook point has been asked; None if it is the same.

        Args:
            module: the submodule.
            given: what goes in or comes out.
            before: its positional arguments.
        """
        old = self.place.activation(self.place.tensor(given))
        new = self.asked(old)
        return None if new is old else self.place.back(given, new)

    def asked(self, old: Tensor) -> Tensor:
        """What the hook point makes of an activation.

        Raises:
            InputError: an edit at a place that can only be read.
        """
        shown = old if self.used else old.clone()
        new = self.point(shown)
        if new is shown:
            return old
        if not self.used:
            raise InputError(
                f"{self.name} can only be read: {self.place} "
                + (
                    "has a function take, but none to put an edit back"
                    if not self.place.can_be_put
                    else "is not what the module goes on with, so an edit there would change "
                    "nothing; name the place that is used"
                )
            )
        return new


class NormSpot(Spot):
    """The scale of a norm.

    Attributes:
        kind: of the norm; a trial tells it.
    """

    kind: norms.Kind

    def through(self, module: nn.Module, given: Any, before: Any) -> Any:
        """The norm's output, divided by what the hook point makes of its scale."""
        old = self.kind.scale(before[0])
        new = self.asked(old)
        if new is old:
            return None
        return norms.rescaled(module, given, old, new)


class _Route:
    """One run of a module through hook points, in the thread that made this."""

    def __init__(self, spots: Sequence[Spot], aside: list[bool]) -> None:
        self.thread = threading.get_ident()
        self.reached = {spot.name: 0 for spot in spots}
        self.aside = aside

    def attach(self, spot: Spot, submodule: nn.Module) -> Any:
        """Lead a submodule's input or output through a hook point; gives torch's handle."""
        if spot.place.side == "output":
            return submodule.register_forward_hook(partial(self._after, spot), with_kwargs=True)
        return submodule.register_forward_pre_hook(partial(self._before, spot), with_kwargs=True)

    def _before(self, spot: Spot, submodule: nn.Module, args: Any, kwargs: Any) -> Any:
        by_name = isinstance(spot.place.item, str)
        new = self._ask(spot, submodule, dict(kwargs) if by_name else args, args)
        if new is None:
            return None
        return (args, new) if by_name else (new, kwargs)

    def _after(self, spot: Spot, submodule: nn.Module, args: Any, kwargs: Any, out: Any) -> Any:
        return self._ask(spot, submodule, out, args or tuple(kwargs.values()))

    def _ask(self, spot: Spot, submodule: nn.Module, given: Any, before: Any) -> Any:
        """What goes on in place of what is given; None if it is the same."""
        if threading.get_ident() != self.thread:
            return None
        if not self.aside[0]:
            self.reached[spot.name] += 1
            call = spot.place.call
            if call is not None and self.reached[spot.name] != call + 1:
                return None
        return spot.through(submodule, given, before)


@contextmanager
def routed(module: nn.Module, spots: Sequence[Spot], aside: list[bool]) -> Iterator[dict[str, int]]:
    """A context in which runs of a module, in this thread, pass through hook points.

    Args:
        module: what runs.
        spots: its hook points.
        aside: holds whether a part of it is run apart from the rest at this moment (as a lens
            does): what passes then is no call of the run.

    Yields:
        How often each submodule was reached at each hook point, by the hook point's name.
    """
    route = _Route(spots, aside)
    known = dict(module.named_modules())
    with ExitStack() as stack:
        with changing_hooks():
            for spot in spots:
                stack.callback(route.attach(spot, known[spot.place.module]).remove)
        yield route.reached
