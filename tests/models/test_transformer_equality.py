"""The model against torch.nn, GPT2Model, TransformerLens 3 and the plain formulas."""

import json
from dataclasses import replace
from itertools import cycle, product
from pathlib import Path

import pytest
import torch
import transformer_formulas
from helpers import must_fail
from safetensors import safe_open
from small_models import make
from torch import nn
from transformers import GPT2Config, GPT2Model

from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator

GOLDEN = Path(__file__).parents[1] / "golden"


def noise(*shape, dtype=torch.float64):
    return torch.randn(shape, generator=generator(0, "test/equality"), dtype=torch.float64).to(
        dtype
    )


def agree(got, want, tolerance):
    """Equal up to a tolerance relative to the largest number."""
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    assert want.std() > 0.01, "numbers that hardly vary would agree whatever the model does"
    gap = (got - want).abs().max() / want.abs().max()
    assert gap < tolerance, f"differs by {gap:.1e} of the largest number"


# 1. The formulas, in every combination of what the config offers.

SCORES = [
    ("softmax", None),
    ("hardmax", None),
    ("linear", None),
    ("linear", "visible"),
    ("linear", "labelled"),
]
NORMS = [(None, "pre"), *product(("LN", "LNPre", "RMS"), ("pre", "post", "output"))]
AROUND = {
    "both": {"norm_position": "both", "attn_only": True},
    "both, scaled": {"norm_position": "both", "attn_only": True, "residual_scale": 0.1},
    "both, then a final one": {"norm_position": "both", "attn_only": True, "final_norm": True},
    "pre, no final one": {"final_norm": False},
    "post and a final one": {"norm_position": "post", "final_norm": True},
    "output and a final one": {"norm_position": "output", "final_norm": True},
    "pre, scaled": {"residual_scale": 0.1},
    "post, scaled": {"norm_position": "post", "residual_scale": 3.0},
    "no norm, scaled": {"normalization_type": None, "residual_scale": 0.5},
    "MLPs, scaled": {"mlp_only": True, "residual_scale": 0.5},
}
KINDS = [{}, {"attn_only": True}, {"mlp_only": True}]


def combinations():
    """Norms x placement x sublayers x scores x direction in full; the rest takes turns."""
    rest = cycle(
        product(("gelu", "gelu_new", "relu"), ("standard", "none"), (True, False), ((1, 1), (3, 2)))
    )
    for (norm, place), kind, direction, score in product(
        NORMS, KINDS, ("causal", "bidirectional"), SCORES
    ):
        if "mlp_only" in kind and (score, direction) != (SCORES[0], "causal"):
            continue
        act, positions, scale, (d_in, d_out) = next(rest)
        yield {
            **kind,
            "normalization_type": norm,
            "norm_position": place,
            "attention_dir": direction,
            "score_fn": score[0],
            "score_norm": score[1],
            "act_fn": act,
            "positional_embedding_type": positions,
            "use_attn_scale": scale,
            "d_in": d_in,
            "d_out": d_out,
            "eps": 1e-3,
        }


def follows_formulas(model, cfg, tolerance=1e-10):
    tokens = noise(2, 6, cfg.d_in)
    with torch.no_grad():
        agree(
            model(tokens), transformer_formulas.forward(cfg, model.state_dict(), tokens), tolerance
        )


@pytest.mark.parametrize(
    "change", list(combinations()), ids=lambda c: "-".join(map(str, c.values()))
)
def test_model_follows_its_formulas(change):
    model = make(**change)
    follows_formulas(model, model.cfg)
    assert {
        name: tuple(w.shape) for name, w in model.state_dict().items()
    } == transformer_formulas.shapes(model.cfg)


