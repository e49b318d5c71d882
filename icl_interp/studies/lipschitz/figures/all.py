"""The figures of all experiments of the study, by the id of the experiment."""

from icl_interp.figures.reproductions import Draw
from icl_interp.studies.lipschitz.figures.beyond_a_head import beyond_a_head
from icl_interp.studies.lipschitz.figures.bias_noise import bias_noise
from icl_interp.studies.lipschitz.figures.generalization import generalization
from icl_interp.studies.lipschitz.figures.low_rank import low_rank
from icl_interp.studies.lipschitz.figures.norm_growth import norm_growth
from icl_interp.studies.lipschitz.figures.theorem2 import theorem2
from icl_interp.studies.lipschitz.figures.window import window

DRAWINGS: dict[str, Draw] = {
    "lipschitz.beyond_a_head": beyond_a_head,
    "lipschitz.bias_noise": bias_noise,
    "lipschitz.generalization": generalization,
    "lipschitz.low_rank": low_rank,
    "lipschitz.norm_growth": norm_growth,
    "lipschitz.theorem2": theorem2,
    "lipschitz.window": window,
}
