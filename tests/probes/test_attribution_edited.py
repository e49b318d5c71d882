"""Direct attribution of edited models: shares of the edited prediction, or a refusal.

Every hook point is edited in turn, and what must come out is worked out from the cache of the
edited run.
"""

from contextlib import suppress

import numpy as np
import pytest
import torch
from architectures import model_of, tokens_of
from attribution_by_hand import by_hand, covariances, listed, shares_of
from helpers import must_fail, one_in
from small_models import PROMPTS

from icl_interp.errors import InputError
from icl_interp.interventions import (
    AblateHeads,
    At,
    FreezeNorms,
    MeanOutputs,
    PutActivations,
    intervene,
)
from icl_interp.models.tokens import Interleaved
from icl_interp.probes.attribution import DirectAttribution
from icl_interp.probes.runner import probe
from icl_interp.provenance import generator

pytestmark = pytest.mark.slow  # each test analyses or runs models anew: half a minute in all
NAMES = ("pre", "rms", "no norm", "attention only", "mlp only", "two targets", "bidirectional")
HOOKS = [(name, hook) for name in NAMES for hook in model_of(name).hook_dict]


def noise(shape, seed="noise", dtype=torch.float64):
    return torch.randn(shape, generator=generator(0, f"test/{seed}"), dtype=dtype)


def nudged(t, hook):
    """Another number in each prompt."""
    return t + 0.3 * noise(t.shape)


def halved(t, hook):
    return t / 2


def shifted(t, hook):
    """The same vector in all prompts, as steering adds it."""
    return t + 0.3 * noise(t.shape[1:], "shift")


def replaced(t, hook):
    """A constant, as mean ablation puts it."""
    return (0.5 + 0.1 * noise(t.shape[1:], "constant").abs()).expand_as(t)


EDITS = {"nudged": nudged, "halved": halved, "shifted": shifted, "replaced": replaced}


def in_sum(model, tokens):
    """Whether the prediction is the sum of what parts write and a constant; and shares by hand.

    They are NaN for a coordinate that does not vary.
    """
    parts, prediction = by_hand(model, tokens)
    _, cache = model.run_with_cache(tokens)
    scale = (
        cache["ln_final.hook_scale"][:, -1]
        if "ln_final.hook_scale" in cache
        else torch.ones_like(tokens[:, -1, :1])
    )
    rest = (prediction - prediction.mean(0) - (parts.sum(1) - parts.sum(1).mean(0))).abs().max()
    # Before the scale and after it something may have been added: both are told from what is there.
    centred = (prediction - parts.sum(1))[:, None]  # (prompt, 1, target)
    basis = torch.cat([1 / scale, torch.ones_like(scale)], 1)
    left = centred[:, 0] - basis @ torch.linalg.lstsq(basis, centred[:, 0]).solution
    expected = covariances(parts, prediction)
    expected[:, (prediction.std(0) < 1e-12).numpy()] = np.nan
    return bool(left.abs().max() < 1e-10 * (1 + rest)), expected


def found_under(model, tokens, attach):
    """The probe's shares under an edit, or None where it refuses; and what is true."""
    with torch.no_grad(), attach():
        is_sum, expected = in_sum(model, tokens)
        with suppress(InputError):
            return shares_of(model, tokens), is_sum, expected
        with pytest.raises(
            InputError,
            match=r"^probe direct_attribution: at .* the prediction is no sum of these.*$",
        ):
            shares_of(model, tokens)
        return None, is_sum, expected


def check_edit(name, hook, edit):
    model, tokens = model_of(name), tokens_of(name)
    found, is_sum, expected = found_under(
        model, tokens, lambda: model.hooks(fwd_hooks=[(hook, edit)])
    )
    if is_sum:
        assert found is not None, "refused without need"
        np.testing.assert_allclose(found[:-1], expected, rtol=1e-7, atol=1e-9)
    elif found is not None and np.isnan(expected).all():
        assert np.isnan(found).all()
    elif found is not None:
        # A constant in the place of what was written: those parts have no share, all others their
        # own.
        gone = (found[:-1] == 0).all(1)
        assert gone.any(), "there is no sum of parts"
        np.testing.assert_allclose(found[:-1][~gone], expected[~gone], rtol=1e-7, atol=1e-9)
        assert edit is replaced
    if found is not None and np.isfinite(found).all():
        np.testing.assert_allclose(found.sum(0), 1, rtol=1e-9)


