"""A user's task works from training to analysis, or is refused at once.

It is trained, saved, loaded, resumed, evaluated and analysed.
"""

import math
from dataclasses import dataclass, field, make_dataclass, replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from own_tasks import MODEL, RELU, ReluNetwork, run
from tiny_runs import contents, train_until

import icl_interp
from icl_interp import tasks
from icl_interp.baselines import LeastSquares, classical
from icl_interp.checkpoints.config import check_round_trip, parse
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.errors import InputError
from icl_interp.evaluation import error_table, function_errors, shifted
from icl_interp.models.tokens import Interleaved
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import encode, generator
from icl_interp.tasks import Normal, Polynomial, Task, Uniform, registry

FAST = {"n_prompts": 64, "progress": False}


@pytest.fixture(autouse=True)
def _as_it_was():
    """What a test registers is forgotten after it."""
    before = dict(registry.KINDS)
    yield
    registry.KINDS.clear()
    registry.KINDS.update(before)


@pytest.fixture
def relu():
    return tasks.register(ReluNetwork) and RELU


def test_it_trains_resumes_loads_and_evaluates(relu, tmp_path):
    whole = icl_interp.train(run(relu), tmp_path / "whole", progress=False)
    assert whole.task == relu
    train_until(run(relu), tmp_path / "parts", step=4)
    icl_interp.train(run(relu), tmp_path / "parts", progress=False)
    for name in ("model.safetensors", "config.json", "metrics.jsonl"):
        assert contents(tmp_path / "whole")[name] == contents(tmp_path / "parts")[name]
    loaded = icl_interp.load(tmp_path / "parts")
    assert (loaded.task, loaded.config) == (relu, run(relu))
    saved = icl_interp.load(loaded.save(tmp_path / "saved"))
    assert saved.task == relu
    table = icl_interp.evaluate(saved, n_functions=8, n_contexts=2)
    assert table["predictor"].tolist() == ["model", "zero"]  # nothing to regress on
    assert "error_rate" not in table.columns
    assert "no least squares" in table.attrs["note"]
    assert all(math.isfinite(v) for v in table["error"])


@pytest.mark.slow
def test_it_is_analysed_to_a_page(relu, tmp_path):
    icl_interp.train(run(relu), tmp_path / "run", progress=False)
    report = icl_interp.analyze(tmp_path / "run", **FAST)
    assert [finding.error for finding in report.findings if finding.error] == []
    assert report.model["task"]["kind"] == "ReluNetwork"
    assert report.model["has_features"] is False
    assert "least squares" not in report.model["in_distribution"]
    assert "error_rate" not in report.model["in_distribution"]
    judged = {finding.id for finding in report.findings if finding.verdict != "not_applicable"}
    assert {"limits.layernorm_saturation", "limits.context_erased", "heads.orthogonality"} <= judged
    for claim in (
        "limits.no_classical_algorithm",
        "limits.unseen_classes",
        "linear_attention.risk",
    ):
        assert report[claim].verdict == "not_applicable"
        assert "ReluNetwork" in report[claim].reason
    folder = report.save(tmp_path / "report")
    assert "ReluNetwork" in (folder / "report.html").read_text()
    again = icl_interp.Report.load(folder).judge()
    assert [(f.id, f.verdict) for f in again.findings] == [
        (f.id, f.verdict) for f in report.findings
    ]


def test_a_task_without_features_has_no_regression(relu):
    prompts = relu.sample(4, generator(0, "test"), dtype=torch.float64)
    assert not relu.has_features
    assert all(
        t.has_features
        for t in (
            Polynomial(degrees=(1,), inputs=Uniform(-1, 1), coefficients=Normal(1), n_points=4),
            tasks.LinearRegression(n_dims=3, n_points=8),
            tasks.Continuous(function="sin", inputs=Uniform(-1, 1), n_points=4),
        )
    )
    with pytest.raises(InputError, match="ReluNetwork are linear in no fixed features"):
        LeastSquares(relu).predict(prompts)
    names = set(classical(relu))
    assert "averaging" in names
    assert not {
        name for name in names if "squares" in name or "ridge" in name or "gradient" in name
    }
    errors = function_errors({}, relu, n_functions=4, n_contexts=2, seed=0, references=True)
    assert list(errors) == ["zero"]


