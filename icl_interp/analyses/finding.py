"""Findings: verdicts with everything needed to check them, and their way to JSON and back."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from icl_interp.analyses.criterion import Condition, Criterion, Estimate, Precondition, Verdict
from icl_interp.errors import shown
from icl_interp.renamed import with_old_names
from icl_interp.resampling import EXTREMES
from icl_interp.stored import Stored

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


TEXTS = ("id", "study", "statement", "source", "reason", "scope")


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
        attributes = {f.name for f in fields(cls)} - {"decided_by", "control"}
        stored.members({*attributes, "twin"})
        causal, criterion = stored["causal"], _criterion(stored["criterion"])
        evidence = stored.get("evidence")
        return cls(
            **{key: stored[key].text() for key in TEXTS},
            kind=stored["kind"].one_of(get_args(Kind)),
            verdict=stored["verdict"].one_of(get_args(Verdict)),
            criterion=criterion,
            decided_by=_decided(stored["criterion"], criterion),
            estimate=_estimate(stored["estimate"]),
            test=_estimate(stored["test"]),
            control=_estimate(stored["twin"]),
            causal=None if causal.value is None else causal.facts(),
            details=tuple(row.facts() for row in stored["details"].items()),
            figures=tuple(name.text() for name in stored["figures"].items()),
            **{key: one.text() if (one := stored.get(key)) else None for key in ("error", "kept")},
            **{
                key: one.text() if (one := stored.get(key)) else "" for key in ("question", "short")
            },
            quote=_quote(stored.get("quote")),
            firm=_truth(stored.get("firm")),
            evidence={key: e for key, one in evidence.members().items() if (e := _estimate(one))}
            if evidence
            else {},
        )


def _criterion(stored: Stored) -> Criterion:
    """A criterion; one from before there were conditions has the one that it tells of."""
    keys = (
        "text",
        "supported",
        "contradicted",
        "scale",
        "decided_by",
        "conditions",
        "preconditions",
        "terms",
    )
    stored.members(keys)
    text, conditions, preconditions = (
        stored["text"].text(),
        stored.get("conditions"),
        stored.get("preconditions"),
    )
    if conditions is None:
        return Criterion((_only(stored),), terms=text)
    if not conditions.items():
        raise conditions.refused("a list of at least one condition")
    # In reports from before conditions had names the whole rule is text.
    terms = stored.get("terms")
    return Criterion(
        tuple(map(_condition, conditions.items())),
        tuple(map(_precondition, preconditions.items())) if preconditions else (),
        terms.text() if terms else text,
    )


def _decided(stored: Stored, criterion: Criterion) -> Condition:
    name = stored.get("decided_by")
    if name is None:
        return criterion.conditions[0]
    names = [c.quantity for c in criterion.conditions]
    return criterion.conditions[names.index(name.one_of(names))]


def _only(stored: Stored) -> Condition:
    regions = _region(stored["supported"]), _region(stored["contradicted"])
    return Condition("estimate", "", *regions, scale=_scale(stored))


def _condition(stored: Stored) -> Condition:
    stored.members(f.name for f in fields(Condition))
    contradicts = stored.get("contradicts")
    words = {key: stored.get(key) for key in ("name", "unit", "denied")}  # new in later reports
    return Condition(
        stored["quantity"].text(),
        supports=_region(stored["supports"]),
        contradicts=_region(contradicts) if contradicts else None,
        scale=_scale(stored),
        optional=bool(stored["optional"].value),
        **{key: one.text() if one else "" for key, one in words.items()},
    )


def _precondition(stored: Stored) -> Precondition:
    stored.members(f.name for f in fields(Precondition))
    quantity, otherwise = stored["quantity"].text(), stored["otherwise"].text()
    return Precondition(
        quantity, _region(stored["holds"]), otherwise, bool(stored["optional"].value)
    )


def _scale(stored: Stored) -> Any:
    return stored["scale"].one_of(("linear", "log"))


def _quote(stored: Stored | None) -> Quote | None:
    if stored is None:
        return None
    stored.members(f.name for f in fields(Quote))
    return Quote(*(stored[f.name].text() for f in fields(Quote)))


def _region(stored: Stored) -> tuple[float, float]:
    low, high = (bound.number() for bound in stored.items(2))
    return low, high


def _estimate(stored: Stored) -> Estimate | None:
    if stored.value is None:
        return None
    stored.members(f.name for f in fields(Estimate))
    value, low, high = (stored[key].number() for key in ("value", "low", "high"))
    # Reports from before there were standard errors lack the rest.
    se, tails, positive, extremes = (
        stored.get(key) for key in ("se", "tails", "positive", "extremes")
    )
    return Estimate(
        stored["name"].text(),
        value,
        low,
        high,
        stored["unit"].text(),
        math.nan
        if se is None or math.isnan(se.number())
        else se.number(),  # one NaN, so that equal findings are equal
        tuple(map(_region, tails.items())) if tails else (),
        bool(_truth(positive)),
        tuple(map(_region, extremes.items(len(EXTREMES)))) if extremes and extremes.value else (),
    )


def _truth(stored: Stored | None) -> bool | None:
    if stored is None:
        return None
    if not isinstance(stored.value, bool):
        raise stored.refused("true, false or null")
    return stored.value
