"""The map that a model has made of its context, beside maps of known algorithms.

The map leads from the last state to the prediction.

A prompt is a path s_0, ..., s_T of which s_{T+1} is predicted. On the path the last state follows
from those before it, and all good algorithms say the same. So the last state is also replaced by
that of another prompt, drawn apart: a typical state that does not continue the path. What an
algorithm makes of it, and what the model makes of it, is a property of the map that the context has
become. Further last states lie between these two, or are longer or shorter. All are asked after
paths of every length that training scored.

Forms are A + c B with predictions A and B that the prompt gives, and a number c, one for all
prompts, that is chosen so that the form is nearest to the model: the step size of gradient descent
is such a number. What is kept of each unit are means of squares and products of f, A and B, of
which distances are made.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Complex, Float
from pandas import DataFrame
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.facts import Facts, needs_task
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.errors import InputError
from icl_interp.models.tokens import name_of
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.autoregression.measurements.parts import heads_in_use, in_use, layers_in_use
from icl_interp.studies.autoregression.measurements.unit import process_in, process_of
from icl_interp.tasks.autoregressive import AutoregressiveProcess, complex_states
from icl_interp.theory import autoregression as theory

MODEL = "the model"
STEP = "one gradient step"
TURN = "ratio of the last two states"
SQUARES = "least squares"
COPY = "the last state again"
ON_PATH = "its own last state"
ELSEWHERE = "that of another prompt"
BETWEEN = "between its own and another one"
RESIZED = "that of another prompt, longer or shorter"
LAST = (ON_PATH, ELSEWHERE, BETWEEN, RESIZED)
MOMENTS = ("|f|^2", "|f - A|^2", "<f - A, B>", "|B|^2", "|A|^2", "<A, B>")
N_OTHERS = 3  # other last states of each of the longest prompts
# Lengths of last states over the usual one lie between these, on a logarithmic scale.
LEAST = 0.5
MOST = 2.0
MOST_LENGTHS = 32  # lengths of prompts that are all asked; of more, so many are drawn
SINGULAR = 1e-9  # of the largest eigenvalue of a Gram matrix: what lies below is rounding
TINY = float(np.finfo(float).tiny)
States = Float[Tensor, "batch point coordinate"] | Complex[Tensor, "batch point coordinate"]


class Form(NamedTuple):
    """Predictions `fixed` + c `free` for the last point of each prompt: (batch, dim).

    They are real numbers.
    """

    fixed: Float[Tensor, "batch dim"]
    free: Float[Tensor, "batch dim"]


# ---- whom it is about ----------------------------------------------------------------------------


def commute(task: AutoregressiveProcess) -> bool:
    """Whether the task's matrices commute.

    Then they are diagonal in complex coordinates, pairs of numbers.
    """
    return task.matrices != "orthogonal"


def needs_paths(facts: Facts) -> str | None:
    """Why it is not attention that reads the paths of a process s_{t+1} = W s_t."""
    if reason := needs_task(facts, AutoregressiveProcess):
        return reason
    if facts.encoding not in ("states", "augmented"):
        return (
            "The claim is about prompts of states or augmented states; this model's are "
            f"{facts.encoding}"
        )
    if facts.config.mlp_only:
        return "The claim is about attention; this model has none (mlp_only)"
    return None


def predicted_form(task: AutoregressiveProcess, encoding: str, n_layers: int) -> str:
    """The form that the propositions name for a model of this shape: `STEP` or `TURN`.

    Args:
        task: of the paths.
        encoding: how the model reads them.
        n_layers: that write anything.

    Raises:
        InputError: they name none; the message says why.
    """
    if encoding == "augmented" and n_layers == 1:
        return STEP
    if encoding == "states" and n_layers == 2:
        return STEP
    if encoding == "states" and n_layers == 1 and commute(task):
        if task.start is None:
            return TURN
        raise InputError(
            "The claim is about paths of plain states that start at s_0 = 1; here s_0 is drawn"
        )
    kind = "plain" if encoding == "states" else encoding
    raise InputError(
        "The claim is about one layer on augmented states, one on plain states with matrices that "
        f"commute, and two on plain states; this model has {n_layers} on "
        f"{kind} states with {task.matrices} matrices"
    )


def form_in_use(task: AutoregressiveProcess, encoding: str, parts: DataFrame) -> str:
    """The form for the layers that predictions depend on, of `parts.in_use`.

    It is the form for all layers if predictions depend on none.

    Raises:
        InputError: neither has one.
    """
    try:
        return predicted_form(task, encoding, layers_in_use(parts))
    except InputError:
        return predicted_form(task, encoding, len(parts))


def needs_predicted_form(facts: Facts) -> str | None:
    """Why the work names no map for a model of this shape."""
    if reason := needs_paths(facts):
        return reason
    try:
        predicted_form(process_in(facts), facts.encoding, facts.config.n_layers)
    except InputError as reason:
        return str(reason)
    return None


# ---- forms ---------------------------------------------------------------------------------------


def forms(
    task: AutoregressiveProcess, xs: Float[Tensor, "batch point dim"], n_heads: int
) -> dict[str, Form]:
    """What algorithms predict after the last state of each path, up to a number c.

    * `STEP`: c sum_t s_t s_{t-1}^* s_T, one step of gradient descent from 0 on the errors of the
      prompt. Where matrices commute and a layer has two heads or more, * is that of complex
      coordinates: it takes two real heads.
    * `TURN`, where matrices commute: r s_T with r = s_T conj(s_{T-1}), entry by entry. That is what
      all minimisers of Propositions 3 and 6 predict where entries have size 1: the further term of
      Proposition 6, c (s_{T-1} - conj(r) s_T), is then 0, on the path and off it.
    * `SQUARES`: W s_T, W the least-squares solution of smallest norm of s_t = W s_{t-1}.
    * `COPY`: c s_T.

    Source: Sander, Giryes, Suzuki, Blondel & Peyré (2024), Propositions 1, 2, 3 and 6.

    Args:
        task: the law of the paths.
        xs: paths s_0, ..., s_T in the task's numbers, all copies.
        n_heads: of a layer of the model, different ones.

    >>> task = AutoregressiveProcess(n_dims=1, matrices="unitary", n_points=3)
    >>> turn = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]])  # s_t = i^t
    >>> found = forms(task, turn, n_heads=2)
    >>> # -i, and the sum of two such terms (+ 0: no -0)
    >>> found[TURN].fixed + 0.0, found[STEP].free + 0.0
    (tensor([[ 0., -1.]], dtype=torch.float64), tensor([[ 0., -2.]], dtype=torch.float64))
    """
    real = xs[..., : task.state_dim].double()
    states: States = complex_states(real) if commute(task) and n_heads > 1 else real
    last = states[:, -1]
    nothing = torch.zeros_like(real[:, -1])
    descended = theory.gradient_descent(states, 1.0, 1)
    step = (descended @ last[..., None])[..., 0]
    squares = solved(states, last)
    found = {
        STEP: Form(nothing, _numbers(step)),
        SQUARES: Form(_numbers(squares), nothing),
        COPY: Form(nothing, real[:, -1]),
    }
    if commute(task):
        paired = complex_states(real)
        turned = theory.unitary_map(paired) * paired[:, -1]
        found[TURN] = Form(_numbers(turned), nothing)
    # A token holds the state as often as the task says.
    tiled = {}
    for name, (fixed, free) in found.items():
        tiled[name] = Form(fixed.repeat(1, task.tiles), free.repeat(1, task.tiles))
    return tiled


def solved(states: States, last: Tensor) -> Tensor:
    """W u with the W of smallest norm that has the least sum of |s_t - W s_{t-1}|^2 over a path.

    Args:
        states: the paths.
        last: u of each, (batch, dim).
    """
    before = states[:, :-1]
    after = states[:, 1:]
    gram = before.mT @ before.conj()
    inverse = torch.linalg.pinv(gram, rtol=SINGULAR, hermitian=True)
    matrices = after.mT @ before.conj() @ inverse
    return (matrices @ last[..., None])[..., 0]


def _numbers(states: Tensor) -> Float[Tensor, "batch dim"]:
    """Real coordinates."""
    if not states.is_complex():
        return states
    parts = torch.view_as_real(states.resolve_conj())
    return parts.flatten(-2)


def moments(f: Float[Tensor, "batch dim"], form: Form) -> Float[Tensor, "batch moment"]:
    """`MOMENTS` of each prompt."""
    a, b = form
    rest = f - a
    pairs = ((f, f), (rest, rest), (rest, b), (b, b), (a, a), (a, b))
    products = [(one * other).sum(-1) for one, other in pairs]
    return torch.stack(products, -1)


def distance(means: np.ndarray, lowest: float = -np.inf) -> np.ndarray:
    """E|f - A - c B|^2 over the larger of E|f|^2 and E|A + c B|^2.

    c is the one c >= `lowest` at which the numerator is least.

    The distance is 0 for a model of this form, near 1 for one whose predictions have nothing to do
    with it, or say next to nothing.

    Args:
        means: `MOMENTS` along the first axis.
        lowest: the least c that the form admits.

    >>> means = np.array([4.0, 4.0, -1.0, 1.0, 0.0, 0.0])
    >>> float(distance(means)), float(distance(means, lowest=0.0))
    (0.75, 1.0)
    """
    size, rest, cross, free, fixed, both = means
    nearest = cross / np.maximum(free, TINY)
    c = np.maximum(nearest, lowest)
    gap = np.maximum(rest - 2 * c * cross + c**2 * free, 0.0)
    of_form = fixed + 2 * c * both + c**2 * free
    largest = np.maximum(size, of_form)
    # Where the model and the form both say 0 the distance is 1.
    nothing = largest <= TINY
    return np.asarray(gap / np.maximum(largest, TINY) + nothing)


LOWEST: Mapping[str, float] = {STEP: 0.0}
"""Step sizes are positive; other forms admit any c."""


# ---- last states ---------------------------------------------------------------------------------


def with_state(prompts: Prompts, at: int, state: Float[Tensor, "batch dim"]) -> Prompts:
    """The prompts with another state at one point.

    What comes after the point, and the targets, are no longer of the law.
    """
    xs = prompts.xs.clone()
    xs[:, at] = state
    unknown = torch.full_like(prompts.ys, torch.nan)
    return replace(prompts, xs=xs, ys=unknown)


def between(
    task: AutoregressiveProcess,
    own: Float[Tensor, "batch dim"],
    other: Float[Tensor, "batch dim"],
    share: Float[Tensor, "batch 1"],
) -> Float[Tensor, "batch dim"]:
    """States on the way from one to another.

    They have the sizes of the first, and directions a share of the way.

    Where matrices commute that is so in each complex coordinate, whose phase turns.
    """
    mixed = (1 - share) * own + share * other
    if commute(task):
        sizes = complex_states(own).abs()
        found = complex_states(mixed)
        turned = found / found.abs().clamp(min=TINY) * sizes
        return torch.view_as_real(turned).flatten(-2)
    length = own.norm(dim=-1, keepdim=True)
    of_mixed = mixed.norm(dim=-1, keepdim=True)
    return mixed / of_mixed.clamp(min=TINY) * length


def last_states(lab: Lab, n_points: int) -> dict[str, list[Prompts]]:
    """Two prompts of each unit with each kind of state at the last of so many points.

    As they are; with the states of others there, `N_OTHERS` at the whole length and one at others;
    between the two; and those of others, from half to twice as long. The prompts stay whole, as in
    training, where attention does not see what comes later; else they are cut.
    """
    task = process_of(lab)
    at = n_points - 1
    prompts = lab.few
    if lab.model.cfg.attention_dir != "causal":
        prompts = prompts.first(n_points)
    # Others are drawn for the prompts, several of each where these are the longest.
    n = len(prompts)
    copies = N_OTHERS if n_points == lab.few.n_points else 1
    draw = generator(lab.seed, f"autoregression/other last states/{n_points}")
    drawn = task.sample(copies * n, draw, dtype=torch.float64)
    others = drawn.xs[:, at].view(copies, n, -1)
    share, size = torch.rand(2, n, 1, generator=draw, dtype=torch.float64)
    nearer = between(task, prompts.xs[:, at], others[0], share)
    resized = others[0] * LEAST * (MOST / LEAST) ** size
    elsewhere = [with_state(prompts, at, other) for other in others]
    return {
        ON_PATH: [prompts],
        ELSEWHERE: elsewhere,
        BETWEEN: [with_state(prompts, at, nearer)],
        RESIZED: [with_state(prompts, at, resized)],
    }


def lengths(lab: Lab) -> tuple[int, ...]:
    """Points of the prompts that are asked.

    They are all lengths that training scores, or the longest and others drawn.
    """
    scored = range(lab.task.n_determining + 1, lab.few.n_points + 1)
    if len(scored) <= MOST_LENGTHS:
        return tuple(scored)
    draw = generator(lab.seed, "autoregression/lengths")
    order = torch.randperm(len(scored) - 1, generator=draw)
    chosen = sorted(order[: MOST_LENGTHS - 1].tolist())
    return (*(scored[i] for i in chosen), scored[-1])


# ---- the measurements ----------------------------------------------------------------------------


def _said(lab: Lab, prompts: Prompts, n_points: int) -> Float[Tensor, "batch dim"]:
    """What the model predicts after so many states of whole prompts."""
    predicted = lab.predict(prompts)
    return predicted[:, n_points - 1].double().cpu()


@measurement("autoregression/map", version=2, needs=(in_use,))
def in_context_map(lab: Lab, parts: DataFrame) -> DataArray:
    """`MOMENTS` of predictions after the longest prompts: (last state, who, form, moment, unit).

    Who: the model, and the algorithms themselves, which shows how far apart they are. NaN for a
    form beside itself, and for forms that need matrices that commute.
    """
    task = process_of(lab)
    names = (STEP, TURN, SQUARES, COPY)
    everyone = (MODEL, *names)
    lasts = (ON_PATH, ELSEWHERE)
    n_heads = heads_in_use(parts)
    asked = last_states(lab, lab.few.n_points)
    values = np.zeros((len(lasts), len(everyone), len(names), len(MOMENTS), lab.n_units))
    for i, last in enumerate(lasts):
        for prompts in asked[last]:
            known = forms(task, prompts.xs, n_heads)
            said = {MODEL: _said(lab, prompts, lab.few.n_points)}
            # Of a form without a number of its own the prediction itself, of one with a number its
            # direction.
            for name, form in known.items():
                said[name] = form.fixed + form.free * (name in (STEP, COPY))
            for a, who in enumerate(everyone):
                for b, name in enumerate(names):
                    there = who in said and name in known and who != name
                    if not there:
                        values[i, a, b] = np.nan
                        continue
                    part = moments(said[who], known[name]).double()
                    values[i, a, b] += lab.by_unit(part, prompts).T / len(asked[last])
    axes = {
        "last state": lasts,
        "who": everyone,
        "form": names,
        "moment": MOMENTS,
        "unit": tuple(range(lab.n_units)),
    }
    return make_array(
        values, axes, note=f"{len(lab.few)} prompts, read after the last state; forms in float64"
    )


@measurement("autoregression/map at every length", needs=(in_use,))
def map_at_every_length(lab: Lab, parts: DataFrame) -> DataArray:
    """`MOMENTS` of predictions beside the predicted form: (last state, points, moment, unit)."""
    task = process_of(lab)
    n_heads = heads_in_use(parts)
    form = form_in_use(task, name_of(lab.encoding), parts)

    asked = lengths(lab)
    values = np.zeros((len(LAST), len(asked), len(MOMENTS), lab.n_units))
    for j, n_points in enumerate(asked):
        states = last_states(lab, n_points)
        for i, last in enumerate(LAST):
            for prompts in states[last]:
                # Where prompts stay whole, the form reads those points that the model reads.
                known = forms(task, prompts.xs[:, :n_points], n_heads)
                said = _said(lab, prompts, n_points)
                part = moments(said, known[form]).double()
                values[i, j] += lab.by_unit(part, prompts).T / len(states[last])
    axes = {
        "last state": LAST,
        "points": asked,
        "moment": MOMENTS,
        "unit": tuple(range(lab.n_units)),
    }
    return make_array(values, axes, note=f"{len(lab.few)} prompts; the form is {form}, in float64")
