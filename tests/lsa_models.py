"""What the tests of `linear_attention`'s claims share: layers of known truth, and a bench that knows of snapshots."""

from collections.abc import Mapping

import torch
from known import changed

import icl_interp.analyses  # noqa: F401  (registers the claims)
from icl_interp.analyses import registry
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.lab import Lab
from icl_interp.models import tokens
from icl_interp.models.transformer import HookedTransformer
from icl_interp.models.units import LinearSelfAttention
from icl_interp.tasks.regression import Exponential, LinearRegression
from icl_interp.theory import linear_attention as theory

N, VARIANCES = 8, (1.0, 3.0)
N_CTX = 4 * N + 1
TASK = LinearRegression(n_dims=2, covariance=VARIANCES, n_points=N + 1)
RANDOM = LinearRegression(n_dims=2, covariance=Exponential(), n_points=N + 1)
WHERE = theory.landscape(TASK.covariance_matrix, N)
BEST = WHERE.product


def layer(product: torch.Tensor, scale: float | None = None) -> HookedTransformer:
    """A transformer that predicts h^T P x_q; balanced, |v| = |F|, unless told the scale of v."""
    size = float(product.norm()) ** 0.5 or 1.0
    return LinearSelfAttention.from_product(product, scale or size).to_transformer(N_CTX)


def bench(
    model: HookedTransformer,
    task: LinearRegression = TASK,
    *,
    n_functions: int = 16,
    snapshots: Mapping[int, HookedTransformer] | None = None,
    lab_class: type[Lab] = Lab,
) -> tuple[Lab, Facts]:
    """A lab, and what claims may know."""
    encoding = tokens.infer(model.cfg.d_in, task.dim)
    lab = lab_class(
        model, task, encoding, n_functions=n_functions, n_contexts=4, snapshots=lambda: dict(snapshots or {})
    )
    out, truth = lab.predictions()
    error = float((out - truth).square().mean())
    found = {"error": error, "r2": 1 - error / float(truth.square().mean())}
    known = Facts.of(
        model, task, tokens.name_of(encoding), found, n_functions=n_functions, snapshots=tuple(snapshots or ())
    )
    return lab, known


def judge(claim: str, model: HookedTransformer, task: LinearRegression = TASK, **settings) -> Finding:
    """The finding on one claim, r2 taken for that of its best where it is not what is tested."""
    learned = settings.pop("learned", None)
    lab, known = bench(model, task, **settings)
    if learned is not None:
        known = changed(known, r2=learned)
    rule = registry.REGISTRY[f"linear_attention.{claim}"]
    if not rule.excluded(known):
        for m in rule.measurements:
            lab.measure(m)
        for m in rule.twin:
            lab.twin.measure(m)
    return rule.judge_results(lab.results, known)


def value(finding: Finding) -> float:
    """Its estimate."""
    assert finding.estimate is not None
    return finding.estimate.value
