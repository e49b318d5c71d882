"""A GPT2Model between a read-in and a read-out computes what the original computes.

It is read from a state dict and from memory.
"""

import pytest
import torch
from foreign_files import TheirTransformer
from helpers import must_fail
from tiny_runs import refuse
from torch import nn
from transformers import GPT2Config, GPT2Model

import icl_interp
from icl_interp.checkpoints.foreign import adopt
from icl_interp.errors import InputError
from icl_interp.models.tokens import Interleaved, Stacked
from icl_interp.prompts import as_numbers
from icl_interp.provenance import generator
from icl_interp.tasks import LinearRegression

pytestmark = pytest.mark.usefixtures("as_users_run_it", "errors_are_caught")
TASK = LinearRegression(n_dims=3, n_points=5)
STACKED = LinearRegression(n_dims=2, n_points=5)
GIVEN = {"encoding": "interleaved", "n_heads": 2}


class Numbers(nn.Module):
    """A GPT2Model that reads and predicts numbers."""

    def __init__(
        self, width=8, d_in=3, names=("read_in", "body", "read_out"), seed=0, bias=True, **config
    ):
        super().__init__()
        settings = {
            "vocab_size": 3,
            "bos_token_id": 0,
            "eos_token_id": 0,
            "n_positions": 10,
            "n_layer": 2,
        }
        body = GPT2Model(GPT2Config(**{**settings, "n_embd": width, "n_head": 2, **config}))
        self.names = names
        ends = nn.Linear(d_in, width, bias=bias), body, nn.Linear(width, 1, bias=bias)
        for name, module in zip(names, ends, strict=True):
            self.add_module(name, module)
        rng = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                parameter.copy_(
                    0.5 * torch.randn(parameter.shape, generator=rng) + (".ln_" in name)
                )
        self.eval()

    def forward(self, tokens):
        read_in, body, read_out = (getattr(self, name) for name in self.names)
        return read_out(body(inputs_embeds=read_in(tokens)).last_hidden_state)


class Offset(Numbers):
    """One whose outputs are not those of its weights."""

    def forward(self, tokens):
        return super().forward(tokens) + 1


def computes_the_same(found, original):
    """On random tokens, at every position."""
    tokens = torch.randn(16, 9, found.cfg.d_in, generator=generator(0, "test"))
    with torch.no_grad():
        wanted = original(tokens)
        assert wanted.std() > 0.02  # not a constant
        torch.testing.assert_close(found(tokens), wanted, rtol=0, atol=1e-5)


def saved(path, state):
    torch.save(state, path)
    return path


