"""Overlaps of heads, against whole matrices and whole Haar rotations, and their claim.

The claim is that heads are orthogonal.
"""

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from helpers import must_fail
from measured_claims import judged_on
from small_models import TASK, make, small_lab

from icl_interp.analyses.lab import Lab
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.tokens import Interleaved
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes import heads as probed
from icl_interp.probes import maps
from icl_interp.probes.reading import Reading
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.heads.claims.orthogonality import ORTHOGONALITY_CLAIM
from icl_interp.studies.heads.measurements import overlaps as heads
from icl_interp.studies.heads.measurements.overlaps import (
    by_chance,
    compared,
    pairs_in,
    pairs_of_distinct,
)

ORTHOGONAL = "heads.orthogonality"
N = 4000


# ---- overlaps ------------------------------------------------------------------------------------


def reading_of(lab: Lab) -> Reading:
    """What is read of each layer, on the prompts of the overlaps."""
    read, _ = lab.encoding.read_at(lab.few.n_points, lab.model.cfg.attention_dir)
    return Reading.measure(lab.model, lab.tokens(lab.few), read, lab.seed)


def said(lab: Lab, layer: int, reading: Reading) -> torch.Tensor:
    """What each head of a layer writes on `few` as it is read, less its mean at each position.

    (head, unit, token, d_model). A token counts as much as the tokens of its kind are read on
    average.
    """
    _, cache = lab.model.run_with_cache(lab.tokens(lab.few))
    attn = lab.model.blocks[layer].attn
    out = torch.einsum("bthe,hed->hbtd", cache[f"blocks.{layer}.attn.hook_z"], attn.W_O)
    out = (out - out.mean(1, keepdim=True)) @ reading.factors[layer]
    weights = reading.shares[layer].clone()
    for places in (slice(0, 12, 2), slice(1, 12, 2)):  # x and y; the query is alone
        weights[places] = weights[places].mean()
    out = out * weights.sqrt()[:, None]
    return out.view(len(out), lab.n_units, -1, out.shape[-1])


def check_overlaps(result, lab: Lab, gains: bool):
    """Folded OV and QK maps and outputs as whole matrices, and products of outputs unit by unit."""
    model, reading = lab.model, reading_of(lab)
    eye, outputs = torch.eye(12).double(), [said(lab, layer, reading) for layer in range(2)]
    for name in result.indexes["pair"]:
        (layer, a), (_, b) = (map(int, head.split(".")) for head in name.split(" ~ "))
        block = model.blocks[layer]
        fold = (eye - 1 / 12) @ torch.diag(block.ln1.w) if gains else eye
        out = outputs[layer]
        maps = {
            "OV": fold @ block.attn.W_V @ block.attn.W_O @ reading.factors[layer],
            "QK": fold @ block.attn.W_Q @ (fold @ block.attn.W_K).mT,
            "outputs": out.flatten(1, 2),
        }
        for kind, m in maps.items():
            expected = (m[a] * m[b]).sum().abs() / (m[a].norm() * m[b].norm())
            assert result.sel(value=kind, pair=name).values == pytest.approx(
                float(expected), abs=1e-9
            )
        of_units = (out[a] * out[b]).sum((1, 2)) / (2 * 13)  # a mean over prompts and tokens
        found = [result.sel(value=f"unit {i}", pair=name).values for i in range(lab.n_units)]
        np.testing.assert_allclose(found, of_units.numpy(), rtol=1e-7, atol=1e-11)


@pytest.mark.parametrize("name", ["pre", "no norm"])
def test_stored_overlaps_are_those_of_the_models_maps(name):
    lab = small_lab(name)
    with torch.no_grad():
        result = heads.overlap(lab)
        assert len(pairs_in(result)) == 6
        check_overlaps(result, lab, gains=name == "pre")
        must_fail(check_overlaps, result, small_lab(name, init_std=0.4), gains=name == "pre")
        if name == "pre":
            must_fail(check_overlaps, result.copy(data=result.values * 1.001), lab, gains=True)


