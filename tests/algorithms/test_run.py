"""Which algorithm: on models of whose weights it is known, and on what runs none."""

import functools
import json

import numpy as np
import pytest
import torch
from helpers import must_fail

import icl_interp
from icl_interp.errors import InputError
from icl_interp.models import constructed
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.tasks import LinearRegression, Polynomial, Uniform

TASK = LinearRegression(n_dims=4, n_points=13)
DIAGONAL = torch.tensor([0.1, 0.9, 0.5, 0.3]).double()
MATRIX = torch.tensor(
    [[0.5, 0.1, 0.0, 0.0], [0.0, 0.3, 0.1, 0.0], [0.1, 0.0, 0.6, 0.0], [0.0, 0.1, 0.0, 0.4]]
).double()
PLANTED = {
    "descent, 2 steps": lambda: constructed.descent(13, (0.4, 0.4), 4),
    "descent, 2 steps, own sizes": lambda: constructed.descent(13, (0.2, 0.9), 4),
    "preconditioned descent, 1 step, diagonal": lambda: constructed.descent(13, (DIAGONAL,), 4),
    "preconditioned descent, 2 steps, matrix": lambda: constructed.descent(13, (MATRIX,) * 2, 4),
    "GD++, 3 steps": lambda: constructed.gd_plus_plus(13, (0.3, 0.4, 0.5), (0.2, 0.2, 0.1), 4),
    "Newton's inverse, 1 iteration, one start": lambda: constructed.newton(13, 1, 0.12, 4),
}
# A rival that holds another one as a special case is tuned to be that one: they are the same then.
WIDER = ("own sizes", "diagonal", "matrix", "GD++", "one start", "descent, 3 steps")


class Turned(LinearRegression):
    """(<w, x>, -<w, x>): values of two coordinates."""

    @property
    def n_targets(self):
        return 2

    def value(self, parameters, xs):
        return torch.stack([super().value(parameters, xs), -super().value(parameters, xs)], -1)


def asked(model, task=TASK, n_functions=1024):
    return icl_interp.algorithm(model, task, encoding="stacked", n_functions=n_functions)


@functools.cache  # several tests ask of one model
def planted(name):
    return asked(PLANTED[name]())


def check_planted(report, name):
    """The planted rival fits exactly, and only rivals that can imitate it are not excluded."""
    assert report.distance[name] < 1e-10
    others = [rival for rival in (report.nearest, *report.tied) if rival != name]
    assert all(any(word in rival for word in WIDER) for rival in others), others
    assert {"least squares", "zero", "averaging", "kernel ridge"} <= set(report.excluded)
    first = report.table.iloc[0]
    assert first["high"] < 0.05
    assert float(report.table.set_index("rival").loc[name, "hat"]) < 1e-10


QUICK = ("descent, 2 steps",)


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in PLANTED if name not in QUICK]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*QUICK, *SLOW])
def test_a_planted_algorithm_is_found(name):
    report = planted(name)
    check_planted(report, name)
    must_fail(check_planted, report, "descent, 1 step")


def test_after_the_last_block_the_layers_say_what_the_model_does():
    report = planted("descent, 2 steps")
    assert report.by_layer is not None
    last = report.by_layer.sel(depth=2, statistic="value")
    # The read-out is fitted to f(x) itself, not to the prediction, so it is near and not equal.
    assert float(last.sel(rival="descent, 2 steps")) < float(last.sel(rival="zero")) / 5
    first = report.by_layer.sel(depth=0, statistic="value")
    assert float(first.sel(rival="zero")) < 0.2  # the token of the query tells nothing of f
    assert report.by_length.dims == ("examples", "rival", "statistic")
    drawn = report.figure()
    assert len(drawn.data) >= 8


def test_prompts_that_tell_two_rivals_apart_are_run():
    report = planted("descent, 2 steps")
    row = report.separate("descent, 2 steps", "least squares")
    assert row["apart"] > 0.1
    assert row["nearer"] == "descent, 2 steps"
    assert report.separate("least squares", "descent, 2 steps")["nearer"] == "descent, 2 steps"
    same = report.separate("descent, 2 steps", "descent, 2 steps, own sizes")
    assert same["nearer"] == "same"
    more = report.separated("descent, 2 steps", "least squares")
    assert more.sentences()[-2].count("descent, 2 steps")
    with pytest.raises(InputError, match="least squares"):
        report.separate("descent, 2 steps", "least square")


