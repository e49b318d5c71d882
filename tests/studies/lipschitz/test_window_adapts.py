"""Families of runs: what the package brings, made-up families, and verdicts.

Of made-up families slopes and factors are checked.
"""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.experiments import calibration
from icl_interp.models.softmax_unit import SoftmaxAttention
from icl_interp.models.weights import weights_hash
from icl_interp.results import table_of_rows
from icl_interp.studies.lipschitz.claims import window_adapts as claims
from icl_interp.studies.lipschitz.claims.window_adapts import CRITERION, FAMILY_CLAIM
from icl_interp.studies.lipschitz.constructions import heads as made
from icl_interp.studies.lipschitz.measurements import window_family
from icl_interp.tasks import RidgeFunction
from icl_interp.theory import lipschitz as theory

CASES = {one.name: one for one in made.HEADS if "lipschitz.window_adapts" in one.expected}
LIPSCHITZ, NOISES = (0.3, 1.0, 3.0, 10.0), (0.3, 1.0, 3.0)


def table(learned, seeds=4, skip=()):
    """A family whose windows are a function of (best, L, noise, seed)."""
    rows = []
    for seed, noise, lipschitz in itertools.product(range(seeds), NOISES, LIPSCHITZ):
        if (seed, noise, lipschitz) in skip:
            continue
        best = 2.0 * (lipschitz / noise) ** 0.8
        rows.append(
            row(
                f"run {len(rows)}",
                lipschitz,
                noise,
                float(seed),
                learned(best, lipschitz, noise, seed),
                best,
            )
        )
    return table_of_rows([*rows, row(window_family.THIS, 1.0, 1.0, math.nan, 2.0, 2.0)])


def row(run, lipschitz, noise, seed, w, best):
    return {
        "run": run,
        "numbers": window_family.BUNDLED,
        "L": lipschitz,
        "noise": noise,
        "seed": seed,
        "w": w,
        "best": best,
        "fit": 1.0,
        "weights": "",
    }


def ridge(case):
    assert isinstance(case.task, RidgeFunction)
    return case.task


def wobble(seed):
    return math.exp(0.02 * (seed - 1.5))


def verdict(found):
    """What the criterion makes of a family, for a model that is where it should be."""
    fine = {"own": 1.0, "learned": 1.0, "fit": 1.0, "reading": 1.0, "used": 1.0, "kind": 0.0}
    fine |= {"seeds": len(claims.numbers(found)["L"])}
    over = {key: claims.over_seeds(values) for key, values in claims.numbers(found).items()}
    return CRITERION.decide(CRITERION.named({**fine, **over})).verdict


@pytest.mark.parametrize(
    ("learned", "expected"),
    [
        (lambda best, lipschitz, noise, seed: best * wobble(seed), "supported"),
        (lambda best, lipschitz, noise, seed: 2.0 * wobble(seed), "contradicted"),
        (lambda best, lipschitz, noise, seed: wobble(seed) * 4 / best, "contradicted"),
        (lambda best, lipschitz, noise, seed: wobble(seed) * 2 * lipschitz**0.8, "contradicted"),
        (lambda best, lipschitz, noise, seed: wobble(seed) * 2 * noise**-0.8, "contradicted"),
        (lambda best, lipschitz, noise, seed: wobble(seed) * 2 * best, "contradicted"),
        (lambda best, lipschitz, noise, seed: wobble(seed) * 1.35 * best, "inconclusive"),
    ],
    ids=[
        "as theory",
        "fixed",
        "the other way",
        "L alone",
        "noise alone",
        "twice the best",
        "1.35 times the best",
    ],
)
def test_criterion_on_made_up_families(learned, expected):
    assert verdict(table(learned)) == expected


