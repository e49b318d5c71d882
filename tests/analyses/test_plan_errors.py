"""A measurement that fails among others: it costs its own result only, and its error is its own."""

import functools
from collections.abc import Callable

import pytest
from labs import XS, bench
from planned import by_row, check_same, plain, two_at_once, two_steps
from small_models import TASK

from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Measurement, measurement
from icl_interp.errors import InputError
from icl_interp.interventions.base import Intervention
from icl_interp.probes.base import Probe
from icl_interp.probes.record import Activations

pytestmark = pytest.mark.usefixtures("several_chunks")


class Breaks(Probe):
    name = "breaks"

    def hooks(self, model, positions):
        return [("hook_embed", lambda t, hook: 1 / 0)]

    def results(self):
        return {}


class Edits(Breaks):
    name = "edits"

    def hooks(self, model, positions):
        return [("hook_embed", lambda t, hook: t.mul_(2))]


class Refuses(Intervention):
    def hooks(self, model):
        raise ValueError("not this model")


class Stumbles(Intervention):
    def hooks(self, model):
        return [("blocks.0.hook_resid_post", lambda t, hook: 1 / 0)]


def asking(**settings) -> Callable:
    def steps(lab):
        return by_row((yield from lab.ask(XS, **settings)))

    return steps


def at_once(lab):
    return 1 / 0


def later(lab):
    yield from lab.ask(XS)
    return 1 / 0


def of_no_type(lab):
    return float((yield from lab.ask(XS)).mean())


def without_from(lab):
    f = yield lab.ask(XS)
    return by_row(f)


def no_sweep(lab):
    yield
    return by_row(lab.sweep(XS))


FAILS = {
    "its code": (at_once, ZeroDivisionError, "division by zero"),
    "its code, later": (later, ZeroDivisionError, "division by zero"),
    "its result": (of_no_type, TypeError, "returned float"),
    "a hook of its probe": (
        asking(probes=[Activations(["nope"])]),
        InputError,
        "unknown hook 'nope'",
    ),
    "its probe": (asking(probes=[Breaks()]), ZeroDivisionError, "division by zero"),
    "its probe, which edits": (asking(probes=[Edits()]), InputError, "edited hook_embed in place"),
    "its intervention": (asking(query=[Refuses()]), ValueError, "not this model"),
    "its intervention, at work": (
        asking(context=[Stumbles()]),
        ZeroDivisionError,
        "division by zero",
    ),
    "a question without from": (without_from, Exception, ""),
    "a question about nothing": (no_sweep, Exception, ""),
}


@functools.cache
def alone(m: Measurement):
    """What a measurement gives by itself."""
    return m(bench())


def check_error(lab: Lab, name: str, company=(plain, two_steps, two_at_once)):
    """One measurement fails with its own error; the others get what they get alone.

    The model is as before.
    """
    function, kind, message = FAILS[name]
    failing = Measurement("test/fails", function)
    for wanted in ([failing, *company], [*company, failing]):
        lab = Lab(lab.model, TASK, lab.encoding, n_units=3, n_contexts=2)
        errors = lab.measure_all(wanted)
        assert set(errors) == {"test/fails"}
        assert isinstance(errors["test/fails"], kind)
        assert message in str(errors["test/fails"])
        assert set(lab.results) == {m.name for m in company}
        for m in company:
            check_same(lab.results[m], alone(m), m.name)
        with pytest.raises(kind) as again:
            lab.measure(failing)
        assert again.value is errors["test/fails"]
        assert not any(hook.has_hooks() for hook in lab.model.hook_dict.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", FAILS)
def test_an_error_costs_one_measurement(name):
    check_error(bench(), name)


def test_two_errors_are_not_confused():
    lab = bench()
    wanted = [
        Measurement(f"test/{name}", FAILS[name][0])
        for name in ("its probe", "its intervention", "its code")
    ]
    errors = lab.measure_all([*wanted, plain])
    assert {name: type(e) for name, e in errors.items()} == {
        "test/its probe": ZeroDivisionError,
        "test/its intervention": ValueError,
        "test/its code": ZeroDivisionError,
    }
    check_same(lab.results[plain], plain(bench()), plain.name)


def test_a_measurement_may_handle_what_its_question_raises():
    @measurement("test/handles")
    def handles(lab):
        try:
            yield from lab.ask(XS, probes=[Breaks()])
        except ZeroDivisionError:
            return by_row((yield from lab.ask(XS)))

    for company in ([], [plain]):
        lab = bench()
        assert lab.measure_all([handles, *company]) == {}
        check_same(lab.results[handles], plain(bench()), "handled")


def test_what_is_needed_and_fails_fails_who_needs_it():
    inner = Measurement("test/inner", asking(probes=[Breaks()]))

    @measurement("test/outer")
    def outer(lab):
        return (yield from lab.need(inner)) + 1

    lab = bench()
    errors = lab.measure_all([outer, plain])
    assert set(errors) == {"test/outer"}
    assert isinstance(errors["test/outer"], ZeroDivisionError)


def test_what_is_no_error_of_a_measurement_goes_through():
    def stops(lab):
        yield from lab.ask(XS)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench().measure_all([plain, Measurement("test/stops", stops)])


def test_two_measurements_of_one_name_are_refused():
    double = Measurement(plain.name, lambda lab: 1 / 0)
    lab = bench()
    with pytest.raises(InputError, match="two measurements are called 'test/plain'"):
        lab.measure_all([plain, double])
    lab = bench()
    lab.measure(plain)
    outer = Measurement("test/outer", lambda lab: (yield from lab.need(double)))
    assert "two measurements are called 'test/plain'" in str(lab.measure_all([outer])["test/outer"])


def test_measurements_that_wait_for_one_another_are_told_so():
    def waits_for(name):
        return lambda lab: (yield from lab.need(both[name])) + 1

    both: dict[str, Measurement] = {}
    both["a"], both["b"] = (
        Measurement("test/a", waits_for("b")),
        Measurement("test/b", waits_for("a")),
    )
    lab = bench()
    errors = lab.measure_all([both["a"], plain, both["b"]])
    assert set(errors) == {"test/a", "test/b"}
    for error in errors.values():
        assert isinstance(error, InputError)
    check_same(lab.results[plain], plain(bench()), plain.name)
