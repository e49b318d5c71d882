"""What the figures of `limits` say about made-up results; predicting 0 gets no agreement."""

import numpy as np
import pytest
import torch
from error_tables import BETTER, EVEN, SIGMAS, ZERO, error_rows, ratio_rows, sentences, words
from helpers import must_fail

from icl_interp.experiments import errors
from icl_interp.experiments.statements import AGREES, DIFFERS, LEFT_OUT, OPEN
from icl_interp.figures.render import rendered
from icl_interp.results import make_array, make_table
from icl_interp.studies.limits.experiments import (
    figure2,
    figure3,
    figure4,
    figure7,
    figure8,
    table2,
)
from icl_interp.studies.limits.figures import figure2 as drawn_figure2
from icl_interp.studies.limits.figures.table2 import by_degree, degrees
from icl_interp.tasks.distributions import Normal, Uniform

# ---- Figures 2, 3 and 5 --------------------------------------------------------------------------


def test_rates_say_whether_degrees_are_alike():
    """Rates below one half: near predicting 0 all degrees are alike. Proposition 1 comes first."""

    def check(rate, *starts):
        values = {(f"degree_{d}", s): rate(d, s) * ZERO[s] for d in (2, 3, 4) for s in SIGMAS}
        words(figure3.states_rates({"errors": error_rows(values)}), *starts)

    check(lambda d, s: 1e-3 * s * (1 + d / 10), AGREES, AGREES, AGREES, AGREES, AGREES)
    check(lambda d, s: 10.0 ** (d - 7) * s**-0.1, AGREES, DIFFERS, DIFFERS, DIFFERS, DIFFERS)
    check(lambda d, s: 1.0, DIFFERS, LEFT_OUT, LEFT_OUT, LEFT_OUT, DIFFERS)  # predicts 0
    must_fail(check, lambda d, s: 1.0, DIFFERS, AGREES, AGREES, AGREES, DIFFERS)
    must_fail(check, lambda d, s: 1.0, AGREES, LEFT_OUT, LEFT_OUT, LEFT_OUT, DIFFERS)


def test_models_that_have_not_learned_say_nothing_about_degrees():
    values = {
        (f"degree_{d}", s): (0.3 if d == 4 else 1e-3 * s) * ZERO[s]
        for d in (2, 3, 4)
        for s in SIGMAS
    }
    states = figure3.states_rates({"errors": error_rows(values, r2=None)})
    words(states, OPEN, AGREES, AGREES, AGREES, AGREES)
    assert any("Proposition 1: 2 of 3 models" in line for line in sentences(states))
    assert any(
        "Left out of what follows" in line and "degree_4 (0.70)" in line
        for line in sentences(states)
    )


def test_unseen_degrees_and_gaps():
    def check(ratio, r2, *starts):
        pair = {"degree": 4, "a": table2.BY_DEGREE[4], "b": table2.MIXED}
        gaps = {"degree": 4, "a": table2.MIXED, "b": figure2.CURRICULUM}
        rows = [ratio_rows({1: ratio}, **pair), ratio_rows({1: BETTER}, **gaps)]
        own = {(name, 1): 1e-3 for name in (table2.BY_DEGREE[4], table2.MIXED, figure2.CURRICULUM)}
        found = {"ratios": errors.joined(rows), "errors": error_rows(own, r2=r2, degree=4)}
        words(figure2.states_figure2(found), *starts)

    check(EVEN, 0.99, AGREES, OPEN)  # one run of each kind: gaps against the curriculum stay open
    check((-1.0, -1.1, -0.9), 0.99, DIFFERS, OPEN)
    check(EVEN, 0.0, LEFT_OUT, OPEN)  # predicting 0 is as good as predicting 0
    must_fail(check, EVEN, 0.99, AGREES, AGREES)


