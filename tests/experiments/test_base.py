"""Experiments as wholes: made-up results, the paper's numbers, and runs at scale smoke."""

import json

import numpy as np
import pytest
import torch
from helpers import must_fail

from icl_interp.errors import InputError
from icl_interp.experiments import base, errors, kept, presets, variants
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import AGREES, DIFFERS, HOLDS, LEFT_OUT, OPEN
from icl_interp.figures import reproductions
from icl_interp.reproduction import run
from icl_interp.results import make_table, to_dict
from icl_interp.studies.limits.experiments import printed, table4

FIGURES = {f"limits.figure{i}" for i in range(1, 9)}
TABLES = {f"limits.table{i}" for i in range(1, 5)}
NOTHING = Setup({}, presets.PRESETS["smoke"])


def words(lines, *starts):
    """Every sentence starts as expected, in order."""
    assert len(lines) >= len(starts)
    for line, start in zip(lines, starts, strict=False):
        assert line.startswith(start), f"{line!r} does not start with {start!r}"


def test_the_whole_study_is_registered_and_drawn():
    study = {name for name in base.names() if base.get(name).study == "limits"}
    assert study == FIGURES | TABLES | {"limits.appendix_g", "limits.remedies"}
    assert set(reproductions.DRAWINGS) >= study


# The paper's numbers


def test_tables_are_the_papers():
    """Spot checks against the printed page, and the sizes of all four."""
    assert printed.errors("limits.table1", model="without_layernorm")[10] == 25.44
    assert printed.errors("limits.table2", degree="3", model="M135AL")[6] == 6.23
    assert printed.errors("limits.table3", trained_on="U(-100,100)")[4] == 2526.93
    assert [len(printed.rows(name)) for name in printed.SOURCES] == [2, 20, 4, 5]
    for name in ("limits.table1", "limits.table2", "limits.table3"):
        for row in printed.rows(name):
            assert sum(column.startswith("sigma_") for column in row) == 10
    with pytest.raises(InputError, match="published table"):
        printed.rows("limits.table9")


def test_the_papers_zero_predictor_is_the_mean_square_within_its_sampling_error():
    """E f^2 = sigma^2 / 3 sum 1 / (2 i + 1), up to the paper's sampling error.

    The paper drew other functions at each sigma, 100 of them.
    """

    def check(degree, tolerance=0.3):
        exact = sum(1 / (2 * i + 1) for i in range(degree + 1)) / 3
        for sigma, value in printed.errors(
            "limits.table2", degree=str(degree), model="zero"
        ).items():
            assert value / (sigma**2 * exact) == pytest.approx(1, abs=tolerance)

    for degree in range(1, 6):
        check(degree)
    must_fail(check, 5, 0.01)


def test_table4_is_reproduced_and_its_caption_refuted():
    results = table4.run(NOTHING)
    table = table4.compare(results)
    assert len(table) == 15
    assert all(table["same to 6 decimals"])
    by_hand = np.exp(np.array([1, 1.02, 1.03, 1.05, 1.1]))
    moved = [row["softmax"] for row in errors.rows_of(results, "softmax", vector="a + 999")]
    np.testing.assert_allclose(moved, by_hand / by_hand.sum(), rtol=1e-9)
    said = [statement.sentence for statement in table4.states(results)]
    words(said, HOLDS, DIFFERS)  # that the numbers are right is arithmetic
    hard = make_table(
        {**results["softmax"], "softmax": [round(v) for v in results["softmax"]["softmax"]]}
    )
    must_fail(words, [s.sentence for s in table4.states({"softmax": hard})], HOLDS)


# What experiments say without models


@pytest.mark.slow
def test_without_any_model_every_experiment_of_the_study_says_so():
    for name in base.names():
        experiment = base.get(name)
        if not experiment.models or experiment.study != "limits":
            continue
        results = experiment.run(NOTHING)
        assert all(
            not line.startswith((AGREES, DIFFERS, LEFT_OUT)) for line in experiment.says(results)
        ), name
        experiment.compare(results)
        reproductions.draw(name, results, experiment.compare(results))


@pytest.mark.parametrize(
    ("sigmas", "text"), [([1], "1"), ([1, 2, 3, 5], "1–3, 5"), ([10, 9, 1], "1, 9–10"), ([], "")]
)
def test_sigmas_in_words(sigmas, text):
    assert errors.sigmas_text(sigmas) == text


# Whole runs


