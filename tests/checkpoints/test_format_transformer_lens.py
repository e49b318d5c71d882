"""Weights of TransformerLens 2/3 and 4 compute here what they compute there."""

import copy
import json
from pathlib import Path

import pytest
import torch
from helpers import mostly_slow, must_fail
from safetensors import safe_open
from safetensors.torch import save_file
from tiny_runs import refuse
from torch import nn
from transformer_lens.model_bridge import TransformerBridge
from transformer_lens.model_bridge.sources import native  # noqa: F401  (it gives the bridge its boot_native)
from vector_tasks import LinearMap

import icl_interp
from icl_interp.checkpoints.foreign import adopt
from icl_interp.errors import InputError
from icl_interp.models.tokens import Interleaved
from icl_interp.provenance import generator
from icl_interp.tasks import LinearRegression, Normal

pytestmark = pytest.mark.usefixtures("as_users_run_it", "errors_are_caught")
GOLDEN = Path(__file__).parents[1] / "golden"
TASK = LinearRegression(n_dims=3, n_points=4)
GIVEN = {"task": TASK, "encoding": "interleaved"}


def computes(model, tokens, wanted, close=1e-5):
    """In the precision of `wanted`, to `close` of the largest output."""
    assert wanted.std() > 0.01
    with torch.no_grad():
        found = model.to(wanted.dtype)(tokens.to(wanted.dtype))
    torch.testing.assert_close(
        found, wanted, rtol=0, atol=close * max(1.0, wanted.abs().max().item())
    )


# ---- versions 2 and 3: the golden weights and outputs are those of TransformerLens 3.9 -----------


def golden(name):
    """(config, state dict with the masks that version 3 keeps in it, tokens, outputs)."""
    with safe_open(GOLDEN / f"transformer_lens_3_{name}.safetensors", "pt") as file:
        config = json.loads(file.metadata()["about"])["config"]
        found = {key: file.get_tensor(key).float() for key in file.keys()}  # noqa: SIM118
    state = {
        key.removeprefix("weight/"): tensor
        for key, tensor in found.items()
        if key.startswith("weight/")
    }
    n = config["n_ctx"]
    visible = torch.ones(n, n).bool()
    causal = config.get("attention_dir", "causal") == "causal"
    for i in range(config["n_layers"]):
        state[f"blocks.{i}.attn.mask"] = visible.tril() if causal else visible
        state[f"blocks.{i}.attn.IGNORE"] = torch.tensor(-torch.inf)
    return config, state, found["input"], found["output"]


SAVERS = {
    "torch": lambda state, path: torch.save(state, path),
    "safetensors": lambda state, path: save_file({k: v.clone() for k, v in state.items()}, path),
    "wrapped": lambda state, path: torch.save(
        {"state_dict": {f"module.{k}": v for k, v in state.items()}}, path
    ),
}


@pytest.mark.parametrize("name", ["ln", "lnpre", "bare"])
@pytest.mark.parametrize("saver", SAVERS)
def test_a_state_dict_of_version_3_computes_its_outputs(tmp_path, name, saver):
    config, state, tokens, wanted = golden(name)
    SAVERS[saver](state, tmp_path / "weights")
    lacking = {} if config.get("attn_only") else {"act_fn": config["act_fn"]}
    if config["normalization_type"] != "LN":
        lacking["normalization_type"] = config["normalization_type"]
    if not config.get("use_attn_scale", True):
        lacking["use_attn_scale"] = False
    task = LinearMap(
        n_dims=config["d_in"],
        outputs=config["d_out"],
        weights=Normal(1),
        inputs=Normal(1),
        n_points=4,
    )
    found = icl_interp.load(
        tmp_path / "weights", task, encoding="interleaved", settings=lacking
    ).model
    computes(found, tokens, wanted)
    other = {"eps": 0.1} if config["normalization_type"] else {"use_attn_scale": True}
    changed = icl_interp.load(
        tmp_path / "weights", task, encoding="interleaved", settings={**lacking, **other}
    ).model
    must_fail(computes, changed, tokens, wanted)


def test_what_version_3s_weights_do_not_tell_is_asked_for(tmp_path):
    _, state, _, _ = golden("lnpre")
    path = tmp_path / "w.pt"
    torch.save(state, path)
    refuse(
        path,
        "the activation of its MLPs and its norm, .* and the task and how it reads prompts: "
        ".*--setting act_fn",
    )
    path = tmp_path / "extra.pt"
    torch.save({**state, "blocks.0.mlp.W_gate": torch.ones(2)}, path)
    settings = {"act_fn": "gelu", "normalization_type": "LNPre"}
    refuse(
        path,
        "has besides blocks.0.mlp.W_gate",
        lambda p: icl_interp.load(p, **GIVEN, settings=settings),
    )


# ---- version 4: TransformerBridge.boot_native itself ---------------------------------------------

SIZES = {
    "n_layers": 2,
    "d_model": 8,
    "n_heads": 2,
    "d_head": 4,
    "n_ctx": 10,
    "d_vocab": 5,
    "d_vocab_out": 1,
    "d_mlp": 12,
}


def boot(**config):
    return TransformerBridge.boot_native({**SIZES, "act_fn": "relu", "seed": 0, **config})