def test_slopes_are_those_of_an_independent_route():
    rng = np.random.default_rng(0)
    noise_of = {key: rng.normal() for key in itertools.product(range(4), NOISES, LIPSCHITZ)}
    found = claims.numbers(
        table(
            lambda best, lipschitz, noise, seed: (
                best**0.7 * math.exp(0.1 * noise_of[seed, noise, lipschitz])
            )
        )
    )
    for seed in range(4):
        own = np.array(
            [
                [0.7 * math.log(2 * (v / s) ** 0.8) + 0.1 * noise_of[seed, s, v] for v in LIPSCHITZ]
                for s in NOISES
            ]
        )
        along_l = np.mean([np.polyfit(np.log(LIPSCHITZ), line, 1)[0] for line in own]) / 0.8
        along_noise = np.mean([np.polyfit(np.log(NOISES), line, 1)[0] for line in own.T]) / -0.8
        np.testing.assert_allclose(
            (found["L"][seed], found["noise"][seed]), (along_l, along_noise), rtol=1e-9
        )


def test_a_factor_is_a_root_mean_square_in_decades():
    found = claims.numbers(
        table(lambda best, lipschitz, noise, seed: best * (2.0 if lipschitz > 1 else 0.5))
    )
    np.testing.assert_allclose(found["factor"], 2.0)


def test_intervals_over_seeds_are_students():
    from scipy import stats

    values = np.array([0.9, 1.0, 1.2, 0.95])
    found = claims.over_seeds(values)
    ends = stats.t.interval(0.95, 3, values.mean(), stats.sem(values))
    np.testing.assert_allclose((found.low, found.high), ends)
    must_fail(
        np.testing.assert_allclose,
        (found.low, found.high),
        stats.norm.interval(0.95, values.mean(), stats.sem(values)),
    )


def test_a_seed_with_a_missing_run_does_not_count():
    def adapts(best, lipschitz, noise, seed):
        return best * wobble(seed)

    short = table(adapts, skip={(2, 1.0, 3.0)})
    assert len(claims.numbers(short)["L"]) == 3
    assert verdict(short) == "inconclusive"
    assert len(claims.numbers(table(adapts, seeds=0))["L"]) == 0


def test_windows_that_point_away_have_a_floor():
    found = claims.numbers(table(lambda best, lipschitz, noise, seed: -1.0))
    assert all(np.isfinite(values).all() for values in found.values())


# ---- what comes with the package -----------------------------------------------------------------


def test_every_run_is_named_and_there_once():
    runs = window_family.families()[window_family.UNIT]["runs"]
    assert len({one["weights"] for one in runs}) == len(runs) == 48
    assert {(one["lipschitz"], one["noise"], one["seed"]) for one in runs} == set(
        itertools.product(LIPSCHITZ, NOISES, range(4))
    )
    assert all(
        len(one["weights"]) == 64 and one["command"].startswith("icl-interp train ") for one in runs
    )


@pytest.mark.slow
def test_best_windows_are_theorys():
    """To 1e-5: a minimum's place is known to the square root of what its height is known to."""
    for one in window_family.families()[window_family.UNIT]["runs"][:12]:
        best = theory.optimal_window(
            one["lipschitz"], one["noise"], window_family.N, window_family.D
        )
        assert math.isclose(float(best.window), one["best"], rel_tol=1e-5)


def test_runs_start_from_the_same_weights_at_every_L():
    """So an untrained family has slopes of 0, which findings show beside the trained ones."""
    fresh = window_family.families()[window_family.UNIT]["untrained"]
    assert [one["seed"] for one in fresh] == [0, 1, 2, 3]
    assert all(abs(one["w"]) < 0.3 for one in fresh)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_constructions(name):
    case = CASES[name].draw(1)
    lab, facts = calibration.lab_for(case)
    finding = FAMILY_CLAIM.judge_results(calibration.measure(lab, facts, [FAMILY_CLAIM]), facts)
    assert finding.verdict == CASES[name].expected["lipschitz.window_adapts"], finding.reason


