"""Jobs through submitit: its local executor, which queues and pre-empts as Slurm does."""

import os
import signal
import threading
import time
from pathlib import Path

import job_work
import pytest

from icl_interp import jobs
from icl_interp.errors import InputError
from icl_interp.jobs import Engine, Job, on_slurm

submitit = pytest.importorskip("submitit")


@pytest.fixture
def local(monkeypatch):
    """Settings of the local executor; its processes find the tests' own modules."""
    monkeypatch.setenv("PYTHONPATH", f"{Path(job_work.__file__).parent}:{Path.cwd()}")
    return Engine("slurm", {"cluster": "local", "timeout_min": 2})


@pytest.mark.slow
def test_a_job_that_is_pre_empted_goes_on(local, tmp_path):
    arguments = {"folder": tmp_path / "work", "value": 5, "seconds": 6.0}
    work = Job("long", tmp_path / "jobs" / "long", job_work.counted, arguments)

    def pre_empt():
        """Tell the process that works, as Slurm does before it takes the machine away."""
        calls = tmp_path / "work" / "calls.txt"
        while not calls.exists():
            time.sleep(0.1)
        time.sleep(0.5)
        os.kill(int(calls.read_text().split()[1]), signal.SIGUSR2)

    thread = threading.Thread(target=pre_empt)
    thread.start()
    (end,) = jobs.run([work], local)
    thread.join()
    assert (end.state, end.result) == ("done", 5)
    assert job_work.words(tmp_path / "work") == ["begun", "begun", "ended"]


@pytest.mark.slow
def test_a_failed_job_stops_no_other(local, tmp_path):
    bad = Job("bad", tmp_path / "jobs" / "bad", job_work.refused, {"folder": tmp_path / "b"})
    dead = Job("dead", tmp_path / "jobs" / "dead", job_work.killed, {"folder": tmp_path / "d"})
    fine = Job("fine", tmp_path / "jobs" / "fine", job_work.counted, {"folder": tmp_path / "f"})
    ends = jobs.run([bad, dead, fine], local)
    assert [end.state for end in ends] == ["failed", "failed", "done"]
    assert ends[0].reason == "ValueError: no such thing as this"
    assert ends[1].reason


def test_what_is_missing_is_said_in_a_line(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="cannot submit to slurm from here"):
        on_slurm.prepared(tmp_path, "slurm")

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(on_slurm.importlib, "import_module", missing)
    with pytest.raises(InputError, match=r'pip install "icl-interp\[slurm\]"'):
        on_slurm.prepared(tmp_path, "slurm")
