"""The slope of sizes in closed form, statements on planted results, and what is kept."""

import numpy as np
import pytest
from helpers import must_fail

from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.experiments import kept, obtain, presets
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import (
    AGREES,
    DIFFERS,
    FAILS,
    HOLDS,
    LEFT_OUT,
    OPEN,
    UNSETTLED,
)
from icl_interp.figures import reproductions
from icl_interp.models.tokens import Stacked
from icl_interp.provenance import generator
from icl_interp.results import make_array, table_of_rows
from icl_interp.studies.implicit_update.constructions.weights import layer
from icl_interp.studies.implicit_update.experiments import convergence
from icl_interp.studies.implicit_update.experiments.convergence import ONE_BLOCK, TRAINED, UNTRAINED
from icl_interp.studies.implicit_update.measurements.lengths import SIZE, UNDER, WITH
from icl_interp.studies.implicit_update.measurements.updates import LABEL
from icl_interp.training import recipes

ID = "implicit_update.convergence"
EXAMPLES = (1, 2, 4, 8, 16, 19)
N = np.array(EXAMPLES, float)
N_UNITS = 64


def measured(sizes, apart=0.0, spread=1.0):
    """Labels of +-2, predictions that miss each by .5, and others that differ by `apart`.

    Args:
        sizes: of the mean step, by the number of examples.
        apart: largest difference of the two predictions.
        spread: factor between the units' sizes.
    """
    units = np.geomspace(1, spread, N_UNITS)
    label = np.where(np.arange(N_UNITS) % 2, 2.0, -2.0) * np.ones((len(N), 1))
    shown = label + 0.5
    under = shown + apart * np.linspace(-1, 0.5, N_UNITS)
    size = np.outer(sizes, units / units.mean())
    axes = {
        "examples": EXAMPLES,
        "number": (WITH, UNDER, LABEL, SIZE),
        "unit": tuple(range(N_UNITS)),
    }
    return make_array(np.stack([shown, under, label, size], 1), axes)


def test_the_slope_is_the_exponent_of_the_mean_size():
    def check(sizes, exponent):
        found = convergence.fall(measured(sizes, spread=100.0))
        assert found.value == pytest.approx(exponent, abs=1e-9)
        assert found.low - 1e-6 <= exponent <= found.high + 1e-6

    check(3 / N, -1)
    check(N**0.5, 0.5)
    check(np.ones_like(N), 0)
    must_fail(check, 3 / N**0.9, -1)
    must_fail(check, 3 / (1 + N), -1)


def test_the_slope_is_of_means_and_not_of_each_prompt():
    """Of n^-1 in half of the prompts and 1 in the others, whose mean falls more slowly."""
    result = measured(1 / N)
    result.loc[{"number": SIZE, "unit": list(range(0, N_UNITS, 2))}] = 1.0
    log_n = np.log(N)

    def check(sizes):
        wanted = np.polyfit(log_n, np.log(sizes), 1)[0]
        assert convergence.fall(result).value == pytest.approx(wanted, abs=1e-9)

    check((1 / N + 1) / 2)
    must_fail(check, N**-0.5)


def test_errors_and_differences_by_hand():
    rows = convergence.by_number(measured(1 / N, apart=1e-3))
    assert [row["examples"] for row in rows] == list(EXAMPLES)

    def check(error, difference):
        for row in rows:
            assert row["error"] == pytest.approx(error)
            assert row["difference"] == pytest.approx(difference)

    check(0.25 / 4, 1e-3 / 2)
    must_fail(check, 0.25, 1e-3 / 2)
    must_fail(check, 0.25 / 4, 1e-3)
    assert rows[1]["size"] == pytest.approx(0.5)
    assert rows[0]["error under the update"] != rows[0]["error"]


def stored(slope=(-1.0, -1.1, -0.9), error=0.05, apart=1e-12, untrained=(-1.0, -1.1, -0.9)):
    """Results of one model."""
    names = ("slope", "low", "high")
    slopes = []
    for weights, ends in ((TRAINED, slope), (UNTRAINED, untrained)):
        row = {"model": ONE_BLOCK, "weights": weights, **dict(zip(names, ends, strict=True))}
        slopes.append({**row, "error": error})
    rows = []
    for number in convergence.by_number(measured(1 / N)):
        for weights, difference in ((TRAINED, apart), (UNTRAINED, 1.0)):
            row = {"model": ONE_BLOCK, "weights": weights, **number}
            rows.append({**row, "difference": difference})
    return {"by length": table_of_rows(rows), "slopes": table_of_rows(slopes)}


def words(**planted):
    return tuple(line.word for line in convergence.states(stored(**planted)))


def test_what_decides_each_statement():
    def check(wanted, **planted):
        assert words(**planted) == (*wanted, "")

    check((HOLDS, AGREES))
    check((HOLDS, DIFFERS), slope=(0.5, 0.4, 0.6))
    check((HOLDS, OPEN), slope=(-0.1, -0.3, 0.1))
    check((HOLDS, LEFT_OUT), error=0.2)
    check((UNSETTLED, AGREES), apart=1e-4)
    check((FAILS, AGREES), apart=0.1)
    must_fail(check, (HOLDS, AGREES), slope=(0.5, 0.4, 0.6))
    must_fail(check, (HOLDS, AGREES), apart=0.1)


