"""Probes: their numbers against a second route from `run_with_cache`, whole or streamed; and that they only read."""

import gc
import math
import weakref
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from helpers import must_fail

import icl_interp
from icl_interp import results as stored
from icl_interp import tasks
from icl_interp.errors import InputError
from icl_interp.interventions import AblateHeads, SwapPattern, Temperature, intervene
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.hooks import listened
from icl_interp.models.tokens import Interleaved, Stacked
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.attention import AttentionEntropy, PatternStatistics
from icl_interp.probes.base import Probe, observe
from icl_interp.probes.heads import HeadOrthogonality, frobenius_cosines, map_orthogonality, principal_angles
from icl_interp.probes.norms import LayerNormScale, layernorm_scale_by_magnitude
from icl_interp.probes.residual import ResidualStream
from icl_interp.probes.runner import probe
from icl_interp.provenance import generator

TASK = tasks.Polynomial(degrees=(1,), inputs=tasks.Uniform(-1, 1), coefficients=tasks.Normal(1), n_points=7)
PROMPTS = TASK.sample(24, generator(0, "test/probes"))
BASE = {"n_layers": 2, "d_model": 12, "n_heads": 3, "d_head": 4, "n_ctx": 16, "init_std": 0.5}
MODELS = {
    "pre": {},
    "post": {"norm_position": "post"},
    "rms": {"normalization_type": "RMS"},
    "no norm": {"normalization_type": None},
    "attention only": {"attn_only": True, "positional_embedding_type": "none"},
    "mlp only": {"mlp_only": True},
    "hardmax": {"score_fn": "hardmax"},
    "linear": {"score_fn": "linear", "score_norm": "visible"},
    "one head": {"n_heads": 1},
    "bidirectional, stacked": {"attention_dir": "bidirectional", "d_in": 2},
}
KINDS = {"x": range(0, 12, 2), "y": range(1, 12, 2), "query": [12]}


def make(name="pre", **change):
    model = HookedTransformer(HookedTransformerConfig(**{**BASE, **MODELS[name], **change}), seed=3).eval()
    with torch.no_grad():  # biases and gains that matter
        for parameter_name, parameter in model.named_parameters():
            if ".W_" not in parameter_name:
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator(1, parameter_name))
    return model


def cached(model, prompts=PROMPTS, encoding=None):
    tokens = (encoding or Interleaved()).encode(prompts).to(model.unembed.W_U)
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens)
    return {name: value.double().numpy() for name, value in cache.items()}


def value(result, **at):
    """The number or array at some coordinates, by plain indexing."""
    index = [result.axes[name].index(at[name]) if name in at else slice(None) for name in result.axes]
    return result.values[tuple(index)]


def pooled(activation, kind, axis=1):
    """One row for each prompt and position of a kind."""
    rows = np.moveaxis(activation.take(list(KINDS[kind]), axis), axis, 1)
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
            for key, value in expected.items():
                got = value(results[f"residual_stream.{key}"], **at)
                np.testing.assert_allclose(got, value, rtol=1e-5, atol=1e-6, err_msg=f"{key} {at}")


@pytest.mark.parametrize("name", ["pre", "post", "rms"])
def test_layernorm_scale(name):
    model = make(name)
    scale, cache = probe(model, PROMPTS, [LayerNormScale()])["layernorm_scale.scale"], cached(model)
    assert scale.axes["norm"] == tuple(model.norms)
    for norm in model.norms:
        for kind in KINDS:
            rows = pooled(cache[f"{norm}.hook_scale"], kind)
            expected = [rows.mean(), rows.std(), rows.min(), rows.max()]
            np.testing.assert_allclose(scale.at(norm=norm, position=kind), expected, rtol=1e-6)


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
                    got = results[f"attention_entropy.{key}"].at(layer=layer, head=head, position=kind)
                    np.testing.assert_allclose(got, expected[:, i], rtol=1e-5, atol=1e-6, err_msg=key)


