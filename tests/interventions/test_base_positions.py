"""Interventions by position: at some tokens, on a remembered context, on last tokens after it."""

import pytest
import torch
from helpers import must_fail
from small_models import EVERY, N_TOKENS, PROMPTS, freeze, make, several, tokens_for
from torch.testing import assert_close

from icl_interp.interventions.attention import SwapPattern, Temperature
from icl_interp.interventions.base import At, intervene

# Those that choose no positions themselves, and are not made for all positions of some prompts.
WHOLE = {
    name: build
    for name, build in EVERY.items()
    if not (name.startswith("at ") or "of other prompts" in name)
}
WHOLE = pytest.mark.parametrize("build", WHOLE.values(), ids=WHOLE)


@pytest.fixture(autouse=True)
def _no_gradients():
    """Without gradients, as numbers are compared bit by bit.

    With gradients and without hooks, norms take another route.
    """
    with torch.no_grad():
        yield


# At some positions only ---------------------------------------------------------------------------


def check_only_from(model, position, interventions):
    """Causal attention: what happens at a position is not seen before it, but is seen there."""
    before = model(tokens_for(model))
    with intervene(model, *interventions):
        after = model(tokens_for(model))
    torch.testing.assert_close(after[:, :position], before[:, :position], rtol=0, atol=1e-12)
    assert not torch.allclose(after[:, position], before[:, position], rtol=1e-3, atol=1e-3)


@WHOLE
@pytest.mark.parametrize("position", [5, N_TOKENS - 1])
def test_at_leaves_earlier_positions_alone(build, position):
    model = make()
    restricted = [At((position - N_TOKENS,), inner) for inner in several(build(model))]
    check_only_from(model, position, restricted)


def test_at_mutants():
    model = make()
    must_fail(check_only_from, model, 5, [Temperature(3.0)])
    must_fail(check_only_from, model, 5, [At((6,), Temperature(3.0))])


def test_at_every_position_is_everywhere():
    model = make()
    with intervene(model, SwapPattern("uniform")):
        everywhere = model(tokens_for(model))
    with intervene(model, At(tuple(range(N_TOKENS)), SwapPattern("uniform"))):
        assert_close(model(tokens_for(model)), everywhere)


# A context remembered, and last tokens after it ---------------------------------------------------


def check_after(name, everywhere, in_context, at_query):
    """A whole prompt for each query equals one context for all queries, up to float64 rounding."""
    model = make(name)
    tokens, queries = (
        tokens_for(model),
        torch.linspace(-3, 3, 5).double().view(1, 5, 1).expand(24, -1, -1),
    )
    whole = []
    with intervene(model, *several(everywhere(model))):
        for i in range(5):
            whole.append(model(torch.cat([tokens[:, :-1], queries[:, i : i + 1]], 1))[:, -1:])
    with intervene(model, *several(in_context(model))):
        memory = model.remember(tokens[:, :-1])
    with intervene(model, *several(at_query(model))):
        after = model.after(memory, queries, N_TOKENS - 1)
    assert_close(after, torch.cat(whole, 1), rtol=1e-9, atol=1e-9)


def of_the_query(built):
    """References by position, reduced to the last one."""
    return tuple(i.at_query() if hasattr(i, "at_query") else i for i in several(built))


@pytest.mark.parametrize("name", ["pre", "post"])
@WHOLE
def test_after_agrees_with_whole_prompts(name, build):
    check_after(name, build, build, lambda model: of_the_query(build(model)))


@pytest.mark.parametrize("inner", [freeze, lambda model: SwapPattern("uniform")])
def test_after_agrees_where_only_the_query_is_edited(inner):
    check_after(
        "pre",
        lambda model: At((-1,), inner(model)),
        lambda model: (),
        lambda model: of_the_query(inner(model)),
    )
    # The context's own positions edited as well is another thing.
    must_fail(
        check_after,
        "pre",
        lambda model: At((-1,), inner(model)),
        inner,
        lambda model: of_the_query(inner(model)),
    )


def test_after_mutant_takes_the_first_positions_reference():
    must_fail(check_after, "pre", freeze, freeze, freeze)


def test_shorter_prompts_take_the_first_positions_reference():
    model = make()
    frozen = freeze(model)
    short = tokens_for(model, PROMPTS.first(4))
    with intervene(model, frozen):
        assert_close(model(short), model(tokens_for(model))[:, :7], rtol=1e-9, atol=1e-9)
