"""What the tests of analyses share."""

import pytest

from icl_interp.analyses import lab


@pytest.fixture
def several_chunks(monkeypatch):
    """Nine prompts in chunks of four: what goes wrong between chunks shows."""
    monkeypatch.setattr(lab, "CHUNK", 4)
