"""Trials of verdicts: what they notice, on claims that depend on what they should not."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers import must_fail
from pandas.testing import assert_frame_equal
from small_models import TASK, make

from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate
from icl_interp.analyses.finding import Finding, Kind
from icl_interp.analyses.measurement import measurement
from icl_interp.checkpoints.companions import Role
from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.experiments import calibration
from icl_interp.experiments.calibration import NO, YES, Case, Construction
from icl_interp.jobs.job import part
from icl_interp.models.tokens import Interleaved
from icl_interp.models.transformer import HookedTransformer
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.testing import known_models, metamorphic
from icl_interp.testing.reparameterisations import EDITS
from icl_interp.testing.reparameterisations.targets import Posed

SAMPLE = metamorphic.Sample(n_units=32, n_contexts=1)
RULE = Criterion((Condition("size", "", (1e-9, INF), (-INF, -1e-9)),), terms="above 0 / below 0")


def claim(name, number, kind: Kind = "architecture", **more) -> Claim:
    """A claim about a number that a function reads off a lab."""

    @measurement(f"trial/{name}")
    def measured(lab):
        return make_array([float(number(lab))], {"one": ("it",)})

    def evidence(results, facts):
        return Evidence({"size": Estimate.exactly("size", results[measured].item())}, "measured.")

    return Claim(f"trial.{name}", kind, "a statement", RULE, (measured,), evidence, **more)


def of_function(lab):
    """How far the prediction moves with the query."""
    f = lab.sweep([-1.0, 1.0])
    return (f[:, 1] - f[:, 0]).abs().mean()


OF_FUNCTION = claim("function", of_function)
OF_WEIGHTS = claim("weights", lambda lab: lab.model.unembed.W_U.norm())
OF_DRAW = claim("draw", lambda lab: 1.0 if lab.seed == 0 and lab.n_units == 32 else -1.0)
OF_CONTEXT = claim(
    "context", lambda lab: 1e-3 - lab.sweep([0.5]).std()
)  # "predictions do not differ"


@pytest.fixture(scope="module")
def model() -> Posed:
    return Posed(make("pre"), TASK, Interleaved())


def outcome(model, job, *claims, sample=SAMPLE) -> dict[str, str]:
    """What each claim did not survive, by its id."""
    before = metamorphic.judged(model, claims, sample)
    return {row[3]: row[-1] for row in job(before)}


@pytest.mark.slow
def test_edits_find_what_depends_on_weights(model):
    """Every edit leaves a claim about the function, and some move one about weights."""
    claims = (OF_FUNCTION, OF_WEIGHTS)
    before = metamorphic.judged(model, claims, SAMPLE)
    found = {
        edit.name: {
            row[3]: row[-1]
            for row in metamorphic.try_edit("m", model, edit, claims, before, SAMPLE)
        }
        for edit in metamorphic.edits_of(model)
    }
    assert len(found) > 10
    assert {rows[OF_FUNCTION.id] for rows in found.values() if rows} == {""}
    assert found["width doubled (large)"][OF_WEIGHTS.id] == "the estimate moves"
    # A claim that says it is about this aspect is not asked.
    edit = next(edit for edit in metamorphic.edits_of(model) if edit.may_change)
    excepted = replace(OF_WEIGHTS, aspects=edit.may_change[:1])
    assert (
        outcome(
            model,
            lambda before: metamorphic.try_edit("m", model, edit, (excepted,), before, SAMPLE),
            excepted,
        )
        == {}
    )


def check_shared_controls(model, controls, claims):
    """Findings with controls that were measured before are those with controls of their own."""
    edit = next(
        edit for edit in metamorphic.edits_of(model) if edit.name == "width doubled (large)"
    )
    before = metamorphic.judged(model, claims, SAMPLE, controls=controls)
    assert before == metamorphic.judged(model, claims, SAMPLE)
    rows = [
        metamorphic.try_edit("m", model, edit, claims, before, SAMPLE, *shared)
        for shared in ((), (controls,))
    ]
    assert rows[0] == rows[1]


@pytest.mark.slow
def test_controls_are_measured_once(model):
    def size(results, facts):
        own, control = results[moves], results.control[moves]
        numbers = {"size": Estimate.exactly("size", own.item())}
        return Evidence(
            numbers, "measured.", control={"size": Estimate.exactly("size", control.item())}
        )

    moves = OF_FUNCTION.measurements[0]
    learning = replace(
        OF_FUNCTION, kind="learning", control=(moves,), evidence=size, learned=lambda facts: None
    )
    controls = metamorphic.controls_of(model, SAMPLE)
    check_shared_controls(model, controls, (learning,))
    assert controls.made
    assert all(set(control.results) == {moves.name} for control in controls.made.values())
    must_fail(
        check_shared_controls,
        model,
        metamorphic.controls_of(model, replace(SAMPLE, seed=1)),
        (learning,),
    )


def test_one_edit_a_family(model):
    every, some = metamorphic.edits_of(model), metamorphic.edits_of(model, one_a_family=True)
    assert {edit.family for edit in some} == {edit.family for edit in every}
    assert len({edit.family for edit in some}) == len(some) < len(every)
    bidirectional = Posed(make("mlp only"), TASK, Interleaved())
    assert "heads" not in {edit.family for edit in metamorphic.edits_of(bidirectional)}


@pytest.mark.slow
def test_ignorant_models_find_what_is_true_of_whoever_knows_nothing(model):
    rows = [
        row
        for found in metamorphic.try_ignorant("m", model, (OF_CONTEXT, OF_FUNCTION), SAMPLE)
        for row in found
    ]
    wrong = {row[2] for row in rows if row[3] == OF_CONTEXT.id and row[-1]}
    assert {"constant", "blind", "all but blind"} <= wrong
    assert "copier of the last value" not in wrong
    # Untrained ones are asked about what training made only.
    assert not any(row[2].startswith("untrained") for row in rows)
    learned = replace(OF_CONTEXT, kind="learning", learned=lambda facts: None)
    rows = [
        row for found in metamorphic.try_ignorant("m", model, (learned,), SAMPLE) for row in found
    ]
    assert sum(row[2].startswith("untrained") for row in rows) == 3


def test_draws_find_what_depends_on_the_sample(model):
    claims = (OF_DRAW, OF_FUNCTION)
    for sample in (replace(SAMPLE, seed=1), replace(SAMPLE, n_units=64)):
        found = outcome(
            model,
            lambda before, s=sample: metamorphic.try_draw("m", model, claims, before, s, "another"),
            *claims,
        )
        assert found == {OF_DRAW.id: "opposite verdict", OF_FUNCTION.id: ""}


def check_stays(stays):
    def one(value, low=None, high=None):
        return Estimate("e", value, value if low is None else low, high or value)

    assert stays(one(1.0), one(1.0 + 1e-6))
    assert not stays(one(1.0), one(1.01))
    assert stays(one(1.0, 0.8, 1.2), one(1.01, 0.8, 1.2))
    assert not stays(one(1.0, 0.8, 1.2), one(1.1, 0.9, 1.3))
    assert stays(None, None)
    assert not stays(one(1.0), None)
    assert stays(one(float("nan")), one(float("nan")))
    assert not stays(one(INF), one(-INF))
    assert not stays(one(float("nan")), one(1.0))


def test_when_an_estimate_stays():
    check_stays(metamorphic.stays)
    must_fail(
        check_stays, lambda a, b: a is not None and b is not None and abs(a.value - b.value) < 0.2
    )
    must_fail(check_stays, lambda a, b: metamorphic.stays(a, b) or a.value != a.value)


@pytest.mark.slow
def test_what_was_done_is_not_done_again(model, tmp_path, monkeypatch):
    monkeypatch.setattr(metamorphic, "edits_of", lambda model: [])
    monkeypatch.setattr(metamorphic, "SEEDS", (0, 1))
    monkeypatch.setattr(metamorphic, "posed", lambda checkpoint: checkpoint)
    begun: list[str] = []
    settings = {"sample": SAMPLE, "done": tmp_path, "watch": begun.append}
    first = metamorphic.run({"m": model}, (OF_FUNCTION, OF_DRAW), **settings)
    assert begun == ["m: ignorant", "m: seed 1", "m: half the sample"]
    assert len(list(tmp_path.iterdir())) == 3
    Path(f"{part(tmp_path, 'm: seed 1')}.json").unlink()
    begun.clear()
    again = metamorphic.run({"m": model}, (OF_FUNCTION, OF_DRAW), **settings)
    assert begun == ["m: seed 1"]
    assert_frame_equal(again, first)
    assert set(first.loc[first["wrong"] != "", "claim"]) >= {OF_DRAW.id}


def test_models_are_left_as_they_were(model):
    before = [p.clone() for p in model.model.parameters()]
    for edit in metamorphic.edits_of(model):
        metamorphic.edited(model, edit)
    assert all(torch.equal(a, b) for a, b in zip(before, model.model.parameters(), strict=True))


# ---- what need not stay, and what cannot be tried ------------------------------------------------


def finding(verdict, value=1.0):
    rule = Criterion((Condition("e", "", (0.0, 1.0), (2.0, 3.0)),), terms="")
    estimate = Estimate.exactly("e", value)
    return Finding("a.b", "a", "learning", "", "", verdict, "", rule, rule.conditions[0], estimate)


def check_survives(survives):
    null = next(edit for edit in EDITS if edit.name == "a head that writes nothing")
    permuted = next(edit for edit in EDITS if edit.name == "heads permuted")
    one_head = replace(OF_FUNCTION, aspects=("single head",))
    yes, no, open_, away = (
        finding(v) for v in ("supported", "contradicted", "inconclusive", "not_applicable")
    )
    assert survives(one_head, null, yes, away) == ""  # a layer of two heads is not what it is about
    assert survives(OF_FUNCTION, null, yes, away) == "from supported to not_applicable"
    assert survives(one_head, null, yes, no) == "from supported to contradicted"
    assert survives(one_head, permuted, yes, away) == "from supported to not_applicable"
    assert survives(OF_FUNCTION, null, away, open_) == ""
    assert survives(OF_FUNCTION, null, away, yes) == "from not_applicable to supported"
    assert survives(OF_FUNCTION, null, yes, finding("supported", 2.0)) == "the estimate moves"
    assert survives(OF_FUNCTION, null, yes, yes) == ""


def test_what_a_verdict_must_survive():
    check_survives(metamorphic.survives)
    must_fail(check_survives, lambda claim, edit, one, two: "")
    must_fail(
        check_survives,
        lambda claim, edit, one, two: "" if two.verdict == "not_applicable" else "moved",
    )


class Reader(HookedTransformer):
    """Reads a coordinate of its read-in, so that its function depends on the stream's basis."""

    def forward(self, tokens, positions=None):
        """The predictions, and that coordinate."""
        added = self.embed(tokens)[..., :1]
        return super().forward(tokens, positions) + (
            added if positions is None else added[:, list(positions)]
        )


