"""What the residual stream is measured to be, against a second route: all activations, and plain numpy."""

import numpy as np
import pytest
from activations import KINDS, cached, pooled, value
from small_models import PROMPTS, make

from icl_interp.probes.residual import ResidualStream
from icl_interp.probes.runner import probe


@pytest.mark.parametrize("name", ["pre", "post", "mlp only"])
def test_residual_stream(name):
    model = make(name)
    results, cache = probe(model, PROMPTS, [ResidualStream()]), cached(model)
    points = ["blocks.0.hook_resid_pre", "blocks.0.hook_resid_post", "blocks.1.hook_resid_post"]
    for depth, point in enumerate(points):
        for kind in KINDS:
            at, rows = {"depth": depth, "position": kind}, pooled(cache[point], kind)
            norms, eigenvalues = np.linalg.norm(rows, axis=-1), np.linalg.eigvalsh(np.cov(rows.T, bias=True))[::-1]
            expected = {
                "norm": [norms.mean(), norms.std()],
                "mean": rows.mean(0),
                "mean_norm": np.linalg.norm(rows.mean(0)),
                "spectrum": eigenvalues,
                "participation_ratio": eigenvalues.sum() ** 2 / (eigenvalues**2).sum(),
            }
            for key, numbers in expected.items():
                got = value(results[f"residual_stream.{key}"], **at)
                np.testing.assert_allclose(got, numbers, rtol=1e-9, atol=1e-12, err_msg=f"{key} {at}")
