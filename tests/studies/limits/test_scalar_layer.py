"""Appendix G.1 on models: what is read off the weights, against the model's own forward pass.

The forward pass and the closed forms share no code. Checks take the formula under test as their
argument, and the paper's constants must fail in them.
"""

import pytest
import torch
from helpers import mostly_slow, must_fail
from tables import row_of
from torch.testing import assert_close

from icl_interp.errors import InputError
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.studies.limits.constructions.layers import CONSTRUCTIONS
from icl_interp.studies.limits.measurements import scalar_layer
from icl_interp.theory import limits as theory

XS = torch.tensor([-100.0, -30, -1, -0.2, 0.3, 2, 30, 100]).double()
# Tokens a tenth or more apart, so that attention has decided at |x| = 100; mixed signs, a zero,
# both ends different.
CONTEXT = torch.tensor([0.9, -0.4, 0.3, -1.3, 0, 1.7]).double()
CONTEXTS = torch.stack([CONTEXT, -CONTEXT, 0.8 * CONTEXT.flip(0) + 0.2])
NORMS = {"no norm": {}, "post": {"normalization_type": "LN", "norm_position": "post"}}
NORMS["post, no gain"] = NORMS["post"] | {"normalization_type": "LNPre"}


def layer(alphas=(0.8, -0.6, 0.0, -1.5), seed=0, **change) -> HookedTransformer:
    """One layer as the paper has it, with these alphas and all else at random."""
    settings = {
        "n_layers": 1,
        "d_model": 6,
        "n_heads": len(alphas),
        "d_head": 2,
        "n_ctx": 7,
        "attn_only": True,
        "normalization_type": None,
        "positional_embedding_type": "none",
        "init_std": 0.6,
    }
    model = HookedTransformer(HookedTransformerConfig(**(settings | change)), seed=seed).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".ln" in name or name == "unembed.b_U":
                parameter += 0.4 * torch.randn(parameter.shape, generator=generator(seed, name))
        attn, embed = model.blocks[0].attn, model.embed.W_E[0]
        for head, alpha in enumerate(alphas):
            q, k = embed @ attn.W_Q[head], embed @ attn.W_K[head]
            # Move k to where q.k, with the scaling of scores, is alpha.
            k_wanted = k + q * (alpha / attn.scale - q @ k) / (q @ q)
            attn.W_K[head] += embed[:, None] * (k_wanted - k) / (embed @ embed)
    return model.eval()


def biased(seed=0, **change) -> HookedTransformer:
    """One layer with positions and biases everywhere."""
    model = layer(seed=seed, **({"positional_embedding_type": "standard"} | change))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".b_" in name:
                parameter += 0.5 * torch.randn(parameter.shape, generator=generator(seed, name))
    return model


# Read off the weights -----------------------------------------------------------------------------


def check_heads(read, **change):
    alphas = [0.8, -0.6, 0.0, -1.5]
    model = layer(alphas, **change)
    found = read(model)
    assert_close(
        found.alphas, torch.tensor(alphas, dtype=torch.float64), rtol=1e-12, atol=0
    )  # a 0 that is exactly 0
    # zeta is what a head writes for a lone token of value 1.
    _, cache = model.run_with_cache(torch.ones(1, 1, 1).double())
    assert_close(found.zetas, cache["blocks.0.attn.hook_result"][0, 0], rtol=1e-12, atol=1e-12)


def test_heads():
    def without_scale(model):
        alphas, zetas = scalar_layer.heads_of(model)
        return theory.Heads(alphas / model.blocks[0].attn.scale, zetas)

    check_heads(scalar_layer.heads_of)
    check_heads(scalar_layer.heads_of, use_attn_scale=False)
    check_heads(scalar_layer.heads_of, **NORMS["post"])
    must_fail(check_heads, without_scale)
    check_heads(without_scale, use_attn_scale=False)


def test_both_readings_agree():
    model = layer()
    alphas, zetas = scalar_layer.heads_of(model)
    plain = theory.ScalarLayer.of_heads(model.embed.W_E[0].detach(), alphas, zetas, n_tokens=7)
    read = scalar_layer.layer_of(model, 7)
    for name, value in vars(plain).items():
        assert_close(getattr(read, name), value, rtol=1e-12, atol=1e-12)


# Against the forward pass -------------------------------------------------------------------------


