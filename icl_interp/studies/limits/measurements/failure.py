"""What the error of a model that fails owes to its norms: queries beyond the trained range, and functions beyond it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Planned, measurement
from icl_interp.interventions.norms import FreezeNorms
from icl_interp.probes.norms import LayerNormScale
from icl_interp.probes.sweep import FEWEST, together
from icl_interp.prompts import Prompts, as_numbers
from icl_interp.results import make_array
from icl_interp.studies.limits.measurements.far import law_mean

NEAR = "in distribution"
QUERIES = {"query x 3": 3.0, "query x 10": 10.0, "query x 1000": 1e3}  # |x| in units of `Lab.x_unit`
FUNCTIONS = {"functions x 3": 3.0, "functions x 10": 10.0}
PLACES = (NEAR, *QUERIES, *FUNCTIONS)
# At which scales norms are frozen: statistics of the scale at in-distribution queries, over prompts.
SCALES: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda scale: scale.mean(),
    "quantile .1": lambda scale: scale.quantile(0.1),
    "quantile .5": lambda scale: scale.quantile(0.5),
    "quantile .9": lambda scale: scale.quantile(0.9),
    "own": lambda scale: scale,
}
ARMS = ("law mean", "intact", *SCALES, "sham", "context-free")


@measurement("far/failure")
def failure(lab: Lab) -> Planned[DataArray]:
    """Squared errors, intact and with norms frozen, where models fail: (arm, unit, place), means over prompts.

    Arms: the mean of the law of functions as a predictor; intact; every norm frozen at the query only, at the mean of
    its in-distribution scales over prompts, at three quantiles, at each prompt's own scale; the sham, frozen at the
    context positions only; "context-free", the prediction frozen at the mean scale, averaged over all prompts.

    Places: each prompt's own query; one query 3, 10 or 1,000 half-widths out, both directions; each prompt's own query
    where the function in the context is 3 or 10 times as far from the mean of its law. There the context itself is
    unusual, so to freeze its norms would be no sham: NaN, and so is "context-free" but for queries of one place.
    """
    prompts = lab.few
    probe = LayerNormScale(per_prompt=True)
    yield from lab.ask(prompts=prompts, probes=[probe])
    found = probe.results()["scale"]  # (norm, position, prompt)
    scales = {name: torch.tensor(found.sel(norm=name).values[0]) for name in lab.model.norms}
    xs = lab.x_unit * np.array([sign * x for x in QUERIES.values() for sign in (1, -1)])
    scaled = [_scaled(lab, prompts, factor) for factor in FUNCTIONS.values()]
    asked, n_sweeps = [], 2 + len(scaled)
    # Prompts with scales of their own must be run at once, so all are asked about in parts that are.
    parts = [slice(start, start + FEWEST) for start in range(0, len(prompts), FEWEST)]
    for rows in parts:
        own, others = prompts[rows], [other[rows] for other in scaled]
        frozen = [(_frozen({name: of(scale) for name, scale in scales.items()}, rows),) for of in SCALES.values()]
        for edits in ((), *frozen):
            asked += [lab.ask(prompts=own, query=edits), lab.ask(xs, prompts=own, query=edits)]
            asked += [lab.ask(prompts=other, query=edits) for other in others]
    asked += [lab.ask(where, prompts=prompts, context=[lab.frozen]) for where in (None, xs)]
    *answers, sham_near, sham_far = map(as_numbers, (yield from together(*asked)))
    each = iter(answers)
    by_part = [[torch.cat([next(each) for _ in range(n_sweeps)], 1) for _ in range(1 + len(SCALES))] for _ in parts]
    intact, *frozen = (torch.cat(one) for one in zip(*by_part, strict=True))  # (prompt, column) each
    return _errors(lab, prompts, xs, intact, frozen, torch.cat([sham_near, sham_far], 1))


def _errors(
    lab: Lab,
    prompts: Prompts,
    xs: np.ndarray,
    intact: Float[Tensor, "batch column"],
    frozen: Sequence[Float[Tensor, "batch column"]],
    sham: Float[Tensor, "batch few"],
) -> DataArray:
    """From predictions to errors: columns are each prompt's own query, the queries xs, and functions scaled."""
    n, near = len(prompts), as_numbers(lab.task.targets(prompts.parameters, prompts.xs[:, -1:]))
    guess = as_numbers(lab.task.expected(prompts.xs[:, -1:]))
    law = torch.cat([guess, law_mean(lab, xs).expand(n, -1), *(guess for _ in FUNCTIONS)], 1)
    further = [guess + factor * (near - guess) for factor in FUNCTIONS.values()]
    truth = torch.cat([near, as_numbers(lab.truth(xs, prompts)), *further], 1)
    missing = torch.full((n, len(FUNCTIONS)), torch.nan, dtype=truth.dtype)
    line = frozen[0].mean(0).expand(n, -1).clone()
    line[:, :1], line[:, -len(FUNCTIONS) :] = torch.nan, torch.nan
    guesses = torch.stack([law, intact, *frozen, torch.cat([sham, missing], 1), line])
    squares = (guesses - truth).square()
    both = squares[..., 1 : 1 + len(xs)].unflatten(-1, (len(QUERIES), 2)).mean(-1)
    squares = torch.cat([squares[..., :1], both, squares[..., 1 + len(xs) :]], -1)
    axes = {"arm": ARMS, "unit": tuple(range(lab.units_in(prompts))), "place": PLACES}
    note = f"{len(prompts)} prompts; norms frozen at the query; errors against the function without noise; float64"
    return make_array([lab.by_unit(one, prompts) for one in squares], axes, note=note)


def _frozen(scales: Mapping[str, Tensor], rows: slice) -> FreezeNorms:
    """Norms frozen at one scale each, or at that of each of these prompts."""
    return FreezeNorms({k: s.view(1, 1) if s.ndim == 0 else s[rows].view(-1, 1, 1) for k, s in scales.items()})


def _scaled(lab: Lab, prompts: Prompts, factor: float) -> Prompts:
    """The same prompts of functions that lie `factor` times as far from the mean of their law, noise included."""
    mean = lab.task.expected(prompts.xs)
    return replace(prompts, ys=mean + factor * (prompts.ys - mean))
