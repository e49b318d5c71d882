"""Training: what a run draws from and what it leaves."""

import json

import jaxtyping
import pytest
import tiny_runs
import torch
from helpers import must_fail
from safetensors.torch import load_file
from tiny_runs import EXACT, N_STEPS, RUNS, check_same_run

from icl_interp import evaluation, provenance
from icl_interp.errors import InputError
from icl_interp.provenance import read_json
from icl_interp.training import data, trainer
from icl_interp.training.schedules import learning_rate, task_at
from icl_interp.training.trainer import train

IN_DISTRIBUTION = evaluation.in_distribution
pytestmark = pytest.mark.usefixtures("quick")


def check_fresh_prompts(folder):
    """Every step draws from a stream of its own."""
    seeds = []

    def recording(*stream):
        seeds.append(make(*stream).initial_seed())
        return make(*stream)

    with pytest.MonkeyPatch.context() as patch:
        make = data.generator
        patch.setattr(data, "generator", recording)
        train(tiny_runs.data(), folder, progress=False)
    assert len(set(seeds)) == len(seeds) == N_STEPS


def test_every_step_sees_fresh_prompts(tmp_path, monkeypatch):
    check_fresh_prompts(tmp_path / "a")
    monkeypatch.setattr(
        data, "generator", lambda seed, stream, step: provenance.generator(seed, stream)
    )
    must_fail(check_fresh_prompts, tmp_path / "b")


def test_metrics_and_provenance_tell_the_run(uninterrupted):
    for name, folder in uninterrupted.items():
        run = tiny_runs.config(**RUNS[name])
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert [line["step"] for line in lines] == [3, 6, 9, 12]
        for line in lines:
            step = line["step"] - 1
            assert line["learning_rate"] == learning_rate(run.training, step)
            assert line["n_points"] == task_at(run.training, run.task, step).n_points
            assert line["loss"] > 0
        stamp = read_json(folder / "provenance.json")
        assert (stamp["step"], stamp["finished"], stamp["run_id"]) == (
            12,
            True,
            provenance.run_id(run),
        )
        assert stamp["environment"] == provenance.environment()
        assert sorted(tiny_runs.contents(folder)) == sorted([*EXACT, "provenance.json"])


def check_recorded_loss(folder, scale):
    """The recorded loss is the squared error over all prefixes of that step's prompts.

    It is the error before the step's update.
    """
    run = tiny_runs.config(training={"log_every": 1, "steps": 1})
    model = trainer.HookedTransformer(run.model, seed=run.training.seed)
    prompts = run.task.sample(4, provenance.generator(run.training.seed, "train/prompts", 0))
    with torch.no_grad():
        out = model(trainer.tokens.named("interleaved").encode(prompts))[:, ::2]
    train(run, folder, progress=False)
    loss = json.loads((folder / "metrics.jsonl").read_text())["loss"]
    assert out.shape == prompts.ys.shape
    assert loss == pytest.approx(scale * float((out - prompts.ys).square().mean()), rel=1e-6)


def test_the_loss_on_record_is_that_of_its_step(tmp_path):
    check_recorded_loss(tmp_path / "a", 1)
    must_fail(check_recorded_loss, tmp_path / "b", 1.001)


def test_the_weights_of_a_finished_run_are_those_returned(uninterrupted, tmp_path):
    folder = uninterrupted["stacked"]
    found = train(tiny_runs.data(**RUNS["stacked"]), folder, progress=False)
    state = load_file(folder / "training_state.safetensors")
    assert (found.step, int(state["step"])) == (12, 12)
    for name, parameter in found.model.named_parameters():
        assert torch.equal(parameter, state[f"weight/{name}"])


def test_a_finished_run_returns_at_once(uninterrupted, monkeypatch):
    def never(*args):
        raise AssertionError("a finished run goes on")

    folder, config = uninterrupted["growing prompts"], tiny_runs.data(**RUNS["growing prompts"])
    before = tiny_runs.contents(folder)
    monkeypatch.setattr(trainer.Run, "_advance", never)
    monkeypatch.setattr(trainer.Run, "save", never)
    assert train(config, folder, progress=False).step == 12
    assert tiny_runs.contents(folder) == before


def check_learns(folder, learning_rate):
    """Constant functions can be read off the prompt, so most of zero's error is removed."""
    config = tiny_runs.data(
        model={"d_model": 16},
        task={"degrees": [0], "n_points": 4},
        training={
            "steps": 60,
            "batch_size": 16,
            "learning_rate": learning_rate,
            "warmup_steps": 10,
            "checkpoint_every": 60,
        },
    )
    found = train(config, folder, progress=False)
    error = read_json(folder / "provenance.json")["in_distribution"]
    assert found.provenance["in_distribution"] == error
    assert error["error"] < 0.3 * error["zero"]


def test_a_model_learns(tmp_path, monkeypatch):
    monkeypatch.setattr(
        evaluation, "in_distribution", IN_DISTRIBUTION
    )  # this time the error counts
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", False)
    check_learns(tmp_path / "a", 0.02)
    must_fail(check_learns, tmp_path / "b", 1e-7)


def test_a_config_may_be_a_file_or_a_config(tmp_path, uninterrupted):
    changes = RUNS["growing prompts"]
    (tmp_path / "run.yaml").write_text(json.dumps(tiny_runs.data(**changes)))  # JSON is YAML
    for i, source in enumerate([tmp_path / "run.yaml", tiny_runs.config(**changes)]):
        train(source, tmp_path / str(i), progress=False)
        check_same_run(tmp_path / str(i), uninterrupted["growing prompts"])


def test_nothing_is_printed(tmp_path, capfd):
    train(tiny_runs.data(), tmp_path / "a", progress=False)
    train(tiny_runs.data(), tmp_path / "b")  # no terminal, so no bar
    assert capfd.readouterr() == ("", "")


def test_no_training_no_run(tmp_path):
    run = tiny_runs.data()
    with pytest.raises(InputError, match="the config has no training section"):
        train({**run, "training": None}, tmp_path / "a")
    assert not list(tmp_path.iterdir())
