"""A run and its process: one process a folder, requests to end, and what a kill leaves behind."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import tiny_runs
from helpers import must_fail
from safetensors.torch import load_file

from icl_interp.errors import InputError
from icl_interp.training import process, ranks, trainer
from icl_interp.training.trainer import train

ROOT = Path(__file__).parents[2]
EXACT = ("config.json", "metrics.jsonl", "training_state.safetensors", "model.safetensors")
RUN = tiny_runs.data()  # a checkpoint after 5, 10 and 12 steps
pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    train(RUN, folder, progress=False)
    return folder


def check_same_files(folder, reference):
    for name in EXACT:
        assert (folder / name).read_bytes() == (reference / name).read_bytes(), name
    assert sorted(tiny_runs.contents(folder)) == sorted(tiny_runs.contents(reference))


# SIGTERM


def signalling(step, patch, number=signal.SIGTERM):
    """At this step the system asks this process to end."""
    advance = trainer.Run._advance

    def signalled(run):
        if run.step == step:
            os.kill(os.getpid(), number)
        return advance(run)

    patch.setattr(trainer.Run, "_advance", signalled)


def mine(*_):
    raise AssertionError("the handler from before ran")


def check_terminated(folder, whole, step):
    """The step ends and is saved, the earlier handler is back, and the run goes on exactly."""
    before = signal.signal(signal.SIGTERM, mine)
    try:
        with pytest.MonkeyPatch.context() as patch:
            signalling(step, patch)
            with pytest.raises(SystemExit) as end:
                train(RUN, folder, progress=False)
        assert isinstance(end.value, process.Terminated)
        assert end.value.code == 143
        assert str(end.value) == f"terminated: step {step + 1} of 12 is saved in {folder}"
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)
    assert int(load_file(folder / "training_state.safetensors")["step"]) == step + 1
    train(RUN, folder, progress=False)
    check_same_files(folder, whole)


@pytest.mark.parametrize("step", [0, 3, 4, 6, 11])
def test_a_terminated_run_is_saved_and_goes_on_exactly(tmp_path, whole, step):
    check_terminated(tmp_path, whole, step)


def test_a_run_that_is_not_saved_or_not_ended_would_be_noticed(tmp_path, whole, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(process.EndRequest, "grant", lambda end, message: None)
        must_fail(check_terminated, tmp_path / "a", whole, 6)
    with monkeypatch.context() as patch:
        patch.setattr(process.EndRequest, "__exit__", lambda end, *error: None)
        must_fail(check_terminated, tmp_path / "b", whole, 6)
    with monkeypatch.context() as patch:
        real = trainer.Run.save
        patch.setattr(trainer.Run, "save", lambda run: None if run.step == 7 else real(run))
        must_fail(check_terminated, tmp_path / "c", whole, 6)


def test_the_handler_is_back_after_a_whole_run_and_after_an_error(tmp_path, monkeypatch):
    before = signal.signal(signal.SIGTERM, mine)
    try:
        train(RUN, tmp_path / "whole", progress=False)
        assert signal.getsignal(signal.SIGTERM) is mine
        tiny_runs.train_until(RUN, tmp_path / "killed", 3)
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_request_while_processes_ask_each_other_is_not_lost(tmp_path, whole, monkeypatch):
    """It comes after this process said that nobody asks it to end."""
    calls = iter(range(100))
    real = ranks.Ranks.anyone

    def asked_meanwhile(place, asks):
        if next(calls) == 6:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(place, asks)

    with monkeypatch.context() as patch:
        patch.setattr(ranks.Ranks, "anyone", asked_meanwhile)
        with pytest.raises(process.Terminated, match="step 8 of 12 is saved"):
            train(RUN, tmp_path, progress=False)
    train(RUN, tmp_path, progress=False)
    check_same_files(tmp_path, whole)


def test_another_thread_trains_without_a_handler(tmp_path, whole):
    before, errors = signal.getsignal(signal.SIGTERM), []

    def work():
        try:
            train(RUN, tmp_path, progress=False)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not errors
    assert signal.getsignal(signal.SIGTERM) is before
    check_same_files(tmp_path, whole)


# Whole processes

CHILD = """
import json, os, signal, sys
from icl_interp import cli, evaluation, provenance
from icl_interp.training import trainer

evaluation.in_distribution = lambda predictor, task: {"error": .5, "low": .4, "high": .6, "r2": .5}
folder, what, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
advance, replace, written = trainer.Run._advance, os.replace, []

def signalled(run):
    if run.step == number:
        os.kill(os.getpid(), signal.SIGTERM)
    return advance(run)

def killed(temporary, path):
    written.append(path)
    if len(written) == number:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(temporary, path)

