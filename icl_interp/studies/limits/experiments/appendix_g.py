"""Appendix G.1 of Naim & Asher (2025) on a trained layer: what heads read far out.

It is given as printed, exactly, and measured. The paper reduces one attention layer without norm,
biases and positions to alpha_h and zeta_h and gives three sums for a far query. The layer here is
the first of a model trained without LayerNorm: its read-in and its heads as they came out of
training, with biases and positions set to 0, and one head more, its first with the queries erased,
as no trained head has alpha = 0. As trained, with biases and positions, it is checked against the
exact closed form as well.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from pandas import DataFrame
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.criterion import Precondition
from icl_interp.checkpoints.store import Checkpoint
from icl_interp.experiments import errors
from icl_interp.experiments.base import Experiment, Model, Results
from icl_interp.experiments.setup import Setup
from icl_interp.experiments.statements import Statement, at_most, note, statement, within
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.layers import Norm
from icl_interp.models.transformer import HookedTransformer
from icl_interp.probes.record import Activations
from icl_interp.probes.runner import probe
from icl_interp.provenance import generator
from icl_interp.results import Result, make_curve, table_of_rows
from icl_interp.studies.limits.experiments import settings
from icl_interp.studies.limits.experiments.printed import PAPER
from icl_interp.studies.limits.measurements import scalar_layer
from icl_interp.theory import limits as theory

MODEL = "affine_no_ln"
SUMS = {"S1 (alpha > 0)": 1.0, "S2 (alpha < 0)": -1.0, "S3 (alpha = 0)": 0.0}
FORMULAS = ("exact limit", "paper")
XS = tuple(float(x) for x in np.round(10 ** np.linspace(0, 4, 17), 6))  # |x| of the query
AT = 1000.0  # |x| at which single heads are shown
BOUNDARY_AT = 1e6  # |x| at which a boundary value is read
ONE_LAYER = "one layer of it on {n_functions} contexts of {n_points} points"
CLOSE = 0.01  # |measured - formula|, in units of the tokens, up to which a formula gives the limit
REACHED = Precondition(
    "distance from the exact limit", (0.0, CLOSE), "The exact limit is not reached yet."
)
AS_PRINTED = at_most("distance from the printed limit", CLOSE, None, REACHED)
POWER = at_most("|exponent of the variance - 1|", CLOSE)
BOUNDARY = within("distance from the exact boundary value", CLOSE)


# ---- the layer -----------------------------------------------------------------------------------


def first_layer(model: HookedTransformer) -> HookedTransformer:
    """The model's read-in, first attention layer and read-out as they are: one layer in float64."""
    return _layer(model, model.cfg.n_heads, norm=False)


def bare_layer(model: HookedTransformer, norm: bool = False) -> HookedTransformer:
    """`first_layer` as Appendix G.1 has it: no biases and positions, and a head of alpha = 0.

    The head that is added is the first one with its queries erased: it attends alike to all. With
    `norm`, a LayerNorm of gain 1 stands behind the layer, as in Proposition 6.
    """
    layer = _layer(model, model.cfg.n_heads + 1, norm)
    attn = layer.blocks[0].attn
    with torch.no_grad():
        attn.W_Q[-1] = 0
        layer.embed.b_E.zero_()
        layer.pos_embed.W_pos.zero_()
        for letter in "QKVO":
            bias = getattr(attn, f"b_{letter}")
            bias.zero_()
    return layer


def _layer(model: HookedTransformer, n_heads: int, norm: bool) -> HookedTransformer:
    """One layer with the model's weights; heads beyond its own repeat its first ones."""
    cfg = model.cfg
    shape = HookedTransformerConfig(
        n_layers=1,
        d_model=cfg.d_model,
        n_heads=n_heads,
        d_head=cfg.d_head,
        n_ctx=cfg.n_ctx,
        attn_only=True,
        normalization_type="LN" if norm else None,
        norm_position="post" if norm else "pre",
    )
    layer = HookedTransformer(shape).double()
    heads = [head % cfg.n_heads for head in range(n_heads)]
    theirs = model.blocks[0].attn
    attn = layer.blocks[0].attn
    with torch.no_grad():
        for name in ("embed", "pos_embed", "unembed"):
            weights = getattr(model, name).state_dict()
            getattr(layer, name).load_state_dict(weights)
        # The bias of the output has no axis of heads.
        for letter in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V"):
            weight = getattr(theirs, letter)
            getattr(attn, letter).copy_(weight[heads])
        attn.b_O.copy_(theirs.b_O)
    return layer.eval().requires_grad_(False)


