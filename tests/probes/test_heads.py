"""Cosines and principal angles between heads, against plain numpy on whole matrices."""

import math

import numpy as np
import pytest
import torch
from cached_activations import KINDS, value
from helpers import must_fail
from small_models import PROMPTS, make, tokens_for

from icl_interp.interventions.attention import AblateHeads
from icl_interp.interventions.base import intervene
from icl_interp.probes.heads import NO_HEAD, HeadOrthogonality, told_apart
from icl_interp.probes.maps import (
    cosines_of,
    frobenius_cosines,
    map_orthogonality,
    principal_angles,
)
from icl_interp.probes.runner import probe
from icl_interp.provenance import generator


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


def written(model, prompts=PROMPTS):
    """Each head's output as a LayerNorm reads it: (batch, token, head, d_model) of each layer."""
    with torch.no_grad():
        _, cache = model.run_with_cache(
            tokens_for(model, prompts), names_filter=lambda name: name.endswith("result")
        )
    outputs = [
        cache[f"blocks.{layer}.attn.hook_result"].numpy() for layer in range(model.cfg.n_layers)
    ]
    centred = model.cfg.normalization_type == "LN"
    return [out - out.mean(-1, keepdims=True) if centred else out for out in outputs]


def at_each_position(outputs):
    return outputs - outputs.mean(0)


def over_all_positions(outputs):
    return outputs - outputs.mean((0, 1))


def check_outputs(results, model, share, centre=at_each_position):
    """Compare results for every kind and for all tokens with outputs from `hook_result`.

    Returns how many heads have fewer directions than d_head.
    """
    fewer = 0
    for layer, outputs in enumerate(written(model)):
        for kind, places in {**KINDS, "all": range(outputs.shape[1])}.items():
            centred = centre(outputs[:, list(places)]).reshape(-1, *outputs.shape[2:])
            for h in range(3):
                for g in range(3):
                    at = {"layer": layer, "position": kind, "head": h, "other": g}
                    got = value(results["head_orthogonality.output_cosine"], **at)
                    assert got == pytest.approx(
                        overlap_by_hand(centred[:, h], centred[:, g]), abs=1e-9
                    )
                    expected = angles_by_hand(
                        leading(centred[:, h].T, share), leading(centred[:, g].T, share)
                    )
                    got = value(results["head_orthogonality.output_angles"], **at)
                    np.testing.assert_allclose(got[: len(expected)], expected, atol=1e-6)
                    assert np.isnan(got[len(expected) :]).all()
                    fewer += len(expected) < 4
    return fewer


@pytest.mark.parametrize(
    ("share", "name"), [(0.9, "pre"), (0.99, "pre"), (0.99, "no norm"), (0.99, "post")]
)
def test_head_outputs(share, name):
    model = make(name)
    results = probe(model, PROMPTS, [HeadOrthogonality(share)])
    assert tuple(results["head_orthogonality.output_cosine"].indexes["position"]) == (
        "x",
        "y",
        "query",
        "all",
    )
    fewer = check_outputs(results, model, share)
    assert fewer or share > 0.9, (
        "a share of .9 should leave some heads fewer directions than d_head"
    )
    check_outputs(probe(model, PROMPTS, [HeadOrthogonality(share)], batch_size=5), model, share)
    must_fail(check_outputs, results, model, share, over_all_positions)


class CentredOverPositions(HeadOrthogonality):
    """One mean for all positions of a kind."""

    def _read(self, layer, z, hook):
        for kind, places in self._positions.items():
            self._grams[layer][kind].update(z[:, list(places)].flatten(2).flatten(0, 1))


class LastKindForAll(HeadOrthogonality):
    """What should pool all tokens sees those of one kind."""

    def covariances(self):
        return [{**found, "all": found["query"]} for found in super().covariances()]


class KindsWeighedAlike(HeadOrthogonality):
    """A kind of one token counts as much as one of six."""

    def covariances(self):
        kinds = list(KINDS)
        return [
            {**found, "all": sum(found[k] for k in kinds) / 3} for found in super().covariances()
        ]


@pytest.mark.parametrize("mutant", [CentredOverPositions, LastKindForAll, KindsWeighedAlike])
def test_other_ways_to_centre_and_pool_are_noticed(mutant):
    model = make()
    must_fail(check_outputs, probe(model, PROMPTS, [mutant(0.99)]), model, 0.99)


def test_what_heads_write_whatever_the_prompt_does_not_count():
    """A large constant that two heads write at each position makes them no more alike."""
    model, other = make(), make()
    with torch.no_grad():
        other.blocks[1].attn.b_V[:2] += 100.0
        other.blocks[1].attn.W_O[1] = other.blocks[1].attn.W_O[0]
        model.blocks[1].attn.W_O[1] = model.blocks[1].attn.W_O[0]
    found = [
        probe(m, PROMPTS, [HeadOrthogonality()])["head_orthogonality.output_cosine"]
        for m in (model, other)
    ]
    np.testing.assert_allclose(
        found[0].sel(layer=1).values, found[1].sel(layer=1).values, atol=1e-9
    )


