"""An independent route to probes' numbers: all activations by `run_with_cache`, then indexing."""

import torch
from small_models import tokens_for

KINDS = {
    "x": range(0, 12, 2),
    "y": range(1, 12, 2),
    "query": [12],
}  # tokens of `small_models.PROMPTS`


def cached(model):
    """Every activation of the prompts, by name."""
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens_for(model))
    return {name: activation.numpy() for name, activation in cache.items()}


def value(result, **at):
    """The number or array at some coordinates, by plain indexing."""
    index = [
        result.indexes[name].get_loc(at[name]) if name in at else slice(None)
        for name in result.indexes
    ]
    return result.values[tuple(index)]


def pooled(activation, kind):
    """One row for each prompt and position of a kind."""
    rows = activation[:, list(KINDS[kind])]
    return rows.reshape(-1, *rows.shape[2:])
