"""What a verdict is worth: every claim on models of known truth, and broken instruments.

Most constructions are the product's own (`studies.limits.constructions`). A few more are built
here, for broken instruments that none of those would notice.
"""

from collections.abc import Callable, Iterator

import pytest
import torch
from helpers import must_fail, one_in
from pandas import DataFrame

from icl_interp import registers
from icl_interp.analyses import bench as bench_module
from icl_interp.analyses import relevance
from icl_interp.analyses.lab import Lab
from icl_interp.errors import InputError
from icl_interp.experiments import calibration
from icl_interp.probes import attention
from icl_interp.provenance import generator
from icl_interp.studies.limits.constructions import layers as constructions
from icl_interp.studies.limits.constructions import mechanisms
from icl_interp.studies.limits.constructions.layers import (
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
)
from icl_interp.studies.limits.dials import CONSTANTS, layer, mostly_constant, of_labels


def check_cells(table: DataFrame):
    """Every draw of every cell gives the expected verdict."""
    wrong = [row for row in table.to_dict("records") if row["as expected"] < row["draws"]]
    assert not wrong


def by_name(name: str) -> Construction:
    return next(c for c in CONSTRUCTIONS if c.name == name)


@pytest.mark.slow
def test_the_labels_are_averaged_uniformly_among_themselves():
    """Total and within y tokens are told apart.

    The verdict is about all keys, the row of the head has both.
    """
    model = by_name("uniform over the labels").draw(0)
    (finding,) = calibration.judge(model, (UNIFORM,))
    assert finding.verdict == NO
    head, counts = finding.details
    assert counts["uniform among y tokens"] == 1 > counts["uniform at 10 trained lengths"]
    assert head["within y"] < 1e-9 < 0.105 < head["at 10 trained lengths"]
    (finding,) = calibration.judge(by_name("scalar layer, alpha > 0").draw(0), (UNIFORM,))
    assert finding.details[0]["within y"] > 0.105


def test_the_smoother_does_not_see_its_own_query(monkeypatch):
    """Nadaraya and Watson average the context.

    A query that is a key too outweighs it far out, and f forgets it.
    """

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


# ---- more models of known truth ------------------------------------------------------------------


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
            "the extreme token stays in the intercept, but beside the slope the context is next to "
            "nothing",
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


@pytest.mark.parametrize("name", one_in(2, MORE))
def test_more_models_of_known_truth(name, table):
    check_cells(table(name))


# ---- broken instruments --------------------------------------------------------------------------


def single_precision(monkeypatch):
    """Float32 instead of float64."""
    run, encode = Lab.run, Lab.tokens

    def run_single(self, sweeps, tick=None):
        self.model.float()
        return [f.double() for f in run(self, sweeps, tick)]

    monkeypatch.setattr(Lab, "run", run_single)
    monkeypatch.setattr(
        Lab, "tokens", lambda self, prompts: encode(self, prompts).to(self.model.unembed.W_U)
    )


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
    places = bench_module.places

    def nearer(xs, dim):
        found = places(xs, dim)
        return torch.where(found.abs() > 100, found / 1e3, found)

    monkeypatch.setattr(bench_module, "places", nearer)


@pytest.mark.slow
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


# ---- onsets --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_saturation_waits_for_its_onset():
    """A certificate can't be contradicted: where the plateau is too far to see, it stays open."""
    verdicts = [
        calibration.judge(mostly_constant(v, generator(0, "test/dial")), (SATURATES,))[0]
        for v in (0.0, 1e-3, 1e-1)
    ]
    assert [f.verdict for f in verdicts] == [OPEN, OPEN, YES]
    assert "Centring removes the vector that x is read in by" in verdicts[0].reason
    assert "The plateau is predicted to begin only at" in verdicts[1].reason
    assert verdicts[1].test.value > 0.05  # f does change out there, which contradicts nothing
