"""Every claim of `linear_attention` on models of known truth, draws of each.

Instruments that are wrong must break cells.
"""

import pytest
from helpers import must_fail

from icl_interp.experiments import calibration
from icl_interp.models.single_layers import LayerForm
from icl_interp.studies.linear_attention.measurements import weights as lsa_weights


def check_cells(name: str, n_draws: int = 1, seed: int = 0):
    for row in calibration.calibrate(n_draws, seed, only=[name]).to_dict("records"):
        assert row["as expected"] == row["draws"], row


@pytest.mark.slow
def test_a_product_that_is_read_wrong_breaks_its_cell(monkeypatch):
    own = LayerForm.product.fget
    assert own is not None
    monkeypatch.setattr(LayerForm, "product", property(lambda form: 1.3 * own(form)))
    must_fail(check_cells, "LSA layer at the optimum")


@pytest.mark.slow
def test_a_balance_that_is_not_measured_breaks_its_cell(monkeypatch):
    unit_of = lsa_weights.unit_of

    def balanced(form):
        unit = unit_of(form)
        assert unit is not None
        return unit.balanced

    monkeypatch.setattr(lsa_weights, "unit_of", balanced)
    must_fail(check_cells, "LSA layer at the optimum, scaled by -3")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("factor", "name"),
    [(1e5, "LSA layers along gradient flow"), (1e-20, "LSA layers into the trap")],
)
def test_a_wrong_bound_breaks_its_cell(factor, name, monkeypatch):
    """Where it is too large, the flow does not meet it.

    Where it is too small, the way into the trap does.
    """
    rate = lsa_weights.pl_rate
    monkeypatch.setattr(lsa_weights, "pl_rate", lambda *args: factor * rate(*args))
    must_fail(check_cells, name)
