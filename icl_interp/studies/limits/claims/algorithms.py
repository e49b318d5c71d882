"""The claims of `limits` that compare with classical algorithms: better without the degree; like none of them."""

import functools
import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.lab import Lab, is_large
from icl_interp.analyses.measurement import Results, measurement
from icl_interp.baselines.base import Predictor, predictions
from icl_interp.baselines.named import classical
from icl_interp.baselines.regression import MaximumDegree
from icl_interp.checkpoints.companions import Role
from icl_interp.prompts import Prompts, as_numbers
from icl_interp.provenance import generator
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import make_array
from icl_interp.studies.limits.measurements import classes
from icl_interp.studies.limits.measurements.classes import (
    needs_polynomials,
    per_function,
    polynomial_in,
    polynomial_task,
    squared_errors,
)
from icl_interp.tasks.functions import Polynomial

LARGEST_DEGREE = "least squares, largest degree"  # knows what the model was trained on, but not this function's degree
CAUTIOUS = "least squares, twice that degree"
BAYES = "Bayes over degrees"
ARMS = ("in distribution", "functions x 3", "query at the edge")
SCALED = 3.0
N_CONTEXTS = 2  # contexts of each function: algorithms are read at the query only
RESEMBLES = 2.0  # times the ceiling up to which a distance is what resampling makes of one and the same algorithm
FLOOR = 1e-9  # of the truth's mean square: float32 leaves distances of this size between equal predictions
SEED, SELF, ERROR, SIZE = "another seed", "itself, context reshuffled", "truth", "size of the truth"


# ---- better without knowing the degree ------------------------------------------------------------------------------


@measurement("algorithms/unknown degree")
def unknown_degree(lab: Lab) -> DataArray:
    """Squared error on each degree trained on of algorithms that are not told which degree it is.

    The prompts and scored points are those of `classes/errors`. Least squares has the features of the largest degree
    trained on, or of twice that for somebody who does not know it either (of least norm while points are too few); the
    Bayes predictor weighs the degrees trained on by how well they explain the points.
    """
    task = polynomial_task(lab)
    algorithms: dict[str, Predictor] = {
        LARGEST_DEGREE: MaximumDegree(task.max_degree),
        CAUTIOUS: MaximumDegree(2 * task.max_degree),
        BAYES: classical(task)[BAYES],
    }
    degrees = [d for d in sorted(set(task.degrees)) if 0 < d < task.n_points - 1]
    values = np.empty((len(algorithms), len(degrees), lab.n_units))
    for column, degree in enumerate(degrees):
        prompts = classes.polynomials(lab, degree)
        for row, algorithm in enumerate(algorithms.values()):
            square = squared_errors(algorithm, prompts)
            values[row, column] = per_function(square[:, degree + 1 :], lab.n_units)
    axes = {
        "predictor": tuple(algorithms),
        "class": tuple(f"degree {d}" for d in degrees),
        "unit": tuple(range(lab.n_units)),
    }
    return make_array(values, axes, note="points from the class's own n + 2nd on; float64")


def _over_classes(result: DataArray, predictor: str, names: tuple[str, ...], **point: str) -> np.ndarray:
    """Mean error over classes of each function: a draw of the mixture has each degree equally often."""
    return np.mean([result.sel({"predictor": predictor, "class": name, **point}).values for name in names], axis=0)


def _log_ratio(a: np.ndarray, b: np.ndarray) -> Interval:
    tiny = np.finfo(float).tiny
    return bootstrap(lambda x, y: np.log10(np.maximum(x, tiny) / np.maximum(y, tiny)), a, b)


