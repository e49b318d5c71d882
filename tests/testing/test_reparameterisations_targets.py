"""Edits of targets: in other units a model answers scale f + shift, whichever way its tokens show the values."""

from dataclasses import replace

import pytest
import torch
from architectures import ARCHITECTURES, model_of
from helpers import must_fail, one_in
from small_models import TASK, encoding_of, make
from vector_tasks import LinearMap, Rotations

from icl_interp.errors import InputError
from icl_interp.models.rescaled import RescaledValues
from icl_interp.models.tokens import Interleaved, Stacked, States
from icl_interp.provenance import generator
from icl_interp.tasks import Normal, Uniform
from icl_interp.tasks.rescaled import Rescaled
from icl_interp.testing.reparameterisations.base import made, weights_of
from icl_interp.testing.reparameterisations.targets import (
    RESCALED,
    SCALED,
    SHIFTED,
    TARGET_EDITS,
    Posed,
    Units,
)

UNITS = Units(3.0, -2.0)
LINEAR_MAP = LinearMap(n_dims=3, outputs=2, weights=Normal(1), inputs=Normal(1), n_points=6)
POSED = {
    name: Posed(model_of(name), TASK, encoding_of(model_of(name)))
    for name in ARCHITECTURES
    if name != "two targets"
}
POSED |= {
    "vectors": Posed(make("pre", d_in=3, d_out=2), LINEAR_MAP, Interleaved()),
    "vectors, stacked": Posed(make("bidirectional", d_in=5, d_out=2), LINEAR_MAP, Stacked()),
}
NAMED = {edit.name: edit for edit in TARGET_EDITS}
APPLYING = [
    (name, edit.name)
    for name, posed in POSED.items()
    for edit in TARGET_EDITS
    if edit.applies(posed) is None
]


def units_of(edit):
    return Units(UNITS.scale if edit.scales else 1.0, UNITS.shift if edit.shifts else 0.0)


def answers_in_units(posed, other, units, size=1.0):
    """The same functions at the same inputs: the other model says scale f + shift of what the first one says."""
    mine, theirs = (
        one.task.sample(6, generator(0, "test"), dtype=torch.float64) for one in (posed, other)
    )
    mine, theirs = (replace(one, xs=size * one.xs) for one in (mine, theirs))
    torch.testing.assert_close(
        theirs.ys, units.scale * mine.ys + units.shift, rtol=1e-12, atol=1e-12
    )
    with torch.no_grad():
        before = posed.model(posed.encoding.encode(mine))
        after = other.model(other.encoding.encode(theirs))
    wanted = units.scale * before + units.shift
    assert (after - wanted).abs().max() <= 1e-10 * wanted.abs().max()
    assert not torch.equal(after, before)


@pytest.mark.parametrize(("name", "edit"), one_in(3, APPLYING))
def test_the_model_answers_in_the_new_units(name, edit):
    units = units_of(NAMED[edit])
    other = NAMED[edit].in_units(POSED[name], units)
    answers_in_units(POSED[name], other, units)
    answers_in_units(POSED[name], other, units, size=1e4)


def test_every_edit_applies_somewhere_and_the_wrapper_everywhere():
    assert {edit for _, edit in APPLYING} == set(NAMED)
    assert {name for name, edit in APPLYING if edit == RESCALED.name} == set(POSED)


def halved(posed, edit, part):
    """The edit without the change of one part."""
    units = units_of(edit)
    other, weights = edit.in_units(posed, units), weights_of(posed.model)
    if part == "encoding":
        return other._replace(encoding=posed.encoding)
    if part == "task":
        return other._replace(task=posed.task)
    changed = weights_of(other.model)
    assert not torch.equal(changed[part], weights[part])
    return other._replace(model=made({**changed, part: weights[part]}, other.model.cfg))


@pytest.mark.parametrize(
    ("name", "edit", "part"),
    [
        ("pre", SHIFTED, "pos_embed.W_pos"),
        ("pre", SHIFTED, "unembed.b_U"),
        ("pre", SHIFTED, "task"),
        ("vectors", SHIFTED, "pos_embed.W_pos"),
        ("bidirectional", SCALED, "embed.W_E"),
        ("bidirectional", SCALED, "unembed.W_U"),
        ("bidirectional", SCALED, "unembed.b_U"),
        ("vectors, stacked", SCALED, "embed.W_E"),
        ("pre", RESCALED, "encoding"),
        ("linear, stacked", RESCALED, "encoding"),
        ("pre", RESCALED, "unembed.W_U"),
        ("pre", RESCALED, "unembed.b_U"),
        ("pre", RESCALED, "task"),
    ],
)
def test_an_edit_by_half_is_noticed(name, edit, part):
    must_fail(answers_in_units, POSED[name], halved(POSED[name], edit, part), units_of(edit))


@pytest.mark.parametrize(
    ("name", "edit", "why"),
    [
        ("bidirectional", SHIFTED, "no position of its own shows a value"),
        ("attention only", SHIFTED, "no vectors of positions"),
        ("bounded read-in", SHIFTED, "is bounded"),
        ("pre", SCALED, "the same rows of W_E"),
    ],
)
def test_refusals(name, edit, why):
    with pytest.raises(InputError, match=why):
        edit.apply(POSED[name], generator(0, "test"))


@pytest.mark.parametrize(("name", "edit"), [("bounded read-in", SHIFTED), ("pre", SCALED)])
def test_where_an_edit_is_refused_it_would_not_do(name, edit):
    must_fail(
        answers_in_units, POSED[name], edit.in_units(POSED[name], units_of(edit)), units_of(edit)
    )


def test_paths_have_no_units_of_their_own():
    task = Rotations(angles=Uniform(0, 1), inputs=Normal(1), n_points=6)
    posed = Posed(make("pre", d_in=2, d_out=2), task, States())
    for edit in TARGET_EDITS:
        with pytest.raises(InputError, match="the next inputs"):
            edit.apply(posed, generator(0, "test"))
    with pytest.raises(InputError, match="shows no values"):
        RescaledValues(States())


@pytest.mark.parametrize(
    ("settings", "why"), [({"scale": 0.0}, "must not be 0"), ({"shift": float("nan")}, "finite")]
)
def test_an_encoding_refuses_what_are_no_units(settings, why):
    with pytest.raises(InputError, match=why):
        RescaledValues(Interleaved(), **settings)


def test_drawn_units_are_of_the_size_of_the_values():
    posed = POSED["pre"]
    spread = float(TASK.sample(4000, generator(1, "test"), dtype=torch.float64).ys.std())
    shifts = []
    for seed in range(20):
        task = RESCALED.apply(posed, generator(seed, "test")).task
        assert isinstance(task, Rescaled)
        assert 2 <= task.scale <= 4
        assert 1.5 * spread < abs(task.shift) < 5 * spread
        shifts.append(task.shift)
    assert min(shifts) < 0 < max(shifts)


def test_an_encoding_delegates_all_but_the_values():
    inner, outer = Stacked(), RescaledValues(Stacked(), 2.0, 1.0)
    xs = torch.randn(3, 4, 2, generator=generator(0, "test"))
    torch.testing.assert_close(outer.encode_queries(xs), inner.encode_queries(xs))
    for method, arguments in (
        ("d_in", (2, 3)),
        ("n_tokens", (7,)),
        ("n_points", (7,)),
        ("kinds", (5,)),
        ("read_at", (5, "causal")),
    ):
        assert getattr(outer, method)(*arguments) == getattr(inner, method)(*arguments)
    assert RescaledValues(Interleaved()).n_tokens(7) != outer.n_tokens(7)
