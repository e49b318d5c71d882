"""Appendix G.1 on a trained layer: the layer is the model's, and readings are mixtures.

What is said follows from the readings.
"""

import numpy as np
import pytest
import small_models
import torch
from helpers import must_fail

from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.experiments import presets
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import COUNTED, HOLDS, MISPRINT, UNSETTLED
from icl_interp.models.tokens import Interleaved
from icl_interp.results import make_curve, make_table
from icl_interp.studies.limits.experiments import appendix_g as g
from icl_interp.theory import limits as theory

MODEL = small_models.make("no norm")
CONTEXT = torch.tensor([0.9, -0.4, 0.3, -1.3, 0.0, 1.7], dtype=torch.float64)
XS = torch.tensor([40.0, -40.0], dtype=torch.float64)


def prompts(n=3):
    return torch.linspace(-2, 2, n * 7, dtype=torch.float64).cos().view(n, 7, 1)


def test_the_first_layer_writes_what_it_writes_in_the_model():
    name = "blocks.0.hook_attn_out"

    def check(layer):
        _, whole = MODEL.double().run_with_cache(prompts(), names_filter=[name])
        _, alone = layer.run_with_cache(prompts(), names_filter=[name])
        torch.testing.assert_close(alone[name], whole[name], atol=1e-12, rtol=1e-12)

    check(g.first_layer(MODEL))
    must_fail(check, g.bare_layer(MODEL))


def test_heads_of_the_bare_layer_read_mixtures_by_softmax():
    """Each alpha by hand from the weights, and the last one 0."""
    layer = g.bare_layer(MODEL)
    embed, attn = MODEL.embed.W_E[0].double(), MODEL.blocks[0].attn
    alphas = [
        float(((embed @ q) @ (embed @ k)).detach()) / attn.W_Q.shape[-1] ** 0.5
        for q, k in zip(attn.W_Q.double(), attn.W_K.double(), strict=True)
    ] + [0.0]

    def check(alphas):
        want = torch.stack([theory.context_mixture(XS, CONTEXT, alpha) for alpha in alphas], -1)
        torch.testing.assert_close(
            g.readings(layer, CONTEXT[None], XS)[0], want, atol=1e-9, rtol=1e-9
        )

    with torch.no_grad():
        check(alphas)
        must_fail(check, alphas[::-1])


def test_both_limits_are_what_stands_in_the_papers_and_in_the_formula():
    p, x = len(CONTEXT), XS[0]

    def check(alpha, exact, paper):
        torch.testing.assert_close(
            g.limits_of(alpha, CONTEXT, XS)[:, 0], torch.stack([exact, paper])
        )

    check(0.7, x, x)
    check(-0.7, CONTEXT.min(), CONTEXT[CONTEXT < 0].sum() / p + x)  # one token is 0
    check(0.0, (CONTEXT.sum() + x) / (p + 1), (CONTEXT.sum() + p * x) / (p + 1))
    must_fail(check, -0.7, CONTEXT.max(), CONTEXT[CONTEXT < 0].sum() / p + x)
    torch.testing.assert_close(g.limits_of(-0.7, CONTEXT, XS)[0, 1], CONTEXT.max())


def sentences(found):
    return [statement.sentence for statement in g.states(found)]


def gaps(**last):
    """sum -> (gap from the exact limit, gap from the paper's) at the largest x."""
    values = np.ones((len(g.SUMS), 2, 2))
    for i, name in enumerate(g.SUMS):
        values[i, :, -1] = last[name[:2]]
    return make_curve(values, {"sum": tuple(g.SUMS), "formula": g.FORMULAS, "x": (1.0, 1e4)})


def results(measured=2.0, **last):
    sums = make_table(
        {
            "sum": ["exponent of Var"],
            "x": [1e3],
            "heads": [5],
            "ours": [abs(measured - 2)],
            "printed": [abs(measured - 1)],
            "apart": [1.0],
        }
    )
    boundary = make_table(
        {
            "x": [1e6, -1e6],
            "paper": [0.3, -0.3],
            "exact limit": [0.2, -0.2],
            "measured": [0.2, -0.2],
        }
    )
    trained = make_table(
        {"x": [1e4], "attention": [1e-9], "output": [1e-9], "limit": [1e-3], "pattern": [0.0]}
    )
    return {"gaps": gaps(**last), "sums": sums, "boundary": boundary, "as trained": trained}


def test_each_sum_is_judged_by_its_own_limit():
    def check(said, *starts):
        for line, start in zip(said, starts, strict=False):
            assert line.startswith(start), line

    said = sentences(results(S1=(1e-9, 1e-9), S2=(1e-9, 1.0), S3=(0.5, 1.0)))
    assert "nothing here is evidence about trained models" in said[0]
    rest = (
        HOLDS + "S1",
        MISPRINT + "S2",
        UNSETTLED + "S3",
        MISPRINT + "the variance",
        HOLDS + "with a LayerNorm",
    )
    check(said[1:], *rest)
    must_fail(check, said[1:], HOLDS, HOLDS)
    assert not any(
        line.startswith(COUNTED) for line in said
    )  # algebra is no finding about trained models
    said = sentences(results(1.0, S1=(1e-9, 1.0), S2=(np.nan, np.nan), S3=(1e-9, 1e-9)))
    check(said[1:], MISPRINT, "No head", HOLDS, HOLDS + "the variance")


@pytest.mark.parametrize("measured", [2.001, 1.999, 1.5, 1.0, 0.8])
def test_the_exponent_is_read_back(measured):
    (row,) = g.compare(results(measured, S1=(0, 0), S2=(0, 0), S3=(0, 0))).to_dict("records")[:1]
    assert row["measured"] == pytest.approx(measured)


def test_the_whole_experiment_on_a_small_model():
    checkpoint = Checkpoint(
        small_models.make("no norm").float(),
        small_models.TASK,
        Interleaved(),
        RunConfig(MODEL.cfg, small_models.TASK),
    )
    found = g.run(Setup({g.MODEL: checkpoint}, presets.Preset("test", 7, 6, 3, "tiny")))
    assert {row["alpha"] == 0 for row in found["readings"].to_dict("records")[-2:]} == {True}
    assert len(g.compare(found)) == len(found["readings"]) + 2 + 2
    assert sentences(found)[3].startswith(
        MISPRINT
    )  # S3 needs no training: alpha = 0 is exact at every x
    assert (
        max(row["attention"] / max(1, row["x"]) for row in found["as trained"].to_dict("records"))
        < 1e-9
    )
