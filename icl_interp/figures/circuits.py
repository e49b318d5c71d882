"""Figures of edges and circuits: what each edge carries, and which edges are left as a graph."""

from collections.abc import Sequence

import numpy as np

from icl_interp.circuits.attribution import Edges
from icl_interp.circuits.nodes import Circuit
from icl_interp.figures.colours import BLUE, GREY, INK
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Matrix, Note, Panel, Points
from icl_interp.interventions.edges import READ_IN, READ_OUT


def edge_matrix(found: Edges) -> Drawing:
    """What every edge carries, and how far off the estimate is on a sample patched exactly.

    Args:
        found: by `circuits.attribute_edges`.
    """
    shares = found.matrix
    squares = Matrix(
        shares.values,
        list(shares["writer"].values),
        list(shares["reader"].values),
        bar="share",
        hover="{row} to {column}: {z:.3g}",
    )
    check = found.check
    texts = []
    for writer, reader in zip(check["writer"], check["reader"], strict=True):
        texts.append(f"{writer} to {reader}")
    dots = Points(
        check["exact"],
        check["estimated"],
        texts=texts,
        hover="{text}<br>exact {x:.3g}, estimated {y:.3g}",
    )
    ends = [check["exact"].min(), check["exact"].max()]
    alike = Line(ends, ends, colour=GREY, dash="dot", hover="")
    panels = [
        Panel("Share that each edge carries", Axis("reader"), Axis("writer"), [squares], width=2.5),
        Panel(
            "Against exact path patching",
            Axis("exact share"),
            Axis("estimated share"),
            [alike, dots],
            below=f"Root mean square of the difference: {found.error:.2g}.",
        ),
    ]
    below = f"Attribution patching ({found.method}). A share of the way to the clean prediction."
    return Drawing("Which part reads which", below, panels, height=380)


def circuit_graph(found: Circuit) -> Drawing:
    """The parts of a circuit from the read-in (below) to the read-out, and the edges between them.

    Args:
        found: by `icl_interp.circuit`, with edges.
    """
    names = [READ_IN, *found.parts, READ_OUT]
    places = {name: _place(name, found.parts) for name in names}
    # Queries, keys and values of a head are one line, which says which it is.
    letters: dict[tuple[str, str], list[str]] = {}
    for writer, reader in found.edges:
        owner = " ".join(reader.split()[:2])
        letters.setdefault((writer, owner), []).append(reader.removeprefix(owner).strip())
    marks: list[Mark] = []
    for (writer, owner), read in letters.items():
        marks.append(_edge(places[writer], places[owner], f"{writer} to {owner} {''.join(read)}"))
    x, y = np.transpose(list(places.values()))
    marks.append(Points(x, y, size=16, colour=BLUE, texts=names, hover="{text}"))
    for name, (across, up) in places.items():
        marks.append(Note(name, across, up, at="top", colour=INK))
    marks += _letters(letters, places)
    panel = Panel("", Axis(shown=False), Axis(shown=False), marks)
    below = f"All other heads and MLPs give their means. The error may rise by {found.tolerance:g}."
    return Drawing("The circuit", below, [panel], height=420)


def _place(name: str, parts: Sequence[str]) -> tuple[float, float]:
    """Across and up: a layer above the other, heads beside each other, its MLP above them."""
    if name == READ_IN:
        return 0.0, -1.0
    layers = [int(part.split()[1].split(".")[0]) for part in parts]
    if name == READ_OUT:
        return 0.0, 2.0 * max(layers, default=0) + 2.0
    kind, place = name.split()
    layer = int(place.split(".")[0])
    if kind == "MLP":
        return 0.0, 2.0 * layer + 1.0
    beside = [part for part in parts if part.startswith(f"head {layer}.")]
    return beside.index(name) - (len(beside) - 1) / 2, 2.0 * layer


def _edge(start: tuple[float, float], end: tuple[float, float], words: str) -> Line:
    x, y = np.transpose([start, end])
    return Line(x, y, colour=GREY, width=1.5, texts=[words, words], hover="{text}")


def _letters(
    letters: dict[tuple[str, str], list[str]], places: dict[str, tuple[float, float]]
) -> list[Mark]:
    """Beside the end of an edge: whether a head reads it for its queries, keys or values."""
    found: list[Mark] = []
    for (writer, owner), read in letters.items():
        words = "".join(read)
        if words:
            x, y = 0.25 * np.array(places[writer]) + 0.75 * np.array(places[owner])
            found.append(Note(words, float(x), float(y), at="right", colour=GREY))
    return found
