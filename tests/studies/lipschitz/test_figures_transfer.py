"""The figures of generalisation and of few directions show the stored numbers."""

import numpy as np
import pytest
from helpers import must_fail

from icl_interp.figures.render import rendered
from icl_interp.results import make_array, make_curve, table_of_rows
from icl_interp.studies.lipschitz.experiments import all as experiments
from icl_interp.studies.lipschitz.experiments.generalization import KINDS
from icl_interp.studies.lipschitz.figures import all as figures
from icl_interp.studies.lipschitz.figures.generalization import generalization
from icl_interp.studies.lipschitz.figures.low_rank import low_rank

N = (5, 20, 100)


@pytest.fixture(scope="module")
def transfer():
    """A table and curves as the experiment makes them, with numbers that tell the cells apart."""
    names = tuple(KINDS)
    rows = [
        {
            "tested on": a,
            "trained on": b,
            "error": 0.1,
            "error / own": 1 + i + 0.1 * j,
            "low": 1.0,
            "high": 9.0,
        }
        | {"computed": 2.0 + i}
        for i, a in enumerate(names)
        for j, b in enumerate(names)
    ]
    values = 0.01 * (1 + np.arange(3 * len(names) * 3 * len(N), dtype=float)).reshape(
        3, len(names), 3, len(N)
    )
    axes = {
        "tested on": names[:3],
        "trained on": names,
        "statistic": ("mean", "low", "high"),
        "n": N,
    }
    price = make_curve(
        [[3.0, 1.0, 2.0]] * 3, {"trained on": names[:3], "L": (0.1, 1.0, 10.0)}, note="d = 5"
    )
    return {"curves": make_curve(values, axes, note="d = 5"), "price": price}, table_of_rows(rows)


def test_curves_are_the_means(transfer):
    results, table = transfer
    figure = rendered(generalization(results, table)["curves"])
    panel = [trace for trace in figure.data if trace.xaxis == "x3"]  # tested on cosine

    def check(results):
        for trace in panel:
            key = {"tested on": "cosine", "trained on": trace.name, "statistic": "mean"}
            assert np.array_equal(trace.y, results["curves"].sel(key).values)

    assert {trace.name for trace in panel} == {"affine", "ReLU", "cosine", "cosine, ω = 10"}
    check(results)
    must_fail(check, {"curves": 1.1 * results["curves"]})


def test_cells_and_lines_are_the_ratios(transfer):
    results, table = transfer
    figure = rendered(generalization(results, table)["transfer"])
    heat, *others = figure.data
    lines = [trace for trace in others if trace.mode == "lines"]
    dots = [trace for trace in others if trace.mode == "markers"]
    assert len(lines) == 3
    for row in table.to_dict("records"):
        place = [list(KINDS).index(row[key]) for key in ("trained on", "tested on")]
        assert f"<b>{row['error / own']:.3g}</b>" in heat.text[place[0]][place[1]]
        assert f"({row['computed']:.3g})" in heat.text[place[0]][place[1]]
    for line in lines:
        assert line.y.tolist() == [3.0, 1.0, 2.0]
    mine = [
        row
        for row in table.to_dict("records")
        if row["tested on"] == "cosine" and "ω" not in row["trained on"]
    ]
    assert [dot.x[0] for dot in dots] == [KINDS[row["trained on"]].lipschitz for row in mine]
    assert [dot.y[0] for dot in dots] == [row["error / own"] for row in mine]


def unit(link, noise, seed):
    common = {"link": link, "σ": noise, "seed": seed, "angle": 0.1 + seed, "outside": 0.2 + seed}
    ratios = {"irrelevant out": 1.0, "irrelevant low": 0.9, "irrelevant high": 1.1}
    return {**common, **ratios, "relevant out": 4.0, "relevant low": 3.0, "relevant high": 5.0}


@pytest.fixture(scope="module")
def directions():
    minima = [
        {"n": n, "c free": 10.0, "outside free": 0.1 * n, "loss free": 1 / n, "loss held": 2 / n}
        | {"c capped": 3.0, "outside capped": 0.03}
        for n in (2, 10, 50)
    ]
    axes = {"link": ("affine",), "σ": (0.1,), "key": (1, 2, 3), "query": (1, 2, 3)}
    return {
        "units": table_of_rows(
            [unit(link, 0.1, seed) for link in ("affine", "cosine") for seed in (0, 1)]
        ),
        "matrices": make_array(np.diag([4.0, 2.0, -1.0])[None, None], axes, note="entries of M"),
        "minima": table_of_rows(minima, note="d = 4"),
        "endless": table_of_rows([{"c held": 6.6, "loss held": 0.006}]),
        "theorem units": table_of_rows([{"n used": 50, "c": 10.0, "c outside": -7.0}]),
    }


def test_recovery_shows_every_unit(directions):
    figure = rendered(low_rank(directions, None)["recovery"])
    angle, outside, irrelevant, relevant = figure.data
    for trace, key in (
        (angle, "angle"),
        (outside, "outside"),
        (irrelevant, "irrelevant out"),
        (relevant, "relevant out"),
    ):
        assert list(trace.x) == directions["units"][key].tolist()
        assert list(trace.y) == [0, 0, 1, 1]
    assert figure.layout.yaxis.ticktext == ("affine<br>σ = 0.1", "cosine<br>σ = 0.1")


def test_matrices_are_scaled_by_their_largest_entry(directions):
    (heat,) = rendered(low_rank(directions, None)["matrices"]).data
    np.testing.assert_allclose(heat.z, np.diag([4.0, 2.0, -1.0]))
    assert (heat.zmin, heat.zmax) == (-4.0, 4.0)


def test_the_cap_has_a_line_for_each_family(directions):
    figure = rendered(low_rank(directions, None)["cap"])
    traces = {trace.name: trace for trace in figure.data}

    def check(name, values):
        assert list(traces[name].y) == pytest.approx(values)

    check("c B Bᵀ, c free", [1.0, 0.2, 0.04])
    check("c B Bᵀ + c′ (I − B Bᵀ), both free", [0.5, 0.1, 0.02])
    check("c B Bᵀ, endless prompts", [0.006] * 3)
    check("no cap", [0.02, 0.1, 0.5])
    check("under the cap of Theorem 4", [0.01] * 3)
    check("trained units, no cap", [0.7])
    must_fail(check, "no cap", [0.0] * 3)


def test_what_is_missing_is_not_drawn(directions):
    assert low_rank({}, None) == generalization({}, None) == {}
    assert set(low_rank({"minima": directions["minima"]}, None)) == {"cap"}


def test_every_experiment_is_drawn():
    assert [experiment.id for experiment in experiments.EXPERIMENTS] == sorted(figures.DRAWINGS)
    assert len(experiments.EXPERIMENTS) == 7
