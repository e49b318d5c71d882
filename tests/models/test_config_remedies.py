"""Remedies as options: other score functions, tanh normalisation, bounded read-in."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
import transformer_formulas
from helpers import must_fail, one_in
from small_models import BASE, OTHERS, make, tokens_for

import icl_interp
from icl_interp.analyses.registry import REGISTRY
from icl_interp.errors import InputError
from icl_interp.interventions.norms import FreezeNorms
from icl_interp.models import weights
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes import AttentionEntropy, LayerNormScale
from icl_interp.probes.runner import probe
from icl_interp.provenance import encode, generator
from icl_interp.tasks.distributions import Uniform
from icl_interp.tasks.functions import Polynomial
from icl_interp.training.recipes import resolve

SCORES = ("scaled_softmax", "sigmoid", "relu", "entmax")
REMEDIES = {
    **{name: {"score_fn": name} for name in SCORES},
    "entmax, bidirectional": {"score_fn": "entmax", "attention_dir": "bidirectional", "d_in": 2},
    "tanh": {"normalization_type": "Tanh"},
    "tanh, post": {"normalization_type": "Tanh", "norm_position": "post"},
    "bounded": {"embed_bound": 1.5},
    "bounded, no norm": {"embed_bound": 1.5, "normalization_type": None},
    "all at once": {"score_fn": "relu", "normalization_type": "Tanh", "embed_bound": 0.8},
}
EVERY = pytest.mark.parametrize("name", REMEDIES)
SOME = pytest.mark.parametrize("name", one_in(3, REMEDIES))  # the others in the slow suite


def remedy(name, **change):
    """The small random model of the other tests, with a remedy."""
    return make("pre", **{**REMEDIES[name], **change})


def tokens_of(model, n_tokens=7):
    drawn = torch.randn(
        3, n_tokens, model.cfg.d_in, generator=generator(0, "test/remedies"), dtype=torch.float64
    )
    return drawn.to(model.unembed.W_U.dtype)


def agree(got, want, tolerance):
    """Equal up to a tolerance relative to the largest number."""
    assert got.shape == want.shape
    assert want.std() > 1e-3, "numbers that hardly vary would agree whatever the model does"
    gap = (got - want).abs().max() / want.abs().max()
    assert gap < tolerance, f"differs by {gap:.1e} of the largest number"


# The formulas.


def follows_formulas(model, cfg, tolerance=1e-10):
    tokens = tokens_of(model)
    with torch.no_grad():
        agree(
            model(tokens), transformer_formulas.forward(cfg, model.state_dict(), tokens), tolerance
        )


MIXED = [
    {
        "score_fn": score,
        "normalization_type": norm,
        "norm_position": place,
        "embed_bound": bound,
        "attention_dir": way,
    }
    for score in ("softmax", *SCORES)
    for norm, place in (("LN", "pre"), ("Tanh", "pre"), ("Tanh", "post"), (None, "pre"))
    for bound, way in ((None, "causal"), (0.7, "bidirectional"))
]


@pytest.mark.parametrize("change", MIXED, ids=lambda c: "-".join(map(str, c.values())))
def test_model_follows_its_formulas(change):
    model = make(**change)
    follows_formulas(model, model.cfg)
    assert {
        name: tuple(w.shape) for name, w in model.state_dict().items()
    } == transformer_formulas.shapes(model.cfg)


@pytest.mark.parametrize(
    ("name", "mutation"),
    [
        *[(name, {"score_fn": "softmax"}) for name in SCORES],
        ("entmax", {"score_fn": "scaled_softmax"}),
        ("bounded", {"embed_bound": None}),
        ("bounded", {"embed_bound": 1.51}),
        ("tanh", {"normalization_type": None}),
    ],
)
def test_another_formula_is_noticed(name, mutation):
    model = remedy(name)
    must_fail(follows_formulas, model, replace(model.cfg, **mutation))


# Hooks: the same names, and the quartet.


def hook_names(model):
    """The hooks of a model without remedies, less the scale where there is none."""
    plain = HookedTransformer(
        replace(model.cfg, score_fn="softmax", embed_bound=None, **_plain_norm(model.cfg))
    )
    tanh = model.cfg.normalization_type == "Tanh"
    return {name for name in plain.hook_dict if not (tanh and name.endswith("hook_scale"))}


def _plain_norm(cfg):
    return {"normalization_type": "LN"} if cfg.normalization_type == "Tanh" else {}


def nudge(value, hook):
    noise = torch.rand(value.shape, generator=generator(0, hook.name), dtype=value.dtype)
    return value * 1.01 + 0.01 * noise


def every_edit_moves_the_output(model, edit):
    tokens = tokens_of(model)
    with torch.no_grad():
        idle = model(tokens)
        for hook in model.hook_dict:
            gap = (
                model.run_with_hooks(tokens, fwd_hooks=[(hook, edit)]) - idle
            ).abs().max() / idle.abs().max()
            assert gap > 1e-6, f"{hook} can be edited without effect"
            assert torch.equal(model(tokens), idle), f"{hook} left a trace"


@pytest.mark.slow
@SOME
def test_editing_any_hook_moves_the_output(name):
    model = remedy(name)
    assert set(model.hook_dict) == hook_names(model)
    everything = model.run_with_cache(tokens_of(model), names_filter=lambda hook: True)[1]
    assert set(everything) == set(model.hook_dict)
    every_edit_moves_the_output(model, nudge)
    must_fail(every_edit_moves_the_output, model, lambda value, hook: value.clone())


def leaves_the_output_alone(model, look):
    """Bit by bit, and so does having failed."""
    tokens = tokens_of(model)
    with torch.no_grad():
        idle = model(tokens)
        for hook in model.hook_dict:
            assert torch.equal(model.run_with_hooks(tokens, fwd_hooks=[(hook, look)]), idle), (
                f"{hook} cannot be read"
            )
        with pytest.raises(ZeroDivisionError):
            model.run_with_hooks(tokens, fwd_hooks=[(hook, lambda value, hook: 1 / 0)])
        assert torch.equal(model(tokens), idle), "an exception left its hooks behind"


@pytest.mark.slow
@SOME
def test_reading_leaves_the_output_bit_identical(name):
    for dtype in (torch.float32, torch.float64):
        leaves_the_output_alone(remedy(name).to(dtype), lambda value, hook: None)
    must_fail(leaves_the_output_alone, remedy(name), lambda value, hook: value * (1 + 1e-6))


def test_a_tanh_norm_hides_no_scale():
    model = remedy("tanh")
    tokens = tokens_of(model)
    with pytest.raises(InputError, match=r"unknown hook 'ln_final\.hook_scale'"):
        model.run_with_cache(tokens, names_filter="ln_final.hook_scale")
    assert model.norms == {}
    _, cache = model.run_with_cache(tokens)
    squashed, final = cache["ln_final.hook_normalized"], model.ln_final
    torch.testing.assert_close(cache["ln_final.hook_out"], squashed * final.w + final.b)
    torch.testing.assert_close(
        squashed.atanh() / final.alpha, cache["blocks.1.hook_resid_post"], atol=1e-9, rtol=0
    )


# The short ways.


def short_ways_agree(model, other, tolerance):
    """Predictions at some positions, and of alternative last tokens, equal those of whole prompts.

    `other` sees the whole prompts.
    """
    tokens = tokens_of(model)
    with torch.no_grad():
        want = other(tokens)
        agree(model(tokens, [2, 4, 6]), want[:, [2, 4, 6]], tolerance)
        if model.cfg.attention_dir == "bidirectional":
            return
        memory = model.remember(tokens[:, :-1])
        for shift in (0.0, 1.0, -30.0):
            last = tokens[:, -1:] + shift
            whole = other(torch.cat([tokens[:, :-1], last], 1))[:, -1:]
            several = model.after(
                memory, torch.cat([last, last - 1, last + 3], 1), tokens.shape[1] - 1
            )
            agree(several[:, :1], whole, tolerance)


@SOME
def test_short_ways_give_what_the_long_way_gives(name):
    short_ways_agree(remedy(name), remedy(name), 1e-11)
    short_ways_agree(remedy(name).float(), remedy(name).float(), 2e-5)
    must_fail(short_ways_agree, remedy(name), remedy(name, n_heads=2), 1e-11)


def test_fused_attention_is_for_softmax_only():
    for name in SCORES:
        model, tokens = remedy(name), tokens_of(remedy(name))
        want = model(tokens)
        for block in model.blocks:
            block.attn.fused = True
        assert torch.equal(model(tokens), want)


@EVERY
def test_predictions_do_not_look_ahead_and_gradients_reach_every_weight(name):
    model = remedy(name)
    tokens = tokens_of(model)
    later = torch.cat([tokens[:, :4], tokens[:, 4:] + 1], 1)
    same = torch.allclose(model(later)[:, :4], model(tokens)[:, :4], rtol=0, atol=1e-12)
    assert same == (model.cfg.attention_dir == "causal")
    model(tokens).square().sum().backward()
    for weight, parameter in model.named_parameters():
        assert parameter.grad is not None, weight
        assert parameter.grad.isfinite().all(), weight
        # Keys' biases shift all scores of a query alike: no distribution over keys sees them.
        if not (weight.endswith("b_K") and model.cfg.weights_add_up):
            assert parameter.grad.any(), f"no gradient reaches {weight}"


# Files and reports.


@EVERY
def test_weights_survive_a_file(name, tmp_path):
    model = remedy(name)
    weights.write(tmp_path / "w.safetensors", model.state_dict())
    control = HookedTransformer(model.cfg, seed=9).double().eval()
    weights.load_into(control, tmp_path / "w.safetensors")
    assert torch.equal(control(tokens_of(model)), model(tokens_of(model)))


def test_weights_of_another_norm_are_refused(tmp_path):
    path = tmp_path / "w.safetensors"
    weights.write(path, make().state_dict())
    with pytest.raises(
        InputError, match=r"lacks the tensor blocks\.0\.ln1\.alpha that the config asks for"
    ):
        weights.load_into(remedy("tanh"), path)
    weights.write(path, remedy("tanh").state_dict())
    with pytest.raises(
        InputError, match=r"holds the tensor \S+\.alpha, which the config does not ask for"
    ):
        weights.load_into(make(), path)


TASK = Polynomial(degrees=(1,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=8)
N_PROMPTS = {"bounded": 256}  # a verdict of this report is looked at


@cache
def report(name):
    settings = {
        "n_layers": 2,
        "d_model": 8,
        "n_heads": 2,
        "n_ctx": 16,
        "init_std": 0.4,
        **REMEDIES[name],
    }
    model = HookedTransformer(HookedTransformerConfig(**settings)).eval()
    return icl_interp.analyze(model, task=TASK, n_prompts=N_PROMPTS.get(name, 64), progress=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", REMEDIES)
def test_every_remedy_gets_a_whole_report(name):
    """Each claim is judged or said not to apply, by the remedy's name."""
    found, cfg = report(name), REMEDIES[name]
    assert [finding.id for finding in found.findings] == list(REGISTRY)
    assert all(finding.reason for finding in found.findings)
    assert set(found.figures)
    if "score_fn" in cfg:
        reason = (
            "The claim is about softmax attention; this model's score function is "
            f"{cfg['score_fn']}."
        )
        assert (
            found["limits.softmax_hardmax"].reason
            == found["limits.softmax_uniform"].reason
            == reason
        )
    if cfg.get("normalization_type") == "Tanh":
        assert found["limits.layernorm_saturation"].verdict == "not_applicable"
        assert "this model's norm is a tanh" in found["limits.layernorm_causes_saturation"].reason
    if "embed_bound" in cfg and cfg.get("normalization_type", "LN") is None:
        assert "embed_bound" in found["limits.linear_asymptote"].reason


