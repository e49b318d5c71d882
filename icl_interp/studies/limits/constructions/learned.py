"""Models of known truth that do well in distribution, and ignorant ones, for far contexts.

What a model loses far out it must have nearby. Those that know their task answer constant
functions: the mean of the labels is exact.
"""

import math

import torch

from icl_interp.experiments.calibration import NO, OPEN, YES, Case, Construction
from icl_interp.models.transformer import HookedTransformer
from icl_interp.studies.limits.constructions.layers import (
    ERASED,
    LABEL,
    LINEAR,
    MARK,
    N_POINTS,
    TOKEN,
    hand_set,
    head_of,
    number,
    scalar_layer,
)
from icl_interp.studies.limits.constructions.mechanisms import HIGH_NORM, IMMEDIATE
from icl_interp.studies.limits.constructions.trainings import (
    Wrong,
    averaging,
    constants,
    random_constants,
)


def averaged_before_a_norm(g: torch.Generator) -> Case:
    """f = (1 - shrink) c / sqrt(1 + (x / x0)^2) plus a plateau of either sign; x0 is 20 to 100."""
    task = random_constants(g)
    shrink = number(g, 0, 0.1)
    tilt = number(g, 0, 0.1)
    size = number(g, 3, 6)
    model = averaging(g, task, Wrong(shrink, tilt), norm="LN", size=size)
    return Case(model, task)


def averaged_beside_itself(g: torch.Generator, low: float, high: float) -> Case:
    """The mean of the labels, among them the query's own 0.

    The query's score is s x^2 while others' are s x x_j.
    """
    model = hand_set(g, d_in=2, n_ctx=N_POINTS)
    log_share = number(g, math.log10(low), math.log10(high))
    with torch.no_grad():
        head = head_of(model)
        head.W_Q[TOKEN, 0] = 10**log_share
        head.W_K[TOKEN, 0] = 1
        head.W_V[LABEL, 0] = 1
        model.unembed.W_U[2, 0] = 1
    return Case(model, constants(1.0, N_POINTS))


def copier(g: torch.Generator) -> HookedTransformer:
    """f is the last label of the context."""
    model = hand_set(g, d_in=2, n_ctx=N_POINTS, positional_embedding_type="standard")
    with torch.no_grad():
        head = head_of(model)
        model.pos_embed.W_pos[-2, MARK] = 1
        head.b_Q[1] = 1
        head.W_K[MARK, 1] = number(g, 30, 60)
        head.W_V[LABEL, 0] = 1
        model.unembed.W_U[2, 0] = 1
    return model


CONSTRUCTIONS: tuple[Construction, ...] = (
    Construction(
        "labels averaged, then a norm",
        "the norm divides what the context says by |x|, and the rest is one plateau a direction, "
        "reached like 1/x",
        averaged_before_a_norm,
        {ERASED: YES, HIGH_NORM: YES, IMMEDIATE: NO},
    ),
    Construction(
        "labels averaged until the query attends to itself",
        "from |x| of about 30 on the query's own label, 0, has all the weight",
        lambda g: averaged_beside_itself(g, 0.03, 0.1),
        {ERASED: YES, HIGH_NORM: YES, LINEAR: OPEN},
    ),
    Construction(
        "labels averaged, until far beyond the range",
        "the query attends to itself from |x| of about 1e8 on: at 1e4 f is exact, and nothing has "
        "been erased yet",
        lambda g: averaged_beside_itself(g, 1e-15, 1e-14),
        {ERASED: OPEN, HIGH_NORM: NO},
    ),
    Construction(
        "labels averaged, whatever the query",
        "exact at a query of any size",
        lambda g: averaged_beside_itself(g, 1e-40, 1e-39),
        {ERASED: NO, HIGH_NORM: NO, LINEAR: OPEN},
    ),
    Construction(
        "scalar layer, alpha too small for the range",
        "a uniform average up to |x| of 1e6, a hardmax on the query itself beyond 1e8: two lines",
        lambda g: scalar_layer(g, 10 ** number(g, -15, -14)),
        {LINEAR: OPEN},
    ),
    Construction(
        "a copier of the last label",
        "it looks at one label and has learned no function, so nothing is lost far out",
        copier,
        {ERASED: OPEN, HIGH_NORM: OPEN, LINEAR: OPEN},
    ),
)
# What `icl_interp.testing.check_study` does not find in these, by (rule, subject), and why.
EXCEPTIONS: dict[tuple[str, str], str] = {}
