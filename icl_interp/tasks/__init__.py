"""Laws of functions to learn in context: each gives prompts of points (x, f(x))."""

from icl_interp.tasks.autoregressive import AutoregressiveProcess, complex_states
from icl_interp.tasks.base import Task
from icl_interp.tasks.distributions import Distribution, Normal, Uniform
from icl_interp.tasks.functions import Continuous, Polynomial
from icl_interp.tasks.garg import (
    DecisionTree,
    ReLUNetwork,
    SparseLinearRegression,
    skewed_covariance,
)
from icl_interp.tasks.mixture import Mixture
from icl_interp.tasks.registry import register
from icl_interp.tasks.regression import Exponential, LinearRegression, LogNormal
from icl_interp.tasks.rescaled import Rescaled
from icl_interp.tasks.ridge import RidgeFunction, random_directions
from icl_interp.tasks.shifts import SHIFTS, Arranged, shifted
from icl_interp.tasks.vectors import Ellipsoid, Sphere

__all__ = [
    "SHIFTS",
    "Arranged",
    "AutoregressiveProcess",
    "Continuous",
    "DecisionTree",
    "Distribution",
    "Ellipsoid",
    "Exponential",
    "LinearRegression",
    "LogNormal",
    "Mixture",
    "Normal",
    "Polynomial",
    "ReLUNetwork",
    "Rescaled",
    "RidgeFunction",
    "SparseLinearRegression",
    "Sphere",
    "Task",
    "Uniform",
    "complex_states",
    "random_directions",
    "register",
    "shifted",
    "skewed_covariance",
]
