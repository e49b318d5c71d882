"""M as least squares of the head's scores finds it, against the weights.

Whom the claims on M are about is checked, too.
"""

import math
from dataclasses import replace

import pytest
import torch
from helpers import must_fail
from made_up_facts import AFFINE, changed, facts
from ridge_units import FEW, RELU, ROWS, TURNED, bench, square, unit

from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.softmax_unit import SoftmaxAttention, read_softmax_unit
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.results import numbers_in
from icl_interp.studies.lipschitz.measurements import score_map
from icl_interp.studies.lipschitz.measurements.unit import (
    fit_of,
    functions_of,
    kernel,
    needs_all_directions,
    needs_sphere,
    needs_unit,
    reads_whitened,
    scores,
    scores_by_function,
    sigma_of,
)
from icl_interp.tasks import Ellipsoid, Sphere, Task
from icl_interp.testing.reparameterisations import EDITS


def found(model, task=RELU):
    lab = bench(model, task)
    return torch.from_numpy(lab.measure(kernel).sel(matrix="M").values), numbers_in(
        lab.measure(scores)
    )


def full(scale, seed=0):
    """The unit of equation (1) with random weights."""
    return SoftmaxAttention(
        *(scale * square(4, 4, seed=seed + i) for i in range(3))
    ).to_transformer(RELU.n_points)


def check_m(model, expected):
    m, shares = found(model)
    assert (m - expected).abs().max() <= 1e-9 * expected.abs().max()
    assert shares["fit of all terms"] == pytest.approx(1, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", [unit(3 * square(3, 3)), full(1.0)], ids=["M alone", "all weights"]
)
def test_m_is_that_of_the_weights(model):
    product = read_softmax_unit(model, tolerance=math.inf).product
    check_m(model, product)
    must_fail(check_m, model, product.T)


def without_labels(values):
    """Terms as they are but for those of the label, which are dropped."""
    if values.ndim < 3:
        return values
    return values * (torch.arange(values.shape[-1]) % 16 < 12)


@pytest.mark.slow
def test_labels_in_the_scores_are_no_part_of_m(monkeypatch):
    m, shares = found(full(1.0))
    assert shares["labels"] > 0.05
    assert shares["fit"] < 0.95
    own, _ = found(unit(m))
    assert torch.allclose(own, m)
    assert found(unit(m))[1]["labels"] < 1e-20
    # A fit without the terms of the label takes part of these for M.
    monkeypatch.setattr(score_map, "centred", without_labels)
    must_fail(check_m, full(1.0), m)


@pytest.mark.slow
@pytest.mark.parametrize(
    "edit", [edit for edit in EDITS if edit.family in ("width", "basis", "values")]
)
def test_other_weights_of_the_same_function_have_the_same_m(edit):
    model = unit(3 * square(3, 3))
    if edit.applies(model.cfg) is None:
        check_m(edit.apply(model, generator(0, "test")), 3 * square(3, 3))


def test_equal_weights_have_no_m_and_nothing_is_left_over():
    m, shares = found(unit(torch.zeros(3, 3).double()))
    assert float(m.abs().max()) < 1e-12
    assert shares["fit"] == 1.0


def test_a_layer_with_a_norm_has_an_m_in_part():
    cfg = HookedTransformerConfig(
        n_layers=1,
        d_model=16,
        n_ctx=41,
        d_in=4,
        positional_embedding_type="none",
        attention_dir="bidirectional",
        keys="labelled",
        init_std=1.0,
    )
    _, shares = found(HookedTransformer(cfg, seed=0).double())
    assert 0 < shares["fit"] < 0.99
    assert shares["fit"] <= shares["fit of all terms"] < 1 - 1e-6


def check_fit(model, by_function):
    """By function, M leaves as much of the scores as least squares over all of them has left."""
    share, whole = fit_of(by_function), numbers_in(bench(model).measure(scores))["fit"]
    assert share.value == pytest.approx(whole, abs=1e-9)
    assert share.low <= share.value <= share.high


