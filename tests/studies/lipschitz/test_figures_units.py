"""The figures of reports show the stored numbers."""

import numpy as np
import pytest
import torch
from helpers import must_fail
from made_up_facts import changed, facts
from ridge_units import FEW, RELU, bench, best, square, unit

from icl_interp.analyses import relevance
from icl_interp.analyses.measurement import Results
from icl_interp.figures import catalogue
from icl_interp.figures.render import rendered
from icl_interp.results import numbers_in, table_of_rows
from icl_interp.studies.lipschitz.claims import smoother, transfer
from icl_interp.studies.lipschitz.figures.smoother import LOWEST
from icl_interp.studies.lipschitz.measurements import (
    example_weights,
    heads,
    relevant_directions,
    transfer_errors,
    window_family,
    window_losses,
)
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
    return next(trace for trace in figure.data if trace.name == name)


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
    heat = next(trace for trace in figure.data if trace.type == "heatmap")
    assert np.array_equal(heat.z, results[read.kernel].sel(matrix="whitened").values)


@pytest.mark.slow
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
    assert [trace.type for trace in figure.data] == ["heatmap"]
    assert catalogue.FIGURES["lipschitz_window"].draw(Results(), [], known) is None


def test_directions():
    results, known = stored(
        unit(square(6, 6), FEW), FEW, relevant_directions.directions, relevant_directions.projected
    )
    figure = drawn("lipschitz_directions", results, known)
    table, arms = results[relevant_directions.directions], results[relevant_directions.projected]
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert np.concatenate([bar.y for bar in bars]).tolist() == table["share"].to_list()
    assert figure.data[-1].x.tolist() == pytest.approx(arms.values.mean(0).tolist())
    assert catalogue.FIGURES["lipschitz_directions"].draw(Results(), [], known) is None


@pytest.fixture(scope="module")
def beside():
    """What a report on one window shows beside the window itself."""
    lab = bench(unit(wide()), RELU)
    for one in (transfer_errors.transfer, transfer_errors.exact, example_weights.by_cosine):
        lab.measure(one)
    lab.measure(heads.smoother)
    return Results(lab.results), changed(facts(task=RELU), encoding="stacked")


@pytest.mark.slow
def test_transfer(beside):
    results, known = beside
    figure = drawn("lipschitz_transfer", results, known)
    details = transfer.details(results[transfer_errors.transfer], results[transfer_errors.exact])
    model = named(figure, "model")

    def check(paid):
        assert list(model.y) == pytest.approx([one[paid] for one in details])

    check("model pays")
    must_fail(check, "theory")
    theory = named(figure, "best window for L, by theory")
    assert list(theory.y) == pytest.approx([one["theory"] for one in details])
    for trace in (model, theory):
        assert list(trace.x) == [one["L' / L"] for one in details]
    high = np.asarray(model.y) + model.error_y.array
    assert high.tolist() == pytest.approx([one["high"] for one in details])


def test_weights_of_examples(beside):
    results, known = beside
    figure = drawn("lipschitz_linear", results, known)
    curve = results[example_weights.by_cosine]

    def check(factor):
        for name in curve.indexes["kernel"]:
            np.testing.assert_array_equal(named(figure, name).x, curve["cosine"].values)
            np.testing.assert_allclose(
                named(figure, name).y, factor * curve.sel(kernel=name).values
            )

    check(1.0)
    must_fail(check, 1.1)


def test_smoothers_of_heads(beside):
    results, known = beside
    figure = drawn("lipschitz_smoother", results, known)
    missed = smoother.missed(results[heads.smoother], "labels", relevance.USUAL)["0.0"].shown
    shown = named(figure, "labels averaged")

    def check(values):
        assert [shown.customdata[0][0], shown.error_x.array[0]] == pytest.approx(
            [values[0], max(values[2], LOWEST) - max(values[0], LOWEST)]
        )

    check(missed)
    must_fail(check, [one + 1 for one in missed])
    # Zones reach to the ends of the axis, also below the least share.
    first, last = figure.layout.shapes
    ends = 10.0 ** np.asarray(figure.layout.xaxis.range)
    assert (first.x0, last.x1) == pytest.approx(tuple(ends))
    assert (first.x1, last.x0) == (smoother.REPLACED, smoother.MISSED)


def test_a_family_of_runs():
    rows = []
    for seed in (0.0, 1.0):
        for noise in (0.3, 3.0):
            for lipschitz in (1.0, 10.0):
                one = {"run": f"run {len(rows)}", "L": lipschitz, "noise": noise, "seed": seed}
                rows.append(one | {"w": lipschitz / noise + seed, "best": 2 * lipschitz / noise})
    mine = {"run": window_family.THIS, "L": 1.0, "noise": 1.0, "seed": np.nan}
    table = table_of_rows([*rows, mine | {"w": -1.0, "best": 5.0}], note="two seeds")
    results = Results({window_family.family.name: table})
    figure = drawn("lipschitz_family", results, facts())
    assert "two seeds" in figure.layout.title.text

    def check(factor):
        for noise in (0.3, 3.0):
            learned = [factor * row["w"] for row in rows if row["noise"] == noise]
            best = [2 * lipschitz / noise for lipschitz in (1.0, 10.0)]
            against = [t for t in figure.data if t.name == f"σ = {noise:g}, runs"]
            for trace, xs in zip(against, ([1.0, 10.0], best), strict=True):
                assert list(trace.x) == pytest.approx(2 * list(xs))
                values = trace.y if trace.customdata is None else trace.customdata[:, 1]
                assert list(values) == pytest.approx(learned)
            assert list(named(figure, f"σ = {noise:g}, w*").y) == pytest.approx(best)

    check(1.0)
    must_fail(check, 1.1)
    model = named(figure, "this model")
    assert list(model.x) == [5.0]
    assert list(model.customdata[:, 1]) == [-1.0]


@pytest.mark.parametrize("name", ["smoother", "transfer", "family", "linear"])
def test_without_results_nothing_is_drawn(name):
    assert catalogue.FIGURES[f"lipschitz_{name}"].draw(Results(), [], facts()) is None
