"""Training: a run stopped anywhere and resumed equals the uninterrupted one, byte for byte."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jaxtyping
import pytest
import tiny_runs
import torch
from helpers import must_fail
from safetensors.torch import load_file

from icl_interp import evaluation, provenance
from icl_interp.checkpoints import store
from icl_interp.errors import InputError
from icl_interp.provenance import read_json
from icl_interp.training import trainer
from icl_interp.training.curriculum import learning_rate, task_at
from icl_interp.training.trainer import TrainingDiverged, train

ROOT = Path(__file__).parents[2]
EXACT = ("config.json", "metrics.jsonl", "training_state.safetensors", "model.safetensors")
N_STEPS = 12  # a checkpoint after 5, 10 and 12; a line of metrics after 3, 6, 9 and 12
IN_DISTRIBUTION = evaluation.in_distribution
RUNS = {
    "growing prompts": {"training": {"curriculum": {"first_points": 2, "until": 8}}},
    "stages of degrees": {
        "training": {
            "curriculum": {"first_points": 2, "until": 9, "degrees": [[0, [0]], [7, [0, 1]]]},
            "decay": "linear",
        },
        "model": {"normalization_type": None},
    },
    "stacked": {**tiny_runs.STACKED, "training": {"decay": "constant", "grad_clip": 0.01}},
}


@pytest.fixture(autouse=True, scope="module")
def quick():
    """Hundreds of runs of twelve steps: without what takes longer than their steps and is tested elsewhere."""
    environment = provenance.environment()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "in_distribution", lambda predictor, task: {"error": 0.5})
        patch.setattr(trainer, "environment", lambda: environment)
        patch.setattr(provenance.os, "fsync", lambda descriptor: None)
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)
        yield


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """Folders of runs that nothing disturbed, by name."""
    folders = {}
    for name, changes in RUNS.items():
        folders[name] = tmp_path_factory.mktemp("uninterrupted")
        train(tiny_runs.data(**changes), folders[name], progress=False)
    return folders


def check_same_run(folder, reference):
    """All that a run leaves, but for how long it took."""
    for name in EXACT:
        same = (folder / name).read_bytes() == (reference / name).read_bytes()
        assert same, f"{name} differs"
    ours, theirs = (read_json(path / "provenance.json") for path in (folder, reference))
    assert {**ours, "training_seconds": 0} == {**theirs, "training_seconds": 0}


def check_resumed(config, folder, reference, stops):
    for step in stops:
        tiny_runs.train_until(config, folder, step)
    train(config, folder, progress=False)
    check_same_run(folder, reference)


@pytest.mark.parametrize("step", range(N_STEPS))
def test_a_run_stopped_at_any_step_and_resumed_is_the_uninterrupted_one(tmp_path, uninterrupted, step):
    name = "growing prompts"
    check_resumed(tiny_runs.data(**RUNS[name]), tmp_path, uninterrupted[name], [step])


@pytest.mark.parametrize("name", ["stages of degrees", "stacked"])
@pytest.mark.parametrize("stops", [[6], [8, 7, 11]], ids=["once", "three times"])
def test_so_is_one_with_other_schedules_stopped_again_and_again(tmp_path, uninterrupted, name, stops):
    check_resumed(tiny_runs.data(**RUNS[name]), tmp_path, uninterrupted[name], stops)


def remembering(patch):
    """Mutant: one generator goes on from step to step, and starts again with the process."""
    streams = {}
    real_init = trainer._Run.__init__

    def init(run, *args):
        streams.clear()
        real_init(run, *args)

    def ignoring_step(seed, stream, step=0):
        return streams.setdefault((seed, stream), provenance.generator(seed, stream))

    patch.setattr(trainer._Run, "__init__", init)
    patch.setattr(trainer, "generator", ignoring_step)


def after_resume(change):
    def mutant(patch):
        resume = trainer._Run._resume

        def changed(run):
            resume(run)
            change(run)

        patch.setattr(trainer._Run, "_resume", changed)

    return mutant


def forget(name):
    def change(run):
        for state in run.optimiser.state.values():
            state[name].zero_()

    return after_resume(change)


def repeat_a_step(run):
    run.step -= 1


MUTANTS = {
    "prompts ignore the step": remembering,
    "first moments lost": forget("exp_avg"),
    "second moments lost": forget("exp_avg_sq"),
    "bias correction starts again": forget("step"),
    "a step repeated": after_resume(repeat_a_step),
    "metrics lost": after_resume(lambda run: run.metrics.clear()),
    "metrics doubled": after_resume(lambda run: run.metrics.extend(run.metrics)),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_resume_that_is_not_exact_is_noticed(tmp_path, monkeypatch, uninterrupted, name):
    config, reference = tiny_runs.data(**RUNS["growing prompts"]), uninterrupted["growing prompts"]
    MUTANTS[name](monkeypatch)
    if MUTANTS[name] is remembering:  # its uninterrupted run is another one
        reference = tmp_path / "whole"
        train(config, reference, progress=False)
    must_fail(check_resumed, config, tmp_path / "resumed", reference, [7])


def check_fresh_prompts(folder):
    """Every step draws from a stream of its own."""
    seeds = []

    def recording(*stream):
        seeds.append(make(*stream).initial_seed())
        return make(*stream)

    with pytest.MonkeyPatch.context() as patch:
        make = trainer.generator
        patch.setattr(trainer, "generator", recording)
        train(tiny_runs.data(), folder, progress=False)
    assert len(set(seeds)) == len(seeds) == N_STEPS


def test_every_step_sees_fresh_prompts(tmp_path, monkeypatch):
    check_fresh_prompts(tmp_path / "a")
    monkeypatch.setattr(trainer, "generator", lambda seed, stream, step: provenance.generator(seed, stream))
    must_fail(check_fresh_prompts, tmp_path / "b")


# A kill between any two files

N_WRITES = 1 + 3 * 4  # the config, then four files a checkpoint


def train_for_writes(config, folder, n_writes):
    """Train, and die in the middle of the file after this many; what a dead process leaves beside it stays there."""
    written = []
    replace = os.replace

    def dying(temporary, path):
        if len(written) == n_writes:
            half = Path(temporary).read_bytes()
            (folder / f".{Path(path).name}.left").write_bytes(half[: len(half) // 2])
            raise tiny_runs.Killed
        replace(temporary, path)
        written.append(Path(path).name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance.os, "replace", dying)
        with pytest.raises(tiny_runs.Killed):
            train(config, folder, progress=False)
    return written


def check_killed_between_files(folder, reference, n_writes):
    config = tiny_runs.data(**RUNS["growing prompts"])
    written = train_for_writes(config, folder, n_writes)
    if "model.safetensors" in written:
        store.load(folder)  # a half-written checkpoint is a whole one of some step
    train(config, folder, progress=False)
    check_same_run(folder, reference)


@pytest.mark.parametrize("n_writes", range(N_WRITES))
def test_a_kill_between_any_two_files_mixes_nothing(tmp_path, uninterrupted, n_writes):
    check_killed_between_files(tmp_path, uninterrupted["growing prompts"], n_writes)


def test_there_are_no_other_files_to_be_killed_between(tmp_path):
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        train_for_writes(tiny_runs.data(), tmp_path, N_WRITES)


def all_metrics(run):
    run.metrics = [json.loads(line) for line in (run.out / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("mutant", "n_writes"),
    [
        (after_resume(all_metrics), 1 + 4 + 1),  # lines of steps that the state never reached
        (lambda patch: patch.setattr(trainer._Run, "_finished", lambda run: True), N_WRITES - 2),
        (lambda patch: patch.setattr(trainer._Run, "_finished", lambda run: True), N_WRITES - 1),
    ],
    ids=["metrics ahead of the state", "no last model", "no last provenance"],
)
def test_a_mixture_is_noticed(tmp_path, uninterrupted, monkeypatch, mutant, n_writes):
    mutant(monkeypatch)
    must_fail(check_killed_between_files, tmp_path, uninterrupted["growing prompts"], n_writes)


# kill -9

LONG = {
    "training": {"steps": 60, "log_every": 4, "checkpoint_every": 3, "curriculum": {"first_points": 2, "until": 50}}
}
CHILD = """
import json, sys, time
from icl_interp import evaluation
from icl_interp.training import trainer

