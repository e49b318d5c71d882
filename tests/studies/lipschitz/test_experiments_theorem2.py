"""Theorem 2 computed: windows against a direct search, and what statements say of mutants."""

import numpy as np
import pytest
import torch
from helpers import must_fail
from lipschitz_experiments import setup
from pandas import DataFrame

from icl_interp.experiments import kept
from icl_interp.experiments.statements import HOLDS, MISPRINT
from icl_interp.figures import reproductions
from icl_interp.studies.lipschitz.experiments import theorem2
from icl_interp.theory import lipschitz as theory


@pytest.fixture(scope="module")
def results():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(theorem2.DIMENSIONS, "smoke", (3,))
        patch.setitem(theorem2.AT_N, "smoke", (3,))
        return theorem2.run(setup())


@pytest.fixture(scope="module")
def stored():
    return kept.results("lipschitz.theorem2")


def test_windows_for_long_prompts_have_the_least_loss_on_a_grid(results):
    """The loss at L = sigma = 1 on 4,001 windows about each one that was found."""

    def check(windows):
        for s, w in zip(theorem2.SIGNALS, windows, strict=True):
            grid = w * np.geomspace(0.5, 2.0, 401)
            loss = theory.long_prompt_loss(torch.from_numpy(grid), 1.0, 1.0, s, 3)
            assert 0.99 < grid[int(loss.argmin())] / w < 1.01

    found = results["long"].sel(d=3, line="exact").values
    check(found)
    must_fail(check, found * 1.05)


def test_the_window_depends_on_l_over_sigma_alone(results):
    """w* depends on L / sigma alone: by n at sigma = 0.1 it is the window at the ratio 10."""

    def check(ratio):
        other = [float(theory.optimal_window(ratio, 1.0, n, 3, contexts=400).window) for n in by_n]
        found = results["by n"].sel(d=3, statistic="w").values
        np.testing.assert_allclose(found, other, rtol=1e-5)

    by_n = results["by n"]["n"].values.tolist()
    check(10.0)
    must_fail(check, 9.0)


def test_the_stored_results_hold_what_the_slides_print_but_for_the_nearest_neighbour(stored):
    words = [line.word for line in theorem2.states(stored)]
    assert words[:7] == [HOLDS] * 6 + [MISPRINT]


def changed(results, name, **columns):
    """The results with other columns in a table."""
    return {**results, name: DataFrame({**results[name], **columns})}


def test_statements_notice_other_numbers(stored):
    def check(results, at):
        word = theorem2.states(results)[at].word
        assert word == (MISPRINT if at == 6 else HOLDS)

    slopes, clean = stored["slopes"], stored["noiseless"]
    for at, mutant in (
        (0, changed(stored, "slopes", slope=slopes["2/d"] + 0.2)),
        (1, changed(stored, "slopes", slope=slopes["1/d"] - 0.1)),
        (2, changed(stored, "slopes", **{"slope for small S": slopes["2/d"]})),
        (3, changed(stored, "slopes by n", slope=0.0)),
        (4, {**stored, "long": stored["long"] + 1}),
        (5, {**stored, "by n": 0 * stored["by n"] + 1}),
        (6, changed(stored, "noiseless", **{"narrowest / least": 1 + 0 * clean["w*"], "se": 0.0})),
    ):
        check(stored, at)
        must_fail(check, mutant, at)


def test_the_figure_has_a_panel_for_each_question(stored):
    figure = reproductions.draw("lipschitz.theorem2", stored)["theorem2"]
    names = {trace.name for trace in figure.data}
    assert {"d = 2", "asymptote", "d = 3, n = 100", "fitted, S from 10⁴ on"} <= names
    assert not reproductions.draw("lipschitz.theorem2", {})
