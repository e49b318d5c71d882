"""What probes measure, against a second route: all activations by `run_with_cache`, and plain numpy."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from small_models import PROMPTS, encoding_of, make, tokens_for

from icl_interp.errors import InputError
from icl_interp.interventions import AblateHeads, FreezeNorms, SwapPattern, intervene
from icl_interp.models.hooks import listened
from icl_interp.probes.attention import AttentionEntropy, PatternStatistics
from icl_interp.probes.base import observe
from icl_interp.probes.heads import HeadOrthogonality, frobenius_cosines, map_orthogonality, principal_angles
from icl_interp.probes.norms import LayerNormScale, layernorm_scale_by_magnitude
from icl_interp.probes.residual import ResidualStream
from icl_interp.probes.runner import probe
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator

KINDS = {"x": range(0, 12, 2), "y": range(1, 12, 2), "query": [12]}


def cached(model):
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens_for(model))
    return {name: activation.numpy() for name, activation in cache.items()}


def value(result, **at):
    """The number or array at some coordinates, by plain indexing."""
    index = [result.indexes[name].get_loc(at[name]) if name in at else slice(None) for name in result.indexes]
    return result.values[tuple(index)]


def pooled(activation, kind):
    """One row for each prompt and position of a kind."""
    rows = activation[:, list(KINDS[kind])]
    return rows.reshape(-1, *rows.shape[2:])


# The numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pre", "post", "mlp only"])
def test_residual_stream(name):
    model = make(name)
    results, cache = probe(model, PROMPTS, [ResidualStream()]), cached(model)
    points = ["blocks.0.hook_resid_pre", "blocks.0.hook_resid_post", "blocks.1.hook_resid_post"]
    for depth, point in enumerate(points):
        for kind in KINDS:
            at, rows = {"depth": depth, "position": kind}, pooled(cache[point], kind)
            norms, eigenvalues = np.linalg.norm(rows, axis=-1), np.linalg.eigvalsh(np.cov(rows.T, bias=True))[::-1]
            expected = {
                "norm": [norms.mean(), norms.std()],
                "mean": rows.mean(0),
                "mean_norm": np.linalg.norm(rows.mean(0)),
                "spectrum": eigenvalues,
                "participation_ratio": eigenvalues.sum() ** 2 / (eigenvalues**2).sum(),
            }
            for key, numbers in expected.items():
                got = value(results[f"residual_stream.{key}"], **at)
                np.testing.assert_allclose(got, numbers, rtol=1e-9, atol=1e-12, err_msg=f"{key} {at}")


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


def row_statistics(weights, visible):
    """Of one query, from the definitions and the keys that it is known to see."""
    p = weights[list(visible)]
    entropy = -sum(a * math.log(a) for a in p if a > 0)
    top = p.max()
    return {
        "entropy": entropy,
        "normalised_entropy": entropy / math.log(len(p)),
        "deficit": math.log(len(p)) - entropy,
        "effective_keys": math.exp(entropy),
        "max_weight": top,
        "delta": 1 - sum(a for a in p if a > top * (1 - 1e-6)),
        "visible_keys": len(p),
    }


def check_entropy(results, cache, visible, kinds):
    """`visible(query)`: the keys a query sees, by construction; None for a query to be left out."""
    for layer in range(2):
        for head in range(3):
            pattern = cache[f"blocks.{layer}.attn.hook_pattern"][:, head]
            for kind, queries in kinds.items():
                rows = [
                    list(row_statistics(prompt[q], visible(q)).values())
                    for prompt in pattern
                    for q in queries
                    if visible(q) is not None
                ]
                expected = np.array([np.mean(rows, 0), np.std(rows, 0)])
                for i, key in enumerate(PatternStatistics._fields):
                    got = results[f"attention_entropy.{key}"].sel(layer=layer, head=head, position=kind).values
                    np.testing.assert_allclose(got, expected[:, i], rtol=1e-7, atol=1e-9, err_msg=key)


@pytest.mark.parametrize("name", ["pre", "hardmax", "no norm"])
def test_attention_entropy(name):
    model = make(name)
    results, cache = probe(model, PROMPTS, [AttentionEntropy()]), cached(model)
    check_entropy(results, cache, lambda q: range(q + 1) if q else None, KINDS)
    # The first token sees only itself, and says nothing.
    must_fail(check_entropy, results, cache, lambda q: range(max(q + 1, 2)), KINDS)


def test_attention_entropy_of_bidirectional_attention():
    model = make("bidirectional")
    results, cache = probe(model, PROMPTS, [AttentionEntropy()]), cached(model)
    kinds = {"xy": range(6), "query": [6]}
    assert tuple(results["attention_entropy.entropy"].indexes["position"]) == ("xy", "query")
    check_entropy(results, cache, lambda q: range(7), kinds)
    must_fail(check_entropy, results, cache, lambda q: range(q + 1) if q else None, kinds)


def hide_third_key(scores, hook):
    scores = scores.clone()
    scores[..., 2] = -torch.inf
    return scores


def test_attention_entropy_counts_what_is_visible_from_the_scores():
    model, p = make(), AttentionEntropy()
    hooks = [(f"blocks.{i}.attn.hook_attn_scores", hide_third_key) for i in range(2)]
    with torch.no_grad(), model.hooks(fwd_hooks=hooks):
        results, cache = probe(model, PROMPTS, [p]), cached(model)

    def seen(q):
        keys = [k for k in range(q + 1) if k != 2]
        return keys if len(keys) > 1 else None

    check_entropy(results, cache, seen, KINDS)


@pytest.mark.parametrize(
    ("to", "ends"),
    [
        ("uniform", {"normalised_entropy": 1, "deficit": 0, "effective_keys": 13, "max_weight": 1 / 13, "delta": 0}),
        ("hardmax", {"normalised_entropy": 0, "deficit": np.log(13), "effective_keys": 1, "max_weight": 1, "delta": 0}),
    ],
)
def test_attention_entropy_at_the_two_ends(to, ends):
    model = make()
    with intervene(model, SwapPattern(to)):
        results = probe(model, PROMPTS, [AttentionEntropy()])
    for key, number in ends.items():
        got = results[f"attention_entropy.{key}"].sel(position="query", statistic="mean").values
        np.testing.assert_allclose(got, number, atol=1e-12, err_msg=key)


def test_delta_merges_ties():
    statistics = PatternStatistics.of(torch.tensor([[0.4, 0.4, 0.2], [0.5, 0.3, 0.2]]), torch.tensor([3, 3]))
    torch.testing.assert_close(statistics.delta, torch.tensor([0.2, 0.5]).double(), atol=1e-7, rtol=0)


@pytest.mark.parametrize("name", ["pre", "post"])
def test_alternative_last_tokens_are_measured_like_whole_prompts(name):
    model, used = make(name), [ResidualStream(), LayerNormScale(), AttentionEntropy(), HeadOrthogonality()]
    tokens, whole = tokens_for(model), probe(model, PROMPTS, used)
    with torch.no_grad():
        memory = model.remember(tokens[:, :-1])
        with observe(model, *used, positions={"query": [0]}):
            model.after(memory, tokens[:, -1:], 12)
    for p in used:
        for key, result in p.results().items():
            expected = whole[f"{p.name}.{key}"]
            expected = expected.sel(position="query").values if "position" in expected.indexes else expected.values
            np.testing.assert_allclose(result.values.squeeze(), expected.squeeze(), rtol=1e-6, atol=1e-6, err_msg=key)


def overlap_by_hand(a, b):
    return float((a * b).sum() / (np.linalg.norm(a) * np.linalg.norm(b)))


def angles_by_hand(a, b):
    """Between spans of orthonormal columns: eigenvalues of P_a P_b P_a are squared cosines."""
    pa, pb = a @ a.T, b @ b.T
    squared = np.linalg.eigvalsh(pa @ pb @ pa)[::-1][: min(a.shape[1], b.shape[1])]
    return np.arccos(np.sqrt(squared.clip(0, 1)))


def leading(matrix, share):
    """Left singular vectors with at least this share of the squared norm."""
    u, s, _ = np.linalg.svd(matrix, full_matrices=False)
    return u[:, : int(np.searchsorted((s**2).cumsum() / (s**2).sum(), share - 1e-12) + 1)]


@pytest.mark.parametrize("share", [0.9, 0.99])
def test_head_outputs(share):
    model = make()
    results = probe(model, PROMPTS, [HeadOrthogonality(share)])
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens_for(model), names_filter=lambda name: name.endswith("hook_result"))
    fewer = 0
    for layer in range(2):
        outputs = cache[f"blocks.{layer}.attn.hook_result"].numpy()
        for kind in KINDS:
            centred = pooled(outputs, kind)
            centred = centred - centred.mean(0)
            for h in range(3):
                for g in range(3):
                    at = {"layer": layer, "position": kind, "head": h, "other": g}
                    got = value(results["head_orthogonality.output_cosine"], **at)
                    assert got == pytest.approx(overlap_by_hand(centred[:, h], centred[:, g]), abs=1e-9)
                    expected = angles_by_hand(leading(centred[:, h].T, share), leading(centred[:, g].T, share))
                    got = value(results["head_orthogonality.output_angles"], **at)
                    np.testing.assert_allclose(got[: len(expected)], expected, atol=1e-6)
                    assert np.isnan(got[len(expected) :]).all()
                    fewer += len(expected) < 4
    assert fewer or share > 0.9, "a share of .9 should leave some heads fewer directions than d_head"


def test_head_maps():
    model = make()
    results = map_orthogonality(model, share=0.95)
    ov, qk = model.OV.AB.detach().numpy(), model.QK.AB.detach().numpy()
    for layer in range(2):
        for h in range(3):
            for g in range(3):
                at = {"layer": layer, "head": h, "other": g}
                for kind, maps, inputs, outputs in (
                    ("ov", ov[layer], "read", "write"),
                    ("qk", qk[layer], "query", "key"),
                ):
                    a, b = maps[h], maps[g]
                    assert value(results[f"{kind}_cosine"], **at) == pytest.approx(overlap_by_hand(a, b), abs=1e-9)
                    for side, left, right in ((inputs, a, b), (outputs, a.T, b.T)):
                        expected = angles_by_hand(leading(left, 0.95), leading(right, 0.95))
                        got = value(results[f"{kind}_{side}_angles"], **at)
                        np.testing.assert_allclose(got[: len(expected)], expected, atol=1e-6)
                        assert np.isnan(got[len(expected) :]).all()


def test_duplicated_and_orthogonal_heads():
    model = make(d_head=4)
    attn = model.blocks[0].attn
    with torch.no_grad():
        for letter in "QKVO":
            getattr(attn, f"W_{letter}")[1] = getattr(attn, f"W_{letter}")[0]
        for letter in "QKV":
            getattr(attn, f"b_{letter}")[1] = getattr(attn, f"b_{letter}")[0]
        for i in (0, 1, 2):  # head 2 reads and writes other coordinates than 0 and 1
            own = torch.arange(12) // 4 == i // 2
            attn.W_O[i] *= own
            attn.W_V[i] *= own[:, None]
    results = {key: r.sel(layer=0, head=0).values for key, r in probe(model, PROMPTS, [HeadOrthogonality()]).items()}
    for key in ("output_cosine", "ov_cosine", "qk_cosine"):
        values = np.atleast_2d(results[f"head_orthogonality.{key}"])
        np.testing.assert_allclose(values[:, 1], 1, atol=1e-9)
    for key in ("output_angles", "ov_read_angles", "ov_write_angles", "qk_key_angles"):
        values = results[f"head_orthogonality.{key}"]
        np.testing.assert_allclose(np.nan_to_num(values[..., 1, :]), 0, atol=1e-9)
    np.testing.assert_allclose(results["head_orthogonality.ov_cosine"][2], 0, atol=1e-12)
    np.testing.assert_allclose(results["head_orthogonality.output_cosine"][:, 2], 0, atol=1e-12)
    between = results["head_orthogonality.ov_write_angles"][2]
    np.testing.assert_allclose(between[~np.isnan(between)], math.pi / 2, atol=1e-9)


def test_a_silent_head_has_neither_cosine_nor_angles():
    model = make()
    with intervene(model, AblateHeads.zero((0, 1))):
        results = probe(model, PROMPTS, [HeadOrthogonality()])
    for key in ("output_cosine", "output_angles"):
        values = results[f"head_orthogonality.{key}"].sel(layer=0, position="y").values
        assert np.isnan(values[1]).all()
        assert not np.isnan(values[0, 2]).all()


def check_small_angle(angles_between):
    """Two lines 1e-9 apart: the arc cosine of their inner product rounds to 0."""
    a, b = torch.tensor([[1.0], [0.0]]).double(), torch.tensor([[1.0], [1e-9]]).double()
    assert float(angles_between(a, b)[0]) == pytest.approx(1e-9, rel=1e-6)


def test_small_principal_angles_are_accurate():
    check_small_angle(principal_angles)
    must_fail(check_small_angle, lambda a, b: torch.linalg.svdvals(a.T @ b).clamp(max=1).arccos())


def test_principal_angles_of_subspaces_of_different_dimension():
    a, b = (torch.linalg.qr(torch.randn(9, k, generator=generator(0, "angles", k)).double())[0] for k in (2, 5))
    expected = angles_by_hand(a.numpy(), b.numpy())
    np.testing.assert_allclose(principal_angles(a, b), expected, atol=1e-7)
    np.testing.assert_allclose(principal_angles(b, a), expected, atol=1e-7)


def test_frobenius_cosines_of_long_thin_maps():
    left, right = torch.randn(3, 20, 2), torch.randn(3, 2, 20)
    dense = (left.double() @ right.double()).numpy()
    expected = [[overlap_by_hand(a, b) for b in dense] for a in dense]
    np.testing.assert_allclose(frobenius_cosines(left, right), expected, atol=1e-12)


# Scales far out -------------------------------------------------------------------------------------------------------


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
