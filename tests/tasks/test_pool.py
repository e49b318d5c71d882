"""A finite pool of functions, for every task: drawn, asked apart, saved and refused."""

import json
import sys
from dataclasses import dataclass, replace

import pytest
import tiny_runs
import torch
from helpers import must_fail

from icl_interp import cli
from icl_interp.checkpoints.config import parse_task
from icl_interp.errors import InputError
from icl_interp.provenance import encode, generator, run_id
from icl_interp.tasks import (
    AutoregressiveProcess,
    Continuous,
    DecisionTree,
    LinearRegression,
    Normal,
    Polynomial,
    ReLUNetwork,
    Rescaled,
    RidgeFunction,
    SparseLinearRegression,
    Sphere,
    Uniform,
)
from icl_interp.tasks import pool as pools

LINEAR = LinearRegression(n_dims=3, n_points=6, noise_std=0.5, n_tasks=5, pool_seed=2)
LAWS = {"inputs": Uniform(-1, 1), "n_points": 6}
TASKS = (
    LINEAR,
    Polynomial(degrees=(0, 2), coefficients=Normal(1.0), **LAWS, n_tasks=5),
    Continuous(function="sin", amplitude=Uniform(1, 2), **LAWS, n_tasks=5),
    SparseLinearRegression(n_dims=4, sparsity=2, n_points=6, n_tasks=5),
    ReLUNetwork(n_dims=2, hidden=3, n_points=6, n_tasks=5),
    DecisionTree(n_dims=3, depth=2, n_points=6, n_tasks=5),
    RidgeFunction(inputs=Sphere(3), link="relu", n_points=6, n_tasks=5),
    AutoregressiveProcess(n_dims=3, matrices="orthogonal", n_points=6, n_tasks=5),
    Rescaled.of(LINEAR, 2.0, 1.0),
)


def in_pool(task, parameters):
    """For each row whether it is one of the pool."""
    return (task.pool.to(parameters.dtype)[None] == parameters[:, None]).all(-1).any(1)


def check_functions_are_those_of_the_pool(task, asked):
    prompts = asked.sample(200, generator(0, "test"), n_contexts=2)
    assert in_pool(task, prompts.parameters).all()
    assert len(prompts.parameters.unique(dim=0)) == task.n_tasks


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_samples_hold_the_functions_of_the_pool_and_fresh_ones_hold_none(task):
    check_functions_are_those_of_the_pool(task, task)
    assert not in_pool(task, task.fresh().sample(200, generator(0, "test")).parameters).any()
    must_fail(check_functions_are_those_of_the_pool, task, task.fresh())
    must_fail(check_functions_are_those_of_the_pool, task, replace(task, pool_seed=9))


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_a_pool_is_in_the_config_and_in_the_identity_of_a_run(task):
    data = encode(task)
    assert (data["n_tasks"], data.get("pool_seed", 0)) == (5, task.pool_seed)
    back = parse_task(data, "test")
    assert back == task
    assert torch.equal(back.pool, task.pool)
    assert run_id(task) != run_id(replace(task, pool_seed=7)) != run_id(task.fresh())


def test_a_task_without_a_pool_is_saved_as_ever():
    data = encode(LINEAR.fresh())
    assert not {"n_tasks", "pool_seed"} & set(data)
    assert LINEAR.fresh() == replace(LINEAR, n_tasks=None, pool_seed=0)


def test_functions_are_equally_likely():
    def check(task, n=4000):
        drawn = task.sample(n, generator(1, "test")).parameters
        counts = (drawn[:, None] == LINEAR.pool.float()).all(-1).sum(0)
        spread = (n * 0.2 * 0.8) ** 0.5
        assert ((counts - n / 5).abs() < 4 * spread).all()

    check(LINEAR)
    must_fail(check, replace(LINEAR, n_tasks=4))


