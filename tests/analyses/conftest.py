"""What the tests of analyses share."""

import pytest
from labs import in_fours

from icl_interp.analyses import lab
from icl_interp.probes import sweep


@pytest.fixture
def several_chunks(monkeypatch):
    """Nine prompts in parts of four."""
    for user in (lab, sweep):
        monkeypatch.setattr(user, "chunks", in_fours)
