"""The slides' experiments with GPT-2-style models: fixed and random covariances.

Models are trained on one covariance or on random ones, and tested on both.

Six models (fixed or random Lambda, three lengths N) meet prompts of M = 1 .. 2 N examples from
Lambda = I and from c Lambda with Exponential(1) entries, c = 1, 4, 9. Beside them stand least
squares and the LSA layer that training on the same prompts converges to, whose error is exact
(Theorems 4.1, 4.2 and 4.5), not sampled.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from pandas import DataFrame

from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Results
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_most, note, statement, within
from icl_interp.models.single_layers import read_layer
from icl_interp.resampling import bootstrap
from icl_interp.results import Result, make_curve, make_table, table_of_rows
from icl_interp.studies.linear_attention.experiments import models, settings
from icl_interp.studies.linear_attention.experiments.models import HERE, LEAST_SQUARES
from icl_interp.tasks.regression import LinearRegression
from icl_interp.theory import linear_attention as theory

KINDS = ("fixed", "random")
PRESETS = (1.0, 4.0, 9.0)  # c
MODEL = "softmax"
LSA = "LSA limit"
PREDICTORS = (MODEL, LEAST_SQUARES, LSA)
STATISTICS = ("mean", "low", "high")
LAYER = "lsa_random"
HALF = 0.5  # a model does well where its error is below half of the LSA layer's
WELL = at_most("error / error of the LSA layer", HALF)
NEAR_THEOREM = within("|P - P*| / |P*| from Theorem 4.5", 0.1)


def run(setup: Setup) -> dict[str, Result]:
    """Errors on all test laws, errors at M = N, and the LSA layer's shrinkage.

    Errors are by what was trained on, N, test law, predictor and M.
    """
    cases = []
    for kind in KINDS:
        for n in models.LENGTHS:
            name = models.softmax(kind, n).name
            if setup.has(name):
                cases.append((kind, name))
    results: dict[str, Result] = {}
    if cases:
        results |= _errors(setup, cases)
    if setup.has(LAYER):
        results["shrinkage"] = _shrinkage(setup)
    return results


def _errors(setup: Setup, cases: list[tuple[str, str]]) -> dict[str, Result]:
    found: dict[tuple[str, int, str], np.ndarray] = {}
    rows = []
    for kind, name in cases:
        checkpoint = setup.models[name]
        n = models.trained_length(checkpoint)
        for test, task in models.tests(checkpoint.task.dim, PRESETS).items():
            # Errors at each M: of the model, of least squares, and of the best LSA layer.
            mine = models.errors_by_length(setup, name, task, 2 * n)
            best = models.errors_by_length(setup, LEAST_SQUARES, task, 2 * n)
            limit = lsa_errors(models.task_of(checkpoint), task, 2 * n)
            zero = label_moment(task)
            shown = [models.with_interval(mine), models.with_interval(best), np.stack([limit] * 3)]
            found[kind, n, test] = np.stack(shown) / zero
            row = {"trained on": kind, "N": n, "test": test}
            row |= _at(n, mine.values, best.values, limit, zero)
            rows.append(row)

    # Where each of these goes in the array, which has NaN beyond 2 N.
    kinds, lengths, tests = (list(dict.fromkeys(keys)) for keys in zip(*found, strict=True))
    longest = 2 * max(lengths)
    shape = (len(kinds), len(lengths), len(tests), len(PREDICTORS), len(STATISTICS), longest)
    values = np.full(shape, np.nan)
    for (kind, n, test), block in found.items():
        at = (kinds.index(kind), lengths.index(n), tests.index(test))
        values[at][..., : 2 * n] = block
    axes = {
        "trained on": tuple(kinds),
        "N": tuple(lengths),
        "test": tuple(tests),
        "predictor": PREDICTORS,
        "statistic": STATISTICS,
        "M": tuple(range(1, longest + 1)),
    }
    note = (
        "squared error of the label after M examples / E[y²]; 95 % bootstrap over blocks of prompts"
    )
    at_n = table_of_rows(rows, note=f"{note}; at M = N and at M = 2 N")
    return {"errors": make_curve(values, axes, note=note), "at N": at_n}


def _at(n: int, mine: Any, best: Any, limit: np.ndarray, zero: float) -> dict[str, float]:
    """Numbers at M = N and 2 N, over E[y^2], and the ratio to the LSA layer with its interval."""
    mine = np.asarray(mine)
    best = np.asarray(best)
    mine_at_n = mine[:, n - 1]
    best_at_n = best[:, n - 1]
    limit_at_n = limit[n - 1]
    ratio = bootstrap(lambda error: error / limit_at_n, mine_at_n)
    return {
        MODEL: float(mine_at_n.mean()) / zero,
        LEAST_SQUARES: float(best_at_n.mean()) / zero,
        LSA: float(limit_at_n) / zero,
        "softmax / LSA": ratio.value,
        "low": ratio.low,
        "high": ratio.high,
        "softmax at 2 N": float(mine[:, -1].mean()) / zero,
        "LSA at 2 N": float(limit[-1]) / zero,
    }


def label_moment(task: LinearRegression) -> float:
    """E[y^2], exactly: the error of predicting 0."""
    first, *_ = task.spectrum_moments()
    return float(first.sum()) + task.noise_std**2


def lsa_errors(trained_on: LinearRegression, test: LinearRegression, m: int) -> np.ndarray:
    """E(yhat - y)^2 after 1, .., m examples of the best LSA layer, exactly.

    It is the layer that gradient flow on these prompts converges to.
    """
    where = theory.random_landscape(trained_on.spectrum_moments(), trained_on.n_points - 1)
    moments = test.spectrum_moments()
    risks = []
    for k in range(1, m + 1):
        risk = theory.random_risk(where.product, moments, k)
        risks.append(float(risk))
    return np.array(risks)


def _shrinkage(setup: Setup) -> DataFrame:
    """What a trained LSA layer multiplies by, beside two numbers of theory.

    The table holds its mean diagonal, Theorem 4.5's, and the limit of long prompts.
    """
    checkpoint = setup.models[LAYER]
    product = read_layer(checkpoint.model).product
    n = models.trained_length(checkpoint)
    moments = models.task_of(checkpoint).spectrum_moments()
    first, second, third = moments
    left = 1 - second.square() / (first * third)
    exact = theory.random_landscape(moments, n).product
    distance = torch.linalg.matrix_norm(product - exact)
    columns = {
        "model": [LAYER],
        "N": [n],
        "read off": [float(product.diagonal().mean())],
        "theorem 4.5": [float(exact.diagonal().mean())],
        "limit": [float(theory.random_limit(moments).mean())],
        "left": [float(left.mean())],
        "distance": [float(distance / torch.linalg.matrix_norm(exact))],
    }
    note = (
        "r of E[yhat | x, w] = r <w, x>; left: share of E[y²] that the error keeps for long prompts"
    )
    return make_table(columns, note=note)


# ---- what came out -------------------------------------------------------------------------------


def states(results: Results) -> tuple[Statement, ...]:
    """The slides' statement on random covariances, and what a fixed one teaches.

    Two further statements are on shifts and on the limit of 1/3.
    """
    rows = errors.rows_of(results, "at N")
    lines = _states_random(_of(rows, "random", "random, c = 1"))
    lines += map(note, _fixed(rows))
    lines += map(note, _shifted(rows))
    shrinkage = errors.rows_of(results, "shrinkage")
    lines += map(_states_limit, shrinkage)
    return tuple(lines) or (note("No model is here, so nothing is measured."),)


def _of(rows: Sequence[Mapping[str, Any]], kind: str, test: str) -> list[Mapping[str, Any]]:
    """The rows of models of a kind on a test law."""
    return [row for row in rows if row["trained on"] == kind and row["test"] == test]


def _states_random(rows: Sequence[Mapping[str, Any]]) -> list[Statement]:
    """The softmax model performs well on random matrices at c = 1, and the LSA layer does not.

    Both are trained on random matrices, too.
    """
    lines = []
    for row in rows:
        ratio = errors.interval_of(row, "softmax / LSA")
        interval = f"[{ratio.low:.2g}, {ratio.high:.2g}]"
        text = (
            f"trained and tested on random covariances (c = 1, M = N = {row['N']}; one run, "
            f"{HERE}) the softmax model's error is {ratio.value:.2g} of the LSA layer's "
            f"{interval}, where the slides say that it performs well and LSA fails. Over E[y²]: "
            f"{row[MODEL]:.2g} against {row[LSA]:.2g}, least squares {row[LEAST_SQUARES]:.2g}."
        )
        lines.append(statement(text, WELL, ratio))
    return lines


def _fixed(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    own = _of(rows, "fixed", "fixed")
    if not own:
        return []
    parts = []
    for row in own:
        error = row[MODEL]
        layer = row[LSA]
        parts.append(f"{error:.2g} at N = {row['N']} (LSA {layer:.2g})")
    text = (
        f"Trained and tested on Lambda = I, error over E[y²] at M = N: {', '.join(parts)}; "
        "least squares 0."
    )
    return [text]


def _shifted(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """How the errors of both kinds grow with c, at the longest N."""
    lines = []
    for kind in KINDS:
        mine = [row for row in rows if row["trained on"] == kind]
        if not mine:
            continue
        # The longest N alone, by test law.
        n = max(row["N"] for row in mine)
        at = {row["test"]: row for row in mine if row["N"] == n}
        parts = []
        for c in PRESETS:
            row = at.get(f"random, c = {c:g}")
            if row:
                error = row[MODEL]
                layer = row[LSA]
                parts.append(f"c = {c:g}: {error:.2g} (LSA {layer:.2g})")
        text = (
            f"Trained on {kind} Lambda, N = {n}, tested on c times a random one, error over E[y²]: "
            f"{', '.join(parts)}. Least squares is exact on all of them."
        )
        lines.append(text)
    return lines


def _states_limit(row: Mapping[str, Any]) -> Statement:
    text = (
        f"a layer trained on random covariances (N = {row['N']}) predicts {row['read off']:.4f} "
        f"<w, x> on average, Theorem 4.5 says {row['theorem 4.5']:.4f} (|P - P*| / |P*| = "
        f"{row['distance']:.2g}); for long prompts {row['limit']:.3f}, and {row['left']:.2f} of "
        "E[y²] is left as error: it cannot learn the class."
    )
    return statement(text, NEAR_THEOREM, row["distance"])


def compare(results: Results) -> DataFrame | None:
    """Errors at M = N; the slides show curves and print no numbers."""
    found = results.get("at N")
    return found if isinstance(found, DataFrame) else None


COVARIANCE_EXPERIMENT = Experiment(
    "linear_attention.covariance",
    "GPT-2-style models on fixed and random covariances, and the LSA limit",
    f"{models.SLIDES}: experiments with large, nonlinear transformers",
    (*(models.softmax(kind, n) for kind in KINDS for n in models.LENGTHS), models.linear(LAYER)),
    run,
    states,
    compare,
    sample=models.SAMPLE,
    sizes=models.SOFTMAX_SIZES,
    settings=settings.SETTINGS["covariance"],
)
