"""What the tests of training runs share."""

import jaxtyping
import pytest

from icl_interp import evaluation, provenance


@pytest.fixture(scope="module")
def quick():
    """Without what takes longer than twelve steps and is tested elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "in_distribution", lambda predictor, task: {"error": 0.5})
        patch.setattr(provenance.os, "fsync", lambda descriptor: None)
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)
        yield
