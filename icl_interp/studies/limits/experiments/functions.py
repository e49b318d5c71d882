"""Figures 1, 4, 6 and 8 of Naim & Asher (2025): single functions, and a query that moves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from pandas import DataFrame
from torch import Tensor

from icl_interp.analyses.criterion import INF, Condition
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Model, Results
from icl_interp.experiments.bench import Bench
from icl_interp.experiments.errors import OPEN, decided
from icl_interp.prompts import as_numbers
from icl_interp.provenance import generator
from icl_interp.resampling import bootstrap
from icl_interp.results import Result, make_table
from icl_interp.studies.limits.experiments import queries
from icl_interp.studies.limits.experiments.tables import PAPER
from icl_interp.tasks.distributions import Distribution, Normal, Uniform
from icl_interp.theory import limits as theory

CUBIC = "degree_3"
FOLLOWED, MISSED = 0.9, 0.5  # R2 from which a function counts as followed, and below which it does not
FOLLOWS = Condition("R2", (FOLLOWED, INF), (-INF, MISSED))
FAR = queries.far_grid()
SINGLE = "each function with {n_functions} contexts of {n_points} points"
LENS_CONTEXTS = 8  # contexts of each function for R2 of the lens
LEVEL = 0.01  # change of f over the last decade, in units of the certificate's half-width, that counts as a plateau


# ---- Figures 1 and 6: continuous functions -------------------------------------------------------------------------


@dataclass(frozen=True)
class Shown:
    """A function, where its inputs lie, and where it is asked."""

    f: Callable[[Tensor], Tensor]
    inputs: Distribution
    low: float
    high: float

    @property
    def xs(self) -> np.ndarray:
        """Queries: the interval, evenly."""
        return np.round(np.linspace(self.low, self.high, 61), 10)


SMOOTH = {
    "exp(x)": Shown(torch.exp, Uniform(0, 1), 0, 1),
    "sin(x)": Shown(torch.sin, Uniform(0, 1), 0, 1),
    "ln(1+x)": Shown(torch.log1p, Uniform(0, 1), 0, 1),
}
KINK = {"|x|": Shown(torch.abs, Uniform(-1, 1), -1, 1)}


def run_figure1(bench: Bench) -> dict[str, Result]:
    """exp, sin and ln(1 + x) on [0, 1], asked of a model that was trained on polynomials of degree 3."""
    return _follow(bench, SMOOTH)


def run_figure6(bench: Bench) -> dict[str, Result]:
    """|x| on [-1, 1], asked of the same model."""
    return _follow(bench, KINK)


def _follow(bench: Bench, functions: Mapping[str, Shown]) -> dict[str, Result]:
    if not bench.has(CUBIC):
        return {}
    model, n = bench.models[CUBIC], bench.scale.n_functions
    results: dict[str, Result] = {}
    tables = []
    for name, shown in functions.items():
        prompts = queries.contexts(shown.f, shown.inputs, bench.scale.n_points, n, bench.seed)
        truth = shown.f(torch.from_numpy(shown.xs))
        found = {
            CUBIC: queries.sweep(model, prompts, shown.xs),
            "least squares, degree 3": queries.polynomial_fit(prompts, shown.xs, 3),
            "zero": torch.zeros(n, len(shown.xs), dtype=torch.float64),
        }
        note = f"{n} contexts of {bench.scale.n_points - 1} pairs, inputs {_law(shown.inputs)}"
        results[name] = queries.summary(found[CUBIC], truth, shown.xs, note)
        tables.append(_follow_table(name, found, truth, note))
    return {"errors": errors.joined(tables), **results}


def _law(law: Distribution) -> str:
    """As papers write it.

    >>> _law(Uniform(-1, 1)), _law(Normal(1))
    ('U(-1, 1)', 'N(0, 1)')
    """
    match law:
        case Uniform(low, high):
            return f"U({low:g}, {high:g})"
        case Normal(std, mean):
            return f"N({mean:g}, {std**2:g})"
        case _:
            return str(law)


def _follow_table(function: str, found: Mapping[str, Tensor], truth: Tensor, note: str) -> DataFrame:
    """Squared error over the interval with intervals over contexts, and R2 against the function's own variance."""
    variance = float(truth.var(unbiased=False))
    intervals = {name: bootstrap(lambda m: m, (f - truth).square().mean(-1).numpy()) for name, f in found.items()}
    return make_table(
        {
            "function": [function] * len(intervals),
            "predictor": list(intervals),
            "error": [i.value for i in intervals.values()],
            "low": [i.low for i in intervals.values()],
            "high": [i.high for i in intervals.values()],
            "r2": [1 - i.value / variance for i in intervals.values()],
            "r2 low": [1 - i.high / variance for i in intervals.values()],
            "r2 high": [1 - i.low / variance for i in intervals.values()],
        },
        note=f"mean over the interval; {note}; 95 % bootstrap over contexts",
    )


