"""Heads as smoothers: what is fitted against independent routes.

Instruments that are wrong must break the verdict.
"""

import dataclasses

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.analyses import facts
from icl_interp.analyses.lab import Lab
from icl_interp.experiments import calibration
from icl_interp.interventions import PutHeadOutputs, intervene
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.softmax_unit import SoftmaxAttention
from icl_interp.models.tokens import Interleaved, Stacked
from icl_interp.models.transformer import HookedTransformer
from icl_interp.prompts import Prompts
from icl_interp.provenance import generator
from icl_interp.studies.lipschitz.claims import smoother as claims
from icl_interp.studies.lipschitz.claims.smoother import SMOOTHER_CLAIM
from icl_interp.studies.lipschitz.constructions import heads as made
from icl_interp.studies.lipschitz.measurements import heads
from icl_interp.tasks import RidgeFunction, Sphere
from icl_interp.tasks.distributions import Uniform
from icl_interp.tasks.functions import Polynomial
from icl_interp.theory import lipschitz as theory

CASES = {one.name: one for one in made.HEADS if "lipschitz.kernel_smoother" in one.expected}
TASK = RidgeFunction(inputs=Sphere(3), link="relu", noise_std=0.5, n_points=21)
AFFINE = Polynomial(degrees=(1,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=6)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed, "test/smoother"), dtype=torch.float64)


def judged(case, seed=0):
    lab, known = calibration.lab_for(case, seed=seed)
    return SMOOTHER_CLAIM.judge_results(calibration.measure(lab, known, [SMOOTHER_CLAIM]), known)


def transformer(encoding="interleaved", **more):
    """Two layers of two heads with weights so large that patterns are far from uniform."""
    d_in = {"interleaved": 1, "stacked": 2}[encoding]
    cfg = HookedTransformerConfig(
        n_layers=2, d_model=8, n_heads=2, n_ctx=12, d_in=d_in, init_std=0.8, **more
    )
    return HookedTransformer(cfg, seed=3).double().eval()


# ---- the fit -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [1, 3])
def test_scores_of_a_kernel_are_fitted_exactly(dim):
    """The weights of the scores x_i^T M x_q + m . x_i - |x_i|^2 come back.

    They do so whatever every score of a prompt has in common.
    """
    xs, query, matrix = draw(60, 12, dim), draw(60, dim, seed=1), draw(dim, dim, seed=2)
    log_k = (
        torch.einsum("bni,ij,bj->bn", xs, matrix, query)
        + xs @ draw(dim, seed=4)
        - xs.square().sum(-1)
    )
    shared = 5 * draw(60, 1, seed=5)
    fitted = heads.fitted_scores(
        (log_k + shared)[:, None], heads.features(xs, query), torch.arange(30)
    )

    def holds(found):
        torch.testing.assert_close(found.softmax(-1)[:, 0], log_k.softmax(-1), rtol=1e-6, atol=1e-8)

    holds(fitted)
    must_fail(holds, 1.01 * fitted)


def test_scores_that_read_labels_are_not_fitted():
    xs, query, ys = draw(60, 12, 3), draw(60, 3, seed=1), draw(60, 12, seed=2)
    fitted = heads.fitted_scores((3 * ys)[:, None], heads.features(xs, query), torch.arange(30))
    assert (fitted.softmax(-1)[:, 0] - (3 * ys).softmax(-1)).abs().max() > 0.3


def test_features_do_not_tell_places():
    xs, query = draw(4, 7, 3), draw(4, 3, seed=1)
    order = torch.randperm(7, generator=generator(0, "test"))
    torch.testing.assert_close(
        heads.features(xs, query)[:, order], heads.features(xs[:, order], query)
    )


# ---- what is read off and put in -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoding", "direction"),
    [("interleaved", "causal"), ("stacked", "causal"), ("stacked", "bidirectional")],
)
def test_heads_at_the_query_are_those_of_a_whole_pass(encoding, direction):
    model = transformer(encoding, attention_dir=direction)
    reader = {"interleaved": Interleaved(), "stacked": Stacked()}[encoding]
    lab = Lab(model, AFFINE, reader, n_units=4, n_contexts=1)
    prompts = lab.head_sample
    seen = heads.at_query(lab, prompts)
    out, cache = model.run_with_cache(lab.tokens(prompts))
    labelled = slice(1, None, 2) if encoding == "interleaved" else slice(0, -1)
    torch.testing.assert_close(seen.prediction, out[:, -1])
    for layer in range(2):
        rows, name = slice(2 * layer, 2 * layer + 2), f"blocks.{layer}.attn.hook_"
        torch.testing.assert_close(seen.output[:, rows], cache[name + "z"][:, -1])
        torch.testing.assert_close(
            seen.scores[:, rows], cache[name + "attn_scores"][:, :, -1, labelled]
        )
        torch.testing.assert_close(
            seen.mass[:, rows], cache[name + "pattern"][:, :, -1, labelled].sum(-1)
        )
        torch.testing.assert_close(
            seen.values[:, rows], cache[name + "v"][:, labelled].transpose(1, 2)
        )
    for layer in range(2):
        mine = seen.output[:, 2 * layer : 2 * layer + 2]
        both = seen.prediction[:, None].expand(-1, 2, -1)
        torch.testing.assert_close(seen.again(layer, [[0], [1]], mine), both)
        must_fail(torch.testing.assert_close, seen.again(layer, [[0], [1]], mine.flip(1)), both)
        # Side by side as one by one, together as alone, and as in a whole pass.
        edited = seen.again(layer, [[1], [0, 1]], -mine)
        torch.testing.assert_close(edited[:, :1], seen.again(layer, [[1]], -mine))
        torch.testing.assert_close(edited[:, 1:], seen.again(layer, [[1, 0]], -mine))
        last = lab.tokens(prompts).shape[1] - 1
        for i, group in enumerate(([1], [0, 1])):
            put = PutHeadOutputs(layer, group, -mine[:, group], [last] * len(group))
            with intervene(lab.model, put):
                whole = lab.model(lab.tokens(prompts))[:, -1]
            torch.testing.assert_close(edited[:, i], whole)


