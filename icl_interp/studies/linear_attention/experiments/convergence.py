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
N_TIMES, LAST = 121, 300.0
RATE, BATCH = 0.01, 256  # of SGD
STEPS = {"smoke": 2000, "small": 10_000, "paper": 30_000}
DRIFT_RATES, DRIFT_TIME = (0.1, 0.03, 0.01, 0.003), 10.0  # of gradient descent
TRAINED = tuple(
    models.linear("lsa_fixed", s, ("smoke", "small", "paper")[s > 0 :]) for s in range(3)
)  # three seeds
REACHED = 0.05  # |P - P*| / |P*| up to which the minimum counts as reached
AT_MINIMUM = at_most("|P - P*| / |P*|", REACHED)
CONSERVED = at_most("u² - |U|²", 1e-8)
FOLLOWS = at_most("relative gap between SGD and the flow", 0.2)
PROMISES = none_of("broken promises of the theorem")


def run(setup: Setup) -> dict[str, Result]:
    """Excess along flow and SGD with the bound, rates, and drift of the balance.

    The results also hold the weights of the trained models.
    """
    diagonal, n = SETTINGS[setup.preset.name]
    lam = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    where = theory.landscape(lam, n)
    times = torch.cat(
        [torch.zeros(1), torch.logspace(-2, np.log10(LAST), N_TIMES - 1, dtype=torch.float64)]
    )
    theta = torch.eye(len(lam), dtype=torch.float64) / len(lam) ** 0.25
    entries = ", ".join(f"{v:g}" for v in diagonal[:5]) + (", .." if len(diagonal) > 5 else "")
    note = f"excess loss l - min l; d = {len(lam)}, N = {n}, Λ = diag({entries})"
    lines, rows = [], []
    for start in STARTS:
        flow, bound, row = _flow(where, lam, n, start, theta, times)
        lines.append(np.stack([flow, bound]))
        rows.append(row)
    sgd = setup.keep(
        "linear_attention: sgd",
        [],
        lambda: _sgd(setup, lam, n, theta),
        diagonal=diagonal,
        n=n,
        rate=RATE,
        batch=BATCH,
        steps=STEPS[setup.preset.name],
    )
    results: dict[str, Result] = {
        "flow": make_curve(
            np.stack(lines),
            {"start": STARTS, "line": ("flow", "bound"), "t": times.tolist()},
            note=note,
        ),
        "rates": table_of_rows(rows, note="start: sigma / sigma_max"),
        "sgd": sgd,
        "drift": _drift(where, theta, lam, n),
    }
    trained = [_weights(setup, name) for name in setup.among([model.name for model in TRAINED])]
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
) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
    """(excess, bound, numbers) of the flow from sigma = start * sigma_max.

    There is no bound beyond sigma_max.
    """
    sigma = start * float(theory.initial_scale_limit(lam, n))
    path = theory.gradient_flow(where, *theory.initial_point(sigma, theta), times)
    excess = np.array(
        [float(where.excess(m, u)) for m, u in zip(path.matrices, path.scalars, strict=True)]
    )
    squares = [
        _gradient_square(where, m, u) for m, u in zip(path.matrices, path.scalars, strict=True)
    ]
    ratio = np.array(squares) / np.maximum(excess, 1e-300)
    seen = excess > 1e-12 * excess[0]  # later both are rounding
    if start < 1:
        mu = float(theory.pl_constant(lam, n, sigma, theta))
        bound = theory.excess_bound(lam, n, sigma, theta, times).numpy()
    else:
        mu, bound = float("nan"), np.full(len(times), np.nan)
    matrix, scalar = where.minimiser
    gap = (
        (path.matrices[-1] - matrix).square().sum() + (path.scalars[-1] - scalar).square()
    ).sqrt()
    t = times.numpy()
    late = seen & (excess < 1e-3 * excess[0])
    rate = (
        -float(np.polyfit(t[late], np.log(excess[late]), 1)[0]) if late.sum() > 3 else float("nan")
    )
    row = {
        "start": start,
        "sigma": sigma,
        "mu": mu,
        "least PL ratio": float(ratio[seen].min()),
        "late rate": rate,
        "within bound": bool((excess <= bound * (1 + 1e-9)).all()) if start < 1 else "no bound",
        "distance to W*": float(gap),
        "largest imbalance": float(path.imbalance.abs().max()),
    }
    return excess, bound, row


