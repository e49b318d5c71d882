"""The claim of `lipschitz` on a kind of training: how the window follows L and the noise.

The window narrows as L grows, and widens as the noise grows.

Every seed has a run at each of four L and three noises, and gives three numbers. Slopes of log w on
log L and on log sigma over its twelve runs, each over the slope of log w* on the same grid: 1 is as
in theory, 0 no adaptation. And the root mean square of log(w / w*), as a factor. Seeds are
independent, so intervals are Student's t over seeds.

The runs come with the package, so the claim is decided by them: the model at hand has to be one of
that kind, trained by their recipe, and its own window has to be the best one, which is what the
claim on the optimal window asks.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from pandas import DataFrame

from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import (
    Condition,
    Criterion,
    Estimate,
    Found,
    Precondition,
    at_least,
    at_most,
)
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.tie import TIED
from icl_interp.resampling import N_TAILS, Interval
from icl_interp.results import rows_in
from icl_interp.studies.lipschitz.claims.window import (
    CLOSE,
    IS_KERNEL,
    LEARNED_ENOUGH,
    OFF,
    factor_of,
    gates,
    never_asked,
)
from icl_interp.studies.lipschitz.measurements.prediction import tied_window
from icl_interp.studies.lipschitz.measurements.unit import kernel, scores, scores_by_function
from icl_interp.studies.lipschitz.measurements.window_family import (
    THIS,
    family,
    kind_of_training,
    needs_family,
)
from icl_interp.studies.lipschitz.measurements.window_losses import optimum

ADAPTS = 0.8  # of theory's slope
FIXED = 0.5
NEAR = 1.25  # factor between w and w*, root mean square over the grid
FAR = 1.5
SEEDS = 4  # that have a run in every cell
SMALLEST = 1e-3  # windows below this, or pointing away from the query, count as this
UNKNOWN = Interval(math.nan, math.nan, math.nan)

WITH_L = Condition(
    "L",
    "slope of the window with the Lipschitz constant, over that of theory",
    at_least(ADAPTS),
    at_most(FIXED),
)
WITH_NOISE = Condition(
    "noise",
    "slope of the window with the label noise, over that of theory",
    at_least(ADAPTS),
    at_most(FIXED),
)
FACTOR = Condition(
    "factor",
    "factor between the learned and the best windows, root mean square over the runs",
    at_most(NEAR, least=1.0),
    at_least(FAR),
    scale="log",
)
OWN = Condition(
    "own",
    "factor between this model's window and the best one",
    at_most(CLOSE, least=1.0),
    at_least(OFF),
    scale="log",
    denied="This model's window is not the best one for its Lipschitz constant and label noise.",
)
OF_THIS_KIND = Precondition(
    "kind",
    (0, 0),
    "The runs that could decide this were trained otherwise: {value:.0f} settings of this "
    "model's run differ.",
)
ENOUGH_SEEDS = Precondition(
    "seeds",
    at_least(SEEDS),
    f"Only {{value:.0f}} seeds of this kind have a run at every L and noise ({SEEDS} needed).",
)
CRITERION = Criterion(
    (WITH_L, WITH_NOISE, FACTOR, OWN),
    (OF_THIS_KIND, ENOUGH_SEEDS, LEARNED_ENOUGH, IS_KERNEL, *TIED),
    terms="Slopes are of log w on log L and on log sigma, over runs of this kind. The best window "
    "w* of this model is any whose loss is within 1 % of the least, as in "
    "`lipschitz.optimal_window`.",
)

Grid = Float[np.ndarray, "seed noise lipschitz"]


def grids(table: DataFrame) -> tuple[Grid, Grid, np.ndarray, np.ndarray]:
    """log w and log w* of the seeds with a run in every cell, the noises and the L."""
    all_noises: set[float] = set()
    all_lipschitz: set[float] = set()
    by_seed: dict[Any, dict[tuple[float, float], tuple[float, float]]] = {}
    for row in rows_in(table):
        if row["run"] == THIS:
            continue
        noise = float(row["noise"])
        size = float(row["L"])
        seed = row["seed"]
        all_noises.add(noise)
        all_lipschitz.add(size)
        cells = by_seed.setdefault(seed, {})
        cells[noise, size] = (row["w"], row["best"])
    noises = np.array(sorted(all_noises))
    lipschitz = np.array(sorted(all_lipschitz))

    # Seeds with a run in every cell, by noise and L.
    grid = list(itertools.product(noises, lipschitz))
    found = []
    for seed in sorted(by_seed):
        cells = by_seed[seed]
        if len(cells) == len(grid):
            found.append([cells[cell] for cell in grid])
    shape = (len(found), len(noises), len(lipschitz), 2)
    windows = np.reshape(found, shape)
    values = np.log(np.maximum(windows, SMALLEST))
    return values[..., 0], values[..., 1], noises, lipschitz


def slope(
    log_x: Float[np.ndarray, " point"], log_y: Float[np.ndarray, "*batch point"]
) -> Float[np.ndarray, "*batch"]:
    """Least-squares slope along the last axis."""
    about = log_x - log_x.mean()
    return (log_y * about).sum(-1) / (about**2).sum()


def numbers(table: DataFrame) -> dict[str, Float[np.ndarray, " seed"]]:
    """What each seed gives: its slopes over theory's, and the root mean square factor."""
    own, best, noises, lipschitz = grids(table)
    if not len(own):
        return dict.fromkeys(("L", "noise", "factor"), np.zeros(0))

    def along_l(values: Grid) -> Float[np.ndarray, " seed"]:
        return slope(np.log(lipschitz), values).mean(1)

    def along_noise(values: Grid) -> Float[np.ndarray, " seed"]:
        return slope(np.log(noises), values.transpose(0, 2, 1)).mean(1)

    squares = (own - best) ** 2
    return {
        "L": along_l(own) / along_l(best),
        "noise": along_noise(own) / along_noise(best),
        "factor": np.exp(np.sqrt(squares.mean((1, 2)))),
    }


