"""Ablations against brute force: what they replace, and what errors they leave.

The model is as it was after an ablation.
"""

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from small_models import MODELS, OTHERS, encoding_of, make, tokens_for
from tiny_runs import STACKED, checkpoint
from torch.testing import assert_close

from icl_interp.analyses.lab import Lab
from icl_interp.checkpoints.companions import Role
from icl_interp.errors import InputError
from icl_interp.interventions.attention import AblateHeads
from icl_interp.interventions.base import At, intervene
from icl_interp.interventions.outputs import MeanOutputs, sublayers
from icl_interp.models.transformer import HookedTransformer
from icl_interp.prompts import as_numbers
from icl_interp.provenance import generator
from icl_interp.studies.limits.measurements import ablation
from icl_interp.studies.limits.measurements.ablation import ALL, BLIND, NOTHING, QUERY

WITH_ATTENTION = [name for name in MODELS if name != "mlp only"]


def run(seed=5, **changes):
    """An untrained model of two layers, on affine functions."""
    sizes = {"n_layers": 2, "init_std": 0.5}
    model = {**sizes, **changes.pop("model", {})}
    # Off centre: the mean of the law of functions is a line, and so its error is not that of zero.
    task = {"degrees": [1], "coefficients": {"kind": "Uniform", "low": -1, "high": 2}}
    found = checkpoint(task=task, model=model, **changes)
    found.model = HookedTransformer(found.model.cfg, seed=seed).eval()
    return found


def bench_of(found, **companions) -> Lab:
    settings = {
        "n_units": 4,
        "n_contexts": 3,
        "companions": {Role(kind): other for kind, other in companions.items()},
    }
    return Lab(found.model, found.task, found.encoding, **settings)


@functools.cache
def bench(kind="causal") -> Lab:
    """A model with companions that lack a part."""
    if kind == "bidirectional":
        return bench_of(run(encoding="stacked", model=STACKED["model"]))
    return bench_of(
        run(),
        **{
            "MLP only": run(6, model={"mlp_only": True}),
            "attention only": run(7, model={"attn_only": True}),
        },
    )


# ---- the intervention ----------------------------------------------------------------------------


def check_all_heads(name, kind="attn"):
    """What a layer writes is linear in its heads' outputs: at their mean it is at its own."""
    model = make(name)
    tokens, heads = tokens_for(model), [(i, h) for i in range(2) for h in range(model.cfg.n_heads)]
    reference = tokens_for(model, OTHERS)
    with intervene(model, AblateHeads.measure(model, reference, *heads)):
        expected = model(tokens)
    with intervene(model, MeanOutputs.measure(model, reference, sublayers(model, kind))):
        assert_close(model(tokens), expected, rtol=1e-9, atol=1e-9)
    assert not torch.allclose(model(tokens), expected)


# A norm on what a layer's heads write together is not linear in them.
LINEAR_IN_HEADS = [name for name in WITH_ATTENTION if name != "norm on outputs"]


@pytest.mark.slow
@pytest.mark.parametrize("name", LINEAR_IN_HEADS)
def test_it_is_the_ablation_of_all_heads(name):
    check_all_heads(name)
    if not MODELS[name].get("attn_only"):
        must_fail(check_all_heads, name, "mlp")
    must_fail(check_all_heads, "norm on outputs")


def check_query_alone(name, layer=None):
    """With attention at its mean everywhere, a prediction depends on the token it is made at.

    It depends on that token alone.
    """
    model = make(name)
    tokens = tokens_for(model)
    other = torch.cat([tokens.flip(0)[:, :-1], tokens[:, -1:]], 1)
    names = sublayers(model, "attn", layer)
    with intervene(model, MeanOutputs.measure(model, tokens_for(model, OTHERS), names)):
        assert_close(model(tokens)[:, -1], model(other)[:, -1], rtol=0, atol=1e-12)
    assert not torch.allclose(model(tokens)[:, -1], model(other)[:, -1])


@pytest.mark.parametrize("name", WITH_ATTENTION)
def test_without_attention_a_prediction_reads_the_query_alone(name):
    check_query_alone(name)
    must_fail(check_query_alone, name, layer=0)


def test_sublayers_are_those_that_exist():
    assert sublayers(make()) == [
        f"blocks.{i}.hook_{s}_out" for i in range(2) for s in ("attn", "mlp")
    ]
    assert sublayers(make(), layer=1) == ["blocks.1.hook_attn_out", "blocks.1.hook_mlp_out"]
    assert sublayers(make("mlp only"), "attn") == []
    assert sublayers(make("attention only"), layer=0) == ["blocks.0.hook_attn_out"]


