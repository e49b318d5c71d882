"""`analyze` on everything it takes, and the report it gives."""

import copy
import itertools
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import must_fail
from pandas import DataFrame
from pandas.testing import assert_frame_equal

import icl_interp
from icl_interp import progress
from icl_interp.analyses import facts
from icl_interp.analyses.registry import REGISTRY
from icl_interp.checkpoints.config import RunConfig
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.errors import InputError
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.tokens import Interleaved, Stacked
from icl_interp.models.transformer import HookedTransformer
from icl_interp.tasks.distributions import Uniform
from icl_interp.tasks.functions import Polynomial

TASK = Polynomial(degrees=(1,), inputs=Uniform(-1, 1), coefficients=Uniform(-1, 1), n_points=8)
QUICK = {"n_prompts": 256, "progress": False}
SHORT = {"n_prompts": 64, "progress": False}  # too few functions for a verdict
CLAIMS = ("limits.context_erased", "limits.layernorm_saturation")


def config(**changes) -> HookedTransformerConfig:
    return HookedTransformerConfig(
        **{"n_layers": 2, "d_model": 8, "n_heads": 2, "n_ctx": 16, "init_std": 0.4, **changes}
    )


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    model = HookedTransformer(config()).eval()
    return Checkpoint(
        model, TASK, Interleaved(), RunConfig(model.cfg, TASK), provenance={"name": "tiny"}
    )


@pytest.fixture(scope="module")
def report(checkpoint):
    return icl_interp.analyze(checkpoint, **QUICK)


def equal_findings(first, second) -> None:
    """The same verdicts and numbers, to the last bit (NaN equals NaN)."""
    assert len(first.findings) == len(second.findings) > 0
    for a, b in zip(first.findings, second.findings, strict=True):
        assert json.dumps(a.to_dict(), default=float) == json.dumps(b.to_dict(), default=float)


def test_every_registered_claim_is_in_every_report(report):
    assert [finding.id for finding in report.findings] == list(REGISTRY)
    for finding in report.findings:
        assert finding.reason
        assert finding.verdict in ("supported", "contradicted", "inconclusive", "not_applicable")
    assert report["limits.linear_asymptote"].verdict == "not_applicable"


@pytest.mark.slow
def test_a_report_is_a_function_of_the_seed(checkpoint, report):
    equal_findings(report, icl_interp.analyze(checkpoint, **QUICK))
    few, other = (
        icl_interp.analyze(checkpoint, claims=CLAIMS, seed=seed, **QUICK) for seed in (0, 1)
    )
    must_fail(equal_findings, few, other)


def test_analyze_leaves_the_model_as_it_was(checkpoint):
    before = {name: tensor.clone() for name, tensor in checkpoint.model.state_dict().items()}
    icl_interp.analyze(checkpoint, claims=CLAIMS, **SHORT)
    after = checkpoint.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert checkpoint.model.unembed.W_U.dtype == torch.float32
    assert all(not module._forward_hooks for module in checkpoint.model.modules())


@pytest.mark.slow
def test_folder_checkpoint_and_bare_model_agree(checkpoint, tmp_path):
    folder = checkpoint.save(tmp_path / "run")
    ways = [
        icl_interp.analyze(folder, claims=CLAIMS, **SHORT),
        icl_interp.analyze(str(folder / "model.safetensors"), claims=CLAIMS, **SHORT),
        icl_interp.analyze(checkpoint.model, task=TASK, claims=CLAIMS, **SHORT),
    ]
    expected = icl_interp.analyze(checkpoint, claims=CLAIMS, **SHORT)
    assert [finding.id for finding in expected.findings] == [c for c in REGISTRY if c in CLAIMS]
    for way in ways:
        equal_findings(expected, way)
    other = HookedTransformer(config(), seed=5).eval()
    must_fail(
        equal_findings, expected, icl_interp.analyze(other, task=TASK, claims=CLAIMS, **SHORT)
    )


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["causal", "bidirectional"])
def test_stacked_models_are_analysed(direction):
    """A bare model as wide as x and y together reads stacked tokens.

    With bidirectional attention, its contexts change with the query.
    """
    model = HookedTransformer(config(d_in=2, attention_dir=direction)).eval()
    report = icl_interp.analyze(model, task=TASK, claims=CLAIMS, **QUICK)
    assert report.model["encoding"] == "stacked"
    by_hand = icl_interp.analyze(model, task=TASK, encoding=Stacked(), claims=CLAIMS, **QUICK)
    equal_findings(report, by_hand)
    assert report["limits.layernorm_saturation"].verdict == "supported"


