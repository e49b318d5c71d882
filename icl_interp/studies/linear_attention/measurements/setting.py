"""What the claims of `linear_attention` share: models, preconditions and prompts.

It says whom the claims are about, and what counts as learned. Prompts have known moments.

N = n_points - 1 labelled examples in training, M at test. The theory has Gaussian inputs and w ~
N(0, I); claims that read weights need one layer of linear self-attention on stacked prompts
(`models.single_layers.read_layer`). What compares predictions alone also goes for deep and for
softmax models.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.analyses.facts import LEARNED_R2, Facts, needs_task
from icl_interp.analyses.lab import Lab
from icl_interp.errors import InputError
from icl_interp.models.single_layers import beyond_a_layer
from icl_interp.models.tokens import Stacked
from icl_interp.prompts import Prompts, as_numbers
from icl_interp.provenance import generator
from icl_interp.tasks.distributions import Normal
from icl_interp.tasks.regression import LinearRegression
from icl_interp.theory import linear_attention as theory

# In the scope of four claims about a single layer: predictions are those of P, and P is P*.
SAME_EVIDENCE = (
    "for a single layer the claims converged, algorithm, and risk or random_covariance all test "
    "whether P = P*, so they are one piece of evidence"
)
BATCH = 256  # prompts predicted at once


# ---- whom a claim is about -----------------------------------------------------------------------


def task_in(facts: Facts) -> LinearRegression:
    """The task that a report knows of, which must be linear regression."""
    assert isinstance(facts.task, LinearRegression)
    return facts.task


def task_of(lab: Lab) -> LinearRegression:
    """The lab's task: no other is measured, see `needs_regression`."""
    assert isinstance(lab.task, LinearRegression)
    return lab.task


def needs_regression(facts: Facts) -> str | None:
    """Why a claim about linear regression cannot apply."""
    return needs_task(facts, LinearRegression)


def needs_theory(facts: Facts) -> str | None:
    """Why the closed forms do not cover the task."""
    reason = needs_regression(facts)
    if reason:
        return reason
    task = task_in(facts)
    if not isinstance(task.inputs, Normal) or task.inputs.mean != 0:
        return (
            "The claim is about inputs of a centred normal distribution; this model was trained on "
            f"{task.inputs}"
        )
    if task.weights != Normal(1.0):
        return (
            "The claim is about weights w ~ N(0, I) of the target; this model was trained on "
            f"{task.weights}"
        )
    if task.query is not None or task.single_orthant:
        return (
            "The claim is about training prompts whose query is like the examples; this model's "
            "queries were shifted"
        )
    if task.random_covariance:
        try:
            task.spectrum_moments()
        except InputError as error:
            return (
                f"The claim is about covariances whose distribution has known moments, but {error}"
            )
    return None


def needs_layer(facts: Facts) -> str | None:
    """Why the weights are not those of one linear self-attention layer with a known optimum."""
    reason = needs_theory(facts)
    if reason:
        return reason
    more = beyond_a_layer(facts.config)
    if more:
        return (
            "The claim is about a single layer of linear self-attention; this model has "
            f"{', '.join(more)}"
        )
    if facts.encoding != "stacked":
        return (
            "The claim is about stacked prompts, a column (x; y) an example; this model's are "
            f"{facts.encoding}"
        )
    return None


def needs_one_head(facts: Facts) -> str | None:
    """Why the weights are not those of one layer of a single head."""
    reason = needs_layer(facts)
    if reason or facts.config.n_heads == 1:
        return reason
    return f"The claim is about one head; this model has {facts.config.n_heads}"


def needs_path(facts: Facts) -> str | None:
    """Why nothing is known of the way to the weights of a single head."""
    reason = needs_one_head(facts)
    if reason or facts.snapshots:
        return reason
    return (
        "The claim is about weights during training; this run kept none (it keeps those of "
        "training.snapshots)"
    )


# ---- the optimum, and what counts as learned -----------------------------------------------------


def trained_landscape(task: LinearRegression) -> theory.Landscape:
    """The loss over the task's own prompts, fixed or random covariance."""
    n = task.n_points - 1
    tau2 = task.noise_std**2
    if task.random_covariance:
        return theory.random_landscape(task.spectrum_moments(), n, tau2)
    return theory.landscape(task.covariance_matrix, n, tau2)


