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

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from pandas import DataFrame

from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.tie import TIED
from icl_interp.resampling import N_TAILS
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
from icl_interp.studies.lipschitz.measurements.unit import (
    SOURCE,
    kernel,
    scores,
    scores_by_function,
)
from icl_interp.studies.lipschitz.measurements.window_family import (
    THIS,
    family,
    kind_of_training,
    needs_family,
)
from icl_interp.studies.lipschitz.measurements.window_losses import optimum

ADAPTS, FIXED = 0.8, 0.5  # of theory's slope
NEAR, FAR = 1.25, 1.5  # factors between w and w*, root mean square over the grid
SEEDS = 4  # that have a run in every cell
SMALLEST = 1e-3  # windows below this, or pointing away from the query, count as this

FAMILY = Criterion(
    (
        Condition("L", "", (ADAPTS, INF), (-INF, FIXED)),
        Condition("noise", "", (ADAPTS, INF), (-INF, FIXED)),
        Condition("factor", "", (1.0, NEAR), (FAR, INF), scale="log"),
        Condition("own", "", (1.0, CLOSE), (OFF, INF), scale="log"),
    ),
    (
        Precondition(
            "kind",
            (0, 0),
            "The runs that would decide this are of another kind of training: {value:.0f} settings "
            "of this model's run differ.",
        ),
        Precondition(
            "seeds",
            (SEEDS, INF),
            f"Only {{value:.0f}} seeds of this kind have a run at every L and noise ({SEEDS} "
            "needed).",
        ),
        LEARNED_ENOUGH,
        IS_KERNEL,
        *TIED,
    ),
    terms=(
        "over runs of this kind: slope of log w on log L, and on log sigma, over that of the best "
        f"window w*: >= {ADAPTS:g} / <= {FIXED:g}; factor between the learned window w and w*, root "
        f"mean square: <= {NEAR:g} / >= {FAR:g}; and for this model itself, as the claim on the "
        "optimal window asks, where w* may be any window whose loss is within 1 % of the least: <= "
        f"{CLOSE:g} / >= {OFF:g}"
    ),
)

Grid = Float[np.ndarray, "seed noise lipschitz"]


def grids(table: DataFrame) -> tuple[Grid, Grid, np.ndarray, np.ndarray]:
    """log w and log w* of the seeds with a run in every cell, the noises and the L."""
    runs = [row for row in rows_in(table) if row["run"] != THIS]
    noises, lipschitz = (np.unique([float(row[name]) for row in runs]) for name in ("noise", "L"))
    found: list[np.ndarray] = []
    for seed in sorted({row["seed"] for row in runs}):
        cells = {
            (row["noise"], row["L"]): (row["w"], row["best"]) for row in runs if row["seed"] == seed
        }
        if len(cells) == len(noises) * len(lipschitz):
            found.append(np.array([[cells[s, value] for value in lipschitz] for s in noises]))
    empty = np.zeros((0, len(noises), len(lipschitz), 2))
    values = np.log(np.maximum(np.array(found) if found else empty, SMALLEST))
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
    along_l = slope(np.log(lipschitz), own).mean(1) / slope(np.log(lipschitz), best).mean(1)
    columns = [values.transpose(0, 2, 1) for values in (own, best)]
    along_noise = np.divide(*(slope(np.log(noises), values).mean(1) for values in columns))
    return {
        "L": along_l,
        "noise": along_noise,
        "factor": np.exp(np.sqrt(((own - best) ** 2).mean((1, 2)))),
    }


