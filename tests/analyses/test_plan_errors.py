"""A measurement that fails among others: it costs its own result only, and its error is its own."""

import functools

import pytest
from helpers import must_fail
from measurements_that_ask import by_row, check_same, grid, plain, two_at_once, two_steps
from small_labs import XS, bench
from small_models import TASK

from icl_interp.analyses import plan
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Measurement, measurement, with_needs
from icl_interp.errors import InputError
from icl_interp.interventions.base import Intervention
from icl_interp.probes.base import Probe
from icl_interp.probes.norms import LayerNormScale
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


def asking(**settings) -> dict:
    """A measurement that asks with these settings."""
    return {
        "function": lambda lab, swept: by_row(swept.f),
        "asks": lambda lab: lab.ask(XS, **settings),
    }


def at_once(lab):
    return 1 / 0


def later(lab, swept):
    return 1 / 0


FAILS = {
    "its code": ({"function": at_once}, ZeroDivisionError, "division by zero"),
    "its code, later": ({**asking(), "function": later}, ZeroDivisionError, "division by zero"),
    "its question": ({**asking(), "asks": at_once}, ZeroDivisionError, "division by zero"),
    "its result": (
        {**asking(), "function": lambda lab, swept: float(swept.f.mean())},
        TypeError,
        "returned float",
    ),
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
    "a question that is none": (
        {**asking(), "asks": lambda lab: lab.prompts.xs},
        InputError,
        "'test/fails' asks for",
    ),
    "a question that is no list": (
        {**asking(), "asks": lambda lab: (lab.ask(XS) for _ in range(2))},
        InputError,
        "is a generator",
    ),
    "a list with a question that is none": (
        {**asking(), "asks": lambda lab: [lab.ask(XS), None]},
        InputError,
        "'test/fails' asks for",
    ),
    "a generator behind a plain function": (
        {"function": lambda lab: (x for x in ())},
        InputError,
        "asks=lambda lab: lab.ask(xs)",
    ),
}


@functools.cache
def alone(m: Measurement):
    """What a measurement gives by itself."""
    return m(bench())


def check_error(lab: Lab, name: str, company=(plain, two_steps, two_at_once)):
    """One measurement fails with its own error; the others get what they get alone."""
    settings, kind, message = FAILS[name]
    failing = Measurement("test/fails", **settings)
    for wanted in ([failing, *company], [*company, failing]):
        lab = Lab(lab.model, TASK, lab.encoding, n_units=3, n_contexts=2)
        errors = lab.measure_all(wanted)
        assert set(errors) == {"test/fails"}
        assert isinstance(errors["test/fails"], kind)
        assert message in str(errors["test/fails"])
        assert set(lab.results) == {m.name for m in with_needs(company)}
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
        Measurement(f"test/{name}", **FAILS[name][0])
        for name in ("its probe", "its intervention", "its code")
    ]
    errors = lab.measure_all([*wanted, plain])
    assert {name: type(e) for name, e in errors.items()} == {
        "test/its probe": ZeroDivisionError,
        "test/its intervention": ValueError,
        "test/its code": ZeroDivisionError,
    }
    check_same(lab.results[plain], plain(bench()), plain.name)


def check_shared_run():
    """Where the joint run fails, a sweep that two share is still run once."""
    lab = bench()
    runs = []
    run = lab.run
    lab.run = lambda sweeps, tick=None: (
        runs.append([s is lab.on_grid for s in sweeps]) or run(sweeps, tick)
    )
    again = Measurement("test/grid again", grid.function, asks=grid.asks)
    failing = Measurement("test/fails", **FAILS["its probe"][0])
    assert set(lab.measure_all([grid, failing, again])) == {"test/fails"}
    assert runs == [[True, False], [True], [False]]


def test_a_shared_sweep_is_run_once_beside_an_error(monkeypatch):
    check_shared_run()
    monkeypatch.setattr(Lab, "unanswered", lambda lab, sweeps: list(sweeps))
    must_fail(check_shared_run)


