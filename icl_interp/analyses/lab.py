"""The lab: measurements of one model, each taken once, and the models that stand beside it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from icl_interp.analyses.bench import Bench
from icl_interp.analyses.measurement import (
    CONTROLS,
    Measurement,
    R,
    Results,
    check_distinct,
    with_needs,
)
from icl_interp.analyses.plan import Watch, take
from icl_interp.checkpoints.companions import Role
from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.models import tokens
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.tokens import Encoding
from icl_interp.models.transformer import HookedTransformer
from icl_interp.renamed import with_old_names
from icl_interp.tasks.base import Task

SEEDS = (1, 2, 3)  # of the weights of untrained controls: two of three decide


@with_old_names(twin="control", twins="controls", counterpart="matched")
class Lab(Bench):
    """A bench whose measurements are kept: what claims are judged by.

    Args:
        model, task, encoding, n_units, n_contexts, seed, device: of the `Bench`.
        matched: a matched model, which is trained like this one but without normalisation, where
            there is one.
        companions: checkpoints that differ from this model in one respect, by role
            (`checkpoints.companions`).
        snapshots: gives the models that the run kept on the way, by step; called when a measurement
            asks for them.
        control_config: of the untrained controls; the model's own by default. An edited model's
            controls are its source's.
        config: of the run that made the model, training included; by default one that does not know
            the training.
    """

    def __init__(
        self,
        model: HookedTransformer,
        task: Task,
        encoding: Encoding,
        *,
        n_units: int = 128,
        n_contexts: int = 4,
        seed: int = 0,
        matched: HookedTransformer | None = None,
        companions: Mapping[Role, Checkpoint] | None = None,
        device: str | None = None,
        snapshots: Callable[[], Mapping[int, HookedTransformer]] | None = None,
        control_config: HookedTransformerConfig | None = None,
        config: RunConfig | None = None,
    ) -> None:
        super().__init__(
            model, task, encoding, n_units=n_units, n_contexts=n_contexts, seed=seed, device=device
        )
        self.matched_model = matched
        self.companions = dict(companions or {})
        self.control_config = control_config or model.shape
        self._snapshots = snapshots
        self._config = config
        self._begin()

    def _begin(self) -> None:
        """Nothing is measured yet."""
        self._results = Results()
        self._taken: dict[str, Measurement[Any]] = {}
        self._errors: dict[str, Exception] = {}

    def measure(self, measurement: Measurement[R]) -> R:
        """The result of a measurement, taken once.

        Where it failed, its error again, without a second attempt.

        Raises:
            InputError: another measurement of this name was taken before.
        """
        self.measure_all([measurement])
        if measurement.name in self._errors:
            raise self._errors[measurement.name]
        return self._results[measurement]

    def measure_all(
        self, measurements: Sequence[Measurement[Any]], watch: Watch | None = None
    ) -> dict[str, Exception]:
        """Take measurements; returns those that failed, with the error.

        What they ask for is run together. What they need is taken before them, and kept as well.

        Args:
            measurements: which; those taken before are not taken again.
            watch: is told what is under way.

        Raises:
            InputError: two measurements of one name, or some that need one another in a circle.
        """
        new = {}
        for one in with_needs(measurements):
            check_distinct(self._taken, one)
            if one not in self._results and one.name not in self._errors:
                new[one.name] = one
        take(list(new.values()), self, self._results, self._errors, watch)
        return {m.name: self._errors[m.name] for m in measurements if m.name in self._errors}

    @property
    def results(self) -> Results:
        """All results so far; those of the untrained controls under `CONTROLS`."""
        found = dict(self._results)
        for number, control in self.controls.made.items():
            found |= {CONTROLS[number] + name: result for name, result in control.results.items()}
        return Results(found)

    @cached_property
    def config(self) -> RunConfig:
        """Of the run that made the model; without its training where that is not known."""
        return self._config or RunConfig(self.model.cfg, self.task, tokens.name_of(self.encoding))

    @cached_property
    def controls(self) -> "Controls":
        """The same bench with untrained models: same config, fresh weights.

        The bench has one context of each function. The weights of the models do not depend on the
        seed of the sample: a verdict must not change with the seed because of a control.
        """
        return Controls(
            lambda seed: self._beside(HookedTransformer(self.control_config, seed=seed), 1)
        )

    @property
    def n_controls(self) -> int:
        """How many untrained controls there are."""
        return len(SEEDS)

    @property
    def control(self) -> "Lab":
        """The first of the untrained `controls`."""
        return self.controls[0]

    @cached_property
    def matched(self) -> "Lab | None":
        """The same bench with the model trained without normalisation."""
        return (
            None
            if self.matched_model is None
            else self._beside(self.matched_model, self.n_contexts)
        )

    def _beside(self, model: HookedTransformer, n_contexts: int) -> "Lab":
        sizes: dict[str, Any] = {"n_units": self.n_units, "seed": self.seed, "device": self.device}
        return Lab(model, self.task, self.encoding, n_contexts=n_contexts, **sizes)

    @cached_property
    def snapshots(self) -> dict[int, HookedTransformer]:
        """Models on the way to this one, by step, as its run kept them; empty for none."""
        return dict(self._snapshots()) if self._snapshots else {}


class Controls:
    """The labs of untrained controls, each made when it is first asked for.

    Most verdicts need one or two of three.

    It is no `Sequence`: whoever checks types at run time looks at an item of a sequence, which
    would make it.

    Args:
        make: makes the one with weights of this seed.

    Attributes:
        made: those that were asked for, by number.
    """

    def __init__(self, make: Callable[[int], Lab]) -> None:
        self._make = make
        self.made: dict[int, Lab] = {}

    def __getitem__(self, number: int) -> Lab:
        """One of them, by its number from 0."""
        if number not in self.made:
            self.made[number] = self._make(SEEDS[number])
        return self.made[number]

    def __iter__(self) -> Iterator[Lab]:
        """All of them."""
        return (self[number] for number in range(len(SEEDS)))
