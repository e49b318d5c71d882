"""Every number of every task and law is checked before anything is computed with it."""

import dataclasses
import json

import numpy as np
import pytest
import tiny_runs
from helpers import must_fail

from icl_interp import tasks
from icl_interp.checkpoints.config import Curriculum, RunConfig, TrainingConfig, parse
from icl_interp.errors import InputError, is_real, real
from icl_interp.provenance import encode, generator
from icl_interp.tasks import Normal, Uniform, garg, registry
from icl_interp.tasks.base import Task
from icl_interp.tasks.covariance import MAX_ROWS
from icl_interp.tasks.rescaled import Rescaled
from icl_interp.training import recipes, trainer

pytestmark = pytest.mark.usefixtures("as_users_run_it")

U, N = Uniform(-1, 1), Normal(1)
POLYNOMIAL = tasks.Polynomial(degrees=(1,), inputs=U, coefficients=U, n_points=6)
SPHERE = tasks.Sphere(3)
MADE = [
    POLYNOMIAL,
    tasks.Continuous(function="exp", inputs=U, amplitude=N, n_points=6),
    U,
    N,
    tasks.LinearRegression(n_dims=2, covariance=(1.0, 2.0), n_points=6),
    tasks.Exponential(1.0),
    tasks.LogNormal(1.0),
    tasks.SparseLinearRegression(n_dims=4, sparsity=2, n_points=6),
    tasks.ReLUNetwork(n_dims=2, hidden=3, n_points=6),
    tasks.DecisionTree(n_dims=2, depth=2, n_points=6),
    tasks.RidgeFunction(inputs=SPHERE, link="cosine", frequency=2.0, n_points=6),
    tasks.AutoregressiveProcess(n_dims=2, matrices="unitary", noise_std=0.1, n_points=6),
    SPHERE,
    tasks.Ellipsoid((1.0, 2.0)),
    Rescaled.of(POLYNOMIAL, scale=2.0),
]
FIELDS = [(one, field.name) for one in MADE for field in dataclasses.fields(one)]
STRANGE = [
    "6",
    None,
    [],
    {},
    -1,
    0,
    1.5,
    True,
    float("nan"),
    float("inf"),
    10**400,
    -(10**400),
    2**63,
    1e308,
    5e-324,
]
STRANGE += [
    [[1]],
    ("a",),
    (None,),
    [10**400],
    1j,
    b"x",
    object(),
    Uniform,
    N,
    abs,
    np.array([1.0, 2.0]),
    "x\x1b",
]


def refused_or_works(make):
    """One printable line, or something that draws numbers."""
    message = None
    try:
        made = make()
        if isinstance(made, Task) and made.n_points < 1000:
            made.sample(2, generator(0, "test"))
    except InputError as error:
        message = str(error)
    assert message is None or (message.isprintable() and len(message) < 600)
    return message is None


def test_every_class_is_here():
    assert {type(one).__name__ for one in MADE} == set(registry.BUNDLED) | {"Rescaled"}


@pytest.mark.parametrize(
    ("one", "name"), FIELDS, ids=[f"{type(o).__name__}.{n}" for o, n in FIELDS]
)
def test_a_strange_value_is_refused_in_a_line_or_works(one, name):
    works = [
        refused_or_works(lambda value=value: dataclasses.replace(one, **{name: value}))
        for value in STRANGE
    ]
    assert sum(works) < len(works) / 2
    assert refused_or_works(lambda: dataclasses.replace(one, **{name: getattr(one, name)}))


def test_a_class_without_the_check_would_be_noticed(monkeypatch):
    monkeypatch.setattr("icl_interp.tasks.base.whole", lambda value, *_: value)
    monkeypatch.setattr("icl_interp.tasks.base.is_real", lambda value: True)
    with pytest.raises(TypeError):
        refused_or_works(lambda: dataclasses.replace(POLYNOMIAL, n_points="6"))


@pytest.mark.parametrize("value", ["6", None, 2.0, True, [6], float("nan"), 10**400])
def test_the_number_of_points_is_a_whole_one(value):
    with pytest.raises(
        InputError, match=r"n_points (must be a whole number from 2 up|counts the query too)"
    ):
        dataclasses.replace(POLYNOMIAL, n_points=value)