def test_both_rows_of_figure_2_compare_gaps_with_the_curriculum():
    def found(*pairs):
        rows = [ratio_rows({1: BETTER}, degree=4, a=a, b=b) for a, b in pairs]
        own = {(name, 1): 1e-3 for pair in pairs for name in pair}
        return {"ratios": errors.joined(rows), "errors": error_rows(own, r2=0.99, degree=4)}

    def check(said):
        lines = [s.text for s in said if s.criterion]
        assert len(lines) == 2
        assert ["with attention layers only" in line for line in lines] == [False, True]

    pairs = list(figure2.GAPS.items())
    check(figure2.states_figure2(found(*pairs)))
    must_fail(check, figure2.states_figure2(found(pairs[0])))


def test_figure_2_has_a_row_of_panels_for_each_training():
    every = (*figure2.GAPS, *figure2.GAPS.values(), "zero", "least squares")
    tables = []
    for degree in (1, 2):
        names = (table2.BY_DEGREE[degree], *every)
        tables.append(error_rows({(n, s): 1e-3 for n in names for s in SIGMAS}, degree=degree))
    results = {"errors": errors.joined(tables)}

    def check(draw):
        drawing = draw(results, None)["rates"]
        assert drawing.columns == 2
        shown = []
        for panel in drawing.panels:
            shown.append({mark.name for mark in panel.marks if getattr(mark, "name", "")})
        above = {"that degree only", "M135: degrees 1, 3, 5", "M135AL: attention only"}
        below = {"that degree only", "curriculum 1, 2, 3", "curriculum, attention only"}
        zero = {"predicting 0"}
        assert shown == [above | zero] * 2 + [below | zero] * 2
        assert rendered(drawing).data

    check(drawn_figure2.rates_by_degree)
    must_fail(check, lambda *given: {"rates": by_degree(*given)["errors"]})


def test_crosses_are_of_the_model_that_the_paper_prints():
    own = error_rows({(n, s): 1e-3 for n in ("degree_2", "zero") for s in SIGMAS}, degree=2)
    printed = make_table(
        {"degree": [2, 2], "model": ["M2", "zero"], "sigma": [1, 1], "paper": [0.25, 0.5]}
    )
    (title, curves), *_ = degrees({"errors": own}, printed, "error")
    assert title == "degree 2"

    def check(names):
        assert {name: curve.paper for name, curve in zip(names, curves, strict=True)} == {
            "that degree only": {1: 0.25},
            "zero": {1: 0.5},
        }

    check([curve.name for curve in curves])
    must_fail(check, [curve.name for curve in curves[::-1]])


def test_width_counts_as_help_only_beyond_a_quarter():
    wide = {"a": figure3.WIDE, "b": "affine"}

    def check(row, word):
        (line,) = figure3._width({"width": ratio_rows({1: BETTER, 5: row}, **wide)})
        assert line.word == word

    check((-0.05, -0.08, -0.02), AGREES)
    check(BETTER, DIFFERS)
    must_fail(check, BETTER, AGREES)
    assert figure3._width({}) == []


# ---- Figure 7 ------------------------------------------------------------------------------------


def test_maps_need_most_cells_and_models_that_have_learned():
    size = np.add.outer(np.arange(10.0), np.arange(10.0))
    narrow, wide = 10 ** (size - 5), np.full((10, 10), 1e-1)

    def check(first, second, word):
        axes = {"statistic": ("error", "low", "high"), "inputs": SIGMAS, "functions": SIGMAS}
        each = [np.stack([values, 0.9 * values, 1.1 * values]) for values in (first, second)]
        maps = dict(
            zip(("U(-1,1)", "U(-5,5)"), (make_array(values, axes) for values in each), strict=True)
        )
        words(figure7.states_figure7(maps), word)

    check(narrow, wide, AGREES)
    check(narrow, np.where(size < 9, 1e-1, 1e9), DIFFERS)  # better in less than half of the cells
    check(narrow, np.where(size < 11, 1e-1, 1e9), OPEN)
    check(narrow, np.where(size == 8, 1e9, wide), LEFT_OUT)  # its own range is among these cells
    must_fail(check, narrow, np.where(size < 9, 1e-1, 1e9), AGREES)


