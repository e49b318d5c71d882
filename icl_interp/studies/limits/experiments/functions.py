"""Figures 1, 4, 6 and 8 of Naim & Asher (2025): single functions, and a query that moves.

The last is in `lens`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from pandas import DataFrame
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.claim import LEARNED_R2
from icl_interp.analyses.criterion import Estimate, Precondition
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.errors import InputError
from icl_interp.experiments import errors, statements
from icl_interp.experiments.base import Experiment, Model, Results
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_least, at_most, note, statement
from icl_interp.resampling import bootstrap
from icl_interp.results import Result, make_table
from icl_interp.studies.limits.experiments import lens, queries
from icl_interp.studies.limits.experiments.printed import PAPER
from icl_interp.studies.limits.experiments.runs import own_r2
from icl_interp.tasks.distributions import Distribution, Normal, Uniform
from icl_interp.theory import limits as theory

CUBIC = "degree_3"
FOLLOWED, MISSED = (
    0.9,
    0.5,
)  # R2 from which a function counts as followed, and below which it does not
FOLLOWS = at_least("R2", FOLLOWED, MISSED)
FAR = queries.far_grid()
SINGLE = "each function with {n_functions} contexts of {n_points} points"
# Of |f(10 x) - f(x)|: below 0 the sum of increments is finite, so f has a limit; at 0 it grows like
# log x.
EXPONENT, LEVELS, GROWS = "growth exponent of the increments", -0.5, 0.0
TINY = 1e-9  # increments below this, over the size of f, count as this: rounding has no exponent


# ---- Figures 1 and 6: continuous functions -------------------------------------------------------


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


def run_figure1(setup: Setup) -> dict[str, Result]:
    """exp, sin and ln(1 + x) on [0, 1], asked of a model trained on polynomials of degree 3."""
    return _follow(setup, SMOOTH)


def run_figure6(setup: Setup) -> dict[str, Result]:
    """|x| on [-1, 1], asked of the same model."""
    return _follow(setup, KINK)


def _follow(setup: Setup, functions: Mapping[str, Shown]) -> dict[str, Result]:
    if not setup.has(CUBIC):
        return {}
    model, n = setup.models[CUBIC], setup.preset.n_functions
    results: dict[str, Result] = {}
    tables = []
    for name, shown in functions.items():
        prompts = queries.contexts(shown.f, shown.inputs, setup.preset.n_points, n, setup.seed)
        truth = shown.f(torch.from_numpy(shown.xs))
        found = {
            CUBIC: queries.sweep(model, prompts, shown.xs),
            "least squares, degree 3": queries.polynomial_fit(prompts, shown.xs, 3),
            "zero": torch.zeros(n, len(shown.xs), dtype=torch.float64),
        }
        note = f"{n} contexts of {setup.preset.n_points - 1} pairs, inputs {_law(shown.inputs)}"
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


def _follow_table(
    function: str, found: Mapping[str, Tensor], truth: Tensor, note: str
) -> DataFrame:
    """Squared error over the interval, with intervals over contexts, and R2.

    R2 is relative to the function's own variance.
    """
    variance = float(truth.var(unbiased=False))
    intervals = {
        name: bootstrap(lambda m: m, (f - truth).square().mean(-1).numpy())
        for name, f in found.items()
    }
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


def states_followed(results: Results) -> tuple[Statement, ...]:
    """Is each function followed, and how far from the best that its contexts allow?"""
    lines = []
    for row in errors.rows_of(results, "errors", predictor=CUBIC):
        (best,) = errors.rows_of(
            results, "errors", function=row["function"], predictor="least squares, degree 3"
        )
        text = (
            f"{row['function']} is followed with R² {row['r2']:.3f} [{row['r2 low']:.3f}, "
            f"{row['r2 high']:.3f}], error {row['error']:.2g}; a cubic fitted to the same contexts "
            f"has {best['error']:.2g}."
        )
        lines.append(statement(text, FOLLOWS, errors.interval_of(row, "r2", "r2 low", "r2 high")))
    return tuple(lines) or (note(f"The model {CUBIC} is missing."),)


def compare_followed(results: Results) -> DataFrame | None:
    """Ours beside what the same contexts allow; the paper's plots come without numbers."""
    keys = ("function", "predictor", "error", "low", "high", "r2")
    rows = [{key: row[key] for key in keys} for row in errors.rows_of(results, "errors")]
    return errors.as_table(rows, "mean squared error over the interval, intervals over contexts")


