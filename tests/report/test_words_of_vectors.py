"""What reports say of vectors: sizes in u, who writes the prediction, and whom a claim is about."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from made_up_facts import AFFINE, facts
from vector_tasks import PATHS

from icl_interp import descriptions, tasks
from icl_interp.analyses import mechanism, output_unit, relevance
from icl_interp.analyses.facts import needs_task
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.registry import REGISTRY
from icl_interp.figures import mechanism as figures
from icl_interp.models import tokens
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.tokens import Interleaved
from icl_interp.models.transformer import HookedTransformer
from icl_interp.report import banner
from icl_interp.results import make_array
from icl_interp.studies.limits.measurements import ablation
from icl_interp.studies.limits.measurements.algorithms import polynomials_in
from icl_interp.studies.limits.measurements.concentration import far_swap
from icl_interp.tasks import (
    AutoregressiveProcess,
    LinearRegression,
    Polynomial,
    Rescaled,
    RidgeFunction,
    Sphere,
)

COPIES = 4


@dataclass(frozen=True, kw_only=True)
class Copied(Polynomial):
    """Polynomials whose value stands in several coordinates, each times a factor."""

    factors: tuple[float, ...] = (1.0,) * COPIES

    @property
    def n_targets(self):
        return len(self.factors)

    def value(self, parameters, xs):
        return super().value(parameters, xs)[..., None] * torch.tensor(self.factors, dtype=xs.dtype)


def copied(factors=(1.0,) * COPIES) -> Copied:
    return Copied(factors=factors, **vars(AFFINE))


@pytest.fixture(scope="module")
def number() -> Lab:
    config = HookedTransformerConfig(n_layers=2, d_model=12, n_heads=3, n_ctx=64, init_std=0.5)
    return Lab(HookedTransformer(config, seed=1), AFFINE, Interleaved(), n_units=16, n_contexts=2)


def vector(number: Lab, factors=(1.0,) * COPIES) -> Lab:
    """The same model for vectors: it reads the first coordinate of each value.

    It predicts its number times each factor.
    """
    n, weights = len(factors), {name: w.clone() for name, w in number.model.state_dict().items()}
    weights["embed.W_E"] = torch.cat(
        [weights["embed.W_E"], torch.zeros_like(weights["embed.W_E"]).repeat(n - 1, 1)]
    )
    for name in ("unembed.W_U", "unembed.b_U"):
        weights[name] = weights[name] * torch.tensor(factors).to(weights[name])
    model = HookedTransformer(replace(number.model.cfg, d_in=n, d_out=n)).to(
        weights["unembed.W_U"].dtype
    )
    model.load_state_dict(weights)
    return Lab(model, copied(factors), Interleaved(), n_units=16, n_contexts=2)


# ---- sizes in u ----------------------------------------------------------------------------------


def test_sizes_in_u_do_not_change_where_a_number_is_said_four_times(number):
    """Squares are summed over coordinates, as u^2 is a sum of their variances.

    Alternatives: means, half the sizes.
    """
    four = vector(number)

    def check(lab, times=1.0):
        u = {one: float(one.measure(output_unit.own).sel(statistic="u")) for one in (number, lab)}
        assert u[lab] == pytest.approx(COPIES**0.5 * u[number])
        moved = [
            one.measure(relevance.relevance).sel(statistic="movement").values
            for one in (lab, number)
        ]
        np.testing.assert_allclose(moved[0] * times, moved[1], rtol=1e-4, atol=1e-12)
        swapped = [one.measure(far_swap).values / u[one] ** 2 for one in (lab, number)]
        np.testing.assert_allclose(swapped[0] * times, swapped[1], rtol=1e-4, atol=1e-12)

    check(four)
    must_fail(check, four, 1 / COPIES)  # what a mean over coordinates gives
    errors = [
        one.measure(relevance.relevance).sel(statistic=["rise", "intact"]).values
        for one in (four, number)
    ]
    np.testing.assert_allclose(errors[0], errors[1], rtol=1e-4, atol=1e-6)


# ---- who writes the prediction -------------------------------------------------------------------


def test_shares_of_a_vector_are_pooled_by_variance(number):
    """A coordinate that hardly varies hardly counts.

    Alternatives: the mean of shares, where all count alike.
    """
    lab = vector(number, (1.0, 1e-3))
    with torch.no_grad():  # the small coordinate is read off another direction
        for one in (lab.model, lab.single):
            one.unembed.W_U[:, 1] = 1e-3 * one.unembed.W_U[:, 1].flip(0)
    shares, variances = (lab.measure(one) for one in (mechanism.attribution, mechanism.variance))
    whole = number.measure(mechanism.attribution).sel(target=0)

    def check(pooled):
        np.testing.assert_allclose(pooled.values, whole.values, atol=1e-4)
        np.testing.assert_allclose(pooled.sum(), 1, rtol=1e-9)

    check(mechanism.pooled(shares, variances))
    must_fail(check, mechanism.pooled(shares, None))
    assert "variance" in {one.name.partition("/")[2] for one in mechanism.measurements(lab)}
    assert "variance" not in {one.name.partition("/")[2] for one in mechanism.measurements(number)}


def test_a_coordinate_that_does_not_vary_counts_for_nothing():
    axes = {"part": ("read-in", "MLP 0"), "target": (0, 1)}
    shares = make_array([[0.25, np.nan], [0.75, np.nan]], axes)
    found = mechanism.pooled(shares, make_array([2.0, 0.0], {"target": (0, 1)}))
    np.testing.assert_allclose(found.values, [0.25, 0.75])
    drawn = figures._by_part(found)
    np.testing.assert_allclose(drawn.values.ravel(), [0.25, 0.75])


# ---- whom a claim is about -----------------------------------------------------------------------


@pytest.mark.parametrize("claim", ["limits.attention_necessary", "limits.attention_sufficient"])
def test_paths_have_no_best_guess_without_the_prompt(claim):
    """A state tells about its function, so models without attention may beat the overall mean."""

    def check(task):
        reason = REGISTRY[claim].exclusion(facts("attention only", task=task, encoding="states"))
        assert reason
        assert (
            "in this model's task prompts are paths, and the last state alone already tells "
            "something about the function." in reason
        )

    check(PATHS)
    check(AutoregressiveProcess(n_dims=2, n_points=9))
    must_fail(check, AFFINE)


def test_paths_have_no_other_order(number):
    def orders(task, d_in):
        config = replace(number.model.cfg, d_in=d_in, d_out=2)
        lab = Lab(
            HookedTransformer(config, seed=1),
            task,
            tokens.named(task.default_encoding),
            n_units=4,
            n_contexts=1,
        )
        return ablation.REORDERED in lab.measure(ablation.ablated).indexes["arm"]

    assert not orders(PATHS, 2)
    assert orders(copied((1.0, 2.0)), 2)


RIDGE = RidgeFunction(inputs=Sphere(3), link="relu", n_points=9)
OF_ITS_TASK = (
    ("linear_attention.risk", LinearRegression(n_dims=2, n_points=9)),
    ("lipschitz.optimal_window", RIDGE),
    ("lipschitz.transfer", RIDGE),
    ("lipschitz.linear_attention_does_not_adapt", RIDGE),
    ("autoregression.implicit_map", AutoregressiveProcess(n_dims=2, n_points=9)),
)


@pytest.mark.parametrize(
    ("claim", "task"), OF_ITS_TASK, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_class_below_another_is_another_task(claim, task):
    """It may compute other values, or vectors, and the theory of its parent is not about these."""
    kind = type(task)
    below = type("Mine", (kind,), {})(**{name: value for name, value in vars(task).items()})
    reason = REGISTRY[claim].exclusion(facts(task=below))
    assert reason
    assert (
        f"{kind.__name__} task, not of Mine, a class below it, whose functions may be others"
        in reason
    )
    assert "not of" not in (REGISTRY[claim].exclusion(facts(task=task)) or "")


def test_polynomials_of_ones_own_are_no_polynomials():
    assert polynomials_in(AFFINE)
    assert polynomials_in(Rescaled.of(AFFINE, scale=2.0))
    assert polynomials_in(copied()) is None
    assert polynomials_in(Rescaled.of(copied(), scale=2.0)) is None
    for claim in ("limits.no_classical_algorithm", "limits.degrees_alike", "limits.no_norm_better"):
        assert "this model's task is Copied" in (
            REGISTRY[claim].exclusion(facts(task=copied())) or ""
        )


def test_the_words_of_a_task_that_is_not_the_one():
    known = facts(task=copied())
    assert (
        needs_task(known, LinearRegression)
        == "The claim is about models of a LinearRegression task, not of Copied"
    )
    assert needs_task(known, Copied) is None
    assert (
        ", a class below it, whose functions may be others than those of a Polynomial"
        in needs_task(known, Polynomial)
    )


# ---- the first screen ----------------------------------------------------------------------------


def test_reports_say_that_values_are_vectors():
    def check(d_out):
        model = facts(config={"d_out": d_out}).to_dict()
        assert (
            "vectors of 3 coordinates",
            "values",
            "errors are means over coordinates",
        ) in banner.tiles(model)
        assert descriptions.value_words(model["config"]) == "vectors of 3 coordinates"

    check(3)
    must_fail(check, 1)


def test_the_mean_of_a_law_that_is_not_centred_is_shown():
    model = facts(in_distribution={"error": 0.1, "r2": 0.9, "zero": 2.0, "law mean": 1.0}).to_dict()
    labels = {label: value for value, label, _ in banner.tiles(model)}
    assert (labels["predicting 0"], labels["mean of the law"]) == ("2", "1")


def test_the_range_of_a_law_of_ones_own_is_known():
    class Box(tasks.Uniform):
        @property
        def interval(self):
            return -3.0, 3.0

    def of(law):
        return facts(task=replace(AFFINE, inputs=law)).trained_range

    assert of(Box(-3, 3)) == (-3.0, 3.0)
    assert of(tasks.Uniform(-1, 2)) == (-1, 2)
    assert of(Sphere(1)) is None
