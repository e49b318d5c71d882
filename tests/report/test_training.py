"""The page of a run folder, and the plot of its loss in a terminal."""

import math

import pytest
import tiny_runs
from helpers import must_fail

from icl_interp.checkpoints import store
from icl_interp.errors import InputError
from icl_interp.figures import training as curves
from icl_interp.report import training
from icl_interp.training import trainer


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    changes = tiny_runs.RUNS["a finite set"]
    return trainer.train(tiny_runs.data(**changes), folder, progress=False)


def test_the_page_shows_curve_and_config_and_loads_nothing(run):
    page = training.write_page(run)
    text = page.read_text()
    assert page == run.folder / "training.html"
    assert "step 12 of 12" in text
    assert "loss on the test set" in text
    assert "&#34;n_prompts&#34;: 16" in text
    assert "http" not in text.split("</head>")[1].split("<script")[0]
    store.load(run.folder)  # still a run
    assert trainer.train(run.config, run.folder, progress=False).step == 12


def check_curves(lines, figure):
    """The numbers that were logged, panel by panel."""
    drawn = [trace for trace in figure.data if trace.x is not None and len(trace.x) == len(lines)]
    steps = [line["step"] for line in lines]
    shown = []
    for trace in drawn:
        assert list(trace.x) == steps
        shown.append(list(trace.y))
    for name in ("learning_rate", "n_points"):
        assert [line[name] for line in lines] in shown
    logs = [math.log10(line["loss"]) for line in lines]
    losses = [line["loss"] for line in lines]
    assert any(values in (pytest.approx(losses), pytest.approx(logs)) for values in shown)


def test_the_figure_shows_the_numbers_of_the_run(run):
    from pandas import DataFrame

    lines = training.lines_of(run)
    check_curves(lines, curves.curves(DataFrame(lines)))
    must_fail(check_curves, lines, curves.curves(DataFrame(lines).assign(learning_rate=1.0)))


def check_plot(plot):
    """A loss that falls by one factor in each step is a straight line, from corner to corner."""
    lines = [{"step": 10 + step, "loss": 10.0**-step} for step in range(training.WIDTH)]
    rows = [row.split("|")[1] for row in plot(lines).splitlines()[:-1]]
    assert len(rows) == training.HEIGHT
    assert rows[0][0] == rows[-1][-1] == training.MARK
    for i, row in enumerate(rows):
        for column, letter in enumerate(row):
            if letter == training.MARK:
                assert abs(i - column * (training.HEIGHT - 1) / (training.WIDTH - 1)) <= 0.51


def test_the_plot_is_logarithmic():
    check_plot(training.plot)

    def linear(lines):
        return training.plot([line | {"loss": math.exp(line["loss"])} for line in lines])

    must_fail(check_plot, linear)


def test_a_run_without_two_lines_has_no_plot():
    assert training.plot([]) == ""
    assert training.plot([{"step": 3, "loss": 1.0}]) == ""
    assert training.plot([{"step": 3, "loss": 1.0}, {"step": 6, "loss": 0.0}]) == ""


def test_what_is_no_run_is_refused():
    with pytest.raises(InputError, match="not a run folder"):
        training.lines_of(tiny_runs.checkpoint())
