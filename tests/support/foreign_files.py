"""Files in other programs' formats: models of Garg et al., and a GPT2Model with its ends."""

import torch
import yaml
from torch import nn
from transformers import GPT2Config, GPT2Model

from icl_interp.prompts import as_numbers
from icl_interp.provenance import generator

CURRICULUM = {
    "dims": {"start": 1, "end": 3, "inc": 1, "interval": 2000},
    "points": {"start": 3, "end": 5, "inc": 2, "interval": 2000},
}


class TheirTransformer(nn.Module):
    """The architecture of Garg et al. (2022): x and y interleaved, predictions at every x.

    y is padded with zeros.
    """

    def __init__(
        self, n_dims=3, n_positions=6, n_embd=8, n_layer=2, n_head=2, seed=0, size=0.4, **config
    ):
        super().__init__()
        settings = {
            "n_positions": 2 * n_positions,
            "n_embd": n_embd,
            "n_layer": n_layer,
            "n_head": n_head,
        }
        settings |= {"vocab_size": 11, "bos_token_id": 0, "eos_token_id": 0, "use_cache": False}
        settings |= {name: 0.0 for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop")}
        self._read_in = nn.Linear(n_dims, n_embd)
        self._backbone = GPT2Model(GPT2Config(**settings | config))
        self._read_out = nn.Linear(n_embd, 1)
        rng = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                parameter.copy_(
                    size * torch.randn(parameter.shape, generator=rng) + (".ln_" in name)
                )
        self.eval()

    def forward(self, xs, ys, inds=None):
        wide = torch.cat([ys[..., None], ys.new_zeros(*ys.shape, xs.shape[-1] - 1)], -1)
        tokens = torch.stack([xs, wide], 2).flatten(1, 2)
        stream = self._backbone(inputs_embeds=self._read_in(tokens)).last_hidden_state
        return self._read_out(stream)[:, ::2, 0]


def state_dict(model):
    """With the mask buffers of the versions of transformers that these files are from."""
    n = model._backbone.config.n_positions
    masks = {}
    for i in range(model._backbone.config.n_layer):
        masks[f"_backbone.h.{i}.attn.bias"] = torch.ones(1, 1, n, n, dtype=torch.uint8).tril()
        masks[f"_backbone.h.{i}.attn.masked_bias"] = torch.tensor(-10000.0)
    return {**model.state_dict(), **masks}


def config(n_dims=3, n_positions=6, n_embd=8, n_layer=2, n_head=2, curriculum=None, **training):
    """A config.yaml as data, with what else stands in one."""
    sizes = {
        "n_dims": n_dims,
        "n_positions": n_positions,
        "n_embd": n_embd,
        "n_layer": n_layer,
        "n_head": n_head,
    }
    known = {
        "task": "linear_regression",
        "task_kwargs": {},
        "data": "gaussian",
        "train_steps": 500001,
    }
    known |= {"num_tasks": None, "num_training_examples": None, "batch_size": 64, "resume_id": None}
    dims = {**CURRICULUM["dims"], "end": n_dims}
    return {
        "config": "src/conf/x.yaml",
        "inherit": ["base.yaml"],
        "model": {"family": "gpt2", **sizes},
        "out_dir": "../models/x",
        "test_run": False,
        "training": {
            **known,
            **training,
            "curriculum": {**CURRICULUM, "dims": dims, **(curriculum or {})},
        },
        "wandb": {"name": None, "log_every_steps": 100},
    }


def run_folder(folder, model, data=None, step=500000):
    """`state.pt` and `config.yaml`, as their training loop leaves them."""
    folder.mkdir(parents=True, exist_ok=True)
    optimizer = {
        "state": {0: {"step": torch.tensor(1.0)}},
        "param_groups": [{"lr": 1e-4, "params": [0]}],
    }
    whole = {
        "model_state_dict": state_dict(model),
        "optimizer_state_dict": optimizer,
        "train_step": step,
    }
    torch.save(whole, folder / "state.pt")
    (folder / "config.yaml").write_text(yaml.dump(data or config(), default_flow_style=False))
    return folder


def predicts_the_same(found, original):
    """At every point, to 1e-5, through our own encoding."""
    prompts = found.task.sample(16, generator(0, "test"))
    with torch.no_grad():
        wanted = original(prompts.xs, as_numbers(prompts.ys))
    assert wanted.std() > 0.1  # not a constant
    torch.testing.assert_close(as_numbers(found.predict(prompts)), wanted, rtol=0, atol=1e-5)
