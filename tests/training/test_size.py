"""Absurd sizes are refused from the config alone.

Nothing is allocated, and no loop runs over them.
"""

import pytest
import tiny_runs
from helpers import must_fail

from icl_interp.errors import InputError
from icl_interp.training import size, trainer

ABSURD = {
    "n_layers": {"model": {"n_layers": 10**9}},
    "layers of one number": {"model": {"n_layers": 10**7, "d_model": 1, "n_heads": 1, "d_mlp": 1}},
    "d_mlp": {"model": {"d_mlp": 10**12}},
    "n_ctx": {"model": {"n_ctx": 10**12}},
    "n_heads": {"model": {"n_heads": 10**12, "d_head": 1}},
    "several": {"model": {"d_model": 10**6, "n_heads": 10**6, "d_head": 10**6}},
    "batch_size": {"training": {"batch_size": 10**12}},
    "n_points": {
        "task": {"n_points": 10**11},
        "model": {"positional_embedding_type": "none", "n_ctx": 10**12},
    },
}


def check_refused(folder, changes, match):
    with pytest.raises(InputError, match=match) as refused:
        trainer.train(tiny_runs.data(**changes), folder, progress=False)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400
    assert not folder.exists()


@pytest.mark.parametrize("name", ABSURD)
def test_sizes_beyond_this_machine_are_refused(tmp_path, name):
    check_refused(
        tmp_path / "run", ABSURD[name], "needs at least .* bytes of memory, but this machine has"
    )


def test_sizes_beyond_any_machine_are_refused(tmp_path):
    check_refused(
        tmp_path / "run",
        {"model": {"d_model": 10**10}},
        r"no tensor can be as large .*d_model=10000000000,",
    )


@pytest.mark.slow
def test_a_run_that_fits_is_not_refused(tmp_path, monkeypatch):
    must_fail(check_refused, tmp_path / "a", {}, ".")
    monkeypatch.setattr(size, "_memory", lambda: 10_000)
    check_refused(
        tmp_path / "b",
        {},
        r"this run has 1,009 parameters and 36 tokens at once, and needs at least",
    )


def test_a_machine_that_does_not_say_has_a_usual_size(monkeypatch):
    def unknown(name):
        raise ValueError("unrecognized configuration name")

    assert size._memory() > 2**27
    monkeypatch.setattr(size.os, "sysconf", unknown)
    assert size._memory() == size.UNKNOWN_MEMORY
