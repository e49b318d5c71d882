"""Whether the weights that are read make the predictions, and how good these are.

Predictions are compared with those of the best layer.
"""

from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses import tie
from icl_interp.analyses.criterion import INF, Estimate, Precondition
from icl_interp.analyses.facts import LEARNED_R2, Facts
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Results, measurement
from icl_interp.interventions.base import intervene
from icl_interp.models.single_layers import LinearSelfAttention, read_layer
from icl_interp.prompts import Prompts, as_numbers
from icl_interp.results import make_array
from icl_interp.studies.linear_attention.measurements.setting import (
    at_query,
    by_function,
    grouped_prompts,
    task_in,
    task_of,
    trained_landscape,
)

N_CONTEXTS = 32  # prompts of each function on which losses are compared
MODEL, MINIMUM = "model", "minimum"

LEARNED = Precondition(
    "learned",
    (LEARNED_R2, INF),
    "The model has not learned its task: its R2 is {value:.2g} times that of the best layer of "
    f"linear attention ({LEARNED_R2:g} needed).",
    optional=True,  # of other models the whole task is asked (`not_learned`)
)


def by_product(product: Float[Tensor, "dim dim"], prompts: Prompts) -> Float[Tensor, " batch"]:
    """h^T P x_q: what a layer with this product predicts for the query of each prompt."""
    return as_numbers(LinearSelfAttention.from_product(product).predict(prompts))[:, -1]


@measurement("lsa/tied")
def tied(lab: Lab) -> DataArray:
    """`tie` for predictions at the query: of the model, of the product, without the layer.

    The product is that of the weights.

    The layer is ablated to its mean at each token.
    """
    prompts = lab.prompts
    predicted = at_query(lab, prompts)
    with intervene(lab.single, lab.head_means):
        without = at_query(lab, prompts)
    reading = by_product(read_layer(lab.model).product.cpu(), prompts)
    return tie.tie(lab, predicted[:, None], reading[:, None], without[:, None], prompts)


@measurement("lsa/loss")
def loss(lab: Lab) -> DataArray:
    """Mean squared error at the query by function, of the model and of the best layer.

    The best layer is the one at the minimum, on the same prompts.

    Prompts are in distribution, of as many examples as in training (M = N).
    """
    task = task_of(lab)
    prompts = grouped_prompts(lab, task.n_points - 1, N_CONTEXTS, "loss").prompts
    labels = as_numbers(prompts.ys)[:, -1]
    predictions = {
        MODEL: at_query(lab, prompts),
        MINIMUM: by_product(trained_landscape(task).product, prompts),
    }
    rows = [by_function((made - labels).square(), lab.n_units) for made in predictions.values()]
    axes = {"who": tuple(predictions), "unit": tuple(range(lab.n_units))}
    return make_array(rows, axes, note=f"{N_CONTEXTS} prompts of each function")


def learned(results: Results, facts: Facts) -> dict[str, Estimate]:
    """What `LEARNED` asks of linear attention: its R^2 over that of the best layer, R.

    One layer of linear attention can't do what least squares does, so R^2 above 0.9 would call its
    optimum a failure. For several layers the best single one is a lower bar. Of other models
    nothing is asked here.

    R is known (Zhang, Frei & Bartlett 2024, the minimum of the loss). With q the error over that of
    the best layer on the same prompts, the share is 1 - (q - 1) (1 - R) / R. So only q is measured:
    where every prompt has a covariance of its own, a few prompts have most of the error, but q
    hardly depends on which.

    The number stands without an interval. That of q is as wide as functions differ, and would leave
    open what half a report's sample can tell of layers whose exact share is .93.
    """
    if facts.config.score_fn != "linear":
        return {}
    where = trained_landscape(task_in(facts))
    best = float(-2 * where.minimum / where.label_moment)
    own, least = (float(results[loss].sel(who=who).values.mean()) for who in (MODEL, MINIMUM))
    share = 1 - (own / least - 1) * (1 - best) / best
    return {
        "learned": Estimate.exactly("R2 over that of the best layer of linear attention", share)
    }