def better_than_unknown_degree(results: Results, facts: Facts) -> Evidence:
    """Is the model's error below that of least squares which has to allow for the largest degree?"""
    rivals, model = results[unknown_degree], results[classes.errors]
    names = tuple(rivals.indexes["class"])
    own = _over_classes(model, "model", names, points="own")
    against = {who: _over_classes(rivals, who, names) for who in rivals.indexes["predictor"]}
    ratio = {who: _log_ratio(own, error) for who, error in against.items()}
    twin = _log_ratio(
        _over_classes(results.twin[classes.errors], "model", names, points="own"), against[LARGEST_DEGREE]
    )
    errors = ", ".join(f"{who} {error.mean():.2g}" for who, error in against.items())
    listed = ", ".join(name.removeprefix("degree ") for name in names)
    says = (
        f"over degrees {listed}, from each one's n + 2nd point on, the model's error is {own.mean():.2g}; {errors}. "
        f"It is {10 ** ratio[LARGEST_DEGREE].value:.2g} times that of least squares with the largest degree, and "
        f"{10 ** ratio[BAYES].value:.2g} times that of Bayes over the degrees. Least squares that is told the degree "
        "makes none"
    )
    details = tuple(
        {
            "class": name,
            "model": float(model.sel({"predictor": "model", "class": name, "points": "own"}).values.mean()),
            **{who: float(rivals.sel({"predictor": who, "class": name}).values.mean()) for who in against},
        }
        for name in names
    )
    name = "error / least squares with the largest degree"
    return Evidence(
        {"ratio": Estimate.of(name, ratio[LARGEST_DEGREE], "log10")},
        says + ".",
        scope="these weights, this task, functions and inputs in distribution, no noise",
        twin={"ratio": Estimate.of(name, twin, "log10")},
        details=details,
    )


def _knows_the_degree(facts: Facts) -> str | None:
    reason = needs_polynomials(facts)
    if reason:
        return reason
    degrees = sorted({d for d in polynomial_in(facts).degrees if d > 0})
    if len(degrees) > 1:
        return None
    which = f"degree {degrees[0]} only" if degrees else "constants only"
    return f"the model was trained on {which}: it has been told the degree"


# ---- like no classical algorithm ------------------------------------------------------------------------------------


def arms(task: Polynomial, seed: int, n_functions: int, n_contexts: int = N_CONTEXTS) -> dict[str, Prompts]:
    """The same prompts in distribution, with functions scaled by 3, and with the query at an end of the interval."""
    inside = task.sample(n_functions, generator(seed, "algorithms/prompts"), n_contexts=n_contexts, dtype=torch.float64)
    xs = inside.xs.clone()
    ends = torch.tensor(task.inputs.interval, dtype=torch.float64)
    xs[:, -1, 0] = ends[torch.arange(len(inside)) % 2]
    at_edge = Prompts(xs, task.targets(inside.parameters, xs), inside.parameters, inside.function)
    parameters = SCALED * inside.parameters
    scaled = Prompts(inside.xs, task.targets(parameters, inside.xs), parameters, inside.function)
    return dict(zip(ARMS, (inside, scaled, at_edge), strict=True))


@functools.lru_cache(maxsize=4)  # a model, its twin and its siblings meet the same prompts
def answers(
    task: Polynomial, seed: int, n_functions: int, n_contexts: int = N_CONTEXTS
) -> dict[str, dict[str, Float[Tensor, " batch"]]]:
    """What every classical algorithm says at the query, by arm and name."""
    algorithms = classical(task)
    return {
        arm: {name: at_query(algorithm, prompts) for name, algorithm in algorithms.items()}
        for arm, prompts in arms(task, seed, n_functions, n_contexts).items()
    }


def at_query(predictor: Predictor, prompts: Prompts) -> Float[Tensor, " batch"]:
    """A prediction for the query of each prompt."""
    return as_numbers(predictions(predictor, prompts))[:, -1]


def reshuffled(prompts: Prompts, seed: int) -> Prompts:
    """The same examples in another order: all one to a classical algorithm."""
    return prompts.reordered(generator(seed, "algorithms/order"))


