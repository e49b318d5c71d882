"""The claim that heads are orthogonal: what heads of a layer write does not point the same way over functions."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from xarray import DataArray

from icl_interp.analyses import relevance, scale
from icl_interp.analyses.answer import answer, bound
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate, Precondition
from icl_interp.analyses.facts import Facts, is_large
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Planned, Results, measurement
from icl_interp.errors import InputError, shown
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.probes.heads import HeadOrthogonality, n_directions
from icl_interp.provenance import generator
from icl_interp.resampling import Interval, bootstrap
from icl_interp.results import make_array

MAPS = ("OV", "QK", "outputs")
SHOWN = (*MAPS, "chance")
MARGIN = 1.25  # factor by which an overlap must lie beyond chance
TAIL = 0.025  # of overlaps by chance, on each side
N_BY_CHANCE = 2**20  # overlaps drawn by chance, over all pairs; at most 20,000 means
LESS = "what two heads of a layer write overlaps less than random directions would"
MOST_PAIRS = 32  # of heads that are ablated together: each takes a run of the model, and what is shown is a median


def pairs_of(cfg: HookedTransformerConfig) -> list[tuple[int, int, int]]:
    """(layer, head, other) for every two heads of a layer."""
    return [(i, a, b) for i in range(cfg.n_layers) for a in range(cfg.n_heads) for b in range(a + 1, cfg.n_heads)]


def _names(pairs: Iterable[tuple[int, int, int]]) -> tuple[str, ...]:
    return tuple(f"{i}.{a} ~ {i}.{b}" for i, a, b in pairs)


@measurement("heads/overlap", version=2)
def overlap(lab: Lab) -> DataArray:
    """Overlap |<A, B>| / (|A| |B|) of every two heads of a layer, and what the claim needs to compare them.

    All of it is `probes.HeadOrthogonality` on whole prompts in distribution: OV, QK and outputs are its cosines without
    sign; chance is its output_chance; then follow its inner products, each a mean over the prompts of a unit. A head
    beside itself is its mean square. NaN for heads that write a constant.
    """
    prompts = lab.head_sample if is_large(lab.model) else lab.few
    found = lab.read(prompts, [HeadOrthogonality(angles=False, per_prompt=True)])
    in_all = {name: found[f"head_orthogonality.{name}"] for name in ("output_cosine", "output_chance")}
    outputs, chance = (values.sel(position="all").values for values in in_all.values())
    maps = [found[f"head_orthogonality.{name}"].values for name in ("ov_cosine", "qk_cosine")]
    shown = np.abs(np.stack([*maps, outputs, chance], -1))  # (layer, head, other, value)
    inner = np.moveaxis(found["head_orthogonality.output_inner"].values, -1, 0)
    by_unit = np.moveaxis(lab.by_unit(torch.from_numpy(inner), prompts), 0, -1)
    each = np.concatenate([shown, by_unit], -1)
    pairs = [*pairs_of(lab.model.cfg), *((i, h, h) for i, h in lab.heads)]
    axes = {"pair": _names(pairs), "value": (*SHOWN, *(f"unit {i}" for i in range(by_unit.shape[-1])))}
    note = f"chance turns directions in {n_directions(lab.model.cfg)} dimensions"
    return make_array(np.stack([each[pair] for pair in pairs]), axes, note=note)


@measurement("heads/pair ablation", version=2)
def pair_ablation(lab: Lab) -> Planned[DataArray]:
    """Rise of the in-distribution error when one head, or two of a layer, are made their mean.

    Of a model with many pairs, `MOST_PAIRS` drawn at random.
    """
    effects = yield from lab.need(relevance.relevance)
    alone = effects.sel(intervention="mean ablation", statistic="rise").values.mean(-1)
    base, truth = lab.predictions()
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
        """Of the overlap, of its interval's low end divided by the margin, and of its high end times the margin."""
        mean = self.mean
        return self.position(mean.value), self.position(mean.low / MARGIN), self.position(mean.high * MARGIN)


