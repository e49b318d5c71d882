"""Criteria: where quantities must lie for a verdict.

They are fixed in the code before anything is measured.

A criterion decides by itself: it compares intervals with regions. So its words, the zones in a
figure and the verdict come from one object, and no claim can pass a verdict that its criterion does
not say.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, SupportsFloat

import numpy as np

from icl_interp.analyses.natural import Region, measured, opposite, region
from icl_interp.errors import InputError, shown
from icl_interp.resampling import EXTREMES, LEVEL, Interval, half_width

Verdict = Literal["supported", "contradicted", "inconclusive", "not_applicable"]
SUPPORTED: Verdict = "supported"
CONTRADICTED: Verdict = "contradicted"
INF = float("inf")

# Chance that any of the firm verdicts of a report is wrong by the draw of its prompts.
FAMILY = 0.05
# A family of claims is taken to be at least so large, however few are registered.
FEWEST_CLAIMS = 50
MARGIN = 0.05  # of a region's end: a firm number without error lies at least so far inside


def at_most(bound: float, least: float = -INF) -> Region:
    """The region up to a bound; `least` is the least value that there is.

    >>> at_most(1.25), at_most(0.5, least=0.0)
    ((-inf, 1.25), (0.0, 0.5))
    """
    return least, bound


def at_least(bound: float, most: float = INF) -> Region:
    """The region from a bound on; `most` is the largest value that there is.

    >>> at_least(2.0), at_least(0.9, most=1.0)
    ((2.0, inf), (0.9, 1.0))
    """
    return bound, most


def firm_chance(n_claims: int, n_conditions: int) -> float:
    """The chance at which one end of a firm verdict's interval may miss the truth.

    It is corrected after Bonferroni, and counts both ends.

    Args:
        n_claims: all registered claims, so that it does not depend on which were asked for.
        n_conditions: of the claim.

    >>> firm_chance(50, 2)
    0.00025
    """
    return FAMILY / (2 * max(n_claims, FEWEST_CLAIMS) * max(n_conditions, 1))


@dataclass(frozen=True)
class Estimate:
    """A number with its interval and unit. A number without error has an interval without width.

    Attributes:
        name: what it is.
        value: the number. low: end of its interval. high: end of its interval.
        unit: what it is measured in.
        se: standard error of the value; NaN where none was computed.
        tails: the ends of its intervals at level 1 - 0.05 / k, k = 1, 2, ...; empty where none were
            computed.
        positive: whether its intervals were made on the logarithm.
        extremes: its ends for the chances in `resampling.EXTREMES`; empty where none were computed.
    """

    name: str
    value: float
    low: float
    high: float
    unit: str = ""
    se: float = math.nan
    tails: tuple[Region, ...] = ()
    positive: bool = False
    extremes: tuple[Region, ...] = ()

    @classmethod
    def of(cls, name: str, interval: Interval, unit: str = "") -> "Estimate":
        """An interval with a name."""
        i = interval
        return cls(name, i.value, i.low, i.high, unit, i.se, i.tails, i.positive, i.extremes)

    @classmethod
    def exactly(cls, name: str, value: SupportsFloat, unit: str = "") -> "Estimate":
        """A number without error."""
        return cls(name, float(value), float(value), float(value), unit, 0.0)

    @classmethod
    def spanning(
        cls, name: str, estimates: "Sequence[Estimate | Interval]", unit: str = ""
    ) -> "Estimate":
        """From the lowest end of several intervals to the highest: it lies where all of them lie.

        Its value is the first one's. It has no standard error.
        """
        each = [e if isinstance(e, Estimate) else cls.of(name, e) for e in estimates]
        if len(each) == 1:
            return replace(each[0], name=name, unit=unit)

        def around(ends: Sequence[Region]) -> Region:
            lows, highs = np.array(ends).T
            return float(np.min(lows)), float(np.max(highs))  # NaN if one is

        n_tails = max(1, *(len(e.tails) for e in each))
        tails = []
        for k in range(1, 1 + n_tails):
            tails.append(around([e.tail(k) for e in each]))
        extremes = []
        for chance in EXTREMES:
            extremes.append(around([e.beyond(chance) for e in each]))
        low, high = tails[0]
        return cls(
            name,
            each[0].value,
            low,
            high,
            unit,
            tails=tuple(tails) if n_tails > 1 else (),
            positive=all(e.positive for e in each),
            extremes=tuple(extremes),
        )

    @property
    def known(self) -> bool:
        """Whether both ends are finite numbers."""
        return bool(np.isfinite([self.low, self.high]).all())

    def within(self, region: Region | None, k: int = 1) -> bool:
        """Whether the whole interval, at level 1 - 0.05 / k, lies in a region.

        No interval lies in None.
        """
        low, high = self.tail(k)
        return region is not None and bool(region[0] <= low and high <= region[1])

    def tail(self, k: int) -> Region:
        """The interval at level 1 - 0.05 / k.

        Where it was not computed, the ends at level 0.95 move away from the value as a normal law's
        would.
        """
        if k == 1:
            return self.low, self.high
        if k <= len(self.tails):
            return self.tails[k - 1]
        return self._as_normal((1 - LEVEL) / k)

    def _as_normal(self, error: float) -> Region:
        """Ends that miss the truth with a chance of `error`, if errors follow a normal law.

        The normal law is the one that has the ends of the interval at level 0.95.
        """
        wider = half_width(error) / half_width(1 - LEVEL)
        return self.value - wider * (self.value - self.low), self.value + wider * (
            self.high - self.value
        )

    def beyond(self, chance: float) -> Region:
        """The ends beyond which the truth lies with a small chance, on either side.

        Between two chances in `EXTREMES` ends lie on a line in the logarithm of the chance. Where
        none were computed, the ends at level 0.95 move away from the value as a normal law's would.

        >>> found = Estimate("share", 0.5, 0.4, 0.6, extremes=((0.3, 0.7), (0.2, 0.8), (0.1, 0.9)))
        >>> found.beyond(1e-4), Estimate.exactly("share", 0.5).beyond(1e-4)
        ((0.2, 0.8), (0.5, 0.5))
        """
        if not self.extremes:
            return self._as_normal(2 * chance)
        chances = np.log(EXTREMES)[::-1]  # in ascending order
        if np.log(chance) < chances[0]:  # rarer than what was computed
            return -INF, INF
        lows, highs = np.array(self.extremes)[::-1].T
        low = np.interp(np.log(chance), chances, lows)
        high = np.interp(np.log(chance), chances, highs)
        return float(low), float(high)

    def firmly_within(self, region: Region, chance: float) -> bool:
        """Whether it lies in a region for all but a small chance.

        A number without error must lie inside by a margin. The margin is 5 % of the region's end.
        Only ends that are thresholds count: no size is below the 0 where a region like (0, 0.1)
        begins, and no share above the 1 where one like (0.9, 1) stops.

        >>> balance = Estimate.exactly("imbalance", 0.209)
        >>> balance.firmly_within((0.2, INF), 1e-4), balance.firmly_within((0.1, INF), 1e-4)
        (False, True)
        """
        low, high = self.beyond(chance)
        least, most = region
        if low == high:
            least = least + MARGIN * abs(least) if math.isfinite(least) else least
            most = most - MARGIN * abs(most) if math.isfinite(most) else most
        begins_at_nothing = region[0] == 0 and math.isfinite(region[1])
        ends_at_all = region[1] == 1 and region[0] > 0
        return bool((begins_at_nothing or least <= low) and (ends_at_all or high <= most))


Found = Estimate | Interval | SupportsFloat  # what a claim's function gives for a quantity


@dataclass(frozen=True)
class Condition:
    """Where one quantity of a claim's evidence must lie.

    Attributes:
        quantity: its key in the evidence.
        name: what it is, in words that can begin a sentence: "share of heads that turn".
        supports: the region that supports the claim.
        contradicts: the region that contradicts it; None where the quantity can only fail to
            support.
        unit: what it is measured in. "share" is shown in percent, "log10" and "ln" as factors.
        scale: how a figure should draw the axis.
        optional: not asked where the evidence lacks the quantity (a matched model that is not at
            hand, say).
        denied: what is true where this condition contradicts, as a sentence; the claim's own
            `denied` where it is empty.

    Raises:
        InputError: the name is no text.

    >>> c = Condition("share", "share of heads", at_least(0.9, 1.0), at_most(0.5, 0.0), "share")
    >>> for value, high in ((0.95, 1.0), (0.85, 1.0), (0.1, 0.4)):
    ...     c.outcome(Estimate("share", value, value, high))
    'supported'
    'inconclusive'
    'contradicted'
    >>> c.words("agrees", "differs")
    'at least 90 % agrees, at most 50 % differs'
    """

    quantity: str
    name: str
    supports: Region
    contradicts: Region | None = None
    unit: str = ""
    scale: Literal["linear", "log"] = "linear"
    optional: bool = False
    denied: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InputError(
                "a condition is Condition(quantity, name, supports, contradicts, unit): its second "
                f"argument says in words what the quantity is, but got {shown(self.name)}"
            )
        object.__setattr__(self, "supports", _region(self.supports))
        object.__setattr__(self, "contradicts", self.contradicts and _region(self.contradicts))

    def outcome(self, estimate: Estimate, k: int = 1) -> Verdict:
        """The region that holds the whole interval, if exactly one does.

        Args:
            estimate: of the quantity.
            k: conditions of which any may contradict: the interval for that is the one at level
                1 - 0.05 / k.
        """
        inside = estimate.within(self.supports), estimate.within(self.contradicts, k)
        if not estimate.known or inside[0] == inside[1]:
            return "inconclusive"
        return "supported" if inside[0] else "contradicted"

    def words(self, yes: str = "supports", no: str = "contradicts") -> str:
        """The regions in words, in natural units."""
        asked = f"{region(self.supports, self.unit)} {yes}"
        if self.contradicts is None:
            return asked
        return f"{asked}, {opposite(self.supports, self.contradicts, self.unit)} {no}"

    def said(self, found: Estimate, verdict: Verdict) -> str:
        """A sentence about the number: what it is, its interval, and the threshold that it meets.

        Both thresholds stand there where it meets neither.

        Args:
            found: the number.
            verdict: what follows from it.

        >>> c = Condition("ratio", "error over best", at_most(1.25), at_least(2), "times")
        >>> c.said(Estimate("ratio", 3.0, 2.5, 3.5), "contradicted")
        'Error over best: 3 [2.5, 3.5] times (contradicted: at least 2).'
        >>> c.said(Estimate("ratio", 1.5, 1.1, 2.5), "inconclusive")
        'Error over best: 1.5 [1.1, 2.5] times (supported: at most 1.25; contradicted: at least 2).'
        """
        asked = f"supported: {region(self.supports, self.unit)}"
        limits = [asked]
        if self.contradicts is not None:
            limits.append(f"contradicted: {opposite(self.supports, self.contradicts, self.unit)}")
        met = {"supported": limits[:1], "contradicted": limits[1:]}.get(verdict, limits)
        number = measured(Interval(found.value, found.low, found.high), self.unit)
        return f"{self.name[:1].upper()}{self.name[1:]}: {number} ({'; '.join(met)})."


@dataclass(frozen=True)
class Precondition:
    """What must hold before a claim can be decided at all.

    Attributes:
        quantity: its key in the evidence.
        holds: the region in which the whole interval must lie.
        otherwise: the sentence that says why nothing is decided, which then begins the reason;
            "{value}" stands for the quantity's value.
        optional: not asked where the evidence lacks the quantity.
    """

    quantity: str
    holds: Region
    otherwise: str
    optional: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "holds", _region(self.holds))

    def why(self, value: float) -> str:
        """The sentence for a value outside of the region.

        A value that is no number has another one, since nothing is known of its size.

        >>> Precondition("R2", (0.9, 1.0), "R2 is only {value:.2g}.").why(float("nan"))
        "'R2' is no number here: what it is measured from overflows."
        """
        if math.isnan(value) and "{value" in self.otherwise:
            return f"{self.quantity!r} is no number here: what it is measured from overflows."
        return self.otherwise.format(value=value)


class Decision(NamedTuple):
    """A verdict, the condition that decided, and the sentence of the failed precondition, if any.

    `firm` says whether a verdict holds among many claims too: all supporting quantities, or the
    contradicting one, lie inside their regions for all but the chance `firm_chance`. It is None
    where nothing was decided.
    """

    verdict: Verdict
    condition: Condition | None
    failed: str | None = None
    firm: bool | None = None


@dataclass(frozen=True)
class Criterion:
    """The rule of a claim: conditions on quantities, and preconditions that are asked first.

    A claim is supported where all preconditions hold and all conditions support. It is contradicted
    where all preconditions hold and one condition contradicts. Everything else is inconclusive.
    Supporting intervals have level 0.95. Any of the k conditions that can contradict may do so by
    chance, so a contradicting interval has level 1 - 0.05 / k (Bonferroni).

    Attributes:
        conditions: at least one; the first is drawn where none decides.
        preconditions: asked in their order.
        terms: sentences that define the words of the conditions' names.

    Raises:
        InputError: there is no condition.

    >>> rule = Criterion(
    ...     (Condition("error", "relative error", at_most(0.1), (0.2, INF)),),
    ...     (Precondition("R2", (0.9, 1.0), "R2 is only {value:.2g}."),),
    ... )
    >>> rule.text
    'Relative error: at most 0.1 supports, at least 0.2 contradicts.'
    >>> error, learned = Estimate("error", 0.05, 0.02, 0.08), Estimate.exactly("R2", 0.95)
    >>> rule.decide({"error": error, "R2": learned}).verdict
    'supported'
    >>> rule.decide({"error": error, "R2": Estimate.exactly("R2", 0.3)}).failed
    'R2 is only 0.3.'
    """

    conditions: tuple[Condition, ...]
    preconditions: tuple[Precondition, ...] = ()
    terms: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.conditions, tuple) or not self.conditions:
            raise InputError(
                "a criterion is Criterion(conditions, preconditions, terms) with a tuple of at "
                f"least one condition, but got {shown(self.conditions)}"
            )

    @property
    def text(self) -> str:
        """The rule in words, with its thresholds; then the terms."""
        rules = "; ".join(f"{c.name}: {c.words()}" for c in self.conditions if c.name)
        rules = f"{rules[:1].upper()}{rules[1:]}"
        return f"{rules}. {self.terms}".rstrip() if rules else self.terms

    def named(self, found: Mapping[str, Found]) -> dict[str, Estimate]:
        """Numbers as estimates, with the names and units of their conditions.

        Args:
            found: by the keys of the criterion; a plain number is one without error.
        """
        conditions = {c.quantity: c for c in self.conditions}
        estimates = {}
        for key, value in found.items():
            estimate = _estimate(key, value)
            condition = conditions.get(key)
            if condition is not None and condition.name:
                estimate = replace(estimate, name=condition.name, unit=condition.unit)
            estimates[key] = estimate
        return estimates

    def decide(self, evidence: Mapping[str, Estimate], n_claims: int = FEWEST_CLAIMS) -> Decision:
        """The verdict on quantities by key.

        Args:
            evidence: the quantities.
            n_claims: registered claims, among which a firm verdict holds.

        Raises:
            InputError: a quantity that is not optional is missing.
        """
        for p in self.preconditions:
            found = _quantity(p, evidence)
            if found is not None and not found.within(p.holds):
                return Decision("inconclusive", self._first(evidence), p.why(found.value))
        asked, k = self._asked(evidence)
        chance = firm_chance(n_claims, len(self.conditions))
        outcomes = [c.outcome(e, max(k, 1)) for c, e in asked]
        for (condition, found), outcome in zip(asked, outcomes, strict=True):
            if outcome == "contradicted" and condition.contradicts:
                return Decision(
                    outcome, condition, firm=found.firmly_within(condition.contradicts, chance)
                )
        if "inconclusive" in outcomes or not asked:
            return Decision(
                "inconclusive", asked[outcomes.index("inconclusive")][0] if asked else None
            )
        firm = all(e.firmly_within(c.supports, chance) for c, e in asked)
        return Decision("supported", asked[0][0], firm=firm)

    def _asked(
        self, evidence: Mapping[str, Estimate]
    ) -> tuple[list[tuple[Condition, Estimate]], int]:
        """Conditions whose quantities are there, with these; how many of them can contradict."""
        asked = []
        n_contradict = 0
        for condition in self.conditions:
            found = _quantity(condition, evidence)
            if found is not None:
                asked.append((condition, found))
                n_contradict += condition.contradicts is not None
        return asked, n_contradict

    def _first(self, evidence: Mapping[str, Estimate]) -> Condition | None:
        for condition in self.conditions:
            if condition.quantity in evidence:
                return condition
        return None


def _region(bounds: Sequence[SupportsFloat]) -> Region:
    """Plain floats, as they come back from JSON."""
    low, high = map(float, bounds)
    return low, high


def _estimate(key: str, found: Found) -> Estimate:
    if isinstance(found, Estimate):
        return found
    return Estimate.of(key, found) if isinstance(found, Interval) else Estimate.exactly(key, found)


def _quantity(rule: Condition | Precondition, evidence: Mapping[str, Estimate]) -> Estimate | None:
    if rule.quantity not in evidence and not rule.optional:
        raise InputError(f"the evidence lacks {shown(rule.quantity)}, which the criterion asks for")
    return evidence.get(rule.quantity)
