"""Theorem 4.1 and Lemma 5.4: training a layer of linear self-attention.

Training is compared with its exact flow and its rate.

Gradient flow is integrated exactly; beside it stand plain SGD on sampled prompts, on all weights
from the same start, the exponential bound of Lemma 5.4, and transformers trained by Adam from
random weights, read off as a layer.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from pandas import DataFrame
from xarray import DataArray

from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Results
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_most, none_of, note, statement
from icl_interp.models.single_layers import read_layer
from icl_interp.prompts import as_numbers
from icl_interp.provenance import generator
from icl_interp.results import Result, make_curve, make_table, table_of_rows
from icl_interp.studies.linear_attention.experiments import models, settings
from icl_interp.tasks.regression import LinearRegression
from icl_interp.theory import linear_attention as theory

# (diagonal of Lambda, N) at each scale; at "small" those of the recipe lsa_fixed.
SETTINGS = {
    "smoke": ((1.0, 2.0), 4),
    "small": ((0.5, 0.75, 1.0, 1.5, 2.0), 20),
    "paper": ((0.5, 0.75, 1.0, 1.5, 2.0) * 4, 80),
}
STARTS = (0.3, 0.9, 3.0)  # sigma over the largest that Theorem 4.1 admits
FOLLOWED = 0.3  # the start that SGD takes as well
# Times at which the flow is shown: how many, and the last.
N_TIMES = 121
LAST = 300.0
# Of SGD.
RATE = 0.01
BATCH = 256
STEPS = {"smoke": 2000, "small": 10_000, "paper": 30_000}
# Of gradient descent.
DRIFT_RATES = (0.1, 0.03, 0.01, 0.003)
DRIFT_TIME = 10.0
# Three seeds.
TRAINED = (
    models.linear("lsa_fixed", 0, ("smoke", "small", "paper")),
    models.linear("lsa_fixed", 1, ("small", "paper")),
    models.linear("lsa_fixed", 2, ("small", "paper")),
)
REACHED = 0.05  # |P - P*| / |P*| up to which the minimum counts as reached
AT_MINIMUM = at_most("|P - P*| / |P*|", REACHED)
CONSERVED = at_most("u² - |U|²", 1e-8)
FOLLOWS = at_most("relative gap between SGD and the flow", 0.2)
PROMISES = none_of("broken promises of the theorem")


def run(setup: Setup) -> dict[str, Result]:
    """Excess along flow and SGD with the bound, rates, and drift of the balance.

    The results also hold the weights of the trained models.
    """
    scale = setup.preset.name
    diagonal, n = SETTINGS[scale]
    d = len(diagonal)
    lam = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    where = theory.landscape(lam, n)
    theta = torch.eye(d, dtype=torch.float64) / d**0.25
    results: dict[str, Result] = {}

    # The flow from every start, with the bound on it.
    later = torch.logspace(-2, np.log10(LAST), N_TIMES - 1, dtype=torch.float64)
    times = torch.cat([torch.zeros(1), later])
    lines = []
    rows = []
    for start in STARTS:
        line, row = _flow(where, lam, n, start, theta, times)
        lines.append(line)
        rows.append(row)
    axes = {"start": STARTS, "line": ("flow", "bound"), "t": times.tolist()}
    entries = ", ".join(f"{entry:g}" for entry in diagonal[:5])
    if d > 5:
        entries += ", .."
    note = f"excess loss l - min l; d = {d}, N = {n}, Λ = diag({entries})"
    results["flow"] = make_curve(np.stack(lines), axes, note=note)
    results["rates"] = table_of_rows(rows, note="start: sigma / sigma_max")

    # What stands beside the flow.
    results["sgd"] = setup.keep(
        "linear_attention: sgd",
        [],
        lambda: _sgd(setup, lam, n, theta),
        diagonal=diagonal,
        n=n,
        rate=RATE,
        batch=BATCH,
        steps=STEPS[scale],
    )
    results["drift"] = _drift(where, theta, lam, n)
    names = [model.name for model in TRAINED]
    trained = [_weights(setup, name) for name in setup.among(names)]
    if trained:
        results["trained"] = table_of_rows(trained, note="read off exactly")
    return results


def _flow(
    where: theory.Landscape,
    lam: torch.Tensor,
    n: int,
    start: float,
    theta: torch.Tensor,
    times: torch.Tensor,
) -> tuple[np.ndarray, dict[str, float]]:
    """Excess and bound, (line, t), and numbers of the flow from sigma = start * sigma_max.

    There is no bound beyond sigma_max.
    """
    sigma = start * float(theory.initial_scale_limit(lam, n))
    start_matrix, start_scalar = theory.initial_point(sigma, theta)
    path = theory.gradient_flow(where, start_matrix, start_scalar, times)
    losses = []
    squares = []
    for matrix, scalar in zip(path.matrices, path.scalars, strict=True):
        loss = where.excess(matrix, scalar)
        losses.append(float(loss))
        dm, du = where.velocity(matrix, scalar)
        square = dm.square().sum() + du.square()
        squares.append(float(square))
    excess = np.array(losses)
    ratio = np.array(squares) / np.maximum(excess, 1e-300)
    seen = excess > 1e-12 * excess[0]  # later both are rounding

    mu = float("nan")
    bound = np.full(len(times), np.nan)
    within: bool | str = "no bound"
    if start < 1:
        mu = float(theory.pl_constant(lam, n, sigma, theta))
        bound = theory.excess_bound(lam, n, sigma, theta, times).numpy()
        within = bool((excess <= bound * (1 + 1e-9)).all())

    # The distance from W* at the end, and the rate at which the last thousandth decays.
    best_matrix, best_scalar = where.minimiser
    of_matrix = (path.matrices[-1] - best_matrix).square().sum()
    of_scalar = (path.scalars[-1] - best_scalar).square()
    distance = (of_matrix + of_scalar).sqrt()
    t = times.numpy()
    late = seen & (excess < 1e-3 * excess[0])
    rate = float("nan")
    if late.sum() > 3:
        slope, _ = np.polyfit(t[late], np.log(excess[late]), 1)
        rate = -float(slope)
    row = {
        "start": start,
        "sigma": sigma,
        "mu": mu,
        "least PL ratio": float(ratio[seen].min()),
        "late rate": rate,
        "within bound": within,
        "distance to W*": float(distance),
        "largest imbalance": float(path.imbalance.abs().max()),
    }
    return np.stack([excess, bound]), row


def _least_loss(where: theory.Landscape) -> torch.Tensor:
    return where.minimum + where.label_moment / 2


def _sgd(setup: Setup, lam: torch.Tensor, n: int, theta: torch.Tensor) -> DataArray:
    """Exact excess of all weights along SGD on sampled prompts, and the least possible loss.

    Time is steps * rate.

    All entries of W_PV and W_KQ that predictions read are free; they start as in Assumption 3.3.
    """
    d = len(lam)
    matrix, scalar = _followed_start(theta, lam, n)
    w_pv = torch.zeros(d + 1, d + 1, dtype=torch.float64)
    w_kq = torch.zeros_like(w_pv)
    w_pv[-1, -1] = scalar
    w_kq[:d, :d] = matrix
    least = _least_loss(theory.landscape(lam, n))
    task = LinearRegression(n_dims=d, n_points=n + 1, covariance=tuple(lam.diagonal().tolist()))

    # The excess is shown at the start and at steps that are even in the logarithm.
    steps = STEPS[setup.preset.name]
    shown = {0, *np.geomspace(1, steps, 60).astype(int).tolist()}
    times = []
    excess = []
    for step in range(steps + 1):
        if step in shown:
            loss = theory.population_loss(w_pv, w_kq, lam, n)
            times.append(step * RATE)
            excess.append(float(loss - least))
        stream = generator(setup.seed, "linear_attention/sgd", step)
        prompts = task.sample(BATCH, stream, dtype=torch.float64)
        ys = as_numbers(prompts.ys)
        down_pv, down_kq = _gradients(w_pv, w_kq, prompts.xs, ys)
        w_pv[-1] -= RATE * down_pv
        w_kq[:, :d] -= RATE * down_kq
    note = f"SGD, rate {RATE:g}, batches of {BATCH}; t = steps x rate"
    return make_curve(np.array(excess), {"t": times}, note=note)


def _followed_start(
    theta: torch.Tensor, lam: torch.Tensor, n: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """U and u at the start that SGD and gradient descent take."""
    sigma = FOLLOWED * float(theory.initial_scale_limit(lam, n))
    return theory.initial_point(sigma, theta)


def _gradients(
    w_pv: torch.Tensor, w_kq: torch.Tensor, xs: torch.Tensor, ys: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradient of mean (yhat - y)^2 / 2 in the weights that predictions read.

    They are the last row of W_PV and the first d columns of W_KQ: yhat = v^T G F x_q.
    """
    query = xs[:, -1]
    labels = ys[:, -1]
    columns = torch.cat([xs, ys[..., None]], -1)
    columns[:, -1, -1] = 0
    square = columns.transpose(1, 2) @ columns / (columns.shape[1] - 1)  # G
    value = w_pv[-1]
    form = w_kq[:, :-1]
    reached = query @ form.T  # F x_q
    read = square @ value  # G v; G is symmetric
    through = (square @ reached[..., None])[..., 0]  # G F x_q
    predictions = (read * reached).sum(-1)
    miss = (predictions - labels)[:, None]
    down_value = (miss * through).mean(0)
    down_form = (miss * read).T @ query / len(query)
    return down_value, down_form


