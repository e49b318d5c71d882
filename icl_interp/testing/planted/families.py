"""Families of models with a planted algorithm: each draws one, with the truth about it.

All of them are linear in the labels, have no norm, and predict well enough for a circuit to have
something to keep. Several are constructions of the study `limits` or of `models.constructed`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.baselines.base import INPUTS
from icl_interp.baselines.local import NadarayaWatson
from icl_interp.baselines.moments import Descent
from icl_interp.experiments.calibration import Case
from icl_interp.models import constructed
from icl_interp.models.blank import blank
from icl_interp.models.tokens import Encoding, Interleaved, Stacked
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.influence import hat_rows
from icl_interp.prompts import Prompts
from icl_interp.studies.limits.constructions import mechanisms
from icl_interp.studies.limits.constructions.layers import number
from icl_interp.studies.limits.constructions.trainings import constants
from icl_interp.tasks.base import Task
from icl_interp.tasks.distributions import Uniform
from icl_interp.tasks.functions import Polynomial
from icl_interp.tasks.regression import LinearRegression
from icl_interp.testing.planted.base import Truth, after, edges

Drawn = tuple[HookedTransformer, Task, Encoding, Truth]
N_POINTS = 20  # of most prompts
SHARP = 30.0  # a score above the others: they have weights of exp(-30)
HIDDEN = 1e3  # below all scores of a smoother
LABEL_ROLE = ("head 0.0", "labels")


# ---- steps of descent ----------------------------------------------------------------------------


def one_step(g: torch.Generator) -> Drawn:
    """One head takes a step of gradient descent."""
    carried = {
        "labels": edges("read-in > head 0.0 v", "head 0.0 > read-out"),
        "query": edges("read-in > head 0.0 q", "head 0.0 > read-out"),
    }
    case = _shorter(mechanisms.step_in_layers(g, 1.0))
    return _of_case(
        case,
        parts=frozenset({"head 0.0"}),
        edges=carried["labels"] | carried["query"] | edges("read-in > head 0.0 k"),
        carried=carried,
        hat=_step_of(case),
        readable=after(0),
        used=after(0),
    )


def two_shares(g: torch.Generator) -> Drawn:
    """Two heads in two layers take a share of the same step each."""
    share = number(g, 0.35, 0.65)
    case = _shorter(mechanisms.step_in_layers(g, share, 1 - share))
    written = edges("head 0.0 > read-out", "head 1.0 > read-out")
    carried = {
        "labels": written | edges("read-in > head 0.0 v", "read-in > head 1.0 v"),
        "query": written | edges("read-in > head 0.0 q", "read-in > head 1.0 q"),
    }
    keys = edges("read-in > head 0.0 k", "read-in > head 1.0 k")
    return _of_case(
        case,
        parts=frozenset({"head 0.0", "head 1.0"}),
        edges=carried["labels"] | carried["query"] | keys,
        carried=carried,
        hat=_step_of(case),
        readable=after(0, 1),
        used=after(0, 1),
    )


def relay(g: torch.Generator) -> Drawn:
    """A head takes the step where no read-out looks, and one of the next layer carries it there."""
    case = _shorter(mechanisms.step_elsewhere(g))
    with torch.no_grad():
        # The query attends to itself with a weight of 1.
        case.model.blocks[1].attn.b_Q[0, 0] = N_POINTS - 1
    way = edges("head 0.0 > head 1.0 v", "head 1.0 > read-out")
    carried = {
        "labels": way | edges("read-in > head 0.0 v"),
        "query": way | edges("read-in > head 0.0 q"),
    }
    return _of_case(
        case,
        parts=frozenset({"head 0.0", "head 1.0"}),
        edges=carried["labels"] | carried["query"] | edges("read-in > head 0.0 k"),
        carried=carried,
        hat=_step_of(case),
        readable=after(0, 1),
        used=after(0, 1),
    )


def two_steps(g: torch.Generator) -> Drawn:
    """Two steps of descent in two layers: the second head reads residuals of the first."""
    task = LinearRegression(n_dims=2, n_points=N_POINTS)
    sizes = (number(g, 0.75, 0.9), number(g, 0.75, 0.9))
    model = constructed.descent(task.n_points, sizes, task.dim)
    way = edges("head 0.0 > read-out", "head 1.0 > read-out")
    labels = edges("read-in > head 0.0 v", "head 0.0 > head 1.0 v", "read-in > head 1.0 v")
    queries = edges("read-in > head 0.0 q", "read-in > head 1.0 q")
    keys = edges("read-in > head 0.0 k", "read-in > head 1.0 k")
    truth = Truth(
        parts=frozenset({"head 0.0", "head 1.0"}),
        edges=way | labels | queries | keys,
        carried={"labels": way | labels, "query": way | queries},
        hat=lambda prompts: hat_rows(Descent(INPUTS, sizes), prompts),
        readable=after(1),
        used=after(1),
        undecided=after(0),
    )
    return model, task, Stacked(), truth


# ---- softmax -------------------------------------------------------------------------------------


def smoother(g: torch.Generator) -> Drawn:
    """An MLP makes the squares of inputs, and a head averages labels with a Gaussian kernel."""
    law = Uniform(-1, 1)
    task = Polynomial(degrees=(0, 1, 2), inputs=law, coefficients=law, n_points=40)
    case = _shorter(mechanisms.smoother(g, task))
    model = case.model
    attention = model.blocks[1].attn
    precision = float(attention.W_Q.detach().abs().max())
    with torch.no_grad():
        # The query is hidden from itself by less: decoys cancel up to rounding only.
        attention.W_K.clamp_(min=-HIDDEN)
    carried = {
        "labels": edges("read-in > head 1.0 v", "head 1.0 > read-out"),
        "query": edges("read-in > head 1.0 q", "head 1.0 > read-out"),
    }
    keys = edges("read-in > MLP 0", "MLP 0 > head 1.0 k", "read-in > head 1.0 k")
    return _of_case(
        case,
        parts=frozenset({"MLP 0", "head 1.0"}),
        edges=carried["labels"] | carried["query"] | keys,
        carried=carried,
        hat=lambda prompts: hat_rows(NadarayaWatson(precision / 2), prompts),
        roles=frozenset({("head 1.0", "neighbours")}),
        open_roles=frozenset({("head 1.0", "duplicates")}),
        readable=after(1),
        used=after(1),
        undecided=after(0),
    )


def places(g: torch.Generator) -> Drawn:
    """A head averages the labels of one to three examples that it knows by their places."""
    task = constants(n_points=10)
    n_used = int(torch.randint(1, 4, (), generator=g))
    used = torch.randperm(task.n_points - 1, generator=g)[:n_used]
    model = _averaging(task, used)
    way = edges("read-in > head 0.0 v", "head 0.0 > read-out")
    truth = Truth(
        parts=frozenset({"head 0.0"}),
        edges=way,
        carried={"labels": way},
        hat=lambda prompts: _even(prompts, used),
        roles=frozenset({LABEL_ROLE}),
        readable=after(0),
        used=after(0),
    )
    return model, task, Interleaved(), truth


def by_mlp(g: torch.Generator) -> Drawn:
    """A head averages all labels, and an MLP carries the mean to the read-out.

    gelu(z) - gelu(-z) = z, so the MLP passes on what it reads.
    """
    task = constants(n_points=10)
    every = torch.arange(task.n_points - 1)
    model = _averaging(task, every, d_mlp=2)
    size = number(g, 0.5, 2)
    mlp = model.blocks[0].mlp
    both = torch.tensor([1.0, -1.0])
    with torch.no_grad():
        mlp.W_in[WRITTEN] = size * both
        mlp.W_out[:, PASSED] = both / size
        model.unembed.W_U.zero_()
        model.unembed.W_U[PASSED, 0] = 1
    way = edges("read-in > head 0.0 v", "head 0.0 > MLP 0", "MLP 0 > read-out")
    truth = Truth(
        parts=frozenset({"head 0.0", "MLP 0"}),
        edges=way,
        carried={"labels": way},
        hat=lambda prompts: _even(prompts, every),
        roles=frozenset({LABEL_ROLE}),
        readable=after(0),
        used=after(0),
    )
    return model, task, Interleaved(), truth


def pairs(g: torch.Generator) -> Drawn:
    """A head writes each token's predecessor beside it; the next layer compares the query with it.

    So labels are averaged with weights exp(beta x x_j), as their own inputs stand beside them.
    """
    task = LinearRegression(n_dims=1, inputs=Uniform(-1, 1), n_points=8)
    n_tokens = 2 * task.n_points
    beta = number(g, 3, 5)
    model = blank(
        COPIED + 1 + n_tokens,
        n_layers=2,
        d_head=n_tokens,
        n_ctx=n_tokens,
        positional_embedding_type="standard",
    )
    spots = slice(COPIED + 1, None)
    eye = torch.eye(n_tokens, dtype=torch.float64)
    first = model.blocks[0].attn
    second = model.blocks[1].attn
    with torch.no_grad():
        # Each place has a coordinate; the first head's queries are those of the place before.
        model.embed.W_E[0, TOKEN] = 1
        model.pos_embed.W_pos[:, spots] = eye
        model.pos_embed.W_pos[1::2, MARK] = 1
        first.W_Q[0, spots] = SHARP * eye.roll(-1, 1)
        first.W_K[0, spots] = eye
        first.W_V[0, TOKEN, 0] = 1
        first.W_O[0, 0, COPIED] = 1
        # The second compares inputs at labels, and reads these.
        second.W_Q[0, TOKEN, 0] = beta
        second.W_K[0, COPIED, 0] = 1
        second.b_Q[0, 1] = SHARP
        second.W_K[0, MARK, 1] = 1
        second.W_V[0, TOKEN, 0] = 1
        second.W_O[0, 0, WRITTEN] = 1
        model.unembed.W_U[WRITTEN, 0] = 1
    carried = {
        "labels": edges("read-in > head 1.0 v", "head 1.0 > read-out"),
        "query": edges("read-in > head 1.0 q", "head 1.0 > read-out"),
    }
    keys = edges("read-in > head 0.0 v", "head 0.0 > head 1.0 k")
    own = {("head 0.0", "previous token"), ("head 0.0", "pairs a value with its input")}
    truth = Truth(
        parts=frozenset({"head 0.0", "head 1.0"}),
        edges=carried["labels"] | carried["query"] | keys,
        carried=carried,
        hat=lambda prompts: _tilted(prompts, beta),
        roles=frozenset({*own, ("head 1.0", "labels")}),
        open_roles=frozenset({("head 1.0", "neighbours"), ("head 1.0", "duplicates")}),
        readable=after(1),
        used=after(1),
        undecided=after(0),
    )
    return model, task, Interleaved(), truth


FAMILIES: dict[str, Callable[[torch.Generator], Drawn]] = {
    "one step": one_step,
    "two shares": two_shares,
    "relay": relay,
    "two steps": two_steps,
    "smoother": smoother,
    "places": places,
    "by MLP": by_mlp,
    "pairs": pairs,
}
# Coordinates of the streams that are laid out here.
TOKEN, MARK, WRITTEN, PASSED = range(4)
COPIED = 3


def _averaging(task: Task, used: Tensor, **change: Any) -> HookedTransformer:
    """A head that averages the labels of some examples, known by their places."""
    n_tokens = 2 * task.n_points
    model = blank(
        4,
        d_head=1,
        n_ctx=n_tokens,
        positional_embedding_type="standard",
        attn_only=not change,
        **change,
    )
    attention = model.blocks[0].attn
    with torch.no_grad():
        model.embed.W_E[0, TOKEN] = 1
        model.pos_embed.W_pos[2 * used + 1, MARK] = 1
        attention.b_Q[0, 0] = SHARP
        attention.W_K[0, MARK, 0] = 1
        attention.W_V[0, TOKEN, 0] = 1
        attention.W_O[0, 0, WRITTEN] = 1
        model.unembed.W_U[WRITTEN, 0] = 1
    return model


def _shorter(case: Case) -> Case:
    """On prompts of half the length: a step divides by the number of examples that it sees.

    The place of the query is marked where it is now.
    """
    assert isinstance(case.task, (LinearRegression, Polynomial))
    task = replace(case.task, n_points=N_POINTS)
    if case.model.cfg.positional_embedding_type == "standard":
        places = case.model.pos_embed.W_pos
        with torch.no_grad():
            places[N_POINTS - 1] = places[-1]
            places[N_POINTS:] = 0
    return replace(case, task=task)


def _of_case(case: Case, **truth: Any) -> Drawn:
    """Of a construction."""
    task = case.task
    assert task is not None
    encoding = case.reads()
    planted = Truth(**truth)
    return case.model, task, encoding, planted


# ---- weights of examples -------------------------------------------------------------------------


def _step_of(case: Case) -> Callable[[Prompts], Float[Tensor, "batch example"]]:
    """rate x_j x / n."""
    rate = float(case.model.blocks[0].attn.W_Q.detach().abs().max())

    def hat(prompts: Prompts) -> Tensor:
        products = _products(prompts)
        n_examples = products.shape[1]
        return rate * products / n_examples

    return hat


def _even(prompts: Prompts, used: Tensor) -> Tensor:
    """The same weight for some examples, 0 for others."""
    labels = prompts.ys[:, :-1, 0]
    weights = torch.zeros_like(labels, dtype=torch.float64)
    weights[:, used] = 1 / len(used)
    return weights


def _tilted(prompts: Prompts, beta: float) -> Tensor:
    """exp(beta x x_j), over their sum."""
    scores = beta * _products(prompts)
    return scores.softmax(1)


def _products(prompts: Prompts) -> Tensor:
    """x_j x, (batch, example)."""
    xs = prompts.xs.double()
    numbers = xs[..., 0]
    query = numbers[:, -1:]
    return numbers[:, :-1] * query
