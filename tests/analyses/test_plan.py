"""Measurements that are taken together: the same results as alone, in levels that share a run."""

import gc
import itertools

import numpy as np
import pytest
from helpers import must_fail
from measurements_that_ask import (
    MINE,
    built,
    by_row,
    check_same,
    first_step,
    grid,
    plain,
    two_at_once,
    two_steps,
)
from small_labs import LABS, XS, bench
from small_models import TASK

from icl_interp.analyses import bench as bench_module
from icl_interp.analyses import plan
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Measurement, measurement
from icl_interp.analyses.registry import select
from icl_interp.interventions.attention import SwapPattern, Temperature
from icl_interp.models import tokens
from icl_interp.probes.sweep import n_read

pytestmark = pytest.mark.usefixtures("several_chunks")


def check_as_alone(lab: Lab, *orders):
    """Each result is what the measurement gives by itself, on a lab of its own, in any order."""

    def fresh(lab_class: type[Lab] = Lab) -> Lab:
        return lab_class(lab.model, TASK, lab.encoding, n_units=3, n_contexts=2)

    alone = {m.name: m(fresh()) for m in orders[0]}
    for measurements in orders:
        together = fresh(type(lab))
        for error in together.measure_all(measurements).values():
            raise error
        assert set(alone) <= set(together.results)
        for name, expected in alone.items():
            check_same(together.results[name], expected, name)


OTHERS = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("causal stacked", "bidirectional stacked", "post-norm")
]


@pytest.mark.parametrize("name", ["causal interleaved", *OTHERS])
def test_what_is_measured_together_is_what_is_measured_alone(name, monkeypatch):
    monkeypatch.setattr(bench_module, "GRID", bench_module.GRID[::8])
    check_as_alone(bench(name), MINE, MINE[::-1])


class MixesAnswers(Lab):
    """Hands everybody the answer to another question."""

    def run(self, sweeps, tick=None):
        found = super().run(sweeps, tick)
        return [found[i - 1] if found[i - 1].shape == f.shape else f for i, f in enumerate(found)]


class MixesProbes(Lab):
    """Probes read beside the query that they are asked to read at."""

    def run(self, sweeps, tick=None):
        for s in sweeps:
            if s.probes:
                object.__setattr__(s, "queries", s.queries + 1)
        return super().run(sweeps, tick)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [MixesAnswers, MixesProbes])
def test_a_mix_up_is_noticed(mutant):
    must_fail(check_as_alone, bench(lab_class=mutant), MINE)


# One of a kind in the fast tests: what a model of another kind costs is the same many times over.
QUICK = ("mlp only",)


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in LABS]
)
def test_every_bundled_measurement_gives_the_same_in_company(name, monkeypatch):
    lab = bench(name)
    known = Facts.of(lab.model, TASK, tokens.name_of(lab.encoding), {"error": 0.0, "r2": 1.0})
    wanted = {m.name: m for c in select(None) if not c.exclusion(known) for m in c.measurements}
    assert wanted
    check_as_alone(lab, list(wanted.values()))


# ---- levels --------------------------------------------------------------------------------------


class Counts(Lab):
    """How many sweeps are run at a time, and which contexts are read for them."""

    def run(self, sweeps, tick=None):
        self.__dict__.setdefault("runs", []).append(len(sweeps))
        self.__dict__.setdefault("reads", []).append(n_read(sweeps))
        return super().run(sweeps, tick)


def check_levels(take):
    """Two runs: what all ask that need nothing, then what the others ask.

    A context is read once in each.
    """
    lab = bench(lab_class=Counts)
    take(lab, [built, two_steps, plain, grid, two_at_once, first_step])
    assert lab.runs == [5, 1, 1]
    # All prompts for three, and few of them under no intervention and all under one for another.
    assert lab.reads[0] == 2 * len(lab.prompts) + len(lab.few)
    assert lab.reads[1:] == [len(lab.prompts)] * 2


def test_measurements_of_a_level_share_their_run():
    check_levels(lambda lab, wanted: lab.measure_all(wanted))
    must_fail(check_levels, lambda lab, wanted: [lab.measure(m) for m in wanted])


def check_order():
    """A measurement is reduced after all that it needs, in whatever order they are named."""
    for wanted in itertools.permutations("abcd"):
        done = []

        def of(name, *needs, done=done):
            return Measurement(
                name,
                lambda lab, *_: done.append(name) or by_row(lab.prompts.xs[:, :1]),
                needs=needs,
            )

        a = of("a")
        b, c = of("b", a), of("c", a)
        every = {"a": a, "b": b, "c": c, "d": of("d", b, c)}
        assert bench().measure_all([every[name] for name in wanted]) == {}
        assert sorted(done) == list("abcd")
        assert done[0] == "a"
        assert done[-1] == "d"


def test_what_is_needed_comes_first(monkeypatch):
    check_order()
    monkeypatch.setattr(plan, "levels", lambda measurements: [list(measurements)])
    must_fail(check_order)


