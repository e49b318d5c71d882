"""The linear self-attention unit: its formula, its hooks, and its `HookedTransformer`."""

from dataclasses import replace

import pytest
import torch
from helpers import must_fail
from torch.testing import assert_close

from icl_interp import evaluation, tasks
from icl_interp.errors import InputError
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.single_layers import LinearSelfAttention, read_layer
from icl_interp.models.tokens import Stacked
from icl_interp.models.transformer import HookedTransformer
from icl_interp.prompts import as_numbers
from icl_interp.provenance import generator
from icl_interp.theory import linear_attention as theory

TASK = tasks.LinearRegression(n_dims=3, covariance=(0.5, 1.0, 2.0), noise_std=0.3, n_points=8)
PROMPTS = TASK.sample(20, generator(0, "test/units"), dtype=torch.float64)
HOOKS = (
    "hook_resid_pre",
    "hook_v",
    "hook_attn_scores",
    "hook_pattern",
    "hook_attn_out",
    "hook_resid_post",
)
PLAIN = {
    "n_layers": 1,
    "d_model": 9,
    "n_heads": 2,
    "d_head": 5,
    "n_ctx": 12,
    "d_in": 4,
    "attn_only": True,
    "normalization_type": None,
    "positional_embedding_type": "none",
    "attention_dir": "bidirectional",
    "score_fn": "linear",
    "score_norm": "labelled",
}


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed, "test/units"), dtype=torch.float64)


def unit(d=3, seed=0):
    return LinearSelfAttention(normal(d + 1, d + 1, seed=seed), normal(d + 1, d + 1, seed=seed + 1))


def queries(prompts, predictor):
    """Predictions of the query, and that there are no others."""
    out = as_numbers(predictor.predict(prompts))
    assert out[:, :-1].isnan().all()
    return out[:, -1]


def from_theory(w_pv, w_kq, prompts):
    """Equation (3.6), prompt by prompt."""
    points = zip(prompts.xs, as_numbers(prompts.ys), strict=True)
    rows = [theory.embedding(xs[:-1], ys[:-1], xs[-1]) for xs, ys in points]
    return torch.stack([theory.prediction(w_pv, w_kq, e) for e in rows])


def test_the_unit_follows_its_formula():
    def check(model):
        tokens = Stacked().encode(PROMPTS)
        for e, out in zip(tokens, model(tokens), strict=True):
            e = e.T
            assert_close(out.T, e + w_pv @ e @ (e.T @ w_kq @ e) / 7, rtol=1e-12, atol=1e-12)
        assert_close(
            queries(PROMPTS, model), from_theory(w_pv, w_kq, PROMPTS), rtol=1e-12, atol=1e-12
        )

    with torch.no_grad():
        w_pv, w_kq = (w.detach() for w in (unit().W_PV, unit().W_KQ))
        check(unit())
        must_fail(check, LinearSelfAttention(w_pv.T, w_kq))
        must_fail(check, LinearSelfAttention(w_pv, w_kq.T))
        must_fail(check, LinearSelfAttention(w_pv, w_kq * 7 / 8))


def test_what_the_prediction_reads():
    """The last row of W_PV and all columns of W_KQ but the last get gradients, and nothing else."""
    model = unit()
    model(Stacked().encode(PROMPTS))[:, -1, -1].sum().backward()
    assert (model.W_PV.grad[:-1] == 0).all()
    assert (model.W_KQ.grad[:, -1] == 0).all()
    assert (model.W_PV.grad[-1] != 0).all()
    assert (model.W_KQ.grad[:, :-1] != 0).all()


@pytest.mark.parametrize("name", HOOKS)
def test_every_hook_is_read_without_a_trace_and_edited_with_one(name):
    model, tokens = unit(), Stacked().encode(PROMPTS)
    plain = model(tokens)
    out, cache = model.run_with_cache(tokens)
    assert torch.equal(out, plain)
    assert set(cache) == set(HOOKS)
    moved = model.run_with_hooks(tokens, fwd_hooks=[(name, lambda value, hook: value * 1.5)])
    assert (moved - plain).abs().max() > 1e-3
    assert torch.equal(model(tokens), plain)


