"""What is left of many things where as many as can leave: in few runs, whatever the things are."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

Item = TypeVar("Item")


def fewest(order: Sequence[Item], fits: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """A first stretch of some items that will do, and would not with one item less.

    All of them together are taken to do.

    >>> fewest([4, 3, 2, 1], lambda kept: sum(kept) >= 6)
    [4, 3]
    """
    too_few = -1
    enough = len(order)
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if fits(order[:middle]):
            enough = middle
        else:
            too_few = middle
    return list(order[:enough])


class Pruned(NamedTuple):
    """What is left.

    Attributes:
        left: what no run could leave out, or tried to.
        n_untried: how many of these no run tried to leave out alone, for want of runs.
    """

    left: list[Any]
    n_untried: int


def pruned(
    kept: Sequence[Item],
    order: Sequence[Item],
    fits: Callable[[Sequence[Item]], bool],
    n_runs: int | None = None,
) -> Pruned:
    """What is left where some leave, until none can leave any more.

    Where one may leave, twice as many are tried next; where several may not, half as many.

    Args:
        kept: what there is.
        order: in which they are tried.
        fits: whether a set will do.
        n_runs: how often `fits` may be asked; None for as often as it takes.

    >>> pruned([1, 2, 3, 4], [1, 2, 3, 4], lambda kept: sum(kept) >= 6).left
    [3, 4]
    """
    left = list(kept)
    needed: set[Item] = set()  # of what is left: those that cannot leave it alone
    asked = 0
    waiting: list[Item] = []
    size = 1
    while len(needed) < len(left) and asked != n_runs:
        if not waiting:
            # All that were not tried alone since something left.
            there = set(left) - needed
            waiting = [item for item in order if item in there]
        some = set(waiting[:size])
        fewer = [item for item in left if item not in some]
        asked += 1
        if fits(fewer):
            left = fewer
            waiting = waiting[size:]
            needed.clear()
            size *= 2
        elif len(some) > 1:
            size = len(some) // 2
        else:
            needed |= some
            waiting = waiting[1:]
            size = 1
    return Pruned(left, len(left) - len(needed))