def test_numbers_of_numpy_are_numbers():
    assert dataclasses.replace(POLYNOMIAL, n_points=np.int64(7)).n_points == 7
    assert Uniform(np.float32(-1), np.float64(1)).mean == 0
    assert [
        is_real(v) for v in (1, 1.5, np.float32(1), True, "1", None, float("nan"), 10**400, 1j)
    ] == [True] * 3 + [False] * 6
    with pytest.raises(InputError, match="a must be a number above 0, but got 0"):
        real(0, "a", 0, above=True)


@pytest.mark.parametrize("field", dataclasses.fields(TrainingConfig), ids=lambda field: field.name)
def test_so_is_every_number_of_a_training(field):
    works = 0
    for value in [v for v in STRANGE if v is not None]:
        works += refused_or_works(
            lambda value=value: TrainingConfig(**{"steps": 9, field.name: value})
        )
    assert works < len(STRANGE) / 2


@pytest.mark.parametrize("field", dataclasses.fields(Curriculum), ids=lambda field: field.name)
def test_and_of_a_curriculum(field):
    assert (
        sum(
            refused_or_works(lambda value=value: Curriculum(**{field.name: value}))
            for value in STRANGE
        )
        < 5
    )


# ---- sizes that cost more than a look ------------------------------------------------------------


def run(task, **model):
    return parse(
        {**tiny_runs.data(), "task": task, "model": {**tiny_runs.data()["model"], **model}}
    )


def test_many_rows_are_refused_before_they_are_made(monkeypatch):
    """Which takes as long as the cube of their number: 13 seconds for 3,000."""
    made = []
    monkeypatch.setattr("icl_interp.tasks.regression.skewed_covariance", lambda n: made.append(n))
    with pytest.raises(
        InputError, match=f"covariance has 3000 rows, but at most {MAX_ROWS} can stand in a config"
    ):
        run(
            {"kind": "LinearRegression", "n_dims": 3000, "covariance": "skewed", "n_points": 5},
            d_in=3000,
        )
    assert made == []


def test_the_eigenvalues_of_a_diagonal_are_its_numbers(monkeypatch):
    """Those of 5,000 took 16 seconds, however the recipe went on."""
    monkeypatch.setattr(
        "torch.linalg.eigvalsh", lambda matrix: pytest.fail("they are computed", pytrace=False)
    )
    many = tasks.RidgeFunction(inputs=tasks.Sphere(5000), link="linear", n_points=5)
    assert many.dim == 5000
    with pytest.raises(InputError, match="sigma has no inverse in float64"):
        dataclasses.replace(many, inputs=tasks.Sphere(2), sigma=(1.0, 1e-13))
    with pytest.raises(pytest.fail.Exception):
        dataclasses.replace(many, inputs=tasks.Sphere(2), sigma=((1.0, 0.1), (0.1, 1.0)))


def test_a_run_that_could_not_be_scored_is_refused_before_it_is_trained(tmp_path, monkeypatch):
    """And not once its last step is done."""
    monkeypatch.setattr(
        trainer.Run, "_advance", lambda self: pytest.fail("it trains", pytrace=False)
    )
    config = recipes.resolve(tiny_runs.data(task={**tiny_runs.data()["task"], "degrees": [100]}))
    with pytest.raises(InputError, match="leave none to score: 101 points determine the function"):
        trainer.train(config, tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
    must_fail(trainer.train, recipes.resolve(tiny_runs.data()), tmp_path / "other", progress=False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"degrees": [10**9]}, "degrees must be at most 1,000,000, but got 1000000000"),
        ({"degrees": [10**400]}, "degrees must be at most 1,000,000"),
    ],
)
def test_functions_of_too_many_numbers_are_refused(change, words):
    with pytest.raises(InputError, match=words):
        dataclasses.replace(POLYNOMIAL, **change)
    with pytest.raises(
        InputError, match="more than the 1,000,000 weights that a function may have"
    ):
        garg.ReLUNetwork(n_dims=2, hidden=10**9, n_points=5)


def test_what_was_made_before_is_made_still():
    for one in MADE:
        if isinstance(one, Task) and not isinstance(one, Rescaled):
            json.dumps(encode(one))
    assert isinstance(recipes.resolve("affine"), RunConfig)
