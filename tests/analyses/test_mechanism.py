"""What the section on the mechanism shows, against the cache and against hand-built models."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp import contrasts
from icl_interp.analyses import mechanism
from icl_interp.analyses.lab import Lab
from icl_interp.experiments.calibration import TASK
from icl_interp.models import tokens
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.results import from_dict, to_dict

OF_HEADS = {"patterns", "relevance", "own", "roles", "patching"}


def lab_of(**settings) -> Lab:
    config = HookedTransformerConfig(
        **{"n_layers": 2, "d_model": 12, "n_heads": 3, "init_std": 0.5, "n_ctx": 64, **settings}
    )
    model = HookedTransformer(config, seed=1)
    return Lab(model, TASK, tokens.infer_for(TASK, config.d_in), n_units=16, n_contexts=2)


@pytest.fixture(scope="module")
def lab():
    return lab_of()


def cached(lab):
    return lab.single.run_with_cache(lab.tokens(lab.few).float())


def test_patterns_are_means_over_prompts_by_name_of_the_token(lab):
    found = lab.measure(mechanism.patterns)
    _, cache = cached(lab)
    by_hand = torch.stack(
        [cache[f"blocks.{i}.attn.hook_pattern"].mean(0) for i in range(2)]
    ).numpy()
    np.testing.assert_allclose(found.values, by_hand, rtol=1e-4, atol=1e-7)
    names = found.indexes["key"].tolist()
    assert names[:3] == ["x1", "y1", "x2"]
    assert names[-1] == "query"
    assert found.indexes["query"].tolist() == names


def test_of_a_large_model_only_the_row_of_the_query_is_kept(lab, monkeypatch):
    whole = lab.measure(mechanism.patterns)
    monkeypatch.setattr(mechanism, "MOST", whole.size - 1)
    row = mechanism.patterns(lab)
    assert row.indexes["query"].tolist() == ["query"]
    np.testing.assert_allclose(row.values, whole.sel(query=["query"]).values, rtol=1e-5)


def share_on_labels(score, row):
    """The weight of the query's row on labels, beyond their share of the tokens it sees."""
    weight = row[:, 1:-1:2].sum(-1)
    share = (row.shape[1] // 2) / row.shape[1]
    assert score == pytest.approx(((weight - share) / (1 - share)).mean(), abs=1e-6)


def test_roles_of_heads_are_scored_on_one_prompt_of_each_function(lab):
    """By hand, from the patterns of the model in float64: interleaved x1, y1, ..., query."""
    found = lab.measure(mechanism.roles)
    assert found.indexes["head"].tolist() == ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]
    assert {"labels", "neighbours", "position only"} <= set(found.indexes["role"])
    _, cache = lab.model.run_with_cache(lab.tokens(lab.one_each))
    for layer in range(2):
        rows = cache[f"blocks.{layer}.attn.hook_pattern"][:, :, -1].double().numpy()
        for head in range(3):
            of_head = found.sel(head=f"{layer}.{head}", role="labels")
            score = float(of_head.sel(statistic="score"))
            share_on_labels(score, rows[:, head])
            must_fail(share_on_labels, score, rows[:, (head + 1) % 3])
            assert of_head.sel(statistic="low") < score < of_head.sel(statistic="high")


def test_roles_are_known_where_all_prompts_have_one_function(lab):
    """Their intervals are then over prompts."""
    one = Lab(lab.model, replace(TASK, n_tasks=1), lab.encoding, n_units=16, n_contexts=2)
    found = one.measure(mechanism.roles).sel(role="labels")
    assert np.isfinite(found.values).all()


def share_carried(share, lab, head):
    """By hand: the head's vectors of the clean run are put into the run on other labels."""
    pairs = contrasts.labels(lab.task, n_functions=mechanism.PATCHED_ON, seed=lab.seed)
    clean, corrupted = (lab.tokens(one).double() for one in (pairs.clean, pairs.corrupted))
    name = f"blocks.{head[0]}.attn.hook_z"
    _, cache = lab.model.run_with_cache(clean)

    def put(z, hook):
        z = z.clone()
        z[:, :, head[1]] = cache[name][:, :, head[1]]
        return z

    end = lab.model(clean)[:, -1, 0]
    start = lab.model(corrupted)[:, -1, 0]
    patched = lab.model.run_with_hooks(corrupted, fwd_hooks=[(name, put)])[:, -1, 0]
    way = end - start
    by_hand = float(((patched - start) * way).sum() / way.square().sum())
    assert share == pytest.approx(by_hand, abs=1e-5)


