"""What does not fit a module is refused in one line, when it is adapted or when it is asked for."""

import pytest
import torch
from gated_attention import Gated, of_heads
from helpers import refuse
from torch import nn

import icl_interp
from icl_interp import interventions, probes
from icl_interp.adapters import Place
from icl_interp.provenance import generator
from icl_interp.tasks import LinearRegression

pytestmark = pytest.mark.usefixtures("as_users_run_it", "errors_are_caught")
PROMPTS = LinearRegression(n_dims=1, n_points=4).sample(6, generator(0, "adapted"))


class Looped(nn.Module):
    """One block, run twice."""

    def __init__(self):
        super().__init__()
        self.read_in, self.block, self.read_out = nn.Linear(1, 4), nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, tokens):
        stream = self.read_in(tokens)
        for _ in range(2):
            stream = stream + self.block(stream).tanh()
        return self.read_out(stream)


def test_a_submodule_that_is_called_twice():
    given = {"encoding": "interleaved"}
    places = ["read_in", "block", "block"]
    refuse("calls 'block' 2 times.*call=0", icl_interp.adapt, Looped(), residual=places, **given)
    later = [Place("block", call=2)]
    refuse("there is no call 2", icl_interp.adapt, Looped(), residual=["read_in", *later], **given)
    points = {f"blocks.0.hook_{i}": Place("block", call=i) for i in range(2)}
    model = icl_interp.adapt(Looped(), points=points, **given)
    _, cache = model.run_with_cache(torch.randn(2, 3, 1, generator=generator(0, "looped")))
    first, second = (cache[f"blocks.0.hook_{i}"] for i in range(2))
    assert not torch.allclose(first, second)
    put = {"blocks.0.hook_0": first, "blocks.0.hook_1": first}
    for name, value in put.items():
        with icl_interp.intervene(model, interventions.PutActivations({name: value})):
            _, inside = model.run_with_cache(torch.zeros(2, 3, 1))
        torch.testing.assert_close(inside[name], first)


class Dropping(Looped):
    """Its predictions change from run to run."""

    def forward(self, tokens):
        return nn.functional.dropout(super().forward(tokens), 0.5, self.training)


class Wide(Looped):
    """It predicts a table a prompt."""

    def forward(self, tokens):
        return super().forward(tokens).mean(1)


WRONG = {
    "no module": (lambda: 3, {}, "adapt takes a torch module"),
    "no submodule": (Gated, {"residual": ["read_in", "layer.0"]}, "did you mean 'layers.0'"),
    "one place": (Gated, {"residual": ["read_in"]}, "two places at least"),
    "a name alone": (Gated, {"residual": "read_in"}, "must be a list"),
    "no place": (Gated, {"residual": ["read_in", 3]}, "a place is the name of a submodule"),
    "patterns": (
        Gated,
        {"residual": ["read_in", "layers.0"], "patterns": ["layers.0.weights"] * 2},
        "names 1 blocks, but there are 2 places",
    ),
    "no pattern": (Gated, {"patterns": ["layers.0.qkv"]}, "needs .batch, head, query, key."),
    "another width": (Gated, {"residual": ["read_in", "layers.0.qkv"]}, "one width"),
    "no norm": (Gated, {"norms": ["layers.0.out"]}, "divides by no scale"),
    "a taken name": (Gated, {"norms": {"forward": "layers.0.norm"}}, "cannot be called so"),
    "twice": (
        Gated,
        {"patterns": ["layers.0.weights"], "points": {"blocks.0.attn.hook_pattern": "read_in"}},
        "was named twice",
    ),
    "read-out": (
        Gated,
        {"residual": ["read_in", "layers.0"], "readout": ["read_out"]},
        "makes other predictions",
    ),
    "no stream": (Gated, {"readout": ["read_out"]}, "give residual"),
    "dropout": (lambda: Dropping().train(), {}, r"call module.eval\(\) first"),
    "no table of tokens": (lambda: Wide().eval(), {}, "must predict at every token"),
    "no width": (lambda: nn.Sequential(nn.ReLU()), {}, "give example=tokens"),
    "tokens": (Gated, {"example": torch.zeros(2, 5, 3)}, "does not run on tokens"),
    "no task": (Gated, {"task": "affine"}, "task must be a task"),
    "results of another width": (
        Gated,
        {
            "residual": ["read_in", "layers.0"],
            "points": {"blocks.0.attn.hook_result": of_heads("layers.0.out")},
        },
        r"needs \(batch, token, head, width\)",
    ),
    "no encoding": (Gated, {"encoding": "interlaced"}, "did you mean 'interleaved'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_refused(case):
    make, given, message = WRONG[case]
    refuse(message, icl_interp.adapt, make(), **{"encoding": "interleaved"} | given)


@pytest.mark.parametrize("kind", [probes.LogitLens, probes.LayerNormScale, probes.AttentionPattern])
def test_a_probe_says_what_was_not_named(kind):
    model = icl_interp.adapt(
        Gated(), encoding="interleaved", residual=["read_in", "layers.0", "layers.1"]
    )
    message = "nobody named"
    refuse(message, icl_interp.probe, model, PROMPTS, [kind()])
    assert {name.partition(".")[0] for name in icl_interp.probe(model, PROMPTS)} == {
        "residual_stream"
    }
