"""Laws and settings out of range are one clear line, not infinities or errors from LAPACK."""

import pytest
import tiny_runs
from helpers import must_fail

import icl_interp
from icl_interp.baselines import Zero
from icl_interp.checkpoints.config import parse
from icl_interp.errors import InputError
from icl_interp.evaluation import evaluate
from icl_interp.models import tokens
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.tasks import (
    Continuous,
    Exponential,
    LinearRegression,
    LogNormal,
    Normal,
    Polynomial,
    Uniform,
)
from icl_interp.tasks.covariance import MAX_ROWS
from icl_interp.tasks.regression import moment

WIDE = {"kind": "Uniform", "low": -1e30, "high": 1e30}


def polynomial(**changes):
    laws = {"inputs": Uniform(-1, 1), "coefficients": Uniform(-1, 1)}
    return Polynomial(**{"degrees": (1,), "n_points": 8, **laws, **changes})


def regression(**changes):
    return LinearRegression(**{"n_dims": 2, "n_points": 8, **changes})


def refuses(make, match):
    with pytest.raises(InputError, match=match) as caught:
        make()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (
            lambda: polynomial(degrees=(True,)),
            r"degrees must be whole numbers .* but got \(True,\)",
        ),
        (lambda: regression(weights=(0.0, 0.0)), "weights must not all be 0"),
        (
            lambda: regression(query=(0, 0.0)),
            "query must not all be 0: without noise the query's label would be 0",
        ),
        (
            lambda: Continuous(function="exp", inputs=Uniform(-1000, 1000), n_points=8),
            "exp is not finite on Uniform",
        ),
        (
            lambda: Continuous(function="exp", inputs=Normal(500.0), n_points=8),
            "exp is not finite on Normal",
        ),
        (
            lambda: regression(covariance=LogNormal(30.0)).spectrum_moments(),
            r"order 2 of LogNormal.* beyond float64",
        ),
        (lambda: moment(Exponential(1e150), 3), "order 3 of Exponential"),
        (lambda: moment(Uniform(0, 1e200), 2), "order 2 of Uniform"),
        (lambda: moment(LogNormal(1.0, median=1e120), 3), "order 3 of LogNormal"),
    ],
)
def test_settings_out_of_range_are_refused(make, match):
    refuses(make, match)


def test_settings_in_range_are_not():
    polynomial(degrees=(1, 3))
    regression(weights=(0.0, 1.0), query=(0.0, -1.0))
    regression(weights=(0.0, 0.0), noise_std=1.0)
    for function in ("exp", "sin", "abs"):
        Continuous(function=function, inputs=Uniform(-700, 700), n_points=8)
    assert moment(LogNormal(5.0), 3) > 1e40


@pytest.mark.parametrize("size", [1e30, 1e200])
def test_numbers_whose_squares_overflow_are_refused_where_they_are_used(size, tmp_path):
    task = polynomial(coefficients=Uniform(-size, size))
    stream = generator(0, "test")
    refuses(
        lambda: task.sample(4, stream), r"values of this Polynomial reach .* overflow in float32"
    )
    refuses(
        lambda: polynomial(inputs=Uniform(-size, size)).sample(4, stream),
        "inputs of this Polynomial reach",
    )
    refuses(
        lambda: regression(inputs=Normal(size)).sample(4, stream),
        "inputs of this LinearRegression reach",
    )
    config = tiny_runs.config(task={"coefficients": {**WIDE, "low": -size, "high": size}})
    refuses(
        lambda: icl_interp.train(config, tmp_path, progress=False),
        "values of this Polynomial reach",
    )
    few = {"n_functions": 4, "n_contexts": 2}
    if size == 1e30:  # float64 can hold these squares
        assert evaluate(Zero(), task, **few)["error"][0] > 1e50
        must_fail(refuses, lambda: evaluate(Zero(), task, **few), "overflow")
    else:
        refuses(
            lambda: evaluate(Zero(), task, **few),
            "values of this Polynomial reach .* overflow in float64",
        )


def test_labels_of_zero_leave_r2_undefined():
    """Nothing to explain is no error: the table says NaN."""
    table = evaluate(
        Zero(),
        LinearRegression(n_dims=2, n_points=8, query=(1e-300, 0.0), inputs=Normal(1e-200)),
        n_functions=4,
        n_contexts=2,
        last=True,
    )
    assert table["error"].tolist() == [0.0] * 3
    assert all(value != value for value in table["r2"])


@pytest.mark.slow
def test_the_theory_of_a_law_without_moments_does_not_apply():
    task = {
        "kind": "LinearRegression",
        "n_dims": 2,
        "n_points": 5,
        "inputs": {"kind": "Normal", "std": 1.0},
        "covariance": {"kind": "LogNormal", "std": 30.0},
    }
    data = tiny_runs.data(model={"d_in": 2})
    run = parse({**data, "task": task})
    whole = tiny_runs.Checkpoint(
        HookedTransformer(run.model).eval(), run.task, tokens.named(run.encoding), run
    )
    report = icl_interp.analyze(whole, n_prompts=64, progress=False)
    assert [finding.error for finding in report.findings if finding.error] == []
    assert "moment of order 2" in report["linear_attention.random_covariance"].reason


# ---- a whole covariance --------------------------------------------------------------------------


def test_a_covariance_of_too_many_rows_is_refused_at_once():
    n = MAX_ROWS + 1
    matrix = ((0.0,) * n,) * n
    refuses(
        lambda: regression(n_dims=n, covariance=matrix),
        "covariance has 513 rows, but at most 512 can stand in",
    )
    task = {"kind": "LinearRegression", "n_dims": n, "covariance": [[0.0] * n] * n, "n_points": 5}
    refuses(
        lambda: parse({**tiny_runs.data(), "task": task}), r"config\.task: covariance has 513 rows"
    )
    LinearRegression(
        n_dims=MAX_ROWS + 1, covariance=(1.0,) * (MAX_ROWS + 1), n_points=5
    )  # a diagonal may be longer


def test_a_covariance_that_is_none_is_still_refused():
    asymmetric, singular = ((1.0, 0.5), (0.4, 1.0)), ((1.0, 1.0), (1.0, 1.0))
    for wrong in (((1.0, 2.0), (2.0, 1.0)), asymmetric, singular, ((-1.0, 0.0), (0.0, 1.0))):
        refuses(lambda wrong=wrong: regression(covariance=wrong), "symmetric positive definite")
    regression(covariance=((1.0, 0.5), (0.5, 1.0)))
    refuses(
        lambda: regression(n_dims=100, covariance=((1.0,) * 100,) * 100),
        "symmetric positive definite",
    )