@pytest.mark.slow
def test_a_bounded_read_in_takes_layernorms_part():
    """f levels off because the query does, so freezing the norms changes nothing.

    LayerNorm's closed form does not apply.
    """
    found = report("bounded")
    assert "embed_bound" in found["limits.layernorm_saturation"].reason
    assert found["limits.layernorm_causes_saturation"].verdict == "contradicted"
    row = found.results["far/certificate"].to_dict("records")[0]
    assert np.isnan([row["plateau +"], row["plateau -"], row["onset"]]).all()
    assert row["r"] > 0
    plain = icl_interp.analyze(
        HookedTransformer(
            HookedTransformerConfig(n_layers=1, d_model=8, n_ctx=16, init_std=0.4)
        ).eval(),
        task=TASK,
        n_prompts=256,
        progress=False,
        claims=("limits.layernorm_causes_saturation",),
    )
    assert plain.findings[0].verdict == "supported"


# What is refused.


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"score_fn": "entmx"}, "unknown score_fn 'entmx': did you mean 'entmax'"),
        ({"normalization_type": "tanh"}, "unknown normalization_type 'tanh': did you mean 'Tanh'"),
        (
            {"score_fn": "sigmoid", "score_norm": "visible"},
            "score_norm='visible' is for .*; sigmoid brings its own",
        ),
        (
            {"score_fn": "relu", "score_norm": "visible"},
            "score_norm='visible' is for .*; relu brings its own",
        ),
        ({"score_fn": "entmax", "score_norm": "labelled"}, "entmax weights add up to 1"),
        *[
            ({"score_fn": s, "mlp_only": True}, f"score_fn='{s}' needs attention, but mlp_only")
            for s in SCORES
        ],
        (
            {"embed_bound": 0.0},
            "embed_bound must be a positive number, or null for none, but got 0.0",
        ),
        ({"embed_bound": -1.0}, "embed_bound must be a positive number"),
        ({"embed_bound": math.inf}, "embed_bound must be a positive number"),
        ({"embed_bound": math.nan}, "embed_bound must be a positive number"),
        ({"embed_bound": True}, "embed_bound must be a positive number"),
        (
            {"norm_position": "post", "normalization_type": None, "embed_bound": 1.0},
            "needs a normalization_type",
        ),
    ],
)
def test_impossible_combinations_are_refused_by_name(change, match):
    config = object.__new__(
        HookedTransformerConfig
    )  # as users make it: without the run-time check of annotations
    vars(config).update({**vars(HookedTransformerConfig(**BASE)), **change})
    with pytest.raises(InputError, match=match):
        config.__post_init__()


