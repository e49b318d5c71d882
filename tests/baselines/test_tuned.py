"""What is chosen is what was planted."""

import pytest
import torch
from helpers import must_fail

from icl_interp.baselines.moments import GDPlusPlus
from icl_interp.baselines.tuned import PlusPlus, missed
from icl_interp.provenance import generator
from icl_interp.tasks import LinearRegression

TASK = LinearRegression(n_dims=4, n_points=13)
PROMPTS = TASK.sample(512, generator=generator(0, "rivals"))


@pytest.mark.parametrize(
    ("sizes", "shrinks"), [((0.4, 0.5), (0.3, 0.2)), ((0.6, 0.3, 0.2), (0.1, 0.35, 0.3))]
)
def test_the_sizes_of_gd_plus_plus_are_found(sizes, shrinks):
    planted = GDPlusPlus(TASK, sizes, shrinks, "planted")
    answers = planted.predict(PROMPTS)[:, -1]
    found = PlusPlus(TASK, len(sizes), "found")(PROMPTS, answers)

    def check(predictor):
        assert missed(predictor, PROMPTS, answers) < 1e-12 * float(answers.square().mean())

    check(found)
    # The last shrink changes nothing that comes after; the first one does.
    changed = (0.99 * float(torch.as_tensor(found.shrinks[0])), *found.shrinks[1:])
    must_fail(check, GDPlusPlus(TASK, found.sizes, changed, "other"))
