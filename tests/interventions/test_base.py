"""Each intervention moves the output only while attached, and does exactly what its name says."""

import inspect
import math
from contextlib import ExitStack

import pytest
import torch
from helpers import must_fail
from small_models import (
    EVERY,
    MODELS,
    N_TOKENS,
    OTHERS,
    SOME,
    ablate_mean,
    freeze,
    make,
    several,
    tokens_for,
)
from torch.testing import assert_close

import icl_interp
from icl_interp.errors import InputError
from icl_interp.interventions.attention import AblateHeads, PutPatterns, SwapPattern, Temperature
from icl_interp.interventions.base import At, Intervention, intervene
from icl_interp.interventions.norms import FreezeNorms, InsertNorm
from icl_interp.interventions.outputs import MeanOutputs, sublayers
from icl_interp.models.hooks import listened
from icl_interp.probes.base import observe
from icl_interp.probes.residual import ResidualStream
from icl_interp.provenance import generator


@pytest.fixture(autouse=True)
def _no_gradients():
    """Without gradients, as numbers are compared bit by bit.

    With gradients and without hooks, norms take another route.
    """
    with torch.no_grad():
        yield


# Inside and outside -------------------------------------------------------------------------------


def check_quartet(model, tokens, interventions):
    """Moved inside; bit-identical after exit, also after an exception; nothing left behind."""
    before = model(tokens)
    with intervene(model, *interventions) as inside:
        assert inside is model
        assert not torch.allclose(model(tokens), before, rtol=1e-3, atol=1e-3)
        assert torch.isfinite(model(tokens)).all()
    assert torch.equal(model(tokens), before)
    with pytest.raises(ZeroDivisionError), intervene(model, *interventions):
        1 / 0  # noqa: B018
    assert torch.equal(model(tokens), before)
    assert not any(listened(module) for module in model.modules())


@pytest.mark.parametrize("build", EVERY.values(), ids=EVERY)
@pytest.mark.parametrize("name", ["pre", "post"])
def test_an_intervention_acts_inside_and_only_there(name, build):
    model = make(name)
    check_quartet(model, tokens_for(model), several(build(model)))


class Nothing(Intervention):
    def hooks(self, model):
        return [("hook_embed", lambda t, hook: t)]


class Stays(Intervention):
    """Attaches itself, past `intervene`."""

    def hooks(self, model):
        model.add_hook("hook_embed", lambda t, hook: 2 * t)
        return []


@pytest.mark.parametrize("mutant", [Nothing(), Stays(), AblateHeads.zero()])
def test_one_that_does_nothing_or_stays_is_noticed(mutant):
    model = make()
    must_fail(check_quartet, model, tokens_for(model), [mutant])


@pytest.mark.parametrize("name", MODELS)
def test_nothing_attached_changes_nothing(name):
    model = make(name)
    before = model(tokens_for(model))
    with intervene(model):
        assert torch.equal(model(tokens_for(model)), before)


def test_nothing_is_left_when_an_intervention_cannot_be_attached():
    model = make()
    with (
        pytest.raises(InputError, match=r"unknown hook 'blocks.0.resid_mid': did you mean"),
        intervene(model, Temperature(2.0), InsertNorm("blocks.0.resid_mid")),
    ):
        pass
    assert not any(listened(module) for module in model.modules())


def test_interventions_nest():
    model = make()
    tokens, inner, outer = tokens_for(model), SwapPattern("uniform"), AblateHeads.zero((1, 1))
    with intervene(model, outer, inner):
        both = model(tokens)
    with intervene(model, outer):
        only_outer = model(tokens)
        with intervene(model, inner):
            assert torch.equal(model(tokens), both)
        assert torch.equal(model(tokens), only_outer)


class Shift(Intervention):
    def hooks(self, model):
        return [("hook_embed", lambda t, hook: t + 1)]


class Double(Intervention):
    def hooks(self, model):
        return [("hook_embed", lambda t, hook: 2 * t)]


def check_order(first, second, expected):
    model, seen = make(), []
    with (
        intervene(model, first, second),
        model.hooks(fwd_hooks=[("hook_embed", lambda t, hook: seen.append(t))]),
    ):
        model(tokens_for(model))
    assert_close(seen[0], expected(model.embed(tokens_for(model))))


