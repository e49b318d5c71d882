"""Files of attention between two norms compute here what numpy computes from the same weights."""

import numpy as np
import pytest
import torch
from helpers import must_fail
from tiny_runs import refuse

import icl_interp
from icl_interp.checkpoints.formats import registry, two_norms
from icl_interp.models.tokens import Stacked
from icl_interp.provenance import generator
from icl_interp.tasks import LinearRegression
from icl_interp.theory import limits

pytestmark = pytest.mark.usefixtures("as_users_run_it", "errors_are_caught")
DIM, N_LAYERS, N_POINTS = 3, 3, 8
TASK = LinearRegression(n_dims=DIM, n_points=N_POINTS)


def state_dict(columns=DIM, n_layers=N_LAYERS, seed=0):
    """Random weights of such a model under its own names; gains and biases matter too."""
    token = DIM + 1
    rng = generator(seed, "two norms")

    def random(*shape, size=1.0):
        return size * torch.randn(shape, generator=rng)

    state = {}
    for i in range(n_layers):
        here = f"layers.{i}."
        for name, rows in (("q", columns), ("k", columns), ("v", token), ("o", token)):
            state[f"{here}W_{name}.weight"] = random(rows, token)
        for name in ("norm1", "norm2"):
            state[f"{here}{name}.weight"] = 1 + random(token, size=0.3)
            state[f"{here}{name}.bias"] = random(token, size=0.3)
    return state | {"pred_head.weight": random(1, token)}


def layer_norm(x, gain, bias):
    """Of each row, with the biased variance."""
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return centred / np.sqrt(variance + 1e-5) * gain + bias


def by_numpy(state, prompts, kind="lsa", factor=0.1, causal=True, second=True):
    """Predictions at the query, token by token and in float64."""
    weights = {name: tensor.double().numpy() for name, tensor in state.items()}
    xs, ys = prompts.xs.double().numpy(), prompts.ys.double().numpy()
    stream = np.concatenate([xs, ys], -1)
    stream[:, -1, -1] = 0
    n = stream.shape[1]
    for i in range(sum(name.endswith("W_q.weight") for name in state)):
        here = f"layers.{i}."
        normed = layer_norm(stream, weights[here + "norm1.weight"], weights[here + "norm1.bias"])
        q, k, v = (normed @ weights[f"{here}W_{name}.weight"].T for name in "qkv")
        mixed = np.zeros_like(v)
        for t in range(n):
            seen = t + 1 if causal else n
            scores = np.einsum("bh,bsh->bs", q[:, t], k[:, :seen]) / np.sqrt(q.shape[-1])
            if kind == "softmax":
                scores = np.exp(scores - scores.max(-1, keepdims=True))
                scores = scores / scores.sum(-1, keepdims=True)
            mixed[:, t] = np.einsum("bs,bsv->bv", scores, v[:, :seen])
        stream = stream + factor * mixed @ weights[here + "W_o.weight"].T
        if second:
            gain, bias = weights[here + "norm2.weight"], weights[here + "norm2.bias"]
            stream = layer_norm(stream, gain, bias)
    return (stream[:, -1] @ weights["pred_head.weight"].T)[:, 0]


def saved(path, state, **words):
    """A file as the training scripts leave it."""
    torch.save({"model_state_dict": state, "num_layers": N_LAYERS, "d": DIM, **words}, path)
    return path


def prompts_of(n=16):
    return TASK.sample(n, generator(0, "two norms/prompts"))


def agrees(found, wanted):
    """At the query, to 1e-5 of the largest prediction."""
    with torch.no_grad():
        mine = found.predict(prompts_of())[:, -1, 0].double().numpy()
    assert np.std(wanted) > 0.1
    assert np.abs(mine - wanted).max() < 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("columns", [DIM, DIM + 1, DIM + 3])