@measurement("algorithms/distance")
def distance(lab: Lab) -> DataArray:
    """Squared distance at the query between the model's predictions and others', mean over contexts of each function.

    Others: classical algorithms; the truth; and for the ceiling the model itself with the context in another order, and
    another seed of it where there is one. "size of the truth" is its mean square, the unit of all of them. A large
    model meets one context of each function.
    """
    task, n_contexts = polynomial_task(lab), 1 if is_large(lab.model) else N_CONTEXTS
    answered = answers(task, lab.seed, lab.n_units, n_contexts)
    twin = lab.companions.get(Role(SEED))
    others = [SIZE, ERROR, SELF, *([SEED] if twin else []), *answered[ARMS[0]]]
    values = np.empty((len(ARMS), len(others), lab.n_units))
    for row, (arm, prompts) in enumerate(arms(task, lab.seed, lab.n_units, n_contexts).items()):
        mine, truth = at_query(lab, prompts), as_numbers(prompts.ys)[:, -1]
        predictions = {ERROR: truth, SELF: at_query(lab, reshuffled(prompts, lab.seed)), **answered[arm]}
        predictions |= {SEED: at_query(twin, prompts)} if twin else {}
        for column, name in enumerate(others):
            square = truth.square() if name == SIZE else (mine - predictions[name]).square()
            values[row, column] = square.view(lab.n_units, -1).mean(-1).numpy()
    axes = {"arm": ARMS, "to": tuple(others), "unit": tuple(range(lab.n_units))}
    return make_array(
        values,
        axes,
        note=f"at the query; {n_contexts} context{'s' * (n_contexts > 1)} a function; the model in float32",
    )


def ratios(result: DataArray, mean: np.ndarray) -> np.ndarray:
    """Distance to each algorithm over the ceiling, log10: (draw, arm, algorithm).

    The ceiling of an arm is how far the model is from itself there: with the context in another order, or trained from
    another seed (where there is one), and no less than its in-distribution error. All are relative to the truth's mean
    square in the arm.

    Args:
        result: squared distances as they are stored; its coordinates name arms and algorithms.
        mean: of the stored values over functions, `(draw, arm, to)`.
    """
    others = list(result.indexes["to"])
    relative = mean / np.maximum(mean[..., [others.index(SIZE)]], np.finfo(float).tiny)
    resampled = [others.index(name) for name in (SELF, SEED) if name in others]
    inside = relative[..., :1, others.index(ERROR)]  # that of the first arm, in distribution
    ceiling = np.maximum(relative[..., resampled].max(-1), inside)
    first = max(resampled) + 1
    return np.log10((relative[..., first:] + FLOOR) / (ceiling[..., None] + FLOOR))


def _per_function(result: DataArray) -> np.ndarray:
    return np.moveaxis(np.asarray(result.values), -1, 0)


def nearest(result: DataArray) -> Estimate:
    """The smallest over algorithms of the largest over arms of distance / ceiling, log10."""
    interval = bootstrap(lambda mean: ratios(result, mean).max(-2).min(-1), _per_function(result))
    return Estimate.of("distance from the nearest algorithm / ceiling", interval, "log10")


