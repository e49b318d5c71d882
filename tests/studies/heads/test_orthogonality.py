"""Overlaps of heads: against whole matrices and whole Haar rotations, and the claim that heads are orthogonal."""

import itertools
import math

import numpy as np
import pytest
import torch
from helpers import must_fail
from measuring import judged_on
from small_models import BASE, TASK, small_lab

from icl_interp.analyses.lab import Lab
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.tokens import Interleaved
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.heads import HeadOrthogonality
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.heads.claims import orthogonality as heads
from icl_interp.studies.heads.claims.orthogonality import N_ROTATIONS, _haar_blocks, _root, _Thin, rotated_overlaps

ORTHOGONAL = "heads.orthogonality"


# ---- overlaps -------------------------------------------------------------------------------------------------------


def explicit(thin: _Thin) -> torch.Tensor:
    return thin.first @ thin.second


def random_thin(rows: int, rank: int, columns: int, seed: int, paired: bool = False) -> _Thin:
    g = generator(seed, "test/thin")
    first = torch.randn(rows, rank, generator=g, dtype=torch.float64)
    return _Thin(first, torch.randn(rank, columns, generator=g, dtype=torch.float64), paired)


def test_thin_maps_know_their_spectrum():
    thin = random_thin(9, 3, 7, 0)
    u, s, _ = torch.linalg.svd(explicit(thin))
    assert torch.allclose(thin.sizes, s[:3])
    assert torch.allclose((thin.left.T @ u[:, :3]).abs(), torch.eye(3).double(), atol=1e-10)


def of_pair(a: _Thin, b: _Thin, left: torch.Tensor, right: torch.Tensor) -> np.ndarray:
    return rotated_overlaps([(a, b)], left, right)[0].numpy()


def check_identity(overlaps):
    """Rotations that rotate nothing leave |<A, B>| / (|A| |B|), as whole matrices give it: of maps, and of outputs."""
    for rows, paired in ((8, False), (30, True), (8, True)):
        a, b = (random_thin(rows, 3, 8, seed, paired) for seed in (1, 2))
        bases = [torch.linalg.svd(explicit(m), full_matrices=False) for m in (a, b)]
        # The blocks that the identity has between the singular bases, signs as the code has them.
        left = [m.left for m in (a, b)]
        right = [(u.T @ explicit(m)) / m.sizes[:, None] for m, u in zip((a, b), left, strict=True)]
        assert torch.allclose(bases[0].S[:3], a.sizes)
        blocks = (left[0].T @ left[1])[None], (right[0] @ right[1].T)[None]
        expected = (explicit(a) * explicit(b)).sum().abs() / (explicit(a).norm() * explicit(b).norm())
        assert overlaps(a, b, *blocks)[0] == pytest.approx(float(expected), abs=1e-12)
        itself = torch.eye(3, dtype=torch.float64)[None]
        assert overlaps(a, a, itself, itself)[0] == pytest.approx(1, abs=1e-12)


def test_overlaps_of_rotated_maps_equal_those_of_whole_matrices():
    check_identity(of_pair)
    must_fail(check_identity, lambda a, b, left, right: of_pair(a, b, left, left))
    must_fail(check_identity, lambda a, b, left, right: of_pair(a, b, right, left))
    all_maps = lambda thin: _Thin(thin.first, thin.second)  # noqa: E731
    must_fail(check_identity, lambda a, b, left, right: of_pair(all_maps(a), all_maps(b), left.abs(), right))


def check_each(overlaps):
    """Several pairs at once are each what they are alone."""
    blocks = _haar_blocks(N_ROTATIONS, 8, 3, seed=0)
    for paired in (False, True):
        maps = [random_thin(8, 3, 8, seed, paired) for seed in range(4)]
        pairs = list(itertools.combinations(maps, 2))
        for (a, b), row in zip(pairs, overlaps(pairs, *blocks), strict=True):
            np.testing.assert_allclose(row, of_pair(a, b, *blocks), rtol=1e-9, atol=1e-12)