@pytest.mark.parametrize("name", ["pre", "hardmax", "no norm"])
def test_attention_entropy(name):
    model = make(name)
    results, cache = probe(model, PROMPTS, [AttentionEntropy()]), cached(model)
    check_entropy(results, cache, lambda q: range(q + 1) if q else None, KINDS)
    # The first token sees only itself, and says nothing.
    must_fail(check_entropy, results, cache, lambda q: range(max(q + 1, 2)), KINDS)


def test_attention_entropy_of_bidirectional_attention():
    model = make("bidirectional, stacked")
    results, cache = probe(model, PROMPTS, [AttentionEntropy()]), cached(model, encoding=Stacked())
    kinds = {"xy": range(6), "query": [6]}
    assert results["attention_entropy.entropy"].axes["position"] == ("xy", "query")
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


def test_attention_entropy_at_the_two_ends():
    model, tokens = make(), Interleaved().encode(PROMPTS)
    with intervene(model, SwapPattern("uniform")):
        uniform = {k: v.at(statistic="mean", position="query") for k, v in probe(model, tokens).items() if "entropy" in k}
    ends = {"normalised_entropy": 1, "deficit": 0, "effective_keys": 13, "max_weight": 1 / 13, "delta": 0}
    for key, value in ends.items():
        np.testing.assert_allclose(uniform[f"attention_entropy.{key}"], value, atol=1e-6, err_msg=key)
    with intervene(model, SwapPattern("hardmax")):
        hard = {k: v.at(statistic="mean", position="query") for k, v in probe(model, tokens).items() if "entropy" in k}
    ends = {"normalised_entropy": 0, "deficit": math.log(13), "effective_keys": 1, "max_weight": 1, "delta": 0}
    for key, value in ends.items():
        np.testing.assert_allclose(hard[f"attention_entropy.{key}"], value, atol=1e-12, err_msg=key)


def test_delta_merges_ties():
    statistics = PatternStatistics.of(torch.tensor([[0.4, 0.4, 0.2], [0.5, 0.3, 0.2]]), torch.tensor([3, 3]))
    torch.testing.assert_close(statistics.delta, torch.tensor([0.2, 0.5]).double(), atol=1e-7, rtol=0)


@pytest.mark.parametrize("name", ["pre", "post", "linear"])
def test_alternative_last_tokens_are_measured_like_whole_prompts(name):
    model = make(name).double()
    tokens, used = Interleaved().encode(PROMPTS.double()), [ResidualStream()]
    used += [LayerNormScale()] + [AttentionEntropy()] * (name != "linear")
    whole = probe(model, tokens, used)
    with torch.no_grad(), observe(model, *used, positions={"query": [0]}):
        with model.hooks():  # hooks of others come and go meanwhile
            pass
        context = model.remember(tokens[:, :-1])
    with torch.no_grad(), observe(model, *used, positions={"query": [0]}):
        model.after(context, tokens[:, -1:], 12)
    for p in used:
        for key, result in p.results().items():
            expected = whole[f"{p.name}.{key}"].at(position="query")
            np.testing.assert_allclose(result.at(position="query"), expected, rtol=1e-6, atol=1e-9, err_msg=key)


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
        _, cache = model.run_with_cache(Interleaved().encode(PROMPTS), names_filter=lambda n: n.endswith("hook_result"))
    fewer = 0
    for layer in range(2):
        outputs = cache[f"blocks.{layer}.attn.hook_result"].double().numpy()
        for kind in KINDS:
            centred = pooled(outputs, kind)
            centred = centred - centred.mean(0)
            for h in range(3):
                for g in range(3):
                    at = {"layer": layer, "position": kind, "head": h, "other": g}
                    got = value(results["head_orthogonality.output_cosine"], **at)
                    assert got == pytest.approx(overlap_by_hand(centred[:, h], centred[:, g]), abs=1e-5)
                    expected = angles_by_hand(leading(centred[:, h].T, share), leading(centred[:, g].T, share))
                    got = value(results["head_orthogonality.output_angles"], **at)
                    np.testing.assert_allclose(got[: len(expected)], expected, atol=1e-3)
                    assert np.isnan(got[len(expected) :]).all()
                    fewer += len(expected) < 4
    assert fewer or share > 0.9, "a share of .9 should leave some heads fewer directions than d_head"


