"""Probes at alternative queries under interventions, against whole prompts with each query."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from small_models import TASK, encoding_of, make

from icl_interp.errors import InputError
from icl_interp.interventions import (
    AblateHeads,
    At,
    FreezeNorms,
    MeanOutputs,
    SwapPattern,
    Temperature,
    sublayers,
)
from icl_interp.interventions.base import intervene
from icl_interp.probes import AttentionEntropy, LayerNormScale, LogitLens, ResidualStream, probe
from icl_interp.provenance import generator

PROMPTS = TASK.sample(24, generator(0, "test/prompts"), dtype=torch.float64)
XS = (0.3, -2.0, 50.0)
NAMES = (
    "logit_lens.prediction",
    "layernorm_scale.scale",
    "attention_entropy.entropy",
    "residual_stream.norm",
)


def frozen(model):
    return FreezeNorms.measure(model, encoding_of(model).encode(PROMPTS))


def mean_outputs(model):
    return MeanOutputs.measure(model, encoding_of(model).encode(PROMPTS), sublayers(model, "mlp"))


def mean_heads(model):
    return AblateHeads.measure(model, encoding_of(model).encode(PROMPTS), (0, 1), (1, 0))


EDITS = {
    "frozen norms": frozen,
    "mean outputs": mean_outputs,
    "mean heads": mean_heads,
    "uniform": lambda model: SwapPattern("uniform", ((0, 0), (1, 2))),
    "at the last token": lambda model: At((-1,), frozen(model)),
}


def probes():
    return [LogitLens(), LayerNormScale(), AttentionEntropy(), ResidualStream()]


def whole(model, x, edits):
    """The same results of prompts whose last input is x, read at their last token."""
    xs = PROMPTS.xs.clone()
    xs[:, -1] = x
    with intervene(model, *edits):
        return probe(model, replace(PROMPTS, xs=xs), probes())


def check(model, query, context=(), queries=None):
    """`query` is what acts on the last token only, `context` what acts on those before."""
    found = probe(
        model,
        PROMPTS,
        probes(),
        queries=XS,
        query=query if queries is None else queries,
        context=context,
    )
    n = encoding_of(model).n_tokens(PROMPTS.n_points)
    for x in XS:
        edits = [At(tuple(range(n - 1)), one) for one in context] + [
            At((n - 1,), one) for one in query
        ]
        expected = whole(model, x, edits)
        for name in NAMES:
            a, b = found[name].sel(position=x), expected[name].sel(position="query")
            np.testing.assert_allclose(
                a.values, b.values, rtol=1e-8, atol=1e-9, err_msg=f"{name} at {x}"
            )


@pytest.mark.slow
@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("name", ["pre", "post", "bidirectional"])
def test_queries_under_an_intervention_are_those_of_whole_prompts(name, edit):
    model = make(name)
    one = EDITS[edit](model)
    alone = one.inner if isinstance(one, At) else one
    check(model, [alone], queries=[one])
    must_fail(check, model, [alone], queries=[])


def test_context_and_query_may_be_edited_apart():
    model = make()
    check(model, [frozen(model)], [Temperature(0.5)])
    must_fail(check, model, [frozen(model)], [Temperature(0.5)], queries=[Temperature(0.5)])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda m: probe(m, PROMPTS, context=[Temperature(2.0)]),
            "context= and query= are for queries=",
        ),
        (lambda m: probe(m, PROMPTS, queries=np.zeros((1, 2))), "queries must be numbers"),
        (
            lambda m: probe(m, PROMPTS, queries=XS, query=[At((3,), frozen(m))]),
            "but this acts at positions",
        ),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call(make())


def test_queries_inside_an_intervention_are_refused():
    """Each query would be taken for a context token and get the value kept for a first position."""
    model = make()
    with intervene(model, frozen(model)), pytest.raises(InputError, match=r"query=\[...\]"):
        probe(model, PROMPTS, queries=XS)
    assert torch.isfinite(
        torch.as_tensor(probe(model, PROMPTS, queries=XS)["logit_lens.prediction"].values)
    ).all()
