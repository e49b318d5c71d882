"""The softmax unit: its formula, hooks, `HookedTransformer`, and that only its weights learn."""

import math
from dataclasses import replace

import numpy as np
import pytest
import tiny_runs
import torch
from helpers import must_fail
from small_models import make
from torch.testing import assert_close

from icl_interp.checkpoints.store import load
from icl_interp.errors import InputError
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.single_layers import LinearSelfAttention
from icl_interp.models.softmax_unit import SoftmaxAttention, read_softmax_unit
from icl_interp.models.tokens import Stacked
from icl_interp.models.transformer import HookedTransformer
from icl_interp.prompts import as_numbers
from icl_interp.provenance import encode, generator
from icl_interp.tasks import RidgeFunction, Sphere
from icl_interp.training.trainer import train

TASK = RidgeFunction(inputs=Sphere(3), link="relu", noise_std=0.3, n_points=8)
PROMPTS = TASK.sample(20, generator(0, "test/softmax unit"), dtype=torch.float64)
TOKENS = Stacked().encode(PROMPTS)
HOOKS = ("resid_pre", "q", "k", "v", "attn_scores", "pattern", "attn_out", "resid_post")
PLAIN = {
    "n_layers": 1,
    "d_model": 4,
    "d_head": 4,
    "d_in": 4,
    "n_ctx": 12,
    "attn_only": True,
    "normalization_type": None,
    "positional_embedding_type": "none",
    "use_attn_scale": False,
    "attention_dir": "bidirectional",
    "keys": "labelled",
    "init_std": 0.7,
}


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed, "test/softmax unit"), dtype=torch.float64)


def unit():
    return SoftmaxAttention(*(normal(4, 4, seed=seed) for seed in (1, 2, 3)))


def kernel(m=None):
    return SoftmaxAttention.from_product(3 * normal(3, 3) if m is None else m)


def fresh(**change):
    return HookedTransformer(HookedTransformerConfig(**{**PLAIN, **change}), seed=5).double().eval()


def queries(predictor, prompts=PROMPTS):
    """Predictions of the query, and that there are no others."""
    out = as_numbers(predictor.predict(prompts))
    assert out[:, :-1].isnan().all()
    return out[:, -1]


# ---- formulas ------------------------------------------------------------------------------------


def equation_1(w_k, w_q, w_v, tokens):
    """h of every token of one prompt, example by example."""
    examples = tokens[:-1]
    rows = []
    for z in tokens:
        weights = np.array([math.exp((w_k @ e) @ (w_q @ z)) for e in examples])
        rows.append(
            sum(a * (w_v @ e) for a, e in zip(weights / weights.sum(), examples, strict=True))
        )
    return np.array(rows)


def equation_2(m, xs, ys):
    """The prediction of one query, as the slides have it."""
    weights = [math.exp(x @ m @ xs[-1]) for x in xs[:-1]]
    return sum(y * w for y, w in zip(ys[:-1], weights, strict=True)) / sum(weights)


def follows_equation_1(model, w_k, w_q, w_v):
    for tokens, out in zip(TOKENS.numpy(), model(TOKENS).numpy(), strict=True):
        np.testing.assert_allclose(
            out, tokens + equation_1(w_k, w_q, w_v, tokens), rtol=1e-11, atol=1e-11
        )


def follows_equation_2(predictor, m):
    found = queries(predictor)
    points = zip(PROMPTS.xs.numpy(), as_numbers(PROMPTS.ys).numpy(), strict=True)
    np.testing.assert_allclose(
        found, [equation_2(m, xs, ys) for xs, ys in points], rtol=1e-11, atol=1e-12
    )


def test_the_unit_follows_equation_1():
    with torch.no_grad():
        weights = [getattr(unit(), f"W_{letter}").numpy() for letter in "KQV"]
        follows_equation_1(unit(), *weights)
        for i in range(3):
            turned = [w.T if i == j else w for j, w in enumerate(weights)]
            must_fail(follows_equation_1, unit(), *turned)


