"""Theorem 2 by computation: the best window against n, L, sigma and d, and its extremes.

No model is trained. For long prompts w* is a function of S = n L^2 / sigma^2 and d alone, and is
found without sampling. At finite n it is a function of n, d and L / sigma, and is found from a
Monte Carlo whose intervals are shown.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from pandas import DataFrame
from xarray import DataArray

from icl_interp.experiments.base import Experiment, Results
from icl_interp.experiments.errors import rows_of
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_least, at_most, note, statement
from icl_interp.resampling import Interval
from icl_interp.results import Result, make_curve, table_of_rows
from icl_interp.studies.lipschitz.experiments import models
from icl_interp.theory import lipschitz as theory

DIMENSIONS = {"smoke": (2, 3), "small": (2, 3, 5, 10), "paper": (2, 3, 5, 10)}
AT_N = {"smoke": (2, 3), "small": (2, 3, 5), "paper": (2, 3, 5)}
N = {"smoke": (10, 30, 100), "small": (10, 30, 100, 300, 1000, 3000)}
LENGTHS = {"smoke": (20, 50), "small": (20, 100, 1000)}  # at which L / sigma runs
SIGNALS = tuple(10.0**e for e in np.arange(-2, 8.5, 0.5))  # S
RATIOS = tuple(10.0**e for e in np.arange(-1, 3.25, 0.25))  # L / sigma
RATIO_D, SIGMA_N = 3, 0.1  # d where L / sigma runs; sigma where n runs, at L = 1
LARGE, SMALL = 1e4, 0.1  # S from which, and up to which, a slope is fitted
SLOPES = "slopes of log w* by least squares, with 95 % intervals from the residuals"
LINES = ("exact", "asymptote")
STATISTICS = ("w", "low", "high")

INSIDE = at_most("distance of the slope from the printed interval [1/d, 2/d]", 0.03, 0.1)
SHARP = at_most("|slope - 2/(d+2)|", 0.03, 0.1)
LINEAR = at_most("|slope - 1| for S up to 0.1", 0.03, 0.1)
OPENS = at_most("w* at S = 0.01", 0.01, 0.1)
CLOSES = at_least("w* at the largest n over w* at the smallest", 3.0, 1.0)
NEAREST = at_most(
    "loss of the narrowest window, that of the nearest neighbour, over the least, without noise",
    1.02,
    1.1,
)


def run(setup: Setup) -> dict[str, Result]:
    """Windows for long prompts, by n, and by L / sigma; slopes; the case without noise."""
    scale = setup.preset.name
    contexts = 400 if scale == "smoke" else None
    lengths, runs_n = LENGTHS.get(scale, LENGTHS["small"]), N.get(scale, N["small"])
    # For long prompts: no sampling.
    exact = np.stack([_long(d) for d in DIMENSIONS[scale]])
    long = make_curve(
        exact,
        {"d": DIMENSIONS[scale], "line": LINES, "S": SIGNALS},
        note="F_L⁺ on the unit sphere, S = n L² / σ², limit of long prompts",
    )
    # At finite n: the same contexts for all L and sigma of one (n, d).
    by_n = np.stack(
        [np.stack([_finite(1.0, SIGMA_N, n, d, contexts) for n in runs_n], -1) for d in AT_N[scale]]
    )
    by_ratio = np.stack(
        [
            np.stack([_finite(ratio, 1.0, n, RATIO_D, contexts) for ratio in RATIOS], -1)
            for n in lengths
        ]
    )
    interval = "low, high: 95 % Monte-Carlo interval"
    clean = [_clean(n, d, contexts) for d in AT_N[scale] for n in lengths]
    return {
        "long": long,
        "by n": make_curve(
            by_n,
            {"d": AT_N[scale], "statistic": STATISTICS, "n": runs_n},
            note=f"F_L⁺ with L = 1, σ = {SIGMA_N:g}; {interval}",
        ),
        "by ratio": make_curve(
            by_ratio,
            {"n": lengths, "statistic": STATISTICS, "L/σ": RATIOS},
            note=f"F_L⁺ with d = {RATIO_D}; {interval}",
        ),
        "slopes": table_of_rows(
            [_long_slope(d, exact[i, 0]) for i, d in enumerate(DIMENSIONS[scale])], note=SLOPES
        ),
        "slopes by n": table_of_rows(
            [_n_slope(d, runs_n, by_n[i, 0]) for i, d in enumerate(AT_N[scale])], note=SLOPES
        ),
        "noiseless": table_of_rows(
            clean,
            note="σ = 0; narrowest / least: loss of the narrowest window of the table (w = 3,251), "
            "about that of the nearest neighbour, over the least loss",
        ),
    }


def _long(d: int) -> Float[np.ndarray, "line signal"]:
    """The exact window and its asymptote for each S, at L = sigma = 1."""
    exact = [float(theory.long_prompt_window(1.0, 1.0, s, d)) for s in SIGNALS]
    asymptote = [float(theory.asymptotic_window(1.0, 1.0, s, d)) for s in SIGNALS]
    return np.array([exact, asymptote])


def _finite(
    lipschitz: float, noise: float, n: int, d: int, contexts: int | None
) -> Float[np.ndarray, " statistic"]:
    best = theory.optimal_window(lipschitz, noise, n, d, contexts=contexts)
    return np.array([float(best.window), float(best.low), float(best.high)])


def _long_slope(d: int, windows: Float[np.ndarray, " signal"]) -> dict[str, Any]:
    """The slope in S where S is large, and where it is small."""
    s = np.array(SIGNALS)
    large, small = s >= LARGE * (1 - 1e-9), s <= SMALL * (1 + 1e-9)
    end = theory.fitted_slope(torch.from_numpy(s[large]), torch.from_numpy(windows[large]))
    start = theory.fitted_slope(torch.from_numpy(s[small]), torch.from_numpy(windows[small]))
    return {**_slope_row(d, end), "slope for small S": float(start.slope)}


def _n_slope(d: int, n: Sequence[int], windows: Float[np.ndarray, " n"]) -> dict[str, Any]:
    return _slope_row(d, theory.fitted_slope(torch.tensor(n), torch.from_numpy(windows)))


def _slope_row(d: int, found: theory.Slope) -> dict[str, Any]:
    printed = theory.window_exponents_as_printed(d)
    return {
        "d": d,
        "slope": float(found.slope),
        "low": float(found.low),
        "high": float(found.high),
        "2/(d+2)": float(theory.window_exponent(d)),
        "1/d": float(printed.low),
        "2/d": float(printed.high),
    }


def _clean(n: int, d: int, contexts: int | None) -> dict[str, Any]:
    found = theory.noiseless_window(n, d, contexts=contexts)
    return {
        "n": n,
        "d": d,
        "w*": float(found.optimum.window),
        "low": float(found.optimum.low),
        "high": float(found.optimum.high),
        "narrowest / least": float(found.ratio),
        "se": float(found.ratio_error),
    }


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """Both sides of Theorem 2 as slopes, and its three extremes."""
    slopes, by_n = rows_of(results, "slopes"), results.get("by n")
    long = results.get("long")
    lines = []
    if slopes:
        lines += _states_long_prompts(slopes)
    if rows := rows_of(results, "slopes by n"):
        where = f"at L = 1, σ = {SIGMA_N:g} and finite n"
        lines.append(_states_printed(rows, "n", where))
    if isinstance(long, DataArray):
        lines.append(_states_noisy(long))
    if isinstance(by_n, DataArray):
        lines.append(_states_many(by_n))
    if clean := rows_of(results, "noiseless"):
        lines += _states_clean(clean)
    return tuple(lines) or (note("Nothing is computed."),)


def _states_long_prompts(rows: Sequence[Mapping[str, Any]]) -> list[Statement]:
    """The exponents of S: as printed, the sharp one, and where S is small."""
    where = f"for long prompts and S from {LARGE:,.0f} on"
    sharp = "; ".join(f"{r['slope']:.3g} and {r['2/(d+2)']:.3g} for d = {r['d']}" for r in rows)
    small = ", ".join(f"{r['slope for small S']:.3g} for d = {r['d']}" for r in rows)
    return [
        _states_printed(rows, "S", where),
        statement(
            f"the sharp exponent is 2/(d+2): fitted {where} and exact, {sharp}.",
            SHARP,
            *(abs(row["slope"] - row["2/(d+2)"]) for row in rows),
            kind="formula",
        ),
        statement(
            f"for S up to {SMALL:g} w* grows as S: exponents {small}. Theorem 2 is about large n, "
            "and its exponents do not hold there.",
            LINEAR,
            *(abs(row["slope for small S"] - 1) for row in rows),
            kind="formula",
        ),
    ]


def _states_printed(rows: Sequence[Mapping[str, Any]], name: str, where: str) -> Statement:
    """Whether each slope lies between the printed exponents."""
    listed = "; ".join(
        f"{r['slope']:.3g} [{r['low']:.3g}, {r['high']:.3g}] for d = {r['d']} ({r['1/d']:.3g} to "
        f"{r['2/d']:.3g})"
        for r in rows
    )
    apart = [max(r["1/d"] - r["slope"], r["slope"] - r["2/d"], 0.0) for r in rows]
    text = (
        f"Theorem 2 has the exponent of {name} in w* between 1/d and 2/d: {where} the fitted slope "
        f"is {listed}."
    )
    return statement(text, INSIDE, *apart, kind="printed")


def _states_noisy(long: DataArray) -> Statement:
    widest = [float(w) for w in long.sel(line="exact").values[:, 0]]
    text = f"σ → ∞: w* → 0. At S = {SIGNALS[0]:g} w* is at most {max(widest):.2g}."
    return statement(text, OPENS, *widest, kind="printed")


def _states_many(by_n: DataArray) -> Statement:
    windows = by_n.sel(statistic="w").values
    grown = [float(row[-1] / row[0]) for row in windows]
    n = by_n["n"].values
    listed = ", ".join(
        f"{factor:.3g} for d = {d}" for d, factor in zip(by_n["d"].values, grown, strict=True)
    )
    text = f"n → ∞: w* → ∞. From n = {n[0]} to {n[-1]:,} w* grows by a factor of {listed}."
    return statement(text, CLOSES, *grown, kind="printed")


def _states_clean(rows: Sequence[Mapping[str, Any]]) -> list[Statement]:
    """Without noise the best window is finite at finite n."""
    inside = [row for row in rows if float(row["high"]) < math.inf]
    beyond = [row for row in rows if row not in inside]
    listed = "; ".join(
        f"n = {r['n']:,}, d = {r['d']}: w* = {r['w*']:.3g} [{r['low']:.3g}, {r['high']:.3g}], the "
        f"narrowest window has {r['narrowest / least']:.3g} times its loss"
        for r in inside
    )
    ratios = [(r["narrowest / least"], 2 * r["se"]) for r in inside]
    lines = []
    if inside:
        text = f"L >> σ: pick the nearest neighbour, w → ∞. Without noise at finite n: {listed}."
        found = [Interval(ratio, ratio - half, ratio + half) for ratio, half in ratios]
        lines.append(statement(text, NEAREST, *found, kind="printed"))
    for r in beyond:
        text = (
            f"L >> σ: for n = {r['n']:,} and d = {r['d']} the best window without noise lies "
            f"beyond w = {r['w*']:,.0f}, the narrowest that is computed."
        )
        lines.append(note(text))
    return lines


def compare(results: Results) -> DataFrame | None:
    """The slopes, fitted, sharp and printed."""
    found = results.get("slopes")
    return found if isinstance(found, DataFrame) else None


THEOREM2_EXPERIMENT = Experiment(
    "lipschitz.theorem2",
    "The best window against n, L, σ and d, and its extremes",
    f"{models.SLIDES}: Theorem 2, Some extreme examples",
    (),
    run,
    states,
    compare,
    sample="theory alone: without sampling for long prompts; at finite n a Monte Carlo over "
    "contexts, the same for all L and σ",
)
