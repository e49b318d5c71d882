"""Train the models that follow a plan, and put those that pass their tests into the package.

python tools/train_planted.py [FAMILY ...]     # models that are not there yet, one at a time
python tools/train_planted.py --try PARTS      # then try every method on them, into the kept trial

A model takes about a minute of one core. One that falls short in a test is not kept.
"""

import argparse
import time
from pathlib import Path

import torch

from icl_interp.provenance import write_json
from icl_interp.testing.planted import tools, trained
from icl_interp.testing.planted.plans import PLANS


def main() -> None:
    """Train what is missing, then try the methods if they are asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("families", nargs="*", help="names of plans; all by default")
    parser.add_argument("--try", dest="parts", type=Path, help="a folder that keeps what is tried")
    asked = parser.parse_args()

    # Products are too small for several threads.
    torch.set_num_threads(1)
    for family in asked.families or PLANS:
        for seed in range(trained.MOST):
            there = trained.kept(family)
            if seed in there or len(there) >= trained.N_TRAINED:
                continue
            start = time.monotonic()
            found, faults = trained.keep(family, seed)
            worst = min(found.interchange.values())
            effect = max(found.effects.values())
            print(
                f"{family} {seed}: {time.monotonic() - start:.0f} s, error {found.error:.1e}, "
                f"interchange {worst:.5f}, effects elsewhere {effect:.1e}, hat {found.hat:.1e}, "
                f"{'falls short: ' + ', '.join(faults) if faults else 'kept'}",
                flush=True,
            )
    if asked.parts is None:
        return
    made = tools.run(asked.parts, families=tuple(PLANS))
    before = tools.kept()
    whole = made if before is None else before.joined(made)
    write_json(tools.KEPT, whole.to_dict())
    for line in whole.lines():
        print(line)


if __name__ == "__main__":
    main()
