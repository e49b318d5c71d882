"""The claim of `limits` that models trained on polynomials follow continuous functions: exp, sin, ln(1+x) and |x|."""

import functools

import numpy as np
import torch
from xarray import DataArray

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Results, measurement
from icl_interp.baselines.base import Predictor
from icl_interp.baselines.regression import LeastSquares
from icl_interp.provenance import generator
from icl_interp.resampling import bootstrap
from icl_interp.results import make_array
from icl_interp.studies.limits.measurements.classes import (
    needs_polynomials,
    per_unit,
    polynomial_in,
    polynomial_task,
    squared_errors,
)
from icl_interp.tasks.distributions import Uniform
from icl_interp.tasks.functions import CONTINUOUS, Continuous, FunctionName

LOW = 0.1  # share of a function's variance left unexplained up to which it is followed: R2 > 0.9
HIGH = 0.2  # and from which it is not
DOMAINS: dict[FunctionName, tuple[float, float]] = {
    "exp": (0.0, 1.0),
    "sin": (0.0, 1.0),
    "log1p": (0.0, 1.0),
    "abs": (-1.0, 1.0),
}  # Figures 1 and 6
PRINTED = {"exp": "exp", "sin": "sin", "log1p": "ln(1+x)", "abs": "|x|"}


@measurement("classes/continuous")
def continuous(lab: Lab) -> DataArray:
    """Squared error on exp, sin and ln(1+x) over [0, 1] and |x| over [-1, 1], where the model's inputs reach as far.

    The function is the same in every prompt, so units are groups of contexts. Beside the model stands least squares
    with polynomials of the largest degree it was trained on.
    """
    task, n_contexts = polynomial_task(lab), max(1, lab.unit_size // 8)
    names = within(task.inputs.interval)
    predictors: dict[str, Predictor] = {"model": lab, "least squares": LeastSquares(task)}
    values = np.empty((len(predictors), len(names), lab.n_units))
    for column, name in enumerate(names):
        law = Continuous(function=name, inputs=Uniform(*DOMAINS[name]), n_points=task.n_points)
        prompts = law.sample(
            lab.n_units, generator(lab.seed, f"classes/{name}"), n_contexts=n_contexts, dtype=torch.float64
        )
        for row, predictor in enumerate(predictors.values()):
            square = squared_errors(predictor, prompts)[:, min(task.n_determining, task.n_points - 1) :]
            values[row, column] = per_unit(square, lab.n_units)
    axes = {"predictor": tuple(predictors), "function": names, "group": tuple(range(lab.n_units))}
    return make_array(values, axes, note=f"{n_contexts} contexts a group; the same function in every prompt; float32")


def within(interval: tuple[float, float]) -> tuple[FunctionName, ...]:
    """The continuous functions whose domain lies in an interval."""
    return tuple(name for name, (low, high) in DOMAINS.items() if interval[0] <= low and high <= interval[1])


@functools.cache
def variance_and_floor(name: FunctionName, degree: int) -> tuple[float, float]:
    """Variance of a continuous function over its domain, and the share of it that the best polynomial leaves.

    The best polynomial of a degree in mean square over the domain; Gauss-Legendre quadrature, each half of the domain
    by itself because |x| has a kink in the middle.

    >>> variance, floor = variance_and_floor("abs", 1)  # of |x| on [-1, 1] a line explains nothing
    >>> round(variance * 12, 9), round(floor, 9)
    (1.0, 1.0)
    """
    low, high = DOMAINS[name]
    nodes, weights = np.polynomial.legendre.leggauss(32)
    u = np.concatenate([(nodes - 1) / 2, (nodes + 1) / 2])  # over [-1, 1]
    weight = np.concatenate([weights, weights]) / 4
    f = CONTINUOUS[name](torch.from_numpy((low + high) / 2 + (high - low) / 2 * u)).numpy()
    basis = np.polynomial.legendre.legvander(u, degree) * np.sqrt(2 * np.arange(degree + 1) + 1)  # orthonormal
    coefficients = (weight * f) @ basis
    variance = float(weight @ (f - coefficients[0]) ** 2)
    return variance, float(weight @ (f - basis @ coefficients) ** 2) / variance


def shares(facts: Facts, result: DataArray, predictor: str) -> tuple[list[str], np.ndarray, dict[str, float]]:
    """Functions, the share of their variance that a predictor leaves unexplained (group, function), and the floors."""
    degree, names = polynomial_in(facts).max_degree, list(result.indexes["function"])
    constants = {name: variance_and_floor(name, degree) for name in names}
    each = [result.sel(predictor=predictor, function=name).values / constants[name][0] for name in names]
    return names, np.stack(each, -1), {name: floor for name, (_, floor) in constants.items()}


def _worst_share(left: np.ndarray, keep: list[int]) -> Estimate:
    worst = bootstrap(lambda mean: mean[..., keep].max(-1), left)
    return Estimate.of("share of the variance left unexplained, worst function", worst, "share")


def continuous_functions(results: Results, facts: Facts) -> Evidence:
    """Does the model follow the continuous functions that polynomials of its degree approximate?"""
    result = results[continuous]
    names, left, floors = shares(facts, result, "model")
    _, best, _ = shares(facts, result, "least squares")
    keep = [i for i, name in enumerate(names) if floors[name] <= LOW]
    quantities = {"functions": Estimate.exactly("functions that polynomials of its degree approximate", len(keep))}
    if not keep:
        return Evidence(quantities, "")
    quantities["worst"] = _worst_share(left, keep)
    rows = []
    for i, name in enumerate(names):
        each = bootstrap(lambda mean: mean, left[:, i])
        rows.append(
            {
                "class": PRINTED[name],
                "predictor": "model",
                "unexplained": each.value,
                "low": each.low,
                "high": each.high,
                "least squares of its degree": float(best[:, i].mean()),
                "best polynomial of its degree": floors[name],
                "judged": i in keep,
            }
        )
    degree = polynomial_in(facts).max_degree
    worst = rows[max(keep, key=lambda i: left[:, i].mean())]
    first = answer(
        CRITERION,
        quantities,
        "The model follows all continuous functions that polynomials of its degree approximate.",
        "The model does not follow all continuous functions that polynomials of its degree approximate.",
        "the model follows the continuous functions that polynomials of its degree approximate",
    )
    says = (
        f"{first} Of the worst, {worst['class']}, it leaves {worst['unexplained']:.2g} of the variance unexplained "
        f"({bound(CRITERION, quantities, 'worst', f'at most {LOW:g}', f'more than {HIGH:g}')})."
    )
    caveat = f"Least squares of degree {degree} leaves {worst['least squares of its degree']:.2g}."
    other = [PRINTED[name] for i, name in enumerate(names) if i not in keep]
    if other:
        caveat = f"Not judged: {' and '.join(other)}, because no polynomial of degree {degree} comes near."
    twin_names, twin_left, _ = shares(facts, results.twin[continuous], "model")
    assert twin_names == names
    return Evidence(
        quantities,
        says,
        scope="these weights, the functions themselves (amplitude 1)",
        twin={"worst": _worst_share(twin_left, keep)},
        details=tuple(rows),
        caveat=caveat,
    )


def _out_of_reach(facts: Facts) -> str | None:
    reason = needs_polynomials(facts)
    if reason:
        return reason
    names = within(polynomial_in(facts).inputs.interval)
    degree = polynomial_in(facts).max_degree
    if any(variance_and_floor(name, degree)[1] <= LOW for name in names):
        return None
    if not names:
        return "The claim is about functions on [0, 1]; this model's inputs do not cover that interval."
    return (
        "The claim is about functions that polynomials of the model's degree approximate; those of degree "
        f"{degree} approximate none of the functions."
    )


CRITERION = Criterion(
    "share of a function's variance left unexplained, the worst of exp, sin, ln(1+x) on [0, 1] and |x| on [-1, 1] that "
    f"polynomials of the largest trained degree approximate (to {LOW}): at most {LOW} / more than {HIGH}",
    (Condition("worst", (-INF, LOW), (HIGH, INF), "log"),),
    (Precondition("functions", (1, INF), "No function is approximated by polynomials of the model's degree."),),
)

CONTINUOUS_FUNCTIONS_CLAIM = Claim(
    id="limits.continuous_functions",
    question="functions",
    short="Models trained on polynomials also follow other continuous functions.",
    quote=Quote(
        "Despite being trained only on polynomials of degree ≤ n ... our models achieve low approximation"
        " error on smooth continuous functions not seen during training, including ... "
        "(e.g.,exp(x),sin(x),log(1+x)) as well as non-smooth functions such as |x| ...",
        "Naim & Asher (2025), section 4.2, after Proposition 2 (Figures 1 and 6)",
        "The paper shows plots. We ask that at most a tenth of each function's variance be left "
        "unexplained, and leave out functions that no polynomial of the trained degree comes near.",
    ),
    kind="learning",
    statement="Trained on polynomials, the model follows continuous functions that polynomials approximate",
    source="Naim & Asher (2025), section 4.2, Proposition 2 and Figures 1 and 6",
    criterion=CRITERION,
    measurements=(continuous,),
    twin=(continuous,),
    aspects=("kind of task",),
    evidence=continuous_functions,
    excluded=_out_of_reach,
    figures=("classes",),
)
