"""Products of activations and weights: the package's own against `torch.nn.functional.linear`."""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from benchmarks.measuring import Goal, Options, Row, ratio_row, take_turns
from benchmarks.sizes import PAPER, SMALL, TINY, Size
from icl_interp import products

PROMPTS, TURNS, REPEATS = 32, 7, 10
GOAL = Goal(1.0)  # whatever the processor, it should cost nothing


def shapes(size: Size) -> dict[str, tuple[int, int]]:
    """Widths of the products of one block, (in, out)."""
    width = size.width
    return {
        "Q, K and V": (width, 3 * width),
        "W_O": (width, width),
        "W_in": (width, 4 * width),
        "W_out": (4 * width, width),
    }


def run(options: Options) -> list[Row]:
    """Seconds of each product of a block, as a share of those of torch's."""
    rows = []
    for size in (TINY,) if options.quick else (SMALL, PAPER):
        for name, (n_in, n_out) in shapes(size).items():
            x = torch.randn(PROMPTS, size.n_tokens, n_in)
            weight, bias = torch.randn(n_out, n_in), torch.randn(n_out)
            variants: dict[str, Callable[[], object]] = {
                "torch": lambda x=x, w=weight, b=bias: F.linear(x, w, b),
                "own": lambda x=x, w=weight, b=bias: products.linear(x, w, b),
            }
            with torch.no_grad(), products.fast():
                times = take_turns(
                    variants, options.turns_or(TURNS), repeats=1 if options.quick else REPEATS
                )
            what = f"{name}, width {size.width}, {PROMPTS} prompts of {size.n_tokens} tokens"
            note = "the time of torch.nn.functional.linear in float32"
            rows.append(ratio_row(what, times["own"], times["torch"], note=note, goal=GOAL))
    return rows
