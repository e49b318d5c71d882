"""Models made to mislead the claims on paths, and edits that leave the function.

Each model is of known truth. Beside each stands a mutant: the mend is taken away, and the old,
wrong verdict is back.
"""

import dataclasses

import pytest
import torch
from adversaries import Rule, Ruled
from helpers import mostly_slow, must_fail

import icl_interp
from icl_interp import pipeline
from icl_interp.analyses.claim import Claim
from icl_interp.analyses.finding import Finding
from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.errors import InputError
from icl_interp.experiments import calibration
from icl_interp.experiments.calibration import Case
from icl_interp.models.blank import blank
from icl_interp.models.tokens import Augmented, Encoding, States
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes import one_pattern
from icl_interp.provenance import generator
from icl_interp.studies.autoregression.claims import (
    augmented,
    depth,
    heads_orthogonal,
    identity,
    map,
    past_token,
    same_on_diagonals,
    softmax,
    start,
)
from icl_interp.studies.autoregression.constructions import maps as made
from icl_interp.studies.autoregression.measurements import (
    augmented_tokens,
    distinct_heads,
    maps,
    unit,
)
from icl_interp.tasks import AutoregressiveProcess
from icl_interp.testing.reparameterisations import attention, base, layers, stream
from icl_interp.theory import autoregression as theory

pytestmark = pytest.mark.slow  # each test analyses or runs models anew: half a minute in all
PATHS = AutoregressiveProcess(n_dims=3, n_points=7)
UNITARY = AutoregressiveProcess(n_dims=3, matrices="unitary", n_points=6)
D = PATHS.dim
N_UNITS = 32  # the fewest that intervals are made of
HEADS = heads_orthogonal.HEADS_ORTHOGONAL_CLAIM
ON_UNITS = (
    same_on_diagonals.DIAGONALS_CLAIM,
    past_token.PAST_CLAIM,
    start.START_CLAIM,
    identity.IDENTITY_CLAIM,
)
ON_LAYERS = (map.MAP_CLAIM, augmented.AUGMENTED_CLAIM, depth.DEPTH_CLAIM)


def finding(claim: Claim, model: HookedTransformer, task, encoding: Encoding | None = None):
    case = Case(model, task, encoding=encoding or States(), n_units=N_UNITS)
    return calibration.judge(case, (claim.id,))[0]


def verdict(claim: Claim, model: HookedTransformer, task, encoding: Encoding | None = None) -> str:
    found = finding(claim, model, task, encoding)
    assert not found.error, found.error
    return found.verdict


def asking_only(claim: Claim, *quantities: str) -> Claim:
    """The mutant of a claim: of its criterion these conditions are left, and no precondition."""
    kept = tuple(one for one in claim.criterion.conditions if one.quantity in quantities)
    assert len(kept) == len(quantities)
    less = dataclasses.replace(claim.criterion, conditions=kept, preconditions=())
    # A claim on weights cannot even be written without `TIED`.
    return dataclasses.replace(claim, criterion=less, about_weights=False)


def judged_by(claim: Claim, model: HookedTransformer, task, encoding: Encoding | None = None):
    """The verdict of a claim that is not registered."""
    case = Case(model, task, encoding=encoding or States(), n_units=N_UNITS)
    lab, facts = calibration.lab_for(case)
    return claim.judge_results(calibration.measure(lab, facts, [claim]), facts).verdict


# ---- rules ---------------------------------------------------------------------------------------


def squares(states):
    """Least squares on the transitions before each state."""
    out = torch.zeros_like(states)
    for t in range(1, states.shape[1]):
        out[:, t] = maps.solved(states[:, : t + 1], states[:, t])
    return out


def steps(states):
    """A gradient step of the best size after each state: eta sum_k s_k <s_{k-1}, s_t>."""
    out = torch.zeros_like(states)
    sizes = made.steps(PATHS).to(states)
    for t in range(1, states.shape[1]):
        before, after = states[:, :t], states[:, 1 : t + 1]
        scores = torch.einsum("bkj,bj->bk", before, states[:, t])
        out[:, t] = sizes[t] * torch.einsum("bk,bki->bi", scores, after)
    return out


