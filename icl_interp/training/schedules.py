"""Schedules as pure functions of the step, so that a resumed run repeats and skips nothing."""

import math

from icl_interp.checkpoints.config import TrainingConfig
from icl_interp.tasks.base import Task
from icl_interp.tasks.functions import Polynomial


def learning_rate(training: TrainingConfig, step: int) -> float:
    """Linear warm-up to the peak, then the decay, which would reach zero at `steps`.

    >>> from icl_interp.checkpoints.config import TrainingConfig
    >>> training = TrainingConfig(steps=1000, warmup_steps=10, learning_rate=1.0)
    >>> learning_rate(training, 4), learning_rate(training, 9)
    (0.5, 1.0)
    """
    if step < training.warmup_steps:
        return training.learning_rate * (step + 1) / training.warmup_steps
    progress = (step - training.warmup_steps) / max(1, training.steps - training.warmup_steps)
    if training.decay == "cosine":
        return training.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))
    return training.learning_rate * (1 - progress if training.decay == "linear" else 1)


def task_at(training: TrainingConfig, task: Task, step: int) -> Task:
    """The task as the curriculum poses it at a step: shorter prompts, fewer degrees."""
    curriculum = training.curriculum
    posed = task.with_points(curriculum.points(task.n_points, step))
    reached = [degrees for start, degrees in curriculum.degrees if start <= step]
    if not reached:
        return posed
    assert isinstance(
        posed, Polynomial
    )  # a config with degrees in its curriculum has no other task
    return posed.with_degrees(reached[-1])
