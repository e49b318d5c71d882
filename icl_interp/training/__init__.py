"""Training: schedules, recipes and the loop."""

from icl_interp.training.trainer import TrainingDiverged, train

__all__ = ["TrainingDiverged", "train"]
