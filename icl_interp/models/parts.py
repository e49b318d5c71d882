"""Parts of a model by name: what writes to the stream, and what reads it."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError
from icl_interp.models.hooked import HookedModel

READ_IN = "read-in"
READ_OUT = "read-out"


class Part(NamedTuple):
    """A writer or a reader.

    Attributes:
        hook: where its activation passes.
        head: which of the heads at that hook; None where there is one part.
        depth: of sublayers that come before it: a reader reads the writers of less depth.
    """

    hook: str
    head: int | None
    depth: int

    @property
    def block(self) -> int:
        """The block whose hook it is."""
        return int(self.hook.split(".")[1])

    def of(self, activation: Float[Tensor, "batch token *part"]) -> Float[Tensor, "batch token _"]:
        """Its own activation out of all at the hook."""
        if self.head is None:
            return activation
        return activation[:, :, self.head]


def writing_parts(model: HookedModel) -> dict[str, Part]:
    """What would write to the stream, were it a sum: see `edges.writers`."""
    cfg = model.cfg
    found = {READ_IN: Part("blocks.0.hook_resid_pre", None, -1)}
    for i in range(cfg.n_layers):
        if "attn" in model.sublayer_kinds:
            for head in range(n_heads(model)):
                part = Part(f"blocks.{i}.attn.hook_result", head, 2 * i)
                found[f"head {i}.{head}"] = part
        if "mlp" in model.sublayer_kinds:
            found[f"MLP {i}"] = Part(f"blocks.{i}.hook_mlp_out", None, 2 * i + 1)
    return found


def reading_parts(model: HookedModel) -> dict[str, Part]:
    """What would read the stream, were it a sum: see `edges.readers`."""
    cfg = model.cfg
    found = {}
    for i in range(cfg.n_layers):
        if "attn" in model.sublayer_kinds:
            for letter in "qkv":
                for head in range(n_heads(model)):
                    part = Part(f"blocks.{i}.hook_{letter}_input", head, 2 * i)
                    found[f"head {i}.{head} {letter}"] = part
        if "mlp" in model.sublayer_kinds:
            found[f"MLP {i}"] = Part(f"blocks.{i}.hook_mlp_in", None, 2 * i + 1)
    last = max(cfg.n_layers - 1, 0)
    found[READ_OUT] = Part(f"blocks.{last}.hook_resid_post", None, 2 * cfg.n_layers)
    return found


def n_heads(model: HookedModel) -> int:
    """Heads of a layer; one, to ask for its hook by name, where nobody named any of a module."""
    try:
        return model.cfg.n_heads
    except InputError:
        return 1
