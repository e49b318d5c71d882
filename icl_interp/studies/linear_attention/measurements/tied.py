"""Whether the weights that are read make the predictions, and how good these are.

Predictions are compared with those of the best layer.
"""

from jaxtyping import Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses import tie
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.interventions.base import intervene
from icl_interp.models.single_layers import LinearSelfAttention, read_layer
from icl_interp.prompts import Prompts, as_numbers
from icl_interp.results import make_array
from icl_interp.studies.linear_attention.measurements.setting import (
    at_query,
    by_function,
    grouped_prompts,
    task_of,
    trained_landscape,
)

N_CONTEXTS = 32  # prompts of each function on which losses are compared
MODEL, MINIMUM = "model", "minimum"


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
