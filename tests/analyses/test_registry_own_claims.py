"""A claim of one's own that fails costs no other its finding: it becomes inconclusive.

It also says what went wrong.
"""

import json
import logging
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from helpers import SURFACE, must_fail
from made_up_facts import facts
from tiny_runs import checkpoint

import icl_interp
from icl_interp import pipeline, registers
from icl_interp.analyses import registry
from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import Condition, Criterion, Estimate
from icl_interp.analyses.measurement import Measurement
from icl_interp.errors import InputError
from icl_interp.figures import catalogue
from icl_interp.probes.record import Activations
from icl_interp.results import make_array, make_table
from icl_interp.studies.limits.measurements import certificates

FAST = {"n_prompts": 256, "progress": False}
BUNDLED = "limits.layernorm_saturation"
BAD = ({"a": np.ones(2)},)  # JSON has no arrays
CRITERION = Criterion((Condition("mine", "", (-np.inf, 1.0), (1.0, np.inf)),), terms="below 1")


def fine(results, facts):
    return Evidence({"mine": Estimate("mine", 0.5, 0.4, 0.6)}, "all is well")


def measured(name, function=lambda lab: make_table({"a": [1.0]})):
    return Measurement(name, function)


@pytest.fixture
def own():
    """Registers claims of one's own until the test ends."""

    def register(name, evidence=fine, measurements=(), **changes):
        words = {"kind": "architecture", "statement": "mine", "criterion": CRITERION}
        claim = Claim(
            f"mine.{name}", measurements=measurements, evidence=evidence, **words, **changes
        )
        return registry.register(claim)

    with registers.as_before():
        yield register


def fail(*_):
    return 1 / 0


# For a hook that is not there, in one pass with what others ask for.
asks = partial(
    Measurement,
    function=lambda lab, swept: make_table({"a": [1.0]}),
    asks=lambda lab: lab.ask([1.0], probes=[Activations(["nope"])]),
)


def a_key(results, facts):
    return results["nothing"]


def analyze(*claims):
    return icl_interp.analyze(checkpoint(task={"degrees": [1]}), claims=(BUNDLED, *claims), **FAST)


def check_broken(report, claim, *words):
    """One claim is inconclusive with these words.

    The bundled one stands, and the report can be written.
    """
    finding = report[claim]
    assert finding.verdict == "inconclusive"
    assert finding.error
    assert claim in finding.reason
    for word in words:
        assert word in finding.reason
    assert report[BUNDLED].error is None
    assert report[BUNDLED].estimate is not None
    json.dumps(report.to_dict(), default=float)


BROKEN = [
    ({"evidence": fail}, ("ZeroDivisionError: division by zero",)),
    ({"evidence": a_key}, ("unknown result 'nothing'",)),
    ({"evidence": lambda results, facts: None}, ("TypeError", "is a NoneType: return numbers by")),
    ({"evidence": lambda results, facts: Evidence({}, "r")}, ("lacks 'mine'",)),
    (
        {"evidence": lambda results, facts: replace(fine(results, facts), details=BAD)},
        ("TypeError",),
    ),
    ({"excluded": fail}, ("ZeroDivisionError: division by zero",)),
    ({"measurements": (measured("own/one", fail),)}, ("'own/one'", "ZeroDivisionError")),
    ({"control": (measured("own/two", fail),)}, ("'twin/own/two'", "ZeroDivisionError")),
    (
        {"measurements": (measured("own/float", lambda lab: 1.5),)},
        ("'own/float'", "TypeError", "returned float"),
    ),
    (
        {"measurements": (measured("own/none", lambda lab: None),)},
        ("'own/none'", "returned NoneType"),
    ),
    (
        {"measurements": (measured("own/cells", lambda lab: make_table({"a": [torch.ones(1)]})),)},
        ("'own/cells'", "holds a Tensor"),
    ),
    (
        {
            "measurements": (
                measured("own/hook", lambda lab: lab.sweep([1.0], probes=[Activations(["nope"])])),
            )
        },
        ("'own/hook'", "unknown hook 'nope'"),
    ),
    ({"measurements": (asks("own/planned"),)}, ("'own/planned'", "unknown hook 'nope'")),
    ({"evidence": lambda results, facts: _raise(RuntimeError("a\nb\n" + "c" * 9999))}, ("a b c",)),
]


