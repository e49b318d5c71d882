"""Augmented tokens (0, s_t, s_{t-1}) of paths: content, queries, one step of gradient descent."""

import pytest
import torch
from helpers import must_fail
from torch.testing import assert_close

from icl_interp.errors import InputError
from icl_interp.models import tokens
from icl_interp.provenance import generator
from icl_interp.tasks import AutoregressiveProcess, LinearRegression, Normal
from icl_interp.theory import autoregression as theory


def drawn(**changes):
    task = AutoregressiveProcess(**{"n_dims": 4, "start": Normal(1.0), "n_points": 6, **changes})
    return task.sample(5, generator(0, "test/augmented"))


def test_augmented_tokens_hold_two_states():
    prompts = drawn()
    encoding = tokens.named("augmented")

    def check(found):
        assert found.shape == (5, 6, 12) == (5, encoding.n_tokens(6), encoding.d_in(4, 4))
        assert not found[..., :4].any()
        assert torch.equal(found[..., 4:8], prompts.xs)
        assert torch.equal(found[:, 1:, 8:], prompts.xs[:, :-1])
        assert not found[:, 0, 8:].any()
        assert_close(found.double(), theory.augmented_tokens(prompts.xs), rtol=0, atol=0)

    found = encoding.encode(prompts)
    check(found)
    must_fail(check, found.roll(4, -1))
    must_fail(check, found.roll(1, 1))
    assert encoding.kinds(6) == ("x",) * 6
    assert encoding.read_at(6, "causal") == (range(6), range(6))
    assert tokens.name_of(encoding) == "augmented"


def test_a_query_of_augmented_tokens_holds_the_state_before_it():
    prompts, encoding = drawn(), tokens.named("augmented")
    wanted = encoding.encode(prompts)[:, -1:]

    def check(shown):
        assert torch.equal(encoding.queries_after(shown, prompts.xs[:, -1:]), wanted)

    check(prompts)
    must_fail(check, prompts.first(5))
    several = encoding.queries_after(prompts, prompts.xs)
    assert torch.equal(several[:, 2, 8:], prompts.xs[:, -2])
    plain = tokens.named("states")
    assert torch.equal(
        plain.queries_after(prompts, prompts.xs), plain.encode_queries(prompts.xs, 4)
    )
    with pytest.raises(InputError, match="holds the state before it too: use queries_after"):
        encoding.encode_queries(prompts.xs)


def test_augmented_tokens_are_for_paths():
    line = LinearRegression(n_dims=2, n_points=5)
    with pytest.raises(
        InputError,
        match="augmented shows no values, and those of a LinearRegression are not the next",
    ):
        tokens.named("augmented").check(line)
    tokens.named("augmented").check(AutoregressiveProcess(n_dims=2, n_points=5))


def test_a_step_of_gradient_descent_on_augmented_tokens():
    """Tokens, path and theory fit together: the prediction is W_1 s_T."""
    prompts, step = drawn(n_points=8).double(), 0.05
    shown = tokens.named("augmented").encode(prompts)
    W = theory.gradient_descent(prompts.xs, step, 1)
    wanted = (W @ prompts.xs[:, -1, :, None])[..., 0]

    def check(step):
        found = theory.augmented_prediction(shown, *theory.gradient_step_weights(4, step))
        assert_close(found, wanted, rtol=1e-12, atol=1e-12)

    check(step)
    must_fail(check, 1.01 * step)
