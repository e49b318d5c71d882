"""The window of one softmax head: the matrix M with which it scores the examples.

The module also says whom the claims on M are about.

The head of a layer gives the example (x_i; y_i) a score s_i at the query x_q. For a unit of
equation (2) of Collins et al. (2024) it is x_i^T M x_q plus a number that all examples share. M is
found by least squares on the head's own scores, with terms for the label beside it: exact for any
layer whose scores are bilinear in the tokens, whatever its width or basis, and the nearest such
matrix for others. How much of the scores it explains is reported as "fit".

With u = Sigma^(-1/2) x, which is uniform on the unit sphere, x_i^T M x_q = u_i^T (Sigma^(1/2) M
Sigma^(1/2)) u_q: the matrix in the middle is "whitened" M. It is w I where Lemma 1 holds.
"""

import numpy as np
import torch
from jaxtyping import Float
from pandas import DataFrame
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.criterion import Estimate
from icl_interp.analyses.facts import Facts, needs_task
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.probes.record import Activations
from icl_interp.probes.sweep import Sweep, Swept
from icl_interp.resampling import bootstrap, r_squared
from icl_interp.results import make_array, table_of_numbers
from icl_interp.studies.lipschitz.measurements.score_map import NOTHING, centred, score_map
from icl_interp.tasks.ridge import RidgeFunction
from icl_interp.tasks.vectors import Ellipsoid, Sphere
from icl_interp.theory import lipschitz as theory

SCORES = "blocks.0.attn.hook_attn_scores"
SAME_SIGMA = 1e-6  # relative; rows in a config are rounded


# ---- whom the claims are about -------------------------------------------------------------------


def task_in(facts: Facts) -> RidgeFunction:
    """The task that a report knows of, which must be one of ridge functions."""
    assert isinstance(facts.task, RidgeFunction)
    return facts.task


def task_of(lab: Lab) -> RidgeFunction:
    """The lab's task: no other is measured, see `needs_unit`."""
    assert isinstance(lab.task, RidgeFunction)
    return lab.task


def beyond_a_head(cfg: HookedTransformerConfig) -> list[str]:
    """What a model is beside a layer of one softmax head whose keys are the labelled examples."""
    others = {
        f"{cfg.n_layers} layers": cfg.n_layers != 1,
        "no attention": cfg.mlp_only,
        f"{cfg.n_heads} heads": cfg.n_heads != 1 and not cfg.mlp_only,
        f"{cfg.score_fn} scores": cfg.score_fn != "softmax" and not cfg.mlp_only,
        "the query among its keys": cfg.keys != "labelled" and not cfg.mlp_only,
    }
    return [name for name, present in others.items() if present]


def needs_unit(facts: Facts) -> str | None:
    """Why there is no one window of one head on ridge functions to speak of."""
    if reason := needs_task(facts, RidgeFunction):
        return reason
    if more := beyond_a_head(facts.config):
        having = ", ".join(more)
        return (
            "The claim is about one softmax head whose keys are the labelled examples; this model "
            f"has {having}"
        )
    if facts.encoding != "stacked":
        return (
            "The claim is about stacked prompts, a column (x; y) an example; this model's are "
            f"{facts.encoding}"
        )
    return None


def needs_sphere(facts: Facts) -> str | None:
    """Why u = Sigma^(-1/2) x, which the functions read, is not uniform on the unit sphere."""
    if reason := needs_unit(facts):
        return reason
    task = task_in(facts)
    if not isinstance(task.inputs, (Sphere, Ellipsoid)):
        return (
            "The claim is about inputs on a sphere or an ellipsoid; this model was trained on "
            f"{task.inputs}"
        )
    if not reads_whitened(task):
        return (
            "The claim is about functions with the same distribution in all directions of the "
            "whitened inputs; this task's `sigma` is not the covariance of its inputs"
        )
    return None


def needs_all_directions(facts: Facts) -> str | None:
    """Why the law of functions is not invariant under rotations of the whitened inputs."""
    if reason := needs_sphere(facts):
        return reason
    task = task_in(facts)
    if task.rank < task.dim:
        return (
            f"The claim is about functions of all {task.dim} directions; this task's functions "
            f"depend on {task.rank} of them (see lipschitz.irrelevant_directions)"
        )
    return None


def reads_whitened(task: RidgeFunction) -> bool:
    """Whether functions read the inputs whitened by their own covariance.

    Then q is isotropic in u and not in x.
    """
    if task.sigma is None:
        return True
    law = RidgeFunction(inputs=task.inputs, link="linear", n_points=task.n_points)
    return bool(torch.allclose(task.whitening, law.whitening, rtol=SAME_SIGMA, atol=0))


