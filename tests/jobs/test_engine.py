"""Jobs: what is missing is made, what is done is not repeated, and a failure stops no other."""

import shutil
import sys
from dataclasses import replace
from itertools import count

import job_work
import pytest
from helpers import must_fail
from hypothesis import given
from hypothesis import strategies as st

from icl_interp import jobs
from icl_interp.errors import InputError
from icl_interp.experiments.calibration import CONSTRUCTIONS
from icl_interp.jobs import HERE, Engine, Job, engine, job, local
from icl_interp.jobs.table import Progress

TWO = Engine("local", {"processes": 2})


def work_of(folder, values, work=job_work.counted, **more):
    """A job for each value."""
    return [
        Job(str(v), folder / "jobs" / str(v), work, {"folder": folder / str(v), "value": v, **more})
        for v in values
    ]


def only_folder(folder, name, work):
    return Job(name, folder / "jobs" / name, work, {"folder": folder / name})


def check_finishes_what_is_missing(run, folder):
    """Stopped at the third of five jobs and called again: each is made once."""
    every = work_of(folder, range(5))

    def stop(name):
        if name == "2":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(every, HERE, watch=stop)
    ends = run(every, HERE)
    assert [end.result for end in ends] == [0, 1, 2, 3, 4]
    for value in range(5):
        assert job_work.words(folder / str(value)) == ["begun", "ended"]


def test_an_interrupted_call_is_finished_by_the_next(tmp_path):
    check_finishes_what_is_missing(jobs.run, tmp_path / "a")

    def repeats(every, engine, watch=None):
        for one in every:
            (one.folder / job.DONE).unlink(missing_ok=True)
        return jobs.run(every, engine, watch=watch)

    must_fail(check_finishes_what_is_missing, repeats, tmp_path / "b")


@pytest.mark.parametrize("engine", [HERE, pytest.param(TWO, marks=pytest.mark.slow)])
def test_a_failed_job_is_listed_and_stops_no_other(engine, tmp_path):
    bad = only_folder(tmp_path, "bad", job_work.refused)
    ends = jobs.run([bad, *work_of(tmp_path, range(3))], engine)
    assert [end.state for end in ends] == ["failed", "done", "done", "done"]
    assert ends[0].reason == "ValueError: no such thing as this"
    assert "Traceback" in (bad.folder / job.LOG).read_text()
    with pytest.raises(InputError, match="1 of 4 jobs failed, the first is bad: ValueError: no"):
        jobs.results(ends)
    jobs.run([bad], engine)  # a failed job is tried again
    assert job_work.words(tmp_path / "bad") == ["begun", "begun"]


@pytest.mark.slow
def test_a_process_that_is_killed_takes_no_other_job_along(tmp_path):
    dead = only_folder(tmp_path, "dead", job_work.killed)
    every = [*work_of(tmp_path, range(2), seconds=1.0), dead, *work_of(tmp_path, range(2, 6))]
    ends = jobs.run(every, TWO)
    assert [end.result for end in ends] == [0, 1, None, 2, 3, 4, 5]
    assert ends[2].state == "failed"
    assert ends[2].reason == local.ENDED
    for value in range(6):  # what ran beside it may have been begun twice
        said = job_work.words(tmp_path / str(value))
        assert said[-1] == "ended"
        assert said.count("begun") <= 2


def test_a_folder_of_another_job_is_refused(tmp_path):
    (one,) = work_of(tmp_path, [1])
    jobs.run([one])
    other = replace(one, arguments={**one.arguments, "value": 2})
    with pytest.raises(InputError, match="holds the result of a job other than 1: name another"):
        jobs.run([other])
    moved = replace(one, arguments={**one.arguments, "folder": tmp_path / "elsewhere"})
    assert jobs.run([moved])[0].result == 1  # paths do not count
    with pytest.raises(InputError, match="two jobs have the same folder"):
        jobs.run([one, one])


def test_a_folder_that_cannot_be_written_costs_its_own_job_only(tmp_path):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "0").write_text("a file where a folder should be")
    ends = jobs.run(work_of(tmp_path, range(3)))
    assert [end.state for end in ends] == ["failed", "done", "done"]
    assert "File exists" in ends[0].reason