@pytest.mark.parametrize("kind", two_norms.KINDS)
def test_predictions_are_those_of_numpy(tmp_path, kind, columns):
    state = state_dict(columns)
    found = icl_interp.load(saved(tmp_path / "model.pt", state, model_type=kind), TASK)
    agrees(found, by_numpy(state, prompts_of(), kind))
    assert isinstance(found.encoding, Stacked)
    other = next(each for each in two_norms.KINDS if each != kind)
    must_fail(agrees, found, by_numpy(state, prompts_of(), other))
    for wrong in ({"factor": 0.11}, {"causal": False}, {"second": False}):
        must_fail(agrees, found, by_numpy(state, prompts_of(), kind, **wrong))


def test_what_files_do_not_tell_is_assumed_and_can_be_given(tmp_path):
    """Without a word nothing tells linear scores from softmax; only `lsa` fixes the direction."""
    state = state_dict()
    bare = saved(tmp_path / "bare.pt", state)
    found = icl_interp.load(bare, TASK)
    assert {each.name: each.value for each in found.assumptions} == two_norms.USUAL
    agrees(found, by_numpy(state, prompts_of()))
    told = {"score_fn": "softmax", "attention_dir": "bidirectional"}
    given = icl_interp.load(bare, TASK, settings=told)
    assert not given.assumptions
    agrees(given, by_numpy(state, prompts_of(), "softmax", causal=False))
    softmax = icl_interp.load(saved(tmp_path / "softmax.pt", state, model_type="softmax"), TASK)
    assert [each.name for each in softmax.assumptions] == ["attention_dir"]
    linear = icl_interp.load(saved(tmp_path / "linear.pt", state, model_type="lsa"), TASK)
    assert not linear.assumptions


def test_numbers_of_numpy_beside_the_weights_are_no_hindrance(tmp_path):
    results = {"mse": np.float64(6.0), "losses": [np.float64(1.0)]}
    path = saved(tmp_path / "model.pt", state_dict(), results=results)
    agrees(icl_interp.load(path, TASK), by_numpy(state_dict(), prompts_of()))


def test_a_name_says_nothing_and_the_content_decides(tmp_path):
    path = saved(tmp_path / "softmax_lsa.pt", state_dict(), model_type="lsa")
    assert registry.find(path) is two_norms.FORMAT
    agrees(icl_interp.load(path, TASK), by_numpy(state_dict(), prompts_of()))


@pytest.mark.parametrize(
    ("change", "words", "given", "match"),
    [
        ({}, {"model_type": "gqa"}, {}, "its model_type is 'gqa', but only lsa and softmax are"),
        ({"layers.1.W_k.weight": torch.ones(1, DIM + 1)}, {}, {}, "it has layers.1.W_k.weight"),
        ({"layers.1.gate": torch.ones(2)}, {}, {}, "it has besides layers.1.gate"),
        ({}, {}, {"task": None}, "does not tell the task: give task="),
        (
            {},
            {"model_type": "lsa"},
            {"settings": {"score_fn": "softmax"}},
            "says score_fn='linear', but score_fn='softmax' was given",
        ),
        (
            {},
            {"model_type": "lsa"},
            {"settings": {"residual_scale": 1.0}},
            "says residual_scale=0.1, but residual_scale=1.0 was given",
        ),
    ],
)
def test_other_arithmetic_is_refused_by_its_word(tmp_path, change, words, given, match):
    path = saved(tmp_path / "model.pt", state_dict() | change, **words)
    refuse(path, match, lambda source: icl_interp.load(source, **({"task": TASK} | given)))


def test_outputs_stay_within_the_certificate_of_the_last_norm(tmp_path):
    """Far out, too: |f - c| <= r from weights alone, and contexts still tell predictions apart."""
    found = icl_interp.load(saved(tmp_path / "model.pt", state_dict(), model_type="lsa"), TASK)
    model = found.model.double()
    last = model.blocks[-1].ln2
    c, r = limits.output_certificate(model.W_U[:, 0], last.w, last.b, model.b_U[0])
    tokens = found.encoding.encode(prompts_of(64)).double()
    tokens[:, -1, :DIM] = 1e4 * tokens[:1, -1, :DIM]

    def bounded(radius):
        with torch.no_grad():
            far = model(tokens)[:, -1, 0]
        assert ((far - c).abs() <= radius).all()
        return far

    assert bounded(r).std() > 1e-3
    must_fail(bounded, 0.1 * r)
