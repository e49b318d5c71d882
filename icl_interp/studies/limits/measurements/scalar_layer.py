"""Appendix G.1 on a model's own weights: its one attention layer on scalar tokens, closed form.

Naim & Asher (2025) reduce a head to alpha_h and zeta_h. `heads_of` reads them off a model,
`layer_of` reads biases and positions as well, `far_output` says what the model's output becomes far
out, `agreement` puts both beside the model's own forward pass, and `paper_sums` does so for the
paper's three sums as printed. Everything runs in float64.
"""

import copy
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pandas import DataFrame
from torch import Tensor

from icl_interp.errors import InputError
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.layers import Norm
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.base import observe
from icl_interp.probes.record import Activations
from icl_interp.results import make_table
from icl_interp.theory import limits as theory

Context = Float[Tensor, " token"]
ATTENTION, HEADS = "blocks.0.hook_attn_out", "blocks.0.attn.hook_result"
VARIANCE_AT = (
    1e3,
    1e5,
)  # where the growth of the variance is fitted: past the intercept, before rounding
MEASURE = "measure instead (limits.linear_asymptote, limits.layernorm_saturation)"


class FarOutput(NamedTuple):
    """f far out in one direction: x slope + constant + correction / |x|, up to smaller terms."""

    slope: Float[Tensor, " d_out"]
    constant: Float[Tensor, " d_out"]
    correction: Float[Tensor, " d_out"]


def layer_of(model: HookedTransformer, n_tokens: int) -> theory.ScalarLayer:
    """The closed form of the model's attention layer, for prompts of `n_tokens`.

    Biases and positions are included.

    Raises:
        InputError: the model is not one softmax attention layer on scalar tokens that reads the
            stream as it is, or its context is shorter than the prompts.
    """
    _check(model)
    cfg = model.cfg
    if not 1 <= n_tokens <= cfg.n_ctx:
        raise InputError(
            f"n_tokens must lie between 1 and this model's n_ctx={cfg.n_ctx}, but got {n_tokens}"
        )
    embed, attn = model.embed, model.blocks[0].attn
    shifts = embed.b_E.detach().double().cpu().expand(n_tokens, -1)
    if cfg.positional_embedding_type == "standard":
        shifts = shifts + model.pos_embed.W_pos[:n_tokens].detach().double().cpu()
    weights, biases = (
        tuple(getattr(attn, f"{kind}_{letter}").detach().double().cpu() for letter in "QKVO")
        for kind in "Wb"
    )
    return theory.ScalarLayer.of_weights(
        embed.W_E[0].detach().double().cpu(), shifts, weights, biases, scale=float(attn.scale)
    )


def heads_of(model: HookedTransformer) -> theory.Heads:
    """alpha_h and zeta_h of every head, for a model as Appendix G.1 has it.

    Such a model has no biases and no positions. The scaling of scores, where the model has one, is
    in alpha_h.

    Raises:
        InputError: as `layer_of`, and for a layer whose biases or positions are not 0, which
            `layer_of` can read.
    """
    _check(model)
    attn = model.blocks[0].attn
    added = {"embed.b_E": model.embed.b_E} | {
        f"attn.b_{letter}": getattr(attn, f"b_{letter}") for letter in "QKVO"
    }
    if model.cfg.positional_embedding_type == "standard":
        added["pos_embed.W_pos"] = model.pos_embed.W_pos
    present = [name for name, parameter in added.items() if bool((parameter != 0).any())]
    if present:
        raise InputError(
            "Appendix G.1 has neither biases nor positions, but in this model "
            f"{', '.join(present)} {'is' if len(present) == 1 else 'are'} not 0: use layer_of, "
            "which reads them too"
        )
    weights = (getattr(attn, f"W_{letter}").detach().double().cpu() for letter in "QKVO")
    return theory.scalar_heads(
        model.embed.W_E[0].detach().double().cpu(), *weights, scale=float(attn.scale)
    )


def far_output(model: HookedTransformer, context: Context, direction: int = 1) -> FarOutput:
    """What the model's output at the last token becomes as that token goes to +inf or -inf.

    Without a norm a line; with LayerNorm behind the layer a boundary value, and the correction by
    which a context still shows at finite x. Beside 1 / |x| nothing is left out but 1 / x^2, and
    what attention has not decided yet.

    Source: Naim & Asher (2025), Propositions 5 and 6, corrected.

    Raises:
        InputError: as `layer_of`.
    """
    line = layer_of(model, len(context) + 1).asymptote(context, direction)
    return _read_out(model, line, direction)