def over_seeds(name: str, values: Float[np.ndarray, " seed"]) -> Estimate:
    """Mean over seeds with Student's t intervals."""
    from scipy.special import stdtrit  # only here: it loads slowly

    n, mean = len(values), float(values.mean())
    se = float(values.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    halves = (
        [float(stdtrit(n - 1, 1 - 0.025 / k)) * se for k in range(1, N_TAILS + 1)]
        if n > 1
        else [math.nan]
    )
    tails = tuple((mean - half, mean + half) for half in halves)
    return Estimate(name, mean, *tails[0], se=se, tails=tails)


NAMES = {
    "L": "slope of the window with the Lipschitz constant L / theory's",
    "noise": "slope of the window with the label noise / theory's",
    "factor": "factor between the learned window and the best one, root mean square over the runs",
}


def evidence(results: Results, facts: Facts) -> Evidence:
    """Do windows of this kind of training follow L and the noise?"""
    table, found, kind = (
        results[family],
        numbers(results[family]),
        rows_in(results[kind_of_training]),
    )
    seeds = len(found["L"])
    own = factor_of(results, results, facts)
    quantities = {
        "kind": Estimate.exactly(
            "settings that make another kind of training", sum(row["differs"] for row in kind)
        ),
        "seeds": Estimate.exactly("seeds with a run in every cell", seeds),
        "own": own,
        **gates(results, facts),
    }
    if seeds:
        quantities |= {key: over_seeds(name, found[key]) for key, name in NAMES.items()}
    else:  # nothing to compare; the precondition says so
        quantities |= {
            key: Estimate(name, math.nan, math.nan, math.nan) for key, name in NAMES.items()
        }
    return Evidence(
        quantities,
        differing(kind) or says(table, quantities),
        caveat=caveat(table, quantities),
        scope=f"F_L^+, n = 100, d = 3, L from 0.3 to 10, sigma from 0.3 to 3. {whose(kind)}",
        control={
            # A seed starts from the same weights at every L and noise.
            **{key: Estimate.exactly(NAMES[key], 0.0) for key in ("L", "noise")},
            "own": factor_of(results, results.control, facts),
        },
        details=(*kind, *details(table)),
    )


def differing(kind: Sequence[Mapping[str, Any]]) -> str:
    """The settings that make another kind of training, in words; nothing where there are none."""
    other = [row for row in kind if row["differs"]]
    if not other:
        return ""
    named = ", ".join(
        f"{row['setting']} ({row['this model']}; theirs {row['the runs']})" for row in other[:3]
    )
    more = len(other) - 3
    return f"It differs in {named}{f' and {more} more' if more > 0 else ''}."


def whose(kind: Sequence[Mapping[str, Any]]) -> str:
    """The runs that decide, and this model among them, in words."""
    recipe, steps = kind[0]["the runs"], kind[1]
    return (
        f"The runs come with the package: recipe {recipe}, {steps['the runs']} steps; this model "
        f"was trained by it too, for {steps['this model']} steps."
    )


def says(table: DataFrame, quantities: dict[str, Estimate]) -> str:
    """The answer, and the numbers in words."""
    own, _, _, _ = grids(table)
    text = answer(
        FAMILY,
        quantities,
        "In runs of this recipe windows narrow as the Lipschitz constant L grows and widen as the "
        "label noise grows.",
        "This model's window is not the best one for its Lipschitz constant L and label noise."
        if decided_by(quantities) == "own"
        else (
            "In runs of this recipe windows do not follow the Lipschitz constant L and the noise "
            "as the best ones do."
        ),
        "windows follow the Lipschitz constant L and the label noise",
    )
    if not len(own):
        return text
    if decided_by(quantities) == "own":
        return f"{text} {_of_this_model(table, quantities)}"
    if decided_by(quantities) == "factor":
        threshold = bound(FAMILY, quantities, "factor", f"at most {NEAR:g}", f"at least {FAR:g}")
        return (
            f"{text} Over {own.size} runs they are a factor of {quantities['factor'].value:.3g} "
            f"from the best windows ({threshold})."
        )
    worse = min(("L", "noise"), key=lambda key: quantities[key].value)
    threshold = bound(FAMILY, quantities, worse, f"at least {ADAPTS:g} each", f"at most {FIXED:g}")
    return (
        f"{text} Over {own.size} runs their slopes are {quantities['L'].value:.3g} of theory's "
        f"with L and {quantities['noise'].value:.3g} with the noise ({threshold})."
    )


def decided_by(quantities: dict[str, Estimate]) -> str:
    """The quantity that decided, or left it open."""
    decided = FAMILY.decide(quantities).condition
    return decided.quantity if decided else ""


def _of_this_model(table: DataFrame, quantities: dict[str, Estimate]) -> str:
    mine = next(row for row in rows_in(table) if row["run"] == THIS)
    threshold = bound(
        FAMILY, quantities, "own", f"within a factor of {CLOSE:g}", f"off by {OFF:g} or more"
    )
    return f"This model's own is {mine['w'] / mine['best']:.3g} times the best one ({threshold})."


def caveat(table: DataFrame, quantities: dict[str, Estimate]) -> str:
    """What the answer leaves out."""
    if decided_by(quantities) == "own":
        return (
            f"Over the runs windows are a factor of {quantities['factor'].value:.3g} from the best "
            "ones."
        )
    return _of_this_model(table, quantities)


def details(table: DataFrame) -> tuple[dict[str, Any], ...]:
    """A row a run, after a summary of them.

    The summary holds the mean windows at each L and noise, and how many steps go the right way.
    """
    columns = ("run", "numbers", "L", "noise", "seed", "w", "best", "fit", "weights")
    runs = tuple({key: row[key] for key in columns} for row in rows_in(table))
    own, best, noises, lipschitz = grids(table)
    if not len(own):
        return runs
    typical, wanted = np.exp(own.mean(0)), np.exp(best.mean(0))
    cells = (
        {
            "L": float(at),
            "noise": float(noise),
            "geometric mean of w (larger: narrower)": float(w),
            "best": float(least),
        }
        for noise, *row in zip(noises, typical, wanted, strict=True)
        for at, w, least in zip(lipschitz, *row, strict=True)
    )
    right = (np.diff(own, axis=2) > 0, np.diff(own, axis=1) < 0)
    steps = sum(one.size for one in right)
    way = {
        "steps to the next L or noise": steps,
        "the right way": int(sum(one.sum() for one in right)),
    }
    return (way, *cells, *runs)


FAMILY_CLAIM = Claim(
    id="lipschitz.window_adapts",
    question="weights and training",
    short="The window narrows as L grows and widens with the noise.",
    quote=Quote(
        "Function change: Rapid: Desired (attention window, w_KQ) (Small, Large); Slow: (Large, "
        "Small) [...] σ → ∞: no signal, average the noise, w_KQ → 0.",
        "Collins et al. (2024), slides by A. Mokhtari, 'Intuition Summary', and 'Results Part I', "
        "'Some extreme examples'",
        "The slides say it of the minimiser of the loss, with an exponent for large n. We ask it "
        "of trained models, at four L and three noises, and compare with the minimiser itself: at "
        "n = 100 the exponent decides nothing. One of the conditions is that of "
        "`lipschitz.optimal_window`: this model's own window is the best one.",
    ),
    kind="learning",
    statement="Windows of models trained by this recipe narrow as L grows and widen as the label "
    "noise grows, as w* does",
    source=f"{SOURCE}, 'Intuition Summary' and Theorem 2",
    criterion=FAMILY,
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
    about_weights=True,
    aspects=("single layer", "single head", "kind of task"),
    evidence=evidence,
    excluded=needs_family,
    learned=never_asked,
    figures=("lipschitz_family",),
)