def test_head_maps():
    model = make()
    results = map_orthogonality(model, share=0.95)
    ov, qk = model.OV.AB.detach().double().numpy(), model.QK.AB.detach().double().numpy()
    for layer in range(2):
        for h in range(3):
            for g in range(3):
                at = {"layer": layer, "head": h, "other": g}
                for kind, maps, inputs, outputs in (
                    ("ov", ov[layer], "read", "write"),
                    ("qk", qk[layer], "query", "key"),
                ):
                    a, b = maps[h], maps[g]
                    assert value(results[f"{kind}_cosine"], **at) == pytest.approx(overlap_by_hand(a, b), abs=1e-6)
                    for side, left, right in ((inputs, a, b), (outputs, a.T, b.T)):
                        expected = angles_by_hand(leading(left, 0.95), leading(right, 0.95))
                        got = value(results[f"{kind}_{side}_angles"], **at)
                        np.testing.assert_allclose(got[: len(expected)], expected, atol=1e-3)
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
    results = {key: r.at(layer=0, head=0) for key, r in probe(model, PROMPTS, [HeadOrthogonality()]).items()}
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
        values = results[f"head_orthogonality.{key}"].at(layer=0, position="y")
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


def scales_and_elasticities(model, encoding, prompts, magnitude, sign):
    """By whole prompts and automatic differentiation, one prompt at a time."""
    scales = []
    for i in range(len(prompts)):
        one = prompts[i : i + 1]
        log = torch.tensor(math.log(magnitude), dtype=torch.float64, requires_grad=True)
        query = one.xs[:, -1:]
        unit = torch.ones_like(query) if query.shape[-1] == 1 else query / query.norm()
        tokens = encoding.encode(one)
        tokens = torch.cat([tokens[:, :-1], encoding.encode_queries(sign * log.exp() * unit)], 1)
        seen = {}
        points = [f"{norm}.hook_scale" for norm in model.norms]
        model.run_with_hooks(tokens, fwd_hooks=[(p, lambda t, hook: seen.update({hook.name: t})) for p in points])
        for point in points:
            scale = seen[point][0, -1, 0].log()
            (slope,) = torch.autograd.grad(scale, log, retain_graph=True)
            scales.append((scale.exp().item(), slope.item()))
    return np.array(scales).reshape(len(prompts), len(model.norms), 2)


def check_by_magnitude(model, encoding, prompts, curves):
    for sign in (-1, 1):
        for magnitude in (0.1, 3.0, 1e3):
            expected = scales_and_elasticities(model, encoding, prompts, magnitude, sign)
            for i, name in enumerate(("scale", "elasticity")):
                for statistic, values in (("mean", expected[..., i].mean(0)), ("std", expected[..., i].std(0))):
                    got = curves[name].at(sign=sign, statistic=statistic, magnitude=magnitude)
                    np.testing.assert_allclose(got, values, rtol=1e-5, atol=1e-6, err_msg=f"{name} {sign} {magnitude}")


@pytest.mark.parametrize("name", ["pre", "post", "mlp only", "bidirectional, stacked"])
def test_layernorm_scale_by_magnitude(name):
    model, few = make(name), PROMPTS[:5]
    encoding = Stacked() if name.endswith("stacked") else Interleaved()
    curves = layernorm_scale_by_magnitude(model, few, (0.1, 3.0, 1e3), batch_size=3)
    assert model.unembed.W_U.dtype == torch.float32
    check_by_magnitude(make(name).double(), encoding, few.double(), curves)
    must_fail(check_by_magnitude, make(name, eps=1.0).double(), encoding, few.double(), curves)


