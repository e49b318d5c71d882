"""Places in a module: what goes in or comes out of a submodule, or a function of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from icl_interp.errors import InputError, shown, unknown


@dataclass(frozen=True)
class Place:
    """A tensor in a module that plays the part of a hook point.

    Attributes:
        module: the submodule's name, as `named_modules` has it; "" is the module itself.
        side: what is meant of it: its "output", or its "input".
        item: of an output that is a tuple, which one; of an input, which positional argument, or
            the name of a keyword.
        call: which call of the submodule in a run, from 0, where there are several (a block that
            is run again and again). None: it is called once.
        take: makes of the tensor what the hook point is to show, such as `(batch, token, head,
            d_head)` of `(batch, token, d_model)`. By default the tensor itself.
        put: the way back, where `take` is given: of the old tensor and the new activation it makes
            the new tensor. Without it the place can only be read.

    >>> heads = Place("attn.c_proj", "input", take=lambda z: z.unflatten(-1, (4, -1)),
    ...               put=lambda old, z: z.flatten(-2))
    >>> heads.item
    0
    """

    module: str
    side: Literal["output", "input"] = "output"
    item: int | str = 0
    call: int | None = None
    take: Callable[[Tensor], Tensor] | None = None
    put: Callable[[Tensor, Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        if self.side not in ("output", "input"):
            raise unknown("side", self.side, ("output", "input"))

    @classmethod
    def of(cls, given: Any) -> "Place":
        """A place as it was given: a name stands for the submodule's output.

        Raises:
            InputError: neither.
        """
        if isinstance(given, Place):
            return given
        if isinstance(given, str):
            return cls(given)
        raise InputError(
            "a place is the name of a submodule, which stands for its output, or an "
            f"icl_interp.adapters.Place, but got {shown(given)}"
        )

    @property
    def can_be_put(self) -> bool:
        """Whether there is a way back into the module."""
        return self.take is None or self.put is not None

    def within(self, module: nn.Module) -> nn.Module:
        """The submodule.

        Raises:
            InputError: there is none of this name.
        """
        known = dict(module.named_modules())
        if self.module not in known:
            raise unknown("submodule", self.module, known)
        return known[self.module]

    def tensor(self, given: Any) -> Tensor:
        """The tensor itself in what goes in or comes out.

        Raises:
            InputError: there is none.
        """
        found = given
        if not isinstance(given, Tensor):
            try:
                found = given[self.item]
            except (KeyError, IndexError, TypeError):
                found = None
        if not isinstance(found, Tensor):
            raise InputError(
                f"the {self.side} of {self.module!r} is {_kinds(given)}, so its item "
                f"{self.item!r} is no tensor: give Place({self.module!r}, item=...)"
            )
        return found

    def activation(self, tensor: Tensor) -> Tensor:
        """What the hook point shows of the tensor."""
        return tensor if self.take is None else self.take(tensor)

    def back(self, given: Any, new: Tensor) -> Any:
        """What goes in or comes out, with a new activation in it."""
        old = self.tensor(given)
        tensor = new if self.put is None else self.put(old, new)
        if isinstance(given, Tensor):
            return tensor
        if isinstance(given, tuple):
            items = list(given)
            items[self.item] = tensor  # pyright: ignore[reportArgumentType, reportCallIssue]
            made = getattr(type(given), "_make", tuple)  # a named tuple keeps its class
            return made(items)
        given[self.item] = tensor  # a list, a mapping or an output of transformers
        return given

    def __str__(self) -> str:
        return f"the {self.side} of {self.module!r}"


def _kinds(given: Any) -> str:
    """What is in an output, by the names of classes."""
    if isinstance(given, Mapping):
        return f"{type(given).__name__} of {', '.join(map(str, given))}"
    if isinstance(given, (tuple, list)):
        return f"({', '.join(type(item).__name__ for item in given)})"
    return type(given).__name__
