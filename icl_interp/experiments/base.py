"""What an experiment is: the models it needs and three pure steps. A registry finds them by id."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pandas import DataFrame

from icl_interp.checkpoints.config import RunConfig
from icl_interp.errors import InputError
from icl_interp.experiments import presets
from icl_interp.experiments.presets import at_preset
from icl_interp.experiments.settings import Row, Setting
from icl_interp.experiments.statements import Statement, as_statements
from icl_interp.registers import View
from icl_interp.results import Result

if TYPE_CHECKING:
    from icl_interp.experiments.setup import Setup
    from icl_interp.experiments.variants import Variant

Results = Mapping[str, Result]


@dataclass(frozen=True)
class Model:
    """A model that an experiment needs: a recipe, a seed, and the scales at which it is asked for.

    Attributes:
        scaled: what its study makes of a recipe at a scale.
    """

    recipe: str
    seed: int = 0
    scales: tuple[str, ...] = tuple(presets.PRESETS)
    scaled: Callable[[RunConfig, str], RunConfig] = at_preset

    @property
    def name(self) -> str:
        """Its name in results.

        >>> Model("affine").name, Model("affine", 2).name
        ('affine', 'affine seed 2')
        """
        return self.recipe if self.seed == 0 else f"{self.recipe} seed {self.seed}"

    @property
    def folder(self) -> str:
        """The name of its run folder.

        >>> Model("affine", 2).folder
        'affine__2'
        """
        return self.recipe if self.seed == 0 else f"{self.recipe}__{self.seed}"

    def config(self, scale: str, overrides: Iterable[str] = ()) -> RunConfig:
        """Its run at a scale, with `key=value` changes made last."""
        changes = (f"training.seed={self.seed}", *overrides)
        return presets.config(self.recipe, scale, changes, self.scaled)


def no_comparison(results: Results) -> DataFrame | None:
    """There is nothing to lay out."""
    return None


@dataclass(frozen=True)
class Experiment:
    """One table or figure of a work, reproduced.

    Attributes:
        id: such as "limits.table1".
        title: what is shown, in a line.
        source: where it stands.
        models: what has to be trained for it.
        run: measures. Whatever costs time goes through the setup, which keeps it.
        states: what came out, a statement each, with the criterion that decides whether it is what
            the source says; a pure function of the results. Plain text is a note that nothing
            decides.
        compare: the published numbers beside ours, or ours alone where none are printed; pure, like
            `states`.
        sample: what is measured on, with the fields of a scale in braces; the protocol of section
            3.3 by default.
        sizes: its models at each scale in words, where they are not those of `presets.PRESETS`.
        settings: what the work uses, with its place there, and what we use.
        variants: other forms of its models in which it can be run, see `variants.of`.
        variant: the name of the one that it is in; empty for the experiment itself.
        reading: what makes the experiment on a text file and the embedding of a model on disk; None
            where it reads no text.
        options: of the command line that make it what it is, such as the files that it reads.
    """

    id: str
    title: str
    source: str
    models: tuple[Model, ...]
    run: Callable[["Setup"], dict[str, Result]]
    states: Callable[[Results], Sequence[Statement | str]]
    compare: Callable[[Results], DataFrame | None] = no_comparison
    sample: str = presets.SAMPLE
    sizes: Mapping[str, str] = field(default_factory=dict)
    settings: tuple[Setting, ...] = ()
    variants: "tuple[Variant, ...]" = ()
    variant: str = ""
    reading: "Callable[[Path, Path | None], Experiment] | None" = None
    options: str = ""

    @property
    def folder(self) -> str:
        """Where a reproduction writes it: its id, and the name of the variant."""
        return f"{self.id}.{self.variant}" if self.variant else self.id

    @property
    def study(self) -> str:
        """The study it belongs to."""
        return self.id.partition(".")[0]

    def statements(self, results: Results) -> tuple[Statement, ...]:
        """What came out, a statement each."""
        return as_statements(self.states(results))

    def says(self, results: Results) -> tuple[str, ...]:
        """What came out, a sentence each."""
        return tuple(statement.sentence for statement in self.statements(results))

    def models_at(self, scale: str) -> tuple[Model, ...]:
        """The models that this scale asks for."""
        return tuple(model for model in self.models if scale in model.scales)

    def words(self, scale: str) -> str:
        """Models and sample at a scale, in a line; no models where it needs none and names none."""
        size = presets.named(scale)
        own = self.sizes.get(scale, size.says if self.models else "")
        return "; ".join(filter(None, (own, self.sample.format(**asdict(size)))))

    def settings_at(self, scale: str) -> tuple[Row, ...]:
        """The work's setting beside ours at a scale, quantity by quantity."""
        runs = []
        for model in self.models_at(scale):
            runs.append(model.config(scale))
        rows = []
        for one in self.settings:
            rows.append(Row(one.name, one.work, one.place, one.here(scale, runs)))
        return tuple(rows)


def _of_study(study: Any) -> dict[str, Experiment]:
    found = {}
    for experiment in study.experiments:
        found[experiment.id] = experiment
    return found


EXPERIMENTS: View[Experiment] = View("experiment", _of_study)


def register(experiment: Experiment) -> Experiment:
    """Add an experiment; its id must be new."""
    EXPERIMENTS.add(experiment.id, experiment)
    return experiment


def names() -> list[str]:
    """Ids, study by study: figures, tables and others by name."""
    return sorted(EXPERIMENTS)


def listed() -> dict[str, str]:
    """Each experiment's title and the variants that it has, by its id."""
    found = {}
    for name in names():
        experiment = get(name)
        forms = ", ".join(one.name for one in experiment.variants)
        found[name] = f"{experiment.title} [--variant {forms}]" if forms else experiment.title
    return found


def on_text(ids: Sequence[str], text: Path, embedding: Path | None) -> dict[str, Experiment]:
    """The experiments of these ids on a text file, by id; it is read here.

    Args:
        ids: of experiments that read a text; without any, all that do.
        text: the file.
        embedding: a file or folder of a model, see the experiment.

    Raises:
        InputError: an experiment that reads no text, or a file that cannot be read.
    """
    able = [name for name in names() if get(name).reading]
    found = {}
    for name in ids or able:
        reading = get(name).reading
        if reading is None:
            raise InputError(
                f"{name} reads no text, so leave out --text: only {', '.join(able)} does"
            )
        found[name] = reading(text, embedding)
    return found


def get(name: str) -> Experiment:
    """The experiment of that id."""
    return EXPERIMENTS.named(name)
