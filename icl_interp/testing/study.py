"""`check_study`: what every study has to keep, a function a rule."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pandas import DataFrame

from icl_interp import registers, results
from icl_interp.analyses.claim import QUESTIONS, Claim
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.checkpoints import store
from icl_interp.errors import InputError, shown, unknown
from icl_interp.experiments import calibration, kept
from icl_interp.experiments.calibration import NO, YES
from icl_interp.figures import catalogue, reproductions
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import encode
from icl_interp.results import make_table
from icl_interp.studies.base import STUDIES, Study, add, make_room
from icl_interp.testing import battery, effects, known_models, metamorphic
from icl_interp.testing.reasons import too_long
from icl_interp.testing.reparameterisations.targets import Posed, TargetEdit

VERDICTS = ("supported", "contradicted", "inconclusive", "not_applicable")
LEVELS = ("fast", "thorough", "full")
SMALL = metamorphic.Sample(n_units=64, n_contexts=1)  # of a trial
LONGEST = 20  # words of a claim's statement
READ_OFF = (
    "its measurements never run the model, so they would find the same in an idle part: set "
    "about_weights=True, and put icl_interp.analyses.tie.TIED into the criterion"
)
Outcome = tuple[str, str | None]  # what was checked, and what falls short, if anything does


class StudyError(AssertionError):
    """A study does not keep the rules; the message lists what falls short, a line each."""


@dataclass
class Judged:
    """A member of a construction, its results and what the claims that it is scored on say."""

    name: str
    case: calibration.Case
    facts: Facts
    results: Results
    stored: dict[str, str]  # the results as a report stores them, from before anything was judged
    findings: dict[str, Finding]
    claims: dict[str, Claim]


class Examined:
    """A study with one member of each of its constructions, measured when a rule first needs it."""

    def __init__(self, study: Study, seed: int, done: Path | None = None) -> None:
        self.study, self.seed, self.done = study, seed, done
        self.claims = {claim.id: claim for claim in study.claims}
        self.moved: dict[str, bool] = {}

    @cached_property
    def judged(self) -> list[Judged]:
        """One member of each construction."""
        found = []
        with effects.observed() as self.moved:
            for construction in self.study.constructions:
                claims = {
                    name: self.claims[name] for name in construction.expected if name in self.claims
                }
                found.append(self._judged(construction.name, construction.draw(self.seed), claims))
        return found

    @cached_property
    def plain(self) -> list[tuple[Judged, list[Claim]]]:
        """The cases on which claims are tried alone, each with its claims.

        For each claim it is the first case that supports it and is a model by itself.

        What is predicted in a model's place, or known of its companions or its training, does not
        change with weights.
        """
        found: dict[str, tuple[Judged, list[Claim]]] = {}
        for claim in self.study.claims:
            for one in self.judged:
                case, finding = one.case, one.findings.get(claim.id)
                if (
                    finding
                    and finding.verdict == YES
                    and not (case.predictor or case.companions or case.snapshots)
                ):
                    found.setdefault(one.name, (one, []))[1].append(claim)
                    break
        return list(found.values())

    @cached_property
    def known(self) -> list[known_models.Known]:
        """For each claim a model of which it is true and one of which it is false.

        Constructions that predict without weights are left out.
        """
        return known_models.known(self.study.constructions, self.study.claims, self.seed)

    @cached_property
    def untrained(self) -> list[Judged]:
        """For each learning claim, the first of its cases with fresh weights instead."""
        found = []
        for claim in self.study.claims:
            one = next((one for one in self.judged if claim.id in one.claims), None)
            if claim.kind == "learning" and one is not None:
                fresh = HookedTransformer(one.case.model.cfg, seed=self.seed + 1).double().eval()
                case = calibration.Case(fresh, one.case.task, encoding=one.case.encoding)
                found.append(self._judged(one.name, case, {claim.id: claim}))
        return found

    def _judged(self, name: str, case: calibration.Case, claims: dict[str, Claim]) -> Judged:
        lab, facts = calibration.lab_for(case, seed=self.seed)
        measured = calibration.measure(lab, facts, list(claims.values()))
        stored = _stored(measured)
        findings = {key: claim.judge_results(measured, facts) for key, claim in claims.items()}
        return Judged(name, case, facts, measured, stored, findings, claims)


def words(it: Examined) -> Iterator[Outcome]:
    """Each claim says what it is about in a short sentence and a quoted one.

    Each reason is short enough to be read.
    """
    for claim in it.study.claims:
        n_words = len(claim.statement.split())
        wrong = (
            claim.question not in QUESTIONS and f"its question is none of {', '.join(QUESTIONS)}",
            not 0 < n_words <= LONGEST and f"its statement has {n_words} words, not 1 to {LONGEST}",
            not claim.statement.endswith(".") and "its statement does not end in a full stop",
            bool(claim.denied)
            and not claim.denied.endswith(".")
            and "the opposite of its statement does not end in a full stop",
            not (claim.quote and claim.quote.text and claim.quote.place)
            and "no sentence is quoted with its place",
        )
        yield claim.id, "; ".join(text for text in wrong if text) or None
    for one in it.judged:
        for name, finding in one.findings.items():
            yield f"{name} on {one.name}", too_long(finding.reason)


def figures(it: Examined) -> Iterator[Outcome]:
    """Each figure has a caption and shows a claim; each figure that a claim names is there."""
    named = {name for claim in it.study.claims for name in claim.figures}
    for name in sorted({*named, *it.study.figures}):
        if name not in catalogue.FIGURES:
            yield name, "a claim names it, but there is no such figure"
        elif name in it.study.figures and name not in named:
            yield name, "no claim names it in `figures`"
        else:
            yield name, None if catalogue.FIGURES[name].caption.strip() else "it has no caption"


def both_ways(it: Examined) -> Iterator[Outcome]:
    """Each claim has a model of which it is true and one of which it is false."""
    for claim in it.study.claims:
        expected = {one.expected.get(claim.id) for one in it.study.constructions}
        missing = [verdict for verdict in (YES, NO) if verdict not in expected]
        yield claim.id, f"no construction must be {' or '.join(missing)}" if missing else None


def verdicts(it: Examined) -> Iterator[Outcome]:
    """Each construction gets the verdicts that it must get."""
    for construction in it.study.constructions:
        for name, verdict in construction.expected.items():
            if name not in it.claims:
                yield f"{name} on {construction.name}", "this study has no such claim"
            elif verdict not in VERDICTS:
                yield (
                    f"{name} on {construction.name}",
                    f"{shown(verdict)} is none of {', '.join(VERDICTS)}",
                )
    expected = {one.name: one.expected for one in it.study.constructions}
    for one in it.judged:
        for name, finding in one.findings.items():
            wrong = (
                f"expected {expected[one.name][name]}, but got {finding.verdict}: {finding.reason}"
            )
            yield (
                f"{name} on {one.name}",
                None if finding.verdict == expected[one.name][name] else wrong,
            )


def dials(it: Examined) -> Iterator[Outcome]:
    """Each dial takes its claim from contradicted to supported."""
    for dial in it.study.dials:
        if dial.claim not in it.claims:
            yield dial.name, f"this study has no claim {shown(dial.claim)}"
            continue
        found = [dial.judge(value, it.seed).verdict for value in (dial.values[0], dial.values[-1])]
        yield (
            dial.name,
            None
            if found == [NO, YES]
            else f"from {found[0]} to {found[1]}, not from {NO} to {YES}",
        )


def controls(it: Examined) -> Iterator[Outcome]:
    """Each claim shows beside its number that of an untrained control."""
    for claim in it.study.claims:
        found = [one.findings[claim.id] for one in it.judged if claim.id in one.findings]
        if not claim.control:
            yield claim.id, "it measures nothing on an untrained control"
        elif found:
            yield (
                claim.id,
                None
                if any(f.control for f in found)
                else "no finding shows a number of an untrained control",
            )


def untrained(it: Examined) -> Iterator[Outcome]:
    """No claim about what training made is supported by an untrained model."""
    for one in it.untrained:
        for name, finding in one.findings.items():
            yield (
                name,
                f"an untrained model supports it: {finding.reason}"
                if finding.verdict == YES
                else None,
            )


def interventions(it: Examined) -> Iterator[Outcome]:
    """Each kind of intervention that measurements use moves what some model returns."""
    if not it.judged:
        return
    for name, moved in it.moved.items():
        yield (
            name,
            None if moved else "it was attached, but no run returned anything else than without it",
        )


def edits(it: Examined) -> Iterator[Outcome]:
    """An edit that keeps a model's function keeps verdict and estimate.

    One edit of each family is tried on a construction.
    """
    for one, claims in it.plain:
        model, before = _posed(one.case), None
        controls = metamorphic.controls_of(model, SMALL)
        for edit in metamorphic.edits_of(model, one_a_family=True):
            before = (
                metamorphic.judged(model, claims, SMALL, controls=controls)
                if before is None
                else before
            )
            for row in metamorphic.try_edit(one.name, model, edit, claims, before, SMALL, controls):
                yield f"{row[3]} after {edit.name}", _moved(one.name, row)


def edits_with_companions(it: Examined) -> Iterator[Outcome]:
    """The same where models beside a model, or those on its way, are edited with it."""
    for one in it.known:
        if one.alone:
            continue
        name, before = one.construction.name, None
        for edit in metamorphic.edits_of(known_models.posed_case(one.case), one_a_family=True):
            if isinstance(edit, TargetEdit):
                continue
            before = (
                known_models.judged_case(one.case, one.claims, it.seed)
                if before is None
                else before
            )
            for row in known_models.try_edit_of_known(one, edit, before, it.seed):
                yield f"{row[3]} after {edit.name}", _moved(name, row)


def _moved(name: str, row: metamorphic.Row) -> str | None:
    return f"on {name}, {row[-1]}: {row[6]:.4g} and {row[7]:.4g}" if row[-1] else None


def weights(it: Examined) -> Iterator[Outcome]:
    """A claim whose numbers come without running the model says that it is about weights.

    The engine then asks for what ties weights to predictions.
    """
    for claim in it.study.claims:
        one = next((one for one in it.judged if _applies(one, claim)), None)
        if one is None:
            continue
        lab, _ = calibration.lab_for(one.case, seed=it.seed)
        with effects.counted() as runs:
            lab.measure_all(list(claim.measurements))
        read_off = not runs.n and not claim.about_weights
        yield claim.id, READ_OFF if read_off else None


def _applies(one: Judged, claim: Claim) -> bool:
    finding = one.findings.get(claim.id)
    return finding is not None and finding.verdict != "not_applicable"


def beside(it: Examined) -> Iterator[Outcome]:
    """An idle part decides nothing.

    The verdict is none, or that of the model beside it, which makes the prediction.

    Each claim about weights has a model that can be put beside another one.
    """
    for claim in it.study.claims:
        wrong, n = [], 0
        for one in it.known:
            if claim not in one.claims:
                continue
            for rows in known_models.try_beside(one, [claim], it.known, it.seed):
                n += len(rows)
                wrong += [f"{row[1]}, {row[2]}: {row[-1]}" for row in rows if row[-1]]
        if n:
            yield claim.id, "; ".join(wrong) or None
        elif claim.about_weights:
            yield claim.id, "no model of known truth can stand idle beside another one"


def ignorance(it: Examined) -> Iterator[Outcome]:
    """Models that know nothing of the function in their prompt support nothing about it."""
    for one, claims in it.plain:
        model = _posed(one.case)
        for rows in metamorphic.try_ignorant(
            one.name, model, claims, SMALL, metamorphic.controls_of(model, SMALL)
        ):
            for row in rows:
                yield f"{row[3]} of {row[2]}", f"supported, as {one.name}" if row[-1] else None


def _posed(case: calibration.Case) -> Posed:
    task = case.task or calibration.TASK
    return Posed(case.model, task, case.reads())


def pure(it: Examined) -> Iterator[Outcome]:
    """A finding is a function of what a report stores, also after a trip through JSON."""
    for one in it.judged:
        changed = _stored(one.results) != one.stored
        read = Results(
            {name: results.from_dict(json.loads(text)) for name, text in one.stored.items()}
        )
        facts = Facts.from_dict(encode(one.facts.to_dict()))
        for name, claim in one.claims.items():
            again = claim.judge_results(read, facts)
            wrong = (
                _text(again) != _text(one.findings[name])
                and f"judged from JSON it is another finding: {again.reason}",
                changed and "judging changed the results",
            )
            yield f"{name} on {one.name}", "; ".join(text for text in wrong if text) or None


def drawn(it: Examined) -> Iterator[Outcome]:
    """Each figure is drawn from the results of some construction, and changes no number."""
    ever = dict.fromkeys(it.study.figures, False)
    wrong: dict[str, str] = {}
    for one in it.judged:
        before, found = _stored(one.results), list(one.findings.values())
        for name, figure in it.study.figures.items():
            try:
                ever[name] |= figure.draw(one.results, found, one.facts) is not None
            except Exception as error:
                wrong[name] = (
                    f"drawing it for {one.name} failed with {type(error).__name__}: {error}"
                )
        if (
            _stored(one.results) != before
        ):  # asked once, not after each figure: it takes longer than drawing
            changing = [
                name
                for name in it.study.figures
                if _changes(it.study.figures[name], before, found, one.facts)
            ]
            for name in changing or it.study.figures:
                wrong[name] = f"drawing it for {one.name} changed the results"
    for name, done in ever.items():
        yield name, wrong.get(name) or (None if done else "no construction has what it draws")


def experiments(it: Examined) -> Iterator[Outcome]:
    """An experiment's statements and figures are functions of its results, where these are kept."""
    for experiment in it.study.experiments:
        if kept.path(experiment.id) is None:
            yield experiment.id, "the study keeps no results of it"
            continue
        found = kept.results(experiment.id)
        before = _stored(found)
        comparison, says = experiment.compare(found), experiment.says(found)
        reproductions.draw(experiment.id, found, comparison)
        wrong = (
            not says and "it says nothing",
            list(says) != kept.record(experiment.id)["says"]
            and "it says something else than the kept record",
            _stored(found) != before and "saying or drawing changed the results",
        )
        yield experiment.id, "; ".join(text for text in wrong if text) or None


