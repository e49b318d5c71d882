"""Figures of maps show the stored numbers."""

import numpy as np
import pytest
from helpers import must_fail

from icl_interp.analyses.measurement import Results
from icl_interp.experiments import calibration
from icl_interp.figures.render import rendered
from icl_interp.studies.autoregression.claims import map as map_claim
from icl_interp.studies.autoregression.constructions import maps as made
from icl_interp.studies.autoregression.figures.maps import FIGURES
from icl_interp.studies.autoregression.measurements import (
    augmented_tokens,
    descent_steps,
    head_likeness,
    maps,
)

CASES = {one.name: one for one in made.CONSTRUCTIONS}


def stored(name, *measurements):
    lab, facts = calibration.lab_for(CASES[name].draw(0))
    for one in measurements:
        lab.measure(one)
    return Results(lab.results), facts


@pytest.fixture(scope="module")
def layers():
    of_two = (maps.in_context_map, augmented_tokens.first_layer, descent_steps.descent)
    return stored("two layers that take a gradient step", *of_two)


def drawn(name, results, facts):
    figure = FIGURES[name].draw(results, [], facts)
    assert figure is not None
    return rendered(figure)


def check(figure, expected, axis="x"):
    np.testing.assert_allclose(getattr(figure.data[0], axis), expected)


def test_distances(layers):
    results, facts = layers
    figure = drawn("autoregression_map", results, facts)
    found = [
        map_claim.interval(results[maps.in_context_map], form).value
        for form in (maps.SQUARES, maps.COPY)
    ]
    shown = list(figure.data[0].x)
    np.testing.assert_allclose(shown, [1e-6, *found])
    must_fail(np.testing.assert_allclose, shown[::-1], [1e-6, *found])


def test_the_first_layer(layers):
    results, facts = layers
    figure = drawn("autoregression_tokens", results, facts)
    moved = results[augmented_tokens.first_layer].sel(number="moved").mean(["unit", "point"])
    check(figure, np.maximum(moved.values[1:], 1e-6))
    must_fail(check, figure, np.maximum(moved.values[:-1], 1e-6))


def test_steps(layers):
    results, facts = layers
    figure = drawn("autoregression_descent", results, facts)
    means = results[descent_steps.descent].mean(["unit", "point"])
    check(figure, [float(means.sel(who=str(k))) for k in descent_steps.STEPS], "y")
    model = next(trace for trace in figure.data if trace.name == "the model")
    np.testing.assert_allclose(model.y, float(means.sel(who=maps.MODEL)))
    must_fail(check, figure, [float(means.sel(who=maps.MODEL))] * len(descent_steps.STEPS), "y")


def test_likeness():
    results, facts = stored("unit at a minimiser with heads that are alike", head_likeness.likeness)
    figure = drawn("autoregression_likeness", results, facts)
    now = results[head_likeness.likeness].sel(when=head_likeness.NOW)
    shown = np.array(figure.data[0].z, dtype=float)
    np.testing.assert_allclose(shown[0, 2], float(now.sel(pair="0.0 ~ 0.2")))
    np.testing.assert_allclose(shown[4, 1], float(now.sel(pair="0.1 ~ 0.4")))
    must_fail(np.testing.assert_allclose, shown[0, 2], shown[0, 1])


def test_nothing_is_drawn_of_nothing(layers):
    _, facts = layers
    assert all(one.draw(Results({}), [], facts) is None for one in FIGURES.values())
    assert all(one.caption for one in FIGURES.values())
