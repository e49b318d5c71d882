"""Which parts carry a prediction: patching with intervals, edges between parts, and circuits.

All calls take a checkpoint. Patching also takes a `contrasts.Contrast`; what it returns are
recovered shares of the way from the corrupted to the clean prediction, each with an interval over
functions, a permutation p-value, and a q-value over all places that were tried.
"""

from icl_interp.circuits.activations import patch_activations
from icl_interp.circuits.attribution import Edges, attribute_edges
from icl_interp.circuits.nodes import Circuit
from icl_interp.circuits.paths import patch_paths
from icl_interp.circuits.search import circuit

__all__ = ["Circuit", "Edges", "attribute_edges", "circuit", "patch_activations", "patch_paths"]
