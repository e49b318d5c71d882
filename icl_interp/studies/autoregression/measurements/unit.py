"""Diagonal linear attention in a model: its heads a_h and b_h, and its weights of positions P.

The module also says whom claims are about.

Sander et al. (2024), equation (6) with Assumption 3: the prediction after s_T is the sum over
t <= T of P_Tt times the sum over heads of <s_{T-1}, a_h * s_t> b_h * s_t, with states of d complex
coordinates, * entry by entry and <u, v> = sum_i conj(u_i) v_i. A real head of a `HookedTransformer`
weighs by the real part of such a product, and one complex head is two real ones: (a_h, b_h) and (-i
a_h, i b_h). What is read here is in coordinates of tokens and predictions, so that another basis,
width or order of heads leaves it. How much of the predictions it explains is told by `ties`. P
counts tokens from 0: p_T of the paper, which counts from 1, is P_TT here, and p_{T-1} is P_{T,T-1}.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Complex, Float
from torch import Tensor
from xarray import DataArray

from icl_interp.analyses.facts import Facts, needs_task
from icl_interp.analyses.lab import Lab
from icl_interp.analyses.measurement import measurement
from icl_interp.interventions.base import Hook, Intervention
from icl_interp.models.complex_heads import diagonals_of
from icl_interp.models.config import HookedTransformerConfig
from icl_interp.models.transformer import HookedTransformer
from icl_interp.prompts import Prompts
from icl_interp.results import make_array
from icl_interp.tasks.autoregressive import AutoregressiveProcess
from icl_interp.theory import autoregression as theory

PAPER = "Sander et al. (2024), How do Transformers perform in-context autoregressive learning?"
KEY = "a (key side)"
VALUE = "b (value side)"
PARTS = ("Re", "Im")
NOTHING = 1e-300


class Heads(NamedTuple):
    """Diagonals as rows: heads weigh by <u, a_h * v> and write b_h * v."""

    keys: Complex[Tensor, "head dim"]  # a_h
    values: Complex[Tensor, "head dim"]  # b_h


# ---- whom the claims are about -------------------------------------------------------------------


def process_in(facts: Facts) -> AutoregressiveProcess:
    """The task that a report knows of, which must be a process."""
    assert isinstance(facts.task, AutoregressiveProcess)
    return facts.task


def process_of(lab: Lab) -> AutoregressiveProcess:
    """The lab's task: no other is measured, see `needs_process`."""
    assert isinstance(lab.task, AutoregressiveProcess)
    return lab.task


def needs_process(facts: Facts) -> str | None:
    """Why it is not attention on plain states of a process s_{t+1} = W s_t."""
    if reason := needs_task(facts, AutoregressiveProcess):
        return reason
    if facts.encoding != "states":
        return (
            "The claim is about prompts of plain states, a token each; this model's are "
            f"{facts.encoding}"
        )
    if facts.config.mlp_only:
        return "The claim is about attention; this model has none (mlp_only)"
    if facts.config.n_layers != 1:
        return f"The claim is about one layer of attention; this model has {facts.config.n_layers}"
    return None


def needs_commuting(facts: Facts) -> str | None:
    """Why there are no commuting matrices W.

    For these the propositions tell how many heads are needed.
    """
    if reason := needs_process(facts):
        return reason
    if process_in(facts).matrices == "orthogonal":
        return (
            "The claim is about matrices W that commute (unitary, conjugate_pairs or rotations); "
            "this model's task has orthogonal ones"
        )
    return None


def beyond_a_unit(cfg: HookedTransformerConfig) -> list[str]:
    """What one layer holds beside linear attention with free weights of positions.

    The queries of that linear attention are made of the previous token.
    """
    others = {
        "an MLP": not cfg.attn_only,
        f"{cfg.score_fn} scores": cfg.score_fn != "linear",
        "scores that are divided by the number of keys": cfg.score_norm is not None,
        "queries made of the last token": cfg.queries != "previous",
        "no free weights of positions": cfg.position_weights != "free",
        "bidirectional attention": cfg.attention_dir != "causal",
        "a norm": cfg.normalization_type is not None,
        "a bound on its tokens": cfg.embed_bound is not None,
        "a factor on what its heads write": cfg.residual_scale != 1,
        f"{cfg.positional_embedding_type} positions": cfg.positions_in_scores,
    }
    return [name for name, present in others.items() if present]


def needs_unit(facts: Facts) -> str | None:
    """Why it is not a layer of equation (6) on commuting processes."""
    if reason := needs_commuting(facts):
        return reason
    if process_in(facts).tiles != 1:
        return (
            "The claim is about states that stand once in a token; here they stand "
            f"{process_in(facts).tiles} times"
        )
    if more := beyond_a_unit(facts.config):
        return (
            "The claim is about a layer of linear attention as in equation (6), with free weights "
            "of positions; this model has " + ", ".join(more)
        )
    return None