def check_inner(found, model, prompts=PROMPTS):
    for layer, outputs in enumerate(written(model, prompts)):
        centred = at_each_position(outputs)
        expected = np.einsum("bthd,btgd->hgb", centred, centred) / outputs.shape[1]
        np.testing.assert_allclose(found.sel(layer=layer).values, expected, rtol=1e-8, atol=1e-10)


def test_inner_products_of_each_prompt():
    """Their means over prompts are what cosines are made of, however the prompts come."""
    model = make()
    for size in (24, 5):
        results = probe(
            model, PROMPTS, [HeadOrthogonality(angles=False, per_prompt=True)], batch_size=size
        )
        found = results["head_orthogonality.output_inner"]
        assert found.dims == ("layer", "head", "other", "prompt")
        check_inner(found, model)
        must_fail(check_inner, found * 1.001, model)
        mean = found.mean("prompt").values
        size_of = np.sqrt(np.einsum("lhh->lh", mean))
        cosines = results["head_orthogonality.output_cosine"].sel(position="all").values
        np.testing.assert_allclose(
            mean / size_of[:, :, None] / size_of[:, None], cosines, atol=1e-10
        )


def fewest(flat, share=0.99):
    """The number of directions that hold this share of heads' outputs, each scaled to one size.

    The outputs are (row, head, d_model).
    """
    scaled = flat / np.linalg.norm(flat, axis=(0, 2), keepdims=True)
    squares = np.linalg.svd(scaled.reshape(-1, flat.shape[2]), compute_uv=False) ** 2
    return int(np.searchsorted(squares.cumsum() / squares.sum(), share) + 1)


def check_chance(found, directions, model, extra=0):
    """Chance is |A^T B| / (|A| |B| sqrt(D)) of whole matrices of outputs, exactly.

    Random rotations would differ by 6 %.
    """
    for layer, outputs in enumerate(written(model)):
        flat = at_each_position(outputs).reshape(-1, *outputs.shape[2:])
        n = fewest(flat) + extra
        assert value(directions, layer=layer, position="all") == n
        for h in range(3):
            for g in range(3):
                a, b = flat[:, h], flat[:, g]
                wanted = np.linalg.norm(a.T @ b) / (
                    np.linalg.norm(a) * np.linalg.norm(b) * math.sqrt(n)
                )
                got = value(found, layer=layer, position="all", head=h, other=g)
                assert got == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("change", [{}, {"n_heads": 3, "d_head": 2}])
def test_chance_turns_in_the_dimensions_that_heads_write_to(change):
    model = make(**change)
    results = probe(model, PROMPTS, [HeadOrthogonality(angles=False)])
    found = [results[f"head_orthogonality.{name}"] for name in ("output_chance", "directions")]
    check_chance(*found, model)
    must_fail(check_chance, found[0], found[1] + 1, model, extra=1)


def check_told_apart(of):
    """A copy, an opposite, a chain of near parallels, a head that writes 0, two that cancel."""
    plane = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0], [0.0, -1.0], [0.0, 0.0]])
    assert of(torch.from_numpy(plane @ plane.T)) == [0, 1, 0, 1, NO_HEAD]
    fan = np.array(
        [[math.cos(angle), math.sin(angle)] for angle in (0.0, 0.2, 0.1, 1.5)]
    )  # 0.1: a cosine of .995
    assert of(torch.from_numpy(fan @ fan.T)) == [0, 0, 0, 3]
    pair = np.array([[1.0, 0.0], [0.0, 5.0], [0.0, -5.0 + 1e-4]])
    assert of(torch.from_numpy(pair @ pair.T)) == [0, NO_HEAD, NO_HEAD]


def test_copies_are_one_head_and_heads_that_cancel_none():
    check_told_apart(told_apart)
    must_fail(check_told_apart, lambda products: list(range(len(products))))


