"""Values put in the place of activations: exactly these, there and nowhere else; what does not fit is refused."""

import pytest
import torch
from helpers import must_fail
from small_models import OTHERS, PROMPTS, make, put_heads, tokens_for
from torch.testing import assert_close

from icl_interp import interventions
from icl_interp.errors import InputError
from icl_interp.interventions import (
    AblateHeads,
    MeanOutputs,
    PutActivations,
    PutHeadOutputs,
    PutPatterns,
    SwapPattern,
    intervene,
    mean_activations,
    sublayers,
)
from icl_interp.models.hooks import listened

KEYS, Z = "blocks.1.attn.hook_k", "blocks.1.attn.hook_z"


@pytest.fixture(autouse=True)
def _no_gradients():
    """Within one route numbers are bit-identical; with gradients on, the norms take another when nobody listens."""
    with torch.no_grad():
        yield


def under(model, *edits):
    """All activations of a run under interventions."""
    with intervene(model, *edits):
        return model.run_with_cache(tokens_for(model))[1]


def check_same(found, wanted, left_out=()):
    """All activations alike, but those left out."""
    for name in set(wanted) - set(left_out):
        assert_close(found[name], wanted[name], rtol=0, atol=1e-12)


def test_keys_of_other_prompts_are_all_that_changes_before_the_scores():
    model = make()
    edit = PutActivations.measure(model, tokens_for(model).flip(0), [KEYS])
    found, before = under(model, edit), under(model)
    assert torch.equal(found[KEYS], before[KEYS].flip(0))
    reached = [name for name in before if not torch.equal(found[name], before[name])]
    assert reached[:2] == [KEYS, "blocks.1.attn.hook_attn_scores"]


def test_a_models_own_activations_change_nothing():
    model = make()
    names = [name for name in model.hook_dict if name in under(model)]
    before = under(model)
    check_same(under(model, PutActivations.measure(model, tokens_for(model), names)), before)
    others = PutActivations.measure(model, tokens_for(model).flip(0), ["blocks.0.hook_resid_pre"])
    must_fail(check_same, under(model, others), before)


@pytest.mark.parametrize("layers", [None, [1]])
def test_patterns_are_activations_like_any(layers):
    model = make()
    others = tokens_for(model).flip(0)
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in layers or (0, 1)]
    patterns, activations = (
        PutPatterns.measure(model, others, layers),
        PutActivations.measure(model, others, names),
    )
    assert list(patterns.patterns) == list(activations.values) == names
    check_same(under(model, patterns), under(model, activations))


def test_heads_are_put_where_they_are_said_to_be():
    model = make()
    edit = put_heads(model)
    found, wanted = under(model, edit)[Z], under(model)[Z].clone()
    wanted[:, 5, 0], wanted[:, -1, 2] = edit.outputs.unbind(1)
    assert torch.equal(found, wanted)
    must_fail(check_same, {Z: found}, {Z: under(model)[Z]})
    must_fail(
        check_same,
        {Z: found},
        {Z: under(model, PutHeadOutputs(1, [2, 0], edit.outputs, [5, -1]))[Z]},
    )


def test_zeros_put_at_every_token_ablate_a_head():
    model = make()
    n, n_tokens = tokens_for(model).shape[:2]
    zeros = torch.zeros(n, n_tokens, 4).double()
    edit = PutHeadOutputs(1, [2] * n_tokens, zeros, range(n_tokens))
    check_same(under(model, edit), under(model, AblateHeads.zero((1, 2))))
    must_fail(check_same, under(model, edit), under(model, AblateHeads.zero((1, 1))))


def test_values_fit_models_of_any_precision():
    model = make()
    edits = put_heads(model), PutActivations.measure(model, tokens_for(model), [KEYS])
    with intervene(model.float(), *edits):
        assert model(tokens_for(model)).dtype == torch.float32


