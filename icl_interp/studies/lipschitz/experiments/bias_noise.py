"""Bias and noise of a window: softmax units with M = w I against theory's values.

The units are measured on prompts.

Each prompt is shown three times: with clean labels (the squared error is the bias), with labels
that are noise alone (the squared prediction is the noise), and with both, where the slides'
decomposition says that the error is the sum. Theory's values come from a Monte Carlo of its own in
which slopes, directions and label noise are averaged in closed form, so they are much better known
than what is measured; for long prompts there are closed forms. Trained units are measured in the
same way.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from pandas import DataFrame
from torch import Tensor
from xarray import DataArray

from icl_interp.baselines.base import predictions
from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Results
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_least, at_most, none_of, note, statement
from icl_interp.provenance import encode, generator
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import Result, make_array, make_curve, table_of_rows
from icl_interp.studies.lipschitz.experiments import circle_predictions, models, settings
from icl_interp.tasks.ridge import RidgeFunction
from icl_interp.tasks.vectors import Sphere
from icl_interp.theory import lipschitz as theory

N = {"smoke": 20, "small": 100, "paper": 100}  # labelled examples, those of the trained units
DIMENSIONS = {"smoke": (2, 3), "small": (2, 3, 5), "paper": (2, 3, 5, 10)}
OCTAVES = {
    "smoke": (-2, 5, 2),
    "small": (-4, 11, 1),
    "paper": (-4, 11, 1),
}  # windows are powers of 2
# d, n and two windows, all of them with w^((d-1)/2) at most n / 20, where the noise still grows as
# for long prompts.
EXPONENTS = {
    "smoke": ((3, 200, 2.0, 10.0),),
    "small": ((2, 1000, 50.0, 800.0), (3, 1000, 5.0, 50.0), (5, 2000, 3.0, 10.0)),
    "paper": (
        (2, 1000, 50.0, 800.0),
        (3, 1000, 5.0, 50.0),
        (5, 4000, 4.0, 14.0),
        (10, 20_000, 2.0, 4.0),
    ),
}
PARTS = ("bias", "noise", "total")
PRINTED = ("noise as printed", "lower bound on the bias", "upper bound on the bias")
FAR = 4.0  # standard errors
SMALLEST, MIDDLE = (
    0.25,
    4.0,
)  # windows at which the order of the bias for w to 0 is looked at; at most the former

ON_THEORY = none_of(f"cases more than {FAR:g} standard errors off theory")
ADDS_UP = none_of(f"cases with error - bias - noise more than {FAR:g} standard errors from 0")
EXPONENT = at_most("|measured exponent - d log(Z(2w) / Z(w)²) / d log w|", 0.1, 0.25)
EXPONENT_PRINTED = at_most("|measured exponent - d/2|", 0.1, 0.25)
LOWER = at_least("least w² bias for w >= 1 over its value at w = 1", 0.9, 0.5)
UPPER = at_most("largest bias / (1/w + 1/n) for w >= 1 and w^((d-1)/2) <= n, at L = 1", 1.0)
LOWER_NEAR_0 = at_least("w² bias at the widest window over its value at w = 4", 0.5, 0.1)
BIAS_FALLS = at_most(
    "bias / L² of each unit over that of the unit trained at the next smaller L", 0.8, 1.0
)
NOISE_RISES = at_least(
    "noise of each unit over that of the unit trained at the next smaller L", 1.2, 1.0
)
LEAST = at_most("error of a trained unit / error of the best window on the same prompts", 1.05, 1.2)


def task_for(d: int, n: int) -> RidgeFunction:
    """F_L^+ with L = 1 on the unit sphere, with clean labels."""
    return RidgeFunction(link="relu", inputs=Sphere(d), n_points=n + 1)


def run(setup: Setup) -> dict[str, Result]:
    """Parts of the error by window, the noise's exponents, and trained units.

    Parts are measured and by theory.
    """
    scale = setup.preset.name
    n, dimensions = N[scale], DIMENSIONS[scale]
    windows = [2.0**octave for octave in range(*OCTAVES[scale])]
    measured, lines, printed, rows = [], [], [], []
    for d in dimensions:
        parts = _measured(setup, [w * torch.eye(d) for w in windows], task_for(d, n))
        value, se = parts.mean(0), parts.std(0, ddof=1) / len(parts) ** 0.5
        measured.append(np.stack([value.T, se.T], 1))
        fine, exact, bounds = _theory(setup, d, n, windows)
        lines.append(exact)
        printed.append(bounds)
        rows += _checks(d, windows, parts, fine, exact)
    where = f"F_L⁺ with L = 1, σ = 1, n = {n}, M = w I on the unit sphere"
    common: dict[str, Any] = {"d": dimensions}
    both = {"statistic": ("value", "se")}
    results: dict[str, Result] = {
        "measured": make_curve(
            np.stack(measured), {**common, "part": PARTS, **both, "w": windows}, note=where
        ),
        "theory": make_curve(
            np.stack(lines), {**common, "part": PARTS[:2], **both, "w": fine}, note=where
        ),
        "printed": make_curve(
            np.stack(printed), {**common, "line": PRINTED, "w": fine}, note=f"{where}; constants 1"
        ),
        "lengths": table_of_rows(
            [{"d": d, "n": n} for d in dimensions], note="labelled examples of the prompts"
        ),
        "checks": table_of_rows(
            rows, note=f"{where}; z: (measured - theory) / standard error of both"
        ),
        "exponents": table_of_rows(
            [_exponent(setup, *setting) for setting in EXPONENTS[scale]],
            note="exponent of the noise in w between two windows; 95 % bootstrap over blocks of "
            "prompts",
        ),
        **circle_predictions.shown(n, contexts=400 if scale == "smoke" else None),
    }
    trained = [
        _trained(setup, lipschitz, model.name)
        for lipschitz, model in models.RELU_UNITS.items()
        if setup.has(model.name)
    ]
    if trained:
        words = "each on the task that it was trained on; best: the window of least loss by theory"
        results["trained"] = table_of_rows(
            trained, note=f"mean squared error at the query; {words}"
        )
    return results


def _measured(
    setup: Setup, matrices: Sequence[Tensor], task: RidgeFunction
) -> Float[np.ndarray, "block unit part"]:
    """Bias, noise for unit label noise, and error with both, of units with these M.

    All are on the same prompts.
    """
    found = setup.keep(
        "lipschitz: bias and noise",
        [],
        lambda: make_array(
            _parts(setup, matrices, task),
            {"block": range(setup.preset.n_functions), "unit": range(len(matrices)), "part": PARTS},
        ),
        task=encode(task),
        matrices=[matrix.tolist() for matrix in matrices],
    )
    return np.asarray(found.values)


def _parts(
    setup: Setup, matrices: Sequence[Tensor], task: RidgeFunction
) -> Float[np.ndarray, "block unit part"]:
    units, parts = [models.KernelUnit(matrix) for matrix in matrices], []
    for i, prompts in enumerate(models.batches(setup, task, "bias and noise")):
        truth = prompts.ys[:, -1, 0]
        noise = torch.randn(
            prompts.ys.shape, generator=generator(setup.seed, "lipschitz/labels", i)
        ).double()
        noise[:, -1] = 0
        each = []
        for unit in units:
            clean, alone, both = (
                predictions(unit, replace(prompts, ys=ys))[:, -1, 0]
                for ys in (prompts.ys, noise, prompts.ys + noise)
            )
            each.append(
                torch.stack([(clean - truth).square(), alone.square(), (both - truth).square()], -1)
            )
        parts.append(torch.stack(each, 1))
    return models.by_block(setup, parts)


def _table(setup: Setup, d: int, n: int) -> theory.LossTable:
    return theory.loss_table(n, d, contexts=400 if setup.preset.name == "smoke" else None)


def _theory(
    setup: Setup, d: int, n: int, windows: Sequence[float]
) -> tuple[list[float], Float[np.ndarray, "kind statistic place"], Float[np.ndarray, "line place"]]:
    """Windows of theory's table within these, and its bias and noise there.

    The printed orders come with constants 1.
    """
    table = _table(setup, d, n)
    inside = (table.windows >= windows[0] * (1 - 1e-9)) & (
        table.windows <= windows[-1] * (1 + 1e-9)
    )
    fine = table.windows[inside]
    parts = [table.bias[:, inside], table.noise[:, inside]]
    exact = np.stack([np.stack([p.mean(0), p.std(0) / len(p) ** 0.5]) for p in parts])
    bounds = theory.bias_bounds_as_printed(fine, n)
    grown = (fine ** float(theory.noise_exponent_as_printed(d)) + 1) / n
    return fine.tolist(), exact, np.stack([grown, bounds.lower, bounds.upper])


def _checks(
    d: int,
    windows: Sequence[float],
    parts: Float[np.ndarray, "block unit part"],
    fine: Sequence[float],
    exact: Float[np.ndarray, "kind statistic place"],
) -> list[dict[str, Any]]:
    """A row for each window and part.

    The part "cross" is what error - bias - noise has, whose expectation is 0.
    """
    cross = parts[..., 2] - parts[..., 0] - parts[..., 1]
    rows = []
    for j, w in enumerate(windows):
        at = int(np.argmin(np.abs(np.log(fine) - math.log(w))))
        for name, blocks, (value, error) in (
            ("bias", parts[:, j, 0], exact[0, :, at]),
            ("noise", parts[:, j, 1], exact[1, :, at]),
            ("cross", cross[:, j], (0.0, 0.0)),
        ):
            mean, se = float(blocks.mean()), float(blocks.std(ddof=1) / len(blocks) ** 0.5)
            z = (mean - value) / math.hypot(se, error)
            row = {
                "d": d,
                "w": w,
                "part": name,
                "measured": mean,
                "se": se,
                "theory": float(value),
                "z": float(z),
            }
            rows.append(row)
    return rows


def _exponent(setup: Setup, d: int, n: int, wide: float, narrow: float) -> dict[str, Any]:
    """How the noise grows between two windows.

    The exponent is given as measured, as for long prompts, and as the slides print it.
    """
    task = task_for(d, n)

    def compute() -> DataArray:
        units, parts = [models.KernelUnit(w * torch.eye(d)) for w in (wide, narrow)], []
        for i, prompts in enumerate(models.batches(setup, task, "noise alone")):
            noise = torch.randn(
                prompts.ys.shape, generator=generator(setup.seed, "lipschitz/noise alone", i)
            ).double()
            noise[:, -1] = 0
            alone = [
                predictions(unit, replace(prompts, ys=noise))[:, -1, 0].square() for unit in units
            ]
            parts.append(torch.stack(alone, -1))
        blocks = models.by_block(setup, parts)
        return make_array(blocks, {"block": range(len(blocks)), "w": (wide, narrow)})

    found = setup.keep(
        "lipschitz: noise at two windows", [], compute, d=d, n=n, windows=(wide, narrow)
    )
    apart = math.log(narrow / wide)
    i = bootstrap(lambda a, b: np.log(b / a) / apart, *np.asarray(found.values).T)
    limits = theory.noise_limit(torch.tensor([wide, narrow]), d)
    return {
        "d": d,
        "n": n,
        "from w": wide,
        "to w": narrow,
        "exponent": i.value,
        "low": i.low,
        "high": i.high,
        "long prompts": float((limits[1] / limits[0]).log() / apart),
        "(d-1)/2": float(theory.noise_exponent(d)),
        "d/2, as printed": float(theory.noise_exponent_as_printed(d)),
    }


def _trained(setup: Setup, lipschitz: float, name: str) -> dict[str, Any]:
    """Parts of the error of a trained unit on its own task, beside theory's.

    Theory's parts are at the unit's w. The error is also given over that of the best window.
    """
    checkpoint = setup.models[name]
    task = models.task_of(checkpoint)
    n, d, matrix = models.trained_length(checkpoint), task.dim, models.matrix_of(checkpoint.model)
    table, w = _table(setup, d, n), models.window_of(checkpoint.model, task).window
    best = theory.table_optimum(table, lipschitz, task.noise_std)
    parts = _measured(setup, [matrix, best.window * torch.eye(d)], replace(task, noise_std=0.0))
    bias, noise, total = (
        bootstrap(lambda mean: mean, parts[:, 0, i], positive=True) for i in range(3)
    )
    over = bootstrap(lambda a, b: a / b, parts[:, 0, 2], parts[:, 1, 2], positive=True)
    inside = min(max(float(w), float(table.windows[0])), float(table.windows[-1]))
    clean, noisy = (
        float(theory.window_loss(table, inside, lipschitz, sigma).value) for sigma in (0.0, 1.0)
    )
    found: dict[str, Any] = {
        "model": name,
        "L": lipschitz,
        "w": float(w),
        "best w": float(best.window),
    }
    for key, i in (("bias", bias), ("noise", noise), ("error", total), ("error / best", over)):
        found |= {key: i.value, f"{key}, low": i.low, f"{key}, high": i.high}
    return {
        **found,
        "bias by theory": clean,
        "noise by theory": noisy - clean,
        "keys": 1 / noise.value,
    }


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """What trained units show, and what the slides print of bias and noise.

    A statement is on whether measurements follow theory.
    """
    trained = sorted(errors.rows_of(results, "trained"), key=lambda row: row["L"])
    lines = _states_trained(trained) if len(trained) > 1 else []
    lines += _states_checks(errors.rows_of(results, "checks"))
    for row in errors.rows_of(results, "exponents"):
        lines += _states_exponent(row)
    measured = results.get("measured")
    for row in errors.rows_of(results, "lengths"):
        if isinstance(measured, DataArray):
            lines += _states_bias(measured, row["d"], row["n"])
    return tuple(lines) or (note("Nothing is measured."),)


def _states_trained(rows: Sequence[Mapping[str, Any]]) -> list[Statement]:
    """The slides' table: M large has few points, low bias and high noise.

    And whether training finds the minimum.
    """

    def listed(*columns: str) -> str:
        return "; ".join(
            f"L = {row['L']:g} (w = {row['w']:.3g}): {', '.join(f'{row[c]:.2g}' for c in columns)}"
            for row in rows
        )

    pairs = list(pairwise(rows))
    falls = [_quotient(b, a, "bias", (a["L"] / b["L"]) ** 2) for a, b in pairs]
    rises = [_quotient(b, a, "noise") for a, b in pairs]
    shares = "; ".join(f"{row['bias'] / row['L'] ** 2:.2g} at w = {row['w']:.3g}" for row in rows)
    bias = (
        "a larger M has a lower bias (the slides' trade-off): trained units have bias / L² = "
        f"{shares}."
    )
    noise = (
        "a larger M attends to fewer points and has a higher noise variance: trained units have "
        f"noise / σ² and number of keys σ² / noise, {listed('noise', 'keys')}."
    )
    least = (
        "training finds the window of least loss (one run at each L): error of the trained unit "
        "over that of the best window, "
        + "; ".join(
            f"L = {r['L']:g}: {r['error / best']:.4g} [{r['error / best, low']:.4g}, "
            f"{r['error / best, high']:.4g}], w = {r['w']:.3g}, best {r['best w']:.3g}"
            for r in rows
        )
        + "."
    )
    quotients = [
        errors.interval_of(row, "error / best", "error / best, low", "error / best, high")
        for row in rows
    ]
    return [
        statement(bias, BIAS_FALLS, *falls),
        statement(noise, NOISE_RISES, *rises),
        statement(least, LEAST, *quotients),
    ]


def _quotient(
    one: Mapping[str, Any], other: Mapping[str, Any], key: str, factor: float = 1.0
) -> Interval:
    """The widest quotient that two intervals allow."""
    ends = (one[f"{key}, low"] / other[f"{key}, high"], one[f"{key}, high"] / other[f"{key}, low"])
    return Interval(factor * one[key] / other[key], factor * ends[0], factor * ends[1])


def _states_checks(rows: Sequence[Mapping[str, Any]]) -> list[Statement]:
    lines = []
    for parts, rule, what in (
        (
            ("bias", "noise"),
            ON_THEORY,
            "bias and noise measured on softmax units lie on theory's values",
        ),
        (("cross",), ADDS_UP, "the squared error is bias + noise, as the slides decompose it"),
    ):
        mine = [row for row in rows if row["part"] in parts]
        if mine:
            far = sum(not abs(row["z"]) < FAR for row in mine)
            text = (
                f"{what}: {len(mine) - far} of {len(mine)} cases (largest |z| "
                f"{max(abs(r['z']) for r in mine):.1f})."
            )
            lines.append(statement(text, rule, far, kind="formula"))
    return lines


def _states_exponent(row: Mapping[str, Any]) -> list[Statement]:
    found = errors.interval_of(row, "exponent")
    text = (
        f"d = {row['d']}, n = {row['n']:,}: from w = {row['from w']:g} to {row['to w']:g} the "
        f"noise grows as w to the power {row['exponent']:.3g} [{row['low']:.3g}, {row['high']:.3g}]"
    )
    exact = (
        f"{text}; for long prompts it is {row['long prompts']:.3g} there, and (d-1)/2 = "
        f"{row['(d-1)/2']:g} in the end."
    )
    printed = f"{text}; the slides print the exponent d/2 = {row['d/2, as printed']:g}."
    return [
        statement(exact, EXPONENT, _apart(found, row["long prompts"]), kind="formula"),
        statement(printed, EXPONENT_PRINTED, _apart(found, row["d/2, as printed"]), kind="printed"),
    ]


def _apart(found: Interval, point: float) -> Interval:
    """The distance of an estimate from a number, as an interval.

    It has the least and the largest distance that the estimate's interval allows.
    """
    low, high = sorted((abs(found.low - point), abs(found.high - point)))
    return Interval(
        abs(found.value - point), 0.0 if found.low <= point <= found.high else low, high
    )


def _states_bias(measured: DataArray, d: int, n: int) -> list[Statement]:
    """Omega(L^2 / w^2) < bias < Theta(L^2 / w + L^2 / n), as the slides print it.

    It is true for w >= 1, and the lower bound is false for w to 0.
    """
    w = measured["w"].values
    bias = measured.sel(d=d, part="bias", statistic="value").values
    order = bias * w**2
    one, wide = int(np.argmin(np.abs(w - 1))), int(np.argmin(w))
    inside = (w >= 1) & (w ** ((d - 1) / 2) <= n)
    least, most = order[w >= 1].min() / order[one], (bias / (1 / w + 1 / n))[inside].max()
    near = (
        f"d = {d}: for w >= 1 the bias is not below the order L²/w²: the least w² bias is "
        f"{least:.3g} of its value at w = 1."
    )
    upper = (
        f"d = {d}: the bias stays below L²/w + L²/n for w >= 1, w^((d-1)/2) <= n: at most "
        f"{most:.2g} of it."
    )
    lines = [
        statement(near, LOWER, float(least), kind="printed"),
        statement(upper, UPPER, float(most), kind="printed"),
    ]
    if w[wide] <= SMALLEST:
        fallen = order[wide] / order[int(np.argmin(np.abs(w - MIDDLE)))]
        text = (
            f"d = {d}: the lower bound Omega(L²/w²) on the bias, printed without a condition on w: "
            f"from w = {MIDDLE:g} to w = {w[wide]:g} w² bias falls to {fallen:.2g} of itself, "
            "because the bias stays bounded."
        )
        lines.append(statement(text, LOWER_NEAR_0, float(fallen), kind="printed"))
    return lines


def compare(results: Results) -> DataFrame | None:
    """The noise's exponents, measured, exact and printed."""
    found = results.get("exponents")
    return found if isinstance(found, DataFrame) else None


BIAS_NOISE_EXPERIMENT = Experiment(
    "lipschitz.bias_noise",
    "Bias and noise of a window, measured on softmax units against theory",
    f"{models.SLIDES}: ICL estimator intuition (how |M| changes the prediction), Results Part I, "
    "Proof Sketch",
    tuple(models.RELU_UNITS.values()),
    run,
    states,
    compare,
    sample=models.SAMPLE,
    sizes=models.UNIT_SIZES,
    settings=settings.SETTINGS["bias_noise"],
)
