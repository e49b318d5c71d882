"""A run stopped anywhere and resumed equals the uninterrupted one, byte for byte."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny_runs
import torch
from helpers import must_fail, one_in
from safetensors.torch import load_file
from tiny_runs import N_STEPS, RUNS, check_same_run

from icl_interp import provenance
from icl_interp.checkpoints import store
from icl_interp.tasks import pool
from icl_interp.training import data, trainer
from icl_interp.training.trainer import train

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("quick")


# ---- stopped between steps -----------------------------------------------------------------------


def check_resumed(config, folder, reference, stops):
    for step in stops:
        tiny_runs.train_until(config, folder, step)
    train(config, folder, progress=False)
    check_same_run(folder, reference)


@pytest.mark.parametrize("step", one_in(3, range(N_STEPS)))
def test_a_run_stopped_at_any_step_and_resumed_is_the_uninterrupted_one(
    tmp_path, uninterrupted, step
):
    name = "growing prompts"
    check_resumed(tiny_runs.data(**RUNS[name]), tmp_path, uninterrupted[name], [step])


@pytest.mark.parametrize("name", ["stages of degrees", "stacked"])
@pytest.mark.parametrize("stops", [[6], [8, 7, 11]], ids=["once", "three times"])
def test_so_is_one_with_other_schedules_stopped_again_and_again(
    tmp_path, uninterrupted, name, stops
):
    check_resumed(tiny_runs.data(**RUNS[name]), tmp_path, uninterrupted[name], stops)


POOLED = {"task": {"n_tasks": 3, "pool_seed": 4}}


def check_pool_resumed(folder):
    train(tiny_runs.data(**POOLED), folder / "whole", progress=False)
    pool._KNOWN.clear()  # a new process remembers nothing
    check_resumed(tiny_runs.data(**POOLED), folder / "stopped", folder / "whole", [7])


def test_so_is_one_on_a_pool_of_functions(tmp_path, monkeypatch):
    check_pool_resumed(tmp_path / "exact")
    shared = torch.Generator().manual_seed(0)  # mutant: the pool depends on what was drawn before
    monkeypatch.setattr(
        pool, "_drawn", lambda task, n: task.sample_parameters(n, shared, torch.float64)
    )
    must_fail(check_pool_resumed, tmp_path / "mutant")


def remembering(patch):
    """Mutant: one generator goes on from step to step, and starts again with the process."""
    streams = {}
    real_init = trainer.Run.__init__

    def init(run, *args):
        streams.clear()
        real_init(run, *args)

    def ignoring_step(seed, stream, step=0):
        return streams.setdefault((seed, stream), provenance.generator(seed, stream))

    patch.setattr(trainer.Run, "__init__", init)
    patch.setattr(data, "generator", ignoring_step)


def after_resume(change):
    def mutant(patch):
        resume = trainer.Run._resume

        def changed(run):
            resume(run)
            change(run)

        patch.setattr(trainer.Run, "_resume", changed)

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


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_resume_that_is_not_exact_is_noticed(tmp_path, monkeypatch, uninterrupted, name):
    config, reference = tiny_runs.data(**RUNS["growing prompts"]), uninterrupted["growing prompts"]
    MUTANTS[name](monkeypatch)
    if MUTANTS[name] is remembering:  # its uninterrupted run is another one
        reference = tmp_path / "whole"
        train(config, reference, progress=False)
    must_fail(check_resumed, config, tmp_path / "resumed", reference, [7])


# ---- killed between any two files ----------------------------------------------------------------


N_WRITES = 1 + 3 * 4  # the config, then four files a checkpoint


def train_for_writes(config, folder, n_writes):
    """Train, and die in the middle of the file after this many; leftovers stay there."""
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


@pytest.mark.parametrize("n_writes", one_in(3, range(N_WRITES)))
def test_a_kill_between_any_two_files_mixes_nothing(tmp_path, uninterrupted, n_writes):
    check_killed_between_files(tmp_path, uninterrupted["growing prompts"], n_writes)


def test_there_are_no_other_files_to_be_killed_between(tmp_path):
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        train_for_writes(tiny_runs.data(), tmp_path, N_WRITES)


def all_metrics(run):
    run.metrics = [
        json.loads(line) for line in (run.out / "metrics.jsonl").read_text().splitlines()
    ]


@pytest.mark.parametrize(
    ("mutant", "n_writes"),
    [
        (after_resume(all_metrics), 1 + 4 + 1),  # lines of steps that the state never reached
        (lambda patch: patch.setattr(trainer.Run, "_finished", lambda run: True), N_WRITES - 2),
        (lambda patch: patch.setattr(trainer.Run, "_finished", lambda run: True), N_WRITES - 1),
    ],
    ids=["metrics ahead of the state", "no last model", "no last provenance"],
)
def test_a_mixture_is_noticed(tmp_path, uninterrupted, monkeypatch, mutant, n_writes):
    mutant(monkeypatch)
    must_fail(check_killed_between_files, tmp_path, uninterrupted["growing prompts"], n_writes)


# ---- kill -9 -------------------------------------------------------------------------------------


LONG = {
    "training": {
        "steps": 60,
        "log_every": 4,
        "checkpoint_every": 3,
        "curriculum": {"first_points": 2, "until": 50},
    }
}
CHILD = """
import json, sys, time
from icl_interp import evaluation
from icl_interp.training import trainer

evaluation.in_distribution = lambda predictor, task: {"error": 0.5, "low": 0.4, "high": 0.6, "r2": 0.5}
advance = trainer.Run._advance

def waiting_for_the_end(run):
    if run.step == 50:
        time.sleep(600)  # however late the kill comes, it comes in time
    return advance(run)

trainer.Run._advance = waiting_for_the_end
trainer.train(json.loads(sys.argv[1]), sys.argv[2], progress=False)
"""


def kill_9(folder, delay):
    """Train in another process, and kill it some time after its first checkpoint."""
    threads = str(torch.get_num_threads())  # another number of threads may add in another order
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
    }
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
