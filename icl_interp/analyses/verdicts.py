"""Claims, criteria, verdicts and findings: from stored results to a judgement, without a model.

A claim names the measurements it needs and a pure function that judges them. Its criterion is fixed in the code, before
anything is measured. Judging stored results again takes milliseconds.
"""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

import numpy as np

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.measurement import TWIN, Measurement, Results, check_distinct
from icl_interp.errors import InputError, shown, unknown
from icl_interp.provenance import encode, finite
from icl_interp.resampling import Interval
from icl_interp.results import Result
from icl_interp.stored import Stored

log = logging.getLogger(__name__)

Verdict = Literal["supported", "contradicted", "inconclusive", "not_applicable"]
Kind = Literal["architecture", "learning"]

LEARNED_R2 = 0.9  # in-distribution R2 from which a model counts as having learned its task
MIN_FUNCTIONS = 16  # functions below which a bootstrap over functions is not to be trusted


def low_r2(facts: Facts) -> str | None:
    """Says that a model has not learned its task, by its R2; None for one that has."""
    return None if facts.r2 > LEARNED_R2 else f"in-distribution R2 {facts.r2:.3f}, {LEARNED_R2} needed"


@dataclass(frozen=True)
class Estimate:
    """A number with its interval and unit."""

    name: str
    value: float
    low: float
    high: float
    unit: str = ""

    @classmethod
    def of(cls, name: str, interval: Interval, unit: str = "") -> "Estimate":
        """An interval with a name."""
        return cls(name, interval.value, interval.low, interval.high, unit)


@dataclass(frozen=True)
class Criterion:
    """Where an estimate must lie for a verdict; what lies between the two regions is inconclusive.

    Attributes:
        text: the rule in words, with its thresholds.
        supported: the region (low, high) that supports the claim.
        contradicted: the region that contradicts it.
        scale: how a figure should draw the axis.

    >>> c = Criterion("at most 0.1 / above 0.2", supported=(-np.inf, 0.1), contradicted=(0.2, np.inf))
    >>> c.verdict(Interval(0.05, 0.02, 0.08)), c.verdict(Interval(0.05, 0.02, 0.12))
    ('supported', 'inconclusive')
    """

    text: str
    supported: tuple[float, float]
    contradicted: tuple[float, float]
    scale: Literal["linear", "log"] = "linear"

    def verdict(self, interval: Interval | Estimate) -> Verdict:
        """The region that holds the whole interval, if one does."""
        if self.supported[0] <= interval.low and interval.high <= self.supported[1]:
            return "supported"
        if self.contradicted[0] <= interval.low and interval.high <= self.contradicted[1]:
            return "contradicted"
        return "inconclusive"


@dataclass(frozen=True)
class Judgement:
    """What a claim's judge says; `Claim.judge_results` turns it into a finding.

    Attributes:
        estimate: the effect size with its interval; None where nothing could be estimated.
        reason: one or two sentences with the numbers that decide.
        verdict: None to let the claim's criterion decide on the estimate.
        scope: what the verdict holds for.
        test: the quantity that the criterion reads, where it is not the estimate itself.
        causal: the causal counterpart: intervention, effect, sham, cost.
        twin: the same estimate on an untrained twin.
        twin_verdict: its verdict: a learning claim that the twin "supports" too is at most inconclusive.
        details: further numbers, a mapping a row (heads, signs, arms).
    """

    estimate: Estimate | None
    reason: str
    verdict: Verdict | None = None
    scope: str = ""
    test: Estimate | None = None
    causal: dict[str, Any] | None = None
    twin: Estimate | None = None
    twin_verdict: Verdict | None = None
    details: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Finding:
    """A verdict on a claim about one model, with everything needed to check it. `to_dict` gives the report's schema.

    `error` says what went wrong where a measurement or the judge failed; the verdict is then inconclusive.
    """

    id: str
    study: str
    kind: Kind
    statement: str
    source: str
    verdict: Verdict
    reason: str
    criterion: Criterion
    estimate: Estimate | None = None
    test: Estimate | None = None
    scope: str = ""
    causal: dict[str, Any] | None = None
    twin: Estimate | None = None
    details: tuple[dict[str, Any], ...] = ()
    figures: tuple[str, ...] = ()
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {**asdict(self), "details": list(self.details), "figures": list(self.figures)}

    def __repr__(self) -> str:
        e = self.estimate
        found = f"{e.value:.4g} [{e.low:.4g}, {e.high:.4g}] {shown(e.unit)[1:-1]}".rstrip() if e else "no estimate"
        return f"Finding({shown(self.id)}, {self.verdict}, {found})"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str = "finding") -> "Finding":
        """The finding that `to_dict` wrote, also after a trip through JSON.

        Args:
            where: names the place of the data in messages.

        Raises:
            InputError: the data are no such finding; the message names the place.
        """
        stored = Stored(data, where)
        stored.members(field.name for field in fields(cls))
        words = ("id", "study", "statement", "source", "reason", "scope")
        causal = stored["causal"]
        return cls(
            **{key: stored[key].text() for key in words},
            kind=stored["kind"].one_of(get_args(Kind)),
            verdict=stored["verdict"].one_of(get_args(Verdict)),
            criterion=_criterion(stored["criterion"]),
            **{key: _estimate(stored[key]) for key in ("estimate", "test", "twin")},
            causal=None if causal.value is None else causal.facts(),
            details=tuple(row.facts() for row in stored["details"].items()),
            figures=tuple(name.text() for name in stored["figures"].items()),
            error=error.text() if (error := stored.get("error")) else None,
        )


