"""Models made to mislead verdicts: they predict by a rule that a test writes down.

All ways to run such a model agree, so that none of them is refused as two functions under one name.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from icl_interp.models.attention import KeysValues
from icl_interp.models.transformer import HookedTransformer
from icl_interp.testing.beside import Covered

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
