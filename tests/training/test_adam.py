"""Adam by itself is torch's own fused Adam, bit for bit, and importing it loads no compiler."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_runs
import torch
from helpers import must_fail

from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.training.adam import Adam

ROOT = Path(__file__).parents[2]


def trained(make_step, n_steps=5):
    """A model's parameters after some steps of an optimiser that is given the same gradients."""
    model = HookedTransformer(tiny_runs.config().model)
    step = make_step(model)
    for i in range(n_steps):
        for name, parameter in model.named_parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator(i, name))
        step(1e-3 * (i + 1))
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def torch_adam(model):
    optimiser = torch.optim.Adam(model.parameters(), fused=True)

    def step(learning_rate):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate
        optimiser.step()

    return step


def mutant(change):
    """Our Adam, with its state changed before each step."""

    def make_step(model):
        optimiser = Adam(model.named_parameters())

        def step(learning_rate):
            for state in optimiser.state.values():
                change(state)
            optimiser.step(learning_rate)

        return step

    return make_step


def check_equals_torch(make_step):
    ours, theirs = trained(make_step), trained(torch_adam)
    assert ours.keys() == theirs.keys()
    for name, parameter in ours.items():
        assert torch.equal(parameter, theirs[name]), name


def test_it_is_torch_adam():
    check_equals_torch(lambda model: Adam(model.named_parameters()).step)
    check_equals_torch(mutant(lambda state: None))
    for key in ("step", "exp_avg", "exp_avg_sq"):
        must_fail(check_equals_torch, mutant(lambda state, key=key: state[key].zero_()))


def test_gradients_are_dropped_after_a_step():
    model = HookedTransformer(tiny_runs.config().model)
    optimiser = Adam(model.named_parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimiser.step(0.1)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert {float(state["step"]) for state in optimiser.state.values()} == {1.0}


CHILD = """
import json, os, sys, torch
before = dict(os.environ)
from icl_interp.training import trainer
if sys.argv[3:]:  # a mutant
    trainer.Adam = lambda named: torch.optim.Adam([parameter for _, parameter in named], fused=True)
try:
    trainer.train(json.loads(sys.argv[1]), sys.argv[2], progress=False)
except (KeyError, TypeError):
    assert sys.argv[3:]
print(json.dumps([name for name in os.environ if os.environ[name] != before.get(name)]))
"""


def check_nothing_outside(folder, *mutant):
    """Training writes below its folder only, and leaves the environment as it was."""
    private = folder / "tmp"
    private.mkdir(parents=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(private),
        "HOME": str(private),
    }
    environment.pop("TORCHINDUCTOR_CACHE_DIR", None)
    arguments = [
        sys.executable,
        "-c",
        CHILD,
        json.dumps(tiny_runs.data()),
        str(folder / "run"),
        *mutant,
    ]
    done = subprocess.run(
        arguments, env=environment, cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
    assert list(private.iterdir()) == []
    assert sorted(item.name for item in folder.iterdir()) == ["run", "tmp"]


@pytest.mark.slow
def test_training_leaves_nothing_outside_its_folder(tmp_path):
    check_nothing_outside(tmp_path / "a")
    must_fail(check_nothing_outside, tmp_path / "b", "torch.optim.Adam")