def continues(states):
    """Whether each state is what those before it tell; early ones are told by nothing."""
    found = torch.zeros(states.shape[:2], dtype=torch.bool)
    expected = squares(states)
    for t in range(D + 1, states.shape[1]):
        gap = (expected[:, t - 1] - states[:, t]).norm(dim=1)
        found[:, t] = gap < 1e-3 * states[:, t].norm(dim=1)
    return found[..., None]


def as_complex(states):
    return torch.view_as_complex(states.unflatten(-1, (-1, 2)).contiguous())


def as_numbers(states):
    return torch.view_as_real(states).flatten(-2)


def second_state(states):
    """The second state is lambda, as s_0 = 1: times the last state it is the next one on paths."""
    s = as_complex(states)
    out = s[:, 1:2] * s
    out[:, 0] = 0
    return as_numbers(out)


def ratio(states):
    """The last state turned by its ratio to the one before, which has entries of size 1."""
    s = as_complex(states)
    before = torch.cat([torch.ones_like(s[:, :1]), s[:, :-1]], 1)
    return as_numbers(s * before.conj() * s)


# ---- maps that show off the path only, or at one length only -------------------------------------


def layer_on_augmented() -> HookedTransformer:
    """A layer of random weights on augmented tokens (0, s_t, s_{t-1})."""
    sizes = {"d_in": 3 * D, "d_out": D, "n_ctx": PATHS.n_points}
    model = blank(3 * D, n_layers=1, d_head=D, score_fn="linear", **sizes)
    with torch.no_grad():
        draw = generator(0, "test/layer")
        model.embed.W_E.copy_(torch.randn(3 * D, 3 * D, generator=draw, dtype=torch.float64))
    return model


def on_augmented(rule: Rule) -> HookedTransformer:
    return Ruled.by(layer_on_augmented(), lambda tokens: rule(tokens[..., D : 2 * D]))


def test_least_squares_on_every_path_takes_no_step():
    """It takes gradient steps where the last state is foreign, which no path of the law has."""
    sly = on_augmented(lambda s: torch.where(continues(s), squares(s), steps(s)))
    asked = (PATHS, Augmented())
    assert verdict(map.MAP_CLAIM, on_augmented(steps), *asked) == "supported"
    assert verdict(map.MAP_CLAIM, on_augmented(squares), *asked) == "contradicted"
    found = finding(map.MAP_CLAIM, sly, *asked)
    assert found.verdict != "supported"
    assert found.decided_by.quantity == "on the path"
    only = asking_only(map.MAP_CLAIM, "distance", "beside rivals")
    assert judged_by(only, sly, *asked) == "supported"


def two_layers() -> HookedTransformer:
    """Two layers on plain states that take gradient steps."""
    n = PATHS.n_points
    rows = made.steps(PATHS)[:, None].expand(-1, n)
    return made.two_layers(generator(0, "test/layers"), PATHS, made.before(n), rows)


def at_the_end(states):
    """A gradient step after the longest prompt, and least squares after all shorter ones."""
    out = squares(states)
    last = PATHS.n_points - 1
    out[:, last:] = steps(states)[:, last:]
    return out


def test_a_step_after_the_longest_prompts_alone_is_no_step(monkeypatch):
    sly = Ruled.by(two_layers(), at_the_end)
    assert verdict(map.MAP_CLAIM, two_layers(), PATHS) == "supported"
    assert verdict(map.MAP_CLAIM, sly, PATHS) == "contradicted"
    monkeypatch.setattr(maps, "lengths", lambda lab: (lab.few.n_points,))
    assert verdict(map.MAP_CLAIM, sly, PATHS) == "supported"


