"""The figure of kinds side by side: its points are the seeds, its lines their geometric means."""

import numpy as np
import pytest
from affine_runs import known
from helpers import must_fail
from seed_tables import SPREAD, across, arm, scaled, table

from icl_interp.analyses.measurement import Results
from icl_interp.figures.render import rendered
from icl_interp.studies.limits.figures.shift import shift
from icl_interp.studies.limits.measurements import seeds

RESULTS = {
    seeds.functions.name: table(arm(n=4, **scaled()) + arm("no norm", **scaled(0.5))),
    seeds.inside.name: table(
        arm(n=4, **across(lambda x: 1 + x)) + arm("no norm", **across(lambda x: 1))
    ),
    seeds.intervals.name: table(
        arm(n=4, a=1.0, **{"both 1": 1e-3, "both 5": 50.0})
        + arm("interval 5", a=5.0, **{"both 1": 1.0, "both 5": 0.1})
    ),
}


def drawn(results):
    figure = shift(Results(results), [], known("no norm"))
    assert figure is not None
    return rendered(figure)


def traces(figure, group, axis, mode):
    """Those of a kind of training, whatever its number of seeds."""

    def found(t):
        return (str(t.legendgroup).split(",")[0], t.xaxis, t.mode)

    return [t for t in figure.data if found(t) == (group, axis, mode)]


def check_traces(figure):
    (points,), (line,) = (traces(figure, "no norm", "x", mode) for mode in ("markers", "lines"))
    assert list(points.x) == [1, 2, 5, 10] * 5
    expected = [0.5e-3 * s**2 * k for k in SPREAD[:5] for s in (1, 2, 5, 10)]
    np.testing.assert_allclose(points.y, expected)
    np.testing.assert_allclose(line.y, np.exp(np.log(np.reshape(expected, (5, 4))).mean(0)))
    assert line.name == "no norm, 5 seeds"
    assert traces(figure, "like this model", "x", "lines")[0].name == "like this model, 4 seeds"
    (inside,) = traces(figure, "like this model", "x2", "lines")
    assert inside.y[-1] / inside.y[0] == pytest.approx(2 / 1.1)
    (by_interval,) = traces(figure, "a = 5", "x3", "lines")
    assert by_interval.y[0] / by_interval.y[1] == pytest.approx(1.0 / (0.1 / 25))


def test_points_are_seeds_and_lines_their_geometric_means():
    check_traces(drawn(RESULTS))
    swapped = {
        **RESULTS,
        seeds.functions.name: table(arm(n=4, **scaled()) + arm("no norm", **scaled(0.4))),
    }
    must_fail(check_traces, drawn(swapped))


def test_what_was_not_measured_is_not_drawn():
    rows = [
        {**row, "numbers": seeds.NOWHERE}
        for row in arm(n=3, **scaled()) + arm("no norm", n=3, **scaled())
    ]
    assert shift(Results({seeds.functions.name: table(rows)}), [], known("no norm")) is None
    assert shift(Results({seeds.functions.name: table(arm(**scaled()))}), [], known()) is None
    alone = table(
        arm(n=1) + arm("no norm", n=1)
    )  # too few seeds to compare: their error rates and nothing else
    assert shift(Results(dict.fromkeys(RESULTS, alone)), [], known("no norm")) is None
    assert shift(Results({}), [], known()) is None
    assert (
        len(traces(drawn({seeds.inside.name: RESULTS[seeds.inside.name]}), "no norm", "x", "lines"))
        == 1
    )
