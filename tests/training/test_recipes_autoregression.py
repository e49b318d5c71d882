"""Recipes of models on paths: each trains, comes back, and its error falls."""

import pytest
import torch

from icl_interp.checkpoints import bundled
from icl_interp.checkpoints.store import load
from icl_interp.provenance import generator
from icl_interp.training import recipes
from icl_interp.training.trainer import train

NAMES = [name for name in bundled.recipes() if name.startswith("autoregression_")]
SHORT = [
    "training.steps=60",
    "training.batch_size=32",
    "training.warmup_steps=1",
    "training.snapshots=[0]",
]


def last_error(model, checkpoint, n=128):
    """Mean squared error of the last state."""
    prompts = checkpoint.task.sample(n, generator(0, "test/recipes"))
    tokens = checkpoint.encoding.encode(prompts).float()
    with torch.no_grad():
        return float((model(tokens)[:, -1] - prompts.ys[:, -1]).square().mean())


def test_which_there_are():
    assert {name.removeprefix("autoregression_") for name in NAMES} >= {
        "rotations",
        "rotations_softmax",
        "augmented",
        "states",
        "tiled",
        "linear_2",
        "full_1",
        "full_2",
        "full_4",
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_trains_and_comes_back(name, tmp_path):
    trained = train(recipes.resolve(name, SHORT), tmp_path / "run", progress=False)
    found = load(tmp_path / "run")
    assert found.config == trained.config
    assert found.task == recipes.resolve(name).task
    prompts = found.task.sample(4, generator(0, "test"))
    assert torch.equal(found.predict(prompts), trained.predict(prompts))
    assert last_error(trained.model, trained) < last_error(trained.snapshots()[0], trained)


@pytest.mark.parametrize("name", ["rotations", "rotations_softmax"])
def test_softmax_is_all_that_differs(name):
    """Two arms of one comparison."""
    config = recipes.resolve(f"autoregression_{name}", ["model.score_fn=softmax"])
    assert config == recipes.resolve("autoregression_rotations_softmax")
