"""What experiments measure, against independent routes."""

from dataclasses import replace

import numpy as np
import pytest
import small_models
import torch
from helpers import must_fail
from xarray import DataArray

from icl_interp import evaluation
from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.experiments import errors, presets, setup
from icl_interp.models import scores
from icl_interp.models.tokens import Interleaved
from icl_interp.probes.attention import resampled_scores
from icl_interp.prompts import as_numbers
from icl_interp.provenance import generator
from icl_interp.results import make_array, make_table
from icl_interp.studies.limits.experiments import figure4, queries
from icl_interp.studies.limits.experiments import remedies as limits_remedies
from icl_interp.tasks.distributions import Normal, Uniform

SCALE = presets.Preset("test", 7, 6, 3, "tiny")
TASK = small_models.TASK


def checkpoint(name="pre", **change) -> Checkpoint:
    model = small_models.make(name, **change)
    return Checkpoint(model.float(), TASK, Interleaved(), RunConfig(model.cfg, TASK))


def make_bench(tmp_path=None, **models) -> setup.Setup:
    return setup.Setup(
        models or {"a": checkpoint(), "b": checkpoint("no norm")}, SCALE, cache=tmp_path
    )


def test_what_is_kept_counts_with_the_time_that_it_took(tmp_path):
    first, again = make_bench(tmp_path), make_bench(tmp_path)
    result = first.errors(["a", "b"], TASK, [1.0])
    assert (first.measured, first.reused, first.seconds) == (4, 0, 0)
    np.testing.assert_array_equal(again.errors(["a", "b"], TASK, [1.0]).values, result.values)
    assert (again.measured, again.reused) == (0, 4)
    assert again.seconds > 0


# Queries and the lens


def test_sweep_is_the_model_itself_at_each_query():
    model = checkpoint()
    prompts = queries.contexts(torch.square, Uniform(-1, 1), 7, 5, seed=1)
    xs = [-2.0, 0.3, 50.0]

    def check(found):
        double = small_models.make()
        for i, x in enumerate(xs):
            tokens = Interleaved().encode(prompts)
            tokens[:, -1, 0] = x
            torch.testing.assert_close(found[:, i], double(tokens)[:, -1, 0], atol=1e-6, rtol=1e-6)

    with torch.no_grad():
        check(queries.sweep(model, prompts, xs))
        must_fail(check, queries.sweep(model, prompts, xs[::-1]))
        must_fail(
            check,
            queries.sweep(model, queries.contexts(torch.square, Uniform(-1, 1), 7, 5, seed=2), xs),
        )


@pytest.mark.parametrize("name", ["pre", "post", "no norm", "rms", "attention only"])
def test_the_last_row_of_the_lens_is_the_prediction(name):
    model = checkpoint(name)
    prompts = queries.contexts(torch.sin, Uniform(-1, 1), 7, 4, seed=1)

    def check(row):
        torch.testing.assert_close(row, queries.sweep(model, prompts, [0.2, 3.0]))

    read = queries.lens(model, prompts, [0.2, 3.0])
    assert read.shape == (model.model.cfg.n_layers + 1, 4, 2)
    check(read[-1])
    must_fail(check, read[-2])


