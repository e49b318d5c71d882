"""The experiment on shifted prompts: what each shift does, exact errors against sampled ones, and what it says."""

import numpy as np
import pytest
import torch
from helpers import must_fail
from lsa_experiments import FIXED, bench, tiny

from icl_interp.experiments.errors import AGREES, DIFFERS, OPEN
from icl_interp.figures import reproductions
from icl_interp.provenance import generator
from icl_interp.results import table_of_rows
from icl_interp.studies.linear_attention.experiments import covariance, shifts


def test_every_shift_is_what_it_says():
    laws, d = shifts.shifts(3, 5), 3
    drawn = {name: law.sample(4000, generator(0, "test"), dtype=torch.float64) for name, law in laws.items()}
    for name in (shifts.SKEWED, shifts.SKEWED_MORE):
        assert sum(laws[name].covariance) == pytest.approx(d)
    assert laws[shifts.SKEWED].covariance[0] / laws[shifts.SKEWED].covariance[2] == pytest.approx(9)  # 1 / i^2
    assert laws[shifts.SKEWED_MORE].covariance[0] / laws[shifts.SKEWED_MORE].covariance[2] == pytest.approx(400)
    noisy = drawn[shifts.NOISY]
    noise = noisy.ys - laws[shifts.NOISY].targets(noisy.parameters, noisy.xs)
    assert float(noise.var() / d) == pytest.approx(1 / 20, rel=0.05)

    def one_orthant(prompts):
        signs = prompts.xs[:, :-1].sign()
        assert torch.equal(signs, signs[:, :1].expand_as(signs))
        assert (prompts.xs[:, -1].sign() != signs[:, 0]).any()  # the query is anywhere

    one_orthant(drawn[shifts.ORTHANT])
    must_fail(one_orthant, drawn[shifts.IN_DISTRIBUTION])
    assert float(drawn[shifts.LARGER].parameters.std()) == pytest.approx(3, rel=0.05)
    assert float(drawn[shifts.QUERY].xs[:, -1].std() / drawn[shifts.QUERY].xs[:, 0].std()) == pytest.approx(3, rel=0.05)


def test_shifts_are_measured_and_drawn_and_the_layer_is_the_theorems():
    here = bench(softmax_fixed_14=tiny())
    results = shifts.run(here)
    found = results["errors"]
    assert tuple(found.indexes["N"]) == (7,)
    assert len(shifts.compare(results)) == len(shifts.shifts(2, 7))
    assert reproductions.draw("linear_attention.shifts", results)["shifts"].data
    assert len(shifts.says(results)) == len(shifts.shifts(2, 7)) - 1
    intact = results["at N"].to_dict("records")[0][shifts.MODEL]
    for row in results["at N"].to_dict("records"):
        gap = row["softmax - least squares"]
        assert gap == pytest.approx(row[shifts.MODEL] - row[shifts.LEAST_SQUARES])
        assert row["low"] < gap < row["high"]
        assert row["softmax / unshifted"] == pytest.approx(row[shifts.MODEL] / intact)
        shown = found.sel(N=7, shift=row["shift"], statistic="mean").values
        assert shown.tolist() == pytest.approx([row[name] for name in found.indexes["predictor"]])
    exact = found.sel(N=7, predictor=shifts.LEAST_SQUARES, statistic="mean").values
    noisy = found.indexes["shift"].get_loc(shifts.NOISY)
    assert np.delete(exact, noisy).max() < 1e-9 < exact[noisy]

    def check(shift, factor=1.0):  # Theorem 4.2, exactly, against what was sampled
        _, low, high = found.sel(N=7, shift=shift, predictor=shifts.LSA).values
        limit = factor * covariance.lsa_errors(FIXED, laws[shift], 7)[-1] / covariance.label_moment(laws[shift])
        assert low - (high - low) < limit < high + (high - low)  # twice as wide as a 95 % interval

    laws = shifts.shifts(2, 7)
    for shift in (shifts.IN_DISTRIBUTION, shifts.SKEWED, shifts.SKEWED_MORE):
        check(shift)
    must_fail(check, shifts.SKEWED_MORE, 1.5)

    def noise_left(factor=1.0):  # least squares keeps tau^2 d / (n - d - 1) of the examples' noise, none of its own
        _, low, high = found.sel(N=7, shift=shifts.NOISY, predictor=shifts.LEAST_SQUARES).values
        assert low - (high - low) < factor * shifts.NOISE * 2 / (7 - 2 - 1) < high + (high - low)

    noise_left()
    must_fail(noise_left, 3)  # as if the query's own noise were scored too


def test_shifts_say_whether_the_model_stays_close():
    def row_for(shift, gap, low, high):
        return {
            "N": 7,
            "shift": shift,
            "softmax": gap,
            "least squares": 0.0,
            "LSA limit": 0.3,
            "softmax - least squares": gap,
            "low": low,
            "high": high,
            "softmax / unshifted": 2.0,
        }

    close, far, open_ = (0.01, 0.0, 0.02), (0.4, 0.3, 0.5), (0.05, 0.04, 0.06)
    for shift, gap, word in (
        (shifts.NOISY, close, AGREES),
        (shifts.NOISY, far, DIFFERS),
        (shifts.ORTHANT, open_, OPEN),
        (shifts.SKEWED, far, AGREES),
        (shifts.SKEWED, close, DIFFERS),
        (shifts.LARGER, far, f"{shifts.LARGER}: far"),
    ):
        said = shifts.says({"at N": table_of_rows([row_for(shifts.IN_DISTRIBUTION, *close), row_for(shift, *gap)])})
        assert len(said) == 1
        assert said[0].startswith(word), said
