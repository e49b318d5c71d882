"""Reports of small random models, analysed once a test run: what the tests of figures and pages share.

Sixteen functions, so that verdicts are given; on a model with LayerNorm (and a counterpart without) and on one without.
"""

import copy
import functools

from tiny_runs import checkpoint

from icl_interp import pipeline
from icl_interp.report import Report

SIZES = {"n_layers": 2, "d_model": 12, "n_heads": 3, "init_std": 0.5}


@functools.cache
def _analyzed(norm: bool) -> Report:
    bare = checkpoint(model={**SIZES, "normalization_type": None}, task={"degrees": [1]})
    if not norm:
        return pipeline.analyze(bare, n_prompts=256, progress=False)
    return pipeline.analyze(
        checkpoint(model=SIZES, task={"degrees": [1]}), n_prompts=256, companions=[bare], progress=False
    )


def report(norm: bool = True) -> Report:
    """A report to do with as one likes."""
    return copy.deepcopy(_analyzed(norm))
