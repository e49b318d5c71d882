"""What the tests of run folders share."""

import pytest
import tiny_runs


@pytest.fixture
def folder(tmp_path):
    """A saved checkpoint."""
    return tiny_runs.checkpoint().save(tmp_path / "run")
