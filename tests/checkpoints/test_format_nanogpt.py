"""A nanoGPT body computes what the original computes, with and without biases.

The module is written here from what nanoGPT's code does.
"""

import pytest
import torch
from helpers import must_fail
from tiny_runs import refuse
from torch import nn
from torch.nn import functional as F

import icl_interp
from icl_interp.checkpoints.foreign import adopt
from icl_interp.errors import InputError
from icl_interp.provenance import generator
from icl_interp.tasks import LinearRegression

pytestmark = pytest.mark.usefixtures("as_users_run_it", "errors_are_caught")
TASK = LinearRegression(n_dims=3, n_points=5)
GIVEN = {"encoding": "interleaved", "n_heads": 2}
WIDTH, HEADS, POINTS = 8, 2, 10


class Norm(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))
        self.bias = nn.Parameter(torch.zeros(WIDTH)) if bias else None

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class Attention(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH, bias=bias)
        self.c_proj = nn.Linear(WIDTH, WIDTH, bias=bias)
        self.n_head = HEADS

    def forward(self, x):
        q, k, v = (
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, -1)
        )
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(z.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self, bias, act):
        super().__init__()
        self.c_fc = nn.Linear(WIDTH, 4 * WIDTH, bias=bias)
        self.c_proj = nn.Linear(4 * WIDTH, WIDTH, bias=bias)
        self.act = act

    def forward(self, x):
        return self.c_proj(self.act(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, bias, act):
        super().__init__()
        self.ln_1, self.attn = Norm(bias), Attention(bias)
        self.ln_2, self.mlp = Norm(bias), MLP(bias, act)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class NanoGPT(nn.Module):
    """Numbers come in by `wte` or by a layer in front, and go out by `lm_head`."""

    def __init__(self, bias=True, by_wte=False, act=None, words=False):
        super().__init__()
        act = act or nn.GELU()
        parts = {
            "wpe": nn.Embedding(POINTS, WIDTH),
            "h": nn.ModuleList(Block(bias, act) for _ in range(2)),
            "ln_f": Norm(bias),
        }
        read_in = nn.Linear(3, WIDTH)
        if by_wte:
            parts["wte"] = read_in
        else:
            self.read_in = read_in
        if words:
            parts["wte"] = nn.Embedding(7, WIDTH)
        self.by_wte = by_wte
        self.transformer = nn.ModuleDict(parts)
        self.lm_head = nn.Linear(WIDTH, 1, bias=bias)
        rng = generator(0, "nanogpt")
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                gain = "ln_" in name and name.endswith("weight")
                parameter.copy_(0.4 * torch.randn(parameter.shape, generator=rng) + gain)
        self.eval()

    def forward(self, tokens):
        body = self.transformer
        x = body.wte(tokens) if self.by_wte else self.read_in(tokens)
        x = x + body.wpe(torch.arange(tokens.shape[1]))
        for block in body.h:
            x = block(x)
        return self.lm_head(body.ln_f(x))


KINDS = {
    "biases": {},
    "no biases": {"bias": False},
    "read in by wte": {"by_wte": True},
    "without biases, read in by wte": {"by_wte": True, "bias": False},
    "a table of words": {"words": True},
}


def computes(mine, theirs):
    tokens = torch.randn(3, 9, 3, generator=generator(0, "nanogpt tokens"))
    with torch.no_grad():
        torch.testing.assert_close(mine(tokens), theirs(tokens), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prefix", ["", "_orig_mod."])
def test_a_file_gives_the_original(kind, prefix, tmp_path):
    theirs = NanoGPT(**KINDS[kind])
    path = tmp_path / "ckpt.pt"
    torch.save({"model": {prefix + n: t for n, t in theirs.state_dict().items()}}, path)
    found = icl_interp.load(path, TASK, **GIVEN)
    computes(found.model, theirs)
    assert {each.name for each in found.assumptions} >= {"act_fn", "eps"}
    must_fail(
        computes, icl_interp.load(path, TASK, settings={"act_fn": "relu"}, **GIVEN).model, theirs
    )
    must_fail(
        computes, icl_interp.load(path, TASK, encoding="interleaved", n_heads=4).model, theirs
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("act", [nn.GELU(), nn.GELU(approximate="tanh"), nn.ReLU()])
def test_in_memory_its_own_code_tells_what_weights_do_not(kind, act):
    theirs = NanoGPT(act=act, **KINDS[kind])
    computes(adopt(theirs), theirs)


def test_another_arithmetic_is_refused():
    with pytest.raises(InputError, match="outputs differ"):
        adopt(NanoGPT(act=nn.SiLU()))


def test_a_missing_tensor_is_named(tmp_path):
    tensors = NanoGPT().state_dict()
    del tensors["transformer.h.1.ln_2.bias"]
    torch.save(tensors, tmp_path / "ckpt.pt")
    refuse(tmp_path / "ckpt.pt", "h.1.ln_2.bias", lambda p: icl_interp.load(p, TASK, **GIVEN))


def test_a_looped_file_is_still_refused(tmp_path):
    tensors = {f"_backbone.{name}": t for name, t in NanoGPT().state_dict().items()}
    torch.save(tensors, tmp_path / "ckpt.pt")
    refuse(
        tmp_path / "ckpt.pt", "how often its blocks", lambda p: icl_interp.load(p, TASK, **GIVEN)
    )
