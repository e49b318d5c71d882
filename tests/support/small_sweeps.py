"""Sweeps of every kind over small models: requests of the tests, and their expected results."""

import copy
import functools
from dataclasses import replace

import numpy as np
import torch
from small_models import TASK, encoding_of, freeze, make, tokens_for

from icl_interp.interventions.attention import AblateHeads, SwapPattern, Temperature
from icl_interp.interventions.base import At, intervene
from icl_interp.models.hooks import token_axis
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.attention import AttentionEntropy, AttentionTargets
from icl_interp.probes.base import Probe, observe
from icl_interp.probes.heads import HeadOrthogonality
from icl_interp.probes.norms import LayerNormScale
from icl_interp.probes.record import Activations
from icl_interp.probes.residual import LogitLens, ResidualStream
from icl_interp.probes.sweep import Sweep, places
from icl_interp.provenance import generator

# Angles of nearly equal directions, and the ratio of variances that are nearly rounding; cosines of
# small differences.
ILL_CONDITIONED, LOOSE = ("output_angles", "participation_ratio"), {"output_cosine": 1e-6}
A, B = (
    TASK.sample(3, generator(i, "test/sweep"), n_contexts=3, dtype=torch.float64) for i in range(2)
)
XS = (-2.0, 0.8, 5.0)
NAMES = ("blocks.0.attn.hook_attn_scores", "blocks.1.attn.hook_z", "blocks.1.hook_resid_post")
MODELS = ("pre", "post", "bidirectional")
STACKED, LABELLED = "pre, stacked", "bidirectional, keys are the labelled examples"
# In the last the context is read once for each length, though its tokens see one another both ways.
SPECIAL = {
    STACKED: ("pre", {"d_in": 2}),
    LABELLED: ("bidirectional", {"d_in": 2, "keys": "labelled"}),
}


def model_of(name: str) -> HookedTransformer:
    base, settings = SPECIAL.get(name, (name, {}))
    return make(base, **settings)


def at(xs, prompts=A, **settings) -> Sweep:
    """The last query at each of some x, for all prompts alike; at each prompt's own without any."""
    if xs is None:
        return Sweep(prompts, prompts.xs[:, -1:], ("query",), **settings)
    return Sweep(prompts, places(xs, 1), xs, **settings)


def sweeps(model: HookedTransformer) -> dict[str, Sweep]:
    """Of all that can be asked, several of each, over the same contexts and over others."""
    kinds = encoding_of(model).kinds(A.n_points)
    frozen, uniform, hot = freeze(model), SwapPattern("uniform"), Temperature(3.0)
    two = A.xs[:, :2] * 3  # two places of each prompt's own
    every = (
        *(ResidualStream(), LogitLens(), LayerNormScale(), AttentionEntropy(), HeadOrthogonality()),
        *(
            AttentionEntropy(per_prompt=True, keys=(1, 2, 5)),
            AttentionTargets(kinds),
            Activations(NAMES),
        ),
    )
    lens, scale = LogitLens(per_prompt=True), LayerNormScale(per_prompt=True)
    return {
        "nothing read": at(XS),
        "every probe": at(XS, probes=every),
        "places in another order": at(
            (5.0, 0.3, -2.0), probes=(AttentionEntropy(per_prompt=True), copy.copy(lens))
        ),
        "own query": at(None, probes=(copy.copy(lens), copy.copy(scale))),
        "two own queries": Sweep(
            A, two, ("a", "b"), probes=(Activations(NAMES), AttentionEntropy())
        ),
        "edited query": at(
            XS, query=(uniform, frozen.at_query()), probes=(copy.copy(lens), AttentionEntropy())
        ),
        "the same edit": at((-2.0, 2.0), query=(uniform,), probes=(Activations(NAMES),)),
        "edited context": at(XS, context=(frozen,), probes=(ResidualStream(), copy.copy(scale))),
        "own query, edited context": at(None, context=(hot,), probes=(copy.copy(lens),)),
        "both edited": at(
            XS, context=(hot,), query=(AblateHeads.zero((0, 1)),), probes=(copy.copy(lens),)
        ),
        "edited late": at(XS, query=(AblateHeads.zero((1, 0)),)),
        "edited late elsewhere": at((0.1, 0.2, 0.3), query=(AblateHeads.zero((1, 0)),)),
        "edited late, two": Sweep(A, -two, ("a", "b"), query=(AblateHeads.zero((1, 0)),)),
        "edited early": at(XS, query=(AblateHeads.zero((0, 0)),)),
        "edited late otherwise": at(XS, query=(AblateHeads.zero((1, 1)),)),
        "edited late, own queries": Sweep(A, two, ("a", "b"), query=(AblateHeads.zero((1, 0)),)),
        "edited late, shorter": at(XS, n_points=4, query=(AblateHeads.zero((1, 1)),)),
        "other contexts": at(XS, B, probes=(copy.copy(lens), HeadOrthogonality())),
        "shorter": at(XS, n_points=4, probes=(Activations(NAMES), LayerNormScale())),
        "shorter, own queries": Sweep(
            A, two, ("a", "b"), n_points=5, query=(hot,), probes=(copy.copy(lens), copy.copy(scale))
        ),
    }