def test_each_sees_what_the_one_before_left():
    check_order(Shift(), Double(), lambda t: 2 * (t + 1))
    check_order(Double(), Shift(), lambda t: 2 * t + 1)
    must_fail(check_order, Double(), Shift(), lambda t: 2 * (t + 1))


def test_the_public_name():
    assert icl_interp.intervene is intervene


# What each does -----------------------------------------------------------------------------------


def tail(model, point, interventions):
    """The output as a function of the stream at a hook point."""

    def output(stream):
        with (
            intervene(model, *interventions),
            model.hooks(fwd_hooks=[(point, lambda t, hook: stream)]),
        ):
            return model(tokens_for(model))

    return output


def check_affine(output, shape):
    """f(a + t (b - a)) = f(a) + t (f(b) - f(a)), also far outside the segment."""
    a, b = (torch.randn(shape, generator=generator(0, name)).double() for name in "ab")
    for t in (-3.0, 0.5, 40.0):
        assert_close(
            output(a + t * (b - a)), output(a) + t * (output(b) - output(a)), rtol=1e-9, atol=1e-9
        )


def test_frozen_final_norm_makes_the_read_out_affine():
    model, point, shape = make(), "blocks.1.hook_resid_post", (24, N_TOKENS, 12)
    check_affine(tail(model, point, [freeze(model, "ln_final")]), shape)
    must_fail(check_affine, tail(model, point, []), shape)
    must_fail(check_affine, tail(model, point, [freeze(model, "blocks.1.ln2")]), shape)


@pytest.mark.parametrize("name", ["pre", "post"])
def test_frozen_norms_and_patterns_make_attention_affine(name):
    model = make(name, attn_only=True)
    shape, point = (24, N_TOKENS, 12), "blocks.0.hook_resid_pre"
    check_affine(tail(model, point, [freeze(model), SwapPattern("uniform")]), shape)
    must_fail(check_affine, tail(model, point, [SwapPattern("uniform")]), shape)
    must_fail(check_affine, tail(model, point, [freeze(model)]), shape)
    must_fail(
        check_affine,
        tail(model, point, [freeze(model, "blocks.0.ln1"), SwapPattern("uniform")]),
        shape,
    )


def test_frozen_scales_are_means_over_prompts_by_position():
    model = make()
    _, cache = model.run_with_cache(tokens_for(model, OTHERS))
    frozen = freeze(model)
    assert list(frozen.scales) == list(model.norms)
    for name, scale in frozen.scales.items():
        assert_close(scale, cache[f"{name}.hook_scale"].mean(0))
        assert_close(frozen.at_query().scales[name], scale[-1:])
    assert list(frozen.only("ln_final").scales) == ["ln_final"]


def check_uniform(model, heads):
    """Against a model whose scores are zero by its weights: no query, so no preference."""
    with intervene(model, SwapPattern("uniform", heads)):
        swapped = model(tokens_for(model))
    for layer, head in [(i, h) for i in range(2) for h in range(3)] if heads is None else heads:
        model.blocks[layer].attn.W_Q[head] = 0
        model.blocks[layer].attn.b_Q[head] = 0
    assert_close(swapped, model(tokens_for(model)), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["pre", "bidirectional"])
@pytest.mark.parametrize("heads", [None, SOME])
def test_uniform_pattern_is_that_of_equal_scores(name, heads):
    check_uniform(make(name), heads)


def test_uniform_pattern_mutants():
    # Linear scores of zero weigh nothing, which is not uniform.
    must_fail(check_uniform, make("linear"), None)


