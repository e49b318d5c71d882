"""Criteria: where quantities must lie for a verdict. They are fixed in the code before anything is measured.

A criterion decides by itself: it compares intervals with regions. So its words, the zones in a figure and the verdict
come from one object, and no claim can pass a verdict that its criterion does not say.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, SupportsFloat

import numpy as np

from icl_interp.errors import InputError, shown
from icl_interp.resampling import Interval

Verdict = Literal["supported", "contradicted", "inconclusive", "not_applicable"]
Region = tuple[float, float]  # low and high, these included
INF = float("inf")


@dataclass(frozen=True)
class Estimate:
    """A number with its interval and unit. A number without error has an interval without width."""

    name: str
    value: float
    low: float
    high: float
    unit: str = ""

    @classmethod
    def of(cls, name: str, interval: Interval, unit: str = "") -> "Estimate":
        """An interval with a name."""
        return cls(name, interval.value, interval.low, interval.high, unit)

    @classmethod
    def exactly(cls, name: str, value: SupportsFloat, unit: str = "") -> "Estimate":
        """A number without error."""
        return cls(name, float(value), float(value), float(value), unit)

    @classmethod
    def spanning(cls, name: str, estimates: "Sequence[Estimate | Interval]", unit: str = "") -> "Estimate":
        """From the lowest end of several intervals to the highest: it lies where all of them lie.

        Its value is the first one's.
        """
        low, high = np.min([e.low for e in estimates]), np.max([e.high for e in estimates])  # NaN where one is NaN
        return cls(name, estimates[0].value, float(low), float(high), unit)

    @property
    def known(self) -> bool:
        """Whether both ends are finite numbers."""
        return bool(np.isfinite([self.low, self.high]).all())

    def within(self, region: Region | None) -> bool:
        """Whether the whole interval lies in a region; no interval lies in None."""
        return region is not None and bool(region[0] <= self.low and self.high <= region[1])


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

    def outcome(self, estimate: Estimate) -> Verdict:
        """The region that holds the whole interval, if exactly one does."""
        inside = estimate.within(self.supports), estimate.within(self.contradicts)
        if not estimate.known or inside[0] == inside[1]:
            return "inconclusive"
        return "supported" if inside[0] else "contradicted"


@dataclass(frozen=True)
class Precondition:
    """What must hold before a claim can be decided at all.

    Attributes:
        quantity: its key in the evidence.
        holds: the region in which the whole interval must lie.
        otherwise: the sentence that says why nothing is decided; "{value}" stands for the quantity's value.
        optional: not asked where the evidence lacks the quantity.
    """

    quantity: str
    holds: Region
    otherwise: str
    optional: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "holds", _region(self.holds))


class Decision(NamedTuple):
    """A verdict, the condition that decided, and the sentence of the precondition that failed, if one did."""

    verdict: Verdict
    condition: Condition | None
    failed: str | None = None


@dataclass(frozen=True)
class Criterion:
    """Supported where all preconditions hold and all conditions support; contradicted where one of these contradicts.

    Everything else is inconclusive.

    Attributes:
        text: the rule in words, with its thresholds.
        conditions: at least one; the first is drawn where none decides.
        preconditions: asked in their order.

    >>> rule = Criterion(
    ...     "error at most 0.1 / above 0.2, of a model that learned",
    ...     (Condition("error", (-INF, 0.1), (0.2, INF)),),
    ...     (Precondition("R2", (0.9, 1.0), "But R2 is only {value:.2g}."),),
    ... )
    >>> error, learned = Estimate("error", 0.05, 0.02, 0.08), Estimate.exactly("R2", 0.95)
    >>> rule.decide({"error": error, "R2": learned}).verdict
    'supported'
    >>> rule.decide({"error": error, "R2": Estimate.exactly("R2", 0.3)}).failed
    'But R2 is only 0.3.'
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
        asked = [(c, c.outcome(e)) for c in self.conditions if (e := _quantity(c, evidence)) is not None]
        for verdict in ("contradicted", "inconclusive", "supported"):
            for condition, outcome in asked:
                if outcome == verdict:
                    return Decision(verdict, condition)
        return Decision("inconclusive", None)

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
