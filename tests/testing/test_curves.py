"""Power curves of a study: kept, refused after a change of code, and checked to rise."""

from dataclasses import replace

import pytest
from helpers import must_fail
from pandas.testing import assert_frame_equal

from icl_interp.errors import InputError
from icl_interp.experiments import power
from icl_interp.experiments.calibration import NO, YES
from icl_interp.provenance import write_json
from icl_interp.results import table_of_rows
from icl_interp.studies import BUNDLED, STUDIES
from icl_interp.testing import curves

STUDY = STUDIES.named("heads")
(DIAL,) = STUDY.dials


def table(*counts, n=40):
    """Rows of (supported, contradicted)."""
    rows = [
        (DIAL.name, DIAL.claim, float(i), yes, no, n - yes - no, n, i / len(counts))
        for i, (yes, no) in enumerate(counts)
    ]
    return table_of_rows([dict(zip(power.COLUMNS, row, strict=True)) for row in rows])


@pytest.mark.parametrize(
    ("counts", "missed"),
    [
        (((0, 40), (0, 0), (40, 0)), ""),
        (((0, 36), (10, 0), (36, 0)), ""),
        (((0, 35), (0, 0), (40, 0)), "only 88% are contradicted where the claim is false"),
        (((0, 40), (0, 0), (35, 0)), "only 88% are supported where it is true"),
        (((1, 39), (0, 0), (40, 0)), "2% are supported where it is false"),
        (((0, 40), (0, 0), (39, 1)), "2% are contradicted where it is true"),
        (
            ((0, 40), (30, 0), (20, 0), (40, 0)),
            "the share that is supported falls on the way to true",
        ),
        (
            ((0, 40), (0, 20), (0, 30), (40, 0)),
            "the share that is contradicted rises on the way to true",
        ),
    ],
)
def test_what_falls_short(counts, missed):
    assert curves.falls_short(table(*counts)) == missed


@pytest.fixture
def quick(monkeypatch):
    """Curves that take no time; returns what was asked for."""
    asked = []

    def curve(name, n_draws, seed):
        asked.append((name, n_draws, seed))
        return table((0, n_draws), (n_draws, 0), n=n_draws)

    monkeypatch.setattr(power, "curve", curve)
    return asked


def test_a_run_that_was_stopped_goes_on(quick, tmp_path):
    found = curves.run(STUDY, tmp_path, n_draws=4)
    again = curves.run(STUDY, tmp_path, n_draws=4)
    assert quick == [(DIAL.name, 4, 0)]
    assert_frame_equal(found.tables[DIAL.name], again.tables[DIAL.name])
    for other, what in (({"n_draws": 5}, "draws"), ({"n_draws": 4, "seed": 1}, "seed")):
        with pytest.raises(
            InputError, match=f"parts of a run with other {what}: name another folder"
        ):
            curves.run(STUDY, tmp_path, **other)
    assert len(quick) == 1


def test_curves_come_back_from_their_file(quick, tmp_path):
    found = curves.run(STUDY, tmp_path / "parts", n_draws=4)
    write_json(tmp_path / "power.json", found.to_dict())
    read = curves.Curves.read(tmp_path / "power.json")
    said = ["power curves that go from contradicted to supported: 1 of 1 (4 draws a value)"]
    assert read.summary() == found.summary() == said
    assert read.settings == found.settings
    assert_frame_equal(read.tables[DIAL.name], found.tables[DIAL.name])
    write_json(tmp_path / "other.json", found.to_dict() | {"schema": "icl_interp.power/0"})
    with pytest.raises(
        InputError, match=r"has schema 'icl_interp\.power/0', but this version reads"
    ):
        curves.Curves.read(tmp_path / "other.json")


def check_kept(study, kept):
    """A curve for each dial, as the package has it now, and none that falls short."""
    assert list(kept.tables) == [dial.name for dial in study.dials]
    for dial in study.dials:
        found = kept.tables[dial.name]
        assert list(found["value"]) == list(dial.values)
        assert set(found["claim"]) == {dial.claim}
        assert (found[YES] + found[NO] + found["undecided"] == found["draws"]).all()
        assert set(found["draws"]) == {curves.DRAWS}
    assert kept.short() == []


def test_kept_curves_are_those_of_the_dials():
    for study in BUNDLED:
        check_kept(study, curves.kept(study))
    kept = curves.kept(STUDY)
    must_fail(check_kept, replace(STUDY, dials=()), kept)
    must_fail(check_kept, replace(STUDY, dials=(replace(DIAL, values=DIAL.values[1:]),)), kept)
    must_fail(check_kept, STUDY, replace(kept, tables={DIAL.name: kept.tables[DIAL.name][::-1]}))