def test_heads_that_write_a_constant_are_left_out(monkeypatch):
    monkeypatch.setattr(heads, "LEAST_DIRECTIONS", 1)
    lab = small_lab()
    with torch.no_grad():
        lab.model.blocks[0].attn.W_O[0] = 0
        lab.model.blocks[1].attn.W_V[1] = 0  # writes its bias, whatever the prompt
        lab.model.blocks[1].attn.b_V[1] = 1e3
    result = heads.overlap(lab)
    assert list(heads.distinct_heads(result)) == ["0.1", "0.2", "1.0", "1.2"]
    found = compared(result, pairs_of_distinct(result))
    assert found is not None
    assert found.n_pairs == 2
    assert compared(result, []) is None


# ---- edits that leave the function ---------------------------------------------------------------


def turned(model):
    """W_V and W_O in other bases within each head."""
    g = generator(0, "test/turn")
    for block in model.blocks:
        turn = torch.randn(3, 4, 4, generator=g, dtype=torch.float64)
        block.attn.W_V.copy_(block.attn.W_V @ turn)
        block.attn.b_V.copy_((block.attn.b_V[:, None] @ turn)[:, 0])
        block.attn.W_O.copy_(torch.linalg.inv(turn) @ block.attn.W_O)


def folded(model):
    """Gains and biases of the norms before attention in what reads them."""
    for block in model.blocks:
        for letter in "QKV":
            weights, bias = getattr(block.attn, f"W_{letter}"), getattr(block.attn, f"b_{letter}")
            bias += torch.einsum("d,hde->he", block.ln1.b, weights)
            weights *= block.ln1.w[:, None]
        block.ln1.w.fill_(1)
        block.ln1.b.zero_()


def centred(model):
    """What is written to the stream, without its mean."""
    for block in model.blocks:
        for weights in (block.attn.W_O, block.attn.b_O, block.mlp.W_out, block.mlp.b_out):
            weights -= weights.mean(-1, keepdim=True)
    for weights in (model.embed.W_E, model.embed.b_E, model.pos_embed.W_pos):
        weights -= weights.mean(-1, keepdim=True)


def permuted(model):
    """Heads in another order."""
    for block in model.blocks:
        for name, weights in block.attn.named_parameters():
            if name != "b_O":
                weights.copy_(weights[[2, 0, 1]])


def wider(model):
    """Twice the width: every number of the stream twice, readers halved."""
    cfg = model.cfg
    twice = HookedTransformer(
        HookedTransformerConfig(
            **{**vars(cfg), "d_model": 2 * cfg.d_model, "d_head": cfg.head_width}
        )
    ).double()
    parameters = dict(model.named_parameters())
    for name, wide in twice.named_parameters():
        narrow = parameters[name]
        for axis, (many, few) in enumerate(zip(wide.shape, narrow.shape, strict=True)):
            reads = name.split(".")[-1] in ("W_Q", "W_K", "W_V", "W_in", "W_U")
            narrow = (
                torch.cat([narrow, narrow], axis) / (2 if reads else 1) if many != few else narrow
            )
        wide.copy_(narrow)
    return twice.eval()


def comparison(model) -> list[float]:
    """Mean overlap with its interval, and where it lies among overlaps by chance."""
    lab = Lab(model, TASK, Interleaved(), n_units=8, n_contexts=1)
    result = heads.overlap(lab)
    found = compared(result, pairs_of_distinct(result))
    assert found is not None
    return [
        found.mean.value,
        found.mean.low,
        found.mean.high,
        *found.positions,
        *np.quantile(found.chance, [0.1, 0.9]),
    ]