def says_followed(results: Results) -> tuple[str, ...]:
    """Is each function followed, and how far from the best that its contexts allow?"""
    lines = []
    for row in errors.rows_of(results, "errors", predictor=CUBIC):
        word = decided(FOLLOWS, errors.interval_of(row, "r2", "r2 low", "r2 high"))
        (best,) = errors.rows_of(results, "errors", function=row["function"], predictor="least squares, degree 3")
        lines.append(
            f"{word}{row['function']} is followed with R² {row['r2']:.3f} [{row['r2 low']:.3f}, {row['r2 high']:.3f}] "
            f"(followed: at least {FOLLOWED}), error {row['error']:.2g}; a cubic fitted to the same contexts has "
            f"{best['error']:.2g}."
        )
    return tuple(lines) or (f"The model {CUBIC} is missing.",)


def compare_followed(results: Results) -> DataFrame | None:
    """Ours beside what the same contexts allow; the paper's plots come without numbers."""
    keys = ("function", "predictor", "error", "low", "high", "r2")
    rows = [{key: row[key] for key in keys} for row in errors.rows_of(results, "errors")]
    return errors.as_table(rows, "mean squared error over the interval, intervals over contexts")


# ---- Figure 4: boundary values -------------------------------------------------------------------------------------

BOUNDARY: dict[str, tuple[str, Callable[[Tensor], Tensor], Distribution]] = {
    "x²": ("degree_2_gaussian", torch.square, Normal(1)),
    "x³": ("degree_3_gaussian", lambda x: x**3, Normal(1)),
    "12x": ("two_layers_32_heads", lambda x: 12 * x, Uniform(-1, 1)),
    "12x, by a smaller model": ("two_layers_attn_only", lambda x: 12 * x, Uniform(-1, 1)),
}


def run_figure4(bench: Bench) -> dict[str, Result]:
    """The prediction for x², x³ and 12x as the query goes far, and what the weights say about it."""
    results: dict[str, Result] = {}
    rows = []
    for name, (model, f, law) in BOUNDARY.items():
        if not bench.has(model):
            continue
        prompts = queries.contexts(f, law, bench.scale.n_points, bench.scale.n_contexts, bench.seed)
        found, truth = queries.sweep(bench.models[model], prompts, FAR), f(torch.from_numpy(FAR))
        pairs = bench.scale.n_points - 1
        note = f"{model}; {bench.scale.n_contexts} contexts of {pairs} pairs, inputs {_law(law)}; query arm"
        results[name] = queries.summary(found, truth, FAR, note)
        rows.append({"function": name, "model": model, **boundary(bench.models[model], found, truth)})
    columns = {key: [row[key] for row in rows] for key in rows[0]} if rows else {}
    return {"boundary": make_table(columns, note="query arm; far: |x| = 1e4"), **results} if rows else {}


def boundary(checkpoint: Checkpoint, found: Tensor, truth: Tensor) -> dict[str, float]:
    """Zone, onset, plateau and what the weights predict, from predictions `(context, query)` on the grid `FAR`.

    The zone is the largest |x| up to which the mean prediction is within a tenth of the truth's size there (and of 1
    near 0); the onset the smallest |x| from which on the mean stays within 5 % of the half-width (of its own size,
    where there is no certificate) of its value at 1e4; both directions count.
    """
    mean = found.mean(0).numpy()
    c, r, above, below = certificate(checkpoint)
    size = r if np.isfinite(r) else float(np.abs(mean[[0, -1]]).max())
    exact = np.abs(mean - truth.numpy()) <= 0.1 * np.maximum(1.0, np.abs(truth.numpy()))
    end = np.where(FAR < 0, mean[0], mean[-1])
    level = np.abs(mean - end) <= 0.05 * size
    decade = [int(np.argmin(np.abs(FAR - x))) for x in (-1e3, 1e3)]
    return {
        "zone": _reach(exact),
        "largest |f|": float(np.abs(mean).max()),
        "onset": _onset(level),
        "level +": float(mean[-1]),
        "level -": float(mean[0]),
        "std over contexts +": float(found[:, -1].std()),
        "std over contexts -": float(found[:, 0].std()),
        "change over the last decade": float(np.abs(mean[[0, -1]] - mean[decade]).max() / size),
        "c": c,
        "r": r,
        "plateau +": above,
        "plateau -": below,
    }


