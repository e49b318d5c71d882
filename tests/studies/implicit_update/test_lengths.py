"""Predictions and sizes by the number of examples: with whole matrices by hand, and edits."""

import copy

import numpy as np
import pytest
import torch
from helpers import mostly_slow, must_fail
from small_models import TASK, make

from icl_interp.analyses.lab import Lab
from icl_interp.models.tokens import Interleaved
from icl_interp.provenance import generator
from icl_interp.studies.implicit_update.measurements import updates
from icl_interp.studies.implicit_update.measurements.lengths import (
    SIZE,
    UNDER,
    WITH,
    by_length,
    lengths,
)
from icl_interp.testing.reparameterisations import EDITS
from icl_interp.theory.implicit_update import rank_one

N_EXAMPLES = TASK.n_points - 1


def lab_of(model):
    """On affine functions."""
    return Lab(model, TASK, Interleaved(), n_units=5, n_contexts=1)


def by_hand(lab):
    """Updates of W and derivatives in hidden units after n examples, by n and prompt.

    Each is a whole matrix, from the formula. Derivatives are those of models whose weights are
    edited, by autograd.
    """
    prompts = updates.sample(lab)
    found = {}
    for n in range(1, TASK.n_points):
        for i in range(len(prompts)):
            one = prompts[i : i + 1]
            alone = updates.state(lab, updates.some(one, 0))
            whole = updates.state(lab, updates.some(one, n))
            model = copy.deepcopy(lab.model)
            mlp = model.blocks[-1].mlp
            change = rank_one(mlp.W_in.T, whole.read[0], alone.read[0]).T
            with torch.no_grad():
                mlp.W_in += change
                mlp.b_out += whole.stream[0] - alone.stream[0]
            mlp.b_in.requires_grad_()
            said = model(lab.tokens(updates.some(one, 0)))[0, -1, 0]
            (derivative,) = torch.autograd.grad(said, mlp.b_in)
            found[n, i] = (change, derivative, float(said.detach()), float(whole.said))
    return found


def test_sizes_and_predictions_are_those_of_whole_matrices():
    lab = lab_of(make())
    result = lab.measure(by_length)
    asked = lengths(N_EXAMPLES)
    units = range(lab.n_units)
    hand = by_hand(lab)
    squares = [hand[n, i][1].square() for n in asked for i in units]
    weights = torch.stack(squares).mean(0).sqrt()

    def check_sizes(number, power, further):
        for n in asked:
            for i in units:
                step = hand[n + further, i][0] - hand[n, i][0]
                wanted = float((weights**power * step**2).sum().sqrt())
                found = result.sel(examples=n, number=number, unit=i)
                assert float(found) == pytest.approx(wanted, rel=1e-6)

    check_sizes(SIZE, 1, 1)
    must_fail(check_sizes, SIZE, 0, 1)  # all hidden units alike
    must_fail(check_sizes, UNDER, 1, 1)

    def check_predictions(number, place):
        for n in asked:
            wanted = [hand[n, i][place] for i in units]
            np.testing.assert_allclose(result.sel(examples=n, number=number), wanted, rtol=1e-8)

    check_predictions(UNDER, 2)
    check_predictions(WITH, 3)
    check_predictions(WITH, 2)  # the identity
    must_fail(check_predictions, updates.LABEL, 2)


NEUTRAL = ("mlp", "unread", "width", "basis")


@pytest.mark.parametrize(
    "edit",
    mostly_slow(
        [edit for edit in EDITS if edit.family in NEUTRAL and "weight maps" not in edit.may_change],
        fast=2,
    ),
    ids=lambda edit: edit.name,
)
def test_other_weights_of_the_same_function_have_steps_that_fall_alike(edit):
    """Sizes over those at the first number of examples; their unit depends on the weights."""
    model = next(one for one in (make(), make("no norm")) if not edit.applies(one.cfg))
    sizes = []
    for one in (model, edit.apply(model, generator(0, "test"))):
        size = lab_of(one).measure(by_length).sel(number=SIZE)
        sizes.append((size / size.isel(examples=0)).values)

    def check(before, after):
        np.testing.assert_allclose(after, before, rtol=1e-6)

    check(*sizes)
    must_fail(check, sizes[0] + 0.01, sizes[1])


@pytest.mark.parametrize(
    ("n_examples", "wanted"), [(6, [1, 2, 4, 5]), (9, [1, 2, 4, 8]), (10, [1, 2, 4, 8, 9])]
)
def test_every_length_leaves_an_example(n_examples, wanted):
    assert lengths(n_examples) == wanted