def test_one_length_at_which_predictions_differ_leaves_no_agreement():
    results = stored()
    table = results["by length"]
    table.loc[table["examples"] == 4, "difference"] = 0.1
    assert convergence.states(results)[0].word == UNSETTLED


def test_the_note_says_whether_untrained_steps_fall():
    def check(ends, said):
        assert said in convergence.states(stored(untrained=ends))[2].text

    check((-1.0, -1.1, -0.9), "a fall shows no learning")
    check((-0.1, -0.3, 0.1), "not seen to fall")
    must_fail(check, (-0.1, -0.3, 0.1), "a fall shows no learning")


@pytest.fixture(scope="module")
def results():
    """Of a layer that is known, in the place of the recipe's model."""
    case = layer(generator(0, "test"))
    config = RunConfig(case.model.cfg, case.task, "stacked")
    models = {ONE_BLOCK: Checkpoint(case.model, case.task, Stacked(), config)}
    with Setup(models, presets.PRESETS["smoke"]) as setup:
        return convergence.run(setup)


def test_steps_of_a_layer_that_adds_examples_up_stay_as_large_as_they_are(results):
    """Each step is that of one example, so the mean size is the same at every length."""
    row = results["slopes"].set_index("weights").loc[TRAINED]

    def check(exponent):
        standard_error = (row["high"] - row["low"]) / (2 * 1.96)
        assert abs(row["slope"] - exponent) < 4 * standard_error

    check(0.0)
    must_fail(check, -1.0)


def test_a_known_layer_has_the_identity_and_is_compared_with_untrained_weights(results):
    assert results["slopes"]["weights"].tolist() == [TRAINED, UNTRAINED]
    identity, slope, beside = convergence.states(results)
    assert (identity.word, beside.word) == (HOLDS, "")
    assert slope.word != LEFT_OUT  # a step of descent has learned
    assert convergence.compare(results) is results["by length"]
    assert convergence.run(Setup({}, presets.PRESETS["smoke"])) == {}
    assert convergence.states({}) == ()
    assert convergence.compare({}) is None


@pytest.mark.slow
def test_a_smoke_run_has_the_identity_for_every_model(tmp_path):
    wanted = convergence.CONVERGENCE_EXPERIMENT.models_at("smoke")
    found = obtain.obtain(wanted, "smoke", tmp_path, obtain.Shelf(), progress=False)
    with Setup(found, presets.PRESETS["smoke"], cache=tmp_path / "measured") as setup:
        results = convergence.run(setup)
    assert results["slopes"]["model"].unique().tolist() == list(convergence.RECIPES)
    identities = convergence.states(results)[::3]
    assert {line.word for line in identities} == {HOLDS}


def test_the_figure_has_errors_both_ways_and_a_line_of_sizes_a_model(results):
    (figure,) = reproductions.draw(ID, results, None).values()
    names = {trace.name for trace in figure.data}
    assert names >= {ONE_BLOCK, f"{ONE_BLOCK}, {UNTRAINED}", "1 / n"}
    assert reproductions.draw(ID, {}, None) == {}


def test_what_is_kept_is_of_all_models_trained_and_not():
    found = kept.results(ID)
    for name in ("slopes", "by length"):
        pairs = set(found[name][["model", "weights"]].itertuples(index=False, name=None))
        assert pairs == {(m, w) for m in convergence.RECIPES for w in (TRAINED, UNTRAINED)}
    said = [line.word for line in convergence.states(found)]
    assert said == [HOLDS, AGREES, ""] * len(convergence.RECIPES)


def test_steps_of_an_untrained_block_fall_as_those_of_an_average():
    """A mean of n + 1 independent vectors moves by ((n + 1) (n + 2))^-1/2, in their spread."""
    slopes = kept.results(ID)["slopes"].set_index(["model", "weights"])
    ends = slopes.loc[(ONE_BLOCK, UNTRAINED), ["low", "high"]].tolist()

    def check(n_others):
        n = N + n_others
        slope = np.polyfit(np.log(N), -np.log(n * (n + 1)) / 2, 1)[0]
        assert ends[0] < slope < ends[1]

    check(1)  # the query is one of them
    must_fail(check, 0)


def test_one_block_stays_one_block_of_two_dimensions_at_every_scale():
    recipe = recipes.resolve(ONE_BLOCK)
    assert convergence.one_block(recipe, "small") == recipe
    assert recipe.model.normalization_type is None
    paper = convergence.one_block(recipe, "paper")
    assert (paper.model.n_layers, paper.task.dim, paper.task.n_points) == (1, 2, 101)
    smoke = convergence.one_block(recipe, "smoke")
    assert (smoke.model.n_layers, smoke.task.dim, smoke.encoding) == (1, 2, "stacked")