evaluation.in_distribution = lambda predictor, task: {"error": 0.5}
advance = trainer._Run._advance

def waiting_for_the_end(run):
    if run.step == 50:
        time.sleep(600)  # however late the kill comes, it comes in time
    return advance(run)

trainer._Run._advance = waiting_for_the_end
trainer.train(json.loads(sys.argv[1]), sys.argv[2], progress=False)
"""


def kill_9(folder, delay):
    """Train in another process, and kill it some time after its first checkpoint."""
    threads = str(torch.get_num_threads())  # another number of threads may add in another order
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    arguments = [sys.executable, "-c", CHILD, json.dumps(tiny_runs.data(**LONG)), str(folder)]
    with subprocess.Popen(arguments, env=environment, stderr=subprocess.PIPE, text=True) as child:
        while not (folder / "training_state.safetensors").exists():
            assert child.poll() is None, child.stderr.read()
            time.sleep(0.002)
        time.sleep(delay)
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert child.returncode == -signal.SIGKILL
    return int(load_file(folder / "training_state.safetensors")["step"])


def check_kill_9(folder, delays):
    train(tiny_runs.data(**LONG), folder / "whole", progress=False)
    for i, delay in enumerate(delays):
        killed = folder / f"killed{i}"
        assert 0 < kill_9(killed, delay) < 60
        resumed = train(tiny_runs.data(**LONG), killed, progress=False)
        assert resumed.step == 60
        check_same_run(killed, folder / "whole")


@pytest.mark.slow
def test_a_run_killed_by_the_system_and_resumed_is_the_uninterrupted_one(tmp_path):
    check_kill_9(tmp_path, [0.1 * (i + random.random()) for i in range(3)])


# What a run leaves


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
        assert (stamp["step"], stamp["finished"], stamp["run_id"]) == (12, True, provenance.run_id(run))
        assert stamp["environment"] == provenance.environment()
        assert sorted(tiny_runs.contents(folder)) == sorted([*EXACT, "provenance.json"])


def check_recorded_loss(folder, scale):
    """The loss on record is the squared error over all prefixes of the prompts of that step, before its update."""
    run = tiny_runs.config(training={"log_every": 1, "steps": 1})
    model = trainer.HookedTransformer(run.model, seed=run.training.seed)
    prompts = run.task.sample(4, provenance.generator(run.training.seed, "train/prompts", 0))
    with torch.no_grad():
        out = model(trainer.tokens.named("interleaved").encode(prompts))[:, ::2, 0]
    train(run, folder, progress=False)
    loss = json.loads((folder / "metrics.jsonl").read_text())["loss"]
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
    monkeypatch.setattr(trainer._Run, "_advance", never)
    monkeypatch.setattr(trainer._Run, "_save", never)
    assert train(config, folder, progress=False).step == 12
    assert tiny_runs.contents(folder) == before


def check_learns(folder, learning_rate):
    """Constant functions can be read off the prompt: most of what the zero predictor misses is found."""
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
    monkeypatch.setattr(evaluation, "in_distribution", IN_DISTRIBUTION)  # this time the error counts
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


# What is refused


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """A run that stands after its first checkpoint."""
    folder = tmp_path_factory.mktemp("started")
    tiny_runs.train_until(tiny_runs.data(**RUNS["growing prompts"]), folder, 7)
    return folder


def check_refused(config, folder, match):
    """One clear line, and the folder as it was."""
    before = tiny_runs.contents(folder) if folder.is_dir() else folder.exists()
    with pytest.raises(InputError, match=match) as refused:
        train(config, folder, progress=False)
    assert "\n" not in str(refused.value)
    assert (tiny_runs.contents(folder) if folder.is_dir() else folder.exists()) == before


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (
            {"training": {"steps": 13}},
            "holds a run with training.steps = 12, but 13 was asked for: resume with the same",
        ),
        ({"training": {"seed": 1}}, "training.seed = 0, but 1 was"),
        ({"training": {"curriculum": {"first_points": 4}}}, "training.curriculum.first_points = 2, but 4 was"),
        ({"model": {"d_model": 16}}, "model.d_model = 8, but 16 was"),
        ({"task": {"degrees": [1]}}, r"task.degrees = \[0, 1\], but \[1\] was"),
        ({"task": {"inputs": {"kind": "Normal", "std": 1}}}, "task.inputs.kind = 'Uniform', but 'Normal' was"),
        (tiny_runs.STACKED, "model.d_in = 1, but 2 was"),
    ],
)
def test_another_config_is_refused_by_key(started, change, match):
    base = RUNS["growing prompts"]
    merged = {**base, **change}
    if "training" in change:
        merged["training"] = {**base["training"], **change["training"]}
        if "curriculum" in change["training"]:
            merged["training"]["curriculum"] = {"until": 8, **change["training"]["curriculum"]}
    check_refused(tiny_runs.data(**merged), started, match)


def test_the_same_config_is_not_refused(started, tmp_path):
    shutil.copytree(started, tmp_path / "run")
    must_fail(check_refused, tiny_runs.data(**RUNS["growing prompts"]), tmp_path / "run", ".")


def test_folders_with_something_else_are_refused(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.txt").write_text("precious")
    check_refused(tiny_runs.data(), tmp_path / "thesis", "thesis is not empty and holds no run: choose another folder")
    check_refused(
        tiny_runs.data(), tmp_path / "thesis" / "chapter1.txt", "chapter1.txt is a file, but a run needs a folder"
    )
    below = tmp_path / "thesis" / "chapter1.txt" / "run"
    check_refused(tiny_runs.data(), below, "cannot write to .*run: Not a directory; choose a folder")
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "config.json").write_text('{"port": 80}')
    check_refused(tiny_runs.data(), tmp_path / "app", "app holds a run with schema = None")
    (tmp_path / "app" / "config.json").write_text("{")
    check_refused(tiny_runs.data(), tmp_path / "app", "config.json is not JSON")
    must_fail(check_refused, tiny_runs.data(), tmp_path / "new", ".")


def test_a_model_without_its_training_state_is_not_overwritten(tmp_path, uninterrupted):
    config = tiny_runs.data(**RUNS["stacked"])
    saved = store.load(uninterrupted["stacked"]).save(tmp_path / "copy")
    check_refused(config, saved, "holds a model without the training state to go on from: choose another folder")


@pytest.mark.parametrize(
    ("file", "content", "match"),
    [
        ("training_state.safetensors", b"", "training_state.safetensors is not a whole safetensors file"),
        ("metrics.jsonl", None, "has a training state but no metrics.jsonl"),
        ("model.safetensors", None, None),
        ("provenance.json", None, None),
    ],
)
def test_a_started_run_that_lost_a_file(tmp_path, started, uninterrupted, file, content, match):
    """`training_state` decides; what a later checkpoint writes anyway is not missed."""
    config = tiny_runs.data(**RUNS["growing prompts"])
    shutil.copytree(started, tmp_path, dirs_exist_ok=True)
    (tmp_path / file).unlink()
    if content is not None:
        (tmp_path / file).write_bytes(content)
    if match:
        check_refused(config, tmp_path, match)
    else:
        train(config, tmp_path, progress=False)
        check_same_run(tmp_path, uninterrupted["growing prompts"])


def test_a_state_of_another_program_is_refused(tmp_path, started):
    shutil.copytree(started, tmp_path, dirs_exist_ok=True)
    trainer.weights.write(tmp_path / "training_state.safetensors", {"step": torch.tensor(5)})
    check_refused(
        tiny_runs.data(**RUNS["growing prompts"]),
        tmp_path,
        r"training_state.safetensors lacks the tensor weight/embed.W_E that the config asks for",
    )


# A loss that is not finite


def exploding(step, patch):
    """From this step on, numbers whose squares overflow."""
    real = trainer.task_at

    def task(training, task, now):
        posed = real(training, task, now)
        return tiny_runs.Exploding(**vars(posed)) if now >= step else posed

    patch.setattr(trainer, "task_at", task)


def poisoned(step, patch):
    """At this step, gradients that are NaN under a loss that is finite."""
    clip = torch.nn.utils.clip_grad_norm_
    calls = iter(range(1000))

    def poison(parameters, norm):
        parameters = list(parameters)
        if next(calls) == step:
            parameters[0].grad.fill_(torch.nan)
        return clip(parameters, norm)

    patch.setattr(torch.nn.utils, "clip_grad_norm_", poison)


def check_last_good_kept(folder, reference, match):
    """Training stops with one clear line, and the checkpoint of step 5 is there, whole and usable."""
    config = tiny_runs.data(**RUNS["growing prompts"])
    with pytest.raises(TrainingDiverged, match=match) as stopped:
        train(config, folder, progress=False)
    assert "\n" not in str(stopped.value)
    for name in EXACT:
        same = (folder / name).read_bytes() == (reference / name).read_bytes()
        assert same, f"{name} was touched"
    checkpoint = store.load(folder)
    assert checkpoint.step == 5
    assert all(parameter.isfinite().all() for parameter in checkpoint.model.parameters())


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path, monkeypatch, started):
    exploding(8, monkeypatch)
    check_last_good_kept(
        tmp_path / "a", started, r"loss became (inf|nan) at step 8; the checkpoint of step 5 is kept in .*a"
    )
    exploding(0, monkeypatch)
    must_fail(check_last_good_kept, tmp_path / "b", started, "at step 8")


@pytest.mark.parametrize("step", [7, 9])
def test_weights_that_are_not_finite_are_never_saved(tmp_path, monkeypatch, started, step):
    """Step 9 is followed by a checkpoint, before any loss could tell."""
    poisoned(step, monkeypatch)
    match = (
        "loss became nan at step 8; the checkpoint of step 5"
        if step == 7
        else "weights became NaN .* step 10; .* step 5"
    )
    check_last_good_kept(tmp_path / "a", started, match)


def test_saving_them_would_be_noticed(tmp_path, monkeypatch, started):
    poisoned(9, monkeypatch)
    monkeypatch.setattr(torch.Tensor, "isfinite", lambda tensor: torch.ones_like(tensor, dtype=torch.bool))
    must_fail(check_last_good_kept, tmp_path / "a", started, ".")


def test_a_run_that_never_reached_a_checkpoint_says_so(tmp_path, monkeypatch):
    exploding(2, monkeypatch)
    with pytest.raises(TrainingDiverged, match=r"loss became (inf|nan) at step 2; there is no earlier checkpoint in"):
        train(tiny_runs.data(), tmp_path, progress=False)
    assert list(tiny_runs.contents(tmp_path)) == ["config.json"]
