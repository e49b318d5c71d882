"""The figure of overlaps shows every pair, their mean, and chance."""

import numpy as np
import plotly.graph_objects as go
from helpers import must_fail
from small_reports import drawn, report

from icl_interp.analyses.measurement import Results
from icl_interp.report import Report
from icl_interp.studies.heads.figures.overlap import overlap as draw
from icl_interp.studies.heads.measurements.overlaps import pairs_in


def trace(figure: go.Figure, name: str) -> go.Scatter:
    (found,) = (t for t in figure.data if t.name == name)
    return found


def overlap_shows(r: Report, figure: go.Figure):
    stored = r.results["heads/overlap"]
    shown = stored.sel(pair=pairs_in(stored))
    each = shown.sel(value=["OV", "QK", "outputs"]).values.T
    chance = shown.sel(value="chance").values
    np.testing.assert_array_equal(trace(figure, "pair of heads").x, each.ravel())
    np.testing.assert_allclose(trace(figure, "mean of pairs").x, each.mean(1), rtol=1e-12)
    np.testing.assert_allclose(trace(figure, "random directions").x, chance.mean(), rtol=1e-12)


def test_overlaps_of_every_pair_are_drawn(any_report):
    figure = drawn(any_report, "overlap")
    overlap_shows(any_report, figure)
    must_fail(overlap_shows, report(norm="far/norm arms" not in any_report.results), figure)


def test_nothing_is_drawn_where_layers_have_one_head(any_report):
    stored = any_report.results["heads/overlap"]
    alone = [name for name in stored.indexes["pair"] if name not in pairs_in(stored)]
    assert alone
    results = Results({"heads/overlap": stored.sel(pair=alone)})
    assert draw(results, any_report.findings, any_report.facts) is None
    results = Results({"heads/overlap": stored})
    assert draw(results, any_report.findings, any_report.facts) is not None