def test_the_lens_at_a_prompts_own_query():
    model, prompts = checkpoint(), small_models.PROMPTS
    read = queries.lens(model, prompts)[..., 0]
    torch.testing.assert_close(
        read[-1].float(), as_numbers(model.predict(prompts))[:, -1], atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("name", ["pre", "post"])
def test_the_lens_reads_every_depth_as_the_model_would(name):
    """A post-norm stream has no final norm before it, and is read as it is."""
    model, prompts = checkpoint(name), queries.contexts(torch.sin, Uniform(-1, 1), 7, 4, seed=1)
    double = small_models.make(name)
    read = queries.lens(model, prompts, [0.2, 3.0])

    def check(found):
        for k, x in enumerate((0.2, 3.0)):
            tokens = Interleaved().encode(prompts).double()
            tokens[:, -1, 0] = x
            with torch.no_grad():
                _, cache = double.run_with_cache(tokens)
                for depth, hook in enumerate(
                    ("blocks.0.hook_resid_pre", *(f"blocks.{i}.hook_resid_post" for i in (0, 1)))
                ):
                    stream = cache[hook][:, -1:]
                    stream = double.ln_final(stream) if name == "pre" else stream
                    expected = (stream @ double.unembed.W_U + double.unembed.b_U)[:, 0, 0]
                    torch.testing.assert_close(found[depth, :, k], expected, rtol=1e-5, atol=1e-5)

    check(read)
    must_fail(check, read.flip(0))
    must_fail(check, read.flip(2))


def test_polynomial_fits_are_numpys():
    prompts = queries.contexts(torch.exp, Uniform(0, 1), 12, 3, seed=0)
    found = queries.polynomial_fit(prompts, [0.1, 0.9], 3)
    for i in range(3):
        fit = np.polyfit(prompts.xs[i, :-1, 0].numpy(), prompts.ys[i, :-1, 0].numpy(), 3)
        np.testing.assert_allclose(found[i], np.polyval(fit, [0.1, 0.9]), rtol=1e-8)


def test_far_grid_is_symmetric():
    grid = queries.far_grid(0.1, 100, 4)
    np.testing.assert_array_equal(grid, -grid[::-1])
    assert grid[0] == -100
    assert 0.0 in grid


# Boundary values


def test_boundary_of_a_known_shape():
    """x inside, 5 tanh outside: the zone, the level and the onset are where they were put."""
    x = figure4.FAR
    f = np.clip(x, -5, 5)
    found = figure4.boundary(
        checkpoint("no norm"), torch.from_numpy(np.stack([f, f])), torch.from_numpy(x)
    )

    def check(found):
        assert found["level +"] == -found["level -"] == 5
        # 5 is within a tenth of x up to 5.56, and within 5 % of 5 from 4.75 on: on the grid the
        # neighbours of these.
        sizes = np.sort(np.abs(x))
        assert found["zone"] == sizes[sizes <= 5 / 0.9].max()
        assert found["onset"] == sizes[sizes >= 4.75].min()
        assert found["change over the last decade"] == 0

    check(found)
    moved = torch.from_numpy(np.stack([2 * f, 2 * f]))
    must_fail(check, figure4.boundary(checkpoint("no norm"), moved, torch.from_numpy(x)))


def test_the_certificate_holds_and_the_plateau_is_reached():
    model = checkpoint()
    prompts = queries.contexts(torch.square, Normal(1), 7, 8, seed=0)
    c, r, above, below = figure4.certificate(model)
    far = queries.sweep(model, prompts, [-1e9, 1e9, *figure4.FAR])
    assert (far - c).abs().max() <= r
    torch.testing.assert_close(
        far[:, :2], torch.tensor([[below, above]]).double().expand(8, 2), atol=1e-5, rtol=0
    )
    assert np.isnan(figure4.certificate(checkpoint("no norm"))).all()
    assert np.isnan(figure4.certificate(checkpoint("post"))).all()


# Errors


def test_errors_are_those_of_evaluation(tmp_path):
    with make_bench(tmp_path) as b:
        found = b.errors(["a", "b", "missing"], TASK, [1, 3])
        direct = evaluation.shifted(
            {name: b.models[name] for name in "ab"},
            TASK,
            [1, 3],
            n_functions=6,
            n_contexts=3,
            seed=0,
        )
        assert found.coords.to_dataset().identical(direct.coords.to_dataset())

        def check(values):
            np.testing.assert_allclose(values, direct.values, rtol=1e-12)

        check(found.values)
        must_fail(check, b.errors(["b", "a"], TASK, [1, 3]).values)
        must_fail(check, b.errors(["a", "b"], TASK, [1, 2]).values)


def test_a_measurement_is_kept_and_shared_and_never_taken_for_another(tmp_path, monkeypatch):
    asked = []
    shifted = evaluation.shifted

    def counted(predictors, *args, **kwargs):
        asked.append(sorted(predictors))
        return shifted(predictors, *args, **kwargs)

    monkeypatch.setattr(evaluation, "shifted", counted)
    first = make_bench(tmp_path).errors(["a"], TASK, [1, 3])
    both = make_bench(tmp_path).errors(["a", "b"], TASK, [1, 3])
    assert asked == [["a"], ["b"]]  # what was measured is not measured again
    np.testing.assert_array_equal(both.sel(predictor="a").values, first.sel(predictor="a").values)
    make_bench(tmp_path).errors(["a", "b"], TASK, [1, 3])
    assert len(asked) == 2
    # Another sigma, arm, task, seed, or the same name with other weights: each is measured.
    make_bench(tmp_path).errors(["a"], TASK, [1, 4])
    make_bench(tmp_path).errors(["a"], TASK, [1, 3], "inputs")
    make_bench(tmp_path).errors(["a"], TASK.with_points(6), [1, 3])
    make_bench(tmp_path, a=checkpoint("rms")).errors(["a"], TASK, [1, 3])
    setup.Setup({"a": checkpoint()}, SCALE, cache=tmp_path, seed=1).errors(["a"], TASK, [1, 3])
    assert len(asked) == 7


def test_a_kept_file_that_was_cut_off_is_measured_again(tmp_path):
    b = make_bench(tmp_path)
    table = make_table({"x": [1.0]})
    assert b.keep("it", ["a"], lambda: table).equals(table)
    (path,) = tmp_path.iterdir()
    path.write_text(path.read_text()[:10])
    assert b.keep("it", ["a"], lambda: make_table({"x": [2.0]}))["x"].tolist() == [2.0]
    assert b.keep("it", ["a"], lambda: make_table({"x": [3.0]}))["x"].tolist() == [2.0]


@pytest.mark.slow
def test_pooled_errors_are_means_of_each_function():
    matrix = make_bench().errors(["a", "b"], TASK, [1, 3])
    found = errors.pooled(matrix, {"both": ["a", "b", "missing"], "none": ["missing"]})
    assert tuple(found.indexes["predictor"]) == ("both", "a", "b", "least squares", "zero")
    np.testing.assert_allclose(
        found.sel(predictor="both").values,
        (matrix.sel(predictor="a").values + matrix.sel(predictor="b").values) / 2,
    )


def test_the_rate_of_zero_is_1_without_error():
    """Paired: error and references are resampled together, so what is common to all cancels."""
    rows = errors.table(make_bench().errors(["a"], TASK, [1])).to_dict("records")
    zero = next(row for row in rows if row["predictor"] == "zero")
    assert zero["error_rate"] == pytest.approx(1)
    assert zero["rate_low"] == pytest.approx(1)
    assert zero["low"] < zero["error"] < zero["high"]


# Remedies


def test_spread_by_hand():
    pattern = torch.tensor(
        [[0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.2, 0.2, 0.2, 0.2], [0.0, 0.0, 0.0, 0.0]]
    )
    share, effective = limits_remedies._spread(pattern)
    torch.testing.assert_close(share, torch.tensor([0.5, 1.0, 0.25, torch.nan]), equal_nan=True)
    torch.testing.assert_close(effective, torch.tensor([0.5, 0.25, 1.0, torch.nan]), equal_nan=True)


@pytest.mark.parametrize("score_fn", ["softmax", "scaled_softmax", "entmax", "sigmoid", "relu"])
def test_dispersion_at_the_trained_length_is_the_models_own_pattern(score_fn):
    change = {"score_fn": score_fn}
    model = checkpoint("pre", **change)
    b = setup.Setup({"m": model}, SCALE)
    curve = limits_remedies.dispersion(b, "m")
    lab = limits_remedies._lab(b, "m")
    share = []
    for x in lab.inner:
        tokens = lab.tokens(lab.few)
        tokens[:, -1, 0] = x
        _, cache = lab.model.run_with_cache(tokens)
        for i in range(model.model.cfg.n_layers):
            pattern = cache[f"blocks.{i}.attn.hook_pattern"][:, :, -1].abs()
            share.append((pattern.amax(-1) / pattern.sum(-1)).view(lab.n_units, -1))
    expected = torch.cat(share, 1).nanmean(1)

    def check(n):
        np.testing.assert_allclose(
            curve.sel(statistic="largest share", n=n).values, expected, rtol=1e-6
        )

    check(13)
    must_fail(check, 26)


def test_softmax_disperses_and_log_n_scaling_slows_it():
    """Fitted slopes of the largest share over n, for scores of one law.

    They are e^R / n for softmax, and n^(R - 1) scaled.
    """
    pool = torch.rand(2, 1, 1, 4, 40, generator=generator(0, "test/pool"), dtype=torch.float64)
    ns = [160, 640, 2560, 10240]

    def check(name, expected):
        drawn = [resampled_scores(pool, ("x",) * 40, n, generator(0, "test/drawn"))[0] for n in ns]
        patterns = [scores.apply(name, more[..., None, :]) for more in drawn]
        shares = [limits_remedies._spread(pattern)[0].mean() for pattern in patterns]
        assert np.polyfit(np.log(ns), np.log(shares), 1)[0] == pytest.approx(expected, abs=0.05)

    check("softmax", -1)
    must_fail(check, "scaled_softmax", -1)


@pytest.mark.slow
def test_the_baseline_does_not_differ_from_itself():
    model = checkpoint()
    here = {limits_remedies.BASELINE: model, "remedy_rms": model, "remedy_tanh": checkpoint("rms")}
    b = setup.Setup(here, replace(SCALE, n_functions=60))
    results = limits_remedies.run(b)
    assert isinstance(results["dispersion"], DataArray)
    for row in results["changes"].to_dict("records"):
        if row["model"] == "remedy_rms":
            assert row["log10 ratio"] == row["low"] == row["high"] == 0
    lines = [statement.sentence for statement in limits_remedies.states(results)]
    said = dict(line.split(" helps: ", 1) for line in lines if " helps: " in line)
    assert said["RMSNorm"] == "none. It costs: none."
    assert said["tanh instead of a norm"] != "none. It costs: none."


def test_ratios_are_paired():
    """A model whose error is three times another's on every function: the interval has no width."""
    values = np.stack([np.arange(1.0, 21), 3 * np.arange(1.0, 21)])[:, None]
    matrix = make_array(
        values, {"predictor": ("a", "b"), "sigma": (1.0,), "function": tuple(range(20))}
    )
    (row,) = errors.ratios(matrix, [("b", "a")]).to_dict("records")
    assert row["low"] == pytest.approx(row["high"]) == pytest.approx(np.log10(3))
