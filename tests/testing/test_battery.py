"""The battery: what it counts, what falls short, and that a run which was stopped goes on."""

from dataclasses import replace
from typing import Any

import pandas
import pytest
from helpers import must_fail
from pandas.testing import assert_frame_equal

from icl_interp.errors import InputError
from icl_interp.experiments import calibration
from icl_interp.provenance import write_json
from icl_interp.results import make_table, table_of_rows, to_dict
from icl_interp.studies import BUNDLED, STUDIES
from icl_interp.testing import battery, check_study, known_models, metamorphic, selfcheck
from icl_interp.testing import study as rules

STUDY = STUDIES.named("heads")
CLAIM = STUDY.claims[0].id


def row(trial, before, after, wrong="", variant="one") -> dict[str, Any]:
    return dict(
        zip(
            metamorphic.COLUMNS,
            (trial, "affine", variant, CLAIM, before, after, 0.0, 0.0, wrong),
            strict=True,
        )
    )


TRIED = [
    row("edit", "supported", "supported"),
    row("edit", "inconclusive", "inconclusive", variant="two"),
    row("edit", "supported", "contradicted", "from supported to contradicted", variant="three"),
    row("edit", "not_applicable", "not_applicable", variant="four"),
    row("ignorant", "", "contradicted"),
    row("draw", "supported", "inconclusive"),
]

KNOWN = [
    row("beside", "supported", "inconclusive"),
    row("beside", "contradicted", "not_applicable", variant="two"),
    row(metamorphic.LEFT_OUT, "supported", "supported", variant="an edit: it moves the prediction"),
]


def cell(kept, wrong, n=200) -> dict[str, Any]:
    return dict(
        zip(
            calibration.COLUMNS,
            ("one", CLAIM, "supported", kept, wrong, n, "contradicted"),
            strict=True,
        )
    )


@pytest.fixture
def quick(monkeypatch):
    """Trials and draws that take no time; returns what was asked of them."""
    asked = []

    def run_known(chosen, every, *, seed, done):
        assert [one for one in every if one in chosen] == chosen
        return table_of_rows(KNOWN if chosen[0] == every[0] else [])

    monkeypatch.setattr(known_models, "run_known", run_known)

    def run(models, claims, *, done, sample):
        asked.append(tuple(models))
        return table_of_rows(TRIED if STUDY.models[0] in models else [])

    def calibrate(n_draws, seed, only):
        asked.append((n_draws, *only) if seed == 0 else (n_draws, *only, seed))
        return table_of_rows([cell(n_draws - 1, 1, n_draws)])

    monkeypatch.setattr(metamorphic, "run", run)
    monkeypatch.setattr(calibration, "calibrate", calibrate)
    return asked


def check_counts(count):
    rows = count(TRIED, STUDY.claims).set_index("trial")
    assert rows.loc["edit", ["verdicts", "decided", "wrong"]].tolist() == [3, 2, 1]
    assert rows.loc["ignorant", ["verdicts", "decided", "wrong"]].tolist() == [1, 1, 0]
    assert rows.loc["draw", ["verdicts", "decided", "wrong"]].tolist() == [1, 1, 0]
    away = row(
        "edit", "supported", "not_applicable", "from supported to not_applicable", variant="five"
    )
    rows = count([*TRIED, away], STUDY.claims).set_index("trial")
    assert rows.loc["edit", ["verdicts", "decided", "wrong"]].tolist() == [4, 3, 2]


def test_counts_by_claim():
    check_counts(battery.by_claim)
    must_fail(check_counts, lambda tried, claims: battery.by_claim(tried[1:], claims))
    shown = [
        row | {"after": "inconclusive"} for row in TRIED
    ]  # one that does not apply would then count
    must_fail(check_counts, lambda tried, claims: battery.by_claim(shown, claims))