def test_an_edit_that_does_not_leave_the_function_of_a_class_of_one_s_own_is_left_out(model):
    own = Reader(make("no norm").cfg).double()
    own.load_state_dict(make("no norm").state_dict())
    posed = model._replace(model=own)
    rotated, permuted = (
        next(e for e in EDITS if e.name == name) for name in ("stream rotated", "heads permuted")
    )
    before = metamorphic.judged(posed, (OF_FUNCTION,), SAMPLE)
    (row,) = metamorphic.try_edit("m", posed, rotated, (OF_FUNCTION,), before, SAMPLE)
    assert row[0] == metamorphic.LEFT_OUT
    assert "moves the prediction nearby" in row[2]
    (row,) = metamorphic.try_edit("m", posed, permuted, (OF_FUNCTION,), before, SAMPLE)
    assert (row[0], row[-1]) == ("edit", "")
    for edit in metamorphic.TARGET_EDITS:
        assert "a class of its own" in (edit.applies(posed) or "")


def test_a_wrong_edit_of_a_plain_model_is_an_error(model):
    def halve(weights, cfg, draw):
        weights["unembed.W_U"] /= 2
        return cfg

    wrong = metamorphic.Edit("halved", "basis", lambda cfg: None, halve)
    with pytest.raises(AssertionError, match="the edit 'halved' moves the prediction by"):
        metamorphic.try_edit(
            "m",
            model,
            wrong,
            (OF_FUNCTION,),
            metamorphic.judged(model, (OF_FUNCTION,), SAMPLE),
            SAMPLE,
        )


