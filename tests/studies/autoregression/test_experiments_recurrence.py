"""Remark 2: the network is the linear map of theory, and the unit is the layer.

What is said follows from numbers.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.errors import InputError
from icl_interp.experiments.presets import PRESETS
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import AGREES, DIFFERS, FAILS, HOLDS, OPEN
from icl_interp.figures.render import rendered
from icl_interp.figures.style import safe
from icl_interp.provenance import generator
from icl_interp.results import table_of_rows
from icl_interp.studies.autoregression.experiments import models, remark2
from icl_interp.studies.autoregression.experiments.models import Weights
from icl_interp.studies.autoregression.experiments.remark2 import (
    ATTENTION,
    BOUND,
    NETWORK,
    LinearRecurrence,
    Size,
)
from icl_interp.studies.autoregression.figures import remark2 as drawn
from icl_interp.theory import autoregression as theory

TINY = Size(d=2, n_points=4, hidden=6, steps=120, batch=32, seeds=2, descent=200)


def prompts_of(size, mu, n=50):
    return remark2.process(size, mu).sample(n, generator(0, "test/recurrence"), dtype=torch.float64)


def test_the_network_is_the_linear_map_of_theory():
    network = LinearRecurrence(2, 6, generator(0, "test/network"))
    with torch.no_grad():
        for weight in network.parameters():
            weight.imag = 0.0
    R, E, O = (weight.detach().real for weight in network.parameters())  # noqa: E741 (the letters of theory)
    states = torch.randn(3, 5, 2, generator=generator(0, "test/states"), dtype=torch.complex128)

    def check(R):
        with torch.no_grad():
            found = network(states)
        for t in range(5):
            kernel = theory.recurrent_kernel(R, E, O, t + 1).to(states.dtype)
            torch.testing.assert_close(
                found[:, t], torch.einsum("tij,btj->bi", kernel, states[:, : t + 1])
            )

    check(R)
    must_fail(check, 1.01 * R)


def test_its_hooks_read_and_edit():
    """Nobody listening, a listener, an edit of one step, and after it."""
    network = LinearRecurrence(2, 6, generator(0, "test/hooks"), n_points=5)
    states = torch.randn(3, 4, 2, generator=generator(0, "test/states"), dtype=torch.complex128)
    R, E, O = network.recurrence, network.embed, network.read_out  # noqa: E741 (the letters of theory)
    with torch.no_grad():
        plain = network(states)
        read, cache = network.run_with_cache(states)
        assert torch.equal(read, plain)
        # What hooks show is what the recurrence says, and the predictions are read off it.
        x = torch.zeros(3, 6, dtype=torch.complex128)
        for t in range(4):
            x = x @ R.T + cache["hook_embed"][:, t]
            torch.testing.assert_close(cache[f"hook_state.{t}"], x)
            torch.testing.assert_close(x @ O.T, plain[:, t])
        torch.testing.assert_close(cache["hook_embed"], states @ E.T)

        def moved_from(t):
            hook = (f"hook_state.{t}", lambda x, hook: x + 1)
            edited = network.run_with_hooks(states, fwd_hooks=[hook])
            gaps = (edited - plain).abs().amax((0, 2))
            assert (gaps[:2] == 0).all()
            assert (gaps[2:] > 1e-6).all()

        moved_from(2)
        must_fail(moved_from, 1)
        must_fail(moved_from, 3)
        assert torch.equal(network(states), plain)


def test_more_states_than_hooks_are_refused():
    network = LinearRecurrence(2, 3, generator(0, "test/hooks"), n_points=3)
    with pytest.raises(InputError, match="hooks for 3 states, but got 4"):
        network(torch.ones(1, 4, 2, dtype=torch.complex128))


@pytest.mark.slow
def test_training_is_for_the_law_of_angles_that_it_is_given():
    """On small angles the network learns to go on as before.

    On uniform ones there is nothing to learn.
    """
    errors = {}
    for mu in (1.0, 50.0):
        prompts = prompts_of(TINY, mu)
        predictor = remark2.OnStates(lambda mu=mu: remark2.trained(TINY, mu, 0))
        errors[mu] = float(
            (predictor.predict(prompts) - prompts.ys)[:, 1:].square().mean()
            / prompts.ys.square().mean()
        )
    assert errors[50.0] < 0.2
    assert 0.8 < errors[1.0] < 1.5


def test_a_module_is_made_at_the_first_prediction_and_once():
    made = []

    def make():
        made.append(LinearRecurrence(2, 3, generator(0, "test/made")))
        return made[-1]

    predictor = remark2.OnStates(make)
    assert made == []
    for _ in range(2):
        assert not predictor.predict(prompts_of(TINY, 1.0)).requires_grad
    assert len(made) == 1


def test_the_unit_has_the_rows_that_descent_found(monkeypatch):
    """With the weights of Proposition 3 nothing is missed from the second point on.

    This holds for any law of angles.
    """
    layer = theory.unitary_heads(TINY.d, TINY.n_points)
    P = torch.zeros(1, TINY.n_points - 1, TINY.n_points, dtype=torch.float64)
    for t in range(TINY.n_points - 1):
        P[0, t, : t + 2] = layer.positions[-(t + 2) :]

    def check(factor, mu):
        weights = Weights(layer.queries[None], factor * layer.values[None], P)
        monkeypatch.setattr(models, "descend", lambda *_: (weights, 0))
        unit = remark2.OnStates(lambda: remark2.attention(Setup({}, PRESETS["smoke"]), TINY))
        prompts = prompts_of(TINY, mu)
        missed = (unit.predict(prompts) - prompts.ys).square().mean((0, 2))
        assert missed[0] > 0.1  # a single state shows no ratio
        assert missed[1:].max() < 1e-24

    for mu in (1.0, 50.0):
        check(1.0, mu)
        must_fail(check, 1.001, mu)


@pytest.mark.slow
def test_it_runs_on_few_tokens_and_is_drawn(monkeypatch, tmp_path):
    small = replace(TINY, steps=3, descent=20)
    monkeypatch.setattr(remark2, "SIZES", {"smoke": small})
    results = remark2.run(Setup({}, PRESETS["smoke"], cache=tmp_path))
    rows = results["errors"].to_dict("records")
    assert len(rows) == len(remark2.MUS) * (small.seeds + 1)
    assert {row[BOUND] for row in rows if row["mu"] == remark2.UNIFORM} == {1.0}

    monkeypatch.setattr(
        remark2, "trained", lambda *_: pytest.fail("trained again, although the errors are kept")
    )
    again = remark2.run(Setup({}, PRESETS["smoke"], cache=tmp_path))
    assert again["errors"].to_dict("records") == rows

    figure = safe(rendered(drawn.remark2(results, None)["remark2"]))

    def check(factor):
        lines = [np.asarray(t.y) for t in figure.data if t.name == NETWORK]
        for line, mu in zip(lines, remark2.MUS, strict=True):
            own = results["points"].sel(mu=mu, model=NETWORK).values[1:]
            np.testing.assert_allclose(factor * line, own)

    check(1.0)
    must_fail(check, 1.1)
    assert remark2.compare(results) is results["errors"]


def said(network=1.0, attention=1e-9, small=0.3, bound=0.2):
    rows = []
    for mu in remark2.MUS:
        uniform = mu == remark2.UNIFORM
        for model, error in ((NETWORK, network if uniform else small), (ATTENTION, attention)):
            row = {
                "mu": mu,
                "model": model,
                "seed": 0,
                "error": error,
                "low": 0.99 * error,
                "high": 1.01 * error,
            }
            rows.append({**row, BOUND: 1.0 if uniform else bound})
    return remark2.states({"errors": table_of_rows(rows)})


def test_what_is_said():
    def words(**changes):
        return [one.word for one in said(**changes)]

    assert words() == [AGREES, AGREES, HOLDS, ""]
    assert words(network=0.7)[0] == OPEN
    assert words(network=0.3)[0] == DIFFERS
    assert words(attention=0.2)[1] == OPEN
    assert words(attention=0.9)[1] == DIFFERS
    assert words(small=0.1)[2] == FAILS  # half of the least error
    assert words(small=0.02, bound=0.0)[2] == HOLDS
    assert (
        "μ = 50: 0.3 (attention 1e-09; the best linear map for each length 0.2)" in said()[-1].text
    )


def test_without_results_nothing_is_said():
    assert remark2.REMARK2_EXPERIMENT.says({}) == ("Nothing is measured.",)
    assert remark2.compare({}) is None
    assert drawn.remark2({}, None) == {}