def unit_on_unitary() -> HookedTransformer:
    """The minimiser of Proposition 3, with as many heads as coordinates."""
    return made.unit(theory.unitary_minimiser(UNITARY.n_dims, UNITARY.n_points, scale=1.5))


def ratio_by_a_short_cut(states):
    """The second state times the last on paths, where it is the same, and the ratio elsewhere."""
    s = as_complex(states)
    before = torch.cat([torch.ones_like(s[:, :1]), s[:, :-1]], 1)
    on_path = (s[:, 1:2] * before - s).abs().amax(-1, keepdim=True) < 1e-3
    return torch.where(on_path, second_state(states), ratio(states))


def test_a_short_cut_that_equals_the_ratio_is_the_ratio():
    """What is the ratio everywhere has its map; what is so on paths alone has another one."""
    by_ratio, by_second = (
        Ruled.by(unit_on_unitary(), rule) for rule in (ratio_by_a_short_cut, second_state)
    )
    assert verdict(map.MAP_CLAIM, by_ratio, UNITARY) == "supported"
    assert verdict(map.MAP_CLAIM, by_second, UNITARY) == "contradicted"
    on_paths = asking_only(map.MAP_CLAIM, "on the path")
    assert judged_by(on_paths, by_second, UNITARY) == "supported"


# ---- weights that do not predict -----------------------------------------------------------------


def softmax_layer() -> HookedTransformer:
    """Softmax attention with as many heads as linear attention needs, of random weights."""
    shape = {"n_heads": 6, "d_head": 4, "n_ctx": 6, "d_in": 6, "d_out": 6, "score_fn": "softmax"}
    model = blank(12, n_layers=1, **shape)
    draw = generator(0, "test/softmax")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "W_" in name:
                weight.copy_(0.3 * torch.randn(weight.shape, generator=draw, dtype=torch.float64))
    return model


def disturbed(states):
    """The right map, and beside it a function that swings so fast that it is noise."""
    out = second_state(states)
    return out + 0.2 * torch.sin(1e4 * out)


def test_noise_beside_a_softmax_layer_says_nothing_of_softmax():
    """Its error is that of the noise, and the layer's weights make no prediction."""
    noisy = Ruled.by(softmax_layer(), disturbed)
    found = finding(softmax.SOFTMAX_CLAIM, noisy, UNITARY)
    assert found.verdict == "inconclusive"
    assert "so something else makes them" in found.reason
    only = asking_only(softmax.SOFTMAX_CLAIM, "error")
    assert judged_by(only, noisy, UNITARY) == "supported"


class Turned(HookedTransformer):
    """`forward` says the opposite of what its layers make; the other ways to run it do not."""

    def forward(self, tokens, positions=None):
        """Predictions, with the other sign."""
        return -super().forward(tokens, positions)


def turned() -> Checkpoint:
    right = unit_on_unitary()
    model = Turned(right.cfg).double().eval()
    model.load_state_dict(right.state_dict())
    return Checkpoint(model, UNITARY, States(), RunConfig(right.cfg, UNITARY, "states"))


def check_refused() -> None:
    claims = (same_on_diagonals.DIAGONALS_CLAIM.id,)
    with pytest.raises(InputError, match="the model is not one function"):
        icl_interp.analyze(turned(), claims=claims, n_prompts=64, progress=False)


def test_a_forward_that_says_the_opposite_is_refused(monkeypatch):
    check_refused()
    monkeypatch.setattr(pipeline, "_check_is_one", lambda loaded: None)
    must_fail(check_refused)


@pytest.mark.parametrize("claim", mostly_slow((*ON_UNITS, HEADS)))
def test_a_unit_that_says_the_opposite_has_learned_nothing(claim):
    """In all ways: then it is one function, with an R2 of -3."""
    model = unit_on_unitary()
    with torch.no_grad():
        model.unembed.W_U.neg_()
    assert verdict(claim, unit_on_unitary(), UNITARY) == "supported"
    assert verdict(claim, model, UNITARY) == "inconclusive"


