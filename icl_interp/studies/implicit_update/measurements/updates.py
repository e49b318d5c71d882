"""What examples do to the last MLP's first matrix W, and the gradient of their own losses in W.

All that comes before the last MLP is the contextual layer of Dherin et al. (2025). After n examples
W has the update of rank one that makes up for them when the query is read alone, and what the MLP
writes has a bias. A step is the change of W by one more example.
"""

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

# Of each prompt: how far the update, and its bias alone, are from examples, the label, and the
# prediction with all examples.
APART = "difference"
WITHOUT = "without the matrix"
LABEL = "label"
SAID = "prediction"
# Of each step: the cosine with an example's descent step, and the largest that there can be.
OWN = ("own example", "own example, largest")
OTHER = ("another example", "another example, largest")
FIRST = 2  # examples before the first step
N_STEPS = 4
N_SHUFFLES = 3
FEWEST = 6  # examples, for steps at different numbers of them
ROUNDING = 1e-9  # of the largest: units that matter less, and directions read less, are none

Hidden = Float[Tensor, "batch d_mlp"]
Stream = Float[Tensor, "batch d_model"]


class State(NamedTuple):
    """What W reads at the query, the stream beside it, and the prediction."""

    read: Stream
    stream: Stream
    said: Float[Tensor, "batch target"]


def excluded(facts: Facts) -> str | None:
    """Why a model has no MLP that a context could be put into."""
    config = facts.config
    n_examples = facts.n_points - 1
    if config.attn_only or config.mlp_only:
        return "The claim is about an MLP behind attention; this model lacks one of them."
    if config.keys == "labelled":
        return (
            "Its attention reads only labelled examples (keys='labelled'), and a query alone has "
            "none."
        )
    if getattr(facts.task, "autoregressive", False):
        return (
            "Its prompts are paths, and the last state of a path cannot be read without those "
            "before it."
        )
    if n_examples < FEWEST:
        return (
            f"Its prompts have {n_examples} examples; steps after different numbers of examples "
            f"need {FEWEST}."
        )
    return None


def some(prompts: Prompts, n_examples: int, query: int = -1) -> Prompts:
    """The first examples of each prompt, and its query, which may be another point."""
    places = [*range(n_examples), query]
    return replace(prompts, xs=prompts.xs[:, places], ys=prompts.ys[:, places])


def state(lab: Lab, prompts: Prompts, change: ImplicitUpdate | None = None) -> State:
    """At the query of each prompt, under its own update if there is one."""
    model = lab.model
    tokens = lab.tokens(prompts)
    names = [read_by_mlp(model.cfg), f"blocks.{model.cfg.n_layers - 1}.hook_resid_mid"]
    probe = Activations(sorted(set(names)))
    edits = [change] if change else []
    query = {"query": [tokens.shape[1] - 1]}
    with intervene(model, *edits), observe(model, probe, positions=query):
        said = model(tokens)[:, -1]
    read, stream = [probe.recorded[name][:, 0].detach() for name in names]
    return State(read.to(said), stream.to(said), said)


def update(lab: Lab, whole: State, part: State) -> ImplicitUpdate:
    """What makes up for the examples that `part` lacks (`theory.implicit_update.rank_one`)."""
    column = (whole.read - part.read) @ lab.model.blocks[-1].mlp.W_in
    row = part.read / part.read.square().sum(-1, keepdim=True)
    return ImplicitUpdate(column, row, whole.stream - part.stream)


def slope(lab: Lab, change: ImplicitUpdate, point: Prompts) -> tuple[Hidden, State]:
    """The derivative in hidden units of the prediction for a point read alone under the update."""
    hidden = torch.zeros_like(change.column, requires_grad=True)
    with torch.enable_grad():
        found = state(lab, point, replace(change, hidden=hidden))
        (derivative,) = torch.autograd.grad(found.said.sum(), hidden)
    return derivative, found


