"""`torch.nn.TransformerEncoder` is read from files and from memory, and computes the same.

Its fused path silences hooks: an adapted one gives the numbers of its conversion, or a refusal.
"""

import math

import pytest
import torch
from helpers import must_fail
from tiny_runs import refuse
from torch import nn

import icl_interp
from icl_interp import probes
from icl_interp.checkpoints.foreign import adopt
from icl_interp.errors import InputError
from icl_interp.provenance import generator
from icl_interp.tasks import LinearRegression

pytestmark = pytest.mark.usefixtures("as_users_run_it", "errors_are_caught")
TASK = LinearRegression(n_dims=3, n_points=5)
PROMPTS = TASK.sample(6, generator(0, "encoder"))
WIDTH, POINTS = 8, 12


class Encoder(nn.Module):
    """Numbers in, an encoder, numbers out; positions learned, fixed or none."""

    def __init__(self, causal=True, final=False, positions="learned", layers=2, **settings):
        super().__init__()
        self.causal = causal
        self.read_in = nn.Linear(3, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.0, batch_first=True, **settings)
        norm = nn.LayerNorm(WIDTH) if final else None
        self.encoder = nn.TransformerEncoder(layer, layers, norm=norm, enable_nested_tensor=False)
        self.read_out = nn.Linear(WIDTH, 1)
        if positions == "learned":
            self.pos_embedding = nn.Parameter(torch.zeros(1, POINTS, WIDTH))
        elif positions == "fixed":
            steps = torch.arange(POINTS)[:, None] / 10 ** torch.arange(WIDTH // 2)
            table = torch.cat([steps.sin(), steps.cos()], -1)
            self.register_buffer("pe", table[:, None], persistent=False)
        rng = generator(0, "encoder weights")
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                gain = "norm" in name and name.endswith("weight")
                parameter.copy_(0.4 * torch.randn(parameter.shape, generator=rng) + gain)
        self.eval()

    def forward(self, tokens):
        stream, n = self.read_in(tokens), tokens.shape[1]
        if hasattr(self, "pos_embedding"):
            stream = stream + self.pos_embedding[:, :n]
        elif hasattr(self, "pe"):
            stream = stream + self.pe[:n, 0]
        mask = torch.full((n, n), -math.inf).triu(1) if self.causal else None
        return self.read_out(self.encoder(stream, mask=mask))


KINDS = {
    "as torch makes it": {},
    "norm first": {"norm_first": True, "final": True, "activation": "gelu"},
    "norm first, no final norm": {"norm_first": True},
    "a final norm behind post-norm": {"final": True},
    "no mask": {"causal": False, "positions": "fixed"},
    "no positions": {"positions": None},
    "no biases": {"bias": False, "norm_first": True},
}


def computes(mine, theirs):
    tokens = torch.randn(3, 9, 3, generator=generator(0, "encoder tokens"))
    with torch.no_grad():
        torch.testing.assert_close(mine(tokens), theirs(tokens), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_in_memory(kind):
    theirs = Encoder(**KINDS[kind])
    mine = adopt(theirs)
    computes(mine, theirs)
    other = Encoder(**KINDS[kind])
    with torch.no_grad():
        other.encoder.layers[1].norm1.weight[0] += 0.1
    must_fail(computes, mine, other)


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "no mask"])
def test_a_file(kind, tmp_path):
    theirs = Encoder(**KINDS[kind])
    torch.save(theirs.state_dict(), tmp_path / "weights.pt")
    first = bool(KINDS[kind].get("norm_first"))
    told = {"attention_dir": "causal"}
    if first:
        told["norm_position"] = "pre"
    if "activation" in KINDS[kind]:
        told["act_fn"] = "gelu"
    found = icl_interp.load(
        tmp_path / "weights.pt", TASK, encoding="interleaved", n_heads=2, settings=told
    )
    computes(found.model, theirs)
    assert ("norm_position" in {each.name for each in found.assumptions}) != first


def test_a_file_asks_for_what_it_does_not_tell(tmp_path):
    torch.save(Encoder().state_dict(), tmp_path / "weights.pt")

    def read(path):
        return icl_interp.load(path, TASK, encoding="interleaved")

    refuse(tmp_path / "weights.pt", "number of attention heads and whether its tokens see", read)


def test_other_activations_and_other_arithmetic_are_refused():
    with pytest.raises(InputError, match="activation of its TransformerEncoder is none of"):
        adopt(Encoder(activation=torch.tanh))
    model = Encoder()
    model.encoder.layers[0].norm_first = True
    with pytest.raises(InputError, match="layers of its TransformerEncoder differ"):
        adopt(model)


# As it is: torch's fused path would pass by all submodules of a layer.


def adapted(theirs, **given):
    layers = [f"encoder.layers.{i}" for i in range(2)]
    named = {
        "residual": [icl_interp.adapters.Place(layers[0], "input"), *layers],
        "norms": {f"blocks.{i}.ln{n}": f"{layers[i]}.norm{n}" for i in range(2) for n in (1, 2)},
        "readout": ["read_out"],
    }
    return icl_interp.adapt(theirs, encoding="interleaved", **named | given)


@pytest.mark.parametrize("causal", [True, False])
def test_adapted_it_gives_the_numbers_of_its_conversion(causal):
    theirs = Encoder(causal=causal)
    wanted = [probes.ResidualStream(), probes.LogitLens(), probes.LayerNormScale()]
    mine = icl_interp.probe(adapted(theirs), PROMPTS, wanted)
    found = icl_interp.probe(adopt(theirs), PROMPTS, wanted, encoding="interleaved")
    for name, expected in found.items():
        torch.testing.assert_close(
            torch.as_tensor(mine[name].values),
            torch.as_tensor(expected.values),
            rtol=1e-4,
            atol=1e-5,
            equal_nan=True,
        )
    model = adapted(theirs)
    tokens = model.encoding.encode(PROMPTS)
    freeze = icl_interp.interventions.FreezeNorms
    with torch.no_grad(), icl_interp.intervene(model, freeze.measure(model, tokens[:1])):
        inside = model(tokens)
    own = adopt(theirs)
    with torch.no_grad(), icl_interp.intervene(own, freeze.measure(own, tokens[:1])):
        torch.testing.assert_close(inside, own(tokens), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(inside, model(tokens), atol=1e-3)


def test_what_a_kernel_passes_by_is_refused():
    with pytest.raises(InputError, match=r"was not reached.*fused kernel"):
        adapted(Encoder(), points={"blocks.0.hook_attn_out": "encoder.layers.0.self_attn.out_proj"})
