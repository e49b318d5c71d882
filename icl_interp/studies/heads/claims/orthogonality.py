"""The claim that heads are orthogonal: heads of a layer write in different directions.

What a head writes is compared over functions.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from xarray import DataArray

from icl_interp.analyses import output_unit, relevance
from icl_interp.analyses.claim import Claim, Remarks
from icl_interp.analyses.criterion import (
    Condition,
    Criterion,
    Estimate,
    Found,
    Precondition,
    at_least,
    at_most,
)
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results
from icl_interp.errors import InputError, shown
from icl_interp.studies.heads.measurements.overlaps import (
    MAPS,
    MARGIN,
    Comparison,
    Members,
    compared,
    distinct_heads,
    overlap,
    pair_ablation,
    pairs_in,
    pairs_of_distinct,
)

TAIL = 0.025  # of overlaps by chance, on each side
MEAN = "mean overlap of two heads' outputs"
SMALL = 0.1  # interaction of two heads up to which they work side by side
Roles = Mapping[str, relevance.Role]

POSITION = Condition(
    "position",
    "share of random directions that overlap less than two heads' outputs",
    at_most(TAIL),
    at_least(1 - TAIL),
    unit="share",
)
PAIRS = Precondition(
    "pairs",
    at_least(1),
    "No layer has two heads that are sure to matter, differ in what they write, and write along "
    "more than one direction that is read.",
)
CRITERION = Criterion(
    (POSITION,),
    (PAIRS,),
    terms="An overlap is the |cosine| between the outputs of two heads of a layer that matter. "
    "Their mean over prompts is subtracted, and they are weighted by how far they move the "
    "predictions. The mean over pairs counts, and the ends of its interval are first moved "
    f"outwards by a factor of {MARGIN:g}. Random directions have as many dimensions as what the "
    "heads of the layer write. Heads whose outputs are parallel or opposite count as one.",
)


@dataclass(frozen=True)
class Pairs:
    """Pairs of heads of a layer that matter, and their overlaps beside chance.

    Attributes:
        sure: pairs of heads that are sure to matter. possible: those with heads that may, too.
        found: overlaps of the sure ones; None where there is none.
        widest: those of the possible ones.
    """

    sure: list[str]
    possible: list[str]
    found: Comparison | None
    widest: Comparison | None

    @classmethod
    def of(cls, results: Results, facts: Facts) -> "Pairs":
        """From the results of a model."""
        overlaps = results[overlap]
        roles = relevance.roles(results, facts)
        heads = distinct_heads(overlaps)
        _check_known(f"{overlap.name} has", itertools.chain(*heads.values()), roles)
        sure = []
        possible = []
        for pair in pairs_of_distinct(overlaps):
            if _matters(pair, heads, roles, ("yes",)):
                sure.append(pair)
            if _matters(pair, heads, roles, ("yes", "unclear")):
                possible.append(pair)
        found = compared(overlaps, sure)
        widest = found if possible == sure else compared(overlaps, possible)
        return cls(sure, possible, found, widest)


def evidence(results: Results, facts: Facts) -> dict[str, Found]:
    """Where overlaps of heads of a layer that matter lie among those of random directions."""
    pairs = Pairs.of(results, facts)
    numbers: dict[str, Found] = {"pairs": _counted(len(pairs.sure), len(pairs.possible))}
    if pairs.found is not None and pairs.widest is not None:
        numbers["position"] = _position([pairs.found, pairs.widest])
    return numbers


def untrained(results: Results, facts: Facts) -> dict[str, Found]:
    """The position of an untrained control: of all pairs that count, whether they matter or not."""
    overlaps = results.control[overlap]
    found = compared(overlaps, pairs_of_distinct(overlaps))
    return {"position": _position([found])} if found else {}


def remarks(results: Results, facts: Facts, numbers: Mapping[str, Estimate]) -> Remarks:
    """The mean overlap beside chance, a row a map and a layer, and pairs that are ablated."""
    pairs = Pairs.of(results, facts)
    details = _by_map(results[overlap]) + _by_layer(results[overlap])
    estimate = None
    caveat = ""
    if pairs.found is not None and pairs.widest is not None:
        n_sure = len(pairs.sure)
        n_possible = len(pairs.possible)
        estimate = Estimate.spanning(MEAN, [pairs.found.mean, pairs.widest.mean])
        low, middle, high = np.quantile(pairs.found.chance, [TAIL, 0.5, 1 - TAIL]).tolist()
        n_pairs = f"{n_sure} to {n_possible}" if n_possible > n_sure else f"{n_sure}"
        caveat = (
            f"The mean overlap of {n_pairs} pairs is {estimate.value:.3g} (0: orthogonal), by "
            f"chance {middle:.3g}."
        )
        chance = {"chance, median": middle, "2.5 %": low, "97.5 %": high}
        details.append({"pairs that matter": n_sure, **chance})
    roles = relevance.roles(results, facts)
    return Remarks(
        scope="these weights, heads that matter within a layer, in distribution",
        caveat=caveat,
        estimate=estimate,
        causal=_causal(results[pair_ablation], roles, pairs.sure),
        details=tuple(details),
    )


def _check_known(what: str, heads: Iterable[str], roles: Roles) -> None:
    """Refuse heads that the model has not: they are in a report that was edited."""
    unknown = set(heads) - roles.keys()
    if unknown:
        raise InputError(f"{what} the head {shown(min(unknown))}, which is none here")


def _counted(least: int, most: int) -> Estimate:
    """How many pairs matter: from those that are sure to, to those that may."""
    name = "pairs of heads that matter"
    return Estimate(name, float(least), float(least), float(most), "pairs")


def _matters(pair: str, heads: Members, roles: Roles, allowed: Sequence[str]) -> bool:
    """Whether both heads of a pair matter; heads that are one matter if any of them does."""
    head, other = pair.split(" ~ ")
    of_head = {roles[one] for one in heads[head]}
    of_other = {roles[one] for one in heads[other]}
    return not (of_head.isdisjoint(allowed) or of_other.isdisjoint(allowed))


def _position(found: Sequence[Comparison]) -> Estimate:
    """Where overlaps lie among those by chance, with interval ends moved outwards by the margin."""
    values, lows, highs = zip(*(one.positions for one in found), strict=True)
    return Estimate("", values[0], min(lows), max(highs))


def _causal(ablation: DataArray, roles: Roles, pairs: Sequence[str]) -> dict[str, object]:
    """What two heads do together beyond what each does alone."""
    interactions = {}
    for name in ablation.indexes["pair"]:
        _check_known(f"{pair_ablation.name} has a pair of", name.split(" ~ "), roles)
        both, first, second = ablation.sel(pair=name).values
        alone = first + second
        if name in pairs and alone > 0:
            interactions[name] = float((both - first - second) / alone)
    effect = math.nan
    share_small = math.nan
    if interactions:
        sizes = np.abs(list(interactions.values()))
        effect = float(np.median(sizes))
        share_small = float((sizes <= SMALL).mean())
    return {
        "intervention": "outputs of two heads of a layer that matter replaced by their mean, alone "
        "and together",
        "effect": effect,
        "share of pairs with interaction <= 10 %": share_small,
        "interaction": interactions,
    }


def _by_map(overlaps: DataArray) -> list[dict[str, Any]]:
    """A row for each map: the mean overlap over all pairs of heads of a layer, relevant or not.

    Those of weights are shown only.
    """
    each = overlaps.sel(pair=pairs_in(overlaps))
    rows = []
    for name in MAPS:
        mean = mean_of(each.sel(value=name).values)
        rows.append({"map": name, "overlap": mean, "decides": name == "outputs"})
    rows[-1]["chance, root mean square"] = mean_of(each.sel(value="chance").values)
    return rows


def mean_of(values: np.ndarray) -> float:
    """The mean over pairs of heads that write anything, NaN where none do."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else math.nan


