"""What `icl-interp selfcheck` shows, kept or made anew.

It shows each study's battery and power curves, and what tools find of what is planted.
"""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from icl_interp.errors import InputError
from icl_interp.jobs import engine as jobs
from icl_interp.jobs.engine import Engine
from icl_interp.provenance import write_json
from icl_interp.studies import STUDIES
from icl_interp.studies.base import Study
from icl_interp.testing import battery, curves
from icl_interp.testing.battery import Battery, Watch
from icl_interp.testing.curves import Curves
from icl_interp.testing.planted import tools as trial
from icl_interp.testing.planted.draw import N_SEEDS
from icl_interp.testing.planted.tools import Tools


def said(found: Battery | Curves) -> str:
    """The outcome of a battery or of power curves.

    It holds the trials of each claim (for a battery), the sentences about them, and a line for each
    shortcoming.
    """
    lines = found.by_trial() if isinstance(found, Battery) else []
    for sentence in found.summary():
        lines += wrap(sentence, battery.WIDTH, subsequent_indent="  ")
    lines += found.short()
    return "\n".join(f"  {line}" for line in lines)


def of_tools(found: Tools) -> str:
    """The tables of a trial of the tools, with its targets."""
    return "\n".join(found.lines())


def chosen(names: Iterable[str] | None = None, *, tools_only: bool = False) -> list[Study]:
    """The studies of these names, all by default.

    Args:
        names: as they are registered.
        tools_only: whether tools are tried and nothing else, which is no matter of a study.

    Raises:
        InputError: there is none of a name, or a name where no study is asked about.
    """
    if names is not None and tools_only:
        raise InputError("--tools tries tools on planted models, of no study: leave --study out")
    if names is None:
        return list(STUDIES.values())
    return list(map(STUDIES.named, names))


def kept(studies: Iterable[Study]) -> Iterator[str]:
    """What came out when it was last run, of each study that keeps it."""
    for study in studies:
        whole = battery.kept(study)
        if whole:
            yield f"{study.name}, kept results of {battery.COMMAND}:\n{said(whole)}"
        turned = curves.kept(study)
        if turned:
            yield f"{study.name}, kept results of {curves.COMMAND}:\n{said(turned)}"
    tools = trial.kept()
    if tools:
        yield f"tools, kept results of {trial.COMMAND}:\n{of_tools(tools)}"


def engine(on: str, settings: Sequence[str] | None, processes: int | None) -> Engine:
    """Where the parts of what takes long run; here, in one process, by default.

    Args:
        on: the name of an engine.
        settings: of it, as `processes=2`.
        processes: of the local one, where it has no settings.
    """
    given = settings or []
    if on == "local" and not given:
        given = [f"processes={processes or 1}"]
    return jobs.asked(on, given)


def made(
    studies: Sequence[Study],
    out: Path | None,
    *,
    full: bool,
    power: bool,
    tools: bool,
    draws: int | None,
    seed: int,
    engine: Engine,
    watch: Watch,
) -> Iterator[tuple[str, bool]]:
    """The battery (`full`), the power curves and the trial of tools, and whether each is right.

    Parts and results go to a folder for each study, where a run that was stopped goes on. Tools
    keep theirs only where a folder is named.

    Raises:
        InputError: no folder for a battery or power curves.
    """
    if out is None and (full or power):
        raise InputError(
            "--full and --power take hours and keep their parts: name a folder for these with --out"
        )
    # Tools are tried first: they take minutes. Their parts are kept only where there is a folder.
    if tools:
        n_seeds = N_SEEDS if draws is None else draws
        with tempfile.TemporaryDirectory() as passing:
            folder = Path(passing) if out is None else out / "tools"
            tried = trial.run(folder, n_seeds=n_seeds, seed=seed, engine=engine, watch=watch)
        if out is not None:
            write_json(out / "tools.json", tried.to_dict())
        yield of_tools(tried), not tried.short()
    if out is None:
        return
    for study in studies:
        folder = out / study.name
        settings: dict[str, Any] = {"seed": seed, "engine": engine, "watch": watch}
        if full:
            settings["n_draws"] = battery.DRAWS if draws is None else draws
            whole = battery.run(study, folder, **settings)
            write_json(folder / "battery.json", whole.to_dict())
            yield f"{study.name}:\n{said(whole)}", not whole.short()
        if power and study.dials:
            settings["n_draws"] = curves.DRAWS if draws is None else draws
            turned = curves.run(study, folder / "power", **settings)
            write_json(folder / "power.json", turned.to_dict())
            yield f"{study.name}:\n{said(turned)}", not turned.short()
