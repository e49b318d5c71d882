"""What a verdict is worth: every claim on models of known truth, dials across each threshold, and broken instruments.

Most constructions are the product's own (`studies.limits.constructions`). A few more are built here, for broken
instruments that none of those would notice.
"""

from collections.abc import Callable, Iterator

import pytest
import torch
from helpers import must_fail
from pandas import DataFrame

from icl_interp import registers, tasks
from icl_interp.analyses import lab as lab_module
from icl_interp.analyses import relevance
from icl_interp.analyses.lab import Lab
from icl_interp.errors import InputError
from icl_interp.experiments import calibration
from icl_interp.experiments.calibration import Case
from icl_interp.models.blank import blank
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes import attention
from icl_interp.provenance import generator
from icl_interp.studies.limits.constructions import layers as constructions
from icl_interp.studies.limits.constructions import mechanisms
from icl_interp.studies.limits.constructions.layers import (
    CAUSE,
    CONSTRUCTIONS,
    ERASED,
    HARDMAX,
    LINEAR,
    NO,
    OPEN,
    SATURATES,
    UNIFORM,
    YES,
    Construction,
    random_pre_norm,
    scalar_dial,
)


def check_cells(table: DataFrame):
    """Every draw of every cell gives the expected verdict."""
    wrong = [row for row in table.to_dict("records") if row["as expected"] < row["draws"]]
    assert not wrong


def by_name(name: str) -> Construction:
    return next(c for c in CONSTRUCTIONS if c.name == name)


def test_the_labels_are_averaged_uniformly_among_themselves():
    """Total and within y tokens are told apart: the verdict is about all keys, the row of the head has both."""
    model = by_name("uniform over the labels").draw(0)
    (finding,) = calibration.judge(model, (UNIFORM,))
    assert finding.verdict == NO
    (head,) = finding.details
    assert head["within y"] < 1e-9 < 0.105 < head["at 10 trained lengths"]
    (finding,) = calibration.judge(by_name("scalar layer, alpha > 0").draw(0), (UNIFORM,))
    assert finding.details[0]["within y"] > 0.105


def test_the_smoother_does_not_see_its_own_query(monkeypatch):
    """Nadaraya and Watson average the context. A query that is a key too outweighs it far out, and f forgets it."""

    def check_remembered():
        lab, _ = calibration.lab_for(by_name("Nadaraya-Watson, moderate beta").draw(0))
        near, out = (float(lab.sweep([x]).std()) for x in (0.5, 1e5))
        assert out > 0.2 * near

    check_remembered()
    monkeypatch.setattr(constructions, "HIDDEN", 0.0)
    must_fail(check_remembered)


def test_draws_differ_and_repeat():
    for construction in (*CONSTRUCTIONS, *mechanisms.CONSTRUCTIONS):
        a, b, again = (construction.draw(seed).model.state_dict() for seed in (0, 1, 0))
        assert any(not torch.equal(a[name], b[name]) for name in a)
        assert all(torch.equal(a[name], again[name]) for name in a)


def test_an_unknown_construction_is_refused():
    with pytest.raises(InputError, match="did you mean 'two post-norm layers'"):
        calibration.calibrate(1, only=["two post-norm layer"])


# ---- more models of known truth -------------------------------------------------------------------------------------


CONSTANTS = tasks.Polynomial(degrees=(0,), inputs=tasks.Uniform(-1, 1), coefficients=tasks.Uniform(-4, 4), n_points=20)


def layer(alphas: list[float], written: list[float], slope: float = 1.0, **change) -> HookedTransformer:
    """f = slope x + sum_h written_h m_h(x), m_h the mixture of tokens under scores alpha_h x x_j: nothing is random."""
    n_heads = len(alphas)
    model = blank(n_heads + 2, n_heads=n_heads, d_head=1, **change)
    with torch.no_grad():
        attn = model.blocks[0].attn
        model.embed.W_E[0, 0] = attn.W_K[:, 0, 0] = attn.W_V[:, 0, 0] = 1
        attn.W_Q[:, 0, 0] = torch.tensor(alphas)
        attn.W_O[range(n_heads), 0, range(1, n_heads + 1)] = torch.tensor(written).double()
        model.unembed.W_U[:-1, 0] = 1
        model.unembed.W_U[0, 0] = slope
    return model


