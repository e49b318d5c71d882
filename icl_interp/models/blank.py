"""Where models that are set by hand start: attention alone, all weights 0, in float64."""

from typing import Any

import torch

from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer

# Every example counts alike, and the query is no key: linear attention as the theorems about it
# have it.
LINEAR = {"attention_dir": "bidirectional", "score_fn": "linear", "score_norm": "labelled"}
NORMS = ("ln1", "ln2", "ln_final")


def blank(d_model: int, **settings: Any) -> HookedTransformer:
    """A model whose weights are all 0: a layer of one head, no norm, no MLP, no positions, scores not scaled.

    Norms that `settings` ask for are as in a fresh model: they normalise and do nothing else.

    Args:
        d_model: width of the stream.
        settings: others of `HookedTransformerConfig`, also to replace what is said above.

    >>> model = blank(4, d_head=2, n_ctx=9)
    >>> model(torch.ones(1, 9, 1, dtype=torch.float64)).any().item(), list(model.norms)
    (False, [])
    """
    plain = {
        "n_layers": 1,
        "n_heads": 1,
        "attn_only": True,
        "normalization_type": None,
        "positional_embedding_type": "none",
        "use_attn_scale": False,
    }
    model = HookedTransformer(
        HookedTransformerConfig(d_model=d_model, **(plain | settings))
    ).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.split(".")[-2] not in NORMS:
                parameter.zero_()
    return model.eval()
