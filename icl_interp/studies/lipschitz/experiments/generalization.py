"""A softmax unit trained on one class of functions and tested on others.

Does a shared Lipschitz constant decide?

The slides show units trained on affine, ReLU and cosine functions of L = 1, each tested on all
three, and units trained on affine functions of L = 1 and cosines of L = 0.1 and 10, tested on
cosines of L = 1. They print no d, n and sigma, and not what a cosine task is: here d = 5, n = 200,
sigma = 0.1, and a cosine is (L / omega) cos(omega z + phase) with omega = L. Two classes are not on
the slides: cosines of omega = 10 that share L = 1 with the others, and affine functions of L = 10,
which do not.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pandas import DataFrame
from xarray import DataArray

from icl_interp.analyses.criterion import Precondition
from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Results
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_least, at_most, note, statement
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import Result, make_curve, table_of_rows
from icl_interp.studies.lipschitz.experiments import models, settings
from icl_interp.studies.lipschitz.experiments.models import VariedModel
from icl_interp.studies.lipschitz.experiments.sized import sized
from icl_interp.studies.lipschitz.measurements.unit import functions_of
from icl_interp.tasks.ridge import RidgeFunction
from icl_interp.tasks.vectors import Sphere
from icl_interp.theory import lipschitz as theory

D = 5
N = 200
NOISE = 0.1
SEEDS = {"smoke": 1, "small": 3, "paper": 3}
LENGTHS = {"smoke": (5, 20), "small": (5, 10, 20, 50, 100, 200), "paper": (5, 10, 20, 50, 100, 200)}
CONTEXTS = {"smoke": 400, "small": 3000, "paper": 20_000}  # of the theory's Monte Carlo
STEEPNESS = {"smoke": 5, "small": 13, "paper": 25}  # values of L from 10^-1.5 to 10^1.5
TRAINING = {"steps": 600, "batch_size": 128, "snapshots": ()}
SIZES = {
    "smoke": "units of softmax attention, d = 5, n = 20, 20 steps: shows that it runs, and nothing "
    "else",
    "small": "units of softmax attention, d = 5, n = 200, 600 steps of Adam, three seeds",
    "paper": "units of softmax attention, d = 5, n = 200, 6,000 steps of Adam, three seeds",
}


@dataclass(frozen=True)
class Kind:
    """A class of functions, its recipe and what of the recipe's task it changes."""

    name: str
    recipe: str
    lipschitz: float = 1.0
    frequency: float | None = None

    def model(self, seed: int) -> VariedModel:
        """The unit that is trained on it."""
        scales = tuple(scale for scale, count in SEEDS.items() if seed < count)
        omega = "" if self.frequency is None else f", ω = {self.frequency:g}"
        task: dict[str, Any] = {"lipschitz": self.lipschitz, "noise_std": NOISE, "n_points": N + 1}
        if self.frequency is not None:
            task["frequency"] = self.frequency
        label = f"L = {self.lipschitz:g}{omega}, d = {D}, n = {N}"
        return sized(self.recipe, label, seed, scales, TRAINING, inputs=Sphere(D), **task)


AFFINE = "affine"
RELU = "ReLU"
COSINE = "cosine"
GENTLE = "cosine, L = 0.1"
STEEP = "cosine, L = 10"
FAST = "cosine, ω = 10"
STRAIGHT = "affine, L = 10"
SHARED = (AFFINE, RELU, COSINE)  # of L = 1, on the slides
_ALL_KINDS = (
    Kind(AFFINE, "lipschitz_affine"),
    Kind(RELU, "lipschitz_relu"),
    Kind(COSINE, "lipschitz_cosine"),
    Kind(GENTLE, "lipschitz_cosine", 0.1),
    Kind(STEEP, "lipschitz_cosine", 10.0),
    Kind(STRAIGHT, "lipschitz_affine", 10.0),
    Kind(FAST, "lipschitz_cosine", 1.0, 10.0),
)
KINDS = {kind.name: kind for kind in _ALL_KINDS}
OWN = "error / own"  # over that of units trained on the tested class
RATIO = "error / error of units trained on the tested class"
LEAST = "error on its own class / least error of any window"
LEARNED = Precondition(
    LEAST, (0.0, 1.1), "A unit has {value:.3g} times the least error on its own class."
)
SUFFICES = at_most(RATIO, 1.1, 1.5, LEARNED)
NEEDED = at_least(RATIO, 1.5, 1.1, LEARNED)
WINDOW = "w after training on L = 10 / w after training on L = 1"
NARROWS = at_least(WINDOW, 1.0)
APART = "largest factor between measured and computed ratios"
PREDICTED = at_most(APART, 1.1, 1.25, LEARNED)
OF_OURS = f"(σ = {NOISE:g}, d = {D}, n = {N}; a class of ours, which the slides do not have)"
CHEAP = 1.1  # a ratio up to which training at another L costs little

