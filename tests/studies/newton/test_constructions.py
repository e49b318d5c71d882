"""Weights that prepare Newton's iterates before they read labels: against moments, in float64."""

import pytest
import torch
from helpers import must_fail

from icl_interp.baselines.base import INPUTS
from icl_interp.baselines.moments import Moments
from icl_interp.checkpoints.store import predict
from icl_interp.models.tokens import Stacked
from icl_interp.provenance import generator
from icl_interp.studies.newton.constructions.all import ITERATES, TASK, ahead, start


def steps(prompts, iterates, share, begin):
    """w + M (h - S w) for each of three M, which mix their own iterate with the second."""
    seen = Moments.of_query(INPUTS, prompts)
    known = [begin * seen.gram]
    for _ in range(max(iterates)):
        inverse = known[-1]
        known.append(2 * inverse - inverse @ seen.gram @ inverse)
    w = torch.zeros_like(seen.moment)
    for k in iterates:
        mixed = share * known[k] + (1 - share) * known[iterates[1]]
        w = w + mixed @ (seen.moment - seen.gram @ w)
    return seen.predicted(w)[:, 0]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_layers_take_steps_with_prepared_iterates(share):
    prompts = TASK.sample(20, generator(0, "test"), dtype=torch.float64)
    model = ahead(share, generator(1, "test")).model
    begin = start(generator(1, "test"))
    said = predict(model, Stacked(), prompts)[:, -1]

    def check(iterates, mixed):
        expected = steps(prompts, iterates, mixed, begin)
        torch.testing.assert_close(said, expected, rtol=0, atol=1e-9)

    check(ITERATES, share)
    must_fail(check, ITERATES, share + 0.1)
    must_fail(check, (2, 4, 8), share)
