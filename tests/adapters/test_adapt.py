"""What an adapted module shows is what a conversion of it shows, or what its own arithmetic says.

Where something was not named, or an edit would change nothing, one line says so.
"""

import copy
import threading

import pytest
import torch
from gated_attention import HEADS, LAYERS, Gated, Numbers, Rotary, of_heads, recurrent
from helpers import must_fail, refuse
from torch import nn

import icl_interp
from icl_interp import interventions, probes
from icl_interp.adapters import Place
from icl_interp.checkpoints.foreign import adopt
from icl_interp.circuits import patch_paths
from icl_interp.provenance import generator
from icl_interp.tasks import LinearRegression

pytestmark = pytest.mark.usefixtures("as_users_run_it", "errors_are_caught")
TASK = LinearRegression(n_dims=1, n_points=4)
PROMPTS = TASK.sample(6, generator(0, "adapted"))
OTHERS = TASK.sample(6, generator(0, "adapted", 1))
BLOCKS = range(2)


def gpt2(module=None, **given):
    """An adapted GPT-2, with everything named that a conversion has, under the same names."""
    norms = {"ln_final": "body.ln_f"}
    points = {}
    for i in BLOCKS:
        norms |= {f"blocks.{i}.ln1": f"body.h.{i}.ln_1", f"blocks.{i}.ln2": f"body.h.{i}.ln_2"}
        points[f"blocks.{i}.attn.hook_z"] = of_heads(f"body.h.{i}.attn.c_proj")
        points[f"blocks.{i}.hook_attn_out"] = f"body.h.{i}.attn.c_proj"
        points[f"blocks.{i}.hook_mlp_out"] = f"body.h.{i}.mlp.c_proj"
    named = {
        "residual": ["body.drop", "body.h.0", "body.h.1"],
        "norms": norms,
        "patterns": [Place(f"body.h.{i}.attn", item=1) for i in BLOCKS],
        "points": points,
        "readout": ["body.ln_f", "read_out"],
    }
    module = Numbers() if module is None else module
    return icl_interp.adapt(module, encoding="interleaved", **named | given)


def converted(module=None):
    """The same model as a HookedTransformer, in a checkpoint."""
    return icl_interp.load(adopt(module or Numbers()), TASK, encoding="interleaved")


def same(a, b):
    """Two answers of probes, by name, equal to 1e-5."""
    assert set(a) == set(b)
    for name in a:
        torch.testing.assert_close(
            torch.as_tensor(a[name].values),
            torch.as_tensor(b[name].values),
            rtol=1e-5,
            atol=1e-5,
            equal_nan=True,
        )


def wanted():
    return [
        probes.ResidualStream(),
        probes.LogitLens(),
        probes.LayerNormScale(),
        probes.AttentionPattern(),
        probes.AttentionTargets(("x", "y") * 3 + ("x",)),
        probes.Activations(["blocks.1.attn.hook_z", "blocks.0.hook_mlp_out"]),
    ]


def scales_in_order(found):
    """The same norms in one order: they are named in ours by a mapping."""
    key = "layernorm_scale.scale"
    return {**found, key: found[key].sortby("norm")}


def probed_alike(module):
    mine = icl_interp.probe(gpt2(module), PROMPTS, wanted())
    theirs = icl_interp.probe(converted(), PROMPTS, wanted())
    same(scales_in_order(mine), scales_in_order(theirs))


def test_probes_of_an_adapted_gpt2_are_those_of_its_conversion():
    probed_alike(Numbers())
    other = Numbers()
    with torch.no_grad():
        other.body.h[1].ln_1.weight *= 1.01
    must_fail(probed_alike, other)


def test_queries_are_swept_on_an_adapted_module():
    asked = {"queries": [0.5, 100.0], "dtype": torch.float64}
    mine, theirs = (
        icl_interp.probe(
            model, PROMPTS, [probes.ResidualStream(), probes.LayerNormScale()], **asked
        )
        for model in (gpt2(), converted())
    )
    same(scales_in_order(mine), scales_in_order(theirs))


