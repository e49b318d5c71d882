"""How far what each layer's stream says of f(x) is from Newton's iterates and steps of descent.

Along an eigenvector of S = X'X / n with eigenvalue l, iterate k of Newton's iteration for the
inverse of S, begun at M = a S, leaves (1 - a l^2)^(2^k) of the error; t steps of descent leave
(1 - a l)^t. Both are asked at exponents 2^k. What a layer says is the affine map of its stream that
predicts f(x) best on other functions. Iterates are read in the same way, so that one that is too
small counts at its right size.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.baselines.base import INPUTS
from icl_interp.baselines.moments import Diagonal, Moments
from icl_interp.probes.read_outs import read_out
from icl_interp.probes.record import Activations
from icl_interp.probes.residual import depths
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.results import make_array

NEWTON = "Newton"
DESCENT = "descent"
POWERS = {NEWTON: 2, DESCENT: 1}  # of the eigenvalue in what a step leaves
EXPONENTS = np.arange(-1.0, 12.25, 0.5)  # k; below 0 for rates that are smaller than those asked
TRUTH = "f(x)"
TUNING = 8  # functions for each unit of the lab that read-outs and rates are fitted on
GROUP = 4  # ... and others that these are judged on: together they are a unit of the intervals
PENALTY = 1e-9  # of read-outs, which a change of coordinates of the stream must not change
# The rate a, in units of 1 / (largest eigenvalue of all prompts)^power; "own" takes that of each
# prompt. Smaller ones are not asked: with more iterates they do nearly the same.
RATES = ("own", 1.0, 0.84, 0.71, 0.6, 0.5, 0.42, 0.35, 0.3, 0.25)
EXPLAINED = 0.1  # of f(x): a read-out that explains less says nothing


def lengths(lab: Lab) -> list[int]:
    """Numbers of examples: d, 3 d / 2, 2 d and all; all alone where no others were trained on.

    With about d examples S is badly conditioned, and iterates stay apart for long.
    """
    whole = lab.task.n_points - 1
    _, scored = lab.encoding.read_at(lab.task.n_points, lab.model.cfg.attention_dir)
    found = {whole}
    if len(scored) > 1:
        for factor in (1.0, 1.5, 2.0):
            n = int(factor * lab.task.dim)
            found.add(min(n, whole))
    return sorted(found)


def iterate(
    seen: Diagonal, rate: Float[Tensor, "*batch 1 1"], power: int, exponent: float
) -> Float[Tensor, "*batch target"]:
    """Predictions that leave (1 - rate l^power)^(2^exponent) of the error along eigenvectors of S.

    A base below 0, of a rate that is too large for a prompt, counts as 0.

    Args:
        seen: S, h and the query along eigenvectors of S.
        rate: a.
        power: 2 is Newton's iterate number `exponent`, 1 is descent after 2^exponent steps.
        exponent: need not be whole.
    """
    base = (1 - rate * seen.spectrum**power).clamp(min=0)
    # Along directions without points h is 0.
    inverse = (1 - base ** (2.0**exponent)) / seen.spectrum.clamp(min=1e-12)
    return (seen.query * inverse * seen.moment).sum(-2)


def vertex(
    apart: Float[np.ndarray, "*batch exponent"],
) -> tuple[Float[np.ndarray, "*batch"], Float[np.ndarray, "*batch"]]:
    """The exponent of the least distance, and that distance.

    They are those of a parabola through the least of the distances and both beside it.

    >>> [found.round(9) for found in vertex((EXPONENTS - 3.2)[None] ** 2)]
    [array([3.2]), array([0.])]
    """
    place = apart.argmin(-1)
    inner = np.clip(place, 1, len(EXPONENTS) - 2)[..., None]
    low = np.take_along_axis(apart, inner - 1, -1)[..., 0]
    high = np.take_along_axis(apart, inner + 1, -1)[..., 0]
    here = np.take_along_axis(apart, inner, -1)[..., 0]
    # Where the least is at an end, or nothing bends, the parabola says nothing.
    bowl = low - 2 * here + high
    says = (place == inner[..., 0]) & (bowl > 0)
    shift = np.where(says, (low - high) / (2 * np.where(says, bowl, 1.0)), 0.0)
    least = apart.min(-1) - shift * (low - high) / 4
    step = EXPONENTS[1] - EXPONENTS[0]
    return EXPONENTS[place] + shift * step, np.maximum(least, 0.0)


def best(apart: Float[np.ndarray, "*batch exponent"]) -> Float[np.ndarray, "*batch"]:
    """The exponent of the least distance."""
    return vertex(apart)[0]


def least(apart: Float[np.ndarray, "*batch exponent"]) -> Float[np.ndarray, "*batch"]:
    """The least distance."""
    return vertex(apart)[1]


def row_of(name: str, exponent: float) -> str:
    """The name of a comparison.

    >>> row_of("Newton", 2.0)
    'Newton, 2^2'
    """
    return f"{name}, 2^{exponent:g}"


class Sample(NamedTuple):
    """Prompts of some lengths, each row a length and each column a function.

    Attributes:
        truth: f(x) at the query.
        seen: S, h and the query along eigenvectors of S.
        tuning: the first functions, which read-outs and rates are fitted on.
    """

    truth: Float[Tensor, "length function"]
    seen: Diagonal
    tuning: int

    @classmethod
    def of(cls, lab: Lab, drawn: Prompts, asked: Sequence[int]) -> Self:
        """From prompts of all points."""
        truth = lab.task.targets(drawn.parameters, drawn.xs)[:, :, 0]
        parts = []
        for n in asked:
            shorter = drawn.first(n + 1)
            parts.append(Moments.of_query(INPUTS, shorter).diagonalised())
        spectra, moments, queries = zip(*parts, strict=True)
        seen = Diagonal(torch.cat(spectra, 1), torch.cat(moments, 1), torch.cat(queries, 1))
        turned = Diagonal(*(part.transpose(0, 1) for part in seen))
        return cls(truth[:, asked].T, turned, TUNING * lab.n_units)

    def read(self, each: Float[Tensor, "length function width"]) -> Tensor:
        """The read-out of a stream or an iterate, (length, function)."""
        some = slice(self.tuning)
        fitted_on = each[:, some].flatten(0, 1)
        known = self.truth[:, some].reshape(-1, 1)
        asked = each.flatten(0, 1)
        found = read_out(fitted_on, known, asked, PENALTY)
        return found.view(self.truth.shape)

    def path(self, power: int, rate: float | str) -> Float[Tensor, "exponent length function"]:
        """The read-outs of the iterates at all exponents, with one of `RATES`."""
        largest = self.seen.spectrum.amax(-2, keepdim=True)
        if isinstance(rate, str):
            used = largest**-power
        else:
            used = rate * largest.max().expand_as(largest) ** -power
        found = []
        for k in EXPONENTS:
            each = iterate(self.seen, used, power, float(k))
            found.append(self.read(each))
        return torch.stack(found)

    def nearest(self, said: Tensor, power: int) -> tuple[float | str, Tensor]:
        """The rate that is nearest to the read-outs that say something, and its path."""
        some = slice(self.tuning)
        tuned = said[..., some]
        truth = self.truth[:, some]
        error = (tuned - truth).square().mean((1, 2))
        most = (1 - EXPLAINED) * truth.square().mean()
        telling = tuned[error <= most]
        # Each rate counts by how far its nearest iterates are, on what it is tuned on.
        missed = {}
        paths = {}
        for rate in RATES:
            path = self.path(power, rate)
            apart = _squares(telling, path[..., some])
            nearest = least(apart.mean((2, 3)).numpy())
            missed[rate] = float(nearest.sum())
            paths[rate] = path
        chosen = min(RATES, key=missed.__getitem__)
        return chosen, paths[chosen]


@measurement("newton/iterates")
def iterates(lab: Lab) -> DataArray:
    """Squared distances of read-outs, in shares of the mean square of f(x).

    Axes are (depth, comparison, unit): from f(x), then from the iterates of each family (`row_of`).
    Depth counts the blocks passed. A unit is a group of functions.
    """
    n_functions = (TUNING + GROUP) * lab.n_units
    drawn = lab.task.sample(n_functions, generator(lab.seed, "newton"), dtype=torch.float64)
    asked = lengths(lab)
    sample = Sample.of(lab, drawn, asked)
    said = torch.stack([sample.read(each) for each in _streams(lab, drawn, asked)])

    # What read-outs are compared with, each family at its best rate.
    names = [TRUTH]
    compared = [sample.truth[None]]
    rates = []
    for name, power in POWERS.items():
        rate, path = sample.nearest(said, power)
        rates.append(f"{name} {rate}")
        names += [row_of(name, k) for k in EXPONENTS]
        compared.append(path)

    # Mean squares of a unit, on the functions that nothing was fitted on.
    judging = slice(sample.tuning, None)
    apart = _squares(said, torch.cat(compared))[..., judging].mean(2)
    by_unit = apart.unflatten(-1, (-1, GROUP)).mean(-1)
    shares = by_unit / sample.truth[:, judging].square().mean()
    axes = {"depth": tuple(range(len(said))), "comparison": tuple(names)}
    examples = ", ".join(map(str, asked))
    note = f"{examples} examples; units of {GROUP} functions; rates {', '.join(rates)}"
    return make_array(shares.numpy(), {**axes, "unit": tuple(range(lab.n_units))}, note=note)


def _streams(
    lab: Lab, drawn: Prompts, asked: Sequence[int]
) -> Iterator[Float[Tensor, "length function d_model"]]:
    """The stream at the query, before the first block and after each."""
    names = depths(lab.model)
    probes = []
    sweeps = []
    for n in asked:
        probe = Activations(names)
        probes.append(probe)
        sweeps.append(lab.ask(prompts=drawn, n_points=n + 1, probes=[probe]))
    lab.run(sweeps)
    recorded = [probe.recorded for probe in probes]
    for name in names:
        yield torch.stack([each[name][:, -1] for each in recorded]).double()


def _squares(said: Tensor, others: Tensor) -> Float[Tensor, "depth other length function"]:
    """Squared distances of every read-out from every other."""
    return (said[:, None] - others).square()