def _reach(fits: np.ndarray) -> float:
    """The largest |x| up to which it holds without a break, in both directions."""
    sizes = np.sort(np.unique(np.abs(FAR)))
    held = [size for size in sizes if not fits[np.abs(FAR) == size].all()]
    return float(sizes[sizes < (held[0] if held else np.inf)].max(initial=0.0))


def _onset(level: np.ndarray) -> float:
    """The smallest |x| from which on it holds, in both directions."""
    sizes = np.sort(np.unique(np.abs(FAR)))
    broken = [size for size in sizes if not level[np.abs(FAR) == size].all()]
    return float(sizes[sizes > (broken[-1] if broken else -1)].min(initial=np.inf))


def certificate(checkpoint: Checkpoint) -> tuple[float, float, float, float]:
    """(c, r, plateau at +inf, plateau at -inf) of a pre-LN model; NaN where a formula does not apply."""
    model, cfg = checkpoint.model, checkpoint.model.cfg
    nan = float("nan")
    if cfg.normalization_type != "LN" or cfg.norm_position != "pre" or cfg.d_out != 1:
        return nan, nan, nan, nan
    read_out = (model.unembed.W_U[:, 0], model.ln_final.w, model.ln_final.b, model.unembed.b_U[0])
    read_out = tuple(part.detach() for part in read_out if part is not None)  # "LN" has gain and bias
    c, r = theory.output_certificate(*read_out)
    if cfg.embed_bound is not None:
        return float(c), float(r), nan, nan
    above, below = theory.plateau(model.embed.W_E[0].detach(), *read_out)
    return float(c), float(r), float(above), float(below)


def says_figure4(results: Results) -> tuple[str, ...]:
    """Is there a boundary value, and do the weights alone predict it?"""
    lines = []
    for row in errors.rows_of(results, "boundary"):
        change = row["change over the last decade"]
        word = decided(PLATEAU, change)
        zone = f"up to |x| = {row['zone']:.2g}" if row["zone"] else "not even near 0 (to a tenth)"
        lines.append(
            f"{word}for {row['function']} ({row['model']}) the prediction tends to {row['level -']:.3g} on the left "
            f"and to {row['level +']:.3g} on the right, where the weights alone predict {row['plateau -']:.3g} and "
            f"{row['plateau +']:.3g}. It follows the function {zone} and is level from {row['onset']:.3g} on (change "
            f"over the last decade {change:.2g} of the half-width; a plateau: at most {LEVEL:g})."
        )
    return tuple(lines) or ("None of the models is at hand.",)


def compare_figure4(results: Results) -> DataFrame | None:
    """Boundary values measured, and what the weights alone say; the paper's plots come without numbers."""
    rows = [
        {
            "function": row["function"],
            "model": row["model"],
            "follows up to |x|": row["zone"],
            "largest |f|": row["largest |f|"],
            "level from |x|": row["onset"],
            "left": row["level -"],
            "left, by the weights": row["plateau -"],
            "right": row["level +"],
            "right, by the weights": row["plateau +"],
            "certificate, from": row["c"] - row["r"],
            "to": row["c"] + row["r"],
            "spread over contexts, right": row["std over contexts +"],
        }
        for row in errors.rows_of(results, "boundary")
    ]
    return errors.as_table(rows, "mean over contexts; left and right: at x = -1e4 and 1e4")


# ---- Figure 8: predictions over layers -----------------------------------------------------------------------------


LINE = ("f(x) = x", lambda x: x)
PLATEAU = Condition("change over the last decade", (-INF, LEVEL), (0.05, INF))
FORMED, UNFORMED = 0.9, 0.5  # R2 of the lens that counts as a formed prediction, and as none
FORMED_LAST = Condition("R2 before the last block", (-INF, UNFORMED), (FORMED, INF))


def run_figure8(bench: Bench) -> dict[str, Result]:
    """The logit lens after each block: over x for one function, and its R2 over many."""
    if not bench.has("affine"):
        return {}
    model, xs = bench.models["affine"], np.round(np.linspace(-1, 1, 41), 10)
    one = queries.contexts(LINE[1], Uniform(-1, 1), bench.scale.n_points, bench.scale.n_contexts, bench.seed)
    read = queries.lens(model, one, xs)
    layers = ("read-in", *(f"block {i}" for i in range(len(read) - 1)))
    note = f"{LINE[0]}; logit lens at the query; affine"
    curve = queries.summary(read, LINE[1](torch.from_numpy(xs)), xs, note, layer=layers)
    return {"lens": curve, "r2": _lens_r2(model, layers, bench)}


