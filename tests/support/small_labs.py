"""Labs of every way to read a prompt: what the tests of the lab share."""

import torch
from small_models import TASK, make

from icl_interp.analyses.lab import Lab
from icl_interp.models.tokens import Interleaved, Stacked

XS = (-1e4, 0.8, 30.0)
LABS = {
    "causal interleaved": ("pre", Interleaved(), {}),
    "causal stacked": ("pre", Stacked(), {"d_in": 2}),
    "bidirectional stacked": ("bidirectional", Stacked(), {}),
    "post-norm": ("post", Interleaved(), {}),
    "attention only": ("attention only", Interleaved(), {}),
    "mlp only": ("mlp only", Interleaved(), {}),
    "linear scores": ("linear", Interleaved(), {}),
}
SIZES = {"n_units": 3, "n_contexts": 2}


def bench(name: str = "causal interleaved", lab_class: type[Lab] = Lab, **sizes) -> Lab:
    """A lab of twelve prompts, unless told otherwise."""
    model, encoding, change = LABS[name]
    return lab_class(make(model, **change), TASK, encoding, **{**SIZES, **sizes})


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal up to rounding in float64.

    Other shapes are a mistake of the test's, where values would be repeated.
    """
    if a.shape != b.shape:
        raise ValueError(f"cannot compare values of shapes {tuple(a.shape)} and {tuple(b.shape)}")
    return torch.allclose(a, b, rtol=1e-10, atol=1e-10)


def in_fours(model, n: int, *_, **__) -> list[slice]:
    """Rows in parts of four, as `models.transformer.chunks` gives them.

    Small parts show what goes wrong between parts.
    """
    return [slice(start, min(start + 4, n)) for start in range(0, n, 4)]
