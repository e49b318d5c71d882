"""Calibration: every claim on every construction of known truth.

What a verdict is worth is measured here.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from pandas import DataFrame
from torch import Tensor

from icl_interp import evaluation
from icl_interp.analyses import controls, registry
from icl_interp.analyses.claim import Claim, asked_once
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Results
from icl_interp.checkpoints.companions import Role
from icl_interp.checkpoints.config import RunConfig, TrainingConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.errors import whole
from icl_interp.models import tokens
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.tokens import Encoding
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.sweep import Sweep
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.registers import View
from icl_interp.results import make_table
from icl_interp.tasks.base import Task
from icl_interp.tasks.distributions import Uniform
from icl_interp.tasks.functions import Polynomial

COLUMNS = ("construction", "claim", "expected", "as expected", "wrong", "draws", "other verdicts")
YES = "supported"
NO = "contradicted"
OPEN = "inconclusive"
TASK = Polynomial(degrees=(1,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=20)
Predictor = Callable[[Prompts], Float[Tensor, "batch point target"]]


@dataclass(frozen=True)
class Case:
    """A model of known truth, and what it is analysed with.

    Attributes:
        model: the model.
        task: where it is not the affine one.
        predictor: predicts the points of prompts in the model's place, such as least squares: for
            claims about what a model computes, which need no weights.
        companions: models that differ from it in one respect, by role.
        snapshots: the models that its run would have kept on the way, by step.
        encoding: how the model reads prompts, where its width does not tell.
        training: how it counts as trained, for claims about kinds of training; None where nothing
            tells.
        trained_as: the config of the model that was trained, where its weights were rewritten
            since; by default the model's own.
        n_units: of the sample that it is judged on: half of a report's, which leaves room, or as
            many.
        n_contexts: likewise.
    """

    model: HookedTransformer
    task: Task | None = None
    predictor: Predictor | None = None
    companions: Mapping[Role, Checkpoint] = field(default_factory=dict)
    snapshots: Mapping[int, HookedTransformer] = field(default_factory=dict)
    encoding: Encoding | None = None
    training: TrainingConfig | None = None
    trained_as: HookedTransformerConfig | None = None
    n_units: int = 64
    n_contexts: int = 2

    def reads(self) -> Encoding:
        """The encoding."""
        if self.encoding:
            return self.encoding
        task = self.task or TASK
        return tokens.infer_for(task, self.model.cfg.d_in)


@dataclass(frozen=True)
class Construction:
    """A family of models with a known truth, drawn at random.

    Attributes:
        name: short, for tables.
        why: the reason for the expected verdicts, in a sentence.
        build: a member of the family, from a generator; a model alone is one on the affine task.
        expected: verdict by claim.
    """

    name: str
    why: str
    build: Callable[[torch.Generator], "HookedTransformer | Case"]
    expected: Mapping[str, str]

    def draw(self, seed: int) -> Case:
        """One member, in float64."""
        draws = generator(seed, f"construction/{self.name}")
        case = self.build(draws)
        if not isinstance(case, Case):
            case = Case(case)
        case.model.double().eval()
        return case


def between(
    g: torch.Generator, low: float, high: float, dtype: torch.dtype = torch.float32
) -> float:
    """A number drawn evenly between two others: what members of a family differ by.

    Args:
        g: draws it.
        low: end of the interval.
        high: end of the interval.
        dtype: of the draw. Another one draws other numbers, so a family whose verdicts are stored
            keeps its own.

    >>> between(generator(0, "doc"), 2, 2)
    2.0
    """
    share = float(torch.rand((), generator=g, dtype=dtype))
    return low + (high - low) * share


CONSTRUCTIONS: View[Construction] = View(
    "construction", lambda study: {one.name: one for one in study.constructions}
)


class Predicting(Lab):
    """A lab that takes predictions in distribution from a known predictor instead of its model."""

    def __init__(self, predictor: Predictor, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.predictor = predictor

    def predict(
        self, prompts: Prompts, *, double: bool = False
    ) -> Float[Tensor, "batch point target"]:
        """What the predictor says of every point."""
        return self.predictor(prompts)

    def run_single(self, sweeps: Sequence[Sweep]) -> list[Float[Tensor, "batch point target"]]:
        """What the predictor says with the last query put at each place.

        Sweeps here have no probes and no edits.
        """
        return [self._asked(sweep.prompts, sweep.queries) for sweep in sweeps]

    def _asked(self, prompts: Prompts, queries: Float[Tensor, "batch point dim"]) -> Tensor:
        context = prompts.xs[:, :-1]
        predictions = []
        for i in range(queries.shape[1]):
            xs = torch.cat([context, queries[:, i : i + 1]], 1)
            predicted = self.predict(replace(prompts, xs=xs))
            predictions.append(predicted[:, -1])
        return torch.stack(predictions, 1)


def lab_for(
    case: Case, *, n_units: int | None = None, n_contexts: int | None = None, seed: int = 0
) -> tuple[Lab, Facts]:
    """A lab with the model of a case, and the facts that claims are told.

    Sizes are the case's by default.
    """
    # The lab, as a report would make it of a run.
    task = case.task or TASK
    n_units = n_units or case.n_units
    encoding = case.reads()
    encoding_name = tokens.name_of(encoding)
    trained_as = case.trained_as or case.model.cfg
    make = functools.partial(Predicting, case.predictor) if case.predictor else Lab
    lab = make(
        case.model,
        task,
        encoding,
        n_units=n_units,
        n_contexts=n_contexts or case.n_contexts,
        seed=seed,
        companions=case.companions,
        snapshots=lambda: case.snapshots,
        config=RunConfig(trained_as, task, encoding_name, case.training),
    )

    # The error in distribution. The lab's own sample would not do for a task or predictor of the
    # case: no layer of linear attention is anywhere near R2 = 1.
    if case.task or case.predictor:
        error = evaluation.in_distribution(lab, task)
    else:
        out, truth = lab.predictions()
        squared = float((out - truth).square().mean())
        size = float(truth.square().mean())
        error = {"error": squared, "r2": 1 - squared / size}

    companions = {}
    for role, other in case.companions.items():
        companions[role] = other.name
    facts = Facts.of(
        case.model,
        task,
        encoding_name,
        error,
        n_units=n_units,
        optimizer="Adam" if case.training else "",
        n_steps=case.training.steps if case.training else 0,
        snapshots=tuple(case.snapshots),
        companions=companions,
    )
    return lab, facts


def measure(lab: Lab, facts: Facts, claims: Sequence[Claim]) -> Results:
    """Everything that these claims need, if they apply."""
    applying = [claim for claim in claims if not claim.exclusion(facts)]
    errors = controls.measure(lab, applying, facts)
    for error in errors.values():
        raise error
    return lab.results


def found(lab: Lab, facts: Facts, claims: Sequence[Claim]) -> dict[str, Finding]:
    """The findings of these claims, by id: measured, then judged."""
    # A claim looks at the same results before and after further controls are measured.
    once = [asked_once(claim) for claim in claims]
    results = measure(lab, facts, once)
    return {claim.id: claim.judge_results(results, facts) for claim in once}


def judge(
    case: Case | HookedTransformer,
    claims: Sequence[str],
    *,
    n_units: int | None = None,
    n_contexts: int | None = None,
    seed: int = 0,
    task: Task | None = None,
) -> list[Finding]:
    """Findings about a model of known truth, on affine prompts or those of its own task."""
    if not isinstance(case, Case):
        case = Case(case, task)
    selected = registry.select(tuple(claims))
    lab, facts = lab_for(case, n_units=n_units, n_contexts=n_contexts, seed=seed)
    return list(found(lab, facts, selected).values())


def runs(
    n_draws: int, seed: int = 0, only: Sequence[str] | None = None
) -> Iterator[tuple[Construction, int, Finding]]:
    """Every scored claim on every draw of every construction, or of those named."""
    if only is None:
        chosen = list(CONSTRUCTIONS.values())
    else:
        chosen = list(map(CONSTRUCTIONS.named, only))
    for construction in chosen:
        claims = tuple(construction.expected)
        for draw in range(seed, seed + n_draws):
            for finding in judge(construction.draw(draw), claims, seed=draw):
                yield construction, draw, finding


def calibrate(n_draws: int = 3, seed: int = 0, only: Sequence[str] | None = None) -> DataFrame:
    """A row for each construction and claim: the expected verdict, and how many draws gave it.

    A further column counts the draws that decide otherwise. The product's own test: a cell in which
    not every draw gives the expected verdict is a defect.
    """
    whole(n_draws, "draws", 1, 10**6)
    whole(seed, "seed", 0)
    # The verdicts of all draws, by construction, claim and expected verdict.
    rows: dict[tuple[str, str, str], list[str]] = {}
    for construction, _, finding in runs(n_draws, seed, only):
        key = (construction.name, finding.id, construction.expected[finding.id])
        rows.setdefault(key, []).append(finding.verdict)

    columns: dict[str, list[Any]] = {}
    for name in COLUMNS:
        columns[name] = []
    for key, verdicts in rows.items():
        expected = key[-1]
        other = [verdict for verdict in verdicts if verdict != expected]
        right = len(verdicts) - len(other)
        wrong = other.count(YES) + other.count(NO)
        listed = ", ".join(sorted(set(other)))
        row = (*key, right, wrong, len(verdicts), listed)
        for name, value in zip(COLUMNS, row, strict=True):
            columns[name].append(value)
    return make_table(columns, note=f"draws {seed} .. {seed + n_draws - 1} of each construction")
