"""The study `lipschitz`: whether softmax attention opens its window as wide as it should.

The functions in its prompts say how wide that is.
"""

from pathlib import Path

from icl_interp.studies.base import Study
from icl_interp.studies.lipschitz.claims import (
    covariance,
    directions,
    linear,
    smoother,
    transfer,
    window,
    window_adapts,
)
from icl_interp.studies.lipschitz.constructions.all import CONSTRUCTIONS, EXCEPTIONS
from icl_interp.studies.lipschitz.dials import DIALS
from icl_interp.studies.lipschitz.experiments.all import EXPERIMENTS
from icl_interp.studies.lipschitz.figures import directions as directions_figure
from icl_interp.studies.lipschitz.figures import family, optimal_window
from icl_interp.studies.lipschitz.figures import linear as linear_figure
from icl_interp.studies.lipschitz.figures import smoother as smoother_figure
from icl_interp.studies.lipschitz.figures import transfer as transfer_figure
from icl_interp.studies.lipschitz.figures.all import DRAWINGS

FIGURES = {
    "lipschitz_window": optimal_window.FIGURE,
    "lipschitz_directions": directions_figure.FIGURE,
    "lipschitz_smoother": smoother_figure.FIGURE,
    "lipschitz_transfer": transfer_figure.FIGURE,
    "lipschitz_family": family.FIGURE,
    "lipschitz_linear": linear_figure.FIGURE,
}

STUDY = Study(
    "lipschitz",
    "Collins, Parulekar, Mokhtari, Sanghavi & Shakkottai (2024), In-context learning with "
    "transformers: softmax attention adapts to function Lipschitzness, slides by A. Mokhtari",
    claims=(
        smoother.SMOOTHER_CLAIM,
        window.OPTIMAL_WINDOW_CLAIM,
        window_adapts.FAMILY_CLAIM,
        covariance.INVERSE_COVARIANCE_CLAIM,
        directions.IRRELEVANT_DIRECTIONS_CLAIM,
        transfer.TRANSFER_CLAIM,
        linear.LINEAR_CLAIM,
    ),
    figures=FIGURES,
    experiments=EXPERIMENTS,
    drawings=DRAWINGS,
    constructions=CONSTRUCTIONS,
    dials=DIALS,
    models=("lipschitz_relu", "lipschitz_low_rank", "lipschitz_relu_linear"),
    folder=Path(__file__).parent,
    exceptions=EXCEPTIONS,
)
