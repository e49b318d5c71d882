"""Read-only measurements at hook points, reduced while they stream: memory does not grow with the number of prompts."""

from icl_interp.probes.attention import AttentionEntropy, PatternStatistics
from icl_interp.probes.base import Probe, observe
from icl_interp.probes.heads import HeadOrthogonality, frobenius_cosines, map_orthogonality, principal_angles
from icl_interp.probes.norms import LayerNormScale, layernorm_scale_by_magnitude
from icl_interp.probes.residual import ResidualStream
from icl_interp.probes.runner import probe

__all__ = [
    "AttentionEntropy",
    "HeadOrthogonality",
    "LayerNormScale",
    "PatternStatistics",
    "Probe",
    "ResidualStream",
    "frobenius_cosines",
    "layernorm_scale_by_magnitude",
    "map_orthogonality",
    "observe",
    "principal_angles",
    "probe",
]