def check_need_fails(failing: Measurement, words: str):
    """Who needs it has its error, also through another; it is tried once."""
    outer = Measurement("test/outer", lambda lab, below: below + 1, needs=(failing,))
    asks = Measurement("test/asks", outer.function, 1, (failing,), lambda lab, below: lab.ask(XS))
    further = Measurement("test/further", lambda lab, below: below + 1, needs=(outer,))
    lab = bench()
    errors = lab.measure_all([further, asks, plain])
    assert set(errors) == {"test/further", "test/asks"}
    assert len({id(error) for error in errors.values()}) == 1
    assert words in str(errors["test/further"])
    check_same(lab.results[plain], alone(plain), plain.name)
    for m in (failing, outer):
        with pytest.raises(type(errors["test/further"])) as again:
            lab.measure(m)
        assert again.value is errors["test/further"]


def test_what_is_needed_and_fails_fails_who_needs_it(monkeypatch):
    for name in ("its code", "its probe", "its question"):
        check_need_fails(Measurement("test/inner", **FAILS[name][0]), "division by zero")
    begun = plan._begun
    monkeypatch.setattr(  # a mutant that does not look whether a need has failed
        plan, "_begun", lambda one, lab, results, errors: begun(one, lab, results, dict(errors))
    )
    must_fail(check_need_fails, Measurement("test/inner", **FAILS["its probe"][0]), "")


def test_what_is_no_error_of_a_measurement_goes_through():
    def stops(lab, swept):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench().measure_all([plain, Measurement("test/stops", stops, asks=lambda lab: lab.ask(XS))])


def test_two_measurements_of_one_name_are_refused():
    double = Measurement(plain.name, lambda lab: 1 / 0)
    other_question = Measurement(plain.name, plain.function, asks=lambda lab: lab.ask())
    outer = Measurement("test/outer", lambda lab, below: below, needs=(double,))
    for clash in (double, other_question, outer):
        lab = bench()
        with pytest.raises(InputError, match="two measurements are called 'test/plain'"):
            lab.measure_all([plain, clash])
        lab = bench()
        lab.measure(plain)
        with pytest.raises(InputError, match="two measurements are called 'test/plain'"):
            lab.measure(clash)
    assert (
        bench().measure_all([plain, Measurement(plain.name, plain.function, asks=plain.asks)]) == {}
    )


def test_measurements_that_need_one_another_are_told_so():
    first = Measurement("test/a", lambda lab, below: below)
    second = Measurement("test/b", lambda lab, below: below, needs=(first,))
    object.__setattr__(first, "needs", (second,))  # no way of writing them makes a circle
    for wanted in ([first, plain], [plain, second]):
        with pytest.raises(InputError, match=r"need one another.*test/. -> test/. -> test/."):
            bench().measure_all(wanted)


def test_a_generator_is_refused_with_what_to_write_instead():
    """The way of the last version: `f = yield from lab.ask(xs)`."""

    def old(lab):
        f = yield from lab.ask(XS)
        return by_row(f)

    for made in (
        lambda: measurement("test/old")(old),
        lambda: Measurement("test/old", old),
        lambda: Measurement("test/old", lambda lab, swept: by_row(swept.f), asks=old),
    ):
        with pytest.raises(InputError, match=r"'test/old' is a generator.*asks=.*swept\.f") as said:
            made()
        assert "\n" not in str(said.value)


def test_a_probe_is_found_by_its_kind():
    kinds = [Activations(["hook_embed"]), LayerNormScale()]
    lab = bench()
    [swept] = lab.answers([lab.ask(XS, probes=kinds)])
    assert swept.probe(Activations) is kinds[0]
    assert swept.probe(LayerNormScale) is kinds[1]
    with pytest.raises(InputError, match="expected one Breaks among the probes of a sweep, but 0"):
        swept.probe(Breaks)
    with pytest.raises(InputError, match="expected one Probe among the probes of a sweep, but 2"):
        swept.probe(Probe)
    with pytest.raises(InputError, match="each prompt has queries of its own"):
        lab.answers([lab.ask()])[0].xs  # noqa: B018
