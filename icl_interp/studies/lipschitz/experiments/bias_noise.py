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

from icl_interp.baselines.base import Predictor, predictions
from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Results
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_least, at_most, none_of, note, statement
from icl_interp.prompts import Prompts
from icl_interp.provenance import encode, generator
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import Result, make_array, make_curve, table_of_rows
from icl_interp.studies.lipschitz.experiments import circle_predictions, models, settings
from icl_interp.tasks.ridge import RidgeFunction
from icl_interp.tasks.vectors import Sphere
from icl_interp.theory import lipschitz as theory

N = {"smoke": 20, "small": 100, "paper": 100}  # labelled examples, those of the trained units
DIMENSIONS = {"smoke": (2, 3), "small": (2, 3, 5), "paper": (2, 3, 5, 10)}
# Windows are powers of 2.
OCTAVES = {"smoke": (-2, 5, 2), "small": (-4, 11, 1), "paper": (-4, 11, 1)}
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
# Windows at which the order of the bias for w to 0 is looked at; at most the former.
SMALLEST = 0.25
MIDDLE = 4.0

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
    n = N[scale]
    dimensions = DIMENSIONS[scale]
    windows = [2.0**octave for octave in range(*OCTAVES[scale])]
    measured = []
    lines = []
    printed = []
    rows = []
    for d in dimensions:
        task = task_for(d, n)
        matrices = [w * torch.eye(d) for w in windows]
        parts = _measured(setup, matrices, task)
        value = parts.mean(0)
        se = parts.std(0, ddof=1) / len(parts) ** 0.5
        measured.append(np.stack([value.T, se.T], 1))
        fine, exact, bounds = _theory(setup, d, n, windows)
        lines.append(exact)
        printed.append(bounds)
        rows += _checks(d, windows, parts, fine, exact)

    # Curves over the window, for each dimension.
    where = f"F_L⁺ with L = 1, σ = 1, n = {n}, M = w I on the unit sphere"
    both = ("value", "se")
    of_measured = {"d": dimensions, "part": PARTS, "statistic": both, "w": windows}
    of_theory = {"d": dimensions, "part": PARTS[:2], "statistic": both, "w": fine}
    of_printed = {"d": dimensions, "line": PRINTED, "w": fine}
    results: dict[str, Result] = {}
    results["measured"] = make_curve(np.stack(measured), of_measured, note=where)
    results["theory"] = make_curve(np.stack(lines), of_theory, note=where)
    results["printed"] = make_curve(np.stack(printed), of_printed, note=f"{where}; constants 1")

    # What is compared with theory, number by number.
    lengths = [{"d": d, "n": n} for d in dimensions]
    results["lengths"] = table_of_rows(lengths, note="labelled examples of the prompts")
    words = f"{where}; z: (measured - theory) / standard error of both"
    results["checks"] = table_of_rows(rows, note=words)
    exponents = [_exponent(setup, *setting) for setting in EXPONENTS[scale]]
    words = "exponent of the noise in w between two windows; 95 % bootstrap over blocks of prompts"
    results["exponents"] = table_of_rows(exponents, note=words)
    results |= circle_predictions.shown(n, contexts=_contexts(setup))
    trained = []
    for lipschitz, model in models.RELU_UNITS.items():
        name = model.name
        if setup.has(name):
            trained.append(_trained(setup, lipschitz, name))
    if trained:
        words = (
            "mean squared error at the query; each on the task that it was trained on; best: the "
            "window of least loss by theory"
        )
        results["trained"] = table_of_rows(trained, note=words)
    return results


def _contexts(setup: Setup) -> int | None:
    """Of theory's Monte Carlo; None for its own number."""
    return 400 if setup.preset.name == "smoke" else None


def _measured(
    setup: Setup, matrices: Sequence[Tensor], task: RidgeFunction
) -> Float[np.ndarray, "block unit part"]:
    """Bias, noise for unit label noise, and error with both, of units with these M.

    All are on the same prompts.
    """
    blocks = range(setup.preset.n_functions)
    axes = {"block": blocks, "unit": range(len(matrices)), "part": PARTS}
    found = setup.keep(
        "lipschitz: bias and noise",
        [],
        lambda: make_array(_parts(setup, matrices, task), axes),
        task=encode(task),
        matrices=[matrix.tolist() for matrix in matrices],
    )
    return np.asarray(found.values)


