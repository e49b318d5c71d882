"""The study `lipschitz`: whether softmax attention opens its window as wide as it should.

The functions in its prompts say how wide that is.
"""

from pathlib import Path

from icl_interp.figures.catalogue import ReportFigure
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
from icl_interp.studies.lipschitz.figures import heads, unit
from icl_interp.studies.lipschitz.figures.all import DRAWINGS

FIGURES = {
    "lipschitz_window": ReportFigure(
        unit.window,
        "On the left the mean squared error of windows M = w Σ⁻¹ for this task: a wide window "
        "(small w) averages examples at which the target has other values (bias), a narrow one "
        "averages few of them (noise). The diamond is the best window, in the band the error is "
        "within 1 % of it; the circle is the error with the model's M, at its w. On the right the "
        "model's M for inputs that are scaled to the unit sphere: Lemma 1 asks for one number on "
        "the diagonal and zeros elsewhere.",
    ),
    "lipschitz_directions": ReportFigure(
        unit.directions,
        "On the left how much of the model's M acts in each direction of the inputs, those that "
        "the functions depend on first. On the right the squared error at the query: of the "
        "unchanged model, with attention that is not shown the irrelevant or the relevant "
        "directions, and with equal weights for all examples.",
    ),
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
    figures={**FIGURES, **heads.FIGURES},
    experiments=EXPERIMENTS,
    drawings=DRAWINGS,
    constructions=CONSTRUCTIONS,
    dials=DIALS,
    models=("lipschitz_relu", "lipschitz_low_rank", "lipschitz_relu_linear"),
    folder=Path(__file__).parent,
    exceptions=EXCEPTIONS,
)