KINDS = {
    "read_in, body, read_out": {},
    "other names": {"names": ("embed", "gpt", "head")},
    "as wide as its tokens": {"width": 6, "d_in": 6},
    "without biases": {"bias": False},
    "d_mlp": {"n_inner": 10},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_dict_computes_what_the_original_computes(tmp_path, kind):
    original = Numbers(**KINDS[kind])
    task = LinearRegression(n_dims=KINDS[kind].get("d_in", 3), n_points=5)
    found = icl_interp.load(saved(tmp_path / "w", original.state_dict()), task, **GIVEN).model
    computes_the_same(found, original)
    with torch.no_grad():
        q, k, v = (
            original.get_submodule(original.names[1]).h[0].attn.c_attn.weight.clone().chunk(3, -1)
        )
        original.get_submodule(original.names[1]).h[0].attn.c_attn.weight.copy_(
            torch.cat([q, v, k], -1)
        )
    must_fail(computes_the_same, found, original)


def test_a_body_may_have_no_prefix(tmp_path):
    original = Numbers()
    state = {name.removeprefix("body."): tensor for name, tensor in original.state_dict().items()}
    computes_the_same(
        icl_interp.load(saved(tmp_path / "w.ckpt", state), TASK, **GIVEN).model, original
    )


def test_what_the_weights_do_not_tell_is_the_librarys_default_or_what_was_said(tmp_path, caplog):
    relu = Numbers(activation_function="relu", layer_norm_epsilon=1e-3)
    path = saved(tmp_path / "w.pt", relu.state_dict())
    settings = {"act_fn": "relu", "eps": 1e-3, "use_attn_scale": True}
    found = icl_interp.load(path, TASK, settings=settings, **GIVEN)
    computes_the_same(found.model, relu)
    assert not caplog.records
    usual = icl_interp.load(path, TASK, **GIVEN)
    must_fail(computes_the_same, usual.model, relu)
    assert {each.name: each.value for each in usual.assumptions} == {
        "act_fn": "gelu_new",
        "eps": 1e-5,
        "use_attn_scale": True,
    }
    (record,) = caplog.records
    assert "The file does not say act_fn=gelu_new (elsewhere relu" in record.getMessage()
    assert icl_interp.load(usual.save(tmp_path / "ours")).assumptions == usual.assumptions


def test_a_model_in_memory_tells_more_than_its_weights():
    relu = {"activation_function": "relu", "n_head": 4, "layer_norm_epsilon": 1e-3}
    for changes in ({}, relu, {"scale_attn_weights": False}):
        computes_the_same(adopt(Numbers(**changes)), Numbers(**changes))
    must_fail(computes_the_same, adopt(Numbers(n_head=4)), Numbers())
    must_fail(computes_the_same, adopt(Numbers()), Numbers(scale_attn_weights=False))
    assert icl_interp.load(Numbers(), STACKED).encoding == Stacked()
    assert icl_interp.load(Numbers(), TASK).encoding == Interleaved()


def test_their_model_in_memory_encodes_by_itself():
    """Inputs and labels are two arguments of Garg et al.'s; what it computes fixes the encoding."""
    original = TheirTransformer()
    found = icl_interp.load(original, TASK)
    prompts = TASK.sample(16, generator(0, "test"))
    with torch.no_grad():
        wanted = original(prompts.xs, as_numbers(prompts.ys))
    torch.testing.assert_close(as_numbers(found.predict(prompts)), wanted, rtol=0, atol=1e-5)
    with pytest.raises(
        InputError, match="stacked prompts with inputs of 3 coordinates have d_in=4"
    ):
        icl_interp.load(original, TASK, encoding="stacked")


class Doubled(Numbers):
    def forward(self, tokens):
        return 2 * super().forward(tokens)


class Shifted(TheirTransformer):
    """Labels stand before their inputs."""

    def forward(self, xs, ys, inds=None):
        return super().forward(xs, ys.roll(1, 1), inds)


class Deep(nn.Module):
    """Its ends are no linear layers."""

    def __init__(self):
        super().__init__()
        self.read_in, self.body = nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 8)), Numbers().body
        self.read_out = nn.Linear(8, 1)


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (Doubled, "the model's outputs differ by 5.0e-01 of their size"),
        (Shifted, "the model's outputs differ by"),
        (
            Deep,
            (
                "there must be a linear read-in and read-out, .*but there are read_in.0.bias, "
                "read_in.0.weight"
            ),
        ),
        (lambda: Numbers(activation_function="silu"), "unknown act_fn 'silu'"),
        (
            lambda: Numbers(scale_attn_by_inverse_layer_idx=True),
            "config says scale_attn_by_inverse_layer_idx=True, which changes",
        ),
        (lambda: Offset(), "the model's outputs differ by"),
        (
            lambda: nn.ModuleList([Numbers(), Numbers()]),
            "holds 2 parts with the config of a GPT2Model",
        ),
        (
            lambda: Numbers().body,
            "around a GPT2Model of width 8 there must be .* but there are no other tensors",
        ),
    ],
)
def test_what_computes_something_else_in_memory_is_refused(model, match):
    with pytest.raises(InputError, match=match) as refused:
        adopt(model())
    assert "\n" not in str(refused.value)


def test_files_that_do_not_tell_or_do_not_match_are_refused(tmp_path):
    state = Numbers().state_dict()
    path = saved(tmp_path / "w.pt", state)
    refuse(
        path,
        "not tell the number of attention heads and the task and how it reads prompts: "
        ".*--encoding NAME",
    )
    refuse(
        path, "does not tell how it reads prompts", lambda p: icl_interp.load(p, TASK, n_heads=2)
    )
    for given, match in (
        ({"n_heads": 3}, r"w\.pt: width 8 does not divide into 3 heads: give 1, 2, 4 or 8"),
        ({"settings": {"attention_dir": "bidirectional"}}, "says attention_dir='causal'"),
        ({"settings": {"score_fn": "linear"}}, "says score_fn='softmax'"),
    ):
        refuse(path, match, lambda p, given=given: icl_interp.load(p, TASK, **{**GIVEN, **given}))
    cases = {
        "two read-ins": (
            {**state, "more.weight": torch.ones(8, 3)},
            "there must be a linear read-in and read-out",
        ),
        "bias": (
            {**state, "read_in.bias": torch.ones(3)},
            "are not two linear layers: read_in.weight, read_in.bias",
        ),
        "key": ({**state, "body.h.0.extra": torch.ones(3)}, "has besides body.h.0.extra$"),
        "wide": (Numbers(8, 8, names=("a", "body", "b")).state_dict(), None),
        "both": (
            {
                **{n: t for n, t in state.items() if "read" not in n},
                "a.weight": torch.ones(8, 8),
                "b.weight": torch.ones(8, 8),
            },
            "called for example read_in and read_out, but there are a.weight, b.weight",
        ),
    }
    for name, (tensors, match) in cases.items():
        task = LinearRegression(n_dims=8 if name == "wide" else 3, n_points=5)
        path = saved(tmp_path / name, tensors)
        if match is None:
            icl_interp.load(path, task, **GIVEN)
        else:
            refuse(path, match, lambda p, task=task: icl_interp.load(p, task, **GIVEN))