def test_without_preconditions_the_opposite_would_have_counted():
    found = asking_only(same_on_diagonals.DIAGONALS_CLAIM, "unlike", "rise")
    assert judged_by(found, turned().model, UNITARY) == "supported"


# ---- ablated to means ----------------------------------------------------------------------------


def looks_at_the_first_too(added: float) -> HookedTransformer:
    """Gradient steps by two layers, of which the first also looks at the first token, of value 0.

    Its weights, 2 at the token before and -1 at the first token, add up to 1. So what b_V gets,
    b_O can take off.
    """
    n, one = PATHS.n_points, torch.ones(D, dtype=torch.float64)
    past = 2 * made.before(n)
    past[1:, 0] -= 1
    past[0, 0] = 1
    rows = (made.steps(PATHS) / 2)[:, None].repeat(1, n)
    rows[:, 0] = 0  # there is no state before s_0
    model = made.two_layers(generator(0, "test/first"), PATHS, past, rows)
    first = model.blocks[0].attn
    written = slice(2 * D, 3 * D)
    with torch.no_grad():
        # Values are s - s_0 with s_0 = 1: 0 at the first token. b_O puts the 2 s_0 back.
        first.b_V[0] = -one @ first.W_V[0, D : 2 * D]
        first.b_O[written] = 2 * one
        first.b_V[0] += added
        first.b_O -= added * one @ first.W_O[0]
    return model


def without_means(name, by):
    """The mutant: what is cut off goes to 0."""
    return unit.Shift(name, 0 * by)


@pytest.mark.parametrize("added", [5.0, pytest.param(-20.0, marks=pytest.mark.slow)])
def test_a_value_bias_that_moves_into_the_output_bias_leaves_the_verdict(monkeypatch, added):
    plain, moved = looks_at_the_first_too(0.0), looks_at_the_first_too(added)
    xs = PATHS.sample(16, generator(0, "test/value bias"), dtype=torch.float64).xs
    torch.testing.assert_close(moved(xs), plain(xs))
    torch.testing.assert_close(plain(xs).detach(), steps(xs))
    before, after = (finding(augmented.AUGMENTED_CLAIM, one, PATHS) for one in (plain, moved))
    assert before.verdict == after.verdict == "supported"
    for name, estimate in before.evidence.items():
        assert after.evidence[name].value == pytest.approx(estimate.value, abs=1e-9)
    monkeypatch.setattr(augmented_tokens, "Shift", without_means)
    assert verdict(augmented.AUGMENTED_CLAIM, plain, PATHS) == "supported"
    assert verdict(augmented.AUGMENTED_CLAIM, moved, PATHS) == "contradicted"


@pytest.mark.parametrize("claim", ON_LAYERS)
def test_other_claims_on_layers_do_not_see_a_value_bias_either(claim):
    before, after = (finding(claim, looks_at_the_first_too(added), PATHS) for added in (0.0, 20.0))
    assert before.verdict == after.verdict == "supported"
    # Predictions are those of float32, and values of 20 are taken off again.
    assert before.estimate.value == pytest.approx(after.estimate.value, rel=1e-5, abs=1e-9)


# ---- edits that leave the function ---------------------------------------------------------------

EDITS = (
    attention.COPIED_PAIR[0],
    attention.NULL_HEAD,
    stream.UNREAD[0],
    layers.ZERO_POSITIONS,
    layers.LAYER_BEFORE,
    attention.RANDOM_PAIR[0],
    attention.IDLE_COPY,
    stream.UNREAD_COPY[0],
    attention.SPLIT,
)


def edited(model: HookedTransformer, edit: base.Edit) -> HookedTransformer:
    return edit.apply(model, generator(0, f"test/{edit.name}"))


def check_stays(claim: Claim, model: HookedTransformer, task, edit: base.Edit) -> None:
    """The verdict is "supported" before and after; a claim on one layer need not apply to two."""
    assert verdict(claim, model, task) == "supported"
    after = verdict(claim, edited(model, edit), task)
    if "single layer" in edit.may_refuse and "single layer" in claim.aspects:
        assert after in ("supported", "not_applicable")
    else:
        assert after == "supported"


