"""Make parts of a study's battery anew, and put what came out into the package.

python tools/renew_battery.py PARTS STUDY [--minutes N] [--processes N] [--kinds draws ...]

A battery takes hours (`icl-interp selfcheck --full`), and a change of the code makes its folder
useless. This makes parts for as long as it is given: first those that the kept battery lacks, then
those that were made by other code. Each is put into `results/battery.json` as soon as it is done,
with a hash of the code that made it.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

from icl_interp.errors import InputError
from icl_interp.jobs.engine import Engine
from icl_interp.provenance import write_atomically
from icl_interp.studies import STUDIES
from icl_interp.studies.base import Study
from icl_interp.testing import battery, job_cache
from icl_interp.testing.battery import DRAWN, KNOWN, TRIALS, Battery, Name


def missing(study: Study, kept: Battery, sources: str) -> list[Name]:
    """Parts that this code has not made: those first that are not there, then the oldest."""
    made_by = kept.settings.get("made_by", {})
    ages = list(made_by)
    drawn = set(zip(kept.draws["construction"], kept.draws["claim"], strict=True))
    expected = {one.name: one.expected for one in study.constructions}

    def order(part: Name) -> int:
        kind, name = part
        told = ", ".join(part)
        if kind == DRAWN and any((name, claim) not in drawn for claim in expected[name]):
            return -2
        return ages.index(told) if told in made_by else -1

    left = [part for part in battery.names(study) if made_by.get(", ".join(part)) != sources]
    return sorted(left, key=order)


def keep(found: Battery, place: Path) -> None:
    """Write a battery on one line: a file that is long and read by programs."""
    write_atomically(place, json.dumps(found.to_dict(), separators=(",", ":")) + "\n")


def main() -> None:
    """Make parts until the time is up."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", type=Path, help="a folder that keeps what is made")
    parser.add_argument("study")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--kinds", nargs="*", default=[TRIALS, KNOWN, DRAWN])
    asked = parser.parse_args()

    study = STUDIES.named(asked.study)
    if study.folder is None:
        raise InputError(f"{study.name} has no folder of the package that could keep its battery")
    sources = job_cache.sources(study)
    folder = asked.parts / study.name / sources
    # Without a kept battery it begins with one that has no parts.
    kept = battery.kept(study) or battery.run(study, folder, only=[])
    # Constructions that the study has no more are dropped.
    there = kept.draws["construction"].isin([one.name for one in study.constructions])
    kept = replace(kept, draws=kept.draws[there].reset_index(drop=True))
    place = study.folder / "results" / "battery.json"
    left = [part for part in missing(study, kept, sources) if part[0] in asked.kinds]
    end = time.monotonic() + 60 * asked.minutes
    engine = Engine("local", {"processes": asked.processes})
    while left and time.monotonic() < end:
        # As many parts at once as there are processes.
        some, left = left[: asked.processes], left[asked.processes :]
        made = battery.run(study, folder, engine=engine, only=some)
        kept = kept.renewed(made, battery.names(study))
        keep(kept, place)
        for kind, name in some:
            print(f"{kind}, {name}: done; {len(left)} left", flush=True)
    for line in kept.short():
        print(line)


if __name__ == "__main__":
    main()
