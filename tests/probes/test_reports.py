"""A report's numbers are the probes' numbers: `icl_interp.probe` on a report's prompts gives what the report shows."""

import functools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from helpers import must_fail
from small_models import TASK, make

import icl_interp
from icl_interp.analyses.lab import Lab
from icl_interp.models.tokens import Interleaved
from icl_interp.probes.attention import AttentionEntropy
from icl_interp.probes.heads import HeadOrthogonality
from icl_interp.probes.norms import LayerNormScale
from icl_interp.probes.residual import LogitLens
from icl_interp.studies.limits.claims.layers import N_SHOWN

CLAIMS = (
    *("limits.last_layer", "limits.layernorm_saturation", "limits.softmax_hardmax", "limits.softmax_uniform"),
    "heads.orthogonality",
)
FAR = {"dtype": torch.float64}


@functools.cache
def results():
    """Of a small model; 16 functions of 16 contexts."""
    report = icl_interp.analyze(make().float(), task=TASK, claims=CLAIMS, n_prompts=256, seed=0, progress=False)
    return report.results


def bench(seed: int) -> Lab:
    """Whose prompts are those of a report of this seed."""
    return Lab(make().float(), TASK, Interleaved(), n_functions=16, n_contexts=16, seed=seed)


def probed(probe, name, prompts, xs=None, settings=None, move=0.0, model=None):
    """One result of a probe of the model as it is given, in float32 or in a float64 copy."""
    queries = {} if xs is None else {"queries": [float(x) + move for x in xs]}
    return icl_interp.probe(model or make().float(), prompts, [probe], **queries, **(settings or {}))[name]


# Each: what the report shows, and the same from the probe, given a seed and how to probe.


def residual_stream(seed=0, settings=FAR, move=0.0):
    """The logit lens after each block along x, for a few contexts: `layers/curves`."""
    shown = results()["layers/curves"]
    few = bench(seed).prompts[torch.arange(N_SHOWN) * 16]
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
    """The entropy deficit of each head and function in distribution: `heads/deficit`."""
    shown, lab = results()["heads/deficit"].sel(n="trained"), bench(seed)
    entropy = AttentionEntropy(per_prompt=True)
    found = probed(entropy, "attention_entropy.deficit", lab.prompts, lab.inner, settings, move)
    by_function = found.values.reshape(6, 2, 16, 16).mean((1, 3))
    return shown.values, by_function


def overlap(of: str, name: str) -> Callable:
    """How alike each two heads of a layer are: `heads/overlap`."""

    def both(seed=0, settings=FAR, move=0.0, model=None):
        shown = results()["heads/overlap"].sel(map=of)
        prompts = bench(seed).small_sample
        if move:  # another query in each prompt
            prompts.xs[:, -1] += move
        found = probed(HeadOrthogonality(), f"head_orthogonality.{name}", prompts, settings=settings, model=model)
        found = found.sel(position="all") if "position" in found.dims else found
        pairs = [pair for pair in shown.indexes["pair"] if "~" in pair]
        values = []
        for pair in pairs:
            (layer, a), (_, b) = (map(int, head.split(".")) for head in pair.split(" ~ "))
            values.append(abs(found.sel(layer=layer, head=a, other=b).item()))
        return shown.sel(pair=pairs).values, np.array(values)

    return both


FAMILIES = {
    "logit lens": residual_stream,
    "norm scales": layernorm_scale,
    "delta": softmax_delta,
    "entropy deficit": softmax_entropy,
    "overlap of OV": overlap("OV", "ov_cosine"),
    "overlap of QK": overlap("QK", "qk_cosine"),
    "overlap of outputs": overlap("outputs", "output_cosine"),
}


def check(family, **change):
    shown, found = FAMILIES[family](**change)
    assert shown.shape == found.shape
    assert np.isfinite(shown).all()
    np.testing.assert_allclose(found, shown, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_probe_gives_the_numbers_of_a_report(family):
    check(family)


# Overlaps of maps are those of the weights, whatever the prompts.
OF_WEIGHTS = ("overlap of OV", "overlap of QK")


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in OF_WEIGHTS])
def test_another_sample_precision_or_query_gives_others(family):
    for change in ({"seed": 1}, {"settings": {}}, {"move": 0.5}):
        must_fail(check, family, **change)


@pytest.mark.parametrize("family", OF_WEIGHTS)
def test_other_weights_have_other_overlaps(family):
    other = make().float()
    with torch.no_grad():
        for name in ("W_V", "W_Q"):
            getattr(other.blocks[1].attn, name).copy_(getattr(other.blocks[0].attn, name))
    must_fail(check, family, model=other)