def test_own_window_is_that_of_its_weights():
    case = CASES["softmax unit at the best window, with a family"].draw(1)
    lab, _ = calibration.lab_for(case)
    mine = lab.measure(window_family.family).to_dict("records")[-1]
    attention = case.model.blocks[0].attn
    product = (attention.W_K[0] @ attention.W_Q[0].T)[:3, :3]
    assert mine["run"] == window_family.THIS
    assert math.isclose(mine["w"], float(product.detach().trace()) / 3, rel_tol=1e-9)


def test_hash_tells_weights():
    model = SoftmaxAttention.from_product(torch.eye(3, dtype=torch.float64)).to_transformer(5)
    before = weights_hash(model)
    with torch.no_grad():
        model.blocks[0].attn.W_Q[0, 0, 0] += 1e-3
    assert before != weights_hash(model)


def with_training(**change):
    case = CASES["softmax unit at the best window, with a family"].draw(1)
    assert case.training is not None
    return dataclasses.replace(case, training=dataclasses.replace(case.training, **change))


@pytest.mark.slow
def test_a_window_that_was_typed_in_says_nothing_about_a_kind_of_training():
    """The same weights support the claim only as a run of the family's recipe.

    Weights that were typed in would support it, too, if nobody asked.
    """
    trained = CASES["softmax unit at the best window, with a family"].draw(1)
    typed = dataclasses.replace(trained, training=None)
    lab, facts = calibration.lab_for(typed)
    finding = FAMILY_CLAIM.judge_results({}, facts)
    assert finding.verdict == "not_applicable"
    assert "nothing tells how this one was" in finding.reason
    # The mutant: nobody asks whether, or by which recipe.
    asked_nothing = dataclasses.replace(
        FAMILY_CLAIM,
        excluded=lambda facts: None,
        criterion=dataclasses.replace(
            CRITERION,
            preconditions=tuple(p for p in CRITERION.preconditions if p.quantity != "kind"),
        ),
    )
    results = calibration.measure(lab, facts, [asked_nothing])
    assert asked_nothing.judge_results(results, facts).verdict == "supported"
    # Nor does a config help that is another recipe's, or that tells of fewer steps.
    for change, named in (
        ({"learning_rate": 0.03}, "training.learning_rate (0.03; theirs 1.0)"),
        ({"steps": 10}, "training.steps (10; theirs 1000)"),
    ):
        lab, facts = calibration.lab_for(with_training(**change))
        finding = FAMILY_CLAIM.judge_results(calibration.measure(lab, facts, [FAMILY_CLAIM]), facts)
        assert finding.verdict == "inconclusive"
        assert "trained otherwise: 1 settings" in finding.reason
        assert named in finding.reason


def test_length_and_records_make_no_other_kind_of_training():
    lab, _ = calibration.lab_for(with_training(steps=5000, seed=7, warmup_steps=10, log_every=3))
    rows = lab.measure(window_family.kind_of_training).to_dict("records")
    assert [row["setting"] for row in rows] == [window_family.RECIPE, window_family.STEPS]
    assert sum(row["differs"] for row in rows) == 0
    lab, _ = calibration.lab_for(with_training(batch_size=3, grad_clip=9.0))
    differing = {
        row["setting"]
        for row in lab.measure(window_family.kind_of_training).to_dict("records")
        if row["differs"]
    }
    assert differing == {"training.batch_size", "training.grad_clip"}


@pytest.mark.slow
@pytest.mark.parametrize("change", [{"n_points": 41}, {"link": "affine"}, {"lipschitz": 2.0}])
def test_whom_it_is_about(change):
    case = CASES["softmax unit at the best window, with a family"].draw(1)
    _, facts = calibration.lab_for(case)
    other = dataclasses.replace(facts, task=dataclasses.replace(ridge(case), **change))
    reason = FAMILY_CLAIM.exclusion(other)
    assert (reason is None) == ("lipschitz" in change)
