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
ATTENTION = "blocks.0.hook_attn_out"
HEADS = "blocks.0.attn.hook_result"
# Where the growth of the variance is fitted: past the intercept, before rounding.
VARIANCE_AT = (1e3, 1e5)
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
    embed = model.embed
    attn = model.blocks[0].attn
    shifts = _plain(embed.b_E).expand(n_tokens, -1)
    if cfg.positional_embedding_type == "standard":
        shifts = shifts + _plain(model.pos_embed.W_pos[:n_tokens])
    weights = (_plain(attn.W_Q), _plain(attn.W_K), _plain(attn.W_V), _plain(attn.W_O))
    biases = (_plain(attn.b_Q), _plain(attn.b_K), _plain(attn.b_V), _plain(attn.b_O))
    read_in = _plain(embed.W_E[0])
    scale = float(attn.scale)
    return theory.ScalarLayer.of_weights(read_in, shifts, weights, biases, scale=scale)


def _plain(weights: Tensor) -> Tensor:
    """Weights in float64, on the CPU and without gradients."""
    return weights.detach().double().cpu()


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
    # What the appendix does not have.
    added = {"embed.b_E": model.embed.b_E}
    for letter in "QKVO":
        added[f"attn.b_{letter}"] = getattr(attn, f"b_{letter}")
    if model.cfg.positional_embedding_type == "standard":
        added["pos_embed.W_pos"] = model.pos_embed.W_pos
    present = []
    for name, parameter in added.items():
        if bool((parameter != 0).any()):
            present.append(name)
    if present:
        names = ", ".join(present)
        verb = "is" if len(present) == 1 else "are"
        raise InputError(
            "Appendix G.1 has neither biases nor positions, but in this model "
            f"{names} {verb} not 0: use layer_of, which reads them too"
        )
    weights = [_plain(getattr(attn, f"W_{letter}")) for letter in "QKVO"]
    read_in = _plain(model.embed.W_E[0])
    return theory.scalar_heads(read_in, *weights, scale=float(attn.scale))


def far_output(model: HookedTransformer, context: Context, direction: int = 1) -> FarOutput:
    """What the model's output at the last token becomes as that token goes to +inf or -inf.

    Without a norm a line; with LayerNorm behind the layer a boundary value, and the correction by
    which a context still shows at finite x. Beside 1 / |x| nothing is left out but 1 / x^2, and
    what attention has not decided yet.

    Source: Naim & Asher (2025), Propositions 5 and 6, corrected.

    Raises:
        InputError: as `layer_of`.
    """
    n_tokens = len(context) + 1
    line = layer_of(model, n_tokens).asymptote(context, direction)
    return _read_out(model, line, direction)


def agreement(
    model: HookedTransformer, contexts: Float[Tensor, "context token"], xs: Float[Tensor, " query"]
) -> DataFrame:
    """The closed form beside the model's own forward pass, a row for each last token x.

    Gaps are the largest over contexts.

    Columns: "attention" and "output", forward - decomposition, of what the layer adds to the stream
    and of f; "limit", forward - `far_output` of f; "pattern", the largest total variation distance
    of a head's attention weights from their limit, which says where a limit is not reached yet.
    Where alpha = 0 comes of vectors q and k that cancel, the model's own scores are their rounding
    times x^2, and the gaps show it from |x| ~ 1e4 on. At x = 0 there is no direction and "limit"
    means nothing.

    Raises:
        InputError: as `layer_of`.
    """
    n_tokens = contexts.shape[1] + 1
    layer = layer_of(model, n_tokens)
    model = _double(model)
    xs = xs.double()
    rows = []
    for context in contexts.double():
        out, seen = _forward(model, context, xs, ATTENTION)

        # Patterns beside their limit in the direction of each x.
        above = layer.limit_pattern(context, 1)[:, None]
        below = layer.limit_pattern(context, -1)[:, None]
        limit = torch.where((xs > 0)[:, None], above, below)
        change = layer.pattern(xs, context) - limit
        variation = change.abs().sum(-1).amax(0) / 2

        # What the layer adds to the stream, f, and f far out.
        far_above = _read_out(model, layer.asymptote(context, 1), 1)
        far_below = _read_out(model, layer.asymptote(context, -1), -1)
        far = _far_values([far_above, far_below], xs)
        attention = layer.output(xs, context)
        output = _finish(model, layer.stream(xs, context))
        gaps = [seen - attention, out - output, out - far]
        largest = [gap.abs().amax(-1) for gap in gaps]
        rows.append(torch.stack([*largest, variation]))
    attention, output, limit, pattern = torch.stack(rows).amax(0).tolist()
    columns = {
        "x": xs.tolist(),
        "attention": attention,
        "output": output,
        "limit": limit,
        "pattern": pattern,
    }
    note = f"largest absolute differences over {len(contexts)} contexts; float64"
    return make_table(columns, note=note)


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
    n_heads = len(alphas)
    model = _double(model)
    context = context.double()
    embed = model.embed.W_E[0]
    of_sign = {
        "S1 (alpha > 0)": alphas > 0,
        "S2 (alpha < 0)": alphas < 0,
        "S3 (alpha = 0)": alphas == 0,
    }
    columns: dict[str, list[Any]] = {
        name: [] for name in ("sum", "x", "heads", "ours", "printed", "apart")
    }

    def add(name: str, at: float, n: int, model_s: Tensor, ours: Tensor, printed: Tensor) -> None:
        columns["sum"].append(name)
        columns["x"].append(at)
        columns["heads"].append(n)
        columns["ours"].append(_gap(model_s, ours))
        columns["printed"].append(_gap(model_s, printed))
        columns["apart"].append(_gap(ours, printed))

    for direction in (1, -1):
        at = direction * abs(x)
        _, written = _forward(model, context, torch.tensor([at]).double(), HEADS)
        our_lines = theory.attention_sums(alphas, zetas, context, direction)
        printed_lines = theory.paper_attention_sums(alphas, zetas, context, direction)
        measured = [written[0][chosen].sum(0) for chosen in of_sign.values()]
        ours = [at * line.slope + line.intercept for line in our_lines]
        printed = [at * line.slope + line.intercept for line in printed_lines]
        for i, (name, chosen) in enumerate(of_sign.items()):
            add(name, at, int(chosen.sum()), measured[i], ours[i], printed[i])
        # The whole: all three sums, and what the token itself is read in as.
        token = at * embed
        wholes: tuple[Any, ...] = (sum(measured) + token, sum(ours) + token, sum(printed) + token)
        add("Attn + x W", at, n_heads, *wholes)
        exponent = _variance_exponent(model, context, direction)
        add("exponent of Var", at, n_heads, exponent, torch.tensor(2.0), torch.tensor(1.0))
    return make_table(columns, note="largest absolute differences; float64")


