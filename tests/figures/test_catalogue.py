"""Figures are pure functions of stored results, in a fixed order, and absent where theirs are."""

import json

import numpy as np
import pytest
from helpers import must_fail
from pandas import DataFrame
from small_reports import WITH_NORM, drawn, report

from icl_interp import figures
from icl_interp.figures import catalogue, files
from icl_interp.report import Report
from icl_interp.studies import STUDIES

# What each figure cannot be drawn without.
NEEDS = {
    "mechanism": ["mechanism/lens"],
    "mechanism_roles": ["mechanism/roles"],
    "mechanism_patterns": ["mechanism/patterns"],
    "far_query": ["far/contexts"],
    "growth": ["far/norm arms"],
    "boundary": ["far/boundary"],
    "context": ["far/intact"],
    "heads": ["heads/delta"],
    "dispersion": ["heads/dispersion"],
    "layers": ["layers/curves", "layers/lens", "layers/without attention", "patterns/degrees"],
    "classes": ["classes/errors", "classes/continuous", "algorithms/own"],
    "shift": ["seeds/functions", "seeds/inside", "seeds/intervals"],
    "overlap": ["heads/overlap"],
}

SHARED = {"far_query": ["far_prompts"], "layers": ["lens_by_layer"]}  # that need its results, too


@pytest.mark.slow
def test_figures_come_in_a_fixed_order():
    # Figures of other studies are about other tasks, but for some that are shown here as well.
    others = set()
    for study in STUDIES.values():
        if study.name != "limits":
            others |= set(study.figures) - set(WITH_NORM)
    assert list(report().figures) == WITH_NORM
    assert [name for name in catalogue.FIGURES if name not in others] == WITH_NORM
    assert others


@pytest.mark.slow
def test_without_a_norm_and_a_matched_model_two_figures_are_not_there():
    alone = report(norm=False)
    assert list(alone.figures) == [name for name in WITH_NORM if name not in ("growth", "shift")]


def test_public_names_are_the_ones_used():
    assert (figures.draw, figures.export) == (catalogue.draw, files.export)


def shown_as(r: Report) -> dict[str, str]:
    return {name: figure.to_json() for name, figure in r.figures.items()}


@pytest.mark.slow
def test_drawing_is_a_pure_function_of_what_is_stored(any_report, tmp_path):
    before = json.dumps(any_report.to_dict(), default=str)
    first = shown_as(any_report)
    assert json.dumps(any_report.to_dict(), default=str) == before
    any_report.to_json(tmp_path / "report.json")
    loaded = Report.load(tmp_path)
    assert shown_as(loaded) == first
    stored = loaded.results["far/contexts"]
    loaded.results["far/contexts"] = stored.copy(data=np.nextafter(stored.values, np.inf))
    assert drawn(loaded, "far_query").to_json() != first["far_query"], (
        "not even the last bit is lost"
    )


# A report is drawn anew for each, which takes seconds.
@pytest.mark.slow
@pytest.mark.parametrize("name", NEEDS)
def test_a_figure_without_its_results_is_absent_and_the_others_stay(small, name):
    def draws(removed: list[str]):
        left = {key: result for key, result in small.results.items() if key not in removed}
        found = catalogue.draw(left, small.findings, small.facts)
        assert [n for n in WITH_NORM if n not in found] == [name, *SHARED.get(name, [])]

    draws(NEEDS[name])
    if name == "far_query":
        must_fail(draws, [])


def test_with_nothing_stored_the_claims_are_still_drawn(small):
    assert list(catalogue.draw({}, small.findings, small.facts)) == ["claims"]
    assert catalogue.draw({}, [], small.facts) == {}


@pytest.mark.parametrize(
    "value", [*(pytest.param(x, marks=pytest.mark.slow) for x in (0.0, 1.0)), np.nan]
)
def test_degenerate_results_can_be_drawn(any_report, value):
    flat = {
        name: r if isinstance(r, DataFrame) else r.copy(data=np.full_like(r.values, value))
        for name, r in any_report.results.items()
    }
    if np.isnan(
        value
    ):  # an analysis never stores these without a number, but no figure must break a report
        flat = {
            name: r
            for name, r in flat.items()
            if name in ("heads/delta", "heads/dispersion", "heads/overlap")
        }
    for figure in catalogue.draw(flat, any_report.findings, any_report.facts).values():
        assert json.loads(figure.to_json())["data"]
