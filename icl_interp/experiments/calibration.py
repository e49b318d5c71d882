"""Calibration: every claim on every construction of known truth. What a verdict is worth is measured here."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

from pandas import DataFrame

from icl_interp import evaluation
from icl_interp.analyses import registry
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.lab import Lab
from icl_interp.errors import unknown, whole
from icl_interp.models import tokens
from icl_interp.models.transformer import HookedTransformer
from icl_interp.results import make_table
from icl_interp.tasks.base import Task
from icl_interp.tasks.distributions import Uniform
from icl_interp.tasks.functions import Polynomial

YES, NO, OPEN = "supported", "contradicted", "inconclusive"


@runtime_checkable
class Construction(Protocol):
    """A family of models with a known truth, drawn at random.

    Attributes:
        name: short, for tables.
        why: the reason for the expected verdicts, in a sentence.
        expected: verdict by claim.
    """

    @property
    def name(self) -> str: ...
    @property
    def why(self) -> str: ...
    @property
    def expected(self) -> Mapping[str, str]: ...
    def draw(self, seed: int) -> HookedTransformer | tuple[HookedTransformer, Task]:
        """One member; with its task, where that is not the affine one."""
        ...


CONSTRUCTIONS: list[Construction] = []  # studies fill it
TASK = Polynomial(degrees=(1,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=20)


def judge(
    model: HookedTransformer,
    claims: Sequence[str],
    *,
    n_functions: int = 32,
    n_contexts: int = 8,
    seed: int = 0,
    task: Task | None = None,
) -> list[Finding]:
    """Findings about a model of known truth, on affine prompts or those of its own task."""
    own, task = task is not None, task or TASK
    encoding = tokens.infer(model.cfg.d_in, task.dim)
    lab = Lab(model, task, encoding, n_functions=n_functions, n_contexts=n_contexts, seed=seed)
    if own:  # no layer of linear attention is anywhere near R2 = 1, so a small sample would not do
        in_distribution = evaluation.in_distribution(lab, task)
    else:
        out, truth = lab.predictions()
        error = float((out - truth).square().mean())
        in_distribution = {"error": error, "r2": 1 - error / float(truth.square().mean())}
    known = Facts.of(model, task, tokens.name_of(encoding), in_distribution, n_functions=n_functions)
    findings = []
    for claim in registry.select(tuple(claims)):
        if not claim.excluded(known):
            for m in claim.measurements:
                lab.measure(m)
            for m in claim.twin:
                lab.twin.measure(m)
        findings.append(claim.judge_results(lab.results, known))
    return findings


def runs(n_draws: int, seed: int = 0, only: Sequence[str] | None = None) -> Iterator[tuple[Construction, int, Finding]]:
    """Every scored claim on every draw of every construction."""
    names = [c.name for c in CONSTRUCTIONS]
    for name in only or ():
        if name not in names:
            raise unknown("construction", name, names)
    for construction in CONSTRUCTIONS:
        if only and construction.name not in only:
            continue
        for draw in range(seed, seed + n_draws):
            drawn = construction.draw(draw)
            model, task = drawn if isinstance(drawn, tuple) else (drawn, None)
            for finding in judge(model, tuple(construction.expected), seed=draw, task=task):
                yield construction, draw, finding


def calibrate(n_draws: int = 3, seed: int = 0, only: Sequence[str] | None = None) -> DataFrame:
    """A row a construction and claim: the verdict expected, and in how many draws it came.

    The product's own test: a cell in which not every draw gives the expected verdict is a defect.
    """
    whole(n_draws, "draws", 1, 10**6)
    whole(seed, "seed", 0)
    rows: dict[tuple[str, str], list[str]] = {}
    expected: dict[tuple[str, str], str] = {}
    for construction, _, finding in runs(n_draws, seed, only):
        key = (construction.name, finding.id)
        rows.setdefault(key, []).append(finding.verdict)
        expected[key] = construction.expected[finding.id]
    return make_table(
        {
            "construction": [key[0] for key in rows],
            "claim": [key[1] for key in rows],
            "expected": [expected[key] for key in rows],
            "as expected": [sum(v == expected[key] for v in verdicts) for key, verdicts in rows.items()],
            "draws": [len(verdicts) for verdicts in rows.values()],
            "other verdicts": [", ".join(sorted({v for v in rows[key] if v != expected[key]})) for key in rows],
        },
        note=f"draws {seed} .. {seed + n_draws - 1} of each construction",
    )