def _drift(where: theory.Landscape, theta: torch.Tensor, lam: torch.Tensor, n: int) -> DataFrame:
    """Largest |u^2 - |U|^2| of plain gradient descent up to one time, by its step."""
    found = []
    for rate in DRIFT_RATES:
        matrix, scalar = _followed_start(theta, lam, n)
        steps = round(DRIFT_TIME / rate)
        worst = 0.0
        for _ in range(steps):
            dm, du = where.velocity(matrix, scalar)
            matrix = matrix + rate * dm
            scalar = scalar + rate * du
            imbalance = float(scalar**2 - matrix.square().sum())
            worst = max(worst, abs(imbalance))
        found.append(worst)
    columns = {"step": list(DRIFT_RATES), "largest imbalance": found}
    return make_table(columns, note=f"gradient descent up to t = {DRIFT_TIME:g}")


def _weights(setup: Setup, name: str) -> dict[str, Any]:
    """How far a trained model is from the minimum.

    The numbers are of its product, its exact loss as an LSA layer, and its balance.
    """
    checkpoint = setup.models[name]
    layer = read_layer(checkpoint.model)
    n = models.trained_length(checkpoint)
    task = models.task_of(checkpoint)
    where = theory.landscape(task.covariance_matrix, n, task.noise_std**2)
    product = layer.product
    best = where.product
    trap, _ = where.rank_one
    excess = where.excess(product, 1.0)
    return {
        "model": name,
        "|P - P*| / |P*|": float((product - best).norm() / best.norm()),
        "|P - rank one| / |P*|": float((product - trap).norm() / best.norm()),
        "excess / least loss": float(excess / _least_loss(where)),
        "outside an LSA layer": layer.outside,
    }


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """The flow and its rate and balance, which are theorems; SGD, and what Adam reaches.

    The rate is compared with the bound.
    """
    rates = errors.rows_of(results, "rates")
    if not rates:
        return (note("Nothing is measured."),)
    lines = list(map(_states_flow, rates))

    drift = errors.rows_of(results, "drift")
    steps = np.log10([row["step"] for row in drift])
    imbalances = np.log10([row["largest imbalance"] for row in drift])
    slope, _ = np.polyfit(steps, imbalances, 1)
    worst = max(row["largest imbalance"] for row in rates)
    text = (
        f"u² - |U|² is conserved by the flow (largest {worst:.1g}); gradient descent lets it drift "
        f"like its step to the power {slope:.2f}."
    )
    lines.append(statement(text, CONSERVED, worst, kind="formula"))

    # SGD and trained models, where they were measured.
    sgd = results.get("sgd")
    flow = results.get("flow")
    if isinstance(sgd, DataArray) and isinstance(flow, DataArray):
        lines.append(_states_sgd(sgd, flow))
    trained = errors.rows_of(results, "trained")
    lines += map(_states_trained, trained)
    return tuple(lines)