def starts(n_examples: int) -> list[int]:
    """Numbers of examples before the steps that are asked, which all leave an example.

    >>> starts(20)
    [2, 4, 9, 18]
    """
    spaced = np.geomspace(FIRST, n_examples - 2, N_STEPS)
    return sorted({round(n) for n in spaced.tolist()})


def sample(lab: Lab) -> Prompts:
    """One whole prompt of each function."""
    stream = generator(lab.seed, "implicit update")
    return lab.task.sample(lab.n_units, stream, dtype=torch.float64)


@measurement("implicit update/identity", version=2)
@torch.no_grad()
def identity(lab: Lab) -> DataArray:
    """Predictions with the update in place of all examples: (number, unit)."""
    prompts = sample(lab)
    whole = state(lab, prompts)
    alone = some(prompts, 0)
    change = update(lab, whole, state(lab, alone))
    bias = replace(change, column=torch.zeros_like(change.column))
    apart = state(lab, alone, change).said - whole.said
    without = state(lab, alone, bias).said - whole.said
    values = torch.cat([apart, without, prompts.ys[:, -1].to(apart), whole.said], 1).T
    axes = {"number": (APART, WITHOUT, LABEL, SAID), "unit": tuple(range(lab.n_units))}
    return make_array(values.cpu().numpy(), axes)


@measurement("implicit update/steps")
@torch.no_grad()
def steps(lab: Lab) -> DataArray:
    """Each step beside descent on the example that it takes in: (examples, number, unit)."""
    prompts = sample(lab)
    n_examples = prompts.n_points - 1
    asked = starts(n_examples)
    alone = some(prompts, 0)
    query = state(lab, alone)
    after: dict[int, ImplicitUpdate] = {}
    for n in asked:
        for seen in (n, n + 1):
            after[seen] = update(lab, state(lab, some(prompts, seen)), query)
    slopes = torch.stack([slope(lab, after[n], alone)[0] for n in asked])
    scale = Scale.of(slopes, lab.model.blocks[-1].mlp.W_in)

    values = []
    for n in asked:
        step = after[n + 1].column - after[n].column
        change = replace(after[n], row=scale.row(query.read))
        # The example that the step takes in, and those that it would in other orders of the rest.
        of_each = []
        for example in range(n, min(n + 1 + N_SHUFFLES, n_examples)):
            point = some(prompts, 0, example)
            derivative, at = slope(lab, change, point)
            gradient = (at.said.detach() - point.ys[:, -1].to(step)) * derivative
            of_each.append(scale.cosines(step, query.read, gradient, at.read))
        others = torch.stack(of_each[1:]).mean(0)
        values.append(torch.cat([of_each[0], others]))
    axes = {"examples": asked, "number": OWN + OTHER, "unit": tuple(range(lab.n_units))}
    note = f"{lab.n_units} functions, a prompt of each"
    return make_array(torch.stack(values).cpu().numpy(), axes, note=note)


class Scale(NamedTuple):
    """How changes are measured: alike where units are split or idle, or coordinates not read."""

    matter: Bool[Tensor, " d_mlp"]  # which units the predictions for queries depend on
    weights: Float[Tensor, " unit"]  # of these: root mean square derivatives
    basis: Float[Tensor, "d_model rank"]  # orthonormal, of the directions that they read

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

    def cosines(
        self, step: Hidden, query: Stream, gradient: Hidden, read: Stream
    ) -> Float[Tensor, "2 batch"]:
        """The cosine of a step with descent on an example's loss, and the largest there is.

        Both are of rank one. Where nothing moves or nothing is wrong the cosine is 0.
        """
        moved, down = step[:, self.matter], -gradient[:, self.matter]
        lengths = (moved.square() @ self.weights) * (down.square() / self.weights).sum(-1)
        columns = torch.nan_to_num((moved * down).sum(-1) / lengths.sqrt())
        rows = torch.cosine_similarity(query @ self.basis, read @ self.basis)
        return torch.stack([columns * rows, rows.abs()])
