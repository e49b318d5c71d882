"""How far what each layer's stream says of f(x) is from Newton's iterates and steps of descent.

Along an eigenvector of S = X'X / n with eigenvalue l, iterate k of Newton's iteration for the
inverse of S, begun at M = a S, leaves (1 - a l^2)^(2^k) of the error; t steps of descent leave
(1 - a l)^t. Both are asked at exponents 2^k. What a layer says is the affine map of its stream that
predicts f(x) best on other functions. Iterates are read in the same way, so that one that is too
small counts at its right size.
"""

from typing import NamedTuple

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
from icl_interp.probes.readers import projected
from icl_interp.probes.record import Activations
from icl_interp.probes.residual import depths
from icl_interp.provenance import generator
from icl_interp.results import make_array

NEWTON = "Newton"
DESCENT = "descent"
POWERS = {NEWTON: 2, DESCENT: 1}  # of the eigenvalue in what a step leaves
STEP = 0.5
EXPONENTS = np.arange(-1.0, 12.25, STEP)  # k; below 0 for rates that are smaller than those asked
TRUTH = "f(x)"
NAMES = {family: [f"{family}, 2^{k:g}" for k in EXPONENTS] for family in POWERS}
TUNING = 16  # functions for each unit of the lab that read-outs and rates are fitted on
GROUP = 4  # ... and others that these are judged on: together they are a unit of the intervals
PENALTY = 1e-9  # of read-outs, which a change of coordinates of the stream must not change
# Rates a, in units of 1 / (largest eigenvalue of all prompts)^power: 0.25, 0.3, ..., 1.41. Smaller
# ones are not asked: with more iterates they do nearly the same.
RATES = 2 ** np.arange(-2.0, 0.75, 0.25)
EXPLAINED = 0.1  # of f(x): a read-out that explains less says nothing
Values = Float[Tensor, " function"]
Rows = Float[Tensor, "_ function"]
Apart = Float[np.ndarray, "*batch exponent"]


def examples(lab: Lab) -> int:
    """Examples in a prompt: 2 d where prompts of all lengths were trained on, else all.

    The fewer there are, the worse is S conditioned, and the longer do iterates stay apart.
    """
    whole = lab.task.n_points - 1
    direction = lab.model.cfg.attention_dir
    _, scored = lab.encoding.read_at(whole + 1, direction)
    if len(scored) == 1:
        return whole
    return min(2 * lab.task.dim, whole)


def iterate(seen: Diagonal, rate: Tensor, power: int, exponent: float) -> Values:
    """Predictions that leave (1 - rate l^power)^(2^exponent) of the error along eigenvectors of S.

    With a power of 2 it is Newton's iterate of this number, with 1 descent after 2^exponent steps.
    The rate is as the largest eigenvalues are. A base below 0, of a rate that is too large for a
    prompt, counts as 0.
    """
    base = 1 - rate * seen.spectrum**power
    left = base.clamp(min=0) ** (2.0**exponent)
    # Along directions without points h is 0.
    spectrum = seen.spectrum.clamp(min=1e-12)
    weights = (1 - left) / spectrum * seen.moment
    return (seen.query * weights).flatten(1).sum(-1)


def best(apart: Apart) -> np.ndarray:
    """The exponent of the least distance, by a parabola through it and both beside it.

    >>> best((EXPONENTS - 3.2) ** 2).round(9).item()
    3.2
    """
    place = apart.argmin(-1)[..., None]
    place = place.clip(1, len(EXPONENTS) - 2)
    low = np.take_along_axis(apart, place - 1, -1)
    here = np.take_along_axis(apart, place, -1)
    high = np.take_along_axis(apart, place + 1, -1)
    slope = (high - low) / 2
    bend = low - 2 * here + high
    # The parabola ends where its distances do.
    shift = -slope / np.maximum(bend, 1e-15)
    found = EXPONENTS[place] + STEP * shift.clip(-1, 1)
    return found[..., 0]


def squares(said: Rows, others: Rows) -> Float[Tensor, "said other function"]:
    """Squared distances of every read-out from every other."""
    return (said[:, None] - others).square()


class Sample(NamedTuple):
    """Functions, and what a prompt of each shows.

    Attributes:
        truth: f(x) at the query.
        seen: S, h and the query along eigenvectors of S.
        tuning: how many functions read-outs and rates are fitted on: the first ones.
    """

    truth: Values
    seen: Diagonal
    tuning: int

    def read(self, each: Float[Tensor, "function width"]) -> Values:
        """The read-out of a stream or an iterate."""
        known = self.truth[: self.tuning, None]
        found = read_out(each[: self.tuning], known, each, PENALTY)
        return found[:, 0]

    def nearest(self, said: Rows, power: int) -> Rows:
        """Read-outs of a family, at the rate that is nearest to the layers that say something."""
        some = slice(self.tuning)
        truth = self.truth[some]
        error = (said[:, some] - truth).square().mean(-1)
        telling = said[error <= (1 - EXPLAINED) * truth.square().mean()]
        # Each prompt's own rate, and rates that all prompts have.
        largest = self.seen.spectrum.amax(-2, keepdim=True)
        own = largest**-power
        rates = [own]
        for share in RATES:
            rates.append(share * own.min())
        paths = []
        missed = []
        for rate in rates:
            path = []
            for k in EXPONENTS:
                each = iterate(self.seen, rate, power, float(k))
                path.append(self.read(each[:, None]))
            paths.append(torch.stack(path))
            apart = squares(telling[:, some], paths[-1][:, some]).mean(-1)
            missed.append(apart.amin(-1).sum())
        return paths[int(np.argmin(missed))]


@measurement("newton/iterates", version=2)
def iterates(lab: Lab) -> DataArray:
    """Squared distances of read-outs, in shares of the mean square of f(x).

    Axes are (depth, comparison, unit): from f(x), then from each family's iterates (`NAMES`).
    Depth counts the blocks passed. A unit is a group of functions.
    """
    tuning = TUNING * lab.n_units
    n = tuning + GROUP * lab.n_units
    drawn = lab.task.sample(n, generator(lab.seed, "newton"), dtype=torch.float64)
    n_examples = examples(lab)
    shown = drawn.first(n_examples + 1)
    values = lab.task.targets(shown.parameters, shown.xs)
    truth = values[:, -1, 0]
    seen = Moments.of_query(INPUTS, shown).diagonalised()
    sample = Sample(truth, seen, tuning)

    # What each layer's stream says at the query.
    probe = Activations(depths(lab.model))
    lab.run([lab.ask(prompts=shown, probes=[probe])])
    streams = []
    for stream in probe.recorded.values():
        at_query = stream[:, -1].double()
        streams.append(at_query)
    layers = []
    for stream in projected(lab.model, streams):
        layers.append(sample.read(stream))
    said = torch.stack(layers)

    # Distances from f(x) and from each family, on the functions that nothing was fitted on.
    rows = [TRUTH]
    compared = [truth[None]]
    for name, power in POWERS.items():
        rows += NAMES[name]
        compared.append(sample.nearest(said, power))
    apart = squares(said, torch.cat(compared))[..., tuning:]
    groups = apart.unflatten(-1, (-1, GROUP))
    shares = groups.mean(-1) / truth[tuning:].square().mean()
    axes = {"depth": tuple(range(len(said))), "comparison": tuple(rows)}
    axes["unit"] = tuple(range(lab.n_units))
    return make_array(shares.numpy(), axes, note=f"{n_examples} examples")
