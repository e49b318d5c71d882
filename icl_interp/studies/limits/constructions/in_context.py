"""Predictors of known truth for ICL1 and ICL2, on lines."""

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.baselines.regression import LeastSquares
from icl_interp.experiments.calibration import NO, YES, Case, Construction, Predictor, between
from icl_interp.prompts import Prompts
from icl_interp.studies.limits.constructions.functions import case_of, lines, saturating
from icl_interp.tasks.functions import Polynomial

ICL1 = "limits.icl1"
NO_ICL2 = "limits.no_icl2"


def shrunk(algorithm: Predictor, share: float) -> Predictor:
    """1 - share times what an algorithm says."""
    return lambda prompts: (1 - share) * algorithm(prompts)


def tossed_by_the_context(algorithm: Predictor, offset: float) -> Predictor:
    """An algorithm to whose last prediction half of the contexts add an offset.

    Which half, their inputs decide: the sine of the largest one after 1e4 periods is as good as a
    coin.
    """

    def predict(prompts: Prompts) -> Float[Tensor, "batch point target"]:
        said = algorithm(prompts).clone()
        heads = (1e4 * prompts.xs[:, :-1].double().amax(1)).sin() > 0
        said[:, -1] += offset * heads
        return said

    return predict


def _spread(task: Polynomial) -> float:
    """Standard deviation of a line's value: c / sqrt(3) times the root of 1 + 1/3."""
    return task.coefficients.std * (4 / 3) ** 0.5


def _shrunk(g: torch.Generator) -> Case:
    """The error is a share of the value, under every law and for every context."""
    task = lines(g)
    return case_of(g, task, shrunk(LeastSquares(task).predict, between(g, 0.1, 0.25)))


def _tossed(g: torch.Generator) -> Case:
    """Errors are 0 or the offset; their mean square is at most 0.073 times that of the values."""
    task = lines(g)
    offset = between(g, 0.33, 0.38) * _spread(task)
    return case_of(g, task, tossed_by_the_context(LeastSquares(task).predict, offset))


def _ending(g: torch.Generator) -> Case:
    """Predictions end at 1.5 c, where few lines of coefficients up to c get.

    Of lines of coefficients up to 10 c it misses two thirds of the mean square.
    """
    task = lines(g)
    most = 1.5 * task.coefficients.interval[1]
    return case_of(g, task, saturating(LeastSquares(task), most))


CONSTRUCTIONS: tuple[Construction, ...] = (
    Construction(
        "least squares, shrunk under every law",
        "the error is s |g(x)| for any context, and s^2 of the mean square under any law, with s "
        "at most 0.25",
        _shrunk,
        {ICL1: YES, NO_ICL2: NO},
    ),
    Construction(
        "least squares with an offset that the context tosses",
        "the error is 0 or one offset, and nothing but the context says which",
        _tossed,
        {ICL1: NO},
    ),
    Construction(
        "least squares with two ends",
        "exact where the values stay within the ends, whatever the context; with functions ten "
        "times as large most do not",
        _ending,
        {ICL1: YES, NO_ICL2: YES},
    ),
)