def _states_flow(row: Mapping[str, Any]) -> Statement:
    start = row["start"]
    distance = row["distance to W*"]
    if start >= 1:
        return note(
            f"From {start:g} σ_max, beyond what Theorem 4.1 admits, the flow ends "
            f"{distance:.1g} from W*: the condition is sufficient, not necessary."
        )
    within = row["within bound"]
    mu = row["mu"]
    least = row["least PL ratio"]
    held = within and least >= mu
    arrived = distance < 1e-3
    text = (
        f"from {start:g} σ_max the exact flow ends {distance:.1g} from W*, "
        f"and {'stays below' if within else 'exceeds'} the exponential bound. The "
        f"bound is loose: μ = {mu:.2g}, least |∇l|²/excess {least:.2g} "
        f"({least / mu:.0f} times), late rate {row['late rate']:.2g}."
    )
    return statement(text, PROMISES, 2 - held - arrived, kind="formula")


def _states_sgd(sgd: DataArray, flow: DataArray) -> Statement:
    """SGD against the flow while the excess is above its noise floor, a tenth of the start."""
    line = flow.sel(start=FOLLOWED, line="flow")
    there = np.interp(sgd["t"].values, line["t"].values, line.values)
    early = there > 0.1 * there[0]
    ratios = sgd.values[early] / there[early]
    gap = float(np.abs(ratios - 1).max())
    text = (
        f"SGD on sampled prompts, all weights free, follows the flow within {100 * gap:.0f} % "
        f"until a tenth of the excess is left, and ends at {float(sgd.values[-1]):.2g}."
    )
    return statement(text, FOLLOWS, gap)


def _states_trained(row: Mapping[str, Any]) -> Statement:
    name = row["model"]
    distance = row["|P - P*| / |P*|"]
    excess = row["excess / least loss"]
    outside = row["outside an LSA layer"]
    text = (
        f"{name}, Adam from random weights: |P - P*| / |P*| = {distance:.3g}, excess "
        f"{excess:.2g} of the least loss; weights that no LSA layer has: up to {outside:.2g}."
    )
    return statement(text, AT_MINIMUM, distance)


def compare(results: Results) -> DataFrame | None:
    """Rates of the flow beside the constant of Lemma 5.4."""
    found = results.get("rates")
    return found if isinstance(found, DataFrame) else None


CONVERGENCE_EXPERIMENT = Experiment(
    "linear_attention.convergence",
    "Training a layer of linear self-attention: flow, SGD and Adam against the bound",
    f"{models.SLIDES}: Theorem 4.1, Lemmas 5.2 to 5.4",
    TRAINED,
    run,
    states,
    compare,
    sample="flow, rate and minimum are exact; SGD: batches of 256 prompts",
    sizes=models.LSA_SIZES,
    settings=settings.SETTINGS["convergence"],
)