@pytest.mark.slow
def test_the_share_that_m_explains_has_an_interval():
    mixed, plain, equal = full(1.0), unit(3 * square(3, 3)), unit(torch.zeros(3, 3).double())
    found = {model: bench(model).measure(scores_by_function) for model in (mixed, plain, equal)}
    for model, by_function in found.items():
        check_fit(model, by_function)
    must_fail(check_fit, mixed, found[plain])
    share = fit_of(found[mixed])
    assert 0.01 < share.high - share.low < 0.5


def test_whitened_scores_are_those_of_the_whitened_inputs():
    m, lab = square(3, 3), bench(unit(square(3, 3)), TURNED)
    white = torch.from_numpy(lab.measure(kernel).sel(matrix="whitened").values)
    xs = TURNED.sample(16, generator(0, "test"), dtype=torch.float64).xs
    us = xs @ TURNED.whitening
    plain, turned = (
        torch.einsum("bid,de,be->bi", x, a, x[:, -1]) for x, a in ((xs, m), (us, white))
    )
    assert torch.allclose(plain, turned)
    assert not torch.allclose(plain, torch.einsum("bid,de,be->bi", us, m, us[:, -1]))
    assert torch.allclose(sigma_of(TURNED), torch.tensor(ROWS).double())


# ---- whom the claims are about -------------------------------------------------------------------

UNIT = dict(
    n_layers=1,
    d_model=4,
    d_head=4,
    d_in=4,
    n_ctx=41,
    n_heads=1,
    attn_only=True,
    normalization_type=None,
    positional_embedding_type="none",
    use_attn_scale=False,
    attention_dir="bidirectional",
    keys="labelled",
    unit="M",
)


def known(task: Task = RELU, encoding="stacked", **config):
    free = {"unit": None} if config else {}
    return changed(facts(task=task, config={**UNIT, **free, **config}), encoding=encoding)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (known(), None),
        (known(task=AFFINE), "about models of a RidgeFunction task"),
        (known(n_layers=2), "2 layers"),
        (known(n_heads=2), "2 heads"),
        (known(keys=None), "the query among its keys"),
        (known(score_fn="linear"), "linear scores"),
        (known(encoding="interleaved"), "stacked prompts"),
        (known(normalization_type="LN"), None),
    ],
)
def test_who_has_a_window(asked, reason):
    said = needs_unit(asked)
    assert said is None if reason is None else reason in said


@pytest.mark.parametrize(
    ("task", "sphere", "every"),
    [
        (RELU, None, None),
        (TURNED, None, None),
        (FEW, None, "2 of them"),
        (replace(TURNED, sigma=(1.0, 1.0, 1.0)), "not the covariance", "not the covariance"),
        (replace(TURNED, sigma=ROWS), None, None),
    ],
)
def test_which_laws_the_lemma_is_about(task, sphere, every):
    for needs, reason in ((needs_sphere, sphere), (needs_all_directions, every)):
        said = needs(known(task=task))
        assert said is None if reason is None else reason in said


def test_a_given_sigma_is_compared_with_that_of_the_inputs():
    assert reads_whitened(replace(RELU, sigma=(1.0, 1.0, 1.0)))
    assert not reads_whitened(replace(RELU, sigma=(1.0, 1.0, 1.1)))
    assert not reads_whitened(replace(RELU, inputs=Sphere(3, 2.0), sigma=(1.0, 1.0, 1.0)))
    assert not reads_whitened(
        replace(RELU, inputs=Ellipsoid((2.0, 1.0, 1.0)), sigma=(1.0, 2.0, 1.0))
    )


def test_the_class_is_the_tasks():
    cosine = replace(RELU, link="phased_cosine", frequency=7.0)
    assert (functions_of(cosine).omega, functions_of(cosine).lipschitz) == (7.0, 2.0)
