"""`check_study`: what every study has to keep, a function a rule."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from pandas import DataFrame

from icl_interp import registers
from icl_interp.analyses.claim import QUESTIONS, Claim
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.checkpoints import store
from icl_interp.errors import InputError, shown, unknown
from icl_interp.experiments import calibration, kept
from icl_interp.experiments.calibration import NO, YES
from icl_interp.figures import catalogue, reproductions
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.provenance import encode
from icl_interp.results import make_table
from icl_interp.studies.base import STUDIES, Study, add, make_room
from icl_interp.testing import battery, effects, known_models, metamorphic
from icl_interp.testing.examined import Examined, as_stored, read_back
from icl_interp.testing.reasons import too_long
from icl_interp.testing.reparameterisations.targets import TargetEdit

VERDICTS = ("supported", "contradicted", "inconclusive", "not_applicable")
LEVELS = ("fast", "thorough", "full")
SMALL = metamorphic.Sample(n_units=64, n_contexts=1)  # of a trial
LONGEST = 20  # words of a claim's statement
READ_OFF = (
    "its measurements never run the model, so they would find the same in an idle part: set "
    "about_weights=True, and put icl_interp.analyses.tie.TIED into the criterion"
)
Outcome = tuple[str, str | None]  # what was checked, and what falls short, if anything does
Subject = tuple[str, str]  # a rule's name, and what it was asked of


class StudyError(AssertionError):
    """A study does not keep the rules; the message lists what falls short, a line each."""


def words(it: Examined) -> Iterator[Outcome]:
    """Each claim says what it is about in a short sentence and a quoted one.

    Each reason is short enough to be read.
    """
    for claim in it.study.claims:
        yield claim.id, _joined(_wrong_words(claim))
    for one in it.judged:
        for name, finding in one.findings.items():
            yield f"{name} on {one.name}", too_long(finding.reason)


def _wrong_words(claim: Claim) -> Iterator[str]:
    """What falls short in the sentences of a claim."""
    if claim.question not in QUESTIONS:
        yield f"its question is none of {', '.join(QUESTIONS)}"
    n_words = len(claim.statement.split())
    if not 0 < n_words <= LONGEST:
        yield f"its statement has {n_words} words, not 1 to {LONGEST}"
    if not claim.statement.endswith("."):
        yield "its statement does not end in a full stop"
    if claim.denied and not claim.denied.endswith("."):
        yield "the opposite of its statement does not end in a full stop"
    quote = claim.quote
    if not (quote and quote.text and quote.place):
        yield "no sentence is quoted with its place"


def _joined(wrong: Iterable[str]) -> str | None:
    """All that falls short in one line; None if nothing does."""
    return "; ".join(wrong) or None


def figures(it: Examined) -> Iterator[Outcome]:
    """Each figure has a caption and shows a claim; each figure that a claim names is there."""
    named: set[str] = set()
    for claim in it.study.claims:
        named.update(claim.figures)
    for name in sorted({*named, *it.study.figures}):
        if name not in catalogue.FIGURES:
            yield name, "a claim names it, but there is no such figure"
        elif name in it.study.figures and name not in named:
            yield name, "no claim names it in `figures`"
        else:
            caption = catalogue.FIGURES[name].caption.strip()
            yield name, None if caption else "it has no caption"


def both_ways(it: Examined) -> Iterator[Outcome]:
    """Each claim has a model of which it is true and one of which it is false."""
    for claim in it.study.claims:
        expected = {one.expected.get(claim.id) for one in it.study.constructions}
        missing = [verdict for verdict in (YES, NO) if verdict not in expected]
        yield claim.id, f"no construction must be {' or '.join(missing)}" if missing else None


def verdicts(it: Examined) -> Iterator[Outcome]:
    """Each construction gets the verdicts that it must get."""
    expected = {one.name: one.expected for one in it.study.constructions}
    for construction in it.study.constructions:
        for name, verdict in construction.expected.items():
            if name not in it.claims:
                yield f"{name} on {construction.name}", "this study has no such claim"
            elif verdict not in VERDICTS:
                wrong = f"{shown(verdict)} is none of {', '.join(VERDICTS)}"
                yield f"{name} on {construction.name}", wrong
    for one in it.judged:
        for name, finding in one.findings.items():
            required = expected[one.name][name]
            wrong = f"expected {required}, but got {finding.verdict}: {finding.reason}"
            yield f"{name} on {one.name}", None if finding.verdict == required else wrong


def dials(it: Examined) -> Iterator[Outcome]:
    """Each dial takes its claim from contradicted to supported."""
    for dial in it.study.dials:
        if dial.claim not in it.claims:
            yield dial.name, f"this study has no claim {shown(dial.claim)}"
            continue
        first = dial.judge(dial.values[0], it.seed).verdict
        last = dial.judge(dial.values[-1], it.seed).verdict
        wrong = f"from {first} to {last}, not from {NO} to {YES}"
        yield dial.name, None if first == NO and last == YES else wrong


def controls(it: Examined) -> Iterator[Outcome]:
    """Each claim shows beside its number that of an untrained control."""
    for claim in it.study.claims:
        found = [one.findings[claim.id] for one in it.judged if claim.id in one.findings]
        if not claim.control:
            yield claim.id, "it measures nothing on an untrained control"
        elif found:
            has_number = any(finding.control for finding in found)
            wrong = "no finding shows a number of an untrained control"
            yield claim.id, None if has_number else wrong


def untrained(it: Examined) -> Iterator[Outcome]:
    """No claim about what training made is supported by an untrained model."""
    for one in it.untrained:
        for name, finding in one.findings.items():
            wrong = f"an untrained model supports it: {finding.reason}"
            yield name, wrong if finding.verdict == YES else None


def interventions(it: Examined) -> Iterator[Outcome]:
    """Each kind of intervention that measurements use moves what some model returns."""
    # What moved is seen while constructions are judged.
    if not it.judged:
        return
    wrong = "it was attached, but no run returned anything else than without it"
    for name, moved in it.moved.items():
        yield name, None if moved else wrong


def edits(it: Examined) -> Iterator[Outcome]:
    """An edit that keeps a model's function keeps verdict and estimate.

    One edit of each family is tried on a construction.
    """
    for one, claims in it.plain:
        model = one.posed()
        controls = metamorphic.controls_of(model, SMALL)
        before = None
        for edit in metamorphic.edits_of(model, one_a_family=True):
            # Judged only where there is an edit to compare with.
            if before is None:
                before = metamorphic.judged(model, claims, SMALL, controls=controls)
            for row in metamorphic.try_edit(one.name, model, edit, claims, before, SMALL, controls):
                yield _after(edit.name, one.name, row)


def edits_with_companions(it: Examined) -> Iterator[Outcome]:
    """The same where models beside a model, or those on its way, are edited with it."""
    for one in it.known:
        if one.alone:
            continue
        before = None
        posed = known_models.posed_case(one.case)
        for edit in metamorphic.edits_of(posed, one_a_family=True):
            if isinstance(edit, TargetEdit):
                continue
            if before is None:
                before = known_models.judged_case(one.case, one.claims, it.seed)
            for row in known_models.try_edit_of_known(one, edit, before, it.seed):
                yield _after(edit.name, one.construction.name, row)


def _after(edit: str, name: str, row: metamorphic.Row) -> Outcome:
    """Whether a claim's verdict and estimate on a model are the same after an edit."""
    *_, claim, _, _, estimate_before, estimate_after, wrong = row
    subject = f"{claim} after {edit}"
    if not wrong:
        return subject, None
    return subject, f"on {name}, {wrong}: {estimate_before:.4g} and {estimate_after:.4g}"


