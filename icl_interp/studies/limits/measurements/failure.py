"""What failing models owe to their norms: queries and functions beyond the trained range."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.interventions.norms import FreezeNorms
from icl_interp.probes.norms import LayerNormScale
from icl_interp.probes.sweep import FEWEST, Sweep, Swept
from icl_interp.prompts import Prompts, as_numbers
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.limits.measurements.far import law_mean

NEAR = "in distribution"
QUERIES = {
    "query x 3": 3.0,
    "query x 10": 10.0,
    "query x 1000": 1e3,
}  # |x| in units of `Lab.x_unit`
# The same with a place for each pair of units, drawn within an eighth of a decade on either side,
# and along its ray.
DRAWN = {"drawn about x 10": 10.0, "drawn about x 1000": 1e3}
FUNCTIONS = {"functions x 3": 3.0, "functions x 10": 10.0}
PLACES = (NEAR, *QUERIES, *DRAWN, *FUNCTIONS)
# At which scales norms are frozen: statistics of the scale at in-distribution queries, over
# prompts.
SCALES: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda scale: scale.mean(),
    "quantile .1": lambda scale: scale.quantile(0.1),
    "quantile .5": lambda scale: scale.quantile(0.5),
    "quantile .9": lambda scale: scale.quantile(0.9),
    "own": lambda scale: scale,
}
ARMS = ("law mean", "intact", *SCALES, "sham", "context-free", "size", "size, frozen")


def _scales_at_own_query(lab: Lab) -> Sweep:
    return lab.ask(prompts=lab.few, probes=[LayerNormScale(per_prompt=True)])


@measurement("far/failure, scales", asks=_scales_at_own_query)
def own_scales(lab: Lab, swept: Swept) -> DataArray:
    """Every norm's scale at each prompt's own query: (norm, prompt), two prompts a unit."""
    found = swept.probe(LayerNormScale).results()["scale"]  # (norm, position, prompt)
    axes = {"norm": tuple(lab.model.norms), "prompt": tuple(range(len(swept.prompts)))}
    return make_array([found.sel(norm=name).values[0] for name in lab.model.norms], axes)


def _frozen_and_control(lab: Lab, own: DataArray) -> dict[tuple[str, str, int], Sweep]:
    """The sweeps of `far/failure`: by arm, place, and the first of the prompts of a part."""
    prompts = lab.few
    scales = {name: torch.tensor(own.sel(norm=name).values) for name in lab.model.norms}
    xs = known_sizes(lab)
    drawn = lab.drawn(prompts, drawn_sizes(lab))
    scaled = {name: _scaled(lab, prompts, factor) for name, factor in FUNCTIONS.items()}
    asked = {}
    # Prompts with scales of their own must be run at once, so all are asked about in parts that
    # are.
    for start in range(0, len(prompts), FEWEST):
        rows = slice(start, start + FEWEST)
        shown = prompts[rows]
        others = {name: other[rows] for name, other in scaled.items()}
        places_of_own = drawn[rows]
        arms: dict[str, tuple[FreezeNorms, ...]] = {"intact": ()}
        for name, of in SCALES.items():
            at = {norm: of(scale) for norm, scale in scales.items()}
            arms[name] = (_frozen(at, rows),)
        for arm, edits in arms.items():
            asked[arm, NEAR, start] = lab.ask(prompts=shown, query=edits)
            asked[arm, "known", start] = lab.ask(xs, prompts=shown, query=edits)
            asked[arm, "drawn", start] = lab.ask_at(places_of_own, shown, query=edits)
            for name, other in others.items():
                asked[arm, name, start] = lab.ask(prompts=other, query=edits)
    control_intervention = [lab.frozen]
    asked["sham", NEAR, 0] = lab.ask(prompts=prompts, context=control_intervention)
    asked["sham", "known", 0] = lab.ask(xs, prompts=prompts, context=control_intervention)
    asked["sham", "drawn", 0] = lab.ask_at(drawn, prompts, context=control_intervention)
    return asked


@measurement("far/failure", version=2, needs=(own_scales,), asks=_frozen_and_control)
def failure(lab: Lab, swept: Mapping[tuple[str, str, int], Swept], own: DataArray) -> DataArray:
    """Squared errors where models fail, intact and with norms frozen: (arm, unit, place).

    They are means over prompts. Arms: the mean of the law of functions as a predictor; intact;
    every norm frozen at the query only, at the mean of its in-distribution scales over prompts, at
    three quantiles, at each prompt's own scale; the control intervention, frozen at the context
    positions only; "context-free", the prediction frozen at the mean scale, averaged over all
    prompts; and of how far predictions are from the law's mean the squares, "size" of the intact
    one, and "size, frozen" at the scale at which it is largest.

    Places: each prompt's own query; one query 3, 10 or 1,000 half-widths out, both directions, and
    about two of these a drawn one; each prompt's own query where the function in the context is 3
    or 10 times as far from the mean of its law. There the context itself is unusual, so to freeze
    its norms would be no control intervention: NaN, and so is "context-free" but for queries of one
    place.
    """
    prompts = lab.few
    xs = known_sizes(lab)
    drawn = lab.drawn(prompts, drawn_sizes(lab))

    def of(arm: str) -> Tensor:
        """(prompt, column): parts of the prompts below one another, places side by side."""
        by_part: dict[int, list[Tensor]] = {}
        for (its, _, start), one in swept.items():
            if its == arm:
                by_part.setdefault(start, []).append(as_numbers(one.f))
        return torch.cat([torch.cat(columns, 1) for columns in by_part.values()])

    frozen = [of(name) for name in SCALES]
    return _errors(lab, prompts, (xs, drawn), of("intact"), frozen, of("sham"))


def known_sizes(lab: Lab) -> np.ndarray:
    """The queries of `QUERIES`, both directions of each."""
    return lab.x_unit * np.array([sign * x for x in QUERIES.values() for sign in (1, -1)])


def drawn_sizes(lab: Lab) -> Float[np.ndarray, "unit place"]:
    """Sizes of the drawn queries, both directions of each of `DRAWN`; two units share each."""
    draw = generator(lab.seed, "far/failure")
    n = -(-lab.n_units // 2)
    jitter = 10 ** (
        torch.rand(n, 2 * len(DRAWN), generator=draw, dtype=torch.float64).numpy() / 4 - 1 / 8
    )
    centres = lab.x_unit * np.array([sign * x for x in DRAWN.values() for sign in (1, -1)])
    return np.repeat(centres * jitter, 2, 0)[: lab.n_units]


def _errors(
    lab: Lab,
    prompts: Prompts,
    queries: tuple[np.ndarray, Float[Tensor, "batch place dim"]],
    intact: Float[Tensor, "batch column"],
    frozen: Sequence[Float[Tensor, "batch column"]],
    control_intervention: Float[Tensor, "batch few"],
) -> DataArray:
    """From predictions to errors.

    Columns are each prompt's own query, known and drawn ones, and functions scaled.
    """
    n, near = len(prompts), as_numbers(lab.task.targets(prompts.parameters, prompts.xs[:, -1:]))
    guess = as_numbers(lab.task.expected(prompts.xs[:, -1:]))
    xs, drawn = queries
    of_law = [law_mean(lab, xs).expand(n, -1), as_numbers(lab.task.expected(drawn))]
    law = torch.cat([guess, *of_law, *(guess for _ in FUNCTIONS)], 1)
    further = [guess + factor * (near - guess) for factor in FUNCTIONS.values()]
    there = as_numbers(lab.task.targets(prompts.parameters, drawn))
    truth = torch.cat([near, as_numbers(lab.truth(xs, prompts)), there, *further], 1)
    missing = torch.full((n, len(FUNCTIONS)), torch.nan, dtype=truth.dtype)
    line = torch.full_like(intact, torch.nan)
    of_known = slice(1, 1 + len(xs))
    line[:, of_known] = frozen[0][:, of_known].mean(0)
    guesses = torch.stack(
        [law, intact, *frozen, torch.cat([control_intervention, missing], 1), line]
    )
    largest = max(frozen, key=lambda f: float((f - law)[:, 1:].square().sum()))
    sizes = torch.stack([intact - law, largest - law])
    squares = torch.cat([(guesses - truth).square(), sizes.square()])
    far_out = slice(1, 1 + len(xs) + drawn.shape[1])
    both = squares[..., far_out].unflatten(-1, (-1, 2)).mean(-1)
    squares = torch.cat([squares[..., :1], both, squares[..., far_out.stop :]], -1)
    axes = {"arm": ARMS, "unit": tuple(range(lab.units_in(prompts))), "place": PLACES}
    note = (
        f"{len(prompts)} prompts; norms frozen at the query; errors against the function without "
        "noise; float64"
    )
    return make_array([lab.by_unit(one, prompts) for one in squares], axes, note=note)


def _frozen(scales: Mapping[str, Tensor], rows: slice) -> FreezeNorms:
    """Norms frozen at one scale each, or at that of each of these prompts."""
    return FreezeNorms(
        {k: s.view(1, 1) if s.ndim == 0 else s[rows].view(-1, 1, 1) for k, s in scales.items()}
    )


def _scaled(lab: Lab, prompts: Prompts, factor: float) -> Prompts:
    """The same prompts of functions that lie `factor` times as far from their law's mean.

    Noise is included.
    """
    mean = lab.task.expected(prompts.xs)
    return replace(prompts, ys=mean + factor * (prompts.ys - mean))
