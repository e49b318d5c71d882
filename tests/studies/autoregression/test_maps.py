"""In-context maps: forms against other routes, distances, models of known truth, whom the claim is about."""

import dataclasses

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.analyses.facts import Facts
from icl_interp.analyses.lab import Lab
from icl_interp.evaluation import in_distribution
from icl_interp.experiments import calibration
from icl_interp.models.blank import blank
from icl_interp.models.diagonal_unit import DiagonalAttention, pairs
from icl_interp.models.tokens import Augmented, States
from icl_interp.provenance import generator
from icl_interp.studies.autoregression.claims import map as claims
from icl_interp.studies.autoregression.claims.map import MAP_CLAIM
from icl_interp.studies.autoregression.constructions import maps as made
from icl_interp.studies.autoregression.measurements import maps
from icl_interp.tasks import AutoregressiveProcess, complex_states
from icl_interp.testing import null_models
from icl_interp.theory import autoregression as theory

CASES = {one.name: one for one in made.CONSTRUCTIONS if MAP_CLAIM.id in one.expected}
REAL = AutoregressiveProcess(n_dims=3, n_points=6)
REAL_12 = AutoregressiveProcess(n_dims=3, n_points=12)
UNITARY = AutoregressiveProcess(n_dims=2, matrices="unitary", n_points=6)
PAIRED = AutoregressiveProcess(n_dims=4, matrices="conjugate_pairs", n_points=6)


def judged(case, seed=0):
    lab, facts = calibration.lab_for(case, seed=seed)
    return MAP_CLAIM.judge_results(calibration.measure(lab, facts, [MAP_CLAIM]), facts)


def paths(task, name, other_end=True):
    """Sampled paths; with the last state of another path in the place of the last one."""
    xs = task.sample(16, generator(0, name), dtype=torch.float64).xs.clone()
    if other_end:
        xs[:, -1] = xs[:, -1].roll(1, 0)
    return xs


# ---- forms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_heads", [1, 2])
def test_a_step_is_a_sum_over_transitions(n_heads):
    """Written out in numpy; with two heads, in complex coordinates."""
    xs = paths(UNITARY, "step")
    states = complex_states(xs).numpy() if n_heads == 2 else xs.numpy()
    expected = np.zeros_like(states[:, 0])
    for t in range(1, states.shape[1]):
        expected += states[:, t] * (states[:, t - 1].conj() * states[:, -1]).sum(-1, keepdims=True)
    found = maps.forms(UNITARY, xs, n_heads)[maps.STEP].free
    as_numbers = pairs(torch.from_numpy(expected)) if n_heads == 2 else torch.from_numpy(expected)
    torch.testing.assert_close(found, as_numbers)
    must_fail(
        torch.testing.assert_close, maps.forms(UNITARY, xs, 3 - n_heads)[maps.STEP].free, as_numbers
    )


@pytest.mark.parametrize("n_points", [3, 6])
def test_least_squares_is_that_of_lapack(n_points):
    """Also where fewer transitions than coordinates are seen: then the solution of smallest norm."""
    xs = paths(REAL, "squares")[:, :n_points]
    found = torch.linalg.lstsq(xs[:, :-1], xs[:, 1:], driver="gelsd", rcond=1e-9).solution
    expected = (xs[:, -1:] @ found)[:, 0]
    torch.testing.assert_close(maps.solved(xs, xs[:, -1]), expected)
    must_fail(torch.testing.assert_close, maps.solved(xs, xs[:, -2]), expected)


@pytest.mark.parametrize("ratio", [-0.5, 0.0, 0.7])
def test_minimisers_are_of_the_form_of_the_ratio(ratio):
    """The unit at any minimiser of Proposition 6, on paths that end in another state."""
    xs, point = paths(PAIRED, "ratio"), theory.orthogonal_minimiser(4, 6, ratio=ratio, scale=-1.5)
    rows = torch.diag(point.positions[-1].expand(6)) + torch.diag(point.positions[-2].expand(5), -1)
    eye = torch.eye(4, dtype=torch.complex128)
    unit = DiagonalAttention(eye, point.product.T.to(torch.complex128), rows)
    expected = pairs(unit(complex_states(xs))[:, -1].detach())
    torch.testing.assert_close(maps.forms(PAIRED, xs, 2)[maps.TURN].fixed, expected)
    on_path = maps.forms(PAIRED, paths(PAIRED, "ratio", other_end=False), 2)[maps.TURN].fixed
    must_fail(torch.testing.assert_close, on_path, expected)


def test_on_paths_all_good_maps_agree():
    xs = paths(UNITARY, "agree", other_end=False)
    found = maps.forms(UNITARY, xs, 2)
    after = UNITARY.sample(16, generator(0, "agree"), dtype=torch.float64).ys[:, -1]
    torch.testing.assert_close(found[maps.TURN].fixed, after)
    torch.testing.assert_close(found[maps.SQUARES].fixed, after)
    must_fail(torch.testing.assert_close, found[maps.STEP].free / 5, after)


def test_copies_count_once():
    tiled = dataclasses.replace(REAL, tiles=2)
    xs = paths(REAL, "tiles")
    one, two = maps.forms(REAL, xs, 1), maps.forms(tiled, xs.repeat(1, 1, 2), 1)
    assert set(one) == set(two)
    for name in one:
        torch.testing.assert_close(two[name].free, one[name].free.repeat(1, 2))


# ---- distances -----------------------------------------------------------------------------------


