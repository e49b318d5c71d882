"""A context put into weights: an update of the last MLP's first matrix, and of a bias."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from icl_interp.interventions.base import Hook, Intervention
from icl_interp.models.hooked import HookedModel


def read_by_mlp(cfg: Any) -> str:
    """The hook that shows what the last MLP's first matrix reads: behind its norm, if it has one.

    Of an adapted module, whose norms nobody knows, it is asked for by the name behind a norm.

    >>> from icl_interp.models.config import HookedTransformerConfig
    >>> read_by_mlp(HookedTransformerConfig(n_layers=2, d_model=8))
    'blocks.1.ln2.hook_out'
    """
    place = "ln2.hook_out" if cfg.sublayers_read_normed else "hook_resid_mid"
    return f"blocks.{cfg.n_layers - 1}.{place}"


@dataclass(frozen=True)
class ImplicitUpdate(Intervention):
    """Add `column row'` to the last MLP's W and `bias` to what the MLP writes, prompt by prompt.

    Prompt i gets the i-th update. Source: Dherin et al. (2025), Theorem 2.2.

    Attributes:
        column, row: of the update of W.
        bias: added to what the MLP writes.
        hidden: added to the hidden units beside the update. The derivative of a prediction in it is
            that in the units before the activation.

    >>> import torch
    >>> from icl_interp import HookedTransformer, HookedTransformerConfig, intervene
    >>> model = HookedTransformer(HookedTransformerConfig(n_layers=1, d_model=8, d_mlp=4)).eval()
    >>> nothing = ImplicitUpdate(torch.zeros(1, 4), torch.ones(1, 8), torch.zeros(1, 8))
    >>> before = model(torch.ones(1, 1, 1))
    >>> with intervene(model, nothing):
    ...     torch.equal(model(torch.ones(1, 1, 1)), before)
    True
    """

    column: Float[Tensor, "batch d_mlp"]
    row: Float[Tensor, "batch d_model"]
    bias: Float[Tensor, "batch d_model"]
    hidden: Float[Tensor, "batch d_mlp"] | float = 0.0

    def hooks(self, model: HookedModel) -> list[Hook]:
        """What W reads is remembered, and its hidden units and the MLP's output are added to."""
        read: list[Tensor] = []
        last = f"blocks.{model.cfg.n_layers - 1}."

        def remember(t: Tensor, hook: object) -> None:
            read[:] = [t]

        def update(t: Tensor, hook: object) -> Tensor:
            along = (read[0] * self.row[:, None]).sum(-1, keepdim=True)
            own = self.hidden[:, None] if isinstance(self.hidden, Tensor) else self.hidden
            return t + along * self.column[:, None] + own

        hooks: list[tuple[str, Callable[..., Tensor | None]]] = [
            (read_by_mlp(model.cfg), remember),
            (last + "mlp.hook_pre", update),
            (last + "hook_mlp_out", lambda t, hook: t + self.bias[:, None]),
        ]
        return hooks
