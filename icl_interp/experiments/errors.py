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
    predictors = matrix.indexes["predictor"]
    names = []
    parts = []
    for name, members in groups.items():
        errors = [matrix.sel(predictor=m).values for m in members if m in predictors]
        if errors:
            names.append(name)
            parts.append(np.mean(errors, 0)[None])
    axes = {**matrix.indexes, "predictor": (*names, *predictors)}
    return make_array(np.concatenate([*parts, matrix.values]), axes, **described(matrix))


def table(matrix: DataArray, **key: Any) -> DataFrame:
    """Errors with intervals by predictor and sigma; `key` becomes columns of its own in front."""
    return keyed(evaluation.error_table(matrix), **key)


def keyed(found: DataFrame, **key: Any) -> DataFrame:
    """The table with constant columns in front."""
    columns: dict[str, Iterable[Any]] = {}
    for name, value in key.items():
        columns[name] = [value] * len(found)
    return make_table({**columns, **found}, **described(found))


def joined(tables: Iterable[DataFrame]) -> DataFrame:
    """Tables of the same columns, one below the other."""
    parts = list(tables)
    if not parts:
        return make_table({})
    columns: dict[str, list[Any]] = {}
    for name in parts[0].columns:
        columns[name] = []
        for part in parts:
            columns[name].extend(part[name])
    return make_table(columns, **described(parts[0]))


def ratios(matrix: DataArray, pairs: Iterable[tuple[str, str]], **key: Any) -> DataFrame:
    """log10 of error a / error b for each pair and sigma, paired by function, with its interval."""
    names = (*key, "a", "b", "sigma", "log10 ratio", "low", "high")
    columns: dict[str, list[Any]] = {}
    for name in names:
        columns[name] = []
    for a, b in pairs:
        for sigma in matrix.indexes["sigma"]:
            ratio = evaluation.paired_ratio(matrix, a, b, sigma)
            row = {**key, "a": a, "b": b, "sigma": sigma}
            row |= {"log10 ratio": ratio.value, "low": ratio.low, "high": ratio.high}
            for name, value in row.items():
                columns[name].append(value)
    note = (
        "log10 of mean error a / mean error b; 95 % cluster bootstrap over functions, both on the "
        "same prompts"
    )
    return make_table(columns, note=note)


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
        sigma = row["sigma"]
        if sigma not in paper:
            continue
        printed = paper[sigma]
        beside: dict[str, Any] = {**key, "sigma": sigma, "paper": printed, "ours": row["error"]}
        beside["low"] = row["low"]
        beside["high"] = row["high"]
        beside["ours / paper"] = row["error"] / printed if printed else float("nan")
        rows.append(beside)
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
    if comparison is None:
        return ()
    # Where the paper prints 0 there is no ratio.
    ratios: dict[float, list[float]] = {}
    for row in comparison.to_dict("records"):
        if row["paper"] > 0 and _agrees(row, key):
            ratios.setdefault(row["sigma"], []).append(row["ours / paper"])
    if not ratios:
        return ()
    parts = []
    read = ""
    for sigma, found in sorted(ratios.items()):
        parts.append(f"{_ratios_text(found)} at sigma {sigma:g}")
        if len(found) > 1:
            read = ", median (range)"
    of = f" {what}" if what else ""
    return (f"{FACTORS}{of}{read}: {', '.join(parts)}.",)


def _agrees(row: Mapping[Any, Any], key: Mapping[str, Any]) -> bool:
    """Whether a row has these values; its columns are known to be there."""
    return all(row[name] == value for name, value in key.items())


def _ratios_text(found: Sequence[float]) -> str:
    middle = plainly(float(np.median(found)))
    if len(found) == 1:
        return middle
    return f"{middle} ({plainly(min(found))}–{plainly(max(found))})"


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
    rows = []
    cells = list(ours)
    # The sigmas that any cell has published rates at.
    sigmas: set[float] = set()
    sigmas.update(*published.values())
    for sigma in sorted(sigmas):
        paper = np.array(_at(published, cells, sigma))
        if len(np.unique(paper)) < 2:
            continue
        own = np.stack(_at(ours, cells, sigma), 1)
        zero = np.stack(_at(zeros, cells, sigma), 1)
        rank = bootstrap(lambda e, z, paper=paper: _spearman(e / z, paper), own, zero)
        row = {"sigma": sigma, "cells": len(cells), "rank correlation": rank.value}
        row |= {"low": rank.low, "high": rank.high}
        rows.append(row)
    note = (
        "Spearman, of error rates over the cells of a sigma; 95 % cluster bootstrap over functions"
    )
    return table_of_rows(rows, note)


def _at(found: Mapping[str, Mapping[float, Any]], cells: Sequence[str], sigma: float) -> list[Any]:
    """What was found in each cell at this sigma."""
    return [found[cell][sigma] for cell in cells]


def _spearman(
    rates: Float[np.ndarray, "draw cell"], paper: Float[np.ndarray, " cell"]
) -> Float[np.ndarray, " draw"]:
    """Rank correlation of each draw's rates with the paper's; 0 where one side ranks nothing."""
    from scipy.stats import rankdata  # only here: it loads slowly

    ours = rankdata(np.round(rates, 12), axis=1)
    ours = ours - ours.mean(1, keepdims=True)
    theirs = rankdata(paper)
    theirs = theirs - theirs.mean()
    squares = (ours**2).sum(1) * (theirs**2).sum()
    size = np.sqrt(squares)
    products = (ours * theirs).sum(1)
    return np.divide(products, size, out=np.zeros(len(ours)), where=size > 0)


def plainly(value: float, digits: int = 2) -> str:
    """So many digits, without an exponent where a reader can do without.

    >>> plainly(1034.2), plainly(0.000812), plainly(1.5e-9)
    ('1000', '0.00081', '1.5e-09')
    """
    text = f"{value:.{digits}g}"
    if "e+" in text and abs(value) < 1e6:
        return f"{float(text):.0f}"
    return text


def as_table(rows: Sequence[Mapping[str, Any]], note: str) -> DataFrame | None:
    """Rows as a table; None where there are none."""
    return table_of_rows(rows, note) if rows else None


def rows_of(results: Mapping[str, Result], name: str, **key: Any) -> list[dict[str, Any]]:
    """The rows of a stored table with these values; none where it is not stored."""
    stored = results.get(name)
    if not isinstance(stored, DataFrame):
        return []
    rows = []
    for row in rows_in(stored):
        if set(key) <= set(row) and _agrees(row, key):
            rows.append(row)
    return rows


def columns_of(rows: Sequence[Mapping[str, Any]], *names: str) -> list[np.ndarray]:
    """Columns of rows, as numbers.

    >>> columns_of([{"d": 1, "error": 0.5}, {"d": 2, "error": 0.1}], "error", "d")
    [array([0.5, 0.1]), array([1., 2.])]
    """
    columns = []
    for name in names:
        values = [row[name] for row in rows]
        columns.append(np.array(values, dtype=float))
    return columns


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
    texts = []
    for run in runs:
        first = f"{run[0]:g}"
        texts.append(first if len(run) == 1 else f"{first}–{run[-1]:g}")
    return ", ".join(texts)
