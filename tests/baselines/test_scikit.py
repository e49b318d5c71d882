"""Lasso against its optimality conditions, greedy and boosted trees against a search in numpy, and no scikit-learn."""

import logging
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.baselines import (
    GradientBoosting,
    GreedyTree,
    Lasso,
    LeastSquares,
    Powers,
    Predictor,
    Signs,
    TwoLayerNetwork,
    classical,
    scikit,
)
from icl_interp.errors import InputError
from icl_interp.prompts import Prompts, as_numbers
from icl_interp.provenance import generator
from icl_interp.tasks import DecisionTree, LinearRegression, SparseLinearRegression, Task

SPARSE = SparseLinearRegression(n_dims=8, sparsity=2, n_points=13)
TREE = DecisionTree(n_dims=3, depth=2, n_points=60)


def posed(xs, ys):
    """Prompts with these inputs and labels."""
    xs, ys = torch.as_tensor(xs, dtype=torch.float64), torch.as_tensor(ys, dtype=torch.float64)
    return Prompts(
        xs[..., None] if xs.ndim == 2 else xs, ys, torch.zeros(len(ys), 0), torch.arange(len(ys))
    )


def noisy(task: Task = SPARSE, n=4):
    clean = task.sample(n, generator(1, "noisy"), dtype=torch.float64)
    noise = torch.randn(clean.ys.shape, generator=generator(1, "noise"), dtype=torch.float64)
    return Prompts(clean.xs, clean.ys + 0.3 * noise, clean.parameters, clean.function)


# Lasso --------------------------------------------------------------------------------------------


def coefficients(predictor, xs, ys):
    """w of a fit to these points: one prompt for each coordinate, whose query is that unit vector."""
    d = xs.shape[1]
    asked = torch.cat([xs.expand(d, -1, -1), torch.eye(d, dtype=xs.dtype)[:, None]], 1)
    labels = torch.cat([ys.expand(d, -1), torch.zeros(d, 1, dtype=ys.dtype)], 1)
    return as_numbers(predictor.predict(posed(asked, labels)))[:, -1].numpy()


def check_optimal(predictor, penalty, n_seen):
    """X'(y - X w) / k is penalty sign(w_j) where w_j is not 0, and at most the penalty elsewhere."""
    prompts = noisy()
    for xs, ys in zip(prompts.xs[:, :n_seen], as_numbers(prompts.ys)[:, :n_seen], strict=True):
        w = coefficients(predictor, xs, ys)
        gradient = xs.numpy().T @ (ys.numpy() - xs.numpy() @ w) / n_seen
        active = w != 0
        np.testing.assert_allclose(
            gradient[active], penalty * np.sign(w[active]), rtol=0, atol=1e-5 * penalty
        )
        assert (np.abs(gradient[~active]) < penalty * (1 + 1e-5)).all()


@pytest.mark.slow
@pytest.mark.parametrize("n_seen", [1, 4, 8, 12])
@pytest.mark.parametrize("penalty", [0.01, 0.3])
def test_lasso_is_optimal(penalty, n_seen):
    check_optimal(Lasso(penalty), penalty, n_seen)
    must_fail(check_optimal, Lasso(1.01 * penalty), penalty, n_seen)
    must_fail(check_optimal, LeastSquares(SPARSE), penalty, n_seen)


def check_soft_threshold(predictor, penalty):
    """One coordinate: w = sign(c) max(|c| - penalty, 0) / (x'x / k) with c = x'y / k."""
    prompts = posed([[1.0, 2.0, -1.0, 3.0]], [[2.0, -1.0, 0.5, 9.0]])
    c, square = (2 - 2 - 0.5) / 3, (1 + 4 + 1) / 3
    expected = np.sign(c) * max(abs(c) - penalty, 0) / square * 3
    assert predictor.predict(prompts)[0, -1].item() == pytest.approx(expected, rel=1e-6)