def check_hardmax(model, control):
    with intervene(model, SwapPattern("hardmax")):
        swapped = model(tokens_for(model))
    control.load_state_dict(model.state_dict())
    assert_close(swapped, control(tokens_for(control)), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("change", [{}, {"attention_dir": "bidirectional"}])
def test_hardmax_pattern_is_that_of_a_hardmax_model(change):
    check_hardmax(make(**change), make("hardmax", **change))
    must_fail(check_hardmax, make(**change), make(**change))


def test_swapped_patterns_never_look_at_hidden_keys():
    """Linear weights are often all negative: a hidden key's 0 is then the largest."""
    model = make("linear")
    for to in ("hardmax", "uniform"):
        with intervene(model, SwapPattern(to)):
            _, cache = model.run_with_cache(tokens_for(model))
        for layer in range(2):
            pattern = cache[f"blocks.{layer}.attn.hook_pattern"]
            assert not pattern.triu(1).any()
            assert_close(pattern.sum(-1), torch.ones_like(pattern[..., 0]))


def check_limit(value, to, tolerance=1e-6):
    model = make()
    with intervene(model, SwapPattern(to)):
        expected = model(tokens_for(model))
    with intervene(model, Temperature(value)):
        assert_close(model(tokens_for(model)), expected, rtol=tolerance, atol=tolerance)


def test_temperature_runs_from_hardmax_to_uniform():
    check_limit(1e-8, "hardmax")
    check_limit(1e9, "uniform")
    must_fail(check_limit, 1e9, "hardmax")
    must_fail(check_limit, 1.0, "uniform")


def test_temperature_of_one_and_of_a_hardmax_change_nothing():
    for name, value in (("pre", 1.0), ("hardmax", 7.0)):
        model = make(name)
        before = model(tokens_for(model))
        with intervene(model, Temperature(value)):
            assert torch.equal(model(tokens_for(model)), before)


def check_temperature_scales_queries(value, temperature=2.0):
    """Dividing scores by T is dividing queries by T."""
    model = make()
    with intervene(model, Temperature(temperature, SOME)):
        flattened = model(tokens_for(model))
    for layer, head in SOME:
        model.blocks[layer].attn.W_Q[head] /= value
        model.blocks[layer].attn.b_Q[head] /= value
    assert_close(flattened, model(tokens_for(model)), rtol=1e-9, atol=1e-9)


def test_temperature_divides_the_scores():
    check_temperature_scales_queries(2.0)
    must_fail(check_temperature_scales_queries, 1.9)
    check_temperature_scales_queries(-1.0, -1.0)  # signs turned, and hidden keys stay hidden
    must_fail(check_temperature_scales_queries, 1.0, -1.0)


def check_zero(ablated, silenced):
    model = make()
    with intervene(model, AblateHeads.zero(*ablated)):
        without = model(tokens_for(model))
    for layer, head in silenced:
        model.blocks[layer].attn.W_O[head] = 0
    assert_close(without, model(tokens_for(model)), rtol=1e-12, atol=1e-12)


def test_zero_ablation_is_an_output_matrix_of_zero():
    check_zero(SOME, SOME)
    must_fail(check_zero, SOME, SOME[:2])


def check_mean(ablated):
    """Against the mean written into the residual stream by hand, with the head silent."""
    model, (layer, head) = make(), (1, 2)
    _, reference = model.run_with_cache(tokens_for(model, OTHERS))
    written = reference[f"blocks.{layer}.attn.hook_result"][:, :, head].mean(0)
    with intervene(model, ablated(model)):
        without = model(tokens_for(model))
    model.blocks[layer].attn.W_O[head] = 0
    added = [(f"blocks.{layer}.hook_attn_out", lambda t, hook: t + written)]
    assert_close(
        without, model.run_with_hooks(tokens_for(model), fwd_hooks=added), rtol=1e-9, atol=1e-9
    )


def test_mean_ablation_writes_the_mean():
    check_mean(lambda model: ablate_mean(model, (1, 2)))
    check_mean(lambda model: ablate_mean(model, (1, 0)).only((1, 2)))
    must_fail(check_mean, lambda model: AblateHeads.zero((1, 2)))


def test_inserted_norm_gives_unit_variance():
    model, point = make("no norm"), "blocks.1.hook_resid_post"
    with intervene(model, InsertNorm(point)):
        _, cache = model.run_with_cache(tokens_for(model))
    stream = cache[point]
    assert_close(stream.mean(-1), torch.zeros_like(stream[..., 0]), atol=1e-9, rtol=0)
    assert_close(stream.std(-1, correction=0), torch.ones_like(stream[..., 0]), atol=1e-4, rtol=0)


# With probes, and with what is wrong --------------------------------------------------------------


def test_a_probe_beside_an_intervention_changes_nothing():
    model, stream = make(), ResidualStream()
    tokens = tokens_for(model)
    with ExitStack() as stack:
        stack.enter_context(intervene(model, Temperature(3.0)))
        alone = model(tokens)
        stack.enter_context(observe(model, stream, positions={"query": [12]}))
        assert torch.equal(model(tokens), alone)


def test_interventions_fit_models_of_any_precision():
    model = make()
    frozen, ablated = freeze(model), ablate_mean(model, *SOME)
    with intervene(model.float(), frozen, ablated):
        assert model(tokens_for(model)).dtype == torch.float32


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda model: Temperature(0.0), "temperature must be finite and not 0, but got 0.0"),
        (lambda model: Temperature(math.inf), "temperature must be finite and not 0, but got inf"),
        (lambda model: Temperature(math.nan), "temperature must be finite and not 0, but got nan"),
        (lambda model: freeze(model, "blocks.2.ln1"), r"unknown norm 'blocks.2.ln1': did you mean"),
        (
            lambda model: freeze(model, "ln_final").only("blocks.0.ln1"),
            r"unknown measured norm 'blocks.0.ln1'",
        ),
        (lambda model: freeze(make("no norm")), "no normalisation to freeze"),
        (
            lambda model: ablate_mean(model, (0, 0)).only((1, 0)),
            "unknown measured layer 1: .*known: 0",
        ),
        (
            lambda model: AblateHeads.zero((0, 3)),
            r"no head \(0, 3\): the model has 2 layers of 3 heads",
        ),
        (lambda model: SwapPattern("uniform", ((2, 0),)), r"no head \(2, 0\)"),
        (lambda model: Temperature(2.0, ((-1, 0),)), r"no head \(-1, 0\)"),
        (
            lambda model: InsertNorm("blocks.0.hook_resid_mit"),
            r"did you mean 'blocks.0.hook_resid_mid'",
        ),
        (
            lambda model: At((N_TOKENS,), Temperature(2.0)),
            r"positions \(13,\) are not all within the 13 tokens",
        ),
        (
            lambda model: FreezeNorms.measure(model, tokens_for(model, OTHERS.first(4))),
            "reference covers 7 positions, but there are 13 tokens",
        ),
        (
            lambda model: MeanOutputs.measure(
                model, tokens_for(model, OTHERS.first(4)), sublayers(model)
            ),
            "reference covers 7 positions, but there are 13 tokens",
        ),
        (
            lambda model: PutPatterns.measure(model, tokens_for(model, OTHERS.first(4))),
            (
                r"patterns of shape \(10, 3, 7, 7\) .* cannot replace those of shape .*as many "
                r"prompts of the same length"
            ),
        ),
        (lambda model: PutPatterns.measure(model, tokens_for(model), [2]), r"no head \(2, 0\)"),
    ],
)
def test_errors(build, message):
    model = make()
    with pytest.raises(InputError, match=message):  # noqa: PT012
        built = build(model)
        with intervene(model, built):
            model(tokens_for(model))
    assert not any(listened(module) for module in model.modules())


def test_unknown_patterns_are_refused():
    # Past the run-time type checker of the tests, which would speak first.
    swap = object.__new__(SwapPattern)
    object.__setattr__(swap, "to", "onehot")
    with pytest.raises(InputError, match=r"unknown pattern 'onehot': .*known: hardmax, uniform"):
        inspect.unwrap(SwapPattern.__post_init__)(swap)


def test_models_without_attention_have_no_heads():
    model = make("mlp only")
    for intervention in (SwapPattern("uniform"), Temperature(2.0), AblateHeads.zero((0, 0))):
        with pytest.raises(InputError, match="no attention heads"), intervene(model, intervention):
            pass


def test_there_are_two_kinds_of_sublayers():
    assert sublayers(make("attention only"), "mlp") == []
    with pytest.raises(
        InputError,
        match=r"unknown kind of sublayer 'atn': did you mean 'attn'\? \(known: attn, mlp\)",
    ):
        sublayers(make(), "atn")