ARCHITECTURES = (
    {"attn_only": True},
    {"mlp_only": True},
    {"score_fn": "hardmax"},
    {"score_fn": "linear", "score_norm": "visible"},
    {"normalization_type": None},
    {"normalization_type": "RMS"},
    {"normalization_type": "LNPre"},
    {"norm_position": "post"},
    {"norm_position": "both", "attn_only": True, "residual_scale": 0.1},
    {"final_norm": False},
    {"positional_embedding_type": "none"},
    {"n_heads": 1},
)
FAST = ({"mlp_only": True},)  # the others take longer


@pytest.mark.parametrize(
    "changes",
    [c if c in FAST else pytest.param(c, marks=pytest.mark.slow) for c in ARCHITECTURES],
    ids=str,
)
def test_every_architecture_gets_a_whole_report(changes):
    """Each claim is judged or said not to apply; nothing fails."""
    report = icl_interp.analyze(HookedTransformer(config(**changes)).eval(), task=TASK, **SHORT)
    verdicts = {finding.id: finding.verdict for finding in report.findings}
    assert list(verdicts) == list(REGISTRY)
    no_norm = changes.get("normalization_type", "LN") in (None, "RMS")
    # Where the stream goes past its norms, they bound nothing.
    no_norm = no_norm or changes.get("final_norm") is False
    for name in ("saturation", "causes_saturation", "causes_failure"):
        assert (verdicts[f"limits.layernorm_{name}"] == "not_applicable") == no_norm
    assert set(report.figures)


@pytest.mark.slow
def test_a_default_sample_is_smaller_for_a_large_model(checkpoint, monkeypatch):
    """128 units of 8 prompts, of a large model 64 of 4; what is asked for is in units of 8."""

    def sample(**asked) -> tuple[int, int]:
        report = icl_interp.analyze(
            checkpoint, claims=("limits.context_erased",), progress=False, **asked
        )
        return report.facts.n_units, report.provenance["n_prompts"]

    assert sample() == (128, 1024)
    monkeypatch.setattr(facts, "LARGE", 1)
    assert sample() == (64, 256)
    assert sample(n_prompts=512) == (64, 512)


@pytest.mark.slow
def test_a_large_model_gets_a_whole_report(checkpoint, monkeypatch):
    """Nothing fails on fewer prompts."""
    monkeypatch.setattr(facts, "LARGE", 1)
    report = icl_interp.analyze(checkpoint, **SHORT)
    assert [finding.error for finding in report.findings if finding.error] == []
    # Every block is ablated on half of the eight functions.
    assert report.results["layers/ablated"].sizes["group"] == 4


def test_bad_input():
    model = HookedTransformer(config()).eval()
    with pytest.raises(InputError, match="brings no task"):
        icl_interp.analyze(model)
    with pytest.raises(InputError, match=r"unknown claim 'limits\.nope'"):
        icl_interp.analyze(model, task=TASK, claims=("limits.nope",))
    with pytest.raises(InputError, match="n_prompts"):
        icl_interp.analyze(model, task=TASK, n_prompts=8)
    with pytest.raises(InputError, match="n_ctx=16 tokens is too short"):
        icl_interp.analyze(model, task=TASK.with_points(20))
    with pytest.raises(InputError, match="a model is given as a run folder"):
        icl_interp.analyze(3.0)


