"""Measures of the residual stream, against all activations and plain numpy."""

import numpy as np
import pytest
import torch
from cached_activations import KINDS, cached, pooled, value
from helpers import must_fail
from small_models import MODELS, PROMPTS, freeze, make, tokens_for

from icl_interp.interventions.base import intervene
from icl_interp.probes.base import observe
from icl_interp.probes.norms import LayerNormScale
from icl_interp.probes.residual import LogitLens, ResidualStream, depths, logit_lens
from icl_interp.probes.runner import probe


@pytest.mark.parametrize("name", ["pre", "post", "mlp only"])
def test_residual_stream(name):
    model = make(name)
    results, cache = probe(model, PROMPTS, [ResidualStream()]), cached(model)
    points = ["blocks.0.hook_resid_pre", "blocks.0.hook_resid_post", "blocks.1.hook_resid_post"]
    for depth, point in enumerate(points):
        for kind in KINDS:
            at, rows = {"depth": depth, "position": kind}, pooled(cache[point], kind)
            norms, eigenvalues = (
                np.linalg.norm(rows, axis=-1),
                np.linalg.eigvalsh(np.cov(rows.T, bias=True))[::-1],
            )
            expected = {
                "norm": [norms.mean(), norms.std()],
                "mean": rows.mean(0),
                "mean_norm": np.linalg.norm(rows.mean(0)),
                "spectrum": eigenvalues,
                "participation_ratio": eigenvalues.sum() ** 2 / (eigenvalues**2).sum(),
            }
            for key, numbers in expected.items():
                got = value(results[f"residual_stream.{key}"], **at)
                np.testing.assert_allclose(
                    got, numbers, rtol=1e-9, atol=1e-12, err_msg=f"{key} {at}"
                )


# ---- the logit lens ------------------------------------------------------------------------------


def read_out(model, stream):
    """By hand: the final norm, where the model has one, and the read-out."""
    if model.cfg.normalization_type and model.cfg.norm_position == "pre":
        if model.cfg.normalization_type == "LN":
            stream = stream - stream.mean(-1, keepdims=True)
        norm = model.ln_final
        stream = (
            stream
            / np.sqrt((stream**2).mean(-1, keepdims=True) + model.cfg.eps)
            * norm.w.detach().numpy()
        )
        stream = stream + (0 if norm.b is None else norm.b.detach().numpy())
    return stream @ model.unembed.W_U.detach().numpy() + model.unembed.b_U.detach().numpy()


def check_lens(found, model, cache, read=read_out):
    """Mean and spread of what is read at each depth, over the tokens of each kind."""
    for depth, name in enumerate(
        ("blocks.0.hook_resid_pre", "blocks.0.hook_resid_post", "blocks.1.hook_resid_post")
    ):
        for kind in KINDS:
            seen = read(model, pooled(cache[name], kind))[:, 0]
            got = value(found, depth=depth, position=kind, target=0)
            np.testing.assert_allclose(got, [seen.mean(), seen.std()], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["pre", "post", "rms", "no norm", "mlp only"])
def test_the_lens_reads_the_stream_as_the_model_would(name):
    model = make(name)
    found, cache = (
        probe(model, PROMPTS, [LogitLens()], batch_size=7)["logit_lens.prediction"],
        cached(model),
    )
    assert found.dims == ("depth", "position", "target", "statistic")
    check_lens(found, model, cache)
    must_fail(check_lens, found, make(name, eps=1.0, init_std=0.4), cache)
    if name in ("pre", "rms", "mlp only"):

        def unnormed(model, stream):
            return stream @ model.unembed.W_U.detach().numpy() + model.unembed.b_U.item()

        must_fail(check_lens, found, model, cache, unnormed)


@pytest.mark.parametrize("name", MODELS)
def test_after_all_blocks_the_lens_sees_the_prediction_itself(name):
    model = make(name)
    with torch.no_grad():
        out, cache = model.run_with_cache(tokens_for(model))
        torch.testing.assert_close(
            logit_lens(model, cache[depths(model)[-1]]), out, rtol=1e-12, atol=1e-12
        )
        before = logit_lens(model, cache[depths(model)[-2]])
    assert not torch.allclose(before, out, rtol=1e-3, atol=1e-3)
    found = probe(model, PROMPTS, [LogitLens(per_prompt=True)])["logit_lens.prediction"]
    assert found.dims == ("depth", "position", "target", "prompt")
    np.testing.assert_allclose(
        found.sel(depth=2, position="query", target=0).values, out[:, -1, 0], rtol=1e-12
    )


def test_the_lens_sees_interventions_on_the_final_norm():
    model = make()
    with torch.no_grad(), intervene(model, freeze(model, "ln_final")):
        out = model(tokens_for(model))[:, -1, 0]
        found = probe(model, PROMPTS, [LogitLens(per_prompt=True)])["logit_lens.prediction"]
        cache = cached(model)
    np.testing.assert_allclose(
        found.sel(depth=2, position="query", target=0).values, out, rtol=1e-12
    )
    # ... at every depth: there too the scale is the frozen one.
    scale = cache["ln_final.hook_scale"][0, -1]
    stream = cache["blocks.0.hook_resid_post"][:, -1]
    norm = model.ln_final
    by_hand = (
        stream - stream.mean(-1, keepdims=True)
    ) / scale * norm.w.detach().numpy() + norm.b.detach().numpy()
    by_hand = by_hand @ model.unembed.W_U.detach().numpy() + model.unembed.b_U.detach().numpy()
    np.testing.assert_allclose(found.sel(depth=1, position="query").values, by_hand.T, rtol=1e-9)


# ---- a probe that runs a part of the model -------------------------------------------------------


def check_undisturbed(together, alone):
    """Each probe's numbers are those that it gets without the other."""
    for key, result in alone.items():
        np.testing.assert_array_equal(together[key].values, result.values, err_msg=key)


def test_the_lens_and_the_scales_do_not_disturb_each_other():
    """The lens runs the final norm at every depth; the model divides by none of these scales."""
    model = make()
    alone = {**probe(model, PROMPTS, [LayerNormScale()]), **probe(model, PROMPTS, [LogitLens()])}
    for order in ([LogitLens(), LayerNormScale()], [LayerNormScale(), LogitLens()]):
        check_undisturbed(probe(model, PROMPTS, order), alone)
        check_undisturbed(
            probe(model, PROMPTS, order, queries=[1.0, 50.0]),
            {
                **probe(model, PROMPTS, [LayerNormScale()], queries=[1.0, 50.0]),
                **probe(model, PROMPTS, [LogitLens()], queries=[1.0, 50.0]),
            },
        )


def test_an_unguarded_lens_is_noticed():
    """A hook of no probe sees the final norm run once for every depth beside its own run."""
    model, p = make(), LayerNormScale()
    alone = probe(model, PROMPTS, [p])["layernorm_scale.scale"]

    def unguarded():
        hooks = [(name, lambda t, hook: [logit_lens(model, t), None][1]) for name in depths(model)]
        with torch.no_grad(), observe(model, p, positions=KINDS), model.hooks(fwd_hooks=hooks):
            model(tokens_for(model))
        return {"scale": p.results()["scale"]}

    must_fail(check_undisturbed, unguarded(), {"scale": alone})