def agreement(
    model: HookedTransformer, contexts: Float[Tensor, "context token"], xs: Float[Tensor, " query"]
) -> DataFrame:
    """The closed form beside the model's own forward pass, a row for each last token x.

    Gaps are the largest over contexts.

    Columns: "attention" and "output", forward - decomposition, of what the layer adds to the stream
    and of f;
    "limit", forward - `far_output` of f; "pattern", the largest total variation distance of a
    head's attention weights from their limit, which says where a limit is not reached yet. Where
    alpha = 0 comes of vectors q and k that cancel, the model's own scores are their rounding times
    x^2, and the gaps show it from |x| ~ 1e4 on. At x = 0 there is no direction and "limit" means
    nothing.

    Raises:
        InputError: as `layer_of`.
    """
    layer = layer_of(model, contexts.shape[1] + 1)
    model, xs = _double(model), xs.double()
    names, rows = ("attention", "output", "limit", "pattern"), []
    for context in contexts.double():
        out, seen = _forward(model, context, xs, ATTENTION)
        patterns = layer.pattern(xs, context)
        limits = torch.stack([layer.limit_pattern(context, d)[:, None] for d in (1, -1)])
        limit = torch.where((xs > 0)[:, None], limits[0], limits[1])
        far = _far_values(
            model, [_read_out(model, layer.asymptote(context, d), d) for d in (1, -1)], xs
        )
        gaps = (
            seen - layer.output(xs, context),
            out - _finish(model, layer.stream(xs, context)),
            out - far,
        )
        variation = (patterns - limit).abs().sum(-1).amax(0) / 2
        rows.append(torch.stack([*(gap.abs().amax(-1) for gap in gaps), variation]))
    worst = torch.stack(rows).amax(0)
    columns = {"x": xs.tolist(), **dict(zip(names, worst.tolist(), strict=True))}
    return make_table(
        columns, note=f"largest absolute differences over {len(contexts)} contexts; float64"
    )


def paper_sums(model: HookedTransformer, context: Context, x: float = 100.0) -> DataFrame:
    """S1, S2, S3 and their sum with x W at +-x: the model's own, ours and the paper's.

    They are given as largest absolute differences. The last rows are of the variance over the
    width, whose growth exponent is 2 (Proposition 6 prints Var -> c |x|, exponent 1). Columns
    "ours" and "printed" are what the model does less what each formula says; "apart" is ours less
    printed. A sum over no head is 0 in all three.

    Source: Naim & Asher (2025), Appendix G.1. See `theory.limits.paper_attention_sums` for what is
    printed.

    Raises:
        InputError: as `heads_of`.
    """
    alphas, zetas = heads_of(model)
    model, context = _double(model), context.double()
    embed, rows = model.embed.W_E[0], []
    of_sign = {
        "S1 (alpha > 0)": alphas > 0,
        "S2 (alpha < 0)": alphas < 0,
        "S3 (alpha = 0)": alphas == 0,
    }
    for direction in (1, -1):
        at = direction * abs(x)
        _, written = _forward(model, context, torch.tensor([at]).double(), HEADS)
        measured = [written[0][chosen].sum(0) for chosen in of_sign.values()]
        ours, printed = (
            [at * line.slope + line.intercept for line in sums(alphas, zetas, context, direction)]
            for sums in (theory.attention_sums, theory.paper_attention_sums)
        )
        counts = [int(chosen.sum()) for chosen in of_sign.values()]
        values: list[tuple[Any, ...]] = [
            *zip(of_sign, counts, measured, ours, printed, strict=True)
        ]
        whole = [sum(parts) + at * embed for parts in (measured, ours, printed)]
        values.append(("Attn + x W", len(alphas), *whole))
        exponent = _variance_exponent(model, context, direction)
        values.append(
            ("exponent of Var", len(alphas), exponent, torch.tensor(2.0), torch.tensor(1.0))
        )
        rows += [(name, at, n, _gap(m, o), _gap(m, p), _gap(o, p)) for name, n, m, o, p in values]
    names = ("sum", "x", "heads", "ours", "printed", "apart")
    return make_table(
        dict(zip(names, zip(*rows, strict=True), strict=True)),
        note="largest absolute differences; float64",
    )


def _check(model: HookedTransformer) -> None:
    reason = why_not(model)
    if reason:
        raise InputError(
            f"the closed form is for one softmax attention layer on scalar tokens, but {reason}"
        )


