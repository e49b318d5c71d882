"""What failing models owe to their norms: queries and functions beyond the trained range."""

from collections.abc import Callable, Iterable, Mapping, Sequence
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
from icl_interp.prompts import Prompts, squared_sizes
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.limits.measurements.far import law_mean

NEAR = "in distribution"
# |x| in units of `Lab.x_unit`:
QUERIES = {"query x 3": 3.0, "query x 10": 10.0, "query x 1000": 1e3}
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
    found = swept.probe(LayerNormScale).results()
    scales = found["scale"]  # (norm, position, prompt)
    norms = tuple(lab.model.norms)
    rows = [scales.sel(norm=name).values[0] for name in norms]
    n_prompts = len(swept.prompts)
    prompts = tuple(range(n_prompts))
    return make_array(rows, {"norm": norms, "prompt": prompts})


def _frozen_and_control(lab: Lab, own: DataArray) -> dict[tuple[str, str, int], Sweep]:
    """The sweeps of `far/failure`: by arm, place, and the first of the prompts of a part."""
    prompts = lab.few
    xs = known_sizes(lab)
    drawn = lab.drawn(prompts, drawn_sizes(lab))
    scaled = {}
    # In a path every value comes again as an input: nothing would be scaled alone.
    if lab.encoding.shows_values:
        for name, factor in FUNCTIONS.items():
            scaled[name] = _scaled(lab, prompts, factor)
    asked = {}
    # Prompts with scales of their own must be run at once, so all are asked about in parts that
    # are.
    for start in range(0, len(prompts), FEWEST):
        rows = slice(start, start + FEWEST)
        shown = prompts[rows]
        places = drawn[rows]
        others = {name: other[rows] for name, other in scaled.items()}
        for arm, edits in _edits(lab, own, rows).items():
            asked[arm, NEAR, start] = lab.ask(prompts=shown, query=edits)
            asked[arm, "known", start] = lab.ask(xs, prompts=shown, query=edits)
            asked[arm, "drawn", start] = lab.ask_at(places, shown, query=edits)
            for name, other in others.items():
                asked[arm, name, start] = lab.ask(prompts=other, query=edits)
    control = [lab.frozen]
    asked["sham", NEAR, 0] = lab.ask(prompts=prompts, context=control)
    asked["sham", "known", 0] = lab.ask(xs, prompts=prompts, context=control)
    asked["sham", "drawn", 0] = lab.ask_at(drawn, prompts, context=control)
    return asked