def test_pairs_at_once_are_each_what_they_are_alone():
    check_each(rotated_overlaps)
    must_fail(check_each, lambda pairs, left, right: rotated_overlaps(pairs[::-1], left, right))
    must_fail(check_each, lambda pairs, left, right: rotated_overlaps(pairs, left, right.mT))


def test_a_head_that_writes_nothing_overlaps_with_nothing():
    blocks = _haar_blocks(N_ROTATIONS, 8, 3, seed=0)
    for paired in (False, True):
        silent = _Thin(torch.zeros(8, 3).double(), torch.ones(3, 8).double(), paired)
        broken = _Thin(torch.full((8, 3), torch.nan).double(), torch.ones(3, 8).double(), paired)
        other = random_thin(8, 3, 8, 1, paired)
        assert not of_pair(silent, other, *blocks).any()
        assert np.isnan(of_pair(broken, other, *blocks)).all()


def test_stored_overlaps_are_those_of_the_models_maps(monkeypatch):
    monkeypatch.setattr(heads, "N_ROTATIONS", 50)
    lab = small_lab()
    result, model = heads.overlap(lab), lab.model
    _, cache = model.run_with_cache(lab.tokens(lab.small_sample))
    pairs = [name for name in result.indexes["pair"] if "~" in name]
    assert len(pairs) == 6
    for name in pairs:
        (layer, a), (_, b) = (map(int, head.split(".")) for head in name.split(" ~ "))
        attn, z = model.blocks[layer].attn, cache[f"blocks.{layer}.attn.hook_z"]
        written = torch.einsum("bthe,hed->hbtd", z, attn.W_O)
        maps = {
            "OV": attn.W_V @ attn.W_O,
            "QK": attn.W_Q @ attn.W_K.transpose(1, 2),
            "outputs": written - written.mean(1, keepdim=True),
        }
        for kind, m in maps.items():
            expected = (m[a] * m[b]).sum().abs() / (m[a].norm() * m[b].norm())
            assert result.sel(map=kind, pair=name).values == pytest.approx(float(expected), abs=1e-12)
    for kind in heads.MAPS:
        every = [result.sel(map=kind, pair=name).values for name in pairs]
        assert result.sel(map=kind, pair="mean").values == pytest.approx(np.mean(every))


# ---- the null -------------------------------------------------------------------------------------------------------


def haar(n: int, d: int, seed: int) -> torch.Tensor:
    """Whole Haar rotations, a column after the other: a random direction orthogonal to those before."""
    g, columns = generator(seed, "test/haar"), []
    for _ in range(d):
        v = torch.randn(n, d, generator=g, dtype=torch.float64)
        for _ in range(2):  # twice is enough
            for u in columns:
                v = v - (v * u).sum(1, keepdim=True) * u
        columns.append(v / v.norm(dim=1, keepdim=True))
    return torch.stack(columns, 2)


def check_blocks(blocks, d, rank):
    """Squared entries of a Haar matrix average 1 / d, with variance 2 (d - 1) / (d^2 (d + 2)), signs are even, and
    entries of one column are as dependent as unit length makes them."""
    error = math.sqrt(2 * (d - 1) / (d**2 * (d + 2)) / N_ROTATIONS)
    for side in blocks:
        assert side.shape == (N_ROTATIONS, rank, rank)
        square = side.square().mean(0)
        assert (square - 1 / d).abs().max() < 4.5 * error
        assert side.mean(0).abs().max() < 4.5 / math.sqrt(d * N_ROTATIONS)
        first = (side[:, 0, 0] * side[:, 1, 1] * side[:, 0, 1] * side[:, 1, 0]).mean()
        assert first == pytest.approx(-1 / (d * (d - 1) * (d + 2)), abs=4.5 / d**2 / math.sqrt(N_ROTATIONS))


