"""The claim that heads are orthogonal."""

import functools
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from xarray import DataArray

from icl_interp.analyses import relevance
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Results, measurement
from icl_interp.probes.heads import ALL, HeadOrthogonality
from icl_interp.provenance import generator
from icl_interp.results import make_array

N_ROTATIONS = 2000
MAPS = ("OV", "QK", "outputs")
MOST_PAIRS = 32  # of heads that are ablated together: each takes a run of the model, and what is shown is a median


@measurement("heads/overlap")
def overlap(lab: Lab) -> DataArray:
    """Frobenius overlap |<A, B>| / (|A| |B|) of every two heads of a layer, and where it lies among random rotations.

    Maps: OV (W_V W_O), QK (W_Q W_K^T), and the heads' centred outputs in distribution. A rotation (Haar, left and
    right) keeps each head's spectrum and forgets its directions; position is the share of rotations with a smaller mean
    overlap over all pairs.
    """
    cfg = lab.model.cfg
    pairs = [(i, a, b) for i in range(cfg.n_layers) for a in range(cfg.n_heads) for b in range(a + 1, cfg.n_heads)]
    left, right = _haar_blocks(N_ROTATIONS, cfg.d_model, min(cfg.head_width, cfg.d_model), lab.seed)
    probe = HeadOrthogonality(angles=False)
    lab.read(lab.few, [probe])
    cosines, maps = _cosines(probe), _maps(lab, probe)
    values = np.zeros((len(MAPS), len(pairs)))
    null = np.zeros((len(MAPS), N_ROTATIONS))
    draw = generator(lab.seed, "heads/pairing")
    for m, name in enumerate(MAPS):
        heads = [(maps[name][layer][a], maps[name][layer][b]) for layer, a, b in pairs]
        null[m] = null_of_means(heads, left, right, draw).numpy()
        # A head without any map has no cosine with another; it does not overlap with it.
        values[m] = [
            abs(cosines[name][layer, a, b]) if one.size * other.size else 0.0
            for (layer, a, b), (one, other) in zip(pairs, heads, strict=True)
        ]
    mean = values.mean(1, keepdims=True)
    position = np.where(np.isnan(mean[:, 0]), np.nan, (null < mean).mean(1))
    rows = np.concatenate([values, mean, np.median(null, 1)[:, None], position[:, None]], 1)
    names = tuple(f"{i}.{a} ~ {i}.{b}" for i, a, b in pairs)
    return make_array(rows, {"map": MAPS, "pair": (*names, "mean", "null median", "position")})


class _Thin:
    """A = first @ second of low rank, with its left singular vectors and singular values; never formed as a whole.

    The rows of `paired` maps are samples, which two heads share.
    """

    def __init__(self, first: torch.Tensor, second: torch.Tensor, paired: bool = False) -> None:
        self.first, self.second, self.paired = first, second, paired
        if not (first.isfinite().all() and second.isfinite().all()):  # LAPACK would raise an error
            rank = min(*first.shape, *second.shape)
            self.sizes, self.left = first.new_full((rank,), torch.nan), first.new_full((len(first), rank), torch.nan)
            return
        q, r = torch.linalg.qr(first)
        u, self.sizes, _ = torch.linalg.svd(r @ torch.linalg.qr(second.T).R.T)
        self.left = q @ u

    @property
    def size(self) -> float:
        """Frobenius norm."""
        return float(self.sizes.norm())


def _cosines(probe: HeadOrthogonality) -> dict[str, np.ndarray]:
    """The probe's cosines (layer, head, other) by map."""
    found = probe.results()
    names = {"OV": found["ov_cosine"], "QK": found["qk_cosine"], "outputs": found["output_cosine"].sel(position=ALL)}
    return {name: np.asarray(array.values) for name, array in names.items()}


def _maps(lab: Lab, probe: HeadOrthogonality) -> dict[str, list[list[_Thin]]]:
    """Each head's maps in factored form, never as d_model x d_model matrices."""
    out: dict[str, list[list[_Thin]]] = {name: [] for name in MAPS}
    for block, covariances in zip(lab.model.blocks, probe.covariances(), strict=True):
        attn, heads = block.attn, range(lab.model.cfg.n_heads)
        samples = _root(covariances[ALL])
        out["OV"].append([_Thin(attn.W_V[h], attn.W_O[h]) for h in heads])
        out["QK"].append([_Thin(attn.W_Q[h], attn.W_K[h].T) for h in heads])
        out["outputs"].append([_Thin(samples[:, h], attn.W_O[h], paired=True) for h in heads])
    return out