def edits(model, tokens, others):
    """Interventions that need named hook points only, measured on the model itself."""
    heads = ((0, 1), (1, 0))
    return {
        "freeze": interventions.FreezeNorms.measure(model, others),
        "one norm": interventions.FreezeNorms.measure(model, others, ["ln_final"]),
        "norm": interventions.InsertNorm("blocks.0.hook_resid_post"),
        "heads": interventions.AblateHeads.measure(model, others, *heads),
        "zero": interventions.AblateHeads.zero(*heads),
        "stream": interventions.PutActivations.measure(model, others, ["blocks.0.hook_resid_post"]),
        "outputs": interventions.MeanOutputs.measure(
            model, others, ["blocks.0.hook_attn_out", "blocks.1.hook_mlp_out"]
        ),
        "some": interventions.At((-1,), interventions.AblateHeads.zero(*heads)),
    }


def test_interventions_on_an_adapted_gpt2_are_those_on_its_conversion():
    mine, theirs = gpt2(), converted().model
    tokens, others = (mine.encoding.encode(p) for p in (PROMPTS, OTHERS))
    before = mine(tokens)
    ours = edits(mine, tokens, others)
    for name, edit in edits(theirs, tokens, others).items():
        with torch.no_grad(), icl_interp.intervene(mine, ours[name]):
            inside = mine(tokens)
        with torch.no_grad(), icl_interp.intervene(theirs, edit):
            torch.testing.assert_close(inside, theirs(tokens), rtol=1e-5, atol=1e-5)
        assert not torch.allclose(inside, before, atol=1e-4), name
        assert torch.equal(mine(tokens), before)


def test_patching_is_that_of_the_conversion():
    mine, theirs = gpt2(), converted().model
    clean, corrupted = (mine.encoding.encode(p[:1]) for p in (PROMPTS, OTHERS))

    def metric(out):
        return out[0, -1, 0]

    found = interventions.patch(mine, clean, corrupted, metric, "resid_post")
    expected = interventions.patch(theirs, clean, corrupted, metric, "resid_post")
    torch.testing.assert_close(
        torch.as_tensor(found.values), torch.as_tensor(expected.values), rtol=1e-5, atol=1e-5
    )


def test_the_stream_enters_a_block_as_it_left_the_one_before():
    mine, theirs = gpt2(), converted().model
    tokens = mine.encoding.encode(PROMPTS)

    def same(name, other):
        with torch.no_grad():
            found = mine.run_with_cache(tokens)[1][name]
            torch.testing.assert_close(
                found, theirs.run_with_cache(tokens)[1][other], rtol=1e-5, atol=1e-5
            )

    same("blocks.1.hook_resid_pre", "blocks.1.hook_resid_pre")
    must_fail(same, "blocks.0.hook_resid_pre", "blocks.1.hook_resid_pre")
    # Edits at both names are made one after the other, as they stand in a block.
    edits = [
        ("blocks.1.hook_resid_pre", lambda t, hook: t + 1),
        ("blocks.0.hook_resid_post", lambda t, hook: 2 * t),
    ]
    with torch.no_grad():
        found, expected = (one.run_with_hooks(tokens, fwd_hooks=edits) for one in (mine, theirs))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_gradients_are_those_of_the_conversion():
    names = ["blocks.0.attn.hook_z", "blocks.1.hook_resid_post", "blocks.0.hook_mlp_out"]
    mine, theirs = gpt2(), converted().model
    tokens = mine.encoding.encode(PROMPTS)

    def same(number):
        _, found = mine.run_with_cache(tokens, names_filter=names, incl_bwd=True, number=number)
        _, expected = theirs.run_with_cache(
            tokens, names_filter=names, incl_bwd=True, number=lambda out: out[:, -1].sum()
        )
        for name in names:
            torch.testing.assert_close(
                found[f"{name}_grad"], expected[f"{name}_grad"], rtol=1e-4, atol=1e-6
            )

    same(lambda out: out[:, -1].sum())
    must_fail(same, lambda out: out[:, -2].sum())
    assert all(weight.grad is None for weight in mine.module.parameters())
    assert not mine.module._forward_hooks
    refuse("pass number=", mine.run_with_cache, tokens, incl_bwd=True)