@dataclass(frozen=True, kw_only=True)
class Scaled(ReluNetwork):
    def scaled(self, functions=1.0, inputs=1.0):
        return replace(
            self, inputs=self.inputs.scaled(inputs), weights=self.weights.scaled(functions)
        )


def test_a_shift_of_such_a_task_has_no_error_rate():
    task = Scaled(width=1, weights=Uniform(-1, 1), inputs=Uniform(-1, 1), n_points=6)
    zero = {"mine": tasks.register(Scaled) and icl_interp.baselines.Averaging()}
    errors = shifted(zero, task, (1.0, 2.0), n_functions=4, n_contexts=2)
    assert tuple(errors.indexes["predictor"]) == ("mine", "zero")
    table = error_table(errors)
    assert "error_rate" not in table.columns
    assert len(table) == 4


# ---- what is refused, and when -------------------------------------------------------------------


def refuses_before_anything(task, match, folder):
    """No file, no folder: neither training, saving nor analysing begins."""
    model = HookedTransformer(MODEL).eval()
    checkpoint = Checkpoint(model, task, Interleaved(), run(task, None))
    for attempt in (
        lambda: icl_interp.train(run(task), folder / "run", progress=False),
        lambda: checkpoint.save(folder / "run"),
        lambda: icl_interp.analyze(checkpoint, **FAST),
        lambda: icl_interp.analyze(model, task=task, **FAST),
    ):
        with pytest.raises(InputError, match=match) as caught:
            attempt()
        assert "\n" not in str(caught.value)
    assert list(folder.iterdir()) == []


def test_a_task_that_is_not_registered_is_refused(tmp_path):
    refuses_before_anything(RELU, r"icl_interp\.tasks\.register\(ReluNetwork\)", tmp_path)
    tasks.register(ReluNetwork)
    must_fail(refuses_before_anything, RELU, "register", tmp_path)


@pytest.mark.parametrize(
    ("kind", "value", "match"),
    [
        (
            list,
            [1, 2],
            r"task\.extra does not come back .* \[1, 2\] \(list\) became \(1, 2\) \(tuple\)",
        ),
        (dict, {"a": (1, 2)}, r"task\.extra does not come back"),
        (object, torch.ones(2), r"task\.extra cannot be written to a config\.json.*Tensor"),
        (object, np.float32(1), r"task\.extra cannot be written"),
        (object, len, r"task\.extra cannot be written"),
        (float, math.nan, r"config\.task\.extra must be a number"),
        (object, Normal, r"task\.extra cannot be written"),
    ],
)
def test_settings_that_json_does_not_give_back_are_refused(kind, value, match, tmp_path):
    cls = make_dataclass(
        "Extra", [("extra", kind)], bases=(ReluNetwork,), frozen=True, kw_only=True
    )
    cls.__module__ = __name__
    task = tasks.register(cls)(
        width=1, weights=Uniform(-1, 1), inputs=Uniform(-1, 1), n_points=6, extra=value
    )
    refuses_before_anything(task, match, tmp_path)
    check_round_trip(run(replace(task, extra=1.5)))


def test_a_field_that_is_not_given_is_refused(tmp_path):
    @tasks.register
    @dataclass(frozen=True, kw_only=True)
    class Made(ReluNetwork):
        made: int = field(default=3, init=False)

    task = Made(width=1, weights=Uniform(-1, 1), inputs=Uniform(-1, 1), n_points=6)
    refuses_before_anything(task, "Made cannot be read back", tmp_path)


def test_loading_a_run_on_an_unknown_task_says_to_register_it(relu, tmp_path, monkeypatch):
    icl_interp.train(run(relu), tmp_path, progress=False)
    monkeypatch.delitem(registry.KINDS, "ReluNetwork")
    for attempt in (
        lambda: icl_interp.load(tmp_path),
        lambda: icl_interp.analyze(tmp_path, **FAST),
        lambda: parse(encode(run(relu))),
    ):
        with pytest.raises(
            InputError, match=r"unknown kind .*icl_interp\.tasks\.register\(ReluNetwork\)"
        ) as caught:
            attempt()
        assert "\n" not in str(caught.value)


