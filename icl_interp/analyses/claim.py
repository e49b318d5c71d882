"""Claims: what a work says, how it is measured and what decides.

Judging takes milliseconds and no model.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from icl_interp.analyses.criterion import Criterion, Decision, Estimate, Found, Verdict
from icl_interp.analyses.facts import LEARNED_R2, Facts
from icl_interp.analyses.finding import Finding, Kind, Quote
from icl_interp.analyses.measurement import CONTROL, CONTROLS, Measurement, Results
from icl_interp.analyses.reasons import fitted, said
from icl_interp.analyses.tie import TIED
from icl_interp.errors import InputError, in_one_line, logger, unreadable
from icl_interp.provenance import encode, finite
from icl_interp.renamed import with_old_names
from icl_interp.results import Result

__all__ = ["EXPLAINS", "LEARNED_R2", "Claim", "Evidence", "Remarks", "asked_once", "low_r2"]

log = logger(__name__)

# In the reason of each claim that is open because of it.
NOT_LEARNED = "The model has not learned its task"
# Of a precondition on `Facts.learned`: the sentence goes on with what cannot be told then.
EXPLAINS = (
    f"The model explains {{value:.3g}} of what can be explained in distribution ({LEARNED_R2} "
    "needed)"
)
MIN_UNITS = 32  # units below which a bootstrap over units is not to be trusted
OUTPUTS = "outputs"  # what a claim reads that predictions alone decide
NO_CONTROL = (
    "There is no untrained control to compare with (pass control=), so this says nothing about "
    "training."
)
OPPOSITE: dict[Verdict, Verdict] = {"supported": "contradicted", "contradicted": "supported"}
QUESTIONS = ("far from the data", "attention", "functions", "algorithm", "weights and training")


def low_r2(facts: Facts) -> str | None:
    """Says that a model has not learned its task, by its R2; None for one that has."""
    return facts.not_learned()


@dataclass(frozen=True)
class Remarks:
    """What stands beside the numbers of a claim and decides nothing.

    Attributes:
        scope: what the numbers hold for.
        caveat: a sentence about what limits the answer. It is left out of a reason that begins with
            something else that decides (a failed precondition, or a control).
        open_because: where a verdict is open, why, as a sentence, if the numbers do not say it:
            which matched models are missing, say. Where a precondition failed, it follows what that
            one says.
        estimate: the effect size; the first condition's quantity where it is not given.
        by_algebra: of a verdict that follows from the design or from sizes alone: why, as a clause.
            Its answer then begins with "By algebra" and ends with the clause.
        causal: the causal test: intervention, effect, control intervention, cost.
        details: further numbers, a mapping a row (heads, signs, test conditions).
    """

    scope: str = ""
    caveat: str = ""
    open_because: str = ""
    by_algebra: str = ""
    estimate: Estimate | None = None
    causal: dict[str, Any] | None = None
    details: tuple[dict[str, Any], ...] = ()


@with_old_names(twin="control")
@dataclass(frozen=True)
class Evidence:
    """The numbers of a claim with their words, as a finding holds them.

    A claim's function gives numbers alone, and the criterion the words. A function of a claim that
    is older than this may return an `Evidence`.

    Attributes:
        quantities: what the criterion asks for, by key. What cannot be measured is left out.
        says: at most two sentences: the answer to the claim, and the number that decides, with its
            threshold.
        estimate: the effect size; the first condition's quantity where it is not given.
        scope: what the numbers hold for.
        causal: the causal test: intervention, effect, control intervention, cost.
        control: the same quantities of an untrained control.
        details: further numbers, a mapping a row (heads, signs, test conditions).
        caveat: a third sentence, about what limits the answer. It is left out of a reason that
            begins with something else that decides (a failed precondition, or a control).
        by_algebra: of a verdict that follows from the design or from sizes alone: why.
    """

    quantities: Mapping[str, Estimate]
    says: str
    estimate: Estimate | None = None
    scope: str = ""
    causal: dict[str, Any] | None = None
    control: Mapping[str, Estimate] = field(default_factory=dict)
    details: tuple[dict[str, Any], ...] = ()
    caveat: str = ""
    by_algebra: str = ""


@with_old_names("short", "source", twin="control", twins_agree="controls_agree")
@dataclass(frozen=True)
class Claim:
    """Something that can be true of a trained model, and how it is put to the test.

    Attributes:
        id: "study.claim".
        kind: "architecture" follows from the design and holds for an untrained control too;
            "learning" is about what training made, so the verdict is at most inconclusive for a
            model that did not learn, or whose untrained control passes as well.
        statement: what is claimed, as a sentence about the model. It begins the reason of a
            supported verdict.
        denied: the opposite sentence. It begins the reason of a contradicted one, unless the
            condition that decided has its own.
        criterion: fixed before looking; it alone decides, and its conditions' names say what the
            numbers are.
        measurements: what must be measured on the model.
        evidence: numbers by the keys of the criterion, a pure function of the stored results and
            the facts about the model. The same function serves the model and its untrained control.
        remarks: what stands beside the numbers, from the results, the facts and the numbers.
        control: what must be measured on its untrained control; such results are stored as
            "twin/<name>". The control's evidence is found from these and, for what is not measured
            on it, from the model's own results.
        of_control: the quantities that tell of the control; all by default. The others rest on the
            model's own results alone.
        untrained: the control's numbers, from the same results and facts as `evidence`, where that
            cannot give them: a control is measured at fewer places (`results.control`), or claims
            that compare groups of runs find untrained models of each in the model's own results.
        excluded: says why the claim cannot apply to a model with these facts, in a sentence, or
            None if it can.
        of_numbers: whether it is about functions whose values are numbers, so that it cannot apply
            where they are vectors.
        controls_agree: of an architecture claim: whether it is inconclusive where most untrained
            controls show the opposite, because the design then does not decide what the model does.
        about_weights: whether its numbers are read off weights. Such a claim is judged only where
            the reading predicts what the model predicts and the part that was read is used: its
            criterion holds the preconditions `TIED` (`icl_interp.analyses.tie`).
        reads: "outputs" where predictions alone decide it; else what it reads of a model beside
            them, in words. A predictor that is seen from outside has nothing but outputs, so other
            claims do not apply to it.
        beside: kinds of matched models (`checkpoints.companions.KINDS`) that it compares the
            model's own kind with. Kinds that a model cannot have beside it ("no norm" of one that
            has none) are passed over.
        seeds: runs of each of these kinds, and of the model's own, that it asks for.
        aspects: what it is about beside the function that a model computes, in the words of
            `icl_interp.testing.reparameterisations.Aspect`: weights of the same function may then
            get different verdicts.
        learned: for learning claims: says how far a model with these facts is from having learned
            its task, or None.
        figures: names of the report's figures that show it.
        question: one of `QUESTIONS`, under which reports list it; "" for claims of one's own.
        quote: the sentence under test, where a work has one.
    """

    id: str
    kind: Kind
    statement: str
    criterion: Criterion
    measurements: tuple[Measurement[Any], ...]
    evidence: Callable[[Results, Facts], Mapping[str, Found] | Evidence]
    denied: str = ""
    remarks: Callable[[Results, Facts, Mapping[str, Estimate]], Remarks] | None = None
    control: tuple[Measurement[Any], ...] = ()
    of_control: tuple[str, ...] | None = None
    untrained: Callable[[Results, Facts], Mapping[str, Found]] | None = None
    excluded: Callable[[Facts], str | None] = field(default=lambda facts: None)
    of_numbers: bool = False
    controls_agree: bool = False
    about_weights: bool = False
    reads: str = "weights and activations"
    beside: tuple[str, ...] = ()
    seeds: int = 1
    aspects: tuple[str, ...] = ()
    learned: Callable[[Facts], str | None] = field(default=low_r2)
    figures: tuple[str, ...] = ()
    question: str = ""
    quote: Quote | None = None

    def __post_init__(self) -> None:
        if missing := [
            p.quantity for p in TIED if self.about_weights and p not in self.criterion.preconditions
        ]:
            raise InputError(
                f"{self.id} is about weights, so its criterion needs the preconditions "
                f"icl_interp.analyses.tie.TIED, but it lacks {missing}"
            )

    def found(self, results: Results, facts: Facts) -> Evidence:
        """The numbers of the model and of its first control, with their words.

        Raises:
            TypeError: the claim's function gave no numbers by key.
        """
        found = self.evidence(results, facts)
        if isinstance(found, Evidence):
            return found
        quantities, control = self._numbers(results, facts)
        remarks = self.remarks(results, facts, quantities) if self.remarks else Remarks()
        decision = self.criterion.decide(quantities)
        return Evidence(
            quantities,
            said(
                self.statement,
                self.denied,
                decision,
                quantities,
                remarks.open_because,
                remarks.by_algebra,
            ),
            estimate=remarks.estimate,
            scope=remarks.scope,
            causal=remarks.causal,
            control=control,
            details=remarks.details,
            caveat=remarks.caveat,
            by_algebra=remarks.by_algebra,
        )

    def _numbers(
        self, results: Results, facts: Facts
    ) -> tuple[Mapping[str, Estimate], Mapping[str, Estimate]]:
        """The numbers of the model and those of its first control, without words.

        Raises:
            TypeError: the claim's function gave no numbers by key.
        """
        found = self.evidence(results, facts)
        if isinstance(found, Evidence):
            return found.quantities, found.control
        if not isinstance(found, Mapping):
            raise TypeError(
                f"the evidence of {self.id} is a {type(found).__name__}: return numbers by the "
                "keys of its criterion"
            )
        return self.criterion.named(found), self._control_numbers(results, facts)

    def _control_numbers(self, results: Results, facts: Facts) -> dict[str, Estimate]:
        """The numbers of the first control that was measured; none without one."""
        its = results.control
        names = [m.name for m in self.control]
        if not all(name in its for name in names):
            return {}
        if self.untrained is not None:
            return self.criterion.named(self.untrained(results, facts))
        if not names:
            return {}
        # What is not measured on the control is the model's own.
        beside = Results({**results, **{name: its[name] for name in names}})
        found = self.evidence(beside, facts)
        assert isinstance(found, Mapping)
        named = self.criterion.named(found)
        if self.of_control is None:
            return named
        return {key: named[key] for key in named if key in self.of_control}

    @property
    def source(self) -> str:
        """Who claims it, where: the place of the quoted sentence, if a work has one."""
        return self.quote.place if self.quote else ""

    @property
    def study(self) -> str:
        """The part of the id before the dot."""
        return self.id.partition(".")[0]

    def finding(
        self, results: Mapping[str, Result], facts: Facts, file: Path | None = None
    ) -> Finding:
        """The finding that these results give.

        An error on the way makes it inconclusive and is said and logged.

        One broken claim then costs no other its finding. Errors of measurements stand in
        `facts.failed` by name. Where the results were read from a `file`, that is at fault: the log
        has a line, and no traceback.
        """
        try:
            names = [name for name in self.needs if name in facts.failed]
            if names and not self.exclusion(facts):
                why = [f"measuring {name!r} failed with {facts.failed[name]}" for name in names]
                return self._broken("; ".join(why))
            # A number that overflows decides nothing, and its reason says so: no warning is needed.
            with np.errstate(all="ignore"):
                finding = self.judge_results(results, facts)
            # What cannot be written would cost the whole report later.
            json.dumps(finite(encode(finding.to_dict())))
            return finding
        except Exception as error:
            if file is not None:
                blame = unreadable(file, "it", error)
                log.warning("%s could not be judged: %s", self.id, blame)
                return self._broken(f"judging failed with {in_one_line(error)}", blame)
            log.warning("judging %s failed", self.id, exc_info=True)
            return self._broken(f"judging failed with {in_one_line(error)}")

    def exclusion(self, facts: Facts) -> str | None:
        """Why the claim cannot apply to a model with these facts, as a sentence; None if it can."""
        if facts.outside and self.reads != OUTPUTS:
            return f"It needs weights ({self.reads}), and this predictor is seen from outside."
        if self.of_numbers and facts.n_targets > 1:
            values = f"vectors of {facts.n_targets} coordinates"
            return (
                "The claim is about functions whose values are numbers; this model predicts "
                f"{values}."
            )
        reason = self.excluded(facts)
        return f"{reason.rstrip('.')}." if reason else None

    def applies(self, facts: Facts) -> bool:
        """Whether to take its measurements: it is not excluded, and `exclusion` does not fail."""
        try:
            return not self.exclusion(facts)
        except Exception:  # `finding` says and logs it
            return False

    @property
    def needs(self) -> dict[str, Measurement[Any]]:
        """All measurements by the names of their results."""
        found = {m.name: m for m in self.measurements}
        for prefix in self.control_prefixes:
            for m in self.control:
                found[prefix + m.name] = m
        return found

    @property
    def control_prefixes(self) -> tuple[str, ...]:
        """Prefixes of the untrained controls that may be measured.

        There is one only, where controls decide nothing about the design.
        """
        return CONTROLS if self.kind == "learning" or self.controls_agree else CONTROLS[:1]

    def needs_another_control(self, results: Results, facts: Facts) -> bool:
        """Whether the verdict could still turn on an untrained control that has not been measured.

        The first is always needed, since its number is shown. The others matter only where controls
        could forbid the verdict, and the third only where the first two differ.
        """
        measured = sum(
            CONTROL + m.name in control for control in results.by_control for m in self.control[:1]
        )
        if not self.control or measured == len(self.control_prefixes):
            return False
        if not measured:
            return True
        if (
            facts.unmeasured()
            or facts.n_units < MIN_UNITS
            or (self.kind == "learning" and self.learned(facts))
        ):
            return False
        try:
            asked, first = self._numbers(results, facts)
            forbids = self._forbidding(self.criterion.decide(asked))
            if forbids is None:
                return False
            outcomes = self._outcomes_of_controls(asked, first, results, facts)
        except Exception:  # `finding` says and logs it
            return False
        n = outcomes.count(forbids)
        return max(n, len(outcomes) - n) <= len(self.control_prefixes) / 2

    def judge_results(self, results: Mapping[str, Result], facts: Facts) -> Finding:
        """The finding that these results give; errors pass through (`finding` catches them)."""
        if reason := self.exclusion(facts):
            return self._unasked("not_applicable", reason)
        if reason := facts.unmeasured():
            return self._unasked("inconclusive", f"{reason}: no claim can be judged.")
        evidence = self.found(Results(results), facts)
        decision = self.criterion.decide(evidence.quantities, facts.n_claims)
        verdict, reason = self._gated(decision, evidence, Results(results), facts)
        condition = decision.condition or self.criterion.conditions[0]
        reason, more = fitted(reason)  # what does not fit stands with the scope
        return replace(
            self._unasked(verdict, reason),
            decided_by=condition,
            estimate=evidence.estimate
            or evidence.quantities.get(self.criterion.conditions[0].quantity),
            test=evidence.quantities.get(condition.quantity),
            scope=" ".join(
                filter(
                    None,
                    (f"{evidence.scope}." if more and evidence.scope else evidence.scope, more),
                )
            ),
            causal=evidence.causal,
            control=evidence.control.get(condition.quantity),
            details=evidence.details,
            evidence=dict(evidence.quantities),
            firm=decision.firm if verdict == decision.verdict else None,
            vacuous=bool(evidence.by_algebra) and verdict in OPPOSITE,
        )

    def numbers(
        self, results: Mapping[str, Result], facts: Facts
    ) -> tuple[Mapping[str, Estimate], list[Mapping[str, Estimate]]]:
        """All that a verdict rests on: the numbers of the model, and those of each control.

        They are by the keys of the criterion. `decided` needs no more.
        """
        measured = Results(results)
        asked, first = self._numbers(measured, facts)
        return asked, self._numbers_of_controls(first, measured, facts)

    def decided(
        self,
        asked: Mapping[str, Estimate],
        controls: Sequence[Mapping[str, Estimate]],
        facts: Facts,
    ) -> tuple[Verdict, str]:
        """The verdict that stored numbers give, and what forbids a decision; empty for nothing.

        Args:
            asked: the numbers of the model.
            controls: those of each control, as `numbers` gives them.
            facts: about the model.

        Raises:
            InputError: a number that the criterion asks for is missing.
        """
        if reason := self.exclusion(facts):
            return "not_applicable", reason
        if reason := facts.unmeasured():
            return "inconclusive", f"{reason}: no claim can be judged."
        decision = self.criterion.decide(asked, facts.n_claims)
        why = decision.failed or self._forbidden(
            decision, facts, lambda: [self._of_control(asked, its) for its in controls]
        )
        return ("inconclusive", why) if why else (decision.verdict, "")

    def _gated(
        self, decision: Decision, evidence: Evidence, results: Results, facts: Facts
    ) -> tuple[Verdict, str]:
        """The verdict and its reason, which begins with what forbids a decision, if any."""

        def outcomes() -> list[Verdict]:
            return self._outcomes_of_controls(evidence.quantities, evidence.control, results, facts)

        if why := decision.failed or self._forbidden(decision, facts, outcomes):
            return "inconclusive", " ".join(filter(None, (why, evidence.says)))
        return decision.verdict, " ".join(filter(None, (evidence.says, evidence.caveat)))

    def _forbidden(
        self, decision: Decision, facts: Facts, outcomes_of_controls: Callable[[], list[Verdict]]
    ) -> str | None:
        """Why a claim is not decided although its criterion is; None if nothing forbids it.

        What the controls show is asked for only where it counts.
        """
        if decision.verdict == "inconclusive":
            return None
        if facts.n_units < MIN_UNITS:
            return (
                f"An interval from {facts.n_units} units means little ({MIN_UNITS} needed): raise "
                "n_prompts."
            )
        if self.kind == "learning" and (short := self.learned(facts)):
            return f"{NOT_LEARNED} ({short}), so this says nothing about training."
        if self.kind == "learning" and facts.outside and not facts.control:
            return NO_CONTROL if decision.verdict == "supported" else None
        # What most controls show as well, or the opposite of it, is no work of the model.
        forbids = self._forbidding(decision)
        if forbids is None:
            return None
        outcomes = outcomes_of_controls()
        if outcomes.count(forbids) <= len(outcomes) / 2:
            return None
        if self.kind == "learning":
            return (
                "A randomly initialised control passes as well, so this is not the work of "
                "training."
            )
        return (
            "Randomly initialised controls show the opposite, so this does not follow from the "
            "design."
        )

    def _forbidding(self, decision: Decision) -> Verdict | None:
        """The outcome that forbids this verdict where most untrained controls have it.

        None where the controls are not asked.
        """
        if decision.failed:
            return None
        if self.kind == "learning":
            return "supported" if decision.verdict == "supported" else None
        return OPPOSITE.get(decision.verdict) if self.controls_agree else None

    def _outcomes_of_controls(
        self,
        asked: Mapping[str, Estimate],
        first: Mapping[str, Estimate],
        results: Results,
        facts: Facts,
    ) -> list[Verdict]:
        """What each untrained control that was measured shows.

        Args:
            asked: the numbers of the model.
            first: the numbers of its first control.
            results: of the model and all its controls.
            facts: about the model.
        """
        each = self._numbers_of_controls(first, results, facts)
        return [self._of_control(asked, its) for its in each]

    def _numbers_of_controls(
        self, first: Mapping[str, Estimate], results: Results, facts: Facts
    ) -> list[Mapping[str, Estimate]]:
        """The numbers of each untrained control that was measured, those of the first in front."""
        found = [first]
        for control in results.by_control[1:]:
            if all(CONTROL + m.name in control for m in self.control):
                found.append(self._numbers(control, facts)[1])
        return found

    def _of_control(
        self, asked: Mapping[str, Estimate], control: Mapping[str, Estimate]
    ) -> Verdict:
        """The outcome of the conditions asked of the model for which the control has numbers."""
        outcomes = set()
        for condition in self.criterion.conditions:
            if condition.quantity in asked and condition.quantity in control:
                outcomes.add(condition.outcome(control[condition.quantity]))
        if "contradicted" in outcomes:
            return "contradicted"
        return "supported" if outcomes == {"supported"} else "inconclusive"

    def _unasked(self, verdict: Verdict, reason: str) -> Finding:
        return Finding(
            self.id,
            self.study,
            self.kind,
            self.statement,
            self.source,
            verdict,
            reason,
            self.criterion,
            self.criterion.conditions[0],
            figures=self.figures,
            question=self.question,
            short=self.statement,
            quote=self.quote,
        )

    def _broken(self, error: str, blame: str = "") -> Finding:
        reason = f"{self.id} could not be judged: {blame or f'{error}. The log has the traceback.'}"
        return replace(self._unasked("inconclusive", reason), error=error)


def asked_once(claim: Claim) -> Claim:
    """The same claim, whose evidence is found once for the same results.

    An analysis asks for it before and after further controls are measured. The same are the very
    objects, under the same names. What further controls gave is not looked at, since no evidence
    sees it (`Results.control` is the first).
    """
    known: list[tuple[dict[str, Result], Facts, Mapping[str, Found] | Evidence]] = []

    def evidence(results: Results, facts: Facts) -> Mapping[str, Found] | Evidence:
        asked = {
            name: result for name, result in results.items() if not name.startswith(CONTROLS[1:])
        }
        for others, about, found in known:
            same = others.keys() == asked.keys() and all(
                others[name] is asked[name] for name in asked
            )
            if same and about == facts:
                return found
        known.append((asked, facts, claim.evidence(results, facts)))
        return known[-1][-1]

    return replace(claim, evidence=evidence)
