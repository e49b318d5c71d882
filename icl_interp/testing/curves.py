"""Power curves of a study: how surely its claims are judged on the way from false to true.

It takes minutes to hours. Each curve is kept in a folder as soon as it is done, so a run that was
stopped goes on. What came out for the bundled studies comes with the package (`results/power.json`
of each).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pandas import DataFrame

from icl_interp.experiments import power
from icl_interp.experiments.calibration import NO, YES
from icl_interp.jobs import engine as jobs
from icl_interp.jobs.engine import HERE, Engine, results
from icl_interp.jobs.job import Job, claim_folder, part
from icl_interp.provenance import environment, read_json
from icl_interp.results import to_dict
from icl_interp.structured import Stored, of_schema
from icl_interp.studies.base import STUDIES, Study
from icl_interp.testing import job_cache
from icl_interp.testing.battery import Watch, read_table

SCHEMA = "icl_interp.power/1"
DRAWS = 20  # models for each value
COMMAND = "icl-interp selfcheck --power --out FOLDER"
# Share of the draws at each end that must be judged as they are: fewer come from 0.95 of all with
# P = 0.08.
SURE = 0.9
CHANCE = 0.2  # by which shares of neighbouring values may be the other way round


@dataclass(frozen=True)
class Curves:
    """What came out.

    Attributes:
        study: its name.
        tables: by dial, as `power.curve` gives them.
        settings: what was run: draws, seed, and a hash of the code ("sources").
    """

    study: str
    tables: dict[str, DataFrame]
    settings: dict[str, Any]

    def short(self) -> list[str]:
        """What falls short, a line each; empty if curves rise from contradicted to supported."""
        lines = []
        for name, table in self.tables.items():
            missed = falls_short(table)
            if missed:
                lines.append(f"{name}: {missed}")
        return lines

    def summary(self) -> list[str]:
        """The curves in a sentence."""
        n_draws = self.settings["draws"]
        rising = len(self.tables) - len(self.short())
        sentence = f"power curves that go from contradicted to supported: {rising} of "
        return [sentence + f"{len(self.tables)} ({n_draws} draws a value)"]

    def to_dict(self) -> dict[str, Any]:
        """As it is written to a file."""
        tables = {name: to_dict(table) for name, table in self.tables.items()}
        return {
            "schema": SCHEMA,
            "study": self.study,
            "command": COMMAND,
            "settings": self.settings,
            "tables": tables,
            "environment": environment(),
        }

    @classmethod
    def read(cls, path: Path) -> "Curves":
        """Of a file that `to_dict` made."""
        stored = of_schema(read_json(path), SCHEMA, path)
        tables = {}
        for name, one in stored["tables"].members().items():
            tables[name] = read_table(one)
        return cls(stored["study"].of(str), tables, stored["settings"].facts())


def falls_short(table: DataFrame) -> str:
    """What is wrong with a power curve, or nothing.

    A curve must go from contradicted to supported and not turn back.
    """
    yes = (table[YES] / table["draws"]).to_numpy(dtype=float)
    no = (table[NO] / table["draws"]).to_numpy(dtype=float)
    wrong = []
    # At the ends, where the claim is false and where it is true.
    if no[0] < SURE:
        wrong.append(f"only {no[0]:.0%} are contradicted where the claim is false")
    if yes[-1] < SURE:
        wrong.append(f"only {yes[-1]:.0%} are supported where it is true")
    if yes[0] > 0:
        wrong.append(f"{yes[0]:.0%} are supported where it is false")
    if no[-1] > 0:
        wrong.append(f"{no[-1]:.0%} are contradicted where it is true")
    # On the way.
    if np.diff(yes).min() < -CHANCE:
        wrong.append("the share that is supported falls on the way to true")
    if np.diff(no).max() > CHANCE:
        wrong.append("the share that is contradicted rises on the way to true")
    return "; ".join(wrong)


def kept(study: Study) -> Curves | None:
    """What came out for a study, where it comes with the package."""
    if not study.folder:
        return None
    path = study.folder / "results" / "power.json"
    return Curves.read(path) if path.is_file() else None


def run(
    study: Study,
    done: Path,
    *,
    n_draws: int = DRAWS,
    seed: int = 0,
    engine: Engine = HERE,
    watch: Watch | None = None,
) -> Curves:
    """The power curves of a study that is registered.

    Args:
        study: its dials are turned.
        done: the folder that keeps each curve.
        n_draws: models for each value.
        seed: of the first draw.
        engine: where curves are made, each as a job.
        watch: is told what is done.

    Raises:
        InputError: the folder keeps curves that other code made, or of other draws.
    """
    made_by = {"sources": job_cache.sources(study), "draws": n_draws, "seed": seed}
    claim_folder(done, made_by)
    names = [dial.name for dial in study.dials]
    work = []
    for name in names:
        arguments = {"study": study.name, "name": name, "n_draws": n_draws, "seed": seed}
        work.append(Job(name, part(done, name), _turn, arguments))
    tables = {}
    for name, found in zip(names, results(jobs.run(work, engine, watch=watch)), strict=True):
        tables[name] = read_table(Stored(found, f"{done}, {name}: "))
    return Curves(study.name, tables, made_by)


def _turn(study: str, name: str, n_draws: int, seed: int) -> dict[str, Any]:
    assert study in STUDIES  # reading the register has the studies of other packages loaded
    return to_dict(power.curve(name, n_draws, seed))
