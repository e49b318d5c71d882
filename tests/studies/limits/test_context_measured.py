"""What is measured of the context far out: by brute force, and on data whose answer is exact."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from small_models import TASK, make, small_lab
from stored_curves import used

from icl_interp import tasks
from icl_interp.analyses.lab import Lab
from icl_interp.experiments.calibration import judge
from icl_interp.models.tokens import Interleaved
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.limits.claims.context import told_by
from icl_interp.studies.limits.constructions import learned
from icl_interp.studies.limits.measurements import context, far
from icl_interp.studies.limits.measurements.context import held_out_errors, products

ERASED = "limits.context_erased"
ABOUT_ONE = replace(TASK, coefficients=tasks.Normal(1, 1))  # E f(x) = 1 + x
N_UNITS, N_PROMPTS = 48, 5  # eight units for each of the six features
PARAMETERS = torch.randn(N_UNITS, 2, generator=generator(0, "test/info"), dtype=torch.float64)
UNIT = torch.arange(N_UNITS).repeat_interleave(N_PROMPTS)
NOISE = torch.randn(len(UNIT), generator=generator(1, "test/info"), dtype=torch.float64)


# ---- use -----------------------------------------------------------------------------------------


def check_use(measure):
    lab = Lab(make(), ABOUT_ONE, Interleaved(), n_units=4, n_contexts=3)
    xs = np.array([*lab.inner, 1e4, -1e4, 1e5, -1e5])
    f, truth = lab.sweep(xs)[..., 0].numpy(), lab.truth(xs)[..., 0].numpy()
    # The same by hand, on six prompts of a unit.
    own = f.reshape(4, 6, -1).mean(1)
    line = np.repeat([np.delete(own, i, 0).mean(0) for i in range(4)], 6, 0)
    other = np.concatenate([f[18:], f[:18]])
    found = measure(lab)
    expected = {
        "squared error": (f - truth) ** 2,
        "law's mean": (1 + xs - truth) ** 2,
        "context-free": (line - truth) ** 2,
        "swapped": (other - truth) ** 2,
        "change": (other - f) ** 2,
        "size": truth**2,
        "f size": f**2,
        "product": (f - f.mean(0)) * (truth - truth.mean(0)),
        "f squared": (f - f.mean(0)) ** 2,
        "truth squared": (truth - truth.mean(0)) ** 2,
    }
    for name, values in expected.items():
        got = found.sel(statistic=name).values
        np.testing.assert_allclose(got, values.reshape(4, 6, -1).mean(1), rtol=1e-8, err_msg=name)
    assert np.abs(found.sel(statistic=["f", "truth"]).values.mean(1)).max() < 1e-9
    assert [list(at) for at in context.far_out(found, lab.x_unit)] == [[2, 3], [4, 5]]


def test_use_is_what_forward_passes_give(monkeypatch):
    check_use(context.use)
    # One function's contexts for the other's of its pair: a mistake, since a unit is left out and
    # swapped whole.
    swap_within = lambda lab: context.use(lab).copy(data=context.use(lab).values[:, [1, 0, 2, 3]])  # noqa: E731
    must_fail(check_use, swap_within)
    monkeypatch.setattr(
        context, "without_own", lambda unit: unit.mean(0, keepdims=True).repeat(len(unit), 0)
    )
    must_fail(check_use, context.use)


def test_made_up_uses_are_like_measured_ones():
    """What other tests make up (`stored_curves.used`) has the statistics that are measured, computed alike."""
    lab = Lab(make(), ABOUT_ONE, Interleaved(), n_units=4, n_contexts=1)
    found = context.use(lab)
    xs = found["x"].values.copy()
    again = used(lab.sweep(xs)[..., 0].numpy(), lab.truth(xs)[..., 0].numpy(), 1 + xs, xs)
    assert list(again.indexes["statistic"]) == list(found.indexes["statistic"])
    # Means of centred numbers are rounding only.
    np.testing.assert_allclose(again.values, found.values, rtol=1e-7, atol=1e-7)


def test_beyond_goes_on_where_the_far_grid_ends():
    lab = small_lab("no norm")
    ends, beyond = far.ends(lab), context.beyond(lab)
    assert beyond.shape == (2, 4, 4, 2)
    first = ends.values[:, -1][
        ..., [0, lab.n_contexts]
    ]  # the first context of each function of a pair
    np.testing.assert_allclose(beyond.values[:, 0], first, rtol=1e-9)
    xs = beyond["x"].values
    np.testing.assert_allclose(
        beyond.values[0, 3], lab.sweep([xs[3]], prompts=lab.few)[:, 0, 0].view(4, 2), rtol=1e-9
    )


# ---- information ---------------------------------------------------------------------------------


def r2(target: torch.Tensor, parameters: torch.Tensor | None = None) -> float:
    features = products((PARAMETERS if parameters is None else parameters)[UNIT], N_UNITS)
    residual, total = held_out_errors(features, target, UNIT)
    means = [v.view(N_UNITS, -1).mean(1).numpy() for v in (residual, total)]
    axes = {
        "direction": ("+", "-"),
        "inputs": ("coefficients",),
        "statistic": ("residual", "total"),
        "unit": tuple(range(N_UNITS)),
    }
    return told_by(make_array(np.stack([means, means])[:, None], axes), "coefficients").value


def test_cross_validated_r2():
    a, b = PARAMETERS[UNIT].T
    assert r2(0.3 * a - 2 * b + 7) == pytest.approx(1, abs=1e-10)
    assert r2(a * b + 0.1 * a**2) == pytest.approx(1, abs=1e-10)
    assert r2(1e-4 * a + 5) == pytest.approx(1, abs=1e-6)  # attenuated, not erased
    assert r2(a + NOISE) == pytest.approx(0.5, abs=0.15)
    assert r2(NOISE) < 0.05
    permuted = PARAMETERS[torch.randperm(N_UNITS, generator=generator(2, "test/info"))]
    assert r2(a - b, permuted) < 0.1


def test_a_constant_holds_no_information():
    """Nor does what rounding leaves of one."""
    for target in (0 * NOISE, 0 * NOISE + 0.1, 0.1 + 1e-16 * NOISE, 1e4 / 3 + 1e-12 * NOISE):
        assert r2(target) == 0


def test_noise_of_the_unit_is_no_information_about_its_coefficients():
    """Held-out units: a number drawn once per unit cannot be predicted, however many prompts repeat it."""

    def check(hold_out):
        own = torch.randn(N_UNITS, generator=generator(3, "test/info"), dtype=torch.float64)[UNIT]
        many = torch.randn(N_UNITS, 24, generator=generator(4, "test/info"), dtype=torch.float64)
        residual, total = held_out_errors(many[UNIT], own, hold_out)
        assert 1 - float(residual.mean() / total.mean()) < 0.1

    check(UNIT)
    must_fail(check, torch.arange(len(UNIT)))  # prompts of one unit in training and in test


def test_products_are_all_up_to_the_second_degree_that_units_allow():
    a, b = PARAMETERS.T
    assert torch.equal(
        products(PARAMETERS, N_UNITS - 1), torch.stack([torch.ones_like(a), a, b], 1)
    )
    found = products(PARAMETERS, N_UNITS)
    expected = [torch.ones_like(a), a, b, a * a, a * b, b * b]
    assert all(any(torch.equal(column, e) for column in found.T) for e in expected)
    assert found.shape[1] == 6


def test_coefficients_are_permuted_by_whole_units():
    """Every unit has the coefficients of another one, those of both functions of a pair."""
    lab = Lab(make(), TASK, Interleaved(), n_units=24, n_contexts=2)
    given: list[torch.Tensor] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            context, "products", lambda values, n: given.append(values) or products(values, n)
        )
        context.information(lab)
    own, permuted = (v.view(24, 4, 2) for v in given[:2])

    def check(permuted):
        places = [
            next(i for i, unit in enumerate(own) if torch.equal(unit, other)) for other in permuted
        ]
        assert sorted(places) == list(range(24))
        assert places != list(range(24))

    check(permuted)
    with pytest.raises(StopIteration):
        check(
            permuted.flatten(0, 1)[torch.randperm(96, generator=generator(0, "test/prompts"))].view(
                24, 4, 2
            )
        )


def test_information_measures_far_f():
    lab = small_lab()
    result = context.information(lab)
    assert (result.sel(statistic="total").values > 0).all()
    assert np.isfinite(result.values).all()
    fixed = tasks.Continuous(function="exp", inputs=tasks.Uniform(-1, 1), n_points=7)
    constant = context.information(Lab(make("pre"), fixed, Interleaved(), n_units=9, n_contexts=3))
    assert told_by(constant, "coefficients").value < 0.1


# ---- on models that know their task --------------------------------------------------------------


@pytest.mark.slow
def test_what_is_attenuated_may_still_tell_the_function():
    """Behind a norm f falls like 1 / |x| and still tells the constant.

    Under a hardmax on the query nothing is left.
    """
    kept = judge(learned.averaged_before_a_norm(generator(1, "test/learned")), (ERASED,))[0]
    gone = judge(
        learned.averaged_beside_itself(generator(1, "test/learned"), 0.03, 0.1), (ERASED,)
    )[0]
    assert kept.verdict == gone.verdict == "supported"
    assert "It still tells the function" in kept.reason
    assert "still tells" not in gone.reason
    numbers = {row["statistic"]: row["value"] for row in kept.details}
    assert numbers["information R2"] > 0.9 > 0.1 > numbers["R2 with permuted coefficients"]
    assert {row["statistic"]: row["value"] for row in gone.details}["information R2"] == 0
    assert kept.causal["change of f in distribution"] > 20 * kept.causal["change of f far out"]
