"""The README's table of reproductions, from the results that come with the package.

python tools/reproduction_table.py [STUDY]     # limits by default
"""

import re
import sys

from icl_interp.experiments import base, kept, statements
from icl_interp.experiments.errors import FACTORS

APART = {  # what is listed and not counted, in words
    "formulas that hold": statements.HOLDS,
    "that fail": statements.FAILS,
    "that are undecided": statements.UNSETTLED,
    "misprints": statements.MISPRINT,
    "left out": statements.LEFT_OUT,
}


def beside(lines: list[str]) -> str:
    """What is not counted, by kind."""
    found = statements.counts(lines)
    return ", ".join(f"{name}: {n}" for name, word in APART.items() if (n := found[word]))


def factors(lines: list[str]) -> str:
    """The least and the largest of the factors by sigma (medians where there are several), of each sentence of them."""
    shown = []
    for line in (line for line in lines if line.startswith(FACTORS)):
        values = [
            float(value) for value in re.findall(r"([\d.e+-]+)(?: \([^)]*\))? at sigma", line)
        ]
        shown.append(f"{min(values):g} to {max(values):g}")
    return "; ".join(shown)


if __name__ == "__main__":
    study = sys.argv[1] if len(sys.argv) > 1 else "limits"
    print(
        "| id | what is reproduced | ✔ | ✘ | ? | not counted | ours / paper, by σ |\n"
        "|---|---|---|---|---|---|---|"
    )
    for name in base.names():
        if base.get(name).study == study and kept.path(name):
            lines = kept.record(name)["says"]
            found = statements.counts(lines)
            counts = " | ".join(str(found[word]) for word in statements.COUNTED)
            title = base.get(name).title.replace("|", "\\|")
            print(
                f"| `{name}` | {title} | {counts} | {beside(lines) or '–'} | "
                f"{factors(lines) or '–'} |"
            )
