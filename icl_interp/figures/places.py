"""Tables of places in a model as figures: recovered shares, learned probes, composition."""

from collections.abc import Sequence

import pandas as pd
from plotly.graph_objects import Figure

from icl_interp.errors import InputError, whole
from icl_interp.figures.colours import GREY, INK
from icl_interp.figures.drawing import Axis, Drawing, Mark, Matrix, Panel, Points, Rule, rows
from icl_interp.figures.render import render

MOST = 40  # rows of a figure
CONTROLS = {"shuffled": "x", "random features": "diamond-open", "untrained": "square-open"}
READ_FOR = {"Q": "queries", "K": "keys", "V": "values"}
HOVER = "{text}: {x:.3g}"


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
    by_size = table["share"].abs().sort_values(ascending=False, kind="stable")
    shown = table.loc[by_size.index[:most]]
    end = list(table.columns).index("share")
    names = _names(shown, [str(column) for column in table.columns[:end]])
    colours = [INK if q < 0.05 else GREY for q in shown["q"]]
    dots = Points(
        shown["share"].to_numpy(),
        range(len(shown)),
        low=shown["low"].to_numpy(),
        high=shown["high"].to_numpy(),
        colour=colours,
        texts=names,
        hover=HOVER,
    )
    panel = Panel("", Axis("recovered share"), rows(names), [Rule(x=0.0), dots])
    below = "Share of the way to the clean prediction, 95 % intervals. Grey: q is 0.05 or more."
    if len(shown) < len(table):
        below += f" The {len(shown)} largest of {len(table)}."
    return render(Drawing("What carries the prediction", below, [panel]))


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
    places = ["hook", "head", "position", "coordinate"]
    names = _names(shown, [name for name in places if name == "hook" or shown[name].nunique() > 1])
    at = range(len(shown))
    r2 = shown["r2"].to_numpy()
    ends = {"low": shown["low"].to_numpy(), "high": shown["high"].to_numpy()}
    marks: list[Mark] = [Rule(x=0.0), Points(r2, at, **ends, name="probe", texts=names)]
    for control, symbol in CONTROLS.items():
        values = shown[control].to_numpy()
        marks.append(Points(values, at, name=control, symbol=symbol, colour=GREY, texts=names))
    panel = Panel("", Axis("R² on unseen functions"), rows(names), marks)
    below = "95 % intervals over functions. What a probe reads counts as far as no control has it."
    if len(shown) < len(table):
        below += f" The first {len(shown)} of {len(table)} rows."
    return render(Drawing("What can be read", below, [panel]))


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
    ratio = table["score"] / table["random"]
    writer = _heads(table, "writer")
    reader = _heads(table, "reader")
    every = pd.DataFrame({"kind": table["kind"], "w": writer, "r": reader, "ratio": ratio})
    largest = float(ratio.max())
    panels = []
    for kind, group in every.groupby("kind", sort=False):
        wide = group.pivot(index="w", columns="r", values="ratio")
        wide = wide.loc[group["w"].unique(), group["r"].unique()]
        squares = Matrix(
            wide.to_numpy(),
            list(wide.index),
            list(wide.columns),
            low=0.0,
            high=largest,
            colours="from zero",
            bar="times chance" if len(panels) == 2 else None,
            hover="{row} to {column}: {z:.3g}",
        )
        panels.append(Panel(f"reads it for {READ_FOR[kind]}", Axis("reader"), Axis("writer"), [squares]))
    below = "Score over the root mean square of random directions: 1 by chance."
    return render(Drawing("Which heads read what others write", below, panels, height=320))


def _heads(table: pd.DataFrame, what: str) -> pd.Series:
    """Names of heads, such as 1.0."""
    return table[f"{what}_layer"].astype(str) + "." + table[f"{what}_head"].astype(str)


def _names(table: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """A name for each row: of its place, or of its path."""
    names = []
    for row in table[list(columns)].itertuples(index=False):
        if list(columns) == ["writer", "reader"]:
            names.append(" to ".join(row))
            continue
        # A hook says what it is by itself; -1 stands for no head.
        parts = []
        for column, value in zip(columns, row, strict=True):
            if column == "hook":
                parts.append(str(value))
            elif not (column == "head" and value < 0):
                parts.append(f"{column} {value}")
        names.append(", ".join(parts))
    return names


def _check(table: pd.DataFrame, needed: Sequence[str], of: str) -> None:
    missing = sorted(set(needed) - set(table.columns))
    if missing:
        raise InputError(f"a table of {of} is drawn, but this one has no {missing}")
