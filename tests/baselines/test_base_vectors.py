"""What predictors and features must return, and Bayes over degrees for values that are vectors."""

import pytest
import torch
from helpers import must_fail
from tiny_runs import checkpoint
from vector_tasks import MAPS, LinearMap

import icl_interp
from icl_interp import baselines
from icl_interp.baselines.uniform import BayesUniformPrior
from icl_interp.errors import InputError
from icl_interp.prompts import by_coordinate
from icl_interp.provenance import generator
from icl_interp.tasks import LinearRegression, Normal, Polynomial, Uniform

SIZE = {"n_functions": 4, "n_contexts": 2}


class Fans(Polynomial):
    """Two polynomials at once, each with coefficients of its own."""

    n_targets = 2

    def sample_parameters(self, n_functions, generator, dtype):
        return torch.cat(
            [super(Fans, self).sample_parameters(n_functions, generator, dtype) for _ in range(2)],
            1,
        )

    def value(self, parameters, xs):
        return torch.stack(
            [super(Fans, self).value(half, xs) for half in parameters.chunk(2, 1)], -1
        )


FANS = Fans(degrees=(1,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=6)


@pytest.mark.parametrize(
    "bayes", [baselines.BayesOverDegrees((0, 1), Normal(1)), BayesUniformPrior((0, 1), -1, 1)]
)
def test_bayes_over_degrees_takes_each_coordinate_by_itself(bayes):
    prompts = FANS.sample(5, generator(0, "test"), dtype=torch.float64)

    def check(predict):
        whole = predict(prompts)
        assert whole.shape == prompts.ys.shape
        for i, one in enumerate(by_coordinate(prompts)):
            assert torch.equal(
                whole[..., i : i + 1].nan_to_num(9.0), bayes.predict(one).nan_to_num(9.0)
            )
        assert float((whole - prompts.ys)[:, 4:].abs().max()) < 1e-2

    check(bayes.predict)
    must_fail(check, lambda p: bayes.predict(p).flip(-1))


def test_features_of_another_shape_are_refused():
    def mine(features):
        return type("Mine", (LinearMap,), {"features": features})(**vars(MAPS))

    for features in (
        lambda self, xs: xs[..., None],
        lambda self, xs: xs[0],
        lambda self, xs: xs.numpy(),
    ):
        with pytest.raises(
            InputError, match=r"Mine.features must return a torch tensor \(batch, point, feature\)"
        ):
            icl_interp.evaluate(baselines.Zero(), mine(features), **SIZE)
    icl_interp.evaluate(baselines.Zero(), mine(lambda self, xs: xs), **SIZE)


def test_predictions_that_are_no_tensor_are_refused():
    class Numbers:
        def predict(self, prompts):
            return prompts.ys.numpy()

    with pytest.raises(
        InputError, match=r"Numbers returned array\(.*\(ndarray\): wrap it in torch.as_tensor"
    ):
        icl_interp.evaluate(Numbers(), MAPS, **SIZE)


def test_a_checkpoint_is_evaluated_on_tasks_that_fit_it():
    """A task whose inputs or values do not fit the model is refused, as `analyze` refuses it."""
    run = checkpoint()
    for task, match in (
        (
            MAPS,
            (
                "inputs of 2 coordinates and values of 3 have d_in=3, but the model has d_in=1: "
                "train one with model"
            ),
        ),
        (run.task.with_points(1000), "too short for prompts of n_points=1000"),
        (LinearRegression(n_dims=2, n_points=6), "d_in=2, but the model has d_in=1"),
    ):
        with pytest.raises(InputError, match=match):
            icl_interp.evaluate(run, task, **SIZE)
    icl_interp.evaluate(run, run.task.with_points(5), **SIZE)