Rows = Sequence[Mapping[str, Any]]


def run(setup: Setup) -> dict[str, Result]:
    """Errors of every unit on every class, and theory's values of them.

    Errors are given by the length of the prompt.
    """
    units = {}
    for kind in KINDS.values():
        for seed in range(3):
            name = kind.model(seed).name
            if setup.has(name):
                units[kind.name, seed] = name
    if not units:
        return {}
    shortest = min(models.trained_length(setup.models[name]) for name in units.values())
    return {
        "transfer": _transfer(setup, units),
        "windows": _windows(setup, units),
        "curves": _curves(setup, units),
        "price": _price(setup, shortest),
    }


def _task(setup: Setup, units: Mapping[tuple[str, int], str], kind: str) -> RidgeFunction | None:
    """The task of a class as its units were trained on it; None where there is no unit."""
    name = units.get((kind, 0))
    return models.task_of(setup.models[name]) if name else None


def _transfer(setup: Setup, units: Mapping[tuple[str, int], str]) -> DataFrame:
    rows = []
    for tested in KINDS:
        task = _task(setup, units, tested)
        if task is None:
            continue
        n = task.n_points - 1
        functions = functions_of(task)
        # Errors by block: of every unit, and of those of this class, whose mean is the measure.
        found = {}
        at_home = []
        for (kind, seed), name in units.items():
            blocks = np.asarray(models.query_errors(setup, name, task).values)
            found[kind, seed] = blocks
            if kind == tested:
                at_home.append(blocks)
        own = np.mean(at_home, 0)
        for (trained, seed), blocks in found.items():
            ratio = bootstrap(lambda a, b: a / b, blocks, own, positive=True)
            other = _task(setup, units, trained)
            assert other is not None
            exact = theory.transfer(
                functions_of(other), functions, NOISE, n, D, contexts=_contexts(setup)
            )
            row = {
                "tested on": tested,
                "trained on": trained,
                "seed": seed,
                "error": float(blocks.mean()),
                OWN: ratio.value,
                "low": ratio.low,
                "high": ratio.high,
                "computed": float(exact.ratio),
                "computed se": float(exact.ratio_error),
                "least": float(exact.best),
            }
            rows.append(row)
    words = f"{OWN}: over the mean error of the units trained on the tested class"
    return table_of_rows(rows, note=words)


def _contexts(setup: Setup) -> int:
    return CONTEXTS[setup.preset.name]


def _windows(setup: Setup, units: Mapping[tuple[str, int], str]) -> DataFrame:
    rows = []
    for (kind, seed), name in units.items():
        checkpoint = setup.models[name]
        task = models.task_of(checkpoint)
        found = models.window_of(checkpoint.model, task)
        best = theory.optimal_window(
            task.lipschitz,
            NOISE,
            task.n_points - 1,
            D,
            task.link,
            task.frequency,
            contexts=_contexts(setup),
        )
        row = {
            "trained on": kind,
            "seed": seed,
            "w": float(found.window),
            "|M - w I| / |w|": float(found.deviation),
            "best w": float(best.window),
            "low": float(best.low),
            "high": float(best.high),
        }
        rows.append(row)
    words = "w: trace of M over d; best w: of least loss on the unit's own class, computed"
    return table_of_rows(rows, note=words)


def _curves(setup: Setup, units: Mapping[tuple[str, int], str]) -> DataArray:
    """Error by the number of examples: of the units of seed 0, on the classes of the slides."""
    longest = max(models.trained_length(setup.models[name]) for name in units.values())
    lengths = tuple(n for n in LENGTHS[setup.preset.name] if n <= longest)
    trained = [kind for kind in KINDS if (kind, 0) in units]
    tested = [kind for kind in SHARED if kind in trained]
    values = np.full((len(tested), len(trained), 3, len(lengths)), np.nan)
    for i, kind in enumerate(tested):
        task = _task(setup, units, kind)
        assert task is not None
        for j, other in enumerate(trained):
            name = units[other, 0]
            for k, n in enumerate(lengths):
                asked = task.with_points(n + 1)
                blocks = np.asarray(models.query_errors(setup, name, asked).values)
                error = bootstrap(lambda mean: mean, blocks, positive=True)
                values[i, j, :, k] = error.value, error.low, error.high
    # What the numbers are, in the words of the figure.
    axes = {
        "tested on": tested,
        "trained on": trained,
        "statistic": ("mean", "low", "high"),
        "n": lengths,
    }
    note = (
        f"squared error at the query; d = {D}, σ = {NOISE:g}; units trained with {longest} "
        "examples, seed 0"
    )
    return make_curve(values, axes, note=note)


