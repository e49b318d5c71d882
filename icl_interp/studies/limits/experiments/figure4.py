"""Figure 4 of Naim & Asher (2025): boundary values, as the query goes far."""

from collections.abc import Callable

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
from icl_interp.results import Result, make_table
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

TINY = 1e-9  # increments below this, over the size of f, count as this: rounding has no exponent

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
            f"{model}; {setup.preset.n_contexts} contexts of {pairs} pairs, inputs "
            f"{law_words(law)}; query arm"
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
    pre = cfg.norm_position == "pre" and cfg.has_final_norm
    if cfg.normalization_type != "LN" or not pre or cfg.d_out != 1:
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
                f"{law_words(law)}"
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
