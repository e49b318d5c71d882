"""Curves under distribution shift: the exact risk beside sampled errors, statements, figure."""

import json
from importlib import resources

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.figures import reproductions
from icl_interp.models.single_layers import LinearSelfAttention
from icl_interp.provenance import generator
from icl_interp.results import from_dict
from icl_interp.studies.linear_attention.experiments import shift_curves
from icl_interp.studies.linear_attention.experiments.shifts import ORTHANT, shifts
from icl_interp.theory import linear_attention as theory

N_PROMPTS = 20_000


@pytest.mark.parametrize("name", [name for name in shifts(2, 4) if name != ORTHANT])
def test_the_exact_risk_of_each_shift_is_that_of_drawn_prompts(name):
    task = shifts(3, 6)[name]
    product = theory.landscape(torch.eye(3, dtype=torch.float64), 6).product
    prompts = task.sample(N_PROMPTS, generator(0, "test"), dtype=torch.float64)
    truth = task.targets(prompts.parameters, prompts.xs[:, -1:])[:, 0, 0]
    predicted = LinearSelfAttention.from_product(product).predict(prompts)[:, -1, 0]

    def check(risk):
        # The mean of error - risk * y^2 is 0 where the risk is the ratio of both means.
        rest = (predicted - truth).square() - risk(task, product, 6) * truth.square()
        assert abs(rest.mean()) < 4 * rest.std() / N_PROMPTS**0.5

    check(shift_curves.exact_risk)
    must_fail(check, lambda *settings: 1.3 * shift_curves.exact_risk(*settings))


def test_examples_of_one_orthant_have_no_exact_risk():
    task = shifts(3, 6)[ORTHANT]
    assert np.isnan(shift_curves.exact_risk(task, torch.eye(3, dtype=torch.float64), 6))


def kept():
    """The results that the package keeps."""
    folder = resources.files("icl_interp.studies.linear_attention") / "results"
    record = json.loads((folder / "shift_curves.json").read_text())
    return {name: from_dict(data) for name, data in record["results"].items()}


def test_what_is_kept_has_the_size_of_the_source_and_agrees_with_theory():
    results = kept()
    assert results["curves"].indexes["M"].tolist() == list(shift_curves.lengths(20))
    statements = shift_curves.states(results)
    assert len(statements) == len(shifts(2, 4))

    def check(table):
        for row in table.dropna(subset=["theory"]).to_dict("records"):
            standard_error = (row["high"] - row["low"]) / (2 * 1.96)
            assert abs(row["LSA limit"] - row["theory"]) < 4 * standard_error

    check(results["by length"])
    must_fail(check, results["by length"].assign(theory=results["by length"]["theory"] * 1.2))


def test_every_shift_has_a_panel():
    drawn = reproductions.draw("linear_attention.shift_curves", kept())
    assert "shift_curves" in drawn
