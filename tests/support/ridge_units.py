"""Shared by tests of `lipschitz`'s claims on one window: units with a given M, and a bench."""

from functools import cache

import torch
from torch import Tensor

import icl_interp.analyses  # noqa: F401  (registers the claims)
from icl_interp.analyses import registry
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.lab import Lab
from icl_interp.experiments import calibration
from icl_interp.models.transformer import HookedTransformer
from icl_interp.studies.lipschitz.constructions.units import unit_with
from icl_interp.studies.lipschitz.measurements.window_losses import best_window
from icl_interp.tasks import Ellipsoid, RidgeFunction, Sphere, random_directions

N = 40
ROWS = ((2.0, 0.6, 0.0), (0.6, 1.0, -0.4), (0.0, -0.4, 0.5))
RELU = RidgeFunction(link="relu", inputs=Sphere(3), lipschitz=2.0, noise_std=0.8, n_points=N + 1)
TURNED = RidgeFunction(link="relu", inputs=Ellipsoid(ROWS), noise_std=0.4, n_points=N + 1)
B = random_directions(6, 2, seed=1)
FEW = RidgeFunction(link="linear", inputs=Sphere(6), directions=B, noise_std=0.3, n_points=21)


@cache  # not at import: every process that collects the tests would take the seconds
def best() -> float:
    """The best width parameter for RELU."""
    return float(best_window(RELU).window)


def square(*shape: int, seed: int = 0) -> Tensor:
    """A random matrix in float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def unit(matrix: Tensor, task: RidgeFunction = RELU) -> HookedTransformer:
    """The unit of equation (2) with this M."""
    return unit_with(matrix, task.n_points)


def bench(model: HookedTransformer, task: RidgeFunction = RELU, n_units: int = 32) -> Lab:
    """A lab for it."""
    return calibration.lab_for(
        calibration.Case(model.double().eval(), task), n_units=n_units, n_contexts=1
    )[0]


def judge(claim: str, model: HookedTransformer, task: RidgeFunction = RELU) -> Finding:
    """The finding on one claim of the study."""
    case = calibration.Case(model.double().eval(), task)
    lab, known = calibration.lab_for(case, n_units=64, n_contexts=1)
    rule = registry.REGISTRY[f"lipschitz.{claim}"]
    return rule.judge_results(calibration.measure(lab, known, [rule]), known)


def value(finding: Finding) -> float:
    """Its estimate."""
    assert finding.estimate is not None
    return finding.estimate.value
