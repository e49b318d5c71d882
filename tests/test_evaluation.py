"""Evaluation: errors whose values are known in closed form, what is scored, and flat memory."""

import math
import weakref
from typing import ClassVar

import numpy as np
import pytest
import tiny_runs
import torch
from helpers import must_fail
from tables import row_of

from icl_interp import evaluation
from icl_interp.baselines import LeastSquares, Zero
from icl_interp.errors import InputError
from icl_interp.evaluation import evaluate, function_errors
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.results import to_dict
from icl_interp.tasks import Continuous, LinearRegression, Normal, Polynomial, Uniform

AFFINE = Polynomial(degrees=(1,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=6)


class Own:
    """A predictor made of a function of the prompts."""

    def __init__(self, predict):
        self.predict = predict


def errors_of(predictor, task, **settings):
    settings = {"n_functions": 4000, "n_contexts": 2, "seed": 0, **settings}
    return function_errors({"own": predictor}, task, **settings)["own"]


def check_zero(task, second_moment, **settings):
    """Zero's error is E y^2, within 4 standard errors over independent functions."""
    errors = errors_of(Zero(), task, **settings)
    assert abs(errors.mean() - second_moment) < 4 * errors.std(ddof=1) / math.sqrt(len(errors))


NORMAL = Polynomial(degrees=(1,), inputs=Normal(2), coefficients=Normal(0.5), n_points=6)
# E (a_0 + a_1 x + ... + a_n x^n)^2 = E a^2 (1 + E x^2 + ... + E x^2n) for independent centred
# coefficients.
SECOND_MOMENTS = [
    (AFFINE, 1 / 9 + 1 / 3),
    (NORMAL, 0.25 * (1 + 4)),
    (AFFINE.with_degrees((0,)), 1 / 3),
    (AFFINE.with_degrees((3,)), (1 + 1 / 3 + 1 / 5 + 1 / 7) / 3),
    (AFFINE.with_degrees((0, 1)), (1 / 3 + 1 / 9 + 1 / 3) / 2),
    (AFFINE.scaled(5), 25 * (1 / 9 + 1 / 3)),
    (Continuous(function="exp", inputs=Uniform(-1, 1), n_points=4), math.sinh(2) / 2),
]


@pytest.mark.parametrize(("task", "second_moment"), SECOND_MOMENTS)
def test_error_of_zero_is_the_second_moment(task, second_moment):
    check_zero(task, second_moment)
    check_zero(task, second_moment, last=True)
    must_fail(check_zero, task, 1.1 * second_moment)


def test_another_law_has_another_second_moment():
    must_fail(check_zero, AFFINE.scaled(1.1), 1 / 9 + 1 / 3)
    must_fail(check_zero, AFFINE.with_degrees((2,)), 1 / 9 + 1 / 3)


def check_exact(predictor, task):
    assert errors_of(predictor, task, n_functions=200).max() < 1e-15


def test_least_squares_makes_no_error_without_noise():
    check_exact(LeastSquares(AFFINE), AFFINE)
    must_fail(check_exact, LeastSquares(AFFINE.with_degrees((0,))), AFFINE)
    must_fail(check_exact, Zero(), AFFINE)


def off_at(point, by=3.0):
    def predict(prompts):
        out = prompts.ys.clone()
        out[:, point] += by
        return out

    return Own(predict)


def test_only_what_the_prompt_determines_is_scored():
    for guess in range(AFFINE.n_determining):
        assert errors_of(off_at(guess), AFFINE, n_functions=3).max() == 0
    for point in range(AFFINE.n_determining, AFFINE.n_points):
        np.testing.assert_allclose(errors_of(off_at(point), AFFINE, n_functions=3), 9 / 4)
        scored_last = errors_of(off_at(point), AFFINE, n_functions=3, last=True)
        np.testing.assert_allclose(scored_last, 9 if point == AFFINE.n_points - 1 else 0)


def test_points_left_at_nan_are_not_scored():
    def query_only(prompts):
        out = torch.full_like(prompts.ys, torch.nan)
        out[:, -1] = 0
        return out

    last = errors_of(Zero(), AFFINE, n_functions=50, last=True)
    np.testing.assert_allclose(errors_of(Own(query_only), AFFINE, n_functions=50), last, rtol=1e-12)
    assert not np.allclose(errors_of(Zero(), AFFINE, n_functions=50), last)


def test_one_nan_among_predictions_is_an_error_that_is_not_known():
    def once(prompts):
        out = prompts.ys.clone()
        out[(prompts.function == 1).nonzero()[0], 4] = torch.nan
        return out

    np.testing.assert_array_equal(errors_of(Own(once), AFFINE, n_functions=3), [0, np.nan, 0])


def test_what_never_predicts_has_no_error_rather_than_none():
    assert np.isnan(
        errors_of(Own(lambda p: torch.full_like(p.ys, torch.nan)), AFFINE, n_functions=3)
    ).all()


def seen_by(task, **settings):
    """Every batch that a predictor meets, and the errors reported for it."""
    batches = []

    def predict(prompts):
        batches.append(prompts)
        return prompts.xs - 0.5

    return batches, errors_of(Own(predict), task, **settings)


def check_chunks(n_functions, n_contexts, limit):
    """Errors equal those of one numpy pass over all prompts, and no batch exceeds the limit."""
    batches, errors = seen_by(AFFINE, n_functions=n_functions, n_contexts=n_contexts)
    xs, ys = (np.concatenate([getattr(b, name).numpy() for b in batches]) for name in ("xs", "ys"))
    squared = ((xs - 0.5 - ys) ** 2)[:, 2:].reshape(n_functions, -1)
    np.testing.assert_allclose(errors, squared.mean(1), rtol=1e-12)
    assert len(errors) == n_functions
    assert len(np.unique(xs)) == xs.size, "chunks repeat their prompts"
    assert max(map(len, batches)) <= limit


@pytest.mark.parametrize(("n_functions", "n_contexts"), [(7, 1), (7, 3), (16, 4), (5, 16), (17, 5)])
def test_chunks_leave_the_numbers_alone(monkeypatch, n_functions, n_contexts):
    monkeypatch.setattr(evaluation, "CHUNK", 16)
    check_chunks(n_functions, n_contexts, 16)
    if n_functions * n_contexts > 16:
        must_fail(check_chunks, n_functions, n_contexts, 8)


def test_chunks_that_repeat_their_stream_are_noticed(monkeypatch):
    monkeypatch.setattr(evaluation, "CHUNK", 16)
    monkeypatch.setattr(
        evaluation, "generator", lambda seed, stream, start: generator(seed, stream)
    )
    must_fail(check_chunks, 17, 5, 16)


class Recording(Polynomial):
    """Remembers its draws weakly, or for good."""

    drawn: ClassVar[list] = []
    hoard: ClassVar[list] = []
    hoarding: ClassVar[bool] = False

    def sample(self, *args, **kwargs):
        prompts = super().sample(*args, **kwargs)
        self.drawn.append(weakref.ref(prompts))
        if self.hoarding:
            self.hoard.append(prompts)
        return prompts


class Hoarding(Recording):
    hoarding = True


def check_memory(cls):
    """While prompts are predicted, no chunk drawn earlier is alive."""
    cls.drawn.clear()
    task = cls(degrees=(1,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=6)

    def predict(prompts):
        assert sum(chunk() is not None for chunk in cls.drawn) == 1
        return prompts.ys

    errors_of(Own(predict), task, n_functions=40, n_contexts=4)
    assert len(cls.drawn) == 10


def test_memory_stays_flat_however_many_prompts(monkeypatch):
    monkeypatch.setattr(evaluation, "CHUNK", 16)
    check_memory(Recording)
    must_fail(check_memory, Hoarding)


def check_batches(limit):
    """No more than `limit` prompts are predicted at once, and how many makes no difference."""
    batches, errors = seen_by(AFFINE, n_functions=7, n_contexts=30)
    assert max(map(len, batches)) <= limit
    assert sum(map(len, batches)) == 210
    return errors


def test_a_predictor_gets_few_prompts_at_once(monkeypatch):
    whole = check_batches(evaluation.BATCH)
    must_fail(check_batches, 16)
    monkeypatch.setattr(evaluation, "BATCH", 16)
    np.testing.assert_allclose(check_batches(16), whole, rtol=1e-12)


def check_table(table, errors, second_moment):
    """Every column from the errors of the functions, by its definition."""
    best, zero = errors["least squares"].mean(), errors["zero"].mean()
    assert table["predictor"].tolist() == ["model", "least squares", "zero"]
    for name, of_functions in errors.items():
        row = row_of(table, predictor=name)
        assert row["error"] == pytest.approx(of_functions.mean(), rel=1e-12)
        assert row["error_rate"] == pytest.approx(of_functions.mean() / abs(best - zero), rel=1e-12)
        assert row["r2"] == pytest.approx(1 - of_functions.mean() / second_moment, rel=1e-12)
        assert row["low"] <= row["error"] <= row["high"]


def test_every_column_follows_its_definition():
    model = Own(lambda prompts: 0.7 * LeastSquares(AFFINE).predict(prompts))
    settings = {"n_functions": 60, "n_contexts": 4, "seed": 3}
    predictors = {"model": model, "least squares": LeastSquares(AFFINE), "zero": Zero()}
    errors = function_errors(predictors, AFFINE, **settings)
    sample = torch.cat([prompts.ys[:, 2:] for prompts in evaluation.Sample(AFFINE, 60, 4, 3)])
    second = float(sample.square().mean())
    table = evaluate(model, AFFINE, **settings)
    check_table(table, errors, second)
    model_row, zero_row = row_of(table, predictor="model"), row_of(table, predictor="zero")
    # (0.7 y - y)^2 is 9 % of y^2; zero misses all of it.
    assert model_row["error_rate"] == pytest.approx(0.09)
    assert model_row["r2"] == pytest.approx(0.91)
    assert (zero_row["r2"], zero_row["error_rate"]) == (pytest.approx(0), pytest.approx(1))
    must_fail(
        check_table,
        evaluate(Own(lambda p: 0.8 * LeastSquares(AFFINE).predict(p)), AFFINE, **settings),
        errors,
        second,
    )
    must_fail(check_table, evaluate(model, AFFINE, **{**settings, "seed": 4}), errors, second)


def test_the_same_seed_gives_the_same_table():
    def table(seed):
        return to_dict(evaluate(Zero(), AFFINE, n_functions=20, n_contexts=2, seed=seed))["columns"]

    assert table(1) == table(1)
    assert table(1) != table(2)


def test_a_checkpoint_is_evaluated_on_its_own_task_also_by_its_path(tmp_path):
    checkpoint = tiny_runs.checkpoint()
    folder = checkpoint.save(tmp_path / "run")
    settings = {"n_functions": 8, "n_contexts": 2}
    tables = [evaluate(source, **settings) for source in (checkpoint, folder, str(folder))]
    assert to_dict(tables[0]) == to_dict(tables[1]) == to_dict(tables[2])
    assert "points 3..5 of 8 functions x 2 contexts" in tables[0].attrs["note"]
    elsewhere = evaluate(checkpoint, checkpoint.task.with_points(4), **settings)
    assert "points 3..4 " in elsewhere.attrs["note"]
    assert (
        "points 4..4 "
        in evaluate(checkpoint, checkpoint.task.with_points(4), last=True, **settings).attrs["note"]
    )


def test_a_model_that_predicts_the_query_only_is_scored_there():
    checkpoint = tiny_runs.checkpoint(**tiny_runs.STACKED)
    errors = {
        last: errors_of(checkpoint, checkpoint.task, n_functions=8, last=last)
        for last in (False, True)
    }
    assert np.isfinite(errors[True]).all()
    np.testing.assert_allclose(errors[False], errors[True], rtol=1e-12)


def test_what_stands_in_provenance():
    checkpoint = tiny_runs.checkpoint()
    found = evaluation.in_distribution(checkpoint, checkpoint.task)
    learned = {f"{name}{end}" for name in ("r2", "learned") for end in ("", "_low", "_high")}
    assert (
        set(found)
        == {"error", "low", "high", "error_rate", "least squares", "zero", "note"} | learned
    )
    assert found["least squares"] < 1e-15 < found["zero"]
    assert found["low"] < found["error"] < found["high"]


def same_errors(one, other):
    for column in ("error", "low", "high", "r2"):
        np.testing.assert_array_equal(one[column], other[column])


def test_a_bare_model_is_evaluated_like_its_checkpoint():
    few = {"n_functions": 6, "n_contexts": 2}
    for whole in (tiny_runs.checkpoint(), tiny_runs.checkpoint(**tiny_runs.STACKED)):
        expected = evaluate(whole, **few)
        same_errors(evaluate(whole.model, whole.task, **few), expected)
        same_errors(
            evaluate(whole.model, whole.task, encoding=whole.config.encoding, **few), expected
        )
        other = HookedTransformer(whole.model.cfg, seed=8).eval()
        must_fail(same_errors, evaluate(other, whole.task, **few), expected)
        shift = (
            evaluation.shifted({"model": whole.model}, whole.task, (1.0,), **few)
            .sel(predictor="model")
            .values
        )
        np.testing.assert_allclose(shift.mean(), expected["error"][0], rtol=1e-12)
        table = evaluation.heatmap(whole.model, whole.task, (1.0,), **few)
        np.testing.assert_allclose(table.values.mean(), expected["error"][0], rtol=1e-12)


def test_the_encoding_of_a_checkpoint_may_be_named():
    """A model of two numbers a token reads 2 coordinates interleaved, or 1 coordinate stacked."""
    whole = tiny_runs.checkpoint(**tiny_runs.STACKED)
    planar = LinearRegression(n_dims=2, n_points=5)
    few = {"n_functions": 6, "n_contexts": 2}
    found = evaluate(whole, planar, encoding="interleaved", **few)
    same_errors(found, evaluate(whole.model, planar, **few))
    with pytest.raises(
        InputError, match="stacked prompts with inputs of 2 coordinates have d_in=3"
    ):
        evaluate(whole, planar, encoding="stacked", **few)


@pytest.mark.parametrize(
    ("predictor", "match"),
    [
        (
            torch.nn.Linear(1, 1),
            "TransformerLens' hook names and a cfg, but got Linear; .* predict",
        ),
        (3.0, "a predictor is a Checkpoint, .* predict.*but got a float"),
        (lambda prompts: prompts.ys, r"a predictor is a function of \(xs, ys, x_query\), but"),
        (Zero, "a predictor is a Checkpoint, .*but got the class Zero"),
        (None, "a predictor is a Checkpoint, .*but got a NoneType"),
    ],
)
def test_what_does_not_predict_is_refused_in_one_line(predictor, match):
    for call in (
        lambda: evaluate(predictor, AFFINE),
        lambda: evaluation.shifted({"mine": predictor}, AFFINE, (1.0,)),
        lambda: evaluation.heatmap(predictor, AFFINE, (1.0,)),
    ):
        with pytest.raises(InputError, match=match) as caught:
            call()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: evaluate(Zero()), "brings no task: pass task="),
        (
            lambda: evaluate(Zero(), AFFINE, encoding="stacked"),
            "encoding= is for models; a Zero reads",
        ),
        (lambda: evaluate(tiny_runs.checkpoint().model), "this predictor brings no task"),
        (
            lambda: evaluate(Zero(), AFFINE.with_points(2)),
            "prompts of 2 points leave none to score: 2 points determine",
        ),
        (lambda: evaluate("no/such/run"), "no such path or bundled model: 'no/such/run'"),
        (
            lambda: evaluate(Zero(), AFFINE, n_functions=0),
            "n_functions must be a whole number from 1 to .* but got 0",
        ),
        (
            lambda: evaluate(Zero(), AFFINE, n_contexts=-2),
            "n_contexts must be a whole number from 1 to .* but got -2",
        ),
    ],
)
def test_what_can_not_be_evaluated_is_refused(call, match):
    with pytest.raises(InputError, match=match):
        call()