def _criterion(stored: Stored) -> Criterion:
    stored.members(field.name for field in fields(Criterion))
    supported, contradicted = (
        tuple(bound.number() for bound in stored[region].items(2)) for region in ("supported", "contradicted")
    )
    scale = stored["scale"].one_of(("linear", "log"))
    return Criterion(stored["text"].text(), supported, contradicted, scale)


def _estimate(stored: Stored) -> Estimate | None:
    if stored.value is None:
        return None
    stored.members(field.name for field in fields(Estimate))
    value, low, high = (stored[key].number() for key in ("value", "low", "high"))
    return Estimate(stored["name"].text(), value, low, high, stored["unit"].text())


def said(error: Exception) -> str:
    """An error in one line, with its type: a KeyError's own text is a bare name."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text if len(text) <= 300 else text[:300] + '...'}"


@dataclass(frozen=True)
class Claim:
    """A published statement and how it is put to the test.

    Attributes:
        id: "study.claim".
        kind: *architecture* (follows from the design, so an untrained twin shows it too and serves as a positive
            control) or *learning* (made by training, so the twin must fail and the model must have learned its task).
        statement: what is claimed. source: by whom, where.
        criterion: fixed before looking.
        measurements: what must be measured on the model. twin: what must be measured on its untrained twin; such
            results are stored as "twin/<name>".
        judge: a pure function of the stored results and the facts about the model.
        excluded: says why the claim cannot apply to a model with these facts, or None if it can.
        learned: for learning claims: says how far a model with these facts is from having learned its task, or None.
        figures: names of the report's figures that show it.
    """

    id: str
    kind: Kind
    statement: str
    source: str
    criterion: Criterion
    measurements: tuple[Measurement[Any], ...]
    judge: Callable[[Results, Facts], Judgement]
    twin: tuple[Measurement[Any], ...] = ()
    excluded: Callable[[Facts], str | None] = field(default=lambda facts: None)
    learned: Callable[[Facts], str | None] = field(default=low_r2)
    figures: tuple[str, ...] = ()

    @property
    def study(self) -> str:
        """The part of the id before the dot."""
        return self.id.partition(".")[0]

    def finding(self, results: Mapping[str, Result], facts: Facts) -> Finding:
        """The finding that these results give; an error on the way makes it inconclusive and is said and logged.

        One broken claim then costs no other its finding. Errors of measurements stand in `facts.failed` by name.
        """
        try:
            failed = facts.failed
            names = [name for name in self.needs if name in failed]
            if names and not self.excluded(facts):
                return self._broken("; ".join(f"measuring {name!r} failed with {failed[name]}" for name in names))
            finding = self.judge_results(results, facts)
            json.dumps(finite(encode(finding.to_dict())))  # what cannot be written would cost the whole report later
            return finding
        except Exception as error:
            log.warning("judging %s failed", self.id, exc_info=True)
            return self._broken(f"judging failed with {said(error)}")

    def applies(self, facts: Facts) -> bool:
        """Whether its measurements should be taken: it is not excluded, and saying so does not fail."""
        try:
            return not self.excluded(facts)
        except Exception:  # `finding` says and logs it
            return False

    @property
    def needs(self) -> dict[str, Measurement[Any]]:
        """All measurements by the names of their results."""
        return {m.name: m for m in self.measurements} | {TWIN + m.name: m for m in self.twin}

    def _broken(self, error: str) -> Finding:
        reason = f"{self.id} could not be judged: {error}. The log has the traceback."
        return Finding(
            self.id, self.study, self.kind, self.statement, self.source, "inconclusive", reason, self.criterion,
            figures=self.figures, error=error,
        )  # fmt: skip

    def judge_results(self, results: Mapping[str, Result], facts: Facts) -> Finding:
        """The finding that these results give; an error in the judge passes through (`finding` catches it)."""
        if reason := self.excluded(facts):
            judgement = Judgement(None, reason, "not_applicable")
        elif reason := facts.unmeasured():
            judgement = Judgement(None, f"{reason}: no claim can be judged.", "inconclusive")
        else:
            judgement = self.judge(Results(results), facts)
        if not isinstance(judgement, Judgement):
            raise TypeError(f"the judge of {self.id} returned {type(judgement).__name__}: return a Judgement")
        verdict = judgement.verdict
        if verdict is None:
            e, verdict = judgement.test or judgement.estimate, "inconclusive"
            if e is not None and np.isfinite([e.low, e.high]).all():
                verdict = self.criterion.verdict(e)
        reason = judgement.reason
        if facts.n_functions < MIN_FUNCTIONS and verdict in ("supported", "contradicted"):
            few = f"an interval from {facts.n_functions} functions means little ({MIN_FUNCTIONS} needed)"
            verdict, reason = "inconclusive", f"{reason} But {few}: raise n_prompts."
        if self.kind == "learning" and verdict in ("supported", "contradicted"):
            verdict, reason = self._gate(verdict, reason, judgement, facts)
        return Finding(
            self.id, self.study, self.kind, self.statement, self.source, verdict, reason, self.criterion,
            judgement.estimate, judgement.test or judgement.estimate, judgement.scope, judgement.causal,
            judgement.twin, judgement.details, self.figures,
        )  # fmt: skip

    def _gate(self, verdict: Verdict, reason: str, judgement: Judgement, facts: Facts) -> tuple[Verdict, str]:
        """What training made can only be asked of a model that learned, and not of what holds untrained too."""
        short = self.learned(facts)
        if short:
            return "inconclusive", (
                f"{reason} But the model has not learned its task ({short}), so this says nothing about what training "
                "made."
            )
        if verdict == "supported" and judgement.twin_verdict == "supported":
            return "inconclusive", f"{reason} But an untrained twin passes as well, so training did not make it."
        return verdict, reason


REGISTRY: dict[str, Claim] = {}


def register(claim: Claim) -> Claim:
    """Add a claim: it then appears in every report. The id must be "study.claim" and new.

    Raises:
        InputError: the id is malformed or taken by another claim, or a measurement has the name of another one.
    """
    if claim.id.count(".") != 1 or not all(claim.id.split(".")):
        raise InputError(f"a claim's id looks like 'study.claim', but got {shown(claim.id)}")
    if REGISTRY.get(claim.id, claim) is not claim:
        raise InputError(f"a claim called {shown(claim.id)} is registered already: choose another id")
    taken = {m.name: m for other in REGISTRY.values() for m in (*other.measurements, *other.twin)}
    for m in (*claim.measurements, *claim.twin):
        check_distinct(taken, m)
    REGISTRY[claim.id] = claim
    return claim


def select(ids: tuple[str, ...] | list[str] | None) -> list[Claim]:
    """The registered claims with these ids, in the order of registration; all for None."""
    for name in ids or ():
        if name not in REGISTRY:
            raise unknown("claim", name, REGISTRY)
    return [claim for name, claim in REGISTRY.items() if ids is None or name in ids]
