"""Tokens (u, s) of paths that inputs drive: trained, saved, loaded, probed and evaluated."""

from dataclasses import dataclass, replace

import pytest
import torch
from helpers import must_fail

import icl_interp
from icl_interp import HookedTransformer, HookedTransformerConfig
from icl_interp.encodings import Driven, Interleaved, named
from icl_interp.errors import InputError
from icl_interp.models import tokens
from icl_interp.provenance import generator
from icl_interp.tasks import LinearRegression, Task, Uniform, registry


@dataclass(frozen=True, kw_only=True)
class DrivenLine(Task):
    """s' = a s + u: x holds (u, s), and the value is s'."""

    slopes: Uniform

    @property
    def dim(self):
        return 2

    @property
    def n_determining(self):
        return 1

    @property
    def default_encoding(self):
        return "driven"

    def sample_parameters(self, n_functions, generator, dtype):
        return self.slopes.sample((n_functions, 1), generator, dtype)

    def value(self, parameters, xs):
        return parameters * xs[..., 1] + xs[..., 0]

    def sample_points(self, parameters, n_points, generator, dtype):
        u = self.inputs.sample((len(parameters), n_points), generator, dtype)
        states = [u.new_zeros(len(u))]
        for k in range(n_points):
            states.append(parameters[:, 0] * states[-1] + u[:, k])
        path = torch.stack(states, 1)
        return torch.stack([u, path[:, :-1]], -1), path[:, 1:]


@pytest.fixture
def task(monkeypatch):
    before = dict(registry.KINDS)
    found = registry.register(DrivenLine)
    yield found(slopes=Uniform(-0.9, 0.9), inputs=Uniform(-1, 1), n_points=6)
    registry.KINDS.clear()
    registry.KINDS.update(before)


def shows_path(encoding, prompts):
    """Token k holds the input and the state, and the output there predicts the next state."""
    shown = encoding.encode(prompts)
    read, points = encoding.read_at(prompts.n_points, "causal")
    assert list(read) == list(points)
    torch.testing.assert_close(shown[:, 1:, 1:], prompts.ys[:, :-1])
    torch.testing.assert_close(shown[:, :, 0], prompts.xs[..., 0])


def test_tokens_are_input_and_state(task):
    prompts = task.sample(8, generator(0, "driven"))
    shows_path(Driven(), prompts)
    must_fail(shows_path, Driven(), _swapped(prompts))
    assert named("driven") == Driven()


def _swapped(prompts):
    """Paths whose last input and state have changed places."""
    xs = prompts.xs.clone()
    xs[:, -1] = xs[:, -1].flip(-1)
    return replace(prompts, xs=xs)


def test_what_is_no_driven_path_is_refused(task):
    line = LinearRegression(n_dims=2, n_points=5)
    with pytest.raises(InputError, match="these prompts are no such paths"):
        Driven().encode(line.sample(3, generator(0, "line")))
    with pytest.raises(InputError, match="x must be wider than a value"):
        Driven().check(LinearRegression(n_dims=1, n_points=5))
    prompts = task.sample(3, generator(0, "driven"))
    with pytest.raises(InputError, match=r"read them as driven or interleaved.*Driven\(\)"):
        tokens.infer_from(prompts, 2)


def test_a_model_of_it_is_loaded_probed_and_evaluated(task):
    config = HookedTransformerConfig(n_layers=1, d_model=8, d_in=2, n_ctx=6)
    found = icl_interp.load(HookedTransformer(config), task)
    assert found.encoding == Driven()
    prompts = task.sample(4, generator(0, "driven"))
    assert icl_interp.probe(found, prompts)["residual_stream.norm"].sizes["depth"] == 2
    assert icl_interp.evaluate(found, task, n_functions=4, n_contexts=2)["error"][0] > 0
    other = icl_interp.load(
        HookedTransformer(HookedTransformerConfig(n_layers=1, d_model=8, d_in=2, n_ctx=12)),
        task,
        encoding=Interleaved(),
    )
    assert other.encoding == Interleaved()


def test_a_run_with_it_is_saved_and_loaded(task, tmp_path):
    config = {
        "model": {"n_layers": 1, "d_model": 8, "d_in": 2, "n_ctx": 6},
        "task": {
            "kind": "DrivenLine",
            "slopes": {"kind": "Uniform", "low": -0.9, "high": 0.9},
            "inputs": {"kind": "Uniform", "low": -1, "high": 1},
            "n_points": 6,
        },
        "encoding": "driven",
        "training": {"steps": 2, "batch_size": 4},
    }
    trained = icl_interp.train(config, tmp_path / "run", progress=False)
    again = icl_interp.load(tmp_path / "run")
    assert again.encoding == Driven() == trained.encoding
    prompts = task.sample(4, generator(0, "driven"))
    torch.testing.assert_close(again.predict(prompts), trained.predict(prompts))