def test_the_mean_is_that_of_the_pool():
    def check(mean, n=4000):
        xs = torch.linspace(-2, 2, 12, dtype=torch.float64).view(1, 4, 3)
        drawn = LINEAR.draw_parameters(n, generator(2, "test"), torch.float64)
        values = LINEAR.targets(drawn, xs.expand(n, -1, -1))
        error = values.std(0) / n**0.5
        assert ((mean(xs)[0] - values.mean(0)).abs() < 4 * error).all()

    check(LINEAR.expected)
    must_fail(check, LINEAR.fresh().expected)  # that of the law, 0
    assert not LINEAR.centred
    assert not LINEAR.single_function
    assert replace(LINEAR, n_tasks=1).single_function


def test_the_mean_in_other_units_is_that_of_the_pool():
    xs = torch.linspace(-2, 2, 12, dtype=torch.float64).view(1, 4, 3)
    torch.testing.assert_close(TASKS[-1].expected(xs), 2 * LINEAR.expected(xs) + 1)


def test_a_pool_has_no_pairs():
    assert LINEAR.fresh().paired
    assert not LINEAR.paired
    with pytest.raises(InputError, match="a finite pool holds no partner"):
        LINEAR.sample_pairs(2, generator(0, "test"))


def test_a_pool_is_drawn_once_for_each_task(monkeypatch):
    made = []
    real = pools._drawn
    monkeypatch.setattr(pools, "_drawn", lambda *given: made.append(given) or real(*given))
    task = replace(LINEAR)
    assert torch.equal(task.pool, task.pool)
    assert len(made) == 1


@dataclass(frozen=True, kw_only=True)
class OwnSample(Polynomial):
    """Draws prompts in its own way."""

    def sample(self, n_functions, generator, *, n_contexts=1, n_points=None, dtype=torch.float32):
        return super().sample(n_functions, generator, n_contexts=n_contexts, n_points=n_points)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: replace(LINEAR, n_tasks=0), "n_tasks"),
        (lambda: parse_task({**encode(LINEAR), "n_tasks": 2.5}, "test"), "n_tasks"),
        (lambda: replace(LINEAR, n_tasks=True), "n_tasks"),
        (lambda: replace(LINEAR, n_tasks=10**12), "n_tasks"),
        (lambda: replace(LINEAR, pool_seed=-1), "pool_seed"),
        (lambda: replace(LINEAR, n_tasks=None), "give both or neither"),
        (lambda: replace(LINEAR, n_tasks=10**8).pool, "choose at most n_tasks = 33,333,333"),
        (lambda: LINEAR.fresh().pool, "has no pool"),
        (lambda: Rescaled(task=LINEAR, inputs=Normal(1.0), n_points=6), "Rescaled.of"),
        (
            lambda: OwnSample(degrees=(1,), coefficients=Normal(1.0), **LAWS, n_tasks=3),
            "leave out n_tasks",
        ),
    ],
)
def test_what_is_no_pool_is_refused_in_one_line(make, words):
    with pytest.raises(InputError, match=words) as refused:
        make()
    assert "\n" not in str(refused.value)


def command(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["icl-interp", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code, *capsys.readouterr()


def test_the_command_line_trains_on_a_pool_and_asks_about_both(tmp_path, monkeypatch, capsys):
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(json.dumps(tiny_runs.data()))  # which is YAML, too
    folder = tmp_path / "run"
    changes = ("task.n_tasks=2", "task.pool_seed=3")
    code, _, error = command(monkeypatch, capsys, "train", recipe, "--out", folder, *changes)
    assert code == 0, error
    asked = ("evaluate", folder, "--functions", 8, "--contexts", 2)
    old, new = (command(monkeypatch, capsys, *asked, *m) for m in ((), ("--new-functions",)))
    assert old[0] == new[0] == 0
    assert old[1] != new[1]
    code, _, error = command(
        monkeypatch, capsys, "evaluate", "affine", "--functions", 2, "--new-functions"
    )
    assert code == 2
    assert "leave the option out" in error
    code, _, error = command(
        monkeypatch, capsys, "train", recipe, "--out", tmp_path / "other", "task.n_tasks=none"
    )
    assert code == 2
    assert "n_tasks must be a whole number" in error
    assert len(error.strip().splitlines()) == 1
