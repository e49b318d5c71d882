"""What a study is, and how one is made known: its claims, experiments and figures then stand among all others."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from icl_interp.analyses import registry
from icl_interp.analyses.claim import Claim
from icl_interp.errors import InputError, shown
from icl_interp.experiments import base, calibration, kept
from icl_interp.experiments.base import Experiment
from icl_interp.experiments.calibration import Construction
from icl_interp.figures import catalogue, reproductions
from icl_interp.figures.catalogue import ReportFigure


@dataclass(frozen=True)
class Study:
    """A work, and everything here that knows it.

    Attributes:
        name: the part of its ids before the dot.
        work: authors, year and title.
        claims: in the order in which reports list them.
        figures: of reports, by name.
        experiments: its tables and figures, done again.
        drawings: figures of experiments, by the id of the experiment.
        constructions: models of known truth, with the verdict that each must get.
        folder: where its results lie, in "results".
    """

    name: str
    work: str
    claims: tuple[Claim, ...] = ()
    figures: Mapping[str, ReportFigure] = field(default_factory=dict)
    experiments: tuple[Experiment, ...] = ()
    drawings: Mapping[str, reproductions.Drawing] = field(default_factory=dict)
    constructions: tuple[Construction, ...] = ()
    folder: Path | None = None


STUDIES: dict[str, Study] = {}


def register(study: Study) -> Study:
    """Make a study known: its claims appear in every report, its experiments in `icl-interp reproduce`.

    It is made known whole or not at all.

    Raises:
        InputError: the name is taken, an id does not begin with it, or an id or the name of a figure, a construction or
            a measurement is taken.
    """
    if STUDIES.get(study.name) is study:
        return study  # again: a notebook cell run twice
    _check(study)
    claims = dict(registry.REGISTRY)
    try:
        for claim in study.claims:
            registry.register(claim)
    except InputError:
        registry.REGISTRY.clear()
        registry.REGISTRY.update(claims)
        raise
    STUDIES[study.name] = study
    for experiment in study.experiments:
        base.register(experiment)
    catalogue.FIGURES.update(study.figures)
    reproductions.DRAWINGS.update(study.drawings)
    calibration.CONSTRUCTIONS.extend(study.constructions)
    if study.folder is not None:
        kept.FOLDERS[study.name] = study.folder / "results"
    return study


def _check(study: Study) -> None:
    """Refuse a study whose names are taken, or whose ids are not its own."""
    built = {one.name for one in calibration.CONSTRUCTIONS}
    taken = [
        *((f"a study called {shown(study.name)}",) if study.name in STUDIES else ()),
        *(f"an experiment {shown(one.id)}" for one in study.experiments if one.id in base.names()),
        *(f"a figure called {shown(name)}" for name in study.figures if name in catalogue.FIGURES),
        *(f"a construction called {shown(one.name)}" for one in study.constructions if one.name in built),
    ]
    if taken:
        raise InputError(f"there is {taken[0]} already: choose another name")
    for one in (*study.claims, *study.experiments):
        if one.study != study.name:
            raise InputError(f"ids of the study {shown(study.name)} begin with its name and a dot, but got {one.id!r}")
