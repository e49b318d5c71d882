"""Every probe of alternative last tokens, against the same probe of whole prompts."""

import numpy as np
import pytest
import torch
from small_models import PROMPTS, make, tokens_for

import icl_interp
from icl_interp.errors import InputError
from icl_interp.probes.attention import AttentionEntropy
from icl_interp.probes.base import held, observe, resolve
from icl_interp.probes.heads import HeadOrthogonality
from icl_interp.probes.influence import ExampleInfluence
from icl_interp.probes.norms import LayerNormScale
from icl_interp.probes.residual import LogitLens, ResidualStream
from icl_interp.probes.runner import probe


@pytest.mark.parametrize("name", ["pre", "post"])
def test_alternative_last_tokens_are_measured_like_whole_prompts(name):
    model, used = (
        make(name),
        [ResidualStream(), LogitLens(), LayerNormScale(), AttentionEntropy(), HeadOrthogonality()],
    )
    tokens, whole = tokens_for(model), probe(model, PROMPTS, used)
    with torch.no_grad():
        memory = model.remember(tokens[:, :-1])
        with observe(model, *used, positions={"query": [0]}):
            model.after(memory, tokens[:, -1:], 12)
    for p in used:
        for key, result in p.results().items():
            expected = whole[f"{p.name}.{key}"]
            if "position" in expected.indexes:
                expected, result = (r.sel(position="query") for r in (expected, result))
            np.testing.assert_allclose(
                result.values.squeeze(),
                expected.values.squeeze(),
                rtol=1e-6,
                atol=1e-6,
                err_msg=key,
            )


@pytest.mark.parametrize("places", [[], [-1], range(0)])
def test_positions_without_places_are_refused(places):
    model = make()
    with (
        pytest.raises(InputError, match="each position kind needs places, counted from 0"),
        observe(model, ResidualStream(), positions={"query": places}),
    ):
        pass


def test_an_adapted_module_with_a_part_called_model_is_itself():
    class Held(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.LayerNorm(4))
            self.read_out = torch.nn.Linear(4, 1)

        def forward(self, tokens):
            return self.read_out(self.model(tokens))

    module = icl_interp.adapt(Held(), encoding="interleaved", norms=["model.1"])
    model, encoding = resolve(module, None)
    assert model is module
    assert encoding is module.encoding
    assert held(module, "a test")[0] is module
    assert list(probe(module, PROMPTS)) == ["layernorm_scale.scale"]
    assert ExampleInfluence.measure(module, PROMPTS).weights.shape == (len(PROMPTS), 6)


@pytest.mark.parametrize("given", ["affine", make(), None])
def test_what_brings_no_encoding_is_refused(given):
    with pytest.raises(InputError, match="a test needs a checkpoint"):
        held(given, "a test")