def whole(model: HookedTransformer, s: Sweep, probes: list[tuple[Probe, ...]]) -> torch.Tensor:
    """Every place as a whole prompt, whose last token the probes read: `(batch, point, target)`.

    `probes[k]` are those for place k.
    """
    encoding, shown = encoding_of(model), s.prompts.first(s.n_points or s.prompts.n_points)
    n, out = encoding.n_tokens(shown.n_points), []
    edits = [At(tuple(range(n - 1)), i) for i in s.context] + [At((n - 1,), i) for i in s.query]
    for k, label in enumerate(s.labels):
        xs = shown.xs.clone()
        xs[:, -1] = s.queries[k] if s.queries.ndim == 2 else s.queries[:, k]
        with (
            torch.no_grad(),
            intervene(model, *edits),
            observe(model, *probes[k], positions={label: [n - 1]}),
        ):
            out.append(model(tokens_for(model, replace(shown, xs=xs)))[:, -1])
    return torch.stack(out, 1)


@functools.cache
def expected_of(name: str, case: str) -> tuple[torch.Tensor, list[tuple[Probe, ...]]]:
    """The results of whole prompts for a case of `sweeps`.

    They are predictions, and for each place the probes that read there.
    """
    model = model_of(name)
    s = sweeps(model)[case]
    probes = [copy.deepcopy(s.probes) for _ in s.labels]
    return whole(model, s, probes), probes


def close(found, expected, case, tolerance=1e-10):
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=str(case))


def check_probe(p: Probe, expected: list[Probe], labels, case):
    for k, label in enumerate(labels):
        if isinstance(p, Activations):
            for name, t in p.recorded.items():
                axis = token_axis(name)
                close(t.select(axis, k), expected[k].recorded[name].select(axis, 0), (case, name))
            continue
        others = expected[k].results()
        for name, result in p.results().items():
            if "position" in result.dims and name not in ILL_CONDITIONED:
                at_label = (r.sel(position=label).values for r in (result, others[name]))
                close(*at_label, (case, p.name, name, label), LOOSE.get(name, 1e-10))


def check_sweeps(name: str, run_all, cases=None):
    """What everybody gets, predictions and readings, is what whole prompts give."""
    model = model_of(name)
    asked = {case: s for case, s in sweeps(model).items() if cases is None or case in cases}
    found = run_all(model, encoding_of(model), list(asked.values()))
    for (case, s), f in zip(asked.items(), found, strict=True):
        predictions, probes = expected_of(name, case)
        if f.shape != predictions.shape:
            raise ValueError(
                f"{case}: predictions of shape {tuple(f.shape)}, not {tuple(predictions.shape)}"
            )
        close(f, predictions, case)
        for i, p in enumerate(s.probes):
            check_probe(p, [at_place[i] for at_place in probes], s.labels, case)