def is_paired(task: AutoregressiveProcess) -> bool:
    """Whether the eigenvalues of complex coordinates come in conjugate pairs."""
    return task.matrices == "conjugate_pairs"


def n_complex(task: AutoregressiveProcess) -> int:
    """Complex coordinates of a state.

    They are d for "unitary" and "conjugate_pairs", half of the numbers of "rotations".
    """
    return task.state_dim // 2


def real_heads_needed(task: AutoregressiveProcess) -> int:
    """Real heads with which linear attention can predict without an error: two for each angle of W.

    That is two real heads for each complex head of Propositions 3 and 6.

    >>> real_heads_needed(AutoregressiveProcess(n_dims=6, matrices="rotations", n_points=10))
    6
    """
    return 2 * theory.needed_heads(n_complex(task), paired=is_paired(task))


def not_above(least: float) -> Callable[[Facts], str | None]:
    """What `Claim.learned` asks of models that never come near the usual R2.

    The function that is returned says so where a model's R2 is at most `least`.
    """

    def says(facts: Facts) -> str | None:
        r2 = facts.explained
        if r2.low > least:
            return None
        interval = f" [{r2.low:.3f}, {r2.high:.3f}]" if r2.low < r2.high else ""
        return f"in-distribution R2 {r2.value:.3f}{interval}, more than {least} needed"

    return says


# ---- what a model holds --------------------------------------------------------------------------


def heads_of(model: HookedTransformer) -> Heads:
    """a_h and b_h of every real head of the first layer.

    On pairs x^T F y = Re <x, a y>, where F is a diagonal.
    """
    attention = model.blocks[0].attn
    embed = model.embed.W_E.detach().double()
    out = model.unembed.W_U.detach().double()
    query = embed @ attention.W_Q.detach().double()
    key = embed @ attention.W_K.detach().double()
    value = embed @ attention.W_V.detach().double()
    forms = attention.scale * query @ key.mT
    # Rows are multiplied from the left.
    maps = value @ attention.W_O.detach().double() @ out
    return Heads(diagonals_of(forms).cpu(), diagonals_of(maps.mT).cpu())


