"""How large the sample of a report is."""

from typing import NamedTuple, Self

from icl_interp.analyses.facts import is_large
from icl_interp.errors import whole
from icl_interp.models.transformer import HookedTransformer

N_UNITS, N_CONTEXTS = 128, 4  # antithetic pairs, and contexts of each function
N_UNITS_LARGE, N_CONTEXTS_LARGE = 64, 2  # of a large model (`is_large`, which says what that costs)
UNIT = 2 * N_CONTEXTS  # prompts of a unit
MOST = 2**17  # prompts of an analysis: far more than a verdict needs, and memory grows with them


def checked(n_prompts: object) -> int:
    """A number of prompts that an analysis can have.

    Raises:
        InputError: it is no whole number between 16 and 131,072.
    """
    return whole(n_prompts, "n_prompts", 2 * UNIT, MOST)


class Sizes(NamedTuple):
    """Of a sample: units, and contexts of each function of a pair."""

    n_units: int
    n_contexts: int

    @classmethod
    def of(cls, model: HookedTransformer, n_prompts: int | None = None) -> Self:
        """What a report takes: so many prompts, or as many as it takes by itself.

        Raises:
            InputError: no whole number of prompts between 16 and 131,072.

        >>> from icl_interp.models.config import HookedTransformerConfig
        >>> Sizes.of(HookedTransformer(HookedTransformerConfig(n_layers=1, d_model=8)), 256)
        Sizes(n_units=32, n_contexts=4)
        """
        if n_prompts is not None:
            return cls(checked(n_prompts) // UNIT, N_CONTEXTS)
        if is_large(model):
            return cls(N_UNITS_LARGE, N_CONTEXTS_LARGE)
        return cls(N_UNITS, N_CONTEXTS)

    @classmethod
    def of_outputs(cls, n_prompts: int | None = None) -> Self:
        """What a report on a predictor without weights takes.

        >>> Sizes.of_outputs()
        Sizes(n_units=128, n_contexts=4)
        """
        return cls(N_UNITS if n_prompts is None else n_prompts // UNIT, N_CONTEXTS)
