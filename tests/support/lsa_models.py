"""Shared by tests of `linear_attention`'s claims: layers of known truth, a bench with snapshots."""

from collections.abc import Mapping

from made_up_facts import changed

import icl_interp.analyses  # noqa: F401  (registers the claims)
from icl_interp.analyses import registry
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.lab import Lab
from icl_interp.experiments import calibration
from icl_interp.models import tokens
from icl_interp.models.transformer import HookedTransformer
from icl_interp.studies.linear_attention.constructions import layers as known_layers
from icl_interp.tasks.regression import Exponential, LinearRegression
from icl_interp.theory import linear_attention as theory

N, N_CTX, layer = known_layers.N, known_layers.N_CTX, known_layers.layer
VARIANCES = (1.0, 3.0)
TASK = LinearRegression(n_dims=2, covariance=VARIANCES, n_points=N + 1)
RANDOM = LinearRegression(n_dims=2, covariance=Exponential(), n_points=N + 1)
WHERE = theory.landscape(TASK.covariance_matrix, N)
BEST = WHERE.product


def bench(
    model: HookedTransformer,
    task: LinearRegression = TASK,
    *,
    n_units: int = 32,
    snapshots: Mapping[int, HookedTransformer] | None = None,
) -> tuple[Lab, Facts]:
    """A lab, and what claims may know."""
    encoding = tokens.infer(model.cfg.d_in, task.dim)
    lab = Lab(
        model,
        task,
        encoding,
        n_units=n_units,
        n_contexts=1,
        snapshots=lambda: dict(snapshots or {}),
    )
    out, truth = lab.predictions()
    error = float((out - truth).square().mean())
    found = {"error": error, "r2": 1 - error / float(truth.square().mean())}
    known = Facts.of(
        model,
        task,
        tokens.name_of(encoding),
        found,
        n_units=n_units,
        snapshots=tuple(snapshots or ()),
    )
    return lab, known


def judge(
    claim: str, model: HookedTransformer, task: LinearRegression = TASK, **settings
) -> Finding:
    """The finding on one claim, r2 taken for that of its best where it is not what is tested."""
    learned = settings.pop("learned", None)
    lab, known = bench(model, task, **settings)
    if learned is not None:
        known = changed(known, r2=learned)
    rule = registry.REGISTRY[f"linear_attention.{claim}"]
    return rule.judge_results(calibration.measure(lab, known, [rule]), known)


def value(finding: Finding) -> float:
    """Its estimate."""
    assert finding.estimate is not None
    return finding.estimate.value
