"""Damaged reports: a missing part of a claim, figure or screen gives a line, not a traceback."""

import copy
import io
import json
import logging
from dataclasses import replace

import pytest
from helpers import must_fail
from small_reports import report
from test_console import CONTROLS, steers_nothing

from icl_interp.analyses import registry, relevance
from icl_interp.errors import InputError, logger
from icl_interp.provenance import finite
from icl_interp.report import Report, terminal
from icl_interp.report.comparison import Comparison
from icl_interp.studies.heads.claims import orthogonality
from icl_interp.studies.heads.measurements import overlaps


@pytest.fixture(scope="module")
def data() -> dict:
    return json.loads(json.dumps(finite(report().to_dict()), allow_nan=False))


@pytest.fixture
def said(errors_are_caught):
    """What the package's log prints meanwhile."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger("icl_interp").addHandler(handler)
    yield stream.getvalue
    logging.getLogger("icl_interp").removeHandler(handler)


def loaded(data, folder, change):
    """The report after a change, from a file."""
    changed = copy.deepcopy(data)
    change(changed)
    (folder / "report.json").write_text(json.dumps(changed))
    return Report.load(folder)


def renamed(name, axis, new):
    """A coordinate of a result by another name, in every place."""

    def change(data):
        axes = data["results"][name]["axes"]
        axes[axis] = [new(item) for item in axes[axis]]

    return change


def dropped(*names):
    def change(data):
        for name in names:
            del data["results"][name]

    return change


ABLATION, OVERLAP = overlaps.pair_ablation.name, overlaps.overlap.name
DAMAGES = {
    "pairs of other heads": renamed(ABLATION, "pair", lambda name: name.replace("0.", "7.")),
    "pairs that are numbers": lambda data: data["results"][ABLATION]["axes"].update(
        pair=list(range(len(data["results"][ABLATION]["axes"]["pair"])))
    ),
    "no heads alone": renamed(
        OVERLAP, "pair", lambda name: name + " ~ x" if len({*name.split(" ~ ")}) == 1 else name
    ),
    "other statistics": renamed(relevance.relevance.name, "statistic", lambda name: f"{name}?"),
    "results that are gone": dropped(ABLATION, "far/intact", "far/certificate"),
}


def says_lines_only(text):
    assert "Traceback" not in text
    assert "was it edited, or written by another version?" in text
    steers_nothing(text)


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_claims_and_figures_say_what_is_missing_in_a_line(data, tmp_path, said, damage):
    found = loaded(data, tmp_path, DAMAGES[damage])
    again = found.judge()
    broken = [finding for finding in again.findings if finding.error]
    assert broken
    for finding in broken:
        assert finding.verdict == "inconclusive"
        assert str(tmp_path / "report.json") in finding.reason
        assert "traceback" not in finding.reason
    assert found.figures
    says_lines_only(said())
    own = replace(found, file=None)  # of a report that was measured here the code is at fault
    own.judge()
    must_fail(says_lines_only, said())


def test_a_pair_of_unknown_heads_is_named(small):
    """A bare KeyError named the head, and nothing else."""
    r = small
    results = r.results.copy()
    ablation = results[ABLATION]
    results[ABLATION] = ablation.assign_coords(
        pair=[f"7.{i} ~ 7.{i + 1}" for i in range(ablation.sizes["pair"])]
    )
    with pytest.raises(
        InputError, match=r"heads/pair ablation has a pair of the head '7.0', which is none here"
    ):
        orthogonality.remarks(results, r.facts, {})


SPOILED_FACTS = {
    "no interval": lambda data: [
        data["model"]["in_distribution"].pop(key) for key in ("low", "high")
    ],
    "a short config": lambda data: [
        data["model"]["config"].pop(key) for key in ("norm_position", "score_fn")
    ],
    "versions that are none": lambda data: data["provenance"].update(measurements=[1]),
    "an error that is not finite": lambda data: data["model"]["in_distribution"].update(
        error="inf", r2="nan"
    ),
    "texts that are none": lambda data: data["findings"][0].update(
        causal={"x": [{}]}, scope=CONTROLS
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", SPOILED_FACTS)
def test_screens_cards_and_tables_show_it_or_say_a_line(data, tmp_path, said, damage):
    found = loaded(data, tmp_path, SPOILED_FACTS[damage])
    other = replace(found, checkpoint={**found.checkpoint, "name": "other"})
    both = Comparison((found, other))
    asked = registry.REGISTRY.named(found.findings[0].id)
    for step in (
        lambda: terminal.screen(found, verbose=True),
        lambda: terminal.claim(asked, found.findings[0]),
        found.to_markdown,
        found._repr_html_,
        found.judge,
        lambda: found.compare(other),
        both.screen,
        both.to_markdown,
        lambda: both.table,
        lambda: found.save(tmp_path / "out"),
    ):
        try:
            step()
        except InputError as error:
            message = str(error)
        else:
            message = "report.json"
        assert message.isprintable()
        assert "report.json" in message
    assert "Traceback" not in said()


def test_an_error_that_is_not_finite_comes_back_as_a_number(data, tmp_path):
    found = loaded(data, tmp_path, SPOILED_FACTS["an error that is not finite"])
    assert found.model["in_distribution"]["error"] == float("inf")
    assert "inf" in "".join(str(part) for part in terminal.screen(found).renderables)


def test_loggers_of_the_package_are_this_one():
    assert logger("icl_interp.report.report").filters