def _root(covariance: torch.Tensor) -> torch.Tensor:
    """Samples (sample, head, d_head) with this covariance: as good as all the prompts it was measured on."""
    n_heads, width = covariance.shape[:2]
    matrix = covariance.reshape(n_heads * width, -1)
    if not matrix.isfinite().all():  # LAPACK would raise an error
        return matrix.view(-1, n_heads, width)
    values, vectors = torch.linalg.eigh(matrix)
    return (values.clamp(min=0).sqrt()[:, None] * vectors.T).view(-1, n_heads, width)


def null_of_means(
    pairs: Sequence[tuple[_Thin, _Thin]],
    left: Float[torch.Tensor, "rotation rank rank"],
    right: Float[torch.Tensor, "rotation rank rank"],
    draw: torch.Generator,
) -> Float[torch.Tensor, " rotation"]:
    """Draws of the mean overlap over pairs where every pair is rotated on its own: a mean varies less than one pair."""
    overlaps = rotated_overlaps(pairs, left, right)
    return torch.stack([row[torch.randperm(len(row), generator=draw)] for row in overlaps]).mean(0)


def rotated_overlaps(
    pairs: Sequence[tuple[_Thin, _Thin]],
    left: Float[torch.Tensor, "rotation rank rank"],
    right: Float[torch.Tensor, "rotation rank rank"],
) -> Float[torch.Tensor, "pair rotation"]:
    """Overlap of A and P B Q for Haar P and Q, given blocks of these in the maps' singular bases; for pairs (A, B)."""
    if pairs[0][0].paired:
        # Outputs: rows are samples, which must stay paired; only the directions in the stream are rotated.
        weights = [(a.left * a.sizes).T @ (b.left * b.sizes) for a, b in pairs]
        rotations = right
    else:
        # tr(A^T P B Q) needs P between the left singular vectors and Q between the right ones only.
        weights = [a.sizes[:, None] * b.sizes for a, b in pairs]
        rotations = left * right
    sizes = torch.tensor([a.size * b.size for a, b in pairs], dtype=right.dtype)
    overlaps = (torch.stack(weights).flatten(1) @ rotations.flatten(1).T).abs() / sizes[:, None]
    return torch.where(sizes[:, None] == 0, 0.0, overlaps)


@functools.lru_cache(maxsize=2)  # a model and its untrained twin need the same
def _haar_blocks(n: int, d: int, rank: int, seed: int) -> list[torch.Tensor]:
    """Upper left rank x rank blocks of n Haar orthogonal d x d matrices: all that maps of that rank need."""
    blocks = []
    for side in ("left", "right"):
        noise = torch.randn(n, d, rank, generator=generator(seed, f"haar/{side}"), dtype=torch.float64)
        # The Q of noise = Q R, with R's diagonal positive, is Haar. R is the Cholesky factor of noise^T noise.
        root = torch.linalg.cholesky(noise.transpose(1, 2) @ noise, upper=True)
        blocks.append(torch.linalg.solve_triangular(root, noise[:, :rank], upper=True, left=False))
    return blocks


@measurement("heads/pair ablation")
def pair_ablation(lab: Lab) -> DataArray:
    """Rise of the in-distribution error when one head, or two of a layer, are made their mean.

    Of a model with many pairs, `MOST_PAIRS` drawn at random.
    """
    base, truth = lab.predictions()
    alone = lab.measure(relevance.relevance).sel(intervention="mean ablation", statistic="rise").values.mean(-1)
    single = dict(zip(lab.heads, alone.tolist(), strict=True))
    pairs = [((i, a), (i, b)) for i, a in lab.heads for b in range(a + 1, lab.model.cfg.n_heads)]
    if len(pairs) > MOST_PAIRS:
        drawn = torch.randperm(len(pairs), generator=generator(lab.seed, "heads/pairs"))[:MOST_PAIRS]
        pairs = [pairs[i] for i in sorted(drawn.tolist())]
    values = []
    for first, second in pairs:
        out, _ = lab.predictions(lab.head_means.only(first, second))
        both = float((out - truth).square().mean() - (base - truth).square().mean())
        values.append([both, single[first], single[second]])
    names = tuple(f"{a[0]}.{a[1]} ~ {b[0]}.{b[1]}" for a, b in pairs)
    return make_array(values, {"pair": names, "ablated": ("both", "first", "second")})