def test_a_case_is_edited_whole():
    """Companions and snapshots too; what is drawn is the same for each snapshot."""
    model, task = make("pre"), TASK
    other = Checkpoint(make("no norm"), task, Interleaved(), RunConfig(make("no norm").cfg, task))
    case = Case(model, task, companions={Role("no norm"): other}, snapshots={0: model, 1: model})
    edit = next(e for e in EDITS if e.name == "heads wider (large)")
    found = known_models.edited_case(case, edit)
    assert [found.model, *found.snapshots.values()][0].cfg.d_head > model.cfg.d_head
    assert {one.cfg for one in found.snapshots.values()} == {found.model.cfg}
    (companion,) = found.companions.values()
    assert companion.config.model == companion.model.cfg
    assert companion.model.cfg.d_head > other.model.cfg.d_head
    tokens = Interleaved().encode(task.sample(4, generator(0, "test"), dtype=torch.float64))
    with torch.no_grad():
        for one, two in (
            (found.model, model),
            (companion.model, other.model),
            (found.snapshots[1], model),
        ):
            assert torch.allclose(one(tokens), two(tokens), rtol=1e-10, atol=1e-12)


def have_one_shape(models):
    """As many positions, so that they can still differ in one respect alone."""
    assert len({model.cfg.n_ctx for model in models}) == 1


