"""Does a softmax unit find the few directions that labels depend on?

Trained units, and the cap of Theorem 4.

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

D, K, N = 10, 2, 50
NOISES = (0.01, 0.1)
SEEDS = {"smoke": 1, "small": 2, "paper": 5}
THEOREM_D, THEOREM_NS = 4, (10, 200)  # of the units that are trained for Theorem 4, without noise
TRAINING = {"steps": 1500, "batch_size": 256, "learning_rate": 0.3, "snapshots": ()}
RECIPE = "lipschitz_low_rank"
CELLS = tuple(itertools.product(theory.GLM_LINKS, NOISES, range(max(SEEDS.values()))))
CAP = 3.0  # C
LENGTHS = {
    "smoke": (2, 10, 50),
    "small": (2, 10, 20, 50, 200, 1000),
    "paper": (2, 10, 20, 50, 200, 1000, 5000),
}
KEYS = {
    "smoke": 40_000,
    "small": 400_000,
    "paper": 4_000_000,
}  # of all contexts of an exact minimiser together
FEWEST, MOST = 400, 20_000  # contexts
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
_ANGLES = {"affine": 0.1, "quadratic": 0.3, "cosine": 0.3}
RECOVERS = {link: at_most(ANGLE, angle, 0.5) for link, angle in _ANGLES.items()}
IS_PROJECTION = at_most(OUTSIDE, 0.05, 0.2)
LEAVES = at_most(IRRELEVANT, 1.1, 1.25, LEARNED)
BREAKS = at_least(RELEVANT, 1.25, 1.1, LEARNED)
CAPPED_SHARE = "|c'| / c of the exact minimum under the cap"
CAPPED = at_most(CAPPED_SHARE, 0.1, 0.25)


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
    rows = [
        {"link": link, "σ": noise, "seed": seed, **_unit(setup, name)}
        for link, noise, seed in CELLS
        if setup.has(name := _model(link, noise, seed).name)
    ]
    if rows:
        note_ = (
            "ratios: the unit's scores without these directions, over the error of the unit; low "
            "and high: 95 %"
        )
        results |= {"units": table_of_rows(rows, note=note_), "matrices": _matrices(setup)}
    theorem = [
        {"n": n, **_unit(setup, name)}
        for n in THEOREM_NS
        if setup.has(name := _theorem_model(n).name)
    ]
    if theorem:
        results["theorem units"] = table_of_rows(
            theorem, note=f"d = {THEOREM_D}, k = {K}, σ = 0, no cap"
        )
    return results


def _unit(setup: Setup, name: str) -> dict[str, Any]:
    """Angles and shares of a unit's M, and its error.

    The error is given with directions taken out of the scores, too.
    """
    checkpoint = setup.models[name]
    task, matrix = models.task_of(checkpoint), models.matrix_of(checkpoint.model)
    basis = task.basis
    inside = basis @ basis.T
    others = torch.eye(len(basis), dtype=torch.float64) - inside
    pair = theory.pair_of(matrix, basis)

    def blocks(edited: Tensor | None = None) -> np.ndarray:
        unit = None if edited is None else KernelUnit(edited)
        return np.asarray(models.query_errors(setup, name, task, unit).values)

    own = blocks()
    found = {
        "n used": task.n_points - 1,
        "angle": float(theory.recovery_distance(matrix, basis)),
        "outside": float(theory.outside_energy(matrix, basis)),
        "c": float(pair.inside),
        "c outside": float(pair.outside),
        "rest": float(pair.deviation),
        "error": float(own.mean()),
        "of mean": float(own.mean() / blocks(torch.zeros_like(matrix)).mean()),
    }
    for what, edited in (
        ("irrelevant", inside @ matrix @ inside),
        ("relevant", others @ matrix @ others),
    ):
        ratio = bootstrap(lambda a, b: a / b, blocks(edited), own, positive=True)
        found |= {f"{what} out": ratio.value, f"{what} low": ratio.low, f"{what} high": ratio.high}
    return found


def _matrices(setup: Setup) -> DataArray:
    """M of the units of seed 0, in an orthonormal basis whose first k vectors span col(B)."""
    links = tuple(theory.GLM_LINKS)
    values = np.full((len(links), len(NOISES), D, D), np.nan)
    for i, link in enumerate(links):
        for j, noise in enumerate(NOISES):
            name = _model(link, noise, 0).name
            if setup.has(name):
                basis = models.task_of(setup.models[name]).basis
                whole = torch.linalg.qr(torch.cat([basis, torch.eye(D, dtype=torch.float64)], 1)).Q
                values[i, j] = (
                    whole.T @ models.matrix_of(setup.models[name].model) @ whole
                ).numpy()
    axes = {
        "link": links,
        "σ": NOISES,
        "key": tuple(range(1, D + 1)),
        "query": tuple(range(1, D + 1)),
    }
    return make_array(
        values, axes, note=f"entries of M in a basis whose first {K} vectors span col(B); seed 0"
    )


def _minima(setup: Setup) -> DataFrame:
    """The least loss of c B B^T + c' (I - B B^T) on linear functions without noise.

    Losses are given by the length of the prompt.
    """
    rows = []
    for n in LENGTHS[setup.preset.name]:
        contexts = min(max(KEYS[setup.preset.name] // n, FEWEST), MOST)
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
    return table_of_rows(
        rows, note=f"d = {THEOREM_D}, k = {K}, σ = 0; held: c' = 0; capped: c at most {CAP:g}"
    )


def _endless() -> DataFrame:
    """The least loss of c B B^T for endless prompts, exact up to the grid of c.

    That of w I tends to 0 for such prompts.
    """
    grid = np.linspace(1.0, 20.0, 381)
    losses = [float(theory.long_prompt_linear_loss(float(c), 0.0, THEOREM_D, K)) for c in grid]
    best = int(np.argmin(losses))
    return table_of_rows(
        [{"c held": float(grid[best]), "loss held": losses[best]}],
        note="n to infinity, c' = 0, σ = 0",
    )


def _minimum(n: int, contexts: int, seed: int) -> dict[str, float]:
    """Minima on fixed contexts, and the ratio of their losses on fresh ones."""
    basis = torch.tensor(random_directions(THEOREM_D, K), dtype=torch.float64)
    functions = theory.glm_class("affine")
    drawn = theory.draw_contexts(n, functions, contexts, d=THEOREM_D, basis=basis, seed=2 * seed)

    def least(**settings: Any) -> theory.PairOptimum:
        ends = [theory.optimal_pair(drawn, basis, 0.0, start=start, **settings) for start in STARTS]
        return min(ends, key=lambda end: float(end.loss))

    free, held, capped = least(), least(outside=0.0), least(cap=CAP)
    fresh = theory.draw_contexts(
        n, functions, contexts, d=THEOREM_D, basis=basis, seed=2 * seed + 1
    )
    groups = [
        theory.Contexts(*parts)
        for parts in zip(*(part.chunk(GROUPS) for part in fresh), strict=True)
    ]

    def losses(pair: theory.PairOptimum) -> np.ndarray:
        matrix = theory.low_rank_matrix(basis, pair.inside, pair.outside)
        return np.array([float(theory.matrix_loss(matrix, group, 0.0)) for group in groups])

    ratio = bootstrap(lambda a, b: a / b, losses(held), losses(free), positive=True)
    return {
        "n": n,
        "c free": float(free.inside),
        "outside free": abs(float(free.outside)),
        "loss free": float(losses(free).mean()),
        "c held": float(held.inside),
        "loss held": float(losses(held).mean()),
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
    rows, theorem = (errors.rows_of(results, key) for key in ("units", "theorem units"))
    lines = [] if rows or theorem else [note("No model is here, so nothing is measured of models.")]
    for link in theory.GLM_LINKS:
        mine = [row for row in rows if row["link"] == link]
        if mine:
            lines += [_states_recovery(link, mine), *_states_projections(link, mine)]
    lines += [_states_matrix(link, mine) for link in theory.GLM_LINKS if (mine := _of(rows, link))]
    lines += _states_minima(errors.rows_of(results, "minima"), errors.rows_of(results, "endless"))
    lines += [_says_of_uncapped(row) for row in theorem]
    return tuple(lines)


def _of(rows: Sequence[Mapping[str, Any]], link: str) -> list[Mapping[str, Any]]:
    return [row for row in rows if row["link"] == link]


def _span(rows: Sequence[Mapping[str, Any]], key: str) -> str:
    """The least and the largest of a column in words."""
    low, high = (f"{f(row[key] for row in rows):.3g}" for f in (min, max))
    return low if low == high else f"{low} to {high}"


def _setting(rows: Sequence[Mapping[str, Any]]) -> str:
    noises = " and ".join(f"{noise:g}" for noise in sorted({row["σ"] for row in rows}))
    return f"d = {D}, k = {K}, n = {rows[0]['n used']}, σ = {noises}; {len(rows)} units"


def _states_recovery(link: str, rows: Sequence[Mapping[str, Any]]) -> Statement:
    text = (
        f"{link} link: the sine of the largest angle between col(B) and the {K} leading left "
        f"singular vectors of M is {_span(rows, 'angle')} ({_setting(rows)})."
    )
    return statement(text, RECOVERS[link], *(row["angle"] for row in rows))


def _interval(row: Mapping[str, Any], what: str) -> Interval:
    return Interval(row[f"{what} out"], row[f"{what} low"], row[f"{what} high"])


def _states_projections(link: str, rows: Sequence[Mapping[str, Any]]) -> list[Statement]:
    given = {OF_MEAN: max(row["of mean"] for row in rows)}
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
        statement(left, LEAVES, *(_interval(row, "irrelevant") for row in rows), given=given),
        statement(broken, BREAKS, *(_interval(row, "relevant") for row in rows), given=given),
    ]


def _states_matrix(link: str, rows: Sequence[Mapping[str, Any]]) -> Statement:
    """Theorem 4 speaks of linear functions; for the others the slides claim the subspace only."""
    share = max(abs(row["c outside"] / row["c"]) for row in rows)
    text = (
        f"{link} link: {_span(rows, 'outside')} of M's squared entries lie outside the block of "
        f"col(B) (0 for M = c B Bᵀ, {1 - K / D:.2g} for M = w I); |c'| / c is up to {share:.2g}."
    )
    return (
        statement(text, IS_PROJECTION, *(row["outside"] for row in rows))
        if link == "affine"
        else note(_first(text))
    )


def _first(text: str) -> str:
    return text[0].upper() + text[1:]


def _states_minima(
    rows: Sequence[Mapping[str, Any]], endless: Sequence[Mapping[str, Any]]
) -> list[Statement]:
    if not rows:
        return []
    shares = [row["outside capped"] / row["c capped"] for row in rows]
    ns = f"n = {', '.join(str(row['n']) for row in rows)}"
    text = (
        f"Theorem 4 without noise, |BᵀMB| at most {CAP:g}: |c'| / c of the exact minimum is at "
        f"most {max(shares):.2g} (d = {THEOREM_D}, k = {K}, {ns})."
    )
    floor = "".join(
        f" For infinitely long prompts the least error of c B Bᵀ is {row['loss held']:.3g}, at c "
        f"= {row['c held']:.3g}, and that of w I falls to 0."
        for row in endless
    )
    gains = ", ".join(
        f"{row['held / free']:.3g} [{row['low']:.3g}, {row['high']:.3g}] at n = {row['n']}"
        for row in rows
    )
    others = ", ".join(f"{row['outside free'] / row['c free']:.2g}" for row in rows)
    return [
        statement(text, CAPPED, *shares, kind="formula"),
        note(
            "Theorem 4 without the cap: the least error of any c B Bᵀ over that of any c B Bᵀ + c' "
            f"(I − B Bᵀ) is {gains}; there |c'| / c of the exact minimum is {others}.{floor}"
        ),
    ]


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


def compare(results: Results) -> DataFrame | None:
    """A row a unit; the slides show curves and print no numbers."""
    keys = ("angle", "outside", "c", "c outside", "of mean", "irrelevant out", "relevant out")
    units = [
        (f"{row['link']}, σ = {row['σ']:g}", row["seed"], row)
        for row in errors.rows_of(results, "units")
    ]
    units += [("linear, σ = 0, no cap", 0, row) for row in errors.rows_of(results, "theorem units")]
    rows = [
        {"task": task, "n": row["n used"], "seed": seed, **{key: row[key] for key in keys}}
        for task, seed, row in units
    ]
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