def check_inside(model, reference):
    """The same predictions to 1e-10, in evaluation as in a forward pass."""
    tokens = Stacked().encode(PROMPTS)
    out = model(tokens)[:, -1, 0]
    assert_close(out, queries(PROMPTS, reference), rtol=0, atol=1e-10)
    assert_close(model(tokens, range(7, 8))[:, 0, 0], out, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("n_heads", "d_head"), [(1, None), (1, 6), (2, None), (4, 2), (3, 2)])
def test_the_transformer_contains_the_unit(n_heads, d_head):
    reference = unit()
    with torch.no_grad():
        model = reference.to_transformer(n_ctx=8, n_heads=n_heads, d_head=d_head)
        check_inside(model, reference)
        assert_close(
            read_layer(model).product, theory.invariant_product(reference.W_PV, reference.W_KQ)
        )
        assert read_layer(model).outside == 0
        for change in ({"score_norm": "visible"}, {"use_attn_scale": True}):
            mutant = HookedTransformer(replace(model.cfg, **change)).double()
            mutant.load_state_dict(model.state_dict())
            must_fail(check_inside, mutant, reference)
        # The query is the last token: what tokens see of later ones makes no difference to it.
        causal = HookedTransformer(replace(model.cfg, attention_dir="causal")).double()
        causal.load_state_dict(model.state_dict())
        check_inside(causal, reference)


def test_with_one_head_the_stream_is_all_of_the_layer():
    reference, tokens = unit(), Stacked().encode(PROMPTS)
    with torch.no_grad():
        _, cache = reference.to_transformer(n_ctx=8).run_with_cache(tokens)
        whole, steps = reference.run_with_cache(tokens)
    assert_close(cache["blocks.0.hook_resid_post"], whole, rtol=0, atol=1e-10)
    for name in ("hook_attn_scores", "hook_pattern"):
        assert_close(cache[f"blocks.0.attn.{name}"][:, 0], steps[name], rtol=0, atol=1e-10)
    assert_close(cache["blocks.0.attn.hook_v"][:, :, 0], steps["hook_v"], rtol=0, atol=1e-10)


def predicted_by(layer, prompts):
    """The formula of `LayerForm`, written out."""
    tokens = Stacked().encode(prompts)
    tokens = torch.cat([tokens, torch.ones_like(tokens[..., :1])], -1)
    gram, last = tokens.transpose(1, 2) @ tokens / (tokens.shape[1] - 1), tokens[:, -1]
    return last @ layer.direct + torch.einsum(
        "hi,bij,hjk,bk->b", layer.values, gram, layer.forms, last
    )


def check_layer(model, layer):
    """The form holds, also where biases count n + 1 keys against a division by n."""
    with torch.no_grad():
        for prompts in (PROMPTS, PROMPTS.first(3)):
            out = model(Stacked().encode(prompts))[:, -1, 0]
            assert_close(predicted_by(layer, prompts), out, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "change", [{}, {"attention_dir": "causal"}, {"use_attn_scale": False}, {"n_heads": 1}], ids=str
)
def test_a_layer_of_any_weights_and_biases_is_read_exactly(change):
    model = HookedTransformer(HookedTransformerConfig(**{**PLAIN, **change})).double()
    with torch.no_grad():
        for i, parameter in enumerate(model.parameters()):
            parameter.copy_(0.4 * normal(*parameter.shape, seed=i))
    layer = read_layer(model)
    check_layer(model, layer)
    assert layer.outside > 0.1
    for mutant in (
        layer._replace(values=layer.values * torch.tensor([1, 1, 1, 1, 0])),
        layer._replace(forms=layer.forms.transpose(1, 2)),
        layer._replace(direct=0 * layer.direct),
    ):
        must_fail(check_layer, model, mutant)
    # With the labels' sign turned, the odd part of the prediction, biases apart, is h^T P x_q.
    bare = layer._replace(
        direct=0 * layer.direct, values=layer.values.clone(), forms=layer.forms.clone()
    )
    bare.values[:, -1], bare.forms[:, -1], bare.forms[:, :, -1] = 0, 0, 0
    h = (PROMPTS.xs[:, :-1] * PROMPTS.ys[:, :-1]).mean(1)
    odd = (predicted_by(bare, PROMPTS) - predicted_by(bare, replace(PROMPTS, ys=-PROMPTS.ys))) / 2
    assert_close(
        odd,
        torch.einsum("bi,ij,bj->b", h, layer.product, PROMPTS.xs[:, -1]),
        rtol=1e-10,
        atol=1e-10,
    )