def test_layernorm_scale_by_magnitude_of_vectors():
    xs = torch.randn(4, 5, 3, generator=generator(0, "vectors"))
    prompts = icl_interp.prompts.Prompts(xs, xs.sum(-1), xs[:, 0], torch.arange(4))
    curves = layernorm_scale_by_magnitude(make(d_in=3), prompts, (0.1, 3.0, 1e3))
    check_by_magnitude(make(d_in=3).double(), Interleaved(), prompts.double(), curves)
    with pytest.raises(InputError, match="a query of 0 has no direction"):
        layernorm_scale_by_magnitude(make(d_in=3), icl_interp.prompts.Prompts(
            xs * 0, xs.sum(-1), xs[:, 0], torch.arange(4)), (1.0,))


def test_first_norm_divides_the_magnitude_out():
    elasticity = layernorm_scale_by_magnitude(make(), PROMPTS, (1e-8, 1e8))["elasticity"].at(
        norm="blocks.0.ln1", statistic="mean"
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


# Streaming ------------------------------------------------------------------------------------------------------------


def check_same(one, other):
    assert one.keys() == other.keys()
    for key in one:
        assert one[key].axes == other[key].axes
        np.testing.assert_allclose(one[key].values, other[key].values, rtol=1e-6, atol=1e-7, err_msg=key)


def all_of(name):
    return [p for p in (ResidualStream(), LayerNormScale(), AttentionEntropy()) if not p.refusal(make(name))]


@pytest.mark.parametrize("name", MODELS)
def test_a_stream_equals_one_batch(name):
    model, used = make(name).double(), all_of(name)
    whole = probe(model, PROMPTS.double(), used)
    check_same(whole, probe(model, PROMPTS.double(), used, batch_size=7))
    pieces = (PROMPTS[i : i + 5].double() for i in range(0, 24, 5))
    check_same(whole, probe(model, pieces, used, batch_size=2))
    must_fail(check_same, whole, probe(model, PROMPTS[:23].double(), used))


def test_head_orthogonality_streams():
    model = make().double()
    whole = probe(model, PROMPTS.double(), [HeadOrthogonality()])
    check_same(whole, probe(model, (PROMPTS[i : i + 5].double() for i in range(0, 24, 5)), [HeadOrthogonality()]))


def state_size(p):
    """Numbers held by a probe's statistics, whatever it wraps them in."""
    gc.collect()
    seen, total, stack = set(), 0, [v for k, v in vars(p).items() if k != "_model"]
    while stack:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            total += item.numel()
        elif isinstance(item, dict):
            stack += item.values()
        elif isinstance(item, (list, tuple)):
            stack += item
        elif hasattr(item, "__dict__"):
            stack += vars(item).values()
    return total


class KeepsEverything(Probe):
    """What a streaming probe must not be."""

    name = "keeps_everything"

    def hooks(self, model, positions):
        self.kept = []
        return [("hook_embed", lambda t, hook: self.kept.append(t))]

    def results(self):
        return {}


def check_constant_memory(make_probe):
    model, alive, p = make(), [], make_probe()

    def stream(n):
        for i in range(n):
            prompts = TASK.sample(8, generator(0, "stream", i))
            alive.append(weakref.ref(prompts))
            assert sum(ref() is not None for ref in alive) <= 3
            yield prompts

    probe(model, stream(2), [p])
    few = state_size(p)
    probe(model, stream(20), [p])
    assert few == state_size(p) > 0


@pytest.mark.parametrize("make_probe", [ResidualStream, LayerNormScale, AttentionEntropy, HeadOrthogonality])
def test_memory_is_constant_in_the_number_of_prompts(make_probe):
    check_constant_memory(make_probe)


def test_a_probe_that_keeps_everything_is_noticed():
    must_fail(check_constant_memory, KeepsEverything)


def test_a_probe_starts_anew_each_time():
    p, model = ResidualStream(), make()
    first = probe(model, PROMPTS, [p])
    probe(model, TASK.sample(9, generator(5, "other")), [p])
    check_same(first, probe(model, PROMPTS, [p]))


# What goes in and comes out -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_default_probes_are_those_that_apply(name):
    model = make(name)
    results = icl_interp.probe(model, PROMPTS)
    expected = {"residual_stream"}
    expected |= {"layernorm_scale"} if model.norms else set()
    expected |= {"attention_entropy"} if not model.cfg.mlp_only and model.cfg.score_fn != "linear" else set()
    expected |= {"head_orthogonality"} if not model.cfg.mlp_only and model.cfg.n_heads > 1 else set()
    assert {key.split(".")[0] for key in results} == expected
    for key, result in results.items():
        back = stored.from_dict(result.to_dict())
        np.testing.assert_array_equal(back.values, result.values, err_msg=key)


def test_a_checkpoint_brings_its_encoding():
    class Checkpoint:
        model, encoding = make("bidirectional, stacked"), Stacked()

    tokens = Stacked().encode(PROMPTS)
    whole = probe(Checkpoint(), PROMPTS, [ResidualStream()])
    check_same(whole, probe(Checkpoint(), tokens, [ResidualStream()]))
    check_same(whole, probe(Checkpoint.model, tokens, [ResidualStream()], encoding=Stacked()))
    bare = probe(Checkpoint.model, tokens, [ResidualStream()])
    assert bare["residual_stream.norm"].axes["position"] == ("token", "query")


def test_a_probe_inside_an_intervention_sees_what_it_left():
    model = make()
    with intervene(model, Temperature(1e6)):
        inside = probe(model, PROMPTS, [AttentionEntropy()])
    deficit = inside["attention_entropy.deficit"].at(statistic="mean")
    np.testing.assert_allclose(deficit, 0, atol=1e-6)
    assert probe(model, PROMPTS, [AttentionEntropy()])["attention_entropy.deficit"].at(statistic="mean").min() > 1e-3


class Named(ResidualStream):
    name = "mine"


class EditsInPlace(Probe):
    name = "edits"

    def hooks(self, model, positions):
        return [("hook_embed", lambda t, hook: t.mul_(2))]

    def results(self):
        return {}


class Returns(EditsInPlace):
    def hooks(self, model, positions):
        return [("hook_embed", lambda t, hook: t * 2)]


class Misnamed(EditsInPlace):
    def hooks(self, model, positions):
        return [("blocks.0.hook_resid_past", lambda t, hook: None)]


@pytest.mark.parametrize(
    ("name", "prompts", "used", "message"),
    [
        ("pre", [], None, "no prompts to probe"),
        ("pre", PROMPTS[:0], None, "no prompts to probe"),
        ("pre", [PROMPTS, PROMPTS.first(4)], None, "equally long, but some have 13 tokens and some 7"),
        ("pre", torch.zeros(2, 13), None, r"tokens must have shape \(batch, token, d_in\), but got \(2, 13\)"),
        ("pre", ["affine"], None, "expected Prompts, tokens .* but got str"),
        ("pre", 7, None, "expected Prompts, tokens .* but got int"),
        ("pre", torch.zeros(2, 17, 1), None, "n_ctx=16 tokens is too short"),
        ("bidirectional, stacked", torch.zeros(2, 3, 1), None, "d_in=2"),
        ("no norm", PROMPTS, [LayerNormScale()], "probe layernorm_scale: this model has no normalisation"),
        ("linear", PROMPTS, [AttentionEntropy()], "probe attention_entropy: linear scores"),
        ("mlp only", PROMPTS, [AttentionEntropy()], "no attention"),
        ("mlp only", PROMPTS, [HeadOrthogonality()], "no attention heads"),
        ("one head", PROMPTS, [HeadOrthogonality()], "one head a layer"),
        ("pre", PROMPTS, [ResidualStream(), ResidualStream()], "two probes are called 'residual_stream'"),
        ("pre", PROMPTS, [ResidualStream], "must be an instance of Probe"),
        ("pre", PROMPTS, [], "at least one probe"),
        ("pre", PROMPTS, [Misnamed()], "unknown hook 'blocks.0.hook_resid_past': did you mean"),
        ("pre", PROMPTS, [EditsInPlace()], "probe edits edited hook_embed in place"),
    ],
)
def test_probe_refuses(name, prompts, used, message):
    model = make(name)
    with pytest.raises(InputError, match=message):
        # Past the run-time type checker, which would speak first where a user has none.
        unchecked(probe)(model, prompts, used)
    assert not any(listened(module) for module in model.modules())


def unchecked(function):
    return getattr(function, "__wrapped__", function)


def test_probe_refuses_other_models_and_half_prompts():
    with pytest.raises(InputError, match="expected a HookedTransformer or a Checkpoint, but got 'affine'"):
        unchecked(icl_interp.probes.base.resolve)("affine", None)
    with pytest.raises(InputError, match="12 tokens are no whole interleaved prompt"):
        probe(make(), torch.zeros(2, 12, 1), encoding=Interleaved())
    with pytest.raises(InputError, match="batch_size must be at least 1"):
        probe(make(), PROMPTS, batch_size=0)
    with pytest.raises(InputError, match=r"share must lie in \(0, 1\]"):
        HeadOrthogonality(share=0)
    with pytest.raises(InputError, match="one head a layer"):
        map_orthogonality(make("one head"))


def test_probes_of_ones_own():
    results = probe(make(), PROMPTS, [ResidualStream(), Named()])
    check_same(
        {k.split(".")[1]: r for k, r in results.items() if k.startswith("mine.")},
        {k.split(".")[1]: r for k, r in results.items() if k.startswith("residual_stream.")},
    )


# They only read -------------------------------------------------------------------------------------------------------


def check_only_reads(model, tokens, attached):
    """Attached: bit-identical. Afterwards, also after an exception: bit-identical, and nothing left behind."""
    with torch.no_grad():
        before = model(tokens)
        with attached(model):
            assert any(listened(module) for module in model.modules())
            assert torch.equal(model(tokens), before)
        assert torch.equal(model(tokens), before)
        with pytest.raises(ZeroDivisionError), attached(model):
            1 / 0  # noqa: B018
        assert torch.equal(model(tokens), before)
        assert not any(listened(module) for module in model.modules())


def with_probes(*used):
    positions = {"token": range(12), "query": [12]}
    return lambda model: observe(model, *used, positions=positions)


@pytest.mark.parametrize("name", MODELS)
def test_probes_only_read(name):
    model = make(name)
    tokens = (Stacked() if model.cfg.d_in == 2 else Interleaved()).encode(PROMPTS)
    n = tokens.shape[1]
    every = [p for p in (*all_of(name), HeadOrthogonality()) if not p.refusal(model)]
    check_only_reads(model, tokens, lambda m: observe(m, *every, positions={"token": range(n - 1), "query": [n - 1]}))


def test_what_a_probe_returns_changes_nothing():
    check_only_reads(make(), Interleaved().encode(PROMPTS), with_probes(Returns()))


@contextmanager
def stays_behind(model):
    model.add_hook("hook_embed", lambda t, hook: None)
    yield


def test_editing_and_staying_are_noticed():
    tokens = Interleaved().encode(PROMPTS)
    must_fail(check_only_reads, make(), tokens, lambda model: intervene(model, Temperature(2.0)))
    must_fail(check_only_reads, make(), tokens, stays_behind)


def test_nothing_is_left_after_a_failure_in_a_probe_or_a_stream():
    class Breaks(Returns):
        def hooks(self, model, positions):
            return [("hook_embed", lambda t, hook: 1 / 0)]

    def broken_stream():
        yield PROMPTS
        raise ZeroDivisionError

    model, tokens = make(), Interleaved().encode(PROMPTS)
    before = model(tokens)
    for prompts, used in ((PROMPTS, Breaks()), (broken_stream(), ResidualStream())):
        with pytest.raises(ZeroDivisionError):
            probe(model, prompts, [used])
        assert not any(listened(module) for module in model.modules())
        assert torch.equal(model(tokens), before)


def test_a_stream_may_run_the_model_itself():
    model, p = make(), ResidualStream()

    def stream():
        for i in range(0, 24, 8):
            model(Interleaved().encode(TASK.sample(50, generator(9, "noise", i))))
            yield PROMPTS[i : i + 8]

    check_same(probe(model, PROMPTS, [p]), probe(model, stream(), [p]))
