"""Power curves: dials draw as they say, and their claims go from contradicted to supported.

They do so without turning back: at both ends and between them here, and at every value, with many
draws, in `icl-interp selfcheck --power`.
"""

import math
from dataclasses import replace

import pytest
import torch
from helpers import must_fail

from icl_interp import registers
from icl_interp.errors import InputError
from icl_interp.experiments import power
from icl_interp.experiments.calibration import NO, YES
from icl_interp.experiments.power import DIALS
from icl_interp.figures.power import power_curve
from icl_interp.results import table_of_rows
from icl_interp.studies import STUDIES

OPEN = "inconclusive"
ORDER = (NO, OPEN, YES)
ALPHA = "alpha of scores -alpha x x_j"  # of the claim on hardmax
list(STUDIES)  # dials are there once studies are


def check_order(verdicts):
    """From contradicted to supported, and never back."""
    places = [ORDER.index(verdict) for verdict in verdicts]
    assert places == sorted(places)
    assert {0, 2} <= set(places)


def test_a_dial_that_jumps_back_is_noticed():
    check_order([NO, OPEN, YES])
    must_fail(check_order, [NO, YES, OPEN])
    must_fail(check_order, [NO, OPEN])


@pytest.mark.slow
@pytest.mark.parametrize("name", DIALS)
def test_verdicts_follow_a_dial(name):
    dial = DIALS[name]
    values = (dial.values[0], dial.values[len(dial.values) // 2], dial.values[-1])
    check_order([dial.judge(value).verdict for value in values])


def test_the_number_alone_differs_between_values():
    """The same seed draws the same weights, but for those that the value sets."""

    def check(draw):
        one, other, again, seed = (
            draw(*at).model.state_dict() for at in ((1.0, 0), (3.0, 0), (1.0, 0), (1.0, 1))
        )
        assert [name for name in one if not torch.equal(one[name], other[name])] == [
            "blocks.0.attn.W_Q"
        ]
        assert all(torch.equal(one[name], again[name]) for name in one)
        assert not torch.equal(one["embed.W_E"], seed["embed.W_E"])

    dial = DIALS[ALPHA]
    check(dial.draw)
    must_fail(check, lambda value, seed: dial.draw(value, seed + int(value)))
    must_fail(check, lambda value, seed: dial.draw(value, 0))


@pytest.mark.slow
def test_a_curve_counts_verdicts_by_value():
    dial = replace(DIALS[ALPHA], name="two values", values=(0.0, 3.0))
    found = {value: [dial.judge(value, seed) for seed in (1, 2)] for value in dial.values}

    def check(table):
        rows = table.set_index("value")
        for value, findings in found.items():
            verdicts = [finding.verdict for finding in findings]
            assert list(rows.loc[value, [NO, "undecided", YES]]) == [
                verdicts.count(verdict) for verdict in ORDER
            ]
            assert rows.loc[value, "draws"] == 2
            middle = sum(finding.evidence["share"].value for finding in findings) / 2
            assert rows.loc[value, "measured"] == pytest.approx(middle, rel=1e-9, abs=1e-12)

    with registers.as_before():
        DIALS.add(dial.name, dial)
        table = power.curve(dial.name, 2, seed=1)
    check(table)
    must_fail(check, table.assign(measured=0.5))
    must_fail(check, table.assign(value=table["value"][::-1].to_numpy()))


def test_what_was_never_measured_is_said_so():
    row = {
        "dial": "a",
        "claim": "b",
        "value": 1.0,
        YES: 0,
        NO: 0,
        "undecided": 2,
        "draws": 2,
        "measured": math.nan,
    }
    table = table_of_rows([row, row | {"value": 2.0, YES: 2, "undecided": 0, "measured": 0.25}])
    figure = power_curve(table, "A claim", "share")
    assert [text.split("<br>") for text in figure.layout.xaxis.ticktext] == [
        ["1", "not measured"],
        ["2", "0.25"],
    ]
    assert [list(bar.y) for bar in figure.data] == [
        [0, 0],
        [1, 0],
        [0, 1],
    ]  # contradicted, inconclusive, supported


def test_every_dial_is_of_a_claim_and_its_quantity():
    def check(dials):
        for dial in dials:
            (claim,) = (
                claim
                for study in STUDIES.values()
                for claim in study.claims
                if claim.id == dial.claim
            )
            quantities = [condition.quantity for condition in claim.criterion.conditions]
            assert not dial.quantity or dial.quantity in quantities
            steps = [b - a for a, b in zip(dial.values, dial.values[1:], strict=False)]
            assert all(step > 0 for step in steps) or all(step < 0 for step in steps)

    check(DIALS.values())
    must_fail(
        check,
        [power.Dial("a", "limits.softmax_hardmax", "", lambda v, g: None, (0, 1), quantity="rate")],
    )
    must_fail(
        check, [power.Dial("a", "limits.softmax_hardmax", "", lambda v, g: None, (0, 1, 0.5))]
    )


@pytest.mark.parametrize(
    ("name", "n", "message"),
    [("alpha", 1, "unknown dial 'alpha'"), (ALPHA, 0, "draws must be .* 1 .* got 0")],
)
def test_wrong_requests_are_refused(name, n, message):
    with pytest.raises(InputError, match=message):
        power.curve(name, n)
