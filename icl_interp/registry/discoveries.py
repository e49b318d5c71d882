"""How many verdicts of a table chance may make wrong, and how many it did where truth is known.

Each verdict is made on an interval at 95 %. Among a thousand verdicts some then are wrong by the
draw of prompts. A *discovery* is a verdict that stands among all of its table: of the discoveries
at most 5 % are expected to be wrong (the false discovery rate, by Benjamini and Yekutieli).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest, false_discovery_control

from icl_interp.analyses.claim import OPPOSITE
from icl_interp.analyses.criterion import Criterion, Estimate, Region
from icl_interp.registry.entry import Entry
from icl_interp.resampling import EXTREMES, LEVEL, N_TAILS

RATE = 0.05  # share of wrong verdicts among discoveries
ONE_END = (1 - LEVEL) / 2  # chance at which one end of an interval misses the truth


def chance_of(criterion: Criterion, numbers: Mapping[str, Estimate], verdict: str) -> float | None:
    """The chance of a verdict by the draw of prompts where the truth is another, at most.

    It is two-sided, since a model may be judged wrongly either way. For support all conditions
    count, so the largest chance of any. For the opposite any of k may decide, so k times the
    smallest (Bonferroni). Preconditions, and what controls show, are not counted.

    Args:
        criterion: of the claim.
        numbers: by its keys.
        verdict: that they gave.

    Returns:
        None where no number that counts has a sampling error, or nothing was decided.

    >>> from icl_interp.analyses.criterion import Condition, at_least, at_most
    >>> rule = Criterion((Condition("error", "error", at_most(1), at_least(2)),))
    >>> sure = Estimate("error", 0.5, 0.45, 0.55)
    >>> chance_of(rule, {"error": sure}, "supported")
    2e-05
    """
    if verdict not in OPPOSITE:
        return None
    supported = verdict == "supported"
    chances = []
    n_ways = 0
    for c in criterion.conditions:
        found = numbers.get(c.quantity)
        region = c.supports if supported else c.contradicts
        if found is None or region is None:
            continue
        n_ways += 1
        if found.low < found.high:
            chances.append(beyond(found, region))
        elif not supported and found.within(region):
            return None  # a number without error decides by itself
    if not chances:
        return None
    one_sided = max(chances) if supported else n_ways * min(chances)
    return min(1.0, 2 * one_sided)


def beyond(found: Estimate, region: Region) -> float:
    """The smallest chance of missing the truth at one end, at which an interval lies in a region.

    Intervals are known at a few levels. They are tried from 95 % to stricter ones, and the chance
    is that of the last one that lies inside; 1 where even the first does not.
    """
    levels = []
    for k in range(1, N_TAILS + 1):
        levels.append((ONE_END / k, found.tail(k)))
    for chance in EXTREMES:
        levels.append((chance, found.beyond(chance)))
    smallest = 1.0
    for chance, (low, high) in levels:
        if not (region[0] <= low and high <= region[1]):
            break
        smallest = chance
    return smallest


def adjusted(entries: Sequence[Entry]) -> np.ndarray:
    """The q-value of each entry: the false discovery rate at which it would be a discovery.

    Entries that are open count with p = 1. Those without a p-value that are decided rest on numbers
    without sampling error: they are outside of the table, and have NaN.

    Source: Benjamini & Yekutieli (2001), "The control of the false discovery rate in multiple
    testing under dependency".
    """
    p = np.full(len(entries), np.nan)
    for i, entry in enumerate(entries):
        if entry.p is not None:
            p[i] = entry.p
        elif not entry.decided:
            p[i] = 1.0
    q = np.full(len(entries), np.nan)
    known = np.isfinite(p)
    if known.any():
        q[known] = false_discovery_control(p[known], method="by")
    return q


class Planted(NamedTuple):
    """Verdicts on models of known truth.

    Attributes:
        decided: cells in which a verdict was given.
        wrong: of them, where the truth is another.
        discoveries: verdicts that stand among all of them, at `RATE`.
        false: of these, where the truth is another.
        low: end of the interval of the share of false ones at 95 % (Clopper and Pearson).
        high: end of that interval.
        missed: cells that should be decided and are open.
    """

    decided: int
    wrong: int
    discoveries: int
    false: int
    low: float
    high: float
    missed: int


def of_planted(entries: Sequence[Entry]) -> Planted:
    """What share of verdicts is wrong, counted on models whose truth is known.

    Args:
        entries: the current ones; only planted ones count.
    """
    planted = [entry for entry in entries if entry.planted]
    counted: Counter[str] = Counter()
    for entry, q in zip(planted, adjusted(planted), strict=True):
        wrong = entry.decided and entry.verdict != entry.expected
        counted["decided"] += entry.decided
        counted["wrong"] += wrong
        counted["missed"] += not entry.decided and entry.expected in OPPOSITE
        if q <= RATE:  # not where it is NaN
            counted["discoveries"] += 1
            counted["false"] += wrong
    low = 0.0
    high = 1.0
    if counted["discoveries"]:
        share = binomtest(counted["false"], counted["discoveries"])
        low, high = share.proportion_ci(LEVEL, method="exact")
    return Planted(
        decided=counted["decided"],
        wrong=counted["wrong"],
        discoveries=counted["discoveries"],
        false=counted["false"],
        low=float(low),
        high=float(high),
        missed=counted["missed"],
    )