def test_the_grid_is_asked_for_once(monkeypatch):
    def check():
        lab = bench(lab_class=Counts)
        lab.measure(grid)
        again = Measurement("test/grid again", grid.function, asks=grid.asks)
        later = Measurement("test/later", lambda lab, f, _: by_row(f.f), 1, (plain,), on_grid)
        assert np.array_equal(lab.measure(again).values, lab.results[grid].values)
        assert np.array_equal(lab.measure(later).values, lab.results[grid].values)
        assert lab.runs == [1, 1]

    def on_grid(lab, _):
        return lab.on_grid

    check()
    monkeypatch.setattr(Lab, "on_grid", property(lambda lab: lab.ask(lab.grid)))
    must_fail(check)


@pytest.mark.slow
def test_answers_are_kept_no_longer_than_their_sweeps():
    """Predictions, and what probes recorded, would fill the memory."""
    lab = bench()
    lab.measure_all([plain, grid, two_at_once])
    gc.collect()
    assert list(lab._predictions) == [lab.on_grid]


def test_a_measurement_is_taken_once_whoever_needs_it():
    calls = []

    @measurement("test/counted", asks=lambda lab: lab.ask(XS))
    def counted(lab, swept):
        calls.append(lab)
        return by_row(swept.f)

    outer = [
        Measurement(f"test/outer {i}", lambda lab, below: below + 1, needs=(counted,))
        for i in range(2)
    ]
    for order in ([counted, *outer], [*outer, counted], outer):
        for before in ([counted], []):
            calls.clear()
            lab = bench()
            lab.measure_all(before)
            assert lab.measure_all(order) == {}
            assert calls == [lab]  # and it is kept, though nobody asked for it by name
            for m in outer:
                np.testing.assert_array_equal(
                    lab.results[m].values, lab.results[counted].values + 1
                )


@pytest.mark.slow
def test_what_another_measured_in_the_same_level_is_not_measured_again():
    """By `measure`, as a need or on its own: a result or an error that is there is taken."""
    for fails, asks in itertools.product((False, True), (None, lambda lab: lab.ask(XS))):
        calls = []

        def count(lab, *swept, calls=calls, fails=fails):
            calls.append(lab)
            if fails:
                raise ValueError("no such thing")
            return by_row(swept[0].f if swept else lab.sweep(XS))

        counted = Measurement("test/counted", count, asks=asks)
        measures = Measurement("test/measures", lambda lab, m=counted: lab.measure(m) + 1)
        needs = Measurement("test/needs", lambda lab, below: below + 1, needs=(counted,))
        for order in itertools.permutations([counted, measures, needs]):
            calls.clear()
            lab = bench()
            errors = lab.measure_all(order)
            assert len(calls) == 1, [m.name for m in order]
            assert set(errors) == ({m.name for m in order} if fails else set())
            assert {str(e) for e in errors.values()} <= {"no such thing"}


# ---- progress ------------------------------------------------------------------------------------


def check_progress(told):
    """Measurements by name as they ask and are reduced; sweeps, whose done prompts only grow."""
    names = [m.name for m in MINE]
    rest = [one for one in told if "sweeps over" in one[0] and "contexts" in one[0]]
    assert rest
    others = [one for one in told if one not in rest]
    assert {total for _, _, total in others} == {len(names)}
    # Each is named once before it asks, and those that ask once more, after the sweeps.
    first = {}
    for what, done, _ in others:
        first.setdefault(what, done)
    assert first == {name: i for i, name in enumerate(names)}
    asking = [m.name for m in MINE if m.asks]
    assert sorted(what for what, _, _ in others) == sorted([*names, *asking])
    assert told[-1] == (names[-1], len(names) - 1, len(names))
    for (_, before, all_before), (_, done, total) in zip(
        [("", 0, 0), *rest[:-1]], rest, strict=True
    ):
        goes_on = total == all_before and before <= done
        assert 0 < done <= total
        assert goes_on or (before == all_before and done < total), (
            "a level starts before the last one has ended"
        )
    assert rest[-1][1] == rest[-1][2]


@pytest.mark.slow
def test_who_watches_is_told_what_is_under_way():
    told = []
    bench().measure_all(MINE, lambda *progress: told.append(progress))
    check_progress(told)
    must_fail(check_progress, told[::-1])
    must_fail(check_progress, [(what, done, total + 1) for what, done, total in told])
    must_fail(check_progress, told[: len(MINE)])


@pytest.mark.slow
def test_contexts_under_interventions_are_counted_as_often_as_they_are_read(monkeypatch):
    """One sample is read once as it is and once under each intervention on its context.

    The bar is full at the end.
    """

    def check():
        lab, told = bench(), []

        edits = ([], [Temperature(2.0)], [SwapPattern("uniform")])

        @measurement("test/arms", asks=lambda lab: [lab.ask(XS, context=edit) for edit in edits])
        def arms(lab, swept):
            return by_row(swept[-1].f)

        lab.measure_all([arms], lambda *progress: told.append(progress))
        done, total = zip(*(progress[1:] for progress in told[1:-1]), strict=True)
        assert told[-1] == ("test/arms", 0, 1)
        assert set(total) == {3 * len(lab.prompts)}
        assert list(done) == sorted(set(done))
        assert done[-1] == total[-1]

    check()
    monkeypatch.setattr(plan, "n_read", lambda sweeps: len(sweeps[0].prompts))
    must_fail(check)
