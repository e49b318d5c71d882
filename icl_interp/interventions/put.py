"""Replace activations by given values: those of other prompts, or any that are given for heads."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, Self

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError, several
from icl_interp.interventions.base import Hook, Intervention, by_layer
from icl_interp.models.hooked import HookedModel
from icl_interp.models.hooks import token_axis
from icl_interp.models.transformer import model_in, tokens_in


@dataclass(frozen=True)
class PutActivations(Intervention):
    """Replace whole activations by those of other prompts, for example the keys of a layer.

    Assumes that the other prompts have the same number of tokens, and that prompt i is to get what
    the i-th has. `PutPatterns` does this for attention patterns by layer; `patch` takes one place
    at a time from a clean prompt.

    Source: Vig et al. (2020), *Investigating gender bias in language models using causal mediation
    analysis*; Geiger, Lu, Icard & Potts (2021), *Causal abstractions of neural networks*, calls it
    an interchange intervention.

    Attributes:
        values: by hook, what replaces its activation: `(batch, token, ...)`; for scores and
            patterns `(batch, head, query, key)`.

    Raises:
        InputError: in a run, where the shape of a value is not that of the activation it replaces.

    The stream before the last block decides the output, so with that of other prompts the model
    answers them:

    >>> import torch
    >>> from icl_interp import HookedTransformer, HookedTransformerConfig, intervene
    >>> config = HookedTransformerConfig(n_layers=2, d_model=8, n_heads=2, init_std=1.0)
    >>> model = HookedTransformer(config).eval()
    >>> tokens = torch.linspace(-1, 1, 10).reshape(2, 5, 1)
    >>> others = 3 * tokens
    >>> wanted = model(others)
    >>> with intervene(model, PutActivations.measure(model, others, ["blocks.1.hook_resid_pre"])):
    ...     torch.allclose(model(tokens), wanted, atol=1e-5)
    True
    """

    values: Mapping[str, Float[Tensor, "batch ..."]]

    @classmethod
    def measure(
        cls, model: HookedModel, tokens: Float[Tensor, "batch token d_in"], names: Sequence[str]
    ) -> Self:
        """What these prompts show at the hooks named.

        Raises:
            InputError: the model has no hook of a name.
        """
        names = several(names, "names of hooks")
        inputs = tokens_in(tokens, model)
        with torch.no_grad():
            _, cache = model_in(model).run_with_cache(inputs, names_filter=list(names))
        return cls({name: cache[name] for name in names})

    def hooks(self, model: HookedModel) -> list[Hook]:
        """One for each value."""
        hooks: list[Hook] = []
        for name, value in self.values.items():
            hooks.append((name, _put(name, value)))
        return hooks

    def at_query(self) -> NoReturn:
        """Refused: values cover all tokens of a prompt.

        Raises:
            InputError: always.
        """
        where = ", ".join(self.values)
        raise _whole_prompts_only(f"values kept at {where}")


def _put(name: str, value: Tensor) -> Callable[..., Tensor]:
    what = "patterns" if name.endswith("hook_pattern") else f"activations at {name}"
    axes = "(batch, head, query, key)" if token_axis(name) == 2 else "(batch, token, ...)"

    def edit(t: Tensor, hook: object) -> Tensor:
        if value.shape != t.shape:
            raise InputError(
                f"{what} of shape {tuple(value.shape)} {axes} cannot replace those of shape "
                f"{tuple(t.shape)}: measure them on as many prompts of the same length"
            )
        return value.to(t)

    return edit


def _whole_prompts_only(what: str) -> InputError:
    return InputError(
        f"{what} belong to whole prompts, and cannot act on last tokens that are read apart from "
        "their context: run whole prompts under `intervene`"
    )


@dataclass(frozen=True)
class PutHeadOutputs(Intervention):
    """Replace what heads of one layer make of the values, their `hook_z`, each at one position.

    Assumes that row i of `outputs` is meant for prompt i of the run. Other heads and other
    positions are left alone.

    Attributes:
        layer: of the heads.
        heads: which, one for each replacement. A head may be named again, at another position.
        outputs: what is put there, before the head's W_O: `(batch, edit, d_head)`.
        positions: at which token, one for each replacement; negative ones count from the last.

    Raises:
        InputError: the numbers of heads, outputs and positions differ; the model has no such head;
            or in a run, where the outputs are those of another number of prompts or of another
            width, or a position is not in the prompt.

    A head's own outputs change nothing:

    >>> import torch
    >>> from icl_interp import HookedTransformer, HookedTransformerConfig, intervene
    >>> config = HookedTransformerConfig(n_layers=1, d_model=8, n_heads=2, init_std=1.0)
    >>> model = HookedTransformer(config).eval()
    >>> tokens = torch.linspace(-1, 1, 10).reshape(2, 5, 1)
    >>> before, cache = model.run_with_cache(tokens)
    >>> own = cache["blocks.0.attn.hook_z"][:, -1]  # (batch, head, d_head)
    >>> with intervene(model, PutHeadOutputs(0, heads=[0, 1], outputs=own, positions=[-1, -1])):
    ...     torch.allclose(model(tokens), before, atol=1e-5)
    True
    """

    layer: int
    heads: Sequence[int]
    outputs: Float[Tensor, "batch edit d_head"]
    positions: Sequence[int]

    def __post_init__(self) -> None:
        n_outputs = self.outputs.shape[1]
        n_heads = len(self.heads)
        n_positions = len(self.positions)
        if not n_heads == n_positions == n_outputs:
            raise InputError(
                f"each output needs a head and a position, but got {n_outputs} outputs, "
                f"{n_heads} heads and {n_positions} positions"
            )

    def hooks(self, model: HookedModel) -> list[Hook]:
        """One, at what the layer's heads make of the values."""
        # Refuses heads that do not exist.
        by_layer(model, [(self.layer, head) for head in self.heads])
        return [(f"blocks.{self.layer}.attn.hook_z", self._edit)]

    def at_query(self) -> NoReturn:
        """Refused, because `positions` are those of whole prompts.

        Last tokens that are read alone stand side by side, so positions mean nothing there.

        Raises:
            InputError: always.
        """
        raise _whole_prompts_only(f"outputs of heads at positions {tuple(self.positions)}")

    def _edit(self, z: Float[Tensor, "batch token head d_head"], hook: object) -> Tensor:
        n_prompts, n_tokens, _, d_head = z.shape
        if len(self.outputs) != n_prompts or self.outputs.shape[-1] != d_head:
            raise InputError(
                f"outputs of shape {tuple(self.outputs.shape)} (batch, edit, d_head) do not fit "
                f"heads of shape {tuple(z.shape)} (batch, token, head, d_head): give one for each "
                "prompt of the run"
            )
        for position in self.positions:
            if not -n_tokens <= position < n_tokens:
                raise InputError(
                    f"positions {tuple(self.positions)} are not all within the {n_tokens} tokens"
                )
        edited = z.clone()
        outputs = self.outputs.unbind(1)
        for head, position, output in zip(self.heads, self.positions, outputs, strict=True):
            edited[:, position, head] = output.to(z)
        return edited
