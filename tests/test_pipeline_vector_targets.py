"""Functions with vector values work from training to analysis.

They are trained on, saved, resumed, evaluated, probed and analysed.
"""

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
import yaml
from helpers import must_fail
from tiny_runs import contents, train_until
from vector_tasks import MAPS, PATHS, SHAPES, LinearMap, Rotations, run

import icl_interp
from icl_interp import baselines, tasks
from icl_interp.checkpoints.config import RunConfig, parse
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.errors import InputError
from icl_interp.evaluation import function_errors
from icl_interp.models import tokens
from icl_interp.models.tokens import Interleaved, Stacked, States
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes import LogitLens
from icl_interp.probes.sweep import Sweep, places
from icl_interp.probes.sweep import run as run_sweeps
from icl_interp.prompts import Prompts, as_numbers
from icl_interp.provenance import encode, generator
from icl_interp.tasks import LinearRegression, Polynomial, Uniform, registry

ENCODINGS = tuple(SHAPES)


@pytest.fixture(autouse=True)
def _registered():
    before = dict(registry.KINDS)
    tasks.register(LinearMap)
    tasks.register(Rotations)
    yield
    registry.KINDS.clear()
    registry.KINDS.update(before)


def untrained(encoding: str, **model) -> Checkpoint:
    config = run(encoding, None, **model)
    return Checkpoint(
        HookedTransformer(config.model).eval(), config.task, tokens.named(encoding), config
    )


def drawn(task, n: int = 6, n_contexts: int = 1) -> Prompts:
    return task.sample(n, generator(0, "test/vectors"), n_contexts=n_contexts, dtype=torch.float64)


# ---- tasks and encodings -------------------------------------------------------------------------


def test_values_are_vectors():
    prompts = drawn(MAPS)
    assert prompts.ys.shape == (6, 8, 3)
    maps = prompts.parameters.view(6, 3, 2)
    torch.testing.assert_close(prompts.ys, torch.einsum("boi,bpi->bpo", maps, prompts.xs))


def test_a_path_shows_each_value_as_the_next_input():
    prompts = drawn(PATHS)
    assert torch.equal(prompts.ys[:, :-1], prompts.xs[:, 1:])
    torch.testing.assert_close(prompts.xs.norm(dim=-1), torch.ones(6, 10, dtype=torch.float64))


def test_numbers_may_be_written_without_the_last_axis():
    @tasks.register
    @dataclass(frozen=True, kw_only=True)
    class Doubles(Polynomial):
        def value(self, parameters, xs):
            return super().value(parameters, xs)[..., None]

    settings = {
        "degrees": (1,),
        "inputs": Uniform(-1, 1),
        "coefficients": Uniform(-1, 1),
        "n_points": 5,
    }
    short, long = (drawn(cls(**settings)) for cls in (Polynomial, Doubles))
    assert torch.equal(short.ys, long.ys)
    assert short.ys.shape == (6, 5, 1)
    assert torch.equal(
        Prompts(short.xs, as_numbers(short.ys), short.parameters, short.function).ys, short.ys
    )


def test_a_value_of_another_shape_is_refused():
    class Wrong(LinearMap):
        def value(self, parameters, xs):
            return super().value(parameters, xs)[..., :2]

    wrong = Wrong(**vars(MAPS))
    with pytest.raises(
        InputError, match=r"shape \(6, 8, 3\) here \(the last axis is n_targets=3\).*\(6, 8, 2\)"
    ):
        drawn(wrong)


def test_a_path_whose_values_are_not_the_next_inputs_is_refused():
    """Prompts of states would never show these values."""

    class Apart(Rotations):
        sample_points = LinearMap.sample_points  # independent inputs, and the values there

    with pytest.raises(
        InputError,
        match=r"Apart is autoregressive.*override sample_points so that it returns a path",
    ):
        drawn(Apart(**vars(PATHS)))