@pytest.mark.slow
def test_matched_model_is_measured():
    model, bare = (
        HookedTransformer(config()).eval(),
        HookedTransformer(config(normalization_type=None)).eval(),
    )
    claims = ("limits.layernorm_causes_failure",)
    report = icl_interp.analyze(model, task=TASK, claims=claims, companions=[bare], **SHORT)
    assert "trained without" in report.findings[0].causal["far error / law mean"]
    alone = icl_interp.analyze(model, task=TASK, claims=claims, **SHORT)
    assert "trained without" not in alone.findings[0].causal["far error / law mean"]


def with_nan(model: HookedTransformer) -> HookedTransformer:
    model = copy.deepcopy(model)
    with torch.no_grad():
        model.blocks[0].mlp.W_in[0, 0] = torch.nan
    return model


def left_out(companions, **changes):
    """What became of companions: those left out, of an analysis that went on."""
    model = HookedTransformer(config(**changes)).eval()
    report = icl_interp.analyze(model, task=TASK, claims=CLAIMS, companions=companions, **SHORT)
    assert all(finding.estimate is not None for finding in report.findings)
    json.dumps(report.to_dict(), default=float)
    return report


@pytest.mark.slow
def test_companions_that_do_not_fit_are_left_out(tmp_path, caplog):
    bare = HookedTransformer(config(normalization_type=None)).eval()
    longer = config(n_ctx=20)
    run = RunConfig(longer, TASK.with_points(10))
    wide = config(d_in=2)
    (tmp_path / "config.json").write_text("{")
    wrong = {
        "several": HookedTransformer(config(normalization_type=None, n_layers=3)).eval(),
        "points": Checkpoint(
            HookedTransformer(longer).eval(),
            run.task,
            Interleaved(),
            run,
            provenance={"name": "long"},
        ),
        "none": HookedTransformer(config()).eval(),
        "encoding": Checkpoint(
            HookedTransformer(wide).eval(),
            TASK,
            Stacked(),
            RunConfig(wide, TASK, "stacked"),
            provenance={"name": "cols"},
        ),
        "dim": HookedTransformer(config(d_in=3)).eval(),
        "nan": with_nan(bare),
        "folder": tmp_path / "nowhere",
        "broken": tmp_path,
        "nothing": 3.0,
        "again": HookedTransformer(config(normalization_type=None, init_std=0.5), seed=4).eval(),
    }
    reasons = (
        (
            "bare model",
            r"model\.n_layers \(3 beside 2\), model\.normalization_type \(None beside 'LN'\)",
        ),
        ("long", r"model\.n_ctx \(20 beside 16\), task\.n_points \(10 beside 8\)"),
        ("bare model", "differs in nothing"),
        ("cols", r"encoding \('stacked' beside 'interleaved'\), model\.d_in \(2 beside 1\)"),
        ("HookedTransformer", "d_in=3"),
        ("HookedTransformer", r"blocks\.0\.mlp\.W_in holds NaN"),
        (str(tmp_path / "nowhere"), "no such path"),
        (str(tmp_path), "config|safetensors"),
        ("float", "a model is given as"),
        ("bare model", "has the same role, 'no norm'"),
    )
    report = left_out([bare, *wrong.values()])
    assert report.model["companions"] == {"no norm": "bare model"}
    found = report.model["companions_left_out"]
    assert [entry["name"] for entry in found] == [name for name, _ in reasons]
    for entry, (name, reason) in zip(found, reasons, strict=True):
        assert re.search(reason, entry["reason"]), entry
        assert "\n" not in entry["reason"]
        assert f"the companion {name} is left out: {entry['reason']}" in caplog.text
    assert left_out([bare]).model["companions_left_out"] == []