def single_is_double(monkeypatch, change=lambda stream: stream):
    """A large model measured in its own float32 gives what float64 gives.

    Both are on the same prompts.
    """
    model = transformer()
    plain = Lab(model, AFFINE, Interleaved(), n_units=8, n_contexts=1)
    prompts, wanted = plain.head_sample, heads.smoother(plain).values
    monkeypatch.setattr(facts, "LARGE", 0)
    large = Lab(model, AFFINE, Interleaved(), n_units=8, n_contexts=1)
    large.head_sample = prompts  # its own sample is smaller
    assert large.reader.unembed.W_U.dtype == torch.float32
    with large.reader.hooks([("blocks.1.hook_resid_pre", lambda stream, hook: change(stream))]):
        found = heads.smoother(large).values
    monkeypatch.undo()
    assert not np.isnan(wanted).all()
    np.testing.assert_allclose(np.sqrt(found), np.sqrt(wanted), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_large_models_heads_are_measured_in_float32(monkeypatch):
    single_is_double(monkeypatch)
    must_fail(single_is_double, monkeypatch, lambda stream: 1.001 * stream)


def test_the_stand_in_of_a_unit_is_theorys_smoother():
    """The stand-in of a head sum_i y_i a_i is theory's prediction with its M."""
    matrix = draw(3, 3)
    unit = SoftmaxAttention.from_product(matrix).to_transformer(TASK.n_points)
    lab = Lab(unit, TASK, Stacked(), n_units=16, n_contexts=1)
    prompts = lab.head_sample
    seen = heads.at_query(lab, prompts)
    fold = torch.arange(len(prompts)) % 2
    weights = heads.weights_by_polynomial(seen, prompts, fold)
    found, _ = heads.stand_ins(seen, prompts, fold, weights)
    expected = theory.prediction(
        prompts.xs[:, :-1], prompts.ys[:, :-1, 0], prompts.xs[:, -1], matrix
    )
    torch.testing.assert_close(found[:, 0, -1], expected, rtol=1e-6, atol=1e-8)


def test_stand_ins_are_made_on_the_other_half():
    """What a half of the prompts does enters the stand-ins of the other half alone."""
    xs, ys = draw(8, 6, 3), draw(8, 6, 1, seed=1)
    prompts = Prompts(xs, ys, torch.zeros(8, 0), torch.arange(8))
    values, output = draw(8, 1, 5, 2, seed=2), draw(8, 1, 2, seed=3)
    seen = heads.AtQuery(
        draw(8, 1, 5, seed=4),
        torch.ones(8, 1),
        values,
        output,
        draw(8, 1),
        lambda *edit: draw(8, 1, 1),
    )
    fold = torch.tensor([0, 1] * 4)
    second = (fold == 1)[:, None, None]
    other = seen._replace(output=torch.where(second, 3 * output, output))
    weights = seen.scores.softmax(-1)

    def made(one):
        return (heads.means(one, fold), *heads.stand_ins(one, prompts, fold, weights))

    for before, after in zip(made(seen), made(other), strict=True):
        torch.testing.assert_close(before[fold == 1], after[fold == 1])
        must_fail(torch.testing.assert_close, before[fold == 0], after[fold == 0])
    torch.testing.assert_close(
        heads.means(seen, fold)[fold == 0], output[fold == 1].mean(0).expand(4, 1, 2)
    )


# ---- verdicts ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_constructions(name):
    finding = judged(CASES[name].draw(1), seed=1)
    assert finding.verdict == CASES[name].expected["lipschitz.kernel_smoother"], finding.reason


@pytest.mark.slow
def test_own_weights_in_the_place_of_the_kernel_would_support_anything(monkeypatch):
    """With the head's own scores no weights depend on more than the inputs.

    This is the tautology that the claim avoids.
    """

    def check():
        rows = judged(CASES["softmax unit whose scores read labels"].draw(1)).details
        assert all(row["values: missed"] > claims.MISSED for row in rows)

    check()
    monkeypatch.setattr(heads, "fitted_scores", lambda scores, terms, fit: scores)
    must_fail(check)


def test_who_knows_nothing_supports_nothing():
    case = CASES["softmax unit with any M"].draw(1)
    with torch.no_grad():
        case.model.unembed.W_U.zero_()
    finding = judged(case)
    assert finding.verdict == "inconclusive"
    assert "No head is sure to matter" in finding.reason


def test_whom_it_is_not_about():
    case = CASES["softmax unit with any M"].draw(1)
    _, facts = calibration.lab_for(case)
    for change, word in (
        ({"score_fn": "linear"}, "linear"),
        ({"mlp_only": True, "attn_only": False}, "mlp_only"),
    ):
        cfg = dataclasses.replace(facts.config, keys=None, unit=None, **change)
        assert word in (SMOOTHER_CLAIM.exclusion(dataclasses.replace(facts, config=cfg)) or "")
    assert SMOOTHER_CLAIM.exclusion(facts) is None


def test_heads_that_were_not_tried_do_not_count():
    case = CASES["softmax unit with any M"].draw(1)
    lab, _ = calibration.lab_for(case)
    result = lab.measure(heads.smoother).copy(deep=True)
    result.values[:, 1:] = np.nan
    assert claims.standings(result, "labels", 0.95, made.N)["0.0"].value == "out"
