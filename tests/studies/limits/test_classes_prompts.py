"""Prompts of every class of functions: shared inputs, antithetic pairs, sinusoids outside."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from small_models import make
from tiny_runs import checkpoint

from icl_interp import tasks
from icl_interp.analyses import facts
from icl_interp.analyses.lab import Lab
from icl_interp.checkpoints.companions import Role
from icl_interp.models.tokens import Interleaved
from icl_interp.prompts import as_numbers
from icl_interp.studies.limits.measurements import ablation
from icl_interp.studies.limits.measurements import patterns as measured_patterns
from icl_interp.studies.limits.measurements.classes import (
    drawn_powers,
    errors,
    polynomials,
    sinusoids,
)

U = tasks.Uniform(-1, 1)
GAPS = tasks.Polynomial(degrees=(1, 3), inputs=U, coefficients=U, n_points=8)


def bench(task=GAPS, **settings) -> Lab:
    return Lab(make("pre"), task, Interleaved(), n_units=16, n_contexts=1, **settings)


def check_shared(draw):
    """All degrees have the same inputs and first coefficients.

    Partners have the same inputs and opposite values.
    """
    lab = bench()
    low, high = draw(lab, 1), draw(lab, 4)
    assert torch.equal(low.xs, high.xs)
    assert torch.equal(low.parameters, high.parameters[:, :2])
    assert torch.equal(high.xs[::2], high.xs[1::2])
    assert torch.equal(high.parameters[::2], -high.parameters[1::2])
    assert torch.allclose(high.ys[::2], -high.ys[1::2], rtol=0, atol=1e-13)
    assert not torch.equal(high.parameters[1], -high.parameters[2])
    assert high.function.tolist() == list(range(32))
    for row in (0, 17):
        expected = np.polynomial.polynomial.polyval(
            high.xs[row, :, 0].numpy(), high.parameters[row].numpy()
        )
        assert np.allclose(as_numbers(high.ys)[row], expected, rtol=0, atol=1e-13)


def test_degrees_share_what_they_can():
    check_shared(polynomials)
    must_fail(check_shared, lambda lab, degree: polynomials(replace_seed(lab, degree), degree))


def test_partners_are_reflected_at_the_mean_of_the_law():
    task = replace(GAPS, coefficients=tasks.Uniform(0, 2))
    lab = Lab(make("pre"), task, Interleaved(), n_units=16, n_contexts=2)
    prompts = polynomials(lab, 2)  # two contexts of each function
    assert prompts.function.tolist() == [i // 2 for i in range(64)]
    pairs = prompts.parameters.view(16, 2, 2, 3)  # (unit, partner, context, coefficient)
    assert torch.equal(pairs[:, :, 0], pairs[:, :, 1])
    assert torch.allclose(pairs.sum(1), torch.full((), 2.0, dtype=torch.float64))
    inputs = prompts.xs.view(16, 2, 2, -1)
    assert torch.equal(inputs[:, 0], inputs[:, 1])
    assert not torch.equal(inputs[:, 0, 0], inputs[:, 0, 1])


def test_a_law_without_a_centre_has_single_functions():
    class Skewed(tasks.Polynomial):
        def mean_parameters(self, parameters):
            return None

    lab = Lab(make("pre"), Skewed(**vars(GAPS)), Interleaved(), n_units=16, n_contexts=1)
    prompts = polynomials(lab, 2)
    assert prompts.function.tolist() == [i // 2 for i in range(32)]
    assert torch.equal(prompts.parameters[::2], prompts.parameters[1::2])
    assert not torch.equal(prompts.xs[::2], prompts.xs[1::2])
    assert errors(lab).sizes["unit"] == 16


def check_powers(draw):
    """Powers differ between units, not within one; one from 1 up is there.

    Coefficients are those of degrees.
    """
    for task, top in ((GAPS, 3), (replace(GAPS, degrees=(1, 2)), 3)):
        lab = Lab(make("pre"), task, Interleaved(), n_units=200, n_contexts=1)
        prompts = draw(lab)
        kept = (prompts.parameters != 0).view(200, 2, top + 1)
        assert torch.equal(kept[:, 0], kept[:, 1])
        assert kept[:, 0, 1:].any(1).all()
        assert 0.4 < kept[:, 0].double().mean() < 0.7
        assert len(kept[:, 0].unique(dim=0)) == 14  # all but those with none of x, x^2 and x^3
        full = polynomials(lab, top)
        assert torch.equal(prompts.xs, full.xs)
        assert torch.equal(prompts.parameters, full.parameters * (prompts.parameters != 0))


def test_powers_are_drawn():
    check_powers(drawn_powers)
    must_fail(check_powers, lambda lab: polynomials(lab, 3))


def test_the_partner_of_a_sinusoid_is_its_negative():
    prompts = sinusoids(bench())
    assert torch.allclose(prompts.ys[::2], -prompts.ys[1::2], rtol=0, atol=1e-12)


def replace_seed(lab, seed):
    other = bench()
    other.seed = seed
    return other


def test_companions_do_not_change_the_model_s_own_prompts():
    alone, beside = (
        bench(),
        bench(
            companions={
                Role("degrees", degrees=(6,)): checkpoint(
                    task={"degrees": [6], "n_points": 8}, model={"n_ctx": 16}
                )
            }
        ),
    )
    a, b = errors(alone), errors(beside)
    shared = a.indexes["class"]
    assert set(b.indexes["class"]) - set(shared) == {"degree 6"}
    for name in shared:
        mine = [m.sel({"predictor": "model", "class": name}).values for m in (a, b)]
        assert np.array_equal(mine[0][0], mine[1][0])


def check_outside(draw, degree):
    """One sign change more than the degree, and the polynomials' mean square.

    No polynomial explains half of such a function.
    """
    task = tasks.Polynomial(
        degrees=(degree,), inputs=tasks.Uniform(-2, 2), coefficients=U, n_points=400
    )
    lab = bench(task)
    prompts = draw(lab)
    for row in range(0, 32, 4):
        order = prompts.xs[row, :, 0].argsort()
        signs = prompts.ys[row, order, 0].sign()
        # A zero of the sinusoid may fall between an end of the interval and the last of the 400
        # points.
        assert int((signs[1:] != signs[:-1]).sum()) in (degree + 1, degree)
        xs, ys = prompts.xs[row, :, 0].numpy(), prompts.ys[row, :, 0].numpy()
        left = ys - np.polyval(np.polyfit(xs, ys, degree), xs)
        assert (left**2).mean() > 0.2 * (ys**2).mean()
    square = polynomials(lab, degree).ys.square().mean()
    assert float(prompts.ys.square().mean()) == pytest.approx(float(square), rel=0.1)


@pytest.mark.parametrize("degree", [1, 3, 5])
def test_sinusoids_are_truly_outside(degree):
    check_outside(sinusoids, degree)
    must_fail(check_outside, lambda lab: polynomials(lab, degree), degree)


def orders_of(near, shuffled):
    """Where each degree of each prompt went: (unit, prompt, degree)."""
    same = (near[:, :, None] == shuffled[:, None]).flatten(3).all(-1)
    return same.int().argmax(1).view(16, 2, -1)


def check_whole(orders):
    """Both prompts of a unit have their degrees in one order; units have different orders."""
    assert torch.equal(orders[:, 0], orders[:, 1])
    assert len(orders[:, 0].unique(dim=0)) > 1


def test_units_are_permuted_whole(monkeypatch):
    seen, draws = [], measured_patterns._draws
    monkeypatch.setattr(
        measured_patterns,
        "_draws",
        lambda lab, p, *args, **more: seen.append(p) or draws(lab, p, *args, **more),
    )
    measured_patterns.distances(bench())
    near, _, shuffled = seen[:3]  # (batch, degree, head, key)
    check_whole(orders_of(near, shuffled))
    by_prompt = shuffled.clone()
    by_prompt[1::2] = near[1::2].roll(1, 1)
    must_fail(check_whole, orders_of(near, by_prompt))
    must_fail(check_whole, orders_of(near, near))


def test_blocks_of_a_large_model_are_ablated_on_half_of_the_units(monkeypatch):
    assert len(ablation.sample(bench())) == 32
    monkeypatch.setattr(facts, "LARGE", 10)
    lab = bench()
    assert len(ablation.sample(lab)) == 16
    assert lab.measure(ablation.ablated).sizes["group"] == 8
