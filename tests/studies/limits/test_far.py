"""Certificates, frozen norms and inserted ones, against whole prompts."""

import math

import numpy as np
import pytest
import torch
from helpers import must_fail
from small_models import TASK, make, small_lab

from icl_interp.analyses.lab import Lab
from icl_interp.models.tokens import Interleaved
from icl_interp.prompts import as_numbers
from icl_interp.studies.limits.claims.layernorm_cause import growth_exponents
from icl_interp.studies.limits.measurements import certificates, far
from icl_interp.tasks import Polynomial, Uniform


def test_the_predicted_onset_is_where_the_read_in_outweighs_the_rest():
    lab = small_lab()
    onset = certificates.certificate(lab)["onset"][0]
    rest = []
    for row in range(len(lab.prompts)):
        prompts = lab.prompts[row : row + 1]
        _, cache = lab.model.run_with_cache(lab.encoding.encode(prompts))
        offset = (
            cache["blocks.1.hook_resid_post"][0, -1] - prompts.xs[0, -1] * lab.model.embed.W_E[0]
        )
        rest.append(float((offset - offset.mean()).square().sum()))
    square = np.quantile(rest, 0.95) + 12 * lab.model.cfg.eps
    w = lab.model.embed.W_E[0] - lab.model.embed.W_E[0].mean()
    assert onset == pytest.approx(20 * math.sqrt(square) / float(w.norm()), rel=1e-9)


def test_a_large_eps_delays_the_onset():
    assert (
        certificates.certificate(small_lab(eps=1e10))["onset"][0]
        > 1e4 * certificates.certificate(small_lab())["onset"][0]
    )


def test_the_certificate_says_only_what_applies():
    for name, missing in (
        ("post", {"plateau +", "plateau -"}),
        ("no norm", {"c", "r", "onset"}),
        ("rms", {"c", "r", "onset"}),
    ):
        row = certificates.certificate(
            Lab(make(name), TASK, Interleaved(), n_units=2, n_contexts=2)
        ).to_dict("records")[0]
        assert {key for key, value in row.items() if math.isnan(value)} >= missing
    row = certificates.certificate(small_lab()).to_dict("records")[0]
    assert row["c"] == pytest.approx((row["plateau +"] + row["plateau -"]) / 2)
    assert abs(row["plateau +"] - row["c"]) < row["r"]


def test_freezing_arms_are_what_they_say():
    """Each arm against whole prompts; the sham leaves the query's own scales alone."""
    lab = small_lab()
    arms = far.norm_arms(lab)
    at_query = lab.frozen.at_query()
    for arm, prompts, edits in (
        ("intact", lab.prompts, {}),
        ("frozen", lab.prompts, {"query": [at_query]}),
        ("sham", lab.few, {"context": [lab.frozen]}),
        ("ln_final", lab.few, {"query": [at_query.only("ln_final")]}),
    ):
        f = as_numbers(lab.sweep(far.GROWTH, prompts=prompts, **edits))
        assert np.allclose(
            arms.sel(arm=arm, statistic="mean square").values, lab.by_unit(f.square()), rtol=1e-9
        )
        error = (f - as_numbers(lab.truth(far.GROWTH, prompts))).square()
        assert np.allclose(
            arms.sel(arm=arm, statistic="squared error").values, lab.by_unit(error), rtol=1e-9
        )
        for x in (-1e3, 1e5):
            change = as_numbers(lab.sweep([x, 10 * x], prompts=prompts, **edits)).diff(dim=1)[:, 0]
            found = arms.sel(arm=arm, statistic="squared increment", x=x).values
            assert np.allclose(found, lab.by_unit(change.square()), rtol=1e-6)
    truth = lab.by_unit(as_numbers(lab.truth(far.GROWTH)).square())
    assert np.allclose(
        arms.sel(arm="law mean", statistic="squared error").values, truth
    )  # the law's mean is 0
    assert set(arms.indexes["arm"]) == {"intact", "frozen", "sham", "law mean", *lab.model.norms}


def check_against_the_mean(lab):
    """Errors of the mean of the law are squared deviations from it."""
    deviation = as_numbers(lab.truth(far.GROWTH)) - torch.from_numpy(1 + 2 * far.GROWTH)
    guess = far.norm_arms(lab).sel(arm="law mean", statistic="squared error").values
    assert np.allclose(guess, lab.by_unit(deviation.square()))
    query = lab.prompts.xs[:, -1, 0]
    near = as_numbers(lab.prompts.ys)[:, -1] - (1 + 2 * query)
    assert np.allclose(far.cost(lab).sel(arm="law mean").values, lab.by_unit(near.square()))


def test_errors_are_compared_with_the_mean_of_the_law():
    """f = a + b x with a from 0 to 2 and b from 1 to 3: the best guess is 1 + 2 x, and not 0."""

    class Shifted(Polynomial):
        """Coefficients about (1, 2)."""

        def sample_parameters(self, n_functions, generator, dtype):
            return super().sample_parameters(n_functions, generator, dtype) + torch.tensor(
                [1.0, 2.0], dtype=dtype
            )

        def mean_parameters(self, parameters):
            return torch.tensor([1.0, 2.0], dtype=parameters.dtype).expand_as(parameters)

    task = Shifted(degrees=(1,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=7)
    check_against_the_mean(Lab(make(), task, Interleaved(), n_units=4, n_contexts=2))
    must_fail(check_against_the_mean, small_lab())


def test_an_inserted_norm_is_enough_for_a_plateau():
    curve = far.sufficiency(small_lab())
    grow = {
        arm: growth_exponents(curve.sel(arm=arm).values.mean(0), curve["x"].values)
        for arm in curve.indexes["arm"]
    }
    assert grow["intact"].min() > 0.9
    assert grow["norm inserted"].max() < 0.1