def tokens_before(checkpoint: Checkpoint, n: int, seed: int) -> Float[Tensor, "context token"]:
    """The scalar tokens x_1, y_1, x_2, .. of n in-distribution prompts, without the query."""
    numbers = generator(seed, "experiments/appendix_g")
    prompts = checkpoint.task.sample(n, numbers, dtype=torch.float64)
    tokens = checkpoint.encoding.encode(prompts)
    return tokens[:, :-1, 0]


def readings(
    layer: HookedTransformer, contexts: Float[Tensor, "context token"], xs: Float[Tensor, " query"]
) -> Float[Tensor, "context query head"]:
    """m_h(x), what each head reads, from the layer's forward pass.

    It is what the head writes along zeta_h, over |zeta_h|^2.
    """
    _, zetas = scalar_layer.heads_of(layer)
    # Every query behind every context.
    repeated = contexts.repeat_interleave(len(xs), 0)
    queries = xs.repeat(len(contexts))
    asked = torch.cat([repeated, queries[:, None]], 1)
    name = "blocks.0.attn.hook_result"
    seen = Activations([name], keep=lambda written: written[:, -1])
    probe(layer, asked[..., None], [seen])
    along = (seen.recorded[name] * zetas).sum(-1)
    read = along / zetas.square().sum(-1)
    return read.view(len(contexts), len(xs), -1)


def limits_of(
    alpha: float, context: Float[Tensor, " token"], xs: Float[Tensor, " query"]
) -> Float[Tensor, "formula query"]:
    """What the exact limit and the paper's say that a head of this alpha reads at each x."""
    one = torch.ones(1, 1, dtype=torch.float64)
    alphas = torch.tensor([alpha], dtype=torch.float64)
    rows = []
    for sums in (theory.attention_sums, theory.paper_attention_sums):
        both = []
        for direction in (1, -1):
            lines = sums(alphas, one, context, direction)
            both.append(sum(xs * line.slope[0] + line.intercept[0] for line in lines))
        right, left = both
        rows.append(torch.where(xs > 0, right, left))
    return torch.stack(rows)


# ---- the experiment ------------------------------------------------------------------------------


def run(setup: Setup) -> dict[str, Result]:
    """Readings of each head, three sums, the boundary value behind a norm, the layer as trained."""
    if not setup.has(MODEL):
        return {}
    checkpoint = setup.models[MODEL]
    contexts = tokens_before(checkpoint, setup.preset.n_functions, setup.seed)
    context = contexts[0]
    bare = bare_layer(checkpoint.model)
    trained = first_layer(checkpoint.model)
    normed = bare_layer(checkpoint.model, norm=True)
    right = torch.tensor(XS, dtype=torch.float64)
    both = torch.cat([right, -right])
    return {
        "readings": _readings(bare, context),
        "gaps": _gaps(bare, contexts, both),
        "sums": scalar_layer.paper_sums(bare, context, AT),
        "boundary": _boundary(normed, context),
        "as trained": scalar_layer.agreement(trained, contexts, right),
    }


def _kind(alpha: float) -> str:
    """The sum that a head of this alpha belongs to."""
    return next(name for name, sign in SUMS.items() if np.sign(alpha) == sign)


def _readings(layer: HookedTransformer, context: Float[Tensor, " token"]) -> DataFrame:
    """Every head at +-AT after one context."""
    xs = torch.tensor([AT, -AT], dtype=torch.float64)
    alphas, _ = scalar_layer.heads_of(layer)
    (measured,) = readings(layer, context[None], xs)
    rows = []
    for head, alpha in enumerate(alphas.tolist()):
        exact, paper = limits_of(alpha, context, xs)
        for i, x in enumerate(xs.tolist()):
            row = {"head": head, "sum": _kind(alpha), "alpha": alpha, "x": x}
            row["paper"] = float(paper[i])
            row["exact limit"] = float(exact[i])
            row["measured"] = float(measured[i, head])
            rows.append(row)
    return table_of_rows(rows, note="m_h(x) after one context; float64")


