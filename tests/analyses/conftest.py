"""What the tests of analyses share."""

import pytest
from small_labs import in_fours

from icl_interp.analyses import bench
from icl_interp.probes import sweep
from icl_interp.studies.limits.measurements import failure


@pytest.fixture
def several_chunks(monkeypatch):
    """Twelve prompts in parts of four; what must be run at once is no more."""
    for user in (bench, sweep):
        monkeypatch.setattr(user, "chunks", in_fours)
    monkeypatch.setattr(failure, "FEWEST", 4)