def why_not(model: HookedTransformer) -> str | None:
    """Why the closed form does not hold for this model, and what to do instead; None if it does."""
    cfg = model.cfg
    if cfg.n_layers != 1:
        return (
            f"this model has n_layers={cfg.n_layers}: a later layer reads what an earlier one "
            f"wrote; {MEASURE}"
        )
    if cfg.mlp_only:
        return "this model is mlp_only: it has no attention"
    if not cfg.attn_only:
        return (
            "this model has an MLP behind it, which bends the line: make it attn_only, or "
            f"{MEASURE}"
        )
    if cfg.d_in != 1:
        return (
            f"a token of this model has d_in={cfg.d_in} numbers: use interleaved prompts with "
            "inputs of one number"
        )
    if cfg.positions_in_scores:
        return (
            "positions act on this model's scores (positional_embedding_type="
            f"{cfg.positional_embedding_type!r}): {MEASURE}"
        )
    if cfg.score_fn != "softmax":
        return (
            f"this model's score_fn is {cfg.score_fn!r}: see theory.scores for what it does far out"
        )
    if cfg.embed_bound is not None:
        return (
            f"this model reads tokens in as bounded vectors (embed_bound={cfg.embed_bound}): x W "
            "never grows"
        )
    return _norm_in_the_way(cfg)


def _norm_in_the_way(cfg: HookedTransformerConfig) -> str | None:
    """Why the closed form does not hold with this model's normalisation; None if it does."""
    if cfg.sublayers_read_normed:
        values = "theory.limits.plateau has its boundary values"
        return (
            f"this model normalises before the layer (norm_position={cfg.norm_position!r}), which "
            f"then does not read x W: {values if cfg.has_final_norm else MEASURE}"
        )
    if cfg.has_final_norm:
        return f"this model has a second norm behind the layer (final_norm=True): {MEASURE}"
    if cfg.norm_position == "output":
        return (
            "this model normalises what the layer writes (norm_position='output') and not the "
            f"stream behind it: {MEASURE}"
        )
    if cfg.normalization_type not in (None, "LN", "LNPre"):
        return (
            f"this model's normalization_type is {cfg.normalization_type!r}, not LayerNorm or "
            f"None: {MEASURE}"
        )
    return None


def _double(model: HookedTransformer) -> HookedTransformer:
    return copy.deepcopy(model).double().cpu().eval().requires_grad_(False)


def _forward(
    model: HookedTransformer, context: Context, xs: Tensor, name: str
) -> tuple[Tensor, Tensor]:
    """The output, and the activation of that name, at the last token of prompts (context, x)."""
    tokens = torch.cat([context.expand(len(xs), -1), xs[:, None]], dim=1)[..., None]
    seen = Activations([name])
    with torch.no_grad(), observe(model, seen, positions={"query": [tokens.shape[1] - 1]}):
        out = model(tokens)
    return out[:, -1], seen.recorded[name][:, 0]


def _norm(model: HookedTransformer) -> Norm:
    """The norm behind the layer, which `_check` lets be no other."""
    norm = model.blocks[0].ln1
    assert isinstance(norm, Norm)
    return norm


def _finish(model: HookedTransformer, stream: Tensor) -> Tensor:
    """f from the stream behind the layer: the norm there, if there is one, and the read-out."""
    if model.cfg.normalization_type:
        norm = _norm(model)
        stream = F.layer_norm(stream, stream.shape[-1:], norm.w, norm.b, norm.eps)
    return stream @ model.unembed.W_U + model.unembed.b_U


def _read_out(model: HookedTransformer, line: theory.Line, direction: int) -> FarOutput:
    """`FarOutput` of the stream's line."""
    read_out, bias = (w.detach().double().cpu() for w in (model.unembed.W_U, model.unembed.b_U))
    if not model.cfg.normalization_type:
        slope, constant = line.slope @ read_out, line.intercept @ read_out + bias
        return FarOutput(slope, constant, torch.zeros_like(bias))
    norm = _norm(model)
    one, zero = torch.ones_like(line.slope), torch.zeros_like(line.slope)
    gain, shift = (
        blank if w is None else w.detach().double().cpu()
        for w, blank in ((norm.w, one), (norm.b, zero))
    )
    limit, correction = theory.layernorm_far(
        line.slope, line.intercept, gain, shift, norm.eps, direction
    )
    return FarOutput(torch.zeros_like(bias), limit @ read_out + bias, correction @ read_out)


def _far_values(
    model: HookedTransformer, both: list[FarOutput], xs: Tensor
) -> Float[Tensor, "query d_out"]:
    x = xs[:, None]
    above, below = (far.slope * x + far.constant + far.correction / x.abs() for far in both)
    return torch.where(x > 0, above, below)


def _variance_exponent(model: HookedTransformer, context: Context, direction: int) -> Tensor:
    """d log Var / d log |x| of Attn + x W over the width."""
    xs = direction * torch.tensor(VARIANCE_AT).double()
    _, attention = _forward(model, context, xs, ATTENTION)
    variance = (attention + xs[:, None] * model.embed.W_E[0]).var(dim=-1, correction=0)
    return (variance[1] / variance[0]).log() / (xs[1] / xs[0]).log()


def _gap(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())
