"""Edges and paths: against a forward pass written by hand, with one term of one reader replaced."""

import pytest
import torch
from helpers import must_fail
from own_hooks import adapted
from small_models import make

from icl_interp.circuits.attribution import estimated_moves
from icl_interp.circuits.paths import PutParts, path_predictions
from icl_interp.errors import InputError
from icl_interp.interventions.base import intervene
from icl_interp.interventions.edges import PutEdges, edges_of, readers, writers, written
from icl_interp.provenance import generator

CLEAN, CORRUPTED = torch.randn(
    2, 3, 5, 1, generator=generator(0, "test/edges"), dtype=torch.float64
)
NAMES = ("pre", "no norm", "attention only", "rms", "mlp only")
TIGHT = {"rtol": 1e-10, "atol": 1e-10}


def norm(x, module, cfg):
    """Written out: no hook point, no kernel of torch's."""
    if module is None:
        return x
    if cfg.normalization_type == "LN":
        x = x - x.mean(-1, keepdim=True)
    x = x / (x.square().mean(-1, keepdim=True) + cfg.eps).sqrt() * module.w
    return x if module.b is None else x + module.b


def by_hand(model, tokens, replaced=None, written_there=None):
    """Predictions of a model, one head and one token after another.

    `replaced` maps (writer, reader) to the vectors that this reader reads of this writer.
    `written_there` collects what each writer writes.
    """
    replaced = replaced or {}
    cfg = model.cfg
    n = tokens.shape[1]
    stream = tokens @ model.embed.W_E + model.embed.b_E
    if hasattr(model, "pos_embed"):
        stream = stream + model.pos_embed.W_pos[:n]
    terms = {"read-in": stream}
    bias = torch.zeros_like(stream)

    def seen_by(reader):
        total = bias.clone()
        for writer, term in terms.items():
            total = total + replaced.get((writer, reader), term)
        return total

    for i, block in enumerate(model.blocks):
        if not cfg.mlp_only:
            attn, ln1 = block.attn, getattr(block, "ln1", None)
            made = {}
            for h in range(cfg.n_heads):
                q, k, v = (
                    norm(seen_by(f"head {i}.{h} {letter.lower()}"), ln1, cfg)
                    @ getattr(attn, f"W_{letter}")[h]
                    + getattr(attn, f"b_{letter}")[h]
                    for letter in "QKV"
                )
                out = torch.zeros(len(tokens), n, cfg.d_model, dtype=tokens.dtype)
                for t in range(n):
                    scores = (k[:, : t + 1] @ q[:, t, :, None])[..., 0] / cfg.d_head**0.5
                    scores = (scores - scores.amax(-1, keepdim=True)).exp()
                    weights = scores / scores.sum(-1, keepdim=True)
                    out[:, t] = (weights[..., None] * v[:, : t + 1]).sum(1) @ attn.W_O[h]
                made[f"head {i}.{h}"] = out
            terms |= made
            bias = bias + attn.b_O
        if not cfg.attn_only:
            mlp, ln2 = block.mlp, getattr(block, "ln2", None)
            x = norm(seen_by(f"MLP {i}"), ln2, cfg) @ mlp.W_in + mlp.b_in
            x = x * (1 + torch.erf(x / 2**0.5)) / 2
            terms[f"MLP {i}"] = x @ mlp.W_out + mlp.b_out
    if written_there is not None:
        written_there |= terms
    last = norm(seen_by("read-out"), getattr(model, "ln_final", None), cfg)
    return last @ model.unembed.W_U + model.unembed.b_U