def compared(overlaps: DataArray, n_directions: int, pairs: Sequence[str]) -> Comparison | None:
    """Compare these pairs, those of heads that write a constant left out; None where no pair is left."""
    rows = {name: row for name, row in zip(overlaps.indexes["pair"], overlaps.values, strict=True)}
    kept = [pair for pair in pairs if np.isfinite(rows[pair][len(MAPS)])]
    if not kept:
        return None
    ends = [pair.split(" ~ ") for pair in kept]
    alone = [[f"{end[i]} ~ {end[i]}" for end in ends] for i in (0, 1)]
    inner, first, second = (
        np.stack([rows[n][len(SHOWN) :] for n in names]) for names in (kept, *alone)
    )  # (pair, unit)
    chance = np.array([rows[pair][len(MAPS)] for pair in kept])
    # Each unit's influence on the mean overlap (infinitesimal jackknife): one number a unit, however many the pairs.
    means = [part.mean(1, keepdims=True) for part in (inner, first, second)]
    cosine = means[0] / np.sqrt(means[1] * means[2])
    influence = np.sign(cosine) * inner / np.sqrt(means[1] * means[2])
    influence -= np.abs(cosine) * (first / means[1] + second / means[2] - 2) / 2
    mean = bootstrap(lambda m: m, influence.mean(0))
    return Comparison(mean, by_chance(chance, n_directions), len(kept))


