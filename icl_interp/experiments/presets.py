"""Three presets of one experiment: seconds, minutes on a CPU, and the paper's own for a GPU."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from icl_interp.checkpoints.config import Curriculum, RunConfig, TrainingConfig
from icl_interp.errors import InputError, unknown
from icl_interp.tasks.base import Task
from icl_interp.tasks.distributions import Distribution, Normal, Uniform
from icl_interp.tasks.functions import Polynomial
from icl_interp.tasks.regression import LinearRegression
from icl_interp.training import recipes

PAPER_ONLY = (
    "affine_wide",
    "two_layers_32_heads",
)  # recipes whose size is their point: they stand at full size


@dataclass(frozen=True)
class Preset:
    """How large the models are, and how many prompts they are measured on.

    Attributes:
        n_points: points of a prompt, the query included.
        n_functions: test functions. n_contexts: prompts of each.
        says: the models and their training in words.
    """

    name: str
    n_points: int
    n_functions: int
    n_contexts: int
    says: str


PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            "smoke",
            10,
            16,
            4,
            "2 layers, width 32, 150 steps: shows that it runs, and nothing else",
        ),
        Preset("small", 20, 100, 64, "3 layers, width 64, 4 heads, up to 16,000 steps"),
        Preset("paper", 41, 100, 64, "12 layers, width 256, 8 heads, 500,000 steps"),
    )
}
# Section 3.2: "ranging from 1 to k = 40". One labelled example and the query are two points.
SHORTEST = 2
# Section 3.3: the sample is the paper's at both larger presets.
SAMPLE = "{n_functions} functions x {n_contexts} contexts of {n_points} points"


def named(name: str) -> Preset:
    """The preset of that name."""
    if name not in PRESETS:
        raise unknown("scale", name, PRESETS)
    return PRESETS[name]


def at_preset(config: RunConfig, scale: str) -> RunConfig:
    """The run of a recipe at another scale; "small" is the recipe as it stands.

    The paper's (section 3 and appendix A): 12 layers, 8 heads, width 256, 41 points, 500,000 steps
    of Adam at 1e-4 with batches of 64, and a curriculum from 1 labelled example to 40. What it
    leaves open stays the recipe's: warm-up, clipping, the share of the run that the curriculum
    takes.

    >>> at_preset(recipes.resolve("affine"), "smoke").model.d_model
    32
    """
    section = training_of(config, scale)
    if scale == "small":
        return config
    # The size of the model, and how long it is trained.
    if scale == "smoke":
        shape = {"d_model": 32, "d_head": 8, "n_heads": 4, "d_mlp": 128}
        shape["n_layers"] = min(2, config.model.n_layers)
        changes = {"steps": 150, "warmup_steps": 15, "checkpoint_every": 150, "learning_rate": 3e-3}
    else:
        shape = {"n_layers": 12, "d_model": 256, "d_head": 32, "n_heads": 8, "d_mlp": 1024}
        changes = {"steps": 500_000, "decay": "constant", "learning_rate": 1e-4, "batch_size": 64}
        changes |= {"checkpoint_every": 10_000, "log_every": 1000}
    training = rescaled(section, changes)
    if scale == "paper":
        shortest = replace(training.curriculum, first_points=SHORTEST)
        training = replace(training, curriculum=shortest)
    # Longer prompts need more positions.
    n_points = PRESETS[scale].n_points
    model = replace(config.model, **shape, n_ctx=2 * n_points)
    task = config.task.with_points(n_points)
    return replace(config, model=model, task=task, training=training)


def training_of(config: RunConfig, scale: str) -> TrainingConfig:
    """The training section of a run that is brought to a scale.

    Raises:
        InputError: an unknown scale, or a config without training.
    """
    named(scale)
    if config.training is None:
        raise InputError("the config has no training section, so there is nothing to scale")
    return config.training


def of_regression(config: RunConfig, scale: str) -> RunConfig:
    """A softmax model's run on linear regression at another scale; "small" is the recipe itself.

    At "paper" d and N are five times those of the recipe, and positions for 2 N examples.

    >>> of_regression(recipes.resolve("softmax_fixed_14"), "paper").task.n_points
    71
    """
    named(scale)
    if not isinstance(config.task, LinearRegression) or config.training is None:
        raise InputError(
            "this scales runs of a LinearRegression task, which have a training section"
        )
    if scale == "small":
        return config
    d = config.task.n_dims
    n = config.task.n_points - 1
    # The shape of the model, the length of its training, and the size of the task.
    if scale == "smoke":
        shape = {"n_layers": 2, "d_model": 32, "d_head": 8, "n_heads": 4, "d_mlp": 128}
        changes = {"steps": 100, "warmup_steps": 10, "checkpoint_every": 100, "learning_rate": 3e-3}
        d = d // 2
        n = n // 2
    else:
        shape = {"n_layers": 12, "d_model": 256, "d_head": 32, "n_heads": 8, "d_mlp": 1024}
        changes = {"steps": 500_000, "decay": "constant", "learning_rate": 1e-4, "batch_size": 64}
        changes |= {"checkpoint_every": 10_000, "log_every": 1000}
        d = 5 * d
        n = 5 * n
    return replace(
        config,
        model=replace(config.model, **shape, d_in=d, n_ctx=4 * n + 2),
        task=replace(config.task, n_dims=d, n_points=n + 1),
        training=rescaled(config.training, changes),
    )


def rescaled(training: TrainingConfig, changes: dict) -> TrainingConfig:
    """The training section with these changes, and the curriculum in proportion to the steps."""
    factor = changes["steps"] / training.steps
    curriculum = Curriculum(
        training.curriculum.first_points,
        round(training.curriculum.until * factor),
        tuple((round(start * factor), degrees) for start, degrees in training.curriculum.degrees),
    )
    return replace(training, **changes, curriculum=curriculum)


def whole_prompts(training: TrainingConfig, task: Task, changes: dict) -> TrainingConfig:
    """The training section with these changes; the task's prompts are whole from the first step."""
    new = rescaled(training, changes)
    return replace(new, curriculum=replace(new.curriculum, first_points=task.n_points))


def config(
    recipe: str,
    scale: str,
    overrides: Iterable[str] = (),
    scaled: Callable[[RunConfig, str], RunConfig] = at_preset,
) -> RunConfig:
    """The run of a recipe at a scale, with `key=value` changes made last.

    `scaled` changes a run to a scale; a study may have scales of its own.

    Raises:
        InputError: an unknown recipe or scale, or a recipe that exists at the paper's scale only.
    """
    named(scale)
    if recipe in PAPER_ONLY:
        if scale != "paper":
            raise InputError(
                f"{recipe} exists at scale paper only, where its size is the point; got scale "
                f"{scale}"
            )
        return recipes.resolve(recipe, overrides)
    return recipes.resolve(scaled(recipes.resolve(recipe), scale), overrides)


def polynomials(preset: Preset, degree: int, law: str = "uniform") -> Polynomial:
    """The test task of section 3.3 in distribution, for one degree.

    Inputs and coefficients are on U(-1, 1) or N(0, 1).
    """
    laws: dict[str, Distribution] = {"uniform": Uniform(-1, 1), "normal": Normal(1)}
    return Polynomial(
        degrees=(degree,), inputs=laws[law], coefficients=laws[law], n_points=preset.n_points
    )