def test_models_beside_each_other_grow_alike_and_draw_for_themselves():
    model = make("pre")
    runs = RunConfig(model.cfg, TASK)
    roles = (Role("no norm"), Role("no norm", further=1), Role("no norm", further=2))
    companions = {role: Checkpoint(model, TASK, Interleaved(), runs) for role in roles}
    edit = next(e for e in EDITS if e.name == "n_ctx longer (large)")
    found = known_models.edited_case(Case(model, TASK, companions=companions), edit)
    edited = [found.model, *(one.model for one in found.companions.values())]
    have_one_shape(edited)
    must_fail(have_one_shape, [edit.apply(model, generator(0, str(role))) for role in roles])
    # The new positions, which no prompt reaches, are others in each.
    tables = [one.pos_embed.W_pos[-1] for one in edited]
    assert all(not torch.equal(tables[0], table) for table in tables[1:])


def was_trained_as(case, cfg):
    """The run that claims about kinds of training are told of."""
    lab, _ = calibration.lab_for(case, n_units=4, n_contexts=2)
    assert lab.config.model == cfg


def test_an_edited_model_stays_what_was_trained():
    """Runs that come with the package are not edited with it; companions of a case are."""
    model = make("pre")
    by_name = {edit.name: edit for edit in EDITS}
    first, second = by_name["heads wider (small)"], by_name["heads wider (large)"]
    once = known_models.edited_case(Case(model, TASK), first)
    assert once.model.cfg != model.cfg
    was_trained_as(once, model.cfg)
    must_fail(was_trained_as, replace(once, trained_as=None), model.cfg)
    was_trained_as(known_models.edited_case(once, second), model.cfg)
    other = Checkpoint(model, TASK, Interleaved(), RunConfig(model.cfg, TASK))
    beside = known_models.edited_case(Case(model, TASK, companions={Role("no norm"): other}), first)
    was_trained_as(beside, beside.model.cfg)


def test_of_each_claim_a_model_of_either_verdict():
    model = make("pre")
    expected = {"nobody": NO, "first": YES, "second": YES, "third": NO}
    built = {"nobody": Case(model, TASK, predictor=lambda prompts: prompts.ys)}
    made = [
        Construction(
            name,
            "why",
            lambda g, n=name: built.get(n, Case(model, TASK)),
            {OF_FUNCTION.id: verdict},
        )
        for name, verdict in expected.items()
    ]
    found = known_models.known(made, (OF_FUNCTION, OF_WEIGHTS))
    assert [one.construction.name for one in found] == [
        "first",
        "third",
    ]  # a predictor has no weights
    assert all(one.claims == (OF_FUNCTION,) for one in found)
