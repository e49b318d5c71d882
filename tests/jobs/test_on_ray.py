"""Jobs on a real Ray cluster of two nodes on this machine, one of which is lost on the way."""

import time
from pathlib import Path

import job_work
import pytest
from helpers import must_fail

from icl_interp import jobs
from icl_interp.errors import InputError
from icl_interp.jobs import Engine, Job, on_ray

ray = pytest.importorskip("ray")
N_JOBS = 8


@pytest.fixture
def found(monkeypatch):
    """Processes of a cluster find the tests' own modules."""
    monkeypatch.setenv("PYTHONPATH", f"{Path(job_work.__file__).parent}:{Path.cwd()}")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.fixture
def cluster(found):
    """Two nodes with a core each."""
    from ray.cluster_utils import Cluster

    size = {"num_cpus": 1, "object_store_memory": on_ray.STORE}
    made = Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
    made.add_node(**size)
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()


def check_each_once(words):
    """Each job has ended, and has ended once."""
    for of_job in words:
        assert of_job.count("ended") == 1


@pytest.mark.slow
def test_a_node_that_is_lost_loses_no_job(cluster, tmp_path):
    every = []
    for value in range(N_JOBS):
        own = tmp_path / str(value)
        arguments = {"folder": own, "value": value, "seconds": 4.0}
        every.append(Job(str(value), tmp_path / "jobs" / str(value), job_work.counted, arguments))
    (second,) = (node for node in cluster.list_all_nodes() if node is not cluster.head_node)
    ended = []

    def watch(name):
        ended.append(name)
        if len(ended) == 4:
            time.sleep(2)  # both nodes are in the middle of a job
            cluster.remove_node(second, allow_graceful=False)

    engine = Engine("ray", {"address": cluster.address})
    ends = jobs.run(every, engine, watch=watch)
    assert [end.result for end in ends] == list(range(N_JOBS))
    assert sorted(ended, key=int) == [str(value) for value in range(N_JOBS)]
    words = [job_work.words(tmp_path / str(value)) for value in range(N_JOBS)]
    check_each_once(words)
    must_fail(check_each_once, [[*words[0], "begun", "ended"], *words[1:]])
    begun = sum(of_job.count("begun") for of_job in words)
    assert begun > N_JOBS  # the node was lost in the middle of a job
    started = time.monotonic()
    assert [end.result for end in jobs.run(every, engine)] == list(range(N_JOBS))
    assert time.monotonic() - started < 1  # nothing is repeated


@pytest.mark.slow
def test_a_cluster_is_started_where_there_is_none(found, tmp_path):
    work = Job("1", tmp_path / "1", job_work.counted, {"folder": tmp_path, "value": 1})
    bad = Job("2", tmp_path / "2", job_work.refused, {"folder": tmp_path})
    ends = jobs.run([work, bad], Engine("ray"))
    assert (ends[0].result, ends[1].reason) == (1, "ValueError: no such thing as this")
    assert not ray.is_initialized()


def test_what_is_missing_is_said_in_a_line(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(on_ray.importlib, "import_module", missing)
    with pytest.raises(InputError, match=r'pip install "icl-interp\[cluster\]"'):
        on_ray.imported()