def test_a_folder_that_vanishes_is_said_in_a_line(tmp_path):
    """As that of a disk that is gone while a job is at work."""

    def remove(name):
        if name == "0":
            shutil.rmtree(tmp_path / "jobs" / "0")

    ends = jobs.run(work_of(tmp_path, range(2)), watch=remove)
    assert [end.state for end in ends] == ["failed", "done"]
    assert ends[0].reason == engine.VANISHED
    assert [end.result for end in jobs.run(work_of(tmp_path, range(2)))] == [0, 1]


def test_a_command_is_a_job(tmp_path):
    fine = Job("fine", tmp_path / "1", jobs.command, {"argv": [sys.executable, "-c", "print(7)"]})
    wrong = "import sys; sys.exit('no disk')"
    bad = Job("bad", tmp_path / "2", jobs.command, {"argv": [sys.executable, "-c", wrong]})
    ends = jobs.run([fine, bad])
    assert (ends[0].result, ends[1].reason) == (0, "no disk")
    assert "7" in (fine.folder / job.LOG).read_text()


def test_engines_and_their_settings_are_named():
    assert jobs.asked("local", ["processes=3"]) == Engine("local", {"processes": 3})
    assert jobs.asked("slurm", ["slurm_partition=long"]).settings == {"slurm_partition": "long"}
    with pytest.raises(InputError, match="engine"):
        jobs.asked("cloud")
    with pytest.raises(InputError, match="processes"):
        jobs.asked("local", ["procesess=3"])
    with pytest.raises(InputError, match="such as processes=2"):
        jobs.asked("local", ["3"])
    with pytest.raises(InputError, match="whole number from 1 up"):
        list(local.run([], processes=0))


def check_left(left, folder):
    """Of four equal jobs two have ended after 10 s: 10 s are left."""
    every = work_of(folder, range(5))
    jobs.run(every[:1])  # done before: it says nothing about the pace
    clock = iter((0.0, 10.0)).__next__
    progress = Progress(every, clock)
    jobs.run(every[1:3])
    assert left(progress) == 10.0


def test_the_time_that_is_left(tmp_path):
    check_left(Progress.left, tmp_path / "a")

    def of_all(progress):
        progress.done_before = 0
        return Progress.left(progress)

    must_fail(check_left, of_all, tmp_path / "b")
    fresh = work_of(tmp_path / "c", range(2))
    assert Progress(fresh).left() is None
    assert Progress(fresh).line() == "2 waiting"


def test_off_a_terminal_each_end_is_a_line(tmp_path, capsys):
    bad = only_folder(tmp_path, "bad\x1b", job_work.refused)
    jobs.run([*work_of(tmp_path, [0]), bad], table=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("0: done; 1 waiting, 1 done; about 0:00:0")
    assert lines[1] == "bad\\x1b: failed (ValueError: no such thing as this); 1 done, 1 failed"


@given(st.floats(0.1, 100), st.integers(1, 256), st.floats(0, 1000))
def test_processes_fit_into_memory(memory, cores, free):
    n = local.allowed(memory, cores, free)
    assert 1 <= n <= cores
    assert n == 1 or n * memory <= free * (1 + 1e-12)
    assert n == cores or (n + 1) * memory > free * (1 - 1e-12)


def check_one_place_each(part, folder):
    names = list(CONSTRUCTIONS)
    assert len({part(folder, name).name.lower() for name in names}) == len(names) > 80
    assert all(part(folder, name).parent == folder for name in (*names, "a/b", "../up", "c: d"))


def test_two_parts_never_share_a_place(tmp_path):
    check_one_place_each(jobs.part, tmp_path)

    def letters(folder, name):
        return folder / "".join(c for c in name if c.isalnum())

    must_fail(check_one_place_each, letters, tmp_path)


def test_a_folder_is_refused_to_parts_made_otherwise(tmp_path):
    jobs.claim_folder(tmp_path / "new", {"sources": "a", "seed": 0})
    jobs.claim_folder(tmp_path / "new", {"sources": "a", "seed": 0})
    with pytest.raises(
        InputError,
        match="new holds parts of a run with other sources and seed: name another folder",
    ):
        jobs.claim_folder(tmp_path / "new", {"sources": "b", "seed": 1})


def test_a_part_is_made_once(tmp_path):
    numbers = count()

    def make():
        return [next(numbers), float("inf")]

    assert jobs.kept(tmp_path, "a/b", make) == [0, "inf"]
    assert jobs.kept(tmp_path, "a/b", make) == [0, "inf"]
    assert jobs.kept(tmp_path, "a%2Fb", make) == [1, "inf"]