def no_classical_algorithm(results: Results, facts: Facts) -> Evidence:
    """Is there a classical algorithm that the model follows wherever the two are put to the test?"""
    result = results[distance]
    found = nearest(result)
    mean = result.values.mean(-1)
    others = list(result.indexes["to"])
    relative = mean / np.maximum(mean[:, [others.index(SIZE)]], np.finfo(float).tiny)
    over = ratios(result, mean[None])[0]
    names = others[len(others) - over.shape[1] :]
    first = len(others) - len(names)
    rows, by_arm = [], []
    for a, arm in enumerate(ARMS):
        for i, name in enumerate(names):
            rows.append(
                {
                    "arm": arm,
                    "algorithm": name,
                    "similarity": float(1 - relative[a, first + i]),
                    "distance / ceiling": float(10 ** over[a, i]),
                }
            )
        rows += [
            {"arm": arm, "algorithm": name, "similarity": float(1 - relative[a, others.index(name)])}
            for name in (ERROR, SELF, *([SEED] if SEED in others else []))
        ]
        best = int(np.argmin(over[a]))
        by_arm.append(f"{arm} {names[best]} ({10 ** over[a, best]:.2g})")
    closest = int(np.argmin(over.max(0)))
    where = ARMS[int(np.argmax(over[:, closest]))]
    says = (
        f"nearest over all arms is {names[closest]}, at its furthest {10**found.value:.2g} times the ceiling ({where}, "
        f"similarity {1 - relative[ARMS.index(where), first + closest]:.3f}); "
        f"nearest by arm: {', '.join(by_arm)}. The ceiling is the model's distance from itself with the context in "
        f"another order{' or from another seed' if SEED in others else ''}, or its in-distribution error"
    )
    within = [name for name, worst in zip(names, over.max(0), strict=True) if worst <= math.log10(RESEMBLES)]
    if within:
        # Several at once mean that the model is too unlike itself for this to tell algorithms apart.
        says += f". Within {RESEMBLES:g} times of it in every arm: {', '.join(within)}"
    return Evidence(
        {"distance": found},
        says + ".",
        scope="these weights, this task, predictions at the last query: in distribution, functions x 3, query at the "
        "edge",
        twin={"distance": nearest(results.twin[distance])},
        details=tuple(rows),
    )


BETTER_THAN_UNKNOWN_DEGREE_CLAIM = Claim(
    id="limits.better_than_unknown_degree",
    question="algorithm",
    short="The model beats algorithms that must know the function's degree.",
    quote=Quote(
        "In this sense, our models did better than optimal algorithms like LS or polynomial regression, "
        "which require knowing a function’s degree.",
        "Naim & Asher (2025), section 5, first paragraph",
        "The paper compares what each method must be told, not its errors. We compare the model's error "
        "with that of least squares that uses the largest degree trained on, because it does not know the"
        " degree.",
    ),
    kind="learning",
    statement="The model does better than optimal algorithms would that have to know a function's degree",
    source="Naim & Asher (2025), section 5",
    criterion=Criterion(
        "error over that of least squares with features of the largest degree trained on, log10, over each "
        "degree's own points n + 2, n + 3, ...: below 0 / above 0",
        # As good as is not better: an interval that is 0 alone lies in both regions, and so decides nothing.
        (Condition("ratio", (-INF, 0.0), (0.0, INF)),),
    ),
    measurements=(classes.errors, unknown_degree),
    twin=(classes.errors,),
    aspects=("kind of task",),
    evidence=better_than_unknown_degree,
    excluded=_knows_the_degree,
    figures=("classes",),
)

NO_CLASSICAL_ALGORITHM_CLAIM = Claim(
    id="limits.no_classical_algorithm",
    question="algorithm",
    short="The model's predictions resemble those of no classical learning algorithm.",
    quote=Quote(
        "It does not resemble the application of any classical learning algorithm such as least squares, "
        "ridge regression, or interpolation.",
        "Naim & Asher (2025), section 6, before Proposition 3",
        "The paper argues from the form of the model's formula and compares no predictions. We compare "
        "the model's predictions with those of classical algorithms in distribution, for functions scaled"
        " by 3, and at the edge of the input interval.",
    ),
    kind="learning",  # argued from the design, but a model that failed at its task would be like no algorithm too
    statement="Predictions resemble those of no classical learning algorithm",
    source="Naim & Asher (2025), section 6",
    criterion=Criterion(
        "for each algorithm the squared distance of predictions over the ceiling, in whichever arm it is largest; "
        f"of these the smallest: a factor > {RESEMBLES:g} / < {RESEMBLES:g}. The ceiling is the model's distance "
        "from itself: context reshuffled, another seed, or its in-distribution error, whichever is largest",
        (Condition("distance", (math.log10(RESEMBLES), INF), (-INF, math.log10(RESEMBLES))),),
    ),
    measurements=(distance,),
    twin=(distance,),
    aspects=("kind of task",),
    evidence=no_classical_algorithm,
    excluded=needs_polynomials,
    figures=("classes",),
)
