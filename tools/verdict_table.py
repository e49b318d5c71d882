"""Print the README's table: every claim's verdict and estimate on every bundled model.

python tools/verdict_table.py [MODEL ...]
"""

import sys

from icl_interp import pipeline
from icl_interp.analyses import registry
from icl_interp.checkpoints import bundled
from icl_interp.report import Report

MARKS = {"supported": "✔", "contradicted": "✘", "inconclusive": "?", "not_applicable": "–"}


def cell(report: Report, claim: str) -> str:
    """A verdict's mark and the number it rests on."""
    finding = report[claim]
    number = f" {finding.test.value:.2g}" if finding.test else ""
    return MARKS[finding.verdict] + number


def main(names: list[str]) -> None:
    """A column a model, a row a claim, in Markdown."""
    reports = {name: pipeline.analyze(name) for name in names}
    print("| | " + " | ".join(f"`{name}`" for name in names) + " |")
    print("|---|" + "---|" * len(names))
    errors = [f"{report.model['in_distribution']['error']:.1e}" for report in reports.values()]
    print("| in-distribution error | " + " | ".join(errors) + " |")
    for claim in registry.REGISTRY:
        print(f"| `{claim}` | " + " | ".join(cell(report, claim) for report in reports.values()) + " |")
    for report in reports.values():
        print(f"\n{report.checkpoint['name']} ({report.provenance['seconds']:.0f} s)", file=sys.stderr)
        for finding in report.findings:
            print(f"  {finding.verdict:15} {finding.id}: {finding.reason}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:] or bundled.names())