def _gradient_square(where: theory.Landscape, matrix: torch.Tensor, scalar: torch.Tensor) -> float:
    dm, du = where.velocity(matrix, scalar)
    return float(dm.square().sum() + du.square())


def _sgd(setup: Setup, lam: torch.Tensor, n: int, theta: torch.Tensor) -> DataArray:
    """Exact excess of all weights along SGD on sampled prompts, and the least possible loss.

    Time is steps * rate.

    All entries of W_PV and W_KQ that predictions read are free; they start as in Assumption 3.3.
    """
    d, where = len(lam), theory.landscape(lam, n)
    matrix, scalar = theory.initial_point(
        FOLLOWED * float(theory.initial_scale_limit(lam, n)), theta
    )
    w_pv, w_kq = (torch.zeros(d + 1, d + 1, dtype=torch.float64) for _ in range(2))
    w_pv[-1, -1], w_kq[:d, :d] = scalar, matrix
    least = where.minimum + where.label_moment / 2
    task = LinearRegression(n_dims=d, n_points=n + 1, covariance=tuple(lam.diagonal().tolist()))
    steps = STEPS[setup.preset.name]
    shown = {0, *np.unique(np.geomspace(1, steps, 60).astype(int)).tolist()}
    times, excess = [], []
    for step in range(steps + 1):
        if step in shown:
            times.append(step * RATE)
            excess.append(float(theory.population_loss(w_pv, w_kq, lam, n) - least))
        prompts = task.sample(
            BATCH, generator(setup.seed, "linear_attention/sgd", step), dtype=torch.float64
        )
        down_pv, down_kq = _gradients(w_pv, w_kq, prompts.xs, as_numbers(prompts.ys))
        w_pv[-1] -= RATE * down_pv
        w_kq[:, :d] -= RATE * down_kq
    return make_curve(
        np.array(excess),
        {"t": times},
        note=f"SGD, rate {RATE:g}, batches of {BATCH}; t = steps x rate",
    )


