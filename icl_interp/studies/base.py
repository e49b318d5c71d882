"""What a study is, and how one is made known.

The claims, experiments and figures of a known study stand among all others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from icl_interp import plugins, registers
from icl_interp.analyses import registry
from icl_interp.analyses.claim import Claim
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.measurement import Results
from icl_interp.errors import InputError, shown
from icl_interp.experiments.base import Experiment
from icl_interp.experiments.calibration import Construction
from icl_interp.experiments.power import Dial
from icl_interp.figures import reproductions
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.registers import Register


@dataclass(frozen=True)
class Study:
    """A work, and everything here that knows it.

    Attributes:
        name: the part of its ids before the dot.
        work: authors, year and title.
        says: sentences for the first screen of a report, made of its results; each function gives
            one, or "" where what it rests on was not measured.
        claims: in the order in which reports list them.
        figures: of reports, by name.
        experiments: its tables and figures, reproduced.
        drawings: figures of experiments, by the id of the experiment.
        constructions: models of known truth, with the verdict that each must get.
        dials: models of known truth that one number takes across the threshold of a claim, for
            power curves.
        models: names of bundled models, one of each architecture, on which its verdicts are tried
            in full.
        folder: where its results lie, in "results".
        exceptions: what `icl_interp.testing.check_study` need not ask of it, by (rule, subject),
            and why.
    """

    name: str
    work: str
    claims: tuple[Claim, ...] = ()
    figures: Mapping[str, ReportFigure] = field(default_factory=dict)
    experiments: tuple[Experiment, ...] = ()
    drawings: Mapping[str, reproductions.Draw] = field(default_factory=dict)
    constructions: tuple[Construction, ...] = ()
    dials: tuple[Dial, ...] = ()
    models: tuple[str, ...] = ()
    folder: Path | None = None
    exceptions: Mapping[tuple[str, str], str] = field(default_factory=dict)
    says: tuple[Callable[[Results, Facts], str], ...] = ()


STUDIES: Register[Study] = registers.STUDIES


_OWN: set[str] = set()  # names of studies that somebody registered by hand: these may be replaced


def register(study: Study) -> Study:
    """Make a study known: its claims appear in every report.

    Its experiments appear in `icl-interp reproduce`.

    A study of one's own that is registered again, as by a notebook cell that runs a second time,
    replaces the first; so does a claim of it one that was registered by itself.

    Raises:
        InputError: the name is taken, an id does not begin with it, or an id or the name of a
            figure, a construction, a dial or a measurement is taken. Nothing has changed then.
    """
    if STUDIES.get(study.name) is study:
        return study
    with registers.whole_or_not_at_all():
        if study.name in _OWN:
            STUDIES.pop(study.name, None)
        make_room(study)
        add(study)
    _OWN.add(study.name)
    return study


def make_room(study: Study) -> None:
    """Forget claims that were registered by themselves and that a study brings."""
    for claim in study.claims:
        if registry.REGISTRY.alone(claim.id):
            del registry.REGISTRY[claim.id]


def add(study: Study) -> None:
    """Make a study known that no other one may replace: one of this package, or of another one.

    Raises:
        InputError: as for `register`.
    """
    registers.check_names(study)
    for one in (*study.claims, *study.experiments):
        if one.study != study.name:
            name = shown(study.name)
            raise InputError(
                f"ids of the study {name} begin with its name and a dot, but got {one.id!r}"
            )
    for claim in study.claims:
        registry.check_id(claim)
    registry.check_measurements(study.claims)
    STUDIES.add(study.name, study)


def load_plugins() -> None:
    """Register the studies that other packages bring.

    A study that does not fit is left out with a warning.
    """
    for point, study in plugins.found():
        with plugins.left_out(point):
            if not isinstance(study, Study):
                raise InputError(
                    f"its entry point names {shown(study)}, not an icl_interp.studies.Study"
                )
            if study.name != point.name:
                raise InputError(
                    f"its entry point is called {point.name!r}, but the study {shown(study.name)}"
                )
            if STUDIES.get(study.name) is not study:
                add(study)
