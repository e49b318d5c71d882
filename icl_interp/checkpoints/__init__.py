"""Models on disk: run folders, and the bundled ones.

The names load when they are first used: the command line lists bundled models without importing
torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icl_interp.checkpoints.config import Curriculum, RunConfig, TrainingConfig
    from icl_interp.checkpoints.store import Checkpoint, load

_NAMES = {
    "Checkpoint": "store",
    "load": "store",
    "Curriculum": "config",
    "RunConfig": "config",
    "TrainingConfig": "config",
}

__all__ = ["Checkpoint", "Curriculum", "RunConfig", "TrainingConfig", "load"]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(f"icl_interp.checkpoints.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'icl_interp.checkpoints' has no attribute {name!r}")
