"""Shared by tests of `linear_attention`'s experiments: an untrained softmax model, a setup."""

from dataclasses import replace

from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.experiments import presets
from icl_interp.experiments.setup import Setup
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.tokens import Interleaved
from icl_interp.models.transformer import HookedTransformer
from icl_interp.tasks.regression import LinearRegression

FIXED = LinearRegression(n_dims=2, n_points=8)


def tiny(positions="standard", seed=0) -> Checkpoint:
    """An untrained softmax model for prompts of 7 examples, with positions for 14."""
    cfg = HookedTransformerConfig(
        n_layers=1, d_model=8, d_in=2, n_ctx=30, positional_embedding_type=positions, init_std=0.5
    )
    return Checkpoint(
        HookedTransformer(cfg, seed=seed).eval(), FIXED, Interleaved(), RunConfig(cfg, FIXED), 0
    )


def setup(**checkpoints) -> Setup:
    """A setup of these models at the smallest scale."""
    return Setup(checkpoints, replace(presets.PRESETS["smoke"], n_functions=40, n_contexts=50))
