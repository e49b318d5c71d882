"""Every bundled construction of known truth in one more draw.

`check_study` judges one draw of each, and `icl-interp selfcheck --full` 200, which takes hours.
"""

import pytest

from icl_interp.experiments import calibration
from icl_interp.studies import BUNDLED


@pytest.mark.slow
@pytest.mark.parametrize("name", [one.name for study in BUNDLED for one in study.constructions])
def test_every_cell_in_another_draw(name):
    table = calibration.calibrate(1, seed=100, only=[name])
    assert [row for row in table.to_dict("records") if row["as expected"] < row["draws"]] == []