@pytest.mark.parametrize("name", ENCODINGS)
def test_tokens_hold_inputs_and_values(name):
    task, d_in = SHAPES[name]
    encoding, prompts = tokens.named(name), drawn(task)
    shown = encoding.encode(prompts)
    assert shown.shape == (6, encoding.n_tokens(task.n_points), d_in)
    assert encoding.d_in(task.dim, task.n_targets) == d_in
    if name == "interleaved":
        assert torch.equal(shown[:, 0::2, :2], prompts.xs)
        assert not shown[:, 0::2, 2:].any()
        assert torch.equal(shown[:, 1::2], prompts.ys[:, :-1])
    elif name == "stacked":
        assert torch.equal(shown[:, :-1], torch.cat([prompts.xs, prompts.ys], -1)[:, :-1])
        assert torch.equal(shown[:, -1, :2], prompts.xs[:, -1])
        assert not shown[:, -1, 2:].any()
    else:
        assert torch.equal(shown, prompts.xs)
    assert torch.equal(
        encoding.encode_queries(prompts.xs[:, -1:], task.n_targets)[:, 0], shown[:, -1]
    )


@pytest.mark.parametrize("name", ENCODINGS)
def test_the_query_does_not_see_its_value(name):
    def check(encoding):
        prompts = drawn(SHAPES[name][0])
        other = replace(prompts, ys=torch.cat([prompts.ys[:, :-1], prompts.ys[:, -1:] + 1], 1))
        assert torch.equal(encoding.encode(prompts), encoding.encode(other))

    check(tokens.named(name))

    class Leaks(Stacked):
        def encode(self, prompts):
            return torch.cat([prompts.xs, prompts.ys], -1)

    must_fail(check, Leaks())


def test_a_task_names_its_default_encoding():
    assert isinstance(tokens.infer_for(PATHS, 2), States)
    assert isinstance(tokens.infer_for(PATHS, 4), Stacked)
    assert isinstance(tokens.infer_for(MAPS, 3), Interleaved)
    assert isinstance(tokens.infer_for(MAPS, 5), Stacked)
    sections = {"model": encode(run("states").model), "task": encode(PATHS)}
    del sections["model"]["kind"]
    assert parse(sections).encoding == "states"
    sections["task"] = encode(replace(MAPS, n_dims=3, outputs=2))
    sections["model"]["d_in"] = 3
    assert parse(sections).encoding == "interleaved"


