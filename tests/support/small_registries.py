"""Shared by tests of the registry of verdicts: a claim about made-up results, and its reports."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from made_up_facts import facts

from icl_interp.analyses.claim import Claim
from icl_interp.analyses.criterion import Condition, Criterion, at_least, at_most
from icl_interp.analyses.finding import Quote
from icl_interp.analyses.measurement import Results, measurement
from icl_interp.analyses.registry import register
from icl_interp.registry import Entry, add, entries_of, read
from icl_interp.report.report import Report
from icl_interp.resampling import bootstrap
from icl_interp.results import make_array

N_UNITS = 64


@measurement("own/share")
def share(lab):
    """A number of each unit; reports here are made from made-up results."""
    raise AssertionError("no model is measured in these tests")


def rule(support: float = 0.1, against: float = 0.2) -> Criterion:
    """A mean that supports where it is small."""
    return Criterion((Condition("mean", "mean", at_most(support), at_least(against)),))


def evidence(results, facts):
    """The mean over units."""
    return {"mean": bootstrap(lambda v: v, results[share].values)}


OWN = Claim(
    id="own.small",
    kind="architecture",
    statement="It is small.",
    denied="It is large.",
    criterion=rule(),
    measurements=(share,),
    control=(share,),
    evidence=evidence,
    quote=Quote("It is small.", "a page"),
)


def registered(**changes: Any) -> Claim:
    """The claim in the register, with changes."""
    return register(replace(OWN, **changes))


def report(
    name: str, mean: float, seed: int = 0, planted: str = "", n_units: int = N_UNITS, **origin: Any
) -> Report:
    """A report on a checkpoint of this name, whose units have this mean."""
    drawn = np.random.default_rng(seed).normal(size=n_units)
    values = mean + 0.02 * (drawn - drawn.mean()) / drawn.std()
    results = {}
    for key, shift in (("own/share", 0.0), ("twin/own/share", 0.3)):
        results[key] = make_array(values + shift, {"unit": tuple(range(n_units))})
    origin |= {"name": name, "weights_sha256": hashlib.sha256(name.encode()).hexdigest()}
    if planted:
        origin["planted"] = {OWN.id: planted}
    known = replace(facts(), n_units=n_units)
    claim = registered()
    provenance = {
        "analyzed": f"2026-01-0{seed + 1}T00:00:00+00:00",
        "n_prompts": 8 * n_units,
        "seed": seed,
        "measurements": dict.fromkeys(results, 1),
        "environment": {"icl-interp": "0.1.0"},
    }
    finding = claim.judge_results(results, known)
    return Report(origin, known.to_dict(), [finding], Results(results), provenance)


def entry(name: str, mean: float, **more: Any) -> Entry:
    """The entry of such a report."""
    (found,), refused = entries_of(report(name, mean, **more), name)
    assert not refused
    return found


def filled(folder: Path) -> Path:
    """A registry with one checkpoint of each verdict."""
    means = {"low": 0.05, "middle": 0.15, "high": 0.3}
    list(add(folder, [entry(name, mean) for name, mean in means.items()]))
    assert not read(folder).problems
    return folder
