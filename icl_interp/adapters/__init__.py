"""A module that stays what it is: its submodules play the part of our hook points.

`icl_interp.adapt` names them. Nothing is converted and no weight is copied, so any architecture
will do: another kind of attention, a recurrence, positions that no model here has.
"""

from icl_interp.adapters.adapt import adapt
from icl_interp.adapters.adapted import Adapted, Lacks
from icl_interp.adapters.place import Place
from icl_interp.models.read_ins import ReadIn, fold_read_ins

__all__ = ["Adapted", "Lacks", "Place", "ReadIn", "adapt", "fold_read_ins"]
