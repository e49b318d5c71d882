"""What examples do to the last MLP's first matrix W, and the gradient of their own losses in W.

All that comes before the last MLP is taken as the contextual layer A of Dherin et al. (2025). After
n examples, W has the update of rank one that makes up for them when the query is read alone, and
what the MLP writes has a bias. A step is the change of W by one more example.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.interventions.base import intervene
from icl_interp.interventions.updates import ImplicitUpdate, read_by_mlp
from icl_interp.probes.base import observe
from icl_interp.probes.record import Activations
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.results import make_array

REMOVED = ("all examples", "half of them")
# Numbers of each prompt: how far the update is from the context, what leaving the update of W out
# does, both in predictions, and the label.
APART = "difference"
WITHOUT = "without the matrix"
LABEL = "label"
# Numbers of each step: the cosine with its own example's descent step, and with another's, each
# with the largest that there is; and the size, with own labels and with those of other functions.
OWN = "own example"
OWN_MOST = "own example, largest"
OTHER = "another example"
OTHER_MOST = "another example, largest"
SIZE = "size"
FOREIGN = "size, labels of other functions"
NUMBERS = (OWN, OWN_MOST, OTHER, OTHER_MOST, SIZE, FOREIGN)
FIRST = 2  # examples before the first step
N_STEPS = 8
FEWEST = 6  # examples, for steps at different numbers of them
# Of the largest: hidden units that matter less, and directions that W reads less, are none.
ROUNDING = 1e-9

Hidden = Float[Tensor, "batch d_mlp"]
Stream = Float[Tensor, "batch d_model"]
Numbers = Float[Tensor, "batch target"]


class State(NamedTuple):
    """What W reads at the query, the stream beside it, and the prediction."""

    read: Stream
    stream: Stream
    said: Numbers


class Pull(NamedTuple):
    """The derivative of a prediction in hidden units, its error, and what W reads there."""

    slope: Hidden
    error: Numbers
    read: Stream


def excluded(facts: Facts) -> str | None:
    """Why a model has no MLP that a context could be put into."""
    config = facts.config
    if config.attn_only:
        return "The claim is about an MLP behind attention; this model has none (attn_only)."
    if config.mlp_only:
        return "The claim is about what attention reads; this model has none (mlp_only)."
    if config.keys == "labelled":
        return (
            "Its attention reads labelled examples alone (keys='labelled'), so there is nothing "
            "that it makes of a query without any."
        )
    if getattr(facts.task, "autoregressive", False):
        return "Its prompts are paths, whose last state cannot stand without those before it."
    if facts.n_points <= FEWEST:
        return (
            f"Its prompts have {facts.n_points - 1} examples; {FEWEST} are needed to see steps "
            "change with their number."
        )
    return None


def taken(prompts: Prompts, places: Sequence[int]) -> Prompts:
    """Some points of each prompt; the last of these is its query."""
    xs = prompts.xs[:, list(places)]
    ys = prompts.ys[:, list(places)]
    return replace(prompts, xs=xs, ys=ys)


def some(prompts: Prompts, n_examples: int) -> Prompts:
    """The first examples of each prompt, and its query."""
    return taken(prompts, [*range(n_examples), prompts.n_points - 1])


def state(lab: Lab, prompts: Prompts) -> State:
    """At the query of each prompt."""
    tokens = lab.tokens(prompts)
    cfg = lab.model.cfg
    names = [read_by_mlp(cfg), f"blocks.{cfg.n_layers - 1}.hook_resid_mid"]
    probe = Activations(sorted(set(names)))
    query = {"query": [tokens.shape[1] - 1]}
    with torch.no_grad(), observe(lab.model, probe, positions=query):
        said = lab.model(tokens)[:, -1]
    read, stream = [probe.recorded[name][:, 0] for name in names]
    return State(read.to(said), stream.to(said), said)


def update(lab: Lab, whole: State, part: State) -> ImplicitUpdate:
    """What makes up for the examples that `part` lacks (`theory.implicit_update.rank_one`)."""
    column = (whole.read - part.read) @ lab.model.blocks[-1].mlp.W_in
    row = part.read / part.read.square().sum(-1, keepdim=True)
    return ImplicitUpdate(column, row, whole.stream - part.stream)


def pull(lab: Lab, change: ImplicitUpdate, point: Prompts) -> Pull:
    """Of each prompt's point, read alone by the model with this prompt's update."""
    hidden = torch.zeros_like(change.column, requires_grad=True)
    edit = replace(change, hidden=hidden)
    with torch.enable_grad(), intervene(lab.model, edit):
        said = lab.model(lab.tokens(point))[:, -1]
        (slope,) = torch.autograd.grad(said.sum(), hidden)
    error = said.detach() - point.ys[:, -1].to(said)
    read = state(lab, point).read
    return Pull(slope, error, read)


def starts(n_examples: int) -> list[int]:
    """Numbers of examples before the steps that are asked, spaced evenly in the logarithm.

    >>> starts(20)
    [2, 3, 4, 5, 7, 10, 14, 19]
    """
    spaced = np.geomspace(FIRST, n_examples - 1, N_STEPS)
    return sorted({round(n) for n in spaced.tolist()})


def sample(lab: Lab) -> Prompts:
    """One whole prompt of each function."""
    stream = generator(lab.seed, "implicit update")
    return lab.task.sample(lab.n_units, stream, dtype=torch.float64)


@measurement("implicit update/identity")
def identity(lab: Lab) -> DataArray:
    """Predictions with the update in place of examples: (number, removed, unit)."""
    prompts = sample(lab)
    n_examples = prompts.n_points - 1
    whole = state(lab, prompts)
    label = prompts.ys[:, -1].to(whole.said)
    # All examples are put into the weights, and half of them.
    values = []
    for kept in (0, n_examples // 2):
        shorter = some(prompts, kept)
        change = update(lab, whole, state(lab, shorter))
        nothing = torch.zeros_like(change.column)
        apart = said_under(lab, change, shorter) - whole.said
        without = said_under(lab, replace(change, column=nothing), shorter) - whole.said
        values.append(torch.cat([apart, without, label], 1))
    units = tuple(range(lab.n_units))
    axes = {"removed": REMOVED, "unit": units, "number": (APART, WITHOUT, LABEL)}
    note = f"{lab.n_units} functions, a prompt of each"
    return make_array(torch.stack(values).cpu().numpy(), axes, note=note)


def said_under(lab: Lab, change: ImplicitUpdate, prompts: Prompts) -> Numbers:
    """Predictions for queries under each prompt's own update."""
    with torch.no_grad(), intervene(lab.model, change):
        return lab.model(lab.tokens(prompts))[:, -1]


