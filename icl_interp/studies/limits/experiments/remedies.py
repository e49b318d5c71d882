"""Beyond Naim & Asher (2025): what its closing advice is worth.

Score functions, norms, bounded read-ins side by side.

The paper's section 6 suggests to constrain embeddings and to revise the scoring function. Eight
models that differ in that one respect are trained alike and measured alike, paired by function.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pandas import DataFrame
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Model, Results
from icl_interp.experiments.presets import polynomials
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, note
from icl_interp.models import scores
from icl_interp.probes.attention import resampled_scores
from icl_interp.probes.record import Activations
from icl_interp.prompts import as_numbers
from icl_interp.provenance import generator
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import Result, make_array, make_curve, make_table, table_of_rows
from icl_interp.studies.limits.experiments import settings
from icl_interp.studies.limits.experiments.printed import PAPER
from icl_interp.studies.limits.measurements.dispersion import by_context

BASELINE = "remedy_baseline"
REMEDIES = {
    "remedy_scaled_softmax": "softmax of scores times log n",
    "remedy_entmax": "entmax 1.5",
    "remedy_sigmoid": "sigmoid",
    "remedy_relu": "ReLU / n",
    "remedy_rms": "RMSNorm",
    "remedy_tanh": "tanh instead of a norm",
    "remedy_bounded": "bounded read-in",
}
N_CONTEXTS_QUERY = 16  # contexts of each function for the query arm and for dispersion
MARGIN = 1.1  # a change counts from this factor on, with the whole interval
SHIFTS = (1.0, 3.0, 10.0)
FAR = (10.0, 1e4)  # |x| of the query
GROWTH = (1e3, 1e5)
BEYOND = (2, 5, 10, 40)  # resampled lengths, in trained lengths
AT = 10  # of these, where shares are compared


@dataclass(frozen=True)
class Quantity:
    """A number that remedies are compared by: a function of means over functions of ingredients.

    Attributes:
        better: -1 where lower is better, 1 where higher is, 0 where it only describes.
    """

    name: str
    ingredients: tuple[str, ...]
    of: Callable[..., np.ndarray]
    better: int


def _ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a / b


def _root(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.sqrt(a / b)


def _exponent(near: np.ndarray, far: np.ndarray) -> np.ndarray:
    return 0.5 * np.log10(far / near) / np.log10(GROWTH[1] / GROWTH[0])


QUANTITIES = (
    Quantity("error in distribution", ("error, functions x 1",), lambda m: m, -1),
    Quantity("error, functions x 3", ("error, functions x 3",), lambda m: m, -1),
    Quantity("error, functions x 10", ("error, functions x 10",), lambda m: m, -1),
    Quantity("error, inputs x 3", ("error, inputs x 3",), lambda m: m, -1),
    Quantity("far error / zero's, query at 10", ("error at 10", "zero at 10"), _ratio, -1),
    Quantity("far error / zero's, query at 1e4", ("error at 10000", "zero at 10000"), _ratio, -1),
    Quantity(
        "growth exponent, query 1e3 to 1e5", ("square at 1000", "square at 100000"), _exponent, 0
    ),
    Quantity("spread over contexts, 1e4 / near", ("variance at 10000", "variance near"), _root, 1),
    Quantity(
        "largest share of a head's weight, trained length", ("share, trained",), lambda m: m, 1
    ),
    Quantity(
        "largest share of a head's weight, 10 trained lengths", ("share, 10 x",), lambda m: m, 1
    ),
)


def run(setup: Setup) -> dict[str, Result]:
    """Every quantity of every model, what each remedy changes from the baseline, and dispersion.

    Dispersion is measured along n.
    """
    names = setup.among([BASELINE, *REMEDIES])
    if not names:
        return {}
    shifted = {
        arm: setup.errors(names, polynomials(setup.preset, 1), SHIFTS, arm)
        for arm in ("functions", "inputs")
    }
    parts, curves = {}, []
    for name in names:
        kept = setup.keep(
            "remedies: far and near, units", [name], lambda name=name: far(setup, name)
        )
        parts[name] = {row: kept.sel(ingredient=row).values for row in kept.indexes["ingredient"]}
        for arm, matrix in shifted.items():
            parts[name] |= {
                f"error, {arm} x {s:g}": matrix.sel(predictor=name, sigma=s).values for s in SHIFTS
            }
        curve = setup.keep(
            "remedies: dispersion, units", [name], lambda name=name: dispersion(setup, name)
        )
        assert isinstance(curve, DataArray)
        parts[name] |= _shares(curve)
        curves.append(curve.values.mean(-1))
    axes = {"model": tuple(names), "statistic": curve.indexes["statistic"], "n": curve.indexes["n"]}
    along = make_curve(np.stack(curves), axes, note=curve.note)
    results: dict[str, Result] = {"quantities": _quantities(parts), "dispersion": along}
    return results | ({"changes": _changes(parts)} if BASELINE in parts else {})


def _values(quantity: Quantity, parts: dict[str, np.ndarray]) -> Interval:
    return bootstrap(quantity.of, *(parts[name] for name in quantity.ingredients))


def _quantities(parts: dict[str, dict[str, np.ndarray]]) -> DataFrame:
    rows = []
    for quantity in QUANTITIES:
        for name, mine in parts.items():
            i = _values(quantity, mine)
            rows.append(
                {
                    "quantity": quantity.name,
                    "model": name,
                    "value": i.value,
                    "low": i.low,
                    "high": i.high,
                }
            )
    return table_of_rows(rows, note="95 % bootstrap over functions or pairs of them")


def _changes(parts: dict[str, dict[str, np.ndarray]]) -> DataFrame:
    """log10 of each remedy's quantity over the baseline's, paired by function."""
    rows = []
    for quantity in QUANTITIES:
        k = len(quantity.ingredients)
        if not quantity.better:
            continue
        for name in (n for n in parts if n != BASELINE):
            both = [parts[who][part] for who in (name, BASELINE) for part in quantity.ingredients]
            i = bootstrap(lambda *m, q=quantity, k=k: np.log10(q.of(*m[:k]) / q.of(*m[k:])), *both)
            row = {
                "quantity": quantity.name,
                "better": quantity.better,
                "model": name,
                "log10 ratio": i.value,
            }
            rows.append({**row, "low": i.low, "high": i.high})
    note = (
        "log10 of the remedy's value / the baseline's; 95 % bootstrap over functions or pairs of "
        "them, paired"
    )
    names = rows[0] if rows else ("quantity", "better", "model", "log10 ratio", "low", "high")
    return make_table({key: [row[key] for row in rows] for key in names}, note=note)


# ---- measurements --------------------------------------------------------------------------------


def _lab(setup: Setup, name: str) -> Lab:
    model = setup.models[name]
    n_contexts = min(N_CONTEXTS_QUERY, setup.preset.n_contexts)
    return Lab(
        model.model,
        model.task,
        model.encoding,
        n_units=max(2, setup.preset.n_functions // 2),  # pairs of functions
        n_contexts=n_contexts,
        seed=setup.seed,
    )


def far(setup: Setup, name: str) -> DataArray:
    """Ingredients of the query arm, of each unit: squared error, size of f and of the truth.

    Both directions count.
    """
    lab = _lab(setup, name)
    rows: dict[str, np.ndarray] = {}
    found = dict(
        zip((*FAR, *GROWTH), lab.run([lab.ask([-x, x]) for x in (*FAR, *GROWTH)]), strict=True)
    )
    for x in FAR:
        f, truth = as_numbers(found[x]), as_numbers(lab.truth([-x, x]))
        rows[f"error at {x:g}"] = lab.by_unit((f - truth).square()).mean(-1)
        rows[f"zero at {x:g}"] = lab.by_unit(truth.square()).mean(-1)
        rows[f"variance at {x:g}"] = _variance(lab, f)
    for x in GROWTH:
        rows[f"square at {x:g}"] = lab.by_unit(as_numbers(found[x]).square()).mean(-1)
    rows["variance near"] = _variance(lab, as_numbers(lab.sweep(lab.inner)))
    axes = {"ingredient": tuple(rows), "unit": tuple(range(lab.n_units))}
    return make_array(
        np.stack(list(rows.values())),
        axes,
        note=f"query arm, {lab.n_contexts} contexts a function, float64",
    )


def _variance(lab: Lab, f: Tensor) -> np.ndarray:
    """Variance of f over the contexts of all functions, as each unit's part, around their mean."""
    return lab.by_unit((f - f.mean(0)).square()).mean(-1)