@pytest.mark.parametrize("score", [{}, {"score_fn": "linear"}], ids=["softmax", "linear"])
@pytest.mark.parametrize("norm", [{}, {"normalization_type": "LNPre"}], ids=["LN", "LNPre"])
@pytest.mark.parametrize("change", AROUND.values(), ids=AROUND)
def test_norms_around_and_factors_follow_the_formulas(change, norm, score):
    model = make(**(norm | change | score))
    follows_formulas(model, model.cfg)
    assert {
        name: tuple(w.shape) for name, w in model.state_dict().items()
    } == transformer_formulas.shapes(model.cfg)


@pytest.mark.parametrize(
    ("change", "mutation"),
    [
        ({"norm_position": "both", "attn_only": True}, {"norm_position": "post"}),
        ({"norm_position": "both", "attn_only": True}, {"residual_scale": 0.99}),
        ({"mlp_only": True}, {"residual_scale": 0.99}),
        ({}, {"final_norm": False}),
        ({"norm_position": "post", "final_norm": True}, {"final_norm": None}),
        ({}, {"eps": 2e-5}),
        ({}, {"act_fn": "gelu_new"}),
        ({}, {"use_attn_scale": False}),
        ({}, {"attention_dir": "bidirectional"}),
        ({}, {"norm_position": "post"}),
        ({"norm_position": "output"}, {"norm_position": "post"}),
        ({}, {"n_heads": 2}),
        ({}, {"n_layers": 1}),
        ({}, {"positional_embedding_type": "none"}),
        ({"normalization_type": "LN"}, {"normalization_type": "RMS"}),
        ({"normalization_type": "LN"}, {"normalization_type": "LNPre"}),
        ({"score_fn": "hardmax"}, {"score_fn": "softmax"}),
        ({"score_fn": "linear", "score_norm": "visible"}, {"score_norm": "labelled"}),
        ({"score_fn": "linear"}, {"score_norm": "visible"}),
    ],
)
def test_another_formula_is_noticed(change, mutation):
    model = make(**change)
    follows_formulas(model, model.cfg)
    must_fail(follows_formulas, model, replace(model.cfg, **mutation))


# 2. torch.nn, block by block, gradients included.


def torch_attention(attn):
    """nn.MultiheadAttention with the same weights."""
    d, n = attn.cfg.d_model, attn.cfg.n_heads
    module = nn.MultiheadAttention(d, n, batch_first=True, dtype=torch.float64)
    rows = {c: getattr(attn, f"W_{c}").transpose(1, 2).reshape(d, d) for c in "QKV"}
    weights = {
        "in_proj_weight": torch.cat([rows[c] for c in "QKV"]),
        "in_proj_bias": torch.cat([getattr(attn, f"b_{c}").flatten() for c in "QKV"]),
        "out_proj.weight": attn.W_O.reshape(d, d).T,
        "out_proj.bias": attn.b_O,
    }
    module.load_state_dict(weights)
    return module


def torch_layer(block, norm_first):
    """nn.TransformerEncoderLayer with the same weights."""
    cfg = block.cfg
    layer = nn.TransformerEncoderLayer(
        cfg.d_model,
        cfg.n_heads,
        cfg.d_mlp,
        dropout=0.0,
        activation=cfg.act_fn,
        layer_norm_eps=cfg.eps,
        batch_first=True,
        norm_first=norm_first,
        dtype=torch.float64,
    )
    layer.self_attn = torch_attention(block.attn)
    layer.linear1, layer.linear2 = torch_mlp(block.mlp)[::2]
    for ours, theirs in ((block.ln1, layer.norm1), (block.ln2, layer.norm2)):
        theirs.load_state_dict({"weight": ours.w, "bias": ours.b})
    return layer


def torch_mlp(mlp):
    first, second = (nn.Linear(*w.shape, dtype=torch.float64) for w in (mlp.W_in, mlp.W_out))
    first.load_state_dict({"weight": mlp.W_in.T, "bias": mlp.b_in})
    second.load_state_dict({"weight": mlp.W_out.T, "bias": mlp.b_out})
    return nn.Sequential(first, {"gelu": nn.GELU(), "relu": nn.ReLU()}[mlp_act(mlp)], second)


