"""ICL1 and ICL2: errors by brute force, decompositions of known size, and verdicts."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from made_up_facts import facts
from measured_claims import answered
from small_models import make

from icl_interp import tasks
from icl_interp.analyses import registry
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import Results
from icl_interp.experiments.calibration import Predicting
from icl_interp.figures.render import rendered
from icl_interp.models.tokens import Interleaved
from icl_interp.provenance import generator
from icl_interp.results import make_array
from icl_interp.studies.limits.claims import icl1
from icl_interp.studies.limits.claims.no_icl2 import worst
from icl_interp.studies.limits.constructions import in_context as known
from icl_interp.studies.limits.figures.in_context import in_context
from icl_interp.studies.limits.measurements import in_context as measured

ICL1, NO_ICL2 = "limits.icl1", "limits.no_icl2"
U = tasks.Uniform(-1, 1)
LINES = tasks.Polynomial(degrees=(1,), inputs=U, coefficients=U, n_points=8)
SKEWED = replace(LINES, coefficients=tasks.Normal(1, 2))


def bench(task=LINES, n_units=6, predictor=None) -> Lab:
    kinds = {"n_units": n_units, "n_contexts": 1}
    if predictor is None:
        return Lab(make("pre"), task, Interleaved(), **kinds)
    return Predicting(predictor, make("pre"), task, Interleaved(), **kinds)


def judge(claim, results, **known):
    return registry.REGISTRY[claim].judge_results(results, facts(task=LINES, **known))


# ---- several contexts ----------------------------------------------------------------------------


def check_same_query(draw, task=LINES):
    """All prompts of a unit ask for one x; contexts differ; labels are those of the functions."""
    lab = bench(task)
    prompts = draw(lab)
    queries = prompts.xs[:, -1, 0].view(6, -1)
    assert torch.equal(queries, queries[:, :1].expand_as(queries))
    assert len(queries[:, 0].unique()) == 6
    assert len(prompts.xs[:16, 0].unique()) >= 8
    values = task.targets(prompts.parameters, prompts.xs)
    torch.testing.assert_close(values, prompts.ys, rtol=0, atol=1e-14)


def test_contexts_of_one_query():
    check_same_query(measured.same_query)
    check_same_query(measured.same_query, SKEWED)
    must_fail(check_same_query, lambda lab: lab.units("limits/same query", n_contexts=8))

    def stale(lab):
        """The queries' labels are those of the queries that were replaced."""
        prompts = measured.same_query(lab)
        return replace(prompts, ys=lab.units("limits/same query", n_contexts=8).ys)

    must_fail(check_same_query, stale)


def check_parts(measure):
    """By loops over functions and contexts, in numpy."""
    lab = bench(SKEWED)
    result = measure(lab)
    prompts = measured.same_query(lab)
    f = lab.run_single([lab.ask(prompts=prompts)])[0][:, 0, 0].double().numpy()
    error = np.abs(f - prompts.ys[:, -1, 0].numpy())
    # N(2, 1) coefficients: the mean of the law is 2 + 2 x.
    guess = 2 + 2 * prompts.xs[:, -1, 0].numpy()
    for unit in range(6):
        rows = np.arange(16 * unit, 16 * unit + 16)
        within = []
        for function in np.unique(prompts.function[rows].numpy()):
            own = error[rows[prompts.function[rows].numpy() == function]]
            within.append(((own - own.mean()) ** 2).sum() / (len(own) - 1))
        expected = [
            error[rows].mean(),
            (error[rows] ** 2).mean(),
            np.mean(within),
            ((guess - prompts.ys[:, -1, 0].numpy())[rows] ** 2).mean(),
        ]
        np.testing.assert_allclose(result.values[:, unit], expected, rtol=1e-5)


def test_parts_of_the_error():
    check_parts(measured.contexts)

    def of_other_contexts(lab):
        return make_array(
            measured.contexts(lab).values[[0, 1, 1, 3]], {"part": measured.PARTS, "unit": range(6)}
        )

    must_fail(check_parts, of_other_contexts)


