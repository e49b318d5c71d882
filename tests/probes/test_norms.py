"""Scales of LayerNorm, in distribution and far out, against all activations and automatic differentiation."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from activations import KINDS, cached, pooled
from helpers import must_fail
from small_models import PROMPTS, encoding_of, make, tokens_for

from icl_interp.errors import InputError
from icl_interp.interventions.base import intervene
from icl_interp.interventions.norms import FreezeNorms
from icl_interp.models.hooks import listened
from icl_interp.probes.norms import LayerNormScale, layernorm_scale_by_magnitude
from icl_interp.probes.runner import probe
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator


@pytest.mark.parametrize("name", ["pre", "post", "rms"])
def test_layernorm_scale(name):
    model = make(name)
    scale, cache = probe(model, PROMPTS, [LayerNormScale()])["layernorm_scale.scale"], cached(model)
    assert tuple(scale.indexes["norm"]) == tuple(model.norms)
    for norm in model.norms:
        for kind in KINDS:
            rows = pooled(cache[f"{norm}.hook_scale"], kind)
            expected = [rows.mean(), rows.std(), rows.min(), rows.max()]
            np.testing.assert_allclose(scale.sel(norm=norm, position=kind).values, expected, rtol=1e-9)


# ---- scales far out -------------------------------------------------------------------------------------------------


def scales_and_elasticities(model, prompts, magnitude, sign):
    """By whole prompts and automatic differentiation, one prompt at a time."""
    scales, encoding = [], encoding_of(model)
    for i in range(len(prompts)):
        one = prompts[i : i + 1]
        log = torch.tensor(math.log(magnitude), dtype=torch.float64, requires_grad=True)
        query = one.xs[:, -1:]
        unit = torch.ones_like(query) if query.shape[-1] == 1 else query / query.norm()
        tokens = encoding.encode(one)
        tokens = torch.cat([tokens[:, :-1], encoding.encode_queries(sign * log.exp() * unit)], 1)
        seen = []
        points = [f"{norm}.hook_scale" for norm in model.norms]
        model.run_with_hooks(tokens, fwd_hooks=[(p, lambda t, hook, seen=seen: seen.append(t)) for p in points])
        for scale in seen:
            scale = scale[0, -1, 0].log()
            (slope,) = torch.autograd.grad(scale, log, retain_graph=True)
            scales.append((scale.exp().item(), slope.item()))
    return np.array(scales).reshape(len(prompts), len(model.norms), 2)


def check_by_magnitude(model, prompts, curves):
    for sign in (-1, 1):
        for magnitude in (0.1, 3.0, 1e3):
            expected = scales_and_elasticities(model, prompts, magnitude, sign)
            for i, name in enumerate(("scale", "elasticity")):
                for statistic, values in (("mean", expected[..., i].mean(0)), ("std", expected[..., i].std(0))):
                    got = curves[name].sel(sign=sign, statistic=statistic, magnitude=magnitude).values
                    np.testing.assert_allclose(got, values, rtol=1e-5, atol=1e-6, err_msg=f"{name} {sign} {magnitude}")


@pytest.mark.parametrize("name", ["pre", "post", "mlp only", "bidirectional"])
def test_layernorm_scale_by_magnitude(name):
    model, few = make(name), PROMPTS[:5]
    curves = layernorm_scale_by_magnitude(model, few, (0.1, 3.0, 1e3), batch_size=3)
    check_by_magnitude(model, few.double(), curves)
    must_fail(check_by_magnitude, make(name, eps=1.0), few.double(), curves)


def test_layernorm_scale_by_magnitude_of_vectors():
    xs = torch.randn(4, 5, 3, generator=generator(0, "vectors")).double()
    prompts = Prompts(xs, xs.sum(-1), xs[:, 0], torch.arange(4))
    check_by_magnitude(make(d_in=3), prompts, layernorm_scale_by_magnitude(make(d_in=3), prompts, (0.1, 3.0, 1e3)))
    with pytest.raises(InputError, match="a query of 0 has no direction"):
        layernorm_scale_by_magnitude(make(d_in=3), replace(prompts, xs=xs * 0), (1.0,))


def test_layernorm_scale_by_magnitude_leaves_the_model_as_it_is():
    model = make().float()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    single = layernorm_scale_by_magnitude(model, PROMPTS[:4], (2.0,))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert not any(listened(module) for module in model.modules())
    # ... and works in float64 all the same, as a prompt of float32 numbers asks for.
    double = layernorm_scale_by_magnitude(model.double(), PROMPTS[:4].double(), (2.0,))
    np.testing.assert_array_equal(single["elasticity"].values, double["elasticity"].values)


def test_layernorm_scale_by_magnitude_without_a_context():
    curves = layernorm_scale_by_magnitude(make(), PROMPTS[:3].first(1), (0.1, 3.0, 1e3))
    check_by_magnitude(make(), PROMPTS[:3].first(1).double(), curves)


def test_layernorm_scale_by_magnitude_under_an_intervention():
    model = make()
    with intervene(model, FreezeNorms.measure(model, tokens_for(model)).only("ln_final").at_query()):
        elasticity = layernorm_scale_by_magnitude(model, PROMPTS, (1e4,))["elasticity"]
    assert not elasticity.sel(norm="ln_final").values.any()
    np.testing.assert_allclose(elasticity.sel(norm="blocks.1.ln2", statistic="mean").values, 1, atol=1e-2)


def test_first_norm_divides_the_magnitude_out():
    elasticity = (
        layernorm_scale_by_magnitude(make(), PROMPTS, (1e-8, 1e8))["elasticity"]
        .sel(norm="blocks.0.ln1", statistic="mean")
        .values
    )
    np.testing.assert_allclose(elasticity, [[0, 1], [0, 1]], atol=1e-6)


@pytest.mark.parametrize(
    ("name", "prompts", "magnitudes", "message"),
    [
        ("no norm", PROMPTS, (1.0,), "no normalisation"),
        ("pre", PROMPTS, (1.0, -1.0), "magnitudes must be positive"),
        ("pre", PROMPTS, (), "magnitudes must be positive"),
        ("pre", PROMPTS[:0], (1.0,), "no prompts to probe"),
        ("pre", torch.zeros(2, 13, 1), (1.0,), "needs Prompts, not tokens"),
    ],
)
def test_layernorm_scale_by_magnitude_refuses(name, prompts, magnitudes, message):
    with pytest.raises(InputError, match=message):
        layernorm_scale_by_magnitude(make(name), prompts, magnitudes)
