"""Tables of errors: by sigma with intervals, paired over functions, beside what a paper prints."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Float
from pandas import DataFrame
from xarray import DataArray

from icl_interp import evaluation
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import Result, described, make_array, make_table, rows_in, table_of_rows

SIGMAS = tuple(range(1, 11))
FACTORS = "Ours / the paper's"  # starts the sentence of `in_numbers`


def interval_of(
    row: Mapping[str, Any], value: str, low: str = "low", high: str = "high"
) -> Interval:
    """An interval in a row of a table."""
    return Interval(row[value], row[low], row[high])


def pooled(matrix: DataArray, groups: Mapping[str, Sequence[str]]) -> DataArray:
    """The errors with new predictors in front: means over several of them, function by function."""
    known = {
        name: [m for m in members if m in matrix.indexes["predictor"]]
        for name, members in groups.items()
    }
    known = {name: members for name, members in known.items() if members}
    means = [
        np.mean([matrix.sel(predictor=m).values for m in members], 0) for members in known.values()
    ]
    axes = {**matrix.indexes, "predictor": (*known, *matrix.indexes["predictor"])}
    return make_array(
        np.concatenate([*(m[None] for m in means), matrix.values]), axes, **described(matrix)
    )


def table(matrix: DataArray, **key: Any) -> DataFrame:
    """Errors with intervals by predictor and sigma; `key` becomes columns of its own in front."""
    return keyed(evaluation.error_table(matrix), **key)


def keyed(found: DataFrame, **key: Any) -> DataFrame:
    """The table with constant columns in front."""
    front = {name: [value] * len(found) for name, value in key.items()}
    return make_table({**front, **found}, **described(found))


def joined(tables: Iterable[DataFrame]) -> DataFrame:
    """Tables of the same columns, one below the other."""
    parts = list(tables)
    columns = (
        {name: [value for part in parts for value in part[name]] for name in parts[0].columns}
        if parts
        else {}
    )
    return make_table(columns, **(described(parts[0]) if parts else {}))


def ratios(matrix: DataArray, pairs: Iterable[tuple[str, str]], **key: Any) -> DataFrame:
    """log10 of error a / error b for each pair and sigma, paired by function, with its interval."""
    rows = []
    for a, b in pairs:
        for sigma in matrix.indexes["sigma"]:
            i = evaluation.paired_ratio(matrix, a, b, sigma)
            rows.append(
                {
                    **key,
                    "a": a,
                    "b": b,
                    "sigma": sigma,
                    "log10 ratio": i.value,
                    "low": i.low,
                    "high": i.high,
                }
            )
    names = rows[0] if rows else (*key, "a", "b", "sigma", "log10 ratio", "low", "high")
    note = (
        "log10 of mean error a / mean error b; 95 % cluster bootstrap over functions, both on the "
        "same prompts"
    )
    return make_table({name: [row[name] for row in rows] for name in names}, note=note)


def all_pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Every pair of models, in order."""
    return list(combinations(names, 2))


def side_by_side(
    paper: Mapping[float, float], ours: Sequence[Mapping[str, Any]], **key: Any
) -> list[dict[str, Any]]:
    """Rows paper | ours | ratio by sigma; sigmas that only one of them has are left out.

    The paper prints two decimals: where it prints 0.0 there is no ratio.
    """
    rows = []
    for row in ours:
        if row["sigma"] in paper:
            printed = paper[row["sigma"]]
            numbers = {
                "sigma": row["sigma"],
                "paper": printed,
                "ours": row["error"],
                "low": row["low"],
                "high": row["high"],
            }
            rows.append(
                {
                    **key,
                    **numbers,
                    "ours / paper": row["error"] / printed if printed else float("nan"),
                }
            )
    return rows


def in_numbers(comparison: DataFrame | None, what: str = "", **key: Any) -> tuple[str, ...]:
    """A sentence on how far apart the paper's numbers and ours are at each sigma.

    There is no sentence without numbers. Sigmas are not pooled: errors grow with sigma for every
    predictor, so what is common to all sigmas says nothing.

    Args:
        comparison: the paper's numbers beside ours; None where there is nothing to lay out.
        what: the rows that are meant, in words.
        key: rows with other values than these are left out.
    """
    ratios: dict[float, list[float]] = {}
    for row in [] if comparison is None else comparison.to_dict("records"):
        if row["paper"] > 0 and all(row[k] == v for k, v in key.items()):
            ratios.setdefault(row["sigma"], []).append(row["ours / paper"])
    if not ratios:
        return ()
    parts = [f"{_ratios_text(found)} at sigma {sigma:g}" for sigma, found in sorted(ratios.items())]
    single = all(len(found) == 1 for found in ratios.values())
    return (
        (
            f"{FACTORS}{f' {what}' if what else ''}{'' if single else ', median (range)'}: "
            f"{', '.join(parts)}."
        ),
    )


