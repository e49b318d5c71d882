"""Models from elsewhere: adopted when they compute what their names say, refused when they merely share the names."""

from types import SimpleNamespace

import pytest
import torch
from helpers import must_fail
from torch import nn

from icl_interp.checkpoints.foreign import adopt
from icl_interp.errors import InputError
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer

CFG = {
    "n_layers": 2,
    "d_model": 6,
    "n_heads": 2,
    "d_head": 4,
    "d_mlp": 10,
    "n_ctx": 7,
    "act_fn": "relu",
    "normalization_type": "LN",
    "attn_only": False,
    "use_attn_scale": True,
    "attention_dir": "causal",
    "eps": 1e-5,
    "d_vocab": 11,  # theirs
    "init_range": 0.3,
}


class Foreign(nn.Module):
    """Another implementation with TransformerLens' config words and weight names, written with einsum."""

    def __init__(self, size=0.5, seed=0, arithmetic="", **cfg):
        super().__init__()
        self.cfg = SimpleNamespace(**{**CFG, **cfg})
        self.arithmetic = arithmetic
        c, rng = self.cfg, torch.Generator().manual_seed(seed)
        shapes = {"embed.W_E": (1, c.d_model), "pos_embed.W_pos": (c.n_ctx, c.d_model)}
        for i in range(c.n_layers):
            block = f"blocks.{i}."
            for x in "QKV":
                shapes[f"{block}attn.W_{x}"] = (c.n_heads, c.d_model, c.d_head)
                shapes[f"{block}attn.b_{x}"] = (c.n_heads, c.d_head)
            shapes |= {
                f"{block}attn.W_O": (c.n_heads, c.d_head, c.d_model),
                f"{block}attn.b_O": (c.d_model,),
            }
            shapes |= {f"{block}mlp.W_in": (c.d_model, c.d_mlp), f"{block}mlp.b_in": (c.d_mlp,)}
            shapes |= {f"{block}mlp.W_out": (c.d_mlp, c.d_model), f"{block}mlp.b_out": (c.d_model,)}
            if c.normalization_type:
                shapes |= {f"{block}{ln}.{p}": (c.d_model,) for ln in ("ln1", "ln2") for p in "wb"}
        if c.normalization_type:
            shapes |= {"ln_final.w": (c.d_model,), "ln_final.b": (c.d_model,)}
        shapes |= {"unembed.W_U": (c.d_model, 1), "unembed.b_U": (1,)}
        for name, shape in shapes.items():
            self.put(name, nn.Parameter(size * torch.randn(shape, generator=rng)))
        for i in range(c.n_layers):  # what TransformerLens 2 and 3 keep in the state dict
            self.put(f"blocks.{i}.attn.mask", torch.ones(c.n_ctx, c.n_ctx).tril().bool())
            self.put(f"blocks.{i}.attn.IGNORE", torch.tensor(-torch.inf))

    def put(self, name, tensor):
        *path, last = name.split(".")
        module = self
        for part in path:
            if part not in dict(module.named_children()):
                module.add_module(part, nn.Module())
            module = module.get_submodule(part)
        if isinstance(tensor, nn.Parameter):
            module.register_parameter(last, tensor)
        else:
            module.register_buffer(last, tensor)

    def norm(self, x, module):
        if not self.cfg.normalization_type:
            return x
        unbiased = self.arithmetic == "unbiased variance"
        variance = x.var(-1, keepdim=True, unbiased=unbiased)
        return (x - x.mean(-1, keepdim=True)) / (
            variance + self.cfg.eps
        ).sqrt() * module.w + module.b

    def forward(self, tokens):
        n = tokens.shape[1]
        x = tokens @ self.embed.W_E + self.pos_embed.W_pos[:n]
        for block in self.blocks.children():
            a, y = block.attn, self.norm(x, getattr(block, "ln1", None))
            q, k, v = (
                torch.einsum("btd,hde->bhte", y, w) + b[:, None]
                for w, b in ((a.W_Q, a.b_Q), (a.W_K, a.b_K), (a.W_V, a.b_V))
            )
            scores = q @ k.mT
            if self.arithmetic != "no scale":
                scores = scores / self.cfg.d_head**0.5
            if self.arithmetic != "no mask":
                scores = scores.masked_fill(~a.mask[:n, :n], -torch.inf)
            z = scores.softmax(-1) @ v
            attn_out = torch.einsum("bhte,hed->btd", z, a.W_O) + a.b_O
            before = x
            x = x + attn_out
            read = before if self.arithmetic == "parallel" else x
            y = self.norm(read, getattr(block, "ln2", None)) @ block.mlp.W_in + block.mlp.b_in
            y = nn.functional.gelu(y) if self.arithmetic == "gelu" else y.relu()
            x = x + y @ block.mlp.W_out + block.mlp.b_out
        out = self.norm(x, getattr(self, "ln_final", None)) @ self.unembed.W_U + self.unembed.b_U
        if self.arithmetic == "flat":
            return out[..., 0]
        return out * 1.01 if self.arithmetic == "one per cent" else out


TOKENS = torch.randn(3, 7, 1, generator=torch.Generator().manual_seed(1))


