"""Findings: verdicts with everything needed to check them, and their way to JSON and back."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from icl_interp.analyses.criterion import (
    Condition,
    Criterion,
    Estimate,
    Precondition,
    Region,
    Verdict,
)
from icl_interp.descriptions import as_table
from icl_interp.errors import shown
from icl_interp.renamed import with_old_names
from icl_interp.resampling import EXTREMES
from icl_interp.structured import Stored

Kind = Literal["architecture", "learning"]


@dataclass(frozen=True)
class Quote:
    """The sentence of a work that a claim puts to the test.

    Attributes:
        text: the words.
        place: where they stand.
        differs: where the test is narrower or wider than they are.
    """

    text: str
    place: str
    differs: str = ""


@with_old_names(twin="control")
@dataclass(frozen=True)
class Finding:
    """A verdict on a claim about one model. `to_dict` gives the report's schema.

    Attributes:
        estimate: the effect size.
        test: the quantity that decided.
        control: the same of an untrained control.
        decided_by: the condition that decided; the criterion's first one where none could.
        evidence: every quantity that the criterion asked for, by its key.
        error: what went wrong where a measurement or the evidence failed; the verdict is then
            inconclusive.
        kept: why a verdict was not judged again, where that was asked for.
        question, short, quote: the claim's.
        firm: whether the verdict holds among many claims too (`Decision.firm`); None where nothing
            was decided.
        vacuous: whether a decided verdict is true of every network of this kind, by its design or
            by sizes alone (`Remarks.by_algebra`): it is no evidence of what training made.
    """

    id: str
    study: str
    kind: Kind
    statement: str
    source: str
    verdict: Verdict
    reason: str
    criterion: Criterion
    decided_by: Condition
    estimate: Estimate | None = None
    test: Estimate | None = None
    scope: str = ""
    causal: dict[str, Any] | None = None
    control: Estimate | None = None
    details: tuple[dict[str, Any], ...] = ()
    figures: tuple[str, ...] = ()
    error: str | None = None
    evidence: Mapping[str, Estimate] = field(default_factory=dict)
    kept: str | None = None
    question: str = ""
    short: str = ""
    quote: Quote | None = None
    firm: bool | None = None
    vacuous: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        decided = self.decided_by
        criterion = {
            "text": self.criterion.text,
            "supported": decided.supports,
            "contradicted": decided.contradicts,
            "scale": decided.scale,
            "decided_by": decided.quantity,
            "conditions": [asdict(c) for c in self.criterion.conditions],
            "preconditions": [asdict(p) for p in self.criterion.preconditions],
            "terms": self.criterion.terms,
        }
        plain = asdict(self)
        kept = {
            **plain,
            "details": list(self.details),
            "figures": list(self.figures),
            "criterion": criterion,
            # The keys of reports stay, whatever an attribute is called.
            "twin": plain["control"],
        }
        return {key: value for key, value in kept.items() if key not in ("decided_by", "control")}

    def __repr__(self) -> str:
        e = self.estimate
        found = (
            f"{e.value:.4g} [{e.low:.4g}, {e.high:.4g}] {shown(e.unit)[1:-1]}".rstrip()
            if e
            else "no estimate"
        )
        return f"Finding({shown(self.id)}, {self.verdict}, {found})"

    def _repr_html_(self) -> str:
        firm = " (firm)" if self.firm else ""
        algebra = " (by algebra)" if self.vacuous else ""
        rows = {
            "verdict": f"{self.verdict.replace('_', ' ')}{firm}{algebra}",
            "claim": self.statement,
            "why": self.reason,
            "rule": self.criterion.text,
            "holds for": self.scope,
            "source": self.source,
        }
        return as_table(self.id, rows)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str = "finding") -> "Finding":
        """The finding that `to_dict` wrote, also after a trip through JSON.

        Args:
            data: what `to_dict` gave.
            where: names the place of the data in messages.

        Raises:
            InputError: the data are no such finding; the message names the place.
        """
        stored = Stored(data, where)
        stored.members({*cls.__annotations__, "twin"} - {"control", "decided_by"})
        told: dict[str, Any] = _judged_by(stored["criterion"])
        for name in ("estimate", "test"):
            told[name] = _estimate(stored[name])
        told["control"] = _estimate(stored["twin"])
        evidence = stored.get("evidence")
        each = evidence.members().items() if evidence else ()
        told["evidence"] = {key: e for key, one in each if (e := _estimate(one))}
        for f in fields(cls):
            if f.name not in told and (f.name in data or f.name not in _LATER):
                told[f.name] = stored[f.name].of(f.type)
        return cls(**told)


# Keys that older reports lack.
_LATER = ("error", "kept", "question", "short", "quote", "firm", "vacuous")


@dataclass(frozen=True)
class _StoredCriterion:
    """A criterion as a report holds it, with the condition that decided."""

    text: str
    supported: Region
    contradicted: Region | None
    scale: Literal["linear", "log"]
    decided_by: str | None = None
    conditions: tuple[Condition, ...] | None = None
    preconditions: tuple[Precondition, ...] = ()
    terms: str | None = None


def _judged_by(stored: Stored) -> dict[str, Any]:
    """The criterion, and the condition that decided.

    A criterion from before there were conditions has the one that it tells of.
    """
    told = Stored(_with_names(stored.value), stored.where).of(_StoredCriterion)
    conditions = told.conditions
    if conditions is None:
        regions = told.supported, told.contradicted
        conditions = (Condition("estimate", "", *regions, scale=told.scale),)
    if not conditions:
        raise stored["conditions"].refused("a list of at least one condition")
    decided = {c.quantity: c for c in reversed(conditions)}
    if told.decided_by is None:
        decided_by = conditions[0]
    else:
        decided_by = decided[stored["decided_by"].one_of(decided)]
    # In reports from before conditions had names the whole rule is text.
    terms = told.text if told.terms is None else told.terms
    criterion = Criterion(conditions, told.preconditions, terms)
    return {"criterion": criterion, "decided_by": decided_by}


def _with_names(criterion: Any) -> Any:
    """A stored criterion whose conditions have names; those of older reports get empty ones."""
    if not isinstance(criterion, Mapping) or not isinstance(criterion.get("conditions"), list):
        return criterion
    conditions = []
    for one in criterion["conditions"]:
        conditions.append({"name": "", **one} if isinstance(one, Mapping) else one)
    return {**criterion, "conditions": conditions}


def _estimate(stored: Stored) -> Estimate | None:
    e = stored.of(Estimate | None)
    if e is None:
        return None
    if len(e.extremes) not in (0, len(EXTREMES)):
        raise stored["extremes"].refused(f"a list of {len(EXTREMES)}")
    # One NaN, so that equal findings are equal.
    return replace(e, se=math.nan) if math.isnan(e.se) else e