def _ratios_text(found: Sequence[float]) -> str:
    middle = plainly(float(np.median(found)))
    return middle if len(found) == 1 else f"{middle} ({plainly(min(found))}–{plainly(max(found))})"


def rank_correlations(
    published: Mapping[str, Mapping[float, float]],
    ours: Mapping[str, Mapping[float, np.ndarray]],
    zeros: Mapping[str, Mapping[float, np.ndarray]],
) -> DataFrame:
    """By sigma: do the error rates of several cells rank as the published ones do?

    Spearman's rank correlation over the cells of one sigma, of error rates: errors over those of
    predicting 0, which differ between cells (degrees, say) for every predictor. So the zero
    predictor, whose rates are all 1, gets 0, while errors pooled over sigmas would give it
    nearly 1. Sigmas whose published rates are all alike are left out.

    Args:
        published: error rates by cell and sigma.
        ours: errors of each function, by cell and sigma.
        zeros: the zero predictor's errors on the same functions, by cell and sigma.

    Returns:
        A row a sigma with the 95 % bootstrap interval over functions.
    """
    rows, cells = [], list(ours)
    for sigma in sorted({sigma for rates in published.values() for sigma in rates}):
        paper = np.array([published[cell][sigma] for cell in cells])
        if len(np.unique(paper)) < 2:
            continue
        own, zero = (
            np.stack([errors[cell][sigma] for cell in cells], 1) for errors in (ours, zeros)
        )
        i = bootstrap(lambda e, z, paper=paper: _spearman(e / z, paper), own, zero)
        rows.append(
            {
                "sigma": sigma,
                "cells": len(cells),
                "rank correlation": i.value,
                "low": i.low,
                "high": i.high,
            }
        )
    note = (
        "Spearman, of error rates over the cells of a sigma; 95 % cluster bootstrap over functions"
    )
    return make_table(
        {name: [row[name] for row in rows] for name in rows[0]} if rows else {}, note=note
    )


def _spearman(
    rates: Float[np.ndarray, "draw cell"], paper: Float[np.ndarray, " cell"]
) -> Float[np.ndarray, " draw"]:
    """Rank correlation of each draw's rates with the paper's; 0 where one side ranks nothing."""
    from scipy.stats import rankdata  # only here: it loads slowly

    a, b = rankdata(np.round(rates, 12), axis=1), rankdata(paper)
    a, b = a - a.mean(1, keepdims=True), b - b.mean()
    size = np.sqrt((a**2).sum(1) * (b**2).sum())
    return np.divide((a * b).sum(1), size, out=np.zeros(len(a)), where=size > 0)


def plainly(value: float, digits: int = 2) -> str:
    """So many digits, without an exponent where a reader can do without.

    >>> plainly(1034.2), plainly(0.000812), plainly(1.5e-9)
    ('1000', '0.00081', '1.5e-09')
    """
    text = f"{value:.{digits}g}"
    return f"{float(text):.0f}" if "e+" in text and abs(value) < 1e6 else text


def as_table(rows: Sequence[Mapping[str, Any]], note: str) -> DataFrame | None:
    """Rows as a table; None where there are none."""
    return table_of_rows(rows, note) if rows else None


def rows_of(results: Mapping[str, Result], name: str, **key: Any) -> list[dict[str, Any]]:
    """The rows of a stored table with these values; none where it is not stored."""
    stored = results.get(name)
    if not isinstance(stored, DataFrame):
        return []
    return [
        row
        for row in rows_in(stored)
        if all(column in row and row[column] == value for column, value in key.items())
    ]


def columns_of(rows: Sequence[Mapping[str, Any]], *names: str) -> list[np.ndarray]:
    """Columns of rows, as numbers.

    >>> columns_of([{"d": 1, "error": 0.5}, {"d": 2, "error": 0.1}], "error", "d")
    [array([0.5, 0.1]), array([1., 2.])]
    """
    return [np.array([row[name] for row in rows], dtype=float) for name in names]


def sigmas_text(sigmas: Iterable[float]) -> str:
    """Sigmas in words: runs as ranges.

    >>> sigmas_text([1, 2, 3, 7.0, 9, 10])
    '1–3, 7, 9–10'
    """
    runs: list[list[float]] = []
    for sigma in sorted(sigmas):
        if runs and sigma == runs[-1][-1] + 1:
            runs[-1].append(sigma)
        else:
            runs.append([sigma])
    return ", ".join(f"{run[0]:g}" if len(run) == 1 else f"{run[0]:g}–{run[-1]:g}" for run in runs)
