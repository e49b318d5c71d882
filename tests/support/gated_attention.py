"""Modules that no format here reads: gated linear attention in pure torch, and a rotary Llama."""

import torch
from foreign_files import TheirTransformer
from torch import nn
from transformers import LlamaConfig, LlamaModel

from icl_interp.adapters import Place
from icl_interp.provenance import generator

WIDTH, HEADS, LAYERS = 8, 2, 2


class Weights(nn.Module):
    """What a gated layer weighs values by; a module of its own so that it can be named."""

    def forward(self, q, k, log_gates):
        """q_t . k_s times the gates from s + 1 to t, (batch, head, query, key)."""
        total = log_gates.cumsum(-1)
        decay = (total[..., :, None] - total[..., None, :]).tril().exp().tril()
        return (q @ k.transpose(-1, -2)) * decay


class GatedLayer(nn.Module):
    """S_t = g_t S_{t-1} + k_t v_t', o_t = S_t' q_t: Yang et al. (2024), with a gate a head."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.gate = nn.Linear(WIDTH, HEADS)
        self.weights = Weights()
        self.out = nn.Linear(WIDTH, WIDTH)

    def parts(self, stream):
        x = self.norm(stream)
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        return q, k, v, nn.functional.logsigmoid(self.gate(x)).transpose(1, 2)

    def forward(self, stream):
        q, k, v, gates = self.parts(stream)
        z = (self.weights(q, k, gates) @ v).transpose(1, 2).flatten(2)
        return stream + self.out(z)


class Gated(nn.Module):
    """Two gated layers between a read-in and a read-out."""

    def __init__(self, d_in=1):
        super().__init__()
        self.read_in = nn.Linear(d_in, WIDTH)
        self.layers = nn.ModuleList(GatedLayer() for _ in range(LAYERS))
        self.read_out = nn.Linear(WIDTH, 1)
        drawn(self)

    def forward(self, tokens):
        stream = self.read_in(tokens)
        for layer in self.layers:
            stream = layer(stream)
        return self.read_out(stream)


def recurrent(layer, stream):
    """The same layer, token by token: an independent route."""
    q, k, v, gates = layer.parts(stream)
    state = stream.new_zeros(len(stream), HEADS, q.shape[-1], v.shape[-1])
    outs = []
    for t in range(stream.shape[1]):
        state = gates[:, :, t].exp()[..., None, None] * state
        state = state + k[:, :, t, :, None] * v[:, :, t, None, :]
        outs.append((q[:, :, t, None] @ state).flatten(1))
    return stream + layer.out(torch.stack(outs, 1))


class Rotary(nn.Module):
    """A Llama of `transformers` between a read-in and a read-out: rotary positions, RMS norms."""

    def __init__(self, d_in=1):
        super().__init__()
        config = LlamaConfig(
            vocab_size=3,
            hidden_size=WIDTH,
            intermediate_size=2 * WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=HEADS,
            max_position_embeddings=40,
            attn_implementation="eager",
        )
        self.read_in = nn.Linear(d_in, WIDTH)
        self.body = LlamaModel(config)
        self.read_out = nn.Linear(WIDTH, 1)
        drawn(self)

    def forward(self, tokens):
        return self.read_out(self.body(inputs_embeds=self.read_in(tokens)).last_hidden_state)


class Numbers(nn.Module):
    """A GPT-2 of `transformers` that reads tokens and predicts at each."""

    def __init__(self, d_in=1):
        super().__init__()
        theirs = TheirTransformer(n_dims=d_in, attn_implementation="eager")
        self.read_in, self.body = theirs._read_in, theirs._backbone
        self.read_out = theirs._read_out
        self.eval()

    def forward(self, tokens):
        return self.read_out(self.body(inputs_embeds=self.read_in(tokens)).last_hidden_state)


def drawn(model, size=0.4):
    """Weights from a stream of their own, gains about 1; in evaluation mode."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator(0, f"drawn/{name}"))
            parameter.copy_(size * noise + ("norm" in name and name.endswith("weight")))
    model.eval()


def of_heads(name):
    """What heads make of values, of a matrix product that takes all of them side by side."""
    return Place(
        name, "input", take=lambda z: z.unflatten(-1, (HEADS, -1)), put=lambda old, z: z.flatten(-2)
    )
