"""Attention over many tokens: does a pattern become uniform, or only spread out?"""

from collections.abc import Sequence

import numpy as np
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.analyses.relevance import relevance, relevant
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import GREY, INK, PALE
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel, Rule
from icl_interp.figures.style import VERDICTS
from icl_interp.figures.text import plain, tested_by
from icl_interp.studies.limits.claims.uniform import UNIFORM
from icl_interp.studies.limits.measurements import dispersion as measured_dispersion
from icl_interp.studies.limits.measurements.dispersion import BEYOND

# The first layer's colour and the last one's.
FIRST = (86, 180, 233)
LAST = (0, 44, 84)
IDLE = "not sure to matter"


def dispersion(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """Entropy deficit and largest weight of every head against the number of tokens.

    They are measured first, then resampled.
    """
    curve = results.get(measured_dispersion.dispersion)
    if curve is None:
        return None
    names = list(curve.indexes["head"])
    counted = set(names)
    if relevance in results:
        counted = set(relevant(results, facts))
    ns = curve["n"].values

    # How far the pattern is from an average, and what counts as one.
    look = VERDICTS["supported"]
    words = f"uniform below {UNIFORM}"
    uniform = Rule(y=UNIFORM, words=words, colour=look.colour, dash="dash", width=1.5, ink=look.ink)
    average = Line(ns, 1 / ns, name="uniform: 1/n", colour=INK, width=1.2, dash="dot", hover="")
    x = Axis("tokens n", ns.min() / 1.15, ns.max() * 1.15, log=True)
    # Lengths up to the edge are measured directly; the rest is resampled.
    edge = len(ns) - len(BEYOND)
    panels = []
    for title, statistic, axis, reference in (
        ("Distance from a uniform average", "deficit", "log n − entropy (nats)", uniform),
        ("Largest weight on any token", "max weight", "largest weight", average),
    ):
        marks = _heads(curve, statistic, counted)
        if edge > 0:
            at = float(ns[edge - 1])
            trained = Rule(at, None, "trained length", colour=PALE, dash="solid", ink=GREY)
            marks.append(trained)
        y = Axis(axis, log=True)
        panels.append(Panel(title, x, y, [*marks, reference]))
    below = tested_by("dispersion", findings)
    below += f"<br>Each line is a head; {plain(curve.attrs['note'])}."
    title = "Does attention become a uniform average over many tokens?"
    layers = [f"layer {layer}" for layer in sorted(set(map(_layer, names)))]
    return Drawing(title, below, panels, height=320, legend=(*layers, IDLE))


FIGURE = ReportFigure(
    dispersion,
    "First, how far attention is from a uniform average as prompts grow: log of the number of "
    "tokens n, minus the entropy of the attention; 0 is uniform. Pale: it is not certain that the "
    "head matters. Second, the largest weight on any token. It shrinks with any bounded scores, "
    "even if attention is not uniform. Solid: measured on prompts of that length. Dashed: scores "
    "drawn from those in prompts of the trained length.",
)


def _layer(head: str) -> int:
    """The layer in a head's name."""
    layer, _, _ = head.partition(".")
    return int(layer)


def _heads(curve: DataArray, statistic: str, counted: set[str]) -> list[Mark]:
    """One line a layer and kind: heads are joined with gaps, so that a large model stays light."""
    names = list(curve.indexes["head"])
    layers = sorted(set(map(_layer, names)))
    edge = max(len(curve["n"]) - len(BEYOND), 0)
    # Measured lengths are solid, and resampled ones go on from the last of these.
    parts = {"solid": slice(0, edge), "dash": slice(max(edge - 1, 0), None)}
    marks: list[Mark] = []
    for keep in (False, True):
        for i, layer in enumerate(layers):
            chosen = [n for n in names if _layer(n) == layer and (n in counted) == keep]
            if not chosen:
                continue
            colour = _shade(i, len(layers)) if keep else PALE
            for dash, part in parts.items():
                shown = curve.sel(head=chosen, statistic=statistic).isel(n=part)
                line = Line(
                    shown["n"].values,
                    shown.values,
                    name=f"layer {layer}" if keep else IDLE,
                    colour=colour,
                    width=1.7 if keep else 1.2,
                    dash=dash,
                    texts=list(map(plain, chosen)),
                    hover=f"head {{text}}<br>n = {{x}}<br>{statistic} {{y:.3g}}",
                )
                marks.append(line)
    return marks


def _shade(i: int, n: int) -> str:
    """From light to dark blue with depth."""
    share = i / (n - 1) if n > 1 else 1.0
    mixed = np.array(FIRST) + share * np.subtract(LAST, FIRST)
    red, green, blue = np.round(mixed).astype(int)
    return f"rgb({red},{green},{blue})"
