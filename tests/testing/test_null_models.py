"""Ignorant models: what each says about prompts whose context changes, of every config that has one."""

import pytest
import torch
from architectures import ARCHITECTURES, model_of
from helpers import must_fail, one_in
from small_models import PROMPTS, TASK, encoding_of, make, tokens_for
from vector_tasks import LinearMap

from icl_interp.errors import InputError
from icl_interp.models.tokens import Interleaved, Stacked
from icl_interp.provenance import generator
from icl_interp.tasks import Normal
from icl_interp.testing import null_models
from icl_interp.testing.reparameterisations.base import differ, made, weights_of

WIDE = {"d_model": 16}  # the small models have no room for a copier with norms of its own
COPYING = [
    name
    for name, (kind, changes) in ARCHITECTURES.items()
    if "d_model" not in changes
    and null_models.no_copier(make(kind, **{**changes, **WIDE}).cfg) is None
]


def wide(name):
    kind, changes = ARCHITECTURES[name]
    return make(kind, **{**changes, **WIDE})


def copies(model, encoding, task, tolerance):
    """The prediction of the query is the last value of the prompt, whatever the query is."""
    prompts = task.sample(12, generator(0, "test"), dtype=torch.float64)
    at, _ = encoding.read_at(prompts.n_points, model.cfg.attention_dir)
    with torch.no_grad():
        out = model(encoding.encode(prompts), range(at[-1], at[-1] + 1))[:, 0]
    assert (out - prompts.ys[:, -2]).abs().max() <= tolerance


@pytest.mark.parametrize("name", COPYING)
def test_a_copier_says_the_last_value(name):
    model = wide(name)
    encoding, channel = encoding_of(model), 1 if model.cfg.d_in == 2 else 0
    task = TASK
    if model.cfg.d_out == 2:
        task = LinearMap(n_dims=1, outputs=2, weights=Normal(1), inputs=Normal(1), n_points=7)
        model, encoding, channel = make("pre", d_in=2, d_out=2, **WIDE), Interleaved(), 0
    copier = null_models.copier(model.cfg, channel)
    assert copier.cfg == model.cfg
    tolerance = 1e-12 if model.cfg.normalization_type is None else 1e-3
    copies(copier, encoding, task, tolerance)
    weights = weights_of(copier)
    weights["blocks.0.attn.W_Q"] = weights["blocks.0.attn.W_Q"].flip(
        -1
    )  # turned to another position
    must_fail(copies, made(weights, copier.cfg), encoding, task, tolerance)


def test_copiers_are_of_every_norm_and_pattern():
    configs = [wide(name).cfg for name in COPYING]
    assert {cfg.normalization_type for cfg in configs} == {None, "LN", "LNPre", "RMS"}
    assert {cfg.score_fn for cfg in configs} >= {"softmax", "hardmax", "entmax", "scaled_softmax"}
    assert {cfg.norm_position for cfg in configs} == {"pre", "post"}
    assert {cfg.attention_dir for cfg in configs} == {"causal", "bidirectional"}


def test_a_copier_is_sharp_in_prompts_of_the_usual_length():
    task = TASK.with_points(20)
    copies(null_models.copier(make("no norm", n_ctx=40, **WIDE).cfg), Interleaved(), task, 1e-12)
    copies(null_models.copier(make("pre", n_ctx=40, **WIDE).cfg), Interleaved(), task, 1e-3)


@pytest.mark.parametrize(
    ("name", "changes", "why"),
    [
        ("mlp only", {}, "no attention"),
        ("linear", WIDE, "do not add up to 1"),
        ("attention only", WIDE, "no vectors of positions"),
        ("pre", {**WIDE, "normalization_type": "Tanh"}, "Tanh norms"),
        ("pre", {**WIDE, "embed_bound": 2.0}, "is bounded"),
        ("pre", {"d_model": 9}, "its stream has 9 coordinates, of which 10 are needed"),
        ("pre", {**WIDE, "d_head": 1}, "its heads have 1 coordinates, of which 2 are needed"),
    ],
)
def test_where_no_copier_can_be(name, changes, why):
    with pytest.raises(InputError, match=why):
        null_models.copier(make(name, **changes).cfg)


def deaf(model):
    """Another context before the same query leaves the prediction."""
    tokens = tokens_for(model)
    other = torch.cat([tokens[:, :-1].flip(0), tokens[:, -1:]], 1)
    with torch.no_grad():
        assert torch.equal(model(tokens)[:, -1], model(other)[:, -1])


# Without attention, or where the norm of a single coordinate leaves nothing, a model hears nothing
# as it is.
DEAF = ("mlp only", "post, MLP only", "one coordinate")


@pytest.mark.parametrize("name", one_in(3, [name for name in ARCHITECTURES if name not in DEAF]))
def test_a_blind_model_hears_nothing_of_its_context(name):
    model = model_of(name)
    deaf(null_models.blind(model))
    must_fail(deaf, model)
    must_fail(deaf, null_models.blind(model, null_models.FAINT))
    tokens = tokens_for(model)
    with torch.no_grad():
        gap = null_models.blind(model, null_models.FAINT)(tokens) - null_models.blind(model)(tokens)
        assert 0 < gap.abs().max() < 1e-3 * model(tokens).abs().max()


def test_without_attention_nothing_is_to_blind():
    with pytest.raises(InputError, match="sees no context already"):
        null_models.blind(make("mlp only"))
    deaf(make("mlp only"))


def says(model, value):
    with torch.no_grad():
        assert torch.equal(
            model(1e3 * tokens_for(model)), torch.full((len(PROMPTS), 13, 1), value).double()
        )


def test_a_constant_model_says_its_number():
    model = make("pre")
    says(null_models.constant(model, 0.25), 0.25)
    must_fail(says, model, 0.25)
    must_fail(says, null_models.constant(model, 0.5), 0.25)


def test_an_untrained_model_is_its_seeds():
    cfg = make("post").cfg
    assert not differ(null_models.untrained(cfg, 1), null_models.untrained(cfg, 1))
    assert differ(null_models.untrained(cfg, 1), null_models.untrained(cfg, 2))
    assert next(null_models.untrained(cfg, 1).parameters()).dtype == torch.float64


def test_all_that_there_are():
    names = [name for name, _ in null_models.ignorant(make("pre"), TASK, Interleaved())]
    assert names == [
        "constant",
        "blind",
        "all but blind",
        "copier of the last value",
        *(f"untrained, seed {seed}" for seed in (1, 2, 3)),
    ]
    assert [name for name, _ in null_models.ignorant(make("mlp only"), TASK, Interleaved())] == [
        "constant",
        *(f"untrained, seed {seed}" for seed in (1, 2, 3)),
    ]
    stacked = dict(null_models.ignorant(make("bidirectional", **WIDE), TASK, Stacked()))
    copies(stacked["copier of the last value"], Stacked(), TASK, 1e-3)
