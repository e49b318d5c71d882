"""|M| along training: what is read off snapshots, and what is said of its growth."""

import numpy as np
import pytest
from helpers import must_fail

from icl_interp.experiments import obtain
from icl_interp.experiments.presets import PRESETS
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import AGREES, DIFFERS, OPEN
from icl_interp.figures.render import rendered
from icl_interp.figures.style import safe
from icl_interp.results import make_curve, table_of_rows
from icl_interp.studies.lipschitz.experiments import models, norm_growth
from icl_interp.studies.lipschitz.figures import norm_growth as figures


def row(lipschitz, mean, kind="ReLU", inputs="isotropic"):
    numbers = {
        "|M| early": 1.0,
        "mean |M|": mean,
        "|M| at the end": mean,
        "w at the end": mean,
        "best w": mean,
    }
    key = {"class": kind, "inputs": inputs, "L": lipschitz}
    return {**key, **numbers, "best |M|": mean, "early step": 60, "last step": 600}


@pytest.mark.parametrize(
    ("means", "word"),
    [((1.0, 2.0, 4.0), AGREES), ((1.0, 4.0, 3.0), DIFFERS), ((1.0, 4.0, 4.2), OPEN)],
)
def test_every_larger_l_must_grow_faster(means, word):
    rows = [row(size, mean) for size, mean in zip((0.1, 1.0, 10.0), means, strict=True)]
    for order in (rows, rows[::-1]):
        decided, beside = norm_growth.states({"ends": table_of_rows(order)})
        assert decided.word == word
        assert beside.word == ""


def test_settings_are_judged_apart():
    rows = [row(1.0, 1.0), row(10.0, 2.0), row(1.0, 1.0, "cosine"), row(10.0, 0.5, "cosine")]
    said = norm_growth.states({"ends": table_of_rows(rows)})
    assert [s.word for s in said if s.criterion] == [AGREES, DIFFERS]


def test_without_models_nothing_is_said():
    assert norm_growth.run(Setup({}, PRESETS["smoke"])) == {}
    assert norm_growth.NORM_GROWTH_EXPERIMENT.says({}) == (
        "No model is here, so nothing is measured.",
    )
    assert norm_growth.compare({}) is None
    assert figures.norm_growth({}, None) == {}


def test_the_figure_shows_what_is_stored():
    axes = {"class": ("ReLU", "cosine"), "inputs": ("isotropic", "not isotropic"), "L": (0.3, 3.0)}
    axes |= {"quantity": norm_growth.QUANTITIES, "step": (0, 10, 20)}
    values = np.random.default_rng(0).uniform(0.5, 4.0, (2, 2, 2, 2, 3))
    values[1, 1, 1] = np.nan
    rows = [row(0.3, 0.001), row(3.0, 2.0)]
    results = {"norms": make_curve(values, axes), "ends": table_of_rows(rows)}
    figure = safe(rendered(figures.norm_growth(results, None)["norm_growth"]))
    lines = [t for t in figure.data if t.mode == "lines"]
    assert len(lines) == 7
    assert [t.name for t in lines if t.showlegend] == ["L = 0.3", "L = 3"]

    def check(stored):
        shown = [t.y for t in lines]
        for value in stored[..., 0, :].reshape(-1, 3):
            assert np.isnan(value).any() or any(np.allclose(value, y) for y in shown)

    check(values)
    must_fail(check, 1.1 * values)
    marks = [t for t in figure.data if t.mode == "markers"]
    # The first is below the least norm that is drawn, the other where it is.
    assert [t.marker.symbol for t in marks] == ["triangle-down", "diamond"]
    assert [t.y[0] for t in marks] == [figures.LOWEST, 2.0]
    assert [t.customdata[0][1] for t in marks] == [0.001, 2.0]


@pytest.mark.slow
def test_smoke(tmp_path):
    """Norms are read off the weights that the run kept."""
    wanted = norm_growth.NORM_GROWTH_EXPERIMENT.models_at("smoke")
    assert {model.name for model in wanted} == {
        norm_growth.MODELS[kind, inputs, size].name
        for kind, inputs in norm_growth.RECIPES
        for size in (0.3, 3.0)
    }
    found = obtain.obtain(wanted, "smoke", tmp_path, obtain.Shelf(), progress=False)
    results = norm_growth.run(Setup(found, PRESETS["smoke"]))
    norms = results["norms"]
    assert tuple(norms.indexes["step"]) == (0, 10, 20)
    last = found[norm_growth.MODELS["ReLU", "not isotropic", 3.0].name]
    expected = np.linalg.norm(models.matrix_of(last.model).numpy(), 2)
    key = {"class": "ReLU", "inputs": "not isotropic", "L": 3.0, "quantity": "|M|"}

    def check(step):
        assert float(norms.sel(**key, step=step)) == pytest.approx(expected)

    check(20)
    must_fail(check, 0)
    assert rendered(figures.norm_growth(results, None)["norm_growth"]).data