def test_the_kernel_follows_equation_2():
    m = (3 * normal(3, 3)).numpy()
    follows_equation_2(kernel(), m)
    must_fail(follows_equation_2, kernel(), m.T)
    must_fail(follows_equation_2, LinearSelfAttention.from_product(torch.tensor(m)), m)
    assert_close(kernel().product, torch.tensor(m))
    assert kernel().is_kernel
    assert not unit().is_kernel


def test_what_is_no_kernel():
    def changed(name, i, j):
        one = kernel()
        with torch.no_grad():
            getattr(one, name)[i, j] += 0.5
        return one

    assert not changed("W_K", 0, 3).is_kernel  # labels of keys reach the scores
    assert not changed("W_V", 3, 0).is_kernel
    assert changed("W_Q", 0, 3).is_kernel  # the label slot of the query holds 0
    assert changed("W_V", 0, 0).is_kernel  # nothing reads that


def constants_drop_out(predictor):
    """fhat(y + b) = fhat(y) + b, because weights add up to 1."""
    for b in (3.7, -1e3):
        shifted = replace(PROMPTS, ys=PROMPTS.ys + b)
        gap = queries(predictor, shifted) - b - queries(predictor)
        assert gap.abs().max() <= 1e-12 * max(1, abs(b))


class QueryIsAKey(SoftmaxAttention):
    """A mutant: the query's column counts too."""

    def forward(self, tokens):
        return super().forward(torch.cat([tokens, tokens[:, -1:]], 1))[:, :-1]


def test_constants_drop_out_exactly():
    constants_drop_out(kernel())
    must_fail(constants_drop_out, LinearSelfAttention.from_product(normal(3, 3)))
    must_fail(
        constants_drop_out,
        QueryIsAKey(*(w.detach() for w in (kernel().W_K, kernel().W_Q, kernel().W_V))),
    )


# ---- hooks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOOKS)
def test_every_hook_is_read_without_a_trace_and_edited_with_one(name):
    model = unit()

    def fail(value, hook):
        raise KeyError("in the middle")

    with torch.no_grad():
        plain = model(TOKENS)
        out, cache = model.run_with_cache(TOKENS)
        assert torch.equal(out, plain)
        assert set(cache) == {f"hook_{one}" for one in HOOKS}
        moved = model.run_with_hooks(
            TOKENS, fwd_hooks=[(f"hook_{name}", lambda value, hook: value * 1.5)]
        )
        assert (moved - plain).abs().max() > 1e-3
        before = TOKENS.clone()
        model.run_with_hooks(
            TOKENS, fwd_hooks=[(f"hook_{name}", lambda value, hook: value.mul_(1.5))]
        )
        assert torch.equal(before, TOKENS)
        with pytest.raises(KeyError, match="in the middle"):
            model.run_with_hooks(TOKENS, fwd_hooks=[(f"hook_{name}", fail)])
        assert torch.equal(model(TOKENS), plain)


def test_the_query_is_no_key():
    with torch.no_grad():
        _, cache = unit().run_with_cache(TOKENS)
    assert (cache["hook_attn_scores"][..., -1] == -math.inf).all()
    assert not cache["hook_pattern"][..., -1].any()
    assert_close(cache["hook_pattern"].sum(-1), torch.ones(20, 8).double())


# ---- inside a HookedTransformer ------------------------------------------------------------------


def is_inside(model, reference):
    """The same stream at every token and the same predictions, to 1e-12 of the largest number."""
    with torch.no_grad():
        out, cache = model.run_with_cache(TOKENS)
        whole, steps = reference.run_with_cache(TOKENS)
    pairs = [(out[:, -1, 0], queries(reference)), (cache["blocks.0.hook_resid_post"], whole)]
    pairs += [
        (cache[f"blocks.0.attn.hook_{name}"][:, 0], steps[f"hook_{name}"])
        for name in ("attn_scores", "pattern")
    ]
    pairs += [
        (cache[f"blocks.0.attn.hook_{name}"][:, :, 0], steps[f"hook_{name}"]) for name in "qkv"
    ]
    for got, want in pairs:
        assert got.shape == want.shape
        hidden = want == -math.inf
        assert torch.equal(got == -math.inf, hidden)
        assert (got - want).masked_fill(hidden, 0).abs().max() <= 1e-12 * want.masked_fill(
            hidden, 0
        ).abs().max()