def test_r2_in_the_own_range_is_that_of_the_law():
    """E f^2 by sampling coefficients and inputs on U(-5, 5)."""
    random = np.random.default_rng(0)
    x, c = random.uniform(-5, 5, size=10**6), random.uniform(-5, 5, size=(4, 10**6))
    square = float((sum(c[i] * x**i for i in range(4)) ** 2).mean())
    axes = {"statistic": ("error",), "inputs": (5,), "functions": (5,)}

    def check(interval):
        found = figure7.r2_in_own_cell(make_array([[[0.25 * square]]], axes), interval)
        assert found == pytest.approx(0.75, abs=0.01)

    check("U(-5,5)")
    axes |= {"inputs": (4,), "functions": (4,)}
    must_fail(check, "U(-4,4)")


# ---- Figures 4 and 8 -----------------------------------------------------------------------------


def moved(f, name="x²", spread=0.0, own=0.99):
    """The curve of a model that predicts f along the query's grid, with the table for it."""
    x = figure4.FAR
    truth = figure4.BOUNDARY[name][1](torch.from_numpy(x)).numpy()
    values = np.stack([f(x), np.full_like(x, spread), f(x), f(x), truth])
    curve = make_array(
        values, {"statistic": ("mean", "std", "low", "high", "truth"), "x": tuple(x)}
    )
    row = {"function": name, "model": "m", "zone": 1.0, "onset": 1.0, "own r2": own}
    row |= dict.fromkeys(("level +", "level -", "plateau +", "plateau -"), 1.0)
    return {name: curve, "boundary": make_table({key: [value] for key, value in row.items()})}


def test_boundary_values_count_for_models_that_follow_the_function():
    def check(f, word, **more):
        words(figure4.states_figure4(moved(f, **more)), word)

    check(lambda x: np.minimum(x**2, 30), AGREES)  # level: increments of 0
    check(lambda x: x**2, DIFFERS)
    check(
        lambda x: np.minimum(x**2, 30) + np.maximum(0, np.log10(np.maximum(np.abs(x), 30) / 30)),
        DIFFERS,
    )  # log
    check(lambda x: 0 * x, LEFT_OUT)  # predicts 0, and is level
    check(lambda x: np.minimum(x**2, 30), LEFT_OUT, spread=1.0)  # right on average only
    check(
        lambda x: np.minimum(x**2, 30), LEFT_OUT, own=0.86
    )  # has not learned its class of functions
    must_fail(check, lambda x: 0 * x, AGREES)


def test_r2_in_range_weighs_by_the_law():
    def check(law, f, want, name="x²"):
        curve = moved(f, name)[name]
        assert figure4.in_range_r2(curve, figure4.BOUNDARY[name][1], law) == pytest.approx(
            want, abs=0.02
        )

    check(Normal(1), lambda x: x**2, 1.0)
    check(Normal(1), lambda x: 0 * x + 1, 0.0)  # E x^2
    check(Uniform(-1, 1), lambda x: 6 * x, 0.75, "12x")
    check(
        Uniform(-1, 1), lambda x: np.where(np.abs(x) > 1.2, 1e6, 12 * x), 1.0, "12x"
    )  # beyond the range
    must_fail(check, Normal(1), lambda x: 0 * x, 0.0)


def lens_rows(*r2):
    return make_table(
        {
            "layer": [f"block {i}" for i in range(len(r2))],
            "r2": list(r2),
            "low": [v - 0.01 for v in r2],
            "high": [v + 0.01 for v in r2],
            "correlation squared": list(r2),
        }
    )


def test_layers_say_where_the_prediction_is_formed():
    for r2, word in (
        ((0.1, 0.2, 0.98), AGREES),
        ((0.1, 0.97, 0.98), DIFFERS),
        ((0.1, 0.7, 0.98), OPEN),
        ((0.0, 0.6), LEFT_OUT),
    ):
        words(figure8.states({"r2": lens_rows(*r2)}), word)
