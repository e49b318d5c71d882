"""The claim that the last layer forms the prediction: read-outs, hand-set layers, verdicts.

Read-outs are compared with least squares.
"""

import numpy as np
import pytest
import torch
from helpers import must_fail
from own_tasks import Squares
from small_models import TASK, encoding_of, make
from torch.testing import assert_close

from icl_interp.analyses.lab import Lab
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.limits.claims.last_layer import left, seen_by
from icl_interp.studies.limits.constructions.layers import LABEL, TOKEN, WRITTEN, hand_set
from icl_interp.studies.limits.constructions.mechanisms import step_elsewhere, step_in_layers
from icl_interp.studies.limits.measurements import lens as measured_lens
from icl_interp.studies.limits.measurements.lens import LENSES, held_out_readings

LAST_ID = "limits.last_layer"
N = 40


# ---- the read-outs -------------------------------------------------------------------------------


def rows(n=60, width=5, noise=0.1, seed=0):
    g = generator(seed, "test/rows")
    features = (
        torch.randn(n, width, generator=g).double() * torch.tensor([1.0, 3.0, 1.0, 10.0, 1.0]) + 2
    )
    target = (
        features @ torch.tensor([1.0, 0.2, -1.0, 0.1, 0.0]).double()
        + noise * torch.randn(n, generator=g)
        - 7
    )
    return features, target, torch.arange(n) % 6


def check_held_out(predict):
    """Least squares with an intercept, fitted without the fold that is predicted."""
    features, target, fold = rows()
    with_one = torch.cat([torch.ones(len(features), 1).double(), features], 1)
    expected = torch.zeros_like(target)
    for k in range(6):
        solution = torch.linalg.lstsq(with_one[fold != k], target[fold != k, None]).solution
        expected[fold == k] = (with_one[fold == k] @ solution)[:, 0]
    assert_close(predict(features, target, fold), expected, rtol=1e-3, atol=1e-3)


def in_sample(features, target, fold):
    return held_out_readings(
        torch.cat([features] * 2), torch.cat([target] * 2), torch.arange(2 * len(fold)) // len(fold)
    )[: len(fold)]


def test_held_out_predictions_are_those_of_least_squares():
    check_held_out(held_out_readings)
    must_fail(check_held_out, in_sample)
    must_fail(check_held_out, lambda x, y, fold: held_out_readings(x, y, fold.sort().values))


def check_nothing_to_find(predict):
    """Noise is not seen in noise, though there are nearly as many features as rows."""
    g = generator(1, "test/noise")
    features, target = (
        torch.randn(60, 40, generator=g).double(),
        torch.randn(60, generator=g).double(),
    )
    left = (predict(features, target, torch.arange(60) % 6) - target).square().mean()
    assert left > 0.8 * target.var()


def test_a_read_out_does_not_see_what_is_not_there():
    check_nothing_to_find(held_out_readings)
    must_fail(check_nothing_to_find, in_sample)
    # Nor does a feature that never varies break it.
    features, target, fold = rows()
    constant = torch.full((60, 1), 3.0).double()
    assert_close(
        held_out_readings(torch.cat([features, constant], 1), target, fold),
        held_out_readings(features, target, fold),
        rtol=1e-4,
        atol=1e-4,
    )
    assert_close(
        held_out_readings(constant, target, fold), target.mean().expand(60), rtol=0.1, atol=0.3
    )


# ---- layers of known truth -----------------------------------------------------------------------


def two_layers(first: float, second: float) -> HookedTransformer:
    """f = first * sum_j y_j x_j x of the first layer, + second * (sum_j y_j) / 2 of the second."""
    model = hand_set(
        generator(0, "test/layers"), n_layers=2, d_in=2, score_fn="linear", score_norm="labelled"
    )
    a, b = (block.attn for block in model.blocks)
    with torch.no_grad():
        a.W_Q[0, TOKEN, 0], a.W_K[0, TOKEN, 0], a.W_V[0, LABEL, 0] = 1, 1, 1
        b.b_Q[0, 0], b.b_K[0, 0], b.W_V[0, LABEL, 0] = 1, 1, 0.5
        a.W_O[0, 0, WRITTEN], b.W_O[0, 0, WRITTEN] = first, second
        model.unembed.W_U[WRITTEN, 0] = 1
    return model


