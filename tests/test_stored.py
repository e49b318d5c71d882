"""Only regular files are opened, up to a size that is said.

A pipe would wait without end, and a device never ends.
"""

import json
import os
import re
import shutil
import socket
import threading
import time
from pathlib import Path

import pytest
import tiny_runs
import torch
from helpers import must_fail
from layout_rules import ROOT
from test_cli import RECIPE, refused, run

from icl_interp import stored
from icl_interp.checkpoints import given, store
from icl_interp.checkpoints.formats import files
from icl_interp.errors import InputError
from icl_interp.models import weights
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import read_json
from icl_interp.report import Report
from icl_interp.training import recipes, trainer

SECONDS = 5  # none of this takes a tenth of it


def pipe(path):
    os.mkfifo(path)


def device(path):
    path.symlink_to("/dev/zero")


def a_socket(path):
    with socket.socket(socket.AF_UNIX) as one:
        here = os.open(path.parent, os.O_RDONLY)  # the name of a socket has 107 bytes at most
        one.bind(f"/proc/self/fd/{here}/{path.name}")
        os.close(here)


def folder(path):
    path.mkdir()


def large(path):
    """A file that takes no room on the disk."""
    with path.open("wb") as file:
        file.truncate(10**12)


KINDS = {
    "pipe": (pipe, "it is a pipe, and only regular files are read"),
    "device": (device, "it is a device, and only regular files are read"),
    "socket": (a_socket, "it is a socket, and only regular files are read"),
    "folder": (folder, "Is a directory"),
    "large": (large, r"has 1,000,000,000,000 bytes, but at most [0-9,]+ are read"),
}


def in_time(read, *arguments, seconds=SECONDS):
    """What `read` raises, within seconds; a thread that waits is left behind."""
    raised: list[BaseException | None] = []

    def go():
        try:
            read(*arguments)
            raised.append(None)
        except BaseException as error:
            raised.append(error)

    threading.Thread(target=go, daemon=True).start()
    end = time.monotonic() + seconds
    while not raised and time.monotonic() < end:
        time.sleep(0.005)
    assert raised, "it is still waiting"
    return raised[0]


def is_refused(words, read, *arguments):
    error = in_time(read, *arguments)
    assert isinstance(error, InputError), repr(error)
    assert "\n" not in str(error)
    assert re.search(words, str(error)), str(error)