def test_what_does_not_fit_is_refused():
    narrow = replace(run("interleaved").model, d_in=2)
    with pytest.raises(
        InputError, match="states shows no values, and those of a LinearMap are not the next inputs"
    ):
        RunConfig(narrow, MAPS, "states")
    with pytest.raises(
        InputError, match=r"values have 3 coordinates \(n_targets\), but the model has d_out=1"
    ):
        run("interleaved", d_out=1)
    with pytest.raises(
        InputError,
        match="inputs of 2 coordinates and values of 3 have d_in=5, but the model has d_in=3",
    ):
        run("stacked", d_in=3)
    line = Polynomial(degrees=(1,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=5)
    with pytest.raises(InputError, match=r"1 coordinate \(n_targets\), but the model has d_out=3"):
        icl_interp.load(HookedTransformer(replace(run("interleaved").model, d_in=1)), line)
    with pytest.raises(
        InputError, match=r"neither interleaved .d_in=3. nor stacked .d_in=5.*values of 3"
    ):
        tokens.infer(4, 2, 3)
    with pytest.raises(InputError, match="vectors of 3 coordinates"):
        as_numbers(drawn(MAPS).ys)


# ---- training, files, errors ---------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_it_trains_resumes_and_comes_back(encoding, tmp_path):
    whole = icl_interp.train(run(encoding), tmp_path / "whole", progress=False)
    train_until(run(encoding), tmp_path / "parts", step=4)
    icl_interp.train(run(encoding), tmp_path / "parts", progress=False)
    for name in ("model.safetensors", "config.json", "metrics.jsonl"):
        assert contents(tmp_path / "whole")[name] == contents(tmp_path / "parts")[name]
    saved = icl_interp.load(whole.save(tmp_path / "saved"))
    assert (saved.task, tokens.name_of(saved.encoding)) == (SHAPES[encoding][0], encoding)
    prompts = drawn(saved.task)
    out = saved.predict(prompts)
    assert out.shape == prompts.ys.shape
    assert torch.equal(out.nan_to_num(9), whole.predict(prompts).nan_to_num(9))


@pytest.mark.slow
def test_training_fits_every_coordinate(tmp_path):
    """Alternatives: a loss on the first coordinate only leaves the others where they were."""
    training = replace(
        run("states").training, steps=200, batch_size=16, learning_rate=5e-3, warmup_steps=20
    )
    trained = icl_interp.train(run("states", training, d_model=24), tmp_path, progress=False)

    def check(predict):
        prompts = drawn(PATHS, 200)
        missed = (predict(prompts) - prompts.ys).square().mean((0, 1))
        assert (missed < 0.5 * prompts.ys.square().mean((0, 1))).all()

    check(trained.predict)
    first = torch.tensor([1.0, 0.0])
    must_fail(check, lambda prompts: trained.predict(prompts) * first)
    must_fail(check, lambda prompts: untrained("states", d_model=24).predict(prompts))


def test_errors_are_means_over_coordinates():
    def check(errors):
        checkpoint = untrained("interleaved")
        found = errors(
            {"model": checkpoint}, MAPS, n_functions=5, n_contexts=3, seed=1, references=True
        )
        prompts = MAPS.sample(5, generator(1, "evaluation", 0), n_contexts=3, dtype=torch.float64)
        out, ys = checkpoint.predict(prompts).double().numpy(), prompts.ys.numpy()
        for f in range(5):
            cells = itertools.product(range(3 * f, 3 * f + 3), range(2, 8), range(3))
            assert found["model"][f] == pytest.approx(
                np.mean([(out[c] - ys[c]) ** 2 for c in cells]), rel=1e-6
            )
        assert (found["least squares"] < 1e-20).all()

    check(function_errors)
    must_fail(check, lambda *a, **k: {name: 3 * e for name, e in function_errors(*a, **k).items()})
    table = icl_interp.evaluate(untrained("states"), n_functions=6, n_contexts=2)
    assert table["predictor"].tolist() == ["model", "least squares", "zero", "law mean"]
    assert table["error"][2] == pytest.approx(0.5)  # |s|^2 / 2 on the circle


def test_predictions_of_another_shape_are_refused():
    class Short:
        """0, without an axis of targets."""

        def predict(self, prompts):
            return torch.zeros_like(prompts.ys[..., 0])

    with pytest.raises(
        InputError, match=r"shape \(\d+, 8, 3\) here, but Short returned shape \(\d+, 8\)"
    ):
        icl_interp.evaluate(Short(), MAPS, n_functions=4, n_contexts=2)
    line = LinearRegression(n_dims=2, n_points=6)
    table = icl_interp.evaluate(Short(), line, n_functions=4, n_contexts=2)
    errors = dict(zip(table["predictor"], table["error"], strict=True))
    assert errors["model"] == errors["zero"]  # numbers need no axis


# ---- baselines -----------------------------------------------------------------------------------

ALGORITHMS = (
    baselines.Zero(),
    baselines.LeastSquares(MAPS),
    baselines.Ridge(MAPS, 0.1),
    baselines.GradientDescent(MAPS, 3),
    baselines.AveragingEstimator(MAPS),
    baselines.Averaging(),
    baselines.KNearest(2),
    baselines.NadarayaWatson(0.7),
    baselines.Lasso(0.05),
    baselines.GreedyTree(2),
)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.name)
def test_an_algorithm_treats_each_coordinate_by_itself(algorithm):
    """Every one of these is linear in labels or fits targets one by one.

    Alone each coordinate gives the same.
    """

    def check(predict):
        prompts = drawn(MAPS)
        prompts.xs[0, 3] = prompts.xs[0, 2]  # a prefix that does not determine the map yet
        whole = predict(prompts)
        assert whole.shape == prompts.ys.shape
        for t in range(3):
            alone = algorithm.predict(replace(prompts, ys=prompts.ys[..., t : t + 1]))
            torch.testing.assert_close(whole[..., t : t + 1], alone, rtol=1e-9, atol=1e-11)

    check(algorithm.predict)
    if algorithm.name != "zero":
        must_fail(check, lambda prompts: algorithm.predict(prompts).flip(-1))


@pytest.mark.slow
def test_a_network_learns_all_coordinates_at_once():
    network, prompts = baselines.TwoLayerNetwork(hidden=16, steps=200), drawn(MAPS, 20)
    last = (network.predict(prompts) - prompts.ys)[:, -1].square().mean(0)
    assert (last < 0.5 * prompts.ys[:, -1].square().mean(0)).all()
    before = (
        (baselines.TwoLayerNetwork(hidden=16, steps=0).predict(prompts) - prompts.ys)[:, -1]
        .square()
        .mean(0)
    )
    assert not (before < 0.5 * prompts.ys[:, -1].square().mean(0)).any()