def weights(it: Examined) -> Iterator[Outcome]:
    """A claim whose numbers come without running the model says that it is about weights.

    The engine then asks for what ties weights to predictions.
    """
    for claim in it.study.claims:
        one = next((one for one in it.judged if one.has_verdict(claim)), None)
        if one is None:
            continue
        lab, _ = calibration.lab_for(one.case, seed=it.seed)
        with effects.counted() as runs:
            lab.measure_all(list(claim.measurements))
        read_off = not runs.n and not claim.about_weights
        yield claim.id, READ_OFF if read_off else None


def beside(it: Examined) -> Iterator[Outcome]:
    """An idle part decides nothing.

    The verdict is none, or that of the model beside it, which makes the prediction.

    Each claim about weights has a model that can be put beside another one.
    """
    for claim in it.study.claims:
        n = 0
        wrong = []
        for one in it.known:
            if claim not in one.claims:
                continue
            for rows in known_models.try_beside(one, [claim], it.known, it.seed):
                n += len(rows)
                for _, model, variant, *_, why in rows:
                    if why:
                        wrong.append(f"{model}, {variant}: {why}")
        if n:
            yield claim.id, _joined(wrong)
        elif claim.about_weights:
            yield claim.id, "no model of known truth can stand idle beside another one"


def ignorance(it: Examined) -> Iterator[Outcome]:
    """Models that know nothing of the function in their prompt support nothing about it."""
    for one, claims in it.plain:
        model = one.posed()
        controls = metamorphic.controls_of(model, SMALL)
        for rows in metamorphic.try_ignorant(one.name, model, claims, SMALL, controls):
            for _, _, variant, claim, *_, wrong in rows:
                yield f"{claim} of {variant}", f"supported, as {one.name}" if wrong else None


