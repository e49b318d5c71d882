"""Linear regression in context: risk, the way to the minimum, which algorithm.

Risk is by prompt length, beside Theorem 4.2.
"""

from collections.abc import Sequence

import numpy as np
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.figures.colours import BLUE, GREEN, GREY, INK, ORANGE, PURPLE
from icl_interp.figures.drawing import Axis, Drawing, Line, Mark, Panel, Points, rows
from icl_interp.figures.text import number, plain, tested_by
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import coordinates
from icl_interp.studies.linear_attention.measurements import algorithms as lsa_algorithms
from icl_interp.studies.linear_attention.measurements import shifts as lsa_shifts
from icl_interp.studies.linear_attention.measurements import weights as lsa_weights
from icl_interp.studies.linear_attention.measurements.algorithms import SIZE, TRUTH
from icl_interp.studies.linear_attention.measurements.setting import task_in
from icl_interp.studies.linear_attention.measurements.shifts import BEST, MODEL, PRINTED, ZERO

LOWEST = 1e-12  # of logarithmic axes
LEAST_SIMILARITY = -0.5  # a prediction can be off by any amount
LINES = {  # (name, colour, dash) of what the risk is compared with
    BEST: ("optimal layer", BLUE, "solid"),
    PRINTED: ("the same without 1/M, as printed", ORANGE, "dash"),
    ZERO: ("predicting 0", GREY, "dot"),
}
ALONG = {
    "excess": ("excess loss", BLUE, "solid"),
    "squared gradient": ("|∇L|²", GREEN, "solid"),
    "PL bound": ("mu × excess", PURPLE, "dot"),
}


def linear_attention(results: Results, findings: Sequence[Finding], facts: Facts) -> Drawing | None:
    """As many panels as were measured.

    The panels are: error by prompt length, loss and gradient over steps, and nearness to
    algorithms.
    """
    risk = results.get(lsa_shifts.risk)
    path = results.get(lsa_weights.path)
    algorithms = results.get(lsa_algorithms.algorithms)
    panels = []
    if risk is not None:
        panels.append(_risk(risk, facts))
    if path is not None and _drawable(path):
        panels.append(_path(path))
    if algorithms is not None:
        panels.append(_algorithms(algorithms, facts))
    if not panels:
        return None
    title = "Linear regression in context, against its theory"
    return Drawing(title, tested_by("linear_attention", findings), panels)


FIGURE = ReportFigure(
    linear_attention,
    "First, the error at the query after M examples: measured, and by theory for the layer that "
    "training should end at, on the same draws; intervals are those of the ratio of the two. "
    "Dashed: as the slides print it. Then, if the run kept snapshots of its weights, the exact "
    "excess loss and squared gradient at these steps, and the bound on the latter by Lemma 5.4. "
    "Last, how near the model is to algorithms for linear regression that are told the "
    "distribution of the task: 1 is the same prediction, 0 is as far off as predicting 0 is from "
    "the truth.",
)


def _risk(risk: DataArray, facts: Facts) -> Panel:
    """Measured errors and the formulas' lines.

    The intervals are those of the ratio to the optimum's, by function.
    """
    lengths = risk["M"].values
    hover = "M = {x}: {y:.4g}"
    random = task_in(facts).random_covariance
    theorem = "4.5" if random else "4.2"
    marks: list[Mark] = []
    for who, (name, colour, dash) in LINES.items():
        if who == PRINTED and random:
            continue  # the slides print nothing of the kind
        words = f"{name}, Theorem {theorem}" if who == BEST else name
        errors = risk.sel(who=who).values.mean(0)
        look = {"colour": colour, "dash": dash, "width": 1.6}
        marks.append(Line(lengths, errors, name=words, hover=hover, **look))

    # Ratios to the optimum at each length, in units of error.
    best = risk.sel(who=BEST).values
    pairs = zip(risk.sel(who=MODEL).values.T, best.T, strict=True)
    value, low, high = _ends([bootstrap(_over, own, other) for own, other in pairs])
    mean = best.mean(0)
    measured = Points(
        lengths, value * mean, low * mean, high * mean, name="measured", colour=INK, hover=hover
    )
    x = Axis("M, labelled examples", log=True, labels=5)
    y = Axis("squared error", log=True, labels=6, least=LOWEST)
    return Panel("Error by prompt length", x, y, [*marks, measured])