def is_the_swap(found, model, pairs, swapped=None):
    """Each prediction is that by hand with the writer's clean term in that reader's input."""
    terms = {}
    by_hand(model, CLEAN, written_there=terms)
    for (writer, reader), out in zip(pairs, found, strict=True):
        replaced = {(writer, swapped or reader): terms[writer]}
        want = by_hand(model, CORRUPTED, replaced)[:, -1]
        torch.testing.assert_close(out, want, **TIGHT, msg=f"{writer} to {reader}")


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_a_direct_path_is_one_term_of_one_readers_input(name):
    model = make(name)
    torch.testing.assert_close(by_hand(model, CORRUPTED), model(CORRUPTED), **TIGHT)
    terms = {}
    by_hand(model, CLEAN, written_there=terms)
    own = written(model, CLEAN)
    assert list(own) == list(terms)
    for writer, term in terms.items():
        torch.testing.assert_close(own[writer], term, **TIGHT)
    pairs = edges_of(model)[::5]
    found = path_predictions(model, CLEAN, CORRUPTED, pairs)
    is_the_swap(found, model, pairs)
    must_fail(is_the_swap, found[:1], model, pairs[:1], swapped="read-out")


@pytest.mark.parametrize("name", ["pre", "no norm"])
@torch.no_grad()
def test_all_direct_paths_of_a_writer_together_are_the_writer_patched(name):
    """Replaced for every reader at once, a term is replaced in the stream."""
    model = make(name)
    values = written(model, CLEAN)
    for writer, part in writers(model).items():
        pairs = [pair for pair in edges_of(model) if pair[0] == writer]
        with intervene(model, PutEdges(pairs, values)):
            together = model(CORRUPTED)[:, -1]
        with intervene(model, PutParts([part], [values[writer]])):
            whole = model(CORRUPTED)[:, -1]
        torch.testing.assert_close(together, whole, **TIGHT)
        [through] = path_predictions(model, CLEAN, CORRUPTED, [(writer, "read-out")], "all")
        torch.testing.assert_close(through, whole, **TIGHT)
        if writer == "head 0.1":
            with intervene(model, PutEdges(pairs[1:], values)):
                must_fail(torch.testing.assert_close, model(CORRUPTED)[:, -1], whole, **TIGHT)


@torch.no_grad()
def test_all_terms_of_all_readers_are_the_clean_run():
    """Of every edge at once: what is taken out is what the writer writes in that run."""
    model = make("pre")
    with intervene(model, PutEdges(edges_of(model), written(model, CLEAN))):
        found = model(CORRUPTED)
    torch.testing.assert_close(found, model(CLEAN), **TIGHT)


@torch.no_grad()
def test_a_path_through_everything_between_is_two_runs_by_hand():
    model = make("pre")
    writer, reader = "head 0.1", "head 1.2 k"
    terms = {}
    by_hand(model, CLEAN, written_there=terms)
    # Everything up to the reader follows the writer; what the reader reads goes into a second run.
    between = {}
    follows = {pair: terms[writer] for pair in edges_of(model) if pair[0] == writer}
    by_hand(model, CORRUPTED, follows, between)
    before = ("read-in", "head 0.0", "head 0.1", "head 0.2", "MLP 0")
    replaced = {(name, reader): between[name] for name in before}
    replaced[writer, reader] = terms[writer]
    want = by_hand(model, CORRUPTED, replaced)[:, -1]
    [found] = path_predictions(model, CLEAN, CORRUPTED, [(writer, reader)], "all")
    torch.testing.assert_close(found, want, **TIGHT)
    [direct] = path_predictions(model, CLEAN, CORRUPTED, [(writer, reader)])
    must_fail(torch.testing.assert_close, direct, want, **TIGHT)


def approaches(method, power):
    """On ever nearer prompts the error of an estimate shrinks faster than what it estimates."""
    model = make("pre")
    pairs = edges_of(model)[3::17]
    rows = [edges_of(model).index(pair) for pair in pairs]
    gaps = []
    for step in (1e-2, 1e-3):
        clean = CORRUPTED + step * CLEAN
        exact = path_predictions(model, clean, CORRUPTED, pairs)[..., 0]
        moved = exact - model(CORRUPTED)[:, -1, 0].detach()
        found = estimated_moves(model, clean, CORRUPTED, method)[rows]
        gaps.append(float((found - moved).norm() / step))
    slope = torch.tensor(gaps[0] / gaps[1]).log10()
    assert slope > power, slope


