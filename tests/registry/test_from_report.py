"""Entries of reports: which weights they are about, whose names are kept, what is judged."""

from dataclasses import replace

import pytest
from small_registries import report

from icl_interp.checkpoints import bundled
from icl_interp.errors import InputError
from icl_interp.registry import entries_of
from icl_interp.registry.from_report import hash_of_bundled

pytestmark = pytest.mark.usefixtures("registry")


def test_a_report_gives_nothing_where_its_weights_are_not_known():
    for wrong in (None, "abc", "Z" * 64):
        made = report("low", 0.05)
        made.checkpoint["weights_sha256"] = wrong
        with pytest.raises(InputError, match="holds no hash of weights"):
            entries_of(made)


def test_names_of_strangers_are_not_kept():
    (found,), _ = entries_of(report("/home/somebody/model", 0.05))
    assert found.name == ""
    assert "somebody" not in found.text()
    (found,), _ = entries_of(report("/home/somebody/model", 0.05), "theirs")
    assert found.name == "theirs"
    # Somebody else's model may be called like a bundled one.
    (found,), _ = entries_of(report("affine", 0.05))
    assert found.name == ""
    made = report("affine", 0.05)
    made.checkpoint["weights_sha256"] = hash_of_bundled("affine")
    (found,), _ = entries_of(made)
    assert found.name == "affine"


def test_hashes_are_of_bundled_models_alone():
    assert len(hash_of_bundled("affine")) == 64
    assert hash_of_bundled("affine") != hash_of_bundled("affine_seed1")
    for name in ("", "..", "../models/affine", "no such model"):
        assert hash_of_bundled(name) == ""
    assert "affine" in bundled.names()


def test_what_results_say_now_is_added(tmp_path):
    made = report("low", 0.05)
    made.findings = [replace(made.findings[0], verdict="contradicted")]
    (found,), (line,) = entries_of(made, "low")
    assert found.verdict == "supported"
    assert "the report says contradicted, but its results now give supported" in line