def test_distance_is_that_of_least_squares():
    draw = generator(0, "distance")
    f, a, b = torch.randn(3, 50, 4, generator=draw, dtype=torch.float64)
    means = maps.moments(f, maps.Form(a, b)).mean(0).numpy()
    c = np.linalg.lstsq(b.numpy().reshape(-1, 1), (f - a).numpy().ravel())[0]
    form = a.numpy() + c * b.numpy()
    squares = [np.mean((one**2).sum(-1)) for one in (f.numpy() - form, f.numpy(), form)]

    def agrees(found):
        np.testing.assert_allclose(found, squares[0] / max(squares[1:]), rtol=1e-10)

    agrees(maps.distance(means))
    must_fail(agrees, maps.distance(means, lowest=float(c[0]) + 0.5))


def test_a_model_that_says_nothing_is_far_from_every_form():
    zeros = torch.zeros(5, 4, dtype=torch.float64)
    ones = torch.ones(5, 4, dtype=torch.float64)
    assert (
        abs(float(maps.distance(maps.moments(zeros, maps.Form(zeros, ones)).mean(0).numpy())) - 1)
        < 1e-12
    )
    faint = 1e-6 * torch.randn(5, 4, generator=generator(0, "faint"), dtype=torch.float64)
    assert float(maps.distance(maps.moments(faint, maps.Form(ones, zeros)).mean(0).numpy())) > 0.99


# ---- models of known truth -----------------------------------------------------------------------


def test_two_layers_are_proposition_1():
    """The hand-built model against the layer of the paper on augmented tokens, at every point; not without its past."""
    task, draw = REAL, generator(1, "two layers")
    rows = torch.full((6, 6), 0.3, dtype=torch.float64)
    model = made.two_layers(draw, task, made.before(6), rows)
    xs = paths(task, "two layers")
    tokens = theory.augmented_tokens(xs)
    expected = torch.stack(
        [
            theory.augmented_prediction(tokens[:, : t + 1], *theory.gradient_step_weights(3, 0.3))
            for t in range(6)
        ],
        1,
    )
    torch.testing.assert_close(model(xs).detach(), expected)
    forgetful = made.two_layers(draw, task, torch.eye(6, dtype=torch.float64), rows)
    must_fail(torch.testing.assert_close, forgetful(xs).detach(), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_constructions(name):
    finding = judged(CASES[name].draw(1))
    assert finding.verdict == CASES[name].expected[MAP_CLAIM.id], finding.reason


def step_on_augmented(d, n_points, step):
    """Proposition 1 as a transformer: one layer on augmented tokens."""
    scores, values = theory.gradient_step_weights(d, step)
    model = blank(3 * d, d_head=3 * d, n_ctx=n_points, d_in=3 * d, d_out=d, score_fn="linear")
    eye = torch.eye(3 * d, dtype=torch.float64)
    with torch.no_grad():
        model.embed.W_E.copy_(eye)
        model.unembed.W_U[:d] = eye[:d, :d]
        attn = model.blocks[0].attn
        attn.W_K[0], attn.W_Q[0] = eye, scores.T
        attn.W_V[0], attn.W_O[0] = values.T, eye
    return model


@pytest.mark.slow
def test_the_layer_of_proposition_2_takes_a_step():
    task = AutoregressiveProcess(n_dims=4, n_points=12)
    lab = Lab(step_on_augmented(4, 12, 0.05), task, Augmented(), n_units=64)
    facts = Facts.of(lab.model, task, "augmented", in_distribution(lab, task), n_units=64)
    finding = MAP_CLAIM.judge_results(calibration.measure(lab, facts, [MAP_CLAIM]), facts)
    assert finding.verdict == "supported", finding.reason
    assert finding.estimate is not None
    assert finding.estimate.value < 1e-6


@pytest.mark.slow
def test_faint_and_blind_models_support_nothing():
    """A model whose heads write a millionth has the map of a step, and knows nothing."""
    case = CASES["two layers that take a gradient step"].draw(0)
    for left in (0.0, null_models.FAINT):
        finding = judged(calibration.Case(null_models.blind(case.model, left), case.task))
        assert finding.verdict == "inconclusive", finding.reason


@pytest.mark.slow
def test_an_untrained_model_supports_nothing():
    case = CASES["unit at a minimiser for unitary matrices"].draw(0)
    finding = judged(calibration.Case(null_models.untrained(case.model.cfg, 1), case.task))
    assert finding.verdict == "inconclusive"
    assert finding.evidence["distance"].low > claims.FAR


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"encoding": "augmented"}, "2 on augmented states"),
        ({"task": REAL, "n_layers": 1}, "orthogonal matrices"),
        ({"n_layers": 3}, "3 on plain states"),
        ({"encoding": "interleaved"}, "states or augmented"),
    ],
)
def test_whom_it_is_not_about(change, word):
    change = dict(change)
    case = CASES["two layers that take a gradient step"].draw(0)
    _, facts = calibration.lab_for(case)
    assert MAP_CLAIM.exclusion(facts) is None
    n_layers = change.pop("n_layers", facts.config.n_layers)
    config = dataclasses.replace(facts.config, n_layers=n_layers)
    assert word in (MAP_CLAIM.exclusion(dataclasses.replace(facts, config=config, **change)) or "")


def test_other_last_states_are_drawn_apart():
    """They are states of the law, and the rest of the prompt stays."""
    lab = Lab(
        CASES["two layers that take a gradient step"].draw(0).model, REAL_12, States(), n_units=8
    )
    kinds = maps.last_states(lab, lab.few.n_points)
    [own], others = kinds[maps.ON_PATH], kinds[maps.ELSEWHERE]
    assert len(others) == maps.N_OTHERS
    for other in others:
        torch.testing.assert_close(other.xs[:, :-1], own.xs[:, :-1])
        gaps = (other.xs[:, -1] - own.xs[:, -1]).square().sum(-1)
        assert float(gaps.min()) > 1e-6
        lengths = other.xs[:, -1].square().sum(-1)
        torch.testing.assert_close(lengths, torch.full_like(lengths, 3.0))
