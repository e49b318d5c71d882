"""The model of Naim & Asher (2025), section 6: a norm after each sum, instead of before it."""

from dataclasses import replace

from icl_interp.checkpoints.config import RunConfig
from icl_interp.experiments.variants import Variant


def after_each_sum(config: RunConfig) -> RunConfig:
    """The run with x = LN(x + f(x)) for each sublayer f, and no norm at the end.

    Section 6, Add & Norm: AN = LN(A(x) + x), then LN(FF(AN) + AN). Models without a norm stay what
    they are.
    """
    if not config.model.normalization_type:
        return config
    return replace(config, model=replace(config.model, norm_position="post"))


POST_LN = Variant(
    "post_ln",
    "LayerNorm after each sum x + f(x), as section 6 writes it, and none at the end",
    after_each_sum,
)
