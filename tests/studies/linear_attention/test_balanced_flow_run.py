"""The bundled run of gradient flow: it follows the exact flow, and `balanced` is judged on it."""

import pytest
import torch
from helpers import must_fail

import icl_interp
from icl_interp.models.single_layers import read_layer
from icl_interp.studies.linear_attention.measurements.weights import unit_of
from icl_interp.theory import linear_attention as theory

RATE = 0.02  # of the run, see tools/gradient_flow.py


def along(checkpoint):
    """Steps, and the value and query-key weights of the layer there."""
    models = checkpoint.snapshots()
    return list(models), [unit_of(read_layer(model)) for model in models.values()]


def test_the_run_follows_the_exact_flow_and_stays_balanced():
    checkpoint = icl_interp.load("lsa_flow")
    task = checkpoint.task
    steps, units = along(checkpoint)
    where = theory.landscape(task.covariance_matrix, task.n_points - 1)

    def check(rate):
        times = rate * torch.tensor(steps, dtype=torch.float64)
        path = theory.gradient_flow(where, units[0].f[:-1], units[0].v[-1], times)
        for unit, matrix, scalar in zip(units, path.matrices, path.scalars, strict=True):
            # The error of descent by steps is of the order of a step.
            assert (unit.f[:-1] - matrix).abs().max() < 0.03
            assert abs(unit.v[-1] - scalar) < 0.03
            assert unit.f[-1].abs().max() == 0
            assert unit.v[:-1].abs().max() == 0

    check(RATE)
    must_fail(check, 2 * RATE)
    for unit in units:
        assert float(unit.v.norm() ** 2 / unit.f.norm() ** 2) == pytest.approx(1, abs=0.01)
    assert len(steps) == 17
    assert float(units[-1].v.norm() ** 2) > 1.5 * float(units[0].v.norm() ** 2)


@pytest.mark.slow
def test_the_claim_is_judged_and_holds():
    report = icl_interp.analyze("lsa_flow", claims=("linear_attention.balanced",), progress=False)
    finding = report["linear_attention.balanced"]
    assert finding.verdict == "supported"
    assert 0 < finding.estimate.value < 0.01
