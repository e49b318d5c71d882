"""The experiment `diversity.threshold`: statements on made-up ratios, and sizes."""

import math

import numpy as np
import pytest
from error_tables import sentences, words
from helpers import must_fail

from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import AGREES, DIFFERS, OPEN
from icl_interp.resampling import Interval
from icl_interp.results import make_array
from icl_interp.studies.diversity.experiments import threshold
from icl_interp.studies.diversity.experiments.threshold import POOLS, STATISTICS
from icl_interp.studies.diversity.figures.threshold import threshold as drawn
from icl_interp.studies.diversity.measurements.distances import NEW, SEEN
from icl_interp.training import recipes


def made_up(*seeds, spread=0.1):
    """log10 ratios on new functions, a row a seed; on functions of the pool they are 1."""
    values = np.ones((2, len(seeds), len(POOLS), 3))
    values[0] = np.array(seeds)[..., None] + np.array([0.0, -spread, spread])
    axes = {
        "asked": (NEW, SEEN),
        "seed": range(len(seeds)),
        "functions of training": POOLS,
        "statistic": STATISTICS,
    }
    return {"ratios": make_array(values, axes, note="a ratio")}


def check(results, *starts):
    words(threshold.states(results), *starts)


def test_both_ends_decide():
    right = made_up((1.0, 1.0, 0.5, -0.5, -1.0), (1.0, 0.5, -0.5, -1.0, -1.0))
    check(right, AGREES, AGREES)
    must_fail(check, right, AGREES, DIFFERS)
    check(made_up((1.0,) * 5), AGREES, DIFFERS)
    check(made_up((-1.0,) * 5), DIFFERS, AGREES)
    check(made_up((1.0, 0.0, 0.0, 0.0, -0.3)), AGREES, OPEN)
    one_differs = made_up((1.0, 1.0, 0.5, -0.5, -1.0), (-1.0, 0.5, -0.5, -1.0, -1.0))
    check(one_differs, OPEN, AGREES)
    assert threshold.states({}) == ()


def test_where_the_side_changes():
    assert threshold.crossing(np.array([1.0, 1.0, 1.0, -1.0, -1.0]), POOLS) == pytest.approx(512)
    assert threshold.crossing(np.array([0.5, -1.5, -1.0, -1.0, -1.0]), POOLS) == pytest.approx(
        math.exp(math.log(16) + 0.25 * math.log(4))
    )
    assert math.isnan(threshold.crossing(np.ones(5), POOLS))
    states = threshold.states(made_up((1.0, 1.0, 1.0, -1.0, -1.0), (1.0,) * 5))
    assert "512, no number of functions" in sentences(states)[-1]


def test_seeds_need_both_ends_and_pools_between_need_all_seeds(monkeypatch):
    def asked(*there):
        """Seeds and pools that are measured, where these models are there."""
        names = {threshold._name(n_tasks, seed) for n_tasks, seed in there}
        monkeypatch.setattr(Setup, "measure", lambda setup, name, of: name)
        monkeypatch.setattr(Setup, "__init__", lambda setup: None)
        monkeypatch.setattr(Setup, "has", lambda setup, name: name in names)
        monkeypatch.setattr(threshold, "ratio", lambda result, functions: Interval(0.0, -1.0, 1.0))
        found = threshold.run(Setup())
        if not found:
            return [], []
        axes = found["ratios"].indexes
        return axes["seed"].tolist(), axes["functions of training"].tolist()

    assert asked((16, 0)) == ([], [])
    assert asked((16, 0), (4096, 0)) == ([0], [16, 4096])
    assert asked((16, 0), (64, 0), (4096, 0), (16, 1)) == ([0], [16, 64, 4096])
    both = [(n_tasks, seed) for n_tasks in (16, 4096) for seed in (0, 1)]
    assert asked(*both, (64, 1), (256, 0), (256, 1)) == ([0, 1], [16, 256, 4096])


def test_the_figure_has_a_line_a_seed():
    made = drawn(made_up((1.0, 1.0, 0.5, -0.5, -1.0), (1.0, 0.5, -0.5, -1.0, -1.0)), None)
    new, seen = made["threshold"].panels
    assert [mark.name for mark in new.marks[1:]] == ["seed 0", "seed 1"]
    np.testing.assert_allclose(new.marks[1].y, 10.0 ** np.array([1.0, 1.0, 0.5, -0.5, -1.0]))
    np.testing.assert_allclose(seen.marks[1].y, 10.0)
    assert drawn({}, None) == {}


@pytest.mark.parametrize("scale", ["smoke", "small", "paper"])
def test_each_scale_reads_its_own_prompts(scale):
    for n_tasks in POOLS:
        config = threshold.at_scale(recipes.resolve(threshold.recipe(n_tasks)), scale)
        assert config.task.n_tasks == n_tasks
        assert config.model.d_in == config.task.n_dims
        assert config.model.n_ctx >= 2 * config.task.n_points - 1
    assert config.training.steps == {"smoke": 100, "small": 12_000, "paper": 500_000}[scale]
