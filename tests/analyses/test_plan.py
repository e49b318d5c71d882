"""Measurements that are taken together: the same results as alone, in rounds that they share."""

import numpy as np
import pytest
from helpers import must_fail
from labs import LABS, XS, bench
from planned import MINE, by_row, check_same, grid, plain, two_at_once, two_steps
from small_models import TASK

from icl_interp.analyses import bench as bench_module
from icl_interp.analyses import plan
from icl_interp.analyses.facts import Facts
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Measurement, measurement
from icl_interp.analyses.registry import select
from icl_interp.interventions.attention import SwapPattern, Temperature
from icl_interp.models import tokens
from icl_interp.probes.sweep import together

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


# ---- rounds --------------------------------------------------------------------------------------


class Counts(Lab):
    """How many sweeps are run at a time."""

    def run(self, sweeps, tick=None):
        self.__dict__.setdefault("runs", []).append(len(sweeps))
        return super().run(sweeps, tick)


def check_rounds(take):
    """Two rounds: what all ask first, then what two ask second."""
    lab = bench(lab_class=Counts)
    take(lab, [plain, grid, two_steps, two_at_once])
    assert lab.runs == [5, 1]


@pytest.mark.slow
def test_measurements_share_their_rounds():
    check_rounds(lambda lab, wanted: lab.measure_all(wanted))
    must_fail(check_rounds, lambda lab, wanted: [lab.measure(m) for m in wanted])


def test_the_grid_is_asked_for_once():
    lab = bench(lab_class=Counts)
    lab.measure(grid)
    again = Measurement("test/grid again", grid.function)
    assert np.array_equal(lab.measure(again).values, lab.results[grid].values)
    assert lab.runs == [1]


def test_a_measurement_is_taken_once_whoever_needs_it():
    calls = []

    @measurement("test/counted")
    def counted(lab):
        calls.append(lab)
        return by_row((yield from lab.ask(XS)))

    def needs(lab):
        return (yield from lab.need(counted)) + 1

    outer = [Measurement(f"test/outer {i}", needs) for i in range(2)]
    for order in ([counted, *outer], [*outer, counted]):
        lab = bench()
        lab.measure(counted)
        calls.clear()
        assert lab.measure_all(order) == {}
        assert not calls
        for m in outer:
            np.testing.assert_array_equal(lab.results[m].values, lab.results[counted].values + 1)


@pytest.mark.slow
def test_what_another_measured_in_the_same_round_is_not_measured_again():
    """By `measure`, `need` or by itself: a result that is there is taken, and so is an error."""
    for fails in (False, True):
        calls = []

        def count(lab, calls=calls, fails=fails):
            calls.append(lab)
            if fails:
                raise ValueError("no such thing")
            return by_row(lab.sweep(XS))

        counted = Measurement("test/counted", count)
        measures = Measurement("test/measures", lambda lab, m=counted: lab.measure(m) + 1)

        def need(lab, m=counted):
            return (yield from lab.need(m)) + 1

        needs = Measurement("test/needs", need)
        for order in (
            [counted, measures, needs],
            [needs, measures, counted],
            [measures, needs, counted],
        ):
            calls.clear()
            lab = bench()
            errors = lab.measure_all(order)
            assert len(calls) == 1, [m.name for m in order]
            assert set(errors) == ({m.name for m in order} if fails else set())
            assert {str(e) for e in errors.values()} <= {"no such thing"}


# ---- progress ------------------------------------------------------------------------------------


def check_progress(told):
    """The measurements by name, one after the other; then sweeps, whose done prompts grow.

    They grow until all prompts are done.
    """
    names = [m.name for m in MINE]
    assert [(what, done) for what, done, _ in told[: len(names)]] == [
        (name, i) for i, name in enumerate(names)
    ]
    assert {total for _, _, total in told[: len(names)]} == {len(names)}
    rest = [one for one in told[len(names) :] if "sweeps over" in one[0] and "contexts" in one[0]]
    assert rest
    # What goes on with its answers is named, after the last sweep of a round.
    others = [one for one in told[len(names) :] if one not in rest]
    assert {what for what, _, _ in others} <= set(names)
    assert {total for _, _, total in others} == {len(names)}
    assert told[-1] in others
    for (_, before, all_before), (_, done, total) in zip(
        [("", 0, 0), *rest[:-1]], rest, strict=True
    ):
        goes_on = total == all_before and before <= done
        assert 0 < done <= total
        assert goes_on or (before == all_before and done < total), (
            "a round starts before the last one has ended"
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

        @measurement("test/arms")
        def arms(lab):
            edits = ([], [Temperature(2.0)], [SwapPattern("uniform")])
            found = yield from together(*(lab.ask(XS, context=edit) for edit in edits))
            return by_row(found[-1])

        lab.measure_all([arms], lambda *progress: told.append(progress))
        done, total = zip(*(progress[1:] for progress in told[1:-1]), strict=True)
        assert told[-1] == ("test/arms", 0, 1)
        assert set(total) == {3 * len(lab.prompts)}
        assert list(done) == sorted(set(done))
        assert done[-1] == total[-1]

    check()
    monkeypatch.setattr(plan, "n_read", lambda sweeps: len(sweeps[0].prompts))
    must_fail(check)
