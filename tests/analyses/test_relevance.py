"""Which heads matter: the rise of the error by brute force, and intervals on made-up rises."""

import math

import numpy as np
import torch
from known import facts
from small_models import small_lab

from icl_interp.analyses.measurement import Results
from icl_interp.analyses.relevance import relevance, relevant
from icl_interp.interventions.attention import SwapPattern
from icl_interp.resampling import simultaneous
from icl_interp.results import make_array


def test_relevance_is_the_rise_of_the_error():
    lab = small_lab()
    result = relevance(lab)
    assert tuple(result.indexes["head"]) == ("0.0", "0.1", "0.2", "1.0", "1.1", "1.2")
    out, truth = lab.predictions()
    edited, _ = lab.predictions(SwapPattern("uniform", ((1, 2),)))
    rise = ((edited - truth) ** 2 - (out - truth) ** 2).mean((1, 2)).view(4, 2).mean(1)
    assert np.allclose(result.sel(head="1.2", intervention="uniform", statistic="rise").values, rise, rtol=1e-6)
    moved = ((edited - out) ** 2).mean((1, 2)).view(4, 2).mean(1) / out.var()
    assert np.allclose(result.sel(head="1.2", intervention="uniform", statistic="movement").values, moved, rtol=1e-6)


def test_a_head_that_is_not_read_is_not_relevant():
    """Neither where errors decide nor, in a model that learned nothing, where movements do."""
    lab = small_lab()
    with torch.no_grad():
        for model in (lab.model, lab.single):
            model.blocks[1].attn.W_O[2] = 0
    results = Results({"heads/relevance": relevance(lab)})
    assert "1.2" not in relevant(results, facts(r2=0.0))
    assert "1.1" in relevant(results, facts(r2=0.0))
    assert "1.2" not in relevant(results, facts(r2=0.99))


def stored(rise):
    """Rises of an error of 5, over heads, interventions and functions, as the measurement stores them."""
    axes = {
        "head": tuple(f"0.{h}" for h in range(12)),
        "intervention": ("uniform", "mean ablation"),
        "statistic": ("rise", "movement", "intact"),
        "function": tuple(range(40)),
    }
    values = np.stack([rise, np.zeros_like(rise), np.full_like(rise, 5.0)], 2)
    return Results({"heads/relevance": make_array(values, axes)})


def test_a_head_that_matters_a_lot_to_a_few_functions_is_relevant():
    """A symmetric interval around the mean of heavy tails reaches below 0; the one on the logarithm does not."""
    rise = np.random.default_rng(1).normal(size=(12, 2, 40)) * 0.01
    rise[4] = 5.0
    rise[4, :, :4] = 1e4
    assert "0.4" in relevant(stored(rise), facts())
    _, low, _ = simultaneous(lambda mean: mean, rise.reshape(24, 40).T)
    assert low[8] < 0  # what the symmetric interval says


def test_relevance_needs_an_interval_above_zero():
    """Of 12 heads that only add noise of either sign, all together pass in 5 % of data sets, not each in 5 %."""
    rng = np.random.default_rng(0)
    hits = sum(bool(relevant(stored(rng.normal(size=(12, 2, 40))), facts())) for _ in range(60))
    assert hits <= 60 * (0.05 + 4 * math.sqrt(0.05 * 0.95 / 60))
    sure = rng.normal(size=(12, 2, 40)) + 3 * (np.arange(12) == 4)[:, None, None]
    assert relevant(stored(sure), facts()) == ["0.4"]
