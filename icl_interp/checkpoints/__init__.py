"""Models on disk: run folders, and the bundled ones."""

from icl_interp.checkpoints.config import Curriculum, RunConfig, TrainingConfig
from icl_interp.checkpoints.store import Checkpoint, load

__all__ = ["Checkpoint", "Curriculum", "RunConfig", "TrainingConfig", "load"]