def test_lasso_of_one_coordinate_by_hand():
    check_soft_threshold(Lasso(0.1), 0.1)
    check_soft_threshold(Lasso(0.2), 0.2)  # beyond 1 / 6 nothing is left
    must_fail(check_soft_threshold, Lasso(0.1), 0.11)


def test_lasso_of_labels_that_are_zero_is_zero():
    prompts = noisy()
    zeros = Prompts(prompts.xs, torch.zeros_like(prompts.ys), prompts.parameters, prompts.function)
    assert (Lasso(0.01).predict(zeros) == 0).all()


@pytest.mark.slow
def test_lasso_finds_a_sparse_function_before_least_squares_does():
    task = SparseLinearRegression(n_dims=20, sparsity=2, n_points=16)
    prompts = task.sample(20, generator(0, "sparse"), dtype=torch.float64)

    def check(predictor):
        assert (predictor.predict(prompts) - prompts.ys)[:, -1].square().mean() < 0.1

    check(Lasso(0.01))
    must_fail(check, LeastSquares(task))


def test_lasso_on_other_features():
    """y = x^2 and a small penalty: the square is found."""
    xs = torch.linspace(-1, 1, 9, dtype=torch.float64)[None]

    def check(predictor):
        assert predictor.predict(posed(xs, xs**2))[0, -1].item() == pytest.approx(1, abs=0.05)

    check(Lasso(1e-3, Powers(2)))
    must_fail(check, Lasso(1e-3))


def check_quiet(caplog, penalty, warns):
    """scikit-learn's own warnings never show.

    A line tells of the fits that ended far from the minimum.
    """
    with warnings.catch_warnings(action="error"):
        Lasso(penalty).predict(SPARSE.sample(2, generator(0, "quiet"), dtype=torch.float64))
    assert [message.partition(":")[0] for message in caplog.messages] == [
        f"lasso, penalty {penalty:g}"
    ] * warns


def test_fits_that_end_too_early_are_told_in_one_line(caplog, monkeypatch):
    check_quiet(caplog, 0.1, warns=False)
    monkeypatch.setattr(scikit, "MAX_ITERATIONS", 1)
    check_quiet(caplog, 0.001, warns=True)
    assert "fits of these prompts ended far from the minimum" in caplog.messages[0]
    caplog.clear()
    monkeypatch.setattr(scikit, "WIDE_GAP", 10.0)
    must_fail(check_quiet, caplog, 0.001, warns=True)


# Trees --------------------------------------------------------------------------------------------


def greedy(xs, ys, x, depth):
    """The best split of one coordinate by trying all of them, again on the side of x, down to `depth`."""
    if depth == 0 or len(set(ys)) == 1:
        return ys.mean()
    order = np.argsort(xs)
    cuts = [(xs[order[i]] + xs[order[i + 1]]) / 2 for i in range(len(xs) - 1)]
    loss = [
        sum(((side - side.mean()) ** 2).sum() for side in (ys[xs <= cut], ys[xs > cut]))
        for cut in cuts
    ]
    cut = cuts[int(np.argmin(loss))]
    side = xs <= cut if x <= cut else xs > cut
    return greedy(xs[side], ys[side], x, depth - 1)


def boosted(xs, ys, x, n_trees, depth, rate):
    """The mean, then trees fitted to the residuals at all points seen."""
    at = np.append(xs, x)
    total = np.full(len(at), ys.mean())
    for _ in range(n_trees):
        residuals = ys - total[:-1]
        total = total + rate * np.array([greedy(xs, residuals, one, depth) for one in at])
    return total[-1]


