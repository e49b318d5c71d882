"""The rivals: algorithms that a model may run, each tuned on some prompts before it is compared.

A rival whose parameters nothing fixes gets those with which it is nearest to the model on the
tuning half. So a rival is excluded for what it is, and not for a bad choice of a step size.
"""

from dataclasses import dataclass
from typing import Any

import torch

from icl_interp.baselines.base import INPUTS, Features, Zero, features_of
from icl_interp.baselines.bayes import BayesOverDegrees
from icl_interp.baselines.kernel import KernelRidge
from icl_interp.baselines.local import Averaging, KNearest, NadarayaWatson
from icl_interp.baselines.mixture import BayesMixture, BayesPool, NormalWeights
from icl_interp.baselines.moments import ConjugateGradients, NewtonInverse
from icl_interp.baselines.reference import BestRidge, is_noisy
from icl_interp.baselines.regression import LeastSquares
from icl_interp.baselines.tuned import (
    Constant,
    PlusPlus,
    Start,
    Tune,
    Varying,
    nearest_of,
    online_by_size,
    ridge_by_penalty,
)
from icl_interp.tasks.base import Task
from icl_interp.tasks.distributions import Normal
from icl_interp.tasks.mixture import Mixture
from icl_interp.tasks.regression import LinearRegression

STEPS = (1, 2, 4, 8)  # of descent with one size
ITERATES = (1, 2, 3, 4, 6)  # of Newton's iteration, and steps of conjugate gradients
WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of kernels, in standard deviations of inputs
KERNEL_PENALTIES = (1e-4, 1e-2, 1e-1, 1.0)
# For labels without noise: a posterior needs some.
CERTAIN = (1e-3, 1e-2, 1e-1, 0.5)


@dataclass(frozen=True)
class Rival:
    """An algorithm with parameters that are to be chosen.

    Attributes:
        name: in tables.
        tune: makes the predictor that is nearest to some answers at the queries of prompts.
        tuned: what is chosen, in words; empty where nothing is.
        linear: whether predictions are linear in labels.
    """

    name: str
    tune: Tune
    tuned: str = ""
    linear: bool = True


def rivals(task: Task, n_layers: int | None = None) -> list[Rival]:
    """All rivals of a model on a task.

    Args:
        task: its features are what regressions regress on; the inputs where it has none.
        n_layers: of the model: descent of as many steps is among them; None where there are none.

    >>> from icl_interp.tasks import LinearRegression
    >>> [rival.name for rival in rivals(LinearRegression(n_dims=2, n_points=5), 1)][-2:]
    ['conjugate gradients, 1 step', 'least squares']
    """
    source = task if task.has_features else INPUTS
    one_input = torch.zeros(1, 1, task.dim, dtype=torch.float64)
    n_features = features_of(source, one_input).shape[-1]
    depth = n_layers or 4
    return [
        *_averages(task),
        *_descents(source, n_features, depth),
        *_inverses(source, n_features, depth),
        *_regressions(task, source),
        *_bayes(task),
    ]


def _fixed(predictor: Any, linear: bool = True) -> Rival:
    """A rival without parameters."""
    return Rival(predictor.name, lambda prompts, answers: predictor, linear=linear)


def _averages(task: Task) -> list[Rival]:
    """What averages labels, and what looks at none."""
    scales = [1 / (2 * task.dim * (width * task.inputs.std) ** 2) for width in WIDTHS]
    neighbours = [KNearest(k) for k in (1, 3)]
    smooth = [NadarayaWatson(beta) for beta in scales]
    kernels = []
    for beta in scales:
        kernels += [KernelRidge(beta, penalty) for penalty in KERNEL_PENALTIES]
    return [
        _fixed(Zero()),
        _fixed(Averaging()),
        *map(_fixed, neighbours),
        Rival("kernel average", nearest_of(smooth), "width"),
        Rival("kernel ridge", nearest_of(kernels), "width, penalty"),
    ]


def _descents(source: Features, n_features: int, depth: int) -> list[Rival]:
    # Steps of one size, then of their own sizes, then with a matrix, then what changes inputs too.
    found = []
    for k in sorted({*STEPS, depth}):
        name = f"descent, {_steps(k)}"
        found.append(Rival(name, Constant(source, k, name), "one size"))
    if depth > 1:
        name = f"descent, {_steps(depth)}, own sizes"
        found.append(Rival(name, Varying(source, depth, n_features, name), "a size a step"))
    for shape in ("diagonal", "matrix"):
        for k in sorted({1, depth}):
            name = f"preconditioned descent, {_steps(k)}, {shape}"
            tune = Varying(source, k, n_features, name, shape)
            found.append(Rival(name, tune, f"a {shape}, a size a step"))
    name = f"GD++, {_steps(depth)}"
    found.append(Rival(name, PlusPlus(source, depth, name), "two sizes a step"))
    found.append(Rival("online descent", online_by_size(source), "size, forgetting"))
    return found


def _inverses(source: Features, n_features: int, depth: int) -> list[Rival]:
    found = []
    counts = sorted({*ITERATES, depth})
    for k in counts:
        own = NewtonInverse(source, k)
        found.append(_fixed(own))
        found.append(Rival(f"{own.name}, one start", Start(source, k), "start"))
    for k in counts:
        if k < n_features:
            found.append(_fixed(ConjugateGradients(source, k), linear=False))
    return found


def _regressions(task: Task, source: Features) -> list[Rival]:
    found = [_fixed(LeastSquares(source))]
    if is_noisy(task):
        found.append(_fixed(BestRidge(task)))
    if is_noisy(task) or not task.has_features:
        found.append(Rival("ridge, fitted penalty", ridge_by_penalty(source), "penalty"))
    return found


def _bayes(task: Task) -> list[Rival]:
    """Posterior means under laws of the task: over its pool, over degrees, over a mixture."""
    # Each where the task has such a law.
    found = []
    noise = float(getattr(task, "noise_std", 0.0))
    if task.n_tasks is not None:
        levels = (noise,) if noise else CERTAIN
        pools = [BayesPool(task, level) for level in levels]
        tuned = "" if noise else "noise"
        found.append(Rival(BayesPool.name, nearest_of(pools), tuned, linear=False))
    degrees = getattr(task, "degrees", ())
    if len(degrees) > 1:
        law: Any = task
        found.append(_fixed(BayesOverDegrees(degrees, law.coefficients), linear=False))
    if isinstance(task, Mixture):
        laws = normal_laws(task)
        if laws:
            mixture = BayesMixture(laws, task.shares)
            found.append(_fixed(mixture, linear=False))
    return found


def normal_laws(task: Mixture) -> list[NormalWeights]:
    """The laws of a mixture of regressions with independent weights; nothing if it is another."""
    if not task.has_normal_weights:
        return []
    laws = []
    for one in task.tasks:
        assert isinstance(one, LinearRegression)
        assert isinstance(one.weights, Normal)
        std = one.weights.std
        noise = one.noise_std or CERTAIN[0] * std
        laws.append(NormalWeights(one, noise, one.weights.mean, std))
    return laws


def _steps(n: int) -> str:
    return f"{n} step{'s' * (n != 1)}"