def check_agreement(model, xs=XS):
    """The decomposition everywhere to 1e-10; the far limit at |x| = 100, to 1e-8 or what LayerNorm has at 1 / x^2."""
    table = scalar_layer.agreement(model, CONTEXTS, xs)
    assert max(table["attention"] + table["output"]) < 1e-10
    second_order = 2e-2 if model.cfg.normalization_type else 1e-8
    assert (
        max(row["limit"] for row in table.to_dict("records") if abs(row["x"]) == 100) < second_order
    )
    assert max(row["pattern"] for row in table.to_dict("records") if abs(row["x"]) == 100) < 1e-10


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    "change",
    mostly_slow([{}, {"use_attn_scale": False}, {"attention_dir": "bidirectional"}, {"d_out": 3}]),
)
def test_the_papers_layer(norm, change):
    for seed in range(3):
        check_agreement(layer(seed=seed, **NORMS[norm], **change))


@pytest.mark.parametrize("name", [c.name for c in CONSTRUCTIONS[:4]])
def test_constructions(name):
    construction = next(c for c in CONSTRUCTIONS if c.name == name)
    for seed in range(3):
        check_agreement(construction.draw(seed).model)


@pytest.mark.parametrize("norm", NORMS)
def test_biases_and_positions(norm):
    for seed in range(5):
        model = biased(seed, **NORMS[norm])
        table = scalar_layer.agreement(
            model, CONTEXTS, torch.cat([XS, torch.tensor([-1e5, 1e5]).double()])
        )
        near = [row for row in table.to_dict("records") if abs(row["x"]) <= 100]
        assert max(row["attention"] for row in near) < 1e-10
        assert max(row["output"] for row in near) < 1e-10
        # Slopes of scores may be close here: only far enough out has attention decided.
        assert (
            max(row["pattern"] for row in table.to_dict("records") if abs(row["x"]) == 1e5) < 1e-10
        )
        assert max(row["limit"] for row in table.to_dict("records") if abs(row["x"]) == 1e5) < 1e-8


@pytest.mark.parametrize(
    "wrong", ["alphas", "kappas", "lambdas", "nus", "zetas", "omegas", "shift", "bias"]
)
def test_a_wrong_coefficient_is_noticed(wrong, monkeypatch):
    """Each coefficient, off by a thousandth."""
    read = theory.ScalarLayer.of_weights

    def off(*known, **scale):
        made = read(*known, **scale)
        return theory.ScalarLayer(**{**vars(made), wrong: 1.001 * getattr(made, wrong)})

    model = biased()
    table = scalar_layer.agreement(model, CONTEXTS, XS)
    monkeypatch.setattr(theory.ScalarLayer, "of_weights", off)
    broken = scalar_layer.agreement(model, CONTEXTS, XS)
    assert max(table["output"]) < 1e-10
    assert max(broken["output"]) > 1e-7


def check_rate(model, correction=True):
    """What is left of f behind LayerNorm falls like 1 / x^2, and like 1 / |x| without the correction."""
    for direction in (1, -1):
        far = scalar_layer.far_output(model, CONTEXT, direction)
        rest = []
        for x in (1e4, 1e5):
            tokens = torch.cat([CONTEXT, torch.tensor([direction * x]).double()])[None, :, None]
            out = model(tokens)[0, -1].detach()
            rest.append(float((out - far.constant - correction * far.correction / x).abs().max()))
        assert rest[0] / rest[1] == pytest.approx(100 if correction else 10, rel=0.05)


def test_the_boundary_value_and_its_correction():
    # No head of alpha = 0: q.k that cancels leaves its rounding times x^2 in the scores, which
    # shows from 1e4 on.
    for model in (layer((0.8, -0.6, -1.5), **NORMS["post"]), biased(**NORMS["post"])):
        check_rate(model)
        check_rate(model, correction=False)
        must_fail(check_rate, model, correction=0.9)


def test_a_read_in_that_centring_removes():
    """W constant over the width, heads that attend to the extreme token: LayerNorm leaves the context in full."""
    model = layer((-0.6, -1.5), **NORMS["post"])
    with torch.no_grad():
        model.embed.W_E[:] = 0.7
        signs = scalar_layer.heads_of(model).alphas.sign()
        model.blocks[0].attn.W_Q *= -signs[:, None, None]
        model.blocks[0].attn.b_O += torch.arange(
            6.0
        ).cos()  # or LayerNorm would leave the sign of the token only
    for direction in (1, -1):
        far, other = (scalar_layer.far_output(model, c, direction) for c in (CONTEXT, CONTEXTS[2]))
        tokens = torch.cat([CONTEXT, torch.tensor([direction * 1e3]).double()])[None, :, None]
        assert_close(far.constant, model(tokens)[0, -1].detach(), rtol=1e-10, atol=1e-10)
        assert (far.constant - other.constant).abs() > 1e-3


# The paper's sums ---------------------------------------------------------------------------------


