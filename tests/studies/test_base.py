"""Studies: what the bundled ones hold, and one of one's own, made known whole or not at all."""

from dataclasses import replace

import plotly.graph_objects as go
import pytest
from helpers import must_fail
from layout_rules import ROOT, claims_in
from small_models import TASK, make

import icl_interp
from icl_interp import registers
from icl_interp.analyses import registry
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate
from icl_interp.analyses.measurement import measurement
from icl_interp.errors import InputError
from icl_interp.experiments import base, calibration
from icl_interp.experiments.base import Experiment
from icl_interp.experiments.calibration import Construction
from icl_interp.figures import catalogue
from icl_interp.figures.catalogue import ReportFigure
from icl_interp.results import make_array
from icl_interp.studies import BUNDLED, STUDIES, Study, register


@measurement("mine/size")
def size(lab):
    return make_array(
        lab.by_unit(lab.sweep()[:, 0, 0].abs()), {"function": tuple(range(lab.n_units))}
    )


def evidence(results, facts):
    values = results[size].values
    return Evidence(
        {
            "size": Estimate(
                "size", *(float(v) for v in (values.mean(), values.min(), values.max()))
            )
        },
        "said.",
    )


def draw(results, findings, facts):
    return None if size not in results else go.Figure(go.Bar(y=results[size].values))


SMALL = Claim(
    "mine.small",
    "architecture",
    "f is small",
    Criterion((Condition("size", "", (-INF, 1e6), None),), terms="below 1e6"),
    (size,),
    evidence,
    figures=("mine",),
)
RUN = Experiment("mine.table", "a table", "me", (), lambda bench: {}, lambda results: ("Nothing.",))


BUILT = Construction(
    "a small one",
    "its weights are small",
    lambda g: make("pre", n_ctx=40),
    {"mine.small": "supported"},
)

MINE = Study(
    "mine",
    "me (2026)",
    (SMALL,),
    {"mine": ReportFigure(draw, "Sizes.")},
    (RUN,),
    {"mine.table": lambda results, comparison: {}},
    (BUILT,),
)


@pytest.fixture
def clean():
    """All registers as they were, after the test."""
    with registers.as_before():
        yield


def known() -> list[list[str]]:
    """The names in all registers."""
    return [list(register) for register in (registers.STUDIES, *registers._views)]


def test_every_bundled_claim_figure_and_experiment_belongs_to_a_study():
    assert [study.name for study in BUNDLED] == list(STUDIES)[: len(BUNDLED)]
    claims = [claim.id for study in BUNDLED for claim in study.claims]
    assert claims == list(registry.REGISTRY)
    assert sorted(e.id for study in BUNDLED for e in study.experiments) == base.names()
    figures = [name for study in BUNDLED for name in study.figures]
    assert ["claims", *catalogue.MECHANISM, *figures] == list(catalogue.FIGURES)
    shown = {name for claim in registry.REGISTRY.values() for name in claim.figures}
    assert shown == set(figures), (
        "every figure shows a claim, and every figure that a claim names is there"
    )
    for study in BUNDLED:
        assert set(study.drawings) <= {e.id for e in study.experiments}
        expected = {claim for one in study.constructions for claim in one.expected}
        assert expected <= set(claims)


@pytest.mark.slow
def test_the_rule_on_names_of_files_sees_every_bundled_claim():
    package = {
        path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in ROOT.rglob("*.py")
    }
    seen = sorted(id_ for _, _, id_ in claims_in(package))
    assert seen == sorted(claim.id for study in BUNDLED for claim in study.claims)


def test_every_bundled_claim_says_what_it_is_about():
    for claim in registry.REGISTRY.values():
        assert claim.question
        assert claim.statement.endswith(".")
        assert claim.denied.endswith(".")
        assert max(len(one.split()) for one in (claim.statement, claim.denied)) <= 20, claim.id
        assert claim.quote.text
        assert claim.quote.place


@pytest.mark.slow
@pytest.mark.usefixtures("clean")
def test_a_study_of_ones_own_is_measured_judged_drawn_and_calibrated():
    assert register(MINE) is register(MINE) is STUDIES["mine"]
    report = icl_interp.analyze(
        make("pre").float(), task=TASK, claims=["mine.small"], n_prompts=256, progress=False
    )
    assert report["mine.small"].verdict == "supported"
    assert list(report.figures) == ["claims", "mine"]
    assert base.get("mine.table") is RUN
    row = calibration.calibrate(1, only=["a small one"]).iloc[0]
    assert (row["claim"], row["as expected"]) == ("mine.small", 1)


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"name": "limits"}, "a study called 'limits' already"),
        (
            {"claims": (SMALL, replace(SMALL, id="other.small"))},
            "begin with its name and a dot, but got 'other.small'",
        ),
        ({"figures": {"growth": ReportFigure(draw, "")}}, "a figure called 'growth' already"),
        (
            {"experiments": (replace(RUN, id="limits.table1"),)},
            "an experiment called 'limits.table1' already",
        ),
        (
            {"constructions": tuple(calibration.CONSTRUCTIONS.values())[:1]},
            "a construction called .* already",
        ),
        (
            {
                "claims": (
                    SMALL,
                    replace(
                        SMALL, id="mine.second", measurements=(replace(size, name="far/intact"),)
                    ),
                )
            },
            "two measurements are called 'far/intact'",
        ),
    ],
)
def test_a_study_is_made_known_whole_or_not_at_all(change, match):
    before = known()
    with pytest.raises(InputError, match=match):
        register(replace(MINE, **change))
    assert known() == before


def check_view(view):
    """The engine's own stands first, what came alone last, and hides what a study has."""
    assert list(view) == ["engine", *STUDIES, "alone"]
    assert [view["engine"], view["limits"], view["alone"]] == [0, 1, 2]
    assert view.alone("alone")
    assert not view.alone("limits")
    view["limits"] = 3
    assert view["limits"] == 3
    del view["limits"]
    assert view["limits"] == 1


@pytest.mark.usefixtures("clean")
def test_a_register_of_one_kind_is_a_view_of_the_studies(monkeypatch):
    monkeypatch.setattr(registers, "_views", [])
    view = registers.View("name", lambda study: {study.name: 1}, first={"engine": 0})
    view.add("alone", 2)
    check_view(view)
    last = registers.View("name", lambda study: {study.name: 1})
    last.update({"alone": 2, "engine": 0})
    must_fail(check_view, last)
