"""Windows of all heads of a model, against their weights, and what is said of them."""

import numpy as np
import pandas
import pytest
import torch
from helpers import must_fail
from lipschitz_experiments import setup, window
from ridge_units import RELU, TURNED, bench, square, unit

from icl_interp.experiments import kept
from icl_interp.figures import reproductions
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.studies.lipschitz.experiments import beyond_a_head as experiment
from icl_interp.studies.lipschitz.measurements.head_windows import head_windows
from icl_interp.studies.lipschitz.measurements.score_map import score_map
from icl_interp.studies.lipschitz.measurements.unit import sigma_of


def two_heads(seed=0, n_layers=1):
    """Layers of two heads without norms; scores of the first are bilinear in the tokens."""
    cfg = HookedTransformerConfig(
        n_layers=n_layers,
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


def matrices_of_weights(model, layer=0):
    """M = E W_K W_Q' E' / sqrt(d_head) of each head, for the rows E of inputs."""
    embedding = model.embed.W_E[:3].detach()
    found = []
    for key, query in zip(model.W_K[layer].detach(), model.W_Q[layer].detach(), strict=True):
        found.append(embedding @ key @ query.T @ embedding.T / model.cfg.d_head**0.5)
    return found


def windows_of_weights(model, layer=0):
    """The mean eigenvalue of M of each head."""
    return [float(matrix.trace()) / 3 for matrix in matrices_of_weights(model, layer)]


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


def test_heads_of_a_later_layer_have_their_own():
    """The first layer writes nothing, so the second reads the same stream."""
    model = two_heads(n_layers=2)
    with torch.no_grad():
        model.blocks[0].attn.W_O.zero_()
        model.blocks[0].attn.b_O.zero_()
    found = bench(model).measure(head_windows)
    assert found["head"].values.tolist() == ["0.0", "0.1", "1.0", "1.1"]
    wanted = [*windows_of_weights(model), *windows_of_weights(model, 1)]
    np.testing.assert_allclose(found.sel(quantity="w"), wanted, rtol=1e-8)


def test_windows_are_those_of_whitened_inputs():
    model = two_heads()
    found = bench(model, TURNED).measure(head_windows).sel(quantity="w")
    sigma = sigma_of(TURNED)
    # The mean eigenvalue of Sigma^(1/2) M Sigma^(1/2) is tr(M Sigma) / d.
    wanted = [float((one @ sigma).trace()) / 3 for one in matrices_of_weights(model)]
    np.testing.assert_allclose(found, wanted, rtol=1e-8)


def test_scores_that_the_query_does_not_move_are_no_part_of_m():
    xs = square(40, 10, 3)
    labels = square(40, 10, 1, seed=1)
    matrix = square(3, 3, seed=2)
    by_both = torch.einsum("bid,de,be->bi", xs[:, :-1], matrix, xs[:, -1])
    by_key = 3 * xs[:, :-1, 0]
    found = score_map(xs, labels, by_both + by_key)
    torch.testing.assert_close(found.matrix, matrix)
    assert found.fit < 0.9
    assert found.fit_of_all == pytest.approx(1.0)
    assert found.labels < 1e-20
    assert score_map(xs, labels, by_both + labels[:, :-1, 0]).labels > 0.01


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
    far = experiment.run(setup(8, 8, **{name: window(30.0)}))
    assert far["errors"]["low"].item() > 1
    best = experiment.run(setup(8, 8, **{name: window(row["best w"])}))
    (error,) = best["errors"].to_dict("records")
    assert error["ratio"] == pytest.approx(1.0)
    (kept_part,) = best["smoothers"].to_dict("records")
    assert kept_part["left"] < 1e-6
    (said,) = experiment.states(best)
    assert said.kind == "note"
    assert "at least 100 % of the variance" in said.sentence
    # Of several heads the least is told.
    rows = best["windows"].to_dict("records")
    worse = pandas.DataFrame([*rows, {**rows[0], "head": "0.1", "fit": 0.5}])
    (said,) = experiment.states({**best, "windows": worse})
    assert "at least 50 % of the variance" in said.sentence


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
