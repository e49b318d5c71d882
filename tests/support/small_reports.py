"""Reports of small random models, made once a test run, for tests of figures and pages.

Few units, but enough that verdicts are given; on a model with LayerNorm (and others without, four
seeds of each) and on one without.
"""

import copy
import functools
from dataclasses import replace
from pathlib import Path

import plotly.graph_objects as go
import pytest
from filelock import FileLock
from tiny_runs import checkpoint

from icl_interp import pipeline
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.figures import catalogue
from icl_interp.figures.render import rendered
from icl_interp.models.transformer import HookedTransformer
from icl_interp.report import Report

# Their figures, in order; without a norm, and so without a companion, all but "growth" and "shift".
WITH_NORM = [
    "claims",
    "mechanism",
    "mechanism_roles",
    "mechanism_patterns",
    "far_query",
    "growth",
    "boundary",
    "context",
    "heads",
    "dispersion",
    "layers",
    "classes",
    "shift",
    "in_context",
    "far_prompts",
    "lens_by_layer",
    "lipschitz_smoother",
    "overlap",
]
SIZES = {"n_layers": 2, "d_model": 12, "n_heads": 3, "init_std": 0.5}


SHARED: list[Path] = []  # a folder that all processes of a test run share, once there is one


@pytest.fixture(scope="session", autouse=True)
def _shared_folder(tmp_path_factory):
    base = tmp_path_factory.getbasetemp()
    SHARED.append(base.parent if base.name.startswith("popen-") else base)


@functools.cache
def _analyzed(norm: bool) -> Report:
    """Made by one process of a test run; the others read what it stored, to the last bit."""
    folder = SHARED[0] / f"small_report_{'norm' if norm else 'no_norm'}"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            _analyze(norm).to_json(folder / "report.json")
    return replace(Report.load(folder), file=None)


def _analyze(norm: bool) -> Report:
    bare = checkpoint(model={**SIZES, "normalization_type": None}, task={"degrees": [1]})
    if not norm:
        return pipeline.analyze(bare, n_prompts=256, progress=False)
    mine = checkpoint(model=SIZES, task={"degrees": [1]})
    seeds = [seed_of(one, number) for one in (mine, bare) for number in (1, 2, 3)]
    return pipeline.analyze(mine, n_prompts=256, companions=[bare, *seeds], progress=False)


def seed_of(one: Checkpoint, number: int) -> Checkpoint:
    """An untrained model that would be the same run from another seed."""
    config = replace(one.config, training=replace(one.config.training, seed=number))
    model = HookedTransformer(one.model.cfg, seed=100 + number).eval()
    return Checkpoint(model, one.task, one.encoding, config, provenance={"name": f"seed {number}"})


def report(norm: bool = True) -> Report:
    """A report to do with as one likes."""
    return copy.deepcopy(_analyzed(norm))


@pytest.fixture(
    scope="module",
    params=[True, pytest.param(False, marks=pytest.mark.slow)],
    ids=["norm", "no norm"],
)
def any_report(request):
    """Either report."""
    return report(request.param)


@pytest.fixture(scope="module")
def small():
    """The report on the model with LayerNorm."""
    return report()


def drawn(r: Report, name: str) -> go.Figure:
    """One figure of a report, as a screen shows it."""
    figure = catalogue.FIGURES[name].draw(r.results, r.findings, r.facts)
    assert figure is not None
    return rendered(figure)


def text_of(figure: go.Figure) -> str:
    """All annotations of a figure."""
    return "\n".join(a.text for a in figure.layout.annotations)
