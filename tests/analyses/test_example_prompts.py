"""The patterns of a few prompts are the model's, of the heads that do most, and few enough."""

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.analyses import example_prompts, relevance
from icl_interp.analyses.lab import Lab
from icl_interp.experiments.calibration import TASK
from icl_interp.models import tokens
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.results import from_dict, to_dict


def lab_of(**settings) -> Lab:
    sizes = {"n_layers": 2, "d_model": 12, "n_heads": 3, "init_std": 0.5, "n_ctx": 64}
    config = HookedTransformerConfig(**{**sizes, **settings})
    model = HookedTransformer(config, seed=1)
    return Lab(model, TASK, tokens.infer_for(TASK, config.d_in), n_units=16, n_contexts=2)


@pytest.fixture(scope="module")
def lab():
    return lab_of()


def by_hand(lab, name) -> np.ndarray:
    """The patterns of one head in the first prompts of the first units: (prompt, query, key)."""
    prompts = lab.prompts[torch.tensor([0, lab.unit_size])]
    with torch.no_grad():
        _, cache = lab.single.run_with_cache(lab.tokens(prompts).float())
    layer, head = map(int, name.split("."))
    return cache[f"blocks.{layer}.attn.hook_pattern"][:, head].double().numpy()


def are_of_the_model(lab, found):
    for name in found.indexes["head"]:
        shown = found.sel(head=name).values
        np.testing.assert_allclose(shown, by_hand(lab, name), atol=0.51e-4, rtol=0)


def test_patterns_are_those_of_the_model(lab):
    found = lab.measure(example_prompts.patterns)
    assert found.indexes["head"].tolist() == [f"{i}.{h}" for i in range(2) for h in range(3)]
    assert found.indexes["key"].tolist()[:3] == ["x1", "y1", "x2"]
    assert found.indexes["query"].tolist()[-1] == "query"
    are_of_the_model(lab, found)
    must_fail(are_of_the_model, lab, found[::-1])
    must_fail(are_of_the_model, lab, found.roll(head=1))
    assert from_dict(to_dict(found)).identical(found)


def test_tokens_are_those_of_the_prompts(lab):
    found = lab.measure(example_prompts.tokens)
    first = lab.prompts[:1]
    assert found.sel(prompt=0, token="x1", channel=0).item() == pytest.approx(first.xs[0, 0, 0])
    assert found.sel(prompt=0, token="y2", channel=0).item() == pytest.approx(first.ys[0, 1, 0])
    assert found.indexes["prompt"].tolist() == [0, 1]


def test_of_many_heads_those_stay_that_move_the_prediction_most(lab, monkeypatch):
    monkeypatch.setattr(example_prompts, "HEADS", 2)
    found = example_prompts.patterns(lab)
    moved = lab.measure(relevance.relevance).sel(intervention="mean ablation")
    sizes = moved.sel(statistic="movement").mean("unit")

    def largest(names):
        assert set(names) == {str(sizes["head"].values[i]) for i in np.argsort(sizes.values)[-2:]}

    largest(found.indexes["head"])
    must_fail(largest, set(sizes["head"].values) - set(found.indexes["head"]))
    are_of_the_model(lab, found)


def test_there_are_never_too_many_weights(lab, monkeypatch):
    n = len(lab.encoding.kinds(lab.few.n_points))
    for room, shape in ((5 * n**2, (1, 5)), (n**2, (1, 1)), (12 * n**2, (2, 6))):
        monkeypatch.setattr(example_prompts, "MOST", room)
        assert example_prompts.patterns(lab).shape == (*shape, n, n)
    monkeypatch.setattr(example_prompts, "MOST", n**2 - 1)
    assert example_prompts.measurements(lab) == [example_prompts.points]


def test_without_attention_only_points_are_kept(lab):
    assert example_prompts.measurements(lab_of(mlp_only=True)) == [example_prompts.points]
    assert len(example_prompts.measurements(lab)) == 3


def are_labelled(lab, found):
    """The points of the first prompt of each unit but its query, which has no label there."""
    prompts = lab.one_each[: example_prompts.CONTEXTS]
    np.testing.assert_array_equal(found.sel(of="x").values, prompts.xs[:, :-1, 0])
    np.testing.assert_array_equal(found.sel(of="y").values, prompts.ys[:, :-1, 0])


def test_points_are_those_of_prompts_without_the_query(lab):
    found = example_prompts.points(lab)
    assert len(found["context"]) == example_prompts.CONTEXTS
    are_labelled(lab, found)
    must_fail(are_labelled, lab, found.isel(context=slice(None, None, -1)))
