"""Figures of edges and circuits: what each edge carries, and which edges are left as a graph."""

from collections.abc import Sequence

import numpy as np

from icl_interp.circuits.attribution import Edges
from icl_interp.circuits.nodes import Circuit
from icl_interp.figures.colours import GREY
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Matrix, Note, Panel, Points
from icl_interp.models.parts import READ_IN, READ_OUT


def edge_matrix(found: Edges) -> Drawing:
    """What every edge carries, and how far off the estimate is on a sample patched exactly.

    Args:
        found: by `circuits.attribute_edges`.
    """
    # Squares on the left; on the right a dot for each edge that was patched.
    shares = found.matrix
    rows = list(shares["writer"].values)
    columns = list(shares["reader"].values)
    hover = "{row} to {column}: {z:.3g}"
    squares = Matrix(shares.values, rows, columns, bar="share", hover=hover)
    check = found.check
    texts = []
    for writer, reader in zip(check["writer"], check["reader"], strict=True):
        texts.append(f"{writer} to {reader}")
    exact = check["exact"]
    hover = "{text}<br>exact {x:.3g}, estimated {y:.3g}"
    dots = Points(exact, check["estimated"], texts=texts, hover=hover)
    ends = [exact.min(), exact.max()]
    alike = Line(ends, ends, colour=GREY, dash="dot", hover="")
    title = "Share that each edge carries"
    left = Panel(title, Axis("reader"), Axis("writer"), [squares], width=2.5)
    said = f"Root mean square of the difference: {found.error:.2g}."
    title = "Against exact path patching"
    x = Axis("exact share")
    y = Axis("estimated share")
    right = Panel(title, x, y, [alike, dots], below=said)
    below = f"Attribution patching ({found.method}): the share of the way to the clean prediction."
    return Drawing("Which part reads which", below, [left, right], height=380)


def circuit_graph(found: Circuit) -> Drawing:
    """The parts of a circuit from the read-in (below) to the read-out, and the edges between them.

    Args:
        found: by `icl_interp.circuit`, with edges.
    """
    names = [READ_IN, *found.parts, READ_OUT]
    places = {name: _place(name, found.parts) for name in names}
    # Queries, keys and values of a head are one line, which says which it is.
    letters: dict[tuple[str, str], str] = {}
    for writer, reader in found.edges:
        owner, letter = _owner(reader)
        read = letters.get((writer, owner), "")
        letters[writer, owner] = read + letter
    marks: list[Mark] = []
    for (writer, owner), read in letters.items():
        start = np.array(places[writer])
        end = np.array(places[owner])
        marks.append(_line(start, end, f"{writer} to {owner} {read}"))
        x, y = start + 0.75 * (end - start)
        if read:
            marks.append(Note(read, x, y, at="right", colour=GREY))
    x, y = np.transpose(list(places.values()))
    marks.append(Points(x, y, size=16, texts=names, hover="{text}"))
    for name, place in places.items():
        marks.append(Note(name, *place, at="top"))
    panel = Panel("", Axis(shown=False), Axis(shown=False), marks)
    rise = f"{found.tolerance:g}"
    below = f"All other heads and MLPs are replaced by their means. The error may rise by {rise}."
    return Drawing("The circuit", below, [panel], height=420)


def _owner(reader: str) -> tuple[str, str]:
    """The part that a reader belongs to, and for what a head reads: "head 1.0", "k"."""
    kind, *rest = reader.split()
    if kind != "head":
        return reader, ""
    place, letter = rest
    return f"head {place}", letter


def _place(name: str, parts: Sequence[str]) -> tuple[float, float]:
    """Across and up: a layer above the other, heads beside each other, its MLP above them."""
    if name == READ_IN:
        return 0.0, -1.0
    if name == READ_OUT:
        top = max(map(_layer, parts), default=0)
        return 0.0, 2.0 * top + 2.0
    layer = _layer(name)
    if name.startswith("MLP"):
        return 0.0, 2.0 * layer + 1.0
    beside = [part for part in parts if part.startswith(f"head {layer}.")]
    middle = (len(beside) - 1) / 2
    return beside.index(name) - middle, 2.0 * layer


def _layer(part: str) -> int:
    place = part.split()[1]
    return int(place.split(".")[0])


def _line(start: np.ndarray, end: np.ndarray, words: str) -> Line:
    x, y = np.transpose([start, end])
    return Line(x, y, colour=GREY, width=1.5, texts=[words, words], hover="{text}")