def test_haar_blocks_are_blocks_of_haar_matrices():
    check_blocks(_haar_blocks(N_ROTATIONS, 8, 3, seed=0), 8, 3)

    def unsigned(d, rank):
        noise = torch.randn(N_ROTATIONS, d, rank, generator=generator(0, "test/unsigned"), dtype=torch.float64)
        return [torch.linalg.qr(noise).Q[:, :rank]]

    must_fail(check_blocks, unsigned(8, 3), 8, 3)
    blocks = _haar_blocks(N_ROTATIONS, 8, 3, seed=0)
    must_fail(check_blocks, [b / b.square().sum(1, keepdim=True).sqrt() for b in blocks], 8, 3)
    whole = haar(100, 5, seed=0)
    assert torch.allclose(whole.transpose(1, 2) @ whole, torch.eye(5).double().expand(100, 5, 5), atol=1e-12)


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Kolmogorov and Smirnov's: the largest gap between two distribution functions."""
    both = np.sort(np.concatenate([a, b]))
    cdf = [np.searchsorted(np.sort(v), both, side="right") / len(v) for v in (a, b)]
    return float(np.abs(cdf[0] - cdf[1]).max())


CRITICAL = 1.95 * math.sqrt(2 / N_ROTATIONS)  # of that distance at a level of 0.1 %


def check_null(blocks):
    """The null of one pair, and against whole rotations P A Q of explicit matrices."""
    for rows in (8, 20):
        a, b = (random_thin(rows, 3, 8, seed, paired=rows == 20) for seed in (3, 4))
        null = of_pair(a, b, *blocks)
        left = haar(N_ROTATIONS, 8, 1) if rows == 8 else torch.eye(20).double()
        rotated = left @ explicit(b) @ haar(N_ROTATIONS, 8, 2)
        full = (explicit(a) * rotated).sum((1, 2)).abs() / (explicit(a).norm() * explicit(b).norm())
        assert distance(null, full.numpy()) < CRITICAL


def test_the_null_of_a_pair_equals_whole_rotations():
    blocks = _haar_blocks(N_ROTATIONS, 8, 3, seed=0)
    check_null(blocks)
    must_fail(check_null, [1.2 * side for side in blocks])


def check_root(root):
    """Samples with the covariance of many stand for all of them: the same sizes, and the same law of overlaps."""
    g = generator(0, "test/samples")
    mixing = torch.randn(6, 6, generator=g, dtype=torch.float64)
    many = torch.randn(500, 6, generator=g, dtype=torch.float64) @ mixing
    many = many - many.mean(0)
    few = root((many.T @ many / len(many)).view(2, 3, 2, 3))
    assert few.shape == (6, 2, 3)
    flat = few.flatten(1)
    torch.testing.assert_close(flat.T @ flat, many.T @ many / len(many), rtol=1e-9, atol=1e-9)
    write = torch.randn(2, 3, 8, generator=g, dtype=torch.float64)
    blocks = _haar_blocks(N_ROTATIONS, 8, 3, seed=0)
    nulls = []
    for samples in (many.view(-1, 2, 3) / math.sqrt(len(many)), few):
        a, b = (_Thin(samples[:, h], write[h], paired=True) for h in range(2))
        outputs = [explicit(a), explicit(b)]
        assert a.size == pytest.approx(float(outputs[0].norm()), rel=1e-9)
        nulls.append(of_pair(a, b, *blocks))
        # ... also where every rotation is written out.
        right = haar(200, 8, 3)
        full = (outputs[0] * (outputs[1] @ right)).sum((1, 2)).abs() / (a.size * b.size)
        nulls.append(full.numpy())
    np.testing.assert_allclose(nulls[1], nulls[3], rtol=1e-8, atol=1e-10)
    assert distance(nulls[0], nulls[2]) < CRITICAL


def test_samples_of_one_covariance_give_one_null():
    check_root(_root)
    must_fail(check_root, lambda covariance: _root(covariance).flip(-1))
    # Heads that are rotated apart, as if each had prompts of its own.
    must_fail(check_root, lambda covariance: torch.stack([_root(covariance)[:, 0], _root(covariance)[:, 1].flip(0)], 1))
    must_fail(check_root, lambda covariance: _root(covariance) * 1.1)
    assert _root(torch.full((2, 3, 2, 3), torch.nan).double()).isnan().all()


def layer(n_heads: int, d_model: int, d_head: int) -> Lab:
    cfg = HookedTransformerConfig(
        **{
            **BASE,
            "n_layers": 1,
            "n_heads": n_heads,
            "d_model": d_model,
            "d_head": d_head,
            "normalization_type": None,
            "attn_only": True,
        }
    )
    return Lab(HookedTransformer(cfg, seed=2), TASK, Interleaved(), n_functions=4, n_contexts=2)


