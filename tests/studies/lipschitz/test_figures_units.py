"""The figures of one window show the stored numbers."""

import numpy as np
import pytest
import torch
from helpers import must_fail
from known import changed, facts
from ridge_units import FEW, RELU, bench, best, square, unit

from icl_interp.analyses.measurement import Results
from icl_interp.figures import catalogue
from icl_interp.figures.render import rendered
from icl_interp.figures.style import traces_of
from icl_interp.results import numbers_in
from icl_interp.studies.lipschitz.measurements import relevant_directions, window_losses
from icl_interp.studies.lipschitz.measurements import unit as read


def wide():
    """M of a window that is not the best, nor round."""
    return 2 * best() * torch.eye(3).double() + 0.1 * square(3, 3)


def drawn(name, results, known):
    figure = catalogue.FIGURES[name].draw(results, [], known)
    assert figure is not None
    return rendered(figure)


def stored(model, task, *measurements):
    lab = bench(model, task)
    for one in measurements:
        lab.measure(one)
    return Results(lab.results), changed(facts(task=task), encoding="stacked")


def named(figure, name):
    return next(trace for trace in traces_of(figure) if trace.name == name)


@pytest.fixture(scope="module")
def window():
    all_of_them = (
        read.kernel,
        window_losses.optimum,
        window_losses.window_loss,
        window_losses.matrix_losses,
    )
    return stored(unit(wide()), RELU, *all_of_them)


def check_window(results, figure):
    curve, found = results[window_losses.window_loss], numbers_in(results[window_losses.optimum])
    for part in ("loss", "bias", "noise"):
        assert np.array_equal(named(figure, part).x, curve["w"].values)
        assert np.allclose(named(figure, part).y, curve.sel(part=part).values)
    assert named(figure, "best window, w*").x[0] == found["w*"]
    assert named(figure, "the model's M").x[0] == pytest.approx(float(wide().trace()) / 3)
    heat = next(trace for trace in traces_of(figure) if trace.type == "heatmap")
    assert np.array_equal(heat.z, results[read.kernel].sel(matrix="whitened").values)


def test_the_window(window):
    results, known = window
    figure = drawn("lipschitz_window", results, known)
    check_window(results, figure)
    named(figure, "loss").y = named(figure, "bias").y
    must_fail(check_window, results, figure)


def test_without_the_curve_m_alone_is_drawn(window):
    results, known = window
    left = Results(
        {name: one for name, one in results.items() if name != window_losses.window_loss.name}
    )
    figure = drawn("lipschitz_window", left, known)
    assert [trace.type for trace in traces_of(figure)] == ["heatmap"]
    assert catalogue.FIGURES["lipschitz_window"].draw(Results(), [], known) is None


def test_directions():
    results, known = stored(
        unit(square(6, 6), FEW), FEW, relevant_directions.directions, relevant_directions.projected
    )
    figure = drawn("lipschitz_directions", results, known)
    table, arms = results[relevant_directions.directions], results[relevant_directions.projected]
    bars = [trace for trace in traces_of(figure) if trace.type == "bar"]
    assert np.concatenate([bar.y for bar in bars]).tolist() == table["share"].to_list()
    assert traces_of(figure)[-1].x.tolist() == pytest.approx(arms.values.mean(0).tolist())
    assert catalogue.FIGURES["lipschitz_directions"].draw(Results(), [], known) is None