def check_prefixes(predictor, route):
    prompts = noisy(LinearRegression(n_dims=1, n_points=12))
    found, xs, ys = (
        as_numbers(predictor.predict(prompts)),
        prompts.xs[..., 0].numpy(),
        as_numbers(prompts.ys).numpy(),
    )
    assert (found[:, 0] == 0).all()
    expected = [
        [route(xs[row, :k], ys[row, :k], xs[row, k]) for k in range(1, 12)]
        for row in range(len(prompts))
    ]
    np.testing.assert_allclose(found[:, 1:], expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("depth", [1, 2, 3, None])
def test_a_greedy_tree_takes_the_best_split_each_time(depth):
    check_prefixes(GreedyTree(depth), lambda xs, ys, x: greedy(xs, ys, x, depth or 99))
    must_fail(
        check_prefixes, GreedyTree(depth), lambda xs, ys, x: greedy(xs, ys, x, (depth or 3) - 1)
    )


@pytest.mark.slow
@pytest.mark.parametrize(("n_trees", "depth", "rate"), [(1, 2, 1.0), (4, 1, 0.5), (3, 2, 0.1)])
def test_boosting_fits_trees_to_residuals(n_trees, depth, rate):
    predictor = GradientBoosting(n_trees, depth, rate)
    check_prefixes(predictor, lambda xs, ys, x: boosted(xs, ys, x, n_trees, depth, rate))
    must_fail(
        check_prefixes, predictor, lambda xs, ys, x: boosted(xs, ys, x, n_trees + 1, depth, rate)
    )
    must_fail(
        check_prefixes, predictor, lambda xs, ys, x: boosted(xs, ys, x, n_trees, depth, 0.9 * rate)
    )


def test_a_greedy_tree_by_hand():
    xs = torch.tensor(
        [[[0.0, 3.0], [5.0, 1.0], [2.0, 4.0], [4.0, 2.0], [9.0, 3.5]]]
    )  # the second coordinate decides
    found = GreedyTree().predict(posed(xs, [[1.0, -1.0, 1.0, -1.0, 1.0]]))
    assert found[0, [0, 1, 4], 0].tolist() == [0.0, 1.0, 1.0]
    assert GreedyTree().predict(posed(-xs, [[7.0, 5.0, 7.0, 5.0, 0.0]]))[0, 4] == 7


def check_tree_is_found(predictor):
    """All 8 patterns of signs have been seen."""
    prompts = TREE.sample(20, generator(0, "trees"), dtype=torch.float64)
    assert (predictor.predict(prompts) - prompts.ys)[:, -1].abs().max() < 1e-6


@pytest.mark.slow
def test_who_knows_that_signs_decide_finds_the_tree():
    check_tree_is_found(GreedyTree(task=Signs()))
    must_fail(check_tree_is_found, GreedyTree(1, Signs()))


# What they have in common, the two-layer network too ----------------------------------------------

ALL = [
    Lasso(0.1),
    Lasso(0.1, Signs()),
    GreedyTree(),
    GreedyTree(2, Signs()),
    GradientBoosting(2, 1),
    TwoLayerNetwork(3, 4),
]


def same(found, expected, tolerance=1e-9):
    assert (found - expected).abs().max() < tolerance


@pytest.mark.parametrize("predictor", ALL, ids=lambda p: p.name)
def test_predictions_depend_on_earlier_points_only(predictor):
    prompts = noisy(SPARSE.with_points(6))
    found, ys = predictor.predict(prompts), prompts.ys.clone()
    ys[:, 3:] += 1
    changed = predictor.predict(Prompts(prompts.xs, ys, prompts.parameters, prompts.function))
    assert (found[:, 0] == 0).all()
    same(changed[:, :4], found[:, :4])
    must_fail(same, changed[:, 4:], found[:, 4:])


@pytest.mark.parametrize("predictor", ALL, ids=lambda p: p.name)
def test_prompts_are_predicted_each_for_itself_in_float64(predictor):
    assert isinstance(predictor, Predictor)
    prompts = noisy(SPARSE.with_points(6))
    found = predictor.predict(prompts)
    assert found.isfinite().all()
    same(predictor.predict(prompts[2:3]), found[2:3])
    must_fail(same, predictor.predict(prompts[1:2]), found[2:3])
    single = Prompts(
        prompts.xs.float(), prompts.ys.float(), prompts.parameters.float(), prompts.function
    )
    assert predictor.predict(single).dtype == torch.float64
    assert len({p.name for p in ALL}) == len(ALL)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("make", "match"),
    [
        (
            lambda: Lasso(0.0),
            "penalty must be a positive number, but got 0.0; without a penalty, use LeastSquares",
        ),
        (lambda: GreedyTree(0), "depth must be a whole number from 1 up, but got 0"),
        (
            lambda: replace(GreedyTree(), depth=2.0),
            "depth must be a whole number from 1 up, but got 2.0",
        ),
        (lambda: GreedyTree(seed=-1), "seed must be a whole number from 0 up, but got -1"),
        (lambda: GradientBoosting(0), "n_trees must be a whole number from 1 up, but got 0"),
        (
            lambda: replace(GradientBoosting(), depth=None),
            "depth must be a whole number from 1 up, but got None",
        ),
        (
            lambda: GradientBoosting(learning_rate=-0.1),
            "learning_rate must be a positive number, but got -0.1",
        ),
        (
            lambda: Lasso(0.1, TREE).predict(noisy(TREE)),
            "functions of a DecisionTree are linear in no fixed features",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(make, match):
    with pytest.raises(InputError, match=match) as refused:
        make()
    assert "\n" not in str(refused.value)


# Without scikit-learn -----------------------------------------------------------------------------


def check_refused(predictor):
    with pytest.raises(
        InputError, match="needs scikit-learn, which is not installed: pip install scikit-l"
    ) as error:
        predictor.predict(noisy())
    assert str(error.value).startswith(type(predictor).__name__)
    assert "\n" not in str(error.value)


def check_global_generator_is_left_alone(run):
    before = np.random.get_state()  # noqa: NPY002
    run()
    after = np.random.get_state()  # noqa: NPY002
    assert np.array_equal(before[1], after[1])
    assert before[2:] == after[2:]


@pytest.mark.parametrize(
    "predictor", [Lasso(0.1), GreedyTree(), GradientBoosting(1)], ids=lambda p: p.name
)
def test_the_global_generator_is_left_alone(predictor):
    check_global_generator_is_left_alone(lambda: predictor.predict(noisy()))
    must_fail(check_global_generator_is_left_alone, lambda: np.random.rand())  # noqa: NPY002


@pytest.mark.parametrize(
    "predictor", [Lasso(0.1), GreedyTree(), GradientBoosting(1)], ids=lambda p: p.name
)
def test_without_scikit_learn_one_line_says_how_to_get_it(predictor, monkeypatch):
    must_fail(check_refused, predictor)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    check_refused(predictor)


def test_without_scikit_learn_those_algorithms_are_left_out_with_a_line(monkeypatch, caplog):
    with caplog.at_level(logging.INFO, "icl_interp"):
        everything = classical(SPARSE), classical(TREE)
        assert caplog.messages == []
        monkeypatch.setitem(sys.modules, "sklearn", None)
        rest = classical(SPARSE), classical(TREE)
        assert [message.split(" left out")[0] for message in caplog.messages] == ["lasso", "trees"]
        assert all("pip install scikit-learn" in message for message in caplog.messages)
        classical(LinearRegression(n_dims=2, n_points=4))
        assert len(caplog.messages) == 2
    missing = [set(a) - set(b) for a, b in zip(everything, rest, strict=True)]
    assert [len(names) for names in missing] == [5, 4]
    assert all("lasso" in name for name in missing[0])
    assert all("greedy tree" in name or "boosting" in name for name in missing[1])


STEPS = """
import sys, torch
from icl_interp import baselines, tasks
task = tasks.SparseLinearRegression(n_dims=3, n_points=4)
baselines.classical(task)
print("sklearn" in sys.modules)
baselines.Lasso(0.1).predict(task.sample(1, torch.Generator()))
print("sklearn" in sys.modules)
"""


@pytest.mark.slow
def test_scikit_learn_is_imported_when_something_is_predicted():
    done = subprocess.run(
        [sys.executable, "-c", STEPS], timeout=120, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "True"]