@pytest.mark.parametrize("edit", mostly_slow(EDITS, 4), ids=lambda edit: edit.name)
def test_edits_leave_the_heads_orthogonal(edit):
    check_stays(HEADS, unit_on_unitary(), UNITARY, edit)


@pytest.mark.parametrize("edit", [attention.COPIED_PAIR[0], attention.SPLIT])
def test_heads_that_cancel_would_have_counted_one_by_one(monkeypatch, edit):
    monkeypatch.setattr(
        one_pattern, "groups", lambda rows, scaled: [(h,) for h in range(len(rows))]
    )
    assert verdict(HEADS, edited(unit_on_unitary(), edit), UNITARY) == "contradicted"


@pytest.mark.parametrize("edit", mostly_slow(EDITS, 4), ids=lambda edit: edit.name)
def test_edits_leave_what_the_first_layer_makes(edit):
    check_stays(augmented.AUGMENTED_CLAIM, two_layers(), PATHS, edit)


def test_an_empty_layer_before_is_no_layer(monkeypatch):
    """The map of a unit behind it is that of one layer."""
    behind = edited(unit_on_unitary(), layers.LAYER_BEFORE)
    assert verdict(map.MAP_CLAIM, behind, UNITARY) == "supported"
    monkeypatch.setattr(maps, "layers_in_use", len)
    assert verdict(map.MAP_CLAIM, behind, UNITARY) == "contradicted"


def test_an_empty_layer_makes_no_tokens(monkeypatch):
    behind = edited(two_layers(), layers.LAYER_BEFORE)
    assert verdict(augmented.AUGMENTED_CLAIM, behind, PATHS) == "supported"
    for module in (augmented_tokens, augmented):
        monkeypatch.setattr(module, "first_layer_in_use", lambda table: 0)
    assert verdict(augmented.AUGMENTED_CLAIM, behind, PATHS) != "supported"


@pytest.mark.parametrize("edit", [attention.NULL_HEAD, attention.COPIED_PAIR[0], attention.SPLIT])
def test_idle_heads_do_not_count_among_as_many_as_coordinates(monkeypatch, edit):
    model, claim = edited(unit_on_unitary(), edit), identity.IDENTITY_CLAIM
    assert verdict(claim, model, UNITARY) == "supported"
    monkeypatch.setattr(distinct_heads, "distinct", lambda real: real)
    found = finding(claim, model, UNITARY)
    assert found.verdict == "inconclusive"
    assert found.reason.startswith("The claim is about two different real heads for each")
    assert "largest" in found.evidence  # its cosines are shown all the same


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
@pytest.mark.parametrize("claim", [map.MAP_CLAIM, *ON_UNITS], ids=lambda claim: claim.id)
def test_edits_leave_the_verdicts_on_a_unit(claim, edit):
    check_stays(claim, unit_on_unitary(), UNITARY, edit)


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
@pytest.mark.parametrize("claim", [map.MAP_CLAIM, depth.DEPTH_CLAIM], ids=lambda claim: claim.id)
def test_edits_leave_the_verdicts_on_two_layers(claim, edit):
    check_stays(claim, two_layers(), PATHS, edit)


def positions_that_are_none(finding: Finding) -> None:
    assert finding.verdict == "supported"


def test_positions_of_zeros_are_none_and_others_are_some():
    """Vectors that differ from token to token are no edit: heads read them."""
    model = edited(unit_on_unitary(), layers.ZERO_POSITIONS)
    positions_that_are_none(finding(HEADS, model, UNITARY))
    with torch.no_grad():
        draw = generator(0, "test/positions")
        table = model.pos_embed.W_pos
        table.copy_(torch.randn(table.shape, generator=draw, dtype=torch.float64))
    must_fail(positions_that_are_none, finding(HEADS, model, UNITARY))
