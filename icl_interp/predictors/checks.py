"""What is tried on a predictor before anything is judged, one line each."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.baselines.base import predictions
from icl_interp.errors import InputError
from icl_interp.predictors.adapters import Outside
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.tasks.base import Task
from icl_interp.tasks.vectors import rays

Outcome = Literal["passed", "warning", "failed", "said"]

N_PROMPTS = 16  # tried
# Differences, in standard deviations of the predictions: up to SAME there is none but rounding in
# float32, up to BEARABLE it is smaller than what any claim about outputs asks for.
SAME, BEARABLE = 1e-5, 0.01
FAR = (1e2, 1e4, 1e6)  # queries, in units of the largest |x| in distribution


@dataclass(frozen=True)
class Check:
    """What one check of a predictor found.

    Attributes:
        name: of the check.
        outcome: "passed"; "warning", for what claims can stand; "failed", for what they cannot; or
            "said", for what is no requirement.
        says: the line in a report.
        value: the largest difference in standard deviations of the predictions, where there is one.
    """

    name: str
    outcome: Outcome
    says: str
    value: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return dataclasses.asdict(self)


def checked(predictor: Outside, task: Task, seed: int = 0) -> list[Check]:
    """Every check of a predictor on prompts of a task.

    Args:
        predictor: what is tried.
        task: gives the prompts.
        seed: of the prompts.

    Returns:
        A line for each, in their order: shape, finite, deterministic, other prompts, batch size,
        labels, order of examples, far queries.

    Raises:
        InputError: one of them failed; the message says which, and why.
    """
    tried = Trial(predictor, task, seed)
    found = []
    for check in tried.all():
        if check.outcome == "failed":
            raise InputError(
                f"{predictor.name} cannot be judged from its outputs: {check.name}: {check.says}"
            )
        found.append(check)
    return found


def check_no_leak(predictor: Any, prompts: Prompts) -> None:
    """Refuse a predictor that reads the labels that it is asked for, or what generated them.

    Predictions of a point may use the labels before it only. All labels from one point on are
    changed, and the hidden parameters of the functions as well; predictions up to that point must
    stay.

    Args:
        predictor: anything with `predict(prompts)`.
        prompts: some prompts; the first 16 are tried.

    Raises:
        InputError: predictions change.
    """
    prompts = prompts[:N_PROMPTS].double()
    before = predictions(predictor, prompts)
    unit = _spread(before)
    for what, at, others in _without_answers(prompts):
        change = _difference(before[:, : at + 1], predictions(predictor, others)[:, : at + 1], unit)
        if change > SAME:
            raise InputError(
                f"the predictor reads {what}: predictions up to point {at + 1} change by "
                f"{change:.2g} of their standard deviation with it, so its error says nothing"
            )


class Trial:
    """A predictor and what it says of some prompts.

    Args:
        predictor: what is tried.
        task: gives the prompts.
        seed: of the prompts.
    """

    def __init__(self, predictor: Outside, task: Task, seed: int) -> None:
        self.predictor = predictor
        self.task = task
        self.stream = generator(seed, "predictors/checks")
        self.prompts = task.sample(N_PROMPTS, self.stream, dtype=torch.float64)
        # Two queries behind each context: its own, and that of the next prompt.
        own = self.prompts.xs[:, -1:]
        self.queries = torch.cat([own, own.roll(1, 0)], 1)

    def all(self) -> Iterator[Check]:
        """The checks in their order; each may rest on those before it."""
        self.first = self.predictor.answers(self.prompts, self.queries)
        self.unit = _spread(self.first)
        shape = (len(self.prompts), self.queries.shape[1], self.prompts.n_targets)
        if tuple(self.first.shape) != shape:
            said = f"answers must have shape {shape}, but have {tuple(self.first.shape)}"
            yield Check("shape", "failed", said)
        yield Check("shape", "passed", "a prediction for each query")
        yield self.finite()
        yield self.deterministic()
        yield self.other_prompts()
        yield self.batch_size()
        yield self.labels()
        yield self.order()
        yield self.far()

    def finite(self) -> Check:
        """In distribution every prediction is a finite number."""
        n = int((~self.first.isfinite()).sum())
        if n:
            said = f"{n} of {self.first.numel()} predictions in distribution are NaN or infinite"
            return Check("finite outputs", "failed", said)
        return Check("finite outputs", "passed", "all predictions in distribution are finite")

    def deterministic(self) -> Check:
        """The same prompts give the same predictions."""
        change = self._changed(self.predictor.answers(self.prompts, self.queries))
        return _required("deterministic", change, "the same prompts, asked again,")

    def other_prompts(self) -> Check:
        """What stands beside a prompt in a batch says nothing about it."""
        others = self.task.sample(N_PROMPTS, self.stream, dtype=torch.float64)
        n = N_PROMPTS // 2
        mixed = Prompts(
            torch.cat([self.prompts.xs[:n], others.xs[n:]]),
            torch.cat([self.prompts.ys[:n], others.ys[n:]]),
            torch.cat([self.prompts.parameters[:n], others.parameters[n:]]),
            self.prompts.function,
        )
        queries = torch.cat([self.queries[:n], 100 * self.queries[n:]])
        change = self._changed(self.predictor.answers(mixed, queries)[:n], n)
        return _required("other prompts", change, "other prompts in the batch")

    def batch_size(self) -> Check:
        """A prompt alone, with one query, is answered as among others."""
        alone = [
            self.predictor.answers(self.prompts[i : i + 1], self.queries[i : i + 1, :1])
            for i in range(4)
        ]
        change = _difference(self.first[:4, :1], torch.cat(alone), self.unit)
        return _required("batch size", change, "batches of one prompt and one query")

    def labels(self) -> Check:
        """Labels that are predicted, or come later, are not read; nor are the hidden parameters."""
        name = "labels"
        if not self.predictor.reads_prompts:
            return Check(name, "passed", "it is shown the examples alone, without what it predicts")
        try:
            check_no_leak(self.predictor, self.prompts)
        except InputError as error:
            return Check(name, "failed", str(error))
        return Check(name, "passed", "labels that are predicted, and later ones, are not read")

    def order(self) -> Check:
        """Whether the order of the examples matters, which no claim requires."""
        change = self._changed(
            self.predictor.answers(self.prompts.reordered(self.stream), self.queries)
        )
        name = "order of examples"
        if change <= SAME:
            return Check(name, "said", "another order changes nothing", change)
        said = f"another order changes predictions by {change:.2g} of their standard deviation"
        return Check(name, "said", said, change)

    def far(self) -> Check:
        """What becomes of predictions far out: not finite, constant, or neither."""
        name = "far queries"
        # Queries in both directions along the ray of each prompt's own query.
        law = self.task.inputs
        edge = float(max(abs(end) for end in law.interval))
        direction = rays(self.prompts.xs[:, -1])
        sizes = edge * torch.tensor([*FAR, *(-one for one in FAR)], dtype=torch.float64)
        said = self.predictor.answers(self.prompts, sizes[:, None] * direction[:, None])
        if not bool(said.isfinite().all()):
            where = f"{FAR[-1]:g} times the largest |x| in distribution"
            return Check(name, "warning", f"predictions up to {where} are not all finite")

        # How far it still moves once it is far out, over all prompts.
        out = said.unflatten(1, (2, len(FAR)))
        n = FAR[1]
        moved = float((out[:, :, 1:] - out[:, :, 1:2]).abs().max()) / (self.unit or 1.0)
        if moved == 0:
            return Check(name, "said", f"exactly constant from {n:g} times the largest |x| on")
        if moved <= SAME:
            return Check(name, "said", f"constant from {n:g} times the largest |x| on", moved)
        moves = f"from {n:g} to {FAR[2]:g} times the largest |x| it moves by {moved:.2g}"
        return Check(name, "said", f"{moves} standard deviations of its predictions", moved)

    def _changed(self, now: Float[Tensor, "batch query target"], n: int | None = None) -> float:
        return _difference(self.first[:n], now, self.unit)


def _without_answers(prompts: Prompts) -> Iterator[tuple[str, int, Prompts]]:
    """What may not matter, up to which point, and the prompts with something else there."""
    last = prompts.n_points - 1
    # As far off as labels are apart, so that whoever reads them is moved.
    shift = 1.0 + 3.0 * prompts.ys.std()
    for at in sorted({last, last // 2}):
        ys = prompts.ys.clone()
        ys[:, at:] = shift - ys[:, at:]
        yield "the label that it predicts, or later ones", at, replace(prompts, ys=ys)
    hidden = torch.zeros_like(prompts.parameters)
    yield "the hidden parameters of the functions", last, replace(prompts, parameters=hidden)


def _required(name: str, change: float, what: str) -> Check:
    """The check that something changes nothing."""
    if change <= SAME:
        return Check(name, "passed", f"{what} change nothing", change)
    said = f"{what} change predictions by {change:.2g} of their standard deviation"
    if change <= BEARABLE:
        return Check(name, "warning", f"{said}: finer differences are noise", change)
    return Check(name, "failed", f"{said} ({BEARABLE} is the most that claims can stand)", change)


def _spread(said: Float[Tensor, "batch *rest target"]) -> float:
    """The standard deviation of predictions; 0 of a constant."""
    known = said[said.isfinite()]
    return float(known.std(unbiased=False)) if known.numel() else 0.0


def _difference(one: Tensor, other: Tensor, unit: float) -> float:
    """The largest difference in units; infinite where one is NaN and the other is not."""
    if not torch.equal(one.isnan(), other.isnan()):
        return float("inf")
    known = ~one.isnan()
    if not bool(known.any()):
        return 0.0
    return float((one[known] - other[known]).abs().max()) / (unit or 1.0)
