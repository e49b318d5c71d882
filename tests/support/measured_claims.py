"""Shared by tests of claims: a model measured for some claims, as by `analyze`.

It needs no checkpoint.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from made_up_facts import changed, facts

import icl_interp.analyses  # noqa: F401  (registers the claims)
from icl_interp import registers
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.registry import REGISTRY, select
from icl_interp.experiments.calibration import TASK
from icl_interp.models import tokens
from icl_interp.models.transformer import HookedTransformer
from icl_interp.results import Result
from icl_interp.tasks.base import Task


def answered(finding: Finding) -> bool:
    """Whether a reason begins with what its claim says for such a verdict."""
    claim = REGISTRY[finding.id]
    sentences = {
        "supported": claim.statement,
        "contradicted": finding.decided_by.denied or claim.denied,
        "inconclusive": "It is open whether ",
    }
    return finding.reason.startswith(sentences[finding.verdict])


@dataclass
class Measured:
    """A model's results and what judges may know about it."""

    lab: Lab
    results: dict[str, Result]
    facts: Facts

    def judge(self, claim: str, **known: Any) -> Finding:
        """The finding on a claim; `known` overrides facts."""
        return REGISTRY[claim].judge_results(self.results, changed(self.facts, **known))


def judged_on(claim: str, results: Mapping[str, Result], known: Facts | None = None) -> Finding:
    """The finding on a claim from results and facts that a test makes up."""
    return REGISTRY[claim].judge_results(results, known or facts())


def _measured(
    model: HookedTransformer,
    *claims: str,
    task: Task = TASK,
    n_units: int = 32,
    n_contexts: int = 1,
    seed: int = 0,
    matched: HookedTransformer | None = None,
    lab_class: type[Lab] = Lab,
) -> Measured:
    encoding = tokens.infer_for(task, model.cfg.d_in)
    lab = lab_class(
        model, task, encoding, n_units=n_units, n_contexts=n_contexts, seed=seed, matched=matched
    )
    out, truth = lab.predictions()
    error = float((out - truth).square().mean())
    found = {"error": error, "r2": 1 - error / float(truth.var())}
    known = Facts.of(model, task, tokens.name_of(encoding), found, n_units=n_units)
    for claim in select(claims or None):
        if not claim.exclusion(known):
            for m in claim.measurements:
                lab.measure(m)
            for m in claim.control:
                lab.control.measure(m)
    return Measured(lab, lab.results, known)


@pytest.fixture(scope="session")
def measured() -> Callable[..., Measured]:
    """Measure a model: `measured(model, "study.claim", ...)`, all claims by default."""
    return _measured


@pytest.fixture(scope="session")
def judged() -> Callable[..., dict[str, Finding]]:
    """Measure and judge a model: the findings on some claims, all by default, by id."""

    def judge(model: HookedTransformer, *claims: str, **settings: Any) -> dict[str, Finding]:
        bench = _measured(model, *claims, **settings)
        return {claim.id: bench.judge(claim.id) for claim in select(claims or None)}

    return judge


@pytest.fixture
def registry() -> Sequence[str]:
    """The ids registered before the test; what the test registers is gone after it."""
    with registers.as_before():
        yield tuple(REGISTRY)
