"""Idle models beside rivals: predictions are the rival's on every route, weights the idle one's."""

import pytest
import torch
from architectures import model_of, tokens_of
from helpers import must_fail, one_in
from ridge_units import RELU, unit

from icl_interp.analyses.claim import Claim, Evidence
from icl_interp.analyses.criterion import INF, Condition, Criterion, Estimate
from icl_interp.analyses.measurement import measurement
from icl_interp.analyses.tie import TIED, tie, tied
from icl_interp.errors import InputError
from icl_interp.experiments.calibration import NO, YES, Case, Construction
from icl_interp.interventions.base import intervene
from icl_interp.models.softmax_unit import read_softmax_unit
from icl_interp.models.transformer import HookedTransformer
from icl_interp.results import make_array
from icl_interp.testing import beside, known_models

NAMES = (
    "no norm",
    "pre",
    "post",
    "linear",
    "bidirectional",
    "labelled keys",
    "positions alone",
    "previous",
    "LNPre",
)
PAIRS = [
    (name, rival) for name in NAMES for rival in ("one number", "queries times 4", "queries over 4")
]


def rival_of(name, rival):
    return dict(beside.rivals_of(model_of(name)))[rival]


def near(one, other):
    assert (one - other).abs().max() <= 1e-9 * (1 + other.abs().max())


def predicts(model, rival, name):
    """Whole prompts, and their last token after the others, get the rival's predictions."""
    tokens = tokens_of(name)
    with torch.no_grad():
        wanted = rival(tokens)
        near(model(tokens), wanted)
        near(model(tokens, range(1, 6, 2)), wanted[:, 1:6:2])
        if model.cfg.query_is_unseen:
            memory = model.remember(tokens[:, :-1])
            near(model.after(memory, tokens[:, -1:], tokens.shape[1] - 1), wanted[:, -1:])


@pytest.mark.parametrize(("name", "rival"), one_in(3, PAIRS))
def test_in_front_of_a_rival_each_way_gives_its_predictions(name, rival):
    other = rival_of(name, rival)
    covered = beside.Covered.of(model_of(name), other)
    predicts(covered, other, name)
    predicts(covered.float().double(), other.float().double(), name)  # as a bench copies it
    # Of a model that looks at positions alone, other queries give its own predictions.
    wrong = model_of(name) if rival == "one number" else rival_of(name, "one number")
    must_fail(predicts, covered, wrong, name)


def test_from_a_stream_too(monkeypatch):
    """A run that starts before a block reads the tokens off the stream, where this is possible."""
    idle, rival = model_of("no norm"), rival_of("no norm", "queries times 4")
    covered, tokens = beside.Covered.of(idle, rival), tokens_of("no norm")
    before = [f"blocks.{i}.hook_resid_pre" for i in range(2)]

    def taken_up():
        with torch.no_grad():
            wanted = rival(tokens)
            _, cache = covered.run_with_cache(tokens, names_filter=before)
            near(covered.resume(cache[before[0]], 0), wanted)
            memory = covered.remember(tokens[:, :-1])
            streams = list(covered.streams_after(memory, tokens[:, -1:], tokens.shape[1] - 1))
            near(covered.resume_after(memory, streams[0], 0), wanted[:, -1:])

    taken_up()
    for way in ("resume", "resume_after"):
        with monkeypatch.context() as patch:
            patch.setattr(beside.Covered, way, getattr(HookedTransformer, way))
            must_fail(taken_up)
    normed = beside.Covered.of(model_of("pre"), rival_of("pre", "one number"))
    with pytest.raises(InputError, match="before block 1 does not tell which tokens"):
        normed.resume(torch.zeros(2, 5, normed.cfg.d_model, dtype=torch.float64), 1)


def test_hooks_of_the_idle_model_fire_and_edits_there_do_nothing():
    idle, rival = model_of("no norm"), rival_of("no norm", "queries over 4")
    covered, tokens = beside.Covered.of(idle, rival), tokens_of("no norm")
    with torch.no_grad():
        _, cache = covered.run_with_cache(tokens)
        _, own = idle.run_with_cache(tokens)
        near(cache["blocks.1.attn.hook_pattern"], own["blocks.1.attn.hook_pattern"])
        with covered.hooks(fwd_hooks=[("blocks.0.attn.hook_z", lambda z, hook: 0 * z)]):
            near(covered(tokens), rival(tokens))


