"""The numeric transformer from its state dict, straight from the formulas.

No code is shared with the package.
"""

import math

import torch

ACTIVATIONS = {
    "gelu": lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
    "gelu_new": lambda x: x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "relu": lambda x: x.clamp(min=0),
}


def norm(cfg, weights, name, x):
    """LayerNorm with or without gain and bias, RMS norm with a gain, or the identity."""
    if cfg.normalization_type is None:
        return x
    if cfg.normalization_type == "Tanh":
        e = (2 * weights[f"{name}.alpha"] * x).exp()
        return weights[f"{name}.w"] * (e - 1) / (e + 1) + weights[f"{name}.b"]
    if cfg.normalization_type != "RMS":
        x = x - x.mean(-1, keepdim=True)
    x = x / ((x * x).mean(-1, keepdim=True) + cfg.eps).sqrt()
    if cfg.normalization_type != "LNPre":
        x = x * weights[f"{name}.w"]
    return x + weights[f"{name}.b"] if cfg.normalization_type == "LN" else x


def entmax(row):
    """Entmax of order 1.5 of a list of scores: the threshold by bisection, to the last bit."""
    low, high = max(row) / 2 - 1, max(row) / 2
    for _ in range(60):
        tau = (low + high) / 2
        if sum(max(s / 2 - tau, 0) ** 2 for s in row) > 1:
            low = tau
        else:
            high = tau
    return [max(s / 2 - tau, 0) ** 2 for s in row]


def scaled_softmax(row):
    """n^s / sum n^s."""
    powers = [len(row) ** (s - max(row)) for s in row]
    return [p / sum(powers) for p in powers]


# Weights of one query's list of scores, for the score functions that read n off it.
WEIGHTS = {
    "scaled_softmax": scaled_softmax,
    "entmax": entmax,
    "sigmoid": lambda row: [1 / (1 + len(row) * math.exp(-s)) for s in row],
    "relu": lambda row: [max(s, 0) / len(row) for s in row],
}


def pattern(cfg, scores):
    """Attention weights of scores (..., query, key), query by query."""
    out, n = torch.zeros_like(scores), scores.shape[-1]
    for i in range(n):
        seen = i + 1 if cfg.attention_dir == "causal" else n
        row = scores[..., i, :seen]
        if cfg.score_fn == "softmax":
            exp = (row - row.amax(-1, keepdim=True)).exp()
            out[..., i, :seen] = exp / exp.sum(-1, keepdim=True)
        elif cfg.score_fn == "hardmax":
            out[..., i, :seen] = torch.nn.functional.one_hot(row.argmax(-1), seen).to(row)
        elif cfg.score_fn in WEIGHTS:
            rows = [WEIGHTS[cfg.score_fn](r) for r in row.reshape(-1, seen).tolist()]
            out[..., i, :seen] = torch.tensor(rows, dtype=row.dtype).view(row.shape)
        else:
            divisor = {None: 1, "visible": seen, "labelled": max(seen - 1, 1)}[cfg.score_norm]
            out[..., i, :seen] = row / divisor
    return out


def attention(cfg, weights, name, x):
    """What all heads add to the stream, head by head."""
    total = weights[f"{name}.b_O"]
    for h in range(cfg.n_heads):
        q, k, v = (x @ weights[f"{name}.W_{c}"][h] + weights[f"{name}.b_{c}"][h] for c in "QKV")
        scores = q @ k.transpose(-1, -2) / (math.sqrt(cfg.d_head) if cfg.use_attn_scale else 1)
        total = total + pattern(cfg, scores) @ v @ weights[f"{name}.W_O"][h]
    return total


def mlp(cfg, weights, name, x):
    """What the MLP adds to the stream."""
    hidden = ACTIVATIONS[cfg.act_fn](x @ weights[f"{name}.W_in"] + weights[f"{name}.b_in"])
    return hidden @ weights[f"{name}.W_out"] + weights[f"{name}.b_out"]


def ends_in_a_norm(cfg):
    """Whether a norm of its own stands before the read-out."""
    usual = cfg.norm_position == "pre"
    return usual if cfg.final_norm is None or cfg.normalization_type is None else cfg.final_norm


def forward(cfg, weights, tokens):
    """Tokens (batch, token, d_in) to predictions (batch, token, d_out)."""
    stream = tokens @ weights["embed.W_E"] + weights["embed.b_E"]
    if cfg.embed_bound is not None:
        b = cfg.embed_bound
        stream = stream * b / (b * b + stream.norm(dim=-1, keepdim=True) ** 2).sqrt()
    if cfg.positional_embedding_type == "standard":
        stream = stream + weights["pos_embed.W_pos"][: tokens.shape[1]]
    for i in range(cfg.n_layers):
        sublayers = [(attention, "attn", "ln1")] * (not cfg.mlp_only) + [(mlp, "mlp", "ln2")] * (
            not cfg.attn_only
        )
        for sublayer, name, ln in sublayers:
            name, ln = f"blocks.{i}.{name}", f"blocks.{i}.{ln}"
            s = cfg.residual_scale
            if cfg.norm_position == "output":
                stream = stream + norm(cfg, weights, ln, sublayer(cfg, weights, name, stream))
            elif cfg.norm_position == "post":
                stream = norm(cfg, weights, ln, stream + s * sublayer(cfg, weights, name, stream))
            else:
                read = norm(cfg, weights, ln, stream)
                stream = stream + s * sublayer(cfg, weights, name, read)
                if cfg.norm_position == "both":
                    stream = norm(cfg, weights, f"blocks.{i}.ln2", stream)
    if ends_in_a_norm(cfg):
        stream = norm(cfg, weights, "ln_final", stream)
    return stream @ weights["unembed.W_U"] + weights["unembed.b_U"]


def shapes(cfg):
    """Every parameter's name and shape."""
    d, h, e, m = cfg.d_model, cfg.n_heads, cfg.d_head, cfg.d_mlp
    found = {
        "embed.W_E": (cfg.d_in, d),
        "embed.b_E": (d,),
        "unembed.W_U": (d, cfg.d_out),
        "unembed.b_U": (cfg.d_out,),
    }
    if cfg.positional_embedding_type == "standard":
        found["pos_embed.W_pos"] = (cfg.n_ctx, d)
    norms = ["ln_final"] if ends_in_a_norm(cfg) else []
    if cfg.norm_position == "both":
        norms += [f"blocks.{i}.ln2" for i in range(cfg.n_layers)]
    for i in range(cfg.n_layers):
        if not cfg.mlp_only:
            norms.append(f"blocks.{i}.ln1")
            found |= {f"blocks.{i}.attn.W_{c}": (h, d, e) for c in "QKV"}
            found |= {f"blocks.{i}.attn.b_{c}": (h, e) for c in "QKV"}
            found |= {f"blocks.{i}.attn.W_O": (h, e, d), f"blocks.{i}.attn.b_O": (d,)}
        if not cfg.attn_only:
            norms.append(f"blocks.{i}.ln2")
            found |= {f"blocks.{i}.mlp.W_in": (d, m), f"blocks.{i}.mlp.b_in": (m,)}
            found |= {f"blocks.{i}.mlp.W_out": (m, d), f"blocks.{i}.mlp.b_out": (d,)}
    letters = {"LN": "wb", "RMS": "w", "LNPre": "", None: "", "Tanh": "wb"}[cfg.normalization_type]
    if cfg.normalization_type == "Tanh":
        found |= {f"{name}.alpha": () for name in norms}
    return found | {f"{name}.{letter}": (d,) for name in norms for letter in letters}
