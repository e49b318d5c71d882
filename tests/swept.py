"""Sweeps of every kind over small models: what the tests of sweeps ask for."""

import copy

import torch
from small_models import TASK, encoding_of, freeze, make

from icl_interp.interventions.attention import AblateHeads, SwapPattern, Temperature
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.attention import AttentionEntropy, AttentionTargets
from icl_interp.probes.heads import HeadOrthogonality
from icl_interp.probes.norms import LayerNormScale
from icl_interp.probes.record import Activations
from icl_interp.probes.residual import LogitLens, ResidualStream
from icl_interp.probes.sweep import Sweep, places
from icl_interp.provenance import generator

A, B = (TASK.sample(3, generator(i, "test/sweep"), n_contexts=3, dtype=torch.float64) for i in range(2))
XS = (-2.0, 0.8, 5.0)
NAMES = ("blocks.0.attn.hook_attn_scores", "blocks.1.attn.hook_z", "blocks.1.hook_resid_post")
MODELS = ("pre", "post", "bidirectional")
STACKED, LABELLED = "pre, stacked", "bidirectional, keys are the labelled examples"
# In the last the context is read once for each length, though its tokens see one another both ways.
SPECIAL = {STACKED: ("pre", {"d_in": 2}), LABELLED: ("bidirectional", {"d_in": 2, "keys": "labelled"})}


def model_of(name: str) -> HookedTransformer:
    base, settings = SPECIAL.get(name, (name, {}))
    return make(base, **settings)


def at(xs, prompts=A, **settings) -> Sweep:
    """The last query at each of some x, for all prompts alike; at each prompt's own without any."""
    if xs is None:
        return Sweep(prompts, prompts.xs[:, -1:], ("query",), **settings)
    return Sweep(prompts, places(xs, 1), xs, **settings)


def sweeps(model: HookedTransformer) -> dict[str, Sweep]:
    """Of all that can be asked, several of each, over the same contexts and over others."""
    kinds = encoding_of(model).kinds(A.n_points)
    frozen, uniform, hot = freeze(model), SwapPattern("uniform"), Temperature(3.0)
    two = A.xs[:, :2] * 3  # two places of each prompt's own
    every = (
        *(ResidualStream(), LogitLens(), LayerNormScale(), AttentionEntropy(), HeadOrthogonality()),
        *(AttentionEntropy(per_prompt=True, keys=(1, 2, 5)), AttentionTargets(kinds), Activations(NAMES)),
    )
    lens, scale = LogitLens(per_prompt=True), LayerNormScale(per_prompt=True)
    return {
        "nothing read": at(XS),
        "every probe": at(XS, probes=every),
        "places in another order": at((5.0, 0.3, -2.0), probes=(AttentionEntropy(per_prompt=True), copy.copy(lens))),
        "own query": at(None, probes=(copy.copy(lens), copy.copy(scale))),
        "two own queries": Sweep(A, two, ("a", "b"), probes=(Activations(NAMES), AttentionEntropy())),
        "edited query": at(XS, query=(uniform, frozen.at_query()), probes=(copy.copy(lens), AttentionEntropy())),
        "the same edit": at((-2.0, 2.0), query=(uniform,), probes=(Activations(NAMES),)),
        "edited context": at(XS, context=(frozen,), probes=(ResidualStream(), copy.copy(scale))),
        "own query, edited context": at(None, context=(hot,), probes=(copy.copy(lens),)),
        "both edited": at(XS, context=(hot,), query=(AblateHeads.zero((0, 1)),), probes=(copy.copy(lens),)),
        "other contexts": at(XS, B, probes=(copy.copy(lens), HeadOrthogonality())),
        "shorter": at(XS, n_points=4, probes=(Activations(NAMES), LayerNormScale())),
        "shorter, own queries": Sweep(
            A, two, ("a", "b"), n_points=5, query=(hot,), probes=(copy.copy(lens), copy.copy(scale))
        ),
    }