def _check(model: HookedTransformer) -> None:
    reason = why_not(model)
    if reason:
        raise InputError(
            f"the closed form is for one softmax attention layer on scalar tokens, but {reason}"
        )


def why_not(model: HookedTransformer) -> str | None:
    """Why the closed form does not hold for this model, and what to do instead; None if it does."""
    cfg = model.cfg
    # First what is before and behind the layer, then how it reads tokens and scores them.
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
    contexts = context.expand(len(xs), -1)
    numbers = torch.cat([contexts, xs[:, None]], dim=1)
    positions = {"query": [len(context)]}
    seen = Activations([name])
    with torch.no_grad(), observe(model, seen, positions=positions):
        out = model(numbers[..., None])
    recorded = seen.recorded[name]
    return out[:, -1], recorded[:, 0]


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
    unembed = model.unembed
    return stream @ unembed.W_U + unembed.b_U


def _read_out(model: HookedTransformer, line: theory.Line, direction: int) -> FarOutput:
    """`FarOutput` of the stream's line."""
    read_out = _plain(model.unembed.W_U)
    bias = _plain(model.unembed.b_U)
    zero = torch.zeros_like(bias)
    if not model.cfg.normalization_type:
        slope = line.slope @ read_out
        constant = line.intercept @ read_out + bias
        return FarOutput(slope, constant, zero)
    norm = _norm(model)
    gain = torch.ones_like(line.slope) if norm.w is None else _plain(norm.w)
    shift = torch.zeros_like(line.slope) if norm.b is None else _plain(norm.b)
    limit, correction = theory.layernorm_far(
        line.slope, line.intercept, gain, shift, norm.eps, direction
    )
    constant = limit @ read_out + bias
    return FarOutput(zero, constant, correction @ read_out)


def _far_values(both: list[FarOutput], xs: Tensor) -> Float[Tensor, "query d_out"]:
    """f by the closed form of each x's direction, the positive one first."""
    x = xs[:, None]
    above, below = (far.slope * x + far.constant + far.correction / x.abs() for far in both)
    return torch.where(x > 0, above, below)


def _variance_exponent(model: HookedTransformer, context: Context, direction: int) -> Tensor:
    """d log Var / d log |x| of Attn + x W over the width."""
    xs = direction * torch.tensor(VARIANCE_AT).double()
    _, attention = _forward(model, context, xs, ATTENTION)
    stream = attention + xs[:, None] * model.embed.W_E[0]
    low, high = stream.var(dim=-1, correction=0)
    rise = (high / low).log()
    return rise / (xs[1] / xs[0]).log()


def _gap(a: Tensor, b: Tensor) -> float:
    difference = a - b
    return float(difference.abs().max())
