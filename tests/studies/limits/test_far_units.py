"""Far means the same whatever interval a model was trained on.

Far queries are multiples of the task's own largest |x|.

A model that reads numbers s times as large, and answers in them, is the same model in other units:
every verdict on it has to be the same. s = 2^100 is about 1e30, where queries up to 1e6 would lie
well inside the trained interval.
"""

import functools
import itertools

import numpy as np
import pytest
import torch
from helpers import must_fail
from made_up_facts import changed
from small_models import make

from icl_interp.analyses import bench as bench_module
from icl_interp.analyses import registry
from icl_interp.analyses.facts import x_unit
from icl_interp.analyses.lab import Lab
from icl_interp.models.transformer import HookedTransformer
from icl_interp.tasks.distributions import Normal, Uniform
from icl_interp.tasks.functions import Polynomial

S = 2.0**100
# It has a verdict for models that have learned nothing too.
SATURATES = "limits.layernorm_saturation"
WITH_NORM = tuple(
    f"limits.{name}"
    for name in (
        "layernorm_saturation",
        "layernorm_causes_saturation",
        "layernorm_causes_failure",
        "context_erased",
        "softmax_hardmax",
        "boundary_immediate",
        "no_icl_at_high_norm",
    )
)
WITHOUT = (
    "limits.linear_asymptote",
    "limits.context_erased",
    "limits.softmax_hardmax",
    "limits.no_icl_at_high_norm",
)


def task(s: float) -> Polynomial:
    """Constant functions: inputs and values scale together."""
    return Polynomial(degrees=(0,), inputs=Uniform(-s, s), coefficients=Uniform(-s, s), n_points=10)


def in_units(model: HookedTransformer, s: float) -> HookedTransformer:
    """The model that reads and writes numbers s times as large."""
    with torch.no_grad():
        model.embed.W_E /= s
        model.unembed.W_U *= s
        model.unembed.b_U *= s
    return model


class LargeControls(Lab):
    """A lab whose untrained controls read the same large numbers.

    With weights of the usual size these controls would be other models.
    """

    @functools.cached_property
    def controls(self) -> tuple[Lab, ...]:
        for control in (controls := super().controls):
            in_units(control.model, S)
        return controls


def check_same_verdicts(judged, name: str, claims: tuple[str, ...]) -> None:
    plain = judged(make(name, n_ctx=20), *claims, task=task(1.0))
    large = judged(
        in_units(make(name, n_ctx=20), S), *claims, task=task(S), lab_class=LargeControls
    )
    for claim in claims:
        assert large[claim].verdict == plain[claim].verdict, claim
        for mine, other in (
            (large[claim].test, plain[claim].test),
            (large[claim].estimate, plain[claim].estimate),
        ):
            scale = S if other.unit == "in units of y" else 1.0
            numbers = np.array([[e.value, e.low, e.high] for e in (mine, other)])
            np.testing.assert_allclose(
                numbers[0] / scale, numbers[1], rtol=1e-6, atol=1e-9, err_msg=claim
            )


@pytest.mark.slow
@pytest.mark.parametrize(("name", "claims"), [("pre", WITH_NORM), ("no norm", WITHOUT)])
def test_verdicts_do_not_depend_on_the_unit_of_x(judged, monkeypatch, name, claims):
    check_same_verdicts(judged, name, claims)
    monkeypatch.setattr(bench_module, "x_unit", lambda task: 1.0)
    must_fail(check_same_verdicts, judged, name, claims[:1])


def test_the_unit_is_the_largest_input():
    laws = {
        Uniform(-1, 1): 1,
        Uniform(-100, 100): 100,
        Uniform(-7, 2): 7,
        Uniform(0, 0.5): 0.5,
        Normal(3, mean=1): 7,
    }
    for law, expected in laws.items():
        assert (
            x_unit(Polynomial(degrees=(1,), inputs=law, coefficients=law, n_points=9)) == expected
        )


def check_no_verdict(judge, known) -> None:
    for claim in registry.select(None):
        if not claim.exclusion(known):
            finding = judge(claim)
            assert finding.verdict == "inconclusive"
            assert "no finite number" in finding.reason


@pytest.mark.slow
def test_without_an_in_distribution_error_there_is_no_verdict(measured):
    """Also after a trip through JSON, which holds such numbers as text.

    It holds whatever the results say.
    """
    bench = measured(make("pre", n_ctx=40), SATURATES)
    assert bench.judge(SATURATES).verdict != "inconclusive"
    for key, value in itertools.product(
        ("r2", "error"), (float("nan"), float("inf"), "nan", "-inf")
    ):
        known = changed(bench.facts, **{key: value})
        check_no_verdict(lambda claim, known=known: claim.judge_results({}, known), known)
        must_fail(check_no_verdict, lambda claim: bench.judge(SATURATES), known)