def check_maps(results, model, gain=True, centre=True):
    """Against whole matrices: maps are C G W_V W_O C and C G W_Q ...

    C removes the mean, and G holds the gains.
    """
    d = model.cfg.d_model
    norm = model.cfg.normalization_type
    remove = np.eye(d) - 1 / d if centre and norm == "LN" else np.eye(d)
    for layer, block in enumerate(model.blocks):
        pre = model.cfg.norm_position == "pre" and norm is not None
        gains = np.diag(block.ln1.w.detach().numpy()) if gain and pre else np.eye(d)
        read = (remove if pre else np.eye(d)) @ gains
        q, k, v, o = (getattr(block.attn, f"W_{c}").detach().numpy() for c in "QKVO")
        ov = [read @ v[h] @ o[h] @ remove for h in range(3)]
        qk = [read @ q[h] @ k[h].T @ read.T for h in range(3)]
        for h in range(3):
            for g in range(3):
                at = {"layer": layer, "head": h, "other": g}
                for kind, maps, inputs, outputs in (
                    ("ov", ov, "read", "write"),
                    ("qk", qk, "query", "key"),
                ):
                    a, b = maps[h], maps[g]
                    assert value(results[f"{kind}_cosine"], **at) == pytest.approx(
                        overlap_by_hand(a, b), abs=1e-9
                    )
                    for side, left, right in ((inputs, a, b), (outputs, a.T, b.T)):
                        expected = angles_by_hand(leading(left, 0.95), leading(right, 0.95))
                        got = value(results[f"{kind}_{side}_angles"], **at)
                        np.testing.assert_allclose(got[: len(expected)], expected, atol=1e-6)
                        assert np.isnan(got[len(expected) :]).all()


@pytest.mark.parametrize("name", ["pre", "post", "rms", "no norm"])
def test_head_maps(name):
    model = make(name)
    results = map_orthogonality(model, share=0.95)
    check_maps(results, model)
    if name == "pre":
        must_fail(check_maps, results, model, gain=False)
        must_fail(check_maps, results, model, centre=False)


def test_maps_of_bare_weights_are_those_of_the_model():
    """Without a norm, nothing is folded in or removed: `model.OV` and `model.QK` as they are."""
    model = make("no norm")
    results = map_orthogonality(model, angles=False)
    for kind, factored in (("ov", model.OV), ("qk", model.QK)):
        whole = factored.AB.detach().numpy()
        found = results[f"{kind}_cosine"].sel(layer=1, head=0, other=2)
        assert float(found) == pytest.approx(overlap_by_hand(whole[1, 0], whole[1, 2]), abs=1e-9)


def test_duplicated_and_orthogonal_heads():
    model = make("no norm", d_head=4)  # with a norm, gains and what it removes come into it
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
    found = probe(model, PROMPTS, [HeadOrthogonality()])
    assert found["head_orthogonality.distinct"].sel(layer=0, position="all").values.tolist() == [
        0,
        0,
        2,
    ]
    results = {key: r.sel(layer=0, head=0).values for key, r in found.items() if "other" in r.dims}
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


def test_a_head_that_writes_a_constant_has_no_cosine():
    """The spread of a large constant is rounding.

    Cosines of it would be noise, and of tiny weights infinite.
    """
    model = make()
    with torch.no_grad():
        model.blocks[0].attn.W_V[1] = 0
        model.blocks[0].attn.b_V[1] = math.pi * 1e6
        model.blocks[1].attn.W_O[:2] *= 1e-170
    found = probe(model, PROMPTS, [HeadOrthogonality()])["head_orthogonality.output_cosine"].sel(
        position="all"
    )
    assert np.isnan(found.sel(layer=0).values[1]).all()
    assert np.isfinite(found.sel(layer=0).values[[0, 0, 2], [0, 2, 2]]).all()
    assert not np.isinf(found.values).any()
    raw = torch.tensor([[1e-12, 1.0], [1.0, 1.0]]).double()  # more than Cauchy and Schwarz allow
    assert cosines_of(raw).isnan().tolist() == [[False, True], [True, False]]


def check_small_angle(angles_between):
    """Two lines 1e-9 apart: the arc cosine of their inner product rounds to 0."""
    a, b = torch.tensor([[1.0], [0.0]]).double(), torch.tensor([[1.0], [1e-9]]).double()
    assert float(angles_between(a, b)[0]) == pytest.approx(1e-9, rel=1e-6)


def test_small_principal_angles_are_accurate():
    check_small_angle(principal_angles)
    must_fail(check_small_angle, lambda a, b: torch.linalg.svdvals(a.T @ b).clamp(max=1).arccos())


def test_principal_angles_of_subspaces_of_different_dimension():
    a, b = (
        torch.linalg.qr(torch.randn(9, k, generator=generator(0, "angles", k)).double())[0]
        for k in (2, 5)
    )
    expected = angles_by_hand(a.numpy(), b.numpy())
    np.testing.assert_allclose(principal_angles(a, b), expected, atol=1e-7)
    np.testing.assert_allclose(principal_angles(b, a), expected, atol=1e-7)


def test_frobenius_cosines_of_long_thin_maps():
    left, right = torch.randn(3, 20, 2), torch.randn(3, 2, 20)
    dense = (left.double() @ right.double()).numpy()
    expected = [[overlap_by_hand(a, b) for b in dense] for a in dense]
    np.testing.assert_allclose(frobenius_cosines(left, right), expected, atol=1e-12)