def bench(measured, model):
    return measured(model, LAST_ID, n_units=32, n_contexts=8)


def judged_step(measured, case):
    """The bench and the finding on a step of gradient descent that some layer takes."""
    found = measured(case.model, LAST_ID, task=case.task, n_units=32, n_contexts=8)
    return found, found.judge(LAST_ID)


def check_formed_in_the_first_layer(found, finding):
    """Both lenses see all of it after the first layer.

    Without the second all is left, without the first nothing.
    """
    result = found.results["layers/lens"]
    for lens in LENSES:
        assert seen_by(result, lens, 1).value == pytest.approx(1, abs=1e-6)
        assert seen_by(result, lens, 0).high < 0.1
    assert finding.verdict == "contradicted"
    assert left(found.results["layers/without last"], "last block").low > 1 - 1e-6
    by_block = finding.causal["by block"]
    assert (
        finding.causal["effect"] == by_block[1] == pytest.approx(finding.causal["intact"], rel=1e-5)
    )
    assert finding.causal["the same for another block (the largest effect)"] == by_block[0]
    assert by_block[0] == pytest.approx(1, abs=0.2)


@pytest.mark.slow
def test_what_lenses_and_ablations_say_of_a_prediction_formed_in_one_layer(measured):
    g = generator(0, "test/layers")
    check_formed_in_the_first_layer(*judged_step(measured, step_in_layers(g, 1.0, 0.0)))
    found, finding = judged_step(measured, step_in_layers(g, 0.0, 1.0))
    must_fail(check_formed_in_the_first_layer, found, finding)
    assert (finding.verdict, finding.estimate.value) == ("supported", pytest.approx(0, abs=0.05))
    assert left(found.results["layers/without last"], "last block").high < 1e-6
    assert finding.causal["by block"][0] == pytest.approx(finding.causal["intact"], rel=1e-5)
    assert finding.causal["by block"][1] == pytest.approx(1, abs=0.2)


@pytest.mark.slow
def test_the_share_follows_what_each_layer_adds(measured):
    """The two parts are not correlated, so the share is that of the variance.

    A has 0.17, B / 2 the rest.
    """
    shares = []
    for second in (0.0, 0.3, 1.0, 3.0):
        found = bench(measured, two_layers(1.0, second))
        shares.append(seen_by(found.results["layers/lens"], "affine", 1).value)
        lab = found.lab
        prompts = lab.task.sample(4000, generator(1, "test/share"))
        # The context's mean over labelled pairs, the query's own left out.
        x, y, query = prompts.xs[:, :-1, 0], prompts.ys[:, :-1, 0], prompts.xs[:, -1, 0]
        a, b = (x * y).mean(1) * query, y.mean(1) / 2 * second
        expected = float(a.var() / (a.var() + b.var()))
        assert shares[-1] == pytest.approx(expected, abs=0.12)
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.99 > 0.5 > shares[-1]


@pytest.mark.slow
def test_the_logit_lens_misses_another_basis(measured):
    g = generator(0, "test/basis")
    _, finding = judged_step(measured, step_elsewhere(g))
    assert finding.estimate.low > 0.99
    assert (
        finding.verdict == "inconclusive"
    )  # it is there before the last layer, and lost without it
    assert [row["R2"] < 0.5 for row in finding.details if row["lens"] == "logit"] == [
        True,
        True,
        False,
    ]
    seen = judged_step(measured, step_in_layers(g, 1.0, 0.0))[1]
    assert [row["R2"] < 0.5 for row in seen.details if row["lens"] == "logit"] == [
        True,
        False,
        False,
    ]


