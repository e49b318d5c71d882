"""Weights that carry out an algorithm: their predictions are the algorithm's, to 1e-10."""

import pytest
import torch
from helpers import must_fail

from icl_interp.baselines.base import INPUTS
from icl_interp.baselines.moments import Descent, GDPlusPlus, NewtonInverse
from icl_interp.checkpoints.store import predict
from icl_interp.errors import InputError
from icl_interp.models import constructed
from icl_interp.models.tokens import Stacked
from icl_interp.provenance import generator
from icl_interp.tasks import LinearRegression

TASK = LinearRegression(n_dims=3, n_points=9, noise_std=0.2)
PROMPTS = TASK.sample(16, generator(0, "test"), dtype=torch.float64)
MATRIX = torch.tensor([[0.4, 0.1, 0.0], [0.0, 0.3, 0.1], [0.2, 0.0, 0.5]]).double()
DIAGONAL = torch.tensor([0.1, 0.4, 0.7]).double()


def check(model, predictor):
    found = predict(model, Stacked(), PROMPTS)[:, -1]
    expected = predictor.predict(PROMPTS)[:, -1]
    assert float((found - expected).abs().max()) < 1e-10
    assert float(expected.abs().max()) > 0.1


@pytest.mark.parametrize(
    "steps",
    [(0.3,), (0.3, 0.5, 0.1), (DIAGONAL,), (MATRIX, MATRIX), (MATRIX, 0.2)],
    ids=["one step", "own sizes", "diagonal", "matrix", "both"],
)
def test_descent(steps):
    check(constructed.descent(9, steps, 3), Descent(INPUTS, steps))


def test_descent_of_other_steps_is_told_apart():
    model = constructed.descent(9, (MATRIX,), 3)
    must_fail(check, model, Descent(INPUTS, (MATRIX.T.clone(),)))
    must_fail(check, model, Descent(INPUTS, (MATRIX, MATRIX)))


def test_gd_plus_plus():
    sizes, shrinks = (0.3, 0.2, 0.4), (0.1, 0.2, 0.05)
    check(constructed.gd_plus_plus(9, sizes, shrinks, 3), GDPlusPlus(INPUTS, sizes, shrinks))
    must_fail(check, constructed.gd_plus_plus(9, sizes, shrinks, 3), Descent(INPUTS, sizes))


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_newton(steps):
    check(constructed.newton(9, steps, 0.03, 3), NewtonInverse(INPUTS, steps, 0.03))
    must_fail(check, constructed.newton(9, steps, 0.03, 3), NewtonInverse(INPUTS, steps + 1, 0.03))


def test_every_layer_of_newton_holds_an_iterate():
    """After t + 2 layers the query's residual is iterate t, negated; after one there is none."""
    model = constructed.newton(9, 3, 0.03, 3)
    names = [f"blocks.{layer}.hook_resid_post" for layer in range(5)]
    with torch.no_grad():
        _, cache = model.run_with_cache(Stacked().encode(PROMPTS), names_filter=names)
    first, *others = [-cache[name][:, -1, 3] for name in names]
    assert float(first.abs().max()) < 1e-12

    def holds(said, t):
        expected = NewtonInverse(INPUTS, t, 0.03).predict(PROMPTS)[:, -1, 0]
        torch.testing.assert_close(said, expected, rtol=0, atol=1e-10)

    for t, said in enumerate(others):
        holds(said, t)
        must_fail(holds, said, t + 1)


def test_a_model_needs_a_step():
    with pytest.raises(InputError, match="one step at least"):
        constructed.descent(9, (), 3)