def test_analyses_that_need_a_scale_or_a_distribution_say_so():
    tanh, prompts = remedy("tanh"), OTHERS
    with pytest.raises(
        InputError,
        match="Tanh norms squash each coordinate by itself and divide by no scale to freeze",
    ):
        FreezeNorms.measure(tanh, tokens_for(tanh))
    with pytest.raises(
        InputError, match=r"layernorm_scale: this model's Tanh norms .* divide by no scale"
    ):
        probe(tanh, prompts, probes=(LayerNormScale(),))
    for name in SCORES:
        if remedy(name).cfg.weights_add_up:
            found = probe(remedy(name), prompts, probes=(AttentionEntropy(),))
            assert any(np.nanmin(result.values) >= 0 for result in found.values())
        else:
            with pytest.raises(InputError, match=f"{name} weights need not add up to 1"):
                probe(remedy(name), prompts, probes=(AttentionEntropy(),))
    _, cache = tanh.run_with_cache(tokens_of(tanh))
    assert cache.accumulated_resid(-1).shape[0] > 1
    with pytest.raises(InputError, match=r"apply_ln_to_stack .* Tanh norms have none"):
        cache.accumulated_resid(-1, apply_ln=True)


# The read-in.


def keeps_within(read_in, bound):
    """Shorter than the bound, near the identity well below it, and no two sizes alike."""
    sizes = torch.logspace(-3, 6, 91, dtype=torch.float64)
    direction = torch.tensor([0.6, -0.8, 0.0], dtype=torch.float64)
    out = read_in(sizes[:, None] * direction)
    lengths = out.norm(dim=-1)
    assert (lengths < bound).all()
    assert (lengths.diff() > 0).all()
    torch.testing.assert_close(out / lengths[:, None], direction.expand(91, 3), rtol=0, atol=1e-12)
    near = sizes < bound / 4
    deviation = 1 - lengths[near] / sizes[near]
    assert (deviation <= sizes[near].square() / (2 * bound**2)).all()