def check_adopted(foreign):
    """The copy computes the same, from the same weights, and has hooks.

    The original is as it was.
    """
    before = {name: tensor.clone() for name, tensor in foreign.state_dict().items()}
    training = foreign.training
    copy = adopt(foreign)
    assert isinstance(copy, HookedTransformer)
    assert not copy.training
    with torch.no_grad():
        torch.testing.assert_close(copy(TOKENS), foreign(TOKENS), rtol=1e-5, atol=1e-6)
    for name, tensor in copy.state_dict().items():
        assert torch.equal(tensor, before[name] if name in before else torch.zeros_like(tensor))
    assert set(copy.state_dict()) - set(before) == {"embed.b_E"}
    _, cache = copy.run_with_cache(TOKENS)
    assert cache["blocks.1.attn.hook_pattern"].shape == (3, 2, 7, 7)
    assert foreign.training == training
    for name, tensor in foreign.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_a_model_with_the_same_names_and_arithmetic_is_adopted():
    check_adopted(Foreign())
    check_adopted(Foreign().eval())
    check_adopted(Foreign(normalization_type=None))


def test_adopting_something_else_would_be_noticed(monkeypatch):
    monkeypatch.setattr("icl_interp.checkpoints.formats.modules.compare", lambda *_: None)
    check_adopted(Foreign())
    for arithmetic in ARITHMETICS:
        must_fail(check_adopted, Foreign(arithmetic=arithmetic))


def check_refused(model, match):
    with pytest.raises(InputError, match=match) as refused:
        adopt(model)
    assert "\n" not in str(refused.value)


ARITHMETICS = ("no scale", "no mask", "parallel", "gelu", "unbiased variance", "one per cent")


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize("size", [0.5, 0.02], ids=["trained", "fresh"])
def test_a_model_with_other_arithmetic_is_refused(arithmetic, size):
    if size < 0.1 and arithmetic in ("no scale", "no mask"):
        # Attention of smaller weights is uniform up to rounding: scale and mask change nothing yet.
        size = 0.3
    check_refused(
        Foreign(size, arithmetic=arithmetic),
        "outputs differ by .* so hook names would mean something else",
    )
    must_fail(check_refused, Foreign(size), "outputs differ")


@pytest.mark.parametrize("arithmetic", ["parallel", "gelu", "one per cent"])
def test_small_outputs_are_no_excuse(arithmetic):
    """Without a norm, fresh weights make outputs of 1e-3: what differs by 1e-5 of that is not what differs by 1e-5."""
    tiny = Foreign(0.02, arithmetic=arithmetic, normalization_type=None)
    with torch.no_grad():
        tiny.unembed.b_U.zero_()
    check_refused(tiny, "outputs differ")


def without(name):
    model = Foreign()
    *path, last = name.split(".")
    delattr(model.get_submodule(".".join(path)), last)
    return model


def reshaped(name, *shape):
    model = Foreign()
    model.get_parameter(name).data = torch.ones(shape)
    return model


def less(word):
    model = Foreign()
    delattr(model.cfg, word)
    return model


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (
            lambda: without("blocks.1.attn.W_Q"),
            r"tensor blocks.1.attn.W_Q has shape None, but .* asks for \(2, 6, 4\)",
        ),
        (
            lambda: without("ln_final.w"),
            r"tensor ln_final.w has shape None, but this config asks for \(6,\)",
        ),
        (
            lambda: without("embed.W_E"),
            "no embed.W_E and unembed.W_U: its weights do not have TransformerLens' names",
        ),
        (
            lambda: reshaped("blocks.0.mlp.W_in", 6, 9),
            r"blocks.0.mlp.W_in has shape \(6, 9\), but .* asks for \(6, 10\)",
        ),
        (lambda: Foreign(normalization_type=None, n_layers=3).requires_grad_(False), None),
        (lambda: less("n_layers"), "the model's cfg lacks the key 'n_layers'"),
        (lambda: less("d_model"), "the model's cfg lacks the key 'd_model'"),
        (lambda: Foreign(act_fn="silu"), "unknown act_fn 'silu'"),
        (
            lambda: Foreign(arithmetic="flat"),
            r"output has shape \(2, 7\), but \(2, 7, 1\) was expected",
        ),
        (
            lambda: nn.Linear(2, 2),
            "a model with TransformerLens' hook names and a cfg, but got Linear",
        ),
        (lambda: "affine", "but got str"),
        (lambda: None, "but got NoneType"),
    ],
)
@pytest.mark.usefixtures("as_users_run_it")
def test_what_does_not_fit_is_refused_by_name(make, match):
    if match is None:
        assert isinstance(adopt(make()), HookedTransformer)
    else:
        check_refused(make(), match)


class Words(Foreign):
    """Wants whole numbers, as language models do."""

    def forward(self, tokens):
        return self.embed.W_E[tokens.squeeze(-1)]


def test_a_model_that_does_not_run_on_numbers_is_refused():
    model = Words()
    check_refused(
        model, r"the model does not run on tokens of shape \(2, 7, 1\): tensors used as indices"
    )
    assert model.training


def test_nan_in_the_weights_is_refused():
    model = Foreign()
    with torch.no_grad():
        model.blocks.get_submodule("0.mlp").b_in[0] = torch.nan
    check_refused(model, r"the model: blocks\.0\.mlp\.b_in holds NaN or infinite numbers")


def test_our_own_model_is_its_own():
    model = HookedTransformer(HookedTransformerConfig(n_layers=1, d_model=4, n_ctx=5))
    assert adopt(model) is model