def test_the_model_is_as_it_was():
    model = make()
    tokens, weights = tokens_for(model), {k: v.clone() for k, v in model.state_dict().items()}
    before = model(tokens)
    edit = MeanOutputs.measure(model, tokens, sublayers(model))
    with pytest.raises(InputError, match="measure on longer"), intervene(model, edit):
        model(torch.cat([tokens, tokens], 1)[:, :16])
    assert torch.equal(model(tokens), before)
    assert all(torch.equal(weights[k], v) for k, v in model.state_dict().items())
    assert not any(point.fwd_hooks for point in model.hook_dict.values())
    assert not any(point._forward_hooks for point in model.hook_dict.values())


def test_measuring_leaves_the_lab_as_it_was():
    lab = bench_of(run())
    before = lab.single(lab.tokens(lab.few).float()).clone()
    for m in (ablation.without_attention, ablation.ablated, ablation.edit_size):
        lab.measure(m)
    assert torch.equal(lab.single(lab.tokens(lab.few).float()), before)
    assert not any(point._forward_hooks for point in lab.single.hook_dict.values())


# ---- errors --------------------------------------------------------------------------------------


def check_sample(sample):
    """A pair of functions for each unit: partners about the mean of the law, at the same inputs."""
    lab = bench()
    prompts = sample(lab)
    assert len(prompts) == len(prompts.function.unique()) == 2 * lab.n_units
    assert_close(
        prompts.parameters[::2] + prompts.parameters[1::2], torch.ones(4, 2).double()
    )  # Uniform(-1, 2)
    assert torch.equal(prompts.xs[::2], prompts.xs[1::2])
    # Means are measured on `few`, which must not hold these functions.
    assert not torch.isin(prompts.parameters, lab.few.parameters).any()


def test_the_sample_is_fresh_pairs():
    check_sample(ablation.sample)
    must_fail(check_sample, lambda lab: lab.few)
    must_fail(
        check_sample,
        lambda lab: lab.task.sample(8, generator(0, "layers/ablation"), dtype=torch.float64),
    )


def check_squares(squares, kind, layers=(0,)):
    """Prompt by prompt, in full forward passes, with the edit everywhere or at the query alone."""
    lab = bench(kind)
    edit = ablation.means(lab).only(
        *sublayers(lab.model, layer=0)
    )  # what other tokens say still matters
    got = squares(lab, {"arm": edit})["arm"]
    prompts = lab.units("layers/ablation")  # rows of a unit, a pair of functions, stand together
    names = [f"blocks.{i}.hook_{s}_out" for i in layers for s in ("attn", "mlp")]
    _, cache = lab.single.run_with_cache(lab.tokens(lab.few).float())
    mine = MeanOutputs({name: cache[name].mean(0) for name in names})
    rows = []
    for i in range(len(prompts)):
        one = prompts[i : i + 1]
        tokens = lab.tokens(one).float()
        last = tokens.shape[1] - 1
        with intervene(lab.single, mine), torch.no_grad():
            whole = lab.single(tokens)[0, :, 0].double()
        with intervene(lab.single, At((last,), mine)), torch.no_grad():
            query = lab.single(tokens)[0, -1, 0].double()
        # Interleaved, x_k is token 2 k and predicts y_k; bidirectional models predict the last
        # point only.
        said = whole[2 * 2 :: 2] if kind == "causal" else whole[-1:]
        truth = one.ys[0, 2:, 0] if kind == "causal" else one.ys[0, -1:, 0]
        rows.append([(said - truth).square().mean().item(), (query - truth[-1]).square().item()])
    expected = np.array(rows).reshape(lab.n_units, 2, 2).mean(1).T
    assert np.allclose(got, expected, rtol=1e-4)


@pytest.mark.parametrize("kind", ["causal", "bidirectional"])
def test_squared_errors_by_brute_force(kind):
    check_squares(ablation.squares, kind)
    must_fail(check_squares, ablation.squares, kind, layers=(0, 1))
    must_fail(
        check_squares, lambda lab, arms: {"arm": ablation.squares(lab, arms)["arm"][::-1]}, kind
    )


