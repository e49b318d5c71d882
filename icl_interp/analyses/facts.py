"""What a claim may know about a model without having it.

A report stores these facts beside the results.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from icl_interp.analyses.criterion import FEWEST_CLAIMS, Estimate
from icl_interp.checkpoints.companions import Role
from icl_interp.errors import InputError, whole
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.hooked import HookedModel
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import build, decode, encode
from icl_interp.structured import Stored
from icl_interp.tasks.base import Task
from icl_interp.tasks.distributions import is_law
from icl_interp.tasks.registry import KINDS, find
from icl_interp.tasks.regression import LinearRegression
from icl_interp.tasks.vectors import VectorLaw

# Share of what can be explained, in distribution, from which a model counts as having learned its
# task.
LEARNED_R2 = 0.9
# Parameters of a model that is measured on fewer prompts, whose contexts are read in float32.
LARGE = 2_000_000


@dataclass(frozen=True)
class UnknownTask:
    """A task of a class that is not registered here: its data, as the report stores them."""

    data: Mapping[str, Any]


_OF_CONFIG = frozenset(f.name for f in dataclasses.fields(HookedTransformerConfig))


class NoConfig(HookedTransformerConfig):
    """The shape of a predictor that is seen from outside: nothing is known of it.

    Whoever asks for anything is told so, and cannot take a default for a fact.
    """

    def __init__(self) -> None:
        pass

    def __getattribute__(self, name: str) -> Any:
        if name in _OF_CONFIG:
            raise InputError(
                f"{name} of a model was asked for, but this predictor is seen from outside: "
                "a claim that needs more than outputs does not apply to it"
            )
        return super().__getattribute__(name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NoConfig)

    def __hash__(self) -> int:
        return hash(NoConfig)

    def __repr__(self) -> str:
        return "NoConfig()"


NO_CONFIG = NoConfig()


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts about a model.

    Attributes:
        config: its shape; vectors of positions that are all the same are none (`model.shape`).
        task: what it was trained on; an `UnknownTask` where its class is not registered here.
        encoding: how it reads prompts: a name of `icl_interp.encodings`.
        in_distribution: its error on fresh prompts, as `evaluation.in_distribution` gives it:
            "error", "r2" and more.
        n_points: points of a prompt, the query included.
        x_unit: what far queries are multiples of, see `lab.x_unit`.
        has_features: whether the task's functions are linear in fixed features, as least squares
            needs.
        norms: names of its norms, in their order.
        n_parameters: of the model.
        n_units: units of the sample that was measured: antithetic pairs of functions, or single
            functions.
        optimizer: what it was trained with: "Adam" for runs of this package; "" where nothing
            tells.
        n_steps: steps of training; 0 where it was not trained, or nothing tells.
        snapshots: steps whose weights the run kept.
        companions: names of the models beside it, by role.
        companions_left_out: those that did not fit: "name" and "reason" each.
        failed: measurements that failed, and why, by the names of their results.
        n_claims: claims that were registered when it was analysed: firm verdicts hold among so
            many.
        outside: whether it is a predictor that is seen from outside: nothing is known but what it
            predicts, and `config` is `NO_CONFIG`.
        checks: what was tried on such a predictor before anything was judged
            (`predictors.Check`).
        control: the name of the untrained predictor beside it; "" for none.
    """

    config: HookedTransformerConfig
    task: Task | UnknownTask
    encoding: str
    in_distribution: Mapping[str, Any]
    n_points: int
    x_unit: float
    has_features: bool = True
    norms: tuple[str, ...] = ()
    n_parameters: int = 0
    n_units: int = 0
    optimizer: str = ""
    n_steps: int = 0
    snapshots: tuple[int, ...] = ()
    companions: Mapping[Role, str] = field(default_factory=dict)
    companions_left_out: tuple[Mapping[str, str], ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    n_claims: int = FEWEST_CLAIMS
    outside: bool = False
    checks: tuple[Mapping[str, Any], ...] = ()
    control: str = ""

    @classmethod
    def of_outputs(cls, task: Task, in_distribution: Mapping[str, Any], **more: Any) -> Self:
        """The facts about a predictor of which only outputs are seen."""
        return cls(
            config=NO_CONFIG,
            task=task,
            encoding="",
            in_distribution=in_distribution,
            n_points=task.n_points,
            x_unit=x_unit(task),
            has_features=task.has_features,
            outside=True,
            **more,
        )

    @classmethod
    def of(
        cls,
        model: HookedTransformer,
        task: Task,
        encoding: str,
        in_distribution: Mapping[str, Any],
        **more: Any,
    ) -> Self:
        """The facts that a model and its task tell; `more` holds those of the analysis."""
        return cls(
            config=model.shape,
            task=task,
            encoding=encoding,
            in_distribution=in_distribution,
            n_points=task.n_points,
            x_unit=x_unit(task),
            has_features=task.has_features,
            norms=tuple(model.norms),
            n_parameters=sum(p.numel() for p in model.parameters()),
            **more,
        )

    @property
    def n_targets(self) -> int:
        """Coordinates of a value."""
        if not self.outside:
            return self.config.d_out
        return self.task.n_targets if isinstance(self.task, Task) else 1

    @property
    def error(self) -> float:
        """Mean squared error in distribution."""
        return float(self.in_distribution["error"])

    @property
    def r2(self) -> float:
        """R^2 in distribution."""
        return float(self.in_distribution["r2"])

    @property
    def explained(self) -> Estimate:
        """R^2 in distribution, with its interval; without one where the facts hold none."""
        return self._share("r2", "R2 in distribution")

    @property
    def learned(self) -> Estimate:
        """The share of what can be explained in distribution that the model explains.

        It comes with its interval. Where labels have no noise it is R^2. Else it is R^2 over that
        of the best possible predictor, where one is known, or the R^2 of the noise-free values
        (`evaluation.in_distribution`).
        """
        if "learned" not in self.in_distribution:
            return self.explained
        if "best_r2" in self.in_distribution:
            return self._share("learned", "share of the best possible R2")
        name = "R2 of noise-free values" if "noise_free" in self.in_distribution else "R2"
        return self._share("learned", f"{name} in distribution")

    @property
    def has_learned(self) -> bool:
        """Whether the model has surely learned its task: its interval lies above `LEARNED_R2`."""
        return self.learned.low > LEARNED_R2

    def not_learned(self) -> str | None:
        """How far the model is from having learned its task; None for one that has."""
        if self.has_learned:
            return None
        share = self.learned
        found = f"{share.value:.3f}"
        if share.low < share.high:
            found += f" [{share.low:.3f}, {share.high:.3f}]"
        if "best_r2" in self.in_distribution:
            best = float(self.in_distribution["best_r2"])
            return (
                f"in-distribution R2 {self.r2:.3f}, and the best possible is {best:.3f}: that is "
                f"a share of {found}, {LEARNED_R2} needed"
            )
        what = "R2 of noise-free values" if "noise_free" in self.in_distribution else "R2"
        return f"in-distribution {what} {found}, {LEARNED_R2} needed"

    def _share(self, key: str, name: str) -> Estimate:
        numbers = self.in_distribution
        value = float(numbers[key])
        low, high = (float(numbers.get(f"{key}_{end}", value)) for end in ("low", "high"))
        return Estimate(name, value, low, high)

    @property
    def task_kind(self) -> str:
        """The name of the task's class."""
        return (
            str(self.task.data["kind"])
            if isinstance(self.task, UnknownTask)
            else type(self.task).__name__
        )

    @property
    def trained_range(self) -> tuple[float, float] | None:
        """Where each coordinate of an input lies in distribution.

        None where there is no law of coordinates.
        """
        law: Any = getattr(self.task, "inputs", None)
        return law.interval if is_law(law) and not isinstance(law, VectorLaw) else None

    def unmeasured(self) -> str | None:
        """Says that the model has no usable in-distribution error: it is NaN or infinite.

        None for a model that has one. Nothing far out can be judged against such a model.
        """
        for name, value in (("error", self.error), ("R2", self.r2)):
            if not np.isfinite(value):
                return f"The model's in-distribution {name} is {value:g}, which is no finite number"
        return None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        config = {} if self.outside else encode(self.config)
        config.pop("kind", None)
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        if self.outside:
            del plain["config"]
        else:  # reports of models stay as they were
            plain = {key: value for key, value in plain.items() if key not in _OF_OUTSIDE}
        return {
            **encode(plain),
            "config": config,
            "r2": self.r2,
            "task": dict(self.task.data)
            if isinstance(self.task, UnknownTask)
            else encode(self.task),
            "companions": {str(role): name for role, name in self.companions.items()},
            "roles": [encode(dataclasses.asdict(role)) for role in self.companions],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str = "model") -> Self:
        """The facts that `to_dict` wrote; keys that are no facts are left alone.

        Args:
            data: what `to_dict` gave, also after a trip through JSON.
            where: names the place of the data in messages.

        Raises:
            InputError: the data are no such facts; the message names the place.
        """
        stored = Stored(data, where)
        told: dict[str, Any] = {"x_unit": 1.0}  # older reports have none
        for f in dataclasses.fields(cls):
            if f.name in _ALWAYS or (f.name in data and f.name not in _BUILT):
                told[f.name] = stored[f.name].of(f.type)
        # Older reports have functions.
        told["n_units"] = stored["n_units" if "n_units" in data else "n_functions"].of(int)
        for key in ("n_points", "n_parameters", "n_units", "n_steps", "n_claims"):
            whole(told.get(key, 0), f"{where}.{key}", 0)
        config = stored["config"]
        return cls(
            config=NO_CONFIG
            if told.get("outside")
            else build(HookedTransformerConfig, config.mapping(), config.where),
            task=_task(stored["task"]),
            in_distribution=_errors(stored["in_distribution"]),
            companions=_companions(stored),
            **told,
        )


_OF_OUTSIDE = ("outside", "checks", "control")  # told of predictors seen from outside only
_ALWAYS = ("encoding", "n_points", "n_parameters")  # which reports of all versions have
# Facts that are stored in another form than their annotations say.
_BUILT = ("config", "task", "in_distribution", "companions", "n_units")


def needs_task(facts: Facts, kind: type[Task]) -> str | None:
    """Why a claim about tasks of one class says nothing about this model.

    None if the model's task is of that very class. A class of one's own below it does not count: it
    may draw other functions, compute other values or give these more coordinates, and what is known
    of the functions of the class above need not hold for them.
    """
    if type(facts.task) is kind:
        return None
    article = "an" if kind.__name__[0] in "AEIOU" else "a"
    below = (
        f", a class below it, whose functions may be others than those of {article} {kind.__name__}"
    )
    about = f"The claim is about models of {article} {kind.__name__} task, not of {facts.task_kind}"
    return about + (below if isinstance(facts.task, kind) else "")


def needs_linear_functions(facts: Facts) -> str | None:
    """Why a claim about linear functions that are drawn says nothing about this model.

    None if each prompt of its training has a linear function of its own, and a query that is drawn
    like the examples.
    """
    reason = needs_task(facts, LinearRegression)
    if reason:
        return reason
    task = facts.task
    assert isinstance(task, LinearRegression)
    # A model of one function, such as a pool of one, needs no prompt to know it.
    if task.single_function or task.query is not None or task.single_orthant:
        return (
            "The claim is about models trained on randomly drawn linear functions, with queries "
            "like the examples; this model was trained otherwise."
        )
    return None


def needs_training(facts: Facts) -> str | None:
    """Why a claim about a kind of training says nothing about this model.

    None if the model's training is known.
    """
    if facts.optimizer and facts.n_steps > 0:
        return None
    return (
        "The claim is about how models are trained, and nothing tells how this one was: its "
        "checkpoint names neither optimiser nor steps"
    )


def _task(stored: Stored) -> Task | UnknownTask:
    kind, data = stored["kind"].of(str), stored.facts()
    find(kind)
    if kind not in KINDS:
        return UnknownTask(data)
    task = decode(data, KINDS, stored.where)
    if not isinstance(task, Task):
        raise stored.refused("a task")
    return task


def _errors(stored: Stored) -> dict[str, Any]:
    """Numbers by name, with a note in words."""
    found: dict[str, Any] = {}
    for key, one in stored.members().items():
        found[key] = one.of(str if key == "note" else float)
    for key in ("error", "r2"):
        stored[key]  # has to be there
    return found


def _companions(stored: Stored) -> dict[Role, str]:
    """Names of companions by role.

    Reports from before roles were stored name them only; then nothing is known.
    """
    found: dict[Role, str] = {}
    roles = stored.get("roles")
    for one in roles.items() if roles else ():
        values = dict(one.mapping())
        if "another_seed" in values:  # as older reports have it
            values["further"] = int(bool(values.pop("another_seed")))
        role = Stored(values, one.where).of(Role)
        found[role] = stored["companions"][str(role)].of(str)
    return found


def x_unit(task: Task) -> float:
    """What far queries are multiples of: the largest |x| of the inputs' interval.

    >>> from icl_interp.tasks.functions import Polynomial, Uniform
    >>> law = Uniform(-10, 5)
    >>> x_unit(Polynomial(degrees=(1,), inputs=law, coefficients=law, n_points=9))
    10.0
    """
    return float(max(abs(end) for end in task.inputs.interval))


def is_large(model: HookedModel) -> bool:
    """Whether a model is so large that a default analysis reads fewer prompts.

    It reads 64 units of 4 prompts instead of 128 of 8. Whether a head or a block matters is asked
    on half of the units, of heads on one prompt of each. Contexts are read in the model's own
    float32 (`Bench.reader`). In the median over claims intervals are then one to two times as wide,
    in that over heads those of their effects up to seven times: `python -m benchmarks large`
    analyses small models both ways, and docs/speed.md has its table.
    """
    return model.cfg.n_params > LARGE
