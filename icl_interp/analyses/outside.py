"""The lab of a predictor that is seen from outside: it answers, and has nothing to look into."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NoReturn

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.analyses.lab import Controls, Lab
from icl_interp.errors import InputError
from icl_interp.predictors.adapters import Outside
from icl_interp.probes.sweep import Sweep, Tick
from icl_interp.prompts import Prompts
from icl_interp.tasks.base import Task

NEEDS_WEIGHTS = (
    "this needs weights ({}), and the predictor is seen from outside: a measurement that reads "
    "outputs alone asks `lab.ask(...)` without probes and interventions, or `lab.predict(prompts)`"
)
# What a lab of a model has and this one has not. There is no stand-in: whoever asks gets an error.
MISSING = ("model", "encoding", "matched_model", "control_config", "single")


class OutsideLab(Lab):
    """A lab whose predictions come from a predictor. Whatever asks for more is an error.

    Args:
        predictor: what predicts.
        task: gives the in-distribution prompts.
        n_units: of the sample, as of a `Bench`.
        n_contexts: likewise.
        seed: of the sample.
        control: an untrained predictor, where there is one.
    """

    outside = True

    def __init__(
        self,
        predictor: Outside,
        task: Task,
        *,
        n_units: int = 128,
        n_contexts: int = 4,
        seed: int = 0,
        control: Outside | None = None,
    ) -> None:
        self.predictor = predictor
        self.untrained = control
        self.device = "cpu"
        self.companions = {}
        self._snapshots = None
        self._config = None
        self._draw_sample(task, n_units, n_contexts, seed)
        self._begin()

    def __getattr__(self, name: str) -> Any:
        if name in MISSING:
            raise InputError(NEEDS_WEIGHTS.format(f"lab.{name}"))
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    @property
    def norms(self) -> tuple[str, ...]:
        """None are seen."""
        return ()

    @property
    def heads(self) -> list[tuple[int, int]]:
        """None are seen, and that there are none is not known."""
        self._refuse("lab.heads")

    def predict(
        self, prompts: Prompts, *, double: bool = False
    ) -> Float[Tensor, "batch point target"]:
        """The prediction of every point; NaN where the predictor makes none."""
        return self.predictor.predict(prompts)

    def at_query(self, prompts: Prompts) -> Float[Tensor, "batch target"]:
        """The prediction for the query of each prompt."""
        return self.predictor.answers(prompts, prompts.xs[:, -1:])[:, 0]

    def run(
        self, sweeps: Sequence[Sweep], tick: Tick | None = None
    ) -> list[Float[Tensor, "batch point target"]]:
        """The predictions of several sweeps. Sweeps over the same prompts are asked together."""
        # Outputs are all there is.
        for one in sweeps:
            if one.probes or one.context or one.query:
                self._refuse("a sweep with probes or interventions")
        # Which sweeps share their contexts: a fit may be dear.
        together: dict[tuple[int, int | None], list[int]] = {}
        for i, one in enumerate(sweeps):
            together.setdefault((id(one.prompts), one.n_points), []).append(i)

        found: dict[int, Tensor] = {}
        for places in together.values():
            first = sweeps[places[0]]
            prompts = first.prompts.first(first.n_points or first.prompts.n_points)
            # All their queries behind each context, and each sweep's own part of the answers.
            queries = []
            for i in places:
                asked = sweeps[i].queries.double()
                queries.append(asked.expand(len(prompts), -1, -1))
            said = self.predictor.answers(prompts, torch.cat(queries, 1))
            sizes = [each.shape[1] for each in queries]
            found |= dict(zip(places, said.split(sizes, 1), strict=True))
            if tick:
                tick(len(prompts))
        return [found[i] for i in range(len(sweeps))]

    def run_single(self, sweeps: Sequence[Sweep]) -> list[Float[Tensor, "batch point target"]]:
        """The same: a predictor has one precision."""
        return self.run(sweeps)

    @property
    def n_controls(self) -> int:
        """One, where an untrained predictor is given."""
        return int(self.untrained is not None)

    @cached_property
    def controls(self) -> Controls:
        """The same bench with the untrained predictor, which is shown one context a function."""
        return Controls(lambda _: self._of_control())

    def _of_control(self) -> "OutsideLab":
        if self.untrained is None:
            self._refuse("an untrained control, without control=")
        return OutsideLab(
            self.untrained, self.task, n_units=self.n_units, n_contexts=1, seed=self.seed
        )

    def _refuse(self, what: str) -> NoReturn:
        raise InputError(NEEDS_WEIGHTS.format(what))
