"""Where a model makes its prediction: for the report's section on the mechanism.

No claim rests on it.

Everything is measured in distribution, on two prompts of each unit, at their own queries.
"""

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from xarray import DataArray, concat

from icl_interp import contrasts
from icl_interp.analyses import output_unit, relevance
from icl_interp.analyses.facts import is_large
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Measurement, measurement
from icl_interp.circuits.activations import patch_activations
from icl_interp.contrasts import Contrast
from icl_interp.errors import InputError
from icl_interp.probes.attribution import DirectAttribution
from icl_interp.probes.base import Probe
from icl_interp.probes.pattern import AttentionPattern
from icl_interp.probes.residual import LogitLens
from icl_interp.probes.roles import roles as roles_of
from icl_interp.probes.runner import probe
from icl_interp.probes.sweep import Sweep, Swept
from icl_interp.results import make_array

MOST = 100_000  # numbers of patterns that a report holds; of larger ones it holds the query's row
READ_IN = "read-in"
REST = "rest"
QUERY = "query"
# Prompts that roles of heads are scored on: fewer where all their weights together are many.
ROLES_ON = 64
FEWEST = 16
WEIGHTS = 5_000_000
SCORES = ("score", "low", "high", "p")
SHARES = ("share", "low", "high", "q")
PATCHED_ON = 64  # pairs of prompts


def measurements(lab: Lab) -> list[Measurement[Any]]:
    """Those that the lab's model has something for."""
    found: list[Measurement[Any]] = []
    if lab.heads:
        found += [patterns, roles, relevance.relevance, output_unit.own]
        if _contrast(lab):
            found.append(patching)
    if not DirectAttribution().refusal(lab.single):
        found.append(attribution)
        if lab.task.n_targets > 1:
            found.append(variance)
    return [*found, lens]


def _at_query(lab: Lab, one: Probe) -> Sweep:
    """A probe at the queries; contexts are read together with what others ask."""
    return lab.ask(prompts=lab.few, probes=[one])


def _asks_patterns(lab: Lab) -> Sweep | None:
    """Where not all rows are kept, a probe at the query."""
    if not _has_many_weights(lab):
        return None
    return _at_query(lab, AttentionPattern())


def _kinds(lab: Lab) -> Sequence[str]:
    return lab.encoding.kinds(lab.few.n_points)


def _has_many_weights(lab: Lab) -> bool:
    n_tokens = len(_kinds(lab))
    return len(lab.heads) * n_tokens**2 > MOST


@measurement("mechanism/patterns", asks=_asks_patterns)
def patterns(lab: Lab, swept: Swept | None) -> DataArray:
    """Mean attention weights of `probes.AttentionPattern`: (layer, head, query, key), by token.

    A large model, with more than `MOST` weights, has only the row of the query.
    """
    names = token_names(_kinds(lab))
    if swept:
        one = swept.probe(AttentionPattern)
        rows = [QUERY]
    else:
        one = AttentionPattern()
        rows = names
        n_at_once = lab.chunks(lab.few)[0].stop
        probe(lab.single, lab.few, [one], lab.encoding, n_at_once)
    found = _arrays(one)["weight"]
    layers = found.indexes["layer"].tolist()
    heads = found.indexes["head"].tolist()
    axes = {"layer": layers, "head": heads, "query": rows, "key": names}
    return make_array(found.values, axes, "", f"mean over {len(lab.few)} prompts")