class Beside(nn.Module):
    """A read-in beside the bridge, whose own table of words is never used."""

    def __init__(self, **config):
        super().__init__()
        self.read_in, self.body = nn.Linear(3, 8), shaken(boot(**config))

    def forward(self, tokens):
        return self.body(self.read_in(tokens))


def shaken(module):
    """With weights and biases that are not those of initialisation."""
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.4 * torch.randn(parameter.shape, generator=rng))
    return module


def inside(**config):
    """The read-in in the place of the table of words."""
    bridge = boot(**config)
    bridge.embed.set_original_component(nn.Linear(3, 8))
    return shaken(bridge)


def outputs(model, tokens):
    """The outputs in float64.

    Without a norm, large scores make float32 differ between kernels by more than 1e-5.

    TransformerLens' norms compute in float32 all the same.
    """
    model = copy.deepcopy(model).double()
    with torch.no_grad():
        return getattr(model, "original_model", model)(tokens.double())


TOKENS = torch.randn(8, 10, 3, generator=generator(0, "tokens"))
NATIVE = {
    "LN": ({}, {"act_fn": "relu"}),
    "RMS": ({"normalization_type": "RMS", "act_fn": "gelu"}, {"act_fn": "gelu"}),
    "LNPre": ({"normalization_type": "LNPre"}, {"act_fn": "relu", "normalization_type": "LNPre"}),
    "no norm": ({"normalization_type": None}, {"act_fn": "relu", "normalization_type": None}),
    "attention only": ({"attn_only": True}, {}),
    "bidirectional": (
        {"attention_dir": "bidirectional"},
        {"act_fn": "relu", "attention_dir": "bidirectional"},
    ),
    "eps": ({"eps": 1e-2}, {"act_fn": "relu", "eps": 1e-2}),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", mostly_slow(NATIVE, 2))
@pytest.mark.parametrize("make", [inside, Beside], ids=["inside", "beside"])
def test_a_boot_native_model_computes_the_same_from_disk_and_from_memory(tmp_path, kind, make):
    config, lacking = NATIVE[kind]
    close = 1e-12 if kind == "no norm" else 1e-5
    torch.manual_seed(0)
    original = make(**config).eval()
    wanted = outputs(original, TOKENS)
    computes(adopt(original), TOKENS, wanted, close)
    path = tmp_path / "weights.pt"
    torch.save(original.state_dict(), path)
    computes(
        icl_interp.load(path, **GIVEN, n_heads=2, settings=lacking).model, TOKENS, wanted, close
    )
    must_fail(
        computes, icl_interp.load(path, **GIVEN, n_heads=4, settings=lacking).model, TOKENS, wanted
    )
    torch.manual_seed(0)
    other = make(**config).eval()
    with (
        torch.no_grad()
    ):  # a factor, since keys of centred vectors do not feel a shift of their weights
        next(
            p for n, p in other.named_parameters() if n.endswith("attn.k.weight") or ".k." in n
        ).mul_(1.5)
    must_fail(computes, adopt(other), TOKENS, wanted)


def test_in_memory_the_task_is_enough():
    found = icl_interp.load(Beside(), TASK)
    assert (found.encoding, found.provenance["format"]) == (
        Interleaved(),
        "boot_native model of TransformerLens 4",
    )


def test_a_read_in_beside_may_have_the_name_of_one_inside(tmp_path):
    """`embed.weight` beside `body.embed.weight`: the one beside reads numbers."""
    original = Beside().eval()
    weights = original.state_dict()
    renamed = {name: weights.pop(f"read_in.{name[6:]}") for name in ("embed.weight", "embed.bias")}
    renamed = {**weights, **renamed}  # what stands beside may come last
    path = tmp_path / "w.pt"
    torch.save(renamed, path)
    found = icl_interp.load(path, **GIVEN, n_heads=2, settings={"act_fn": "relu"}).model
    wanted = outputs(original, TOKENS)
    computes(found, TOKENS, wanted)
    must_fail(computes, found, 2 * TOKENS, wanted)


class Doubled(Beside):
    def forward(self, tokens):
        return 2 * super().forward(tokens)


@pytest.mark.slow
def test_models_of_version_4_that_are_something_else_are_refused(tmp_path):
    for model, match in (
        (Doubled(), "the model's outputs differ by 5.0e-01"),
        (boot(), "has no read-in for numbers: its embed.weight is a table of words"),
        (Beside(act_fn="silu"), "unknown act_fn 'silu'"),
        (Beside(gated_mlp=True), "has besides blocks.0.mlp.gate.weight"),
        (
            Beside(n_key_value_heads=1),
            r"blocks\.0\.attn\.k\.weight with shape \(4, 8\) instead of \(8, 8\)",
        ),
        (Beside(positional_embedding_type="rotary"), "lacks pos_embed.weight"),
    ):
        with pytest.raises(InputError, match=match) as refused:
            adopt(model)
        assert "\n" not in str(refused.value)
    torch.save(Beside().state_dict(), tmp_path / "w.pt")
    refuse(
        tmp_path / "w.pt",
        "not tell the number of attention heads and the activation of its MLPs and the task",
    )
    more = {**Beside().state_dict(), "second.weight": torch.ones(8, 3)}
    torch.save(more, tmp_path / "m.pt")
    refuse(
        tmp_path / "m.pt",
        "beside a boot_native model .* there may be one linear layer, the read-in, but there are",
    )
