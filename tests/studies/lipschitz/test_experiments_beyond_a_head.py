"""Windows of all heads of a model, against their weights, and what is said of them."""

import numpy as np
import pytest
import torch
from helpers import must_fail
from lipschitz_experiments import setup, window
from ridge_units import RELU, bench, square, unit

from icl_interp.experiments import kept
from icl_interp.figures import reproductions
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.studies.lipschitz.experiments import beyond_a_head as experiment
from icl_interp.studies.lipschitz.measurements.head_windows import head_windows


def two_heads(seed=0):
    """One layer of two heads without norms, whose scores are bilinear in the tokens."""
    cfg = HookedTransformerConfig(
        n_layers=1,
        d_model=8,
        n_heads=2,
        d_in=4,
        n_ctx=RELU.n_points,
        attn_only=True,
        normalization_type=None,
        positional_embedding_type="none",
        attention_dir="bidirectional",
        keys="labelled",
        init_std=0.5,
    )
    return HookedTransformer(cfg, seed=seed).double()


def windows_of_weights(model):
    """The mean eigenvalue of M = E W_K W_Q' E' / sqrt(d_head) for the rows E of inputs."""
    embedding = model.embed.W_E[:3].detach()
    found = []
    for key, query in zip(model.W_K[0].detach(), model.W_Q[0].detach(), strict=True):
        matrix = embedding @ key @ query.T @ embedding.T / model.cfg.d_head**0.5
        found.append(float(matrix.trace()) / 3)
    return found


def test_each_head_has_the_window_of_its_weights():
    model = two_heads()
    found = bench(model).measure(head_windows)
    assert found["head"].values.tolist() == ["0.0", "0.1"]

    def check(wanted):
        np.testing.assert_allclose(found.sel(quantity="w"), wanted, rtol=1e-8)

    check(windows_of_weights(model))
    must_fail(check, windows_of_weights(model)[::-1])
    # No biases, but the last row of the embedding reads labels: M explains less than all.
    assert (found.sel(quantity="fit") < 0.999).all()


def test_one_head_has_that_of_the_unit():
    matrix = 3 * square(3, 3)
    found = bench(unit(matrix)).measure(head_windows).sel(head="0.0")
    assert float(found.sel(quantity="w")) == pytest.approx(float(matrix.trace()) / 3)
    assert float(found.sel(quantity="fit")) == pytest.approx(1.0)


def test_a_unit_is_a_smoother_with_its_own_error():
    """A unit of the best window, in the place of the model of one head."""
    name = experiment.KINDS["one head with an MLP"].name
    made = setup(8, 8, **{name: window(2.0)})
    results = experiment.run(made)
    (row,) = results["windows"].to_dict("records")
    assert row["w"] == pytest.approx(2.0)
    best = experiment.run(setup(8, 8, **{name: window(row["best w"])}))
    (error,) = best["errors"].to_dict("records")
    assert error["ratio"] == pytest.approx(1.0)
    (kept_part,) = best["smoothers"].to_dict("records")
    assert kept_part["left"] < 1e-6
    (said,) = experiment.states(best)
    assert said.kind == "note"
    assert "2 times" not in said.sentence


def test_without_models_nothing_is_said():
    assert experiment.run(setup(2, 2)) == {}
    (said,) = experiment.states({})
    assert "nothing is measured" in said.sentence
    assert reproductions.draw("lipschitz.beyond_a_head", {}) == {}


def test_what_is_kept_has_all_five_models():
    results = kept.results("lipschitz.beyond_a_head")
    assert results["errors"]["model"].tolist() == list(experiment.KINDS)
    heads = results["windows"].groupby("model").size()
    assert heads.loc["four heads"] == 4
    assert heads.loc["two layers"] == 2
    assert torch.isfinite(torch.tensor(results["windows"]["w"].to_numpy())).all()
    assert reproductions.draw("lipschitz.beyond_a_head", results)["beyond_a_head"]