def functions_of(task: RidgeFunction) -> theory.FunctionClass:
    """The task's class of functions, as theory has it."""
    return theory.function_class(task.link, task.lipschitz, task.frequency)


def sigma_of(task: RidgeFunction) -> Float[Tensor, "dim dim"]:
    """Sigma, of the law of f, which is that of the inputs where `reads_whitened`."""
    root = torch.linalg.inv(task.whitening)
    return (root @ root.T + root.T @ root) / 2  # symmetric to the last bit


# ---- M -------------------------------------------------------------------------------------------


def _scores_at_query(lab: Lab) -> Sweep:
    """The one head's scores at the query of two prompts a unit, less that of the query itself."""
    seen = Activations([SCORES], keep=lambda rows: rows[:, 0, -1, :-1])
    return lab.ask(prompts=lab.few, probes=[seen])


@measurement("lipschitz/scores", asks=_scores_at_query)
def scores(lab: Lab, swept: Swept) -> DataFrame:
    """What least squares of the head's scores at the query finds, row by row.

    Terms: M, (d, d), of x_i^T M x_q; "key" of x_i alone; "label" of y_i and of y_i x_q. Scores and
    terms are taken about their mean over the examples of a prompt, since softmax does not see what
    all of them share.
    """
    d = task_of(lab).dim
    prompts = swept.prompts
    recorded = swept.probe(Activations).recorded[SCORES]
    found = score_map(prompts.xs.double(), prompts.ys.double(), recorded.double())
    numbers = {}
    for i in range(d):
        for j in range(d):
            numbers[f"M {i} {j}"] = found.matrix[i, j]
    numbers["fit"] = found.fit
    numbers["fit of all terms"] = found.fit_of_all
    numbers["labels"] = found.labels
    note = "least squares of the head's scores at the query of in-distribution prompts"
    return table_of_numbers(numbers, note)


@measurement(
    "lipschitz/scores by function", needs=(scores,), asks=lambda lab, _: _scores_at_query(lab)
)
def scores_by_function(lab: Lab, swept: Swept, table: DataFrame) -> DataArray:
    """The variance of the head's scores in prompts, and what x_i^T M x_q leaves, by function.

    M is that of `scores`; so far as it is fitted to these prompts, it leaves less of them than of
    others, by about d^2 over the number of scores.
    """
    prompts = swept.prompts
    found = _matrix(table, task_of(lab).dim)
    xs = prompts.xs.double()
    recorded = swept.probe(Activations).recorded[SCORES]
    s = centred(recorded.double())
    of_inputs = torch.einsum("bid,de,be->bi", xs[:, :-1], found, xs[:, -1])
    left = s - centred(of_inputs)
    rows = [lab.by_unit(one.square().mean(1), prompts) for one in (s, left)]
    axes = {"of": ("scores", "left"), "unit": tuple(range(len(rows[0])))}
    return make_array(rows, axes, note=f"{len(prompts)} prompts in distribution")


def fit_of(result: DataArray) -> Estimate:
    """The share of the scores' variance that M explains, from a stored `scores_by_function`."""
    total, left = (result.sel(of=of).values for of in ("scores", "left"))

    def share(total: np.ndarray, left: np.ndarray) -> np.ndarray:
        # M = 0 explains all of a head that gives every example the same score.
        return np.asarray(r_squared(left, total, empty=1.0, least=NOTHING))

    return Estimate.of(
        "share of the scores' variance that M explains", bootstrap(share, total, left)
    )


def _matrix(table: DataFrame, d: int) -> Float[Tensor, "dim dim"]:
    """M from the table of `scores`, whose first rows hold its entries."""
    return torch.tensor(table["value"].to_numpy()[: d * d].copy()).view(d, d)


@measurement("lipschitz/kernel", needs=(scores,))
def kernel(lab: Lab, table: DataFrame) -> DataArray:
    """M, and M whitened: Sigma^(1/2) M Sigma^(1/2), both (row, column)."""
    task = task_of(lab)
    d = task.dim
    values = _matrix(table, d)
    both = torch.stack([values, theory.whitened(values, sigma_of(task))])
    axes = {"matrix": ("M", "whitened"), "row": range(1, d + 1), "column": range(1, d + 1)}
    return make_array(
        both.numpy(), axes, note="of the score x_i^T M x_q; whitened: Sigma^(1/2) M Sigma^(1/2)"
    )


def whitened_kernel(result: DataArray) -> Float[Tensor, "dim dim"]:
    """Whitened M from a stored `kernel`."""
    return torch.from_numpy(result.sel(matrix="whitened").values.copy())