# ---- probes and sweeps ---------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_last_lens_is_the_prediction(encoding):
    checkpoint = untrained(encoding)
    prompts = checkpoint.task.sample(6, generator(0, "test/vectors"))

    def check(lens):
        results = icl_interp.probe(checkpoint, prompts, [LogitLens(per_prompt=True)])
        found = lens(
            results["logit_lens.prediction"].isel(depth=-1).sel(position="query").values
        )  # (target, prompt)
        np.testing.assert_allclose(
            found.T, checkpoint.predict(prompts)[:, -1].numpy(), rtol=1e-4, atol=1e-6
        )

    check(lambda values: values)
    must_fail(check, lambda values: values[::-1])


@pytest.mark.parametrize("direction", ["causal", "bidirectional"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_sweep_equals_whole_prompts(encoding, direction):
    checkpoint = untrained(encoding, attention_dir=direction)
    model, prompts = checkpoint.model.double(), drawn(checkpoint.task)
    at = places([0.3, -2.0], 2)

    def check(sweeps):
        [found] = sweeps(model, checkpoint.encoding, [Sweep(prompts, at, (0.3, -2.0))])
        for k, x in enumerate(at):
            xs = prompts.xs.clone()
            xs[:, -1] = x
            out = model(checkpoint.encoding.encode(replace(prompts, xs=xs)))[:, -1]
            torch.testing.assert_close(found[:, k], out.detach(), rtol=1e-9, atol=1e-11)

    check(run_sweeps)
    must_fail(check, lambda *args: [f.flip(-1) for f in run_sweeps(*args)])


# ---- analysis ------------------------------------------------------------------------------------

OF_NUMBERS = {
    "limits.context_erased",
    "limits.linear_asymptote",
    "limits.no_icl_at_high_norm",
    "limits.training_density",
    "limits.larger_intervals",
    "limits.last_layer",
}
OF_ANY = {
    "limits.softmax_hardmax",
    "limits.softmax_uniform",
    "heads.orthogonality",
    "limits.layernorm_saturation",
    "limits.layernorm_causes_saturation",
    "limits.layernorm_causes_failure",
    "limits.boundary_immediate",
}


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["interleaved", "stacked", "states"])
def test_it_is_analysed_to_a_page(encoding, tmp_path):
    checkpoint = icl_interp.train(run(encoding), tmp_path / "run", progress=False)
    report = icl_interp.analyze(checkpoint, n_prompts=64, progress=False)
    assert [finding.error for finding in report.findings if finding.error] == []
    judged = {finding.id for finding in report.findings if finding.verdict != "not_applicable"}
    assert judged >= OF_ANY
    assert ("limits.attention_necessary" in judged) is (
        encoding != "states"
    )  # see report/test_words_of_vectors.py
    assert not OF_NUMBERS & judged
    values = checkpoint.task.n_targets
    for claim in OF_NUMBERS:
        assert report[claim].reason.endswith(f"predicts vectors of {values} coordinates.")
    folder = report.save(tmp_path / "report")
    assert type(checkpoint.task).__name__ in (folder / "report.html").read_text()
    again = icl_interp.Report.load(folder).judge()
    assert [(f.id, f.verdict) for f in again.findings] == [
        (f.id, f.verdict) for f in report.findings
    ]


@pytest.mark.slow
def test_the_command_line_takes_it(tmp_path):
    from typer.testing import CliRunner

    from icl_interp.cli import app

    config = encode(run("states"))
    config = {key: value for key, value in config.items() if key not in ("kind", "encoding")}
    (tmp_path / "paths.yaml").write_text(yaml.safe_dump(config))
    trained = CliRunner().invoke(
        app, ["train", str(tmp_path / "paths.yaml"), "--out", str(tmp_path / "run")]
    )
    assert trained.exit_code == 0, trained.output
    table = CliRunner().invoke(app, ["evaluate", str(tmp_path / "run")])
    assert table.exit_code == 0
    assert "least squares" in table.output
