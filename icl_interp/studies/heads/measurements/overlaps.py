"""Overlaps of what heads of a layer write, beside those that chance gives them.

What a head writes is compared over functions.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from xarray import DataArray

from icl_interp.analyses import relevance
from icl_interp.analyses.facts import is_large
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.probes.heads import NO_HEAD, HeadOrthogonality
from icl_interp.probes.reading import Reading
from icl_interp.provenance import generator
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import make_array

MAPS = ("OV", "QK", "outputs")
SHOWN = (*MAPS, "chance")
# What tells distinct heads: D of the layer, and of a head beside itself the one as which it counts.
OF_LAYER = ("directions", "counts as")
FIRST_UNIT = len(SHOWN) + len(OF_LAYER)  # the column from which numbers of units follow
LEAST_DIRECTIONS = 2  # along one direction any two heads overlap
MARGIN = 1.25  # factor by which an overlap must lie beyond chance
# Overlaps drawn by chance, over all pairs, and the fewest and most means of them.
N_BY_CHANCE = 2**20
FEWEST_DRAWS = 2000
MOST_DRAWS = 20_000
# Pairs of heads that are ablated together: each takes a run of the model, and what is shown is a
# median.
MOST_PAIRS = 32

Members = Mapping[str, Sequence[str]]


def pair_name(layer: int, head: int, other: int) -> str:
    """The name of two heads of a layer.

    >>> pair_name(0, 1, 3)
    '0.1 ~ 0.3'
    """
    return f"{layer}.{head} ~ {layer}.{other}"


def pairs_of(cfg: HookedTransformerConfig) -> list[tuple[int, int, int]]:
    """(layer, head, other) for every two heads of a layer."""
    found = []
    for layer in range(cfg.n_layers):
        for head, other in itertools.combinations(range(cfg.n_heads), 2):
            found.append((layer, head, other))
    return found


def is_pair(name: str) -> bool:
    """Whether a name is that of two heads, and not of a head beside itself."""
    return len(set(name.split(" ~ "))) == 2


def pairs_in(overlaps: DataArray) -> list[str]:
    """The names of pairs of two heads."""
    return list(filter(is_pair, overlaps.indexes["pair"]))


@measurement("heads/overlap", version=4)
def overlap(lab: Lab) -> DataArray:
    """Overlap |<A, B>| / (|A| |B|) of every two heads of a layer, and what comparing them needs.

    All of it is `probes.HeadOrthogonality` on whole prompts in distribution, with what is read of a
    layer measured on the same prompts (`probes.Reading`): OV, QK and outputs are its cosines
    without sign; chance is its output_chance; "directions" is its D; "counts as", of a head beside
    itself, the head as which it counts (`NO_HEAD`: writes nothing). Then follow its inner products,
    each a mean over the prompts of a unit. A head beside itself is its mean square. NaN for heads
    that write nothing that is read.
    """
    cfg = lab.model.cfg
    prompts = lab.head_sample if is_large(lab.model) else lab.few
    read, _ = lab.encoding.read_at(prompts.n_points, cfg.attention_dir)
    reading = Reading.measure(lab.reader, lab.tokens(prompts), read, lab.seed)
    alike = np.reshape(relevance.first_alike(lab), (cfg.n_layers, cfg.n_heads)) % cfg.n_heads
    probe = HeadOrthogonality(angles=False, per_prompt=True, reading=reading, alike=alike.tolist())
    results = lab.read(prompts, [probe])

    def found(name: str) -> Any:
        return results[f"head_orthogonality.{name}"]

    def at_all(name: str) -> np.ndarray:
        return found(name).sel(position="all").values

    # Numbers of a layer or a head, at the place of each pair: (layer, head, other).
    n_heads = cfg.n_heads
    shape = (cfg.n_layers, n_heads, n_heads)
    heads = range(n_heads)
    counts_as = np.full(shape, np.nan)
    counts_as[:, heads, heads] = at_all("distinct")
    n_directions = at_all("directions")
    columns = [
        np.abs(found("ov_cosine").values),
        np.abs(found("qk_cosine").values),
        np.abs(at_all("output_cosine")),
        at_all("output_chance"),
        np.broadcast_to(n_directions[:, None, None], shape),
        counts_as,
    ]
    # Inner products, a mean over the prompts of each unit.
    per_prompt = np.moveaxis(found("output_inner").values, -1, 0)
    by_unit = lab.by_unit(torch.from_numpy(per_prompt), prompts)
    columns += list(by_unit)
    table = np.stack(columns, -1)
    # Rows: pairs of two heads, and each head beside itself.
    pairs = pairs_of(cfg)
    pairs += [(layer, head, head) for layer, head in lab.heads]
    rows = [table[pair] for pair in pairs]
    names = tuple(itertools.starmap(pair_name, pairs))
    units = tuple(f"unit {i}" for i in range(len(by_unit)))
    axes = {"pair": names, "value": (*SHOWN, *OF_LAYER, *units)}
    note = "as later weights read it; chance turns directions in as many dimensions as are named"
    return make_array(np.stack(rows), axes, note=note)


@measurement("heads/pair ablation", version=2, needs=(relevance.relevance,))
def pair_ablation(lab: Lab, effects: DataArray) -> DataArray:
    """Rise of the in-distribution error when one head, or two of a layer, are made their mean.

    Of a model with many pairs, `MOST_PAIRS` drawn at random.
    """
    rises = effects.sel(intervention="mean ablation", statistic="rise").values.mean(-1)
    alone = dict(zip(lab.heads, rises.tolist(), strict=True))
    base, truth = lab.predictions()
    before = (base - truth).square().mean()
    # Which pairs.
    pairs = pairs_of(lab.model.cfg)
    if len(pairs) > MOST_PAIRS:
        draw = generator(lab.seed, "heads/pairs")
        drawn = torch.randperm(len(pairs), generator=draw)[:MOST_PAIRS]
        drawn = sorted(drawn.tolist())
        pairs = [pairs[i] for i in drawn]
    # Both heads of each, and either alone.
    values = []
    for layer, head, other in pairs:
        first = (layer, head)
        second = (layer, other)
        out, _ = lab.predictions(lab.head_means.only(first, second))
        after = (out - truth).square().mean()
        both = float(after - before)
        values.append([both, alone[first], alone[second]])
    names = tuple(itertools.starmap(pair_name, pairs))
    return make_array(values, {"pair": names, "ablated": ("both", "first", "second")})


class Comparison(NamedTuple):
    """The mean overlap of some pairs of heads beside what chance gives them.

    Attributes:
        mean: overlap, with its interval over units.
        chance: mean overlaps of the same pairs, each turned at random.
        n_pairs: of heads that write anything.
    """

    mean: Interval
    chance: Float[np.ndarray, " draw"]
    n_pairs: int

    def position(self, overlap: float) -> float:
        """The share of draws by chance that lie below."""
        return float((self.chance < overlap).mean())

    @property
    def positions(self) -> tuple[float, float, float]:
        """Positions of the overlap and of its interval's ends, moved outwards by the margin.

        The low end is divided by the margin, and the high end is multiplied by it.
        """
        mean = self.mean
        low = self.position(mean.low / MARGIN)
        high = self.position(mean.high * MARGIN)
        return self.position(mean.value), low, high


def distinct_heads(overlaps: DataArray) -> dict[str, list[str]]:
    """The heads that count, each with those that are one with it (itself the first).

    So copies of a head count once. Heads that write nothing which is read are left out, and so are
    layers whose heads write along one direction.
    """
    found: dict[str, list[str]] = {}
    shown = overlaps.sel(value=list(OF_LAYER)).values.tolist()
    for name, (n_directions, counted_as) in zip(overlaps.indexes["pair"], shown, strict=True):
        head, other = name.split(" ~ ")
        if head != other or counted_as == NO_HEAD or n_directions < LEAST_DIRECTIONS:
            continue
        layer, _, _ = head.partition(".")
        found.setdefault(f"{layer}.{counted_as:.0f}", []).append(head)
    return found


def pairs_of_distinct(overlaps: DataArray) -> list[str]:
    """The names of pairs of two heads of a layer that count."""
    heads = []
    names = []
    for name in distinct_heads(overlaps):
        layer, _, head = name.partition(".")
        heads.append((int(layer), int(head)))
    for (layer, head), (other_layer, other) in itertools.product(heads, heads):
        if layer == other_layer and head < other:
            names.append(pair_name(layer, head, other))
    return names


def compared(overlaps: DataArray, pairs: Sequence[str]) -> Comparison | None:
    """Compare these pairs of heads that count, each with its copies; None if there is no pair."""
    if not pairs:
        return None
    rows = dict(zip(overlaps.indexes["pair"], overlaps.values, strict=True))
    members = distinct_heads(overlaps)
    # Inner products of each pair, and mean squares of both heads: (pair, unit).
    inner = []
    first = []
    second = []
    for pair in pairs:
        head, other = pair.split(" ~ ")
        inner.append(_products(rows, members[head], members[other]))
        first.append(_products(rows, members[head], members[head]))
        second.append(_products(rows, members[other], members[other]))
    influence = _influence(np.stack(inner), np.stack(first), np.stack(second))
    mean = bootstrap(lambda m: m, influence)
    # What chance gives the same pairs.
    shown = np.stack([rows[pair] for pair in pairs])
    chance = by_chance(shown[:, SHOWN.index("chance")], shown[:, len(SHOWN)])
    return Comparison(mean, chance, len(pairs))


def _products(
    rows: Mapping[str, np.ndarray], heads: Sequence[str], others: Sequence[str]
) -> Float[np.ndarray, " unit"]:
    """Of what two heads write, each the sum of all that is one with it."""
    parts = []
    for head, other in itertools.product(heads, others):
        name = f"{head} ~ {other}"
        if name not in rows:
            name = f"{other} ~ {head}"
        parts.append(rows[name][FIRST_UNIT:])
    return np.sum(parts, axis=0)


def _influence(
    inner: Float[np.ndarray, "pair unit"],
    first: Float[np.ndarray, "pair unit"],
    second: Float[np.ndarray, "pair unit"],
) -> Float[np.ndarray, " unit"]:
    """Each unit's influence on the mean overlap (infinitesimal jackknife).

    It is one number a unit, however many the pairs.
    """
    mean_first = first.mean(1, keepdims=True)
    mean_second = second.mean(1, keepdims=True)
    size = np.sqrt(mean_first * mean_second)
    mean_inner = inner.mean(1, keepdims=True)
    cosine = mean_inner / size
    excess = first / mean_first + second / mean_second - 2
    influence = np.sign(cosine) * inner / size
    influence -= np.abs(cosine) * excess / 2
    return influence.mean(0)


def by_chance(
    sizes: Float[np.ndarray, " pair"], n_directions: Float[np.ndarray, " pair"]
) -> Float[np.ndarray, " draw"]:
    """Mean overlaps of pairs that are each turned at random.

    Given are the root mean squares of the overlaps, and D of their layers. One entry of a Haar
    rotation in D dimensions has the square of a Beta(1/2, (D - 1)/2); so has the overlap of two
    heads that write a direction each, in its units, and of others nearly.
    """
    n_pairs = len(sizes)
    n_draws = min(MOST_DRAWS, N_BY_CHANCE // n_pairs)
    n_draws = max(FEWEST_DRAWS, n_draws)
    rng = np.random.default_rng(0)
    found = np.zeros(n_draws)
    pairs = sorted(zip(sizes, n_directions, strict=True))  # the order of heads must not matter
    for size, n in pairs:
        square = np.ones(n_draws)
        if n > 1:
            square = rng.beta(0.5, (n - 1) / 2, n_draws)
        found += size * np.sqrt(n * square)
    return found / n_pairs
