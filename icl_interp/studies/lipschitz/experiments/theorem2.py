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
from icl_interp.studies.lipschitz.experiments import models, settings
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
INTERVAL = "low, high: 95 % Monte-Carlo interval"
CLEAN = (
    "σ = 0; narrowest / least: the loss of the narrowest window of the table (w = 3,251), which "
    "is nearly that of the nearest neighbour, over the least loss"
)
CLEAN_ROW = (
    "n = {n:,}, d = {d}: w* = {w*:.3g} [{low:.3g}, {high:.3g}], the narrowest window has "
    "{narrowest / least:.3g} times its loss"
)
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
    lengths = LENGTHS.get(scale, LENGTHS["small"])
    results: dict[str, Result] = {}

    # For long prompts: no sampling.
    exact = []
    slopes = []
    for d in DIMENSIONS[scale]:
        lines = _long(d)
        exact.append(lines)
        slopes.append(_long_slope(d, lines[0]))
    axes = {"d": DIMENSIONS[scale], "line": LINES, "S": SIGNALS}
    where = "F_L⁺ on the unit sphere, S = n L² / σ², limit of long prompts"
    results["long"] = make_curve(np.stack(exact), axes, note=where)
    results["slopes"] = table_of_rows(slopes, note=SLOPES)

    # At finite n: the same contexts for all L and sigma of one (n, d).
    results |= _by_n(AT_N[scale], N.get(scale, N["small"]), contexts)
    results["by ratio"] = _by_ratio(lengths, contexts)
    clean = []
    for d in AT_N[scale]:
        for n in lengths:
            clean.append(_clean(n, d, contexts))
    results["noiseless"] = table_of_rows(clean, note=CLEAN)
    return results


def _by_n(
    dimensions: Sequence[int], lengths: Sequence[int], contexts: int | None
) -> dict[str, Result]:
    """Windows by n at L = 1, and their slopes."""
    found = np.zeros((len(dimensions), len(STATISTICS), len(lengths)))
    slopes = []
    for i, d in enumerate(dimensions):
        for j, n in enumerate(lengths):
            found[i, :, j] = _finite(1.0, SIGMA_N, n, d, contexts)
        slope = theory.fitted_slope(torch.tensor(lengths), torch.from_numpy(found[i, 0]))
        slopes.append(_slope_row(d, slope))
    axes = {"d": dimensions, "statistic": STATISTICS, "n": lengths}
    where = f"F_L⁺ with L = 1, σ = {SIGMA_N:g}; {INTERVAL}"
    return {
        "by n": make_curve(found, axes, note=where),
        "slopes by n": table_of_rows(slopes, note=SLOPES),
    }


def _by_ratio(lengths: Sequence[int], contexts: int | None) -> DataArray:
    """Windows by L / sigma."""
    found = np.zeros((len(lengths), len(STATISTICS), len(RATIOS)))
    for i, n in enumerate(lengths):
        for j, ratio in enumerate(RATIOS):
            found[i, :, j] = _finite(ratio, 1.0, n, RATIO_D, contexts)
    axes = {"n": lengths, "statistic": STATISTICS, "L/σ": RATIOS}
    return make_curve(found, axes, note=f"F_L⁺ with d = {RATIO_D}; {INTERVAL}")


def _long(d: int) -> Float[np.ndarray, "line signal"]:
    """The exact window and its asymptote for each S, at L = sigma = 1."""
    found = np.zeros((len(LINES), len(SIGNALS)))
    for i, s in enumerate(SIGNALS):
        found[0, i] = theory.long_prompt_window(1.0, 1.0, s, d)
        found[1, i] = theory.asymptotic_window(1.0, 1.0, s, d)
    return found


def _finite(
    lipschitz: float, noise: float, n: int, d: int, contexts: int | None
) -> Float[np.ndarray, " statistic"]:
    best = theory.optimal_window(lipschitz, noise, n, d, contexts=contexts)
    return np.array([float(best.window), float(best.low), float(best.high)])