def mlp_act(mlp):
    return "relu" if mlp.act is torch.nn.functional.relu else "gelu"


def same_block(ours, theirs):
    """Equal outputs, and equal gradients of the input."""
    x = noise(3, 7, 12).requires_grad_()
    a, b = ours(x), theirs(x)
    weights = noise(*a.shape)
    agree(a, b, 1e-10)
    agree(*(torch.autograd.grad((out * weights).sum(), x)[0] for out in (a, b)), 1e-10)


def mask(cfg, n=7):
    return torch.ones(n, n, dtype=torch.bool).triu(1) if cfg.attention_dir == "causal" else None


@pytest.mark.parametrize("direction", ["causal", "bidirectional"])
@pytest.mark.parametrize("act", ["gelu", "relu"])
@pytest.mark.parametrize("place", ["pre", "post"])
def test_block_is_torchs_encoder_layer(place, act, direction):
    block = make(norm_position=place, act_fn=act, attention_dir=direction).blocks[0]
    layer = torch_layer(block, place == "pre")
    same_block(block, lambda x: layer(x, src_mask=mask(block.cfg)))
    other = torch_layer(block, place == "post")
    must_fail(same_block, block, lambda x: other(x, src_mask=mask(block.cfg)))
    if direction == "causal":
        must_fail(same_block, block, layer)


@pytest.mark.parametrize("norm", ["LN", "LNPre", None])
@pytest.mark.parametrize("kind", ["attn_only", "mlp_only", "both"])
def test_blocks_torch_has_no_layer_for(kind, norm):
    """By hand, of torch's own parts."""
    block = make(normalization_type=norm, **({} if kind == "both" else {kind: True})).blocks[0]
    cfg = block.cfg

    def normed(x, ln):
        ours = getattr(block, ln, None)
        return x if ours is None else nn.functional.layer_norm(x, (12,), ours.w, ours.b, cfg.eps)

    def theirs(x, attend=1, think=1):
        if kind != "mlp_only":
            y = normed(x, "ln1")
            x = (
                x
                + attend
                * torch_attention(block.attn)(y, y, y, attn_mask=mask(cfg), need_weights=False)[0]
            )
        return x if kind == "attn_only" else x + think * torch_mlp(block.mlp)(normed(x, "ln2"))

    same_block(block, theirs)
    must_fail(same_block, block, lambda x: theirs(x, attend=1.001, think=1.001))


# 3. transformers.GPT2Model between a linear read-in and read-out.


def gpt2_of(model):
    """A GPT2Model with the same weights."""
    cfg = model.cfg
    body = (
        GPT2Model(
            GPT2Config(
                vocab_size=1,
                n_positions=cfg.n_ctx,
                n_embd=cfg.d_model,
                n_layer=cfg.n_layers,
                n_head=cfg.n_heads,
                n_inner=cfg.d_mlp,
                layer_norm_epsilon=cfg.eps,
                bos_token_id=0,
                eos_token_id=0,
            )
        )
        .to(model.unembed.W_U.dtype)
        .eval()
    )
    weights = {"wte.weight": torch.zeros(1, cfg.d_model), "wpe.weight": model.pos_embed.W_pos}
    norms = {"ln_f": model.ln_final}
    for i, block in enumerate(model.blocks):
        attn, mlp, here = block.attn, block.mlp, f"h.{i}."
        columns = [getattr(attn, f"W_{c}").transpose(0, 1).flatten(1) for c in "QKV"]
        weights |= {
            here + "attn.c_attn.weight": torch.cat(columns, 1),
            here + "attn.c_attn.bias": torch.cat(
                [getattr(attn, f"b_{c}").flatten() for c in "QKV"]
            ),
            here + "attn.c_proj.weight": attn.W_O.flatten(0, 1),
            here + "attn.c_proj.bias": attn.b_O,
            here + "mlp.c_fc.weight": mlp.W_in,
            here + "mlp.c_fc.bias": mlp.b_in,
            here + "mlp.c_proj.weight": mlp.W_out,
            here + "mlp.c_proj.bias": mlp.b_out,
        }
        norms |= {here + "ln_1": block.ln1, here + "ln_2": block.ln2}
    weights |= {f"{name}.weight": norm.w for name, norm in norms.items()}
    weights |= {f"{name}.bias": norm.b for name, norm in norms.items()}
    body.load_state_dict(weights)
    return body