def _lens_r2(model: Checkpoint, layers: tuple[str, ...], bench: Bench) -> DataFrame:
    """R2 of the lens by layer, and what is left when its scale and shift are set right (squared correlation)."""
    n_functions, n_contexts = bench.scale.n_functions, min(LENS_CONTEXTS, bench.scale.n_contexts)
    prompts = model.task.sample(
        n_functions, generator(bench.seed, "experiments/lens"), n_contexts=n_contexts, dtype=torch.float64
    )
    read, truth = queries.lens(model, prompts)[..., 0], as_numbers(prompts.ys)[:, -1]
    columns: dict[str, list] = {"layer": list(layers), "r2": [], "low": [], "high": [], "correlation squared": []}
    for values in read:
        per_function = torch.stack(
            [(values - truth).square(), truth, truth.square(), values, values * truth, values**2], -1
        )
        means = per_function.view(n_functions, n_contexts, -1).mean(1).numpy()
        r2 = bootstrap(lambda m: 1 - m[:, 0] / (m[:, 2] - m[:, 1] ** 2), means)
        m = means.mean(0)
        with np.errstate(invalid="ignore", divide="ignore"):
            square = (m[4] - m[1] * m[3]) ** 2 / ((m[2] - m[1] ** 2) * (m[5] - m[3] ** 2))
        for key, value in (
            ("r2", r2.value),
            ("low", r2.low),
            ("high", r2.high),
            ("correlation squared", float(square)),
        ):
            columns[key].append(value)
    note = f"logit lens at the query, {n_functions} functions x {n_contexts} contexts in distribution; 95 % bootstrap"
    return make_table(columns, note=f"{note} over functions")


def says_figure8(results: Results) -> tuple[str, ...]:
    """Is the prediction there before the last block?"""
    rows = errors.rows_of(results, "r2")
    if not rows:
        return ("The model affine is missing.",)
    before, after = rows[-2], rows[-1]
    if after["low"] < FORMED:
        return (f"{OPEN}the model itself has R² {after['r2']:.3f} only: there is no prediction to locate.",)
    word = decided(FORMED_LAST, errors.interval_of(before, "r2"))
    return (
        f"{word}the lens reads R² {before['r2']:.3f} [{before['low']:.3f}, {before['high']:.3f}] before the last block "
        f"and {after['r2']:.3f} after it (formed in the last: below {UNFORMED} before it). There are {len(rows) - 1} "
        "blocks here and 12 in the paper.",
        f"With the scale and shift set right it is {before['correlation squared']:.3f} before the last block: the lens "
        "reads one direction, so what stands in others before it is not seen here.",
    )


def compare_figure8(results: Results) -> DataFrame | None:
    """R2 by layer; the paper's plots come without numbers."""
    rows = [
        {
            "after": row["layer"],
            "R2 of the lens": row["r2"],
            "low": row["low"],
            "high": row["high"],
            "scale and shift set right": row["correlation squared"],
        }
        for row in errors.rows_of(results, "r2")
    ]
    return errors.as_table(rows, "over many functions in distribution; 95 % bootstrap over functions")


FIGURE1_EXPERIMENT = Experiment(
    "limits.figure1",
    "Continuous functions: exp, sin and ln(1+x) by a model trained on polynomials of degree 3",
    f"{PAPER}, section 4.2, Figure 1",
    (Model(CUBIC),),
    run_figure1,
    says_followed,
    compare_followed,
    sample=SINGLE,
)
FIGURE4_EXPERIMENT = Experiment(
    "limits.figure4",
    "Boundary values: x², x³ and 12x as the query goes far",
    f"{PAPER}, section 5, Figure 4",
    (
        Model("degree_2_gaussian"),
        Model("degree_3_gaussian"),
        Model("two_layers_32_heads", scales=("paper",)),
        Model("two_layers_attn_only", scales=("smoke", "small")),
    ),
    run_figure4,
    says_figure4,
    compare_figure4,
    sample="each function with {n_contexts} contexts of {n_points} points",
)
FIGURE6_EXPERIMENT = Experiment(
    "limits.figure6",
    "A continuous function with a kink: |x| by a model trained on polynomials of degree 3",
    f"{PAPER}, appendix D, Figure 6",
    (Model(CUBIC),),
    run_figure6,
    says_followed,
    compare_followed,
    sample=SINGLE,
)
FIGURE8_EXPERIMENT = Experiment(
    "limits.figure8",
    "Predictions over layers, by the logit lens",
    f"{PAPER}, appendix F, Figure 8",
    (Model("affine"),),
    run_figure8,
    says_figure8,
    compare_figure8,
    sample=f"{{n_functions}} functions x at most {LENS_CONTEXTS} contexts of {{n_points}} points",
)
