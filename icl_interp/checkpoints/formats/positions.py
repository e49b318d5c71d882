"""Rows of a table of positions that training never changed, told by their spread."""

import math

from torch import Tensor

INITIAL = 0.02  # the standard deviation with which GPT2Model draws its table
LEAST_WIDTH = 8  # entries of a row below which its spread says nothing
N_ERRORS = 4.0  # standard errors of a mean square within which the spread is the initial one


def untrained_from(table: Tensor) -> int | None:
    """The first row from which on a table of positions keeps its initial spread.

    Rows that no prompt reached get no gradient, so they stay draws from N(0, 0.02^2).

    Args:
        table: (positions, width).

    Returns:
        The number of that row (from 0), or None where the last row is trained or the table is too
        small to tell.

    >>> import torch
    >>> rng = torch.Generator().manual_seed(0)
    >>> table = INITIAL * torch.randn(30, 64, generator=rng)
    >>> table[:20] += 0.3
    >>> untrained_from(table)
    20
    """
    n_rows, width = table.shape
    if width < LEAST_WIDTH:
        return None
    squares = (table.double() / INITIAL).square().mean(1).tolist()
    # The mean square of k draws from N(0, 1) is 1, with a standard error of sqrt(2 / k).
    first = n_rows
    while first and _is_initial(squares[first - 1], width, 1.5 * N_ERRORS):
        first -= 1
    kept = squares[first:]
    if not kept or not _is_initial(sum(kept) / len(kept), width * len(kept), N_ERRORS):
        return None
    return first


def _is_initial(mean_square: float, n: int, n_errors: float) -> bool:
    return abs(mean_square - 1) < n_errors * math.sqrt(2 / n)


def note(table: Tensor, n_tokens: int) -> str | None:
    """What the table contradicts of a trained length, in a sentence; None where nothing.

    Args:
        table: (positions, width).
        n_tokens: of the longest prompts that the model is said to have seen.
    """
    first = untrained_from(table)
    if first is None or first >= n_tokens:
        return None
    said = f"the task says that prompts of {n_tokens} tokens were seen"
    if first == 0:
        return (
            "No row of the table of positions has left its initial spread, but "
            f"{said}: the model may be untrained, or use no positions."
        )
    return (
        f"From row {first} on (counted from 0) the table of positions keeps its initial spread, "
        f"but {said}: later tokens were never trained, or positions are used another way (a fork "
        "takes them modulo 10)."
    )
