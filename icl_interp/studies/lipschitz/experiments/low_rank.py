"""Does a softmax unit find the few directions that labels depend on?

Trained units are measured, and the cap of Theorem 4 is tried.

The slides train on generalised linear models g(B^T x) with the links w^T x + 2, (w^T x)^2 and cos(4
w^T x) and show that the unit recovers col(B). They print no d, k, n and sigma: here d = 10, k = 2,
n = 50, and sigma = 0.01 and 0.1. Beside the angles, the units' scores are made blind to the
directions outside col(B), and to those inside: what this does to the error says whether the window
depends on the relevant directions alone.

Theorem 4 says M* = c B B^T for linear functions, under a cap |B^T M B| <= C. Exact minimisers over
M = c B B^T + c' (I - B B^T) show what the cap is for, and units that are trained without one say
whether it matters to them.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from pandas import DataFrame
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.criterion import Precondition
from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Results
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_least, at_most, note, statement
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import Result, make_array, table_of_rows
from icl_interp.studies.lipschitz.experiments import models, settings
from icl_interp.studies.lipschitz.experiments.models import KernelUnit, VariedModel
from icl_interp.studies.lipschitz.experiments.sized import sized
from icl_interp.tasks.ridge import random_directions
from icl_interp.tasks.vectors import Sphere
from icl_interp.theory import lipschitz as theory

D = 10
K = 2
N = 50
NOISES = (0.01, 0.1)
SEEDS = {"smoke": 1, "small": 2, "paper": 5}
# Of the units that are trained for Theorem 4, without noise.
THEOREM_D = 4
THEOREM_NS = (10, 200)
TRAINING = {"steps": 1500, "batch_size": 256, "learning_rate": 0.3, "snapshots": ()}
RECIPE = "lipschitz_low_rank"
CELLS = tuple(itertools.product(theory.GLM_LINKS, NOISES, range(max(SEEDS.values()))))
CAP = 3.0  # C
LENGTHS = {
    "smoke": (2, 10, 50),
    "small": (2, 10, 20, 50, 200, 1000),
    "paper": (2, 10, 20, 50, 200, 1000, 5000),
}
# Of all contexts of an exact minimiser together.
KEYS = {"smoke": 40_000, "small": 400_000, "paper": 4_000_000}
FEWEST = 400  # contexts
MOST = 20_000  # contexts
GROUPS = 20  # of contexts: intervals come from these
STARTS = ((2.0, 1.0), (12.0, 8.0))  # (c, c') where the descent begins
SIZES = {
    "smoke": "units of softmax attention, d = 10 and 4, n = 20, 20 steps: shows that it runs, and "
    "nothing else",
    "small": "units of softmax attention, d = 10, k = 2, n = 50, and d = 4, n = 10 and 200; 1,500 "
    "steps of Adam",
    "paper": "units of softmax attention of the same d, k and n, 15,000 steps of Adam",
}

ANGLE = "sin of the largest angle between col(B) and M's leading left singular vectors"
OUTSIDE = "share of M's squared entries outside col(B)"
IRRELEVANT = "error without the irrelevant directions / error"
RELEVANT = "error without the relevant directions / error"
OF_MEAN = "error / error of the mean label"
LEARNED = Precondition(
    OF_MEAN, (0.0, 0.8), "A unit has {value:.2g} times the error of the mean label."
)
RECOVERS = {
    "affine": at_most(ANGLE, 0.1, 0.5),
    "quadratic": at_most(ANGLE, 0.3, 0.5),
    "cosine": at_most(ANGLE, 0.3, 0.5),
}
IS_PROJECTION = at_most(OUTSIDE, 0.05, 0.2)
LEAVES = at_most(IRRELEVANT, 1.1, 1.25, LEARNED)
BREAKS = at_least(RELEVANT, 1.25, 1.1, LEARNED)
CAPPED_SHARE = "|c'| / c of the exact minimum under the cap"
CAPPED = at_most(CAPPED_SHARE, 0.1, 0.25)

Rows = Sequence[Mapping[str, Any]]


def _model(link: str, noise: float, seed: int) -> VariedModel:
    """The unit that is trained on a generalised linear model."""
    name, size = theory.GLM_LINKS[link]
    scales = tuple(scale for scale, count in SEEDS.items() if seed < count)
    return sized(
        RECIPE,
        f"{link}, σ = {noise:g}, d = {D}, n = {N}",
        seed,
        scales,
        TRAINING,
        link=name,
        lipschitz=size,
        intercept=2.0 if link == "affine" else 0.0,
        inputs=Sphere(D),
        directions=random_directions(D, K),
        noise_std=noise,
        n_points=N + 1,
    )


def _theorem_model(n: int) -> VariedModel:
    """A unit on F_B^lin without noise and without a cap."""
    return sized(
        RECIPE,
        f"linear, σ = 0, d = {THEOREM_D}, n = {n}",
        training=TRAINING,
        inputs=Sphere(THEOREM_D),
        directions=random_directions(THEOREM_D, K),
        noise_std=0.0,
        n_points=n + 1,
    )


def run(setup: Setup) -> dict[str, Result]:
    """What units have learned, and what becomes of their errors.

    The exact minima of Theorem 4 are given by length.
    """
    results: dict[str, Result] = {"minima": _minima(setup), "endless": _endless()}
    rows = []
    for link, noise, seed in CELLS:
        name = _model(link, noise, seed).name
        if setup.has(name):
            rows.append({"link": link, "σ": noise, "seed": seed, **_unit(setup, name)})
    if rows:
        words = (
            "ratios: the unit's scores without these directions, over the error of the unit; low "
            "and high: 95 %"
        )
        results["units"] = table_of_rows(rows, note=words)
        results["matrices"] = _matrices(setup)

    # The units that are trained for Theorem 4.
    theorem = []
    for n in THEOREM_NS:
        name = _theorem_model(n).name
        if setup.has(name):
            theorem.append({"n": n, **_unit(setup, name)})
    if theorem:
        words = f"d = {THEOREM_D}, k = {K}, σ = 0, no cap"
        results["theorem units"] = table_of_rows(theorem, note=words)
    return results


def _unit(setup: Setup, name: str) -> dict[str, Any]:
    """Angles and shares of a unit's M, and its error.

    The error is given with directions taken out of the scores, too.
    """
    checkpoint = setup.models[name]
    task = models.task_of(checkpoint)
    matrix = models.matrix_of(checkpoint.model)
    basis = task.basis
    inside = basis @ basis.T
    others = torch.eye(len(basis), dtype=torch.float64) - inside
    pair = theory.pair_of(matrix, basis)

    # Errors by block: of the unit, of equal weights, and without directions in the scores.
    def blocks(edited: Tensor) -> np.ndarray:
        found = models.query_errors(setup, name, task, KernelUnit(edited))
        return np.asarray(found.values)

    own = np.asarray(models.query_errors(setup, name, task, None).values)
    of_mean = blocks(torch.zeros_like(matrix))
    found = {
        "n used": task.n_points - 1,
        "angle": float(theory.recovery_distance(matrix, basis)),
        "outside": float(theory.outside_energy(matrix, basis)),
        "c": float(pair.inside),
        "c outside": float(pair.outside),
        "rest": float(pair.deviation),
        "error": float(own.mean()),
        "of mean": float(own.mean() / of_mean.mean()),
    }
    for removed, kept in (("irrelevant", inside), ("relevant", others)):
        edited = blocks(kept @ matrix @ kept)
        ratio = bootstrap(lambda a, b: a / b, edited, own, positive=True)
        found[f"{removed} out"] = ratio.value
        found[f"{removed} low"] = ratio.low
        found[f"{removed} high"] = ratio.high
    return found


def _matrices(setup: Setup) -> DataArray:
    """M of the units of seed 0, in an orthonormal basis whose first k vectors span col(B)."""
    links = tuple(theory.GLM_LINKS)
    identity = torch.eye(D, dtype=torch.float64)
    # A model that is not here leaves NaN.
    values = np.full((len(links), len(NOISES), D, D), np.nan)
    for i, link in enumerate(links):
        for j, noise in enumerate(NOISES):
            name = _model(link, noise, 0).name
            if not setup.has(name):
                continue
            checkpoint = setup.models[name]
            basis = models.task_of(checkpoint).basis
            matrix = models.matrix_of(checkpoint.model)
            whole, _ = torch.linalg.qr(torch.cat([basis, identity], 1))
            rotated = whole.T @ matrix @ whole
            values[i, j] = rotated.numpy()
    numbers = tuple(range(1, D + 1))
    axes = {"link": links, "σ": NOISES, "key": numbers, "query": numbers}
    words = f"entries of M in a basis whose first {K} vectors span col(B); seed 0"
    return make_array(values, axes, note=words)


def _minima(setup: Setup) -> DataFrame:
    """The least loss of c B B^T + c' (I - B B^T) on linear functions without noise.

    Losses are given by the length of the prompt.
    """
    scale = setup.preset.name
    rows = []
    for n in LENGTHS[scale]:
        contexts = min(max(KEYS[scale] // n, FEWEST), MOST)
        found = setup.keep(
            "lipschitz: minima of theorem 4",
            [],
            lambda n=n, contexts=contexts: table_of_rows([_minimum(n, contexts, setup.seed)]),
            n=n,
            d=THEOREM_D,
            k=K,
            cap=CAP,
            contexts=contexts,
            starts=STARTS,
        )
        assert isinstance(found, DataFrame)
        rows += found.to_dict("records")
    words = f"d = {THEOREM_D}, k = {K}, σ = 0; held: c' = 0; capped: c at most {CAP:g}"
    return table_of_rows(rows, note=words)


def _endless() -> DataFrame:
    """The least loss of c B B^T for endless prompts, exact up to the grid of c.

    That of w I tends to 0 for such prompts.
    """
    grid = np.linspace(1.0, 20.0, 381).tolist()
    losses = [float(theory.long_prompt_linear_loss(c, 0.0, THEOREM_D, K)) for c in grid]
    best = int(np.argmin(losses))
    row = {"c held": grid[best], "loss held": losses[best]}
    return table_of_rows([row], note="n to infinity, c' = 0, σ = 0")


def _minimum(n: int, contexts: int, seed: int) -> dict[str, float]:
    """Minima on fixed contexts, and the ratio of their losses on fresh ones."""
    basis = torch.tensor(random_directions(THEOREM_D, K), dtype=torch.float64)
    functions = theory.glm_class("affine")

    def draw(seed: int) -> theory.Contexts:
        return theory.draw_contexts(n, functions, contexts, d=THEOREM_D, basis=basis, seed=seed)

    drawn = draw(2 * seed)

    def least(**settings: Any) -> theory.PairOptimum:
        ends = [theory.optimal_pair(drawn, basis, 0.0, start=start, **settings) for start in STARTS]
        return min(ends, key=lambda end: float(end.loss))

    free = least()
    held = least(outside=0.0)
    capped = least(cap=CAP)

    # Losses are compared on contexts that the minimisers have not seen, in groups.
    chunks = [part.chunk(GROUPS) for part in draw(2 * seed + 1)]
    groups = [theory.Contexts(*parts) for parts in zip(*chunks, strict=True)]

    def losses(pair: theory.PairOptimum) -> np.ndarray:
        matrix = theory.low_rank_matrix(basis, pair.inside, pair.outside)
        return np.array([float(theory.matrix_loss(matrix, group, 0.0)) for group in groups])

    free_losses = losses(free)
    held_losses = losses(held)
    ratio = bootstrap(lambda a, b: a / b, held_losses, free_losses, positive=True)
    return {
        "n": n,
        "c free": float(free.inside),
        "outside free": abs(float(free.outside)),
        "loss free": float(free_losses.mean()),
        "c held": float(held.inside),
        "loss held": float(held_losses.mean()),
        "held / free": ratio.value,
        "low": ratio.low,
        "high": ratio.high,
        "c capped": float(capped.inside),
        "outside capped": abs(float(capped.outside)),
    }


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """Recovery and projections for each link, M itself, and Theorem 4.

    Theorem 4 is judged with its cap only; units that were trained without one stand beside it.
    """
    rows = errors.rows_of(results, "units")
    theorem = errors.rows_of(results, "theorem units")
    lines = []
    if not rows and not theorem:
        lines.append(note("No model is here, so nothing is measured of models."))
    by_link: dict[str, Rows] = {}
    for link in theory.GLM_LINKS:
        mine = [row for row in rows if row["link"] == link]
        if mine:
            by_link[link] = mine
    for link, mine in by_link.items():
        lines.append(_states_recovery(link, mine))
        lines += _states_projections(link, mine)
    for link, mine in by_link.items():
        lines.append(_states_matrix(link, mine))

    # Theorem 4.
    minima = errors.rows_of(results, "minima")
    lines += _states_minima(minima, errors.rows_of(results, "endless"))
    lines += map(_says_of_uncapped, theorem)
    return tuple(lines)


def _column(rows: Rows, key: str) -> list[Any]:
    return [row[key] for row in rows]


def _span(rows: Rows, key: str) -> str:
    """The least and the largest of a column in words."""
    column = _column(rows, key)
    low = f"{min(column):.3g}"
    high = f"{max(column):.3g}"
    return low if low == high else f"{low} to {high}"


def _setting(rows: Rows) -> str:
    levels = sorted(set(_column(rows, "σ")))
    noises = " and ".join(f"{noise:g}" for noise in levels)
    return f"d = {D}, k = {K}, n = {rows[0]['n used']}, σ = {noises}; {len(rows)} units"


def _states_recovery(link: str, rows: Rows) -> Statement:
    text = (
        f"{link} link: the sine of the largest angle between col(B) and the {K} leading left "
        f"singular vectors of M is {_span(rows, 'angle')} ({_setting(rows)})."
    )
    return statement(text, RECOVERS[link], *_column(rows, "angle"))


def _intervals(rows: Rows, what: str) -> list[Interval]:
    return [Interval(row[f"{what} out"], row[f"{what} low"], row[f"{what} high"]) for row in rows]


def _states_projections(link: str, rows: Rows) -> list[Statement]:
    given = {OF_MEAN: max(_column(rows, "of mean"))}
    left = (
        f"{link} link: scores that are blind to the {D - K} directions outside col(B) give "
        f"{_span(rows, 'irrelevant out')} times the unit's error."
    )
    broken = (
        f"{link} link: scores that are blind to the {K} directions of col(B) give "
        f"{_span(rows, 'relevant out')} times the unit's error (the unit itself has "
        f"{_span(rows, 'of mean')} of that of the mean label)."
    )
    return [
        statement(left, LEAVES, *_intervals(rows, "irrelevant"), given=given),
        statement(broken, BREAKS, *_intervals(rows, "relevant"), given=given),
    ]


def _states_matrix(link: str, rows: Rows) -> Statement:
    """Theorem 4 speaks of linear functions; for the others the slides claim the subspace only."""
    share = max(abs(row["c outside"] / row["c"]) for row in rows)
    text = (
        f"{link} link: {_span(rows, 'outside')} of M's squared entries lie outside the block of "
        f"col(B) (0 for M = c B Bᵀ, {1 - K / D:.2g} for M = w I); |c'| / c is up to {share:.2g}."
    )
    if link == "affine":
        return statement(text, IS_PROJECTION, *_column(rows, "outside"))
    return note(_first(text))


def _first(text: str) -> str:
    return text[0].upper() + text[1:]


def _states_minima(rows: Rows, endless: Rows) -> list[Statement]:
    if not rows:
        return []
    shares = []
    # The parts of the sentences, by length.
    lengths = []
    gains = []
    others = []
    for row in rows:
        shares.append(row["outside capped"] / row["c capped"])
        lengths.append(str(row["n"]))
        interval = f"[{row['low']:.3g}, {row['high']:.3g}]"
        gains.append(f"{row['held / free']:.3g} {interval} at n = {row['n']}")
        others.append(f"{row['outside free'] / row['c free']:.2g}")
    with_cap = (
        f"Theorem 4 without noise, |BᵀMB| at most {CAP:g}: |c'| / c of the exact minimum is at "
        f"most {max(shares):.2g} (d = {THEOREM_D}, k = {K}, n = {', '.join(lengths)})."
    )
    without = (
        "Theorem 4 without the cap: the least error of any c B Bᵀ over that of any c B Bᵀ + c' "
        f"(I − B Bᵀ) is {', '.join(gains)}; there |c'| / c of the exact minimum is "
        f"{', '.join(others)}."
    )
    for row in endless:
        without += (
            f" For infinitely long prompts the least error of c B Bᵀ is {row['loss held']:.3g}, at "
            f"c = {row['c held']:.3g}, and that of w I falls to 0."
        )
    return [statement(with_cap, CAPPED, *shares, kind="formula"), note(without)]


def _says_of_uncapped(row: Mapping[str, Any]) -> Statement:
    """Where a unit without a cap ends: outside of what Theorem 4 is about."""
    where = f"linear functions without noise, no cap, d = {THEOREM_D}, k = {K}, n = {row['n used']}"
    return note(
        f"{_first(where)}: {row['outside']:.3g} of the trained M's squared entries lie outside the "
        f"block of col(B); c = {row['c']:.3g}, |c'| = {abs(row['c outside']):.3g}. Scores that are "
        f"blind to the {THEOREM_D - K} directions outside col(B) give {row['irrelevant out']:.3g} "
        "times the unit's error. Theorem 4 has M = c B Bᵀ under a cap on |BᵀMB|, which this unit "
        "does not have: it is no evidence for the theorem or against it."
    )


def _compared(task: str, seed: int, row: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("angle", "outside", "c", "c outside", "of mean", "irrelevant out", "relevant out")
    found = {"task": task, "n": row["n used"], "seed": seed}
    for key in keys:
        found[key] = row[key]
    return found


def compare(results: Results) -> DataFrame | None:
    """A row a unit; the slides show curves and print no numbers."""
    rows = []
    for row in errors.rows_of(results, "units"):
        rows.append(_compared(f"{row['link']}, σ = {row['σ']:g}", row["seed"], row))
    for row in errors.rows_of(results, "theorem units"):
        rows.append(_compared("linear, σ = 0, no cap", 0, row))
    words = (
        f"angle: {ANGLE}; outside: {OUTSIDE}; of mean: {OF_MEAN}; irrelevant out and relevant out: "
        "the error without these directions in the scores, over the error"
    )
    return errors.as_table(rows, words)


LOW_RANK_EXPERIMENT = Experiment(
    "lipschitz.low_rank",
    "Labels that depend on two of ten directions: what attention ignores",
    f"{models.SLIDES}: Theorem 4; Softmax Attention Learns Low-Dimensional Structure in Nonlinear "
    "Functions",
    (
        *(_model(link, noise, seed) for link, noise, seed in CELLS),
        *(_theorem_model(n) for n in THEOREM_NS),
    ),
    run,
    states,
    compare,
    sample=models.SAMPLE,
    sizes=SIZES,
    settings=settings.SETTINGS["low_rank"],
)