# ---- Figure 4: boundary values -------------------------------------------------------------------

BOUNDARY: dict[str, tuple[str, Callable[[Tensor], Tensor], Distribution]] = {
    "x²": ("degree_2_gaussian", torch.square, Normal(1)),
    "x³": ("degree_3_gaussian", lambda x: x**3, Normal(1)),
    "12x": ("two_layers_32_heads", lambda x: 12 * x, Uniform(-1, 1)),
    "12x, by a smaller model": ("two_layers_attn_only", lambda x: 12 * x, Uniform(-1, 1)),
}


def run_figure4(setup: Setup) -> dict[str, Result]:
    """The prediction for x², x³ and 12x as the query goes far, and what the weights say of it."""
    results: dict[str, Result] = {}
    rows = []
    for name, (model, f, law) in BOUNDARY.items():
        if not setup.has(model):
            continue
        prompts = queries.contexts(
            f, law, setup.preset.n_points, setup.preset.n_contexts, setup.seed
        )
        found, truth = queries.sweep(setup.models[model], prompts, FAR), f(torch.from_numpy(FAR))
        pairs = setup.preset.n_points - 1
        note = (
            f"{model}; {setup.preset.n_contexts} contexts of {pairs} pairs, inputs {_law(law)}; "
            "query arm"
        )
        results[name] = queries.summary(found, truth, FAR, note)
        own = {"own r2": own_r2(setup, model)}
        rows.append(
            {"function": name, "model": model, **boundary(setup.models[model], found, truth), **own}
        )
    columns = {key: [row[key] for row in rows] for key in rows[0]} if rows else {}
    return (
        {"boundary": make_table(columns, note="query arm; far: |x| = 1e4"), **results}
        if rows
        else {}
    )


