"""`check_study` passes the example study, and each rule refuses one broken thing in it."""

import itertools
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from small_models import make, tokens_for

from icl_interp.analyses.claim import Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate
from icl_interp.analyses.measurement import Measurement
from icl_interp.errors import InputError
from icl_interp.experiments.base import Experiment
from icl_interp.interventions import base
from icl_interp.interventions.attention import SwapPattern
from icl_interp.interventions.base import Intervention, intervene
from icl_interp.interventions.outputs import MeanOutputs, sublayers
from icl_interp.results import make_array
from icl_interp.studies import BUNDLED, STUDIES
from icl_interp.tasks import registry
from icl_interp.testing import StudyError, check_study
from icl_interp.testing import effects as observing
from icl_interp.testing import study as rules

CLAIM = "copying.last_label"


@pytest.fixture(scope="module")
def copying():
    """The example study, imported from its folder; its task is forgotten afterwards."""
    before = dict(registry.KINDS)
    sys.path.insert(0, str(Path(__file__).parents[1] / "example_study"))
    from icl_interp_copying.study import STUDY

    yield STUDY
    sys.path.pop(0)
    registry.KINDS.clear()
    registry.KINDS.update(before)
    for name in [name for name in sys.modules if name.startswith("icl_interp_copying")]:
        del sys.modules[name]


@pytest.mark.slow
def test_the_example_keeps_every_rule_and_leaves_nothing_registered(copying):
    table = check_study(copying, "thorough")
    assert set(table["outcome"]) == {"kept"}
    assert set(table["rule"]) == {
        *(
            "words",
            "figures",
            "both_ways",
            "verdicts",
            "dials",
            "controls",
            "edits",
            "ignorance",
            "pure",
            "drawn",
        ),
        *("weights", "beside"),
    }
    assert "copying" not in STUDIES


@pytest.mark.slow  # the example study above keeps the rules in seconds
@pytest.mark.parametrize("study", [pytest.param(one, id=one.name) for one in BUNDLED])
def test_bundled_studies_keep_the_rules(study):
    table = check_study(study)
    assert len(table) > len(study.claims)
    assert all(table.loc[table["outcome"] == "excepted", "reason"])


def with_claim(study, **changes):
    return replace(study, claims=(replace(study.claims[0], **changes),))


def with_dial(study, **changes):
    return replace(study, dials=(replace(study.dials[0], **changes),))


class Idle(Intervention):
    """An intervention that leaves what it sees."""

    def hooks(self, model):
        return [("hook_embed", lambda t, hook: t.clone())]


def nothing_edited(lab):
    """A measurement with an intervention that does nothing."""
    with intervene(lab.single, Idle()):
        lab.predict(lab.prompts)
    return make_array([1.0], {"number": (0,)})


def alone(results, facts):
    """Evidence without a control's number."""
    found = sys.modules["icl_interp_copying.last_label"].evidence(results, facts)
    return Evidence({"departure": Estimate.of("departure", found["departure"])}, "")


def careless(study):
    """A learning claim that any model supports, with no control and no test of learning."""
    rule = Criterion((Condition("departure", "", (-INF, INF), None),), terms="any number")
    claim = with_claim(study, kind="learning", criterion=rule, learned=lambda facts: None).claims[0]
    return replace(claim, evidence=alone)


def restless(claim):
    """Evidence that is another one each time."""
    count = itertools.count()

    def evidence(results, facts):
        return {"departure": 1e-9 * next(count)}

    return evidence


def meddling(results, findings, facts):
    """A drawing that rounds what it draws."""
    results["copying/last label"].values[:] = results["copying/last label"].values.round(1) + 1e-9


def saying(claim, words):
    """The claim's numbers, with a reason of one's own."""

    def evidence(results, facts):
        numbers = claim.criterion.named(claim.evidence(results, facts))
        return Evidence(numbers, f"{words.strip(' .')} it.", control=numbers)

    return evidence


def rounding(claim):
    """Evidence that rounds the results that it is given."""

    def evidence(results, facts):
        for name in results:
            results[name].values[:] = results[name].values.round(3)
        return claim.evidence(results, facts)

    return evidence


def says_nothing(study):
    return Experiment(
        "copying.table", "a table", "me", (), lambda bench: {}, lambda results: ("Nothing.",)
    )


def swapped(study):
    """Each construction must get what the other one gets."""
    one, other = study.constructions
    return (replace(one, expected=other.expected), replace(other, expected=one.expected))


def with_figure(study, draw):
    return replace(study, figures={"last_label": replace(study.figures["last_label"], draw=draw)})


def read_off(study, **changes):
    """A claim on weights: the share of one position in all that are marked for attention."""

    def weights(lab):
        marked = lab.model.W_pos[:, 1].abs()
        return make_array([float(marked.max() / marked.sum().clamp_min(1e-9))], {"number": (0,)})

    one = Measurement("copying/weights", weights)

    def found(results, facts):
        return Evidence(
            {"departure": Estimate.exactly("departure", 1 - results[one].item())}, "It copies."
        )

    return with_claim(study, measurements=(one,), control=(), evidence=found, **changes)


