"""Figure 4 of Naim & Asher (2025): boundary values, as the query goes far."""

from collections.abc import Callable
from typing import Any

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
from icl_interp.experiments.statements import Statement, at_most, note
from icl_interp.results import Result, table_of_rows
from icl_interp.studies.limits.experiments import queries, settings
from icl_interp.studies.limits.experiments.figure1 import law_words
from icl_interp.studies.limits.experiments.printed import PAPER
from icl_interp.studies.limits.experiments.runs import own_r2
from icl_interp.tasks.distributions import Distribution, Normal, Uniform
from icl_interp.theory import limits as theory

FAR = queries.far_grid()

# Of |f(10 x) - f(x)|: below 0 the sum of increments is finite, so f has a limit; at 0 it grows like
# log x.
EXPONENT = "growth exponent of the increments"

LEVELS = -0.5

GROWS = 0.0

# Increments below this, over the size of f, count as this: rounding has no exponent.
TINY = 1e-9
Function = Callable[[Tensor], Tensor]

BOUNDARY: dict[str, tuple[str, Function, Distribution]] = {
    "x²": ("degree_2_gaussian", torch.square, Normal(1)),
    "x³": ("degree_3_gaussian", lambda x: x**3, Normal(1)),
    "12x": ("two_layers_32_heads", lambda x: 12 * x, Uniform(-1, 1)),
    "12x, by a smaller model": ("two_layers_attn_only", lambda x: 12 * x, Uniform(-1, 1)),
}


def run_figure4(setup: Setup) -> dict[str, Result]:
    """The prediction for x², x³ and 12x as the query goes far, and what the weights say of it."""
    preset = setup.preset
    curves: dict[str, Result] = {}
    rows = []
    for name, (model, f, law) in BOUNDARY.items():
        if not setup.has(model):
            continue
        checkpoint = setup.models[model]
        prompts = queries.contexts(f, law, preset.n_points, preset.n_contexts, setup.seed)
        found = queries.sweep(checkpoint, prompts, FAR)
        truth = f(torch.from_numpy(FAR))
        what = (
            f"{model}; {preset.n_contexts} contexts of {preset.n_points - 1} pairs, inputs "
            f"{law_words(law)}; query arm"
        )
        curves[name] = queries.summary(found, truth, FAR, what)
        # What is read off the curve, and from the weights alone.
        row: dict[str, Any] = {"function": name, "model": model}
        row |= boundary(checkpoint, found, truth)
        row["own r2"] = own_r2(setup, model)
        rows.append(row)
    if not rows:
        return {}
    table = table_of_rows(rows, note="query arm; far: |x| = 1e4")
    return {"boundary": table, **curves}


def boundary(checkpoint: Checkpoint, found: Tensor, truth: Tensor) -> dict[str, float]:
    """Zone, onset, plateau and what the weights predict, from f `(context, query)` on `FAR`.

    The zone is the largest |x| up to which the mean prediction is within a tenth of the truth's
    size there (and of 1 near 0); the onset the smallest |x| from which on the mean stays within 5 %
    of the half-width (of its own size, where there is no certificate) of its value at 1e4; both
    directions count.
    """
    c, r, above, below = certificate(checkpoint)
    mean = found.mean(0).numpy()
    right = found[:, -1]
    left = found[:, 0]
    ends = mean[[0, -1]]
    half_width = r if np.isfinite(r) else float(np.abs(ends).max())
    # Where the mean is close to the truth, and where it is close to its value at the end.
    true = truth.numpy()
    allowed = 0.1 * np.maximum(1.0, np.abs(true))
    exact = np.abs(mean - true) <= allowed
    end = np.where(FAR < 0, mean[0], mean[-1])
    level = np.abs(mean - end) <= 0.05 * half_width
    # One decade before the ends.
    before = []
    for x in (-1e3, 1e3):
        distances = np.abs(FAR - x)
        before.append(int(np.argmin(distances)))
    change = np.abs(ends - mean[before]).max()
    return {
        "zone": _reach(exact),
        "largest |f|": float(np.abs(mean).max()),
        "onset": _onset(level),
        "level +": float(mean[-1]),
        "level -": float(mean[0]),
        "std over contexts +": float(right.std()),
        "std over contexts -": float(left.std()),
        "change over the last decade": float(change / half_width),
        "c": c,
        "r": r,
        "plateau +": above,
        "plateau -": below,
    }


def _reach(fits: np.ndarray) -> float:
    """The largest |x| up to which it holds without a break, in both directions."""
    reached = 0.0
    for size, fits_there in _by_size(fits):
        if not fits_there:
            break
        reached = size
    return reached


def _onset(level: np.ndarray) -> float:
    """The smallest |x| from which on it holds, in both directions."""
    onset = np.inf
    for size, level_there in reversed(_by_size(level)):
        if not level_there:
            break
        onset = size
    return float(onset)