READERS = {
    "bytes": lambda path: stored.read_bytes(path, 10**6),
    "json": read_json,
    "recipe": recipes.resolve,
    "task": given.read_task,
    "weights": weights.read,
    "header": weights.header,
    "report": Report.load,
    "checkpoint": store.load,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_regular_file_is_refused_at_once(tmp_path, reader, kind):
    make, words = KINDS[kind]
    path = tmp_path / "given"
    make(path)
    if kind == "folder" and reader in ("report", "checkpoint", "recipe"):
        return  # these take folders
    is_refused(words, READERS[reader], path)


def test_waiting_would_be_noticed(tmp_path):
    pipe(tmp_path / "pipe")
    must_fail(in_time, Path.read_bytes, tmp_path / "pipe", seconds=0.3)
    # Whoever waits for the pipe is let go.
    os.close(os.open(tmp_path / "pipe", os.O_WRONLY | os.O_NONBLOCK))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run with snapshots."""
    out = tmp_path_factory.mktemp("runs") / "run"
    trainer.train(
        tiny_runs.data(training={**tiny_runs.data()["training"], "snapshots": [3]}),
        out,
        progress=False,
    )
    return out


def again(out):
    trainer.train(read_run(out), out, progress=False)


def read_run(out):
    return tiny_runs.data(training={**tiny_runs.data()["training"], "snapshots": [3]})


RUN_FILES = {
    "config.json": (store.load, HookedTransformer.from_checkpoint, again),
    "provenance.json": (store.load, again),
    "model.safetensors": (store.load, HookedTransformer.from_checkpoint),
    "snapshots.safetensors": (lambda out: store.load(out).snapshots(), again),
    "metrics.jsonl": (again,),
    "training_state.safetensors": (again,),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", RUN_FILES)
def test_so_is_a_file_of_a_run_folder(tmp_path, finished, name, kind):
    make, words = KINDS[kind]
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / name).unlink()
    make(tmp_path / "run" / name)
    for read in RUN_FILES[name]:
        is_refused(words, read, tmp_path / "run")


def test_files_that_say_they_are_empty_end(tmp_path):
    """Such as those of the system."""
    path = Path("/proc/self/maps")
    if not path.exists():
        pytest.skip("this system has no /proc")
    assert path.stat().st_size == 0
    is_refused("has more than the 100 bytes that are read", stored.read_bytes, path, 100)


def test_a_file_of_the_largest_size_is_read(tmp_path):
    (tmp_path / "x").write_bytes(b"x" * 100)
    assert stored.read_bytes(tmp_path / "x", 100) == b"x" * 100
    is_refused("has 100 bytes, but at most 99 are read", stored.read_bytes, tmp_path / "x", 99)
    is_refused("No such file", stored.read_bytes, tmp_path / "y", 99)
    is_refused("null", stored.read_bytes, Path("a\0b"), 99)


def test_lists_of_json_are_counted_before_they_are_made(tmp_path):
    (tmp_path / "x.json").write_text(f"[{'[],' * 10**6}[]]")
    started = time.monotonic()
    is_refused(
        "holds 1,000,002 lists and mappings, but at most 1,000,000", read_json, tmp_path / "x.json"
    )
    assert time.monotonic() - started < 1


def test_a_long_header_of_weights_is_not_read(tmp_path):
    text = json.dumps({"__metadata__": {"a": "x" * 10**7}}).encode()
    (tmp_path / "w.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b" ")
    for read in (weights.header, weights.read):
        is_refused("has a header of 10,000,027 bytes", read, tmp_path / "w.safetensors")


def test_a_folder_with_strange_things_in_it_is_looked_through(tmp_path):
    pipe(tmp_path / "state.pt")
    device(tmp_path / "zeros.bin")
    large(tmp_path / "model.bin")
    is_refused("is not a checkpoint", store.load, tmp_path)
    torch.save({"a": torch.ones(1)}, tmp_path / "w.pt")
    assert files.holding_weights(tmp_path) == [tmp_path / "w.pt"]


def test_at_the_command_line(monkeypatch, capsys, tmp_path):
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    for name, (make, words) in KINDS.items():
        if name in ("pipe", "device"):
            make(tmp_path / name)
            for arguments in (
                ("analyze", tmp_path / name),
                ("evaluate", "affine", "--task", tmp_path / name),
                ("explain", "heads.orthogonality", tmp_path / name),
                ("train", tmp_path / name),
            ):
                status, _, err = run(monkeypatch, capsys, *arguments)
                refused(status, err, words)


def test_reading_goes_through_one_door():
    """No module opens a file that somebody named by a way of its own."""
    # What else opens files: the files of the package itself, and what comes after `check_file`.
    own = {
        "stored.py",
        "checkpoints/bundled.py",
        "figures/files.py",
        "figures/text.py",
        "jobs/job.py",
        "jobs/local.py",
        "testing/job_cache.py",
        "testing/planted/tools.py",
    }
    own |= {
        "studies/limits/experiments/printed.py",
        "studies/autoregression/experiments/embeddings.py",
    }
    ways = (".read_text(", ".read_bytes(", ".open(", " open(", "np.load(", "fromfile(")
    sources = {
        p.relative_to(ROOT).as_posix(): p.read_text("utf-8") for p in sorted(ROOT.rglob("*.py"))
    }

    def check(sources):
        for path, text in sources.items():
            if path not in own:
                assert [way for way in ways if way in text] == [], path

    check(sources)
    must_fail(check, {**sources, "report/report.py": "path.read_text()"})
