"""Read-only measurements at hook points, reduced as they stream, from which claims are judged."""

from icl_interp.probes.attention import (
    AttentionEntropy,
    AttentionTargets,
    PatternStatistics,
    entropy,
    entropy_deficit,
    hardmax_distance,
    resampled_scores,
)
from icl_interp.probes.attribution import DirectAttribution
from icl_interp.probes.base import Probe, observe
from icl_interp.probes.heads import HeadOrthogonality
from icl_interp.probes.influence import ExampleInfluence, hat_rows
from icl_interp.probes.learned import LearnedProbes, fit
from icl_interp.probes.maps import frobenius_cosines, map_orthogonality, principal_angles
from icl_interp.probes.norms import LayerNormScale
from icl_interp.probes.pattern import AttentionPattern
from icl_interp.probes.reading import Reading
from icl_interp.probes.record import Activations
from icl_interp.probes.residual import LogitLens, ResidualStream, depths, logit_lens
from icl_interp.probes.roles import composition, ov_spectrum, roles
from icl_interp.probes.runner import probe
from icl_interp.probes.sweep import Sweep

__all__ = [
    "Activations",
    "AttentionEntropy",
    "AttentionPattern",
    "AttentionTargets",
    "DirectAttribution",
    "ExampleInfluence",
    "HeadOrthogonality",
    "LayerNormScale",
    "LearnedProbes",
    "LogitLens",
    "PatternStatistics",
    "Probe",
    "Reading",
    "ResidualStream",
    "Sweep",
    "composition",
    "depths",
    "entropy",
    "entropy_deficit",
    "fit",
    "frobenius_cosines",
    "hardmax_distance",
    "hat_rows",
    "logit_lens",
    "map_orthogonality",
    "observe",
    "ov_spectrum",
    "principal_angles",
    "probe",
    "resampled_scores",
    "roles",
]