def check_prompts(task):
    """As many functions as prompts, whether the task has pairs or not."""
    lab = Lab(make("pre"), task, encoding_of(make("pre")), n_units=4, n_contexts=2)
    prompts = measured_lens.prompts_of(lab)
    assert (
        len(prompts)
        == len(prompts.function.unique())
        == len(prompts.parameters.unique(dim=0))
        == 16
    )
    assert ("no antithetic pairs" in measured_lens._note(lab, prompts)) == (not task.paired)


def test_every_prompt_is_of_a_function_of_its_own(monkeypatch):
    check_prompts(TASK)
    single = Squares(
        degrees=(1,), inputs=TASK.inputs, coefficients=TASK.coefficients, n_points=TASK.n_points
    )
    assert not single.paired
    check_prompts(single)
    monkeypatch.setattr(
        measured_lens, "prompts_of", lambda lab: lab.units("layers/prompts", n_units=8)
    )
    must_fail(check_prompts, single)


def check_lens(measure):
    """The residual is that of the stream at that depth, prompt by prompt."""
    model = make("pre").float()
    task = TASK
    lab = Lab(model, task, encoding_of(model), n_units=4, n_contexts=8)
    result = measure(lab)
    # 16 prompts of each of 4 groups: 8 pairs of functions, one context each.
    assert lab.unit_size == 16
    prompts = lab.units("layers/prompts", n_units=32)
    assert len(prompts) == len(prompts.function.unique()) == 64
    out, cache = lab.single.run_with_cache(lab.tokens(prompts).float())
    final = out[:, -1, 0].double()
    for depth, hook in enumerate(
        ("blocks.0.hook_resid_pre", "blocks.0.hook_resid_post", "blocks.1.hook_resid_post")
    ):
        read = lab.single.unembed(lab.single.ln_final(cache[hook]))[:, -1, 0].double()
        expected = (read - final).square().view(4, lab.unit_size).mean(1)
        assert np.allclose(
            result.sel(lens="logit", depth=depth, statistic="residual").values,
            expected,
            rtol=1e-4,
            atol=1e-9,
        )
    total = (final - final.mean()).square().view(4, lab.unit_size).mean(1)
    assert np.allclose(
        result.sel(lens="affine", depth=0, statistic="total").values, total, rtol=1e-5
    )


def test_lenses_by_brute_force():
    check_lens(measured_lens.lens)

    def shifted(lab):
        result = measured_lens.lens(lab)
        return make_array(np.roll(result.values, 1, axis=1), result.indexes)

    must_fail(check_lens, shifted)


def test_curves_are_the_stream_read_at_each_query():
    model = make("pre")
    lab = Lab(model, TASK, encoding_of(model), n_units=4, n_contexts=2)
    curve = lab.measure(measured_lens.curves)
    assert tuple(curve.indexes["what"]) == ("depth 0", "depth 1", "depth 2", "f")
    for k in (0, 20):
        for c in range(3):
            one = lab.prompts[lab.unit_size * c :][:1]  # the first prompt of each unit
            tokens = lab.tokens(one)
            tokens[0, -1, 0] = curve["x"].values[k]
            out, cache = lab.model.run_with_cache(tokens)
            read = lab.model.unembed(lab.model.ln_final(cache["blocks.0.hook_resid_post"]))[:, -1]
            assert curve.sel(context=c, what="depth 1").values[k] == pytest.approx(
                read.item(), abs=1e-9
            )
            assert curve.sel(context=c, what="depth 2").values[k] == pytest.approx(
                out[0, -1, 0].item(), abs=1e-9
            )
            line = one.parameters[0, 0] + one.parameters[0, 1] * curve["x"].values[k]
            assert curve.sel(context=c, what="f").values[k] == pytest.approx(float(line), abs=1e-9)
