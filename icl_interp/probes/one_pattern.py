"""Heads with one pattern are one head: what they write adds up, or takes each other off."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

ONE_PATTERN = 1e-9  # squared distance of two patterns, over their squares, up to which they are one
Group = tuple[int, ...]  # heads with one pattern


def factors(rows: Float[Tensor, "head number"], scaled: bool) -> Float[Tensor, "head head"]:
    """c with row i = c row j, in column j; NaN where row i is another one.

    Args:
        rows: one a head.
        scaled: whether any factor will do; else rows must be the same.
    """
    squares = rows.square().sum(1)
    products = rows @ rows.T
    best = products / squares.clamp(min=torch.finfo(rows.dtype).tiny)
    c = best if scaled else torch.ones_like(products)
    missed = squares[:, None] - 2 * c * products + c**2 * squares
    larger = torch.maximum(squares[:, None], squares)
    return torch.where(missed <= ONE_PATTERN * larger, c, torch.nan)


def groups(rows: Float[Tensor, "head number"], scaled: bool) -> list[Group]:
    """Heads whose rows are one, in the order of the first of them.

    >>> groups(torch.tensor([[1.0, 2.0], [3.0, 1.0], [-2.0, -4.0]]), scaled=True)
    [(0, 2), (1,)]
    >>> groups(torch.tensor([[1.0, 2.0], [3.0, 1.0], [-2.0, -4.0]]), scaled=False)
    [(0,), (1,), (2,)]
    """
    same = ~factors(rows, scaled).isnan()
    found: list[Group] = []
    left = list(range(len(rows)))
    while left:
        # The first head that is left, and those like it.
        first, *others = left
        group = [first]
        left = []
        for head in others:
            chosen = group if same[head, first] else left
            chosen.append(head)
        found.append(tuple(group))
    return found


def summed(
    rows: Float[Tensor, "head number"], written: Shaped[Tensor, "head *shape"], scaled: bool
) -> tuple[list[Group], Shaped[Tensor, "group *shape"]]:
    """Groups of heads whose rows are one up to a factor, and what each group writes in all.

    Args:
        rows: what heads weigh by.
        written: what each head writes, of any shape, real or complex.
        scaled: whether rows that are multiples of one another are one.

    Returns:
        The groups, and for each the sum of what its heads write, times their factors of the first.

    >>> rows = torch.tensor([[1.0, 2.0], [3.0, 1.0], [-2.0, -4.0]])
    >>> summed(rows, torch.tensor([1.0, 5.0, 10.0]), scaled=True)
    ([(0, 2), (1,)], tensor([-19.,   5.]))
    """
    of_one_another = factors(rows, scaled)
    alike = groups(rows, scaled)
    sums = []
    for group in alike:
        members = list(group)
        of_first = of_one_another[members, members[0]].to(written)
        sums.append(torch.einsum("h,h...->...", of_first, written[members]))
    return alike, torch.stack(sums)