def shuffled_labels(prompts: Prompts) -> Prompts:
    """The same inputs, and at each the label that another function has there in its own prompt."""
    others = max(1, len(prompts) - 1)
    columns = []
    for place in range(prompts.n_points):
        column = prompts.ys[:, place].roll(1 + place % others, 0)
        columns.append(column)
    return replace(prompts, ys=torch.stack(columns, 1))


def moved(lab: Lab, prompts: Prompts, lengths: Sequence[int]) -> dict[int, ImplicitUpdate]:
    """The update that stands for the first n examples and for one more, by the number of these."""
    query = state(lab, some(prompts, 0))
    found: dict[int, ImplicitUpdate] = {}
    for n in lengths:
        for n_examples in (n, n + 1):
            if n_examples not in found:
                after = state(lab, some(prompts, n_examples))
                found[n_examples] = update(lab, after, query)
    return found


@measurement("implicit update/steps")
def steps(lab: Lab) -> DataArray:
    """Each step beside descent on the example that it takes in: (examples, number, unit)."""
    prompts = sample(lab)
    asked = starts(prompts.n_points - 1)
    alone = some(prompts, 0)
    query = state(lab, alone).read
    after = moved(lab, prompts, asked)
    foreign = moved(lab, shuffled_labels(prompts), asked)
    slopes = torch.stack([pull(lab, after[n], alone).slope for n in asked])
    scale = Scale.of(slopes, lab.model.blocks[-1].mlp.W_in)

    values = []
    for place, n in enumerate(asked):
        step = after[n + 1].column - after[n].column
        unlearnt = foreign[n + 1].column - foreign[n].column
        rows = []
        # What the next example pulls at, and the one that the step before took in (at the first
        # step the last one does).
        for example in (n, asked[place - 1]):
            change = replace(after[n], row=scale.row(query))
            pulled = pull(lab, change, taken(prompts, [example]))
            rows += scale.cosines(step, query, pulled)
        rows += [scale.size(step), scale.size(unlearnt)]
        values.append(torch.stack(rows))
    units = tuple(range(lab.n_units))
    axes = {"examples": tuple(asked), "number": NUMBERS, "unit": units}
    note = f"{lab.n_units} functions, a prompt of each"
    return make_array(torch.stack(values).cpu().numpy(), axes, note=note)


class Scale(NamedTuple):
    """How changes of hidden units, and what W reads, are measured.

    Weights of one function differ in hidden units that write nothing, units that are split in two,
    and coordinates of the stream that W does not read. None of these changes what is found here.

    Attributes:
        matter: which hidden units the prediction for the query depends on.
        weights: of these: the root mean square derivative.
        basis: orthonormal, of the directions of the stream that they read.
    """

    matter: Bool[Tensor, " d_mlp"]
    weights: Float[Tensor, " unit"]
    basis: Float[Tensor, "d_model rank"]

    @classmethod
    def of(
        cls, slopes: Float[Tensor, "step batch d_mlp"], matrix: Float[Tensor, "d_model d_mlp"]
    ) -> Self:
        """From derivatives of predictions in all units, and the matrix that these read by."""
        weights = slopes.square().mean((0, 1)).sqrt()
        matter = weights > ROUNDING * weights.max()
        basis, sizes, _ = torch.linalg.svd(matrix[:, matter], full_matrices=False)
        if len(sizes):
            basis = basis[:, sizes > ROUNDING * sizes[0]]
        return cls(matter, weights[matter], basis)

    def row(self, read: Stream) -> Stream:
        """The row of an update that reads no more than these units read."""
        seen = read @ self.basis @ self.basis.T
        return seen / seen.square().sum(-1, keepdim=True)

    def size(self, change: Hidden) -> Float[Tensor, " batch"]:
        """Length of a change of hidden units."""
        squares = change[:, self.matter].square()
        return (squares @ self.weights).sqrt()

    def cosines(self, step: Hidden, query: Stream, one: Pull) -> tuple[Tensor, Tensor]:
        """The cosine of a step with descent on an example's loss, and the largest there is.

        Both are of rank one: hidden units by what W reads, at the query and at the example. Where
        nothing moves or nothing is wrong the cosine is 0.
        """
        gradient = one.error * one.slope[:, self.matter]
        inner = -(step[:, self.matter] * gradient).sum(-1)
        length = (gradient.square() / self.weights).sum(-1).sqrt()
        columns = torch.nan_to_num(inner / (self.size(step) * length))
        rows = torch.cosine_similarity(query @ self.basis, one.read @ self.basis)
        return columns * rows, rows.abs()