def _by_size(holds: np.ndarray) -> list[tuple[float, bool]]:
    """Each |x| of `FAR`, ascending, and whether it holds in both directions there."""
    sizes = np.abs(FAR)
    found = []
    for size in np.unique(sizes):
        both = holds[sizes == size]
        found.append((float(size), bool(both.all())))
    return found


def certificate(checkpoint: Checkpoint) -> tuple[float, float, float, float]:
    """(c, r, plateau at +inf, plateau at -inf) of a pre-LN model; NaN where no formula applies."""
    model = checkpoint.model
    cfg = model.cfg
    nan = float("nan")
    pre = cfg.norm_position == "pre" and cfg.has_final_norm
    if cfg.normalization_type != "LN" or not pre or cfg.d_out != 1:
        return nan, nan, nan, nan
    # "LN" has gain and bias, so none of these parts is missing.
    parts = (model.unembed.W_U[:, 0], model.ln_final.w, model.ln_final.b, model.unembed.b_U[0])
    read_out = tuple(part.detach() for part in parts if part is not None)
    c, r = theory.output_certificate(*read_out)
    if cfg.embed_bound is not None:
        return float(c), float(r), nan, nan
    read_in = model.embed.W_E[0].detach()
    above, below = theory.plateau(read_in, *read_out)
    return float(c), float(r), float(above), float(below)


IN_RANGE = Precondition(
    "R2 in the training range",
    (LEARNED_R2, 1.0),
    "In its training range it follows the function only with R² {value:.2f}, so its plateau says "
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
        name = row["function"]
        _, f, law = BOUNDARY[name]
        curve = results[name]
        assert isinstance(curve, DataArray)
        exponent = statements.spanning(EXPONENT, *exponents(curve))
        r2 = Estimate.exactly(IN_RANGE.quantity, in_range_r2(curve, f, law))
        own = Estimate.exactly(LEARNED.quantity, row["own r2"])
        zone = f"up to |x| = {row['zone']:.2g}" if row["zone"] else "not even near 0"
        text = (
            f"for {name} ({row['model']}, one run) the prediction tends to "
            f"{row['level -']:.3g} on the left and to {row['level +']:.3g} on the right, where the "
            f"weights alone predict {row['plateau -']:.3g} and {row['plateau +']:.3g}. Its change "
            f"from 1e3 to 1e4 is 10 to the power {exponent.low:.2g} to {exponent.high:.2g} of that "
            f"from 1e2 to 1e3. In the training range R² is {r2.value:.2f}; to a tenth it follows "
            f"the function {zone}."
        )
        evidence = {EXPONENT: exponent, IN_RANGE.quantity: r2, LEARNED.quantity: own}
        lines.append(Statement(text, PLATEAU, evidence))
    return tuple(lines) or (note("None of the models is at hand."),)


def exponents(curve: DataArray) -> list[float]:
    """log10 of |f(1e4) - f(1e3)| / |f(1e3) - f(1e2)|, of the mean over contexts, right and left.

    Where f no longer changes at all, log10 of `TINY`.
    """
    xs = curve["x"].values
    mean = curve.sel(statistic="mean").values
    size = float(np.abs(mean).max())
    least = TINY * max(size, TINY)
    found = []
    for sign in (1, -1):
        values = []
        for power in (2, 3, 4):
            distances = np.abs(xs - sign * 10.0**power)
            values.append(mean[int(np.argmin(distances))])
        near, far = np.abs(np.diff(values))
        ratio = far / max(near, least) if far > least else TINY
        found.append(float(np.log10(ratio)))
    return found


def in_range_r2(curve: DataArray, f: Function, law: Distribution) -> float:
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
                f"{law_words(law)}"
            )
    from scipy.interpolate import PchipInterpolator  # only here: it loads slowly

    xs = curve["x"].values
    mean = curve.sel(statistic="mean").values
    truth = curve.sel(statistic="truth").values
    std = curve.sel(statistic="std").values
    # The grid is coarse, so both are interpolated to the quantiles of the law.
    at = x.numpy()
    off = PchipInterpolator(xs, mean - truth)(at)
    spread = PchipInterpolator(xs, std)(at)
    error = float((off**2 + spread**2).mean())
    variance = float(f(x).var(unbiased=False))
    return 1 - error / variance


def compare_figure4(results: Results) -> DataFrame | None:
    """Boundary values measured, and what the weights alone say.

    The paper's plots come without numbers.
    """
    rows = []
    for row in errors.rows_of(results, "boundary"):
        c = row["c"]
        r = row["r"]
        shown = {
            "function": row["function"],
            "model": row["model"],
            "follows up to |x|": row["zone"],
            "largest |f|": row["largest |f|"],
            "level from |x|": row["onset"],
            "left": row["level -"],
            "left, by the weights": row["plateau -"],
            "right": row["level +"],
            "right, by the weights": row["plateau +"],
            "certificate, from": c - r,
            "to": c + r,
            "spread over contexts, right": row["std over contexts +"],
        }
        rows.append(shown)
    return errors.as_table(rows, "mean over contexts; left and right: at x = -1e4 and 1e4")


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
    settings=settings.SETTINGS["figure4"],
)
