"""Fill the registry of verdicts: bundled models, their further seeds, and models of known truth.

python tools/fill_registry.py PARTS [--models NAME ...] [--planted NAME ...] [--draws N]

Each model is a job with a part in PARTS: called again, it makes what is missing. Without names, all
bundled models and seeds are analysed (an hour on one core), and one draw of each construction
is made (five minutes). `--models` and `--planted` without names leave the kind out. Reports of
anybody else's models come in by `icl-interp registry add REPORT`, which keeps their hash alone.
"""

import argparse
import datetime
import hashlib
from pathlib import Path
from typing import Any

from icl_interp import pipeline
from icl_interp.analyses import registry as claims
from icl_interp.checkpoints import bundled
from icl_interp.experiments import calibration
from icl_interp.jobs import Engine, Job, part, run
from icl_interp.models.weights import weights_hash
from icl_interp.provenance import environment
from icl_interp.registry import folder, from_report
from icl_interp.registry.entry import Entry
from icl_interp.report.report import Report


def seeds() -> list[str]:
    """Names of the further seeds of bundled recipes."""
    return sorted(path.parent.name for path in (bundled.ZOO / "seeds").glob("*/config.json"))


def of_model(name: str) -> dict[str, Any]:
    """The entries of a bundled model or a further seed, as plain data."""
    source = name if name in bundled.names() else bundled.ZOO / "seeds" / name
    return _made(pipeline.analyze(source, progress=False))


def of_construction(name: str, draw: int) -> dict[str, Any]:
    """The entries of one member of a family of known truth, as plain data."""
    return _made(report_of(calibration.CONSTRUCTIONS.named(name), draw))


def report_of(construction: calibration.Construction, draw: int) -> Report:
    """A report on one member of a family of known truth: on the claims whose truth is known."""
    case = construction.draw(draw)
    lab, facts = calibration.lab_for(case, seed=draw)
    asked = claims.select(tuple(construction.expected))
    findings = list(calibration.found(lab, facts, asked).values())

    # A predictor may stand in the model's place, so weights alone do not tell who is judged.
    told = f"{weights_hash(case.model)}/{construction.name}/{draw}"
    origin = {
        "name": f"{construction.name}, draw {draw}",
        "weights_sha256": hashlib.sha256(told.encode()).hexdigest(),
        from_report.PLANTED: dict(construction.expected),
    }
    versions = {n: m.version for claim in asked for n, m in claim.needs.items() if n in lab.results}
    provenance = {
        "analyzed": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "n_prompts": len(lab.prompts),
        "seed": draw,
        "measurements": versions,
        "environment": environment(),
    }
    return Report(origin, facts.to_dict(), findings, lab.results, provenance)


def _made(report: Report) -> dict[str, Any]:
    entries, refused = from_report.entries_of(report)
    return {"entries": [entry.to_dict() for entry in entries], "refused": refused}


def main() -> None:
    """Make what is missing, and add it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", type=Path, help="a folder that keeps what is made")
    parser.add_argument("--registry", type=Path, default=Path("registry"))
    parser.add_argument("--models", nargs="*", default=[*bundled.names(), *seeds()])
    parser.add_argument("--planted", nargs="*", default=list(calibration.CONSTRUCTIONS))
    parser.add_argument("--draws", type=int, default=1, help="of each construction")
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()

    # A job for each model, and for each draw of a construction.
    work = []
    for name in asked.models:
        place = part(asked.parts, f"model {name}")
        work.append(Job(name, place, of_model, {"name": name}))
    for name in asked.planted:
        for draw in range(asked.draws):
            told = f"{name}, draw {draw}"
            place = part(asked.parts, f"planted {told}")
            work.append(Job(told, place, of_construction, {"name": name, "draw": draw}))
    ends = run(work, Engine("local", {"processes": asked.processes}), table=True)

    # What is done is added; what failed is listed, and is tried again by the next call.
    entries = []
    for end in ends:
        if end.state == "done":
            for data in end.result["entries"]:
                entries.append(Entry.from_dict(data, end.job.name))
            for line in end.result["refused"]:
                print(f"{end.job.name}: {line}")
        else:
            print(f"failed: {end.job.name}: {end.reason}")
    added = list(folder.add(asked.registry, entries))
    print(f"{len(entries)} entries made, {len(added)} lines of the registry new or changed")


if __name__ == "__main__":
    main()