def best_r2(facts: Facts) -> float:
    """In-distribution R2 of the best that the model could be.

    Of linear attention it is the best layer, else least squares. One layer of linear attention
    can't do what least squares does, so R2 > 0.9 would call its optimum a failure. For several
    layers the best single one is a lower bar, and for others all but the noise can be learned.
    """
    where = trained_landscape(task_in(facts))
    if _is_linear(facts):
        return float(-2 * where.minimum / where.label_moment)
    return float(1 - task_in(facts).noise_std ** 2 / where.label_moment)


def _is_linear(facts: Facts) -> bool:
    """Whether the model is known to be linear attention."""
    return not facts.outside and facts.config.score_fn == "linear"


def not_learned(facts: Facts) -> str | None:
    """How far a model is from having learned linear regression, as well as its kind can.

    None if it has learned it.
    """
    if needs_theory(facts):
        return facts.not_learned()
    r2 = facts.r2
    best = best_r2(facts)
    if r2 > LEARNED_R2 * best:
        return None
    kind = "the best layer of linear attention" if _is_linear(facts) else "the best predictor"
    return f"in-distribution R2 {r2:.3f}; {kind} has {best:.3f}, and {LEARNED_R2} of that is needed"


def never_asked(facts: Facts) -> None:
    """None: for claims on whether training gets there.

    A model that failed to learn speaks against such claims.
    """


# ---- prompts with known moments ------------------------------------------------------------------


class GroupedPrompts(NamedTuple):
    """Prompts in groups that share w and Lambda, so that theory knows the risk of each group.

    Attributes:
        prompts: function-major.
        weights: w of each function.
        covariances: Lambda of each function.
    """

    prompts: Prompts
    weights: Float[Tensor, "function dim"]
    covariances: Float[Tensor, "function dim dim"]


def grouped_prompts(lab: Lab, m: int, n_contexts: int, name: str) -> GroupedPrompts:
    """Fresh prompts of m labelled examples and a query, in distribution but for their length."""
    task = task_of(lab)
    stream = generator(lab.seed, f"lsa/{name}", m)
    weights = task.draw_parameters(lab.n_units, stream, torch.float64)
    if task.random_covariance:
        assert not isinstance(task.covariance, (tuple, type(None)))
        shape = (lab.n_units, task.dim)
        diagonals = task.covariance_scale * task.covariance.sample(shape, stream, torch.float64)
        covariances = torch.diag_embed(diagonals * task.inputs.std**2)
    else:
        covariances = task.covariance_matrix.expand(lab.n_units, -1, -1)
    values, basis = torch.linalg.eigh(covariances)
    roots = basis * values.sqrt()[:, None]  # roots roots^T = Lambda
    function = torch.arange(lab.n_units).repeat_interleave(n_contexts)
    noise = torch.randn(
        lab.n_units, n_contexts * (m + 1), task.dim, generator=stream, dtype=torch.float64
    )
    xs = (noise @ roots.transpose(1, 2)).view(-1, m + 1, task.dim)
    ys = task.targets(weights[function], xs)
    if task.noise_std:
        ys = ys + task.noise_std * torch.randn(ys.shape, generator=stream, dtype=torch.float64)
    return GroupedPrompts(Prompts(xs, ys, weights[function], function), weights, covariances)


def at_query(lab: Lab, prompts: Prompts) -> Float[Tensor, " batch"]:
    """The model's prediction for the query of each prompt, in its own float32."""
    rows = [slice(i, i + BATCH) for i in range(0, len(prompts), BATCH)]
    return torch.cat(
        [as_numbers(lab.predict(prompts[part]))[:, -1].double().cpu() for part in rows]
    )


def room(lab: Lab) -> int:
    """Labelled examples in the longest prompt that the model can read.

    Those it was trained on where it has positions.

    A position that was never trained keeps its initial vector, so `n_ctx` is no licence.
    """
    trained = task_of(lab).n_points - 1
    if lab.outside or lab.model.shape.positional_embedding_type != "none":
        return trained
    # `n_ctx` of interleaved prompts counts the query's label as well.
    return max(trained, lab.encoding.n_points(lab.model.cfg.n_ctx) - 1)


def by_function(values: Float[Tensor, " batch"], n_functions: int) -> np.ndarray:
    """Means over the prompts of each function."""
    return values.view(n_functions, -1).mean(-1).numpy()


def is_stacked(lab: Lab) -> bool:
    """Whether prompts are columns (x; y)."""
    return not lab.outside and isinstance(lab.encoding, Stacked)
