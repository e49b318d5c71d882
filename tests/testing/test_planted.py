"""Planted models: their truth holds by ablation, and scores count what they say."""

import re
from dataclasses import replace

import pytest
import torch
from helpers import must_fail

from icl_interp.circuits.nodes import Ablated
from icl_interp.contrasts import at_query
from icl_interp.errors import InputError
from icl_interp.interventions.edges import edges_of, written
from icl_interp.models.parts import READ_OUT
from icl_interp.probes import ExampleInfluence
from icl_interp.provenance import generator, write_json
from icl_interp.testing import selfcheck
from icl_interp.testing.planted import DECOYS, FAMILIES, METHODS, PLANS, planted, tools
from icl_interp.testing.planted import score as scores
from icl_interp.testing.planted.draw import EVERY, N_SEEDS, NONE, decoy_of, seeds_of
from icl_interp.testing.planted.score import TOLERANCE, Score, covers

QUICK = ("two steps", "places", "by MLP")  # families of short prompts
# Each family as it is, and with one of the decoys.
TURNS = [list(DECOYS)[i % len(DECOYS)] for i in range(len(FAMILIES))]
CASES = [(family, NONE) for family in FAMILIES] + list(zip(FAMILIES, TURNS, strict=True))
SOME = {("by MLP", NONE), ("places", "early shortcut"), ("by MLP", "cancelling pair")}
FAST = [pytest.param(*case, marks=() if case in SOME else pytest.mark.slow) for case in CASES]
N_PROMPTS = 48


def ablated(one):
    prompts = one.checkpoint.task.sample(N_PROMPTS, generator(7, "test"))
    found = Ablated.measure(one.checkpoint, prompts)
    for name, value in written(found.model, found.tokens).items():
        found.means[name] = value.mean(0, keepdim=True)
    return found


def parts_matter_and_others_do_not(found, truth):
    intact = found.without(())
    idle = set(found.parts) - truth.parts
    assert idle
    torch.testing.assert_close(found.without(idle), intact, rtol=1e-6, atol=1e-8)
    for part in truth.parts:
        assert found.without([part]).mean() > intact.mean() + 2 * TOLERANCE


def edges_matter_and_others_do_not(found, truth):
    """Of edges, those that are not planted go together, and planted ones go one by one."""
    intact = found.without(())
    every = set(edges_of(found.model))
    assert truth.edges < every
    torch.testing.assert_close(found.without((), every - truth.edges), intact, rtol=1e-5, atol=1e-6)
    for edge in truth.edges:
        assert found.without((), [edge]).mean() > intact.mean() + 0.5 * TOLERANCE, edge


@pytest.mark.parametrize(("family", "decoy"), FAST)
def test_the_truth_holds_by_ablation(family, decoy):
    one = planted(family, 1, decoy)
    found = ablated(one)
    truth = one.truth
    assert one.decoys.isdisjoint(truth.parts)
    assert bool(one.decoys) == (decoy != NONE)
    parts_matter_and_others_do_not(found, truth)
    edges_matter_and_others_do_not(found, truth)
    # A truth that leaves a part or an edge out is seen, and one that names an idle one.
    idle = sorted(set(found.parts) - truth.parts - one.decoys)[0]
    first = sorted(truth.parts)[0]
    fewer = replace(truth, parts=truth.parts - {first})
    more = replace(truth, parts=truth.parts | {idle})
    must_fail(parts_matter_and_others_do_not, found, fewer)
    must_fail(parts_matter_and_others_do_not, found, more)
    edge = sorted(truth.edges)[-1]
    must_fail(edges_matter_and_others_do_not, found, replace(truth, edges=truth.edges - {edge}))
    unread = replace(truth, edges=truth.edges | {(idle, READ_OUT)})
    must_fail(edges_matter_and_others_do_not, found, unread)


def test_one_head_of_a_cancelling_pair_moves_what_both_leave():
    one = planted("places", 1, "cancelling pair")
    found = ablated(one)
    alone = found.without([sorted(one.decoys)[0]])
    assert alone.mean() > found.without(()).mean() + 1e-3


@pytest.mark.parametrize(
    "family",
    [*QUICK, *(pytest.param(f, marks=pytest.mark.slow) for f in FAMILIES if f not in QUICK)],
)
def test_weights_of_examples_are_the_planted_ones(family):
    """By automatic differentiation of the model, and by the formula of what is planted."""
    one = planted(family, 1)
    prompts = one.checkpoint.task.sample(16, generator(3, "test"))
    found = ExampleInfluence.measure(one.checkpoint, prompts, inputs=False)

    def same(hat):
        gap = found.weights.values - hat.numpy()
        assert (gap**2).sum() < 1e-4 * (hat.numpy() ** 2).sum()

    same(one.truth.hat(prompts))
    must_fail(same, one.truth.hat(prompts).roll(1, 0) * 1.1)
    answer = one.truth.answer(prompts)
    spread = float(answer.std())
    gap = at_query(one.checkpoint, prompts) - answer
    assert gap.abs().max() < 0.01 * spread


def test_a_third_of_the_models_have_decoys_and_there_are_sixty():
    decoys = [decoy_of(seed) for seed in range(N_SEEDS)]
    assert len(FAMILIES) * N_SEEDS >= 60
    assert N_SEEDS - decoys.count(NONE) >= N_SEEDS / 3
    assert set(decoys) == {NONE, *DECOYS}


