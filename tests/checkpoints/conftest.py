"""What the tests of run folders share."""

import jaxtyping
import pytest
import tiny_runs


@pytest.fixture
def as_users_run_it(monkeypatch):
    """Without the run-time check of annotations, which only tests switch on: it would refuse wrong types first."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture
def folder(tmp_path):
    """A saved checkpoint."""
    return tiny_runs.checkpoint().save(tmp_path / "run")
