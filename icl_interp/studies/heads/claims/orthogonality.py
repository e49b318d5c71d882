"""The claim that heads are orthogonal: heads of a layer write in different directions.

What a head writes is compared over functions.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from xarray import DataArray

from icl_interp.analyses import output_unit, relevance
from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts, is_large
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Results, measurement
from icl_interp.errors import InputError, shown
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
LEAST_DIRECTIONS = 2  # along one direction any two heads overlap
MARGIN = 1.25  # factor by which an overlap must lie beyond chance
TAIL = 0.025  # of overlaps by chance, on each side
N_BY_CHANCE = 2**20  # overlaps drawn by chance, over all pairs; at most 20,000 means
LESS = "what two heads of a layer write, as it is read, overlaps less than random directions would"
# Pairs of heads that are ablated together: each takes a run of the model, and what is shown is a
# median.
MOST_PAIRS = 32


def pairs_of(cfg: HookedTransformerConfig) -> list[tuple[int, int, int]]:
    """(layer, head, other) for every two heads of a layer."""
    return [
        (i, a, b)
        for i in range(cfg.n_layers)
        for a in range(cfg.n_heads)
        for b in range(a + 1, cfg.n_heads)
    ]


def _names(pairs: Iterable[tuple[int, int, int]]) -> tuple[str, ...]:
    return tuple(f"{i}.{a} ~ {i}.{b}" for i, a, b in pairs)


@measurement("heads/overlap", version=3)
def overlap(lab: Lab) -> DataArray:
    """Overlap |<A, B>| / (|A| |B|) of every two heads of a layer, and what comparing them needs.

    All of it is `probes.HeadOrthogonality` on whole prompts in distribution, with what is read of a
    layer measured on the same prompts (`probes.Reading`): OV, QK and outputs are its cosines
    without sign; chance is its output_chance; "directions" is its D; "counts as", of a head beside
    itself, the head as which it counts (`NO_HEAD`: writes nothing). Then follow its inner products,
    each a mean over the prompts of a unit. A head beside itself is its mean square. NaN for heads
    that write nothing that is read.
    """
    prompts = lab.head_sample if is_large(lab.model) else lab.few
    read, _ = lab.encoding.read_at(prompts.n_points, lab.model.cfg.attention_dir)
    reading = Reading.measure(lab.reader, lab.tokens(prompts), read, lab.seed)
    probe = HeadOrthogonality(angles=False, per_prompt=True, reading=reading)
    found = {
        name.removeprefix("head_orthogonality."): result
        for name, result in lab.read(prompts, [probe]).items()
    }
    of_all = {
        name: found[name].sel(position="all").values
        for name in ("output_cosine", "output_chance", "distinct", "directions")
    }
    n_heads = lab.model.cfg.n_heads
    counts_as = np.full((lab.model.cfg.n_layers, n_heads, n_heads), np.nan)
    counts_as[:, range(n_heads), range(n_heads)] = of_all["distinct"]
    directions = np.broadcast_to(of_all["directions"][:, None, None], counts_as.shape)
    shown = [found["ov_cosine"].values, found["qk_cosine"].values, of_all["output_cosine"]]
    columns = [*np.abs(shown), of_all["output_chance"], directions, counts_as]
    inner = np.moveaxis(found["output_inner"].values, -1, 0)
    by_unit = np.moveaxis(lab.by_unit(torch.from_numpy(inner), prompts), 0, -1)
    each = np.concatenate([np.stack(columns, -1), by_unit], -1)  # (layer, head, other, value)
    pairs = [*pairs_of(lab.model.cfg), *((i, h, h) for i, h in lab.heads)]
    units = (f"unit {i}" for i in range(by_unit.shape[-1]))
    axes = {"pair": _names(pairs), "value": (*SHOWN, *OF_LAYER, *units)}
    note = "as later weights read it; chance turns directions in as many dimensions as are named"
    return make_array(np.stack([each[pair] for pair in pairs]), axes, note=note)


@measurement("heads/pair ablation", version=2, needs=(relevance.relevance,))
def pair_ablation(lab: Lab, effects: DataArray) -> DataArray:
    """Rise of the in-distribution error when one head, or two of a layer, are made their mean.

    Of a model with many pairs, `MOST_PAIRS` drawn at random.
    """
    alone = effects.sel(intervention="mean ablation", statistic="rise").values.mean(-1)
    base, truth = lab.predictions()
    single = dict(zip(lab.heads, alone.tolist(), strict=True))
    pairs = [((i, a), (i, b)) for i, a in lab.heads for b in range(a + 1, lab.model.cfg.n_heads)]
    if len(pairs) > MOST_PAIRS:
        drawn = torch.randperm(len(pairs), generator=generator(lab.seed, "heads/pairs"))[
            :MOST_PAIRS
        ]
        pairs = [pairs[i] for i in sorted(drawn.tolist())]
    values = []
    for first, second in pairs:
        out, _ = lab.predictions(lab.head_means.only(first, second))
        both = float((out - truth).square().mean() - (base - truth).square().mean())
        values.append([both, single[first], single[second]])
    names = tuple(f"{a[0]}.{a[1]} ~ {b[0]}.{b[1]}" for a, b in pairs)
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
        return (
            self.position(mean.value),
            self.position(mean.low / MARGIN),
            self.position(mean.high * MARGIN),
        )


def distinct_heads(overlaps: DataArray) -> dict[str, list[str]]:
    """The heads that count, each with those that are one with it (itself the first).

    So copies of a head count once. Heads that write nothing which is read are left out, and so are
    layers whose heads write along one direction.
    """
    found: dict[str, list[str]] = {}
    shown = overlaps.sel(value=list(OF_LAYER)).values.tolist()
    for name, (n_directions, counted_as) in zip(overlaps.indexes["pair"], shown, strict=True):
        head, other = name.split(" ~ ")
        if head != other:
            continue
        if counted_as != NO_HEAD and n_directions >= LEAST_DIRECTIONS:
            layer = head.partition(".")[0]
            found.setdefault(f"{layer}.{counted_as:.0f}", []).append(head)
    return found


def pairs_of_distinct(overlaps: DataArray) -> list[str]:
    """The names of pairs of two heads of a layer that count."""
    heads = [tuple(map(int, name.split("."))) for name in distinct_heads(overlaps)]
    return list(_names((i, a, b) for i, a in heads for j, b in heads if i == j and a < b))


def compared(overlaps: DataArray, pairs: Sequence[str]) -> Comparison | None:
    """Compare these pairs of heads that count, each with its copies; None if there is no pair."""
    if not pairs:
        return None
    rows = {name: row for name, row in zip(overlaps.indexes["pair"], overlaps.values, strict=True)}
    members = distinct_heads(overlaps)
    n_shown = len(SHOWN) + len(OF_LAYER)

    def products(head: str, other: str) -> Float[np.ndarray, " unit"]:
        """Of what two heads write, each the sum of all that is one with it."""
        both = [(a, b) for a in members[head] for b in members[other]]
        names = [(f"{a} ~ {b}", f"{b} ~ {a}") for a, b in both]
        return np.sum([(rows[x] if x in rows else rows[y])[n_shown:] for x, y in names], axis=0)

    ends = [tuple(pair.split(" ~ ")) for pair in pairs]
    inner = np.stack([products(a, b) for a, b in ends])  # (pair, unit)
    first = np.stack([products(a, a) for a, _ in ends])
    second = np.stack([products(b, b) for _, b in ends])
    chance = np.array([rows[pair][len(MAPS)] for pair in pairs])
    n_directions = np.array([rows[pair][len(SHOWN)] for pair in pairs])
    # Each unit's influence on the mean overlap (infinitesimal jackknife): one number a unit,
    # however many the pairs.
    means = [part.mean(1, keepdims=True) for part in (inner, first, second)]
    cosine = means[0] / np.sqrt(means[1] * means[2])
    influence = np.sign(cosine) * inner / np.sqrt(means[1] * means[2])
    influence -= np.abs(cosine) * (first / means[1] + second / means[2] - 2) / 2
    mean = bootstrap(lambda m: m, influence.mean(0))
    return Comparison(mean, by_chance(chance, n_directions), len(pairs))


def mean_of(values: Float[np.ndarray, " pair"]) -> float:
    """The mean over pairs of heads that write anything, NaN where none do."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")


