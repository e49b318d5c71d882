"""What `icl-interp selfcheck` shows: each study's battery and power curves, kept or made anew."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from textwrap import wrap

from icl_interp.jobs.engine import Engine
from icl_interp.provenance import write_json
from icl_interp.studies import STUDIES
from icl_interp.studies.base import Study
from icl_interp.testing import battery, curves
from icl_interp.testing.battery import Battery, Watch
from icl_interp.testing.curves import Curves


def said(found: Battery | Curves) -> str:
    """The outcome of a battery or of power curves.

    It holds the trials of each claim (for a battery), the sentences about them, and a line for each
    shortcoming.
    """
    lines = [*(found.by_trial() if isinstance(found, Battery) else ())]
    for sentence in found.summary():
        lines += wrap(sentence, battery.WIDTH, subsequent_indent="  ")
    return "\n".join(f"  {line}" for line in (*lines, *found.short()))


def chosen(names: Iterable[str] | None = None) -> list[Study]:
    """The studies of these names, all by default.

    Raises:
        InputError: there is none of a name.
    """
    return list(STUDIES.values()) if names is None else [STUDIES.named(name) for name in names]


def kept(studies: Iterable[Study]) -> Iterator[str]:
    """What came out when it was last run, of each study that keeps it."""
    for study in studies:
        for found, command in (
            (battery.kept(study), battery.COMMAND),
            (curves.kept(study), curves.COMMAND),
        ):
            if found:
                yield f"{study.name}, kept results of {command}:\n{said(found)}"


def made(
    studies: Sequence[Study],
    out: Path,
    *,
    full: bool,
    power: bool,
    draws: int | None,
    seed: int,
    engine: Engine,
    watch: Watch,
) -> Iterator[tuple[str, bool]]:
    """The battery (`full`) and the power curves of studies, and whether all is as it must be.

    Parts and results go to a folder for each study, where a run that was stopped goes on.
    """
    for study in studies:
        folder = out / study.name
        if full:
            n_draws = battery.DRAWS if draws is None else draws
            whole = battery.run(
                study, folder, n_draws=n_draws, seed=seed, engine=engine, watch=watch
            )
            write_json(folder / "battery.json", whole.to_dict())
            yield f"{study.name}:\n{said(whole)}", not whole.short()
        if power and study.dials:
            n_draws = curves.DRAWS if draws is None else draws
            turned = curves.run(
                study, folder / "power", n_draws=n_draws, seed=seed, engine=engine, watch=watch
            )
            write_json(folder / "power.json", turned.to_dict())
            yield f"{study.name}:\n{said(turned)}", not turned.short()
