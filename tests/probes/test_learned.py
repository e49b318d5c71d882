"""Learned probes: a planted direction is found and used, and nothing is found where nothing is."""

import copy
import sys
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from helpers import must_fail
from own_hooks import of

import icl_interp
from icl_interp import tasks
from icl_interp.errors import InputError
from icl_interp.models.blank import LINEAR, blank
from icl_interp.models.tokens import Interleaved, Stacked
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes import fit
from icl_interp.probes.targets import n_seen, target_of, values_of
from icl_interp.provenance import generator

N = 12  # examples
DIM = 6
TASK = tasks.LinearRegression(n_dims=DIM, n_points=N + 1, noise_std=0.3)
X, Y, WRITTEN = 0, DIM, DIM + 1  # coordinates of the stream
WIDTH = DIM + 2
FACTOR = 1.7
STREAM, HEADS = "blocks.0.hook_resid_post", "blocks.0.attn.hook_z"


def planted():
    """The first head writes `moment`, which the read-out multiplies; the second rests."""
    model = blank(WIDTH, n_heads=2, d_head=2, d_in=DIM + 1, n_ctx=N + 1, **LINEAR)
    attn = model.blocks[0].attn
    with torch.no_grad():
        model.embed.W_E[:, : DIM + 1] = torch.eye(DIM + 1)
        attn.b_Q[0, 0] = 1
        attn.W_K[0, X, 0] = 1
        attn.W_V[0, Y, 0] = 1
        attn.W_O[0, 0, WRITTEN] = 1
        model.unembed.W_U[WRITTEN] = FACTOR
    return SimpleNamespace(model=model.eval(), encoding=Stacked(), task=TASK)


def moment(prompts):
    """sum_i x_i1 y_i / n."""
    return (prompts.xs[:, :-1, 0] * prompts.ys[:, :-1, 0]).mean(1)


def drawn(n=300, stream="test/learned"):
    """Prompts whose query has the label that the model predicts, and a little noise."""
    g = generator(0, stream)
    prompts = TASK.sample(n, g, dtype=torch.float64)
    ys = prompts.ys.clone()
    ys[:, -1] = FACTOR * moment(prompts)[:, None] + 0.05 * torch.randn(
        n, 1, generator=g, dtype=torch.float64
    )
    return replace(prompts, ys=ys)


def of_the_moment(prompts):
    return torch.full((len(prompts),), FACTOR)


def query(prompts):
    """The input of the query: readable, and not used."""
    return prompts.xs[:, -1, 0]


def check_found(row):
    assert row["r2"] > 0.999
    assert row["shuffled"] < 0.1
    assert row["selectivity_low"] > 0.3
    assert row["p"] < 1e-6


def test_a_planted_direction_is_found_in_the_head_that_writes_it():
    found = fit(planted(), moment, [STREAM, HEADS], prompts=drawn())
    table = found.table.set_index(["hook", "head"])
    assert len(table) == 3
    check_found(table.loc[(STREAM, -1)])
    check_found(table.loc[(HEADS, 0)])
    must_fail(check_found, table.loc[(HEADS, 1)])
    assert (table["low"] <= table["r2"]).all()
    weights = found.fitted[next(iter(found.fitted))].weights[0]
    expected = torch.eye(WIDTH, dtype=torch.float64)[WRITTEN]
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-3)


def test_nothing_is_found_where_nothing_is():
    draw = generator(3, "test/learned/noise")
    noise = torch.randn(300, generator=draw)
    found = fit(planted(), lambda prompts: noise, STREAM, prompts=drawn())
    row = found.table.loc[0]
    assert row["r2"] < 0.05
    assert row["p"] > 0.05
    must_fail(check_found, row)
    # What any features of the tokens tell is not the model's merit.
    label = fit(planted(), lambda prompts: prompts.xs[:, -1, 0], STREAM, prompts=drawn())
    assert label.table.loc[0, "r2"] > 0.999
    assert label.table.loc[0, "selectivity"] < 0.5


def check_used(table):
    steer, out = table.loc["steer"], table.loc["project out"]
    assert steer["value"] == pytest.approx(1, abs=1e-3)
    assert steer["p"] <= 1 / 20
    assert out["low"] > 2
    assert out["p"] <= 1 / 20