def check_rows(measure):
    lab = bench()
    result = measure(lab)
    assert tuple(result.indexes["arm"]) == (
        "intact",
        "no attention",
        "MLP only",
        "attention only",
        BLIND,
        NOTHING,
    )
    prompts = ablation.sample(lab)
    with torch.no_grad():
        outs = {"intact": lab.single(lab.tokens(prompts).float())[:, ::2, 0].double()}
        for role in ("MLP only", "attention only"):
            other = lab.companions[Role(role)].model.float()
            outs[role] = other(lab.tokens(prompts).float())[:, ::2, 0].double()
    # Pairs lie about the mean of the law, so their mean is that line.
    a, b = 0.5, 0.5
    truth = as_numbers(prompts.ys)
    outs |= {BLIND: a + b * prompts.xs[..., 0], NOTHING: 0 * truth}
    for name, out in outs.items():
        missed = (out - truth).square()
        for points, values in ((ALL, missed[:, 2:].mean(1)), (QUERY, missed[:, -1])):
            assert np.allclose(
                result.sel(arm=name, points=points).values, values.view(4, 2).mean(1), rtol=1e-4
            ), name


def test_those_beside_the_model_are_scored_on_the_same_points():
    check_rows(ablation.without_attention)
    must_fail(
        check_rows,
        lambda lab: (r := ablation.without_attention(lab)).copy(data=r.values[[1, 0, 2, 3, 4, 5]]),
    )
    must_fail(
        check_rows,
        lambda lab: (r := ablation.without_attention(lab)).copy(data=r.values[[0, 1, 2, 3, 5, 4]]),
    )
    must_fail(
        check_rows,
        lambda lab: (r := ablation.without_attention(lab)).copy(data=r.values[:, ::-1].copy()),
    )


def test_arms_of_the_parts():
    lab = bench()
    result = lab.measure(ablation.ablated)
    assert tuple(result.indexes["arm"]) == ("no MLP", "block 0", "block 1", "reordered")
    for i in range(2):
        mine = ablation.squares(
            lab, {"b": ablation.means(lab).only(*sublayers(lab.model, layer=i))}
        )["b"]
        assert np.allclose(result.sel(arm=f"block {i}").values, mine, rtol=1e-6)
    mine = ablation.squares(lab, {"m": ablation.means(lab, "mlp")})["m"]
    assert np.allclose(result.sel(arm="no MLP").values, mine, rtol=1e-6)
    assert bench("bidirectional").measure(ablation.ablated).indexes["arm"][0] == "no MLP"
    alone = bench_of(run(model={"attn_only": True}))
    assert tuple(alone.measure(ablation.ablated).indexes["arm"]) == (
        "block 0",
        "block 1",
        "reordered",
    )


def test_without_attention_a_model_that_has_none():
    lab = bench_of(run(model={"mlp_only": True}))
    assert tuple(lab.measure(ablation.without_attention).indexes["arm"]) == (
        "intact",
        BLIND,
        NOTHING,
    )
    assert np.isnan(lab.measure(ablation.edit_size).values).all()


# ---- the sham ------------------------------------------------------------------------------------


def check_reordered(reordered):
    """The same pairs, in another order; the query and the function stay."""
    lab = bench()
    before, after = ablation.sample(lab), reordered(lab)
    assert torch.equal(before.xs[:, -1], after.xs[:, -1])
    assert torch.equal(before.parameters, after.parameters)
    assert_close(lab.task.targets(after.parameters, after.xs), after.ys)
    assert torch.equal(before.xs[..., 0].sort(1).values, after.xs[..., 0].sort(1).values)
    assert not torch.equal(before.xs, after.xs)


def test_the_sham_shows_the_same_points_in_another_order():
    check_reordered(ablation.reordered)
    must_fail(
        check_reordered,
        lambda lab: replace(p := ablation.reordered(lab), xs=p.xs.flip(1), ys=p.ys.flip(1)),
    )
    must_fail(
        check_reordered, lambda lab: replace(ablation.reordered(lab), xs=ablation.sample(lab).xs)
    )
    must_fail(check_reordered, ablation.sample)


def test_edit_sizes_by_brute_force():
    lab = bench()
    said = []
    for prompts in (ablation.sample(lab), ablation.reordered(lab)):
        _, cache = lab.single.run_with_cache(lab.tokens(prompts).float())
        said.append(
            torch.stack([cache[f"blocks.{i}.hook_attn_out"][:, -1].double() for i in range(2)], 1)
        )
    mean, other = said[0].mean(0), said[1]
    size = sum(float(row.square().sum()) for row in said[0])
    expected = [
        sum(float((row - mean).square().sum()) for row in said[0]) / size,
        sum(float((a - b).square().sum()) for a, b in zip(said[0], other, strict=True)) / size,
    ]
    assert np.allclose(lab.measure(ablation.edit_size).values, expected, rtol=1e-4)


def test_encodings_agree_on_which_points_are_scored():
    assert ablation.first_scored(bench()) == 2
    assert ablation.first_scored(bench("bidirectional")) == 4
    assert encoding_of(bench("bidirectional").model) == bench("bidirectional").encoding
