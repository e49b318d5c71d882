"""Snapshots of a run that another program trained: its config has no training section."""

from dataclasses import replace

import pytest
import tiny_runs
from helpers import must_fail

from icl_interp.checkpoints import store
from icl_interp.errors import InputError


def test_snapshots_up_to_the_run_s_last_step_are_read(tmp_path):
    checkpoint = tiny_runs.checkpoint()
    weights = checkpoint.model.state_dict()
    other = replace(checkpoint, config=replace(checkpoint.config, training=None), step=7)

    def check(last):
        folder = tmp_path / str(last)
        folder.mkdir()
        store.write_snapshots(folder, {0: weights, last: weights})
        other.save(folder)
        assert tuple(store.load(folder).snapshots()) == (0, 7)

    check(7)
    must_fail(check, 3)
    with pytest.raises(InputError, match="increase from 0 to at most 7"):
        check(8)