def _parts(
    setup: Setup, matrices: Sequence[Tensor], task: RidgeFunction
) -> Float[np.ndarray, "block unit part"]:
    units = [models.KernelUnit(matrix) for matrix in matrices]
    parts = []
    batches = models.batches(setup, task, "bias and noise")
    for i, prompts in enumerate(batches):
        truth = prompts.ys[:, -1, 0]
        noise = _label_noise(setup, prompts, "lipschitz/labels", i)
        # Every unit reads the prompts three times: with clean labels, with noise, with both.
        each = []
        for unit in units:
            clean = _at_query(unit, prompts, prompts.ys)
            alone = _at_query(unit, prompts, noise)
            both = _at_query(unit, prompts, prompts.ys + noise)
            bias = (clean - truth).square()
            error = (both - truth).square()
            each.append(torch.stack([bias, alone.square(), error], -1))
        parts.append(torch.stack(each, 1))
    return models.by_block(setup, parts)


def _label_noise(setup: Setup, prompts: Prompts, name: str, batch: int) -> Tensor:
    """Noise of unit variance on the examples' labels, none on the query's."""
    stream = generator(setup.seed, name, batch)
    noise = torch.randn(prompts.ys.shape, generator=stream).double()
    noise[:, -1] = 0
    return noise


def _at_query(unit: Predictor, prompts: Prompts, ys: Tensor) -> Tensor:
    """What a unit predicts where the prompts have these labels."""
    return predictions(unit, replace(prompts, ys=ys))[:, -1, 0]


def _table(setup: Setup, d: int, n: int) -> theory.LossTable:
    return theory.loss_table(n, d, contexts=_contexts(setup))


def _theory(
    setup: Setup, d: int, n: int, windows: Sequence[float]
) -> tuple[list[float], Float[np.ndarray, "kind statistic place"], Float[np.ndarray, "line place"]]:
    """Windows of theory's table within these, and its bias and noise there.

    The printed orders come with constants 1.
    """
    table = _table(setup, d, n)
    # The first and the last of these windows are inside, whatever they are rounded to.
    from_first = table.windows >= windows[0] * (1 - 1e-9)
    to_last = table.windows <= windows[-1] * (1 + 1e-9)
    inside = from_first & to_last
    fine = table.windows[inside]
    exact = []
    for part in (table.bias[:, inside], table.noise[:, inside]):
        se = part.std(0) / len(part) ** 0.5
        exact.append(np.stack([part.mean(0), se]))
    bounds = theory.bias_bounds_as_printed(fine, n)
    exponent = float(theory.noise_exponent_as_printed(d))
    grown = (fine**exponent + 1) / n
    return fine.tolist(), np.stack(exact), np.stack([grown, bounds.lower, bounds.upper])


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
    bias, noise, total = np.moveaxis(parts, -1, 0)
    cross = total - bias - noise
    rows = []
    for j, w in enumerate(windows):
        at = _nearest(np.log(fine), math.log(w))
        compared = (
            ("bias", bias[:, j], exact[0, :, at]),
            ("noise", noise[:, j], exact[1, :, at]),
            ("cross", cross[:, j], (0.0, 0.0)),
        )
        for name, blocks, (value, error) in compared:
            mean = float(blocks.mean())
            se = float(blocks.std(ddof=1) / len(blocks) ** 0.5)
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


def _nearest(values: np.ndarray, point: float) -> int:
    """The place of the value that is nearest to a number."""
    apart = np.abs(values - point)
    return int(np.argmin(apart))


def _exponent(setup: Setup, d: int, n: int, wide: float, narrow: float) -> dict[str, Any]:
    """How the noise grows between two windows.

    The exponent is given as measured, as for long prompts, and as the slides print it.
    """
    task = task_for(d, n)
    windows = (wide, narrow)

    def compute() -> DataArray:
        units = [models.KernelUnit(w * torch.eye(d)) for w in windows]
        parts = []
        batches = models.batches(setup, task, "noise alone")
        for i, prompts in enumerate(batches):
            noise = _label_noise(setup, prompts, "lipschitz/noise alone", i)
            alone = [_at_query(unit, prompts, noise).square() for unit in units]
            parts.append(torch.stack(alone, -1))
        blocks = models.by_block(setup, parts)
        return make_array(blocks, {"block": range(len(blocks)), "w": windows})

    found = setup.keep("lipschitz: noise at two windows", [], compute, d=d, n=n, windows=windows)
    at_wide, at_narrow = np.asarray(found.values).T

    # The exponent is the slope between the two windows in logarithms.
    apart = math.log(narrow / wide)
    exponent = bootstrap(lambda a, b: np.log(b / a) / apart, at_wide, at_narrow)
    limits = theory.noise_limit(torch.tensor(windows), d)
    of_limits = (limits[1] / limits[0]).log() / apart
    return {
        "d": d,
        "n": n,
        "from w": wide,
        "to w": narrow,
        "exponent": exponent.value,
        "low": exponent.low,
        "high": exponent.high,
        "long prompts": float(of_limits),
        "(d-1)/2": float(theory.noise_exponent(d)),
        "d/2, as printed": float(theory.noise_exponent_as_printed(d)),
    }


