"""Updates and steps: the identity on untrained models, and cosines with whole matrices by hand."""

import copy
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import mostly_slow, must_fail
from small_models import MODELS, TASK, make

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.lab import Lab
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.tokens import Interleaved, Stacked
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.studies.implicit_update.measurements import updates as measured
from icl_interp.tasks import AutoregressiveProcess
from icl_interp.testing.reparameterisations import EDITS

WITH_MLP = [name for name in MODELS if not {"attn_only", "mlp_only"} & set(MODELS[name])]


def lab_of(model, n_units=5):
    """On affine functions."""
    encoding = Stacked() if model.cfg.d_in == 2 else Interleaved()
    return Lab(model, TASK, encoding, n_units=n_units, n_contexts=1)


@pytest.mark.parametrize("name", mostly_slow(WITH_MLP, fast=4))
def test_the_update_stands_for_examples_in_every_untrained_model(name):
    lab = lab_of(make(name))
    result = lab.measure(measured.identity)

    def check(number):
        largest = float(np.abs(result.sel(number=number)).max())
        assert largest < 1e-6 * float(result.sel(number=measured.LABEL).std())

    check(measured.APART)
    must_fail(check, measured.WITHOUT)  # the bias alone does not


@pytest.mark.parametrize("part", ["column", "row", "bias"])
def test_every_part_of_the_update_is_needed(part):
    lab = lab_of(make())
    prompts = measured.sample(lab)
    whole = measured.state(lab, prompts)
    alone = measured.some(prompts, 0)
    change = measured.update(lab, whole, measured.state(lab, alone))

    def check(edit):
        said = measured.state(lab, alone, edit).said
        torch.testing.assert_close(said, whole.said, rtol=1e-9, atol=1e-9)

    check(change)
    must_fail(check, replace(change, **{part: 1.01 * getattr(change, part)}))


def by_hand(lab, place, example=None):
    """A step of W, and the gradient of an example's loss in W, prompt by prompt: whole matrices.

    They come from models whose weights are edited, by autograd. Beside them is the derivative of
    the prediction for the query in the hidden units.
    """
    prompts = measured.sample(lab)
    n = measured.starts(prompts.n_points - 1)[place]
    rows = []
    for i in range(len(prompts)):
        one = prompts[i : i + 1]
        alone = measured.state(lab, measured.some(one, 0))
        changes = []
        for n_examples in (n, n + 1):
            state = measured.state(lab, measured.some(one, n_examples))
            hidden = lab.model.blocks[-1].mlp.W_in.T @ (state.read[0] - alone.read[0])
            changes.append(alone.read[0].outer(hidden) / alone.read[0].square().sum())
            if n_examples == n:
                stream = state.stream[0]
        model = copy.deepcopy(lab.model)
        mlp = model.blocks[-1].mlp
        with torch.no_grad():
            mlp.W_in += changes[0]
            mlp.b_out += stream - alone.stream[0]
        mlp.W_in.requires_grad_()
        mlp.b_in.requires_grad_()
        place_of = n if example is None else example
        with torch.enable_grad():
            said = model(lab.tokens(measured.some(one, 0, place_of)))[0, -1, 0]
            loss = (said - one.ys[0, place_of, 0]) ** 2 / 2
            (gradient,) = torch.autograd.grad(loss, mlp.W_in)
            said = model(lab.tokens(measured.some(one, 0)))[0, -1, 0]
            (slope,) = torch.autograd.grad(said, mlp.b_in)
        rows.append((changes[1] - changes[0], gradient, slope))
    return rows


def weights_of(lab):
    """Root mean square derivatives of predictions in hidden units."""
    n_steps = len(measured.starts(TASK.n_points - 1))
    slopes = [row[2] for place in range(n_steps) for row in by_hand(lab, place)]
    return torch.stack(slopes).square().mean(0).sqrt()