def boundary(checkpoint: Checkpoint, found: Tensor, truth: Tensor) -> dict[str, float]:
    """Zone, onset, plateau and what the weights predict, from f `(context, query)` on `FAR`.

    The zone is the largest |x| up to which the mean prediction is within a tenth of the truth's
    size there (and of 1 near 0); the onset the smallest |x| from which on the mean stays within 5 %
    of the half-width (of its own size, where there is no certificate) of its value at 1e4; both
    directions count.
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
    """(c, r, plateau at +inf, plateau at -inf) of a pre-LN model; NaN where no formula applies."""
    model, cfg = checkpoint.model, checkpoint.model.cfg
    nan = float("nan")
    if cfg.normalization_type != "LN" or cfg.norm_position != "pre" or cfg.d_out != 1:
        return nan, nan, nan, nan
    read_out = (model.unembed.W_U[:, 0], model.ln_final.w, model.ln_final.b, model.unembed.b_U[0])
    read_out = tuple(
        part.detach() for part in read_out if part is not None
    )  # "LN" has gain and bias
    c, r = theory.output_certificate(*read_out)
    if cfg.embed_bound is not None:
        return float(c), float(r), nan, nan
    above, below = theory.plateau(model.embed.W_E[0].detach(), *read_out)
    return float(c), float(r), float(above), float(below)


IN_RANGE = Precondition(
    "R2 in the training range",
    (LEARNED_R2, 1.0),
    "In its training range it follows the function with R² {value:.2f} only, so its plateau says "
    "little.",
)
LEARNED = Precondition(
    "R2 on the law trained on",
    (LEARNED_R2, 1.0),
    "On the law that it was trained on the model has R² {value:.2f}.",
)
PLATEAU = at_most(EXPONENT, LEVELS, GROWS, IN_RANGE, LEARNED)


def states_figure4(results: Results) -> tuple[Statement, ...]:
    """Is there a boundary value, of a model that follows the function at all?

    And do the weights alone predict it?
    """
    lines = []
    for row in errors.rows_of(results, "boundary"):
        curve, (_, f, law) = results[row["function"]], BOUNDARY[row["function"]]
        assert isinstance(curve, DataArray)
        found = statements.spanning(EXPONENT, *exponents(curve))
        r2 = Estimate.exactly(IN_RANGE.quantity, in_range_r2(curve, f, law))
        zone = f"up to |x| = {row['zone']:.2g}" if row["zone"] else "not even near 0"
        text = (
            f"for {row['function']} ({row['model']}, one run) the prediction tends to "
            f"{row['level -']:.3g} on the left and to {row['level +']:.3g} on the right, where the "
            f"weights alone predict {row['plateau -']:.3g} and {row['plateau +']:.3g}. Its change "
            f"from 1e3 to 1e4 is 10 to the power {found.low:.2g} to {found.high:.2g} of that from "
            f"1e2 to 1e3. In the training range R² is {r2.value:.2f}; to a tenth it follows the "
            f"function {zone}."
        )
        own = Estimate.exactly(LEARNED.quantity, row["own r2"])
        lines.append(
            Statement(
                text, PLATEAU, {EXPONENT: found, IN_RANGE.quantity: r2, LEARNED.quantity: own}
            )
        )
    return tuple(lines) or (note("None of the models is at hand."),)


def exponents(curve: DataArray) -> list[float]:
    """log10 of |f(1e4) - f(1e3)| / |f(1e3) - f(1e2)|, of the mean over contexts, right and left.

    Where f no longer changes at all, log10 of `TINY`.
    """
    xs, mean = curve["x"].values, curve.sel(statistic="mean").values
    least, found = TINY * max(float(np.abs(mean).max()), TINY), []
    for sign in (1, -1):
        at = [mean[int(np.argmin(np.abs(xs - sign * 10.0**k)))] for k in (2, 3, 4)]
        near, far = np.abs(np.diff(at))
        found.append(float(np.log10(far / max(near, least) if far > least else TINY)))
    return found


def in_range_r2(curve: DataArray, f: Callable[[Tensor], Tensor], law: Distribution) -> float:
    """1 - E(prediction - f(x))^2 / Var f(x) for x of this law.

    It is computed from mean and spread over contexts along x.
    """
    quantile = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    match law:
        case Uniform(low, high):
            x = low + (high - low) * quantile
        case Normal(std, mean):
            x = mean + std * torch.special.ndtri(quantile)
        case _:
            raise InputError(
                "R² in the training range is known for Uniform and Normal inputs, not for "
                f"{_law(law)}"
            )
    from scipy.interpolate import PchipInterpolator  # only here: it loads slowly

    mean, std, truth = (curve.sel(statistic=name).values for name in ("mean", "std", "truth"))
    off, spread = (
        PchipInterpolator(curve["x"].values, values)(x.numpy()) for values in (mean - truth, std)
    )
    return 1 - float((off**2 + spread**2).mean()) / float(f(x).var(unbiased=False))


def compare_figure4(results: Results) -> DataFrame | None:
    """Boundary values measured, and what the weights alone say.

    The paper's plots come without numbers.
    """
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


FIGURE1_EXPERIMENT = Experiment(
    "limits.figure1",
    "Continuous functions: exp, sin and ln(1+x) by a model trained on polynomials of degree 3",
    f"{PAPER}, section 4.2, Figure 1",
    (Model(CUBIC),),
    run_figure1,
    states_followed,
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
    states_figure4,
    compare_figure4,
    sample="each function with {n_contexts} contexts of {n_points} points",
)
FIGURE6_EXPERIMENT = Experiment(
    "limits.figure6",
    "A continuous function with a kink: |x| by a model trained on polynomials of degree 3",
    f"{PAPER}, appendix D, Figure 6",
    (Model(CUBIC),),
    run_figure6,
    states_followed,
    compare_followed,
    sample=SINGLE,
)
FIGURE8_EXPERIMENT = Experiment(
    "limits.figure8",
    "Predictions over layers, by the logit lens",
    f"{PAPER}, appendix F, Figure 8",
    (Model(lens.MODEL),),
    lens.run,
    lens.states,
    lens.compare,
    sample=f"{{n_functions}} functions x at most {lens.CONTEXTS} contexts of {{n_points}} points",
)