def drawn(between, within, n_units=20000, mean=1.0):
    """Parts of errors mean + a + b, with a of each unit and b of each context: Gaussian."""
    g = np.random.default_rng(0)
    a = between * g.standard_normal((n_units, 1))
    error = mean + a + within * g.standard_normal((n_units, 8))
    parts = [error.mean(1), (error**2).mean(1), error.var(1, ddof=1), np.full(n_units, 5.0)]
    return np.array(parts)


def test_the_share_is_that_of_the_variance():
    """Of errors made of two independent parts: b^2 / (a^2 + b^2), within 4 standard errors."""

    def check(share):
        for between, within in ((1.0, 1.0), (2.0, 1.0), (0.5, 1.5)):
            found = share(*drawn(between, within).mean(1, keepdims=True)).item()
            truth = within**2 / (between**2 + within**2)
            # of a variance from 20,000 units: about sqrt(2 / n) of itself, of both together twice
            assert abs(found - truth) < 4 * 2 * math.sqrt(2 / 20000)

    check(icl1.share)
    must_fail(check, lambda error, square, within, law: within / square)
    assert icl1.share(*drawn(0.0, 1e-6).mean(1, keepdims=True)).item() < 1e-6  # too small to count


def icl1_results(between, within, law, n_units=128):
    parts = drawn(between, within, n_units)
    parts[3] = law
    axes = {"part": measured.PARTS, "unit": range(n_units)}
    control = np.array([np.full(n_units, v) for v in (1.0, 1.0, 0.0, 1.0)])
    name = "in context/one query, several contexts"
    return {name: make_array(parts, axes), f"twin/{name}": make_array(control, axes)}


@pytest.mark.parametrize(
    ("between", "within", "law", "verdict"),
    [
        (0.5, 0.1, 100.0, "supported"),
        (0.0, 0.5, 20.0, "contradicted"),
        (0.5, 0.4, 20.0, "inconclusive"),
        (0.5, 0.1, 5.0, "inconclusive"),  # alike, but not small: 1.26 / 5
        (0.5, 0.1, 2.0, "contradicted"),
        (0.0, 0.5, 1000.0, "supported"),  # an error that hardly varies beside the truth
    ],
)
def test_icl1(between, within, law, verdict):
    finding = judge(ICL1, icl1_results(between, within, law))
    assert finding.verdict == verdict
    assert answered(finding)


def test_who_has_not_learned_decides_nothing_and_other_tasks_are_not_asked():
    results = icl1_results(0.5, 0.1, 100.0)
    assert judge(ICL1, results, r2=0.5).verdict == "inconclusive"
    other = facts(task=tasks.LinearRegression(n_dims=2, n_points=8))
    for claim in (ICL1, NO_ICL2):
        assert registry.REGISTRY[claim].judge_results({}, other).verdict == "not_applicable"


# ---- several laws --------------------------------------------------------------------------------


def test_the_other_family_has_the_same_moments():
    def check(other):
        for law in (tasks.Uniform(-1, 3), tasks.Normal(2, 1)):
            one = other(law)
            assert type(one) is not type(law)
            assert (one.mean, one.std) == (pytest.approx(law.mean), pytest.approx(law.std))
            assert other(one).std == pytest.approx(law.std)

    check(measured.other_family)
    must_fail(check, lambda law: measured.other_family(law.scaled(2)))


def test_laws_are_drawn_by_the_seed():
    def names(seed):
        lab = Lab(make("pre"), LINES, Interleaved(), n_units=4, n_contexts=1, seed=seed)
        return list(measured.laws(lab))

    assert len(names(0)) == 12
    assert names(0)[:8] == names(1)[:8]
    assert not set(names(0)[8:]) & set(names(1)[8:])


def check_relative(measure):
    """Least squares shrunk by s errs by s^2 of the mean square, under every law, in every unit."""
    predictor = known.shrunk(known.LeastSquares(LINES).predict, 0.2)
    lab = bench(predictor=predictor)
    result = measure(lab)
    ratio = result.sel(predictor="model") / result.sel(predictor="law's mean")
    np.testing.assert_allclose(ratio.values, 0.04, rtol=1e-3)