def complex_heads(real: Heads) -> Heads:
    """One head of each two that are nearest to being one complex head.

    Heads may stand in any order.

    The pair of (a, b) is (-i a, i b), up to a factor c of a and 1 / c of b: b a^T is the same for
    both, and b conj(a)^T has the opposite sign. Where two heads are nearly such a pair, the one
    with the larger |a| |b| stands for both.

    Raises:
        ValueError: an odd number of heads.
    """
    if len(real.keys) % 2:
        raise ValueError(f"complex heads are pairs of real ones, got {len(real.keys)} heads")
    same = torch.einsum("hi,hj->hij", real.values, real.keys).flatten(1)
    opposite = torch.einsum("hi,hj->hij", real.values, real.keys.conj()).flatten(1)
    # Of every two heads: how far they are from a pair.
    differences = (same[:, None] - same).abs().square().sum(-1)
    sums = (opposite[:, None] + opposite).abs().square().sum(-1)
    gaps = differences + sums
    gaps.fill_diagonal_(torch.inf)
    sizes = (real.keys.norm(dim=1) * real.values.norm(dim=1)).tolist()
    chosen = []
    for _ in range(len(gaps) // 2):
        first, second = divmod(int(gaps.argmin()), len(gaps))
        chosen.append(max(first, second, key=sizes.__getitem__))
        for one in (first, second):
            gaps[one] = torch.inf
            gaps[:, one] = torch.inf
    chosen.sort()
    return Heads(real.keys[chosen], real.values[chosen])


def as_real(heads: Heads) -> Heads:
    """Twice as many real heads that make up these complex ones."""
    keys = torch.cat([heads.keys, -1j * heads.keys])
    values = torch.cat([heads.values, 1j * heads.values])
    return Heads(keys, values)


def says(
    real: Heads, positions: Float[Tensor, "token token"], states: Complex[Tensor, "batch token dim"]
) -> Complex[Tensor, "batch token dim"]:
    """What real heads with weights P predict after every state; 0 after the first."""
    n = states.shape[1]
    nothing = torch.zeros_like(states[:, :1])
    before = torch.cat([nothing, states[:, :-1]], 1)
    scores = torch.einsum("bqi,hi,bki->bhqk", before.conj(), real.keys, states).real
    pattern = scores * positions[:n, :n].tril()
    return torch.einsum("bhqk,hi,bki->bqi", pattern.to(states), real.values, states)


def positions_of(model: HookedTransformer, n_tokens: int) -> Float[Tensor, "query key"]:
    """P: what the weight of each key is multiplied by, for each query.

    0 for keys that a query does not see.
    """
    attention = model.blocks[0].attn
    raw = attention.by_places(n_tokens).detach().double().cpu()
    if model.cfg.position_weights == "free":
        return raw.tril()
    hidden = torch.ones_like(raw, dtype=torch.bool).triu(1)
    return raw.masked_fill(hidden, -torch.inf).softmax(-1)


def plain(
    model: HookedTransformer, weights: Mapping[str, Tensor] | None = None, **changes: Any
) -> HookedTransformer:
    """A `HookedTransformer` with a model's settings but for some, in float64.

    Its weights are the model's, or others.

    It computes what weights say. A class of one's own may compute something else: comparing the two
    shows that.

    Args:
        model: whose settings and device it has.
        weights: by name; the model's own by default. Those that the settings leave no place for are
            left out.
        changes: of the settings.
    """
    cfg = replace(model.cfg, unit=None, **changes)
    other = HookedTransformer(cfg).double().eval()
    other.requires_grad_(False)
    known = model.state_dict() if weights is None else weights
    kept = {name: known[name].detach().double() for name in other.state_dict()}
    other.load_state_dict(kept)
    return other.to(model.unembed.W_U.device)


def with_positions(
    model: HookedTransformer, positions: Float[Tensor, "query key"]
) -> HookedTransformer:
    """The plain model with this P, in float64."""
    n = len(positions)
    n_ctx = model.cfg.n_ctx
    whole = torch.zeros(n_ctx, n_ctx, dtype=torch.float64)
    whole[:n, :n] = positions
    weights = {**model.state_dict(), "blocks.0.attn.W_P": whole}
    return plain(model, weights, position_weights="free")


# ---- measurements --------------------------------------------------------------------------------


@measurement("autoregression/heads")
def heads(lab: Lab) -> DataArray:
    """a_h and b_h of every real head: (matrix, part, head, coordinate)."""
    found = heads_of(lab.model)
    values = torch.stack([torch.stack([one.real, one.imag]) for one in found])
    n_heads, dim = found.keys.shape
    axes = {
        "matrix": (KEY, VALUE),
        "part": PARTS,
        "head": range(n_heads),
        "coordinate": range(1, dim + 1),
    }
    return make_array(
        values.numpy(), axes, note="the nearest complex diagonals, in coordinates of tokens"
    )


def stored_heads(result: DataArray) -> Heads:
    """The real heads of a stored `heads`."""
    numbers = torch.from_numpy(result.values.copy())
    return Heads(*(torch.complex(one[0], one[1]) for one in numbers))


@measurement("autoregression/positions")
def positions(lab: Lab) -> DataArray:
    """P: (query, key), with tokens counted from 0."""
    n = lab.encoding.n_tokens(lab.prompts.n_points)
    return make_array(positions_of(lab.model, n).numpy(), {"query": range(n), "key": range(n)})


def stored_positions(result: DataArray) -> Float[Tensor, "query key"]:
    """P of stored `positions`."""
    return torch.from_numpy(result.values.copy())


def outputs(
    model: HookedTransformer, lab: Lab, prompts: Prompts
) -> Float[Tensor, "batch point target"]:
    """A model's prediction after every state."""
    with torch.no_grad():
        parts = [model(lab.tokens(prompts[rows])).cpu().double() for rows in lab.chunks(prompts)]
    return torch.cat(parts)


@dataclass(frozen=True)
class Shift(Intervention):
    """Adds a number to what stands at a hook, the same for all prompts.

    Attributes:
        name: of the hook.
        by: `(token, width)`; of shorter prompts the first tokens.
    """

    name: str
    by: Float[Tensor, "token width"]

    def hooks(self, model: HookedTransformer) -> list[Hook]:
        """One."""
        return [(self.name, lambda t, hook: t + self.by[: t.shape[1]].to(t))]


def errors(
    out: Float[Tensor, "batch point target"], lab: Lab, prompts: Prompts
) -> Float[Tensor, "batch scored"]:
    """Normalised errors of each prompt at the scored points.

    A normalised error is the squared error over the next state's squared length.
    """
    first = process_of(lab).n_determining
    missed = (out - prompts.ys)[:, first:].square().sum(2)
    lengths = prompts.ys[:, first:].square().sum(2)
    return missed / lengths.clamp(min=NOTHING)


def by_arm(
    lab: Lab, names: Sequence[str], found: Sequence[Float[Tensor, "batch scored"]]
) -> DataArray:
    """Normalised errors of every unit in some arms: (unit, point, arm), at the scored points."""
    values = lab.by_unit(torch.stack(list(found), -1), lab.few)
    first = process_of(lab).n_determining
    axes = {
        "unit": range(len(values)),
        "point": range(first, first + values.shape[1]),
        "arm": tuple(names),
    }
    return make_array(
        values,
        axes,
        "squared length of a state",
        "squared error over the next state's squared length",
    )