def pure(it: Examined) -> Iterator[Outcome]:
    """A finding is a function of what a report stores, also after a trip through JSON."""
    for one in it.judged:
        changed = as_stored(one.results) != one.stored
        read = read_back(one.stored)
        facts = Facts.from_dict(encode(one.facts.to_dict()))
        for name, claim in one.claims.items():
            wrong = []
            again = claim.judge_results(read, facts)
            if _text(again) != _text(one.findings[name]):
                wrong.append(f"judged from JSON it is another finding: {again.reason}")
            if changed:
                wrong.append("judging changed the results")
            yield f"{name} on {one.name}", _joined(wrong)


def drawn(it: Examined) -> Iterator[Outcome]:
    """Each figure is drawn from the results of some construction, and changes no number."""
    ever = dict.fromkeys(it.study.figures, False)
    wrong: dict[str, str] = {}
    for one in it.judged:
        before = as_stored(one.results)
        findings = list(one.findings.values())
        for name, figure in it.study.figures.items():
            try:
                drawing = figure.draw(one.results, findings, one.facts)
                ever[name] |= drawing is not None
            except Exception as error:
                kind = type(error).__name__
                wrong[name] = f"drawing it for {one.name} failed with {kind}: {error}"

        # Asked once, not after each figure: it takes longer than drawing.
        if as_stored(one.results) == before:
            continue
        changing = []
        for name, figure in it.study.figures.items():
            if _changes(figure, before, findings, one.facts):
                changing.append(name)
        for name in changing or it.study.figures:
            wrong[name] = f"drawing it for {one.name} changed the results"

    for name, done in ever.items():
        never = None if done else "no construction has what it draws"
        yield name, wrong.get(name) or never


def _changes(
    figure: ReportFigure, stored: dict[str, str], findings: list[Finding], facts: Facts
) -> bool:
    """Whether drawing one figure changes results, read anew from what was stored of them."""
    read = read_back(stored)
    before = as_stored(read)
    with suppress(Exception):  # that it fails has been said
        figure.draw(read, findings, facts)
    return as_stored(read) != before