@pytest.mark.parametrize(
    ("kept", "wrong", "fine"),
    [(200, 0, True), (179, 15, True), (178, 0, False), (184, 16, False), (0, 0, False)],
)
def test_draws_that_fall_short(kept, wrong, fine):
    assert (battery.falls_short(cell(kept, wrong)) == "") == fine
    tenth = battery.falls_short(cell(kept // 10, wrong // 10, 20))
    assert (tenth == "") == (kept // 10 >= 17.9 and wrong // 10 <= 1.5)


def test_a_run_that_was_stopped_goes_on(quick, tmp_path):
    names = [one.name for one in STUDY.constructions]
    found = battery.run(STUDY, tmp_path, n_draws=20)
    assert quick == [*((name,) for name in STUDY.models), *((20, name) for name in names)]
    again = battery.run(STUDY, tmp_path, n_draws=20)
    assert len(quick) == len(STUDY.models) + len(names)  # each job was read
    assert_frame_equal(found.draws, again.draws)
    battery.run(STUDY, tmp_path, n_draws=30)
    assert quick[-len(names) :] == [(30, name) for name in names]  # other draws are drawn


def test_draws_begin_with_the_seed_asked_for(quick, tmp_path):
    battery.run(STUDY, tmp_path, n_draws=20, seed=7)
    drawn = [(20, one.name, 7) for one in STUDY.constructions]
    assert quick[len(STUDY.models) :] == drawn
    with pytest.raises(
        InputError, match="parts of a run with other seed: name another folder, or delete this one"
    ):
        battery.run(STUDY, tmp_path, n_draws=20, seed=8)
    assert len(quick) == len(STUDY.models) + len(drawn)  # refused before anything was done


def test_a_folder_of_another_sample_is_refused(quick, tmp_path):
    battery.run(STUDY, tmp_path, n_draws=20)
    with pytest.raises(InputError, match="parts of a run with other sample"):
        battery.run(STUDY, tmp_path, n_draws=20, sample=metamorphic.Sample(n_units=64))
    with pytest.raises(
        InputError, match="parts of a run with other seed"
    ):  # and by check_study as well
        check_study(STUDY, "full", seed=3, done=tmp_path)


def test_what_falls_short_is_listed(quick, tmp_path):
    found = battery.run(STUDY, tmp_path, n_draws=20)
    assert found.short() == [f"{CLAIM} on affine, edit, three: from supported to contradicted"]
    assert (
        found.summary()[0]
        == "3 verdicts after edits that leave what the model computes: 1 wrong, 2 decided"
    )
    assert (
        found.summary()[3]
        == "1 verdicts on idle models, beside another that makes the prediction: 0 wrong, 1 decided"
    )
    assert found.summary()[4] == "edits left out, because they are not exact for a model: 1"
    worse = replace(
        found, draws=make_table({name: [cell(100, 0)[name]] for name in calibration.COLUMNS})
    )
    assert worse.short()[1:] == [
        f"{CLAIM} on one: 100 of 200 draws are supported, 0 decide otherwise (contradicted)"
    ]
    assert found.settings["variants"]["edit"] == ["four", "one", "three", "two"]


def test_declared_exceptions_are_not_tried(quick, tmp_path):
    found = battery.run(STUDY, tmp_path, n_draws=20)
    declared = replace(STUDY, exceptions={("ignorance", f"{CLAIM} of one"): "a reason"})
    without = battery.run(declared, tmp_path, n_draws=20)
    counts = [list(one.claims["verdicts"]) for one in (found, without)]
    assert counts == [[3, 1, 1, 1], [3, 0, 1, 1]]  # edits of this name are tried as before


def test_a_single_trial_can_be_excepted(quick, tmp_path):
    found = battery.run(STUDY, tmp_path, n_draws=20)
    declared = replace(
        STUDY, exceptions={("models", f"{CLAIM} on affine, edit: three"): "a reason"}
    )
    assert [one.short() for one in (found, battery.run(declared, tmp_path, n_draws=20))] == [
        found.short(),
        [],
    ]
    other = replace(STUDY, exceptions={("models", f"{CLAIM} on affine, edit: four"): "a reason"})
    assert battery.run(other, tmp_path, n_draws=20).short() == found.short() != []


def test_an_exception_of_a_single_trial_can_be_seen_to_be_needed(monkeypatch):
    """`check_study` needs exceptions to be necessary, so its rule still reports that trial."""
    monkeypatch.setattr(metamorphic, "run", lambda *_, **__: table_of_rows(TRIED))
    monkeypatch.setattr(known_models, "run_known", lambda *_, **__: table_of_rows(KNOWN[:1]))
    one = f"{CLAIM} on affine, edit: three"
    reasons = {("models", one): "a reason", ("ignorance", f"{CLAIM} of one"): "a reason"}
    found = dict(rules.models(rules.Examined(replace(STUDY, exceptions=reasons), 0, None)))
    assert found[one].startswith("from supported to contradicted")
    assert (
        f"{CLAIM} on affine, ignorant: one" not in found
    )  # that one was tried, and named, by another rule


def test_written_and_read(quick, tmp_path):
    found = battery.run(STUDY, tmp_path, n_draws=20)
    write_json(tmp_path / "battery.json", found.to_dict())
    read = battery.Battery.read(tmp_path / "battery.json")
    assert (read.study, read.settings, read.summary()) == (
        found.study,
        found.settings,
        found.summary(),
    )
    for name in ("counts", "claims", "wrong", "draws"):
        assert_frame_equal(getattr(read, name), getattr(found, name))
    write_json(tmp_path / "other.json", to_dict(found.draws))
    with pytest.raises(
        InputError,
        match=r"other.json has schema None, but this version reads 'icl_interp.battery/1'",
    ):
        battery.Battery.read(tmp_path / "other.json")


MANY = {"verdicts": 999, "decided": 999, "wrong": 0}
OTHER = [{**one, "model": "another"} for one in TRIED]


def part_of(tried, draws, sources, models):
    """A battery of a few parts."""
    settings = {
        "claims": [CLAIM],
        "models": models,
        "known": [],
        "left_out": [],
        "variants": {"edit": sorted({one["variant"] for one in tried})},
        "draws": 200,
        "made_by": {f"trials, {name}": sources for name in models},
    }
    wrong = [one for one in tried if one["wrong"]]
    tables = [(wrong, metamorphic.COLUMNS), (draws, calibration.COLUMNS)]
    return battery.Battery(
        STUDY.name,
        battery.counted(tried, STUDY.claims[:1]),
        *[make_table({n: [one[n] for one in rows] for n in columns}) for rows, columns in tables],
        settings,
    )


def check_renewed(renew):
    """Parts of the other run take the place of those of the same name, and of no others."""
    kept = part_of([*TRIED, *OTHER], [cell(150, 0)], "old", ["affine", "another"])
    assert (len(kept.short()), kept.claims["verdicts"].tolist()) == (3, [6, 2, 2, 0])
    mended = part_of(TRIED[:2], [cell(200, 0)], "new", ["affine"])
    found = renew(kept, mended)
    assert found.short() == [f"{CLAIM} on another, edit, three: from supported to contradicted"]
    assert found.claims["verdicts"].tolist() == [5, 1, 1, 0]
    # What was made longest ago stands first.
    assert list(found.settings["made_by"].items()) == [
        ("trials, another", "old"),
        ("trials, affine", "new"),
    ]
    assert found.settings["models"] == ["affine", "another"]


def check_older(renew):
    """Trials of an older file, summed over models, are shown until all have been made anew."""
    older = part_of([*TRIED, *OTHER], [cell(200, 0)], "", [])
    older = replace(older, counts=older.counts.assign(model=""))
    drawn = renew(older, part_of([], [cell(100, 0)], "new", []))
    assert drawn.claims["verdicts"].tolist() == [6, 2, 2, 0]
    assert (len(drawn.draws), len(drawn.short())) == (1, 3)
    half = renew(older, part_of(OTHER[:1], [], "new", ["another"]))
    assert half.claims["verdicts"].tolist() == [6, 2, 2, 0]
    assert half.short() == [f"{CLAIM} on affine, edit, three: from supported to contradicted"]
    assert half.summary()[-1].endswith("of 1 models, with 1 verdicts after edits (0 wrong)")
    whole = renew(half, part_of(TRIED[:2], [], "new", ["affine"]))
    assert whole.claims["verdicts"].tolist() == [3, 0, 0, 0]
    assert whole.short() == []
    for one in (older, whole):
        assert "made anew" not in one.summary()[-1]


def test_it_says_which_families_were_drawn_anew():
    families = [{**cell(200, 0), "construction": name} for name in ("one", "two")]
    found = part_of([], families, "new", [])

    def said(*names):
        made_by = dict.fromkeys([f"draws, {name}" for name in names], "new")
        one = replace(found, settings={**found.settings, "made_by": made_by})
        return [line for line in one.summary() if "drawn anew" in line]

    assert said("one") == ["drawn anew so far: 1 of 2 families"]
    assert said() == said("one", "two") == []
    assert said("three") == []


EVERY = [("trials", "affine"), ("trials", "another"), ("draws", "one")]


def test_parts_are_renewed():
    def renew(kept, other):
        return kept.renewed(other, EVERY)

    def beside(kept, other):
        """Old counts stay beside the new ones."""
        found = kept.renewed(other, EVERY)
        both = pandas.concat([kept.counts, other.counts], ignore_index=True)
        return replace(found, counts=both)

    for check in (check_renewed, check_older):
        check(renew)
        must_fail(check, lambda kept, other: other)
        must_fail(check, lambda kept, other: kept)
        must_fail(check, beside)
    must_fail(check_older, lambda kept, other: kept.renewed(other, [*EVERY, ("known", "one")]))
    must_fail(check_older, lambda kept, other: kept.renewed(other, EVERY[1:]))


def test_parts_are_made_by_name(quick, tmp_path):
    some = [(battery.DRAWN, STUDY.constructions[1].name), (battery.TRIALS, STUDY.models[0])]
    assert set(some) < set(battery.names(STUDY))
    found = battery.run(STUDY, tmp_path, n_draws=20, only=some)
    assert quick == [(STUDY.models[0],), (20, STUDY.constructions[1].name)]
    assert sorted(found.settings["made_by"]) == sorted(", ".join(one) for one in some)
    assert found.settings["models"] == [STUDY.models[0]]


def test_a_file_without_models_is_read(quick, tmp_path):
    found = battery.run(STUDY, tmp_path, n_draws=20)
    stored = found.to_dict()
    stored["claims"] = to_dict(found.claims)
    del stored["counts"], stored["settings"]["claims"]
    write_json(tmp_path / "older.json", stored)
    read = battery.Battery.read(tmp_path / "older.json")
    assert_frame_equal(read.claims, found.claims)
    assert set(read.counts["model"]) == {""}


# Cells that came after the batteries that are kept. The catalogue says of each that it is not drawn
# yet.
NOT_DRAWN: set[tuple[str, str]] = set()


def test_kept_batteries_are_of_these_claims():
    """What comes with the package is about the claims, models and constructions that there are."""
    for study in BUNDLED:
        found = battery.kept(study)
        if found is None:
            continue
        ids = {claim.id for claim in study.claims}
        # A claim that came later has cells that are not drawn, and no others.
        later = ids - set(found.claims["claim"])
        assert set(found.claims["claim"]) == ids - later
        assert later <= {name for _, name in NOT_DRAWN}
        assert not later & set(found.draws["claim"])
        assert set(found.settings["models"]) <= set(study.models)
        cells = {(one.name, name) for one in study.constructions for name in one.expected}
        drawn = set(zip(found.draws["construction"], found.draws["claim"], strict=True))
        assert cells - drawn == NOT_DRAWN & cells
        assert not NOT_DRAWN & drawn  # whoever makes a battery anew takes its cells off the list
        assert found.settings["draws"] == battery.DRAWS


def named_as_undecided(summary):
    assert "none decided for 1 of 1 claims: orthogonality" in summary[0]


def test_claims_of_which_no_edit_says_anything_are_named(quick, tmp_path):
    """0 wrong of 0 decided is no news: a verdict that was open cannot turn."""
    found = battery.run(STUDY, tmp_path, n_draws=20)
    assert found.undecided("edit") == []
    must_fail(named_as_undecided, found.summary())
    opened = [one | {"before": "inconclusive"} for one in TRIED]
    undecided = replace(found, counts=battery.counted(opened, STUDY.claims))
    assert undecided.undecided("edit") == [CLAIM]
    named_as_undecided(undecided.summary())


def fits(lines):
    assert max(map(len, lines)) <= 100


def test_the_table_of_trials_fits_a_terminal():
    """Of every study, with all kinds of trials and more verdicts than there are; a claim a line."""
    for study in BUNDLED:
        rows = [
            {"model": "", "claim": claim.id, "trial": kind} | MANY
            for claim in study.claims
            for kind in battery.KINDS
        ]
        settings = {"draws": 200, "left_out": []}
        empty = make_table({name: [] for name in calibration.COLUMNS})
        found = battery.Battery(study.name, table_of_rows(rows), empty, empty, settings)
        lines = found.by_trial()
        assert len(lines) == 2 + len(study.claims)
        assert lines[0].split() == list(battery.KINDS)
        fits([f"  {line}" for line in lines])
        fits(selfcheck.said(found).splitlines())
        must_fail(fits, [line.replace(" ", "  ") for line in lines])


# Weights that are set by hand are read at one length. There a model that is far from the Bayes
# predictor has not learned its task, and none is known that is near it.
NOT_DECIDED = {"mixtures": ["mixtures.bayes_predictor"]}


@pytest.mark.slow
def test_all_edit_verdicts_of_the_claims_that_had_none_can_be_decided():
    """Each claim is decided on a model of weights, or was decided on bundled models."""
    missing = {}
    for study in BUNDLED:
        kept = battery.kept(study)
        decided = (
            set()
            if kept is None
            else {claim.id for claim in study.claims} - set(kept.undecided("edit"))
        )
        known = {
            claim.id
            for one in known_models.known(study.constructions, study.claims)
            for claim in one.claims
        }
        missing[study.name] = [
            claim.id for claim in study.claims if claim.id not in decided | known
        ]
    assert missing == {study.name: NOT_DECIDED.get(study.name, []) for study in BUNDLED}