@measurement("mechanism/roles")
def roles(lab: Lab) -> DataArray:
    """Scores of each head for each role: (statistic, head, role), of `probes.roles`.

    Statistics are the score, its interval over functions (95 %), and p of the score by chance.
    """
    n_tokens = len(_kinds(lab))
    n_weights = len(lab.heads) * n_tokens**2
    n_prompts = min(ROLES_ON, max(FEWEST, WEIGHTS // n_weights))
    table = roles_of(lab, lab.one_each[:n_prompts])
    labels = relevance.labels(lab)
    names = table["role"].unique().tolist()
    # Rows go by layer, head and role, in this order.
    shape = (len(labels), len(names))
    values = [table[name].to_numpy().reshape(shape) for name in SCORES]
    axes = {"statistic": SCORES, "head": labels, "role": names}
    return make_array(values, axes, "", f"{n_prompts} prompts; {table.attrs['note']}")


def _contrast(lab: Lab) -> Contrast | None:
    """Prompts and those with the labels of other functions; None where no head is patched.

    That is so for a large model, for which it takes minutes, and for tasks with one function or
    whose labels are inputs.
    """
    if is_large(lab.model):
        return None
    try:
        return contrasts.labels(lab.task, n_functions=PATCHED_ON, seed=lab.seed)
    except InputError:
        return None


@measurement("mechanism/patching")
def patching(lab: Lab) -> DataArray:
    """The share of the way to the prediction for other labels that each head carries.

    Of `circuits.patch_activations`, (statistic, head): the share, its interval over functions
    (95 %), and q over all heads. They are NaN where the prediction does not follow the labels, or
    is a vector.
    """
    contrast = _contrast(lab)
    labels = relevance.labels(lab)
    assert contrast is not None  # otherwise nobody asks
    single = SimpleNamespace(model=lab.single, encoding=lab.encoding)
    try:
        table = patch_activations(single, contrast, "z", ("head",), seed=lab.seed)
        values = [table[name].to_numpy() for name in SHARES]
    except InputError as error:
        return _nowhere(labels, str(error))
    note = f"{len(contrast)} pairs of prompts; {table.attrs['note']}"
    return make_array(values, {"statistic": SHARES, "head": labels}, "", note)


def _nowhere(labels: Sequence[str], why: str) -> DataArray:
    """No share of any head."""
    values = np.full((len(SHARES), len(labels)), np.nan)
    return make_array(values, {"statistic": SHARES, "head": labels}, "", why)


@measurement(
    "mechanism/attribution",
    version=2,  # 2: shares of the model's own prediction, with a rest
    asks=lambda lab: _at_query(lab, DirectAttribution()),
)
def attribution(lab: Lab, swept: Swept) -> DataArray:
    """Shares of the prediction's variance: `probes.DirectAttribution` at the query, (part, target).

    Parts are the read-in, "head LAYER.HEAD", "MLP LAYER" and the rest.
    """
    found = {}
    for name, share in _arrays(swept.probe(DirectAttribution)).items():
        found[name] = share.sel(position=QUERY, drop=True)
    # One after the other along one axis: the read-in, heads, MLPs, and the rest.
    parts = [found["read_in"].expand_dims(part=[READ_IN])]
    if "head" in found:
        heads = found["head"].stack(part=("layer", "head")).transpose("part", "target")
        names = [f"head {layer}.{head}" for layer, head in heads.indexes["part"]]
        heads = heads.drop_vars(("part", "layer", "head"))
        parts.append(heads.assign_coords(part=names))
    if "mlp" in found:
        mlps = found["mlp"].rename(layer="part")
        names = [f"MLP {layer}" for layer in mlps.indexes["part"].tolist()]
        parts.append(mlps.assign_coords(part=names))
    parts.append(found["rest"].expand_dims(part=[REST]))
    every = concat(parts, "part")
    assert isinstance(every, DataArray)
    targets = every.indexes["target"].tolist()
    axes = {"part": every.indexes["part"].tolist(), "target": targets}
    return make_array(every.values, axes, "", found["read_in"].attrs["note"])


@measurement("mechanism/variance", asks=lambda lab: lab.ask(prompts=lab.few))
def variance(lab: Lab, swept: Swept) -> DataArray:
    """Variance of each coordinate of the prediction over the prompts of `attribution`, (target,).

    The shares of a coordinate in `attribution` are shares of this variance. Nobody needs it for a
    prediction that is a number.
    """
    predicted = swept.f[:, 0].double()
    values = predicted.var(0, unbiased=False).numpy()
    axes = {"target": range(len(values))}
    return make_array(values, axes, "y squared", f"{len(lab.few)} prompts, at the query")


def pooled(shares: DataArray, variances: DataArray | None) -> DataArray:
    """Shares of the summed variance of a prediction's coordinates, (part,), from those of each.

    That is the sum of covariances over the sum of variances. A mean of shares would count a
    coordinate that hardly varies as much as one that varies a lot.

    Args:
        shares: (part, target), what `attribution` found.
        variances: (target,), what `variance` found; None for a prediction of one coordinate.

    >>> shares = make_array([[0.9, 0.2], [0.1, 0.8]], {"part": ("a", "b"), "target": (0, 1)})
    >>> pooled(shares, make_array([3.0, 1.0], {"target": (0, 1)})).values.round(3)
    array([0.725, 0.275])
    """
    if variances is None:
        return shares.mean("target")
    # What does not vary has no shares.
    covariances = (shares * variances).where(variances > 0, 0.0)
    return covariances.sum("target") / variances.sum("target")


@measurement("mechanism/lens", asks=lambda lab: _at_query(lab, LogitLens(per_prompt=True)))
def lens(lab: Lab, swept: Swept) -> DataArray:
    """The logit lens after 0, 1, ..., all blocks: (statistic, depth, unit), means over targets.

    error: its squared error at the query; distance: its squared distance from the model's own
    prediction; zero: the squared error of predicting 0.
    """
    read = _arrays(swept.probe(LogitLens))["prediction"].sel(position=QUERY)
    said = read.transpose("depth", "prompt", "target").values
    truth = lab.few.ys[:, -1].numpy()
    rows = {
        "error": np.square(said - truth).mean(-1),
        "distance": np.square(said - said[-1]).mean(-1),
        "zero": np.broadcast_to(np.square(truth).mean(-1), said.shape[:2]),
    }
    values = []
    for row in rows.values():
        by_unit = row.reshape(len(row), lab.n_units, -1)
        values.append(by_unit.mean(-1))
    axes = {"statistic": rows, "depth": range(len(said)), "unit": range(lab.n_units)}
    return make_array(values, axes, "y squared", f"{len(lab.few)} prompts, at the query")


def token_names(kinds: Sequence[str]) -> list[str]:
    """A name for each token: what it shows and which of its kind it is; the last one is the query.

    >>> token_names(("x", "y", "x", "y", "x"))
    ['x1', 'y1', 'x2', 'y2', 'query']
    """
    seen: Counter[str] = Counter()
    names = []
    for kind in kinds[:-1]:
        seen[kind] += 1
        names.append(f"{kind}{seen[kind]}")
    return [*names, QUERY]


def _arrays(one: Probe) -> dict[str, DataArray]:
    """What a probe returns, by the result's name."""
    return {name: result for name, result in one.results().items() if isinstance(result, DataArray)}
