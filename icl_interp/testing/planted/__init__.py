"""Models in which a circuit or an algorithm is planted, and how well tools find what was planted.

`drawn` gives such models with their truth as data; `score` asks every tool for it. What came out
comes with the package and is printed by `icl-interp selfcheck --tools`.
"""

from icl_interp.testing.planted.base import Planted, Truth
from icl_interp.testing.planted.draw import DECOYS, drawn, planted
from icl_interp.testing.planted.families import FAMILIES
from icl_interp.testing.planted.plans import PLANS
from icl_interp.testing.planted.score import METHODS, scored

__all__ = [
    "DECOYS",
    "FAMILIES",
    "METHODS",
    "PLANS",
    "Planted",
    "Truth",
    "drawn",
    "planted",
    "scored",
]
