"""What later weights read of what attention adds to the stream: by its effect on the predictions.

Weights alone do not tell what is read. A coordinate may be read by nobody, by a head or a hidden
unit that writes nothing, or by two that take each other off; and it may be as long or as short as
one likes, with its readers to match. Its effect on the predictions is the same for all weights that
compute the same function.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from icl_interp.errors import InputError
from icl_interp.interventions.patching import hooks_of
from icl_interp.models.hooked import HookedModel
from icl_interp.models.hooks import HookPoint
from icl_interp.models.transformer import chunks
from icl_interp.provenance import generator
from icl_interp.reductions import Gram

N_DRAWS = 8  # of signs of the predictions


@dataclass(frozen=True)
class Reading:
    """How strongly a model's predictions depend on what each attention layer adds to the stream.

    With J_t the derivative of all predictions of a prompt in what a layer adds at token t, and G
    the mean of J_t^T J_t over prompts and tokens, a small addition a moves the predictions by
    sqrt(a^T G a): this is its size as it is read.

    Attributes:
        factors: L of each layer with L L^T = G, (layer, d_model, d_model): a L is the addition a in
            coordinates whose inner product is that of what is read. Units: of the predictions, per
            unit of the stream.
        shares: how much each token is read beside the mean token, (layer, token): the squared
            movement that additions like those of the whole layer make there, over its mean. 0 where
            nobody reads what is added.

    >>> from icl_interp.models.blank import blank
    >>> model = blank(3, d_head=1, n_ctx=5)
    >>> attn = model.blocks[0].attn
    >>> # The prediction is twice the first coordinate; attention writes the mean token to it.
    >>> with torch.no_grad():
    ...     _ = [weight[..., 0].fill_(1) for weight in (model.embed.W_E, attn.W_V[0, :1], attn.W_O)]
    ...     model.unembed.W_U[0] = 2
    >>> reading = Reading.measure(model, torch.randn(9, 5, 1), [4])
    >>> (reading.factors[0] ** 2).round(decimals=6).tolist()[0], reading.shares[0].tolist()
    ([0.8, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 5.0])
    """

    factors: Float[Tensor, "layer d_model d_model"]
    shares: Float[Tensor, "layer token"]

    @classmethod
    def measure(
        cls,
        model: HookedModel,
        tokens: Float[Tensor, "batch token d_in"],
        read: Sequence[int] | None = None,
        seed: int = 0,
    ) -> Self:
        """Measure it on some prompts, by automatic differentiation.

        Args:
            model: what is read.
            tokens: prompts, encoded.
            read: the token positions whose outputs are predictions; all by default.
            seed: of the signs that predictions of a prompt are added up with. Products of two
                different ones then cancel on average, so that one derivative serves all positions;
                each coordinate of the predictions has its own.

        Raises:
            InputError: a model without attention, an adapted module without `hook_attn_out`, or no
                prompts.
        """
        if model.cfg.mlp_only or not len(tokens):
            raise InputError(
                "what is read of attention needs a model with attention and at least one prompt, "
                f"but got {len(tokens)} prompts and mlp_only={model.cfg.mlp_only}"
            )
        cfg = model.cfg
        tokens = tokens.to(model.numbers)
        n_prompts, n_tokens, _ = tokens.shape
        names = hooks_of("attn_out", model)
        written = _covariances(model, tokens, names)
        products = torch.zeros(cfg.n_layers, cfg.d_model, cfg.d_model, dtype=torch.float64)
        moved = torch.zeros(cfg.n_layers, n_tokens, dtype=torch.float64)
        # Drawn for all prompts at once: how many run together must not matter.
        n_read = n_tokens if read is None else len(read)
        draw = generator(seed, "probes/reading")
        signs = 2 * torch.randint(2, (N_DRAWS, n_prompts, n_read), generator=draw) - 1
        for rows in chunks(model, n_prompts, n_tokens):
            added: dict[str, Tensor] = {}
            follow = _followed(added)
            with torch.enable_grad():
                with model.hooks(fwd_hooks=[(name, follow) for name in names]):
                    out = model(tokens[rows])
                out = out if read is None else out[:, list(read)]
                places = [added[name] for name in names]
                for of_draw in signs[:, rows]:
                    for coordinate in out.unbind(2):
                        slopes = torch.autograd.grad(
                            coordinate,
                            places,
                            of_draw.to(out),
                            retain_graph=True,
                            allow_unused=True,
                        )
                        for layer, slope in enumerate(slopes):
                            if slope is None:  # nothing reads this layer
                                continue
                            slope = slope.double().cpu()
                            products[layer] += torch.einsum("btd,bte->de", slope, slope)
                            moved[layer] += (slope @ written[layer] * slope).sum((0, 2))
        # Of predictions that are no numbers nothing is known: nothing counts as read.
        products = (products / (N_DRAWS * n_prompts * n_tokens)).nan_to_num(0, 0, 0)
        values, vectors = torch.linalg.eigh(products)
        factors = vectors * values.clamp(min=0).sqrt()[:, None] @ vectors.mT
        moved = moved.nan_to_num(0, 0, 0)
        mean = moved.mean(1, keepdim=True)
        return cls(factors, moved / mean.where(mean > 0, 1.0))


def _covariances(
    model: HookedModel, tokens: Float[Tensor, "batch token d_in"], names: list[str]
) -> list[Float[Tensor, "d_model d_model"]]:
    """The covariance of what each layer adds, about its mean at each token."""
    grams: dict[str, Gram] = {}

    def read(t: Tensor, hook: HookPoint) -> None:
        grams[str(hook.name)].update(t)

    hooks = []
    for name in names:
        grams[name] = Gram()
        hooks.append((name, read))
    with torch.no_grad():
        for rows in chunks(model, len(tokens), tokens.shape[1]):
            with model.hooks(fwd_hooks=hooks):
                model(tokens[rows])
    return [gram.covariance.double().cpu() for gram in grams.values()]


def _followed(added: dict[str, Tensor]) -> Callable[..., Tensor]:
    """A hook that keeps an activation as something to take derivatives in."""

    def follow(t: Tensor, hook: HookPoint) -> Tensor:
        # A copy, so that an adapted module goes on with it, also where it was cut out of another.
        kept = t.clone() if t.requires_grad else t.detach().requires_grad_()
        added[str(hook.name)] = kept
        return kept

    return follow
