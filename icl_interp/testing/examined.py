"""What the rules of `check_study` look at: members of a study's constructions, as judged."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from icl_interp import results
from icl_interp.analyses.claim import Claim
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.experiments import calibration
from icl_interp.experiments.calibration import YES
from icl_interp.models.transformer import HookedTransformer
from icl_interp.studies.base import Study
from icl_interp.testing import effects, known_models
from icl_interp.testing.reparameterisations.targets import Posed


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

    def has_verdict(self, claim: Claim) -> bool:
        """Whether a claim was judged, and applies."""
        finding = self.findings.get(claim.id)
        return finding is not None and finding.verdict != "not_applicable"

    def supports(self, claim: Claim) -> bool:
        """Whether a claim was judged to be true."""
        finding = self.findings.get(claim.id)
        return finding is not None and finding.verdict == YES

    @property
    def alone(self) -> bool:
        """Whether it is a model by itself.

        What is predicted in a model's place, or known of its companions or its training, does not
        change with weights.
        """
        return not (self.case.predictor or self.case.companions or self.case.snapshots)

    def posed(self) -> Posed:
        """The model with its task, as edits take it."""
        task = self.case.task or calibration.TASK
        return Posed(self.case.model, task, self.case.reads())


class Examined:
    """A study with one member of each of its constructions, measured when a rule first needs it."""

    def __init__(self, study: Study, seed: int, done: Path | None = None) -> None:
        self.study = study
        self.seed = seed
        self.done = done
        self.claims = {claim.id: claim for claim in study.claims}
        self.moved: dict[str, bool] = {}

    @cached_property
    def judged(self) -> list[Judged]:
        """One member of each construction."""
        found = []
        with effects.observed() as self.moved:
            for construction in self.study.constructions:
                claims = {}
                for name in construction.expected:
                    if name in self.claims:
                        claims[name] = self.claims[name]
                case = construction.draw(self.seed)
                found.append(self._judged(construction.name, case, claims))
        return found

    @cached_property
    def plain(self) -> list[tuple[Judged, list[Claim]]]:
        """The cases on which claims are tried alone, each with its claims.

        For each claim it is the first case that supports it and is a model by itself.
        """
        found: dict[str, tuple[Judged, list[Claim]]] = {}
        for claim in self.study.claims:
            for one in self.judged:
                if one.supports(claim) and one.alone:
                    _, claims = found.setdefault(one.name, (one, []))
                    claims.append(claim)
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
            if claim.kind != "learning" or one is None:
                continue
            fresh = HookedTransformer(one.case.model.cfg, seed=self.seed + 1)
            model = fresh.double().eval()
            case = calibration.Case(model, one.case.task, encoding=one.case.encoding)
            found.append(self._judged(one.name, case, {claim.id: claim}))
        return found

    def _judged(self, name: str, case: calibration.Case, claims: dict[str, Claim]) -> Judged:
        lab, facts = calibration.lab_for(case, seed=self.seed)
        measured = calibration.measure(lab, facts, list(claims.values()))
        stored = as_stored(measured)
        findings = {}
        for key, claim in claims.items():
            findings[key] = claim.judge_results(measured, facts)
        return Judged(name, case, facts, measured, stored, findings, claims)


def as_stored(measured: Mapping[str, Any]) -> dict[str, str]:
    """Results as a report stores them, as text: NaN is then equal to NaN."""
    return {name: json.dumps(results.to_dict(result)) for name, result in measured.items()}


def read_back(stored: Mapping[str, str]) -> Results:
    """Results from the texts that `as_stored` made of them."""
    read = {name: results.from_dict(json.loads(text)) for name, text in stored.items()}
    return Results(read)