def mean_of(values: Float[np.ndarray, " pair"]) -> float:
    """The mean over pairs of heads that write anything, NaN where none do."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")


def pairs_in(overlaps: DataArray) -> list[str]:
    """The names of pairs of two heads."""
    return [name for name in overlaps.indexes["pair"] if len(set(name.split(" ~ "))) == 2]


def by_chance(sizes: Float[np.ndarray, " pair"], n_directions: int) -> Float[np.ndarray, " draw"]:
    """Mean overlaps of pairs that are each turned at random, given their root mean squares.

    One entry of a Haar rotation in D dimensions has the square of a Beta(1/2, (D - 1)/2); so has the overlap of two
    heads that write a direction each, in its units, and of others nearly.
    """
    n_draws = max(2000, min(20_000, N_BY_CHANCE // len(sizes)))
    if n_directions < 2:
        return np.full(n_draws, sizes.mean())
    rng, found = np.random.default_rng(0), np.zeros(n_draws)
    for size in np.sort(sizes):  # the order of heads must not matter
        found += size * np.sqrt(n_directions * rng.beta(0.5, (n_directions - 1) / 2, n_draws))
    return found / len(sizes)


def orthogonality(results: Results, facts: Facts) -> Evidence:
    """Do heads of a layer that matter write in directions that overlap less than chance?"""
    overlaps, roles = results[overlap], relevance.roles(results, facts)
    names, n = pairs_in(overlaps), n_directions(facts.config)

    def both(pair: str, *allowed: str) -> bool:
        return all(roles[head] in allowed for head in pair.split(" ~ "))

    # Pairs of heads that are sure to matter; and those with heads that may.
    chosen = [[pair for pair in names if both(pair, *of)] for of in (("yes",), ("yes", "unclear"))]
    sure = compared(overlaps, n, chosen[0])
    most = sure if chosen[1] == chosen[0] else compared(overlaps, n, chosen[1])
    found = (sure, most)
    low, high = (one.n_pairs if one else 0 for one in found)
    quantities = {"pairs": Estimate("pairs of heads that matter", float(low), float(low), float(high), "pairs")}
    scope = "these weights, heads that matter within a layer, in distribution"
    causal, details = _causal(results[pair_ablation], roles), _details(overlaps, n)
    if sure is None or most is None:
        return Evidence(quantities, "", scope=scope, causal=causal, details=details)
    quantities["position"] = _position([sure, most])
    estimate = Estimate.spanning("mean overlap of two heads' outputs", [sure.mean, most.mean])
    middle, ends = np.median(sure.chance), np.quantile(sure.chance, [TAIL, 1 - TAIL])
    says = answer(
        CRITERION,
        quantities,
        f"{LESS.capitalize()}.",
        "Heads of a layer are not orthogonal: what two of them write overlaps more than random directions would.",
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
        f" The mean overlap of {low} pairs that matter is {estimate.value:.3f} [{estimate.low:.3f}, "
        f"{estimate.high:.3f}] (0: orthogonal) and {middle:.3f} by chance ({threshold})."
    )
    caveat = f"The interval allows for up to {high} pairs, with heads that may matter." if high > low else ""
    chance = {"chance, median": float(middle), "2.5 %": float(ends[0]), "97.5 %": float(ends[1])}
    details = (*details, {"pairs that matter": low, **chance})
    fresh = compared(results.twin[overlap], n, pairs_in(results.twin[overlap]))
    twin = {"position": _position([fresh])} if fresh else {}
    return Evidence(quantities, says, estimate, scope, causal, twin, details, caveat)


def _position(found: Sequence[Comparison]) -> Estimate:
    """Where overlaps lie among those by chance, the ends of their intervals moved outwards by the margin."""
    each = [one.positions for one in found]
    low, high = min(p[1] for p in each), max(p[2] for p in each)
    return Estimate("position among random directions", each[0][0], low, high, "quantile")


def _causal(ablation: DataArray, roles: dict[str, relevance.Role]) -> dict[str, object]:
    interactions = {}
    for name in ablation.indexes["pair"]:
        if unknown := set(name.split(" ~ ")) - roles.keys():  # in a report that was edited
            raise InputError(f"{pair_ablation.name} has a pair of the head {shown(min(unknown))}, which is none here")
        both, first, second = ablation.sel(pair=name).values
        if all(roles[head] == "yes" for head in name.split(" ~ ")) and first + second > 0:
            interactions[name] = float((both - first - second) / (first + second))
    sizes = np.abs(list(interactions.values()))
    return {
        "intervention": "outputs of two heads of a layer that matter replaced by their mean, alone and together",
        "effect": float(np.median(sizes)) if interactions else float("nan"),
        "share of pairs with interaction <= 10 %": float((sizes <= 0.1).mean()) if interactions else float("nan"),
        "interaction": interactions,
    }


def _details(overlaps: DataArray, n_directions: int) -> tuple[dict[str, object], ...]:
    """Mean overlaps over all pairs of heads of a layer, relevant or not; those of weights are shown only."""
    each = overlaps.sel(pair=pairs_in(overlaps)).values[:, : len(SHOWN)]
    mean = {name: mean_of(column) for name, column in zip(SHOWN, each.T, strict=True)}
    chance = {"outputs": mean["chance"]}
    return tuple(
        {
            "map": m,
            "overlap": mean[m],
            "chance, root mean square": chance.get(m, 1 / n_directions),
            "decides": m == "outputs",
        }
        for m in MAPS
    )


def _one_head(facts: Facts) -> str | None:
    config = facts.config
    if config.mlp_only:
        return "The claim is about attention heads; this model has none."
    return "The claim compares the heads of a layer; here a layer has a single head." if config.n_heads == 1 else None


CRITERION = Criterion(
    f"mean overlap of the outputs of two heads of a layer that matter (less their mean over prompts), and {MARGIN} "
    "times the end of its interval beyond it, among overlaps of random directions in the dimensions that the heads "
    f"can write to: below the {TAIL:.1%} / above the {1 - TAIL:.1%} quantile",
    (Condition("position", (-INF, TAIL), (1 - TAIL, INF)),),
    (Precondition("pairs", (1.0, INF), "No layer has two heads that are sure to matter."),),
)

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
        " two heads of a layer write, over functions, must overlap less than random directions would.",
    ),
    kind="learning",
    statement="The heads of a layer are orthogonal: what they write points in different directions",
    source="Sander et al. (2024), sections 5.1 and 6, there for linear attention; here for any attention",
    criterion=CRITERION,
    measurements=(scale.own, relevance.relevance, overlap, pair_ablation),
    twin=(overlap,),
    aspects=("shares of heads",),
    evidence=orthogonality,
    excluded=_one_head,
    figures=("heads",),
)