Rule = Callable[[Examined], Iterator[Outcome]]
RULES: tuple[Rule, ...] = (
    words,
    figures,
    both_ways,
    verdicts,
    dials,
    controls,
    untrained,
    edits,
    weights,
    ignorance,
    interventions,
    pure,
    drawn,
    experiments,
)


def models(it: Examined) -> Iterator[Outcome]:
    """Verdicts survive edits, on bundled models and on constructions.

    On bundled models they also survive other samples.

    No claim holds for models that know nothing, and none is decided by an idle part.
    """
    posed = {name: metamorphic.posed(store.load(name)) for name in it.study.models}
    tables = (
        metamorphic.run(posed, it.study.claims, done=it.done and it.done / "trials"),
        known_models.run_known(
            it.known, it.known, seed=it.seed, done=it.done and it.done / "known"
        ),
    )
    for row in [row for table in tables for row in table.to_dict("records")]:
        subject = battery.subject(row)
        if battery.excepted(row, it.study) and ("models", subject) not in it.study.exceptions:
            continue
        wrong = (
            f"{row['wrong']}: {row['estimate before']:.4g} and {row['estimate after']:.4g}"
            if row["wrong"]
            else None
        )
        yield subject, wrong


def coverage(it: Examined) -> Iterator[Outcome]:
    """Of many draws of each construction most get the required verdict, and few another."""
    for construction in it.study.constructions:
        for row in battery.draws(
            construction.name, seed=it.seed, done=it.done and it.done / "draws"
        ).to_dict("records"):
            yield (
                f"{row['claim']} on {construction.name}, {battery.DRAWS} draws",
                battery.falls_short(row) or None,
            )