def over_seeds(values: Float[np.ndarray, " seed"]) -> Interval:
    """Mean over seeds with Student's t intervals; no number without seeds."""
    from scipy.special import stdtrit  # only here: it loads slowly

    n = len(values)
    if not n:
        return UNKNOWN
    mean = float(values.mean())
    if n == 1:
        return Interval(mean, math.nan, math.nan, se=math.nan, tails=((math.nan, math.nan),))
    se = float(values.std(ddof=1)) / math.sqrt(n)
    tails = []
    for k in range(1, N_TAILS + 1):
        half = float(stdtrit(n - 1, 1 - 0.025 / k)) * se
        tails.append((mean - half, mean + half))
    low, high = tails[0]
    return Interval(mean, low, high, se=se, tails=tuple(tails))


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """How windows of this kind of training follow L and the noise, and this model's own window."""
    by_seed = numbers(results[family])
    kind = rows_in(results[kind_of_training])
    found: dict[str, Found] = {
        "kind": sum(row["differs"] for row in kind),
        "seeds": len(by_seed["L"]),
        "own": factor_of(results, results, facts),
        **gates(results, facts),
    }
    for name, values in by_seed.items():
        found[name] = over_seeds(values)
    return found


def of_control(results: Results, facts: Facts) -> dict[str, Found]:
    """The numbers of untrained models: a seed starts from the same weights at every L and noise."""
    return {"L": 0.0, "noise": 0.0, "own": factor_of(results, results.control, facts)}


def remarks(results: Results, facts: Facts, found: Mapping[str, Estimate]) -> Remarks:
    """What does not decide, and the runs that do."""
    kind = rows_in(results[kind_of_training])
    table = results[family]
    decided = CRITERION.decide(found).condition
    if decided and decided.quantity == "own":
        factor = found["factor"].value
        caveat = f"Over the runs windows differ from the best ones by a factor of {factor:.3g}."
    else:
        noise = found["noise"].value
        mine = next(row for row in rows_in(table) if row["run"] == THIS)
        w = mine["w"]
        best = mine["best"]
        caveat = (
            f"The slope with the noise is {noise:.3g} of theory's; this model's own "
            f"window is {w / best:.3g} times the best one."
        )
    return Remarks(
        scope=f"F_L^+, n = 100, d = 3, L from 0.3 to 10, sigma from 0.3 to 3. {whose(kind)}",
        caveat=caveat,
        open_because=differing(kind),
        details=(*kind, *details(table)),
    )


