"""Far claims on models that behave at known places and directions only, and on late plateaus.

Each model is small and plainly written. Each is judged a second time with the mend taken away: then
the old, wrong verdict appears.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from made_up_facts import facts
from small_models import TASK as SHORT
from small_models import make, small_lab
from stored_curves import drawn, ends

from icl_interp.analyses.bench import Bench
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.places import DRAWN, MIDDLES, STRATA
from icl_interp.experiments.calibration import TASK, Case
from icl_interp.models import tokens
from icl_interp.models.tokens import Interleaved
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes import sweep
from icl_interp.prompts import as_numbers
from icl_interp.provenance import generator
from icl_interp.studies.limits.claims.far_words import asked
from icl_interp.studies.limits.claims.layernorm import SATURATION, largest_change, last_change
from icl_interp.studies.limits.constructions.layers import random_pre_norm, scalar_layer
from icl_interp.studies.limits.constructions.mechanisms import Beside, aligned, idle_norm
from icl_interp.studies.limits.dials import of_labels
from icl_interp.studies.limits.measurements import between, certificates
from icl_interp.tasks.distributions import Normal
from icl_interp.tasks.regression import LinearRegression

SATURATES, CAUSE, ERASED, LINEAR = (
    f"limits.{name}"
    for name in (
        "layernorm_saturation",
        "layernorm_causes_saturation",
        "context_erased",
        "linear_asymptote",
    )
)


pytestmark = pytest.mark.slow  # each test analyses or runs models anew: half a minute in all


def on_the_edges(bench: Bench) -> np.ndarray:
    """The mutant: each place where its stratum begins, a half decade of the known grid."""
    inner = np.concatenate([STRATA[:-1][::-1], STRATA[:-1]])
    return bench.x_unit * np.tile(np.sign(DRAWN) * inner, (bench.n_units, 1))


@pytest.fixture
def known_places(monkeypatch):
    """Queries that are not drawn."""
    monkeypatch.setattr(Bench, "drawn_sizes", property(on_the_edges))


KNOWN = "change, 1e5 .. 1e6, known places"


def looks_both_ways(model: HookedTransformer) -> HookedTransformer:
    """The same weights without a causal mask, as `Beside` needs it: of one layer f is the same."""
    other = HookedTransformer(replace(model.cfg, attention_dir="bidirectional")).double()
    other.load_state_dict(model.state_dict())
    return other


# ---- swings between known places -----------------------------------------------------------------


def swinging(per_decade: float, only_above: bool = False) -> HookedTransformer:
    """An early plateau, and beside it 3 sin^2(pi k log10 |x|) outside [-2, 2].

    This swing is 0 k times a decade.
    """
    model = aligned(generator(0, "test/swings"), 0.3, 1.2, attention_dir="bidirectional")

    def path(tokens: torch.Tensor) -> torch.Tensor:
        x = tokens[..., 0]
        swings = 3 * torch.sin(math.pi * per_decade * x.abs().clamp(min=1e-9).log10()).square()
        asked_for = x > 2 if only_above else x.abs() > 2
        return torch.where(asked_for, swings, torch.zeros_like(x))

    return Beside.of(model, path)


@pytest.mark.parametrize(
    ("per_decade", "only_above"),
    [
        (4, False),
        (4, True),
        pytest.param(1, False, marks=pytest.mark.slow),
        pytest.param(12, False, marks=pytest.mark.slow),
    ],
)
def test_what_swings_between_known_places_does_not_level_off(judged, per_decade, only_above):
    found = judged(swinging(per_decade, only_above), SATURATES, CAUSE)
    assert found[SATURATES].verdict == "contradicted"
    assert (
        found[CAUSE].verdict == "inconclusive"
    )  # with frozen norms it grows, but there is no plateau to cause
    assert found[CAUSE].decided_by.quantity == "change"
    assert "Change of the unchanged model's prediction" in found[CAUSE].reason
    rows = found[SATURATES].details
    known, between = (
        next(row[name] for row in rows if name in row) for name in (KNOWN, "drawn places")
    )
    assert known < 1e-3 < 0.1 < between


@pytest.mark.usefixtures("known_places")
@pytest.mark.parametrize("per_decade", [4, pytest.param(2, marks=pytest.mark.slow)])
def test_at_known_places_alone_it_would_have_been_level(judged, per_decade):
    found = judged(swinging(per_decade), SATURATES, CAUSE)
    assert [finding.verdict for finding in found.values()] == ["supported"] * 2


def forgetful(share: float) -> Case:
    """The mean of the labels times 5 / |x| beyond 5, and a share of it that comes back.

    It comes back between known places.
    """
    case = of_labels([0.1], [0.0])  # no head writes anything: the path is all there is

    def path(tokens: torch.Tensor) -> torch.Tensor:
        x, mean = tokens[..., 0].abs().clamp(min=1e-9), tokens[:, :-1, 1].mean(1, keepdim=True)
        back = share * torch.sin(4 * math.pi * x.log10()).square()
        return mean * ((5 / x).clamp(max=1.0) + torch.where(x > 50, back, torch.zeros_like(x)))

    return replace(case, model=Beside.of(looks_both_ways(case.model), path))


def erased(measured, case: Case):
    return measured(case.model, ERASED, task=case.task, n_contexts=2).judge(ERASED, r2=0.99)


def test_a_context_that_shows_between_known_places_is_not_erased(measured):
    assert erased(measured, forgetful(0.0)).verdict == "supported"
    assert erased(measured, forgetful(1.0)).verdict == "contradicted"


@pytest.mark.usefixtures("known_places")
def test_at_known_places_alone_it_would_have_been_erased(measured):
    assert erased(measured, forgetful(1.0)).verdict == "supported"


def winding(share: float) -> HookedTransformer:
    """A line, and beside it a share of x that comes and goes: 0 four times a decade."""
    model = looks_both_ways(scalar_layer(generator(0, "test/line"), 4.0))

    def path(tokens: torch.Tensor) -> torch.Tensor:
        x = tokens[..., 0]
        swings = torch.sin(4 * math.pi * x.abs().clamp(min=1e-9).log10()).square()
        return torch.where(x.abs() > 2, share * x * swings, torch.zeros_like(x))

    return Beside.of(model, path)


def test_a_line_that_winds_between_known_places_is_none(judged, monkeypatch):
    assert judged(winding(0.0), LINEAR)[LINEAR].verdict == "supported"
    assert judged(winding(1.0), LINEAR)[LINEAR].verdict == "contradicted"
    monkeypatch.setattr(Bench, "drawn_sizes", property(on_the_edges))
    assert judged(winding(1.0), LINEAR)[LINEAR].verdict == "supported"


# ---- directions ----------------------------------------------------------------------------------

VECTORS = LinearRegression(n_dims=4, inputs=Normal(1), weights=Normal(1), n_points=12)


def growing_along(direction: list[float]) -> HookedTransformer:
    """A pre-norm model that levels off, and beside it the part of x along a direction above 50."""
    model = random_pre_norm(generator(0, "test/rays"), d_in=4)
    along = torch.tensor(direction).double()

    def path(tokens: torch.Tensor) -> torch.Tensor:
        part = tokens @ along.to(tokens)
        return torch.where(part > 50, part, torch.zeros_like(part))

    return Beside.of(looks_both_ways(model), path)


def along(judged, direction: list[float], *claims: str) -> list[str]:
    found = judged(growing_along(direction), *claims, task=VECTORS)
    assert (
        "along the first coordinate and along inputs drawn from their distribution"
        in found[SATURATES].scope
    )
    return [finding.verdict for finding in found.values()]


def first_axis(bench: Bench) -> torch.Tensor:
    """The mutant: all queries go along the first coordinate."""
    return torch.eye(4, dtype=torch.float64)[:1].expand(bench.n_units, -1)


OTHERS = [0.0, 1.0, 1.0, 1.0]


def test_what_grows_in_other_coordinates_does_not_level_off(judged, monkeypatch):
    assert along(judged, OTHERS, SATURATES) == ["contradicted"]
    monkeypatch.setattr(Bench, "rays", property(first_axis))
    assert along(judged, OTHERS, SATURATES) == ["supported"]


@pytest.mark.parametrize(
    "direction", [[0.0, 0.0, 0.0, 1.0], [0.0, 0.6, -0.8, 0.1], [0.5, 0.5, -0.5, -0.5]]
)
def test_what_grows_in_one_direction_does_not_level_off(judged, direction):
    """Of one sign: half of the rays go there."""
    assert along(judged, direction, SATURATES, CAUSE) == ["contradicted"] * 2


def test_what_levels_off_in_all_directions_asked_does(judged):
    assert along(judged, [0.0] * 4, SATURATES, CAUSE) == ["supported"] * 2


# ---- late plateaus -------------------------------------------------------------------------------


def late(eps: float, n_layers: int = 1) -> HookedTransformer:
    """Post-norm layers whose eps outweighs the variance until |x| is about its root."""
    model = scalar_layer(
        generator(0, "test/late"), 4.0, n_layers=n_layers, norm="LN", position="post"
    )
    other = HookedTransformer(replace(model.cfg, eps=eps)).double()
    other.load_state_dict(model.state_dict())
    return other


def far_values(model: HookedTransformer, *xs: float) -> list[float]:
    """f of one prompt whose query is moved."""
    tokens = torch.linspace(-1, 1, 11, dtype=torch.float64).repeat(len(xs), 1)[..., None]
    tokens[:, -1, 0] = torch.tensor(xs, dtype=torch.float64)
    with torch.no_grad():
        return model(tokens)[:, -1, 0].tolist()


LATE = [late(1e16), late(1e10), late(1e16, n_layers=2), idle_norm(generator(0, "test/idle"))]


@pytest.mark.parametrize("model", LATE)
def test_a_plateau_beyond_the_grid_is_open(judged, model, monkeypatch):
    """It grows on the grid, levels off beyond, and neither claim is decided."""
    here, there, further, last = far_values(model, 1e5, 1e6, 1e14, 1e15)
    assert further == pytest.approx(last, rel=1e-3)
    found = judged(model, SATURATES, CAUSE)
    assert [finding.verdict for finding in found.values()] == ["inconclusive"] * 2
    assert all("predicted to begin only at" in finding.reason for finding in found.values())
    if (
        model.cfg.n_layers > 1 or abs(there / here - 10) > 0.01
    ):  # later layers read the context, or it bends already
        return

    monkeypatch.setattr(certificates, "norms_begin", lambda lab, near, out: certificates.NO_ONSET)
    found = judged(model, SATURATES, CAUSE)
    assert [finding.verdict for finding in found.values()] == ["contradicted"] * 2


def test_the_onset_of_a_post_norm_layer_has_its_closed_form():
    """The stream is x (W + zeta) far out: 20 roots of eps over its standard deviation.

    This is where eps outweighs the rest.
    """
    model = late(1e12)
    written = (model.embed.W_E[0] + model.blocks[0].attn.W_O[0, 0]).detach()
    expected = 20 * 1e6 / float(written.std(correction=0))
    lab = bench_of(model)
    row = certificates.certificate(lab).iloc[0]
    assert row["onset"] == pytest.approx(expected, rel=1e-6)
    assert row["onset low"] <= row["onset"] <= row["onset high"]
    must_fail(lambda m: _check(m, expected), late(4e12))


def _check(model: HookedTransformer, expected: float) -> None:
    assert certificates.certificate(bench_of(model)).iloc[0]["onset"] == pytest.approx(
        expected, rel=1e-6
    )


def bench_of(model: HookedTransformer) -> Lab:
    return Lab(model, TASK, tokens.infer_for(TASK, model.cfg.d_in), n_units=8, n_contexts=1)


def test_a_norm_whose_input_stands_still_has_no_onset():
    sizes, one = 10.0 ** np.arange(0, 12.01, 2), np.ones(1)
    assert np.isnan(certificates._begins(sizes, np.ones((1, 7)), 100 * one))
    assert certificates._begins(sizes, np.ones((1, 7)), 0.5 * one) == 1
    assert certificates._begins(sizes, 1e-20 * sizes[None] ** 2, 1e8 * one) == np.inf
    assert certificates._begins(sizes, sizes[None] ** 2, 1e10 * one) == pytest.approx(1e5)


# ---- every context -------------------------------------------------------------------------------


def of_one_in(n: int, change: float) -> tuple[str, str]:
    """The verdict where one of n contexts changes by so much over the last decade, and no other.

    And the verdict on the average alone.
    """
    last = ends(n=n // 8, n_contexts=8)
    last.values[0, 2, 0, 0] = change
    still = drawn(n // 8)
    found = {
        "spread": 1.0,
        "change": last_change(last, 1.0, still),
        "largest": largest_change(last, 1.0, still),
        "beyond": 0.0,
        "scale": 1.0,
        "fading": 1.0,
    }
    on_average = {**found, "largest": 0.0}
    every, average = (SATURATION.decide(SATURATION.named(one)) for one in (found, on_average))
    return every.verdict, average.verdict


def test_a_single_context_that_moves_is_not_averaged_away():
    """Its change over the root of 1,024 is below the threshold."""
    assert of_one_in(1024, 0.04) == ("supported", "supported")
    assert of_one_in(1024, 0.12) == ("inconclusive", "supported")


def test_a_scope_says_how_rare_a_context_may_be():
    known = facts()
    assert ("contexts rarer than one in 341 may behave otherwise without being seen") in asked(
        known, "|x| = 1e4", 1024
    )
    assert "along inputs drawn" not in asked(known, "|x| = 1e4", 1024)
    assert "along inputs drawn" in asked(facts(task=VECTORS), "|x| = 1e4", 1024)


# ---- what is asked -------------------------------------------------------------------------------


def check_places(bench: Bench):
    """One place of each stratum, in both directions, independent; two units share each."""
    sizes = bench.drawn_sizes / bench.x_unit
    low, high = (np.concatenate([edge[::-1], edge]) for edge in (STRATA[:-1], STRATA[1:]))
    assert ((np.abs(sizes) >= low) & (np.abs(sizes) <= high)).all()
    assert (np.sign(sizes) == np.sign(DRAWN)).all()
    assert (sizes[::2] == sizes[1::2]).all()
    share = (np.log(np.abs(sizes[::2])) - np.log(low)) / np.log(high / low)
    assert abs(share.mean() - 0.5) < 0.05
    assert abs(share.std() - 1 / math.sqrt(12)) < 0.05
    together = np.corrcoef(share.T)[~np.eye(len(DRAWN), dtype=bool)]
    assert np.abs(together).mean() < 0.2


def test_places_are_drawn(monkeypatch):
    bench, other = (
        Lab(make("pre"), SHORT, Interleaved(), n_units=64, n_contexts=1, seed=seed)
        for seed in (0, 1)
    )
    check_places(bench)
    assert not np.allclose(other.drawn_sizes, bench.drawn_sizes)
    monkeypatch.setattr(Bench, "drawn_sizes", property(on_the_edges))
    must_fail(check_places, bench)


def check_drawn(found, lab):
    """Each statistic against prompts that are run one by one, each at its unit's place."""
    for k in (0, 5, 20, 31):
        f, end, error = [], [], []
        for row, prompt_x in enumerate(lab.prompts.xs):
            x = float(lab.drawn_sizes[row // lab.unit_size, k])
            for at, into in ((x, f), (math.copysign(1e6 * lab.x_unit, x), end)):
                xs = prompt_x.clone()
                xs[-1] = at
                prompt = replace(lab.prompts[row : row + 1], xs=xs[None])
                with torch.no_grad():
                    into.append(float(lab.model(lab.tokens(prompt))[0, -1, 0]))
                if into is f:
                    truth = as_numbers(lab.task.targets(prompt.parameters, prompt.xs))[0, -1]
                    error.append(float((f[-1] - truth) ** 2))
        f, end, error = (np.reshape(values, (lab.n_units, -1)) for values in (f, end, error))
        one = found.isel(x=k)
        np.testing.assert_allclose(one.sel(statistic="gap"), np.square(f - end).mean(1), rtol=1e-6)
        np.testing.assert_allclose(
            one.sel(statistic="largest gap"), np.abs(f - end).max(1), rtol=1e-6
        )
        np.testing.assert_allclose(one.sel(statistic="squared error"), error.mean(1), rtol=1e-6)
        pairs = f.reshape(-1, 2, f.shape[1])
        spread = pairs.var(2).mean(1) + np.square(pairs.mean(2)[:, 0] - pairs.mean(2)[:, 1]) / 2
        np.testing.assert_allclose(one.sel(statistic="spread"), np.repeat(spread, 2), rtol=1e-5)


def test_what_is_measured_at_drawn_places_is_that_of_whole_prompts():
    lab = small_lab()
    found = between.drawn(lab)
    check_drawn(found, lab)
    must_fail(check_drawn, found.copy(data=found.values[..., ::-1]), lab)
    must_fail(check_drawn, found.copy(data=np.roll(found.values, 2, 1)), lab)
    step = found.sel(statistic="step").values
    assert np.isnan(step[:, [15, 16]]).all()
    assert np.isfinite(np.delete(step, [15, 16], 1)).all()


def test_places_that_sweeps_share_are_read_once(monkeypatch):
    """Two sweeps with one tensor of places get what each gets alone.

    They read as many columns as one.
    """
    lab, widths = small_lab(), []
    plain = sweep._Pass.__init__

    def counted(one, *arguments):
        plain(one, *arguments)
        widths.append(one.n_columns)

    monkeypatch.setattr(sweep._Pass, "__init__", counted)
    queries = lab.drawn_queries
    alone = lab.run([lab.ask_at(queries)])[0]
    a, b, c = lab.run(
        [lab.ask_at(queries), lab.ask_at(queries), lab.ask_at(queries[:, :3].clone())]
    )
    torch.testing.assert_close(a, alone, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(b, alone, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(c, alone[:, :3], rtol=1e-12, atol=1e-12)
    assert widths == [34, 34 + 3]


def test_the_strata_end_where_nothing_further_is_asked():
    assert STRATA[0] == 1
    assert STRATA[-1] == pytest.approx(1e10)
    assert len(MIDDLES) == 16
    assert list(np.abs(DRAWN[between.stratum(1e5, 1e6, 1)])) == pytest.approx([10**5.25, 10**5.75])