THOROUGH_RULES: tuple[Rule, ...] = (edits_with_companions, beside)
SLOW_RULES: tuple[Rule, ...] = (models, coverage)


def check_study(
    study: Study | str, level: str = "fast", *, seed: int = 0, done: Path | None = None
) -> DataFrame:
    """Check that a study keeps the rules of the house.

    A member of each of its constructions is measured and judged, and the figures are made. The
    study need not be registered. What it cannot keep it declares in `Study.exceptions`, with the
    reason; an exception that is not needed is an error.

    Args:
        study: the study, or the name of a registered one.
        level: "fast" draws each construction once. "thorough" also edits models together with those
            beside them, and puts idle models beside others, which takes minutes. "full" also draws
            each 200 times, and tries the verdicts on `Study.models`: with every edit that leaves a
            model's function, on models that know nothing, and over eight samples and half a sample.
            That takes hours.
        seed: of the draws.
        done: a folder that keeps each part of level "full", so that a run which was stopped goes
            on: the folder of `battery.run` for this study.

    Returns:
        A row a rule and subject: "kept", or "excepted" with the declared reason.

    Raises:
        StudyError: something falls short; the message has a line for each.
        InputError: no such study or level, or `done` keeps parts that other code made.
    """
    if level not in LEVELS:
        raise unknown("level", level, LEVELS)
    if isinstance(study, str):
        study = STUDIES.named(study)
    if not isinstance(study, Study):
        raise InputError(f"check_study takes a Study or the name of one, but got {shown(study)}")
    with registers.as_before():
        STUDIES.pop(study.name, None)  # a changed copy of it may be what is checked
        make_room(study)
        add(study)
        if done and level == "full":
            battery.stamp(study, done, battery.STANDARD, seed)
        it = Examined(study, seed, done)
        rules = RULES if level == "fast" else (*RULES, *THOROUGH_RULES)
        rules = (*rules, *SLOW_RULES) if level == "full" else rules
        outcomes = {
            (rule.__name__, subject): short for rule in rules for subject, short in rule(it)
        }
    excepted = {key for key in outcomes if key in study.exceptions}
    short = [
        f"{rule}: {subject}: {why}"
        for (rule, subject), why in outcomes.items()
        if why and (rule, subject) not in study.exceptions
    ]
    short += [
        f"{rule}: {subject}: the exception is not needed: take it off the list"
        for rule, subject in study.exceptions
        if outcomes.get((rule, subject)) is None and rule in {one.__name__ for one in rules}
    ]
    if short:
        raise StudyError(
            f"the study {study.name!r} falls short:\n" + "\n".join(f"  {line}" for line in short)
        )
    return make_table(
        {
            "rule": [rule for rule, _ in outcomes],
            "subject": [subject for _, subject in outcomes],
            "outcome": ["excepted" if key in excepted else "kept" for key in outcomes],
            "reason": [study.exceptions.get(key, "") for key in outcomes],
        }
    )


def _changes(
    figure: ReportFigure, stored: dict[str, str], findings: list[Finding], facts: Facts
) -> bool:
    """Whether drawing one figure changes results, read anew from what was stored of them."""
    read = Results({name: results.from_dict(json.loads(text)) for name, text in stored.items()})
    before = _stored(read)
    with suppress(Exception):  # that it fails has been said
        figure.draw(read, findings, facts)
    return _stored(read) != before


def _stored(measured: Mapping[str, Any]) -> dict[str, str]:
    """Results as a report stores them, as text: NaN is then equal to NaN."""
    return {name: json.dumps(results.to_dict(result)) for name, result in measured.items()}


def _text(finding: Finding) -> str:
    return json.dumps(encode(finding.to_dict()))