@pytest.mark.parametrize(("name", "hook"), one_in(3, HOOKS))
def test_at_every_hook_point_shares_are_of_the_prediction_or_refused(name, hook):
    for edit in EDITS.values():
        check_edit(name, hook, edit)


def refusals(edit, name="pre"):
    model, tokens = model_of(name), tokens_of(name)
    every = {
        hook: found_under(model, tokens, lambda h=hook: model.hooks([(h, edit)]))[0]
        for hook in model.hook_dict
    }
    return {hook for hook, found in every.items() if found is None}


BETWEEN = {
    f"blocks.{i}.hook_{name}" for i in (0, 1) for name in ("attn_out", "resid_mid", "resid_post")
}
BETWEEN |= {"blocks.1.hook_resid_pre", "ln_final.hook_normalized", "ln_final.hook_out"}


def test_what_is_refused_is_what_lies_between_the_parts_and_the_prediction():
    assert refusals(nudged) == BETWEEN


def test_without_the_comparison_shares_are_of_something_else(monkeypatch):
    """The mutant: what the parts read is all that counts."""
    kept = DirectAttribution._kept
    monkeypatch.setattr(
        DirectAttribution, "_kept", lambda self, rows: torch.ones_like(kept(self, rows))
    )
    must_fail(check_edit, "pre", "blocks.1.hook_attn_out", replaced)
    monkeypatch.setattr(DirectAttribution, "_kept", lambda self, rows: torch.tensor(True))
    must_fail(check_edit, "pre", "blocks.1.hook_resid_pre", halved)


def heads_of(model, found, layer):
    return found["direct_attribution.head"].sel(position="query", layer=layer).values


def test_heads_that_write_nothing_have_no_share():
    """Pairs of ways to ablate a layer's heads with one prediction, and so one set of shares."""
    model, tokens = model_of("pre"), tokens_of("pre")
    heads = [(1, h) for h in range(model.cfg.n_heads)]
    ways = {
        "mean z": lambda: intervene(model, AblateHeads.measure(model, tokens, *heads)),
        "mean out": lambda: intervene(
            model, MeanOutputs.measure(model, tokens, ["blocks.1.hook_attn_out"])
        ),
        "zero z": lambda: intervene(model, AblateHeads.zero(*heads)),
        "zero result": lambda: model.hooks(
            fwd_hooks=[("blocks.1.attn.hook_result", lambda t, hook: 0 * t)]
        ),
    }
    shares = {}
    for name, attach in ways.items():
        with torch.no_grad(), attach():
            shares[name] = shares_of(model, tokens)
    ablated = slice(2 + model.cfg.n_heads, 2 + 2 * model.cfg.n_heads)
    for name in ("mean out", "zero z", "zero result"):
        assert (shares[name][ablated] == 0).all()
    np.testing.assert_allclose(shares["zero result"], shares["zero z"], rtol=1e-7, atol=1e-9)
    # At z each head writes a constant, which varies with the last norm's scale; behind it, nobody
    # writes that.
    moved = shares["mean z"].copy()
    moved[-1] += moved[ablated].sum(0)
    moved[ablated] = 0
    np.testing.assert_allclose(shares["mean out"], moved, rtol=1e-7, atol=1e-9)
    must_fail(np.testing.assert_allclose, shares["mean out"], shares_of(model, tokens), rtol=1e-3)


def test_a_stream_that_is_put_there_leaves_only_what_comes_after():
    model, tokens, hook = model_of("pre"), tokens_of("pre"), "blocks.1.hook_resid_pre"
    with torch.no_grad(), intervene(model, At((-1,), MeanOutputs.measure(model, tokens, [hook]))):
        found = shares_of(model, tokens)
    first = 2 + model.cfg.n_heads  # the read-in, the first layer's heads and its MLP
    assert (found[:first] == 0).all()
    assert abs(found[first:]).min() > 0
    others = PutActivations.measure(model, tokens.flip(0), [hook])
    with (
        torch.no_grad(),
        intervene(model, others),
        pytest.raises(InputError, match=r"at blocks\.1\.hook_resid_pre"),
    ):
        shares_of(model, tokens)


