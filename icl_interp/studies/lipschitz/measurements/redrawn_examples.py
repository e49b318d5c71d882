"""Log weights of examples when all but the example and the query is drawn anew.

This asks about every kernel at once, and about no family of kernels.

A head whose weights are those of a kernel, k(x_q, x_i) over its sum, gives an example the same log
weight, up to a number that all examples of a prompt share, wherever the example stands and whatever
stands beside it. So the query and some of a prompt's examples are kept, at other places, among
other inputs, and all labels are those of another function. What the log weights have in common over
many such prompts is the kernel's part; what changes is not told by (x_q, x_i).

Nothing is assumed about the kernel: it may be periodic, have kinks or jump. Where a task draws a
law of inputs for each prompt, those of a redraw come from two such laws.
"""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.tasks.base import Task

ROUNDS = 6  # in which each example of a prompt is kept once: so many draws tell its log weight
BLOCKS = 4  # of examples that are kept together, in each round


def n_blocks(n_examples: int) -> int:
    """Blocks of a round, of at least two examples each.

    Only differences of log weights mean something.
    """
    return max(1, min(BLOCKS, n_examples // 2))


def share_kept(n_examples: int) -> float:
    """The largest share of a prompt's examples that a redraw keeps."""
    kept = math.ceil(n_examples / n_blocks(n_examples))
    return kept / n_examples


# Which examples, and where they stand then.
Kept = tuple[Int[Tensor, " kept"], Int[Tensor, " kept"]]


def plan(n_examples: int, seed: int) -> list[Kept]:
    """What each redraw keeps, the same for all prompts."""
    draw = generator(seed, "lipschitz/redrawn, places")
    found = []
    for _ in range(ROUNDS):
        order = torch.randperm(n_examples, generator=draw)
        for kept in order.tensor_split(n_blocks(n_examples)):
            shuffled = torch.randperm(n_examples, generator=draw)
            places = shuffled[: len(kept)]
            found.append((kept, places))
    return found


def redraws(task: Task, prompts: Prompts, seed: int) -> Iterator[tuple[Kept, Prompts]]:
    """Prompts that share the query and some examples' inputs with the given ones.

    They share them row by row, and share nothing else.

    Labels are values of new functions, with the noise of new labels: the difference between a label
    that the task drew and the value there, which is taken to be independent of the input.
    """
    draw = generator(seed, "lipschitz/redrawn, prompts")
    for kept, places in plan(prompts.n_points - 1, seed):
        fresh = task.sample(len(prompts), draw, n_points=prompts.n_points, dtype=torch.float64)
        noise = fresh.ys - task.targets(fresh.parameters, fresh.xs)
        xs = fresh.xs.clone()
        xs[:, places] = prompts.xs[:, kept].double()
        xs[:, -1] = prompts.xs[:, -1].double()
        ys = task.targets(fresh.parameters, xs) + noise
        yield (kept, places), replace(fresh, xs=xs, ys=ys)


def common(
    scores: Callable[[Prompts], Float[Tensor, "batch head example"]],
    task: Task,
    prompts: Prompts,
    seed: int,
) -> Float[Tensor, "batch head example"]:
    """The part of the log weights that redraws leave, up to a number of each prompt and head.

    Least squares of the scores of kept examples on a number of each example and one of each redraw.

    Args:
        scores: those of the labelled examples at the query, for any prompts.
        task: draws anew.
        prompts: whose examples and queries are kept.
        seed: of the draws.
    """
    n_examples = prompts.n_points - 1
    solve = _solution(plan(n_examples, seed), n_examples)
    seen = []
    for (_, places), other in redraws(task, prompts, seed):
        of_other = scores(other)
        seen.append(of_other[..., places])
    return torch.cat(seen, -1) @ solve.T


def _solution(kept: list[Kept], n_examples: int) -> Float[Tensor, "example seen"]:
    """The matrix from the scores of all that was kept to the numbers of the examples.

    The scores stand one after another.
    """
    rows = []
    for i, (examples, _) in enumerate(kept):
        design = torch.zeros(len(examples), n_examples + len(kept), dtype=torch.float64)
        design[torch.arange(len(examples)), examples] = 1
        design[:, n_examples + i] = 1
        rows.append(design)
    return torch.linalg.pinv(torch.cat(rows))[:n_examples]


@functools.cache
def error_of_draws(n_examples: int) -> float:
    """Mean squared error of `common` where nothing is common.

    The error is divided by the spread of the log weights themselves.

    It is 1 / ROUNDS and a little more, since each redraw has a number of its own to be found.
    """
    solve = _solution(plan(n_examples, 0), n_examples)
    about = solve - solve.mean(0)
    errors = about.square().sum(1)
    spread = 1 - 1 / n_examples
    return float(errors.mean()) / spread


def surely_missed(missed: float, n_examples: int) -> float:
    """What the best kernel misses at least, where `common` misses so much.

    A mean over so many draws varies about the kernel, so that what the head and it miss of one
    another is larger by 1 + `error_of_draws` than what the head and the kernel do.
    """
    return missed / (1 + error_of_draws(n_examples))


def surely_told(missed: float, n_examples: int) -> float:
    """What `common` misses at most of a head that reads the other examples.

    `missed` is what `common` was found to miss of this head.

    Redraws keep some of the other examples, so `common` follows what they do to the weights by as
    much as their share.
    """
    changed = 1 - share_kept(n_examples)
    if changed <= 0:
        return math.inf
    return missed / changed**2
