"""Edits of a running model: small, composable, and gone when the `with` block ends.

An intervention is a list of functions at hook points. `intervene` attaches several in the order
given (each sees what the one before left) and detaches them at the end, also after an exception.
Each says what it assumes.

Several read a reference first, such as a norm's mean scale on in-distribution prompts:
`X.measure(model, tokens)`. References are kept by position; `.at_query()` keeps the last position's
only, which is what alternative last tokens (`HookedTransformer.after`) need.
"""

from icl_interp.interventions.attention import AblateHeads, PutPatterns, SwapPattern, Temperature
from icl_interp.interventions.base import At, Intervention, intervene, mean_activations
from icl_interp.interventions.directions import ProjectOut, Steer
from icl_interp.interventions.edges import PutEdges, edges_of, readers, writers, written
from icl_interp.interventions.norms import FreezeNorms, InsertNorm
from icl_interp.interventions.outputs import MeanOutputs, sublayers
from icl_interp.interventions.patching import patch
from icl_interp.interventions.put import PutActivations, PutHeadOutputs
from icl_interp.interventions.updates import ImplicitUpdate

__all__ = [
    "AblateHeads",
    "At",
    "FreezeNorms",
    "ImplicitUpdate",
    "InsertNorm",
    "Intervention",
    "MeanOutputs",
    "ProjectOut",
    "PutActivations",
    "PutEdges",
    "PutHeadOutputs",
    "PutPatterns",
    "Steer",
    "SwapPattern",
    "Temperature",
    "edges_of",
    "intervene",
    "mean_activations",
    "patch",
    "readers",
    "sublayers",
    "writers",
    "written",
]
