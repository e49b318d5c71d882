"""Which algorithm does a model run? `icl_interp.algorithm(checkpoint)` compares it with rivals.

`rivals` lists the rivals and tunes each, `subject` asks the model, `distances` measures with
intervals, `designs` searches for prompts that tell two rivals apart, `figure` draws, `report` holds
what was found and says it, `run` is the one call.
"""

from icl_interp.algorithms.designs import Design, search
from icl_interp.algorithms.report import AlgorithmReport
from icl_interp.algorithms.rivals import Rival, rivals
from icl_interp.algorithms.run import algorithm

__all__ = ["AlgorithmReport", "Design", "Rival", "algorithm", "rivals", "search"]
