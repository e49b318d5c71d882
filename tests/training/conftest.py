"""What the tests of training runs share."""

import jaxtyping
import pytest
import tiny_runs

from icl_interp import evaluation, provenance
from icl_interp.training import trainer


@pytest.fixture(scope="module")
def quick():
    """Without what takes longer than twelve steps and is tested elsewhere."""
    environment = provenance.environment()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            evaluation,
            "in_distribution",
            lambda predictor, task: dict.fromkeys(trainer.MEASURED, 0.5),
        )
        patch.setattr(trainer, "environment", lambda: environment)
        patch.setattr(provenance.os, "fsync", lambda descriptor: None)
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)
        yield


@pytest.fixture(scope="module")
def uninterrupted(quick, tmp_path_factory):
    """Folders of runs that nothing disturbed, by name."""
    folders = {}
    for name, changes in tiny_runs.RUNS.items():
        folders[name] = tmp_path_factory.mktemp("uninterrupted")
        trainer.train(tiny_runs.data(**changes), folders[name], progress=False)
    return folders


@pytest.fixture(scope="module")
def started(quick, tmp_path_factory):
    """A run that stands after its first checkpoint."""
    folder = tmp_path_factory.mktemp("started")
    tiny_runs.train_until(tiny_runs.data(**tiny_runs.RUNS["growing prompts"]), folder, 7)
    return folder
