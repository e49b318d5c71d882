"""Every edit of weights, by family: the sharpest of each comes first. Edits of targets stand in `targets`."""

from icl_interp.testing.edits import attention, layers, stream
from icl_interp.testing.edits.base import Edit

EDITS: tuple[Edit, ...] = (
    stream.WIDTH_DOUBLED,
    stream.ROTATED,
    stream.FOLDED_ROTATED,
    stream.CENTRED,
    stream.GAINS_FOLDED,
    attention.SPLIT,
    attention.PERMUTED,
    attention.STRETCHED,
    attention.TURNED,
    attention.SCORES_SCALED,
    attention.NO_KEY_BIAS,
    attention.NO_VALUE_BIAS,
    layers.UNIT_SPLIT,
    layers.LAYER_APPENDED,
)
