"""Norms and the MLP, with TransformerLens' hook and weight names."""

import math
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.hooks import HookPoint, listened
from icl_interp.products import linear


def gelu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """x P(Z <= x) with Z standard normal, which is x (1 + erf(x / sqrt 2)) / 2.

    In float64 torch's own kernel is faster or slower than this, by processor: 1.6 to 3.6 ns a
    number against 2.1 to 3.7 on one; on another it took 25, and erfc 8. Both round by about 1e-16
    |x|.

    Source: Hendrycks & Gimpel (2016), Gaussian error linear units.

    >>> x = torch.linspace(-6, 6, 13, dtype=torch.float64)
    >>> torch.allclose(gelu(x), F.gelu(x), rtol=0, atol=1e-14)
    True
    """
    if x.dtype != torch.float64:
        return F.gelu(x)
    scaled = math.sqrt(0.5) * x
    if torch.is_grad_enabled():
        return x * (1 + torch.erf(scaled)) * 0.5
    # The same numbers, in one tensor instead of four.
    return scaled.erf_().add_(1).mul_(x).mul_(0.5)


# A partial and not a lambda, which would keep a whole model from being pickled.
ACTIVATIONS = {"gelu": gelu, "gelu_new": partial(F.gelu, approximate="tanh"), "relu": F.relu}


class Norm(nn.Module):
    """LayerNorm ("LN"), LayerNorm without gain and bias ("LNPre"), or root mean square ("RMS").

    "RMS" has a gain only.

    `hook_scale` is what the centred input is divided by; `hook_normalized` comes before the gain
    and bias (as in TransformerLens 4), `hook_out` after them. The variance is the biased one.
    """

    w: Float[Tensor, " d_model"] | None
    b: Float[Tensor, " d_model"] | None

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.centred = cfg.normalization_type != "RMS"
        self.eps = cfg.eps
        self.w = None
        self.b = None
        if cfg.normalization_type != "LNPre":
            self.w = nn.Parameter(torch.ones(cfg.d_model))
        if cfg.normalization_type == "LN":
            self.b = nn.Parameter(torch.zeros(cfg.d_model))
        self.hook_scale = HookPoint()
        self.hook_normalized = HookPoint()
        self.hook_out = HookPoint()

    def forward(
        self, x: Float[Tensor, "batch token d_model"]
    ) -> Float[Tensor, "batch token d_model"]:
        """Normalise each token's vector."""
        unread = not (listened(self.hook_scale) or listened(self.hook_normalized))
        # Training: gain and bias in the same kernel.
        if self.centred and unread and torch.is_grad_enabled():
            out = F.layer_norm(x, x.shape[-1:], self.w, self.b, self.eps)
            return self.hook_out(out)
        out = self.hook_normalized(self._normalized(x))
        if self.w is not None:
            out = out * self.w if self.b is None else torch.addcmul(self.b, out, self.w)
        return self.hook_out(out)

    def unhooked(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """What `forward` makes of vectors where nothing is attached to its hook points."""
        if self.centred:
            return F.layer_norm(x, x.shape[-1:], self.w, self.b, self.eps)
        out = x / self._rms(x)
        return out if self.w is None else out * self.w

    def _rms(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch 1"]:
        """The root of the mean square of each vector."""
        mean_square = x.pow(2).mean(-1, keepdim=True)
        return (mean_square + self.eps).sqrt()

    def _normalized(
        self, x: Float[Tensor, "batch token d_model"]
    ) -> Float[Tensor, "batch token d_model"]:
        """The centred input, divided by what `hook_scale` gives.

        With gradients off torch's kernel does both, several times as fast as step by step. Only
        where a listener replaced the scale it is divided anew: one that only reads leaves every
        output bit-identical.
        """
        if torch.is_grad_enabled() or not self.centred:
            if self.centred:
                x = x - x.mean(-1, keepdim=True)
            return x / self.hook_scale(self._rms(x))
        normalized, mean, inverse = torch.native_layer_norm(x, x.shape[-1:], None, None, self.eps)
        if not listened(self.hook_scale):
            return normalized
        scale = inverse.reciprocal()
        divisor = self.hook_scale(scale.clone())
        if not isinstance(divisor, Tensor):  # a listener may return a number
            divisor = scale.new_tensor(divisor)
        if torch.equal(divisor, scale):
            return normalized
        return torch.where(divisor == scale, normalized, (x - mean) / divisor)


class TanhNorm(nn.Module):
    """gain * tanh(alpha x) + bias with one learned alpha.

    It bounds the stream as a norm does, but computes no statistics.

    There is no scale that a token's vector is divided by, hence no `hook_scale`, and nothing for an
    analysis of scales to read or freeze. `hook_normalized` is tanh(alpha x), `hook_out` follows the
    gain and bias. Source: Zhu, Chen, He, LeCun & Liu (2025), *Transformers without
    normalization* (their DyT), alpha starting at 0.5.
    """

    alpha: Float[Tensor, ""]
    w: Float[Tensor, " d_model"]
    b: Float[Tensor, " d_model"]

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(0.5))
        self.w = nn.Parameter(torch.ones(cfg.d_model))
        self.b = nn.Parameter(torch.zeros(cfg.d_model))
        self.hook_normalized = HookPoint()
        self.hook_out = HookPoint()

    def forward(
        self, x: Float[Tensor, "batch token d_model"]
    ) -> Float[Tensor, "batch token d_model"]:
        """Squash each coordinate."""
        normalized = self.hook_normalized((self.alpha * x).tanh())
        return self.hook_out(normalized * self.w + self.b)

    def unhooked(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """What `forward` makes of vectors where nothing is attached to its hook points."""
        return (self.alpha * x).tanh() * self.w + self.b


def make_norm(cfg: HookedTransformerConfig) -> Norm | TanhNorm:
    """The norm that the config asks for."""
    return TanhNorm(cfg) if cfg.normalization_type == "Tanh" else Norm(cfg)


class MLP(nn.Module):
    """One hidden layer: act(x W_in + b_in) W_out + b_out, times `residual_scale`."""

    W_in: Float[Tensor, "d_model d_mlp"]
    b_in: Float[Tensor, " d_mlp"]
    W_out: Float[Tensor, "d_mlp d_model"]
    b_out: Float[Tensor, " d_model"]

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.act = ACTIVATIONS[cfg.act_fn]
        self.factor = cfg.residual_scale
        self.W_in = nn.Parameter(torch.empty(cfg.d_model, cfg.mlp_width))
        self.b_in = nn.Parameter(torch.zeros(cfg.mlp_width))
        self.W_out = nn.Parameter(torch.empty(cfg.mlp_width, cfg.d_model))
        self.b_out = nn.Parameter(torch.zeros(cfg.d_model))
        self.hook_pre = HookPoint()
        self.hook_post = HookPoint()

    def forward(
        self, x: Float[Tensor, "batch token d_model"]
    ) -> Float[Tensor, "batch token d_model"]:
        """The MLP's addition to the residual stream."""
        before = self.hook_pre(linear(x, self.W_in.T, self.b_in))
        hidden = self.hook_post(self.act(before))
        out = linear(hidden, self.W_out.T, self.b_out)
        return out if self.factor == 1 else self.factor * out