def _long_slope(d: int, windows: Float[np.ndarray, " signal"]) -> dict[str, Any]:
    """The slope in S where S is large, and where it is small."""
    s = torch.tensor(SIGNALS, dtype=torch.float64)
    w = torch.from_numpy(windows)
    large = s >= LARGE * (1 - 1e-9)
    small = s <= SMALL * (1 + 1e-9)
    end = theory.fitted_slope(s[large], w[large])
    start = theory.fitted_slope(s[small], w[small])
    row = _slope_row(d, end)
    row["slope for small S"] = float(start.slope)
    return row


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
    lines = _states_long_prompts(rows_of(results, "slopes"))
    where = f"at L = 1, σ = {SIGMA_N:g} and finite n"
    lines += _states_printed(rows_of(results, "slopes by n"), "n", where)
    long = results.get("long")
    if isinstance(long, DataArray):
        lines.append(_states_noisy(long))
    by_n = results.get("by n")
    if isinstance(by_n, DataArray):
        lines.append(_states_many(by_n))
    lines += _states_clean(rows_of(results, "noiseless"))
    return tuple(lines) or (note("Nothing is computed."),)


def _listed(rows: Sequence[Mapping[str, Any]], pattern: str) -> str:
    """A pattern filled in for each row."""
    return "; ".join(pattern.format_map(row) for row in rows)


def _states_long_prompts(rows: Sequence[Mapping[str, Any]]) -> list[Statement]:
    """The exponents of S: as printed, the sharp one, and where S is small."""
    if not rows:
        return []
    where = f"for long prompts and S from {LARGE:,.0f} on"
    lines = _states_printed(rows, "S", where)
    table = DataFrame(rows)

    # The sharp exponent.
    apart = (table["slope"] - table["2/(d+2)"]).abs()
    each = _listed(rows, "{slope:.3g} and {2/(d+2):.3g} for d = {d}")
    text = f"the sharp exponent is 2/(d+2): fitted {where} and exact, {each}."
    lines.append(statement(text, SHARP, *apart, kind="formula"))

    # Small S.
    apart = (table["slope for small S"] - 1).abs()
    each = _listed(rows, "{slope for small S:.3g} for d = {d}")
    text = (
        f"for S up to {SMALL:g} w* grows as S: exponents {each}. Theorem 2 is about large n, and "
        "its exponents do not hold there."
    )
    lines.append(statement(text, LINEAR, *apart, kind="formula"))
    return lines


def _states_printed(rows: Sequence[Mapping[str, Any]], name: str, where: str) -> list[Statement]:
    """Whether each slope lies between the printed exponents."""
    if not rows:
        return []
    each = _listed(rows, "{slope:.3g} [{low:.3g}, {high:.3g}] for d = {d} ({1/d:.3g} to {2/d:.3g})")
    table = DataFrame(rows)
    inside = table["slope"].clip(table["1/d"], table["2/d"])
    apart = (table["slope"] - inside).abs()
    text = (
        f"Theorem 2 has the exponent of {name} in w* between 1/d and 2/d: {where} the fitted slope "
        f"is {each}."
    )
    return [statement(text, INSIDE, *apart, kind="printed")]


def _states_noisy(long: DataArray) -> Statement:
    widest = long.sel(line="exact").values[:, 0]
    text = f"σ → ∞: w* → 0. At S = {SIGNALS[0]:g} w* is at most {widest.max():.2g}."
    return statement(text, OPENS, *widest, kind="printed")


def _states_many(by_n: DataArray) -> Statement:
    windows = by_n.sel(statistic="w").values
    grown = windows[:, -1] / windows[:, 0]
    n = by_n["n"].values
    table = DataFrame({"d": by_n["d"].values, "factor": grown})
    each = _listed(table.to_dict("records"), "{factor:.3g} for d = {d}")
    text = f"n → ∞: w* → ∞. From n = {n[0]} to {n[-1]:,} w* grows by a factor of {each}."
    return statement(text, CLOSES, *grown, kind="printed")


def _states_clean(rows: Sequence[Mapping[str, Any]]) -> list[Statement]:
    """Without noise the best window is finite at finite n."""
    inside = []
    ratios = []
    beyond = []
    for row in rows:
        if not float(row["high"]) < math.inf:
            beyond.append(row)
            continue
        inside.append(row)
        ratio = row["narrowest / least"]
        half = 2 * row["se"]
        ratios.append(Interval(ratio, ratio - half, ratio + half))
    # What the table reaches decides; the rest is noted.
    lines = []
    if inside:
        each = _listed(inside, CLEAN_ROW)
        text = f"L >> σ: pick the nearest neighbour, w → ∞. Without noise at finite n: {each}."
        lines.append(statement(text, NEAREST, *ratios, kind="printed"))
    if beyond:
        each = _listed(beyond, "n = {n:,} and d = {d}")
        text = (
            f"L >> σ: for {each} the best window without noise lies beyond w = 3,251, the "
            "narrowest that is computed."
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
    settings=settings.SETTINGS["theorem2"],
)
