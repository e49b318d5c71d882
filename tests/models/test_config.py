"""Bad configs and inputs are refused by name; encodings never show the answer."""

from dataclasses import fields

import pytest
import torch
from helpers import must_fail
from small_models import make

from icl_interp import tasks
from icl_interp.errors import InputError
from icl_interp.models import tokens as encodings
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.tokens import Interleaved, Stacked
from icl_interp.prompts import Prompts
from icl_interp.provenance import build, generator

SMALL = {"n_layers": 1, "d_model": 8, "n_heads": 2}


def configure(**change):
    """A config as a user makes it, without the run-time check of annotations that tests have."""
    config = object.__new__(HookedTransformerConfig)
    for field in fields(HookedTransformerConfig):
        object.__setattr__(config, field.name, {**SMALL, **change}.get(field.name, field.default))
    config.__post_init__()
    return config


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"n_layers": 0}, "n_layers must be a whole number from 1 up, but got 0"),
        (
            {"n_heads": 3},
            "d_model=8 is not a multiple of n_heads=3: choose another number, or give",
        ),
        ({"d_mlp": -1}, "d_mlp must be a whole number from 1 up, but got -1"),
        ({"act_fn": "gelu_fast"}, r"unknown act_fn 'gelu_fast': .*\(known: gelu, gelu_new, relu\)"),
        ({"act_fn": "rel"}, "did you mean 'relu'"),
        (
            {"normalization_type": "BN"},
            r"unknown normalization_type 'BN'.*known: LN, LNPre, None, RMS",
        ),
        (
            {"norm_position": "sandwich"},
            "unknown norm_position 'sandwich'.*known: both, output, post, pre",
        ),
        (
            {"positional_embedding_type": "sinusoidal"},
            "unknown positional_embedding_type 'sinusoidal'.*known: alibi, none, relative",
        ),
        (
            {"attention_dir": "backwards"},
            "unknown attention_dir 'backwards'.*known: bidirectional, causal",
        ),
        ({"score_fn": "softmx"}, "unknown score_fn 'softmx': did you mean 'softmax'"),
        (
            {"score_fn": "linear", "score_norm": "all"},
            "unknown score_norm 'all'.*known: None, labelled, visible",
        ),
        ({"attn_only": True, "mlp_only": True}, "attn_only and mlp_only exclude each other"),
        (
            {"score_norm": "visible"},
            "score_norm='visible' is for score_fn='linear'; softmax weights add up to 1",
        ),
        (
            {"norm_position": "post", "normalization_type": None},
            "norm_position='post' needs a normalization_type",
        ),
        (
            {"norm_position": "output", "normalization_type": None},
            "norm_position='output' needs a normalization_type",
        ),
        ({"norm_position": "both"}, "norm_position='both' is for blocks of attention alone"),
        (
            {"norm_position": "both", "mlp_only": True},
            "norm_position='both' is for blocks of attention alone.*attn_only=True",
        ),
        (
            {"final_norm": True, "normalization_type": None},
            "final_norm=True needs a normalization_type",
        ),
        ({"final_norm": "yes"}, "final_norm must be true, false or null, but got 'yes'"),
        ({"residual_scale": 0.0}, "residual_scale=0 would add nothing"),
        ({"residual_scale": -0.1}, "residual_scale must be a number from 0 up"),
        (
            {"residual_scale": 0.1, "norm_position": "output"},
            "residual_scale=0.1 has no meaning with norm_position='output'.*its own gain",
        ),
        ({"no_bias": "q"}, "unknown no_bias 'q'.*known: None, attention, linear, qkv"),
        (
            {"read_in": "token", "d_in": 3},
            r"read_in='token' .* needs d_model=3 \(d_in\), but got d_model=8",
        ),
        ({"eps": -1.0}, "eps must be a number from 0 up"),
        ({"init_std": float("nan")}, "init_std must be a number from 0 up"),
        ({"eps": "1e-5"}, "eps must be a number from 0 up .1.0e-5 in YAML., but got '1e-5'"),
        ({"attn_only": "no"}, "attn_only must be true or false, but got 'no'"),
        ({"n_layers": 2.0}, "n_layers must be a whole number from 1 up, but got 2.0"),
        ({"n_heads": True}, "n_heads must be a whole number from 1 up, but got True"),
    ],
)
def test_bad_configurations_are_refused_by_name(change, match):
    with pytest.raises(InputError, match=match):
        configure(**change)


def test_what_is_not_given_follows_from_the_rest():
    config = configure()
    assert (config.d_head, config.d_mlp, config.n_params) == (4, 32, 4 * 8 * 8 + 2 * 8 * 32)
    assert configure(n_heads=3, d_head=5).d_head == 5
    assert configure(attn_only=True).n_params == 4 * 8 * 8
    assert configure(mlp_only=True).n_params == 2 * 8 * 32
    for values, match in (
        ({"n_layers": 1}, "lacks the key 'd_model'"),
        ({"d_modle": 8}, "did you mean 'd_model'"),
    ):
        with pytest.raises(InputError, match=match):
            build(HookedTransformerConfig, values, "config.json")


@pytest.mark.parametrize(
    ("shape", "match"),
    [
        ((2, 17, 1), "n_ctx=16 tokens is too short for a prompt of 17"),
        ((2, 5, 3), r"tokens must have shape \(batch, token, d_in=1\), but got \(2, 5, 3\)"),
    ],
)
def test_tokens_that_do_not_fit_are_refused(shape, match):
    model, tokens = make(), torch.zeros(shape).double()
    for act in (model, model.remember, lambda x: model.run_with_cache(x)):
        with pytest.raises(InputError, match=match):
            act(tokens)
    make(n_ctx=20)(tokens[..., :1])