def _trained(setup: Setup, lipschitz: float, name: str) -> dict[str, Any]:
    """Parts of the error of a trained unit on its own task, beside theory's.

    Theory's parts are at the unit's w. The error is also given over that of the best window.
    """
    checkpoint = setup.models[name]
    task = models.task_of(checkpoint)
    n = models.trained_length(checkpoint)
    d = task.dim
    model = checkpoint.model
    matrix = models.matrix_of(model)
    own_window = models.window_of(model, task)
    w = float(own_window.window)
    table = _table(setup, d, n)
    best = theory.table_optimum(table, lipschitz, task.noise_std)
    found: dict[str, Any] = {"model": name, "L": lipschitz, "w": w, "best w": float(best.window)}

    # Parts of the unit's error, and the error over that of the best window.
    matrices = [matrix, best.window * torch.eye(d)]
    clean_task = replace(task, noise_std=0.0)
    parts = _measured(setup, matrices, clean_task)
    own = parts[:, 0]
    of_best = parts[:, 1, 2]
    measured = {}
    for i, part in enumerate(("bias", "noise", "error")):
        measured[part] = bootstrap(lambda mean: mean, own[:, i], positive=True)
    over = bootstrap(lambda a, b: a / b, own[:, 2], of_best, positive=True)
    measured["error / best"] = over
    for key, interval in measured.items():
        found[key] = interval.value
        found[f"{key}, low"] = interval.low
        found[f"{key}, high"] = interval.high

    # Theory's parts, at the nearest window that its table has.
    first = float(table.windows[0])
    last = float(table.windows[-1])
    inside = min(max(w, first), last)
    clean = float(theory.window_loss(table, inside, lipschitz, 0.0).value)
    noisy = float(theory.window_loss(table, inside, lipschitz, 1.0).value)
    found["bias by theory"] = clean
    found["noise by theory"] = noisy - clean
    found["keys"] = 1 / measured["noise"].value
    return found


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """What trained units show, and what the slides print of bias and noise.

    A statement is on whether measurements follow theory.
    """
    trained = sorted(errors.rows_of(results, "trained"), key=lambda row: row["L"])
    lines = []
    if len(trained) > 1:
        lines += _states_trained(trained)
    checks = errors.rows_of(results, "checks")
    lines += _states_checks(checks)
    for row in errors.rows_of(results, "exponents"):
        lines += _states_exponent(row)
    measured = results.get("measured")
    if isinstance(measured, DataArray):
        for row in errors.rows_of(results, "lengths"):
            lines += _states_bias(measured, row["d"], row["n"])
    return tuple(lines) or (note("Nothing is measured."),)


def _states_trained(rows: Sequence[Mapping[str, Any]]) -> list[Statement]:
    """The slides' table: M large has few points, low bias and high noise.

    The last statement is on whether training finds the minimum.
    """
    # Each unit against the one that was trained at the next smaller L.
    falls = []
    rises = []
    for before, row in pairwise(rows):
        factor = (before["L"] / row["L"]) ** 2
        falls.append(_quotient(row, before, "bias", factor))
        rises.append(_quotient(row, before, "noise"))

    # The numbers of all units, in words.
    shares = []
    noises = []
    losses = []
    quotients = []
    for row in rows:
        size = row["L"]
        w = f"w = {row['w']:.3g}"
        share = row["bias"] / size**2
        shares.append(f"{share:.2g} at {w}")
        noise = row["noise"]
        keys = row["keys"]
        noises.append(f"L = {size:g} ({w}): {noise:.2g}, {keys:.2g}")
        over = errors.interval_of(row, "error / best", "error / best, low", "error / best, high")
        quotients.append(over)
        interval = f"{over.value:.4g} [{over.low:.4g}, {over.high:.4g}]"
        best = row["best w"]
        losses.append(f"L = {size:g}: {interval}, {w}, best {best:.3g}")
    bias = (
        "a larger M has a lower bias (the slides' trade-off): trained units have bias / L² = "
        f"{'; '.join(shares)}."
    )
    noise = (
        "a larger M attends to fewer points and has a higher noise variance: trained units have "
        f"noise / σ² and number of keys σ² / noise, {'; '.join(noises)}."
    )
    least = (
        "training finds the window of least loss (one run at each L): error of the trained unit "
        f"over that of the best window, {'; '.join(losses)}."
    )
    return [
        statement(bias, BIAS_FALLS, *falls),
        statement(noise, NOISE_RISES, *rises),
        statement(least, LEAST, *quotients),
    ]


