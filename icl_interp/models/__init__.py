"""`HookedTransformer` and what it is made of."""

from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.tokens import Encoding
from icl_interp.models.transformer import HookedTransformer

__all__ = ["Encoding", "HookedTransformer", "HookedTransformerConfig"]
