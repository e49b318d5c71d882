"""Copy the results of `icl-interp reproduce` into the package, where `icl_interp.experiments.results` finds them.

python tools/keep_results.py OUT [ID ...]     # all experiments of the folder by default
"""

import json
import sys
from pathlib import Path

from icl_interp.errors import InputError
from icl_interp.experiments import base, kept
from icl_interp.provenance import read_json, write_atomically
from icl_interp.reproduction.page import index_markdown


def keep(out: Path, name: str) -> None:
    """One experiment's record, on one line: these files are read by programs, and there is much in them."""
    base.get(name)
    record = kept.checked(read_json(out / name / "results.json"), str(out / name))
    if record["scale"]["name"] == "smoke":
        raise InputError(f"{name} was run at scale smoke, which shows nothing: keep results of another scale")
    write_atomically(kept.path(name), json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n")
    print(f"{name}: {kept.path(name).stat().st_size / 1024:.0f} KiB, missing: {', '.join(record['missing']) or 'none'}")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for experiment in sys.argv[2:] or [n for n in base.names() if (folder / n / "results.json").is_file()]:
        keep(folder, experiment)
    records = [kept.record(name) for name in base.names() if kept.path(name).is_file()]
    write_atomically(kept.FOLDER / "README.md", index_markdown(records))
