"""The claims of `linear_attention` on what a model computes: which algorithm, and whether order matters to it."""

import math

import numpy as np
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.lsa_algorithms import PRECONDITIONED, SIZE, TRUTH, algorithms, order
from icl_interp.analyses.lsa_bench import INF, SOURCE, needs_regression, needs_theory, not_learned, task_in
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.verdicts import Claim, Criterion, Estimate, Judgement, register
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import coordinates

NEARER = 2.0  # factor of squared distances that tells two algorithms apart
SAME = 1e-3  # of the labels' mean square: algorithms whose predictions are closer are one
ALIKE = 0.9  # similarity 1 - distance / size from which the nearest algorithm may be called the model's
FLOOR = 1e-8  # of the labels' mean square: distances below are rounding
FREE, SENSITIVE = 0.01, 0.05

ALGORITHM = Criterion(
    "squared distance of predictions from one preconditioned step over that from the nearest other algorithm, log10, "
    f"at M = N: <= -log10 {NEARER:g} / >= log10 {NEARER:g}",
    supported=(-INF, -math.log10(NEARER)), contradicted=(math.log10(NEARER), INF),
)  # fmt: skip


def rivals(result: DataArray, m: int) -> list[str]:
    """Algorithms that are not one preconditioned step under another name, at this length."""
    size = result.sel(M=m, algorithm=SIZE, depth=1, statistic="apart").values.mean()
    named = [name for name in result.indexes["algorithm"] if name not in (SIZE, TRUTH, PRECONDITIONED)]
    return [
        name for name in named
        if result.sel(M=m, algorithm=name, depth=1, statistic="apart").values.mean() > SAME * size
    ]  # fmt: skip


def nearer(result: DataArray, m: int, depth: int) -> Interval:
    """log10 of the distance from one preconditioned step over that from the nearest other algorithm."""
    names = (PRECONDITIONED, *rivals(result, m))
    arrays = [result.sel(M=m, algorithm=name, depth=depth, statistic="distance").values for name in (*names, SIZE)]

    def statistic(own: np.ndarray, *rest: np.ndarray) -> np.ndarray:
        *others, size = rest
        floor = FLOOR * size
        return np.log10((own + floor) / (np.min(others, axis=0) + floor))

    return bootstrap(statistic, *arrays)


def judge_algorithm(results: Results, facts: Facts) -> Judgement:
    """Is one preconditioned step the nearest of all algorithms?"""
    result, fresh = results[algorithms], results.twin[algorithms]
    n, last = task_in(facts).n_points - 1, coordinates(result, "depth")[-1]
    test, twin = nearer(result, n, last), nearer(fresh, n, last)
    names = [name for name in result.indexes["algorithm"] if name not in (SIZE, TRUTH)]
    rows, nearest = [], {}
    for m in result.indexes["M"]:
        for depth in result.indexes["depth"]:
            size = result.sel(M=m, algorithm=SIZE, depth=depth, statistic="distance").values
            for name in (*names, TRUTH):
                distance = result.sel(M=m, algorithm=name, depth=depth, statistic="distance").values
                found = bootstrap(lambda a, b: 1 - a / b, distance, size)
                cosine = bootstrap(lambda a: a, result.sel(M=m, algorithm=name, depth=depth, statistic="cosine").values)
                rows.append({
                    "M": m, "depth": depth, "algorithm": name, "similarity": found.value, "low": found.low,
                    "high": found.high, "cosine of gradients": cosine.value, "cosine, low": cosine.low,
                    "cosine, high": cosine.high,
                })  # fmt: skip
            told = (PRECONDITIONED, *rivals(result, m))
            block = [row for row in rows[-len(names) - 1 :] if row["algorithm"] in told]
            nearest[m, depth] = max(block, key=lambda row: row["similarity"])
    best = nearest[n, last]
    step = next(r for r in rows if (r["M"], r["depth"], r["algorithm"]) == (n, last, PRECONDITIONED))
    reason = (
        f"at M = N = {n} predictions are nearest to {_described(best)}"
        f"{'' if best is step else f'; one preconditioned step: {_numbers(step)}'}"
    )
    if best["similarity"] < ALIKE:
        reason += f". That is not near: like none of the {len(names)} that were compared"
    others = {m: nearest[m, last] for m in result.indexes["M"] if m != n}
    reason += ". By length: " + ", ".join(f"M = {m} {_named(row)}" for m, row in others.items())
    if len(result.indexes["depth"]) > 1:
        by_depth = ", ".join(f"{depth} {_named(nearest[n, depth])}" for depth in result.indexes["depth"])
        reason += f". By layers read: {by_depth}"
    merged = [name for name in names if name != PRECONDITIONED and name not in rivals(result, n)]
    if merged:
        reason += f". Here {', '.join(merged)} is the same as one preconditioned step"
    name = "distance from one preconditioned step / from the nearest other"
    return Judgement(
        Estimate.of(name, test, "log10"), reason + ".", scope="these weights, this task, predictions at the query",
        twin=Estimate.of(name, twin, "log10"), twin_verdict=ALGORITHM.verdict(twin), details=tuple(rows),
    )  # fmt: skip