def _quotient(
    one: Mapping[str, Any], other: Mapping[str, Any], key: str, factor: float = 1.0
) -> Interval:
    """The widest quotient that two intervals allow."""
    low = one[f"{key}, low"] / other[f"{key}, high"]
    high = one[f"{key}, high"] / other[f"{key}, low"]
    value = factor * one[key] / other[key]
    return Interval(value, factor * low, factor * high)


def _states_checks(rows: Sequence[Mapping[str, Any]]) -> list[Statement]:
    asked = (
        (
            ("bias", "noise"),
            ON_THEORY,
            "bias and noise measured on softmax units lie on theory's values",
        ),
        (("cross",), ADDS_UP, "the squared error is bias + noise, as the slides decompose it"),
    )
    lines = []
    for parts, rule, what in asked:
        sizes = [abs(row["z"]) for row in rows if row["part"] in parts]
        if sizes:
            # What is no number counts as far.
            far = sum(not size < FAR for size in sizes)
            n = len(sizes)
            worst = max(sizes)
            text = f"{what}: {n - far} of {n} cases (largest |z| {worst:.1f})."
            lines.append(statement(text, rule, far, kind="formula"))
    return lines


def _states_exponent(row: Mapping[str, Any]) -> list[Statement]:
    found = errors.interval_of(row, "exponent")
    for_long = row["long prompts"]
    as_printed = row["d/2, as printed"]
    text = (
        f"d = {row['d']}, n = {row['n']:,}: from w = {row['from w']:g} to {row['to w']:g} the "
        f"noise grows as w to the power {row['exponent']:.3g} [{row['low']:.3g}, {row['high']:.3g}]"
    )
    exact = (
        f"{text}; for long prompts it is {for_long:.3g} there, and (d-1)/2 = "
        f"{row['(d-1)/2']:g} in the end."
    )
    printed = f"{text}; the slides print the exponent d/2 = {as_printed:g}."
    on_exact = statement(exact, EXPONENT, _apart(found, for_long), kind="formula")
    on_printed = statement(printed, EXPONENT_PRINTED, _apart(found, as_printed), kind="printed")
    return [on_exact, on_printed]


def _apart(found: Interval, point: float) -> Interval:
    """The distance of an estimate from a number, as an interval.

    It has the least and the largest distance that the estimate's interval allows.
    """
    value = abs(found.value - point)
    to_low = abs(found.low - point)
    to_high = abs(found.high - point)
    least, most = sorted((to_low, to_high))
    if found.low <= point <= found.high:
        least = 0.0
    return Interval(value, least, most)


def _states_bias(measured: DataArray, d: int, n: int) -> list[Statement]:
    """Omega(L^2 / w^2) < bias < Theta(L^2 / w + L^2 / n), as the slides print it.

    It is true for w >= 1, and the lower bound is false for w to 0.
    """
    w = measured["w"].values
    bias = measured.sel(d=d, part="bias", statistic="value").values
    order = bias * w**2
    one = _nearest(w, 1)
    large = w >= 1
    least = order[large].min() / order[one]
    exponent = (d - 1) / 2
    inside = large & (w**exponent <= n)
    upper_bound = 1 / w + 1 / n
    most = (bias / upper_bound)[inside].max()
    near = (
        f"d = {d}: for w >= 1 the bias is not below the order L²/w²: the least w² bias is "
        f"{least:.3g} of its value at w = 1."
    )
    upper = (
        f"d = {d}: the bias stays below L²/w + L²/n for w >= 1, w^((d-1)/2) <= n: at most "
        f"{most:.2g} of it."
    )
    lines = []
    lines.append(statement(near, LOWER, float(least), kind="printed"))
    lines.append(statement(upper, UPPER, float(most), kind="printed"))
    # How w^2 bias behaves for w to 0.
    wide = int(np.argmin(w))
    widest = w[wide]
    if widest <= SMALLEST:
        middle = _nearest(w, MIDDLE)
        fallen = order[wide] / order[middle]
        text = (
            f"d = {d}: the lower bound Omega(L²/w²) on the bias, printed without a condition on w: "
            f"from w = {MIDDLE:g} to w = {widest:g} w² bias falls to {fallen:.2g} of itself, "
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
