"""Every edit of weights, by family: the sharpest of each comes first.

Edits of targets stand in `targets`.
"""

from icl_interp.testing.reparameterisations import attention, layers, stream
from icl_interp.testing.reparameterisations.base import Edit

EDITS: tuple[Edit, ...] = (
    *stream.WIDTH_DOUBLED,
    *stream.UNREAD,
    *stream.UNREAD_CANCELLED,
    stream.ROTATED,
    stream.FOLDED_ROTATED,
    stream.CENTRED,
    stream.GAINS_FOLDED,
    attention.SPLIT,
    attention.PERMUTED,
    *attention.COPIED_PAIR,
    *attention.RANDOM_PAIR,
    *stream.UNREAD_COPY,
    attention.IDLE_COPY,
    attention.NULL_HEAD,
    *attention.STRETCHED,
    attention.TURNED,
    *attention.SCORES_SCALED,
    *attention.VALUE_BIAS,
    attention.NO_OUTPUT_BIAS,
    attention.NO_VALUE_BIAS,
    attention.NO_KEY_BIAS,
    layers.UNIT_SPLIT,
    *layers.PADDED,
    layers.UNITS_PERMUTED,
    layers.LAYER_BEFORE,
    layers.LAYER_APPENDED,
    *attention.WIDER_HEADS,
    layers.ZERO_POSITIONS,
    *layers.LONGER,
)