class Rounded(nn.Module):
    """A module that goes on with numbers through which no gradient flows back."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(1, 4)
        self.last = nn.Linear(4, 1)

    def forward(self, tokens):
        return self.last(self.inner(tokens).detach())


def test_gradients_that_do_not_arrive_are_refused():
    model = icl_interp.adapt(Rounded(), encoding="interleaved", points={"hook_inner": "inner"})
    tokens = model.encoding.encode(PROMPTS)
    settings = {"names_filter": "hook_inner", "incl_bwd": True, "number": lambda out: out.sum()}
    refuse("no gradient reaches hook_inner: ", model.run_with_cache, tokens, **settings)


@pytest.mark.parametrize(
    ("named", "kinds"),
    [
        ({"blocks.0.attn.hook_z": of_heads("body.h.0.attn.c_proj")}, ("attn",)),
        ({"blocks.0.hook_mlp_out": "body.h.0.mlp.c_proj"}, ("mlp",)),
        ({}, ("attn", "mlp")),
    ],
)
def test_blocks_consist_of_what_was_named(named, kinds):
    """Of both where nothing was, so that a tool says what it misses."""
    assert gpt2(patterns=[], norms={}, points=named).sublayer_kinds == kinds


def of_mlps(module, **given):
    """An adapted GPT-2 with what its heads write, and what its MLPs read and write."""
    points = {}
    for i in BLOCKS:
        weights = module.body.h[i].attn.c_proj.weight

        def write(z, weights=weights):
            return torch.einsum(
                "bthd,hdm->bthm", *(z.unflatten(-1, (HEADS, -1)), weights.unflatten(0, (HEADS, -1)))
            )

        points[f"blocks.{i}.attn.hook_result"] = Place(
            f"body.h.{i}.attn.c_proj", "input", take=write
        )
        points[f"blocks.{i}.hook_mlp_in"] = Place(f"body.h.{i}.ln_2", "input")
        points[f"blocks.{i}.hook_mlp_out"] = f"body.h.{i}.mlp.c_proj"
    return gpt2(module, patterns=[], norms={}, points=points, **given)


def test_paths_to_what_was_named_are_those_of_the_conversion():
    """Heads of a GPT-2 read by one matrix, so nobody names what each reads; MLPs are apart."""
    pairs = icl_interp.contrasts.labels(TASK, n_functions=8)
    paths = [("head 0.0", "MLP 1"), ("MLP 0", "MLP 1"), ("head 1.1", "read-out")]

    def same(module):
        found = patch_paths(of_mlps(module), pairs, paths)
        expected = patch_paths(converted(), pairs, paths)
        torch.testing.assert_close(
            torch.tensor(found["share"]), torch.tensor(expected["share"]), rtol=1e-3, atol=1e-5
        )

    same(Numbers())
    other = Numbers()
    with torch.no_grad():
        other.body.h[0].mlp.c_proj.weight *= 1.1
    must_fail(same, other)
    lacks = r"no blocks\.1\.hook_v_input: .*; give points="
    refuse(lacks, patch_paths, of_mlps(Numbers()), pairs, [("head 0.0", "head 1.1 v")])
    refuse(r"no blocks\.0\.hook_q_input", patch_paths, of_mlps(Numbers()), pairs)
    # What heads write was named to be read, and is not put.
    refuse("can only be read", patch_paths, of_mlps(Numbers()), pairs, paths[:1], through="all")


def test_a_listener_leaves_predictions_and_module_as_they_are():
    module = Numbers()
    model = gpt2(module)
    tokens = model.encoding.encode(PROMPTS)
    before = module(tokens)
    assert torch.equal(model(tokens), before)
    _, cache = model.run_with_cache(tokens)
    assert set(cache) == set(model.hook_dict)
    with model.hooks([(name, lambda t, hook: None) for name in model.hook_dict]):
        torch.testing.assert_close(model(tokens), before)
    with pytest.raises(ZeroDivisionError), model.hooks([("blocks.0.hook_resid_post", divide)]):
        model(tokens)
    assert torch.equal(module(tokens), before)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())


def divide(t, hook):
    raise ZeroDivisionError


def test_predictions_and_verdicts_of_outputs():
    model = gpt2()
    torch.testing.assert_close(
        model.predict(PROMPTS), converted().predict(PROMPTS), rtol=1e-5, atol=1e-5
    )
    table = icl_interp.evaluate(model, TASK, n_functions=4, n_contexts=2)
    expected = icl_interp.evaluate(converted(), TASK, n_functions=4, n_contexts=2)
    mine, theirs = (one.set_index("predictor")["error"]["model"] for one in (table, expected))
    assert mine == pytest.approx(theirs, rel=1e-4)


def test_other_threads_run_the_module_intact():
    model = gpt2()
    tokens = model.encoding.encode(PROMPTS)
    before, seen = model(tokens), []
    with icl_interp.intervene(model, interventions.InsertNorm("blocks.0.hook_resid_post")):
        thread = threading.Thread(target=lambda: seen.append(model(tokens)))
        thread.start()
        thread.join()
        assert not torch.allclose(model(tokens), before, atol=1e-4)
    assert torch.equal(seen[0], before)


def test_a_copy_stands_alone():
    model = gpt2()
    twin = copy.deepcopy(model).double()
    tokens = model.encoding.encode(PROMPTS)
    with icl_interp.intervene(twin, interventions.InsertNorm("blocks.0.hook_resid_post")):
        inside = twin(tokens.double())
        torch.testing.assert_close(model(tokens), model.module(tokens))
    assert not torch.allclose(inside.float(), model(tokens), atol=1e-4)


# Gated linear attention.


def gated(module=None, **given):
    named = {
        "residual": ["read_in", "layers.0", "layers.1"],
        "norms": ["layers.0.norm", "layers.1.norm"],
        "patterns": ["layers.0.weights", "layers.1.weights"],
        "points": {f"blocks.{i}.attn.hook_z": of_heads(f"layers.{i}.out") for i in BLOCKS},
        "readout": ["read_out"],
    }
    return icl_interp.adapt(module or Gated(), encoding="interleaved", **named | given)


def streams_are(model, tokens, step):
    """The stream after each block is that of an independent route, in float64."""
    model = copy.deepcopy(model).double()
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens.double())
        stream = cache["blocks.0.hook_resid_pre"]
        for i, layer in enumerate(model.module.layers):
            stream = step(layer, stream)
            torch.testing.assert_close(
                cache[f"blocks.{i}.hook_resid_post"], stream, rtol=1e-10, atol=1e-10
            )


def test_gated_linear_attention():
    model = gated()
    tokens = model.encoding.encode(PROMPTS)
    streams_are(model, tokens, recurrent)
    must_fail(streams_are, model, tokens, lambda layer, stream: recurrent(layer, stream) * 1.001)
    found = icl_interp.probe(model, PROMPTS)
    names = {name.partition(".")[0] for name in found}
    assert names == {"residual_stream", "logit_lens", "layernorm_scale"}
    x = model.module.read_in(tokens)
    scale = found["layernorm_scale.scale"].sel(norm="layers.0.norm", position="query")
    expected = (x[:, -1].var(-1, correction=0) + 1e-5).sqrt()
    assert float(scale.sel(statistic="mean")) == pytest.approx(
        float(expected.detach().mean()), rel=1e-5
    )
    refuse(
        "attention weights do not add up to 1",
        icl_interp.probe,
        model,
        PROMPTS,
        [probes.AttentionEntropy()],
    )
    refuse(
        "reads W_V and W_O of its heads",
        icl_interp.probe,
        model,
        PROMPTS,
        [probes.HeadOrthogonality()],
    )


def test_interventions_on_gated_linear_attention():
    model = gated()
    tokens, others = (model.encoding.encode(p) for p in (PROMPTS, OTHERS))
    wanted = model(others)
    put = interventions.PutActivations.measure(model, others, ["blocks.0.hook_resid_post"])
    with icl_interp.intervene(model, put):  # what follows reads the stream alone
        torch.testing.assert_close(model(tokens), wanted)
    own = interventions.PutPatterns.measure(model, tokens)
    with icl_interp.intervene(model, own):
        torch.testing.assert_close(model(tokens), model.module(tokens))
    swapped = interventions.PutPatterns.measure(model, others)
    with icl_interp.intervene(model, swapped):
        assert not torch.allclose(model(tokens), model.module(tokens), atol=1e-3)
    with icl_interp.intervene(model, interventions.AblateHeads.zero((0, 0), (0, 1))):
        _, cache = model.run_with_cache(tokens)
    layer = model.module.layers[0]
    torch.testing.assert_close(
        cache["blocks.0.hook_resid_post"], cache["blocks.0.hook_resid_pre"] + layer.out.bias
    )
    refuse("no blocks.0.attn.hook_attn_scores.*scores=", entered, model)


def entered(model):
    with icl_interp.intervene(model, interventions.SwapPattern("hardmax")):
        pass


# Rotary positions, root mean square norms, and patterns that are returned but not used.


def rotary(**given):
    named = {
        "residual": ["read_in", "body.layers.0", "body.layers.1"],
        "norms": ["body.layers.0.input_layernorm", "body.norm"],
        "patterns": [Place(f"body.layers.{i}.self_attn", item=1) for i in BLOCKS],
        "readout": ["body.norm", "read_out"],
    }
    return icl_interp.adapt(Rotary(), encoding="interleaved", **named | given)


def is_root_mean_square(found, model, tokens, eps):
    _, cache = model.run_with_cache(tokens)
    stream = cache[f"blocks.{LAYERS - 1}.hook_resid_post"][:, -1].double()
    expected = (stream.square().mean(-1) + eps).sqrt().mean()
    value = found["layernorm_scale.scale"].sel(norm="body.norm", position="query", statistic="mean")
    assert float(value) == pytest.approx(float(expected.detach()), rel=1e-5)


def test_an_architecture_with_rotary_positions():
    model = rotary()
    tokens = model.encoding.encode(PROMPTS)
    found = icl_interp.probe(
        model,
        PROMPTS,
        [
            probes.LayerNormScale(),
            probes.LogitLens(per_prompt=True),
            probes.AttentionPattern(),
            probes.ResidualStream(),
        ],
    )
    eps = model.module.body.norm.variance_epsilon
    is_root_mean_square(found, model, tokens, eps)
    must_fail(is_root_mean_square, found, model, tokens, 0.1)
    lens = found["logit_lens.prediction"].sel(depth=LAYERS, position="query", target=0)
    torch.testing.assert_close(
        torch.as_tensor(lens.values).float(), model(tokens)[:, -1, 0].detach(), atol=1e-5, rtol=1e-5
    )
    assert float(abs(found["attention_pattern.weight"].sum("key") - 1).max()) < 1e-5
    # The whole of one prompt's scales leaves that prompt as it is.
    frozen = interventions.FreezeNorms.measure(model, tokens[:1])
    with icl_interp.intervene(model, frozen):
        torch.testing.assert_close(model(tokens[:1]), model.module(tokens[:1]))
        assert not torch.allclose(model(tokens), model.module(tokens), atol=1e-3)


def test_an_edit_that_would_change_nothing_is_refused():
    model = rotary()
    tokens = model.encoding.encode(PROMPTS)
    put = interventions.PutPatterns.measure(model, model.encoding.encode(OTHERS))
    refuse("can only be read.*not what the module goes on with", ran_under, model, put, tokens)
    only_taken = {"blocks.0.hook_norm": Place("body.norm", take=lambda t: t * 1)}
    model = rotary(points=only_taken)
    insert = interventions.InsertNorm("blocks.0.hook_norm")
    refuse("none to put an edit back", ran_under, model, insert, tokens)


def ran_under(model, edit, tokens):
    with icl_interp.intervene(model, edit):
        model(tokens)


def test_weights_are_refused_by_name():
    model = gpt2()
    refuse("has no W_Q", lambda: model.W_Q)
    refuse("has no W_V", lambda: model.blocks[0].attn.W_V)
    refuse("has no d_mlp", lambda: model.cfg.d_mlp)
    refuse("has no unembed", lambda: gated(readout=[]).unembed)
    assert not hasattr(model, "embed")
