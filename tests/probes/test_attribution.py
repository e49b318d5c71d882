"""Direct attribution against a second route: each part's write, added up by hand from the cache."""

import numpy as np
import pytest
import torch
from architectures import ARCHITECTURES, model_of, tokens_of
from attribution_by_hand import by_hand, covariances, shares_of
from helpers import must_fail

from icl_interp.errors import InputError
from icl_interp.interventions import AblateHeads, intervene
from icl_interp.probes.attribution import DirectAttribution, directions
from icl_interp.probes.runner import probe

POST = [name for name in ARCHITECTURES if "post" in name or "around" in name]
REFUSED = {*POST, "Tanh", "norm on outputs"}
CONSTANT = "one coordinate"  # which a norm takes away
SERVED = [name for name in ARCHITECTURES if name not in {*REFUSED, CONSTANT}]


@pytest.mark.parametrize("name", SERVED)
def test_shares_are_covariances_with_the_prediction_and_add_up_to_one(name):
    model, tokens = model_of(name), tokens_of(name)
    parts, prediction = by_hand(model, tokens)
    found = shares_of(model, tokens)

    def check(whole):
        np.testing.assert_allclose(found[:-1], covariances(parts, whole), rtol=1e-9, atol=1e-11)

    check(prediction)
    if hasattr(model, "ln_final") and not model.cfg.mlp_only:
        must_fail(check, parts.sum(1))  # biases of attention, over a scale that varies
    np.testing.assert_allclose(found.sum(0), 1, rtol=1e-9)
    must_fail(np.testing.assert_allclose, found[1:].sum(0), 1, rtol=1e-9)


@pytest.mark.parametrize("name", SERVED)
def test_directions_and_scale_give_the_prediction_up_to_the_biases(name):
    model, tokens = model_of(name), tokens_of(name)
    out, cache = model.run_with_cache(tokens)
    last = cache[f"blocks.{model.cfg.n_layers - 1}.hook_resid_post"].double()
    scale = cache["ln_final.hook_scale"].double() if "ln_final.hook_scale" in cache else 1.0
    norm = getattr(model, "ln_final", None)
    bias = model.b_U if norm is None or norm.b is None else model.b_U + norm.b @ model.W_U

    def equal(matrix):
        torch.testing.assert_close(
            last @ matrix / scale + bias.double(), out.double(), rtol=1e-9, atol=1e-9
        )

    equal(directions(model))
    must_fail(equal, 1.01 * directions(model))


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_prediction_that_is_no_sum_of_parts_is_refused(name):
    with pytest.raises(
        InputError,
        match=r"direct_attribution: a ((post|both)-norm model's stream|tanh|norm on what)",
    ):
        probe(model_of(name), tokens_of(name), [DirectAttribution()])


def test_where_the_prediction_does_not_vary_there_are_no_shares():
    assert np.isnan(shares_of(model_of(CONSTANT), tokens_of(CONSTANT))).all()


def test_the_probe_changes_nothing_and_sees_what_interventions_leave():
    model, tokens = model_of("pre"), tokens_of("pre")
    with torch.no_grad():
        before = model(tokens)
        shares = probe(model, tokens, [DirectAttribution()])
        assert torch.equal(model(tokens), before)
        with intervene(model, AblateHeads(((0, 0),), {})):
            ablated = probe(model, tokens, [DirectAttribution()])
    head = "direct_attribution.head"
    assert float(abs(ablated[head].sel(layer=0, head=0)).max()) == 0
    assert float(abs(shares[head].sel(layer=0, head=0)).max()) > 0


def test_shares_do_not_depend_on_how_a_stream_is_cut():
    model, tokens = model_of("pre"), tokens_of("pre")
    whole, pieces = (probe(model, tokens, [DirectAttribution()], batch_size=n) for n in (64, 3))
    for name, result in whole.items():
        np.testing.assert_allclose(pieces[name].values, result.values, rtol=1e-9, atol=1e-12)