def test_fresh_weights_depend_on_the_seed_alone():
    torch.manual_seed(0)
    a, state = make(), torch.get_rng_state()
    torch.manual_seed(1)
    b = make()
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    torch.manual_seed(0)
    assert torch.equal(torch.get_rng_state(), state), (
        "making a model drew from the global generator"
    )


# Encodings, by hand.

PROMPTS = Prompts(
    xs=torch.tensor([[[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]]]),
    ys=torch.tensor([[-1.0, -2.0, -3.0]]),
    parameters=torch.zeros(1, 0),
    function=torch.zeros(1, dtype=torch.long),
)


def test_interleaved_by_hand():
    encoding = Interleaved()
    want = [[1.0, 10.0], [-1.0, 0.0], [2.0, 20.0], [-2.0, 0.0], [3.0, 30.0]]
    assert encoding.encode(PROMPTS).tolist() == [want]
    assert encoding.encode_queries(PROMPTS.xs).tolist() == PROMPTS.xs.tolist()
    assert encoding.kinds(3) == ("x", "y", "x", "y", "x")
    assert (encoding.d_in(2), encoding.n_tokens(3)) == (2, 5)
    assert [encoding.n_points(n) for n in (5, 6, 7)] == [3, 3, 4]
    assert encoding.read_at(3, "causal") == (range(0, 5, 2), range(3))
    tokens, points = encoding.read_at(3, "bidirectional")
    assert (list(tokens), list(points)) == ([4], [2])


def test_stacked_by_hand():
    encoding = Stacked()
    assert encoding.encode(PROMPTS).tolist() == [
        [[1.0, 10.0, -1.0], [2.0, 20.0, -2.0], [3.0, 30.0, 0.0]]
    ]
    assert encoding.encode_queries(PROMPTS.xs[:, 2:]).tolist() == [[[3.0, 30.0, 0.0]]]
    assert encoding.kinds(3) == ("xy", "xy", "xy")
    assert (encoding.d_in(2), encoding.n_tokens(3), encoding.n_points(3)) == (3, 3, 3)
    for direction in ("causal", "bidirectional"):
        tokens, points = encoding.read_at(3, direction)
        assert (list(tokens), list(points)) == ([2], [2])


def test_encodings_have_names_and_a_bare_model_tells_its_own():
    for name in ("interleaved", "stacked"):
        encoding = encodings.named(name)
        assert encodings.name_of(encoding) == name
        assert encodings.infer(encoding.d_in(4), dim=4) == encoding
        assert encoding.n_points(encoding.n_tokens(6)) == 6
    with pytest.raises(
        InputError, match="unknown encoding 'interleave': did you mean 'interleaved'"
    ):
        encodings.named("interleave")
    with pytest.raises(
        InputError, match=r"d_in=7 fits neither interleaved \(d_in=4\) nor stacked \(d_in=5\)"
    ):
        encodings.infer(7, dim=4)


class Leaky(Stacked):
    """A mutant that shows the query its label."""

    def encode(self, prompts):
        return torch.cat([prompts.xs, prompts.ys], -1)


TASK = tasks.Polynomial(
    degrees=(1,), inputs=tasks.Uniform(-1, 1), coefficients=tasks.Normal(1), n_points=6
)
DRAWN = TASK.sample(4, generator(0, "test/config")).double()


def with_label(prompts, k, value):
    ys = prompts.ys.clone()
    ys[:, k] = value
    return Prompts(prompts.xs, ys, prompts.parameters, prompts.function)


def never_shows_the_answer(encoding, direction):
    """Neither the tokens nor attention carry a label to the prediction of its own point."""
    model = make(d_in=encoding.d_in(1), attention_dir=direction)
    read, points = encoding.read_at(6, direction)
    with torch.no_grad():
        before = model(encoding.encode(DRAWN), read)
        for column, k in enumerate(points):
            after = model(encoding.encode(with_label(DRAWN, k, 9.0)), read)
            same = torch.allclose(
                after[:, : column + 1], before[:, : column + 1], rtol=0, atol=1e-6
            )
            assert same, f"prediction {k} saw its own label"
            if k:  # while an earlier label does reach it
                after = model(encoding.encode(with_label(DRAWN, k - 1, 9.0)), read)
                assert not torch.allclose(after[:, column], before[:, column], rtol=0, atol=1e-4)


@pytest.mark.parametrize("direction", ["causal", "bidirectional"])
@pytest.mark.parametrize("encoding", [Interleaved(), Stacked()])
def test_no_prediction_sees_its_own_label(encoding, direction):
    never_shows_the_answer(encoding, direction)
    must_fail(never_shows_the_answer, Leaky(), direction)


def test_reading_every_x_of_a_bidirectional_prompt_would_leak(monkeypatch):
    monkeypatch.setattr(
        Interleaved, "read_at", lambda self, n, direction: (range(0, 2 * n - 1, 2), range(n))
    )
    must_fail(never_shows_the_answer, Interleaved(), "bidirectional")


def earlier_predictions_stay(model):
    """Whatever comes later in the prompt."""
    tokens = Interleaved().encode(DRAWN)
    with torch.no_grad():
        before = model(tokens)
        for n in range(1, tokens.shape[1]):
            later = tokens.clone()
            later[:, n:] = 5.0
            assert torch.allclose(model(later)[:, :n], before[:, :n], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["pre", "post", "no norm", "hardmax", "linear", "mlp only"])
def test_causal_predictions_do_not_look_ahead(name):
    earlier_predictions_stay(make(name))
    if name != "mlp only":  # which looks nowhere
        must_fail(earlier_predictions_stay, make(name, attention_dir="bidirectional"))