@pytest.mark.slow
@pytest.mark.usefixtures("errors_are_caught")
def test_an_error_costs_that_claim_only(own, caplog, tmp_path):
    """Of many that fail in one analysis, each says its own error, now and when judged again."""
    claims = {
        own(f"broken{i}", **broken).id: (broken, words) for i, (broken, words) in enumerate(BROKEN)
    }
    with caplog.at_level(logging.WARNING, logger="icl_interp"):
        report = analyze(*claims)
    logged = [record.getMessage() for record in caplog.records if record.exc_info]
    report.save(tmp_path)
    loaded = icl_interp.Report.load(tmp_path)
    judged = loaded.judge()
    for claim, (broken, words) in claims.items():
        check_broken(report, claim, *words)
        assert "\n" not in report[claim].reason
        assert len(report[claim].reason) < 600
        names = [m.name for key in ("measurements", "control") for m in broken.get(key, ())]
        assert any(f"{name} failed" in line for name in names or [claim] for line in logged), (
            f"no traceback of {claim} in the log"
        )
        assert loaded[claim].error == report[claim].error
        check_broken(judged, claim, *words)  # also from stored results alone


@pytest.mark.slow
@pytest.mark.usefixtures("errors_are_caught")
def test_an_error_costs_a_claim_that_is_asked_alone(own):
    check_broken(
        analyze(own("alone", measurements=(asks("own/asks"),)).id),
        "mine.alone",
        "unknown hook 'nope'",
    )


def _raise(error):
    raise error


@pytest.mark.slow
@pytest.mark.usefixtures("errors_are_caught")
def test_claims_that_share_a_failing_measurement_share_its_error(own):
    calls = []

    def count(lab):
        calls.append(lab)
        raise ValueError("no such thing")

    shared = measured("own/shared", count)
    outer = measured("own/outer", lambda lab: lab.measure(shared))
    names = [
        own("first", measurements=(shared,)).id,
        own("second", measurements=(shared, certificates.certificate)).id,
        own("third", measurements=(outer,)).id,
    ]
    report = analyze(*names)
    for name in names:
        check_broken(report, name, "ValueError: no such thing")
    assert len(calls) == 1
    assert set(report.model["failed"]) == {"own/shared", "own/outer"}
    assert "far/certificate" in report.results


@pytest.mark.slow
def test_a_claim_without_an_error_says_so(own):
    claim = own(
        "well", measurements=(measured("own/m", lambda lab: make_array([1.0], {"a": (0,)})),)
    ).id
    report = analyze(claim)
    assert (report[claim].verdict, report[claim].error) == ("supported", None)
    assert report.model["failed"] == {}
    must_fail(check_broken, report, claim)


@pytest.mark.slow
@pytest.mark.usefixtures("errors_are_caught")
def test_what_is_no_error_of_a_claim_ends_the_analysis(own):
    for stop in (KeyboardInterrupt(), SystemExit(3)):
        claim = own(
            f"stop{type(stop).__name__}",
            measurements=(measured(f"own/{type(stop).__name__}", lambda lab, e=stop: _raise(e)),),
        ).id
        with pytest.raises(type(stop)):
            analyze(claim)
    with pytest.raises(InputError, match="unknown claim"):
        analyze("mine.nope")


def test_in_tests_an_error_surfaces(own):
    """The package's own tests must not lose an error in a verdict that says inconclusive."""
    for name, broken in (
        ("judge", {"evidence": fail}),
        ("measure", {"measurements": (measured("own/y", fail),)}),
    ):
        claim = own(name, **broken).id
        with pytest.raises(ZeroDivisionError):
            analyze(claim)
        with pytest.raises(ZeroDivisionError):
            registry.REGISTRY["mine.judge"].judge_results({}, facts())


@pytest.mark.slow
def test_a_figure_that_fails_costs_itself_only(monkeypatch, errors_are_caught, caplog, tmp_path):
    monkeypatch.setitem(catalogue.FIGURES, "mine", catalogue.ReportFigure(fail, ""))
    report = analyze()
    assert "claims" in report.figures
    assert "mine" not in report.figures
    assert "the figure mine could not be drawn" in caplog.text
    report.to_html(tmp_path / "report.html")
    logging.getLogger("icl_interp").addHandler(SURFACE)
    with pytest.raises(ZeroDivisionError):
        _ = report.figures


@pytest.mark.slow
def test_no_bundled_claim_fails():
    report = pipeline.analyze(checkpoint(task={"degrees": [1]}), **FAST)
    assert [finding.id for finding in report.findings] == list(registry.REGISTRY)
    assert [finding.error for finding in report.findings if finding.error] == []
