"""Training: schedules, recipes and the loop."""

from icl_interp.training.process import Terminated
from icl_interp.training.trainer import TrainingDiverged, train

__all__ = ["Terminated", "TrainingDiverged", "train"]
