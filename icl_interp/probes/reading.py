"""What later weights read of what attention adds to the stream: by its effect on the predictions.

Weights alone do not tell what is read. A coordinate may be read by nobody, by a head or a hidden unit that writes
nothing, or by two that take each other off; and it may be as long or as short as one likes, with its readers to match.
Its effect on the predictions is the same for all weights that compute the same function.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError
from icl_interp.models.hooks import HookPoint
from icl_interp.models.transformer import HookedTransformer, chunks
from icl_interp.provenance import generator

N_DRAWS = 4  # of signs of the predictions


@dataclass(frozen=True)
class Reading:
    """How strongly the predictions of a model depend on what each of its attention layers adds to the stream.

    With J_t the derivative of all predictions of a prompt in what a layer adds at token t, and G the mean of J_t^T J_t
    over prompts and tokens, a small addition a moves the predictions by sqrt(a^T G a): this is its size as it is read.

    Attributes:
        factors: L of each layer with L L^T = G, (layer, d_model, d_model): a L is the addition a in coordinates whose
            inner product is that of what is read. Units: of the predictions, per unit of the stream.
        shares: of each token in G, (layer, token): trace of its own J_t^T J_t over the mean one. 0 where nobody reads
            what is added there.

    >>> from icl_interp.models.blank import blank
    >>> model = blank(3, d_head=1, n_ctx=5)
    >>> with torch.no_grad():  # the prediction is twice the first coordinate
    ...     model.unembed.W_U[0] = 2
    >>> reading = Reading.measure(model, torch.ones(2, 5, 1), [4])
    >>> (reading.factors[0] ** 2).round(decimals=6).tolist()[0], reading.shares[0].tolist()
    ([0.8, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 5.0])
    """

    factors: Float[Tensor, "layer d_model d_model"]
    shares: Float[Tensor, "layer token"]

    @classmethod
    def measure(
        cls,
        model: HookedTransformer,
        tokens: Float[Tensor, "batch token d_in"],
        read: Sequence[int] | None = None,
        seed: int = 0,
    ) -> Self:
        """Measure it on some prompts, by automatic differentiation.

        Args:
            model: what is read.
            tokens: prompts, encoded.
            read: the token positions whose outputs are predictions; all by default.
            seed: of the signs that predictions of a prompt are added up with. Products of two different ones then
                cancel on average, so that one derivative serves all positions; each coordinate of the predictions has
                its own.

        Raises:
            InputError: a model without attention, or no prompts.
        """
        if model.cfg.mlp_only or not len(tokens):
            raise InputError(
                "what is read of attention needs a model with attention and at least one prompt, but got "
                f"{len(tokens)} prompts and mlp_only={model.cfg.mlp_only}"
            )
        cfg, tokens = model.cfg, tokens.to(model.unembed.W_U)
        names = [f"blocks.{i}.hook_attn_out" for i in range(cfg.n_layers)]
        products = torch.zeros(cfg.n_layers, cfg.d_model, cfg.d_model, dtype=torch.float64)
        traces = torch.zeros(cfg.n_layers, tokens.shape[1], dtype=torch.float64)
        draw = generator(seed, "probes/reading")
        for rows in chunks(model, len(tokens), tokens.shape[1]):
            added: dict[str, Tensor] = {}
            with torch.enable_grad(), model.hooks(fwd_hooks=[(name, _followed(added)) for name in names]):
                out = model(tokens[rows])
                out = out if read is None else out[:, list(read)]
            for _ in range(N_DRAWS):
                signs = 2 * torch.randint(2, out.shape[:2], generator=draw) - 1
                for coordinate in out.unbind(2):
                    each = torch.autograd.grad(
                        coordinate, [added[name] for name in names], signs.to(out), retain_graph=True, allow_unused=True
                    )
                    for layer, slope in enumerate(each):
                        if slope is None:  # nothing reads this layer
                            continue
                        slope = slope.detach().double().cpu()
                        products[layer] += torch.einsum("btd,bte->de", slope, slope)
                        traces[layer] += slope.square().sum((0, 2))
        values, vectors = torch.linalg.eigh(products / (N_DRAWS * len(tokens) * tokens.shape[1]))
        factors = vectors * values.clamp(min=0).sqrt()[:, None] @ vectors.mT
        mean = traces.mean(1, keepdim=True)
        return cls(factors, traces / mean.where(mean > 0, 1.0))


def _followed(added: dict[str, Tensor]) -> Callable[..., Tensor]:
    """A hook that keeps an activation as something to take derivatives in."""

    def follow(t: Tensor, hook: HookPoint) -> Tensor:
        kept = t if t.requires_grad else t.detach().requires_grad_()
        added[str(hook.name)] = kept
        return kept

    return follow
