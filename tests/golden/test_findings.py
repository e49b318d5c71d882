"""The record of findings: six bundled models, one an architecture, are judged as recorded."""

import copy
import importlib.util
from pathlib import Path

import pytest
from bundled_reports import report_of
from helpers import must_fail

# Tests are imported by their paths, so a neighbour is no module that could be imported by its name.
_SPEC = importlib.util.spec_from_file_location(
    "golden_findings", Path(__file__).with_name("findings.py")
)
record = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(record)

SIX = (
    "affine",
    "affine_no_ln",
    "affine_post_ln",
    "affine_hardmax",
    "affine_attn_only",
    "lsa_fixed",
)


def check(recorded, found):
    assert list(record.differences(recorded, found)) == []


@pytest.mark.slow
@pytest.mark.parametrize("model", SIX)
def test_bundled_models_are_judged_as_recorded(model):
    check(record.read(model), record.condensed(report_of(model)))


def test_the_record_holds_every_bundled_model():
    assert record.recorded() == set(record.bundled.names())


def test_what_counts_as_a_difference():
    recorded = record.read("affine")
    check(recorded, copy.deepcopy(recorded))
    claim = "limits.layernorm_saturation"

    def changed(**entry):
        return {**recorded, claim: {**recorded[claim], **entry}}

    def times(factor):
        moved = {key: str(float(value) * factor) for key, value in recorded[claim]["test"].items()}
        return changed(test=moved)

    check(recorded, times(1 + 1e-7))
    for found in (
        times(1 + 1e-5),
        changed(verdict="inconclusive"),
        changed(estimate=None),
        {name: entry for name, entry in recorded.items() if name != claim},
    ):
        must_fail(check, recorded, found)
        must_fail(check, found, recorded)


def test_what_rests_on_float32_may_differ_by_its_last_bits():
    numbers, claim = {"value": "-0.29", "low": "-0.42", "high": "-0.16"}, "limits.no_norm_better"

    def found(name, shift):
        moved = {key: str(float(value) + shift) for key, value in numbers.items()}
        return {
            name: {"verdict": "supported", "estimate": moved, "test": moved, "bounds": [-0.05, 0.0]}
        }

    check(found(claim, 0.0), found(claim, 3e-6))
    must_fail(check, found(claim, 0.0), found(claim, 3e-5))
    must_fail(
        check, found("limits.layernorm_saturation", 0.0), found("limits.layernorm_saturation", 3e-6)
    )


def test_a_verdict_may_turn_where_its_interval_ends_on_a_bound():
    def entry(high, verdict):
        numbers = {"value": "0.005", "low": "0.001", "high": str(high)}
        return {
            "claim": {
                "verdict": verdict,
                "estimate": numbers,
                "test": numbers,
                "bounds": [0.01, 0.05],
            }
        }

    check(entry(0.01, "supported"), entry(0.01 + 1e-10, "inconclusive"))
    must_fail(check, entry(0.0099, "supported"), entry(0.0099, "inconclusive"))
