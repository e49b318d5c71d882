"""The tasks of `tasks/garg.py` through configs and run folders: written, read, trained on, loaded, evaluated."""

import json
import math
from dataclasses import replace

import pytest
import tiny_runs
import yaml
from helpers import must_fail

import icl_interp
from icl_interp.checkpoints.config import check_round_trip, parse
from icl_interp.errors import InputError
from icl_interp.evaluation import error_table, shifted
from icl_interp.provenance import encode
from icl_interp.tasks import (
    DecisionTree,
    LinearRegression,
    Normal,
    ReLUNetwork,
    SparseLinearRegression,
    Uniform,
    skewed_covariance,
)

TASKS = {
    "sparse": SparseLinearRegression(n_dims=3, sparsity=2, n_points=6),
    "network": ReLUNetwork(n_dims=3, hidden=4, readout=Uniform(-1, 1), n_points=6),
    "tree": DecisionTree(n_dims=3, depth=2, leaves=Normal(2.0), inputs=Uniform(-1, 1), n_points=6),
    "noisy": LinearRegression(n_dims=3, noise_std=1.0, n_points=6),
    "skewed": LinearRegression(n_dims=3, covariance=skewed_covariance(3), n_points=6),
}
YAML = {
    "sparse": "{kind: SparseLinearRegression, n_dims: 3, sparsity: 2, n_points: 6}",
    "network": "{kind: ReLUNetwork, n_dims: 3, hidden: 4, readout: {kind: Uniform, low: -1, high: "
    "1}, n_points: 6}",
    "tree": "{kind: DecisionTree, n_dims: 3, depth: 2, leaves: {kind: Normal, std: 2}, "
    "inputs: {kind: Uniform, low: -1, high: 1}, n_points: 6}",
    "noisy": "{kind: LinearRegression, n_dims: 3, noise_std: 1.0, n_points: 6}",
    "skewed": yaml.safe_dump(encode(TASKS["skewed"])),
}


def data(task):
    """A run as a config file has it."""
    return {**tiny_runs.data(model={"d_in": 3}), "task": task}


def check_read(text, task):
    run = parse(data(yaml.safe_load(text)))
    assert run.task == task
    check_round_trip(run)
    assert parse(json.loads(json.dumps(encode(run)))) == run


@pytest.mark.parametrize("name", TASKS)
def test_configs_say_them_and_give_them_back(name):
    check_read(YAML[name], TASKS[name])
    must_fail(check_read, YAML[name], TASKS[name].with_points(5))
    must_fail(check_read, yaml.safe_dump(encode(TASKS[name].scaled(2.0))), TASKS[name])


def test_defaults_are_those_of_the_work():
    for text, task in (
        (
            "{kind: SparseLinearRegression, n_dims: 3, n_points: 6}",
            SparseLinearRegression(n_dims=3, n_points=6),
        ),
        ("{kind: ReLUNetwork, n_dims: 3, n_points: 6}", ReLUNetwork(n_dims=3, n_points=6)),
        ("{kind: DecisionTree, n_dims: 3, n_points: 6}", DecisionTree(n_dims=3, n_points=6)),
    ):
        check_read(text, task)
    assert (
        SparseLinearRegression(n_dims=3, n_points=6).sparsity,
        ReLUNetwork(n_dims=3, n_points=6).hidden,
    ) == (3, 100)
    assert DecisionTree(n_dims=3, n_points=6).depth == 4


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (
            "{kind: SparseLinearRegression, n_dims: 3, sparsity: 4, n_points: 6}",
            "sparsity must be at most n_dims",
        ),
        (
            "{kind: SparseLinearRegression, n_dims: 3, sparse: 2, n_points: 6}",
            "did you mean 'sparsity'",
        ),
        (
            "{kind: SparseLinearRegresion, n_dims: 3, n_points: 6}",
            "did you mean 'SparseLinearRegression'",
        ),
        (
            "{kind: ReLUNetwork, n_dims: 3, hidden: 4.5, n_points: 6}",
            "hidden must be a whole number, but got 4.5",
        ),
        (
            "{kind: ReLUNetwork, hidden: 4, n_points: 6}",
            "lacks the key 'n_dims' that ReLUNetwork needs",
        ),
        (
            "{kind: DecisionTree, n_dims: 3, depth: 99, n_points: 6}",
            "depth must be a whole number from 1 to 12",
        ),
        ("{kind: DecisionTree, n_dims: 2, n_points: 6}", "have d_in=2, but the model has d_in=3"),
        (
            "{kind: DecisionTree, n_dims: 3, compared_with: [trees], n_points: 6}",
            "unknown key .*compared_with",
        ),
    ],
)
def test_configs_that_make_no_sense_are_refused(text, match):
    with pytest.raises(InputError, match=match) as refused:
        parse(data(yaml.safe_load(text)))
    assert "\n" not in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_a_model_is_trained_saved_loaded_and_evaluated(name, tmp_path):
    task = TASKS[name]
    run = parse(data(encode(task)))
    trained = icl_interp.train(run, tmp_path / "run", progress=False)
    loaded = icl_interp.load(trained.save(tmp_path / "saved"))
    tiny_runs.check_same_model(loaded, trained)
    must_fail(tiny_runs.check_same_model, loaded, replace(trained, task=task.scaled(2.0)))
    table = icl_interp.evaluate(loaded, n_functions=8, n_contexts=2)
    best = ["best ridge" if name == "noisy" else "least squares"] if task.has_features else []
    assert table["predictor"].tolist() == ["model", *best, "zero"]
    assert all(math.isfinite(value) and value > 0 for value in table["error"][[0, len(table) - 1]])
    assert f"points {task.n_determining + 1}..6" in table.attrs["note"]


@pytest.mark.parametrize("name", ["sparse", "network", "tree"])
def test_they_are_shifted(name):
    table = error_table(shifted({}, TASKS[name], (1.0, 3.0), n_functions=8, n_contexts=2))
    zero = table[table["predictor"] == "zero"]["error"].tolist()
    assert zero[1] == pytest.approx(9 * zero[0])