@pytest.mark.parametrize("reference", [unit(), kernel()], ids=["equation 1", "equation 2"])
def test_the_transformer_contains_the_unit(reference):
    model = reference.to_transformer(n_ctx=8)
    is_inside(model, reference)
    for change in (
        {"keys": None, "unit": None},
        {"score_fn": "relu"},
        {"use_attn_scale": True, "unit": None},
    ):
        mutant = HookedTransformer(replace(model.cfg, **change)).double()
        mutant.load_state_dict(model.state_dict())
        must_fail(is_inside, mutant, reference)
    causal = HookedTransformer(replace(model.cfg, attention_dir="causal")).double()
    causal.load_state_dict(model.state_dict())
    with torch.no_grad():  # the query is the last token
        assert_close(causal(TOKENS, range(7, 8))[:, 0, 0], queries(reference), rtol=0, atol=1e-12)


def predicts_as(model, reference, tolerance=1e-12):
    with torch.no_grad():
        gap = model(TOKENS)[:, -1, 0] - queries(reference)
    assert gap.abs().max() <= tolerance


def test_a_fresh_unit_is_a_kernel_with_a_random_m():
    model = fresh(unit="M")
    again = read_softmax_unit(model)
    predicts_as(model, again)
    predicts_as(model, kernel(again.product))
    must_fail(predicts_as, model, kernel(again.product.T))
    assert (again.product.abs() > 1e-3).all()
    assert_close(model.W_Q[0, 0, :3, :3].T, again.product)
    other = HookedTransformer(model.cfg, seed=6).double()
    must_fail(predicts_as, other, again)
    predicts_as(fresh(unit="KQV"), read_softmax_unit(fresh(unit="KQV")))


def test_the_linear_counterpart_is_the_layer_of_linear_attention():
    """`LinearSelfAttention` with values y and scores of x has the query as a key of value 0."""
    model = fresh(unit="M", score_fn="linear", score_norm="visible")
    reference = LinearSelfAttention.from_product(model.W_Q[0, 0, :3, :3].detach().T)
    predicts_as(model, reference)
    must_fail(predicts_as, fresh(unit="M"), reference)
    must_fail(predicts_as, fresh(unit="M", score_fn="linear", score_norm=None), reference)


def wide(**change):
    """A softmax layer of any widths, with biases where they make no difference."""
    model = make(
        "attention only",
        **{"n_layers": 1, "n_heads": 1, "d_head": 6, "d_in": 4, "keys": "labelled", **change},
    )
    model = HookedTransformer(
        replace(model.cfg, normalization_type=None, attention_dir="bidirectional")
    ).double()
    with torch.no_grad():
        for i, parameter in enumerate(model.parameters()):
            parameter.copy_(
                0.6 * normal(*parameter.shape, seed=i) if parameter.ndim > 1 else 0 * parameter
            )
        out = model.unembed.W_U / model.unembed.W_U.norm()
        model.embed.W_E -= model.embed.W_E @ out @ out.T  # nothing is read off the query directly
        attention = model.blocks[0].attn
        for bias in (attention.b_Q, attention.b_V):
            bias.zero_()
        attention.b_K.copy_(normal(1, 6))
    return model


def test_positions_of_zeros_are_none():
    model = wide()
    cfg = replace(model.cfg, positional_embedding_type="standard")
    other = HookedTransformer(cfg).double()
    with torch.no_grad():
        other.load_state_dict({**other.state_dict(), **model.state_dict()})
        other.pos_embed.W_pos.zero_()
    predicts_as(other, read_softmax_unit(other, tolerance=1e-12), 1e-11)
    with torch.no_grad():
        other.pos_embed.W_pos[0, 0] = 1.0
    with pytest.raises(InputError, match="learned positions"):
        read_softmax_unit(other, tolerance=1e-12)


