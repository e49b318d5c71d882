"""Figures 1 and 2: paths on circles of a sphere, and the formula that half the heads compute.

Both are drawn from results.
"""

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.experiments.presets import PRESETS
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import FAILS, HOLDS
from icl_interp.figures import reproductions
from icl_interp.provenance import generator
from icl_interp.results import table_of_rows
from icl_interp.studies.autoregression.experiments import figure1, figure2

# ---- figure 1 ------------------------------------------------------------------------------------


def turned(axis, degrees):
    """The rotation about an axis, by the exponential of its generator."""
    x, y, z = axis / np.linalg.norm(axis)
    cross = torch.tensor([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=torch.float64)
    return torch.linalg.matrix_exp(np.deg2rad(degrees) * cross)


def test_angle_and_circle_are_those_of_the_rotation():
    axis = np.array([0.0, 3.0, 4.0])
    W = turned(axis, 25.0)
    path = figure1.paths(W[None])[0]
    start = np.ones(3) / 3**0.5
    found = figure1.measured(W, path)

    def check(degrees):
        assert found["angle in degrees"] == pytest.approx(degrees)
        along = start @ axis / 5
        assert found["radius of the circle"] == pytest.approx((1 - along**2) ** 0.5)
        assert max(value for name, value in found.items() if name.startswith("off")) < 1e-13

    check(25.0)
    must_fail(check, 26.0)
    # States are powers of W on the first one.
    for t in (0, 1, 7, 49):
        expected = turned(axis, 25.0 * t) @ torch.from_numpy(start)
        torch.testing.assert_close(path[t], expected)


def test_a_path_that_leaves_its_circle_is_seen():
    W = figure1.rotations(0)[0]
    path = figure1.paths(W[None])[0]
    noise = torch.randn(path.shape, generator=generator(0, "test/noise"), dtype=torch.float64)
    moved = figure1.measured(W, path + 1e-6 * noise)
    for name in ("off the sphere", "off the plane", "off the angle"):
        assert moved[name] > 1e-8


def test_matrices_are_two_different_rotations():
    found = figure1.rotations(0)
    identity = torch.eye(3, dtype=torch.float64)
    for W in found:
        torch.testing.assert_close(W @ W.T, identity)
        assert torch.linalg.det(W) > 0
    assert (found[0] - found[1]).norm() > 0.1
    assert not torch.equal(found, figure1.rotations(1))


def words1(**changes):
    row = {"matrix": "W", "angle in degrees": 30.0, "radius of the circle": 0.5}
    row |= {"off the sphere": 1e-15, "off the plane": 1e-15, "off the angle": 1e-15, **changes}
    return [s.word for s in figure1.states({"geometry": table_of_rows([row])})]


def test_what_is_said_of_paths():
    assert words1() == [HOLDS, HOLDS, HOLDS]
    assert words1(**{"off the sphere": 1e-6}) == [FAILS, HOLDS, HOLDS]
    assert words1(**{"off the plane": 1e-6}) == [HOLDS, FAILS, HOLDS]
    assert words1(**{"off the angle": 1e-6}) == [HOLDS, HOLDS, FAILS]


# ---- figure 2 ------------------------------------------------------------------------------------


def test_the_layers_parts_are_those_of_the_formula():
    degrees = torch.tensor([0.0, 10.0, 75.0, 90.0, 200.0], dtype=torch.float64)
    found = figure2.parts(degrees)
    before, last, by_last, by_before, whole = found.T

    def check(factor):
        theta = torch.deg2rad(degrees)
        torch.testing.assert_close(by_last, factor * 2 * theta.cos() * last)
        torch.testing.assert_close(by_before, -before)
        torch.testing.assert_close(whole, torch.polar(torch.ones_like(theta), 2 * theta))

    check(1.0)
    must_fail(check, 1.01)
    torch.testing.assert_close(by_last + by_before, whole)


def test_another_layer_is_seen(monkeypatch):
    """With 1 / 3 instead of 1 / 2 on the token before, the formula fails."""
    right = figure2.theory.orthogonal_heads(2, 2)
    wrong = right._replace(positions=torch.tensor([-1 / 3, 1.0], dtype=torch.float64))
    grid = torch.arange(12, dtype=torch.float64) * 30
    assert max(figure2.misses(grid).values()) < 1e-14
    monkeypatch.setattr(figure2.theory, "orthogonal_heads", lambda *_, **__: wrong)
    off = figure2.misses(grid)
    assert off[figure2.PREDICTED] == pytest.approx(1 / 3)
    assert off[figure2.FROM_BEFORE] == pytest.approx(1 / 3)
    assert off[figure2.FROM_LAST] < 1e-14


def words2(**changes):
    misses = {figure2.PREDICTED: 0.0, figure2.FROM_LAST: 0.0, figure2.FROM_BEFORE: 0.0, **changes}
    rows = [{"what": name, "largest miss": miss} for name, miss in misses.items()]
    return [s.word for s in figure2.states({"misses": table_of_rows(rows)})]


def test_what_is_said_of_the_formula():
    assert words2() == [HOLDS, HOLDS, HOLDS]
    assert words2(prediction=1e-3) == [FAILS, HOLDS, HOLDS]


# ---- both ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [figure1, figure2])
def test_they_run_and_are_drawn(module):
    name = module.__name__.rpartition(".")[2]
    experiment = getattr(module, f"{name.upper()}_EXPERIMENT")
    results = experiment.run(Setup({}, PRESETS["smoke"]))
    assert {s.word for s in experiment.statements(results)} == {HOLDS}
    assert experiment.compare(results) is not None
    drawn = reproductions.draw(experiment.id, results)
    assert list(drawn) == [name]
    assert experiment.says({}) == ("Nothing is measured.",)
    assert experiment.compare({}) is None
    assert reproductions.draw(experiment.id, {"other": results[next(iter(results))]}) == {}


def test_the_drawn_path_has_the_states_of_the_results():
    results = figure1.run(Setup({}, PRESETS["smoke"]))
    figure = reproductions.draw("autoregression.figure1", results)["figure1"]
    lines = [trace for trace in figure.data if trace.mode == "lines+markers"]

    def check(shift):
        for trace, name in zip(lines, results["paths"]["matrix"].values, strict=True):
            own = results["paths"].sel(matrix=name).values
            np.testing.assert_allclose(np.asarray(trace.y), own[:, 0] + shift)

    check(0.0)
    must_fail(check, 0.01)


def test_arrows_end_where_the_parts_are():
    results = figure2.run(Setup({}, PRESETS["smoke"]))
    figure = reproductions.draw("autoregression.figure2", results)["figure2"]
    sums = [trace for trace in figure.data if trace.name == "sum: R² s"]

    def check(turns):
        for trace, angle in zip(sums, figure2.SHOWN, strict=True):
            theta = turns * np.deg2rad(angle)
            np.testing.assert_allclose([trace.x[1], trace.y[1]], [np.cos(theta), np.sin(theta)])

    check(2)
    must_fail(check, 1)