@pytest.mark.parametrize(
    "name", ["no norm", "linear, stacked", "positions alone", "scaled softmax, no norm"]
)
@pytest.mark.parametrize("rival", ["one number", "queries over 4"])
def test_two_models_in_one_stream(name, rival):
    other = rival_of(name, rival)
    both = beside.side_by_side(model_of(name), other)
    assert both.cfg.n_heads == model_of(name).cfg.n_heads + other.cfg.n_heads
    assert type(both) is HookedTransformer
    predicts(both, other, name)
    with torch.no_grad():
        both.unembed.W_U[other.cfg.d_model :] = model_of(name).unembed.W_U
    must_fail(predicts, both, other, name)


@pytest.mark.parametrize(
    ("idle", "rival", "why"),
    [
        ("pre", "pre", "norms see every coordinate"),
        ("no norm", "scaled softmax, no norm", "they differ in score_fn"),
        ("no norm", "bounded read-in, no norm", "the bound on what a token is read in as"),
    ],
)
def test_where_no_stream_holds_both_it_says_why(idle, rival, why):
    with pytest.raises(InputError, match=why):
        beside.side_by_side(model_of(idle), model_of(rival))


@pytest.mark.parametrize(
    ("idle", "rival", "why"),
    [
        ("pre", "mlp only", "has no attention"),
        ("pre", "bidirectional", "they differ in d_in, attention_dir"),
        ("pre", "two targets", "they differ in d_out"),
    ],
)
def test_where_one_cannot_stand_in_front_it_says_why(idle, rival, why):
    assert why in (beside.no_cover(model_of(idle), model_of(rival)) or "")
    with pytest.raises(InputError, match=why):
        beside.Covered.of(model_of(idle), model_of(rival))


# ---- the trial -----------------------------------------------------------------------------------

WINDOW = 3.0
CRITERION = Criterion(
    (Condition("window", "", (2.0, 4.0), (4.5, INF)),), terms="between 2 and 4 / outside"
)


@measurement("beside/window")
def window(lab):
    """M's mean eigenvalue, by weights alone."""
    product = read_softmax_unit(lab.model, INF).product
    return make_array([float(product.trace()) / len(product)], {"one": ("it",)})


@measurement("beside/tie")
def window_tied(lab):
    """How well the unit that was read predicts the model, and what is left without its head."""
    predicted = lab.predict(lab.prompts)[:, -1].double()
    reading = read_softmax_unit(lab.model, INF).predict(lab.prompts)[:, -1]
    with intervene(lab.single, lab.head_means):
        without = lab.predict(lab.prompts)[:, -1].double()
    return tie(lab, predicted, reading, without)


def untied(results, facts):
    """The window, whatever predicts."""
    return Evidence({"window": Estimate.exactly("window", results[window].item())}, "measured.")


def with_tie(results, facts):
    """The window, and whether it predicts."""
    found = untied(results, facts)
    return Evidence({**found.quantities, **tied(results[window_tied])}, "measured.")


SETTINGS = {
    "kind": "architecture",
    "statement": "a statement",
    "excluded": lambda facts: "It is about one head" if facts.config.n_heads > 1 else None,
}
UNTIED = Claim(
    "beside.untied", criterion=CRITERION, measurements=(window,), evidence=untied, **SETTINGS
)
WITH_TIE = Claim(
    "beside.tied",
    criterion=Criterion(CRITERION.conditions, TIED, terms="the same, tied"),
    measurements=(window, window_tied),
    evidence=with_tie,
    about_weights=True,
    **SETTINGS,
)


def case_of(w):
    return Case(unit(w * torch.eye(3).double()), RELU, n_units=32, n_contexts=1)


def known(claim):
    """A unit with the window, and one with another."""
    made = [
        Construction(name, "by hand", lambda g, w=w: case_of(w), {claim.id: verdict})
        for name, w, verdict in (("right", WINDOW, YES), ("wrong", 5 * WINDOW, NO))
    ]
    return known_models.known(made, [claim])


def nothing_is_misled(claim):
    models = known(claim)
    rows = [
        row
        for one in models
        for rows in known_models.try_beside(one, [claim], models)
        for row in rows
    ]
    assert any(row[4] in (YES, NO) for row in rows)
    assert {row[2] for row in rows} >= {
        "behind one number",
        "behind another: wrong",
        "behind another: right",
    }
    assert [row for row in rows if row[-1]] == []


@pytest.mark.slow
def test_what_stands_idle_decides_nothing_where_weights_are_tied():
    nothing_is_misled(WITH_TIE)
    must_fail(nothing_is_misled, UNTIED)


@pytest.mark.slow
def test_of_a_claim_that_is_not_about_weights_idle_parts_may_be_no_cause():
    models = known(UNTIED)
    rows = [
        row
        for one in models
        for rows in known_models.try_beside(one, [UNTIED], models)
        for row in rows
    ]
    misled = {(row[4], row[5]) for row in rows if row[-1]}
    assert misled == {(YES, YES)}  # not (NO, NO)
