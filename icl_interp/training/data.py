"""What a run learns from at each step: fresh prompts, or those of one finite set in epochs."""

from functools import cached_property

import torch

from icl_interp.checkpoints.config import TrainingConfig
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.tasks.base import Task
from icl_interp.training.schedules import task_at

N_TEST = 1024  # prompts of the test set beside a finite set, at most


class Batches:
    """Prompts as a pure function of the step, so that a resumed run repeats and skips nothing.

    With `training.n_prompts` the prompts are those of one set. Each epoch takes all of them once,
    in an order of its own.

    Args:
        task: of the run.
        training: its training section.

    >>> from icl_interp.checkpoints.config import Curriculum
    >>> from icl_interp.training import recipes
    >>> whole = Curriculum(first_points=5)
    >>> training = TrainingConfig(steps=9, batch_size=2, n_prompts=6, curriculum=whole)
    >>> batches = Batches(recipes.resolve("affine").task, training)
    >>> epochs = [torch.cat([batches.at(step).xs for step in range(at, at + 3)]) for at in (0, 3)]
    >>> [sorted(xs[:, 0, 0].tolist()) for xs in epochs][0] == sorted(epochs[1][:, 0, 0].tolist())
    True
    """

    def __init__(self, task: Task, training: TrainingConfig) -> None:
        self.task = task
        self.training = training

    def at(self, step: int) -> Prompts:
        """The prompts of a step, counted from 0."""
        training = self.training
        if training.n_prompts is None:
            numbers = generator(training.seed, "train/prompts", step)
            return task_at(training, self.task, step).sample(training.batch_size, numbers)
        steps = training.n_prompts // training.batch_size  # of an epoch
        epoch, number = divmod(step, steps)
        first = number * training.batch_size
        return self._set[self._order(epoch)[first : first + training.batch_size]]

    @cached_property
    def test(self) -> Prompts | None:
        """Prompts that no step of a finite set takes; None where prompts are fresh."""
        training = self.training
        if training.n_prompts is None:
            return None
        n_prompts = min(N_TEST, training.n_prompts)
        return self.task.sample(n_prompts, generator(training.seed, "train/test"))

    @cached_property
    def _set(self) -> Prompts:
        assert self.training.n_prompts is not None
        numbers = generator(self.training.seed, "train/set")
        return self.task.sample(self.training.n_prompts, numbers)

    def _order(self, epoch: int) -> torch.Tensor:
        assert self.training.n_prompts is not None
        numbers = generator(self.training.seed, "train/order", epoch)
        return torch.randperm(self.training.n_prompts, generator=numbers)
