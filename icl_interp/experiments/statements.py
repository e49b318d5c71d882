"""Statements: what an experiment says about its source.

A criterion decides each, as it decides a claim's verdict.

No statement is free prose with a verdict in front: its first words follow from a `Criterion` and
the `Estimate`s that this compares with its regions, and the rule stands at the end of the sentence.
What nothing decides is a note.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, SupportsFloat

from icl_interp.analyses.criterion import (
    INF,
    Condition,
    Criterion,
    Decision,
    Estimate,
    Precondition,
    Verdict,
)
from icl_interp.analyses.natural import SHARE, Region
from icl_interp.errors import InputError, shown
from icl_interp.provenance import encode, finite
from icl_interp.resampling import Interval

AGREES = "As in the paper: "
DIFFERS = "Not as in the paper: "
OPEN = "Undecided: "
COUNTED = (AGREES, DIFFERS, OPEN)  # statements about what the source found
LEFT_OUT = "Not counted: "  # a precondition fails, so the question is not put
HOLDS = "Formula holds: "
FAILS = "Formula fails: "
UNSETTLED = "Formula undecided: "
MISPRINT = "Misprint in the source: "
BESIDE = (LEFT_OUT, HOLDS, FAILS, UNSETTLED, MISPRINT)  # listed apart, and counted neither way
WORDS = (*COUNTED, *BESIDE)

Kind = Literal["finding", "formula", "printed", "note"]
_WORDS: Mapping[str, Mapping[Verdict, str]] = {
    "finding": {"supported": AGREES, "contradicted": DIFFERS, "inconclusive": OPEN},
    "formula": {"supported": HOLDS, "contradicted": FAILS, "inconclusive": UNSETTLED},
    "printed": {"supported": HOLDS, "contradicted": MISPRINT, "inconclusive": UNSETTLED},
}


@dataclass(frozen=True)
class Statement:
    """One sentence about what came out.

    Attributes:
        text: the sentence without its first words and its rule.
        criterion: decides the first words; None for a note.
        evidence: what the criterion asks for, by key.
        kind: "finding", what the source found on models, is counted. "formula" checks algebra,
            "printed" a formula as the source prints it: neither is evidence about trained models,
            and neither is counted. "note" is decided by nothing.
        trained: whether the models have been trained at all; without, no finding is decided.
    """

    text: str
    criterion: Criterion | None = None
    evidence: Mapping[str, Estimate] = field(default_factory=dict)
    kind: Kind = "finding"
    trained: bool = True

    def __post_init__(self) -> None:
        if self.text.startswith(WORDS):
            raise InputError(
                "the words in front of a statement come from its criterion: leave them off "
                f"{self.text!r}"
            )
        if (self.criterion is None) != (self.kind == "note"):
            raise InputError(
                f"a note has no criterion, and every other statement has one: {shown(self.text)}"
            )

    @property
    def decision(self) -> Decision | None:
        """What the criterion says; None for a note."""
        return self.criterion and self.criterion.decide(self.evidence)

    @property
    def word(self) -> str:
        """The words in front; none for a note."""
        decision = self.decision
        if decision is None:
            return ""
        if self.kind == "finding":
            if not self.trained:
                return OPEN
            if decision.failed:
                return LEFT_OUT
        words = _WORDS[self.kind]
        return words[decision.verdict]

    @property
    def sentence(self) -> str:
        """The whole: the words in front, the text, the precondition that fails, the rule.

        >>> rule = at_most("error / error", 3)
        >>> statement("it is 2.", rule, 2.0).sentence
        'As in the paper: it is 2. Rule: error / error at most 3 agrees, above 3 differs.'
        """
        if self.criterion is None:
            return self.text
        parts = [self.text]
        decision = self.decision
        if decision and decision.failed:
            parts.append(decision.failed)
        parts.append(f"Rule: {self.rule}")
        return self.word + " ".join(filter(None, parts))

    @property
    def rule(self) -> str:
        """The rule in words: which numbers agree with the source, and which differ from it."""
        if self.criterion is None:
            return ""
        rules = []
        for condition in self.criterion.conditions:
            if condition.name:
                rules.append(f"{condition.name} {condition.words('agrees', 'differs')}")
        rule = f"{'; '.join(rules)}."
        terms = self.criterion.terms
        return f"{rule} {terms}" if terms else rule

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data: the sentence, its kind and word, and what decided."""
        decision = self.decision
        rule = None
        if self.criterion:
            rule = {
                "text": self.rule,
                "conditions": list(map(asdict, self.criterion.conditions)),
                "preconditions": list(map(asdict, self.criterion.preconditions)),
            }
        evidence = {key: asdict(estimate) for key, estimate in self.evidence.items()}
        data = {
            "sentence": self.sentence,
            "kind": self.kind,
            "word": self.word.rstrip(": "),
            "verdict": decision and decision.verdict,
            "decided by": decision and decision.condition and decision.condition.quantity,
            "criterion": rule,
            "evidence": evidence,
        }
        return finite(encode(data))


