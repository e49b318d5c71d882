"""Scales of LayerNorm, in distribution and far out, against all activations of whole prompts."""

import numpy as np
import pytest
import torch
from cached_activations import KINDS, cached, pooled
from helpers import must_fail
from small_models import PROMPTS, TASK, encoding_of, freeze, make

from icl_interp.errors import InputError
from icl_interp.models.hooks import listened
from icl_interp.models.tokens import Stacked
from icl_interp.probes.norms import LayerNormScale
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
            np.testing.assert_allclose(
                scale.sel(norm=norm, position=kind).values, expected, rtol=1e-9
            )


def check_per_prompt(found, cache, model):
    for norm in model.norms:
        for kind in KINDS:
            expected = cache[f"{norm}.hook_scale"][:, list(KINDS[kind]), 0].mean(1)
            np.testing.assert_allclose(
                found.sel(norm=norm, position=kind).values, expected, rtol=1e-9
            )


def test_a_scale_for_each_prompt():
    model = make()
    found = probe(model, PROMPTS, [LayerNormScale(per_prompt=True)], batch_size=7)[
        "layernorm_scale.scale"
    ]
    assert found.dims == ("norm", "position", "prompt")
    check_per_prompt(found, cached(model), model)
    must_fail(check_per_prompt, found.copy(data=found.values[..., ::-1]), cached(model), model)


# ---- scales far out ------------------------------------------------------------------------------

XS = (-1e6, -3.0, 0.1, 1e6)


def scales(model, prompts, **settings):
    """Of the query at each of `XS`, on a float64 copy."""
    settings = {"queries": XS, "dtype": torch.float64, **settings}
    return probe(model, prompts, [LayerNormScale()], **settings)["layernorm_scale.scale"]


def check_far(found, model, prompts):
    """By whole prompts of float64 numbers."""
    assert found.dims == ("norm", "position", "statistic")
    prompts, encoding = prompts.double(), encoding_of(model)
    for x in XS:
        xs = prompts.xs.clone()
        xs[:, -1] = 0
        xs[:, -1, 0] = x
        with torch.no_grad():
            tokens = encoding.encode(Prompts(xs, prompts.ys, prompts.parameters, prompts.function))
            _, cache = model.run_with_cache(tokens)
        for norm in model.norms:
            rows = cache[f"{norm}.hook_scale"][:, -1, 0]
            expected = [rows.mean(), rows.std(correction=0), rows.min(), rows.max()]
            got = found.sel(norm=norm, position=x).values
            np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9, err_msg=f"{norm} {x}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["pre", "post", "rms", "mlp only", "attention only", "bidirectional"]
)
def test_scales_far_out(name):
    model = make(name)
    found = scales(model, PROMPTS)
    assert tuple(found.indexes["norm"]) == tuple(model.norms)
    check_far(found, model, PROMPTS)
    must_fail(check_far, found, make(name, eps=1.0), PROMPTS)
    must_fail(check_far, scales(model, PROMPTS, dtype=torch.float32), model, PROMPTS)
    must_fail(check_far, found.assign_coords(position=list(XS[::-1])), model, PROMPTS)
    if name != "mlp only":  # in which a token's context is nothing to it
        must_fail(
            check_far, scales(model, TASK.sample(24, generator(1, "test/prompts"))), model, PROMPTS
        )


def test_scales_far_out_of_vectors():
    xs = torch.randn(4, 5, 3, generator=generator(0, "vectors")).double()
    prompts = Prompts(xs, xs.sum(-1), xs[:, 0], torch.arange(4))
    model = make(d_in=3)
    check_far(scales(model, prompts), model, prompts)


def test_scales_far_out_without_a_context():
    model, prompts = make(), PROMPTS[:3].first(1)
    check_far(scales(model, prompts), model, prompts)


def check_as_it_is(measure):
    """A model in float32 stays one, and what is measured is what its copy in float64 gives."""
    model = make().float()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    single = measure(model)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert not any(listened(module) for module in model.modules())
    np.testing.assert_array_equal(single.values, scales(model.double(), PROMPTS).values)


def test_scales_far_out_leave_the_model_as_it_is():
    check_as_it_is(lambda model: scales(model, PROMPTS))
    must_fail(check_as_it_is, lambda model: scales(model.double(), PROMPTS))
    must_fail(check_as_it_is, lambda model: scales(model, PROMPTS, dtype=None))


def elasticity(model, x, step=1e-4, query=()):
    """d log sigma / d log |x| of each norm: a central difference, averaged over prompts."""
    xs = [x * np.exp(-step), x * np.exp(step)]
    p = LayerNormScale(per_prompt=True)
    found = probe(model, PROMPTS, [p], queries=xs, query=query, dtype=torch.float64)[
        "layernorm_scale.scale"
    ]
    slope = (np.log(found.isel(position=1).values) - np.log(found.isel(position=0).values)) / (
        2 * step
    )
    return dict(zip(found.indexes["norm"], slope.mean(-1), strict=True))


def test_the_first_norm_divides_the_magnitude_out():
    for sign in (-1, 1):
        assert elasticity(make(), sign * 1e-8)["blocks.0.ln1"] == pytest.approx(0, abs=1e-6)
        assert elasticity(make(), sign * 1e8)["blocks.0.ln1"] == pytest.approx(1, abs=1e-6)


def test_scales_far_out_under_an_intervention():
    """What a frozen norm divides by does not follow x; what it is before does."""
    model = make()
    frozen = freeze(model).only("ln_final")
    found, slopes = scales(model, PROMPTS, query=[frozen]), elasticity(model, 1e4, query=[frozen])
    at = found.sel(norm="ln_final", statistic=["mean", "min", "max"]).values
    np.testing.assert_allclose(
        at, np.full_like(at, float(frozen.scales["ln_final"][-1])), rtol=1e-12
    )
    assert slopes["ln_final"] == 0
    assert slopes["blocks.1.ln2"] == pytest.approx(1, abs=1e-2)
    assert elasticity(model, 1e4)["ln_final"] == pytest.approx(1, abs=1e-2)


@pytest.mark.parametrize(
    ("name", "prompts", "settings", "message"),
    [
        ("no norm", PROMPTS, {}, "probe layernorm_scale: this model has no normalisation"),
        ("pre", PROMPTS, {"queries": ()}, "nothing to probe: 24 prompts and 0 queries"),
        ("pre", PROMPTS[:0], {}, "nothing to probe: 0 prompts and 4 queries"),
        ("pre", torch.zeros(2, 13, 1), {}, "queries change the inputs of Prompts, but got Tensor"),
        ("pre", iter([PROMPTS]), {}, "queries change the inputs of Prompts, but got list_iterator"),
        ("pre", TASK.with_points(12).sample(2, generator(0, "long")), {}, "n_ctx=16"),
        ("pre", PROMPTS, {"encoding": Stacked()}, "d_in=1"),
        ("pre", PROMPTS, {"queries": (1.0, np.inf)}, "finite.*but got .*inf"),
        ("pre", PROMPTS, {"queries": (np.nan, 1.0)}, "finite.*but got .*nan"),
        ("pre", PROMPTS, {"queries": (1.0, 2.0, 1.0)}, "differ.*but got .*1"),
    ],
)
def test_scales_far_out_refuse(name, prompts, settings, message):
    model = make(name)
    with pytest.raises(InputError, match=message):
        scales(model, prompts, **settings)
    assert not any(listened(module) for module in model.modules())