def _drawable(path: DataArray) -> bool:
    """Whether there are at least two steps with a loss above the minimum."""
    excess = path.sel(quantity="excess").values
    return len(path["step"].values) > 1 and int((np.isfinite(excess) & (excess > 0)).sum()) > 1


def _path(path: DataArray) -> Panel:
    """Excess, squared gradient and its bound by step.

    The step before the first is drawn at half of it.
    """
    steps = path["step"].values
    marks: list[Mark] = []
    for quantity, (name, colour, dash) in ALONG.items():
        values = path.sel(quantity=quantity).values
        line = Line(
            steps,
            np.where(values > 0, values, np.nan),
            name=name,
            colour=colour,
            dash=dash,
            width=1.6,
            symbol="circle",
            size=4,
            hover="step {x}: {y:.4g}",
        )
        marks.append(line)
    first = 0.5 * float(steps[steps > 0].min())
    x = Axis("step of training", log=True, labels=5, least=first)
    return Panel("During training", x, Axis(log=True, labels=6), marks)


def _algorithms(result: DataArray, facts: Facts) -> Panel:
    """Similarity of predictions, and cosine of input gradients, at M = N and the last depth."""
    # In the regime of training, and after all layers.
    trained = facts.n_points - 1
    m = trained if trained in result.indexes["M"] else coordinates(result, "M")[-1]
    there = result.sel(M=m, depth=coordinates(result, "depth")[-1])
    names = [name for name in result.indexes["algorithm"] if name != SIZE]
    size = there.sel(algorithm=SIZE, statistic="distance").values
    similarity = []
    cosine = []
    for name in names:
        own = there.sel(algorithm=name)
        similarity.append(bootstrap(_nearness, own.sel(statistic="distance").values, size))
        cosine.append(bootstrap(_itself, own.sel(statistic="cosine").values))
    marks = [
        _by_algorithm(names, "similarity of predictions", similarity, BLUE, "circle"),
        _by_algorithm(names, "cosine of input gradients", cosine, ORANGE, "diamond-open"),
    ]
    least = LEAST_SIMILARITY
    x = Axis(f"nearness at M = {m}", least - 0.04, 1.08, least=least)
    labels = ["the truth" if name == TRUTH else _short(name) for name in names]
    return Panel("Which algorithm", x, rows(labels), marks, width=0.8)


def _by_algorithm(
    names: Sequence[str], what: str, found: Sequence[Interval], colour: str, symbol: str
) -> Points:
    texts = []
    for name, one in zip(names, found, strict=True):
        words = f"{number(one.value)} [{number(one.low)}, {number(one.high)}]"
        texts.append(f"{plain(name)}<br>{what}: {words}")
    value, low, high = _ends(found)
    look = {"colour": colour, "symbol": symbol, "size": 9}
    return Points(value, range(len(names)), low, high, name=what, texts=texts, **look)


def _ends(found: Sequence[Interval]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, and lower and upper ends of intervals."""
    values, low, high = np.array([(one.value, one.low, one.high) for one in found]).T
    return values, low, high


def _short(name: str) -> str:
    return name.replace("of gradient descent", "of GD")


def _nearness(distance: np.ndarray, size: np.ndarray) -> np.ndarray:
    return 1 - _over(distance, size)


def _itself(values: np.ndarray) -> np.ndarray:
    return values


def _over(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a / np.maximum(b, np.finfo(float).tiny)
