"""What sweeps share beside contexts: the stream before an edit, and contexts in float32.

Queries may have another precision than contexts.
"""

import copy

import pytest
import torch
from helpers import must_fail
from small_models import encoding_of, make
from small_sweeps import XS, at, check_sweeps, close, sweeps

import icl_interp.probes.sweep as sweep_module
from icl_interp.interventions.attention import Temperature
from icl_interp.models.attention import KeysValues
from icl_interp.probes.sweep import run


def each_alone(model, encoding, asked):
    return [run(model, encoding, [s])[0] for s in asked]


# ---- what lies before an edit --------------------------------------------------------------------

LATE = ("edited late", "edited late otherwise", "edited late, own queries", "edited late, shorter")


def check_late_edits(run_all=run, name="pre"):
    """Edits of the second block: numbers of whole prompts.

    The first is run once for all over equal queries.
    """
    check_sweeps(name, run_all, LATE)
    model, calls = make(name), []
    first = model.blocks[0]
    after = first.after
    first.after = lambda stream, context: calls.append(stream.shape[1]) or after(stream, context)
    run_all(model, encoding_of(model), [sweeps(model)[case] for case in LATE])
    assert sorted(calls) == [2, 3, 3]


def test_what_lies_before_an_edit_is_computed_once():
    check_late_edits()
    must_fail(check_late_edits, each_alone)


@pytest.mark.parametrize("kept", ["n_points", "queries", "own"])
def test_a_mix_up_of_what_lies_before_an_edit_is_noticed(kept, monkeypatch):
    def like_others(self, *args):
        made(self, *args)
        parts = dict(zip(("n_points", "queries", "own"), self.same, strict=True))
        self.same = tuple(part for name, part in parts.items() if name != kept)

    made = sweep_module._Pass.__init__
    monkeypatch.setattr(sweep_module._Pass, "__init__", like_others)
    cases = {
        "n_points": ("edited late", "edited late, shorter"),
        "own": ("edited late, two", "edited late, own queries"),
    }
    must_fail(check_sweeps, "pre", run, cases.get(kept, ("edited late", "edited late elsewhere")))


def test_from_the_block_after_the_edit_is_noticed(monkeypatch):
    monkeypatch.setattr(sweep_module, "first_block", lambda model, interventions: 1)
    check_sweeps("pre", run, ("edited late",))
    must_fail(check_sweeps, "pre", run, ("edited early",))


# ---- contexts in float32 -------------------------------------------------------------------------


def check_reader(reader_of, case="every probe"):
    """Contexts in float32 and queries in float64 give float64's results but for rounding."""
    model = make()
    names = (case, "edited context", "both edited", "edited late", "shorter", "own query")
    plain, mixed = ([sweeps(model)[name] for name in names] for _ in range(2))
    expected = run(model, encoding_of(model), plain)
    found = run(model, encoding_of(model), mixed, reader=reader_of(model))
    for name, f, g in zip(names, found, expected, strict=True):
        assert f.dtype == torch.float64
        close(f, g, name, 1e-5)


def test_contexts_may_be_read_in_float32():
    check_reader(lambda model: copy.deepcopy(model).float())
    must_fail(check_reader, lambda model: copy.deepcopy(model).bfloat16())
    must_fail(check_reader, lambda model: make(eps=1e-3))


ROOMS: list[torch.Tensor] = []  # that something was copied to


def never_again(self, room):
    """What the first part left stays."""
    if not any(room.keys is known for known in ROOMS):
        ROOMS.append(room.keys)
        return KeysValues(room.keys.copy_(self.keys), room.values.copy_(self.values))
    return KeysValues(room.keys[: len(self.keys)], room.values[: len(self.keys)])


def at_the_end(self, room):
    """The rows of a shorter part are looked for at the wrong end."""
    for of_mine, of_room in zip(self[:2], room[:2], strict=True):
        of_room[: len(of_mine)].copy_(of_mine)
    return KeysValues(room.keys[-len(self.keys) :], room.values[-len(self.keys) :])


def test_contexts_in_float32_part_by_part(monkeypatch):
    """Each part is copied to where the one before stood, the shorter last one too.

    None is taken for another.
    """

    def check():
        check_reader(lambda model: copy.deepcopy(model).float())

    def parts(model, n, *_, **__):
        return [slice(start, min(start + 4, n)) for start in range(0, n, 4)]

    monkeypatch.setattr(sweep_module, "chunks", parts)
    check()
    for mutant in (never_again, at_the_end):
        monkeypatch.setattr(KeysValues, "copied_to", mutant)
        must_fail(check)


def check_large(run_all):
    """Keys and values beyond float32's range: the context is read in float64 then."""
    model = make("no norm")
    with torch.no_grad():
        model.embed.W_E.mul_(1e20)
        for block in model.blocks:
            block.mlp.W_in.mul_(1e30)
            block.attn.W_Q.mul_(1e-100)
    asked = [at(XS), at(XS, context=(Temperature(3.0),))]
    for f, g in zip(run_all(model, asked), run(model, encoding_of(model), asked), strict=True):
        assert f.isfinite().all()
        assert torch.equal(f, g)


def test_what_overflows_in_float32_is_read_in_float64(monkeypatch):
    def mixed(model, asked):
        return run(model, encoding_of(model), asked, reader=copy.deepcopy(model).float())

    check_large(mixed)
    monkeypatch.setattr(KeysValues, "is_finite", True)
    must_fail(check_large, mixed)


def test_queries_far_out_are_read_in_float64():
    """With only the context in float32, 1e6 and 1e6 + 1 differ; with all in float32 they do not."""
    model = make("no norm")
    far = at((1e6, 1e6 + 1))
    step = run(model, encoding_of(model), [far])[0].diff(dim=1)
    mixed = run(model, encoding_of(model), [far], reader=copy.deepcopy(model).float())[0].diff(
        dim=1
    )
    single = run(copy.deepcopy(model).float(), encoding_of(model), [far])[0].double().diff(dim=1)
    assert torch.allclose(mixed, step, rtol=1e-3)
    must_fail(lambda found: close(found, step, "float32", 1e-3), single)
