"""Every experiment says what its work uses, where, and what differs here."""

from dataclasses import replace

import pytest
from helpers import must_fail
from markupsafe import escape

from icl_interp.experiments import base, kept, presets
from icl_interp.experiments.settings import (
    LOST,
    NOT_GIVEN,
    UNREAD,
    Row,
    Setting,
    different,
    from_dicts,
    given,
    not_given,
)
from icl_interp.reproduction import page, run

SCALES = tuple(presets.PRESETS)


def has_settings(experiment):
    """A work's value has a place and a missing one has none; ours has words at every scale."""
    assert experiment.settings, experiment.id
    names = [one.name for one in experiment.settings]
    assert len(names) == len(set(names)), experiment.id
    for scale in SCALES:
        for row in experiment.settings_at(scale):
            assert row.work, (experiment.id, row.name)
            assert bool(row.place) == row.given, (experiment.id, row.name)
            assert row.ours, (experiment.id, row.name)


@pytest.mark.slow
@pytest.mark.parametrize("name", base.names())
def test_every_experiment_has_the_setting_of_its_work(name):
    has_settings(base.get(name))


def test_an_experiment_without_it_is_found():
    experiment = base.get("limits.table4")
    must_fail(has_settings, replace(experiment, settings=()))
    placeless = Setting("layers", "12", "", "3")
    must_fail(has_settings, replace(experiment, settings=(*experiment.settings, placeless)))


ROWS = (
    Row("layers", "12", "Figure 2", "3"),
    Row("batch", "64", "section 3.2", "64"),
    Row("seeds", NOT_GIVEN, "", "5"),
    Row("heads", LOST, "", "4"),
    Row("width", UNREAD, "", "64"),
)


def test_only_what_the_work_gives_can_differ():
    def check(rows):
        assert different(rows) == "layers"
        known = "layers: 12; batch: 64"
        unknown = f"{NOT_GIVEN}: seeds; {LOST}: heads; {UNREAD}: width"
        assert given(rows) == f"{known}; {unknown}"

    check(ROWS)
    must_fail(check, (replace(ROWS[0], ours="12"), *ROWS[1:]))
    must_fail(check, (ROWS[0], replace(ROWS[1], ours="32"), *ROWS[2:]))
    must_fail(check, (*ROWS[:2], replace(ROWS[2], work="1", place="here"), *ROWS[3:]))


def test_our_values_are_read_off_the_models():
    """Sizes of `limits.table2`, from its recipes and from its presets."""
    found = {row.name: row for row in base.get("limits.table2").settings_at("small")}
    assert (found["layers"].ours, found["width"].ours) == ("3", "64")
    assert (found["points of a prompt"].ours, found["functions"].ours) == ("20", "100")
    whole = base.get("limits.table2").settings_at("paper")
    assert different(whole) == "norms"
    assert {row.name: row for row in whole}["lengths in training"].ours == (
        "1 to 40 labelled examples"
    )


def test_the_text_of_figure_4_is_the_papers():
    """The header once said that the paper had our text."""
    (text, embedding, *_) = base.get("autoregression.figure4").settings_at("small")
    assert "Moby Dick" in text.work
    assert "GPT-2" in embedding.work
    assert text.differs
    assert embedding.differs
    assert "licences" not in given([text])


def shows_setting(text, rows):
    """A page has every value of the work, and the names of what differs."""
    for row in rows:
        for value in (row.name, row.work, row.ours):
            assert str(escape(value)) in text, row
    assert str(escape(different(rows))) in text


def of_the_work(row):
    return row.name, row.work, row.place


@pytest.mark.parametrize("name", [name for name in base.names() if kept.path(name)])
def test_pages_and_records_show_the_setting(name):
    record = kept.record(name)
    rows = from_dicts(record["scale"]["settings"])
    today = base.get(name).settings_at(record["scale"]["name"])
    if kept.is_current(record, base.get(name)):
        assert rows == today
    else:  # what was run is not what would be run today; the work is what it was
        assert [of_the_work(row) for row in rows] == [of_the_work(row) for row in today]
    assert record["scale"]["published"] == given(rows)
    html = page.page(record, {}, None)
    shows_setting(html, rows)
    bare = {**record, "scale": {**record["scale"], "settings": [], "published": ""}}
    must_fail(shows_setting, page.page(bare, {}, None), rows)
    markdown = page.index_markdown([record])
    for row in rows:
        assert f"| {row.name} | {row.work} |" in markdown


def test_the_terminal_says_it():
    name = "autoregression.figure10"
    lines = run.Reproduction(base.get(name), kept.record(name)).setting
    assert lines[0].startswith("Ours: ")
    assert lines[1].startswith("The work's: layer: softmax attention")
    assert lines[2].startswith("Different: d, length of a sequence")
    older = kept.record(name)
    del older["scale"]["settings"]
    assert len(run.Reproduction(base.get(name), older).setting) == 1
    assert "The work's setting" not in page.page(older, {}, None)


def test_values_by_scale():
    one = not_given("seeds", {"smoke": "1", "small": "2", "paper": "4"})
    assert [one.here(scale) for scale in SCALES] == ["1", "2", "4"]
    assert (one.work, one.place) == (NOT_GIVEN, "")
