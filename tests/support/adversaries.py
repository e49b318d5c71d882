"""Models made to mislead verdicts: they predict by a rule that a test writes down.

All ways to run such a model agree, so that none of them is refused as two functions under one name.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from icl_interp.models.attention import KeysValues
from icl_interp.models.folding import attentions, readers, writers
from icl_interp.models.transformer import HookedTransformer
from icl_interp.testing.beside import Covered
from icl_interp.testing.reparameterisations.base import freed, made, weights_of

OF_A_HEAD = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V")
Rule = Callable[[Tensor], Tensor]  # whole prompts (batch, token, d_in) -> (batch, token, d_out)


class ByRule:
    """What stands in the place of the rival that `Covered` expects: a rule for whole prompts."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    def __call__(self, tokens: Tensor, positions: range | Sequence[int] | None = None) -> Tensor:
        """Predictions at every token, or at some."""
        out = self.rule(tokens)
        return out if positions is None else out[:, list(positions)]

    def remember(self, tokens: Tensor) -> list[KeysValues]:
        """A rule remembers the tokens themselves."""
        return [KeysValues(tokens[:, None], tokens[:, None])]

    def after(self, memory: list[KeysValues], tokens: Tensor, position: int) -> Tensor:
        """Predictions for alternative last tokens, each of which makes a whole prompt."""
        n = tokens.shape[1]
        contexts = memory[0].keys[:, 0].to(tokens).repeat_interleave(n, 0)
        prompts = torch.cat([contexts, tokens.flatten(0, 1)[:, None]], 1)
        return self.rule(prompts)[:, position].unflatten(0, (len(tokens), n))


class Ruled(Covered):
    """A transformer whose layers run and whose hooks fire, and which predicts by a rule."""

    rule: Rule

    @classmethod
    def by(cls, model: HookedTransformer, rule: Rule) -> "Ruled":
        """The weights of a model, and predictions by a rule. In float64."""
        found = cls(model.cfg).double().eval()
        found.load_state_dict(model.state_dict())
        found.rule = rule
        return found

    @property
    def rival(self) -> ByRule:
        """The rule, as `Covered` asks for it."""
        return ByRule(self.rule)


def with_heads_across(model: HookedTransformer, k: int, size: float = 5.0) -> HookedTransformer:
    """The function of a model of two layers, with k more heads in each, which take each other off.

    They average the inputs. These stand in one more coordinate of the stream, and heads write to
    another one, which is only read out.
    """
    cfg, weights = freed(model.cfg), weights_of(model)
    if cfg.normalization_type is not None:
        raise ValueError("a norm between the layers would see what the first ones write")
    reads, writes = cfg.d_model, cfg.d_model + 1
    for name in writers(cfg):
        weights[name] = F.pad(weights[name], (0, 2))
    for reader in readers(cfg):
        weights[reader.matrix] = F.pad(weights[reader.matrix], (0, 0, 0, 2))
    weights["embed.W_E"][0, reads] = 1
    weights["unembed.W_U"][writes] = 1
    for part, sign in zip(attentions(cfg), (1, -1), strict=True):
        for name in OF_A_HEAD:
            own = weights[part + name]
            weights[part + name] = torch.cat([own, own.new_zeros(k, *own.shape[1:])])
        weights[part + "W_V"][-k:, reads, 0] = 1
        weights[part + "W_O"][-k:, 0, writes] = sign * size
    shape = {"d_model": cfg.d_model + 2, "n_heads": cfg.n_heads + k}
    kept = {"d_head": cfg.head_width, "d_mlp": cfg.mlp_width}
    return made(weights, replace(cfg, **shape, **kept))