def test_errors_under_every_law():
    check_relative(measured.by_law)

    def of_one_law(lab):
        found = measured.by_law(lab)
        values = found.values.copy()
        values[1] = values[1, :1]
        return make_array(values, found.indexes)

    must_fail(check_relative, of_one_law)


def law_results(model, control=1.0, n_units=128):
    """Relative errors of the laws, the first of which was trained on."""
    g = np.random.default_rng(1)
    names = ("as trained", "wide", "narrow")
    guess = np.exp(0.3 * g.standard_normal((3, n_units)))
    noise = np.exp(0.1 * g.standard_normal((3, n_units)))
    axes = {"predictor": ("model", "law's mean"), "law": names, "unit": range(n_units)}
    own = make_array(np.stack([np.array(model)[:, None] * guess * noise, guess]), axes)
    twin = make_array(np.stack([control * guess, guess]), axes)
    return {"in context/laws": own, "twin/in context/laws": twin}


@pytest.mark.parametrize(
    ("errors", "verdict"),
    [
        ((0.01, 0.9, 0.01), "supported"),
        ((0.01, 0.05, 0.02), "contradicted"),
        ((0.9, 0.05, 0.02), "contradicted"),  # the law trained on is not asked: R2 is
        ((0.01, 0.05, 0.3), "inconclusive"),
    ],
)
def test_no_icl2(errors, verdict):
    finding = judge(NO_ICL2, law_results(errors))
    assert finding.verdict == verdict
    assert answered(finding)
    assert finding.control.value == pytest.approx(1.0)
    assert len(finding.details) == 3


def test_no_success_nearby_decides_nothing():
    assert judge(NO_ICL2, law_results((0.6, 0.9, 0.9)), r2=0.4).verdict == "inconclusive"


def test_the_worst_law_is_chosen_in_every_draw():
    """Of two laws alike the largest: its interval holds the truth as often as a single one's."""
    one = law_results((0.01, 0.5, 0.5))["in context/laws"]
    both = worst(one, ["wide", "narrow"])
    assert both.value >= max(worst(one, [law]).value for law in ("wide", "narrow"))
    assert both.low < 0.51


# ---- constructions and the figure ----------------------------------------------------------------


def test_the_coin_of_the_context_does_not_see_its_order():
    task = known.lines(generator(0, "test"))
    prompts = task.sample(64, generator(1, "test"), dtype=torch.float64)
    exact = known.LeastSquares(task).predict
    predictor = known.tossed_by_the_context(exact, 0.5)
    added = (predictor(prompts) - exact(prompts))[:, -1, 0]
    again = prompts.reordered(generator(2, "test"))
    shuffled = (predictor(again) - exact(again))[:, -1, 0]
    torch.testing.assert_close(added, shuffled, rtol=0, atol=1e-9)
    assert set(added.round(decimals=6).tolist()) == {0.0, 0.5}
    heads = float((added > 0.25).double().mean())
    assert abs(heads - 0.5) < 4 * 0.5 / 8


def test_the_spread_of_a_line():
    task = known.lines(generator(3, "test"))
    ys = task.sample(20000, generator(4, "test"), dtype=torch.float64).ys[:, -1]
    error = float(ys.square().std() / 20000**0.5)

    def check(spread):
        assert abs(float(ys.square().mean()) - spread**2) < 4 * error

    check(known._spread(task))
    must_fail(check, task.coefficients.std)


def test_the_figure_draws_what_is_there():
    contexts, laws = icl1_results(0.5, 0.1, 100.0), law_results((0.01, 0.9, 0.01))

    assert in_context(Results({}), (), facts()) is None
    drawing = in_context(Results({**contexts, **laws}), (), facts())
    assert len(drawing.panels) == 2
    dots = drawing.panels[1].marks[0]
    expected = [worst(laws["in context/laws"], [n]).value for n in ("as trained", "wide", "narrow")]
    np.testing.assert_allclose(dots.x, expected)
    assert rendered(drawing).data
    assert len(in_context(Results(laws), (), facts()).panels) == 1
