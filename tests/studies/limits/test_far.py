"""Certificates, frozen norms and inserted ones, against whole prompts."""

import math

import numpy as np
import pytest
from small_models import TASK, make, small_lab

from icl_interp.analyses.lab import Lab
from icl_interp.models.tokens import Interleaved
from icl_interp.prompts import as_numbers
from icl_interp.studies.limits.claims.layernorm import exponents
from icl_interp.studies.limits.measurements import far


def test_the_predicted_onset_is_where_the_read_in_outweighs_the_rest():
    lab = small_lab()
    onset = far.certificate(lab)["onset"][0]
    rest = []
    for row in range(len(lab.prompts)):
        prompts = lab.prompts[row : row + 1]
        _, cache = lab.model.run_with_cache(lab.encoding.encode(prompts))
        offset = cache["blocks.1.hook_resid_post"][0, -1] - prompts.xs[0, -1] * lab.model.embed.W_E[0]
        rest.append(float((offset - offset.mean()).square().sum()))
    square = np.quantile(rest, 0.95) + 12 * lab.model.cfg.eps
    w = lab.model.embed.W_E[0] - lab.model.embed.W_E[0].mean()
    assert onset == pytest.approx(20 * math.sqrt(square) / float(w.norm()), rel=1e-9)


def test_a_large_eps_delays_the_onset():
    assert far.certificate(small_lab(eps=1e10))["onset"][0] > 1e4 * far.certificate(small_lab())["onset"][0]


def test_the_certificate_says_only_what_applies():
    for name, missing in (("post", {"plateau +", "plateau -", "onset"}), ("no norm", {"c", "r"}), ("rms", {"c", "r"})):
        row = far.certificate(Lab(make(name), TASK, Interleaved(), n_functions=2, n_contexts=2)).to_dict("records")[0]
        assert {key for key, value in row.items() if math.isnan(value)} >= missing
    row = far.certificate(small_lab()).to_dict("records")[0]
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
        ("sham", lab.small_sample, {"context": [lab.frozen]}),
        ("ln_final", lab.small_sample, {"query": [at_query.only("ln_final")]}),
    ):
        f = as_numbers(lab.sweep(far.GROWTH, prompts=prompts, **edits))
        assert np.allclose(arms.sel(arm=arm, statistic="mean square").values, lab.by_function(f.square()), rtol=1e-9)
        error = (f - as_numbers(lab.truth(far.GROWTH, prompts))).square()
        assert np.allclose(arms.sel(arm=arm, statistic="squared error").values, lab.by_function(error), rtol=1e-9)
    truth = lab.by_function(as_numbers(lab.truth(far.GROWTH)).square())
    assert np.allclose(arms.sel(arm="zero predictor", statistic="squared error").values, truth)
    assert set(arms.indexes["arm"]) == {"intact", "frozen", "sham", "zero predictor", *lab.model.norms}


def test_an_inserted_norm_is_enough_for_a_plateau():
    curve = far.sufficiency(small_lab())
    grow = {arm: float(exponents(curve.sel(arm=arm).values.mean(0), curve["x"].values)) for arm in curve.indexes["arm"]}
    assert grow["intact"] > 0.9
    assert abs(grow["norm inserted"]) < 0.1
