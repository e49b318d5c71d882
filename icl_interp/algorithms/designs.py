"""Which prompts tell two rivals apart: a search over named shifts and prompt lengths.

The two rivals alone are asked in the search, so it costs no run of the model. The design in which
they differ most is then run: the model is asked there, and is nearer to one of them or to neither.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from icl_interp import resampling
from icl_interp.algorithms.distances import NEGLIGIBLE, Sample, distances, sample
from icl_interp.algorithms.subject import Subject, said_by
from icl_interp.baselines.base import Predictor
from icl_interp.errors import InputError, unknown
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.tasks.base import Task
from icl_interp.tasks.shifts import possible

IN_DISTRIBUTION = "as in training"
N_SEARCHED = 128
N_RUN = 512
# A design in which a rival varies less than this share of what it does in training tells nothing.
FAINT = 1e-3
# Beyond this, rivals are so far apart in a design that more says no more.
FAR = 1.0
NEITHER = "neither"
SAME = "same"


class Design(NamedTuple):
    """Prompts that tell two rivals apart.

    Attributes:
        shift: a named shift of the task, or as in training.
        n_examples: of a prompt.
        apart: D between the two rivals there.
    """

    shift: str
    n_examples: int
    apart: float


def lengths(task: Task) -> tuple[int, ...]:
    """Numbers of examples that are asked about: few, about as many as determine f, and all."""
    n = task.n_points - 1
    d = task.n_determining
    wanted = {1, max(1, d // 2), d, min(2 * d, n), n}
    return tuple(sorted(wanted))


def tasks(task: Task) -> dict[str, Task]:
    """The task itself, and every named shift that it allows."""
    return {IN_DISTRIBUTION: task, **possible(task)}


def search(task: Task, first: Predictor, second: Predictor, seed: int = 0) -> list[Design]:
    """All designs, the one that tells the two rivals apart best on top.

    Distances are in units of the first rival's variance. They count up to 1: beyond that, designs
    nearer to training come first.
    """
    found = []
    usual = 0.0
    for shift, shifted in tasks(task).items():
        prompts = _prompts(shifted, N_SEARCHED, seed, "searched")
        one = said_by(first, prompts)
        other = said_by(second, prompts)
        usual = usual or float(one[:, -1].var(0).sum())
        for n in lengths(task):
            if n >= shifted.n_points:
                continue
            here = one[:, n]
            variance = float(here.var(0).sum())
            missed = here - other[:, n]
            apart = float(missed.square().sum(-1).mean())
            if variance > FAINT * usual and math.isfinite(apart):
                design = Design(shift, n, apart / variance)
                found.append(design)
    # Python's sort is stable, and what is as in training was asked first.
    return sorted(found, key=lambda design: -min(design.apart, FAR))


def run(
    subject: Subject,
    task: Task,
    rivals: Mapping[str, Predictor],
    pair: tuple[str, str],
    seed: int = 0,
) -> dict[str, Any]:
    """The best design for two rivals, and what the model does there.

    Args:
        subject: the model.
        task: what it was trained on.
        rivals: tuned, by name.
        pair: two names.
        seed: of the prompts.

    Returns:
        A row: both rivals, the design, how far they are apart in it, the model's distance to each,
        and which it is nearer to: "neither" where the interval of the difference holds 0, and
        "same" where no design tells the two apart; the model is not asked then.

    Raises:
        InputError: no such rival, or no design in which the first one varies.
    """
    for name in pair:
        if name not in rivals:
            raise unknown("rival", name, rivals)
    # The search asks the two rivals; the model is asked in the best design alone.
    first = rivals[pair[0]]
    second = rivals[pair[1]]
    designs = search(task, first, second, seed)
    if not designs:
        raise InputError(f"no design is known in which {pair[0]} varies")
    best = designs[0]
    if best.apart <= NEGLIGIBLE:
        return _row(pair, best, (math.nan, math.nan), SAME)
    shifted = tasks(task)[best.shift]
    prompts = _prompts(shifted, N_RUN, seed, "run")
    prompts = prompts.first(best.n_examples + 1)
    own = subject.answers(prompts)
    one = said_by(first, prompts)[:, -1]
    other = said_by(second, prompts)[:, -1]
    taken = sample(own, [one, other], unit=one)
    found = distances(taken)
    nearer = _nearer(taken, pair)
    return _row(pair, best, tuple(found.value.tolist()), nearer)


def _row(
    pair: tuple[str, str], best: Design, model: tuple[float, ...], nearer: str
) -> dict[str, Any]:
    return {
        "rival": pair[0],
        "other": pair[1],
        "design": best.shift,
        "examples": best.n_examples,
        "apart": best.apart,
        "D to rival": model[0],
        "D to other": model[1],
        "nearer": nearer,
    }


def _nearer(taken: Sample, pair: tuple[str, str]) -> str:
    """Which of two the model is nearer to, by the interval of the difference."""
    difference = taken.squares[:, 0] - taken.squares[:, 1]
    if not difference.any():
        return NEITHER
    interval = resampling.bootstrap(lambda mean: mean, difference)
    if interval.high < 0:
        return pair[0]
    return pair[1] if interval.low > 0 else NEITHER


def _prompts(task: Task, n: int, seed: int, what: str) -> Prompts:
    return task.sample(n, generator(seed, f"algorithms/{what}"), dtype=torch.float64)
