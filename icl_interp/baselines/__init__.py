"""Predictors that see the prompt only: what a model in context is compared with.

Each has the interface of a checkpoint, `predict(prompts) -> (batch, point, target)`: the prediction
of every point from the points before it, of all prefixes at once, in float64. Before the first
point all guess 0, except for the Bayes predictor, which guesses the mean of its prior, and for
`LawMean` and `MeanValue`, which look at no point.
"""

from icl_interp.baselines.base import Features, Inputs, Law, Powers, Predictor, Signs, Zero
from icl_interp.baselines.bayes import BayesOverDegrees
from icl_interp.baselines.kernel import KernelRidge
from icl_interp.baselines.law import LawMean, MeanValue
from icl_interp.baselines.local import Averaging, KNearest, NadarayaWatson
from icl_interp.baselines.mixture import BayesMixture, BayesPool, NormalWeights, PoolLaw
from icl_interp.baselines.moments import (
    ConjugateGradients,
    Descent,
    GDPlusPlus,
    NewtonInverse,
    OnlineDescent,
)
from icl_interp.baselines.named import classical
from icl_interp.baselines.network import TwoLayerNetwork
from icl_interp.baselines.reference import BestRidge
from icl_interp.baselines.regression import (
    AveragingEstimator,
    GradientDescent,
    LeastSquares,
    MaximumDegree,
    Ridge,
)
from icl_interp.baselines.scikit import GradientBoosting, GreedyTree, Lasso
from icl_interp.baselines.uniform import BayesUniformPrior

__all__ = [
    "Averaging",
    "AveragingEstimator",
    "BayesMixture",
    "BayesOverDegrees",
    "BayesPool",
    "BayesUniformPrior",
    "BestRidge",
    "ConjugateGradients",
    "Descent",
    "Features",
    "GDPlusPlus",
    "GradientBoosting",
    "GradientDescent",
    "GreedyTree",
    "Inputs",
    "KNearest",
    "KernelRidge",
    "Lasso",
    "Law",
    "LawMean",
    "LeastSquares",
    "MaximumDegree",
    "MeanValue",
    "NadarayaWatson",
    "NewtonInverse",
    "NormalWeights",
    "OnlineDescent",
    "PoolLaw",
    "Powers",
    "Predictor",
    "Ridge",
    "Signs",
    "TwoLayerNetwork",
    "Zero",
    "classical",
]