def test_a_layer_of_any_width_is_read_exactly():
    model = wide()
    again = read_softmax_unit(model, tolerance=1e-12)
    predicts_as(model, again, 1e-11)
    must_fail(
        predicts_as,
        model,
        SoftmaxAttention(again.W_Q.detach(), again.W_K.detach().T * 2, again.W_V.detach()),
    )
    for name in ("b_Q", "b_V", "b_O"):
        biased = wide()
        with torch.no_grad():
            getattr(biased.blocks[0].attn, name).add_(0.3)
        with pytest.raises(
            InputError,
            match=r"biases or weights past attention reach .* a softmax unit does not have",
        ):
            read_softmax_unit(biased, tolerance=1e-3)


# ---- learning ------------------------------------------------------------------------------------


def run(unit_name):
    # JSON has no tuples.
    model = {**PLAIN, "unit": unit_name, "n_ctx": 8}
    training = {**tiny_runs.data()["training"], "learning_rate": 0.1, "snapshots": [0, 6]}
    return {"model": model, "task": encode(TASK), "encoding": "stacked", "training": training}


LEARNED = {"M": {"W_Q"}, "KQV": {"W_K", "W_Q", "W_V"}}


def changed(before, after):
    return {name.split(".")[-1] for name in before if not torch.equal(before[name], after[name])}


@pytest.mark.parametrize("name", LEARNED)
def test_only_the_units_weights_learn_and_a_run_is_resumed_exactly(name, tmp_path):
    whole = train(run(name), tmp_path / "whole", progress=False)
    start = whole.snapshots()[0].state_dict()
    assert changed(start, whole.model.state_dict()) == LEARNED[name]
    if name == "M":
        w_q = whole.model.W_Q[0, 0]
        assert not w_q[-1].any()
        assert not w_q[:, -1].any()
        assert (w_q[:3, :3] != start["blocks.0.attn.W_Q"][0, :3, :3]).all()
        assert read_softmax_unit(whole.model).is_kernel
    tiny_runs.train_until(run(name), tmp_path / "killed", 7)
    train(run(name), tmp_path / "killed", progress=False)
    tiny_runs.check_same_run(tmp_path / "killed", tmp_path / "whole")
    whole.save(tmp_path / "copy")
    tiny_runs.check_same_model(load(tmp_path / "copy"), whole)


def test_a_transformer_learns_all_of_its_weights(tmp_path):
    data = run(None)
    trained = train(data, tmp_path / "run", progress=False)
    found = changed(trained.snapshots()[0].state_dict(), trained.model.state_dict())
    assert found >= {"W_E", "b_E", "W_K", "W_Q", "W_V", "W_O", "W_U", "b_U"}


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("call", "match"),
    [
        (
            lambda: SoftmaxAttention(torch.eye(3), torch.eye(4), torch.eye(3)),
            r"\(d \+ 1, d \+ 1\).*\(3, 3\), \(4, 4\), \(3, 3\)",
        ),
        (lambda: SoftmaxAttention(*[torch.eye(1)] * 3), r"but got \(1, 1\)"),
        (lambda: unit()(normal(2, 5, 3)), r"\(batch, token, d_in=4\).*but got \(2, 5, 3\)"),
        (lambda: unit()(normal(2, 1, 4)), r"but got \(2, 1, 4\)"),
        (
            lambda: read_softmax_unit(
                HookedTransformer(HookedTransformerConfig(n_layers=2, d_model=8, n_heads=2))
            ),
            "it has n_layers=2, an MLP, a norm, learned positions, n_heads=2, keys=None: expected",
        ),
        (lambda: fresh(unit="m"), "unknown unit 'm': .*known: KQV, M, None"),
        (
            lambda: fresh(unit="M", keys=None, d_model=6),
            (
                "unit='M' is one head .* it needs d_model=4, keys='labelled', but got d_model=6, "
                "keys=None"
            ),
        ),
        (
            lambda: fresh(unit="KQV", use_attn_scale=True),
            "it needs use_attn_scale=False, but got use_attn_scale=True",
        ),
        (
            lambda: fresh(unit="M", d_model=1, d_head=1, d_in=1),
            "it needs d_in of 2 at least, but got d_in=1",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(call, match):
    with pytest.raises(InputError, match=match) as refused:
        call()
    assert "\n" not in str(refused.value)
