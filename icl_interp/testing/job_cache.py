"""What the jobs of a study's trials depend on: its code, so that other code's are refused."""

import hashlib
from pathlib import Path

from icl_interp.studies.base import Study

PACKAGE = Path(__file__).parents[1]
STUDIES = PACKAGE / "studies"
SHOWING = (
    "figures",
    "report",
    "reproduction",
    *(
        "algorithms",
        "registry",
        "sweep",
        "batch.py",
        "options.py",
        "cli",
        "summary.py",
        "trajectories.py",
    ),
)  # what shows verdicts, in the package or in a study


def sources(study: Study) -> str:
    """A hash of all that the verdicts of a study depend on.

    It covers the package's code and models, and the study's own folder.

    Other studies are left out, since no study imports another. So is what shows verdicts: a word in
    the caption of a figure does not forbid a run of hours to go on.
    """
    found = hashlib.sha256()
    for root in (PACKAGE, *([study.folder] if study.folder else ())):
        for path in sorted(path for kind in ("*.py", "*.safetensors") for path in root.rglob(kind)):
            if root == PACKAGE and STUDIES in path.parent.parents:
                continue  # the study's own files are those of the other root
            if path.relative_to(root).parts[0] in SHOWING:
                continue
            found.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]
