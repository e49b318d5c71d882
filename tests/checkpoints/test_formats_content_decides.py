"""What is in a file decides how it is read, never its name or a prefix of names in it."""

import json

import pytest
import torch
from helpers import must_fail
from tiny_runs import refuse
from torch import nn
from torch.nn.functional import pad
from transformers import GPT2Config, GPT2Model, PreTrainedModel

import icl_interp
from icl_interp.checkpoints.formats import modules
from icl_interp.models.tokens import Interleaved
from icl_interp.provenance import generator
from icl_interp.tasks import AutoregressiveProcess, LinearRegression

pytestmark = pytest.mark.usefixtures("as_users_run_it")
TASK = LinearRegression(n_dims=3, n_points=8)
SIZES = {"n_positions": 16, "n_embd": 8, "n_layer": 2, "n_head": 2, "vocab_size": 3}


class Saved(PreTrainedModel):
    """A GPT2Model between two ends, as Hugging Face saves it."""

    config_class = GPT2Config

    def __init__(self, settings):
        super().__init__(settings)
        self.read_in = nn.Linear(3, settings.n_embd)
        self.gpt = GPT2Model(settings)
        self.read_out = nn.Linear(settings.n_embd, 1)
        self.post_init()


def folder_of(path, **settings):
    words = {**SIZES, "activation_function": "relu", "layer_norm_epsilon": 1e-3, **settings}
    Saved(GPT2Config(**words)).save_pretrained(path)
    return path


def test_a_hugging_face_folder_brings_its_settings(tmp_path):
    folder = folder_of(tmp_path / "hf")
    for source in (folder, folder / "model.safetensors"):
        found = icl_interp.load(source, TASK, encoding="interleaved")
        cfg = found.model.cfg
        assert (cfg.n_heads, cfg.act_fn, cfg.eps) == (2, "relu", 1e-3)
        assert not found.assumptions
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    same = icl_interp.load(folder / "other.safetensors", TASK, encoding="interleaved")
    assert same.model.cfg == cfg


def test_what_a_hugging_face_config_says_is_read_or_refused(tmp_path):
    def ask(path):
        return icl_interp.load(path, TASK, encoding="interleaved")

    folder = folder_of(tmp_path / "scaled", scale_attn_by_inverse_layer_idx=True)
    refuse(folder, "config says scale_attn_by_inverse_layer_idx=True", ask)
    unscaled = folder_of(tmp_path / "unscaled", scale_attn_weights=False)
    assert not ask(unscaled).model.cfg.use_attn_scale
    config = json.loads((unscaled / "config.json").read_text())
    (unscaled / "config.json").write_text(json.dumps({**config, "n_layer": 3}))
    refuse(unscaled, "says n_layer=3, but its weights have 2", ask)


@pytest.mark.parametrize("body", ["backbone", "_backbone"])
def test_the_name_of_the_body_does_not_matter(tmp_path, body):
    parts = {"_in_proj": nn.Linear(3, 8), "_out_proj": nn.Linear(8, 1)}
    whole = nn.ModuleDict({**parts, body: GPT2Model(GPT2Config(**SIZES))})
    torch.save(whole.state_dict(), tmp_path / "w.pt")
    found = icl_interp.load(tmp_path / "w.pt", TASK, encoding="interleaved", n_heads=2)
    assert found.provenance["format"] == "GPT2Model between a read-in and a read-out"


# ---- models in memory ----------------------------------------------------------------------------


class Learner(nn.Module):
    """Takes inputs and labels, and returns values with or without their last axis."""

    def __init__(self, n_targets=1, squeeze=False, wrong=0.0):
        super().__init__()
        self.squeeze = squeeze
        self.wrong = wrong
        self.read_in = nn.Linear(3, 8)
        self.gpt = GPT2Model(GPT2Config(**SIZES))
        self.read_out = nn.Linear(8, n_targets)

    def forward(self, xs, ys):
        ys = ys.reshape(*xs.shape[:2], -1)
        tokens = torch.stack((xs, pad(ys, (0, 3 - ys.shape[-1]))), 2).flatten(1, 2)
        stream = self.gpt(inputs_embeds=self.read_in(tokens)).last_hidden_state
        out = self.read_out(stream)[:, ::2] + self.wrong
        return out[..., 0] if self.squeeze else out


@pytest.mark.parametrize("squeeze", [True, False])
def test_scalar_values_may_keep_their_last_axis(squeeze):
    assert icl_interp.load(Learner(squeeze=squeeze), TASK).encoding == Interleaved()
    refuse(
        Learner(squeeze=squeeze, wrong=1.0),
        "outputs differ",
        lambda model: icl_interp.load(model, TASK),
    )


def test_labels_may_be_vectors():
    task = AutoregressiveProcess(n_dims=3, n_points=8)
    learner = Learner(n_targets=3).eval()
    found = icl_interp.load(learner, task)
    prompts = task.sample(4, generator(0, "vectors"))

    def agrees(model):
        with torch.no_grad():
            wanted = model(prompts.xs, prompts.ys.nan_to_num())
        torch.testing.assert_close(found.predict(prompts), wanted, rtol=0, atol=1e-5)

    agrees(learner)
    must_fail(agrees, Learner(n_targets=3))
    refuse(Learner(3, wrong=1.0), "outputs differ", lambda model: icl_interp.load(model, task))
    with pytest.raises(icl_interp.InputError, match="output has shape"):
        modules.compare(found.model, Learner(n_targets=1))