def _price(setup: Setup, n: int) -> DataArray:
    """Computed ratio of errors on cosines of L = 1, for windows that are best elsewhere.

    The windows are the best ones for three classes, each at several L.
    """
    grid = np.logspace(-1.5, 1.5, STEEPNESS[setup.preset.name]).tolist()
    links = {AFFINE: "affine", RELU: "relu", COSINE: "phased_cosine"}
    contexts = _contexts(setup)

    def compute() -> DataArray:
        tested = theory.function_class("phased_cosine", 1.0)
        found = []
        for link in links.values():
            ratios = []
            for size in grid:
                trained = theory.function_class(link, size)
                exact = theory.transfer(trained, tested, NOISE, n, D, contexts=contexts)
                ratios.append(float(exact.ratio))
            found.append(ratios)
        axes = {"trained on": tuple(links), "L": grid}
        return make_curve(found, axes, note=f"d = {D}, n = {n}, computed")

    kept = setup.keep(
        "lipschitz: price", [], compute, n=n, d=D, noise=NOISE, grid=grid, contexts=contexts
    )
    assert isinstance(kept, DataArray)
    return kept


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """Both of the slides' figures, and a class that shares L and fails.

    The windows behind it and theory's ratios have statements, too.
    """
    rows = errors.rows_of(results, "transfer")
    if not rows:
        return (note("No model is here, so nothing is measured."),)
    windows = errors.rows_of(results, "windows")
    lines = [
        *_states_shared(rows),
        *_states_needed(rows, GENTLE),
        *_states_needed(rows, STEEP),
        *_states_needed(rows, STRAIGHT),
        *_states_fast(rows, windows),
        *_states_windows(windows),
        _states_predicted(rows),
        *_states_price(results.get("price")),
    ]
    return tuple(lines)


def _cells(rows: Rows, trained: Sequence[str], tested: Sequence[str]) -> list[Mapping[str, Any]]:
    """The rows of these classes, without those of a class on itself."""
    cells = []
    for row in rows:
        mine = row["trained on"]
        other = row["tested on"]
        if mine in trained and other in tested and mine != other:
            cells.append(row)
    return cells


def _worst_own(rows: Rows, kinds: Sequence[str]) -> dict[str, float]:
    """The largest error of a unit on its own class over the least that any window has there."""
    own = []
    for row in rows:
        kind = row["trained on"]
        if kind == row["tested on"] and kind in kinds:
            own.append(row["error"] / row["least"])
    return {LEAST: max(own, default=math.nan)}


def _intervals(rows: Rows) -> list[Interval]:
    return [errors.interval_of(row, OWN) for row in rows]


def _column(rows: Rows, key: str) -> list[float]:
    return [row[key] for row in rows]


def _span(rows: Rows) -> str:
    """The lowest and the highest ratio in words."""
    ratios = _column(rows, OWN)
    low = f"{min(ratios):.3g}"
    high = f"{max(ratios):.3g}"
    return low if low == high else f"{low} to {high}"


def _states_shared(rows: Rows) -> list[Statement]:
    cells = _cells(rows, SHARED, SHARED)
    if not cells:
        return []
    text = (
        f"units trained on affine, ReLU or cosine functions of L = 1 have {_span(cells)} times the "
        "error of the units trained on the tested class, on each of the other two classes of L = 1 "
        f"(d = {D}, σ = {NOISE:g}; all seeds)."
    )
    given = _worst_own(rows, SHARED)
    return [statement(text, SUFFICES, *_intervals(cells), given=given)]


def _states_needed(rows: Rows, trained: str) -> list[Statement]:
    cells = _cells(rows, (trained,), (COSINE,))
    if not cells:
        return []
    affine = _cells(rows, (AFFINE,), (COSINE,))
    beside = ""
    if affine:
        beside = f", where units trained on affine functions of L = 1 have {_span(affine)} times"
    ours = f" {OF_OURS}" if trained == STRAIGHT else ""
    text = (
        f"units trained on {trained}, have {_span(cells)} times the error of the units trained on "
        f"the tested class on cosines of L = 1{beside}{ours}."
    )
    given = _worst_own(rows, (trained, COSINE))
    return [statement(text, NEEDED, *_intervals(cells), given=given)]


