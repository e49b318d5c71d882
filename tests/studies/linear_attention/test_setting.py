"""Whether linear attention has learned its task: beside the best that a layer can do."""

import pytest
import torch
from lsa_models import BEST, TASK, VARIANCES, N, bench, layer
from made_up_facts import changed

from icl_interp.analyses.claim import low_r2
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.studies.linear_attention.measurements import setting
from icl_interp.theory import linear_attention as theory


def test_learning_is_measured_by_the_best_that_a_layer_can_do():
    _, known = bench(layer(BEST), n_units=64)
    best = setting.best_r2(known)
    exact = theory.risk(TASK.covariance_matrix, N, N, torch.eye(2))
    assert best == pytest.approx(float(1 - exact / sum(VARIANCES)))
    assert best < 0.9  # so the common gate would never open
    assert low_r2(changed(known, r2=best))
    assert setting.not_learned(changed(known, r2=0.95 * best)) is None
    said = setting.not_learned(changed(known, r2=0.85 * best))
    assert "the best layer of linear attention" in said
    softmax = HookedTransformer(HookedTransformerConfig(n_layers=1, d_model=8, n_ctx=20, d_in=3))
    assert setting.best_r2(bench(softmax)[1]) == 1
