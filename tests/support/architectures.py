"""A small random model of every architecture: what tests of all configs run on."""

import functools

from small_models import MODELS, make, tokens_for

from icl_interp.models.transformer import HookedTransformer

ARCHITECTURES = {
    **{name: (name, {}) for name in MODELS},
    "LNPre": ("pre", {"normalization_type": "LNPre"}),
    "LNPre, post": ("post", {"normalization_type": "LNPre"}),
    "RMS, post": ("post", {"normalization_type": "RMS"}),
    "Tanh": ("pre", {"normalization_type": "Tanh"}),
    "Tanh, post": ("post", {"normalization_type": "Tanh"}),
    "post, attention only": ("post", {"attn_only": True}),
    "post, MLP only": ("post", {"mlp_only": True}),
    "post and a final norm": ("post", {"final_norm": True, "residual_scale": 2.0}),
    "norms around, LNPre": ("norms around", {"normalization_type": "LNPre"}),
    "one coordinate": ("pre", {"d_model": 1}),
    "entmax": ("pre", {"score_fn": "entmax"}),
    "scaled softmax, no norm": ("no norm", {"score_fn": "scaled_softmax"}),
    "ReLU scores": ("pre", {"score_fn": "relu"}),
    "sigmoid scores": ("pre", {"score_fn": "sigmoid"}),
    "linear, stacked": (
        "bidirectional",
        {
            "score_fn": "linear",
            "score_norm": "labelled",
            "normalization_type": None,
            "attn_only": True,
            "use_attn_scale": False,
        },
    ),
    "labelled keys": ("bidirectional", {"keys": "labelled"}),
    "bounded read-in": ("pre", {"embed_bound": 2.0}),
    "bounded read-in, no norm": ("no norm", {"embed_bound": 2.0}),
    "narrow heads": ("pre", {"d_head": 1, "n_heads": 2}),
    "positions by softmax": ("pre", {"position_weights": "softmax"}),
    "positions by similarity": ("pre", {"position_weights": "similarity"}),
    "positions alone": ("no norm", {"position_weights": "free", "score_fn": "constant"}),
    "two targets": ("pre", {"d_out": 2}),
}


@functools.cache
def model_of(name: str) -> HookedTransformer:
    """The model of that architecture, with biases and gains of its own.

    It is shared: nobody may change it.
    """
    kind, changes = ARCHITECTURES[name]
    return make(kind, **changes).requires_grad_(False)


@functools.cache
def tokens_of(name: str):
    """Prompts as it reads them."""
    return tokens_for(model_of(name))[:8]
