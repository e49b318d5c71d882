"""Entries made of a report: each claim judged by today's code, from what was measured then."""

import datetime
import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from icl_interp.analyses.claim import Claim, asked_once
from icl_interp.analyses.criterion import Estimate
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.registry import REGISTRY
from icl_interp.checkpoints import bundled, store
from icl_interp.errors import InputError, in_one_line
from icl_interp.models.weights import weights_hash
from icl_interp.provenance import parse_json
from icl_interp.registry.discoveries import chance_of
from icl_interp.registry.entry import Entry, pack, version_of
from icl_interp.report.report import Report
from icl_interp.studies.base import STUDIES
from icl_interp.testing import job_cache

PLANTED = "planted"  # in a report's facts about its checkpoint: expected verdicts by claim
DIGITS = set("0123456789abcdef")


def entries_of(report: Report, name: str = "") -> tuple[list[Entry], list[str]]:
    """The entries that a report gives, one for each claim that applies, and what it cannot give.

    Claims are judged as they are registered now.

    Args:
        report: with its results.
        name: of the checkpoint. Bundled and planted models have theirs; of any other nothing but
            the hash is kept where none is given.

    Raises:
        InputError: the report does not tell which weights it is about.
    """
    origin = report.checkpoint
    sha256 = _hash_told(report)
    planted = origin.get(PLANTED) or {}
    if planted or hash_of_bundled(str(origin["name"])) == sha256:
        name = str(origin["name"])
    found: list[Entry] = []
    refused: list[str] = []
    facts = report.facts
    for finding in report.findings:
        if finding.verdict == "not_applicable":
            continue
        # What one claim's function does wrong costs no other its entry.
        try:
            entry = _entry(report, finding, facts)
            expected = str(planted.get(finding.id, ""))
            entry = replace(entry, sha256=sha256, name=name, expected=expected)
            # As it is read later, so that numbers have one form.
            entry = Entry.from_dict(parse_json(entry.text().encode(), finding.id), finding.id)
        except InputError as error:
            refused.append(f"{finding.id} is left out: {error}")
            continue
        except Exception as error:
            refused.append(f"{finding.id} is left out: {in_one_line(error)}")
            continue
        found.append(entry)
        if entry.verdict != finding.verdict:
            refused.append(
                f"{finding.id}: the report says {finding.verdict}, but its results now give "
                f"{entry.verdict}, which was added"
            )
    return found, refused


def _hash_told(report: Report) -> str:
    """The hash of the weights that a report is about."""
    sha256 = report.checkpoint.get("weights_sha256")
    if not isinstance(sha256, str) or len(sha256) != 64 or not set(sha256) <= DIGITS:
        raise InputError(
            f"{report.file or 'the report'} holds no hash of weights (it was written by an "
            "earlier version, or is about a predictor without weights): analyse the model again"
        )
    return sha256


def _entry(report: Report, finding: Finding, facts: Facts) -> Entry:
    """The entry of one finding, without what is known of the checkpoint."""
    claim = REGISTRY.get(finding.id)
    if claim is None:
        raise InputError("no such claim is registered")

    # What the claim needs, if it was measured by the code that is here.
    told = _mapping(report.provenance.get("measurements"))
    needed = {}
    measured = {}
    for key in claim.needs:
        if key in facts.failed:
            raise InputError(f"its measurement {key} failed")
        if key in report.results:
            needed[key] = report.results[key]
            measured[key] = int(told.get(key, 1))
    if other := other_version(claim, measured):
        raise InputError(f"{other}: analyse the model again")

    # The verdict, once from results and once from numbers: the registry may keep these alone.
    once = asked_once(claim)
    judged = once.judge_results(needed, facts)
    numbers: Mapping[str, Estimate] = {}
    controls: Sequence[Mapping[str, Estimate]] = ()
    if judged.evidence:
        numbers, controls = once.numbers(needed, facts)
    again = once.decided(numbers, controls, facts)[0]
    if again != judged.verdict:
        raise InputError(f"its numbers give {again}, but its results give {judged.verdict}")

    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    code = {"judged by": code_of(claim.study)}
    for key, version in _mapping(report.provenance.get("environment")).items():
        code[str(key)] = str(version)
    return Entry(
        claim=claim.id,
        version=version_of(claim),
        sha256="",
        name="",
        recipe=str(report.checkpoint.get("kind_of_training") or ""),
        expected="",
        verdict=judged.verdict,
        reason=judged.reason,
        quote=claim.quote,
        criterion=claim.criterion.text,
        fixed=now[:10],
        estimate=judged.estimate,
        decided_by=judged.decided_by.quantity,
        numbers=dict(numbers),
        controls=tuple(dict(its) for its in controls if its),
        p=chance_of(claim.criterion, numbers, judged.verdict),
        n_prompts=int(report.provenance.get("n_prompts", 0)),
        seed=int(report.provenance.get("seed", 0)),
        analyzed=str(report.provenance.get("analyzed", "")),
        added=now,
        code=code,
        measurements=measured,
        stored=pack(report.model, needed),
    )


def _mapping(value: Any) -> Mapping[Any, Any]:
    """A part of a report, which may hold anything."""
    return value if isinstance(value, Mapping) else {}


def other_version(claim: Claim, measured: Mapping[str, int]) -> str:
    """Says which measurement has another version now than results have; empty for none."""
    for name, version in measured.items():
        m = claim.needs.get(name)
        if m is not None and m.version != version:
            return f"{name} is of version {version}, not {m.version}"
    return ""


@functools.cache
def code_of(study: str) -> str:
    """A hash of the code that judges the claims of a study; empty for claims without one."""
    return job_cache.sources(STUDIES[study]) if study in STUDIES else ""


@functools.cache
def hash_of_bundled(name: str) -> str:
    """The hash of a bundled model's weights, or of a further seed's; empty where there is none."""
    for room in ("models", "seeds"):
        place = bundled.ZOO / room / name
        if name and Path(name).name == name and (place / "config.json").is_file():
            return weights_hash(store.load(place).model)
    return ""
