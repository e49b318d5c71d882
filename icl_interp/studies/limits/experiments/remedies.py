"""Beyond Naim & Asher (2025): what its closing advice is worth.

The paper's section 6 suggests to constrain embeddings and to revise the scoring function. So score
functions, norms and bounded read-ins stand side by side: eight models that differ in that one
respect are trained alike and measured alike, paired by function.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
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
    """Log-log slope of the root of mean squares over `GROWTH`."""
    decades = np.log10(GROWTH[1] / GROWTH[0])
    return 0.5 * np.log10(far / near) / decades


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
    task = polynomials(setup.preset, 1)
    shifted = {arm: setup.errors(names, task, SHIFTS, arm) for arm in ("functions", "inputs")}
    parts = {}
    curves = []
    for name in names:
        # Far and near queries, shifted functions and inputs, and attention among more tokens.
        measure = partial(far, setup, name)
        kept = setup.keep("remedies: far and near, units", [name], measure)
        mine = {row: kept.sel(ingredient=row).values for row in kept.indexes["ingredient"]}
        for arm, matrix in shifted.items():
            for sigma in SHIFTS:
                each = matrix.sel(predictor=name, sigma=sigma)
                mine[f"error, {arm} x {sigma:g}"] = each.values
        measure = partial(dispersion, setup, name)
        curve = setup.keep("remedies: dispersion, units", [name], measure)
        assert isinstance(curve, DataArray)
        mine |= _shares(curve)
        parts[name] = mine
        curves.append(curve.values.mean(-1))
    axes = {"model": tuple(names), "statistic": curve.indexes["statistic"], "n": curve.indexes["n"]}
    along = make_curve(np.stack(curves), axes, note=curve.note)
    results: dict[str, Result] = {"quantities": _quantities(parts), "dispersion": along}
    if BASELINE in parts:
        results["changes"] = _changes(parts)
    return results


def _quantities(parts: dict[str, dict[str, np.ndarray]]) -> DataFrame:
    """Every quantity of every model."""
    rows = []
    for quantity in QUANTITIES:
        for name, mine in parts.items():
            ingredients = [mine[part] for part in quantity.ingredients]
            found = bootstrap(quantity.of, *ingredients)
            row: dict[str, Any] = {"quantity": quantity.name, "model": name}
            row["value"] = found.value
            row["low"] = found.low
            row["high"] = found.high
            rows.append(row)
    return table_of_rows(rows, note="95 % bootstrap over functions or pairs of them")


def _changes(parts: dict[str, dict[str, np.ndarray]]) -> DataFrame:
    """log10 of each remedy's quantity over the baseline's, paired by function."""
    columns: dict[str, list] = {
        "quantity": [],
        "better": [],
        "model": [],
        "log10 ratio": [],
        "low": [],
        "high": [],
    }
    for quantity in QUANTITIES:
        # What only describes is no better or worse.
        if not quantity.better:
            continue
        for name, mine in parts.items():
            if name == BASELINE:
                continue
            change = _change(quantity, mine, parts[BASELINE])
            columns["quantity"].append(quantity.name)
            columns["better"].append(quantity.better)
            columns["model"].append(name)
            columns["log10 ratio"].append(change.value)
            columns["low"].append(change.low)
            columns["high"].append(change.high)
    what = (
        "log10 of the remedy's value / the baseline's; 95 % bootstrap over functions or pairs of "
        "them, paired"
    )
    return make_table(columns, note=what)


def _change(
    quantity: Quantity, mine: dict[str, np.ndarray], baseline: dict[str, np.ndarray]
) -> Interval:
    """log10 of a quantity of one model over that of the baseline."""
    arrays = [which[part] for which in (mine, baseline) for part in quantity.ingredients]
    k = len(quantity.ingredients)

    def change(*means: np.ndarray) -> np.ndarray:
        value = quantity.of(*means[:k])
        usual = quantity.of(*means[k:])
        return np.log10(value / usual)

    return bootstrap(change, *arrays)


# ---- measurements --------------------------------------------------------------------------------


def _lab(setup: Setup, name: str) -> Lab:
    """Where a model is measured: pairs of functions, in float64."""
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
    sizes = (*FAR, *GROWTH)
    answers = lab.run([lab.ask([-x, x]) for x in sizes])
    found = dict(zip(sizes, map(as_numbers, answers), strict=True))
    rows: dict[str, np.ndarray] = {}
    for x in FAR:
        f = found[x]
        truth = as_numbers(lab.truth([-x, x]))
        rows[f"error at {x:g}"] = _mean_square(lab, f - truth)
        rows[f"zero at {x:g}"] = _mean_square(lab, truth)
        rows[f"variance at {x:g}"] = _variance(lab, f)
    # Growth is about f itself, so the truth is not needed.
    for x in GROWTH:
        rows[f"square at {x:g}"] = _mean_square(lab, found[x])
    near = as_numbers(lab.sweep(lab.inner))
    rows["variance near"] = _variance(lab, near)
    axes = {"ingredient": tuple(rows), "unit": tuple(range(lab.n_units))}
    what = f"query arm, {lab.n_contexts} contexts a function, float64"
    return make_array(np.stack(list(rows.values())), axes, note=what)


def _mean_square(lab: Lab, values: Tensor) -> np.ndarray:
    """The mean square of each unit."""
    return lab.by_unit(values.square()).mean(-1)


def _variance(lab: Lab, f: Tensor) -> np.ndarray:
    """Variance of f over the contexts of all functions, as each unit's part, around their mean."""
    return _mean_square(lab, f - f.mean(0))


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
    cfg = lab.model.cfg
    n_points = lab.task.n_points
    trained = lab.encoding.n_tokens(n_points)
    # Up to the trained length scores are those of shorter prompts.
    places = [f"blocks.{layer}.attn.hook_attn_scores" for layer in range(cfg.n_layers)]
    lengths = []
    seen = []
    asked = []
    for shown in sorted({max(3, n_points // 4), max(4, n_points // 2), n_points}):
        probe = Activations(places)
        lengths.append(lab.encoding.n_tokens(shown))
        seen.append(probe)
        asked.append(lab.ask(lab.inner, prompts=lab.few, n_points=shown, probes=[probe]))
    lab.run(asked)
    spreads = []
    for probe in seen:
        recorded = list(probe.recorded.values())
        pool = by_context(lab, torch.cat(recorded, 1))
        pattern = scores.apply(cfg.score_fn, pool, cfg.score_norm)
        spreads.append(_spread(pattern))
    # Beyond it they are drawn from those at the trained length, which are the last pool.
    kinds = lab.encoding.kinds(n_points)
    for factor in BEYOND:
        n = factor * trained
        numbers = generator(lab.seed, "remedies/resampled", n)
        more, _ = resampled_scores(pool, kinds, n, numbers)
        pattern = scores.apply(cfg.score_fn, more[..., None, :], cfg.score_norm)
        spreads.append(_spread(pattern))
        lengths.append(n)
    axes = {"statistic": STATISTICS, "n": tuple(lengths), "unit": tuple(range(lab.n_units))}
    over_heads = [spread.nanmean((-3, -2, -1)) for spread in spreads]
    by_function = torch.stack(over_heads, 1)  # those of a unit lie together
    by_unit = by_function.unflatten(-1, (lab.n_units, -1)).mean(-1)
    what = f"direct up to n = {trained} tokens, resampled scores beyond; mean over heads"
    return make_curve(by_unit.numpy(), axes, note=what)


def _spread(pattern: Tensor) -> Tensor:
    """(statistic, function, head, query, context); NaN where no key has any weight."""
    size = pattern.abs()
    total = size.sum(-1)
    none = total == 0
    n = pattern.shape[-1]
    share = size.amax(-1) / total
    effective = total.square() / (n * size.square().sum(-1))
    return torch.stack([share, effective]).masked_fill(none, torch.nan)


def _shares(curve: DataArray) -> dict[str, np.ndarray]:
    """The largest share at the trained length, and at `AT` of these."""
    largest = curve.sel(statistic="largest share")
    trained = curve.indexes["n"][-len(BEYOND) - 1]
    return {
        "share, trained": largest.sel(n=trained).values,
        f"share, {AT} x": largest.sel(n=AT * trained).values,
    }


# ---- what came out -------------------------------------------------------------------------------


def compare(results: Results) -> DataFrame | None:
    """A row for each quantity: the baseline's value, and a column for each remedy.

    A remedy's value is in units of the baseline's.
    """
    rows: dict[str, dict[str, Any]] = {}
    for row in errors.rows_of(results, "quantities", model=BASELINE):
        name = row["quantity"]
        rows[name] = {"quantity": name, "baseline": row["value"]}
    for row in errors.rows_of(results, "changes"):
        value = _times(row["log10 ratio"])
        low = _times(row["low"])
        high = _times(row["high"])
        mark = ("", " ✓", " ✗")[_sign(row)]
        remedy = REMEDIES[row["model"]]
        rows[row["quantity"]][remedy] = f"×{value} [{low}, {high}]{mark}"
    kept = [row for row in rows.values() if len(row) > 2]
    what = (
        "each remedy's value / the baseline's, paired by function, 95 % intervals; ✓ and ✗: better "
        "or worse by 1.1"
    )
    return errors.as_table(kept, what)


def _times(log_ratio: float) -> str:
    """A factor in words."""
    return errors.plainly(10**log_ratio, 3)


def states(results: Results) -> tuple[Statement, ...]:
    """Each remedy in a note: where it helps and what it costs, by interval and a factor of 1.1.

    The whole interval must lie beyond that factor.
    """
    rows = errors.rows_of(results, "changes")
    if not rows:
        return (note("The baseline or all remedies are missing, so nothing is compared."),)
    # What each remedy changes clearly, for better and for worse.
    helps: dict[str, list[str]] = {}
    costs: dict[str, list[str]] = {}
    for row in rows:
        remedy = REMEDIES[row["model"]]
        helps.setdefault(remedy, [])
        costs.setdefault(remedy, [])
        text = f"{row['quantity']} (×{errors.plainly(10 ** row['log10 ratio'])})"
        if _sign(row) > 0:
            helps[remedy].append(text)
        elif _sign(row) < 0:
            costs[remedy].append(text)
    lines = []
    free = []
    for remedy, helped in helps.items():
        cost = costs[remedy]
        lines.append(f"{remedy} helps: {_listed(helped)}. It costs: {_listed(cost)}.")
        if helped and not cost:
            free.append(remedy)
    lines.append(
        f"These improve something and worsen nothing that is measured here: {_listed(free)}."
    )
    # An error of half that of predicting 0 is the least that a remedy for the failure would reach.
    far_rows = errors.rows_of(results, "quantities", quantity="far error / zero's, query at 1e4")
    solved = [row["model"] for row in far_rows if row["high"] < 0.5]
    ending = "no remedy extrapolates."
    if solved:
        ending = "a remedy for the failure is among them."
    lines.append(
        "Far out (query at 1e4) the error is below half of the zero predictor's for "
        f"{_listed(solved)}: {ending}"
    )
    lines.append(
        "There is one training seed of each kind. Intervals are over functions only, so a factor "
        "near 1 may be due to the seed."
    )
    return tuple(map(note, lines))


def _sign(row: Mapping[str, Any]) -> int:
    """1 where a remedy helps, -1 where it costs, by the whole interval and the margin; else 0."""
    ends = (row["better"] * row["low"], row["better"] * row["high"])
    margin = np.log10(MARGIN)
    if min(ends) > margin:
        return 1
    if max(ends) < -margin:
        return -1
    return 0


def _listed(parts: list[str]) -> str:
    """Words in a row."""
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