def check_far_line(model, asymptote):
    """x W + Attn at |x| = 100, of the model and by a formula."""
    alphas, zetas = scalar_layer.heads_of(model)
    for x in (100.0, -100.0):
        _, cache = model.run_with_cache(
            torch.cat([CONTEXT, torch.tensor([x]).double()])[None, :, None]
        )
        slope, intercept = asymptote(
            model.embed.W_E[0].detach(), alphas, zetas, CONTEXT, int(x / abs(x))
        )
        assert (x * slope + intercept - cache["blocks.0.hook_resid_post"][0, -1]).abs().max() < 1e-8


def test_of_the_paper_only_the_first_sum_survives_the_forward_pass():
    for alphas in ((0.8, 1.5), (-0.6, -1.5), (0.0,), (0.8, -0.6, 0.0)):
        check_far_line(layer(alphas), theory.attention_asymptote)
    check_far_line(layer((0.8, 1.5)), theory.paper_attention_asymptote)
    for alphas in ((-0.6, -1.5), (0.0,), (0.8, -0.6, 0.0)):
        must_fail(check_far_line, layer(alphas), theory.paper_attention_asymptote)


def test_the_table_of_sums():
    table = scalar_layer.paper_sums(layer(), CONTEXT)
    assert table["heads"].tolist() == [1, 2, 1, 4, 4] * 2
    for row in table.to_dict("records"):
        if row["sum"] == "exponent of Var":
            assert row["ours"] < 1e-2
            assert row["printed"] == pytest.approx(1, abs=1e-2)
        else:
            assert row["ours"] < 1e-8
            assert (row["printed"] > 0.1) == (row["sum"] != "S1 (alpha > 0)")
            assert row["apart"] == pytest.approx(row["printed"], abs=1e-8)


def test_the_table_of_sums_is_of_the_model(monkeypatch):
    """With the printed sums in place of ours the column "ours" finds it."""
    monkeypatch.setattr(theory, "attention_sums", theory.paper_attention_sums)
    table = scalar_layer.paper_sums(layer(), CONTEXT)
    assert row_of(table, sum="S1 (alpha > 0)", x=100.0)["ours"] < 1e-8
    assert row_of(table, sum="S2 (alpha < 0)", x=100.0)["ours"] > 0.1
    assert row_of(table, sum="S3 (alpha = 0)", x=100.0)["ours"] > 0.1


def test_the_model_is_left_as_it_was():
    model = layer().float()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    scalar_layer.agreement(model, CONTEXTS, XS)
    scalar_layer.paper_sums(model, CONTEXT)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.embed.W_E.dtype == torch.float32
    assert model.embed.W_E.requires_grad


# Errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_layers": 2}, "n_layers=2: a later layer reads what an earlier one wrote"),
        ({"attn_only": False}, "has an MLP behind it"),
        ({"attn_only": False, "mlp_only": True}, "it has no attention"),
        ({"d_in": 2}, "d_in=2 numbers"),
        ({"score_fn": "hardmax"}, "score_fn is 'hardmax'"),
        ({"embed_bound": 2.0}, r"embed_bound=2\.0"),
        ({"normalization_type": "LN"}, "normalises before the layer .norm_position='pre'"),
        ({"normalization_type": "RMS", "norm_position": "post"}, "normalization_type is 'RMS'"),
        ({"normalization_type": "Tanh", "norm_position": "post"}, "normalization_type is 'Tanh'"),
    ],
)
def test_a_model_of_another_form_is_refused(change, message):
    settings = {
        "n_layers": 1,
        "d_model": 4,
        "n_ctx": 7,
        "attn_only": True,
        "normalization_type": None,
        "positional_embedding_type": "none",
    }
    model = HookedTransformer(HookedTransformerConfig(**(settings | change)))
    for call in (
        lambda: scalar_layer.layer_of(model, 7),
        lambda: scalar_layer.heads_of(model),
        lambda: scalar_layer.far_output(model, CONTEXT),
        lambda: scalar_layer.agreement(model, CONTEXTS, XS),
        lambda: scalar_layer.paper_sums(model, CONTEXT),
    ):
        with pytest.raises(InputError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_biases_and_positions_are_refused_where_the_paper_has_none():
    with pytest.raises(
        InputError, match=r"embed\.b_E, attn\.b_Q, .*pos_embed\.W_pos are not 0: use layer_of"
    ):
        scalar_layer.heads_of(biased())
    model = layer()
    with torch.no_grad():
        model.blocks[0].attn.b_K += 1
    with pytest.raises(InputError, match=r"attn\.b_K is not 0"):
        scalar_layer.paper_sums(model, CONTEXT)
    scalar_layer.layer_of(model, 7)


def test_prompts_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="n_ctx=7, but got 9"):
        scalar_layer.far_output(layer(), torch.zeros(8).double())
