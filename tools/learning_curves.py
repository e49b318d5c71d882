"""The loss of bundled models by the step of their training, as a table in Markdown.

python tools/learning_curves.py MODEL ...

Losses are means over all prompt lengths, of the lines of `metrics.jsonl` within 250 steps.
"""

import json
import sys
from statistics import mean

from icl_interp.checkpoints import bundled

STEPS = (2000, 4000, 8000, 12000, 16000)
NEAR = 250


def row(name: str) -> str:
    """A line of the table: losses, and R² at the end of training."""
    lines = (bundled.folder(name) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    metrics = [json.loads(line) for line in lines]
    cells = [f"`{name}`"]
    for step in STEPS:
        losses = [one["loss"] for one in metrics if abs(one["step"] - step) <= NEAR]
        cells.append(f"{mean(losses):.2g}" if losses else "–")
    cells.append(f"{bundled.provenance(name)['in_distribution']['r2']:.2f}")
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(f"| model | {' | '.join(f'{step:,}' for step in STEPS)} | R² |")
    print("|---" * (len(STEPS) + 2) + "|")
    for name in sys.argv[1:]:
        print(row(name))