def test_each_head_is_patched_from_prompts_with_other_labels(lab):
    found = lab.measure(mechanism.patching)
    for head in ((0, 1), (1, 2)):
        share = float(found.sel(statistic="share", head=f"{head[0]}.{head[1]}"))
        share_carried(share, lab, head)
        must_fail(share_carried, share, lab, (head[0], 0))
    assert (found.sel(statistic="low") <= found.sel(statistic="share")).all()


def test_no_share_where_a_prediction_does_not_follow_the_labels(lab):
    still = copy.deepcopy(lab.model)
    torch.nn.init.zeros_(still.unembed.W_U)
    one = Lab(still, TASK, lab.encoding, n_units=16, n_contexts=2)
    found = one.measure(mechanism.patching)
    assert np.isnan(found.values).all()
    assert "hardly differs" in found.attrs["note"]


def test_who_cannot_be_patched_is_not_asked(lab, monkeypatch):
    """One function has no other labels; a large model would take minutes."""
    single = Lab(lab.model, replace(TASK, n_tasks=1), lab.encoding, n_units=16, n_contexts=2)
    assert mechanism.patching not in mechanism.measurements(single)
    assert mechanism.patching in mechanism.measurements(lab)
    monkeypatch.setattr(mechanism, "is_large", lambda model: True)
    assert mechanism.patching not in mechanism.measurements(lab)


def test_shares_name_every_part_and_add_up_to_one(lab):
    found = lab.measure(mechanism.attribution)
    heads = [f"head {layer}.{head}" for layer in range(2) for head in range(3)]
    assert found.indexes["part"].tolist() == ["read-in", *heads, "MLP 0", "MLP 1", "rest"]

    def add_up(shares):
        np.testing.assert_allclose(shares.sum("part").values, 1, rtol=1e-9)

    add_up(found)
    must_fail(add_up, found.sel(part=["read-in", *heads]))
    _, cache = cached(lab)
    # Head 1.2 by a route of its own: its vectors through the last norm and the read-out.
    model, scale = lab.single, cache["ln_final.hook_scale"][:, -1]
    written = cache["blocks.1.attn.hook_z"][:, -1, 2] @ model.blocks[1].attn.W_O[2]
    share = ((written - written.mean(-1, keepdim=True)) / scale * model.ln_final.w @ model.W_U)[
        :, 0
    ].double()
    whole = cached(lab)[0][:, -1, 0].double()
    by_hand = float(
        ((share - share.mean()) * (whole - whole.mean())).mean() / whole.var(unbiased=False)
    )
    assert float(found.sel(part="head 1.2", target=0)) == pytest.approx(by_hand, rel=1e-5)


def test_the_lens_ends_at_the_models_own_prediction(lab):
    found = lab.measure(mechanism.lens)
    truth, said = lab.few.ys[:, -1, 0], cached(lab)[0][:, -1, 0].double()
    error = (said - truth).square().view(16, -1).mean(1)
    np.testing.assert_allclose(found.sel(statistic="error", depth=2).values, error, rtol=1e-4)
    np.testing.assert_allclose(
        found.sel(statistic="zero", depth=0).values, truth.square().view(16, -1).mean(1)
    )
    assert float(found.sel(statistic="distance", depth=2).max()) == 0
    assert float(found.sel(statistic="distance", depth=1).min()) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, {*OF_HEADS, "attribution", "lens"}),
        ({"norm_position": "post"}, {*OF_HEADS, "lens"}),
        ({"normalization_type": "Tanh"}, {*OF_HEADS, "lens"}),
        ({"mlp_only": True}, {"attribution", "lens"}),
        ({"attn_only": True}, {*OF_HEADS, "attribution", "lens"}),
    ],
)
def test_every_model_is_asked_what_it_has_something_for(settings, names):
    lab = lab_of(**settings)
    asked = mechanism.measurements(lab)
    assert {one.name.split("/")[1] for one in asked} == names
    assert not lab.measure_all(asked)
    for one in asked:
        stored = lab.results[one]
        assert from_dict(to_dict(stored)).identical(stored)
