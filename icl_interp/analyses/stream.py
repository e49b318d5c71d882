"""The residual stream at every depth, and as the read-out would see it there."""

from jaxtyping import Float
from torch import Tensor

from icl_interp.models.transformer import HookedTransformer


def depths(model: HookedTransformer) -> list[str]:
    """Hooks of the stream after 0, 1, ..., all blocks."""
    return ["blocks.0.hook_resid_pre", *(f"blocks.{i}.hook_resid_post" for i in range(model.cfg.n_layers))]


def readable(
    model: HookedTransformer, stream: Float[Tensor, "batch token d_model"]
) -> Float[Tensor, "batch token d_model"]:
    """The stream as the read-out would see it: through the final norm, where there is one."""
    return model.ln_final(stream) if hasattr(model, "ln_final") else stream
