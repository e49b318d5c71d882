"""Weights of positions that are cut or averaged, against theory's losses with such weights."""

import math

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.analyses.lab import Lab
from icl_interp.experiments import calibration
from icl_interp.models.diagonal_unit import DiagonalAttention
from icl_interp.models.tokens import States
from icl_interp.provenance import generator
from icl_interp.studies.autoregression.measurements import position_weights as parts
from icl_interp.studies.autoregression.measurements.unit import Heads, as_real, says
from icl_interp.tasks import AutoregressiveProcess
from icl_interp.tasks.autoregressive import complex_states
from icl_interp.theory import autoregression as theory

N_POINTS = 5
TASK = AutoregressiveProcess(n_dims=2, matrices="conjugate_pairs", n_points=N_POINTS)
N = 8000  # functions of the Monte Carlo check


def test_means_of_diagonals():
    p = torch.randn(6, 6, generator=generator(0, "test"), dtype=torch.float64).tril()
    found = parts.averaged(p, first=1)

    def alike(q):
        for lag in range(6):
            along = q.diagonal(-lag)[1 if lag == 0 else 0 :]
            assert float(along.std(correction=0)) < 1e-12

    alike(found)
    must_fail(alike, p)
    assert float(found[0, 0]) == float(p[0, 0])
    left = 1 - float(found[1:].square().sum() / p[1:].square().sum())  # means are a projection
    assert parts.not_alike(p, 1) == pytest.approx(left)
    assert parts.not_alike(found, 1) < 1e-12
    assert parts.not_alike(0 * p, 1) == 0


def test_shares_and_ratios():
    p = torch.tensor([[9.0, 0.0, 0.0], [3.0, 4.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    last = torch.eye(3, dtype=torch.bool)
    assert parts.least_share_on(p, last, first=1) == pytest.approx(0)
    assert parts.least_share_on(p[:2, :2], last[:2, :2], first=1) == pytest.approx(16 / 25)
    assert parts.mean_ratio(p, first=1) == pytest.approx(3 / 4)
    assert math.isinf(parts.mean_ratio(0 * p, first=1))
    assert parts.named_tokens(TASK, 3).tolist() == [
        [True, False, False],
        [True, True, False],
        [False, True, True],
    ]


def measured(p, measurement):
    """Normalised errors of every function, and those with any P by heads written out."""
    A, B = torch.randn(2, 1, 2, generator=generator(0, "test/heads"), dtype=torch.float64) / 2
    heads = Heads(A + 0j, B + 0j)
    model = DiagonalAttention(*heads, p).to_transformer()
    lab = Lab(model, TASK, States(), n_units=16, n_contexts=1)
    states, after = (complex_states(one) for one in (lab.few.xs, lab.few.ys))

    def written(changed, keeps_means=True):
        out = says(as_real(heads), changed, states)
        if keeps_means:
            out = out + (says(as_real(heads), p, states) - out).mean(0)
        missed = (out - after)[:, 1:].abs().square().sum(-1) / after[:, 1:].abs().square().sum(-1)
        return lab.by_unit(missed, lab.few)

    return lab.measure(measurement), written


def check(result, arm, expected):
    np.testing.assert_allclose(result.sel(arm=arm).values, expected, rtol=1e-9, atol=1e-12)


def test_errors_with_other_weights():
    """What is cut goes to its mean over prompts, which is not 0 where a token lies halfway back."""
    p = torch.randn(N_POINTS, N_POINTS, generator=generator(1, "test"), dtype=torch.float64).tril()
    tokens = parts.named_tokens(TASK, N_POINTS)
    cut, written = measured(p, parts.positions_cut)
    check(cut, parts.INTACT, written(p))
    for arm, left in ((parts.NO_OTHERS, p * tokens), (parts.NO_RIGHT, p * ~tokens)):
        check(cut, arm, written(left))
        must_fail(check, cut, arm, written(p))
        must_fail(check, cut, arm, written(left, keeps_means=False))  # as if cut weights went to 0
    averaged, written = measured(p, parts.positions_averaged)
    check(averaged, parts.AVERAGED, written(parts.averaged(p, 1)))
    must_fail(check, averaged, parts.AVERAGED, written(p))


@pytest.mark.slow
def test_errors_of_the_unit_are_theorys():
    """Monte Carlo, 4 standard errors: the exact loss of any P, of the model as it is."""
    p = torch.randn(N_POINTS, N_POINTS, generator=generator(1, "test"), dtype=torch.float64).tril()
    A, B = torch.randn(2, 1, 2, generator=generator(0, "test/heads"), dtype=torch.float64) / 2
    model = DiagonalAttention(A + 0j, B + 0j, p).to_transformer()
    result = Lab(model, TASK, States(), n_units=N // 2, n_contexts=1).measure(parts.positions_cut)
    each = result.sel(arm=parts.INTACT).values.mean(1)

    def agrees(changed):
        exact = (
            float(theory.row_losses(theory.head_product(A, B), changed[1:], paired=True).mean()) / 2
        )
        assert abs(each.mean() - exact) < 4 * each.std() / math.sqrt(len(each))

    agrees(p)
    must_fail(agrees, parts.averaged(p, 1))


def check_cells(name, seed=5):
    for row in calibration.calibrate(1, seed, only=[name]).to_dict("records"):
        assert row["as expected"] == row["draws"], row


@pytest.mark.slow
def test_instruments_that_break_their_cells(monkeypatch):
    names = ("diagonal unit with half as many heads", "diagonal unit with ragged positions")
    for name in names:
        check_cells(name)
    monkeypatch.setattr(parts, "named_tokens", lambda task, n: torch.eye(n, dtype=torch.bool))
    must_fail(check_cells, names[0])
    monkeypatch.undo()
    monkeypatch.setattr(parts, "averaged", lambda p, first: p)
    must_fail(check_cells, names[1])