STATISTICS = ("largest share", "effective share")


def dispersion(setup: Setup, name: str) -> DataArray:
    """How attention at an in-distribution query spreads as keys are added.

    It is the mean over heads, for each unit. The largest share is max |w| / sum |w|; the effective
    share (sum |w|)^2 / (n sum w^2), which is 1 for a uniform pattern. Both are about any score
    function, whether its weights add up to 1 or not; a head that weighs every key 0 is left out.
    Direct up to the trained length; beyond it the query's scores are resampled from those of its
    function's keys, which is exact in the first layer and a counterfactual deeper.
    """
    lab = _lab(setup, name)
    cfg, trained = lab.model.cfg, lab.encoding.n_tokens(lab.task.n_points)
    points = sorted(
        {max(3, lab.task.n_points // 4), max(4, lab.task.n_points // 2), lab.task.n_points}
    )
    lengths = [lab.encoding.n_tokens(k) for k in points]
    seen = [
        Activations([f"blocks.{i}.attn.hook_attn_scores" for i in range(cfg.n_layers)])
        for _ in points
    ]
    shown = zip(points, seen, strict=True)
    lab.run([lab.ask(lab.inner, prompts=lab.few, n_points=k, probes=[probe]) for k, probe in shown])
    pools = [by_context(lab, torch.cat(list(probe.recorded.values()), 1)) for probe in seen]
    values = [_spread(scores.apply(cfg.score_fn, pool, cfg.score_norm)) for pool in pools]
    for factor in BEYOND:
        n, kinds = factor * trained, lab.encoding.kinds(lab.task.n_points)
        more, _ = resampled_scores(
            pools[-1], kinds, n, generator(lab.seed, "remedies/resampled", n)
        )
        values.append(_spread(scores.apply(cfg.score_fn, more[..., None, :], cfg.score_norm)))
        lengths.append(factor * trained)
    axes = {"statistic": STATISTICS, "n": tuple(lengths), "unit": tuple(range(lab.n_units))}
    by_function = torch.stack(
        [v.nanmean((-3, -2, -1)) for v in values], 1
    )  # those of a unit lie together
    stacked = by_function.unflatten(-1, (lab.n_units, -1)).mean(-1).numpy()
    return make_curve(
        stacked,
        axes,
        note=f"direct up to n = {trained} tokens, resampled scores beyond; mean over heads",
    )


def _spread(pattern: Tensor) -> Tensor:
    """(statistic, function, head, query, context); NaN where no key has any weight."""
    size = pattern.abs()
    total = size.sum(-1)
    none = total == 0
    share = size.amax(-1) / total
    effective = total.square() / (pattern.shape[-1] * size.square().sum(-1))
    return torch.stack([share, effective]).masked_fill(none, torch.nan)


def _shares(curve: DataArray) -> dict[str, np.ndarray]:
    n = curve.indexes["n"]
    trained = n[-len(BEYOND) - 1]
    at = {"trained": trained, f"{AT} x": AT * trained}
    return {
        f"share, {key}": curve.sel(statistic="largest share", n=length).values
        for key, length in at.items()
    }


# ---- what came out -------------------------------------------------------------------------------


def compare(results: Results) -> DataFrame | None:
    """A row for each quantity: the baseline's value, and a column for each remedy.

    A remedy's value is in units of the baseline's.
    """
    changes = errors.rows_of(results, "changes")
    rows: dict[str, dict[str, Any]] = {}
    for row in errors.rows_of(results, "quantities", model=BASELINE):
        rows[row["quantity"]] = {"quantity": row["quantity"], "baseline": row["value"]}
    for row in changes:
        low, high = (10 ** row[key] for key in ("low", "high"))
        value, low, high = (
            errors.plainly(number, 3) for number in (10 ** row["log10 ratio"], low, high)
        )
        text = f"×{value} [{low}, {high}]"
        rows[row["quantity"]][REMEDIES[row["model"]]] = text + ("", " ✓", " ✗")[_sign(row)]
    kept = [row for row in rows.values() if len(row) > 2]
    note = (
        "each remedy's value / the baseline's, paired by function, 95 % intervals; ✓ and ✗: better "
        "or worse by 1.1"
    )
    return errors.as_table(kept, note)


def states(results: Results) -> tuple[Statement, ...]:
    """Each remedy in a note: where it helps and what it costs, by interval and a factor of 1.1.

    The whole interval must lie beyond that factor.
    """
    rows = errors.rows_of(results, "changes")
    if not rows:
        return (note("The baseline or all remedies are missing, so nothing is compared."),)
    lines, free = [], []
    for name in dict.fromkeys(row["model"] for row in rows):
        helps, costs = [], []
        for row in (row for row in rows if row["model"] == name):
            text = f"{row['quantity']} (×{errors.plainly(10 ** row['log10 ratio'])})"
            if _sign(row) > 0:
                helps.append(text)
            elif _sign(row) < 0:
                costs.append(text)
        lines.append(f"{REMEDIES[name]} helps: {_listed(helps)}. It costs: {_listed(costs)}.")
        if helps and not costs:
            free.append(REMEDIES[name])
    lines.append(
        f"These improve something and worsen nothing that is measured here: {_listed(free)}."
    )
    far_rows = errors.rows_of(results, "quantities", quantity="far error / zero's, query at 1e4")
    solved = [row["model"] for row in far_rows if row["high"] < 0.5]
    lines.append(
        (
            "Far out (query at 1e4) the error is below half of the zero predictor's for "
            f"{_listed(solved)}: "
        )
        + ("a remedy for the failure is among them." if solved else "no remedy extrapolates.")
    )
    lines.append(
        "There is one training seed of each kind. Intervals are over functions only, so a factor "
        "near 1 may be due to the seed."
    )
    return tuple(map(note, lines))


def _sign(row: Mapping[str, Any]) -> int:
    """1 where a remedy helps, -1 where it costs, by the whole interval and the margin; else 0."""
    low, high = sorted((row["better"] * row["low"], row["better"] * row["high"]))
    return 1 if low > np.log10(MARGIN) else -1 if high < -np.log10(MARGIN) else 0


def _listed(parts: list[str]) -> str:
    return "; ".join(parts) if parts else "none"


REMEDIES_EXPERIMENT = Experiment(
    "limits.remedies",
    "Remedies side by side: score functions, norms, and a bounded read-in",
    f"beyond {PAPER}: its section 6 suggests constrained embeddings and other score functions",
    tuple(Model(name) for name in (BASELINE, *REMEDIES)),
    run,
    states,
    compare,
    sample="{n_functions} functions; shifts: {n_contexts} contexts of each, far and long: at most "
    f"{N_CONTEXTS_QUERY}",
    settings=settings.SETTINGS["remedies"],
)
