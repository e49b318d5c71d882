"""Criteria: where quantities must lie for a verdict. They are fixed in the code before anything is measured.

A criterion decides by itself: it compares intervals with regions. So its words, the zones in a figure and the verdict
come from one object, and no claim can pass a verdict that its criterion does not say.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, SupportsFloat

import numpy as np

from icl_interp.errors import InputError, shown
from icl_interp.resampling import LEVEL, Interval, half_width

Verdict = Literal["supported", "contradicted", "inconclusive", "not_applicable"]
Region = tuple[float, float]  # low and high, these included
INF = float("inf")

# Standard errors by which a firm verdict lies inside its region. With 35 claims the chance that any of them is wrong by
# as much is at most 5 % (Bonferroni, both sides): half_width(0.05 / 35) = scipy.stats.norm.isf(0.05 / 35 / 2) = 3.19.
FIRM = 3.2


@dataclass(frozen=True)
class Estimate:
    """A number with its interval and unit. A number without error has an interval without width.

    Attributes:
        name: what it is.
        value: the number. low: end of its interval. high: end of its interval.
        unit: what it is measured in.
        se: standard error of the value; NaN where none was computed.
        tails: the ends of its intervals at level 1 - 0.05 / k, k = 1, 2, ...; empty where none were computed.
        positive: whether its intervals were made on the logarithm.
    """

    name: str
    value: float
    low: float
    high: float
    unit: str = ""
    se: float = math.nan
    tails: tuple[Region, ...] = ()
    positive: bool = False

    @classmethod
    def of(cls, name: str, interval: Interval, unit: str = "") -> "Estimate":
        """An interval with a name."""
        i = interval
        return cls(name, i.value, i.low, i.high, unit, i.se, i.tails, i.positive)

    @classmethod
    def exactly(cls, name: str, value: SupportsFloat, unit: str = "") -> "Estimate":
        """A number without error."""
        return cls(name, float(value), float(value), float(value), unit, 0.0)

    @classmethod
    def spanning(cls, name: str, estimates: "Sequence[Estimate | Interval]", unit: str = "") -> "Estimate":
        """From the lowest end of several intervals to the highest: it lies where all of them lie.

        Its value is the first one's, and so are its tails from the lowest end of all to the highest. It has no standard
        error: how far all of them lie inside a region is told by its interval.
        """
        each = [e if isinstance(e, Estimate) else cls.of(name, e) for e in estimates]
        if len(each) == 1:
            return replace(each[0], name=name, unit=unit)
        (low, high), *rest = (
            (float(np.min([e.tail(k)[0] for e in each])), float(np.max([e.tail(k)[1] for e in each])))  # NaN if one is
            for k in range(1, 1 + max(1, *(len(e.tails) for e in each)))
        )
        tails = ((low, high), *rest) if rest else ()
        return cls(name, each[0].value, low, high, unit, tails=tails, positive=all(e.positive for e in each))

    @property
    def known(self) -> bool:
        """Whether both ends are finite numbers."""
        return bool(np.isfinite([self.low, self.high]).all())

    def within(self, region: Region | None, k: int = 1) -> bool:
        """Whether the whole interval, at level 1 - 0.05 / k, lies in a region; no interval lies in None."""
        low, high = self.tail(k)
        return region is not None and bool(region[0] <= low and high <= region[1])

    def tail(self, k: int) -> Region:
        """The interval at level 1 - 0.05 / k.

        Where it was not computed, the ends at level 0.95 move away from the value as a normal law's would.
        """
        if k == 1:
            return self.low, self.high
        if k <= len(self.tails):
            return self.tails[k - 1]
        wider = half_width((1 - LEVEL) / k) / half_width(1 - LEVEL)
        return self.value - wider * (self.value - self.low), self.value + wider * (self.high - self.value)

    def inside(self, region: Region) -> float:
        """How many standard errors the value lies inside a region: from its nearest finite end, below 0 outside.

        A number whose intervals were made on the logarithm is measured there. Without a standard error, the wider half
        of the interval tells one. A number without error lies infinitely far inside or outside.

        >>> Estimate("share", 0.75, 0.25, 1.25, se=0.25).inside((0.25, INF))
        2.0
        """
        points, se = np.array([self.value, self.low, self.high, *region]), self.se
        if self.positive and self.value > 0:
            points, se = np.where(points > 0, np.log(np.where(points > 0, points, 1.0)), -INF), se / self.value
        value, low, high, *ends = map(float, points)
        if np.isnan(se):
            se = max(value - low, high - value) / half_width(1 - LEVEL)
        distance = min(value - ends[0], ends[1] - value)
        if se == 0 or np.isinf(distance):
            return INF if distance >= 0 else -INF
        return distance / se


@dataclass(frozen=True)
class Condition:
    """Where one quantity of a claim's evidence must lie.

    Attributes:
        quantity: its key in the evidence.
        supports: the region that supports the claim.
        contradicts: the region that contradicts it; None where the quantity can only fail to support.
        scale: how a figure should draw the axis.
        optional: not asked where the evidence lacks the quantity (a companion that is not at hand, say).

    >>> c = Condition("share", supports=(0.9, 1.0), contradicts=(0.0, 0.5))
    >>> [c.outcome(Estimate("share", value, value, high)) for value, high in ((0.95, 1.0), (0.85, 1.0), (0.1, 0.4))]
    ['supported', 'inconclusive', 'contradicted']
    """

    quantity: str
    supports: Region
    contradicts: Region | None
    scale: Literal["linear", "log"] = "linear"
    optional: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "supports", _region(self.supports))
        object.__setattr__(self, "contradicts", self.contradicts and _region(self.contradicts))

    def outcome(self, estimate: Estimate, k: int = 1) -> Verdict:
        """The region that holds the whole interval, if exactly one does.

        Args:
            estimate: of the quantity.
            k: conditions of which any may contradict: the interval for that is the one at level 1 - 0.05 / k.
        """
        inside = estimate.within(self.supports), estimate.within(self.contradicts, k)
        if not estimate.known or inside[0] == inside[1]:
            return "inconclusive"
        return "supported" if inside[0] else "contradicted"


@dataclass(frozen=True)
class Precondition:
    """What must hold before a claim can be decided at all.

    Attributes:
        quantity: its key in the evidence.
        holds: the region in which the whole interval must lie.
        otherwise: the sentence that says why nothing is decided, which then begins the reason; "{value}" stands for
            the quantity's value.
        optional: not asked where the evidence lacks the quantity.
    """

    quantity: str
    holds: Region
    otherwise: str
    optional: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "holds", _region(self.holds))


class Decision(NamedTuple):
    """A verdict, the condition that decided, and the sentence of the precondition that failed, if one did.

    `firm` says whether a verdict holds among many claims too: all supporting quantities, or the contradicting one, lie
    at least `FIRM` standard errors inside their regions. It is None where nothing was decided.
    """

    verdict: Verdict
    condition: Condition | None
    failed: str | None = None
    firm: bool | None = None


@dataclass(frozen=True)
class Criterion:
    """Supported where all preconditions hold and all conditions support; contradicted where one of these contradicts.

    Everything else is inconclusive. Supporting intervals have level 0.95. Any of the k conditions that can contradict
    may do so by chance, so a contradicting interval has level 1 - 0.05 / k (Bonferroni).

    Attributes:
        text: the rule in words, with its thresholds.
        conditions: at least one; the first is drawn where none decides.
        preconditions: asked in their order.

    >>> rule = Criterion(
    ...     "error at most 0.1 / above 0.2, of a model that learned",
    ...     (Condition("error", (-INF, 0.1), (0.2, INF)),),
    ...     (Precondition("R2", (0.9, 1.0), "R2 is only {value:.2g}."),),
    ... )
    >>> error, learned = Estimate("error", 0.05, 0.02, 0.08), Estimate.exactly("R2", 0.95)
    >>> rule.decide({"error": error, "R2": learned}).verdict
    'supported'
    >>> rule.decide({"error": error, "R2": Estimate.exactly("R2", 0.3)}).failed
    'R2 is only 0.3.'
    """

    text: str
    conditions: tuple[Condition, ...]
    preconditions: tuple[Precondition, ...] = ()

    def __post_init__(self) -> None:
        if not self.conditions:
            raise InputError(f"a criterion needs at least one condition, but {shown(self.text)} has none")

    def decide(self, evidence: Mapping[str, Estimate]) -> Decision:
        """The verdict on quantities by key.

        Raises:
            InputError: a quantity that is not optional is missing.
        """
        for p in self.preconditions:
            if (found := _quantity(p, evidence)) is not None and not found.within(p.holds):
                return Decision("inconclusive", self._first(evidence), p.otherwise.format(value=found.value))
        asked = [(c, e) for c in self.conditions if (e := _quantity(c, evidence)) is not None]
        k = sum(c.contradicts is not None for c, _ in asked)
        outcomes = [c.outcome(e, max(k, 1)) for c, e in asked]
        for (condition, found), outcome in zip(asked, outcomes, strict=True):
            if outcome == "contradicted" and condition.contradicts:
                return Decision(outcome, condition, firm=found.inside(condition.contradicts) >= FIRM)
        if "inconclusive" in outcomes or not asked:
            return Decision("inconclusive", asked[outcomes.index("inconclusive")][0] if asked else None)
        return Decision("supported", asked[0][0], firm=all(e.inside(c.supports) >= FIRM for c, e in asked))

    def _first(self, evidence: Mapping[str, Estimate]) -> Condition | None:
        return next((c for c in self.conditions if c.quantity in evidence), None)


def _region(bounds: Sequence[SupportsFloat]) -> Region:
    """Plain floats, as they come back from JSON."""
    low, high = map(float, bounds)
    return low, high


def _quantity(rule: Condition | Precondition, evidence: Mapping[str, Estimate]) -> Estimate | None:
    if rule.quantity not in evidence and not rule.optional:
        raise InputError(f"the evidence lacks {shown(rule.quantity)}, which the criterion asks for")
    return evidence.get(rule.quantity)
