"""Tables of places in a model as figures: recovered shares, learned probes, maps of heads."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from plotly.graph_objects import Figure

from icl_interp.errors import InputError, whole
from icl_interp.figures.colours import GREY, INK
from icl_interp.figures.drawing import Axis, Drawing, Mark, Matrix, Panel, Points, Rule, rows
from icl_interp.figures.render import render

MOST = 40  # rows of a figure
LEVEL = 0.05  # of q-values
CONTROLS = {"shuffled": "x", "random features": "diamond-open", "untrained": "square-open"}
READ_FOR = {"Q": "queries", "K": "keys", "V": "values"}
HOVER = "{text}: {x:.3g}"
BETWEEN = "{row} to {column}: {z:.3g}"
# What is known of the map of a head, and where its axis has a line.
OF_MAPS = {"size": (0.0,), "rank": (0.0,), "copying": (-1.0, 0.0, 1.0), "label": (0.0,)}
EDITS = {
    "steer": ("change of the prediction / change of f(x)", 1.0),
    "project out": ("error with the edit / without", 1.0),
}


def recovered(table: pd.DataFrame, most: int = MOST) -> Figure:
    """Recovered shares of places or paths with their intervals, the largest first.

    Grey: not told from 0 at a false discovery rate of 5 %.

    Args:
        table: what `circuits.patch_activations` or `circuits.patch_paths` gave, or the `table` of
            `circuits.attribute_edges`.
        most: rows that are drawn.

    Raises:
        InputError: another table.

    >>> import icl_interp
    >>> loaded = icl_interp.load("affine_attn_only")
    >>> pairs = icl_interp.contrasts.labels(loaded.task, n_functions=16)
    >>> table = icl_interp.circuits.patch_activations(loaded, pairs)
    >>> drawn = recovered(table, most=3).data[0].x
    >>> bool((sorted(abs(drawn)) == sorted(table["share"].abs())[-3:]))
    True
    """
    _check(table, ("share", "low", "high", "q"), "circuits.patch_activations or patch_paths")
    most = whole(most, "most", 1)
    shown = table.sort_values("share", key=abs, ascending=False, kind="stable")
    shown = shown.head(most)
    # What stands before the share names the place.
    columns = list(table.columns)
    end = columns.index("share")
    names = _names(shown, columns[:end])
    colours = [INK if q < LEVEL else GREY for q in shown["q"]]
    share, low, high = _numbers(shown, "share", "low", "high")
    at = range(len(shown))
    dots = Points(share, at, low, high, colour=colours, texts=names, hover=HOVER)
    zero = Rule(x=0.0)
    x = Axis("recovered share")
    panel = Panel("", x, rows(names), [zero, dots])
    below = "Share of the way to the clean prediction, 95 % intervals. Grey: q is 0.05 or more."
    if len(shown) < len(table):
        below += f" The {len(shown)} largest of {len(table)}."
    title = "What carries the prediction"
    drawing = Drawing(title, below, [panel])
    return render(drawing)


def readable(table: pd.DataFrame, most: int = MOST) -> Figure:
    """R2 of learned probes with its interval, beside their controls, in the order of the table.

    Args:
        table: of `probes.fit`, its attribute `table`.
        most: rows that are drawn.

    Raises:
        InputError: another table.

    >>> import icl_interp
    >>> found = icl_interp.probes.fit(icl_interp.load("affine_attn_only"), "X'y")
    >>> figure = readable(found.table)
    >>> bool((figure.data[0].x == found.table["r2"]).all())
    True
    """
    _check(table, ("hook", "coordinate", "r2", "low", "high", *CONTROLS), "probes.fit")
    most = whole(most, "most", 1)
    shown = table.iloc[:most]
    # A place is named by what differs.
    columns = ["hook"]
    for name in ("head", "position", "coordinate"):
        if shown[name].nunique() > 1:
            columns.append(name)
    names = _names(shown, columns)
    at = range(len(shown))
    r2, low, high = _numbers(shown, "r2", "low", "high")
    own = Points(r2, at, low, high, name="probe", texts=names)
    marks: list[Mark] = [Rule(x=0.0), own]
    for control, symbol in CONTROLS.items():
        (found,) = _numbers(shown, control)
        dots = Points(found, at, name=control, symbol=symbol, colour=GREY, texts=names)
        marks.append(dots)
    x = Axis("R² on unseen functions")
    panel = Panel("", x, rows(names), marks)
    below = (
        "95 % intervals over functions. What a probe reads counts only beyond what the controls "
        "read."
    )
    if len(shown) < len(table):
        below += f" The first {len(shown)} of {len(table)} rows."
    title = "What can be read"
    drawing = Drawing(title, below, [panel])
    return render(drawing)


def composition(table: pd.DataFrame) -> Figure:
    """Composition of heads as squares, a panel each for queries, keys and values.

    A square is the score over its root mean square in random directions, so 1 is chance.

    Args:
        table: what `probes.composition` gave.

    Raises:
        InputError: another table.

    >>> from icl_interp import HookedTransformerConfig, probes
    >>> from icl_interp.models.transformer import HookedTransformer
    >>> model = HookedTransformer(HookedTransformerConfig(n_layers=2, d_model=8, n_heads=2))
    >>> [square.z.shape for square in composition(probes.composition(model, n_random=9)).data]
    [(2, 2), (2, 2), (2, 2)]
    """
    _check(table, ("kind", "writer_layer", "reader_layer", "score", "random"), "probes.composition")
    every = pd.DataFrame(
        {
            "kind": table["kind"],
            "writer": _heads(table, "writer"),
            "reader": _heads(table, "reader"),
            "ratio": table["score"] / table["random"],
        }
    )
    # A panel for each use, all with one scale of colours.
    largest = float(every["ratio"].to_numpy().max())
    panels = []
    for kind, use in READ_FOR.items():
        group = every.loc[every["kind"] == kind]
        writers = list(dict.fromkeys(group["writer"]))
        readers = list(dict.fromkeys(group["reader"]))
        wide = group.pivot(index="writer", columns="reader", values="ratio")
        wide = wide.reindex(index=writers, columns=readers)
        bar = "times chance" if kind == "V" else None
        squares = Matrix(
            wide.to_numpy(),
            writers,
            readers,
            low=0.0,
            high=largest,
            colours="from zero",
            hover=BETWEEN,
            bar=bar,
        )
        panels.append(Panel(f"reads it for {use}", Axis("reader"), Axis("writer"), [squares]))
    below = "Score over the root mean square of random directions: 1 by chance."
    title = "Which heads read what others write"
    drawing = Drawing(title, below, panels, height=320)
    return render(drawing)


def spectrum(table: pd.DataFrame) -> Figure:
    """What the OV map of each head does, a panel for each of its numbers, a row a head.

    Args:
        table: what `probes.ov_spectrum` gave.

    Raises:
        InputError: another table.

    >>> import icl_interp
    >>> figure = spectrum(icl_interp.probes.ov_spectrum(icl_interp.load("affine_attn_only")))
    >>> len(figure.data), len(figure.data[0].x)
    (4, 12)
    """
    _check(table, ("layer", "head", *OF_MAPS), "probes.ov_spectrum")
    names = _names(table, ["layer", "head"])
    at = range(len(table))
    panels = []
    for name, levels in OF_MAPS.items():
        (values,) = _numbers(table, name)
        marks: list[Mark] = [Rule(x=level) for level in levels]
        dots = Points(values, at, texts=names, hover=HOVER)
        marks.append(dots)
        panel = Panel(name, y=rows(names), marks=marks)
        panels.append(panel)
    below = (
        "Size: Frobenius norm. Rank: how many directions it uses. Copying: 1 if it adds what it "
        "reads, -1 if it subtracts that. Label: what one unit of a label moves the read-out."
    )
    title = "What heads write of what they read"
    drawing = Drawing(title, below, panels, columns=2)
    return render(drawing)


def followed(table: pd.DataFrame) -> Figure:
    """The causal check of a learned probe beside what random directions do.

    Args:
        table: what `LearnedProbes.causal` gave.

    Raises:
        InputError: another table.

    >>> table = pd.DataFrame({"edit": ["steer"], "value": [0.9], "low": [0.8], "high": [1.0]})
    >>> float(followed(table.assign(random=0.1, p=0.05)).data[0].x[0])
    0.9
    """
    _check(table, ("edit", "value", "low", "high", "random", "p"), "LearnedProbes.causal")
    panels = []
    for edit, (words, level) in EDITS.items():
        # A table may hold one of both edits.
        row = table.loc[table["edit"] == edit]
        if row.empty:
            continue
        value, low, high, random = _numbers(row, "value", "low", "high", "random")
        names = [f"p = {p:.2g}" for p in row["p"]]
        own = Points(value, [0], low, high, name="the probe's direction", texts=names, hover=HOVER)
        null = Points(random, [0], name="random directions", symbol="diamond-open", colour=GREY)
        line = Rule(x=level)
        x = Axis(words)
        panel = Panel(edit, x, rows(names), [line, own, null])
        panels.append(panel)
    below = (
        "95 % intervals over functions; random directions: their median. Steer: 1 where the "
        "prediction follows in full. Project out: 1 where the error stays as it is."
    )
    title = "Does the prediction follow?"
    drawing = Drawing(title, below, panels, height=120, columns=1)
    return render(drawing)


def _numbers(table: pd.DataFrame, *columns: str) -> list[np.ndarray]:
    """Columns of a table as numbers."""
    return [table[column].to_numpy(dtype=float) for column in columns]


def _heads(table: pd.DataFrame, what: str) -> list[str]:
    """Names of heads, such as 1.0."""
    layers = table[f"{what}_layer"].tolist()
    heads = table[f"{what}_head"].tolist()
    return [f"{layer}.{head}" for layer, head in zip(layers, heads, strict=True)]


def _names(table: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """A name for each row: of its place, or of its path."""
    names = []
    for row in table.to_dict("records"):
        if "writer" in columns:
            names.append(f"{row['writer']} to {row['reader']}")
            continue
        parts = []
        for column in columns:
            value: Any = row[column]
            if column == "hook":  # it says what it is by itself
                parts.append(value)
            elif column != "head" or value >= 0:  # -1 stands for no head
                parts.append(f"{column} {int(value)}")
        names.append(", ".join(parts))
    return names


def _check(table: pd.DataFrame, needed: Sequence[str], of: str) -> None:
    there = set(table.columns)
    missing = sorted(set(needed) - there)
    if missing:
        raise InputError(f"a table of {of} is drawn, but this one has no {missing}")