def is_gpt2(model, body, dtype, tolerance):
    tokens = noise(3, 13, model.cfg.d_in, dtype=dtype)
    with torch.no_grad():
        stream = body(inputs_embeds=tokens @ model.embed.W_E + model.embed.b_E).last_hidden_state
        agree(model(tokens), stream @ model.unembed.W_U + model.unembed.b_U, tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_model_is_gpt2(dtype, tolerance):
    model = make(act_fn="gelu_new", n_layers=3, d_in=2, d_out=2).to(dtype)
    body = gpt2_of(model)
    is_gpt2(model, body, dtype, tolerance)
    must_fail(
        is_gpt2, make(act_fn="gelu", n_layers=3, d_in=2, d_out=2).to(dtype), body, dtype, tolerance
    )
    body.wpe.weight.data = body.wpe.weight.roll(1, 0)
    must_fail(is_gpt2, model, body, dtype, tolerance)


# 4. TransformerLens 3.9's HookedTransformer, at every hook:
#    golden/make_transformer_lens_3_golden.py made the numbers.


def read_golden(name):
    """A model with the golden weights, and the golden tensors."""
    with safe_open(GOLDEN / f"transformer_lens_3_{name}.safetensors", "pt") as file:
        cfg = HookedTransformerConfig(**json.loads(file.metadata()["about"])["config"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    model = HookedTransformer(cfg).double().eval()
    model.load_state_dict(
        {key.removeprefix("weight/"): w for key, w in tensors.items() if key.startswith("weight/")}
    )
    return model, {key: value for key, value in tensors.items() if not key.startswith("weight/")}


def is_golden(model, golden):
    with torch.no_grad():
        out, cache = model.run_with_cache(golden["input"])
        agree(out, golden["output"], 1e-12)
    hooks = {name: value for name, value in golden.items() if "hook_" in name}
    # Ours alone: what leaves a norm, and the middle of a block without an MLP.
    extra = {name for name in cache if name.endswith((".hook_out", "hook_resid_mid"))}
    assert set(cache) - extra <= set(hooks) <= set(cache)
    for name, want in hooks.items():
        hidden = want == -torch.inf
        assert torch.equal(cache[name] == -torch.inf, hidden), f"{name}: other keys are hidden"
        agree(cache[name].masked_fill(hidden, 0), want.masked_fill(hidden, 0), 1e-12)
    for name, norm in model.norms.items():
        out = golden[f"{name}.hook_normalized"]
        out = out if norm.w is None else out * norm.w + norm.b
        agree(cache[f"{name}.hook_out"], out, 1e-12)


@pytest.mark.parametrize("name", ["ln", "lnpre", "bare"])
def test_every_hook_is_transformer_lens_3s(name):
    model, golden = read_golden(name)
    is_golden(model, golden)
    assert name == "bare" or torch.isinf(golden["blocks.0.attn.hook_attn_scores"]).any()
    for hook in ("blocks.1.attn.hook_result", "blocks.0.attn.hook_attn_scores", "output"):
        broken = {**golden, hook: golden[hook] * (1 + 1e-9)}
        must_fail(is_golden, model, broken)
    with torch.no_grad():
        model.blocks[1].attn.b_K += 1e-6
    must_fail(is_golden, model, golden)
