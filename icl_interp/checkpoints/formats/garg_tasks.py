"""The task of a run of Garg et al. (2022), or of a fork of it, from its config.yaml.

Source: github.com/dtsip/in-context-learning (src/tasks.py, samplers.py, curriculum.py) and, for
polynomials and uniform inputs, github.com/gfouilhe/in-context-learning. There `scale` multiplies
every label, coefficients are from N(0, 1), inputs are from N(0, 1) (gaussian) or U(0, 1) (uniform),
and polynomials hold the coefficient of the highest degree first, which does not change their law.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from icl_interp.checkpoints.assumptions import Assumption
from icl_interp.errors import InputError, shown, whole
from icl_interp.structured import Stored
from icl_interp.tasks.base import Task
from icl_interp.tasks.distributions import Distribution, Normal, Uniform
from icl_interp.tasks.functions import Polynomial
from icl_interp.tasks.garg import DecisionTree, ReLUNetwork, SparseLinearRegression
from icl_interp.tasks.regression import LinearRegression

DATA: dict[str, Distribution] = {"gaussian": Normal(1.0), "uniform": Uniform(0, 1)}
# The keys of their schema (src/schema.py). A fork's other keys may stand for other functions,
# inputs or losses.
TRAINING = (
    *(
        "task",
        "task_kwargs",
        "num_tasks",
        "num_training_examples",
        "data",
        "batch_size",
        "learning_rate",
    ),
    *("train_steps", "save_every_steps", "keep_every_steps", "resume_id", "curriculum"),
    "num_pretraining_tasks",  # of a fork: a pool
)
# Words that change nothing of the prompts that a model was trained on: where it ran, what it was
# tried on afterwards.
IDLE = ("device", "gpu", "num_workers", "ood_task", "wandb", "test_run", "seed", "debug", "notes")
CURRICULUM = ("dims", "points", "polynomial_degree")
MAX_DEGREE = 100
POOLS = ("num_tasks", "num_training_examples", "num_pretraining_tasks")
TASK_REMEDY = "task=... (--task FILE.yaml)"
UNIFORM = ("U(-1, 1) (wilcoxsonm21)", "U(-1.96, 1.96) (stein-wang0226)", "U(-5, 5) (tsg132)")


@dataclass(frozen=True)
class Read:
    """The task of a run, and what its config.yaml did not tell.

    Attributes:
        task: that the run was trained on.
        assumptions: values that the config does not tell. notes: words that were set aside.
    """

    task: Task
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[str, ...] = field(default=())


def task_of(config: Stored, step: int | None = None) -> Task:
    """The task alone of what `read_task` finds."""
    return read_task(config, step).task


def set_aside(
    section: Stored, known: Iterable[str], remedy: Callable[[str], str] = lambda key: ""
) -> list[str]:
    """Notes on the words of a section that are not known and change nothing.

    Empty mappings and lists say nothing, whatever they are called.

    Args:
        section: of a config.
        known: words that are read.
        remedy: what to do about a word that may change something, for the message.

    Raises:
        InputError: such a word.
    """
    notes = []
    for key, stored in section.members().items():
        if key in known or stored.value is None:
            continue
        said = f"{stored.where} is {shown(stored.value)}"
        if key not in IDLE and stored.value not in ({}, []):
            raise InputError(f"{said}, a setting of a fork that is not known here{remedy(key)}")
        notes.append(f"{said}, which changes nothing here: set aside.")
    return notes


def read_task(config: Stored, step: int | None = None) -> Read:
    """The task that a run was trained on.

    Args:
        config: the whole config.yaml.
        step: of the weights: prompts grow during training, and these had seen no longer ones. None:
            the last of the config's `train_steps`.

    Raises:
        InputError: a task, data or settings that no task here stands for; naming them.
    """
    training = config["training"]
    curriculum = training["curriculum"]
    notes = set_aside(training, TRAINING) + set_aside(curriculum, CURRICULUM)
    name = training["task"].one_of(TASKS)
    step = _last_step(training) if step is None else step
    n_dims = whole(config["model"]["n_dims"].value, config["model"]["n_dims"].where, 1)
    _check_dims(curriculum["dims"], step, n_dims)
    _check_pools(training)
    data = training["data"].one_of(DATA)
    told = _Told(curriculum, _settings(training), step, n_dims, DATA[data])
    if data == "uniform":
        told.assume("inputs", "U(0, 1)", UNIFORM)
    if step is None:
        told.assume(
            "n_points",
            told.common["n_points"],
            ("fewer: neither the weights nor train_steps say which step was reached",),
        )
    try:
        return Read(TASKS[name](told), tuple(told.assumptions), tuple(notes))
    except InputError as error:  # a setting that the task refuses by its own name
        place = training["task"].where
        if place.partition(": ")[0] in str(error):
            raise
        raise InputError(f"{place} is {name}: {error}") from error


def reached(schedule: Stored, step: int | None) -> int:
    """The value that a schedule (start, end, inc, interval) has reached at a training step.

    It grows by inc every interval steps.

    >>> reached(Stored({"start": 11, "end": 61, "inc": 2, "interval": 2000}, "points"), 5000)
    15
    """
    start, end, inc, interval = (
        whole(schedule[key].value, schedule[key].where, least, 10**9)
        for key, least in (("start", 1), ("end", 1), ("inc", 0), ("interval", 1))
    )
    return end if step is None else min(end, start + inc * (step // interval))


def _check_dims(schedule: Stored, step: int | None, n_dims: int) -> None:
    """Refuse weights that had not seen all coordinates of an input."""
    dims = reached(schedule, step)
    if dims < n_dims:
        raise InputError(
            f"{schedule.where} had reached {dims} of the n_dims={n_dims} coordinates "
            "when these weights were saved (the others of every x were 0), and no task here says "
            "that"
        )


def _check_pools(training: Stored) -> None:
    """Refuse a training on a fixed set of functions or prompts."""
    for pool in POOLS:
        if (size := training.get(pool)) is not None:
            raise InputError(
                f"{size.where} is {size.value!r}: a pool of fixed functions or prompts, and no "
                "task here says that"
            )


def _last_step(training: Stored) -> int | None:
    """The number of the last step that a config asks for; None where it does not say."""
    found = training.get("train_steps")
    if found is None or found.value == -1:
        return None
    return whole(found.value, found.where, 1, 10**9) - 1


class _Told:
    """The settings of a task: each is removed when it is used, so that none is left unread."""

    def __init__(
        self,
        curriculum: Stored,
        settings: Mapping[str, Stored],
        step: int | None,
        n_dims: int,
        inputs: Distribution,
    ) -> None:
        self.curriculum, self.step, self.n_dims = curriculum, step, n_dims
        self.settings = dict(settings)
        self.common: dict[str, Any] = {
            "inputs": inputs,
            # A length that only the last step had is no length that was trained on.
            "n_points": reached(curriculum["points"], step and step - 1),
        }
        self.assumptions: list[Assumption] = []

    def assume(self, name: str, value: object, others: tuple[str, ...]) -> None:
        """Record a value that the config does not tell."""
        self.assumptions.append(Assumption(name, value, others, TASK_REMEDY, of_task=True))

    def number(self, key: str, default: float) -> float:
        """A setting of `task_kwargs`."""
        return self.settings.pop(key).of(float) if key in self.settings else default

    def whole(self, key: str, default: int) -> int:
        """The same for a whole number."""
        return (
            whole(self.settings[key].value, self.settings.pop(key).where, 1)
            if key in self.settings
            else default
        )

    def leave_out(self, key: str, usual: object) -> None:
        """Take a setting out that says what holds without it."""
        if key in self.settings and self.settings[key].value == usual:
            del self.settings[key]

    def make(self, cls: Callable[..., Task], **settings: Any) -> Task:
        """The task, once no setting is left that it does not stand for."""
        for stored in self.settings.values():
            if stored.value is not None:
                raise InputError(
                    f"{stored.where} is {shown(stored.value)}, and no task here says that"
                )
        return cls(**self.common, **settings)


def _settings(training: Stored) -> dict[str, Stored]:
    settings = training.get("task_kwargs")
    return {} if settings is None else settings.members()


def _linear(told: _Told) -> Task:
    return told.make(LinearRegression, n_dims=told.n_dims, weights=_law(told))


def _noisy(told: _Told) -> Task:
    if "noise_std" not in told.settings:
        told.assume("noise_std", 0.0, ("3 (HariDaCoder)",))
    noise = told.number("noise_std", 0.0)
    law = _law(told)
    # Words of a fork for what holds without them.
    told.leave_out("noise_type", "normal")
    told.leave_out("w_distribution", "gaussian")
    told.leave_out("renormalize_ys", False)
    return told.make(LinearRegression, n_dims=told.n_dims, weights=law, noise_std=noise)


def _sparse(told: _Told) -> Task:
    sparsity, law = told.whole("sparsity", 3), _law(told)
    told.leave_out("valid_coords", told.n_dims)
    return told.make(SparseLinearRegression, n_dims=told.n_dims, sparsity=sparsity, weights=law)


def _network(told: _Told) -> Task:
    if "hidden_layer_size" not in told.settings:
        told.assume("hidden_layer_size", 100, ("4 (thwu1, DeqingFu)",))
    hidden = told.whole("hidden_layer_size", 100)
    law = _law(told)
    return told.make(ReLUNetwork, n_dims=told.n_dims, hidden=hidden, readout=law)


def _tree(told: _Told) -> Task:
    return told.make(DecisionTree, n_dims=told.n_dims, depth=told.whole("depth", 4))


def _polynomial(told: _Told) -> Task:
    if told.n_dims != 1:
        raise InputError(
            f"polynomials of n_dims={told.n_dims} inputs are a sum over these, and no task here "
            "says that"
        )
    degree = reached(told.curriculum["polynomial_degree"], told.step)
    whole(degree, told.curriculum["polynomial_degree"].where, 1, MAX_DEGREE)
    return told.make(Polynomial, degrees=(degree,), coefficients=_law(told))


def _affine(told: _Told) -> Task:
    """Affine functions of one input: a slope and a constant from N(0, 1).

    A `scale` other than 1 is refused, because it would multiply the slope alone.
    """
    if told.n_dims != 1:
        raise InputError(
            f"affine functions of n_dims={told.n_dims} inputs are what no task here says"
        )
    if told.number("scale", 1.0) != 1:
        raise InputError(
            "its scale multiplies the slope and not the constant, and no task here says that"
        )
    return told.make(Polynomial, degrees=(1,), coefficients=Normal(1.0))


def _law(told: _Told) -> Normal:
    return Normal(told.number("scale", 1.0))


TASKS: dict[str, Callable[[_Told], Task]] = {
    "linear_regression": _linear,
    "noisy_linear_regression": _noisy,
    "sparse_linear_regression": _sparse,
    "relu_2nn_regression": _network,
    "decision_tree": _tree,
    "polynomial_regression": _polynomial,
    "affine_regression": _affine,
}
