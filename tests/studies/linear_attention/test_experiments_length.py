"""The experiment on prompts beyond the trained length.

Positions are replaced or trained alone; what the experiment says is checked, too.
"""

import numpy as np
import pytest
import torch
from helpers import must_fail
from lsa_experiments import setup, tiny

from icl_interp.errors import InputError
from icl_interp.experiments.statements import AGREES, DIFFERS, LEFT_OUT, OPEN
from icl_interp.results import table_of_rows
from icl_interp.studies.linear_attention.experiments import length, models


def test_untrained_positions_alone_are_replaced():
    vectors = torch.arange(30.0)[:, None] ** 2

    def check(how, expected):
        out = length.replaced(vectors, 15, how)
        assert torch.equal(out[:15], vectors[:15])
        assert out[15:, 0].tolist() == pytest.approx(expected)

    even, odd = vectors[0:15:2, 0], vectors[1:15:2, 0]
    means = [float((odd if p % 2 else even).mean()) for p in range(15, 30)]
    check("mean trained", means)
    check("last trained", [13.0**2 if p % 2 else 14.0**2 for p in range(15, 30)])
    check("used again", [float(p % 14) ** 2 for p in range(15, 30)])
    check("as they are", [float(p) ** 2 for p in range(15, 30)])
    must_fail(check, "mean trained", [float(vectors[:15].mean())] * 15)  # kinds mixed
    drawn = length.replaced(vectors, 15, "drawn anew")[15:]
    assert torch.equal(drawn, length.replaced(vectors, 15, "drawn anew")[15:])
    assert not torch.equal(drawn, vectors[15:])
    with pytest.raises(InputError, match="did you mean 'mean trained'"):
        length.replaced(vectors, 15, "mean traind")


def test_replacing_positions_changes_nothing_up_to_the_trained_length():
    model = tiny()
    here = setup(tiny=model)
    task = models.tests(2, (1.0,))["fixed"]
    intact = models.errors_by_length(here, "tiny", task, 14).values
    for how in ("mean trained", "drawn anew"):
        edited = models.errors_by_length(
            here, "tiny", task, 14, how, lambda how=how: length.with_positions(model, how)
        ).values
        np.testing.assert_array_equal(edited[:, :7], intact[:, :7])
        assert (edited[:, 7:] != intact[:, 7:]).all()


def test_training_positions_alone_lowers_the_error_beyond_and_changes_nothing_before():
    model = tiny()
    after = length.trained_alone(model, 30)
    changed = [
        k
        for k, v in after.model.state_dict().items()
        if not torch.equal(v, model.model.state_dict()[k])
    ]
    assert changed == ["pos_embed.W_pos"]
    here, task = setup(tiny=model), models.tests(2, (1.0,))["fixed"]
    intact = models.errors_by_length(here, "tiny", task, 14).values
    edited = models.errors_by_length(here, "tiny", task, 14, "alone", lambda: after).values

    def check(errors):
        np.testing.assert_array_equal(errors[:, :7], intact[:, :7])
        assert errors[:, 7:].mean() < intact[:, 7:].mean()

    check(edited)
    must_fail(check, intact)


def spikes(ratios, at_n=0.05):
    """{(model, positions, test): (ratio, low, high)} as the table of spikes."""
    entries = [
        {
            "model": m,
            "positions": p,
            "test": t,
            "N": 7,
            "ratio": r,
            "low": low,
            "high": high,
            "mean beyond": r,
            "error at N": at_n,
        }
        for (m, p, t), (r, low, high) in ratios.items()
    ]
    return {"spikes": table_of_rows(entries)}


def test_spikes_say_whether_positions_are_the_cause():
    high, flat, mid = (3.0, 2.5, 3.5), (0.8, 0.7, 0.9), (1.9, 1.8, 2.0)

    def check(ratios, *starts, at_n=0.05):
        said = length.states(spikes(ratios, at_n))
        for statement, start in zip(said, starts, strict=True):
            assert statement.sentence.startswith(start), statement

    own = {(length.FIXED, how, "fixed"): high for how in length.EDITS}
    shifts = {
        (length.FIXED, length.AS_THEY_ARE, "random, c = 1"): high,
        (length.FIXED, length.AS_THEY_ARE, "random, c = 9"): mid,
    }
    stays = own | shifts
    replaced = {
        (length.FIXED, how, "fixed"): flat for how in ("mean trained", "last trained", "used again")
    }
    without = {(length.WITHOUT, "trained without", "fixed"): flat}
    sham, beyond = "With other random vectors", "Beyond N the model without positions"
    check(
        own | shifts | replaced | without,
        AGREES,
        AGREES,
        AGREES,
        AGREES,
        sham,
        AGREES,
        AGREES,
        beyond,
    )
    check(stays | without, AGREES, OPEN, OPEN, OPEN, sham, AGREES, AGREES, beyond)
    must_fail(check, stays | without, AGREES, AGREES, AGREES, AGREES, sham, AGREES, AGREES, beyond)
    no_spike = {(length.FIXED, how, "fixed"): flat for how in length.EDITS}
    check(no_spike | {(length.WITHOUT, "trained without", "fixed"): high}, DIFFERS, DIFFERS, beyond)
    # Predicting 0 has no spike either: a model that has not learned says nothing by having none.
    check(no_spike | without, DIFFERS, LEFT_OUT, beyond, at_n=1.0)
    must_fail(check, no_spike | without, DIFFERS, AGREES, beyond, at_n=1.0)
    even = {(length.FIXED, length.AS_THEY_ARE, f"random, c = {c}"): (3.0, 2.9, 3.1) for c in (1, 9)}
    check(no_spike | even, DIFFERS, OPEN)  # no region ends where there is no difference