def test_bounded_read_in():
    bound = 2.0
    model = HookedTransformer(
        HookedTransformerConfig(n_layers=1, d_model=3, d_in=3, embed_bound=bound)
    ).double()
    with torch.no_grad():
        model.embed.W_E.copy_(torch.eye(3))

    def read_in(v):
        return model.embed(v[None])[0].detach()

    keeps_within(read_in, bound)
    must_fail(keeps_within, lambda v: v, bound)
    must_fail(
        keeps_within, lambda v: v / (v.norm(dim=-1, keepdim=True) / bound).clamp(min=1), bound
    )  # a clip
    must_fail(keeps_within, lambda v: bound * (v / bound).tanh(), bound)  # turns the vector
    assert model.float().embed(torch.full((1, 1, 3), 1e15)).norm() < bound * (1 + 1e-6)


# The recipes.


def differences(a, b, prefix=""):
    """Dotted names of the settings in which two configs differ."""
    found = set()
    for key, value in a.items():
        if isinstance(value, dict):
            found |= differences(value, b[key], f"{prefix}{key}.")
        elif value != b[key]:
            found.add(prefix + key)
    return found


CHANGED = {
    "scaled_softmax": "model.score_fn",
    "sigmoid": "model.score_fn",
    "relu": "model.score_fn",
    "entmax": "model.score_fn",
    "rms": "model.normalization_type",
    "tanh": "model.normalization_type",
    "bounded": "model.embed_bound",
}


def test_recipes_of_the_remedies_differ_in_one_setting():
    baseline = encode(resolve("remedy_baseline"))
    assert differences(encode(resolve("affine")), baseline) == {
        "training.steps",
        "training.curriculum.until",
    }
    for name, setting in CHANGED.items():
        assert differences(baseline, encode(resolve(f"remedy_{name}"))) == {setting}