def differing(kind: Sequence[Mapping[str, Any]]) -> str:
    """The settings that make another kind of training, in words; nothing where there are none."""
    other = [row for row in kind if row["differs"]]
    if not other:
        return ""
    named = []
    for row in other[:3]:
        mine = row["this model"]
        theirs = row["the runs"]
        named.append(f"{row['setting']} ({mine}; theirs {theirs})")
    listed = ", ".join(named)
    text = f"It differs in {listed}"
    more = len(other) - 3
    if more > 0:
        text += f" and {more} more"
    return f"{text}."


def whose(kind: Sequence[Mapping[str, Any]]) -> str:
    """The runs that decide, and this model among them, in words."""
    recipe = kind[0]["the runs"]
    steps = kind[1]
    return (
        f"The runs come with the package: recipe {recipe}, {steps['the runs']} steps; this model "
        f"was trained by it too, for {steps['this model']} steps."
    )


def details(table: DataFrame) -> tuple[dict[str, Any], ...]:
    """A row a run, after a summary of them.

    The summary holds the mean windows at each L and noise, and how many steps go the right way.
    """
    columns = ("run", "numbers", "L", "noise", "seed", "w", "best", "fit", "weights")
    runs = []
    for row in rows_in(table):
        runs.append({key: row[key] for key in columns})
    own, best, noises, lipschitz = grids(table)
    if not len(own):
        return tuple(runs)
    # Steps to the next L should narrow the window, and steps to the next noise should widen it.
    along_l = np.diff(own, axis=2) > 0
    along_noise = np.diff(own, axis=1) < 0
    summary = {
        "steps to the next L or noise": along_l.size + along_noise.size,
        "the right way": int(along_l.sum() + along_noise.sum()),
    }
    rows: list[dict[str, Any]] = [summary]
    typical = np.exp(own.mean(0))
    wanted = np.exp(best.mean(0))
    for i, noise in enumerate(noises):
        for j, at in enumerate(lipschitz):
            cell = {
                "L": float(at),
                "noise": float(noise),
                "geometric mean of w (larger: narrower)": float(typical[i, j]),
                "best": float(wanted[i, j]),
            }
            rows.append(cell)
    return (*rows, *runs)


FAMILY_CLAIM = Claim(
    id="lipschitz.window_adapts",
    question="weights and training",
    statement="In runs of this recipe windows narrow as the Lipschitz constant grows and widen as "
    "the noise grows.",
    denied="In runs of this recipe windows do not follow the Lipschitz constant and the noise as "
    "the best ones do.",
    quote=Quote(
        "Function change: Rapid: Desired (attention window, w_KQ) (Small, Large); Slow: (Large, "
        "Small) [...] σ → ∞: no signal, average the noise, w_KQ → 0.",
        "Collins et al. (2024), slides by A. Mokhtari, 'Intuition Summary', and 'Results Part I', "
        "'Some extreme examples'",
        "The slides say it of the minimiser of the loss, with an exponent for large n, which "
        "decides nothing at n = 100. We test trained models, at four L and three noises, and "
        "compare with the minimiser itself. One of the conditions is that of "
        "`lipschitz.optimal_window`: this model's own window is the best one.",
    ),
    kind="learning",
    reads="weights and scores of the head",
    criterion=CRITERION,
    measurements=(
        family,
        kind_of_training,
        scores,
        scores_by_function,
        kernel,
        tied_window,
        optimum,
    ),
    control=(kernel,),
    untrained=of_control,
    about_weights=True,
    aspects=("single layer", "single head", "kind of task"),
    evidence=evidence,
    remarks=remarks,
    excluded=needs_family,
    learned=never_asked,
    figures=("lipschitz_family",),
)
