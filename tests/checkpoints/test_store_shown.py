"""How a checkpoint shows itself: in a line, and as a table in a notebook."""

from dataclasses import replace

from helpers import must_fail

import icl_interp


def test_a_checkpoint_shows_itself_in_a_line():
    loaded = icl_interp.load("affine")
    assert repr(loaded).startswith("Checkpoint('affine', step 16000, 3 x 64 x 4 heads")
    assert "\n" not in repr(loaded)


def tells(table, loaded):
    """Design, task, encoding, step and error; and no text of a name is markup."""
    for told in ("3 x 64 x 4 heads", "degree 1", "interleaved", str(loaded.step), "R² 0.999"):
        assert told in table
    assert "<script" not in table


def test_a_checkpoint_is_a_table_in_a_notebook():
    loaded = icl_interp.load("affine")
    named = replace(loaded, provenance={**loaded.provenance, "name": "<script>"})
    tells(named._repr_html_(), named)
    assert "&lt;script&gt;" in named._repr_html_()
    must_fail(tells, named._repr_html_().replace("interleaved", ""), named)
    must_fail(tells, f"{named._repr_html_()}<script>", named)