def test_draws_differ_and_repeat():
    one, again, other = planted("places", 0), planted("places", 0), planted("places", 1)
    weights = [each.checkpoint.model.state_dict() for each in (one, again, other)]
    assert torch.equal(weights[0]["embed.W_E"], weights[1]["embed.W_E"])
    assert weights[0]["embed.W_E"].shape != weights[2]["embed.W_E"].shape or not torch.equal(
        weights[0]["embed.W_E"], weights[2]["embed.W_E"]
    )


def test_scores_are_of_sets():
    score = Score.of({1, 2, 9}, {2, 3}, range(5), [True, False])
    assert score == Score(2, 1, 3, 1, 2, 1)
    assert not score.exact
    assert Score.of({2, 3}, {2, 3}, range(5)).exact
    assert score + score == Score(4, 2, 6, 2, 4, 2)
    assert list(covers(0, 1, 1.5)) == [False]
    assert list(covers(0.5, 0.5, 0.5)) == []


def test_influence_and_circuit_find_a_plain_model():
    one = planted("places", 0)
    found = dict([*scores._influence(one), *scores._circuits(one)])

    def right(scores_):
        for name, score in scores_.items():
            assert score.exact, name

    right(found)
    # Beside another truth the same answers are wrong.
    other = replace(one, truth=replace(one.truth, parts=frozenset({"MLP 0"})))
    must_fail(right, dict(scores._circuits(other)))


@pytest.mark.slow  # 5 s: every tool on one model
def test_every_method_gives_a_score():
    found = scores.scored(planted("by MLP", 0))
    assert tuple(found) == METHODS
    for name in ("activation patching", "path patching", "attribution patching", "head roles"):
        assert found[name].exact, name


# ---- the trial -----------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch):
    """Scores that take no time: the circuit of every second seed is wrong, nothing else is."""

    def scored(one):
        found = dict.fromkeys(METHODS, Score(2, 2, 4, 0, 1, 1))
        if one.seed % 2:
            found["circuit"] = Score(2, 1, 4, 1, 3, 2)
        return found

    monkeypatch.setattr(tools, "scored", scored)


def test_a_trial_counts_by_family_and_decoy(quick, tmp_path):
    found = tools.run(tmp_path / "parts", families=["places", "by MLP"], n_seeds=4)
    assert found.score("circuit") == Score(16, 12, 32, 4, 16, 12)
    assert found.score("circuit", families=["places"], decoys=[NONE]) == Score(6, 4, 12, 2, 7, 5)
    assert found.exact("circuit") == (4, 8)
    assert found.exact("circuit", [NONE]) == (2, 6)
    assert found.exact("steer") == (8, 8)
    first, _, others, *_ = found.targets()
    assert first == "circuits found exactly: 4 of 8, 50.0% (target >= 90%): missed"
    assert others == "other things named: 4 of 320, 1.2% (target <= 5%): met"
    assert found.short()[0] == first
    assert others not in found.short()
    write_json(tmp_path / "tools.json", found.to_dict())
    again = tools.Tools.read(tmp_path / "tools.json")
    assert again.lines() == found.lines()
    with pytest.raises(InputError, match="unknown method 'guess'"):
        found.score("guess")
    with pytest.raises(InputError, match="draws"):
        tools.run(tmp_path / "parts", families=["places"], n_seeds=5)


def test_trained_families_are_put_in_the_place_of_earlier_ones(quick, tmp_path):
    """Rows of other families stay as they are, and a trained family is tried once a model."""
    families = ["places", "trained step"]
    before = tools.run(tmp_path / "a", families=families, n_seeds=4)
    assert before.exact("circuit") == (3, 6)
    later = tools.run(tmp_path / "b", families=families, n_seeds=1)
    whole = before.joined(later)
    assert whole.exact("circuit") == (3, 5)
    assert whole.score("circuit", families=["places"]) == before.score(
        "circuit", families=["places"]
    )
    assert whole.settings == {**before.settings, tools.TRAINED: later.settings}
    assert "trained" not in "\n".join(
        tools.run(tmp_path / "c", families=["places"], n_seeds=1).lines()
    )


def fits(lines):
    assert max(map(len, lines)) <= 100


@pytest.mark.slow
def test_the_kept_trial_is_whole_and_fits_the_terminal():
    found = tools.kept()
    assert found is not None
    assert set(found.table["family"]) == set(EVERY)
    expected = {decoy_of(seed) for seed in range(found.settings["draws"])}
    assert set(found.table["decoy"]) == expected
    n_models = sum(len(seeds_of(family, found.settings["draws"])) for family in EVERY)
    assert found.exact("circuit")[1] == n_models
    # Trained families have a table of their own, and may have been tried apart.
    apart = found.settings.get(tools.TRAINED, found.settings)
    assert apart["draws"] == found.settings["draws"]
    heads = [line for line in found.lines() if line.startswith(("method", tools.TRAINED))]
    assert [len(re.split("  +", line)) - 1 for line in heads[:2]] == [len(FAMILIES), len(PLANS)]
    for row in found.table.to_dict("records"):
        assert 0 <= row["found"] <= row["planted"]
        assert 0 <= row["named"] <= row["others"]
        assert 0 <= row["covered"] <= row["intervals"]
    fits(found.lines())
    must_fail(fits, [line + 60 * " ." for line in found.lines()])
    shown = "\n".join(selfcheck.kept([]))
    assert tools.COMMAND in shown
    assert found.targets()[0] in shown


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: planted("one stop"), "unknown family 'one stop'"),
        (lambda: planted("places", 0, "copy"), "unknown decoy 'copy'"),
        (lambda: planted("places", -1), "seed must be a whole number from 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused_by_name(call, match):
    with pytest.raises(InputError, match=match):
        call()