@pytest.mark.slow
def test_cosines_are_those_of_whole_matrices():
    lab = lab_of(make())
    result = lab.measure(measured.steps)
    weights = weights_of(lab)

    def check(number, example, sign, power):
        scale = weights**power
        for place in (0, 1):
            for i, (step, gradient, _) in enumerate(by_hand(lab, place, example)):
                lengths = (scale * step**2).sum().sqrt() * (gradient**2 / scale).sum().sqrt()
                wanted = sign * float((step * gradient).sum() / lengths)
                found = result.sel(number=number).isel(examples=place, unit=i)
                assert float(found) == pytest.approx(wanted, rel=1e-6, abs=1e-9)

    check(measured.OWN[0], None, -1, 1)
    must_fail(check, measured.OWN[0], None, 1, 1)
    must_fail(check, measured.OWN[0], None, -1, 0)
    must_fail(check, measured.OTHER[0], None, -1, 1)


@pytest.mark.slow
def test_the_control_is_the_mean_over_examples_that_come_later():
    lab = lab_of(make())
    result = lab.measure(measured.steps)
    weights = weights_of(lab)
    n_examples = TASK.n_points - 1
    place, n = 1, measured.starts(n_examples)[1]
    last = min(n + 1 + measured.N_SHUFFLES, n_examples)  # the query is none of them

    def check(examples):
        cosines = []
        for example in examples:
            of_each = []
            for step, gradient, _ in by_hand(lab, place, example):
                lengths = (weights * step**2).sum() * (gradient**2 / weights).sum()
                of_each.append(-float((step * gradient).sum() / lengths.sqrt()))
            cosines.append(of_each)
        found = result.sel(number=measured.OTHER[0]).isel(examples=place)
        np.testing.assert_allclose(found, np.mean(cosines, 0), rtol=1e-6, atol=1e-9)

    check(range(n + 1, last))
    must_fail(check, range(n, last))  # with the one that is taken in
    must_fail(check, range(n - 1, n))


NEUTRAL = ("mlp", "unread", "width", "basis")


@pytest.mark.parametrize(
    "edit",
    mostly_slow(
        [edit for edit in EDITS if edit.family in NEUTRAL and "weight maps" not in edit.may_change],
        fast=2,
    ),
    ids=lambda edit: edit.name,
)
def test_other_weights_of_the_same_function_give_the_same_numbers(edit):
    model = next(one for one in (make(), make("no norm")) if not edit.applies(one.cfg))
    before = lab_of(model).measure(measured.steps)
    after = lab_of(edit.apply(model, generator(0, "test"))).measure(measured.steps)

    def check(names):
        wanted = before.sel(number=list(names))
        found = after.sel(number=list(measured.OWN))
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-9)

    check(measured.OWN)
    must_fail(check, measured.OTHER)


def facts(task=TASK, **settings):
    cfg = HookedTransformerConfig(n_layers=1, d_model=8, n_heads=2, **settings)
    return Facts.of(HookedTransformer(cfg, seed=0), task, "stacked", {"error": 0.0, "r2": 1.0})


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"attn_only": True}, "lacks one of them"),
        ({"mlp_only": True}, "lacks one of them"),
        ({"keys": "labelled", "attention_dir": "bidirectional"}, "only labelled examples"),
    ],
)
def test_models_without_an_mlp_behind_attention_are_refused(settings, reason):
    assert re.search(reason, measured.excluded(facts(**settings)))
    assert measured.excluded(facts()) is None


def test_prompts_of_few_examples_are_refused():
    for n_points, refused in ((measured.FEWEST, True), (measured.FEWEST + 1, False)):
        reason = measured.excluded(facts(TASK.with_points(n_points)))
        assert (reason is not None) is refused
    assert measured.starts(measured.FEWEST) == [2, 3, 4]


def test_paths_are_refused():
    path = AutoregressiveProcess(n_dims=1, n_points=8)
    assert "paths" in measured.excluded(facts(path))
