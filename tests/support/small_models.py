"""Small random models of every kind, prompts for them, and every intervention, to test hooks."""

import torch

from icl_interp import tasks
from icl_interp.analyses.lab import Lab
from icl_interp.interventions.attention import AblateHeads, PutPatterns, SwapPattern, Temperature
from icl_interp.interventions.base import At, Intervention
from icl_interp.interventions.directions import ProjectOut, Steer
from icl_interp.interventions.norms import FreezeNorms, InsertNorm
from icl_interp.interventions.outputs import MeanOutputs, sublayers
from icl_interp.interventions.put import PutActivations, PutHeadOutputs
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.tokens import Encoding, Interleaved, Stacked
from icl_interp.models.transformer import HookedTransformer
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator

TASK = tasks.Polynomial(
    degrees=(1,), inputs=tasks.Uniform(-1, 1), coefficients=tasks.Normal(1), n_points=7
)
PROMPTS = TASK.sample(24, generator(0, "test/prompts"))
N_TOKENS = 13  # of these prompts, interleaved
BASE = {"n_layers": 2, "d_model": 12, "n_heads": 3, "d_head": 4, "n_ctx": 16, "init_std": 0.5}
MODELS = {
    "pre": {},
    "post": {"norm_position": "post"},
    "norm on outputs": {"norm_position": "output"},
    "norms around": {"norm_position": "both", "attn_only": True, "residual_scale": 0.4},
    "no final norm": {"final_norm": False},
    "rms": {"normalization_type": "RMS"},
    "no norm": {"normalization_type": None},
    "attention only": {"attn_only": True, "positional_embedding_type": "none"},
    "mlp only": {"mlp_only": True},
    "hardmax": {"score_fn": "hardmax"},
    "linear": {"score_fn": "linear", "score_norm": "visible"},
    "one head": {"n_heads": 1},
    "previous": {"queries": "previous", "position_weights": "free", "score_fn": "linear"},
    "bidirectional": {"attention_dir": "bidirectional", "d_in": 2},  # and stacked
}


def make(name: str = "pre", **change) -> HookedTransformer:
    """A random model in float64 whose biases and gains matter too; the same one each time."""
    model = HookedTransformer(
        HookedTransformerConfig(**{**BASE, **MODELS[name], **change}), seed=3
    ).eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if ".W_" not in parameter_name:
                parameter += 0.3 * torch.randn(
                    parameter.shape, generator=generator(1, parameter_name)
                )
    return model.double()


def long(name: str, **change) -> HookedTransformer:
    """Such a model for prompts of 20 points."""
    return make(name, n_ctx=40, **change)


def small_lab(name: str = "pre", **change) -> Lab:
    """A lab of such a model that reads interleaved prompts: four functions of three contexts."""
    return Lab(make(name, **change), TASK, Interleaved(), n_units=4, n_contexts=3)


def encoding_of(model: HookedTransformer) -> Encoding:
    """How these models read scalar prompts."""
    return Stacked() if model.cfg.d_in == 2 else Interleaved()


def tokens_for(model: HookedTransformer, prompts: Prompts = PROMPTS) -> torch.Tensor:
    """The prompts as the model reads them."""
    return encoding_of(model).encode(prompts).to(model.unembed.W_U)


OTHERS = TASK.sample(10, generator(7, "test/reference"))  # what references are measured on
SOME = ((0, 1), (1, 0), (1, 2))


def freeze(model: HookedTransformer, *norms: str) -> FreezeNorms:
    """Scales at their means over other prompts."""
    return FreezeNorms.measure(model, tokens_for(model, OTHERS), norms or None)


def ablate_mean(model: HookedTransformer, *heads: tuple[int, int]) -> AblateHeads:
    """Mean ablation by the same prompts."""
    return AblateHeads.measure(model, tokens_for(model, OTHERS), *heads)


def put_heads(model: HookedTransformer) -> PutHeadOutputs:
    """Two heads of the second layer, each at another token, write what other prompts make them."""
    _, cache = model.run_with_cache(tokens_for(model).flip(0))
    z = cache["blocks.1.attn.hook_z"]
    return PutHeadOutputs(1, [0, 2], torch.stack([z[:, 5, 0], z[:, -1, 2]], 1), [5, -1])


# Each is a function of the model, because some measure a reference on it first.
EVERY = {
    "freeze all norms": freeze,
    "freeze one norm": lambda model: freeze(model, "blocks.1.ln1"),
    "hardmax": lambda model: SwapPattern("hardmax"),
    "uniform, some heads": lambda model: SwapPattern("uniform", SOME),
    "uniform": lambda model: SwapPattern("uniform"),
    "flatten": lambda model: Temperature(3.0),
    "sharpen, some heads": lambda model: Temperature(0.2, SOME),
    "ablate to zero": lambda model: AblateHeads.zero(*SOME),
    "ablate to the mean": lambda model: ablate_mean(model, *SOME),
    "mean outputs of the MLPs": lambda model: MeanOutputs.measure(
        model, tokens_for(model, OTHERS), sublayers(model, "mlp")
    ),
    "patterns of other prompts": lambda model: PutPatterns.measure(
        model, tokens_for(model).flip(0)
    ),
    "patterns of other prompts, one layer": lambda model: PutPatterns.measure(
        model, tokens_for(model).flip(0), [1]
    ),
    "keys of other prompts": lambda model: PutActivations.measure(
        model, tokens_for(model).flip(0), ["blocks.0.attn.hook_k", "blocks.1.attn.hook_k"]
    ),
    "heads of other prompts": put_heads,
    "insert a norm": lambda model: InsertNorm("blocks.0.hook_resid_mid"),
    "steer": lambda model: Steer(torch.eye(12)[0], 3.0, "blocks.0.hook_resid_mid"),
    "project out": lambda model: ProjectOut(torch.eye(12)[:4], "blocks.1.hook_resid_mid"),
    "at the query": lambda model: At((-1,), SwapPattern("uniform")),
    "at two tokens": lambda model: At((3, 6), freeze(model)),
    "two at once": lambda model: (Temperature(0.5), AblateHeads.zero((1, 1))),
}


def several(built) -> tuple[Intervention, ...]:
    """What a function of `EVERY` builds, as a tuple."""
    return built if isinstance(built, tuple) else (built,)
