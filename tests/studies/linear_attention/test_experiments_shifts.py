"""The experiment on shifted prompts: what each shift does, and what the experiment says.

Exact errors are compared with sampled ones.
"""

import numpy as np
import pytest
import torch
from helpers import must_fail
from lsa_experiments import FIXED, setup, tiny

from icl_interp.experiments.statements import AGREES, DIFFERS, LEFT_OUT, OPEN
from icl_interp.figures import reproductions
from icl_interp.provenance import generator
from icl_interp.results import table_of_rows
from icl_interp.studies.linear_attention.experiments import covariance, shifts


def test_every_shift_is_what_it_says():
    laws, d = shifts.shifts(3, 5), 3
    drawn = {
        name: law.sample(4000, generator(0, "test"), dtype=torch.float64)
        for name, law in laws.items()
    }
    for name in (shifts.SKEWED, shifts.SKEWED_MORE):
        assert sum(laws[name].covariance) == pytest.approx(d)
    assert laws[shifts.SKEWED].covariance[0] / laws[shifts.SKEWED].covariance[2] == pytest.approx(
        9
    )  # 1 / i^2
    assert laws[shifts.SKEWED_MORE].covariance[0] / laws[shifts.SKEWED_MORE].covariance[
        2
    ] == pytest.approx(400)
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
    assert float(
        drawn[shifts.QUERY].xs[:, -1].std() / drawn[shifts.QUERY].xs[:, 0].std()
    ) == pytest.approx(3, rel=0.05)


@pytest.mark.slow
def test_shifts_are_measured_and_drawn_and_the_layer_is_the_theorems():
    here = setup(softmax_fixed_14=tiny())
    results = shifts.run(here)
    found = results["errors"]
    assert tuple(found.indexes["N"]) == (7,)
    assert len(shifts.compare(results)) == len(shifts.shifts(2, 7))
    assert reproductions.draw("linear_attention.shifts", results)["shifts"].data
    assert len(shifts.states(results)) == len(shifts.shifts(2, 7)) - 1
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
        limit = (
            factor
            * covariance.lsa_errors(FIXED, laws[shift], 7)[-1]
            / covariance.label_moment(laws[shift])
        )
        assert low - (high - low) < limit < high + (high - low)  # twice as wide as a 95 % interval

    laws = shifts.shifts(2, 7)
    for shift in (shifts.IN_DISTRIBUTION, shifts.SKEWED, shifts.SKEWED_MORE):
        check(shift)
    must_fail(check, shifts.SKEWED_MORE, 1.5)

    def noise_left(
        factor=1.0,
    ):  # least squares keeps tau^2 d / (n - d - 1) of the examples' noise, none of its own
        _, low, high = found.sel(N=7, shift=shifts.NOISY, predictor=shifts.LEAST_SQUARES).values
        assert low - (high - low) < factor * shifts.NOISE * 2 / (7 - 2 - 1) < high + (high - low)

    noise_left()
    must_fail(noise_left, 3)  # as if the query's own noise were scored too


def test_shifts_say_whether_the_model_stays_close_in_units_of_its_own_error():
    """With an error without a shift of 0.01 a gap of 0.02 is close and one of 0.3 is far.

    The error is over E[y^2], the gap is to least squares, and what lies between is open.
    """

    def row_for(shift, gap, low, high, own=0.01):
        return {
            "N": 7,
            "shift": shift,
            "softmax": gap,
            "least squares": 0.0,
            "LSA limit": 0.3,
            "softmax - least squares": gap,
            "low": low,
            "high": high,
            "softmax / unshifted": gap / own,
        }

    def check(shift, gap, word, own=0.01):
        rows = [row_for(shifts.IN_DISTRIBUTION, own, own, own, own), row_for(shift, *gap, own)]
        (said,) = shifts.states({"at N": table_of_rows(rows)})
        assert said.word == word
        assert "d = 4 at scale small, 20 in the source" in said.text

    close, far, open_ = (0.02, 0.015, 0.025), (0.3, 0.2, 0.4), (0.05, 0.04, 0.06)
    for shift, gap, word in (
        (shifts.NOISY, close, AGREES),
        (shifts.NOISY, far, DIFFERS),
        (shifts.ORTHANT, open_, OPEN),
        (shifts.SKEWED, far, AGREES),
        (shifts.SKEWED, close, DIFFERS),
        (shifts.LARGER, far, ""),
    ):
        check(shift, gap, word)
        must_fail(check, shift, gap, OPEN if word != OPEN else AGREES)
    check(
        shifts.NOISY, (0.03, 0.03, 0.03), DIFFERS, own=0.002
    )  # little of E[y^2], much more than without the shift
    zero = (
        1.0,
        1.0,
        1.0,
    )  # predicting 0 has the same error under every shift, so it seems to stay close
    check(shifts.ORTHANT, zero, LEFT_OUT, own=1.0)
    must_fail(check, shifts.ORTHANT, zero, AGREES, own=1.0)


@pytest.mark.slow
def test_the_interval_in_units_of_the_own_error_allows_for_both():
    here = setup(softmax_fixed_14=tiny())
    results = shifts.run(here)
    row = next(row for row in results["at N"].to_dict("records") if row["shift"] == shifts.ORTHANT)
    found, alone = shifts._excess(row, results["errors"]), shifts._excess(row, None)

    def check(wide, narrow):
        assert wide.low < narrow.low < wide.value < narrow.high < wide.high

    check(found, alone)
    must_fail(check, alone, found)
    assert found.value == pytest.approx(
        row["softmax - least squares"] * row["softmax / unshifted"] / row["softmax"]
    )
