"""Reports on predictors that are seen from outside: verdicts of known truth, and what they say."""

import json
from dataclasses import replace

import pytest
from helpers import must_fail
from known_predictors import (
    AFFINE,
    ERASED,
    HELPLESS,
    KNOWN,
    LEVEL,
    LEVELS,
    LINE,
    LINES,
    clipped,
    kernel_average,
    neighbours,
    ridge,
)
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

import icl_interp
from icl_interp import predictors
from icl_interp.analyses.claim import OUTPUTS
from icl_interp.analyses.facts import NO_CONFIG, Facts
from icl_interp.analyses.outside import OutsideLab
from icl_interp.analyses.registry import REGISTRY
from icl_interp.console import console
from icl_interp.descriptions import OUTSIDE
from icl_interp.errors import InputError
from icl_interp.probes.norms import LayerNormScale
from icl_interp.report import terminal
from icl_interp.report.report import Report

OPPOSITE = {"supported": "contradicted", "contradicted": "supported"}
CONTINUOUS = "limits.continuous_functions"


def analysed(source, claims, task=AFFINE, **more):
    settings = {"n_prompts": 256, "progress": False, **more}
    return icl_interp.analyze(source, task=task, claims=[*claims], **settings)


def check_known(source, verdicts, task=AFFINE):
    report = analysed(source, verdicts, task)
    assert {claim: report[claim].verdict for claim in verdicts} == verdicts


FEW = ("ridge 0.1", "nearest", "process 0.5", "a line beside", "regression by late labels")


@pytest.mark.parametrize("name", FEW)
def test_verdicts_of_known_truth(name):
    known = KNOWN[name]
    check_known(known.predict, known.verdicts, known.task)


def test_another_truth_gets_other_verdicts():
    must_fail(check_known, ridge(0.1), LEVELS)
    must_fail(check_known, neighbours(1), LINES)


@pytest.mark.slow
def test_of_twenty_predictors_none_is_judged_the_opposite():
    assert len(KNOWN) == 20
    reached = []
    for known in KNOWN.values():
        report = analysed(known.predict, known.verdicts, known.task)
        for claim, expected in known.verdicts.items():
            verdict = report[claim].verdict
            assert verdict != OPPOSITE.get(expected)
            reached.append(verdict == expected)
    assert len(reached) == 69
    assert sum(reached) >= 0.92 * len(reached)


