"""Activations as they are, for what no other probe reduces."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from icl_interp.errors import several
from icl_interp.models.hooked import HookedModel
from icl_interp.models.hooks import token_axis
from icl_interp.probes.base import Hook, Positions, Probe
from icl_interp.reductions import Rows
from icl_interp.results import Result, make_array


class Activations(Probe):
    """What hooks show at every position that is probed. Memory grows with the number of prompts.

    Args:
        names: hooks, for example "blocks.0.attn.hook_pattern".
        keep: makes of an activation what is kept of it, `(batch, ...)` again; all of it by default.

    Attributes:
        recorded: what was kept by hook name, `(batch, ...)` as the hook has it, on the CPU.

    Results:
        each hook by its name: Array (prompt, axis 1, axis 2, ...).

    Raises:
        InputError: a hook that the model has not (raised by `probe` and `observe`).

    What a head weighs by and what it writes are as the model has them: z is the pattern times the
    values.

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> from icl_interp.models.transformer import HookedTransformer
    >>> from icl_interp.probes.runner import probe
    >>> config = HookedTransformerConfig(n_layers=1, d_model=8, n_heads=2, init_std=1.0)
    >>> model = HookedTransformer(config)
    >>> seen = Activations([f"blocks.0.attn.hook_{name}" for name in ("pattern", "v", "z")])
    >>> _ = probe(model, torch.randn(4, 6, 1), [seen])
    >>> pattern, v, z = seen.recorded.values()
    >>> torch.allclose(torch.einsum("bhqk,bkhd->bqhd", pattern, v), z, atol=1e-5)
    True
    """

    name: ClassVar[str] = "activations"

    def __init__(
        self, names: Sequence[str], keep: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        self.names = several(names, "names of hooks")
        self.keep = keep

    def hooks(self, model: HookedModel, positions: Positions) -> list[Hook]:
        """One hook at each name, which keeps what it reads."""
        self._kept = {name: Rows() for name in self.names}
        self._places = sorted(place for places in positions.values() for place in places)
        return [(name, partial(self._read, name)) for name in self.names]

    def _read(self, name: str, t: Tensor, hook: object) -> None:
        axis = token_axis(name)
        places = torch.tensor(self._places, device=t.device)
        seen = t.detach().index_select(axis, places)
        self._kept[name].append((seen if self.keep is None else self.keep(seen)).cpu())

    @property
    def recorded(self) -> dict[str, Tensor]:
        """What was kept of the activations, by hook name."""
        return {name: rows.all for name, rows in self._kept.items()}

    def results(self) -> dict[str, Result]:
        """The same as arrays."""
        return {
            name: make_array(
                t.numpy(),
                {
                    "prompt" if i == 0 else f"axis {i}": tuple(range(n))
                    for i, n in enumerate(t.shape)
                },
            )
            for name, t in self.recorded.items()
        }