def orthogonality(results: Results, facts: Facts) -> Evidence:
    """Do heads of a layer overlap less than chance, in what they read, write and say?"""
    result, counted = results[overlap], set(relevance.relevant(results, facts))
    means, chance = result.sel(pair="mean").values, result.sel(pair="null median").values
    parts = [f"{m} {v:.3f} (chance {c:.3f})" for m, v, c in zip(MAPS, means, chance, strict=True)]
    says = f"mean overlap of heads within a layer: {', '.join(parts)}"
    ablation = results[pair_ablation]
    interactions = {}
    for name in ablation.indexes["pair"]:
        both, first, second = ablation.sel(pair=name).values
        if set(name.split(" ~ ")) <= counted and first + second > 0:
            interactions[name] = float((both - first - second) / (first + second))
    causal = {
        "intervention": "mean-ablate two relevant heads of a layer, alone and together",
        "effect": float(np.median(np.abs(list(interactions.values())))) if interactions else float("nan"),
        "share of pairs with interaction <= 10 %": float(np.mean([abs(v) <= 0.1 for v in interactions.values()]))
        if interactions
        else float("nan"),
        "interaction": interactions,
    }
    details = tuple(
        {"map": m, "overlap": float(v), "chance": float(c), "position among rotations": float(q)}
        for m, v, c, q in zip(MAPS, means, chance, result.sel(pair="position").values, strict=True)
    )
    return Evidence(
        {"position": _position(result)},
        says + ".",
        scope="these weights, heads within a layer, in distribution",
        causal=causal,
        twin={"position": _position(results.twin[overlap])},
        details=details,
    )


def _position(result: DataArray) -> Estimate:
    """Where the least orthogonal of the three maps lies among rotations; the interval is their Monte Carlo error."""
    p = float(result.sel(pair="position").values.max())
    error = 1.96 * np.sqrt(max(p * (1 - p), 1 / N_ROTATIONS) / N_ROTATIONS)
    return Estimate("position among random rotations", p, max(p - error, 0.0), min(p + error, 1.0), "quantile")


def _one_head(facts: Facts) -> str | None:
    config = facts.config
    if config.mlp_only:
        return "the model has no attention"
    return "a layer has a single head" if config.n_heads == 1 else None


ORTHOGONALITY_CLAIM = Claim(
    id="heads.orthogonality",
    question="attention",
    short="The heads of a layer are orthogonal to each other after training.",
    quote=Quote(
        "To further relate our experimental findings to our theory, we also exhibit an orthogonality "
        "property between heads after training.",
        "Sander et al. (2024), section 6, 'Non-Augmented setting', with Figure 8 (theory: section 5.1, "
        "after Proposition 3)",
        "The paper shows it for one layer of linear attention that is trained on autoregressive "
        "sequences; the formula of its measure is missing from our copy. We ask it of any attention: what"
        " two heads of a layer read, write and say must overlap less than after random rotations.",
    ),
    kind="learning",
    statement="The heads of a layer are orthogonal: they read, write and say different things",
    source="Sander et al. (2024), sections 5.1 and 6, there for linear attention; here for any attention",
    criterion=Criterion(
        "overlap of OV maps, QK maps and centred outputs among 2,000 random rotations that keep each head's "
        "spectrum, the least orthogonal of the three: below the 2.5 % / above the 99.2 % quantile (97.5 %, "
        "corrected for three maps)",
        (Condition("position", (-INF, 0.025), (1 - 0.025 / len(MAPS), INF)),),
    ),
    measurements=(relevance.relevance, overlap, pair_ablation),
    twin=(overlap,),
    evidence=orthogonality,
    excluded=_one_head,
    figures=("heads",),
)