def test_the_prediction_follows_a_planted_direction_in_units_of_the_target():
    found = fit(planted(), moment, STREAM, prompts=drawn())
    fresh = drawn(100, "test/learned/fresh")
    table = found.causal(prompts=fresh, effect=of_the_moment, n_random=19).set_index("edit")
    check_used(table)
    half = found.causal(
        prompts=fresh, effect=lambda p: 2 * of_the_moment(p), n_random=19
    ).set_index("edit")
    assert half.loc["steer", "value"] == pytest.approx(0.5, abs=1e-3)
    must_fail(check_used, half)
    idle = fit(planted(), query, STREAM, prompts=drawn())
    unused = idle.causal(prompts=fresh, effect=lambda p: torch.ones(100), n_random=19)
    unused = unused.set_index("edit")
    must_fail(check_used, unused)
    assert abs(unused.loc["project out", "value"] - 1) < 0.1


@pytest.mark.slow
def test_the_coefficients_of_a_checkpoint():
    checkpoint = icl_interp.load("affine")
    prompts = checkpoint.task.sample(128, generator(1, "test/learned"))
    found = fit(checkpoint, "coefficients", ["blocks.0.hook_resid_pre"], prompts=prompts)
    assert (found.table["r2"] < 0.1).all(), "the query's token knows no coefficient"
    table = found.causal(row=0, n_random=1)
    assert table["edit"].tolist() == ["steer", "project out"]


# ---- targets -------------------------------------------------------------------------------------

POLYNOMIALS = tasks.Polynomial(
    degrees=(1, 3), inputs=tasks.Uniform(-1, 1), coefficients=tasks.Normal(1), n_points=9
)


def test_targets_are_what_they_say():
    noisy = tasks.LinearRegression(n_dims=2, n_points=9, noise_std=0.5)
    prompts = noisy.sample(6, generator(2, "test/targets"), dtype=torch.float64)
    xs, ys = prompts.xs, prompts.ys

    def value(name, seen, of=prompts, task=noisy):
        return values_of(target_of(name), of, task, seen)

    fitted = torch.linalg.lstsq(xs[:, :5], ys[:, :5]).solution[..., 0]
    torch.testing.assert_close(value("least squares", 5), fitted)
    must_fail(torch.testing.assert_close, value("least squares", 6), fitted)
    products = (xs[:, :5] * ys[:, :5]).mean(1)
    torch.testing.assert_close(value("X'y", 5), products)
    before = torch.linalg.lstsq(xs[:, :4], ys[:, :4]).solution
    left = ys[:, 4] - (xs[:, 4:5] @ before)[:, 0]
    torch.testing.assert_close(value("residuals", 5), left)
    nearest = (xs[:, :5] - xs[:, -1:]).norm(dim=-1).argmin(1)
    torch.testing.assert_close(value("neighbour's label", 5), ys[torch.arange(6), nearest])
    clean = noisy.targets(prompts.parameters, xs)
    noise = (ys - clean)[:, :5].square().mean(1).sqrt()
    torch.testing.assert_close(value("noise level", 5), noise)
    mixed = POLYNOMIALS.sample(40, generator(2, "test/targets"))
    degrees = value("degree", 0, mixed, POLYNOMIALS)
    assert set(degrees[:, 0].tolist()) == {1.0, 3.0}
    coefficients = target_of("coefficients")
    effect = coefficients.effect(mixed.double(), POLYNOMIALS)
    powers = mixed.xs[:, -1].double() ** torch.arange(4)
    torch.testing.assert_close(effect, powers)


def test_what_a_token_has_seen():
    assert [n_seen(Stacked(), 3, place, "causal") for place in range(3)] == [1, 2, 2]
    assert n_seen(Interleaved(), 3, 0, "bidirectional") == 2


# ---- refusals ------------------------------------------------------------------------------------


def nan(prompts):
    return torch.full((len(prompts),), torch.nan)


