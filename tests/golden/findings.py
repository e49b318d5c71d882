"""The record of every finding on every bundled model: what a change of the code is compared with.

    python tests/golden/findings.py                    # all bundled models (about 15 minutes)
    python tests/golden/findings.py affine lsa_fixed   # these
    python tests/golden/findings.py --write [MODEL ...]

A change that means to leave the numbers alone leaves the record alone. A change that mends a
definition writes the record anew, in a commit that shows which numbers moved.
"""

import json
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from icl_interp import pipeline
from icl_interp.checkpoints import bundled
from icl_interp.report import Report

RECORD = Path(__file__).with_name("findings")  # a file a model
RELATIVE, ABSOLUTE = 1e-6, 1e-9
# Claims that rest on predictions in the models' own float32. There the last bits of another
# processor show at about 1e-6 of a logarithm or a share (seen on the first four of limits and on
# `risk`, on plainer kernels), so these numbers may differ by so much.
SINGLE = {
    f"limits.{name}"
    for name in (
        "no_norm_better",
        "no_classical_algorithm",
        "no_icl2",
        "last_layer",
        "matches_least_squares",
        "patterns_alike",
        "attention_necessary",
        "attention_sufficient",
        "better_than_unknown_degree",
        "continuous_functions",
        "degrees_alike",
        "error_near_boundary",
        "icl1",
        "larger_intervals",
        "size_does_not_help",
        "training_density",
        "unseen_classes",
    )
} | {"linear_attention.risk", "gradient_descent.steps"}
ABSOLUTE_SINGLE = 1e-5
NUMBERS = ("value", "low", "high")
Findings = Mapping[str, Mapping[str, Any]]


def findings_of(model: str) -> dict[str, dict[str, Any]]:
    """Verdict, estimate and tested quantity of each claim that applies, by its id."""
    return condensed(pipeline.analyze(model, progress=False))


def condensed(report: Report) -> dict[str, dict[str, Any]]:
    """What the record keeps of a report."""
    found = {}
    for finding in report.findings:
        if finding.verdict == "not_applicable":
            continue
        entry: dict[str, Any] = {"verdict": finding.verdict}
        for name in ("estimate", "test"):
            estimate = getattr(finding, name)
            entry[name] = (
                None if estimate is None else {key: str(getattr(estimate, key)) for key in NUMBERS}
            )
        bounds = {*finding.decided_by.supports, *(finding.decided_by.contradicts or ())}
        found[finding.id] = {
            **entry,
            "bounds": sorted(bound for bound in bounds if math.isfinite(bound)),
        }
    return found


def close(a: float, b: float, claim: str = "") -> bool:
    """Whether two numbers of a claim are one up to rounding; two that are not defined are."""
    absolute = ABSOLUTE_SINGLE if claim in SINGLE else ABSOLUTE
    return math.isclose(a, b, rel_tol=RELATIVE, abs_tol=absolute) or (
        math.isnan(a) and math.isnan(b)
    )


def differences(recorded: Findings, found: Findings) -> Iterator[str]:
    """A line for each claim, verdict or number that is not what the record says.

    A verdict may change where an end of its interval lies as near to a bound as numbers may differ.
    """
    for claim in [*recorded, *(claim for claim in found if claim not in recorded)]:
        if claim not in found or claim not in recorded:
            yield f"{claim}: {'no longer applies' if claim in recorded else 'is not in the record'}"
            continue
        old, new = recorded[claim], found[claim]
        for name in ("estimate", "test"):
            a, b = old[name], new[name]
            if (a is None) != (b is None):
                yield f"{claim}: {name} was {a}, is {b}"
            elif a is not None and not all(
                close(float(a[key]), float(b[key]), claim) for key in NUMBERS
            ):
                yield f"{claim}: {name} was {words(a)}, is {words(b)}"
        ends = [float(old["test"][key]) for key in ("low", "high")] if old["test"] else []
        on_a_bound = any(close(end, bound, claim) for end in ends for bound in old["bounds"])
        if old["verdict"] != new["verdict"] and not on_a_bound:
            yield f"{claim}: verdict was {old['verdict']}, is {new['verdict']}"


def words(numbers: Mapping[str, str]) -> str:
    """An estimate with its interval.

    >>> words({"value": "0.5", "low": "0.25", "high": "1.0"})
    '0.5 [0.25, 1.0]'
    """
    return f"{numbers['value']} [{numbers['low']}, {numbers['high']}]"


def read(model: str) -> Findings:
    """What is recorded of a model; nothing where there is no record."""
    path = RECORD / f"{model}.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def recorded() -> set[str]:
    """The models with a record."""
    return {path.stem for path in RECORD.glob("*.json")}


def main(arguments: list[str]) -> int:
    """Compare or write; the exit status says whether anything differs."""
    if "--help" in arguments:
        print(__doc__)
        return 0
    write, models = (
        "--write" in arguments,
        [a for a in arguments if a != "--write"] or bundled.names(),
    )
    differing = 0
    for model in models:
        found = findings_of(model)
        lines = list(differences(read(model), found))
        differing += bool(lines)
        print(f"{model}: {len(found)} findings, {len(lines)} differences", flush=True)
        for line in lines:
            print(f"  {line}", flush=True)
        if write:
            RECORD.mkdir(exist_ok=True)
            (RECORD / f"{model}.json").write_text(
                json.dumps(found, indent=1, sort_keys=True) + "\n"
            )
    return 0 if write else min(differing, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