def _by_layer(overlaps: DataArray) -> list[dict[str, Any]]:
    """A row for each layer: directions of what its heads write, and heads that count there."""
    counted = [head.partition(".")[0] for head in distinct_heads(overlaps)]
    rows = []
    for name in overlaps.indexes["pair"]:
        layer, _, rest = name.partition(".")
        if rest != f"0 ~ {layer}.0":  # the first head beside itself
            continue
        n_directions = float(overlaps.sel(pair=name, value="directions"))
        n_heads = counted.count(layer)
        rows.append({"layer": layer, "directions": n_directions, "heads that count": n_heads})
    return rows


def _one_head(facts: Facts) -> str | None:
    if facts.config.mlp_only:
        return "The claim is about attention heads; this model has none."
    if facts.config.n_heads == 1:
        return "The claim compares the heads of a layer; here a layer has a single head."
    return None


ORTHOGONALITY_CLAIM = Claim(
    id="heads.orthogonality",
    question="attention",
    statement="Heads of a layer write in directions that overlap less than random ones.",
    denied="Heads of a layer write in directions that overlap more than random ones.",
    quote=Quote(
        "To further relate our experimental findings to our theory, we also exhibit an "
        "orthogonality property between heads after training.",
        "Sander et al. (2024), section 6, 'Non-Augmented setting', with Figure 8 (theory: section "
        "5.1, after Proposition 3)",
        "The paper shows it for one layer of linear attention that is trained on autoregressive "
        "sequences; the formula of its measure is missing from our copy. We test any attention: "
        "what two heads of a layer write, over functions and weighted by how far it moves the "
        "predictions, must overlap less than random directions would.",
    ),
    kind="learning",
    reads="outputs of the heads",
    criterion=CRITERION,
    measurements=(output_unit.own, relevance.relevance, overlap, pair_ablation),
    control=(overlap,),
    aspects=("shares of heads",),
    evidence=evidence,
    remarks=remarks,
    untrained=untrained,
    excluded=_one_head,
    figures=("overlap",),
)
