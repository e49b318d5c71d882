"""Set-up that must happen before any test file, and so icl_interp or torch, is imported."""

import logging
import os

import hypothesis
import jaxtyping
import pytest
import run_time_types
from helpers import SURFACE

# transformer_lens would look things up on a hub, and wait for it
os.environ["HF_HUB_OFFLINE"] = "1"
if (
    "PYTEST_XDIST_WORKER" in os.environ
):  # workers that take all the cores each only slow one another down
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
for name in (
    "CI",
    "BUILD_NUMBER",
):  # where either is set, pytest explains a failed comparison by a whole diff, whose
    os.environ.pop(
        name, None
    )  # time grows as the cube of the length; mutants fail on purpose, some by 6,000 numbers

# The shapes and dtypes written in annotations are checked at run time, here only.
run_time_types.install("icl_interp")

collect_ignore = ["example_study"]  # a package of its own: what it registers at import would stay

# The same examples on every run and every machine; a slow machine is no failure.
hypothesis.settings.register_profile("icl_interp", deadline=None, derandomize=True)
hypothesis.settings.load_profile("icl_interp")


logging.getLogger("icl_interp").addHandler(SURFACE)


def pytest_configure(config):
    """Fixtures that import the package, so after the hook.

    The process that only starts workers runs no test and needs none of them.
    """
    starts_workers = getattr(config.option, "numprocesses", None)
    if starts_workers and not hasattr(config, "workerinput"):
        return
    for name in ("measured_claims", "small_reports"):
        config.pluginmanager.import_plugin(name)


@pytest.fixture
def as_users_run_it(monkeypatch):
    """Without the run-time check of annotations, which would refuse wrong types first in tests."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture
def errors_are_caught():
    """For tests of what the package makes of errors."""
    logging.getLogger("icl_interp").removeHandler(SURFACE)
    yield
    logging.getLogger("icl_interp").addHandler(SURFACE)
