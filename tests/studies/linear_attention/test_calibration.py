"""Every claim of `linear_attention` on layers of known truth, draws of each, and instruments that must break cells."""

import pytest
from helpers import must_fail

from icl_interp.experiments import calibration
from icl_interp.models.units import LayerForm
from icl_interp.studies.linear_attention.constructions import LAYERS, N
from icl_interp.studies.linear_attention.measurements import weights as lsa_weights

NAMES = [layer.name for layer in LAYERS]


def check_cells(name: str, n_draws: int = 1, seed: int = 0):
    for row in calibration.calibrate(n_draws, seed, only=[name]).to_dict("records"):
        assert row["as expected"] == row["draws"], row


@pytest.mark.parametrize("name", NAMES)
def test_layers_of_known_truth(name):
    check_cells(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many_draws_of_them(name):
    check_cells(name, n_draws=10, seed=100)


def test_every_scored_claim_is_one_of_the_study():
    for layer in LAYERS:
        assert layer.why
        model, task = layer.draw(0)
        assert task.n_points == N + 1
        assert model.cfg.n_ctx >= 4 * N
        assert all(claim.startswith("linear_attention.") for claim in layer.expected)
    scored = {claim: {layer.expected.get(claim) for layer in LAYERS} for layer in LAYERS for claim in layer.expected}
    for claim in ("converged", "algorithm"):  # each has models on either side
        assert {"supported", "contradicted"} <= scored[f"linear_attention.{claim}"]


def test_a_product_that_is_read_wrong_breaks_its_cell(monkeypatch):
    own = LayerForm.product.fget
    assert own is not None
    monkeypatch.setattr(LayerForm, "product", property(lambda form: 1.3 * own(form)))
    must_fail(check_cells, "LSA layer at the optimum")


def test_a_balance_that_is_not_measured_breaks_its_cell(monkeypatch):
    unit_of = lsa_weights.unit_of

    def balanced(form):
        unit = unit_of(form)
        assert unit is not None
        return unit.balanced

    monkeypatch.setattr(lsa_weights, "unit_of", balanced)
    must_fail(check_cells, "LSA layer at the optimum, scaled by -3")