ESTIMATORS = {
    "ridge": (Ridge(alpha=1e-3), LINES),
    "neighbours": (KNeighborsRegressor(2), LEVELS),
    "tree": (DecisionTreeRegressor(random_state=0), LEVELS),
    "process": (
        GaussianProcessRegressor(RBF(0.5), alpha=1e-4, optimizer=None),
        KNOWN["process 0.5"].verdicts,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_of_scikit_learn(name):
    check_known(*ESTIMATORS[name])


# ---- what is not judged --------------------------------------------------------------------------


def test_every_claim_says_what_it_reads():
    reads = {claim.id: claim.reads for claim in REGISTRY.values()}
    outputs = {name for name, what in reads.items() if what == OUTPUTS}
    assert {ERASED, LINE, LEVEL, HELPLESS, CONTINUOUS} < outputs
    assert len(outputs) == 26
    for name in outputs:
        assert not REGISTRY[name].about_weights


@pytest.mark.slow
def test_what_needs_weights_does_not_apply_and_says_so():
    report = analysed(ridge(1e-3), REGISTRY, n_prompts=16)
    for finding in report.findings:
        claim = REGISTRY[finding.id]
        assert finding.error is None
        if claim.reads != OUTPUTS:
            assert finding.verdict == "not_applicable"
            assert f"needs weights ({claim.reads})" in finding.reason
    assert report["limits.layernorm_saturation"].verdict == "not_applicable"


def test_there_is_no_stand_in_to_read_weights_off():
    lab = OutsideLab(predictors.recognised(ridge(1.0)), AFFINE, n_units=2, n_contexts=1)
    for missing in ("model", "encoding", "single", "heads", "control_config", "matched"):
        with pytest.raises(InputError, match="needs weights"):
            getattr(lab, missing)
    with pytest.raises(InputError, match="needs weights"):
        lab.sweep([0.5], probes=[LayerNormScale()])
    with pytest.raises(InputError, match="n_layers of a model was asked for"):
        _ = NO_CONFIG.n_layers
    assert not hasattr(lab, "no_such_thing")


def test_a_claim_that_only_says_it_reads_outputs_gets_an_error(monkeypatch):
    """A mutant of a claim about norms: its measurements fail, and it has no verdict."""
    claim = "limits.layernorm_saturation"
    says_outputs = replace(REGISTRY[claim], reads=OUTPUTS, excluded=lambda facts: None)
    monkeypatch.setitem(REGISTRY, claim, says_outputs)
    monkeypatch.setattr("icl_interp.pipeline.log.warning", lambda *_, **__: None)
    finding = analysed(neighbours(1), [claim], n_prompts=16)[claim]
    assert finding.verdict == "inconclusive"
    assert "needs weights" in finding.error


# ---- controls ------------------------------------------------------------------------------------


def average(xs, ys, x_query):
    """It has learned nothing but to average."""
    return ys.mean(1)


def test_a_claim_about_training_needs_a_control():
    trained = kernel_average(0.05)
    alone = analysed(trained, [CONTINUOUS])[CONTINUOUS]
    assert alone.verdict == "inconclusive"
    assert "no untrained control" in alone.reason
    beside = analysed(trained, [CONTINUOUS], control=average)[CONTINUOUS]
    assert beside.verdict == "supported"
    itself = analysed(trained, [CONTINUOUS], control=trained)[CONTINUOUS]
    assert itself.verdict == "inconclusive"
    assert "control passes as well" in itself.reason


# ---- the report ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_report_says_that_it_is_seen_from_outside(tmp_path):
    report = analysed(kernel_average(0.05), [ERASED, LEVEL, "limits.layernorm_saturation"])
    report.save(tmp_path, formats=("html", "json", "md"))
    page = (tmp_path / "report.html").read_text()
    first_screen = page[page.index("<header>") : page.index("</header>")]
    shown = console(200)
    with shown.capture() as capture:
        shown.print(terminal.screen(report))
    stored = json.loads((tmp_path / "report.json").read_text())
    for text in (first_screen, capture.get(), (tmp_path / "model_card.md").read_text()):
        assert OUTSIDE in text
    for text in (first_screen, capture.get()):
        for check in report.model["checks"]:
            assert check["says"] in text
    assert "asked range" in first_screen
    assert "trained" not in first_screen, "nothing tells how it was made"
    assert stored["checkpoint"]["seen"] == OUTSIDE
    assert stored["model"]["outside"] is True
    assert [check["name"] for check in stored["model"]["checks"]][:2] == ["shape", "finite outputs"]
    again = Report.load(tmp_path)
    assert [f.verdict for f in again.judge().findings] == [f.verdict for f in report.findings]
    assert again.facts == report.facts
    assert again.figures.keys() == report.figures.keys()


def test_reports_of_models_say_nothing_of_it(affine_facts):
    assert not {"outside", "checks", "control"} & affine_facts.to_dict().keys()


@pytest.fixture
def affine_facts():
    loaded = icl_interp.load("affine")
    return Facts.of(loaded.model, loaded.task, "interleaved", {"error": 0.0, "r2": 1.0})


def test_warnings_of_checks_are_on_the_first_screen():
    def in_batch(xs, ys, x_query):
        return neighbours(1)(xs, ys, x_query) + 1e-4 * (len(xs) == 1)

    report = analysed(in_batch, [LEVEL])
    html = report._repr_html_()
    assert OUTSIDE in html
    (warned,) = [check for check in report.model["checks"] if check["outcome"] == "warning"]
    assert warned["name"] == "batch size"


def test_a_tabular_model_that_clips_has_a_plateau_and_no_layernorm():
    """Clipped at 100 standard deviations, far queries are exactly one query."""
    tabular = clipped(ridge(1e-3))
    report = analysed(tabular, [LINE, LEVEL, "limits.layernorm_saturation"])
    far = next(check for check in report.model["checks"] if check["name"] == "far queries")
    assert "exactly constant" in far["says"]
    assert report[LINE].verdict == "inconclusive"  # nothing grows
    assert report[LEVEL].verdict == "inconclusive"  # it begins at 58 times the largest |x|
    assert report["limits.layernorm_saturation"].verdict == "not_applicable"
    unclipped = analysed(ridge(1e-3), [LINE])
    assert unclipped[LINE].verdict == "contradicted"


def test_reports_are_compared():
    reports = [analysed(one, [ERASED, LINE]) for one in (ridge(1e-3), neighbours(1))]
    reports[1].checkpoint["name"] = "nearest"
    comparison = icl_interp.compare(reports)
    assert comparison.to_dict()
    assert "nearest" in comparison.to_markdown()


REFUSED = [
    ({"encoding": "stacked"}, "encoding= is for models"),
    ({"companions": ["affine"]}, "companions= is for models"),
    ({"device": "cpu"}, "device= is for models"),
    ({"task": None}, "a predictor brings no task"),
    ({"control": "affine"}, "control= takes an untrained predictor"),
]


@pytest.mark.parametrize(("more", "message"), REFUSED)
def test_arguments_for_models_are_refused(more, message):
    with pytest.raises(InputError, match=message):
        analysed(ridge(1.0), [LINE], **more)


def test_a_control_is_for_predictors():
    with pytest.raises(InputError, match="control= is for predictors without weights"):
        icl_interp.analyze("affine", control=ridge(1.0))