def _named(row: dict) -> str:
    return f"{row['algorithm']} ({row['similarity']:.3f})"


def _numbers(row: dict) -> str:
    return (
        f"similarity {row['similarity']:.3f} [{row['low']:.3f}, {row['high']:.3f}], cosine of input gradients "
        f"{row['cosine of gradients']:.3f} [{row['cosine, low']:.3f}, {row['cosine, high']:.3f}]"
    )


def _described(row: dict) -> str:
    return f"{row['algorithm']}, {_numbers(row)}"


# ---- order -----------------------------------------------------------------------------------------------------------

ORDER = Criterion(
    f"standard deviation of predictions over orders of the examples, over that over prompts: <= {FREE:g} / > "
    f"{SENSITIVE:g}",
    supported=(0.0, FREE), contradicted=(SENSITIVE, INF),
)  # fmt: skip


def sensitivity(result: DataArray) -> Interval:
    """Root of the variance over orders over that over prompts."""
    return bootstrap(
        lambda within, total: np.sqrt(within / np.maximum(total, np.finfo(float).tiny)),
        result.sel(over="orders").values, result.sel(over="prompts").values,
    )  # fmt: skip


def judge_order(results: Results, facts: Facts) -> Judgement:
    """Is the order of the examples all one to the model, as to every algorithm for independent examples?"""
    result, fresh = results[order], results.twin[order]
    test, twin = sensitivity(result), sensitivity(fresh)
    cfg = facts.config
    told = [
        said for said, present in {
            "learned positions": cfg.positional_embedding_type != "none",
            "causal attention below the last layer": cfg.attention_dir == "causal" and cfg.n_layers > 1,
        }.items() if present
    ]  # fmt: skip
    reason = (
        f"another order of the same examples moves predictions by {100 * test.value:.3g} % of their spread over prompts"
        + (f"; {' and '.join(told)} can tell orders apart" if told else "; nothing in the design can tell orders apart")
    )
    name = "spread over orders / spread over prompts"
    return Judgement(
        Estimate.of(name, test), reason + ".", scope="these weights, M = N, in distribution",
        twin=Estimate.of(name, twin),
    )  # fmt: skip


register(
    Claim(
        id="linear_attention.algorithm",
        kind="learning",
        statement="The model implements one preconditioned step of gradient descent",
        source=f"{SOURCE}, Theorem 4.1: the prediction is x_q^T Γ⁻¹ (1/M) Σ y_i x_i",
        criterion=ALGORITHM,
        measurements=(algorithms,),
        twin=(algorithms,),
        judge=judge_algorithm,
        excluded=needs_theory,
        learned=not_learned,
        figures=("linear_attention",),
    )
)

register(
    Claim(
        id="linear_attention.order_free",
        kind="architecture",
        statement="The order of the examples does not matter",
        source=f"{SOURCE}, equation (3.6): the prediction depends on Σ y_i x_i alone",
        criterion=ORDER,
        measurements=(order,),
        twin=(order,),
        judge=judge_order,
        excluded=needs_regression,
    )
)
