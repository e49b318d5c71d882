"""Variants: an experiment with the models that a passage of its work describes in another form.

Some works describe one model in two ways, by a picture or by what their code does, and by a
formula. A variant asks for the models of the other form. Names of models stay those of the
experiment, so that everything that is said of its results can be said of the variant's.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from icl_interp.checkpoints.config import RunConfig
from icl_interp.errors import InputError, shown
from icl_interp.experiments.base import Experiment, Model, get, names
from icl_interp.experiments.presets import PRESETS


@dataclass(frozen=True)
class Variant:
    """Another form of the models of an experiment.

    Attributes:
        name: such as "post_ln".
        says: what changes, in words.
        change: the run of a model in this form; the very same run where nothing changes.
    """

    name: str
    says: str
    change: Callable[[RunConfig], RunConfig]


@dataclass(frozen=True, kw_only=True)
class VariantModel(Model):
    """A model of an experiment in another form.

    Attributes:
        original: the model as the experiment asks for it.
        variant: the form.
    """

    original: Model
    variant: Variant

    @property
    def name(self) -> str:
        """That of the original: results are about the same models."""
        return self.original.name

    @property
    def folder(self) -> str:
        """That of the original, and the name of the variant."""
        return f"{self.original.folder}__{self.variant.name}"

    def config(self, scale: str, overrides: Iterable[str] = ()) -> RunConfig:
        """The run of the original, changed."""
        return self.variant.change(self.original.config(scale, overrides))


def of(experiment: Experiment, name: str) -> Experiment:
    """The experiment with the models of a variant.

    Raises:
        InputError: it has no such variant.

    >>> one = of(get("limits.table1"), "post_ln")
    >>> one.folder, one.models[0].config("small").model.norm_position
    ('limits.table1.post_ln', 'post')
    """
    variant = _of_name(experiment, name)
    models = tuple(_in_form(model, variant) for model in experiment.models)
    sizes = {}
    for scale, size in PRESETS.items():
        words = experiment.sizes.get(scale, size.says)
        sizes[scale] = f"{words}; variant {name}: {variant.says}"
    return replace(experiment, models=models, sizes=sizes, variant=name)


def every() -> list[str]:
    """The folders of all experiments, each with those of its variants behind it.

    >>> [name for name in every() if name.startswith("limits.table1")]
    ['limits.table1', 'limits.table1.post_ln']
    """
    found = []
    for name in names():
        found.append(name)
        for variant in get(name).variants:
            found.append(f"{name}.{variant.name}")
    return found


def in_folder(name: str) -> Experiment:
    """The experiment of a folder, which may end with the name of a variant.

    Raises:
        InputError: there is no such experiment.

    >>> in_folder("limits.table1.post_ln").variant
    'post_ln'
    """
    original, _, variant = name.rpartition(".")
    if original in names():
        return of(get(original), variant)
    return get(name)


def _of_name(experiment: Experiment, name: str) -> Variant:
    for variant in experiment.variants:
        if variant.name == name:
            return variant
    have = ", ".join(variant.name for variant in experiment.variants)
    others = sorted({other for other in names() for one in get(other).variants if one.name == name})
    if have:
        hint = f"it has {have}"
    elif others:
        hint = f"it has none; these have it: {', '.join(others)}"
    else:
        hint = "it has none"
    raise InputError(f"{experiment.id} has no variant {shown(name)}: {hint}")


def _in_form(model: Model, variant: Variant) -> Model:
    """The model in another form; itself where nothing changes, so that its runs are shared."""
    own = model.config(model.scales[0])
    if variant.change(own) == own:
        return model
    return VariantModel(model.recipe, model.seed, model.scales, original=model, variant=variant)


def changes(experiment: Experiment, scale: str) -> str:
    """What a variant's models are beside the experiment's, in a sentence.

    >>> changes(of(get("limits.table1"), "post_ln"), "smoke").split(". ")[1]
    'In this form: affine, affine seed 1; as in the experiment: affine_no_ln, affine_no_ln seed 1.'
    """
    says = ""
    changed = []
    same = []
    for model in experiment.models_at(scale):
        if isinstance(model, VariantModel):
            changed.append(model.name)
            says = model.variant.says
        else:
            same.append(model.name)
    beside = f"; as in the experiment: {', '.join(same)}" if same else ""
    return f"Variant {experiment.variant}: {says}. In this form: {', '.join(changed)}{beside}."
