"""A report's numbers are the probes' numbers: `icl_interp.probe` on a report's prompts gives what the report shows."""

import functools

import numpy as np
import pytest
import torch
from helpers import must_fail
from small_models import TASK, make

import icl_interp
from icl_interp.analyses.lab import Lab
from icl_interp.models.tokens import Interleaved
from icl_interp.probes.attention import AttentionEntropy
from icl_interp.probes.norms import LayerNormScale
from icl_interp.probes.residual import LogitLens
from icl_interp.studies.limits.claims.layers import N_SHOWN

CLAIMS = ("limits.last_layer", "limits.layernorm_saturation", "limits.softmax_hardmax", "limits.softmax_uniform")
FAR = {"dtype": torch.float64}


@functools.cache
def results():
    """Of a small model; 32 pairs of functions of 4 contexts each."""
    report = icl_interp.analyze(make().float(), task=TASK, claims=CLAIMS, n_prompts=256, seed=0, progress=False)
    return report.results


def bench(seed: int) -> Lab:
    """Whose prompts are those of a report of this seed."""
    return Lab(make().float(), TASK, Interleaved(), n_units=32, n_contexts=4, seed=seed)


def probed(probe, name, prompts, xs=None, settings=None, move=0.0, model=None):
    """One result of a probe of the model as it is given, in float32 or in a float64 copy."""
    queries = {} if xs is None else {"queries": [float(x) + move for x in xs]}
    return icl_interp.probe(model or make().float(), prompts, [probe], **queries, **(settings or {}))[name]


# Each: what the report shows, and the same from the probe, given a seed and how to probe.


def residual_stream(seed=0, settings=FAR, move=0.0):
    """The logit lens after each block along x, for a few contexts: `layers/curves`."""
    shown = results()["layers/curves"]
    few = bench(seed).prompts[torch.arange(N_SHOWN) * 8]
    lens, xs = LogitLens(per_prompt=True), shown.indexes["x"]
    found = probed(lens, "logit_lens.prediction", few, xs, settings, move).sel(target=0)
    depths = [what for what in shown.indexes["what"] if what.startswith("depth")]
    return shown.sel(what=depths).values, np.moveaxis(found.values, -1, 0)


def layernorm_scale(seed=0, settings=FAR, move=0.0):
    """The mean log scale of every norm as the query grows: `far/norm scales`."""
    shown, scale = results()["far/norm scales"], LayerNormScale(per_prompt=True)
    found = probed(scale, "layernorm_scale.scale", bench(seed).prompts, shown.indexes["x"], settings, move)
    return shown.values, np.log(found.values).mean(-1)


def softmax_delta(seed=0, settings=FAR, move=0.0):
    """The distance of patterns to their hardmax as the query grows: `heads/delta`."""
    shown = results()["heads/delta"].sel(statistic="delta")
    found = probed(
        AttentionEntropy(), "attention_entropy.delta", bench(seed).prompts, shown.indexes["x"], settings, move
    )
    return shown.values, found.sel(statistic="mean").values.reshape(6, -1)


def softmax_entropy(seed=0, settings=FAR, move=0.0):
    """The entropy deficit of each head and unit in distribution: `heads/deficit`."""
    shown, lab = results()["heads/deficit"].sel(n="trained"), bench(seed)
    entropy = AttentionEntropy(per_prompt=True)
    found = probed(entropy, "attention_entropy.deficit", lab.prompts, lab.inner, settings, move)
    return shown.values, found.values.reshape(6, 2, 32, 8).mean((1, 3))


FAMILIES = {
    "logit lens": residual_stream,
    "norm scales": layernorm_scale,
    "delta": softmax_delta,
    "entropy deficit": softmax_entropy,
}


def check(family, **change):
    shown, found = FAMILIES[family](**change)
    assert shown.shape == found.shape
    assert np.isfinite(shown).all()
    np.testing.assert_allclose(found, shown, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_probe_gives_the_numbers_of_a_report(family):
    check(family)


@pytest.mark.parametrize("family", FAMILIES)
def test_another_sample_precision_or_query_gives_others(family):
    for change in ({"seed": 1}, {"settings": {}}, {"move": 0.5}):
        must_fail(check, family, **change)