def check_edit(edit, name):
    with torch.no_grad():
        model = make(name)
        edited = edit(other := copy.deepcopy(model)) or other
        tokens = TASK.sample(4, generator(0, "test/edit"), dtype=torch.float64)
        shown = Interleaved().encode(tokens)
        torch.testing.assert_close(edited(shown), model(shown), rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(comparison(edited), comparison(model), rtol=1e-7, atol=1e-9)


def restacked(model, n_heads=None, extra=0):
    """The same weights in a larger model, whose further weights are 0."""
    cfg = model.cfg
    sizes = {"n_heads": n_heads or cfg.n_heads, "d_model": cfg.d_model + extra}
    fixed = {"d_head": cfg.head_width, "d_mlp": cfg.mlp_width}
    larger = HookedTransformer(HookedTransformerConfig(**{**vars(cfg), **sizes, **fixed})).double()
    old = dict(model.named_parameters())
    for name, weight in larger.named_parameters():
        weight.zero_()
        weight[tuple(slice(0, size) for size in old[name].shape)] = old[name]
    return larger.eval()


def unread(model):
    """Each head also writes to a coordinate of its own that nobody reads, ten times as strongly."""
    cfg = model.cfg
    other = restacked(model, extra=cfg.n_layers * cfg.n_heads)
    for layer, block in enumerate(other.blocks):
        for head in range(cfg.n_heads):
            coordinate = cfg.d_model + layer * cfg.n_heads + head
            block.attn.W_O[head, :, coordinate] = 10 * block.attn.W_O[head].norm(dim=1)
    return other


def barely_read(model):
    """Coordinates of the stream in units between 1/100 and 100, and what reads them to match."""
    units = 100 ** (
        2 * torch.rand(12, generator=generator(0, "test/units"), dtype=torch.float64) - 1
    )
    for name, weight in model.named_parameters():
        last = name.split(".")[-1]
        if last in ("W_Q", "W_K", "W_V", "W_in", "W_U"):
            weight /= units[:, None]
        elif last in ("W_E", "b_E", "W_pos", "W_O", "b_O", "W_out", "b_out"):
            weight *= units


def with_heads(model, n, signs):
    """More heads of one random map in each layer, which write it times these signs."""
    other = restacked(model, n_heads=model.cfg.n_heads + n)
    g = generator(0, "test/more heads")
    for block in other.blocks:
        for name in ("W_Q", "W_K", "W_V", "W_O"):
            weight = getattr(block.attn, name)
            one = torch.randn(weight.shape[1:], generator=g, dtype=torch.float64)
            for i, sign in enumerate(signs):
                weight[-n + i] = 3 * one * (sign if name == "W_O" else 1)
    return other


def null(model):
    """A head that writes nothing."""
    return with_heads(model, 1, (0.0,))


def cancelling(model):
    """Two heads that take each other off."""
    return with_heads(model, 2, (1.0, -1.0))


def copied(model):
    """The first head of each layer in two, which write 1.7 and -0.7 times what it did."""
    other = restacked(model, n_heads=model.cfg.n_heads + 1)
    for block in other.blocks:
        for name, weight in block.attn.named_parameters():
            if name != "b_O":
                weight[-1] = weight[0] * (-0.7 if name == "W_O" else 1)
        block.attn.W_O[0] *= 1.7
    return other


EDITS = [
    (turned, "pre"),
    (folded, "pre"),
    (centred, "pre"),
    (permuted, "post"),
    (permuted, "no norm"),
    (wider, "no norm"),
    (wider, "pre"),
    (unread, "no norm"),
    (barely_read, "no norm"),
    *((edit, name) for edit in (null, cancelling, copied) for name in ("pre", "post", "no norm")),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("edit", "name"), EDITS, ids=lambda value: getattr(value, "__name__", value)
)
def test_edits_that_leave_the_function_leave_the_comparison(edit, name):
    check_edit(edit, name)


def whole_stream(model, layer, reading):
    """What a head writes, read or not."""
    return model.blocks[layer].attn.W_O.detach()


@pytest.mark.slow
def test_what_an_edit_changes_is_noticed(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(maps, "read_as", whole_stream)
        for edit, name in ((unread, "no norm"), (barely_read, "no norm"), (centred, "pre")):
            must_fail(check_edit, edit, name)

    def each_alone(products, firsts=None):
        return [h if products[h, h] > 0 else probed.NO_HEAD for h in range(len(products))]

    monkeypatch.setattr(probed, "told_apart", each_alone)
    for edit in (cancelling, copied):
        must_fail(check_edit, edit, "no norm")


# ---- chance --------------------------------------------------------------------------------------


def haar(n: int, d: int, seed: int) -> torch.Tensor:
    """Whole Haar rotations, column by column: a random direction orthogonal to those before."""
    g, columns = generator(seed, "test/haar"), []
    for _ in range(d):
        v = torch.randn(n, d, generator=g, dtype=torch.float64)
        for _ in range(2):  # twice is enough
            for u in columns:
                v = v - (v * u).sum(1, keepdim=True) * u
        columns.append(v / v.norm(dim=1, keepdim=True))
    return torch.stack(columns, 2)


def fewest(out: torch.Tensor, share: float) -> int:
    """Directions that hold this share of what heads write, each scaled to one size.

    The shape is (head, row, d_model).
    """
    scaled = out / out.norm(dim=(1, 2), keepdim=True)
    squares = np.linalg.svd(scaled.flatten(0, 1).numpy(), compute_uv=False) ** 2
    return int(np.searchsorted(squares.cumsum() / squares.sum(), share) + 1)


def check_chance(result, lab: Lab):
    """Root mean square overlaps of outputs whose directions are turned by whole rotations.

    Directions of the stream that no output has are left out of what is turned, so that it has as
    many as are counted.
    """
    rotations, reading = haar(N, 12, 0), reading_of(lab)
    for name in pairs_in(result):
        (layer, a), (_, b) = (map(int, head.split(".")) for head in name.split(" ~ "))
        out = said(lab, layer, reading).flatten(1, 2)
        n = int(result.sel(value="directions", pair=name))
        assert n == fewest(out, 0.99)
        inner = torch.einsum("de,nde->n", out[a].T @ out[b], rotations) / (
            out[a].norm() * out[b].norm()
        )
        inner = inner * math.sqrt(12 / n)
        expected = float(inner.square().mean().sqrt())
        assert result.sel(value="chance", pair=name).values == pytest.approx(
            expected, rel=4 / math.sqrt(N)
        )


def test_chance_is_that_of_whole_rotations():
    lab = small_lab()
    with torch.no_grad():
        result = heads.overlap(lab)
        check_chance(result, lab)
        must_fail(check_chance, result.copy(data=result.values * 1.1), lab)


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Kolmogorov and Smirnov's: the largest gap between two distribution functions."""
    both = np.sort(np.concatenate([a, b]))
    cdf = [np.searchsorted(np.sort(v), both, side="right") / len(v) for v in (a, b)]
    return float(np.abs(cdf[0] - cdf[1]).max())


def check_law(law):
    """Mean overlaps of heads with a direction each, every pair turned on its own."""
    for d, cosines in ((3, [1.0]), (7, [0.5, 0.2, 0.9]), (24, [1.0, 1.0])):
        entries = [c * haar(N, d, i)[:, 0, 0].abs().numpy() for i, c in enumerate(cosines)]
        found = law(np.array(cosines) / math.sqrt(d), np.full(len(cosines), float(d)))
        assert distance(found, np.mean(entries, 0)) < 1.95 * math.sqrt(1 / N + 1 / len(found))


def test_the_law_of_chance_is_that_of_whole_rotations():
    check_law(by_chance)
    must_fail(check_law, lambda sizes, d: by_chance(sizes, d + 2))
    must_fail(
        check_law, lambda sizes, d: by_chance(np.array([sizes.mean()]), d[:1])
    )  # as if one rotation turned all pairs


# ---- the claim -----------------------------------------------------------------------------------


def made_up(overlap: float, chance: float = 0.1, spread: float = 0.02, n_heads: int = 4) -> object:
    """Heads of a layer whose outputs overlap by so much, a little more or less in each unit."""
    pairs = [f"0.{a} ~ 0.{b}" for a, b in itertools.combinations(range(n_heads), 2)]
    noise = spread * np.random.default_rng(0).normal(size=64)
    rows = [
        [0.3, 0.3, overlap, chance, 100, math.nan, *(overlap + noise - noise.mean())] for _ in pairs
    ]
    rows += [[1.0, 1.0, 1.0, math.nan, 100, h, *np.ones(64)] for h in range(n_heads)]
    names = (*pairs, *(f"0.{h} ~ 0.{h}" for h in range(n_heads)))
    columns = (*heads.SHOWN, *heads.OF_LAYER, *(f"unit {i}" for i in range(64)))
    return make_array(np.array(rows), {"pair": names, "value": columns})


def results_of(model, control, factors=(6.0, 6.0, 6.0, 6.0)) -> dict:
    """Heads whose ablation multiplies the error by so much, and overlaps of model and controls."""
    rise = np.array(factors)[:, None, None, None] - 1
    values = np.concatenate([rise, 0 * rise, 0 * rise + 1], 2) * np.ones((1, 2, 1, 64))
    axes = {
        "head": tuple(f"0.{h}" for h in range(4)),
        "intervention": ("uniform", "mean ablation"),
        "statistic": ("rise", "movement", "intact"),
        "unit": tuple(range(64)),
    }
    ablated = make_array(
        [[15.0, 5.0, 5.0]], {"pair": ("0.0 ~ 0.1",), "ablated": ("both", "first", "second")}
    )
    controls = {f"{prefix}heads/overlap": control for prefix in ("twin/", "twin 2/", "twin 3/")}
    return {
        "heads/relevance": make_array(values, axes),
        "heads/overlap": model,
        "heads/pair ablation": ablated,
        **controls,
    }


def verdict_of(overlap, control=0.08, **more):
    return judged_on(ORTHOGONAL, results_of(made_up(overlap, **more), made_up(control))).verdict


def check_verdicts(of):
    """With six pairs and a chance of .1, 95 % of random directions overlap by .04 to .13.

    The overlap is an average over pairs.
    """
    assert of(0.02) == "supported"
    assert of(0.035) == "inconclusive"  # below chance, but by less than the margin
    assert of(0.08) == "inconclusive"
    assert of(0.14) == "inconclusive"
    assert of(0.2) == "contradicted"
    assert of(0.2, spread=0.3) == "inconclusive"  # the interval reaches down to chance
    assert of(0.02, control=0.02) == "inconclusive"  # so are untrained controls


@pytest.mark.slow
def test_orthogonal_is_less_than_chance_and_made_by_training(monkeypatch):
    check_verdicts(verdict_of)
    monkeypatch.setattr(heads, "MARGIN", 1.0)
    must_fail(check_verdicts, verdict_of)
    finding = judged_on(ORTHOGONAL, results_of(made_up(0.2), made_up(0.08)))
    assert finding.causal["effect"] == pytest.approx(0.5)
    assert finding.estimate.value == pytest.approx(0.2)
    assert "is 0.2 (0: orthogonal)" in finding.reason
    assert finding.reason.startswith(ORTHOGONALITY_CLAIM.denied)
    assert "contradicted:" in finding.reason
    same = judged_on(ORTHOGONAL, results_of(made_up(0.02), made_up(0.02)))
    assert same.reason.startswith("A randomly initialised control passes as well")
    unclear = judged_on(ORTHOGONAL, results_of(made_up(0.08), made_up(0.08)))
    assert unclear.reason.startswith("It is open whether heads of a layer")


def test_only_heads_that_matter_count():
    """Two heads that write the same beside two that write nothing of use.

    The latter write in directions of their own.
    """
    model = made_up(0.0, spread=1e-4)
    model.values[0, 2] = model.values[0, 6:] = 1.0  # 0.0 ~ 0.1
    for factors, verdict, n in (
        ((6.0, 6.0, 1.0, 1.0), "contradicted", 1),
        ((1.0, 1.0, 6.0, 6.0), "supported", 1),
        ((6.0, 1.0, 1.0, 1.0), "inconclusive", 0),
        ((1.5, 1.5, 6.0, 6.0), "inconclusive", 1),  # unclear whether the same two matter
    ):
        finding = judged_on(ORTHOGONAL, results_of(model, made_up(0.08), factors))
        assert finding.evidence["pairs"].low == n
        assert finding.verdict == verdict
    alone = judged_on(ORTHOGONAL, results_of(model, made_up(0.08), (6.0, 1.0, 1.0, 1.0)))
    assert "No layer has two heads that are sure to matter" in alone.reason
