"""Small reports under several names, with other numbers for one claim, and three as seeds."""

from dataclasses import replace

import small_reports

from icl_interp.analyses.criterion import Estimate
from icl_interp.report.comparison import Comparison

CLAIM = "limits.layernorm_saturation"


def named(name, value=None, verdict=None, recipe="one"):
    """The small report under another name, with another number for one claim."""
    report = small_reports.report()
    report.checkpoint |= {"name": name, "kind_of_training": recipe}
    if value is not None:
        changed = {"test": Estimate("change", value, value / 2, value * 2, "u"), "verdict": verdict}
        report.findings = [replace(f, **changed) if f.id == CLAIM else f for f in report.findings]
    return report


def seeds():
    return Comparison(
        (
            named("a", 1.0, "contradicted"),
            named("b", 2.0, "contradicted"),
            named("c", 6.0, "supported"),
            named("d", 50.0, "supported", "another recipe"),
        )
    )