def _gaps(layer: HookedTransformer, contexts: Tensor, xs: Tensor) -> DataArray:
    """Largest |measured - formula| over contexts, heads and directions, by sum, formula and |x|."""
    alphas, _ = scalar_layer.heads_of(layer)
    measured = readings(layer, contexts, xs)
    shape = (len(FORMULAS), 2, len(XS))  # formula, direction, |x|
    values = np.full((len(SUMS), len(FORMULAS), len(XS)), np.nan)
    for i, name in enumerate(SUMS):
        heads = [head for head, alpha in enumerate(alphas.tolist()) if _kind(alpha) == name]
        if not heads:
            continue
        largest = torch.zeros(len(FORMULAS), len(xs), dtype=torch.float64)
        for head in heads:
            alpha = float(alphas[head])
            for context, read in zip(contexts, measured[..., head], strict=True):
                gap = (read - limits_of(alpha, context, xs)).abs()
                largest = torch.maximum(largest, gap)
        values[i] = largest.view(shape).amax(1).numpy()
    axes = {"sum": tuple(SUMS), "formula": FORMULAS, "x": XS}
    what = (
        f"First layer of {MODEL} without biases and positions; largest over {len(contexts)} "
        "contexts, heads, ±x"
    )
    return make_curve(values, axes, note=what)


def _boundary(layer: HookedTransformer, context: Float[Tensor, " token"]) -> DataFrame:
    """f far out with a LayerNorm behind the layer, in both directions.

    Beside it stands what the paper's slope would make of it.
    """
    alphas, zetas = scalar_layer.heads_of(layer)
    read_in = layer.embed.W_E[0]
    read_out = layer.unembed.W_U[:, 0]
    bias = layer.unembed.b_U[0]
    norm = layer.blocks[0].ln1
    assert isinstance(norm, Norm)  # `bare_layer` has a LayerNorm, with gain and bias
    assert norm.w is not None
    assert norm.b is not None
    rows = []
    for direction in (1, -1):
        x = direction * BOUNDARY_AT
        tokens = torch.cat([context, torch.tensor([x], dtype=torch.float64)])
        predictions = layer(tokens[None, :, None])
        exact = scalar_layer.far_output(layer, context, direction).constant
        slope, intercept = theory.paper_attention_asymptote(
            read_in, alphas, zetas, context, direction
        )
        limit, _ = theory.layernorm_far(slope, intercept, norm.w, norm.b, norm.eps, direction)
        row = {"x": x}
        row["paper"] = float(limit @ read_out + bias)
        row["exact limit"] = float(exact[0])
        row["measured"] = float(predictions[0, -1, 0])
        rows.append(row)
    what = (
        "f with a LayerNorm behind the layer; paper: the same limit of the line that its three "
        "sums give"
    )
    return table_of_rows(rows, note=what)


def compare(results: Results) -> DataFrame | None:
    """Paper | exact limit | measured, for every head and for the exponent of the variance.

    The last rows are the boundary values.
    """
    rows = []
    for row in errors.rows_of(results, "readings"):
        words = f"{row['sum'][:2]}, head {row['head']}, alpha {row['alpha']:.2g}"
        rows.append(_compared(words, row))
    for row in errors.rows_of(results, "sums", sum="exponent of Var"):
        numbers = {"x": row["x"], "paper": 1.0, "exact limit": 2.0, "measured": _exponent(row)}
        rows.append(_compared("exponent of Var over the width", numbers))
    for row in errors.rows_of(results, "boundary"):
        rows.append(_compared("boundary value, LN behind", row))
    what = f"{PAPER}, appendix G.1; heads: m_h(x), in units of the tokens, after one context"
    return errors.as_table(rows, what)


