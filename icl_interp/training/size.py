"""The least memory that a run needs, from its config alone, so that absurd sizes are refused."""

import os

from icl_interp.checkpoints.config import RunConfig
from icl_interp.errors import InputError
from icl_interp.models import tokens, weights
from icl_interp.models.transformer import HookedTransformer

BYTES_PER_BLOCK = 50_000  # of Python objects: modules and hook points
UNKNOWN_MEMORY = 2**36  # what a machine that does not say is taken to have: 64 GiB


def check_size(config: RunConfig) -> None:
    """Refuse a run that can't fit into the memory of this machine.

    Raises:
        InputError: weights, gradients, both moments of Adam, and the residual stream of one batch
            need more.
    """
    model, task, training = config.model, config.task, config.training
    assert training is not None
    n_tokens = tokens.named(config.encoding).n_tokens(task.n_points)
    n_parameters = weights.n_parameters(HookedTransformer, model)
    at_once = -(-training.batch_size // training.accumulate)
    stream = at_once * n_tokens * (model.d_in + model.n_layers * model.d_model)
    needed = 4 * (4 * n_parameters + stream) + model.n_layers * BYTES_PER_BLOCK
    if needed > _memory():
        raise InputError(
            f"this run has {_rounded(n_parameters)} parameters and "
            f"{_rounded(at_once * n_tokens)} tokens at once, and needs at least "
            f"{_rounded(needed)} bytes of memory, but this machine has {_rounded(_memory())}: "
            "choose smaller sizes"
        )


def _memory() -> int:
    """Bytes of this machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # no such call, or no such name in it
        return UNKNOWN_MEMORY


def _rounded(n: int) -> str:
    """A whole number of any size in few digits."""
    return (
        f"{n:,}" if n < 10**6 else f"{n:.1e}" if n < 10**300 else f"more than 1e{len(hex(n)) - 3}"
    )
