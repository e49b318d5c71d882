"""What the tables of `limits` say about made-up results; predicting 0 gets no agreement."""

import numpy as np
import pytest
from error_tables import BETTER, EVEN, SIGMAS, WORSE, ZERO, error_rows, ratio_rows, sentences, words
from helpers import must_fail
from scipy.stats import rankdata

from icl_interp.experiments import errors
from icl_interp.experiments.statements import AGREES, DIFFERS, LEFT_OUT, OPEN
from icl_interp.results import make_array, make_table
from icl_interp.studies.limits.experiments import printed, table1, table2, table3

# ---- Table 1 -------------------------------------------------------------------------------------


def two_arms(ratio, n=5, spread=0.03, off=1.0):
    """Errors of n runs with LayerNorm and n without, whose ratio at each sigma is given.

    `off` is one arm's quality.
    """
    values = {("zero", s): v for s, v in ZERO.items()}
    for i in range(n):
        for s in SIGMAS:
            noise = 10 ** (spread * (i - (n - 1) / 2) / n)
            values[table1.SEEDS[table1.WITH][i].name, s] = off * 1e-3 * s**3 * noise
            values[table1.SEEDS[table1.WITHOUT][i].name, s] = 1e-3 * s**3 * noise * ratio(s)
    return {"errors": error_rows(values)}


@pytest.mark.slow
def test_table1_is_decided_by_runs_at_every_sigma():
    def check(results, word):
        words(table1.states_table1(results), word)

    better, worse = (lambda s: 0.7), (lambda s: 1.4)
    check(two_arms(better), AGREES)
    check(two_arms(worse), DIFFERS)
    check(two_arms(lambda s: 1.0), OPEN)
    check(two_arms(lambda s: 0.97), OPEN)  # too small to count
    check(two_arms(lambda s: 0.7 if s < 9 else 1.0), OPEN)  # not at every sigma
    check(two_arms(better, spread=0.5), OPEN)  # runs differ more than the arms
    check(two_arms(better, n=3), OPEN)  # exact p at least 0.10
    check(two_arms(better, off=3.0), LEFT_OUT)  # arms of other quality: 3 / 0.7 apart
    must_fail(check, two_arms(better, n=3), AGREES)
    must_fail(check, two_arms(better, spread=0.5), AGREES)
    words(table1.states_table1({}))


def test_table1_leaves_out_runs_that_have_not_learned():
    results = two_arms(lambda s: 0.7)
    rows = results["errors"].to_dict("records")
    poor = [
        {**row, "error": 100 * row["error"]} if row["predictor"].startswith("affine") else row
        for row in rows
    ]
    poor = {"errors": make_table({name: [row[name] for row in poor] for name in poor[0]})}
    words(table1.states_table1(poor), LEFT_OUT)


def test_table1_is_compared_number_by_number():
    paper = printed.errors("limits.table1", model="with_layernorm")
    results = {"errors": error_rows({("with LN", s): 2 * v for s, v in paper.items()})}
    table = table1.compare_table1(results)
    assert len(table) == 10
    np.testing.assert_allclose(table["ours / paper"], 2)
    ratios = [row for row in table1.compare_table1(two_arms(lambda s: 0.7)).to_dict("records")]
    assert {row["quantity"] for row in ratios} == {"without / with"}  # no means are stored
    assert ratios[0]["ours"] == pytest.approx(0.7)
    assert ratios[0]["low"] < 0.7 < ratios[0]["high"]


# ---- Table 2 -------------------------------------------------------------------------------------


def test_table2_asks_for_most_pairs_in_the_papers_order():
    """M135AL is better than M1 at sigmas 2 to 10 in the paper (0.07 against 0.55 at 3)."""
    pair = {"degree": 1, "a": "affine", "b": table2.MIXED_ATTENTION}

    def check(found, word, text):
        (line,) = sentences(table2.states_table2({"ratios": ratio_rows(found, **pair)}))
        assert line.startswith(word)
        assert text in line

    nine = range(2, 11)
    check(dict.fromkeys(nine, WORSE), AGREES, "9 of 9 pairs")
    check(dict.fromkeys(nine, BETTER), DIFFERS, "0 of 9 pairs")
    check(dict.fromkeys(nine, EVEN), OPEN, "in 9, which count both ways")
    mixed = {s: WORSE if s < 8 else BETTER for s in nine}  # two of three
    check(mixed, OPEN, "6 of 9 pairs")
    must_fail(check, mixed, AGREES, "6 of 9 pairs")
    words(table2.states_table2({}))


def by_degree(predict):
    """Errors of Table 2's models on each degree, from published ones: (degree, model, sigma)."""
    found, n = {}, 40
    each = np.random.default_rng(0).gamma(4.0, 0.25, size=n)  # functions differ in difficulty
    each /= each.mean()
    for degree in range(1, 6):
        zero = printed.errors("limits.table2", degree=str(degree), model="zero")
        names = table2.table2_models(degree)
        rows = [[predict(degree, name, s, zero[s]) * each for s in SIGMAS] for name in names]
        rows += [[1e-12 * each for s in SIGMAS], [zero[s] * each for s in SIGMAS]]
        axes = {
            "predictor": (*names, "least squares", "zero"),
            "sigma": SIGMAS,
            "function": tuple(range(n)),
        }
        found[degree] = make_array(np.array(rows), axes)
    return found


def paper(degree, name, sigma, zero):
    return table2.table2_rates(degree)[name][sigma] * zero


