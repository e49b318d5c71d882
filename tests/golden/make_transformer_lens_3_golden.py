"""Made the golden files transformer_lens_3_*.safetensors beside this file, with TransformerLens' own HookedTransformer.

TransformerLens 4 no longer has that class, so this runs in an environment of its own, once:

    python -m venv golden && golden/bin/pip install torch==2.13.0 'transformer-lens==3.9.*'
    golden/bin/python tests/golden/make_transformer_lens_3_golden.py

Numbers come in through a hook at hook_embed; the token ids are dummies. A file holds, in float64,
the input, the weights under our names ("weight/..."), every activation by its hook name, and the
output; its metadata our config.
"""

import json
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformer_lens import HookedTransformer, HookedTransformerConfig

SHARED = {
    "n_layers": 2,
    "d_model": 16,
    "n_heads": 2,
    "d_head": 8,
    "d_mlp": 24,
    "n_ctx": 9,
    "eps": 1e-5,
}
MODELS = {
    "ln": {"normalization_type": "LN", "act_fn": "gelu"},
    "lnpre": {"normalization_type": "LNPre", "act_fn": "gelu_new"},
    "bare": {
        "normalization_type": None,
        "act_fn": "relu",
        "attn_only": True,
        "attention_dir": "bidirectional",
        "use_attn_scale": False,
    },
}
D_IN, D_OUT = 3, 2


def make(name: str, change: dict) -> None:
    """One golden file."""
    cfg = HookedTransformerConfig(
        **{**SHARED, **change},
        d_vocab=1,
        d_vocab_out=D_OUT,
        use_attn_result=True,
        dtype=torch.float64,
        device="cpu",
    )
    model = HookedTransformer(cfg)
    generator = torch.Generator().manual_seed(0)

    def noise(*shape: int) -> torch.Tensor:
        return 0.4 * torch.randn(shape, generator=generator, dtype=torch.float64)

    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(noise(*parameter.shape))
    x, read_in, bias = 2.5 * noise(2, 6, D_IN), noise(D_IN, cfg.d_model), noise(cfg.d_model)
    with (
        torch.no_grad(),
        model.hooks(fwd_hooks=[("hook_embed", lambda value, hook: x @ read_in + bias)]),
    ):
        out, cache = model.run_with_cache(torch.zeros(x.shape[:2], dtype=torch.long))
    weights = {key: value for key, value in model.named_parameters() if key != "embed.W_E"}
    weights |= {"embed.W_E": read_in, "embed.b_E": bias}
    # What its read-out adds to the hook names of TransformerLens 2, we leave out.
    activations = {key: value for key, value in cache.items() if not key.startswith("unembed.")}
    tensors = {
        "input": x,
        "output": out,
        **activations,
        **{f"weight/{key}": w for key, w in weights.items()},
    }
    about = {
        "config": {**SHARED, **change, "d_in": D_IN, "d_out": D_OUT},
        "made_with": f"transformer_lens {version('transformer-lens')}, torch {torch.__version__}",
    }
    path = Path(__file__).with_name(f"transformer_lens_3_{name}.safetensors")
    save_file(
        {key: value.detach().contiguous().clone() for key, value in tensors.items()},
        path,
        {"about": json.dumps(about)},
    )
    path.chmod(0o644)


for name, change in MODELS.items():
    make(name, change)
