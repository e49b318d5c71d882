"""Recipes of units and small layers on ridge functions: train, load, and the loss falls."""

from dataclasses import fields, replace

import pytest
import torch

from icl_interp.checkpoints import bundled
from icl_interp.checkpoints.store import load
from icl_interp.models.softmax_unit import read_softmax_unit
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.training import recipes
from icl_interp.training.trainer import train

NAMES = [name for name in bundled.recipes() if name.startswith("lipschitz_")]
SHORT = [
    "training.steps=30",
    "training.batch_size=16",
    "training.warmup_steps=1",
    "training.snapshots=[0, 10]",
]
TWO_STEPS = ["training.steps=2", "training.batch_size=4", "training.warmup_steps=1"]
UNITS = {"relu", "relu_ellipsoid", "affine", "cosine", "low_rank"}

FUTURE_WORK = {  # what the slides name, by recipe, and what is different from one plain head
    "heads": {"n_heads": 4, "d_head": 8},
    "layers": {"n_layers": 2},
    "mlp": {"n_layers": 2, "attn_only": False},
    "positions": {"positional_embedding_type": "standard"},
}


def last_error(checkpoint, n=256):
    """Mean squared error at the query, whose target has no noise."""
    prompts = checkpoint.task.sample(n, generator(0, "test/recipes"))
    return float((checkpoint.predict(prompts)[:, -1] - prompts.ys[:, -1]).square().mean())


def test_which_there_are():
    future = {f"relu_{name}" for name in FUTURE_WORK}
    assert {name.removeprefix("lipschitz_") for name in NAMES} >= UNITS | future | {
        "relu_kqv",
        "relu_linear",
        "relu_width_32",
        "relu_width_32_all_keys",
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", FUTURE_WORK)
def test_models_of_the_slides_future_work_train(name, tmp_path):
    config = recipes.resolve(f"lipschitz_relu_{name}", TWO_STEPS)
    plain = recipes.resolve("lipschitz_relu_heads", [*TWO_STEPS, "model.n_heads=1"])
    changed = {
        field.name: getattr(config.model, field.name)
        for field in fields(config.model)
        if getattr(config.model, field.name) != getattr(plain.model, field.name)
    }
    assert changed == FUTURE_WORK[name]
    assert config.task == plain.task == recipes.resolve("lipschitz_relu").task
    trained = train(config, tmp_path / "run", progress=False)
    before = HookedTransformer(config.model, seed=config.training.seed)
    pairs = zip(trained.model.parameters(), before.parameters(), strict=True)
    assert trained.step == 2
    assert any(not torch.equal(after, start) for after, start in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_trains_and_comes_back(name, tmp_path):
    trained = train(recipes.resolve(name, SHORT), tmp_path / "run", progress=False)
    found = load(tmp_path / "run")
    assert found.config == trained.config
    assert found.task == recipes.resolve(name).task
    prompts = found.task.sample(4, generator(0, "test"))
    assert torch.equal(found.predict(prompts)[:, -1], trained.predict(prompts)[:, -1])
    if name.removeprefix("lipschitz_") in UNITS:
        unit, before = read_softmax_unit(trained.model), trained.snapshots()[0]
        assert unit.is_kernel
        # All of these classes want M with a positive trace: close examples weigh more.
        assert unit.product.trace() > read_softmax_unit(before).product.trace() + 0.5
        assert last_error(trained) < last_error(replace(trained, model=before))


@pytest.mark.parametrize(
    "change", ["task.lipschitz=3", "task.link=quadratic", "task.link=cosine", "task.noise_std=0"]
)
def test_a_grid_is_a_change_of_the_recipe(change):
    key, value = change.removeprefix("task.").split("=")
    task = recipes.resolve("lipschitz_relu", [change]).task
    assert str(getattr(task, key)) == value
    assert task.sample(2, generator(0, "test")).ys.isfinite().all()