def of_labels(alphas: list[float], written: list[float], slope: float = 0.0) -> Case:
    """f = slope x + sum_h written_h m_h(x), m_h the mixture of labels under scores alpha_h x x_j; the query's own is 0.

    Functions are constants, so the mean of 39 labels and this 0 is right up to 3 %.
    """
    n_heads = len(alphas)
    model = blank(n_heads + 3, n_heads=n_heads, d_head=1, d_in=2)
    with torch.no_grad():
        attn = model.blocks[0].attn
        model.embed.W_E[0, 0] = model.embed.W_E[1, 1] = attn.W_K[:, 0, 0] = attn.W_V[:, 1, 0] = 1
        attn.W_Q[:, 0, 0] = torch.tensor(alphas)
        attn.W_O[range(n_heads), 0, range(2, n_heads + 2)] = torch.tensor(written).double()
        model.unembed.W_U[2:-1, 0] = 1
        model.unembed.W_U[0, 0] = slope
    return Case(model, CONSTANTS.with_points(40))


MORE = {
    c.name: c
    for c in (
        Construction(
            "a line beside the labels",
            "the mean of the labels stays in the intercept, one part in 1e8 of f at 1e9",
            lambda g: of_labels([0.0], [1.0], slope=0.5),
            {ERASED: NO, LINEAR: YES},
        ),
        Construction(
            "a steep line",
            "the extreme token stays in the intercept, but beside the slope the context is next to nothing",
            lambda g: layer([-4.0], [1.0], slope=1e5),
            {ERASED: OPEN, LINEAR: OPEN},
        ),
        Construction(
            "a hardmax that nobody reads",
            "no head matters, so heads decide nothing",
            lambda g: layer([-4.0], [0.0]),
            {HARDMAX: OPEN, UNIFORM: OPEN},
        ),
        Construction(
            "an average that nobody reads beside a hardmax",
            "the head that matters is a hardmax",
            lambda g: layer([-4.0, 0.0], [1.0, 0.0]),
            {HARDMAX: YES, UNIFORM: NO},
        ),
        Construction(
            "linear scores with a self term",
            "cubic growth, the same in every context",
            lambda g: layer([1.0], [1.0], score_fn="linear", score_norm="visible"),
            {LINEAR: NO},
        ),
        Construction(
            "a hardmax onto a token shown many times",
            "with constant functions every y is the same: one target",
            lambda g: layer([-0.5], [1.0]),
            {HARDMAX: YES},
        ),
    )
}


@pytest.fixture
def table(monkeypatch) -> Iterator[Callable[..., DataFrame]]:
    """The calibration table of constructions by name, also of those built here."""

    def tabulate(*names: str, draws: int = 1) -> DataFrame:
        if any("shown many times" in name for name in names):
            monkeypatch.setattr(calibration, "TASK", CONSTANTS)
        return calibration.calibrate(draws, only=names)

    with registers.as_before():
        calibration.CONSTRUCTIONS.update(MORE)
        yield tabulate


@pytest.mark.parametrize("name", MORE)
def test_more_models_of_known_truth(name, table):
    check_cells(table(name))


# ---- broken instruments ---------------------------------------------------------------------------------------------


def single_precision(monkeypatch):
    """Float32 instead of float64."""
    run, encode = Lab.run, Lab.tokens

    def run_single(self, sweeps, tick=None):
        self.model.float()
        return [f.double() for f in run(self, sweeps, tick)]

    monkeypatch.setattr(Lab, "run", run_single)
    monkeypatch.setattr(Lab, "tokens", lambda self, prompts: encode(self, prompts).to(self.model.unembed.W_U))


def ties_unmerged(monkeypatch):
    """Delta is one minus the largest weight."""
    monkeypatch.setattr(attention, "_distance", lambda pattern, most, visible: 1 - most)


def context_frozen_only(monkeypatch):
    """Norms are frozen at the context positions where the query is meant."""
    ask = Lab.ask

    def misplaced(self, xs=None, *, context=(), query=(), **rest):
        moved = [self.frozen] if query and self.model.norms else []
        return ask(self, xs, context=[*context, *moved], query=() if moved else query, **rest)

    monkeypatch.setattr(Lab, "ask", misplaced)


def every_head_counts(monkeypatch):
    """No relevance filter."""
    monkeypatch.setattr(relevance.Effect, "role", "yes")


