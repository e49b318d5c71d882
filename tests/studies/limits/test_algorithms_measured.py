"""What algorithms and a model predict beside each other: arms, the order of examples, predictions by hand."""

from dataclasses import replace

import numpy as np
import torch
from helpers import must_fail
from small_models import make

from icl_interp import tasks
from icl_interp.analyses.lab import Lab
from icl_interp.baselines import LeastSquares, classical
from icl_interp.checkpoints.companions import Role
from icl_interp.models.tokens import Interleaved
from icl_interp.prompts import as_numbers
from icl_interp.studies.limits.measurements import algorithms
from icl_interp.studies.limits.measurements.algorithms import (
    ARMS,
    LAW_MEAN,
    MODEL,
    SEED,
    SELF,
    TRUTH,
    arms,
    itself,
    own,
    reshuffled,
    rivals,
)

U = tasks.Uniform(-1, 1)
LINES = tasks.Polynomial(degrees=(1,), inputs=U, coefficients=U, n_points=8)
MIXED = tasks.Polynomial(degrees=(1, 3), inputs=U, coefficients=U, n_points=8)
UNEVEN = replace(MIXED, coefficients=tasks.Uniform(0.5, 1.5))  # its law's mean is not 0
BAYES = "Bayes over degrees, uniform prior"


def bench(task=LINES, n_units=32) -> Lab:
    return Lab(make("pre"), task, Interleaved(), n_units=n_units, n_contexts=2)


# ---- prompts -------------------------------------------------------------------------------------


def check_arms(draw):
    """The same pairs four times: as they are, functions tripled, the query at an end of the interval, both drawn."""
    inside, scaled, edge, drawn = draw(bench(MIXED, 5)).values()
    assert len(inside) == 20
    pairs = inside.ys.view(5, 2, 2, -1)  # (unit, partner, context, point)
    assert torch.allclose(pairs[:, 1], -pairs[:, 0])
    assert torch.equal(scaled.xs, inside.xs)
    assert torch.allclose(scaled.ys, 3 * inside.ys, rtol=1e-12, atol=1e-15)
    assert torch.allclose(MIXED.targets(scaled.parameters, scaled.xs), scaled.ys)
    assert torch.equal(edge.xs[:, :-1], inside.xs[:, :-1])
    assert torch.equal(edge.ys[:, :-1], inside.ys[:, :-1])
    assert edge.xs[:, -1, 0].tolist() == [-1.0, 1.0] * 10
    assert torch.equal(edge.ys, MIXED.targets(inside.parameters, edge.xs))
    factors = (drawn.parameters / inside.parameters).nanmean(1).view(5, 4)
    assert torch.allclose(factors, factors[:, :1].expand(-1, 4))
    assert ((factors > 2.5) & (factors < 3.5)).all()
    assert len(factors[:, 0].unique()) == 5
    assert torch.equal(drawn.xs[:, :-1], inside.xs[:, :-1])
    assert ((drawn.xs[:, -1, 0].abs() > 0.9) & (drawn.xs[:, -1, 0].abs() < 1)).all()
    assert len(drawn.xs[:, -1, 0].unique()) == 20
    assert torch.allclose(drawn.ys, MIXED.targets(drawn.parameters, drawn.xs))


def test_arms():
    check_arms(arms)
    must_fail(check_arms, lambda lab: {**arms(lab), ARMS[1]: arms(lab)[ARMS[0]]})
    must_fail(check_arms, lambda lab: {**arms(lab), ARMS[2]: arms(lab)[ARMS[0]]})
    must_fail(check_arms, lambda lab: {**arms(lab), ARMS[3]: arms(lab)[ARMS[1]]})


def check_order(shuffle):
    """The same points before the same query, and all one to every classical algorithm."""
    prompts = arms(bench(MIXED, 6))[ARMS[0]]
    other = shuffle(prompts, 0)
    assert torch.equal(other.xs[:, -1], prompts.xs[:, -1])
    assert not torch.equal(other.xs, prompts.xs)
    for row in range(len(prompts)):
        pairs = [
            sorted(zip(p.xs[row, :-1, 0].tolist(), p.ys[row, :-1].tolist(), strict=True))
            for p in (prompts, other)
        ]
        assert pairs[0] == pairs[1]
    for name, algorithm in algorithms.algorithms(MIXED).items():
        said = [algorithm.predict(p)[:, -1] for p in (prompts, other)]
        assert torch.allclose(said[0], said[1], rtol=0, atol=1e-5), name


def test_order_is_all_one_to_an_algorithm():
    check_order(reshuffled)
    must_fail(
        check_order,
        lambda prompts, seed: replace(prompts, xs=prompts.xs.flip(1), ys=prompts.ys.flip(1)),
    )
    must_fail(check_order, lambda prompts, seed: replace(prompts, ys=reshuffled(prompts, seed).ys))


# ---- predictions ---------------------------------------------------------------------------------


class Constant:
    """Says a quarter, always."""

    def predict(self, prompts):
        return torch.full_like(prompts.ys, 0.25)


def earlier(predictor, prompts):
    """The prediction for the last labelled point, instead of that for the query."""
    return predictor.predict(prompts)[:, -2, 0].double()


ONE_POINT_EARLIER = {
    "at_query": earlier,
    "at_queries": lambda lab, asked: [earlier(lab, prompts) for prompts in asked.values()],
}


def check_predictions():
    lab = bench(UNEVEN, 4)
    lab.companions[Role(SEED)] = Constant()
    model, same, others = lab.measure(own), lab.measure(itself), lab.measure(rivals)
    assert tuple(model.indexes["who"]) == (MODEL,)
    assert tuple(same.indexes["who"]) == (SELF, SEED)
    assert tuple(others.indexes["who"]) == (TRUTH, LAW_MEAN, *classical(UNEVEN), BAYES)
    for arm, prompts in arms(lab).items():
        ys, x = as_numbers(prompts.ys), prompts.xs[:, -1, 0]
        expected = {
            MODEL: as_numbers(lab.predict(prompts))[:, -1],
            SELF: as_numbers(lab.predict(reshuffled(prompts, 0)))[:, -1],
            SEED: torch.full((16,), 0.25),
            TRUTH: ys[:, -1],
            LAW_MEAN: 1 + x + (x**2 + x**3) / 2,  # half of the functions are lines
            "least squares": as_numbers(LeastSquares(UNEVEN).predict(prompts))[:, -1],
            "averaging": ys[:, :-1].mean(1),
        }
        for who, values in expected.items():
            held = next(array for array in (model, same, others) if who in array.indexes["who"])
            found = held.sel(arm=arm, who=who).values
            rounding = (
                1e-6 if who in (MODEL, SELF) else 1e-9
            )  # of numbers of order 1: these two are float32
            assert np.allclose(found, values.view(4, 4), rtol=1e-5, atol=rounding), (arm, who)


def test_predictions_by_hand(monkeypatch):
    check_predictions()
    for name in ("at_query", "at_queries"):
        with monkeypatch.context() as patch:
            patch.setattr(algorithms, name, ONE_POINT_EARLIER[name])
            must_fail(check_predictions)


def test_who_is_compared():
    assert BAYES in algorithms.algorithms(LINES)
    assert BAYES not in algorithms.algorithms(
        replace(LINES, coefficients=tasks.Normal(1))
    )  # `classical` has it
    few = replace(LINES, degrees=(9,))
    assert set(algorithms.algorithms(few)) == set(classical(few))