@pytest.mark.slow
def test_a_run_writes_everything_and_goes_on_where_it_was(tmp_path):
    """limits.figure6 at scale smoke: one model of 150 steps; the second time nothing is trained."""
    (done,) = run.reproduce(["limits.figure6"], tmp_path, scale="smoke", formats=(), progress=False)
    folder = tmp_path / "limits.figure6"
    record = json.loads((folder / "results.json").read_text())
    assert record["schema"] == kept.SCHEMA
    assert record["scale"]["name"] == "smoke"
    assert record["says"] == list(done.says)
    assert "smoke" in done.says[0]
    assert all(line.startswith(OPEN) for line in done.says[1:])  # nothing is concluded from it
    assert [data["sentence"] for data in record["statements"]] == list(done.says)
    assert {data["word"] for data in record["statements"]} == {"", "Undecided"}
    page = (folder / "figure.html").read_text()
    assert page.count("<script") >= 2
    # All that the page itself holds, and not plotly.js, which names the addresses of its sources.
    parts = page.split("<body>")[1].split("<script")
    own = [part for part in parts if len(part) < 10**6]
    assert len(own) == len(parts) - 1
    assert "http://" not in "".join(own)
    assert "limits.figure6/figure.html" in (tmp_path / "index.html").read_text()
    assert "limits.figure6" in (tmp_path / "README.md").read_text()
    weights = tmp_path / "models" / "degree_3" / "model.safetensors"
    stamp = weights.stat().st_mtime_ns
    (again,) = run.reproduce(
        ["limits.figure6"], tmp_path, scale="smoke", formats=(), progress=False
    )
    assert weights.stat().st_mtime_ns == stamp
    assert again.record["results"] == done.record["results"]


@pytest.mark.slow
def test_results_survive_the_trip_through_json(tmp_path):
    """Drawn and judged from the file they are the same."""
    (done,) = run.reproduce(["limits.table4"], tmp_path, scale="smoke", formats=(), progress=False)
    stored = run.Reproduction(
        done.experiment, json.loads((tmp_path / "limits.table4" / "results.json").read_text())
    )
    assert stored.experiment.says(stored.results) == done.says
    assert {k: f.to_json() for k, f in stored.figures.items()} == {
        k: f.to_json() for k, f in done.figures.items()
    }
    comparison = json.loads((tmp_path / "limits.table4" / "comparison.json").read_text())
    assert comparison["columns"] == json.loads(json.dumps(to_dict(stored.comparison)))["columns"]
    markdown = (tmp_path / "limits.table4" / "comparison.md").read_text()
    assert sum(line.startswith("| ") for line in markdown.splitlines()) == 2 + 15


@pytest.mark.slow
def test_without_training_what_is_missing_is_named(tmp_path):
    (done,) = run.reproduce(
        ["limits.figure5"], tmp_path, scale="smoke", train=False, formats=(), progress=False
    )
    assert done.record["missing"] == ["affine_gaussian", "degree_2_gaussian", "degree_3_gaussian"]
    assert not (tmp_path / "models").exists()


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """A folder of all smoke runs, as `reproduce` would use it: a recipe is trained once."""
    return tmp_path_factory.mktemp("smoke")


@pytest.mark.slow
@pytest.mark.parametrize("name", base.names())
def test_every_experiment_runs_at_scale_smoke(name, together):
    (done,) = run.reproduce([name], together, scale="smoke", formats=(), progress=False)
    assert done.results
    assert not done.record["missing"]
    assert done.figures
    for figure in done.figures.values():
        assert figure.data
    if done.comparison is not None:
        assert len(done.comparison) > 0


# Results that come with the package


KEPT = kept.names()


@pytest.mark.parametrize("name", KEPT)
def test_results_in_the_package_say_what_they_said(name):
    """A change of words has to be followed by `python tools/keep_results.py`."""
    record = kept.record(name)
    experiment = variants.in_folder(name)
    assert (record["id"], record.get("variant", "")) == (experiment.id, experiment.variant)
    found = run.said(experiment, kept.results(name), record["scale"]["name"])
    assert record["says"] == [statement.sentence for statement in found]


def says_what_was_run(record, experiment):
    """The size of a kept run is today's, or said to be that of an earlier version."""
    if kept.is_current(record, experiment):
        assert record["scale"] == kept.scale_of(experiment, record["scale"]["name"])
    else:
        assert record["scale"]["words"].startswith(kept.EARLIER)


@pytest.mark.slow
@pytest.mark.parametrize("name", KEPT)
def test_results_in_the_package_say_what_was_run(name):
    """A record whose models are no longer those of the experiment keeps its own size."""
    record = kept.record(name)
    experiment = variants.in_folder(name)
    says_what_was_run(record, experiment)
    other = {**record, "models": {**record["models"], "another": {}}}
    if kept.is_current(record, experiment):
        must_fail(says_what_was_run, other, experiment)


@pytest.mark.slow
def test_results_in_the_package_can_be_drawn():
    for name in KEPT:
        results = kept.results(name)
        experiment = variants.in_folder(name)
        assert reproductions.draw(experiment.id, results, experiment.compare(results))
    assert sum(kept.path(name).stat().st_size for name in KEPT) < 2 * 2**20


def test_missing_results_are_refused_with_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(kept, "FOLDERS", dict.fromkeys(kept.FOLDERS, tmp_path))
    with pytest.raises(InputError, match=r"icl-interp reproduce limits\.table1"):
        kept.results("limits.table1")
    with pytest.raises(InputError, match="unknown experiment"):
        kept.results("limits.table")
    with pytest.raises(InputError, match="schema"):
        kept.checked({"schema": "other/1"}, "file")


def test_torch_is_as_it_was():
    """Nothing seeds or switches anything globally."""
    assert torch.get_default_dtype() == torch.float32
