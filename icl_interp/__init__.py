"""icl_interp: mechanistic interpretability of in-context learning, on your own weights.

The public names load when they are first used: importing this package costs almost nothing.
"""

import gc
import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

from icl_interp import renamed

if TYPE_CHECKING:
    from icl_interp import (
        adapters,
        algorithms,
        analyses,
        baselines,
        circuits,
        contrasts,
        encodings,
        experiments,
        figures,
        interventions,
        models,
        predictors,
        probes,
        studies,
        tasks,
        testing,
        theory,
    )
    from icl_interp.adapters import adapt
    from icl_interp.algorithms.run import algorithm
    from icl_interp.checkpoints.store import Checkpoint, load
    from icl_interp.circuits import circuit
    from icl_interp.errors import InputError
    from icl_interp.evaluation import evaluate
    from icl_interp.interventions import intervene
    from icl_interp.models.config import HookedTransformerConfig
    from icl_interp.models.transformer import HookedTransformer
    from icl_interp.pipeline import analyze, compare
    from icl_interp.probes import probe
    from icl_interp.report.report import Report
    from icl_interp.training.together import train_many
    from icl_interp.training.trainer import train
    from icl_interp.trajectories import trajectory

__version__ = "0.1.0"

renamed.install()

_QUIETLY = ("evaluation", "pipeline", "reproduction")  # not public; the command line imports them
_NAMES = {
    "Checkpoint": "checkpoints.store",
    "HookedTransformer": "models.transformer",
    "HookedTransformerConfig": "models.config",
    "InputError": "errors",
    "Report": "report",
    "adapt": "adapters",
    "algorithm": "algorithms.run",
    "analyze": "pipeline",
    "circuit": "circuits",
    "compare": "pipeline",
    "evaluate": "evaluation",
    "intervene": "interventions",
    "load": "checkpoints.store",
    "probe": "probes",
    "train": "training.trainer",
    "train_many": "training.together",
    "trajectory": "trajectories",
}

__all__ = [
    "Checkpoint",
    "HookedTransformer",
    "HookedTransformerConfig",
    "InputError",
    "Report",
    "adapt",
    "adapters",
    "algorithm",
    "algorithms",
    "analyses",
    "analyze",
    "baselines",
    "circuit",
    "circuits",
    "compare",
    "contrasts",
    "encodings",
    "evaluate",
    "experiments",
    "figures",
    "intervene",
    "interventions",
    "load",
    "models",
    "predictors",
    "probe",
    "probes",
    "studies",
    "tasks",
    "testing",
    "theory",
    "train",
    "train_many",
    "trajectory",
]

_MODULES = frozenset(__all__) - frozenset(_NAMES)


def __getattr__(name: str) -> Any:
    if name in _MODULES or name in _QUIETLY:
        return _loaded(name)
    if name in _NAMES:
        return getattr(_loaded(_NAMES[name]), name)
    raise AttributeError(
        f"module 'icl_interp' has no attribute {name!r}; it has {', '.join(__all__)}"
    )


def _loaded(name: str) -> ModuleType:
    """A module of this package, imported with the garbage collector paused.

    What imports make stays, but the collector looks through all of it again and again: half a
    second of two and a half.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(f"icl_interp.{name}")
    finally:
        if collects:
            gc.enable()


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