BROKEN = [
    ("words", "does not end in a full stop", lambda s: with_claim(s, statement="It copies")),
    ("words", "no sentence is quoted", lambda s: with_claim(s, quote=None)),
    (
        "words",
        "has 6[1-9] words in 1 sentences",
        lambda s: with_claim(s, evidence=saying(s.claims[0], "so " * 60)),
    ),
    ("figures", "there is no such figure", lambda s: replace(s, figures={})),
    ("figures", "no claim names it", lambda s: with_claim(s, figures=())),
    (
        "both_ways",
        "no construction must be contradicted",
        lambda s: replace(s, constructions=s.constructions[:1]),
    ),
    (
        "verdicts",
        "expected contradicted, but got supported",
        lambda s: replace(s, constructions=swapped(s)),
    ),
    ("dials", "from supported to contradicted, not from", lambda s: with_dial(s, values=(1, 7))),
    (
        "dials",
        "this study has no claim 'copying.first'",
        lambda s: with_dial(s, claim="copying.first"),
    ),
    (
        "controls",
        "measures nothing on an untrained control",
        lambda s: with_claim(s, control=(), evidence=alone),
    ),
    ("controls", "no finding shows a number", lambda s: with_claim(s, evidence=alone)),
    ("untrained", "an untrained model supports it", lambda s: replace(s, claims=(careless(s),))),
    ("weights", "its measurements never run the model", read_off),
    ("beside", "supported, as the idle model", read_off),
    (
        "interventions",
        "no run returned anything else",
        lambda s: with_claim(
            s, measurements=(*s.claims[0].measurements, Measurement("copying/idle", nothing_edited))
        ),
    ),
    ("pure", "it is another finding", lambda s: with_claim(s, evidence=restless(s.claims[0]))),
    (
        "pure",
        "judging changed the results",
        lambda s: with_claim(s, evidence=rounding(s.claims[0])),
    ),
    ("drawn", "changed the results", lambda s: with_figure(s, meddling)),
    (
        "drawn",
        "no construction has what it draws",
        lambda s: with_figure(s, lambda results, findings, facts: None),
    ),
    (
        "drawn",
        "failed with ZeroDivisionError",
        lambda s: with_figure(s, lambda results, findings, facts: 1 / 0),
    ),
    ("experiments", "keeps no results", lambda s: replace(s, experiments=(says_nothing(s),))),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "why", "broken"), BROKEN, ids=[f"{rule}: {why}" for rule, why, _ in BROKEN]
)
def test_a_study_that_breaks_a_rule_is_refused(rule, why, broken, copying):
    with pytest.raises(StudyError, match=f"(?m)^  {rule}: .*{why}"):
        check_study(broken(copying), "thorough" if rule == "beside" else "fast")


def test_of_two_figures_the_one_that_changes_results_is_named(copying):
    sound, names = copying.figures["last_label"], ("before", "last_label", "after")
    study = with_figure(replace(copying, constructions=copying.constructions[:1]), meddling)
    several = replace(study, figures={name: study.figures.get(name, sound) for name in names})
    said = dict(rules.drawn(rules.Examined(several, seed=0)))
    assert {name for name, wrong in said.items() if wrong} == {"last_label"}
    assert "changed the results" in said["last_label"]
    assert set(said) == set(names)


@pytest.mark.slow
def test_what_a_study_declares_is_not_asked_and_what_it_need_not_declare_is_refused(copying):
    reason = "no model of the kind can be built by hand"
    one_sided = replace(copying, constructions=copying.constructions[:1])
    excepted = replace(one_sided, exceptions={("both_ways", CLAIM): reason})
    table = check_study(excepted).set_index(["rule", "subject"])
    assert list(table.loc[("both_ways", CLAIM)]) == ["excepted", reason]
    with pytest.raises(StudyError, match=f"both_ways: {CLAIM}: the exception is not needed"):
        check_study(replace(copying, exceptions=excepted.exceptions))


def test_what_is_no_study_is_refused():
    with pytest.raises(InputError, match="unknown study 'limit': did you mean 'limits'"):
        check_study("limit")
    with pytest.raises(InputError, match="unknown level 'quick'"):
        check_study("limits", level="quick")


def test_an_observer_sees_what_moves_and_is_gone_afterwards():
    model = make("pre").double()
    tokens = tokens_for(model).double()
    before = model(tokens)
    with observing.observed() as moved:
        with intervene(model, SwapPattern("uniform"), Idle()):
            model(tokens)
        assert moved == {"SwapPattern": True, "Idle": False}, "each is seen for itself"
    with observing.observed() as moved, intervene(model, Idle()):
        model(tokens)
    assert moved == {"Idle": False}
    with pytest.raises(ZeroDivisionError), observing.observed(), intervene(model, Idle()):
        1 / 0  # noqa: B018
    assert not base.OBSERVERS.get()
    assert "forward" not in vars(model)
    assert (model(tokens) - before).abs().max() < 1e-12


def test_an_observer_compares_what_models_remember_of_a_context():
    """Keys and values without the queries that some models keep as well."""
    model = make("pre").double()
    tokens = tokens_for(model).double()
    means = MeanOutputs.measure(model, tokens, sublayers(model, layer=0))
    with observing.observed() as moved, intervene(model, means, Idle()):
        model.remember(tokens)
    assert moved == {"MeanOutputs": True, "Idle": False}
