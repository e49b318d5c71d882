"""Copy a finished run into the package's zoo, and measure its in-distribution error again with the code as it is.

python tools/bundle.py RUN_FOLDER NAME [RECIPE]

RECIPE is given where the name is not the recipe's: for a second seed, say.
"""

import shutil
import sys
from pathlib import Path

from icl_interp import evaluation
from icl_interp.checkpoints import bundled, store
from icl_interp.provenance import write_json


def bundle(run: Path, name: str, recipe: str) -> None:
    """Copy config, weights and metrics of a run; write provenance with a fresh measurement."""
    checkpoint = store.load(run)
    if not checkpoint.provenance.get("finished"):
        sys.exit(f"{run} is not finished: it stands at step {checkpoint.step}")
    if recipe not in bundled.recipes():
        sys.exit(f"{name} needs the recipe that made it: there is none called {recipe}")
    folder = bundled.folder(name)
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("config.json", "model.safetensors", "metrics.jsonl"):
        shutil.copy(run / file, folder / file)
    origin = {key: value for key, value in checkpoint.provenance.items() if key != "name"}
    error = evaluation.in_distribution(checkpoint, checkpoint.task)
    write_json(
        folder / "provenance.json", {**origin, "recipe": f"{recipe}.yaml", "in_distribution": error}
    )
    print(f"{name}: in-distribution error {error['error']:.3g}, R2 {error['r2']:.5f}")


if __name__ == "__main__":
    bundle(Path(sys.argv[1]), sys.argv[2], sys.argv[-1] if len(sys.argv) > 3 else sys.argv[2])
