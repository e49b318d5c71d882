"""Figure 6 of Naim & Asher (2025): |x|, by a model trained on cubics."""

import torch

from icl_interp.experiments.base import Experiment, Model
from icl_interp.experiments.setup import Setup
from icl_interp.results import Result
from icl_interp.studies.limits.experiments import settings
from icl_interp.studies.limits.experiments.figure1 import (
    CUBIC,
    SINGLE,
    Shown,
    compare_followed,
    follow,
    states_followed,
)
from icl_interp.studies.limits.experiments.printed import PAPER
from icl_interp.tasks.distributions import Uniform

KINK = {"|x|": Shown(torch.abs, Uniform(-1, 1), -1, 1)}


def run_figure6(setup: Setup) -> dict[str, Result]:
    """|x| on [-1, 1], asked of the same model."""
    return follow(setup, KINK)


FIGURE6_EXPERIMENT = Experiment(
    "limits.figure6",
    "A continuous function with a kink: |x| by a model trained on polynomials of degree 3",
    f"{PAPER}, appendix D, Figure 6",
    (Model(CUBIC),),
    run_figure6,
    states_followed,
    compare_followed,
    sample=SINGLE,
    settings=settings.SETTINGS["figure6"],
)