def _compared(quantity: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of `compare`: the three numbers, and how far the measured one is from the others."""
    found = {"quantity": quantity}
    for name in ("x", "paper", "exact limit", "measured"):
        found[name] = row[name]
    for formula in ("exact limit", "paper"):
        found[f"measured - {formula}"] = row["measured"] - row[formula]
    return found


def states(results: Results) -> tuple[Statement, ...]:
    """Sum by sum: does what is printed give the limit?

    Then the variance, the boundary value, the layer as trained.

    All of it is algebra, checked on numbers: none of it is evidence about what training makes of a
    model.
    """
    gaps = results.get("gaps")
    if not isinstance(gaps, DataArray):
        return (note(f"The model {MODEL} is missing."),)
    text = (
        "This checks formulas of one attention layer: they hold for any weights or for none, "
        "so nothing here is evidence about trained models."
    )
    lines = [note(text)]
    for name in gaps.indexes["sum"]:
        lines.append(_states_sum(gaps, name))
    lines.append(_states_variance(results))
    lines.append(_states_boundary(results))
    trained = errors.rows_of(results, "as trained")
    apart = max(row["attention"] / max(1.0, row["x"]) for row in trained)
    last = trained[-1]
    text = (
        "With the biases and positions that it was trained with, the layer's output is the closed "
        f"form to {apart:.1g} of the query's size, and f is within {last['limit']:.1g} of its "
        f"exact limit at |x| = {last['x']:g}."
    )
    lines.append(note(text))
    return tuple(lines)


def _states_variance(results: Results) -> Statement:
    """Does the variance over the width grow as printed?"""
    exponents = []
    distances = []
    for row in errors.rows_of(results, "sums", sum="exponent of Var"):
        exponent = _exponent(row)
        exponents.append(exponent)
        distances.append(abs(exponent - 1))
    text = (
        f"the variance over the width grows as |x| to the power {_range(exponents)}; printed is c "
        "|x|, power 1, by which LayerNorm's output would grow like the root of |x| and have no "
        "boundary value."
    )
    return statement(text, POWER, *distances, kind="printed")


def _states_boundary(results: Results) -> Statement:
    """Is there a boundary value, and where would the sums as printed put it?"""
    held = []
    apart = []
    values = []
    for row in errors.rows_of(results, "boundary"):
        held.append(abs(row["measured"] - row["exact limit"]))
        apart.append(abs(row["exact limit"] - row["paper"]))
        values.append(f"{row['measured']:.3g}")
    text = (
        "with a LayerNorm behind the layer there is a boundary value in each direction "
        f"({', '.join(values)}; within {max(held):.1g} of "
        f"the exact limit). The sums as printed would put it {max(apart):.2g} away."
    )
    return statement(text, BOUNDARY, max(held), kind="formula")


def _states_sum(gaps: DataArray, name: str) -> Statement:
    """Does one of the three sums give the limit as printed?"""
    farthest = gaps.indexes["x"][-1]
    exact, paper = (float(gaps.sel(sum=name, formula=formula).values[-1]) for formula in FORMULAS)
    if np.isnan(exact):
        return note(f"No head of this layer is in {name}.")
    text = (
        f"{name}: at |x| = {farthest:g} heads read within {exact:.1g} of the exact limit and "
        f"within {errors.plainly(paper)} of the printed one, in units of the tokens."
    )
    return statement(text, AS_PRINTED, paper, given={REACHED.quantity: exact}, kind="printed")


def _exponent(row: Mapping[str, Any]) -> float:
    """The measured exponent, recovered from its stored differences.

    These are |measured - 2| ("ours") and |measured - 1| ("printed").
    """

    def mismatch(exponent: float) -> float:
        return abs(abs(exponent - 2) - row["ours"])

    above = 1 + row["printed"]
    below = 1 - row["printed"]
    return min(above, below, key=mismatch)


def _range(values: Sequence[float]) -> str:
    """From the smallest to the largest, in words."""
    low = f"{min(values):.4f}"
    high = f"{max(values):.4f}"
    return low if low == high else f"{low} to {high}"


APPENDIX_G_EXPERIMENT = Experiment(
    "limits.appendix_g",
    "Appendix G.1, algebra checked on a layer: three sums, the variance, and the boundary value",
    f"{PAPER}, appendix G.1, proofs of Propositions 5 and 6",
    (Model(MODEL),),
    run,
    states,
    compare,
    sample=ONE_LAYER,
    settings=settings.SETTINGS["appendix_g"],
)
