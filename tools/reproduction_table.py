"""The README's table of reproductions, from the results that come with the package.

python tools/reproduction_table.py [STUDY]     # limits by default
"""

import sys

from icl_interp.experiments import base, kept
from icl_interp.experiments.errors import WORDS


def numbers(lines: list[str]) -> str:
    """The median of ours / the paper's and the rank correlation, of each sentence that has them."""
    found = [line for line in lines if line.startswith("Ours / the paper's")]
    return "; ".join(f"{line.split('median ')[1].split(',')[0]} (rank {line.rsplit(' ', 1)[1][:-1]})" for line in found)


if __name__ == "__main__":
    study = sys.argv[1] if len(sys.argv) > 1 else "limits"
    print("| id | what is done again | ✔ | ✘ | ? | misprints | ours / paper |\n|---|---|---|---|---|---|---|")
    for name in base.names():
        if base.get(name).study == study and kept.path(name).is_file():
            lines = kept.record(name)["says"]
            counts = (str(sum(line.startswith(word) for line in lines)) for word in WORDS)
            shown = f"| `{name}` | {base.get(name).title} | {' | '.join(counts)} | {numbers(lines) or '–'} |"
            print(shown.replace("|x|", "\\|x\\|"))