def nothing(degree, name, sigma, zero):
    """Predicts 0."""
    return zero


@pytest.mark.slow
def test_predicting_zero_ranks_nothing():
    """Raw errors rank as the paper's for whoever predicts 0.

    All the more so do the errors of all sigmas together.
    """

    def by_rates(found):
        rows = table2.ranks(found).to_dict("records")
        assert {row["cells"] for row in rows} == {15}
        return [row["rank correlation"] for row in rows]

    def by_errors_over_all_sigmas(found):
        pairs = [
            (paper(d, name, s, printed.errors("limits.table2", degree=str(d), model="zero")[s]),
             matrix.sel(predictor=name, sigma=s).values.mean())
            for d, matrix in found.items()
            for name in table2.table2_models(d)
            for s in SIGMAS[1:]
        ]  # fmt: skip
        return [
            float(np.corrcoef(*(rankdata(column) for column in zip(*pairs, strict=True)))[0, 1])
        ]

    def check(measure):
        assert max(measure(by_degree(nothing))) < 0.1
        assert min(measure(by_degree(paper))) > 0.99

    check(by_rates)
    must_fail(check, by_errors_over_all_sigmas)
    assert (
        by_errors_over_all_sigmas(by_degree(nothing))[0] > 0.95
    )  # what the mutant takes for agreement
    assert [row["sigma"] for row in table2.ranks(by_degree(paper)).to_dict("records")] == list(
        SIGMAS[1:]
    )


@pytest.mark.slow
def test_ranks_are_said_by_sigma():
    def check(predict, word):
        (statement,) = table2._states_ranks({"ranks": table2.ranks(by_degree(predict))})
        assert statement.word == word

    check(paper, AGREES)
    check(nothing, DIFFERS)
    check(lambda d, name, s, zero: paper(d, name, s, zero) if s > 5 else zero, OPEN)
    must_fail(check, nothing, AGREES)


def test_rank_correlations_are_spearmans_with_an_interval_over_functions():
    random = np.random.default_rng(1)
    cells = [f"cell {i}" for i in range(6)]
    ours = {c: {2.0: random.gamma(1.0, size=30) * (i + 1)} for i, c in enumerate(cells)}
    zeros = {c: {2.0: random.gamma(1.0, size=30) * 5} for c in cells}
    published = {
        c: {1.0: 0.0, 2.0: float(v)} for c, v in zip(cells, random.permutation(6), strict=True)
    }
    (row,) = errors.rank_correlations(published, ours, zeros).to_dict(
        "records"
    )  # at 1.0 all are alike
    rates = [ours[c][2.0].mean() / zeros[c][2.0].mean() for c in cells]
    want = np.corrcoef(rankdata(rates), rankdata([published[c][2.0] for c in cells]))[0, 1]

    def check(found):
        assert found["rank correlation"] == pytest.approx(want)
        assert found["low"] <= want <= found["high"]

    check(row)
    must_fail(check, errors.rank_correlations(published, zeros, ours).to_dict("records")[0])


# ---- Table 3 -------------------------------------------------------------------------------------


def trained_on(errors_of, r2=0.999, wide_r2=0.76, n=5):
    """Errors by interval and sigma; one run of the widest interval, n of the others."""
    values, own = {}, []
    for interval, models in table3.RUNS.items():
        for i, model in enumerate(models[:n]):
            own.append((interval, model.name, wide_r2 if interval == "U(-100,100)" else r2))
            for s in SIGMAS:
                values[model.name, s] = errors_of(interval, s) * 10 ** (0.02 * (i - 2))
    table = make_table(
        dict(zip(("trained on", "model", "r2"), map(list, zip(*own, strict=True)), strict=True))
    )
    return {"errors": error_rows(values), "own range": table}


def published(interval, sigma):
    return max(printed.errors("limits.table3", trained_on=interval)[sigma], 1e-5)


@pytest.mark.slow
def test_table3_orders_kinds_of_training_and_leaves_out_what_has_not_learned():
    """Two steps near, two far out, the order of all pairs, and the widest interval."""

    def check(results, *starts):
        words(table3.states(results), *starts, LEFT_OUT)

    check(trained_on(published), *[AGREES] * 5)
    check(trained_on(lambda i, s: 1 / published(i, s)), *[DIFFERS] * 5)
    check(trained_on(lambda i, s: 1.0), *[OPEN] * 5)
    check(trained_on(published, n=3), *[OPEN] * 5)
    must_fail(check, trained_on(published, n=3), *[AGREES] * 5)
    assert not any(
        "U(-100,100)" in line for line in sentences(table3.states(trained_on(published)))[:5]
    )
    words(table3.states({}))


def test_table3_compares_runs_that_were_trained_equally_well():
    results = trained_on(published)
    rows = results["own range"].to_dict("records")
    late = [
        {**row, "r2": 0.99} if row["model"] == table3.RUNS["U(-10,10)"][0].name else row
        for row in rows
    ]
    late = {
        **results,
        "own range": make_table({name: [row[name] for row in late] for name in late[0]}),
    }
    words(table3.states(late), AGREES, LEFT_OUT, AGREES, LEFT_OUT, LEFT_OUT, LEFT_OUT)


def test_a_wide_interval_that_was_learned_counts_but_one_run_decides_nothing():
    states = table3.states(trained_on(published, wide_r2=0.999))
    words(states, AGREES, AGREES, OPEN, AGREES, AGREES, OPEN, OPEN)
    assert "trained on U(-100,100)" in states[2].text
