"""The bundled models, analysed: what must hold for these very weights.

What is found in them is checked, too.
"""

from dataclasses import replace

import numpy as np
import pytest
from bundled_reports import report_of
from helpers import must_fail

import icl_interp
from icl_interp.analyses import registry
from icl_interp.analyses.finding import Finding
from icl_interp.analyses.measurement import Results
from icl_interp.checkpoints import bundled
from icl_interp.report import Report
from icl_interp.studies.limits.constructions.layers import (
    CAUSE,
    ERASED,
    HARDMAX,
    LINEAR,
    SATURATES,
    UNIFORM,
)

FAILURE = "limits.layernorm_causes_failure"
NO_NORM, NO_LINE = (
    "The claim is about LayerNorm; this model has no norm.",
    "The claim is about models without normalisation; this one normalises.",
)


def analyze(name: str, *claims: str, n_prompts: int = 256) -> Report:
    return icl_interp.analyze(name, claims=claims or None, n_prompts=n_prompts, progress=False)


def check_certificate(report: Report):
    """Every output that was measured lies within c - r and c + r, which the weights alone give."""
    row = report.results["far/certificate"].to_dict("records")[0]
    outputs = [
        report.results["far/contexts"].sel(curve="model").values,
        report.results["far/ends"].values,
    ]
    for values in outputs:
        assert np.abs(values - row["c"]).max() < row["r"]


def check_plateau(report: Report):
    """The plateau at 1e6 equals the closed form in both directions.

    It is approached like 1/|x|.
    """
    row, ends = report.results["far/certificate"].to_dict("records")[0], report.results["far/ends"]
    for direction in "+-":
        at = ends.sel(direction=direction).values  # (x, function, context)
        gaps = np.abs(at - row[f"plateau {direction}"]).max((1, 2)) / row["r"]
        assert gaps[2] < 1e-3
        assert np.allclose(gaps[:2] / gaps[1:], 10, rtol=0.2)


def moved(report: Report, name: str, change) -> Report:
    """The report with one result changed."""
    result = report.results[name]
    changed = result.copy(data=change(result.values))
    return replace(report, results=Results({**report.results, name: changed}))


def judged(report: Report) -> Finding:
    """The finding on the linear asymptote from the results of a report."""
    return registry.REGISTRY[LINEAR].judge_results(report.results, report.facts)


@pytest.mark.slow
def test_affine_saturates_where_its_weights_say():
    report = analyze("affine", SATURATES)
    finding = report[SATURATES]
    assert finding.verdict == "supported"
    assert finding.test.high < 0.01
    assert (
        finding.control.value < 0.01
    )  # an architecture claim: the untrained control levels off too
    check_certificate(report)
    check_plateau(report)
    row = report.results["far/certificate"].to_dict("records")[0]
    must_fail(check_certificate, moved(report, "far/ends", lambda f: f + 2 * row["r"]))
    must_fail(check_plateau, moved(report, "far/ends", lambda f: f + 0.01 * row["r"]))
    must_fail(
        check_plateau,
        moved(report, "far/ends", lambda f: f[:, :, ::-1].copy() * [[[[1.0]], [[1.5]], [[1.0]]]]),
    )
    norms = [row["norm"] for row in finding.details if "norm" in row]
    assert len(norms) == 7
    assert all(abs(row["E_sigma"] - 1) < 0.05 for row in finding.details if "norm" in row)


@pytest.mark.slow
def test_affine_without_a_norm_becomes_a_line():
    report = analyze("affine_no_ln", LINEAR, SATURATES)
    finding = report[LINEAR]
    assert finding.verdict == "supported"
    assert finding.estimate.high < 1e-3
    up, down = finding.details
    assert up["slope"] != pytest.approx(down["slope"], rel=0.1)  # one line a direction
    assert up["sd of intercept over contexts"] > 0.1
    assert (report[SATURATES].verdict, report[SATURATES].reason) == ("not_applicable", NO_NORM)
    bent = moved(report, "far/ends", lambda f: f * np.array([1.0, 1.0, 1.5])[:, None, None])
    on_grid = judged(bent)
    # What bends on the grid and is a line beyond it may have been measured too near to say.
    assert on_grid.verdict == "inconclusive"
    assert "the line lies beyond the range measured" in on_grid.reason
    bent_beyond = moved(
        bent, "far/beyond", lambda f: f * np.array([1.0, 1.0, 1.0, 1.5])[:, None, None]
    )
    assert judged(bent_beyond).verdict == "contradicted"


