"""What is kept while a model runs belongs to its thread.

Runs in parallel give what they give one after the other.

Threads meet where they would disturb each other: one waits inside a hook until the other is done,
so nothing is left to chance.
"""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from helpers import must_fail
from small_models import make
from tiny_runs import checkpoint

import icl_interp
from icl_interp.interventions import AblateHeads, MeanOutputs, SwapPattern, intervene, patch
from icl_interp.interventions import base as interventions
from icl_interp.models import hooks
from icl_interp.models.hooks import Opened, hooked_modules, listened
from icl_interp.probes import AttentionPattern, LogitLens, Probe, ResidualStream, probe
from icl_interp.probes import base as probes
from icl_interp.provenance import generator

PATIENCE = 60  # seconds until a test gives up


def tokens_of(name, n=6):
    return torch.randn(5, n, 1, generator=generator(0, f"test/threads/{name}"), dtype=torch.float64)


class Meets(Probe):
    """Inside its first reading it lets another thread run from beginning to end."""

    name = "meets"

    def __init__(self, other):
        self.other, self.met = other, False

    def hooks(self, model, positions):
        return [("blocks.0.hook_resid_mid", self.meet)]

    def meet(self, t, hook):
        if not self.met:
            self.met = True
            self.other()

    def results(self):
        return {}


