"""Copy the results of `icl-interp reproduce` into the package.

`icl_interp.experiments.results` finds them there.

python tools/keep_results.py OUT [ID ...]     # all of the folder by default, with variants
python tools/keep_results.py                  # none: what is kept gets the words of today's code
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from icl_interp.errors import InputError
from icl_interp.experiments import kept, variants
from icl_interp.provenance import read_json, write_atomically
from icl_interp.reproduction.page import folder_of, index_markdown
from icl_interp.reproduction.run import said, title
from icl_interp.results import from_dict, to_dict


def in_words(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with what the code says about its results now."""
    experiment = variants.in_folder(folder_of(record))
    scale = record["scale"]["name"]
    results = {name: from_dict(data) for name, data in record["results"].items()}
    comparison = experiment.compare(results)
    statements = said(experiment, results, scale)
    # What was run stays what it was where the experiment asks for other models now.
    size = record["scale"]
    if kept.is_current(record, experiment):
        size = kept.scale_of(experiment, scale)
    elif not size["words"].startswith(kept.EARLIER):
        size = {**size, "words": kept.EARLIER + size["words"]}
    return {
        **record,
        "title": title(experiment),
        "source": experiment.source,
        "says": [statement.sentence for statement in statements],
        "statements": [statement.to_dict() for statement in statements],
        "scale": size,
        "comparison": to_dict(comparison) if comparison is not None else None,
    }


def keep(record: Mapping[str, Any]) -> None:
    """Write one experiment's record on one line: these files are long and read by programs."""
    name = folder_of(record)
    if record["scale"]["name"] == "smoke":
        raise InputError(
            f"{name} was run at scale smoke, which shows nothing: keep results of another scale"
        )
    place = kept.place(name)
    if place is None:
        raise InputError(
            f"the study of {name} has no folder for results: give its Study(folder=...)"
        )
    write_atomically(
        place, json.dumps(in_words(record), separators=(",", ":"), allow_nan=False) + "\n"
    )
    print(
        f"{name}: {place.stat().st_size / 1024:.0f} KiB, missing: "
        f"{', '.join(record['missing']) or 'none'}"
    )


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    for experiment in sys.argv[2:] or variants.every():
        path = folder / experiment / "results.json" if folder else kept.path(experiment)
        if path and path.is_file():
            keep(kept.checked(read_json(path), str(path)))
    for study in sorted({name.partition(".")[0] for name in kept.names()}):
        records = [kept.record(name) for name in kept.names() if name.startswith(f"{study}.")]
        write_atomically(kept.FOLDERS[study] / "README.md", index_markdown(records))