def near_is_far(monkeypatch):
    """Magnitudes a thousand times smaller than they are said to be."""
    places = lab_module.places

    def nearer(xs, dim):
        found = places(xs, dim)
        return torch.where(found.abs() > 100, found / 1e3, found)

    monkeypatch.setattr(lab_module, "places", nearer)


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        (single_precision, "a line beside the labels"),
        (ties_unmerged, "a hardmax onto a token shown many times"),
        (context_frozen_only, "one post-norm layer, alpha > 0"),
        (every_head_counts, "a hardmax that nobody reads"),
        (every_head_counts, "an average that nobody reads beside a hardmax"),
        (near_is_far, "scalar layer, alpha < 0"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_broken_instrument_breaks_a_cell(broken, name, table, monkeypatch):
    broken(monkeypatch)
    must_fail(check_cells, table(name))


# ---- dials ----------------------------------------------------------------------------------------------------------


def mostly_constant(share: float, seed: int) -> HookedTransformer:
    """A pre-norm model whose read-in of x is constant over the width but for a share, all that centring keeps."""
    model = random_pre_norm(generator(seed, "test/dial"), d_in=2)
    with torch.no_grad():
        read_in = model.embed.W_E[0].clone()
        model.embed.W_E[0] = 1 + share * (read_in - read_in.mean())
    return model.eval()


def cubic_beside_the_mean(share: float) -> HookedTransformer:
    """f = x + share times a cubic + the mean of the tokens, which a second head takes: its scores are 1."""
    model = layer([1.0, 0.0], [share, 1.0], score_fn="linear", score_norm="visible")
    with torch.no_grad():
        model.blocks[0].attn.b_Q[1] = model.blocks[0].attn.b_K[1] = 1
        model.blocks[0].attn.W_K[1] = 0
    return model


# Claim, model by value, values from contradicted to supported (the middle ones of the first line: some inconclusive).
DIALS: dict[str, tuple[str, Callable[[float, int], HookedTransformer | Case], tuple[float, ...]]] = {
    "gap of the extreme token": (
        HARDMAX,
        lambda v, seed: scalar_dial(-v, seed),
        (0.0, 1e-5, 0.03, 0.12, 0.25, 0.5, 1.0, 3.0),
    ),
    "range of the scores": (
        UNIFORM,
        lambda v, seed: scalar_dial(v, seed),
        (6.0, 3.0, 2.0, 1.8, 1.7, 1.6, 1.5, 1.0, 0.0),
    ),
    "share of x in the stream that centring keeps": (
        CAUSE,
        mostly_constant,
        (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0),
    ),
    "what is left of the labels": (
        ERASED,
        lambda v, seed: of_labels([0.1, 0.0], [1.0 - v, v]),
        (1.0, 0.5, 0.3, 0.1, 0.03, 0.01, 0.0),
    ),
    "share of a cubic": (
        LINEAR,
        lambda v, seed: cubic_beside_the_mean(v),
        (1.0, 1e-10, 1e-11, 1e-12, 1e-13, 1e-15, 0.0),
    ),
}
ORDER = (NO, OPEN, YES)


def check_dial(verdicts: list[str]):
    """From contradicted through inconclusive to supported, and never back."""
    places = [ORDER.index(verdict) for verdict in verdicts]
    assert places == sorted(places)
    assert set(places) == {0, 1, 2}


def turn(dial: str, values: tuple[float, ...], seed: int) -> list[str]:
    claim, build, _ = DIALS[dial]
    return [calibration.judge(build(v, seed), (claim,), seed=seed)[0].verdict for v in values]


@pytest.mark.parametrize("dial", DIALS)
def test_verdicts_follow_a_dial(dial):
    """The two ends and the middle; the slow test goes through all values."""
    values = DIALS[dial][2]
    middle = {"range of the scores": 1.6, "gap of the extreme token": 0.12, "share of a cubic": 1e-12}
    check_dial(turn(dial, (values[0], middle.get(dial, values[3]), values[-1]), seed=0))


@pytest.mark.slow
@pytest.mark.parametrize("dial", DIALS)
def test_power_curves_rise(dial):
    """On every draw alone, and so the share of draws in which a claim is supported."""
    for seed in range(2):
        check_dial(turn(dial, DIALS[dial][2], seed))


def test_a_dial_that_jumps_back_is_noticed():
    check_dial([NO, OPEN, YES])
    must_fail(check_dial, [NO, YES, OPEN])
    must_fail(check_dial, [NO, YES])


def test_saturation_waits_for_its_onset():
    """A certificate can't be contradicted: where the plateau is too far out to be seen, the verdict stays open."""
    verdicts = [calibration.judge(mostly_constant(v, 0), (SATURATES,))[0] for v in (0.0, 1e-3, 1e-1)]
    assert [f.verdict for f in verdicts] == [OPEN, OPEN, YES]
    assert "centring removes the read-in" in verdicts[0].reason
    assert "predicted onset" in verdicts[1].reason
    assert verdicts[1].test.value > 0.05  # f does change out there, which contradicts nothing
