"""What is tried on a predictor before anything is judged: each check has a mutant it must catch."""

import numpy as np
import pytest
import torch
from known_predictors import AFFINE, kernel_average, recent, ridge

import icl_interp
from icl_interp import predictors
from icl_interp.baselines import KNearest, LeastSquares
from icl_interp.errors import InputError
from icl_interp.evaluation import evaluate

GOOD = ridge(1e-3)


def outcomes(source):
    found = predictors.checked(predictors.recognised(source), AFFINE)
    return {check.name: check for check in found}


def refused(source, message):
    with pytest.raises(InputError, match=message) as caught:
        predictors.checked(predictors.recognised(source), AFFINE)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "source", [GOOD, LeastSquares(AFFINE), KNearest(3)], ids=["ridge", "ols", "near"]
)
def test_a_good_predictor_passes_every_check(source):
    found = outcomes(source)
    assert [*found] == [
        "shape",
        "finite outputs",
        "deterministic",
        "other prompts",
        "batch size",
        "labels",
        "order of examples",
        "far queries",
    ]
    assert {check.outcome for check in found.values()} == {"passed", "said"}


def with_noise(size):
    draw = np.random.default_rng(0)

    def predict(xs, ys, x_query):
        return GOOD(xs, ys, x_query) + size * draw.standard_normal(len(xs))

    return predict


def test_one_that_draws_is_refused_and_a_little_is_a_warning():
    refused(with_noise(0.5), "deterministic: the same prompts, asked again, change predictions")
    assert outcomes(with_noise(1e-4))["deterministic"].outcome == "warning"


def with_batch(size):
    """A tabular model that scales by what it sees in the whole batch."""

    def predict(xs, ys, x_query):
        return GOOD(xs, ys, x_query) + size * np.tanh(np.abs(x_query).mean())

    return predict


def test_one_that_reads_other_prompts_is_refused_and_a_little_is_a_warning():
    refused(with_batch(0.5), "other prompts: other prompts in the batch change predictions by")
    found = outcomes(with_batch(1e-3))
    assert found["other prompts"].outcome == "warning"
    assert found["other prompts"].value > predictors.checks.SAME


def by_batch_size(xs, ys, x_query):
    return GOOD(xs, ys, x_query) + (len(xs) == 1)


def test_one_that_depends_on_the_size_of_the_batch_is_refused():
    refused(by_batch_size, "batch size: batches of one prompt and one query change")


def not_finite(xs, ys, x_query):
    return np.where(ys[:, 0] > 0, np.nan, GOOD(xs, ys, x_query))


def overflows(xs, ys, x_query):
    return np.where(np.abs(x_query[:, 0]) > 1e5, np.inf, GOOD(xs, ys, x_query))


def test_one_that_is_not_finite_is_refused_and_far_out_it_is_a_warning():
    refused(not_finite, "finite outputs: .* in distribution are NaN or infinite")
    assert outcomes(overflows)["far queries"].outcome == "warning"


def short(xs, ys, x_query):
    return GOOD(xs, ys, x_query)[:-1]


def test_one_of_another_shape_is_refused():
    refused(short, "must return a value for each query")


class Reads:
    """Predicts from what it must not see."""

    def __init__(self, predict):
        self.predict = predict


def half_the_label(prompts):
    """karpathy/nanoGPT#331: a wrong mask shows the model the label that it is asked for."""
    return 0.5 * prompts.ys


def later_labels(prompts):
    """It sees the label after the one that it is asked for."""
    return torch.cat([prompts.ys[:, 1:], prompts.ys[:, :1]], 1)


def the_function(prompts):
    """It sees the coefficients that generated the labels."""
    return AFFINE.targets(prompts.parameters, prompts.xs)


LEAKS = [
    (half_the_label, "the label that it predicts, or later ones"),
    (later_labels, "the label that it predicts, or later ones"),
    (the_function, "the hidden parameters of the functions"),
]


@pytest.mark.parametrize(("leak", "what"), LEAKS)
def test_one_that_reads_labels_is_refused_everywhere(leak, what):
    refused(Reads(leak), f"labels: the predictor reads {what}")
    with pytest.raises(InputError, match=f"the predictor reads {what}"):
        evaluate(Reads(leak), AFFINE, n_functions=20, n_contexts=4)
    with pytest.raises(InputError, match=f"the predictor reads {what}"):
        icl_interp.analyze(Reads(leak), task=AFFINE, progress=False)


def test_one_that_reads_earlier_labels_is_not():
    """A label before the point may be read: that is what in-context learning is."""
    last = Reads(lambda prompts: torch.cat([prompts.ys[:, :1] * 0, prompts.ys[:, :-1]], 1))
    assert outcomes(last)["labels"].outcome == "passed"


def test_order_is_said_and_not_required():
    found = outcomes(recent(0.5))["order of examples"]
    assert found.outcome == "said"
    assert "another order changes predictions by" in found.says
    assert outcomes(GOOD)["order of examples"].says == "another order changes nothing"


def test_a_plateau_is_said():
    assert "exactly constant" in outcomes(kernel_average(0.05))["far queries"].says
    assert "it moves by" in outcomes(GOOD)["far queries"].says