@pytest.mark.parametrize("position", [-1, 1])
def test_edits_at_some_positions_count_there_only(position):
    model, tokens = model_of("pre"), tokens_of("pre")
    mean = MeanOutputs.measure(model, tokens, ["blocks.1.hook_attn_out"])
    with torch.no_grad(), intervene(model, At((position,), mean)):
        found = probe(model, tokens, [DirectAttribution()])
    gone = abs(heads_of(model, found, 1)).max() == 0
    assert gone == (position == -1), (
        "the query's heads write nothing only where the query is edited"
    )
    # Tokens without an encoding are of one kind, in which the first place edited has no share and
    # the others have.
    assert abs(found["direct_attribution.head"].sel(position="token", layer=1)).max() > 1e-6
    total = sum(float(share.sel(position="token").sum()) for share in found.values())
    assert total == pytest.approx(1, rel=1e-9)


def by_whole_prompts(model, queries, edit):
    """Shares with the last query at each place, from whole prompts edited at the last position."""
    shares = []
    for x in queries:
        xs = PROMPTS.xs.double().clone()
        xs[:, -1] = x
        tokens = Interleaved().encode(
            type(PROMPTS)(xs, PROMPTS.ys.double(), PROMPTS.parameters, PROMPTS.function)
        )
        with torch.no_grad(), intervene(model, At((-1,), edit)):
            shares.append(shares_of(model, tokens))
    return shares


@pytest.mark.parametrize("what", ["attn_out", "z", "norms"])
def test_queries_that_are_read_apart(what):
    model = model_of("pre")
    tokens = Interleaved().encode(PROMPTS).double()
    edits = {
        "attn_out": MeanOutputs.measure(model, tokens, ["blocks.1.hook_attn_out"]),
        "z": AblateHeads.measure(model, tokens, (0, 1), (1, 0)),
        "norms": FreezeNorms.measure(model, tokens),
    }
    queries = [0.5, 3.0]
    found = probe(model, PROMPTS, [DirectAttribution()], queries=queries, query=[edits[what]])
    for x, expected in zip(queries, by_whole_prompts(model, queries, edits[what]), strict=True):
        np.testing.assert_allclose(listed(model, found, x), expected, rtol=1e-6, atol=1e-8)
    must_fail(
        np.testing.assert_allclose, listed(model, found, 0.5), listed(model, found, 3.0), rtol=1e-3
    )


def test_a_native_hook_behind_all_points_is_refused():
    model, tokens = model_of("pre"), tokens_of("pre")
    for module in (model.unembed, model.ln_final, model):
        handle = module.register_forward_hook(lambda m, args, out: 2 * out)
        with pytest.raises(InputError, match="a torch hook on model"):
            shares_of(model, tokens)
        handle.remove()
    handle = model.blocks[0].register_forward_hook(
        lambda m, args, out: out / 2
    )  # the next point shows it
    with pytest.raises(InputError, match=r"at blocks\.1\.hook_resid_pre"):
        shares_of(model, tokens)
    handle.remove()
    assert np.isfinite(shares_of(model, tokens)).all()


@pytest.mark.parametrize("n", [1, 3])
def test_batches_of_a_prompt_or_three_decide_alike(n):
    """One prompt does not vary: what is a constant is known at the end only."""
    model, tokens = model_of("pre"), tokens_of("pre")
    mean = MeanOutputs.measure(model, tokens, ["blocks.0.hook_attn_out"])
    with torch.no_grad(), intervene(model, mean):
        whole, parts = (
            probe(model, tokens, [DirectAttribution()], batch_size=size) for size in (64, n)
        )
    np.testing.assert_allclose(listed(model, parts), listed(model, whole), rtol=1e-8, atol=1e-12)
    with (
        torch.no_grad(),
        model.hooks([("blocks.0.hook_attn_out", halved)]),
        pytest.raises(InputError),
    ):
        probe(model, tokens, [DirectAttribution()], batch_size=n)