def _gradients(
    w_pv: torch.Tensor, w_kq: torch.Tensor, xs: torch.Tensor, ys: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradient of mean (yhat - y)^2 / 2 in the weights that predictions read.

    They are the last row of W_PV and the first d columns of W_KQ: yhat = v^T G F x_q.
    """
    query, labels = xs[:, -1], ys[:, -1]
    columns = torch.cat([xs, ys[..., None]], -1)
    columns[:, -1, -1] = 0
    square = columns.transpose(1, 2) @ columns / (columns.shape[1] - 1)
    value, form = w_pv[-1], w_kq[:, :-1]
    reached = query @ form.T  # F x_q
    read = square @ value  # G v; G is symmetric
    miss = (read * reached).sum(-1) - labels
    down_value = (miss[:, None] * (square @ reached[..., None])[..., 0]).mean(0)
    down_form = (miss[:, None] * read).T @ query / len(query)
    return down_value, down_form


def _drift(where: theory.Landscape, theta: torch.Tensor, lam: torch.Tensor, n: int) -> DataFrame:
    """Largest |u^2 - |U|^2| of plain gradient descent up to one time, by its step."""
    found = []
    for rate in DRIFT_RATES:
        matrix, scalar = theory.initial_point(
            FOLLOWED * float(theory.initial_scale_limit(lam, n)), theta
        )
        worst = 0.0
        for _ in range(round(DRIFT_TIME / rate)):
            dm, du = where.velocity(matrix, scalar)
            matrix, scalar = matrix + rate * dm, scalar + rate * du
            worst = max(worst, abs(float(scalar**2 - matrix.square().sum())))
        found.append(worst)
    return make_table(
        {"step": list(DRIFT_RATES), "largest imbalance": found},
        note=f"gradient descent up to t = {DRIFT_TIME:g}",
    )


def _weights(setup: Setup, name: str) -> dict[str, Any]:
    """How far a trained model is from the minimum.

    The numbers are of its product, its exact loss as an LSA layer, and its balance.
    """
    checkpoint = setup.models[name]
    layer, n, task = (
        read_layer(checkpoint.model),
        models.trained_length(checkpoint),
        models.task_of(checkpoint),
    )
    where = theory.landscape(task.covariance_matrix, n, task.noise_std**2)
    product, best = layer.product, where.product
    trap, _ = where.rank_one
    excess = float(where.excess(product, 1.0) / (where.minimum + where.label_moment / 2))
    return {
        "model": name,
        "|P - P*| / |P*|": float((product - best).norm() / best.norm()),
        "|P - rank one| / |P*|": float((product - trap).norm() / best.norm()),
        "excess / least loss": excess,
        "outside an LSA layer": layer.outside,
    }


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """The flow and its rate and balance, which are theorems; SGD, and what Adam reaches.

    The rate is compared with the bound.
    """
    lines = [_states_flow(row) for row in errors.rows_of(results, "rates")]
    if not lines:
        return (note("Nothing is measured."),)
    drift = errors.rows_of(results, "drift")
    steps, imbalances = (
        np.log10([row[key] for row in drift]) for key in ("step", "largest imbalance")
    )
    slope = np.polyfit(steps, imbalances, 1)[0]
    worst = max(row["largest imbalance"] for row in errors.rows_of(results, "rates"))
    text = (
        f"u² - |U|² is conserved by the flow (largest {worst:.1g}); gradient descent lets it drift "
        f"like its step to the power {slope:.2f}."
    )
    lines.append(statement(text, CONSERVED, worst, kind="formula"))
    sgd, flow = results.get("sgd"), results.get("flow")
    if isinstance(sgd, DataArray) and isinstance(flow, DataArray):
        lines.append(_states_sgd(sgd, flow))
    lines += [_states_trained(row) for row in errors.rows_of(results, "trained")]
    return tuple(lines)


def _states_flow(row: Mapping[str, Any]) -> Statement:
    if row["start"] < 1:
        held = row["within bound"] and row["least PL ratio"] >= row["mu"]
        arrived = row["distance to W*"] < 1e-3
        text = (
            f"from {row['start']:g} σ_max the exact flow ends {row['distance to W*']:.1g} from W*, "
            f"and {'stays below' if row['within bound'] else 'exceeds'} the exponential bound. The "
            f"bound is loose: μ = {row['mu']:.2g}, least |∇l|²/excess {row['least PL ratio']:.2g} "
            f"({row['least PL ratio'] / row['mu']:.0f} times), late rate {row['late rate']:.2g}."
        )
        return statement(text, PROMISES, 2 - held - arrived, kind="formula")
    return note(
        f"From {row['start']:g} σ_max, beyond what Theorem 4.1 admits, the flow ends "
        f"{row['distance to W*']:.1g} from W*: the condition is sufficient, not necessary."
    )


def _states_sgd(sgd: DataArray, flow: DataArray) -> Statement:
    """SGD against the flow while the excess is above its noise floor, a tenth of the start."""
    there = np.interp(
        sgd["t"].values, flow["t"].values, flow.sel(start=FOLLOWED, line="flow").values
    )
    early = there > 0.1 * there[0]
    gap = float(np.abs(sgd.values[early] / there[early] - 1).max())
    text = (
        f"SGD on sampled prompts, all weights free, follows the flow within {100 * gap:.0f} % "
        f"until a tenth of the excess is left, and ends at {float(sgd.values[-1]):.2g}."
    )
    return statement(text, FOLLOWS, gap)


def _states_trained(row: Mapping[str, Any]) -> Statement:
    distance = row["|P - P*| / |P*|"]
    text = (
        f"{row['model']}, Adam from random weights: |P - P*| / |P*| = {distance:.3g}, excess "
        f"{row['excess / least loss']:.2g} of the least loss; weights that no LSA layer has: up to "
        f"{row['outside an LSA layer']:.2g}."
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