# ---- register ------------------------------------------------------------------------------------


def cell(**changes):
    """What a notebook cell does on each run: a new class of the same name in the same place."""

    @tasks.register
    @dataclass(frozen=True, kw_only=True)
    class Again(ReluNetwork):
        pass

    return Again(width=1, weights=Uniform(-1, 1), inputs=Uniform(-1, 1), n_points=6, **changes)


def test_a_cell_may_run_again():
    first, second = cell(), cell()
    assert type(first) is not type(second)
    check_round_trip(run(second))
    with pytest.raises(InputError, match="make the task anew"):
        check_round_trip(run(first))


@pytest.mark.slow
def test_a_law_of_ones_own(tmp_path):
    @tasks.register
    @dataclass(frozen=True)
    class Triangular:
        width: float
        mean: float = 0.0

        def sample(self, shape, generator, dtype):
            draws = torch.rand((2, *shape), generator=generator, dtype=dtype)
            return (draws[0] - draws[1]) * self.width + self.mean

        def scaled(self, factor):
            return replace(self, width=self.width * factor, mean=self.mean * factor)

        @property
        def interval(self):
            return self.mean - self.width, self.mean + self.width

        @property
        def std(self):
            return self.width / math.sqrt(6)

    task = Polynomial(
        degrees=(1,), inputs=Triangular(1.0), coefficients=Triangular(2.0), n_points=8
    )
    trained = icl_interp.train(run(task), tmp_path / "run", progress=False)
    assert trained.task == task
    report = icl_interp.analyze(trained, **FAST)
    assert [finding.error for finding in report.findings if finding.error] == []
    del registry.KINDS["Triangular"]
    for attempt in (lambda: check_round_trip(run(task)), lambda: icl_interp.load(tmp_path / "run")):
        with pytest.raises(InputError, match=r"register\(Triangular\)"):
            attempt()


def test_a_law_is_an_instance():
    for wrong in (Uniform, 3.0, tasks.Exponential(1.0)):
        with pytest.raises(InputError, match="inputs must be a law"):
            Polynomial.__post_init__(_unchecked(inputs=wrong))


def _unchecked(**fields):
    """A Polynomial with unchecked fields; otherwise the tests' own type checks would come first."""
    task = object.__new__(Polynomial)
    for name, value in {
        "degrees": (1,),
        "coefficients": Normal(1),
        "n_points": 5,
        **fields,
    }.items():
        object.__setattr__(task, name, value)
    return task


def _frozen(name, **body):
    return dataclass(frozen=True, kw_only=True)(
        type(name, (ReluNetwork,), {"__annotations__": {}, **body})
    )


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: type("Bare", (ReluNetwork,), {}), "must be a frozen dataclass"),
        (lambda: make_dataclass("Loose", ["a"]), "must be a frozen dataclass"),
        (lambda: make_dataclass("Silent", ["a"], frozen=True), "neither a task .* nor a law"),
        (
            lambda: dataclass(frozen=True, kw_only=True)(type("Half", (Task,), {})),
            "Half lacks .*n_determining.*value",
        ),
        (lambda: _frozen("Polynomial"), "'Polynomial' is the name of a class of icl_interp"),
        (
            lambda: _frozen("ReluNetwork", __module__="elsewhere"),
            "another class called 'ReluNetwork'",
        ),
    ],
)
def test_register_refuses(make, match):
    tasks.register(ReluNetwork)
    before = dict(registry.KINDS)
    with pytest.raises(InputError, match=match):
        tasks.register(make())
    assert before == registry.KINDS


def test_values_of_another_shape_are_refused():
    """A column too many would broadcast against the predictions: a loss, but of nothing."""

    @dataclass(frozen=True, kw_only=True)
    class Column(ReluNetwork):
        def value(self, parameters, xs):
            return super().value(parameters, xs)[..., None].expand(-1, -1, 2)

    task = Column(width=1, weights=Uniform(-1, 1), inputs=Uniform(-1, 1), n_points=6)
    with pytest.raises(
        InputError, match=r"Column\.value must .* \(3, 6, 1\) here.* but returned shape \(3, 6, 2\)"
    ):
        task.sample(3, generator(0, "test"))