def pairs_in(overlaps: DataArray) -> list[str]:
    """The names of pairs of two heads."""
    return [name for name in overlaps.indexes["pair"] if len(set(name.split(" ~ "))) == 2]


def by_chance(
    sizes: Float[np.ndarray, " pair"], n_directions: Float[np.ndarray, " pair"]
) -> Float[np.ndarray, " draw"]:
    """Mean overlaps of pairs that are each turned at random.

    Given are the root mean squares of the overlaps, and D of their layers. One entry of a Haar
    rotation in D dimensions has the square of a Beta(1/2, (D - 1)/2); so has the overlap of two
    heads that write a direction each, in its units, and of others nearly.
    """
    n_draws = max(2000, min(20_000, N_BY_CHANCE // len(sizes)))
    rng, found = np.random.default_rng(0), np.zeros(n_draws)
    for size, n in sorted(
        zip(sizes, n_directions, strict=True)
    ):  # the order of heads must not matter
        one_entry = rng.beta(0.5, (n - 1) / 2, n_draws) if n > 1 else np.ones(n_draws)
        found += size * np.sqrt(n * one_entry)
    return found / len(sizes)


def orthogonality(results: Results, facts: Facts) -> Evidence:
    """Do heads of a layer that matter write in directions that overlap less than chance?"""
    overlaps, roles = results[overlap], relevance.roles(results, facts)
    heads, names = distinct_heads(overlaps), pairs_of_distinct(overlaps)
    if unknown := {one for members in heads.values() for one in members} - roles.keys():
        raise InputError(f"{overlap.name} has the head {shown(min(unknown))}, which is none here")

    def both(pair: str, *allowed: str) -> bool:
        # Heads that are one matter if any of them does.
        return all(any(roles[one] in allowed for one in heads[head]) for head in pair.split(" ~ "))

    # Pairs of heads that are sure to matter; and those with heads that may.
    chosen = [[pair for pair in names if both(pair, *of)] for of in (("yes",), ("yes", "unclear"))]
    sure = compared(overlaps, chosen[0])
    most = sure if chosen[1] == chosen[0] else compared(overlaps, chosen[1])
    found = (sure, most)
    low, high = (one.n_pairs if one else 0 for one in found)
    quantities = {
        "pairs": Estimate(
            "pairs of heads that matter", float(low), float(low), float(high), "pairs"
        )
    }
    scope = "these weights, heads that matter within a layer, in distribution"
    causal, details = _causal(results[pair_ablation], roles, chosen[0]), _details(overlaps)
    if sure is None or most is None:
        return Evidence(quantities, "", scope=scope, causal=causal, details=details)
    quantities["position"] = _position([sure, most])
    estimate = Estimate.spanning("mean overlap of two heads' outputs", [sure.mean, most.mean])
    middle, ends = np.median(sure.chance), np.quantile(sure.chance, [TAIL, 1 - TAIL])
    says = answer(
        CRITERION,
        quantities,
        f"{LESS.capitalize()}.",
        "Heads of a layer are not orthogonal: what two of them write, as it is read, overlaps more "
        "than random directions would.",
        LESS,
    )
    threshold = bound(
        CRITERION,
        quantities,
        "position",
        f"below {ends[0]:.3f} by a factor of {MARGIN:g}",
        f"above {ends[1]:.3f} by a factor of {MARGIN:g}",
    )
    says += (
        f" The mean overlap of {low} pairs that matter is {estimate.value:.3f} "
        f"[{estimate.low:.3f}, {estimate.high:.3f}] (0: orthogonal) and {middle:.3f} by chance "
        f"({threshold})."
    )
    caveat = (
        f"The interval allows for up to {high} pairs, with heads that may matter."
        if high > low
        else ""
    )
    chance = {"chance, median": float(middle), "2.5 %": float(ends[0]), "97.5 %": float(ends[1])}
    details = (*details, {"pairs that matter": low, **chance})
    fresh = compared(results.control[overlap], pairs_of_distinct(results.control[overlap]))
    control = {"position": _position([fresh])} if fresh else {}
    return Evidence(quantities, says, estimate, scope, causal, control, details, caveat)


def _position(found: Sequence[Comparison]) -> Estimate:
    """Where overlaps lie among those by chance, with interval ends moved outwards by the margin."""
    each = [one.positions for one in found]
    low, high = min(p[1] for p in each), max(p[2] for p in each)
    return Estimate("position among random directions", each[0][0], low, high, "quantile")


def _causal(
    ablation: DataArray, roles: dict[str, relevance.Role], pairs: Sequence[str]
) -> dict[str, object]:
    interactions = {}
    for name in ablation.indexes["pair"]:
        if unknown := set(name.split(" ~ ")) - roles.keys():  # in a report that was edited
            raise InputError(
                f"{pair_ablation.name} has a pair of the head {shown(min(unknown))}, which is none "
                "here"
            )
        both, first, second = ablation.sel(pair=name).values
        if name in pairs and first + second > 0:
            interactions[name] = float((both - first - second) / (first + second))
    sizes = np.abs(list(interactions.values()))
    return {
        "intervention": "outputs of two heads of a layer that matter replaced by their mean, alone "
        "and together",
        "effect": float(np.median(sizes)) if interactions else float("nan"),
        "share of pairs with interaction <= 10 %": float((sizes <= 0.1).mean())
        if interactions
        else float("nan"),
        "interaction": interactions,
    }


def _details(overlaps: DataArray) -> tuple[dict[str, object], ...]:
    """Mean overlaps over all pairs of heads of a layer, relevant or not.

    Those of weights are shown only.

    Then each layer: directions of what its heads write, as it is read, and heads that count there.
    """
    each = overlaps.sel(pair=pairs_in(overlaps)).values[:, : len(SHOWN)]
    mean = {name: mean_of(column) for name, column in zip(SHOWN, each.T, strict=True)}
    rows: list[dict[str, object]] = [
        {"map": m, "overlap": mean[m], "decides": m == "outputs"} for m in MAPS
    ]
    rows[-1]["chance, root mean square"] = mean["chance"]
    heads = [head.partition(".")[0] for head in distinct_heads(overlaps)]
    for name in overlaps.indexes["pair"]:
        layer, _, rest = name.partition(".")
        if rest.startswith("0 ~ ") and rest.endswith(".0"):
            n_directions = float(overlaps.sel(pair=name, value="directions"))
            counted = heads.count(layer)
            rows.append({"layer": layer, "directions": n_directions, "heads that count": counted})
    return tuple(rows)


def _one_head(facts: Facts) -> str | None:
    config = facts.config
    if config.mlp_only:
        return "The claim is about attention heads; this model has none."
    return (
        "The claim compares the heads of a layer; here a layer has a single head."
        if config.n_heads == 1
        else None
    )


CRITERION = Criterion(
    (Condition("position", "", (-INF, TAIL), (1 - TAIL, INF)),),
    (
        Precondition(
            "pairs",
            (1.0, INF),
            "No layer has two heads that are sure to matter, differ in what they write, and write "
            "along more than one direction that is read.",
        ),
    ),
    terms=(
        "mean overlap of the outputs of two heads of a layer that matter (less their mean over "
        f"prompts, weighed by how far they move the predictions), and {MARGIN} times the end of its "
        "interval beyond it, among overlaps of random directions in as many dimensions as what the "
        f"heads of the layer write has: below the {TAIL:.1%} / above the {1 - TAIL:.1%} quantile. "
        "Heads whose outputs are parallel or opposite count as one"
    ),
)

ORTHOGONALITY_CLAIM = Claim(
    id="heads.orthogonality",
    question="attention",
    short="The heads of a layer are orthogonal to each other after training.",
    quote=Quote(
        "To further relate our experimental findings to our theory, we also exhibit an "
        "orthogonality property between heads after training.",
        "Sander et al. (2024), section 6, 'Non-Augmented setting', with Figure 8 (theory: section "
        "5.1, after Proposition 3)",
        "The paper shows it for one layer of linear attention that is trained on autoregressive "
        "sequences; the formula of its measure is missing from our copy. We ask it of any "
        "attention: what"
        " two heads of a layer write, over functions and weighed by how far it moves the "
        "predictions, must overlap less than random directions would.",
    ),
    kind="learning",
    statement="The heads of a layer are orthogonal: what they write points in different directions",
    source="Sander et al. (2024), sections 5.1 and 6, there for linear attention; here for any "
    "attention",
    criterion=CRITERION,
    measurements=(output_unit.own, relevance.relevance, overlap, pair_ablation),
    control=(overlap,),
    aspects=("shares of heads",),
    evidence=orthogonality,
    excluded=_one_head,
    figures=("heads",),
)