def fewer(model):
    """Other prompts, of which there are fewer, and shorter ones."""
    return tokens_for(model, OTHERS.first(4))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda model: PutActivations.measure(model, fewer(model), [KEYS]),
            r"^activations at blocks.1.attn.hook_k of shape \(10, 7, 3, 4\) \(batch, token, "
            r"\.\.\.\) cannot replace those of shape \(24, 13, 3, 4\): measure them on as many "
            r"prompts of the same length$",
        ),
        (
            lambda model: PutActivations.measure(model, tokens_for(model, PROMPTS)[:1], [KEYS]),
            r"\(1, 13, 3, 4\) .* cannot replace those of shape \(24, 13, 3, 4\)",
        ),
        (
            lambda model: PutActivations.measure(
                model, fewer(model), ["blocks.0.attn.hook_pattern"]
            ),
            r"^patterns of shape \(10, 3, 7, 7\) \(batch, head, query, key\) cannot replace those "
            r"of shape \(24, 3, 13, 13\): measure them on as many prompts of the same length$",
        ),
        (
            lambda model: PutActivations.measure(model, fewer(model), ["blocks.1.attn.hook_l"]),
            "unknown hook .*did you",
        ),
        (
            lambda model: PutActivations({"blocks.1.attn.hook_l": torch.zeros(1)}),
            "unknown hook .*did you mean",
        ),
        (
            lambda model: PutHeadOutputs(1, [0], torch.zeros(23, 1, 4), [0]),
            r"^outputs of shape \(23, 1, 4\) \(batch, edit, d_head\) do not fit heads of shape "
            r"\(24, 13, 3, 4\) \(batch, token, head, d_head\): give one for each prompt of the "
            r"run$",
        ),
        (
            lambda model: PutHeadOutputs(1, [0], torch.zeros(24, 1, 5), [0]),
            r"\(24, 1, 5\) .* do not fit heads",
        ),
        (
            lambda model: PutHeadOutputs(1, [0, 1], torch.zeros(24, 3, 4), [0]),
            "^each output needs a head and a position, but got 3 outputs, 2 heads and 1 positions$",
        ),
        (
            lambda model: PutHeadOutputs(1, [3], torch.zeros(24, 1, 4), [0]),
            r"no head \(1, 3\): the model has 2 layers",
        ),
        (
            lambda model: PutHeadOutputs(2, [0], torch.zeros(24, 1, 4), [0]),
            r"no head \(2, 0\): the model has 2 layers",
        ),
        (lambda model: PutHeadOutputs(1, [-1], torch.zeros(24, 1, 4), [0]), r"no head \(1, -1\)"),
        (
            lambda model: PutHeadOutputs(1, [0], torch.zeros(24, 1, 4), [13]),
            r"positions \(13,\) are not all within",
        ),
        (
            lambda model: PutHeadOutputs(1, [0], torch.zeros(24, 1, 4), [-14]),
            r"positions \(-14,\) are not all within",
        ),
        (
            lambda model: MeanOutputs.measure(model, fewer(model), sublayers(model)).only(
                "blocks.2.hook_mlp_out"
            ),
            "unknown measured sublayer 'blocks.2.hook_mlp_out': did you mean",
        ),
        (
            lambda model: MeanOutputs.measure(model, fewer(model)[:0], sublayers(model)),
            r"a mean needs at least one prompt, but the tokens have shape \(0, 7, 1\)",
        ),
    ],
)
def test_errors(build, message):
    model = make()
    with pytest.raises(InputError, match=message):  # noqa: PT012
        built = build(model)
        with intervene(model, built):
            model(tokens_for(model))
    assert not any(listened(module) for module in model.modules())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda model: PutActivations.measure(model, tokens_for(model), [KEYS]),
            f"^values kept at {KEYS} belong to whole",
        ),
        (
            lambda model: PutPatterns.measure(model, tokens_for(model), [1]),
            "attn.hook_pattern belong to whole prompts",
        ),
        (
            put_heads,
            (
                r"^outputs of heads at positions \(5, -1\) belong to whole prompts, and cannot act "
                r"on last tokens"
            ),
        ),
    ],
)
def test_what_belongs_to_whole_prompts_refuses_last_tokens_read_alone(build, message):
    with pytest.raises(InputError, match=message):
        build(make()).at_query()


def test_means_are_over_prompts_however_these_are_read():
    model, names = make(), ["blocks.0.hook_resid_post", Z]
    tokens = tokens_for(model).repeat(20, 1, 1)  # more than are read at once
    _, cache = model.run_with_cache(tokens)
    for name, mean in mean_activations(model, tokens, names).items():
        assert_close(mean, cache[name].mean(0))


def check_gradient(edit, moves):
    """Whether what decides the patterns, W_Q of the last layer, has a gradient under an intervention."""
    model = make(attn_only=True)
    with torch.enable_grad(), intervene(model, edit):
        model(tokens_for(model)).sum().backward()
    gradient = model.blocks[1].attn.W_Q.grad
    assert (gradient is not None and bool(gradient.any())) == moves


def test_swapped_patterns_have_their_own_gradient():
    """Of a hardmax that is 0: softmax's, which a hardmax model is trained with, stays out of edits."""
    check_gradient(SwapPattern("hardmax"), moves=False)
    check_gradient(SwapPattern("hardmax", ((1, 0),)), moves=True)  # other heads keep theirs


def check_tie(place):
    """Equal scores: all weight on one of the keys that a query sees."""
    model = make()
    for block in model.blocks:
        block.attn.W_Q.zero_()
        block.attn.b_Q.zero_()
    pattern = under(model, SwapPattern("hardmax"))["blocks.1.attn.hook_pattern"]
    assert bool((pattern[:, :, -1, place] == 1).all())


def test_the_first_of_equal_weights_wins():
    check_tie(0)
    must_fail(check_tie, -1)


def test_every_intervention_is_public_and_shows_its_use():
    for name in interventions.__all__:
        said = getattr(interventions, name).__doc__
        assert ">>>" in said, name
