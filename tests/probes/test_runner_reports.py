"""A report's numbers equal those of `icl_interp.probe` on the report's prompts."""

import copy
import functools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from small_models import TASK, make

import icl_interp
from icl_interp.analyses import Bench
from icl_interp.analyses.claim import MIN_UNITS
from icl_interp.interventions import FreezeNorms
from icl_interp.probes.attention import AttentionEntropy
from icl_interp.probes.heads import HeadOrthogonality
from icl_interp.probes.norms import LayerNormScale
from icl_interp.probes.reading import Reading
from icl_interp.probes.residual import LogitLens
from icl_interp.studies.limits.measurements.lens import N_SHOWN

CLAIMS = (
    "limits.last_layer",
    "limits.layernorm_saturation",
    "limits.layernorm_causes_saturation",
    "limits.softmax_hardmax",
    "limits.softmax_uniform",
    "heads.orthogonality",
)
N_PROMPTS = 8 * MIN_UNITS
FAR = {"dtype": torch.float64}


@functools.cache
def results():
    """Of a small model; 32 pairs of functions of 4 contexts each."""
    report = icl_interp.analyze(
        make().float(), task=TASK, claims=CLAIMS, n_prompts=N_PROMPTS, seed=0, progress=False
    )
    return report.results


def bench(seed: int) -> Bench:
    """Whose prompts are those of a report of this seed."""
    return Bench.of(make().float(), TASK, n_prompts=N_PROMPTS, seed=seed)


def probed(probe, name, prompts, xs=None, settings=None, move=0.0, model=None):
    """One result of a probe of the model as it is given, in float32 or in a float64 copy."""
    queries = {} if xs is None else {"queries": [float(x) + move for x in xs]}
    return icl_interp.probe(
        model or make().float(), prompts, [probe], **queries, **(settings or {})
    )[name]


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
    found = probed(
        scale, "layernorm_scale.scale", bench(seed).prompts, shown.indexes["x"], settings, move
    )
    return shown.values, np.log(found.values).mean(-1)


def softmax_delta(seed=0, settings=FAR, move=0.0):
    """The distance of patterns to their hardmax as the query grows: `heads/delta`."""
    shown = results()["heads/delta"].sel(statistic="delta")
    found = probed(
        AttentionEntropy(),
        "attention_entropy.delta",
        bench(seed).prompts,
        shown.indexes["x"],
        settings,
        move,
    )
    return shown.values, found.sel(statistic="mean").values.reshape(6, -1)


def softmax_entropy(seed=0, settings=FAR, move=0.0):
    """The entropy deficit of each head and unit in distribution: `heads/deficit`."""
    shown, lab = results()["heads/deficit"].sel(n="trained"), bench(seed)
    entropy = AttentionEntropy(per_prompt=True)
    found = probed(entropy, "attention_entropy.deficit", lab.prompts, lab.inner, settings, move)
    return shown.values, found.values.reshape(6, 2, 32, 8).mean((1, 3))


def head_orthogonality(seed=0, settings=FAR, move=0.0):
    """Cosines of head pairs, their values by chance, and inner products: `heads/overlap`.

    Inner products are given by unit.
    """
    shown, lab = results()["heads/overlap"], bench(seed)
    model = make().float()
    with torch.no_grad():
        model.blocks[0].attn.W_O[0] *= (
            1 + move
        )  # there is no query to move: a head that writes more
    read, _ = lab.encoding.read_at(lab.few.n_points, model.cfg.attention_dir)
    reading = Reading.measure(copy.deepcopy(model).double(), lab.tokens(lab.few), read, seed)
    probe = HeadOrthogonality(angles=False, per_prompt=True, reading=reading)
    whole = icl_interp.probe(model, lab.few, [probe], **settings)
    found = {name.removeprefix("head_orthogonality."): values for name, values in whole.items()}
    rows = []
    for pair in shown.indexes["pair"]:
        (layer, head), (_, other) = (map(int, one.split(".")) for one in pair.split(" ~ "))
        at = {"layer": layer, "head": head, "other": other}
        of_weights = [found[name].sel(**at) for name in ("ov_cosine", "qk_cosine")]
        of_outputs = [
            found[name].sel(**at, position="all") for name in ("output_cosine", "output_chance")
        ]
        counted = (
            float(found["distinct"].sel(layer=layer, head=head, position="all"))
            if head == other
            else math.nan
        )
        of_layer = [float(found["directions"].sel(layer=layer, position="all")), counted]
        by_unit = found["output_inner"].sel(**at).values.reshape(MIN_UNITS, 2).mean(1)
        rows.append([*(abs(float(one)) for one in (*of_weights, *of_outputs)), *of_layer, *by_unit])
    # No pair of two heads counts as one of them: NaN, in both.
    return np.nan_to_num(shown.values, nan=-9), np.nan_to_num(rows, nan=-9)


def last_layer(seed=0, settings=FAR, move=0.0):
    """Distance of the logit lens after each block from the prediction, by unit: `layers/lens`."""
    shown, lab = results()["layers/lens"].sel(lens="logit", statistic="residual"), bench(seed)
    lens, prompts = LogitLens(per_prompt=True), lab.functions("layers/prompts")
    moved = replace(prompts, xs=prompts.xs + move)
    found = icl_interp.probe(make().float(), moved, [lens], **settings)["logit_lens.prediction"]
    read = found.sel(position="query", target=0).values
    return shown.values, np.square(read - read[-1]).reshape(len(read), MIN_UNITS, -1).mean(-1)


def frozen_norms(seed=0, settings=FAR, move=0.0):
    """The far prediction with every norm's usual scale at the query: `far/norm arms`."""
    shown, lab = results()["far/norm arms"].sel(arm="frozen", statistic="mean"), bench(seed)
    model = make().float()
    frozen = FreezeNorms.measure(copy.deepcopy(model).double(), lab.tokens(lab.few))
    queries, lens = [float(x) + move for x in shown.indexes["x"]], LogitLens(per_prompt=True)
    found = icl_interp.probe(
        model, lab.prompts, [lens], queries=queries, query=[frozen], **settings
    )
    last = found["logit_lens.prediction"].sel(target=0).values[-1]
    return shown.values, last.reshape(len(queries), MIN_UNITS, -1).mean(-1).T


FAMILIES = {
    "head orthogonality": head_orthogonality,
    "last layer": last_layer,
    "frozen norms": frozen_norms,
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


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_probe_gives_the_numbers_of_a_report(family):
    check(family)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_another_sample_precision_or_query_gives_others(family):
    for change in ({"seed": 1}, {"settings": {}}, {"move": 0.5}):
        must_fail(check, family, **change)