def statement(
    text: str,
    rule: Criterion,
    *found: Estimate | Interval | SupportsFloat,
    given: Mapping[str, SupportsFloat] | None = None,
    kind: Kind = "finding",
) -> Statement:
    """A statement about one quantity: that of the rule's only condition.

    Args:
        text: the sentence.
        rule: has one condition.
        found: one number, or several that must all lie in one region; a plain number is one without
            error.
        given: what its preconditions ask for.
        kind: as `Statement` has it.
    """
    (condition,) = rule.conditions
    quantity = condition.quantity
    evidence = {quantity: spanning(quantity, *found)}
    if given:
        for key, value in given.items():
            evidence[key] = Estimate.exactly(key, value)
    return Statement(text, rule, evidence, kind)


def spanning(quantity: str, *found: Estimate | Interval | SupportsFloat) -> Estimate:
    """One estimate from the lowest end of several numbers to the highest.

    A plain number is one without error.
    """
    each: list[Estimate | Interval] = []
    for one in found:
        if isinstance(one, (Estimate, Interval)):
            each.append(one)
        else:
            each.append(Estimate.exactly(quantity, one))
    return Estimate.spanning(quantity, each)


def note(text: str) -> Statement:
    """A sentence that nothing decides."""
    return Statement(text, kind="note")


def as_statements(lines: Iterable[Statement | str]) -> tuple[Statement, ...]:
    """Statements; plain text is a note."""
    return tuple(note(line) if isinstance(line, str) else line for line in lines)


# ---- rules ---------------------------------------------------------------------------------------


def at_most(
    quantity: str, bound: float, differs: float | None = None, *preconditions: Precondition
) -> Criterion:
    """Agrees up to a bound, and differs above it or from another bound on.

    What lies between the bounds is open.
    """
    above = bound if differs is None else differs
    return _rule(quantity, (-INF, bound), (above, INF), preconditions)


def at_least(
    quantity: str, bound: float, differs: float | None = None, *preconditions: Precondition
) -> Criterion:
    """Agrees from a bound on, and differs below it or up to another bound.

    What lies between the bounds is open.
    """
    below = bound if differs is None else differs
    return _rule(quantity, (bound, INF), (-INF, below), preconditions)


def within(quantity: str, bound: float) -> Criterion:
    """Agrees up to a bound; nothing differs: beyond it the question is open."""
    return _rule(quantity, (-INF, bound), None)


def none_of(quantity: str) -> Criterion:
    """Agrees where a number of exceptions is 0, and differs from 1 on."""
    return _rule(f"number of {quantity}", (0, 0), (1, INF))


MOSTLY = 0.8  # share of cells: four of five is most of them
HARDLY = 0.6  # three of five is little more than half


def share(quantity: str, *preconditions: Precondition) -> Criterion:
    """Agrees where at least `MOSTLY` of the cells do, differs where at most `HARDLY` of them do."""
    return _rule(quantity, (MOSTLY, 1), (0, HARDLY), preconditions, SHARE)


def _rule(
    quantity: str,
    agrees: Region,
    differs: Region | None,
    preconditions: tuple[Precondition, ...] = (),
    unit: str = "",
) -> Criterion:
    """The rule about one quantity, whose key is its name."""
    condition = Condition(quantity, quantity, agrees, differs, unit)
    return Criterion((condition,), preconditions)


def share_of(quantity: str, agree: int, unclear: int, total: int) -> Estimate:
    """The share of cells that agree; unclear ones count both ways."""
    low = agree / total
    high = (agree + unclear) / total
    return Estimate(quantity, low, low, high)


def counts(lines: Sequence[str]) -> dict[str, int]:
    """How many sentences of each kind a record has, by their words.

    >>> lines = ["As in the paper: a.", "Misprint in the source: b.", "A note."]
    >>> counts(lines)["As in the paper: "]
    1
    """
    found = {}
    for word in WORDS:
        found[word] = sum(line.startswith(word) for line in lines)
    return found