def _states_fast(rows: Rows, windows: Rows) -> list[Statement]:
    cells = _cells(rows, (FAST,), SHARED)
    if not cells:
        return []
    best = {row["trained on"]: row["best w"] for row in windows}
    others = [best[kind] for kind in SHARED if kind in best]
    text = (
        "the slides call a shared Lipschitz constant sufficient, without a condition on the class. "
        f"Units trained on cos(10 z + phase) / 10, also of L = 1, have {_span(cells)} times the "
        "error of the units trained on the tested class, on affine, ReLU and cosine functions of L "
        f"= 1 {OF_OURS}. The best window is w = {best[FAST]:.2g} for them and {min(others):.3g} to "
        f"{max(others):.3g} for the others, by theory."
    )
    given = _worst_own(rows, (FAST, *SHARED))
    return [statement(text, SUFFICES, *_intervals(cells), given=given)]


def _states_windows(rows: Rows) -> list[Statement]:
    found = {}
    mean = {}
    best = {}
    for kind in (GENTLE, COSINE, STEEP):
        mine = [row for row in rows if row["trained on"] == kind]
        if not mine:
            return []
        found[kind] = _column(mine, "w")
        mean[kind] = float(np.mean(found[kind]))
        best[kind] = float(np.mean(_column(mine, "best w")))
    text = (
        f"the trained window is w = {mean[GENTLE]:.3g} for cosines of L = 0.1, {mean[COSINE]:.3g} "
        f"for L = 1 and {mean[STEEP]:.3g} for L = 10 (best by theory: {best[GENTLE]:.3g}, "
        f"{best[COSINE]:.3g} and {best[STEEP]:.3g}). The slides say that rapid functions need a "
        "small window, so a large w; a smaller w is a wider window."
    )
    return [statement(text, NARROWS, *(w / mean[COSINE] for w in found[STEEP]))]


def _states_predicted(rows: Rows) -> Statement:
    factors = []
    for row in rows:
        quotient = row[OWN] / row["computed"]
        inverse = row["computed"] / row[OWN]
        factors.append(max(quotient, inverse))
    worst = rows[int(np.argmax(factors))]
    text = (
        f"the best window of the class trained on, computed for w I, predicts all {len(rows)} "
        f"ratios up to a factor of {max(factors):.3g} (trained on {worst['trained on']}, tested on "
        f"{worst['tested on']}: measured {worst[OWN]:.3g}, computed {worst['computed']:.3g})."
    )
    given = _worst_own(rows, tuple(KINDS))
    return statement(text, PREDICTED, max(factors), given=given, kind="formula")


def _states_price(price: Result | None) -> list[Statement]:
    if not isinstance(price, DataArray):
        return []
    parts = []
    for kind in price.indexes["trained on"]:
        ratios = price.sel(**{"trained on": kind}).values
        sizes = price["L"].values[ratios <= CHEAP]
        if len(sizes):
            parts.append(f"{kind} L = {sizes.min():.2g} to {sizes.max():.2g}")
    what = "; ".join(parts) or "none of these L"
    text = (
        f"How near L must be, computed for tests on cosines of L = 1: at most {CHEAP:g} times "
        f"the least error after training on {what}."
    )
    return [note(text)]


def compare(results: Results) -> DataFrame | None:
    """Every class on every class, all seeds together.

    The slides show curves and print no numbers.
    """
    # The rows of each pair of classes, one a seed.
    pairs: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in errors.rows_of(results, "transfer"):
        pairs.setdefault((row["tested on"], row["trained on"]), []).append(row)
    laid = []
    for (tested, trained), mine in pairs.items():
        of_pair = {
            "tested on": tested,
            "trained on": trained,
            "error": float(np.mean(_column(mine, "error"))),
            OWN: float(np.mean(_column(mine, OWN))),
            "low": min(_column(mine, "low")),
            "high": max(_column(mine, "high")),
            "computed": mine[0]["computed"],
        }
        laid.append(of_pair)
    words = (
        "squared error at the query, mean over seeds; low and high: of all seeds' 95 % intervals; "
        "L = 1 unless said"
    )
    return errors.as_table(laid, words)


GENERALIZATION_EXPERIMENT = Experiment(
    "lipschitz.generalization",
    "Trained on one class of functions, tested on others: is it the Lipschitz constant that they "
    "must share?",
    f"{models.SLIDES}: Empirical Generalization",
    tuple(kind.model(seed) for kind in KINDS.values() for seed in range(max(SEEDS.values()))),
    run,
    states,
    compare,
    sample=models.SAMPLE,
    sizes=SIZES,
    settings=settings.SETTINGS["generalization"],
)
