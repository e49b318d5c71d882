"""Every public fork that is known: its arithmetic comes out, or an error names the difference.

Each fork is a small module written from its description and saved as the fork saves it.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import yaml
from foreign_files import TheirTransformer, config, state_dict
from helpers import must_fail
from torch import nn

import icl_interp
from icl_interp.errors import InputError
from icl_interp.models.tokens import Interleaved
from icl_interp.prompts import as_numbers
from icl_interp.provenance import generator
from icl_interp.tasks import AutoregressiveProcess, LinearRegression

pytestmark = pytest.mark.usefixtures("as_users_run_it")
TASK = LinearRegression(n_dims=3, n_points=5)


class Fork(TheirTransformer):
    """A model of Garg et al. that a fork changes in one place."""

    def __init__(self, width=3, n_out=1, **settings):
        super().__init__(width, **settings)
        rng = torch.Generator().manual_seed(1)
        self._read_out = nn.Linear(self._read_out.in_features, n_out)
        for parameter in self._read_out.parameters():
            parameter.data = torch.randn(parameter.shape, generator=rng)

    def tokens(self, xs, ys):
        return Interleaved().encode(icl_interp.prompts.Prompts(xs, ys, ys[:, :0], ys[:, 0].long()))

    def stream(self, tokens):
        return self._backbone(inputs_embeds=self._read_in(tokens)).last_hidden_state

    def forward(self, xs, ys, inds=None):
        return self._read_out(self.stream(self.tokens(xs, ys)))[:, ::2, 0]


class Stacked(Fork):
    """peachyland: columns (x, y), the query (x, 0); the query alone is predicted."""

    def tokens(self, xs, ys):
        hidden = torch.cat([ys[:, :-1], 0 * ys[:, -1:]], 1)
        return torch.cat([xs, hidden[..., None]], -1)

    def forward(self, xs, ys, inds=None):
        out = torch.full_like(ys, torch.nan)
        out[:, -1] = self._read_out(self.stream(self.tokens(xs, ys)))[:, -1, 0]
        return out


class TokenPairs(Fork):
    """lucarossi9: a token (x, 0), then a token (x, y)."""

    def tokens(self, xs, ys):
        pairs = [torch.cat([xs, value[..., None]], -1) for value in (0 * ys, ys)]
        return torch.stack(pairs, 2).flatten(1, 2)


class NoMask(Fork):
    """Bernardo1998, gpt2_no_mask: every token sees every other; only the query is no leak."""

    def stream(self, tokens):
        n = tokens.shape[1]
        nothing_hidden = torch.zeros(len(tokens), 1, n, n)
        return self._backbone(
            inputs_embeds=self._read_in(tokens), attention_mask=nothing_hidden
        ).last_hidden_state

    def forward(self, xs, ys, inds=None):
        out = torch.full_like(ys, torch.nan)
        out[:, -1] = super().forward(xs, ys)[:, -1]
        return out


class NoPositions(Fork):
    """Bernardo1998, gpt2_no_pe: the table of positions is in the file and not used."""

    def stream(self, tokens):
        table = self._backbone.wpe.weight
        kept = table.detach().clone()
        table.data.zero_()
        out = super().stream(tokens)
        table.data.copy_(kept)
        return out


class Modulo(Fork):
    """XintianPan, nostack: the position of token i is i mod 4 (there 10)."""

    period = 4

    def stream(self, tokens):
        places = torch.arange(tokens.shape[1]) % self.period
        # Without a mask, later versions of transformers take positions that begin anew for prompts
        # packed into one, and hide the earlier ones.
        visible = torch.ones(tokens.shape[:2], dtype=torch.long)
        return self._backbone(
            inputs_embeds=self._read_in(tokens), position_ids=places[None], attention_mask=visible
        ).last_hidden_state


class FirstLayers(Fork):
    """DeqingFu, use_first_n_layer: read out after block 1, without ln_f."""

    def stream(self, tokens):
        outputs = self._backbone(inputs_embeds=self._read_in(tokens), output_hidden_states=True)
        return outputs.hidden_states[1]


class States(Fork):
    """yingcong-li, src_dynamic: x_1, x_2, ..., and as many outputs as coordinates."""

    def forward(self, xs, ys, inds=None):
        return self._read_out(self.stream(xs))


@dataclass
class Row:
    """One fork: its model, its config.yaml, what a user gives, and what must come out.

    `error` is what a refusal says; without one, outputs agree to 1e-5. `told` is what has to be
    recorded where the file does not tell it.
    """

    model: Any = Fork
    sizes: dict[str, Any] = field(default_factory=dict)
    says: dict[str, dict[str, Any]] = field(default_factory=dict)  # by section of the config
    training: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Any] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    given: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    told: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    bare: bool = False
    repeat: int = 0  # rows of the table of positions that stand in the file again and again
    masks: bool = True


def noisy(**kwargs):
    return {"task": "noisy_linear_regression", "task_kwargs": kwargs}


WIDE = {"width": 4, "n_positions": 10}
LONG = {"points": {"start": 3, "end": 6, "inc": 1, "interval": 100}}
BARE = {"bare": True, "given": {"task": TASK, "n_heads": 2}}
ROWS = {
    "1 noise 3 by default": Row(
        training={**noisy(), "data_kwargs": {}}, told=("noise_std",), notes=("data_kwargs",)
    ),
    "2 words for what is usual": Row(
        training=noisy(noise_std=1, noise_type="normal", w_distribution="gaussian")
    ),
    "2 case4": Row(training={"task": "sign_regression"}, error="training.task must be one of"),
    "3 uniform inputs": Row(training={"data": "uniform"}, told=("inputs",)),
    "4 hidden width": Row(training={"task": "relu_2nn_regression"}, told=("hidden_layer_size",)),
    "5 token pairs": Row(TokenPairs, WIDE, error="forks fill them in two ways: columns"),
    "5 token pairs, bare": Row(
        TokenPairs, WIDE, error="or a token .x, 0. and then a token .x, y.", **BARE
    ),
    "6 stacked": Row(Stacked, WIDE, given={"encoding": "stacked"}, told=("act_fn",)),
    "6 stacked, with relu": Row(
        Stacked,
        {**WIDE, "activation_function": "relu"},
        {"model": {"activation_function": "relu"}},
        given={"encoding": "stacked"},
    ),
    "6 relu, told by the caller": Row(
        sizes={"activation_function": "relu"},
        bare=True,
        given={"task": TASK, "n_heads": 2, "settings": {"act_fn": "relu"}},
    ),
    "6 no read-in": Row(
        drop=("_read_in",), says={"model": {"flag_read_in": False}}, error="lacks _read_in.weight"
    ),
    "7 no mask": Row(NoMask, says={"model": {"family": "gpt2_no_mask"}}, masks=False),
    "7 no mask, told by the caller": Row(
        NoMask,
        bare=True,
        given={"task": TASK, "n_heads": 2, "settings": {"attention_dir": "bidirectional"}},
        masks=False,
        told=("positional_embedding_type",),
    ),
    "7 no mask, old file": Row(
        NoMask,
        tensors={f"_backbone.h.{i}.attn.bias": torch.ones(1, 1, 12, 12) for i in range(2)},
        **BARE,
    ),
    "8 no positions": Row(NoPositions, says={"model": {"family": "gpt2_no_pe"}}),
    "8 new positions": Row(says={"model": {"family": "gpt2_new_pe"}}, error="family must be"),
    "9 modulo": Row(Modulo, says={"model": {"family": "nostack"}}, error="family must be"),
    "9 no output of attention": Row(
        says={"model": {"layer_norm": "no_attn_out"}}, error="model.layer_norm is 'no_attn_out'"
    ),
    "9 causal by one": Row(
        says={"model": {"causal_type": "prev"}}, error="model.causal_type is 'prev'"
    ),
    "10 states": Row(
        States, {"n_out": 3}, error="its _read_out has 3 outputs, .*encoding='states'"
    ),
    "10 states, told by the caller": Row(
        States,
        {"n_out": 3},
        given={
            "task": AutoregressiveProcess(n_dims=3, n_points=5),
            "encoding": "states",
            "n_heads": 2,
        },
        bare=True,
    ),
    "11 two read-ins": Row(
        tensors={"_read_in_x.weight": torch.ones(8, 3), "_read_in_y.weight": torch.ones(8, 1)},
        drop=("_read_in.",),
        error="_read_in_x.weight, _read_in_y.weight",
    ),
    "12 classification": Row(
        training={"task": "logistic_regression"},
        says={"training": {"curriculum": {"dims": {"start": 3, "end": 3}}}},
        error="training.task must be one of .* but got 'logistic_regression'",
    ),
    "13 degree": Row(
        says={
            "training": {"curriculum": {**config()["training"]["curriculum"], "deg": {"end": 3}}}
        },
        error="training.curriculum.deg is",
    ),
    "14 longer than trained": Row(sizes={"n_positions": 60}),
    "15 another task": Row(
        training={"task": "sinusoidal_regression_1d"}, error="but got 'sinusoidal_regression_1d'"
    ),
    "16 another family": Row(says={"model": {"family": "mamba"}}, error="but got 'mamba'"),
    "17 a soft prompt": Row(tensors={"sp": torch.ones(4, 8)}, error="has besides sp"),
    "17 low rank": Row(
        tensors={"_backbone.h.0.attn.c_attn.lora_A": torch.ones(2, 8)}, error="lora_A"
    ),
    "18 vector outputs": Row(States, {"n_out": 3}, error="outputs", **BARE),
    "19 an LSTM": Row(says={"model": {"family": "lstm"}}, error="predictor.*but got 'lstm'"),
    "20 first layers": Row(
        FirstLayers,
        says={"model": {"use_first_n_layer": 1}},
        notes=("Read out after block 1 of 2, without the last norm",),
    ),
    "20 first layers, all of them": Row(says={"model": {"use_first_n_layer": 12}}),
    "20 first layers, none": Row(
        says={"model": {"use_first_n_layer": 0}}, error="use_first_n_layer"
    ),
    "20 first layers, bare": Row(
        told=("use_first_n_layer", "position_ids"), bare=True, given={"task": TASK, "n_heads": 2}
    ),
    "20 first layers, told by the caller": Row(
        FirstLayers,
        bare=True,
        given={"task": TASK, "n_heads": 2, "settings": {"n_layers": 1, "final_norm": False}},
        told=("position_ids",),
    ),
    "9 modulo, by its table": Row(
        Modulo,
        repeat=Modulo.period,
        bare=True,
        given={"task": TASK, "n_heads": 2},
        told=("position_ids",),
    ),
    "20 skewed data": Row(training={"data": "skew"}, error="training.data must be one of"),
    "21 plain, with idle words": Row(
        training={"device": "cuda:7", "ood_task": "sparse", "train_steps": -1},
        tensors={"_read_out_keep_dim.weight": torch.ones(1, 8)},
        notes=("training.device is 'cuda:7'", "training.ood_task", "_read_out_keep_dim.weight"),
    ),
    "21 a pool": Row(
        training={"num_pretraining_tasks": 1000}, error="num_pretraining_tasks is 1000: a pool"
    ),
    "21 random labels": Row(training={"task": "random_init"}, error="but got 'random_init'"),
    "23 a recipe": Row(
        says={"": {"model": None, "inherit": ["base.yaml"]}},
        error="inherits 'base.yaml', which does not lie beside it: give the run's own",
    ),
}


def saved(row, folder):
    """The model, and a file or folder as its fork leaves it."""
    model = row.model(**row.sizes)
    data = config(n_positions=row.sizes.get("n_positions", 6), **row.training)
    for section, words in row.says.items():
        (data[section] if section else data).update(words)
    tensors = state_dict(model) if row.masks else model.state_dict()
    tensors = {name: t for name, t in tensors.items() if not name.startswith(row.drop or "?")}
    tensors |= row.tensors
    if row.repeat:
        table = tensors["_backbone.wpe.weight"]
        tensors["_backbone.wpe.weight"] = table[torch.arange(len(table)) % row.repeat]
    if row.bare:
        torch.save(tensors, folder / "state.pt")
        return model, folder / "state.pt"
    whole = {"model_state_dict": tensors, "train_step": 500000}
    torch.save(whole, folder / "state.pt")
    (folder / "config.yaml").write_text(yaml.dump(data))
    return model, folder


def computes_the_same(found, original):
    """On the fork's own prompts, to 1e-5 wherever it predicts."""
    prompts = found.task.sample(8, generator(0, "forks"))
    ys = prompts.ys[..., 0] if prompts.n_targets == 1 else prompts.ys
    with torch.no_grad():
        wanted = original(prompts.xs, ys)
    mine = found.predict(prompts)
    mine = as_numbers(mine) if prompts.n_targets == 1 else mine
    assert wanted[~wanted.isnan()].std() > 0.1
    torch.testing.assert_close(mine, wanted, rtol=0, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("name", ROWS)
def test_no_fork_is_misread_in_silence(name, tmp_path):
    row = ROWS[name]
    original, source = saved(row, tmp_path)
    if row.error:
        with pytest.raises(InputError, match=row.error) as refused:
            icl_interp.load(source, **row.given)
        assert "\n" not in str(refused.value)
        return
    found = icl_interp.load(source, **row.given)
    computes_the_same(found, original)
    assert set(row.told) <= {each.name for each in found.assumptions}
    assert len(found.provenance.get("notes", ())) >= len(row.notes)
    for note in row.notes:
        assert any(note in said for said in found.provenance["notes"])
    must_fail(computes_the_same, found, Fork(3) if row.model is not Fork else NoPositions())