def check_mean_null(stored: list[np.ndarray], lab: Lab):
    """The null of the mean over pairs, against heads that each get whole rotations of their own."""
    probe = HeadOrthogonality()
    lab.read(lab.small_sample, [probe])
    maps = heads._maps(lab, probe)
    for kind, found in zip(heads.MAPS, stored, strict=True):
        n_heads, d = lab.model.cfg.n_heads, lab.model.cfg.d_model
        explicit_maps = [explicit(m) for m in maps[kind][0]]
        turned = []
        for h, m in enumerate(explicit_maps):
            right = haar(N_ROTATIONS, d, 10 + h)
            if not maps[kind][0][h].paired:
                turned.append(haar(N_ROTATIONS, d, 50 + h) @ m @ right)
            else:  # outputs: rows are samples; their Gram matrix is all that a rotation of the stream leaves
                turned.append(torch.linalg.qr(torch.cat(explicit_maps, 1)).Q.T @ m @ right)
        pairs = list(itertools.combinations(range(n_heads), 2))
        size = [m[0].norm() for m in turned]
        full = sum((turned[a] * turned[b]).sum((1, 2)).abs() / (size[a] * size[b]) for a, b in pairs)
        assert distance(found, full.numpy() / len(pairs)) < CRITICAL, kind


def test_the_null_of_the_mean_lets_every_pair_vary_on_its_own(monkeypatch):
    """Rotations shared between pairs would make the mean vary as much as one pair, and hide what is orthogonal."""
    lab, own, shared = layer(4, 6, 2), [], []
    real = heads.null_of_means

    def record(pairs, left, right, draw):
        own.append(real(pairs, left, right, draw).numpy())
        shared.append(rotated_overlaps(pairs, left, right).mean(0).numpy())
        return torch.from_numpy(own[-1])

    monkeypatch.setattr(heads, "null_of_means", record)
    heads.overlap(lab)
    check_mean_null(own, lab)
    must_fail(check_mean_null, shared, lab)


# ---- the claim ------------------------------------------------------------------------------------------------------


def of_heads(position: float, twin: float) -> dict:
    """Two heads that matter and one pair of them, whose overlap lies somewhere among rotations."""
    rise = np.broadcast_to([[[5.0], [1.0], [1.0]]] * 2, (2, 2, 3, 20)) * np.linspace(1, 1.1, 20)
    axes = {
        "head": ("0.0", "0.1"),
        "intervention": ("uniform", "mean ablation"),
        "statistic": ("rise", "movement", "intact"),
        "function": tuple(range(20)),
    }
    pairs = {"map": heads.MAPS, "pair": ("0.0 ~ 0.1", "mean", "null median", "position")}
    overlaps = [make_array([[0.1, 0.1, 0.2, p]] * 3, pairs) for p in (position, twin)]
    ablated = make_array([[3.0, 1.0, 1.0]], {"pair": ("0.0 ~ 0.1",), "ablated": ("both", "first", "second")})
    return {
        "heads/relevance": make_array(rise, axes),
        "heads/overlap": overlaps[0],
        "twin/heads/overlap": overlaps[1],
        "heads/pair ablation": ablated,
    }


@pytest.mark.parametrize(
    ("position", "twin", "verdict"),
    [
        (0.001, 0.5, "supported"),
        (0.001, 0.001, "inconclusive"),  # so is an untrained twin
        (0.3, 0.5, "inconclusive"),
        (0.999, 0.5, "contradicted"),
        (math.nan, 0.5, "inconclusive"),
    ],
)
def test_orthogonal_is_less_than_chance_and_made_by_training(position, twin, verdict):
    finding = judged_on(ORTHOGONAL, of_heads(position, twin))
    assert finding.verdict == verdict
    assert finding.causal["effect"] == pytest.approx(0.5)
    assert finding.twin.value == twin
    assert ("an untrained twin passes as well" in finding.reason) == (position == twin)