def test_a_report_is_saved(tmp_path):
    report = planted("descent, 2 steps")
    report.save(tmp_path / "out")
    stored = json.loads((tmp_path / "out" / "algorithm.json").read_text())
    assert stored["nearest"] == report.nearest
    assert stored["table"]
    assert "plotly" in (tmp_path / "out" / "algorithm.html").read_text()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="which is a file"):
        report.save(tmp_path / "file")


@pytest.mark.slow
def test_a_predictor_without_weights():
    report = icl_interp.algorithm(icl_interp.baselines.Ridge(TASK, 1.0), TASK, n_functions=256)
    assert report.by_layer is None
    assert "hat" not in report.table
    assert any("without weights" in note for note in report.notes)
    assert "zero" in report.excluded


@pytest.mark.slow
def test_the_bayes_rivals_are_found():
    pooled = LinearRegression(n_dims=2, n_points=9, n_tasks=4, noise_std=1.0)
    pool = icl_interp.baselines.BayesPool(pooled, 1.0)
    report = icl_interp.algorithm(pool, pooled, n_functions=512)
    assert report.nearest == "Bayes over the pool"
    assert "best ridge" in report.excluded
    wide = LinearRegression(n_dims=2, n_points=9, weights=icl_interp.tasks.Normal(5), noise_std=1.0)
    narrow = LinearRegression(n_dims=2, n_points=9, noise_std=1.0)
    mixture = icl_interp.tasks.Mixture.of(wide, narrow)
    laws = icl_interp.algorithms.rivals(mixture)
    assert "Bayes over the mixture" in [rival.name for rival in laws]


@pytest.mark.slow
def test_values_that_are_vectors():
    task = Turned(n_dims=2, n_points=8)
    cfg = HookedTransformerConfig(n_layers=1, d_model=8, n_ctx=16, d_in=2, d_out=2, init_std=1.0)
    report = icl_interp.algorithm(HookedTransformer(cfg), task, n_functions=256)
    assert any("values are vectors: hat rows" in note for note in report.notes)
    assert report.by_layer is not None


@pytest.mark.slow
def test_a_model_that_learns_nothing_is_said_to():
    cfg = HookedTransformerConfig(n_layers=1, d_model=8, n_ctx=26, d_in=4, init_std=1.0)
    report = icl_interp.algorithm(HookedTransformer(cfg), TASK, n_functions=256)
    words = " ".join(report.sentences())
    assert "It is not near" in words
    assert report.error > 0.9


def test_what_cannot_be_asked_is_refused():
    single = LinearRegression(n_dims=4, n_points=13, weights=(1.0, 2.0, 3.0, 4.0))
    with pytest.raises(InputError, match="same function"):
        asked(PLANTED["descent, 2 steps"](), single)
    with pytest.raises(InputError, match="do not vary"):
        asked(constructed.descent(13, (0.0,), 4), n_functions=128)
    with pytest.raises(InputError, match="brings no task"):
        icl_interp.algorithm(icl_interp.baselines.Averaging())


@pytest.mark.slow
def test_features_are_those_of_the_task():
    law = Uniform(-1, 1)
    task = Polynomial(degrees=(1, 2), inputs=law, coefficients=law, n_points=8)
    predictor = icl_interp.baselines.BayesOverDegrees((1, 2), law)
    report = icl_interp.algorithm(predictor, task, n_functions=256)
    assert report.nearest == "Bayes over degrees"


def test_hat_rows_are_derivatives():
    from icl_interp.algorithms.subject import Subject, hat_rows_of
    from icl_interp.checkpoints import store

    checkpoint = store.load(PLANTED["descent, 2 steps"](), TASK, encoding="stacked")
    prompts = TASK.sample(4, generator(0, "test"), dtype=torch.float64)
    own = Subject(checkpoint, "model", checkpoint).hat_rows(prompts)
    descent = icl_interp.baselines.Descent(TASK, (0.4, 0.4))
    by_units = hat_rows_of(descent, prompts, linear=True)
    by_differences = hat_rows_of(descent, prompts, linear=False)
    torch.testing.assert_close(own, by_units, atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(own, by_differences, atol=1e-8, rtol=1e-8)
    must_fail(torch.testing.assert_close, own, 1.1 * by_units)
    # A linear predictor is the sum of its hat row times the labels.
    said = (own * prompts.ys[:, :-1, 0]).sum(-1)
    np.testing.assert_allclose(said, checkpoint.predict(prompts)[:, -1, 0], atol=1e-10)
