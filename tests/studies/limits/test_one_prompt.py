"""One prompt at a time: its examples lie on its function, and its prediction is the model's."""

import numpy as np
import pytest
from helpers import must_fail
from small_reports import report

from icl_interp.analyses import example_prompts
from icl_interp.analyses.measurement import Results
from icl_interp.studies.limits.figures import one_prompt
from icl_interp.studies.limits.measurements import far


@pytest.fixture(scope="module")
def small():
    return report()


def on_its_function(examples, contexts, k):
    """Straight lines: the examples of a prompt lie on the line through two points of the truth."""
    truth = contexts.sel(curve="truth", context=k)
    (x0, x1), (y0, y1) = truth["x"].values[[0, -1]], truth.values[[0, -1]]
    x, y = examples.sel(of="x").values, examples.sel(of="y").values
    np.testing.assert_allclose(y, y0 + (y1 - y0) / (x1 - x0) * (x - x0), atol=1e-6 * abs(y1))


def test_examples_are_those_of_the_prompt_whose_query_moves(small):
    examples = small.results[example_prompts.points.name]
    contexts = small.results[far.contexts.name]
    shown = examples.indexes["context"].tolist()
    assert len(shown) == min(example_prompts.CONTEXTS, len(contexts.indexes["context"]))
    slopes = contexts.sel(curve="truth").isel(x=-1).values
    assert len(set(slopes.round(3))) > 1
    for k in shown:
        on_its_function(examples.sel(context=k), contexts, k)
    must_fail(on_its_function, examples.sel(context=0), contexts, 1)


def test_a_step_of_the_slider_is_one_prompt(small):
    figure = one_prompt.far_prompts(Results(small.results), [], small.facts)
    contexts = small.results[far.contexts.name].sortby("x")
    steps = figure.layout.sliders[0].steps
    names = [trace.name for trace in figure.data]
    at = names.index("prediction")
    for k, step in enumerate(steps):
        drawn = np.array(step.args[0]["y"][at], dtype=float)
        np.testing.assert_allclose(drawn, contexts.sel(curve="model", context=k).values, rtol=1e-12)


def test_without_stored_examples_the_lines_are_there(small):
    left = dict(small.results)
    del left[example_prompts.points.name]
    figure = one_prompt.far_prompts(Results(left), [], small.facts)
    assert [trace.name for trace in figure.data] == ["the function", "prediction"]


def most_drawn(results, facts) -> float:
    figure = one_prompt.far_prompts(Results(results), [], facts)
    return max(float(np.nanmax(np.abs(trace.y))) for trace in figure.data)


def test_predictions_without_bound_are_drawn_on_a_logarithmic_axis(small):
    """A unit a decade beyond the examples; a bounded one is drawn as it is."""
    contexts = small.results[far.contexts.name].copy()
    model = contexts.sel(curve="model")
    shape = (model / np.abs(model).max()).values
    for size, logarithmic in ((1e6, True), (40.0, False)):
        contexts.loc[{"curve": "model"}] = size * shape
        most = most_drawn({**small.results, far.contexts.name: contexts}, small.facts)
        assert (most < 20) == logarithmic


def test_a_step_of_the_lens_is_one_layer(small):
    figure = one_prompt.lens_by_layer(Results(small.results), [], small.facts)
    labels = [step.label for step in figure.layout.sliders[0].steps]
    assert labels == ["before any layer", "after layer 0", "prediction"]
    names = [trace.name for trace in figure.data]
    last = figure.layout.sliders[0].steps[-1].args[0]["y"]
    assert last[names.index("read so far")] == last[names.index("prediction")]


def test_what_was_not_measured_is_not_drawn(small):
    empty = Results({})
    assert one_prompt.far_prompts(empty, [], small.facts) is None
    assert one_prompt.lens_by_layer(empty, [], small.facts) is None