def experiments(it: Examined) -> Iterator[Outcome]:
    """An experiment's statements and figures are functions of its results, where these are kept."""
    for experiment in it.study.experiments:
        if kept.path(experiment.id) is None:
            yield experiment.id, "the study keeps no results of it"
            continue
        # Statements and figure are made anew from the kept results.
        found = kept.results(experiment.id)
        before = as_stored(found)
        comparison = experiment.compare(found)
        says = experiment.says(found)
        reproductions.draw(experiment.id, found, comparison)
        wrong = []
        if not says:
            wrong.append("it says nothing")
        if list(says) != kept.record(experiment.id)["says"]:
            wrong.append("it says something else than the kept record")
        if as_stored(found) != before:
            wrong.append("saying or drawing changed the results")
        yield experiment.id, _joined(wrong)


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
    bundled = metamorphic.run(posed, it.study.claims, done=it.done and it.done / "trials")
    known = known_models.run_known(
        it.known, it.known, seed=it.seed, done=it.done and it.done / "known"
    )
    for row in (*bundled.to_dict("records"), *known.to_dict("records")):
        subject = battery.subject(row)
        # What is excepted from another rule is not asked. What is excepted from this one is, so
        # that an exception that is not needed is seen.
        declared = ("models", subject) in it.study.exceptions
        if battery.excepted(row, it.study) and not declared:
            continue
        wrong = None
        if row["wrong"]:
            wrong = f"{row['wrong']}: {row['estimate before']:.4g} and {row['estimate after']:.4g}"
        yield subject, wrong


def coverage(it: Examined) -> Iterator[Outcome]:
    """Of many draws of each construction most get the required verdict, and few another."""
    for construction in it.study.constructions:
        name = construction.name
        table = battery.draws(name, seed=it.seed, done=it.done and it.done / "draws")
        for row in table.to_dict("records"):
            subject = f"{row['claim']} on {name}, {battery.DRAWS} draws"
            yield subject, battery.falls_short(row) or None


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
    # The study is registered while its rules are asked, and what was there before comes back.
    with registers.as_before():
        STUDIES.pop(study.name, None)  # a changed copy of it may be what is checked
        make_room(study)
        add(study)
        if done and level == "full":
            battery.stamp(study, done, battery.STANDARD, seed)
        it = Examined(study, seed, done)
        rules = _rules_of(level)
        outcomes = {}
        for rule in rules:
            for subject, wrong in rule(it):
                outcomes[rule.__name__, subject] = wrong

    short = _shortcomings(study, outcomes, {rule.__name__ for rule in rules})
    if short:
        lines = "\n".join(f"  {line}" for line in short)
        raise StudyError(f"the study {study.name!r} falls short:\n{lines}")
    return _table(study, outcomes)


def _rules_of(level: str) -> tuple[Rule, ...]:
    """The rules of a level: those of the lower ones, and more."""
    if level == "fast":
        return RULES
    if level == "thorough":
        return (*RULES, *THOROUGH_RULES)
    return (*RULES, *THOROUGH_RULES, *SLOW_RULES)


def _shortcomings(
    study: Study, outcomes: Mapping[Subject, str | None], asked: set[str]
) -> list[str]:
    """A line for each thing that falls short without an exception, and each needless exception.

    Args:
        study: declares the exceptions.
        outcomes: what falls short, if anything does, by rule and subject.
        asked: the names of the rules that were asked; exceptions from others may be needed.
    """
    short = []
    for (rule, subject), wrong in outcomes.items():
        if wrong and (rule, subject) not in study.exceptions:
            short.append(f"{rule}: {subject}: {wrong}")
    for rule, subject in study.exceptions:
        if rule in asked and outcomes.get((rule, subject)) is None:
            short.append(f"{rule}: {subject}: the exception is not needed: take it off the list")
    return short


def _table(study: Study, outcomes: Mapping[Subject, str | None]) -> DataFrame:
    """A row for each rule and subject of a study that keeps the rules."""
    columns: dict[str, list[str]] = {"rule": [], "subject": [], "outcome": [], "reason": []}
    for rule, subject in outcomes:
        reason = study.exceptions.get((rule, subject))
        columns["rule"].append(rule)
        columns["subject"].append(subject)
        columns["outcome"].append("kept" if reason is None else "excepted")
        columns["reason"].append(reason or "")
    return make_table(columns)


def _text(finding: Finding) -> str:
    return json.dumps(encode(finding.to_dict()))
