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

    Raises:
        InputError: the name is taken, an id does not begin with it, or an id or a figure's name is taken.
    """
    if STUDIES.get(study.name, study) is not study:
        raise InputError(f"there is a study called {shown(study.name)} already: choose another name")
    if study.name in STUDIES:
        return study
    for one in (*study.claims, *study.experiments):
        if one.study != study.name:
            raise InputError("XX")
    for name in study.figures:
        if name in catalogue.FIGURES:
            raise InputError(f"there is a figure called {shown(name)} already: choose another name")
    STUDIES[study.name] = study
    for claim in study.claims:
        registry.register(claim)
    for experiment in study.experiments:
        base.register(experiment)
    catalogue.FIGURES.update(study.figures)
    reproductions.DRAWINGS.update(study.drawings)
    calibration.CONSTRUCTIONS.extend(study.constructions)
    if study.folder is not None:
        kept.FOLDERS[study.name] = study.folder / "results"
    return study