@pytest.mark.parametrize(
    ("target", "change", "message"),
    [
        ("coeficients", {}, "did you mean 'coefficients'"),
        (3, {}, "a target is a name or a function"),
        (nan, {}, "holds NaN"),
        (lambda prompts: torch.ones(len(prompts)), {}, "the same in all prompts"),
        (lambda prompts: torch.ones(3), {}, "for each of 300 prompts"),
        ("coefficients", {"at": "blocks.0.hook_resid"}, "unknown hook"),
        ("coefficients", {"at": "blocks.0.attn.hook_pattern"}, "numbers, not vectors"),
        ("coefficients", {"positions": (13,)}, "a position must be a whole number"),
        ("coefficients", {"prompts": drawn(9)}, "at least 10, but these prompts are of 9"),
    ],
)
def test_refusals(target, change, message):
    arguments = {"at": STREAM, "prompts": drawn(), **change}
    with pytest.raises(InputError, match=message):
        fit(planted(), target, **arguments)


def test_what_cannot_be_asked_is_said():
    with pytest.raises(InputError, match="fit needs a checkpoint"):
        fit("affine", "coefficients")
    found = fit(planted(), query, STREAM, prompts=drawn())
    with pytest.raises(InputError, match="pass effect="):
        found.causal()
    exact = tasks.LinearRegression(n_dims=1, n_points=N + 1)
    for name in ("residuals", "noise level"):
        with pytest.raises(InputError, match="the same in all prompts"):
            values_of(target_of(name), exact.sample(20, generator(0, "test")), exact, 5)
    with pytest.raises(InputError, match="has seen an example"):
        values_of(target_of("X'y"), drawn(20), TASK, 0)


def test_weights_that_are_not_finite_are_named():
    checkpoint = copy.deepcopy(planted())
    with torch.no_grad():
        next(checkpoint.model.parameters()).view(-1)[0] = torch.nan
    with pytest.raises(InputError, match=r"probes\.fit: .* holds NaN"):
        fit(checkpoint, "X'y", STREAM, prompts=drawn())


def test_without_scikit_learn_one_line_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    with pytest.raises(InputError, match=r"probes.fit needs scikit-learn.*pip install"):
        fit(planted(), "X'y", STREAM, prompts=drawn())


@pytest.mark.slow
def test_an_adapted_module_is_probed_like_the_model():
    held = planted()
    fresh = HookedTransformer(held.model.cfg, seed=1).to(held.model.unembed.W_U).eval()
    fresh = of(SimpleNamespace(model=fresh, encoding=Stacked(), task=TASK))
    module = of(held)
    prompts = drawn()
    expected = fit(held, moment, HEADS, prompts=prompts)

    def same(untrained):
        found = fit(module, moment, HEADS, prompts=prompts, untrained=untrained)
        pd.testing.assert_frame_equal(found.table, expected.table)
        return found

    found = same(fresh)
    must_fail(same, of(held))  # a control that is the trained model
    asked = {"prompts": drawn(40, "test/learned/causal"), "effect": lambda p: torch.ones(len(p))}
    pd.testing.assert_frame_equal(
        found.causal(**asked, n_random=3), expected.causal(**asked, n_random=3)
    )


@pytest.mark.usefixtures("as_users_run_it")
def test_of_an_adapted_module_the_untrained_one_is_asked_for():
    module = of(planted())
    wide = blank(WIDTH + 1, n_heads=2, d_head=2, d_in=DIM + 1, n_ctx=N + 1, **LINEAR).eval()
    wide = of(SimpleNamespace(model=wide, encoding=Stacked(), task=TASK))
    lacking = of(planted(), without=("hook_z",))
    for untrained, message in (
        (None, "pass untrained=icl_interp.adapt"),
        (module, "but got the model itself"),
        ("affine", "but got 'affine'"),
        (lacking, r"no blocks\.0\.attn\.hook_z.*; give points="),
        (wide, "other sizes than the model at blocks.0.hook_resid_post"),
    ):
        at = HEADS if untrained is lacking else STREAM
        with pytest.raises(InputError, match=message):
            fit(module, moment, at, prompts=drawn(20), untrained=untrained)
    with pytest.raises(InputError, match=r"no blocks\.0\.attn\.hook_z.*; give points="):
        fit(lacking, moment, HEADS, prompts=drawn(20), untrained=module)