def in_another_thread(function):
    """What a function returns in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result(PATIENCE)


def everything(model, tokens):
    with torch.no_grad():
        found = probe(model, tokens, [ResidualStream(), LogitLens(), AttentionPattern()])
    return {name: result.values for name, result in found.items()}


def same(found, expected):
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert np.array_equal(found[name], values, equal_nan=True), name


def check_probes_side_by_side(one, other):
    """The second probe runs while the first one reads."""
    mine, theirs = tokens_of("mine"), tokens_of("theirs")
    alone, beside = everything(one, mine), everything(other, theirs)
    found = {}

    def meanwhile():
        found["theirs"] = in_another_thread(lambda: everything(other, theirs))

    probed = probe(one, mine, [ResidualStream(), Meets(meanwhile), LogitLens(), AttentionPattern()])
    same({name: result.values for name, result in probed.items()}, alone)
    same(found["theirs"], beside)


class OfTheProcess:
    """A variable that all threads share, as a list of the module was."""

    def __init__(self, value):
        self.value = value

    def get(self):
        return self.value

    def set(self, value):
        before, self.value = self.value, value
        return before

    def reset(self, before):
        self.value = before


def test_probes_of_two_models_in_two_threads(monkeypatch):
    check_probes_side_by_side(make("pre"), make("post"))
    monkeypatch.setattr(probes, "_READING", OfTheProcess(False))
    with pytest.raises(IndexError):  # the other thread's probes have read nothing
        check_probes_side_by_side(make("pre"), make("post"))


def anyones(monkeypatch):
    """The mutant: hooks of a context act in every thread."""
    monkeypatch.setattr(Opened, "is_here", property(lambda self: self.is_open))


def test_two_probes_of_one_model_in_two_threads(monkeypatch):
    model = make("pre")
    check_probes_side_by_side(model, model)
    assert not hooked_modules(model)
    anyones(monkeypatch)
    must_fail(check_probes_side_by_side, model, model)


def check_edits_stay(model):
    """A thread runs a model intact, and under its own edits, while another one edits it."""
    tokens = tokens_of("edits")
    with torch.no_grad():
        intact = model(tokens)
        with intervene(model, SwapPattern("uniform")):
            uniform = model(tokens)

        def under_uniform():
            with intervene(model, SwapPattern("uniform")):
                return model(tokens)

        with intervene(model, AblateHeads.zero((0, 0), (1, 1))):
            ablated = model(tokens)
            assert torch.equal(in_another_thread(lambda: model(tokens)), intact)
            assert torch.equal(in_another_thread(under_uniform), uniform)
            some = in_another_thread(lambda: model(tokens, [2, 4]))
            # Fewer rows go through other kernels, so that last bits may differ.
            assert torch.allclose(some, intact[:, [2, 4]], rtol=1e-5, atol=1e-6)
            assert torch.equal(model(tokens), ablated), "the other thread took nothing away"
        assert torch.equal(model(tokens), intact)
    assert not torch.equal(ablated, intact)
    assert not torch.equal(uniform, intact)


def test_interventions_act_in_their_own_thread(monkeypatch):
    model = make("pre")
    check_edits_stay(model)
    anyones(monkeypatch)
    must_fail(check_edits_stay, model)


def test_contexts_may_end_in_any_order():
    """The first thread leaves while the second one is inside: only what is its own goes."""
    model, tokens = make("pre"), tokens_of("order")
    inside, leave = threading.Event(), threading.Event()
    zero = AblateHeads.zero((0, 0))

    def second():
        with torch.no_grad(), intervene(model, zero):
            inside.set()
            assert leave.wait(PATIENCE)
            return model(tokens)

    with torch.no_grad(), ThreadPoolExecutor(1) as pool:
        with intervene(model, zero):
            expected = model(tokens)
        with intervene(model, SwapPattern("uniform")):
            later = pool.submit(second)
            assert inside.wait(PATIENCE)
        model.reset_hooks()  # and this takes nothing from the other thread either
        leave.set()
        assert torch.equal(later.result(PATIENCE), expected)
    assert not any(
        point.fwd_hooks or point._forward_hooks or point.opened for point in model.hook_points()
    )


def test_what_is_added_for_good_acts_in_every_thread():
    model, tokens = make("pre"), tokens_of("good")
    model.add_hook("hook_embed", lambda t, hook: 2 * t)
    with torch.no_grad():
        assert torch.equal(in_another_thread(lambda: model(tokens)), model(tokens))
    assert in_another_thread(lambda: listened(model.hook_embed))
    model.reset_hooks()
    assert not listened(model.hook_embed)


def test_gradients_go_to_the_thread_that_asks():
    model, tokens, seen = make("pre"), tokens_of("gradients"), []

    def backward():
        model(tokens).sum().backward()

    with model.hooks(bwd_hooks=[("hook_embed", lambda grad, hook: seen.append(grad.shape))]):
        in_another_thread(backward)
        assert not seen
        backward()
        assert seen == [(5, 6, model.cfg.d_model)]


def test_a_copy_that_is_made_inside_loses_its_hooks_with_the_context():
    model, tokens = make("pre"), tokens_of("copy")
    with torch.no_grad():
        intact = model(tokens)
        with intervene(model, SwapPattern("uniform")):
            control = copy.deepcopy(model)
            assert torch.equal(control(tokens), model(tokens))
            assert hooked_modules(control) == hooked_modules(model) != []
        assert torch.equal(control(tokens), intact)
    assert hooked_modules(control) == []


def check_masks(model, found):
    """Another thread asks for the mask of longer prompts; `found` gives the mask in use."""
    short, attention = tokens_of("short", 4), type(model.blocks[0].attn)
    with torch.no_grad():
        expected = model(short)
        look_up = attention._visibility

        def interrupted(self, x, rows, hide_query):
            mask = look_up(self, x, rows, hide_query)
            in_another_thread(
                lambda: look_up(self, torch.zeros(5, 9, 12, dtype=x.dtype), None, hide_query)
            )
            return found(self, mask)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(attention, "_visibility", interrupted)
            assert torch.equal(model(short), expected)


def test_masks_of_two_lengths():
    check_masks(make("pre"), lambda layer, mask: mask)
    with pytest.raises(
        RuntimeError, match="expand"
    ):  # the one that the layer keeps is the other thread's by then
        check_masks(make("pre"), lambda layer, mask: layer._mask[0])


def check_observers():
    """Who watches interventions sees those of its own thread."""
    seen = []

    def observe(model, attached):
        seen.append(threading.get_ident())
        return interventions.ExitStack()

    def elsewhere():
        with intervene(make("pre"), SwapPattern("uniform")):
            pass

    before = interventions.OBSERVERS.set((observe,))
    try:
        in_another_thread(elsewhere)
        elsewhere()
    finally:
        interventions.OBSERVERS.reset(before)
    assert seen == [threading.get_ident()]


def test_observers_belong_to_a_thread(monkeypatch):
    check_observers()
    monkeypatch.setattr(interventions, "OBSERVERS", OfTheProcess(()))
    must_fail(check_observers)


def test_patching_and_measuring_in_two_threads():
    """Both in many turns, on one model: numbers are those of one after the other."""
    model, clean, corrupted = make("pre"), tokens_of("clean", 4), tokens_of("corrupted", 4)
    names = ["blocks.0.hook_attn_out"]

    def patched():
        return patch(model, clean, corrupted, lambda out: out[:, -1].square().mean(), "z").values

    def measured():
        return MeanOutputs.measure(model, clean, names).means[names[0]].numpy()

    alone = patched(), measured()
    with ThreadPoolExecutor(2) as pool:
        found = [(pool.submit(patched), pool.submit(measured)) for _ in range(4)]
        for pair in found:
            for one, expected in zip(pair, alone, strict=True):
                assert np.array_equal(one.result(PATIENCE), expected)


@pytest.mark.slow
def test_two_analyses_side_by_side():
    claims, settings = (
        ["limits.context_erased", "heads.orthogonality"],
        {"n_prompts": 64, "progress": False},
    )
    one, other = (checkpoint(task={"degrees": [degree]}) for degree in (1, 2))

    def numbers(report):
        found = {name: np.asarray(result) for name, result in report.results.items()}
        return found, [(finding.id, finding.verdict, finding.reason) for finding in report.findings]

    def analysed(model):
        return numbers(icl_interp.analyze(model, claims=claims, **settings))

    alone = [analysed(model) for model in (one, other, one)]
    with ThreadPoolExecutor(3) as pool:  # the third on the first one's model
        beside = list(pool.map(analysed, (one, other, one)))
    for (found, verdicts), (expected, said) in zip(beside, alone, strict=True):
        assert verdicts == said
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_the_lock_is_not_held_while_functions_run():
    """A function at a hook may open contexts of its own, in any thread."""
    model, tokens = make("pre"), tokens_of("lock")
    other = make("post")

    def look(t, hook):
        in_another_thread(lambda: probe(other, tokens, [ResidualStream()]))
        assert not hooks._LOCK._is_owned()

    with torch.no_grad(), model.hooks(fwd_hooks=[("hook_embed", look)]):
        model(tokens)
