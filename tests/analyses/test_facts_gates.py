"""Gates before a claim is judged: whether a model has learned, beside the best predictor.

The share that it has learned comes with an interval.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp import evaluation
from icl_interp.analyses.facts import LEARNED_R2, Facts, needs_linear_functions, needs_training
from icl_interp.baselines.reference import BestRidge
from icl_interp.checkpoints import store
from icl_interp.models import weights
from icl_interp.pipeline import companions_of_model
from icl_interp.tasks import LinearRegression, Normal, Polynomial, Task, Uniform

NOISY = LinearRegression(n_dims=2, n_points=30, noise_std=1.0)


def facts(errors: dict, **more) -> Facts:
    loaded = store.load("affine")
    return Facts.of(loaded.model, loaded.task, "interleaved", errors, **more)


class Missing:
    """The best predictor under noise, and further noise of a known size."""

    def __init__(self, task, more: float) -> None:
        self.best, self.more = BestRidge(task), more

    def predict(self, prompts):
        best = self.best.predict(prompts)
        draw = torch.Generator().manual_seed(1)
        return best + self.more * torch.randn(best.shape, generator=draw, dtype=best.dtype)


def check_relative(learned) -> None:
    """A predictor as good as the best has learned; one that misses what can be known has not."""
    best = evaluation.in_distribution(Missing(NOISY, 0.0), NOISY)
    poor = evaluation.in_distribution(Missing(NOISY, 0.6), NOISY)
    assert best["r2"] < 0.75  # no predictor of these labels reaches .9
    assert learned(best)
    assert not learned(poor)


def test_learned_is_relative_to_the_best_predictor():
    check_relative(lambda errors: facts(errors).has_learned)
    must_fail(check_relative, lambda errors: errors["r2"] > LEARNED_R2)  # as it was
    must_fail(check_relative, lambda errors: errors["r2"] > 0.3)


def test_the_share_is_that_of_errors():
    found = evaluation.in_distribution(Missing(NOISY, 0.5), NOISY)
    nothing = found["zero"]
    expected = (nothing - found["error"]) / (nothing - found["best ridge"])
    assert found["learned"] == pytest.approx(expected)
    assert found["learned_low"] < expected < found["learned_high"]
    assert found["best_r2"] == pytest.approx(1 - found["best ridge"] / nothing)
    with pytest.raises(AssertionError):
        assert found["learned"] == pytest.approx(found["r2"], abs=0.1)


@dataclass(frozen=True, kw_only=True)
class Rounded(Task):
    """y = w x, with labels of which a fifth is pushed up by 3.

    It is noise of which no best predictor is known.
    """

    weights: Normal

    @property
    def n_determining(self):
        return 1

    def sample_parameters(self, n_functions, generator, dtype):
        return self.weights.sample((n_functions, 1), generator, dtype)

    def value(self, parameters, xs):
        return parameters * xs[..., 0]

    def sample_points(self, parameters, n_points, generator, dtype):
        xs = self.inputs.sample((len(parameters), n_points, 1), generator, dtype)
        pushed = torch.rand(xs.shape, generator=generator, dtype=dtype) < 0.2
        return xs, self.targets(parameters, xs) + 3.0 * pushed


class Knowing:
    """Predicts the values themselves, which labels hide."""

    def __init__(self, task) -> None:
        self.task = task

    def predict(self, prompts):
        return self.task.targets(prompts.parameters, prompts.xs)


def check_values(learned) -> None:
    task = Rounded(weights=Normal(1.0), inputs=Uniform(-1, 1), n_points=10)
    found = evaluation.in_distribution(Knowing(task), task)
    assert found["r2"] < 0.5
    assert learned(found)


@pytest.mark.slow
def test_where_no_best_is_known_values_without_noise_tell():
    check_values(lambda errors: facts(errors).has_learned)
    must_fail(check_values, lambda errors: errors["r2"] > LEARNED_R2)


class AtTheQuery(Knowing):
    """Knows the values too, and predicts the query alone, as models of stacked prompts do."""

    def predict(self, prompts):
        values = super().predict(prompts)
        return torch.cat([torch.full_like(values[:, :-1], math.nan), values[:, -1:]], 1)


def check_query_alone() -> None:
    task = Rounded(weights=Normal(1.0), inputs=Uniform(-1, 1), n_points=10)
    assert evaluation.in_distribution(AtTheQuery(task), task)["learned"] == pytest.approx(1)


def test_who_predicts_the_query_alone_is_measured_there(monkeypatch):
    check_query_alone()
    everywhere = lambda found: {name: one.squared.mean(1) for name, one in found.items()}  # noqa: E731
    monkeypatch.setattr(evaluation, "_over_points", everywhere)
    must_fail(check_query_alone)


def check_interval(has_learned) -> None:
    for low, expected in ((0.89, False), (0.91, True)):
        errors = {"error": 0.1, "r2": 0.92, "r2_low": low, "r2_high": 0.95}
        assert has_learned(facts(errors)) is expected


def test_the_whole_interval_is_asked_for():
    check_interval(lambda known: known.has_learned)
    must_fail(check_interval, lambda known: known.r2 > LEARNED_R2)
    said = facts({"error": 0.1, "r2": 0.92, "r2_low": 0.89, "r2_high": 0.95}).not_learned()
    assert said == "in-distribution R2 0.920 [0.890, 0.950], 0.9 needed"


def test_without_an_interval_the_number_is_exact():
    assert facts({"error": 0.1, "r2": 0.92}).has_learned
    assert not facts({"error": 0.1, "r2": 0.9}).has_learned


def test_noise_is_seen_in_labels():
    clean = Polynomial(degrees=(1,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=8)
    assert "noise_free" not in evaluation.in_distribution(Knowing(clean), clean)
    assert "noise_free" in evaluation.in_distribution(
        Knowing(NOISY), Rounded(weights=Normal(1.0), inputs=Uniform(-1, 1), n_points=8)
    )


# ---- training ------------------------------------------------------------------------------------


def test_claims_about_training_need_it():
    trained = {"error": 0.1, "r2": 0.99}
    assert needs_training(facts(trained, optimizer="Adam", n_steps=10)) is None
    for lacking in ({"n_steps": 10}, {"optimizer": "Adam"}, {}):
        assert "nothing tells how this one was" in (needs_training(facts(trained, **lacking)) or "")


def test_claims_about_linear_functions_need_drawn_ones():
    assert "not of Polynomial" in (needs_linear_functions(facts({"error": 0.1, "r2": 0.9})) or "")
    for change, why in (
        ({}, None),
        ({"weights": (1.0, 2.0)}, "drawn"),
        ({"query": Normal(3.0)}, "like the examples"),
        ({"single_orthant": True}, "like the examples"),
    ):
        told = Facts.of_outputs(replace(NOISY, **change), {"error": 0.1, "r2": 0.9})
        reason = needs_linear_functions(told)
        assert (why in reason) if why else reason is None


def jittered(source, size: float):
    """A copy of a checkpoint with another seed in its config, and weights moved by `size`.

    `size` is a share of the size of the weights.
    """
    model = type(source.model)(source.model.cfg)
    draw = torch.Generator().manual_seed(5)
    state = {
        name: w * (1 + size * torch.randn(w.shape, generator=draw))
        for name, w in source.model.state_dict().items()
    }
    model.load_state_dict(state)
    training = replace(source.config.training, seed=77)
    return replace(source, model=model.eval(), config=replace(source.config, training=training))


def check_copies(found) -> None:
    source = store.load("affine")
    for size, is_copy in ((0.0, True), (1e-6, True), (3e-4, True), (1e-2, False)):
        matched, left_out = found([jittered(source, size)], source)
        assert [
            row["reason"].startswith("its weights are those of affine") for row in left_out
        ] == [True] * is_copy
        assert sum(other.config.training.seed == 77 for other in matched.values()) == (not is_copy)


@pytest.mark.slow
def test_a_copy_is_no_second_seed(monkeypatch):
    check_copies(companions_of_model)
    monkeypatch.setattr(weights, "are_copies", lambda one, other: False)
    must_fail(check_copies, companions_of_model)


def test_other_shapes_are_no_copies():
    one, other = store.load("affine").model, store.load("affine_no_ln").model
    assert not weights.are_copies(one, other)
    assert np.isclose(weights.COPY, 1e-3)