def test_attribution_is_right_to_first_order():
    approaches("first order", 0.8)
    must_fail(approaches, "first order", 1.8)


def test_the_sum_over_read_in_edges_of_a_linear_model_is_exact():
    """Without norms, MLPs and scores that depend on the prompt, gradients are exact."""
    model = make("attention only", normalization_type=None, n_layers=1)
    with torch.no_grad():
        model.blocks[0].attn.W_Q.zero_()
        model.blocks[0].attn.b_Q.zero_()
    exact = path_predictions(model, CLEAN, CORRUPTED, edges_of(model))[..., 0]
    with torch.no_grad():
        exact = exact - model(CORRUPTED)[:, -1, 0]
    for method in ("first order", "integrated"):
        found = estimated_moves(model, CLEAN, CORRUPTED, method)
        torch.testing.assert_close(found, exact, **TIGHT)
    must_fail(torch.testing.assert_close, found.roll(1, 0), exact, **TIGHT)


@pytest.mark.parametrize("name", ["post", "norm on outputs"])
def test_a_stream_that_is_no_sum_is_refused_by_name(name):
    model = make(name)
    for ask in (writers, readers, edges_of):
        with pytest.raises(InputError, match=f"norm_position='{model.cfg.norm_position}'"):
            ask(model)


@pytest.mark.parametrize(
    ("pair", "match"),
    [
        (("head 0.9", "MLP 0"), "unknown writer 'head 0.9': did you mean 'head 0.2'"),
        (("head 0.1", "head 1.0 z"), "unknown reader 'head 1.0 z': did you mean 'head 1.0"),
        (("MLP 0", "head 0.1 q"), "head 0.1 q comes before MLP 0"),
        (("head 1.0", "head 1.1 k"), "head 1.1 k comes before head 1.0"),
    ],
)
def test_what_is_no_path_is_refused_by_name(pair, match):
    with pytest.raises(InputError, match=match):
        path_predictions(make(), CLEAN, CORRUPTED, [pair])


def test_values_of_other_prompts_are_refused():
    model = make()
    values = written(model, CLEAN)
    pair = ("head 0.1", "head 1.0 k")
    with intervene(model, PutEdges([pair], values)), pytest.raises(InputError, match="do not fit"):
        model(CORRUPTED[:2])
    with pytest.raises(InputError, match="unknown writer with a value"):
        PutEdges([pair], {}).hooks(model)
    with pytest.raises(InputError, match="unknown way through 'both'"):
        path_predictions(model, CLEAN, CORRUPTED, [pair], "both")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pre", "attention only"])
@torch.no_grad()
def test_paths_of_an_adapted_module_are_those_by_hand(name):
    model = make(name)
    module = adapted(model, CLEAN)
    pairs = edges_of(module)
    assert pairs == edges_of(model)
    found = path_predictions(module, CLEAN, CORRUPTED, pairs[::5])
    is_the_swap(found, model, pairs[::5])
    must_fail(is_the_swap, found[:1], model, pairs[:1], swapped="read-out")
    through = (CLEAN, CORRUPTED, [("head 0.1", "head 1.0 v"), ("read-in", "head 1.2 k")], "all")
    assert torch.equal(path_predictions(module, *through), path_predictions(model, *through))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["first order", "integrated"])
def test_estimates_of_an_adapted_module_are_those_of_the_model(method):
    def same(module):
        found = estimated_moves(module, CLEAN, CORRUPTED, method)
        torch.testing.assert_close(
            found, estimated_moves(make(), CLEAN, CORRUPTED, method), **TIGHT
        )

    same(adapted(make(), CLEAN))
    other = make()
    with torch.no_grad():
        other.blocks[0].attn.W_O[1] *= 1.01
    must_fail(same, adapted(other, CLEAN))