def test_positions_that_are_all_the_same_are_a_bias():
    """One vector at all positions stands in the form like `b_E`; if one differs there is none."""
    model = HookedTransformer(
        HookedTransformerConfig(**{**PLAIN, "positional_embedding_type": "standard"})
    ).double()
    with torch.no_grad():
        for i, parameter in enumerate(model.parameters()):
            parameter.copy_(0.4 * normal(*parameter.shape, seed=i))
        model.pos_embed.W_pos.copy_(model.pos_embed.W_pos[:1].expand_as(model.pos_embed.W_pos))
    layer = read_layer(model)
    check_layer(model, layer)
    plain = HookedTransformer(HookedTransformerConfig(**PLAIN)).double()
    weights = {name: model.state_dict()[name] for name in plain.state_dict()}
    plain.load_state_dict(weights)
    must_fail(check_layer, model, read_layer(plain))  # without that vector
    plain.load_state_dict({**weights, "embed.b_E": model.read_in_bias})
    assert_close(read_layer(plain).forms, layer.forms)
    with torch.no_grad():
        model.pos_embed.W_pos[-1, 0] += 1e-9
    with pytest.raises(InputError, match="it has learned positions"):
        read_layer(model)


def test_the_trained_unit_has_the_risk_of_the_theory():
    """Theorem 4.2 on the unit's own predictions, for one task; 3,000 prompts, fixed beforehand."""
    a = (1.0, -0.5, 2.0)
    task = replace(TASK, weights=a, n_points=31)
    product = theory.landscape(TASK.covariance_matrix, 7).product
    errors = evaluation.function_errors(
        {"unit": LinearSelfAttention.from_product(product, scale=0.7)},
        task,
        n_functions=3000,
        n_contexts=1,
        seed=0,
        last=True,
    )["unit"]

    def check(expected):
        assert abs(errors.mean() - float(expected)) < 4 * errors.std() / len(errors) ** 0.5

    values = torch.tensor(a)
    check(theory.risk(task.covariance_matrix, 7, 30, values, 0.3**2))
    must_fail(check, theory.paper_risk(task.covariance_matrix, 7, 30, values, 0.3**2))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (
            lambda: LinearSelfAttention(torch.eye(3), torch.eye(4)),
            r"\(d \+ 1, d \+ 1\).*\(3, 3\) and \(4, 4\)",
        ),
        (lambda: LinearSelfAttention(torch.eye(1), torch.eye(1)), r"but got \(1, 1\)"),
        (lambda: unit()(normal(2, 5, 3)), r"\(batch, token, d_in=4\).*but got \(2, 5, 3\)"),
        (lambda: unit()(normal(2, 1, 4)), r"but got \(2, 1, 4\)"),
        (
            lambda: unit().to_transformer(8, n_heads=2, d_head=1),
            r"at least d \+ 1 = 4 to hold W_KQ, but got 2 \* 1",
        ),
        (
            lambda: read_layer(
                HookedTransformer(HookedTransformerConfig(n_layers=2, d_model=8, n_ctx=8))
            ),
            (
                "it has n_layers=2, an MLP, score_fn='softmax', a norm, learned positions, "
                "score_norm=None"
            ),
        ),
    ],
)
@pytest.mark.usefixtures("as_users_run_it")
def test_what_makes_no_sense_is_refused(call, match):
    with pytest.raises(InputError, match=match) as refused:
        call()
    assert "\n" not in str(refused.value)