def _edits(lab: Lab, own: DataArray, rows: slice) -> dict[str, list[FreezeNorms]]:
    """Nothing, and every norm frozen at each of `SCALES`, for a part of the prompts."""
    arms: dict[str, list[FreezeNorms]] = {"intact": []}
    for name, of in SCALES.items():
        frozen = {}
        for norm in lab.model.norms:
            scales = torch.tensor(own.sel(norm=norm).values)
            scale = of(scales)
            if scale.ndim == 0:
                frozen[norm] = scale.view(1, 1)
            else:
                frozen[norm] = scale[rows].view(-1, 1, 1)
        arms[name] = [FreezeNorms(frozen)]
    return arms


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
    place. All of these are NaN where tokens show no values: there no function can be scaled.
    """
    prompts = lab.few
    xs = known_sizes(lab)
    drawn = lab.drawn(prompts, drawn_sizes(lab))

    def of(arm: str) -> Tensor:
        """(prompt, column, target): parts of prompts below one another, places side by side."""
        by_part: dict[int, list[Tensor]] = {}
        for (its, _, start), one in swept.items():
            if its == arm:
                columns = by_part.setdefault(start, [])
                columns.append(one.f)
        parts = [torch.cat(columns, 1) for columns in by_part.values()]
        return torch.cat(parts)

    intact = of("intact")
    frozen = [of(name) for name in SCALES]
    control = of("sham")
    return _errors(lab, prompts, (xs, drawn), intact, frozen, control)


def known_sizes(lab: Lab) -> np.ndarray:
    """The queries of `QUERIES`, both directions of each."""
    return lab.x_unit * _both_directions(QUERIES.values())


def _both_directions(sizes: Iterable[float]) -> np.ndarray:
    """Each size and its negative: the first, minus the first, the second, ..."""
    signed = []
    for size in sizes:
        signed += [size, -size]
    return np.array(signed)


def drawn_sizes(lab: Lab) -> Float[np.ndarray, "unit place"]:
    """Sizes of the drawn queries, both directions of each of `DRAWN`; two units share each."""
    draw = generator(lab.seed, "far/failure")
    n_units = lab.n_units
    shape = (-(-n_units // 2), 2 * len(DRAWN))
    share = torch.rand(shape, generator=draw, dtype=torch.float64)
    decades = share.numpy() / 4 - 1 / 8
    jitter = 10**decades
    centres = lab.x_unit * _both_directions(DRAWN.values())
    sizes = np.repeat(centres * jitter, 2, 0)
    return sizes[:n_units]


def _errors(
    lab: Lab,
    prompts: Prompts,
    queries: tuple[np.ndarray, Float[Tensor, "batch place dim"]],
    intact: Float[Tensor, "batch column target"],
    frozen: Sequence[Float[Tensor, "batch column target"]],
    control: Float[Tensor, "batch few target"],
) -> DataArray:
    """From predictions to errors.

    Columns are each prompt's own query, known and drawn ones, and functions scaled.
    """
    task = lab.task
    parameters = prompts.parameters
    own = prompts.xs[:, -1:]
    xs, drawn = queries
    n = len(prompts)
    n_known = len(xs)

    # The law's mean, and the function.
    guess = task.expected(own)
    guess_known = law_mean(lab, xs).expand(n, -1, -1)
    guess_drawn = task.expected(drawn)
    near = task.targets(parameters, own)
    known = lab.truth(xs, prompts)
    there = task.targets(parameters, drawn)
    laws = [guess, guess_known, guess_drawn]
    truths = [near, known, there]
    for factor in FUNCTIONS.values():
        laws.append(guess)
        truths.append(guess + factor * (near - guess))
    law = torch.cat(laws, 1)
    truth = torch.cat(truths, 1)

    # What is missing: the control where functions are scaled, one line but for known queries.
    missing = torch.full((n, len(FUNCTIONS), task.n_targets), torch.nan, dtype=truth.dtype)
    whole_control = torch.cat([control, missing], 1)
    if not lab.encoding.shows_values:
        intact = torch.cat([intact, missing], 1)
        frozen = [torch.cat([one, missing], 1) for one in frozen]
    line = torch.full_like(intact, torch.nan)
    of_known = slice(1, 1 + n_known)
    line[:, of_known] = frozen[0][:, of_known].mean(0)

    def size_beyond(f: Tensor) -> float:
        beyond = (f - law)[:, 1:]
        return float(beyond.square().nansum())

    guesses = torch.stack([law, intact, *frozen, whole_control, line])
    largest = max(frozen, key=size_beyond)
    sizes = torch.stack([intact - law, largest - law])
    errors = guesses - truth
    squares = squared_sizes(torch.cat([errors, sizes]))

    # Both directions of each far query count as one place.
    end = 1 + n_known + drawn.shape[1]
    by_direction = squares[..., 1:end].unflatten(-1, (-1, 2))
    both = by_direction.mean(-1)
    squares = torch.cat([squares[..., :1], both, squares[..., end:]], -1)
    rows = [lab.by_unit(one, prompts) for one in squares]
    units = tuple(range(lab.units_in(prompts)))
    note = (
        f"{n} prompts; norms frozen at the query; errors against the function without noise; "
        "float64"
    )
    return make_array(rows, {"arm": ARMS, "unit": units, "place": PLACES}, note=note)


def _scaled(lab: Lab, prompts: Prompts, factor: float) -> Prompts:
    """The same prompts of functions that lie `factor` times as far from their law's mean.

    Noise is included.
    """
    mean = lab.task.expected(prompts.xs)
    distance = prompts.ys - mean
    return replace(prompts, ys=mean + factor * distance)