FOUND = {
    "affine": {
        SATURATES: "supported",
        CAUSE: "supported",
        ERASED: "supported",
        LINEAR: NO_LINE,
        HARDMAX: "contradicted",
        UNIFORM: "contradicted",
    },
    "affine_attn_only": {
        SATURATES: "supported",
        CAUSE: "supported",
        ERASED: "supported",
        LINEAR: NO_LINE,
    },
    "affine_hardmax": {
        SATURATES: "supported",
        CAUSE: "supported",
        ERASED: "supported",
        LINEAR: NO_LINE,
        HARDMAX: "The claim is about softmax attention; this model's score function is hardmax.",
        UNIFORM: "The claim is about softmax attention; this model's score function is hardmax.",
    },
    "affine_no_ln": {
        SATURATES: NO_NORM,
        CAUSE: NO_NORM,
        FAILURE: NO_NORM,
        LINEAR: "supported",
        ERASED: "contradicted",
        UNIFORM: "contradicted",
    },
    "affine_post_ln": {SATURATES: "supported", CAUSE: "supported", LINEAR: NO_LINE},
    "degrees_135": {
        SATURATES: "supported",
        CAUSE: "supported",
        ERASED: "supported",
        LINEAR: NO_LINE,
    },
}


def test_the_models_of_the_readme_are_bundled():
    assert set(FOUND) <= set(bundled.names())


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_what_is_found_in_the_bundled_models(name):
    report = report_of(name)
    assert [f.id for f in report.findings] == list(registry.REGISTRY)
    for claim, expected in FOUND[name].items():
        finding = report[claim]
        assert expected in (finding.verdict, finding.reason), claim
        assert (finding.verdict == "not_applicable") == (expected == finding.reason)
    assert report.model["r2"] > 0.9
    assert report["heads.orthogonality"].verdict != "supported"
    for finding in report.findings:
        # What has no estimate was not measured: size asks for runs that are not at hand.
        if (
            finding.estimate
            and finding.kind == "architecture"
            and finding.id != "lipschitz.kernel_smoother"
        ):
            assert np.isfinite(finding.control.value), finding.id
    if report.results["far/certificate"].to_dict("records")[0]["r"] > 0:
        check_certificate(report)
    if name not in ("affine_no_ln", "affine_post_ln"):
        check_plateau(report)

    if CAUSE in FOUND[name] and FOUND[name][CAUSE] == "supported":
        causal = report[CAUSE].causal
        grows = {arm: causal[arm] for arm in ("intact", "frozen", "sham")}
        assert grows == pytest.approx(
            {"intact": -1.0, "frozen": 1.0, "sham": -1.0}, abs=0.1
        )  # of increments
        enough = [norm for norm, value in causal["each norm alone"].items() if value > 0.8]
        assert enough == ([] if name == "affine_post_ln" else ["ln_final"])
        cost = causal["cost"]
        assert cost["frozen"] > cost["in-distribution error intact"]
    if name == "affine":
        assert "still tells the function" in report[ERASED].reason
        assert report[HARDMAX].causal["heads idle far out"]
        arms = {"intact", "frozen", "context-free", "trained without"}
        assert set(report[FAILURE].causal["far error / law mean"]) == arms
        assert (
            report[FAILURE].verdict != "supported"
        )  # LayerNorm causes the plateau, not the failure
    if name == "affine_post_ln":
        assert report[ERASED].verdict != "supported"  # the plateau depends on the context