if what == "terminate":
    trainer.Run._advance = signalled
if what == "kill":
    provenance.os.replace = killed
sys.argv[1:] = ["train", folder + ".yaml", "--out", folder]
cli.main()
"""


def run_child(folder, what, number=0):
    Path(f"{folder}.yaml").write_text(json.dumps(RUN))  # JSON is YAML
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    arguments = [sys.executable, "-c", CHILD, str(folder), what, str(number)]
    return subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_the_command_saves_on_sigterm_and_leaves_with_143(tmp_path):
    ended = run_child(tmp_path / "run", "terminate", 7)
    assert ended.returncode == 143
    assert ended.stderr == f"terminated: step 8 of 12 is saved in {tmp_path / 'run'}\n"
    assert ended.stdout == ""
    assert run_child(tmp_path / "run", "go on").returncode == 0
    assert run_child(tmp_path / "whole", "go on").returncode == 0
    check_same_files(tmp_path / "run", tmp_path / "whole")


@pytest.mark.slow
def test_a_killed_process_blocks_nothing_and_its_leftovers_go(tmp_path):
    folder = tmp_path / "run"
    ended = run_child(folder, "kill", 8)  # in the middle of a file of the second checkpoint
    assert ended.returncode == -signal.SIGKILL
    left = [name for name in tiny_runs.contents(folder) if name.startswith(".")]
    assert process.LOCK in left
    assert len(left) == 2
    assert run_child(folder, "go on").returncode == 0
    assert run_child(tmp_path / "whole", "go on").returncode == 0
    check_same_files(folder, tmp_path / "whole")


# One process a folder


def check_refused(folder):
    before = tiny_runs.contents(folder)
    with pytest.raises(
        InputError, match=r"another process is training in .*: wait until it has ended"
    ) as refused:
        train(RUN, folder, progress=False)
    assert "\n" not in str(refused.value)
    assert tiny_runs.contents(folder) == before


def test_a_second_run_in_a_folder_is_refused(tmp_path, monkeypatch, whole):
    """Also in a folder that the first has just made, and as soon as it has ended it is not."""
    folder = tmp_path / "run"
    with process.alone_in(folder):
        check_refused(folder)
    assert not folder.exists()  # nothing was written in it
    refused, advance = [], trainer.Run._advance

    def trying(run):
        if run.step == 6 and not refused:
            check_refused(folder)
            refused.append(run.step)
        return advance(run)

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Run, "_advance", trying)
        train(RUN, folder, progress=False)
    assert refused == [6]
    check_same_files(folder, whole)
    must_fail(check_refused, folder)


HOLDER = """
import sys, time
from pathlib import Path
from icl_interp.training import process
with process.alone_in(Path(sys.argv[1])):
    print("holding", flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_the_lock_of_another_process_holds_and_goes_with_it(tmp_path, whole):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    arguments = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "holding\n"
        check_refused(tmp_path)
        holder.kill()
    assert (tmp_path / process.LOCK).exists()
    train(RUN, tmp_path, progress=False)
    check_same_files(tmp_path, whole)


def test_the_lock_does_not_travel_with_a_checkpoint(tmp_path, whole):
    with process.alone_in(whole):
        saved = trainer.store.load(whole).save(tmp_path / "copy")
    assert not [name for name in tiny_runs.contents(saved) if name.startswith(".")]


# Leftovers


def test_leftovers_go_when_a_run_is_resumed(tmp_path, whole):
    tiny_runs.train_until(RUN, tmp_path, 7)
    for name in (*EXACT, "provenance.json", "snapshots.safetensors"):
        (tmp_path / f".{name}.a1_b2c3d").write_bytes(b"half a file")
    (tmp_path / ".notes").write_text("mine")
    train(RUN, tmp_path, progress=False)
    (tmp_path / ".notes").unlink()
    check_same_files(tmp_path, whole)


def test_a_refused_run_leaves_them(tmp_path):
    tiny_runs.train_until(RUN, tmp_path, 7)
    (tmp_path / ".model.safetensors.a1_b2c3d").write_bytes(b"half a file")
    before = tiny_runs.contents(tmp_path)
    with pytest.raises(InputError, match=r"holds a run with training\.steps = 12"):
        train(tiny_runs.data(training={"steps": 13}), tmp_path, progress=False)
    assert tiny_runs.contents(tmp_path) == before


# Where to train


def test_a_device_that_is_not_there_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InputError, match="cannot compute with float32 on the device 'cuda:99'"):
        train(RUN, tmp_path / "run", progress=False, device="cuda:99")
    assert not list(tmp_path.iterdir())