def test_nan_weights_are_refused_by_name(checkpoint):
    broken = with_nan(checkpoint.model)
    whole = replace(checkpoint, model=broken)
    for attempt in (
        lambda: icl_interp.analyze(broken, task=TASK, **QUICK),
        lambda: icl_interp.analyze(whole, **QUICK),
        lambda: icl_interp.evaluate(broken, TASK, n_functions=2, n_contexts=2),
    ):
        with pytest.raises(InputError, match=r"blocks\.0\.mlp\.W_in holds NaN"):
            attempt()


@pytest.mark.slow
def test_a_model_whose_numbers_are_none_costs_no_report():
    """All weights 0 and eps 0: every norm divides 0 by 0."""
    model = HookedTransformer(config(eps=0.0)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    report = icl_interp.analyze(model, task=TASK, **QUICK)
    assert [finding.error for finding in report.findings if finding.error] == []
    assert np.isnan(report.results["heads/overlap"].sel(value="outputs").values).all()
    assert report["heads.orthogonality"].verdict == "inconclusive"


@pytest.mark.slow
def test_saved_report_is_judged_and_drawn_without_the_model(report, tmp_path, monkeypatch):
    folder = report.save(tmp_path / "r")
    assert {path.name for path in folder.iterdir()} == {"report.json", "report.html"}

    def refuse(*_args, **_kwargs):
        raise AssertionError("no model may be made")

    monkeypatch.setattr(HookedTransformer, "__init__", refuse)
    loaded = icl_interp.Report.load(folder)
    equal_findings(report, loaded)
    equal_findings(report, loaded.judge())
    assert list(loaded.figures) == list(
        report.figures
    )  # that they are the same: tests/figures/test_catalogue.py
    for name, result in report.results.items():
        if isinstance(result, DataFrame):  # JSON rounds nothing
            assert_frame_equal(loaded.results[name], result, check_exact=True)
        else:
            np.testing.assert_array_equal(loaded.results[name].values, result.values)
    table = report.compare(loaded)
    assert len(table) == len(report.findings)
    assert "limits.context_erased" in loaded._repr_html_()


def test_report_errors(report, tmp_path):
    with pytest.raises(InputError, match=r"unknown claim in this report 'limits\.nope'"):
        report["limits.nope"]
    with pytest.raises(InputError, match="unknown format 'docx'"):
        report.save(tmp_path, formats=("docx",))
    with pytest.raises(InputError, match="cannot read"):
        icl_interp.Report.load(tmp_path / "nowhere")
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(InputError, match="has schema None"):
        icl_interp.Report.load(tmp_path)


class Bar:
    """Stands in for a bar of tqdm, and keeps where it was."""

    def __init__(self, **settings):
        self.settings = settings
        self.n = 0
        self.name = ""
        self.seen = []

    def set_description_str(self, name, refresh):
        self.name = name

    def refresh(self):
        self.seen.append((self.n, self.name))

    def close(self):
        pass


def goes_from_0_to_100_once(seen):
    shares = [share for share, _ in seen]
    assert shares == sorted(shares)
    assert shares[0] < 5
    assert shares[-1] == 100
    assert max(b - a for a, b in itertools.pairwise(shares)) < 50
    names = {name.strip() for _, name in seen}
    assert {"heads/overlap", "reading contexts"} <= names
    assert {len(name) for _, name in seen} == {progress.NAMED + 1}


def test_an_analysis_has_one_bar_which_names_what_is_under_way(monkeypatch, checkpoint):
    bars = []

    def draw(**settings):
        bars.append(Bar(**settings))
        return bars[-1]

    monkeypatch.setattr(progress, "drawn", draw)
    icl_interp.analyze(checkpoint, claims=("heads.orthogonality",), n_prompts=64)
    (bar,) = bars
    assert bar.settings["ncols"] <= 80
    goes_from_0_to_100_once(bar.seen)
    must_fail(goes_from_0_to_100_once, bar.seen[::-1])
    must_fail(goes_from_0_to_100_once, bar.seen[:-1])
